//! Unsigned transactions; nonces and gas limits are set when the state before them is known.

use super::{
    cast::{Cast, SENDERS},
    system::{DEPOSIT_CONTRACT, QUEUES, deposit_event, request_input},
};
use crate::{
    case::CHAIN_ID,
    program::{GAS_MARKS, Writer},
};
use alloy_consensus::EthereumTypedTransaction;
use niwaki_primitives::{
    AccessList, AccessListItem, Address, Authorization, B256, Bytes, Fork, SignableTransaction,
    SignedAuthorization, TxEip1559, TxEip4844, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};
use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};

/// The bound of execution gas (EIP-7825).
pub(crate) const PLENTY: u64 = 1 << 24;

/// An unsigned transaction of any type.
pub(crate) type Unsigned = EthereumTypedTransaction<TxEip4844>;

/// The gas limit of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GasLimit {
    /// This much.
    Is(u64),
    /// What it uses with ample gas, plus this.
    NeededAnd(i64),
    /// This percentage of what it uses.
    Percent(u64),
    /// Such that a state-accessing opcode is reached with this gas left.
    AtOpcode { which: usize, mark: Mark },
}

/// Gas left before an opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Its price, plus this.
    Price(i64),
    /// This much.
    Gas(i64),
}

/// An authorization whose nonce is set from the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthorizationDraft {
    pub(crate) authority: usize,
    chain_id: u64,
    delegate: Address,
    /// Added to the right nonce.
    nonce_offset: u64,
    /// Whether its signature is corrupted.
    is_corrupted: bool,
}

/// A transaction to sign.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) from: usize,
    /// Added to the right nonce.
    pub(crate) nonce_offset: u64,
    pub(crate) gas: GasLimit,
    pub(crate) authorizations: Vec<AuthorizationDraft>,
    tx: Unsigned,
}

impl Draft {
    pub(crate) fn draw(rng: &mut SmallRng, cast: &Cast) -> Self {
        let from = rng.random_range(0..SENDERS);
        let (mut to, input, mut value) = draw_message(rng, cast, from);
        let access_list = draw_access_list(rng, cast);
        let mut gas = draw_gas(rng, cast.fork);
        // As many addresses as leave almost no gas for execution.
        let fills = access_list.len() > 1_000;
        if fills && rng.random_bool(0.8) {
            gas = GasLimit::Is(PLENTY + rng.random_range(0..500_000));
            if rng.random_bool(0.6) {
                let empty = cast.empty_accounts.choose(rng).expect("there are some");
                (to, value) = (TxKind::Call(*empty), U256::from(1));
            }
        }
        // Enough for the largest contract.
        let deploys_much = input.starts_with(&[0x62, 0x01]);
        if cast.fork >= Fork::Amsterdam && deploys_much {
            gas = GasLimit::Is(rng.random_range(99_000_000..120_000_000));
        }
        let mut tx = draw_typed(rng, to, input, value, access_list);
        let authorizations = match &mut tx {
            Unsigned::Eip7702(tx) => {
                if rng.random_bool(0.2) {
                    tx.to = cast.keys[rng.random_range(0..cast.keys.len())].address;
                }
                draw_authorizations(rng, cast, from)
            }
            _ => vec![],
        };
        let offset = |rng: &mut SmallRng, chance| match rng.random_bool(chance) {
            true => *[1, u64::MAX].choose(rng).expect("not empty"),
            false => 0,
        };
        Self {
            from,
            nonce_offset: offset(rng, 0.02),
            gas,
            authorizations,
            tx,
        }
    }

    /// Signs it with `gas` and the nonces that `nonce_of` gives.
    pub(crate) fn sign(
        &self,
        cast: &Cast,
        gas: u64,
        nonce_of: &dyn Fn(&Address) -> u64,
    ) -> TxEnvelope {
        let key = &cast.keys[self.from];
        let own = nonce_of(&key.address);
        let nonce = own.wrapping_add(self.nonce_offset);
        let mut tx = self.tx.clone();
        match &mut tx {
            Unsigned::Legacy(tx) => (tx.nonce, tx.gas_limit) = (nonce, gas),
            Unsigned::Eip2930(tx) => (tx.nonce, tx.gas_limit) = (nonce, gas),
            Unsigned::Eip1559(tx) => (tx.nonce, tx.gas_limit) = (nonce, gas),
            Unsigned::Eip4844(tx) => (tx.nonce, tx.gas_limit) = (nonce, gas),
            Unsigned::Eip7702(tx) => {
                (tx.nonce, tx.gas_limit) = (nonce, gas);
                tx.authorization_list = self.sign_authorizations(cast, nonce_of);
            }
        }

        let signature = key.signature(&tx.signature_hash());
        tx.into_envelope(signature)
    }

