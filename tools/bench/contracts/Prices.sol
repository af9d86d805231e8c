// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Ticks and prices: tick t is the price 1.0001^t, given as its square root with 64 bits behind the
/// point.
library Prices {
    /// 1.0001^(-1/2), 128 bits behind the point.
    uint256 constant BASE = 340265354078544963557816517032075149313;
    /// 2 / log2(1.0001), 64 bits behind the point.
    uint256 constant TICKS_PER_DOUBLING = 255738958999603826347140;

    /// The price of a tick: the base squared again and again.
    function at(int24 tick) internal pure returns (uint256) {
        uint256 left = tick < 0 ? uint24(-tick) : uint24(tick);
        uint256 result = 1 << 128;
        uint256 power = BASE;
        unchecked {
            while (left > 0) {
                if (left & 1 != 0) result = result * power >> 128;
                power = power * power >> 128;
                left >>= 1;
            }
        }
        return (tick > 0 ? type(uint256).max / result : result) >> 64;
    }

    /// The last tick whose price is not above `price`: by the logarithm to 14 bits, then by looking.
    function tickOf(uint256 price) internal pure returns (int24 tick) {
        unchecked {
            uint256 top = highest(price);
            int256 log = (int256(top) - 64) << 64;
            uint256 rest = top > 127 ? price >> (top - 127) : price << (127 - top);
            for (uint256 bit = 63; bit > 49; bit--) {
                rest = rest * rest >> 127;
                uint256 carry = rest >> 128;
                log += int256(carry << bit);
                rest >>= carry;
            }
            tick = int24(log * int256(TICKS_PER_DOUBLING) >> 128);
        }
        while (at(tick + 1) <= price) tick++;
        while (at(tick) > price) tick--;
    }

    /// The highest bit that is set; 0 for nothing.
    function highest(uint256 value) internal pure returns (uint256 bit) {
        unchecked {
            for (uint256 half = 128; half > 0; half >>= 1) {
                if (value >> half > 0) {
                    value >>= half;
                    bit += half;
                }
            }
        }
    }
}
