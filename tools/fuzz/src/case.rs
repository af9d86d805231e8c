//! A case: fork, state and transactions from one seed.

use crate::{FORKS, program::Writer};
use alloy_consensus::{EthereumTxEnvelope, SignableTransaction};
use alloy_primitives::{Signature, keccak256};
use niwaki_primitives::{
    AccessList, AccessListItem, Address, Authorization, B256, Bytes, Fork, Header, Log,
    SignedAuthorization, TxEip1559, TxEip4844, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};
use niwaki_testkit::{MemoryAccount, MemoryState};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{collections::BTreeMap, sync::LazyLock};

/// How a transaction that ran ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success: its changes are kept.
    Success,
    /// REVERT.
    Revert,
    /// An exceptional halt.
    Halt,
}

/// The result of one machine for one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Invalid.
    Refused,
    /// Executed.
    Ran {
        /// How it ended.
        end: End,
        /// Gas used.
        gas_used: u64,
        /// Returned data.
        output: Bytes,
        /// Logs in order.
        logs: Vec<Log>,
    },
}

/// Fork, state and transactions, all drawn from one seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// The fork.
    pub fork: Fork,
    /// The header of the block.
    pub header: Header,
    /// The pre-state.
    pub state: MemoryState,
    /// Transactions with their senders.
    pub transactions: Vec<(TxEnvelope, Address)>,
}

/// Chain id of every case.
pub(crate) const CHAIN_ID: u64 = 1;
/// Block number; code reads the hashes of ancestors.
const NUMBER: u64 = 1000;
const CONTRACTS: u8 = 5;
const SENDERS: u8 = 2;
/// An ether in wei.
const ETHER: u64 = 1_000_000_000_000_000_000;

/// BLOCKHASH in a state test is the hash of the number in decimal.
static BLOCK_HASHES: LazyLock<BTreeMap<u64, B256>> = LazyLock::new(|| {
    let numbers = NUMBER - 256..NUMBER;
    numbers
        .map(|number| (number, keccak256(number.to_string())))
        .collect()
});

fn contract(at: u8) -> Address {
    Address::repeat_byte(0xc0 + at)
}

fn sender(at: u8) -> Address {
    Address::repeat_byte(0x50 + at)
}

impl Case {
    /// The case of `seed`; the fork is drawn unless given.
    pub fn of(seed: u64, fork: Option<Fork>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let drawn = FORKS[rng.random_range(0..FORKS.len())];
        let fork = fork.unwrap_or(drawn);
        let accounts: Vec<Address> = (0..CONTRACTS)
            .map(contract)
            .chain((0..SENDERS).map(sender))
            .chain([Address::repeat_byte(0xee), Address::repeat_byte(0xcb)])
            .collect();
        let mut state = MemoryState::default();
        for at in 0..CONTRACTS {
            state.insert(contract(at), draw_contract(&mut rng, &accounts, fork));
        }
        for at in 0..SENDERS {
            let balance = U256::from(ETHER) * U256::from(1000);
            state.insert(
                sender(at),
                MemoryAccount {
                    balance,
                    ..MemoryAccount::default()
                },
            );
        }
        state.block_hashes.clone_from(&BLOCK_HASHES);
        let header = draw_header(&mut rng, fork);
        let mut nonces = [0; SENDERS as usize];
        let transactions = (0..rng.random_range(1..4))
            .map(|_| draw_transaction(&mut rng, fork, &accounts, &mut nonces))
            .collect();
        Self {
            fork,
            header,
            state,
            transactions,
        }
    }
}

fn draw_contract(rng: &mut SmallRng, accounts: &[Address], fork: Fork) -> MemoryAccount {
    let delegates = fork >= Fork::Prague && rng.random_bool(0.1);
    let code = if delegates {
        let to = accounts[rng.random_range(0..accounts.len())];
        [&[0xef, 0x01, 0x00], to.as_slice()].concat()
    } else {
        let pieces = rng.random_range(1..60);
        at_edges(Writer::new(rng, accounts), fork).write(pieces)
    };
    let mut account = MemoryAccount {
        nonce: 1,
        balance: U256::from(rng.random_range(0..2000u64)),
        code: Bytes::from(code).into(),
        ..MemoryAccount::default()
    };
    for key in 0..6u64 {
        if rng.random_bool(0.4) {
            let value = U256::from(rng.random_range(1..3u64));
            account.storage.insert(U256::from(key), value);
        }
    }
    account
}

