//! The accounts of a block: keys, contracts, and the addresses that code may name.

use super::system::{DEPOSIT_CONTRACT, install};
use crate::program::Writer;
use niwaki_primitives::{Address, Bytes, Fork, U256, address};
use niwaki_testkit::genesis::system_contracts;
use niwaki_testkit::{Key, MemoryAccount, MemoryState};
use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};

const CONTRACTS: u8 = 6;
/// Keys that send transactions.
pub(crate) const SENDERS: usize = 4;
/// More keys, which only sign authorizations.
const AUTHORITIES: usize = 5;
const ETHER: u64 = 1_000_000_000_000_000_000;

/// Accounts of a case.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) fork: Fork,
    /// Senders first, then other authorities.
    pub(crate) keys: Vec<Key>,
    pub(crate) contracts: Vec<Address>,
    /// Accounts that do not exist.
    pub(crate) empty_accounts: Vec<Address>,
    /// Addresses that code may name, some several times.
    pub(crate) named: Vec<Address>,
}

impl Cast {
    /// Draws the accounts of a block and its pre-state.
    pub(crate) fn draw(rng: &mut SmallRng, fork: Fork) -> (Self, MemoryState) {
        let names = (0..SENDERS + AUTHORITIES).map(|number| format!("niwaki fuzz {number}"));
        let keys: Vec<Key> = names.map(|name| Key::of(&name)).collect();
        let contracts: Vec<Address> = (0..CONTRACTS)
            .map(|n| Address::repeat_byte(0xc0 + n))
            .collect();
        let empty_accounts: Vec<Address> = (0xe0..0xe4).map(Address::repeat_byte).collect();
        let mut cast = Self {
            fork,
            keys,
            contracts,
            empty_accounts,
            named: Vec::new(),
        };
        cast.named = cast.names();
        let state = cast.draw_state(rng);
        (cast, state)
    }

    fn names(&self) -> Vec<Address> {
        let created = |by: &Address| [1, 2].map(|nonce| by.create(nonce));
        let mut named = vec![
            Address::repeat_byte(0xee),
            Address::left_padding_from(&[0xee]),
            Address::repeat_byte(0xcb),
            DEPOSIT_CONTRACT,
            address!("fffffffffffffffffffffffffffffffffffffffe"),
        ];
        for _ in 0..3 {
            named.extend(&self.contracts);
        }
        for _ in 0..2 {
            named.extend(&self.empty_accounts);
        }
        named.extend(self.keys.iter().map(|key| key.address));
        named.extend(system_contracts().keys());
        named.extend(self.contracts.iter().flat_map(created));
        named
    }

    pub(crate) fn any(&self, rng: &mut SmallRng) -> Address {
        *self.named.choose(rng).expect("there are accounts")
    }

    fn draw_state(&self, rng: &mut SmallRng) -> MemoryState {
        let mut state = MemoryState::default();
        install(rng, &mut state);
        for address in &self.contracts {
            let pieces = rng.random_range(1..50);
            let code = Writer::new(rng, &self.named)
                .at_edges_of(self.fork)
                .write(pieces);
            let account = MemoryAccount {
                nonce: 1,
                balance: U256::from(rng.random_range(0..2000u64)),
                code: Bytes::from(code).into(),
                storage: draw_storage(rng),
            };
            state.insert(*address, account);
        }
        for (number, key) in self.keys.iter().enumerate() {
            if number < SENDERS || rng.random_bool(0.6) {
                let account = self.draw_key(rng, number < SENDERS);
                state.insert(key.address, account);
            }
        }
        // Sometimes a balance or a contract at an address where a contract will be created.
        for address in self
            .contracts
            .iter()
            .flat_map(|by| [1, 2].map(|n| by.create(n)))
        {
            if rng.random_bool(0.15) {
                let account = MemoryAccount {
                    nonce: u64::from(rng.random_bool(0.4)),
                    balance: U256::from(1),
                    ..MemoryAccount::default()
                };
                state.insert(address, account);
            }
        }
        let rich = MemoryAccount {
            balance: U256::from(ETHER),
            ..MemoryAccount::default()
        };
        state.insert(Address::repeat_byte(0xee), rich);
        state
    }

    /// An account with a key: plain, delegated, or (if it need not send) a contract.
    fn draw_key(&self, rng: &mut SmallRng, sends: bool) -> MemoryAccount {
        let code = match rng.random_range(0..10) {
            0..3 => [&[0xef, 0x01, 0x00], self.draw_delegate(rng).as_slice()].concat(),
            3 if !sends => vec![0x60, 1, 0x60, 1, 0x55],
            _ => vec![],
        };
        let balance = if sends {
            U256::from(ETHER) * U256::from(100_000)
        } else {
            U256::from(rng.random_range(1..100u64))
        };
        MemoryAccount {
            nonce: rng.random_range(0..3),
            balance,
            storage: if code.is_empty() {
                [].into()
            } else {
                draw_storage(rng)
            },
            code: Bytes::from(code).into(),
        }
    }

    /// The target of a delegation: a contract, a precompiled contract, an absent account, or any.
    pub(crate) fn draw_delegate(&self, rng: &mut SmallRng) -> Address {
        match rng.random_range(0..10) {
            0..6 => *self.contracts.choose(rng).expect("there are contracts"),
            6 => Address::with_last_byte(rng.random_range(1..0x12)),
            7 => *self.empty_accounts.choose(rng).expect("there are some"),
            8 => Address::ZERO,
            _ => self.any(rng),
        }
    }
}

fn draw_storage(rng: &mut SmallRng) -> std::collections::BTreeMap<U256, U256> {
    (0..6u64)
        .filter_map(|key| {
            let value = U256::from(rng.random_range(0..3u64));
            (!value.is_zero()).then(|| (U256::from(key), value))
        })
        .collect()
}
