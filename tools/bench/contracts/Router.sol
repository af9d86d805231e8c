// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import "./Pair.sol";
import "./Pool.sol";

/// What people call: it moves their tokens into pairs and pools, and sees that they get enough.
contract Router is Payer {
    error TooLittle(uint256 got, uint256 least);
    error NoPool();

    mapping(address => bool) public isPool;

    /// Sells `amount` of the first token for the last one, a pair between each two.
    function swap(address[] calldata tokens, Pair[] calldata pairs, uint256 amount, uint256 least) external {
        Token(tokens[0]).transferFrom(msg.sender, address(pairs[0]), amount);
        for (uint256 i = 0; i < pairs.length; i++) {
            address to = i + 1 < pairs.length ? address(pairs[i + 1]) : msg.sender;
            bool down = tokens[i] < tokens[i + 1];
            (uint256 in_, uint256 out, ) = pairs[i].reserves();
            if (!down) (in_, out) = (out, in_);
            amount = out * amount * 997 / (in_ * 1000 + amount * 997);
            pairs[i].swap(down ? 0 : amount, down ? amount : 0, to);
        }
        if (amount < least) revert TooLittle(amount, least);
    }

    /// Sells `amount` to a pool, token 0 if `down`.
    function swapIn(Pool pool, bool down, uint256 amount, uint256 least) external {
        uint256 got = pool.swap(msg.sender, msg.sender, down, amount);
        if (got < least) revert TooLittle(got, least);
    }

    /// Adds liquidity of the caller's to a pool.
    function mint(Pool pool, int24 lower, int24 upper, uint128 amount) external {
        pool.mint(msg.sender, msg.sender, lower, upper, amount);
    }

    function pay(address token, address from, uint256 amount) external {
        if (!isPool[msg.sender]) revert NoPool();
        Token(token).transferFrom(from, msg.sender, amount);
    }
}