/// Makes Amsterdam's programs prefer opcodes with state-dependent prices.
fn at_edges(writer: Writer<'_>, fork: Fork) -> Writer<'_> {
    if fork >= Fork::Amsterdam {
        writer.at_edges_of(fork)
    } else {
        writer
    }
}

fn draw_header(rng: &mut SmallRng, fork: Fork) -> Header {
    let after = |since: Fork| fork >= since;
    Header {
        number: NUMBER,
        timestamp: 1_700_000_000,
        gas_limit: 30_000_000,
        beneficiary: Address::repeat_byte(0xcb),
        difficulty: U256::from(if after(Fork::Paris) { 0 } else { 131_072 }),
        mix_hash: B256::from(rng.random::<[u8; 32]>()),
        base_fee_per_gas: after(Fork::London).then(|| rng.random_range(7..1000)),
        excess_blob_gas: after(Fork::Cancun).then(|| rng.random_range(0..20_000_000)),
        blob_gas_used: after(Fork::Cancun).then_some(0),
        slot_number: after(Fork::Amsterdam).then(|| rng.random()),
        ..Header::default()
    }
}

fn draw_access_list(rng: &mut SmallRng, accounts: &[Address]) -> AccessList {
    let items = (0..rng.random_range(0..3)).map(|_| AccessListItem {
        address: accounts[rng.random_range(0..accounts.len())],
        storage_keys: (0..rng.random_range(0..3))
            .map(|_| B256::from(U256::from(rng.random_range(0..6u64))))
            .collect(),
    });
    AccessList(items.collect())
}

/// Any signature with a valid point recovers some signer, so signatures are drawn and the authorities recovered from
/// them.
fn draw_authorizations(rng: &mut SmallRng, accounts: &[Address]) -> Vec<SignedAuthorization> {
    let draw = |rng: &mut SmallRng| {
        let authorization = Authorization {
            chain_id: U256::from(rng.random_range(0..3u64)),
            address: accounts[rng.random_range(0..accounts.len())],
            nonce: u64::from(rng.random_bool(0.1)),
        };
        let (r, s) = (
            U256::from(rng.random::<u128>()),
            U256::from(rng.random::<u128>()),
        );
        SignedAuthorization::new_unchecked(authorization, rng.random_range(0..2), r, s)
    };
    (0..rng.random_range(0..4)).map(|_| draw(rng)).collect()
}

fn draw_gas_limit(rng: &mut SmallRng, fork: Fork) -> u64 {
    match rng.random_range(0..12) {
        0 => rng.random_range(0..60_000),
        1..4 => rng.random_range(21_000..200_000),
        11 if fork >= Fork::Amsterdam => (1 << 24) + rng.random_range(0..500_000),
        _ => rng.random_range(200_000..3_000_000),
    }
}

fn draw_transaction(
    rng: &mut SmallRng,
    fork: Fork,
    accounts: &[Address],
    nonces: &mut [u64; SENDERS as usize],
) -> (TxEnvelope, Address) {
    let kinds: u8 = match fork {
        f if f >= Fork::Prague => 5,
        f if f >= Fork::Cancun => 4,
        f if f >= Fork::London => 3,
        f if f >= Fork::Berlin => 2,
        _ => 1,
    };
    let from = rng.random_range(0..SENDERS);
    let nonce = if rng.random_bool(0.02) {
        7
    } else {
        nonces[usize::from(from)]
    };
    let gas_limit = draw_gas_limit(rng, fork);
    let creates = rng.random_bool(0.12);
    let target = accounts[rng.random_range(0..accounts.len().min(usize::from(CONTRACTS) + 2))];
    let to = if creates {
        TxKind::Create
    } else {
        TxKind::Call(target)
    };
    let input: Bytes = if creates {
        let pieces = rng.random_range(1..20);
        at_edges(Writer::new(rng, accounts), fork)
            .write(pieces)
            .into()
    } else {
        (0..rng.random_range(0..100))
            .map(|_| rng.random())
            .collect::<Vec<u8>>()
            .into()
    };
    let value = U256::from(if rng.random_bool(0.3) {
        rng.random_range(0..1000u64)
    } else {
        0
    });
    let price = rng.random_range(900..2000);
    let tip = rng.random_range(0..price);
    let access_list = draw_access_list(rng, accounts);
    nonces[usize::from(from)] += 1;
    let tx = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit,
        max_fee_per_gas: price,
        max_priority_fee_per_gas: tip,
        to,
        value,
        input,
        access_list,
    };
    let tx = match rng.random_range(0..kinds) {
        0 => sign(TxLegacy {
            chain_id: (fork >= Fork::SpuriousDragon).then_some(CHAIN_ID),
            ..legacy(tx)
        }),
        1 => sign(eip2930(tx)),
        2 => sign(tx),
        3 => {
            let max_fee_per_blob_gas = rng.random_range(1..2000);
            let hashes = (0..rng.random_range(0..5)).map(|_| {
                let mut hash: [u8; 32] = rng.random();
                hash[0] = u8::from(!rng.random_bool(0.02));
                B256::from(hash)
            });
            let hashes = hashes.collect();
            sign(eip4844(tx, target, max_fee_per_blob_gas, hashes))
        }
        _ => sign(eip7702(tx, target, draw_authorizations(rng, accounts))),
    };
    (tx, sender(from))
}

/// A placeholder signature; the senders are known.
pub(crate) fn sign<T>(tx: T) -> TxEnvelope
where
    T: SignableTransaction<Signature>,
    EthereumTxEnvelope<TxEip4844>: From<alloy_consensus::Signed<T>>,
{
    tx.into_signed(Signature::new(U256::from(1), U256::from(1), false))
        .into()
}
