// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import "./Token.sol";

/// Two tokens whose reserves' product never falls: 0.3 % of what comes in stays. The caller sends
/// first and says what is to come out.
contract Pair {
    event Swap(address indexed sender, uint256 in0, uint256 in1, uint256 out0, uint256 out1, address indexed to);
    event Sync(uint112 reserve0, uint112 reserve1);

    error Locked();
    error NotEnough();
    error ProductFalls();

    Token public token0;
    Token public token1;
    uint112 private reserve0;
    uint112 private reserve1;
    uint32 private updatedAt;
    uint256 public priceSum0;
    uint256 public priceSum1;
    uint256 private open;

    function reserves() external view returns (uint112, uint112, uint32) {
        return (reserve0, reserve1, updatedAt);
    }

    function swap(uint256 out0, uint256 out1, address to) external {
        if (open != 1) revert Locked();
        open = 0;
        (uint112 old0, uint112 old1) = (reserve0, reserve1);
        if (out0 >= old0 || out1 >= old1 || out0 + out1 == 0) revert NotEnough();
        if (out0 > 0) token0.transfer(to, out0);
        if (out1 > 0) token1.transfer(to, out1);
        uint256 new0 = token0.balanceOf(address(this));
        uint256 new1 = token1.balanceOf(address(this));
        uint256 in0 = new0 > old0 - out0 ? new0 - (old0 - out0) : 0;
        uint256 in1 = new1 > old1 - out1 ? new1 - (old1 - out1) : 0;
        uint256 product = (new0 * 1000 - in0 * 3) * (new1 * 1000 - in1 * 3);
        if (product < uint256(old0) * old1 * 1000 ** 2) revert ProductFalls();
        update(new0, new1, old0, old1);
        emit Swap(msg.sender, in0, in1, out0, out1, to);
        open = 1;
    }

    function update(uint256 new0, uint256 new1, uint112 old0, uint112 old1) private {
        require(new0 <= type(uint112).max && new1 <= type(uint112).max, "too much");
        uint32 time = uint32(block.timestamp);
        unchecked {
            uint32 passed = time - updatedAt;
            if (passed > 0 && old0 > 0 && old1 > 0) {
                priceSum0 += ((uint256(old1) << 112) / old0) * passed;
                priceSum1 += ((uint256(old0) << 112) / old1) * passed;
            }
        }
        (reserve0, reserve1, updatedAt) = (uint112(new0), uint112(new1), time);
        emit Sync(uint112(new0), uint112(new1));
    }
}
