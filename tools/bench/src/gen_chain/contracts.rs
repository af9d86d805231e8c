//! The contracts of a generated chain: code, address, initial storage.
//!
//! The sources are in `tools/bench/contracts`, with the command that compiles them.

use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256, U256};

/// Number of tokens; the first ones are used most.
pub(super) const TOKENS: u64 = 32;
/// Number of NFT collections.
pub(super) const NFTS: u64 = 6;
/// Number of long lists.
pub(super) const LEDGERS: u64 = 4;
/// The token pairs of the pools with concentrated liquidity.
pub(super) const POOLS: [(u64, u64); 6] = [(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (1, 3)];
/// Token 0 has a pair with each other token; token 1 also has pairs with the tokens up to this one.
pub(super) const LAST_OF_SECOND: u64 = 8;
/// Ranges around price 1 of each pool that hold liquidity at genesis.
pub(super) const RANGES: i32 = 40;
/// Tick spacing.
pub(super) const SPACING: i32 = 10;
/// The token balance of every sender, pair and pool.
pub(super) const HOLDING: u128 = 1_000_000_000_000_000_000_000_000_000_000;
/// The reserve of each token of a pair.
pub(super) const RESERVE: u128 = HOLDING / 1000;
/// Liquidity of one range.
const RANGE_LIQUIDITY: u128 = 1 << 80;

macro_rules! code {
    ($name:literal) => {
        include_str!(concat!("../../contracts/", $name, ".hex"))
    };
}

/// Init code of a token.
pub(super) const TOKEN_INIT: &str = code!("Token.init");

/// Writes the upper half of `keccak256(i)` to each slot `i`; the input is the first one and the end:
///
/// ```text
///    PUSH1 32 CALLDATALOAD PUSH0 CALLDATALOAD                    end i
/// 5: JUMPDEST DUP1 PUSH0 MSTORE PUSH1 32 PUSH0 KECCAK256         end i hash
///    PUSH1 128 SHR DUP2 SSTORE                                   end i
///    PUSH1 1 ADD DUP2 DUP2 LT PUSH1 5 JUMPI STOP
/// ```
const SLOTS_CODE: &str = "6020355f355b805f5260205f2060801c815560010181811060055700";
/// Sends the first 8 bytes of `keccak256(i)`, as wei, to the account at its last 20 bytes; the input is the same:
///
/// ```text
///    PUSH1 32 CALLDATALOAD PUSH0 CALLDATALOAD                    end i
/// 5: JUMPDEST DUP1 PUSH0 MSTORE PUSH1 32 PUSH0 KECCAK256         end i hash
///    PUSH0 PUSH0 PUSH0 PUSH0 DUP5 PUSH1 192 SHR DUP6 PUSH0 CALL  end i hash 1
///    POP POP PUSH1 1 ADD DUP2 DUP2 LT PUSH1 5 JUMPI STOP
/// ```
const ACCOUNTS_CODE: &str =
    "6020355f355b805f5260205f205f5f5f5f8460c01c855ff1505060010181811060055700";

/// A kind of contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contract {
    Token(u64),
    /// Token 0 or 1, and another.
    Pair(u64, u64),
    /// Index in [`POOLS`].
    Pool(usize),
    Router,
    Nft(u64),
    Ledger(u64),
    Compute,
    Refuser,
    Factory,
    Wallet,
    /// Writes slots while a chain grows.
    Slots(u64),
    /// Makes accounts while a chain grows.
    Accounts,
}