    fn sign_authorizations(
        &self,
        cast: &Cast,
        nonce_of: &dyn Fn(&Address) -> u64,
    ) -> Vec<SignedAuthorization> {
        let mut signed = Vec::new();
        let mut used = vec![0u64; cast.keys.len()];
        used[self.from] = 1;
        for draft in &self.authorizations {
            let key = &cast.keys[draft.authority];
            let nonce = nonce_of(&key.address).wrapping_add(used[draft.authority]);
            let authorization = Authorization {
                chain_id: U256::from(draft.chain_id),
                address: draft.delegate,
                nonce: nonce.wrapping_add(draft.nonce_offset),
            };
            let signature = key.signature(&authorization.signature_hash());
            let (mut r, s) = (signature.r(), signature.s());
            if draft.is_corrupted {
                r = r.wrapping_add(U256::from(1));
            }
            let is_valid = draft.chain_id < 2 && draft.nonce_offset == 0 && !draft.is_corrupted;
            used[draft.authority] += u64::from(is_valid);
            let y_parity = u8::from(signature.v());
            signed.push(SignedAuthorization::new_unchecked(
                authorization,
                y_parity,
                r,
                s,
            ));
        }
        signed
    }
}

fn draw_gas(rng: &mut SmallRng, fork: Fork) -> GasLimit {
    let beyond = if fork >= Fork::Amsterdam { 0.15 } else { 0.02 };
    if rng.random_bool(beyond) {
        return GasLimit::Is(PLENTY + rng.random_range(0..500_000));
    }
    // Enough for 65,536 bytes of code, and more than a transaction may have.
    if rng.random_bool(beyond / 4.0) {
        let most = *[120_000_000, 250_000_000, (1 << 32) - 1, 1 << 32]
            .choose(rng)
            .expect("not empty");
        return GasLimit::Is(most);
    }
    if rng.random_bool(0.25) {
        let mark = if rng.random_bool(0.5) {
            Mark::Price(rng.random_range(-2..=1))
        } else {
            let mark = *GAS_MARKS.choose(rng).expect("not empty");
            Mark::Gas(mark + rng.random_range(-1..=1))
        };
        return GasLimit::AtOpcode {
            which: rng.random_range(0..1 << 20),
            mark,
        };
    }
    match rng.random_range(0..20) {
        0 => GasLimit::Is(rng.random_range(10_000..60_000)),
        1..3 => GasLimit::Is(rng.random_range(20_000..400_000)),
        3..6 => GasLimit::NeededAnd(rng.random_range(-20..20)),
        6..8 => GasLimit::NeededAnd(rng.random_range(-30_000..30_000)),
        8..10 => GasLimit::Percent(rng.random_range(50..100)),
        10 => GasLimit::Is(PLENTY - rng.random_range(0..3)),
        _ => GasLimit::Is(rng.random_range(300_000..4_000_000)),
    }
}

/// Recipient, input and value.
fn draw_message(rng: &mut SmallRng, cast: &Cast, from: usize) -> (TxKind, Bytes, U256) {
    let value = match rng.random_range(0..10) {
        0..5 => U256::ZERO,
        5..9 => U256::from(rng.random_range(1..1000u64)),
        _ => U256::from(1) << rng.random_range(0..90),
    };
    let to = match rng.random_range(0..100) {
        0..44 => *cast.contracts.choose(rng).expect("there are contracts"),
        44..45 => {
            // Deploys this many bytes.
            let size: u32 = *[24_576, 24_577, 65_536, 65_536, 65_537]
                .choose(rng)
                .expect("not empty");
            let [_, high, middle, low] = size.to_be_bytes();
            let code = vec![0x62, high, middle, low, 0x5f, 0xf3];
            return (TxKind::Create, code.into(), value);
        }
        45..56 => {
            let pieces = rng.random_range(1..16);
            let mut code = Writer::new(rng, &cast.named)
                .at_edges_of(cast.fork)
                .write(pieces);
            if rng.random_bool(0.03) {
                let bytes = [49_152, 49_153, 131_072, 131_073].choose(rng);
                code.resize(*bytes.expect("not empty"), 0);
            }
            return (TxKind::Create, code.into(), value);
        }
        56..66 => {
            let queue = QUEUES.choose(rng).expect("there are four");
            let fee = rng.random_range(0..40u64) + u64::from(rng.random_bool(0.1)) * 100_000;
            let deposit = if queue.input_bytes == 184 {
                1_000_000_000_000_000_000u64
            } else {
                0
            };
            let input = request_input(rng, queue);
            let value = U256::from(fee) + U256::from(deposit);
            return (TxKind::Call(queue.address), input.into(), value);
        }
        66..70 => {
            let input = deposit_event(rng);
            return (TxKind::Call(DEPOSIT_CONTRACT), input.into(), value);
        }
        70..77 => *cast.empty_accounts.choose(rng).expect("there are some"),
        77..80 => cast.keys[from].address,
        80..88 => cast.keys[rng.random_range(0..cast.keys.len())].address,
        88..92 => Address::with_last_byte(rng.random_range(0..0x13)),
        _ => cast.any(rng),
    };
    (TxKind::Call(to), draw_input(rng).into(), value)
}

