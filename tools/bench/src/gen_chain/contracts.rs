//! The contracts of a generated chain: their codes, where they lie, what they hold at first.
//!
//! The sources are in `tools/bench/contracts`, with the command that compiles them.

use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256, U256};

/// Tokens; the first ones are the hot ones.
pub(super) const TOKENS: u64 = 32;
/// Collections of things with numbers.
pub(super) const NFTS: u64 = 6;
/// Long lists.
pub(super) const LEDGERS: u64 = 4;
/// The tokens of the concentrated pools, by their numbers.
pub(super) const POOLS: [(u64, u64); 6] = [(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (1, 3)];
/// Besides a pair of token 0 with each other token: pairs of token 1 with those up to this one.
pub(super) const LAST_OF_SECOND: u64 = 8;
/// Of each pool: ranges around price 1 that hold liquidity from the beginning.
pub(super) const RANGES: i32 = 40;
/// Ticks between two that may be marked.
pub(super) const SPACING: i32 = 10;
/// What every account that sends, every pair and every pool holds of its tokens.
pub(super) const HOLDING: u128 = 1_000_000_000_000_000_000_000_000_000_000;
/// Of each token of a pair.
pub(super) const RESERVE: u128 = HOLDING / 1000;
/// Liquidity of one range.
const RANGE_LIQUIDITY: u128 = 1 << 80;

macro_rules! code {
    ($name:literal) => {
        include_str!(concat!("../../contracts/", $name, ".hex"))
    };
}

/// What deploys a token.
pub(super) const TOKEN_INIT: &str = code!("Token.init");

/// A kind of contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contract {
    Token(u64),
    /// Of token 0 or 1 and another.
    Pair(u64, u64),
    /// By its place in [`POOLS`].
    Pool(usize),
    Router,
    Nft(u64),
    Ledger(u64),
    Compute,
    Refuser,
    Factory,
    Wallet,
}

impl Contract {
    /// All of them.
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

    /// Where it lies.
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
        };
        code.trim()
    }

    /// What it holds at first by itself; of tokens, things and lists the caller adds who owns what.
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
        // The price, 64 bits behind the point; tick 0.
        (slot(2), U256::from(1_u128 << 64)),
        (slot(3), U256::from(liquidity)),
    ];
    let mut marks = [U256::ZERO; 2];
    for range in 1..=RANGES {
        for place in [-range, range] {
            let gross = U256::from(RANGE_LIQUIDITY);
            let net = if place < 0 {
                gross
            } else {
                gross.wrapping_neg()
            };
            let tick = of_word(signed(place * SPACING), 6);
            storage.push((tick, gross | net << 128));
            let (word, bit) = (place >> 8, place & 255);
            let word = if word < 0 { 0 } else { 1 };
            marks[word] |= U256::from(1) << bit.unsigned_abs();
        }
    }
    storage.push((of_word(signed(-1), 7), marks[0]));
    storage.push((of_word(U256::ZERO, 7), marks[1]));
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

/// The slot of a mapping from words that stands in `slot`.
pub(super) fn of_word(key: U256, slot: u64) -> B256 {
    of_key(B256::from(key), B256::from(U256::from(slot)))
}

/// The slot of a mapping from addresses that stands in `slot`.
pub(super) fn of_address(key: Address, slot: u64) -> B256 {
    of_key(key.into_word(), B256::from(U256::from(slot)))
}

/// The slot of a mapping of mappings from addresses that stands in `slot`.
pub(super) fn of_addresses(first: Address, second: Address, slot: u64) -> B256 {
    of_key(second.into_word(), of_address(first, slot))
}

fn of_key(key: B256, slot: B256) -> B256 {
    keccak256([key.0, slot.0].concat())
}