impl Contract {
    /// All contracts that transactions of the mix call.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Router,
            Self::Compute,
            Self::Refuser,
            Self::Factory,
            Self::Wallet,
        ];
        all.extend((0..TOKENS).map(Self::Token));
        all.extend((1..TOKENS).map(|other| Self::Pair(0, other)));
        all.extend((2..=LAST_OF_SECOND).map(|other| Self::Pair(1, other)));
        all.extend((0..POOLS.len()).map(Self::Pool));
        all.extend((0..NFTS).map(Self::Nft));
        all.extend((0..LEDGERS).map(Self::Ledger));
        all
    }

    /// The contracts that a chain which grows has in addition.
    pub(super) fn growing() -> impl Iterator<Item = Self> {
        (0..TOKENS)
            .map(Self::Slots)
            .chain(std::iter::once(Self::Accounts))
    }

    pub(super) fn address(self) -> Address {
        Address::from_word(keccak256(format!("niwaki chain {self:?}")))
    }

    /// Its code, in hex.
    pub(super) fn code(self) -> &'static str {
        let code = match self {
            Self::Token(_) => code!("Token"),
            Self::Pair(..) => code!("Pair"),
            Self::Pool(_) => code!("Pool"),
            Self::Router => code!("Router"),
            Self::Nft(_) => code!("Nft"),
            Self::Ledger(_) => code!("Ledger"),
            Self::Compute => code!("Compute"),
            Self::Refuser => code!("Refuser"),
            Self::Factory => code!("Factory"),
            Self::Wallet => code!("Wallet"),
            Self::Slots(_) => SLOTS_CODE,
            Self::Accounts => ACCOUNTS_CODE,
        };
        code.trim()
    }

    /// Its initial storage, without balances, owners and entries, which the caller adds.
    pub(super) fn storage(self) -> Vec<(B256, U256)> {
        let slot = |number: u64| B256::from(U256::from(number));
        match self {
            Self::Router => (0..POOLS.len())
                .map(|pool| (of_address(Self::Pool(pool).address(), 0), U256::from(1)))
                .collect(),
            Self::Pair(a, b) => {
                let (low, high) = ordered(a, b);
                let reserves = U256::from(RESERVE) | U256::from(RESERVE) << 112;
                vec![
                    (slot(0), super::abi::word(low)),
                    (slot(1), super::abi::word(high)),
                    (slot(2), reserves),
                    (slot(5), U256::from(1)),
                ]
            }
            Self::Pool(at) => pool_storage(at),
            _ => Vec::new(),
        }
    }
}

/// The addresses of two tokens, the lower one first.
pub(super) fn ordered(a: u64, b: u64) -> (Address, Address) {
    let (a, b) = (Contract::Token(a).address(), Contract::Token(b).address());
    if a < b { (a, b) } else { (b, a) }
}

/// A pool at price 1, with ranges around it.
fn pool_storage(at: usize) -> Vec<(B256, U256)> {
    let slot = |number: u64| B256::from(U256::from(number));
    let (a, b) = POOLS[at];
    let (low, high) = ordered(a, b);
    let liquidity = RANGE_LIQUIDITY * u128::from(RANGES.unsigned_abs());
    let mut storage = vec![
        (slot(0), super::abi::word(low)),
        (slot(1), super::abi::word(high)),
        // The price as a fixed-point number with 64 fractional bits; tick 0.
        (slot(2), U256::from(1_u128 << 64)),
        (slot(3), U256::from(liquidity)),
    ];
    let mut bitmap = [U256::ZERO; 2];
    for range in 1..=RANGES {
        for tick in [-range, range] {
            let gross = U256::from(RANGE_LIQUIDITY);
            let net = if tick < 0 {
                gross
            } else {
                gross.wrapping_neg()
            };
            let slot = of_word(signed(tick * SPACING), 6);
            storage.push((slot, gross | net << 128));
            let (word, bit) = (tick >> 8, tick & 255);
            let word = if word < 0 { 0 } else { 1 };
            bitmap[word] |= U256::from(1) << bit.unsigned_abs();
        }
    }
    storage.push((of_word(signed(-1), 7), bitmap[0]));
    storage.push((of_word(U256::ZERO, 7), bitmap[1]));
    storage
}

/// A signed number as a word.
pub(super) fn signed(number: i32) -> U256 {
    let positive = U256::from(number.unsigned_abs());
    if number < 0 {
        positive.wrapping_neg()
    } else {
        positive
    }
}

/// The slot of `key` in the mapping of words at `slot`.
pub(super) fn of_word(key: U256, slot: u64) -> B256 {
    of_key(B256::from(key), B256::from(U256::from(slot)))
}

/// The slot of `key` in the mapping of addresses at `slot`.
pub(super) fn of_address(key: Address, slot: u64) -> B256 {
    of_key(key.into_word(), B256::from(U256::from(slot)))
}

/// The slot of two keys in the nested mapping of addresses at `slot`.
pub(super) fn of_addresses(first: Address, second: Address, slot: u64) -> B256 {
    of_key(second.into_word(), of_address(first, slot))
}

fn of_key(key: B256, slot: B256) -> B256 {
    keccak256([key.0, slot.0].concat())
}