fn draw_input(rng: &mut SmallRng) -> Vec<u8> {
    let bytes = match rng.random_range(0..10) {
        0..4 => 0,
        9 if rng.random_bool(0.05) => rng.random_range(250_000..270_000),
        9 => rng.random_range(0..4_000),
        _ => rng.random_range(0..100),
    };
    let zeros = rng.random_range(0.0..1.0);
    (0..bytes)
        .map(|_| {
            if rng.random_bool(zeros) {
                0
            } else {
                rng.random()
            }
        })
        .collect()
}

fn draw_access_list(rng: &mut SmallRng, cast: &Cast) -> AccessList {
    if rng.random_bool(0.02) {
        let item = AccessListItem {
            address: cast.any(rng),
            storage_keys: vec![],
        };
        return AccessList(vec![item; rng.random_range(3_990..4_014)]);
    }
    let mut items: Vec<AccessListItem> = Vec::new();
    for _ in 0..rng.random_range(0..4) {
        let item = AccessListItem {
            address: cast.any(rng),
            storage_keys: (0..rng.random_range(0..3))
                .map(|_| B256::from(U256::from(rng.random_range(0..6u64))))
                .collect(),
        };
        items.push(item.clone());
        if rng.random_bool(0.2) {
            items.push(item);
        }
    }
    AccessList(items)
}

fn draw_authorizations(rng: &mut SmallRng, cast: &Cast, from: usize) -> Vec<AuthorizationDraft> {
    let mut authorizations: Vec<AuthorizationDraft> = Vec::new();
    let count = if rng.random_bool(0.03) {
        0
    } else {
        rng.random_range(1..5)
    };
    for _ in 0..count {
        let authority = match (rng.random_range(0..6), authorizations.last()) {
            (0, _) => from,
            (1 | 2, Some(last)) => last.authority,
            _ => rng.random_range(0..cast.keys.len()),
        };
        let delegate = if rng.random_bool(0.15) {
            Address::ZERO
        } else {
            cast.draw_delegate(rng)
        };
        authorizations.push(AuthorizationDraft {
            authority,
            chain_id: *[0, 0, CHAIN_ID, CHAIN_ID, CHAIN_ID, CHAIN_ID, CHAIN_ID, 2]
                .choose(rng)
                .expect("not empty"),
            delegate,
            nonce_offset: u64::from(rng.random_bool(0.08)),
            is_corrupted: rng.random_bool(0.05),
        });
    }
    authorizations
}

fn draw_blobs(rng: &mut SmallRng) -> Vec<B256> {
    let count = match rng.random_range(0..20) {
        0 => 0,
        1 => 7,
        _ => rng.random_range(1..=6),
    };
    let wrong = rng.random_bool(0.02);
    (0..count)
        .map(|_| {
            let mut hash: [u8; 32] = rng.random();
            hash[0] = if wrong { 2 } else { 1 };
            B256::from(hash)
        })
        .collect()
}

/// A transaction of a drawn type; type 3 and 4 need a recipient.
fn draw_typed(
    rng: &mut SmallRng,
    to: TxKind,
    input: Bytes,
    value: U256,
    access_list: AccessList,
) -> Unsigned {
    let price: u128 = match rng.random_range(0..30) {
        0 => rng.random_range(0..1_000),
        _ => rng.random_range(1_000..2_000),
    };
    let tip = match rng.random_range(0..8) {
        0..3 => 0,
        3 => price,
        4 if rng.random_bool(0.1) => price + 1,
        _ => rng.random_range(0..=price),
    };
    let tx = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce: 0,
        gas_limit: 0,
        max_fee_per_gas: price,
        max_priority_fee_per_gas: tip,
        to,
        value,
        input,
        access_list,
    };
    let kind = match (rng.random_range(0..10), to) {
        (kind @ 5..10, TxKind::Create) => kind % 5,
        (kind, _) => kind,
    };
    match (kind, to) {
        (0 | 1, _) => Unsigned::Legacy(TxLegacy {
            chain_id: rng.random_bool(0.9).then_some(CHAIN_ID),
            ..legacy(tx)
        }),
        (2, _) => Unsigned::Eip2930(eip2930(tx)),
        (5, TxKind::Call(to)) => {
            let max_fee_per_blob_gas = rng.random_range(1..2000);
            Unsigned::Eip4844(eip4844(tx, to, max_fee_per_blob_gas, draw_blobs(rng)))
        }
        (6..10, TxKind::Call(to)) => Unsigned::Eip7702(eip7702(tx, to, vec![])),
        _ => Unsigned::Eip1559(tx),
    }
}
