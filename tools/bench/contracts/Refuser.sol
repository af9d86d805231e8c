// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Works for nothing: every call fails in the end.
contract Refuser {
    error Refused(uint256 work);

    mapping(uint256 => uint256) public work;

    /// Fails with words, an error, a panic, an opcode that is none, or for want of gas.
    function refuse(uint256 how, uint256 times) external {
        for (uint256 i = 0; i < times; i++) work[i] = uint256(keccak256(abi.encode(how, i, work[i])));
        if (how == 0) revert("not today, and not tomorrow either");
        if (how == 1) revert Refused(times);
        if (how == 2) assert(times > 1 << 64);
        if (how == 3) {
            assembly {
                invalid()
            }
        }
        while (true) work[gasleft()] = how;
    }
}
