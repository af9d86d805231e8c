// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// A token as ERC-20 has it. An allowance of the greatest number never shrinks.
contract Token {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);

    error TooLittle(address from, uint256 held, uint256 wanted);
    error NotAllowed(address spender, uint256 allowed, uint256 wanted);
    error Nobody();

    uint256 public totalSupply;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;

    function transfer(address to, uint256 value) external returns (bool) {
        move(msg.sender, to, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        uint256 allowed = allowance[from][msg.sender];
        if (allowed < value) revert NotAllowed(msg.sender, allowed, value);
        if (allowed != type(uint256).max) allowance[from][msg.sender] = allowed - value;
        move(from, to, value);
        return true;
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }

    function move(address from, address to, uint256 value) private {
        if (to == address(0)) revert Nobody();
        uint256 held = balanceOf[from];
        if (held < value) revert TooLittle(from, held, value);
        balanceOf[from] = held - value;
        balanceOf[to] += value;
        emit Transfer(from, to, value);
    }
}
