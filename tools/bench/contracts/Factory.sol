// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import "./Token.sol";

/// Keeps tokens for its owner.
contract Vault {
    address public owner;
    Token public token;
    uint256 public openAt;

    constructor(address owner_, Token token_, uint256 openAt_) {
        (owner, token, openAt) = (owner_, token_, openAt_);
    }

    function withdraw(uint256 amount) external {
        require(msg.sender == owner && block.timestamp >= openAt, "not yet");
        token.transfer(owner, amount);
    }
}

/// Makes vaults at addresses known before.
contract Factory {
    event Made(address indexed vault, address indexed owner);

    uint256 public count;

    function make(Token token, uint256 openAt) external {
        bytes32 salt = keccak256(abi.encode(msg.sender, count));
        Vault vault = new Vault{salt: salt}(msg.sender, token, openAt);
        count++;
        emit Made(address(vault), msg.sender);
    }
}
