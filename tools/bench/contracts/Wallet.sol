// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// What an account of a key delegates to (EIP-7702): several calls in one transaction.
contract Wallet {
    struct Call {
        address to;
        uint256 value;
        bytes data;
    }

    error NotYours();

    uint256 public batches;

    receive() external payable {}

    function execute(Call[] calldata calls) external payable {
        if (msg.sender != address(this)) revert NotYours();
        batches++;
        for (uint256 i = 0; i < calls.length; i++) {
            (bool good, bytes memory reason) = calls[i].to.call{value: calls[i].value}(calls[i].data);
            if (!good) {
                assembly {
                    revert(add(reason, 32), mload(reason))
                }
            }
        }
    }
}
