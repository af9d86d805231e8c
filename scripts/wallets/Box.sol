// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

contract Box {
    error TooLarge(uint256 value);
    event Stored(address indexed who, uint256 value);

    uint256 public value;
    mapping(address => uint256) public last;

    constructor(uint256 first) {
        value = first;
    }

    function store(uint256 next) external payable {
        if (next > 1000) revert TooLarge(next);
        require(next != 13, "unlucky");
        value = next;
        last[msg.sender] = next;
        emit Stored(msg.sender, next);
    }
}
