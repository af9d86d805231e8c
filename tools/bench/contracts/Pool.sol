// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import "./Prices.sol";
import "./Token.sol";

/// Pays what a pool asks for.
interface Payer {
    function pay(address token, address from, uint256 amount) external;
}

/// Two tokens whose liquidity lies in ranges of prices. Prices are square roots with 64 bits behind
/// the point, liquidity is below 2^96, fees by liquidity have 128 bits behind the point.
contract Pool {
    event Swap(address indexed sender, address indexed to, uint256 paid, uint256 got, uint128 price, uint128 liquidity, int24 tick);
    event Mint(address indexed owner, int24 indexed lower, int24 indexed upper, uint128 amount, uint256 paid0, uint256 paid1);
    event Burn(address indexed owner, int24 indexed lower, int24 indexed upper, uint128 amount, uint256 got0, uint256 got1);

    error Locked();
    error NotPaid();
    error BadRange();

    struct Tick {
        uint128 gross;
        int128 net;
        uint256 outside0;
        uint256 outside1;
    }

    struct Position {
        uint256 liquidity;
        uint256 inside0;
        uint256 inside1;
    }

    /// What a swap carries from step to step.
    struct Course {
        uint256 price;
        uint256 liquidity;
        uint256 growth;
        uint256 left;
        uint256 got;
        int24 tick;
    }

    int24 constant SPACING = 10;
    int24 constant LAST = 100_000;
    uint256 constant FEE = 3_000;
    uint256 constant MILLION = 1_000_000;

    Token public token0;
    Token public token1;
    uint128 private price;
    int24 private tick;
    bool private locked;
    uint128 public liquidity;
    uint256 public growth0;
    uint256 public growth1;
    mapping(int24 => Tick) public ticks;
    mapping(int16 => uint256) public marks;
    mapping(bytes32 => Position) public positions;

    modifier lock() {
        if (locked) revert Locked();
        locked = true;
        _;
        locked = false;
    }

    function state() external view returns (uint128, int24, uint128) {
        return (price, tick, liquidity);
    }

    /// Sells `amount` of one token; the caller's `pay` is asked for it.
    function swap(address to, address payer, bool down, uint256 amount) external lock returns (uint256) {
        Course memory at = Course(price, liquidity, down ? growth0 : growth1, amount, 0, tick);
        while (at.left > 0 && (down ? at.tick > -LAST : at.tick < LAST)) step(at, down);
        (price, tick, liquidity) = (uint128(at.price), at.tick, uint128(at.liquidity));
        if (down) growth0 = at.growth;
        else growth1 = at.growth;
        (Token sold, Token bought) = down ? (token0, token1) : (token1, token0);
        uint256 paid = amount - at.left;
        bought.transfer(to, at.got);
        take(sold, payer, paid);
        emit Swap(msg.sender, to, paid, at.got, uint128(at.price), uint128(at.liquidity), at.tick);
        return at.got;
    }

    /// To the next mark of the price, or as far as what is left goes.
    function step(Course memory at, bool down) private {
        (int24 next, bool marked) = nextMark(at.tick, down);
        if (next < -LAST) next = -LAST;
        if (next > LAST) next = LAST;
        uint256 target = Prices.at(next);
        uint256 usable = at.left * (MILLION - FEE) / MILLION;
        uint256 needed = down
            ? amount0(target, at.price, at.liquidity) + 1
            : amount1(at.price, target, at.liquidity) + 1;
        uint256 reached = target;
        uint256 fee;
        if (usable >= needed) {
            fee = needed * FEE / (MILLION - FEE) + 1;
            if (fee > at.left - needed) fee = at.left - needed;
            at.left -= needed + fee;
        } else {
            uint256 scaled = at.liquidity << 64;
            reached = down ? scaled * at.price / (scaled + usable * at.price) + 1 : at.price + (usable << 64) / at.liquidity;
            fee = at.left - usable;
            at.left = 0;
        }
        at.got += down ? amount1(reached, at.price, at.liquidity) : amount0(at.price, reached, at.liquidity);
        if (at.liquidity > 0) at.growth += (fee << 128) / at.liquidity;
        at.price = reached;
        if (reached == target) {
            if (marked) cross(at, next, down);
            at.tick = down ? next - 1 : next;
        } else {
            at.tick = Prices.tickOf(reached);
        }
    }

    function cross(Course memory at, int24 next, bool down) private {
        Tick storage mark = ticks[next];
        unchecked {
            mark.outside0 = (down ? at.growth : growth0) - mark.outside0;
            mark.outside1 = (down ? growth1 : at.growth) - mark.outside1;
        }
        int256 net = mark.net;
        at.liquidity = uint256(int256(at.liquidity) + (down ? -net : net));
    }

    /// Adds liquidity between two ticks; the caller's `pay` is asked for the tokens.
    function mint(address owner, address payer, int24 lower, int24 upper, uint128 amount) external lock {
        if (lower >= upper || lower < -LAST || upper > LAST || amount == 0) revert BadRange();
        if (lower % SPACING != 0 || upper % SPACING != 0 || amount >> 96 != 0) revert BadRange();
        change(lower, int128(amount), false);
        change(upper, int128(amount), true);
        settle(owner, lower, upper, int128(amount));
        (uint256 paid0, uint256 paid1) = amounts(lower, upper, amount);
        if (tick >= lower && tick < upper) liquidity += amount;
        take(token0, payer, paid0 + 1);
        take(token1, payer, paid1 + 1);
        emit Mint(owner, lower, upper, amount, paid0 + 1, paid1 + 1);
    }

    /// Takes liquidity of the caller's away again, with what it has earned.
    function burn(int24 lower, int24 upper, uint128 amount) external lock {
        (uint256 earned0, uint256 earned1) = settle(msg.sender, lower, upper, -int128(amount));
        change(lower, -int128(amount), false);
        change(upper, -int128(amount), true);
        (uint256 got0, uint256 got1) = amounts(lower, upper, amount);
        if (tick >= lower && tick < upper) liquidity -= amount;
        token0.transfer(msg.sender, got0 + earned0);
        token1.transfer(msg.sender, got1 + earned1);
        emit Burn(msg.sender, lower, upper, amount, got0 + earned0, got1 + earned1);
    }

    function change(int24 at, int128 amount, bool isUpper) private {
        Tick storage mark = ticks[at];
        uint128 before = mark.gross;
        uint128 gross = uint128(int128(before) + amount);
        if (before == 0 && at <= tick) (mark.outside0, mark.outside1) = (growth0, growth1);
        (mark.gross, mark.net) = (gross, mark.net + (isUpper ? -amount : amount));
        if ((before == 0) == (gross == 0)) return;
        int24 place = at / SPACING;
        marks[int16(place >> 8)] ^= 1 << uint8(uint24(place & 255));
    }

    /// Brings a position up to date; what it has earned since.
    function settle(address owner, int24 lower, int24 upper, int128 amount) private returns (uint256 earned0, uint256 earned1) {
        Position storage position = positions[keccak256(abi.encodePacked(owner, lower, upper))];
        (uint256 inside0, uint256 inside1) = inside(lower, upper);
        uint256 held = position.liquidity;
        unchecked {
            earned0 = (inside0 - position.inside0) * held >> 128;
            earned1 = (inside1 - position.inside1) * held >> 128;
        }
        position.liquidity = uint256(int256(held) + amount);
        require(position.liquidity >> 96 == 0, "more than is there");
        (position.inside0, position.inside1) = (inside0, inside1);
    }

    function inside(int24 lower, int24 upper) private view returns (uint256 inside0, uint256 inside1) {
        (Tick storage low, Tick storage high) = (ticks[lower], ticks[upper]);
        unchecked {
            uint256 below0 = tick >= lower ? low.outside0 : growth0 - low.outside0;
            uint256 below1 = tick >= lower ? low.outside1 : growth1 - low.outside1;
            uint256 above0 = tick < upper ? high.outside0 : growth0 - high.outside0;
            uint256 above1 = tick < upper ? high.outside1 : growth1 - high.outside1;
            (inside0, inside1) = (growth0 - below0 - above0, growth1 - below1 - above1);
        }
    }

    function amounts(int24 lower, int24 upper, uint256 amount) private view returns (uint256, uint256) {
        (uint256 low, uint256 high, uint256 now_) = (Prices.at(lower), Prices.at(upper), price);
        if (now_ < low) now_ = low;
        if (now_ > high) now_ = high;
        return (amount0(now_, high, amount), amount1(low, now_, amount));
    }

    function amount0(uint256 low, uint256 high, uint256 amount) private pure returns (uint256) {
        return (amount << 64) * (high - low) / high / low;
    }

    function amount1(uint256 low, uint256 high, uint256 amount) private pure returns (uint256) {
        return amount * (high - low) >> 64;
    }

    /// The next marked tick within its word of marks, or the end of the word.
    function nextMark(int24 from, bool down) private view returns (int24, bool) {
        int24 place = from / SPACING;
        if (from < 0 && from % SPACING != 0) place--;
        if (!down) place++;
        uint256 bit = uint24(place & 255);
        uint256 word = marks[int16(place >> 8)];
        if (down) {
            word &= type(uint256).max >> (255 - bit);
            uint256 found = word == 0 ? 0 : Prices.highest(word);
            return ((place - int24(uint24(bit - found))) * SPACING, word != 0);
        }
        word &= type(uint256).max << bit;
        uint256 place_ = word == 0 ? 255 : Prices.highest(word & (~word + 1));
        return ((place + int24(uint24(place_ - bit))) * SPACING, word != 0);
    }

    function take(Token token, address payer, uint256 amount) private {
        uint256 before = token.balanceOf(address(this));
        Payer(msg.sender).pay(address(token), payer, amount);
        if (token.balanceOf(address(this)) < before + amount) revert NotPaid();
    }
}
