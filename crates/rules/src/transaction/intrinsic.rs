//! Intrinsic gas: what a transaction pays before its first instruction.

use alloy_primitives::Address;
use niwaki_primitives::{Fork, Transaction, TxEnvelope};

const TX_BASE_COST: u64 = 21_000;
const TX_CREATE_COST: u64 = 32_000;
const TX_DATA_ZERO: u64 = 4;
const TX_DATA_NON_ZERO_FRONTIER: u64 = 68;
const TX_DATA_NON_ZERO_ISTANBUL: u64 = 16;
const TX_ACCESS_LIST_ADDRESS: u64 = 2_400;
const TX_ACCESS_LIST_STORAGE_KEY: u64 = 1_900;
const INIT_CODE_WORD_COST: u64 = 2;
const PER_EMPTY_ACCOUNT_COST: u64 = 25_000;
const FLOOR_CALLDATA_TOKEN_COST: u64 = 10;

/// The intrinsic gas of a transaction, and the least gas it pays in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntrinsicGas {
    /// Charged before execution.
    pub intrinsic: u64,
    /// The floor: least gas used after refunds (EIP-7623); zero before Prague.
    pub floor: u64,
}

/// The intrinsic gas of `tx`, whose sender matters from Amsterdam on, under `fork`.
///
/// Spec: execution-specs `osaka/transactions.py`, `calculate_intrinsic_cost`; EIP-2, 2028, 2930,
/// 3860, 7623, 7702. Cost: linear in the calldata.
pub fn intrinsic_gas(tx: &TxEnvelope, sender: Address, fork: Fork) -> IntrinsicGas {
    if fork >= Fork::Amsterdam {
        return amsterdam(tx, sender);
    }
    let (zeros, others) = count_zeros(tx);
    let length = zeros.saturating_add(others);
    let per_other = if fork >= Fork::Istanbul {
        TX_DATA_NON_ZERO_ISTANBUL
    } else {
        TX_DATA_NON_ZERO_FRONTIER
    };
    let mut gas = TX_BASE_COST
        .saturating_add(zeros.saturating_mul(TX_DATA_ZERO))
        .saturating_add(others.saturating_mul(per_other));

    if tx.is_create() {
        if fork >= Fork::Homestead {
            gas = gas.saturating_add(TX_CREATE_COST);
        }
        if fork >= Fork::Shanghai {
            gas = gas.saturating_add(length.div_ceil(32).saturating_mul(INIT_CODE_WORD_COST));
        }
    }

    if let Some(list) = tx.access_list() {
        let keys = count(list.storage_keys_count());
        gas = gas
            .saturating_add(count(list.len()).saturating_mul(TX_ACCESS_LIST_ADDRESS))
            .saturating_add(keys.saturating_mul(TX_ACCESS_LIST_STORAGE_KEY));
    }

    if let Some(authorizations) = tx.authorization_list() {
        let authorizations = count(authorizations.len());
        gas = gas.saturating_add(authorizations.saturating_mul(PER_EMPTY_ACCOUNT_COST));
    }

    let floor = if fork >= Fork::Prague {
        let tokens = zeros.saturating_add(others.saturating_mul(4));
        TX_BASE_COST.saturating_add(tokens.saturating_mul(FLOOR_CALLDATA_TOKEN_COST))
    } else {
        0
    };

    IntrinsicGas {
        intrinsic: gas,
        floor,
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Zero bytes and other bytes of the calldata.
fn count_zeros(tx: &TxEnvelope) -> (u64, u64) {
    let data = tx.input();
    let zeros = count(data.iter().filter(|byte| **byte == 0).count());
    (zeros, count(data.len()).saturating_sub(zeros))
}

/// The intrinsic gas from Amsterdam on: a price for each thing that the transaction does at least.
///
/// Spec: execution-specs `amsterdam/transactions.py`, `calculate_intrinsic_cost`; EIP-2780, 7976,
/// 7981, 8037, 8038.
fn amsterdam(tx: &TxEnvelope, sender: Address) -> IntrinsicGas {
    const BASE: u64 = 12_000;
    const CREATION: u64 = 12_000;
    const RECIPIENT: u64 = 3_000;
    const VALUE: u64 = 6_000;
    const LIST_ADDRESS: u64 = 2_900;
    const LIST_KEY: u64 = 2_000;
    const AUTHORIZATION: u64 = 7_816;
    /// Per byte of calldata and of access list.
    const FLOOR_BYTE: u64 = 64;

    let recipient = match tx.to() {
        None => CREATION,
        Some(to) if to == sender => 0,
        Some(_) if tx.value().is_zero() => RECIPIENT,
        Some(_) => RECIPIENT.saturating_add(VALUE),
    };
    let base = BASE.saturating_add(recipient);
    let (zeros, others) = count_zeros(tx);
    let length = zeros.saturating_add(others);
    let list = tx.access_list();
    let addresses = list.map_or(0, |list| count(list.len()));
    let keys = list.map_or(0, |list| count(list.storage_keys_count()));
    let list_bytes = addresses
        .saturating_mul(20)
        .saturating_add(keys.saturating_mul(32));
    let list_data = list_bytes.saturating_mul(FLOOR_BYTE);
    let authorizations = tx.authorization_list().map_or(0, |list| count(list.len()));
    let init_code = match tx.is_create() {
        true => length.div_ceil(32).saturating_mul(INIT_CODE_WORD_COST),
        false => 0,
    };
    let intrinsic = [
        zeros.saturating_mul(TX_DATA_ZERO),
        others.saturating_mul(TX_DATA_NON_ZERO_ISTANBUL),
        init_code,
        addresses.saturating_mul(LIST_ADDRESS),
        keys.saturating_mul(LIST_KEY),
        list_data,
        authorizations.saturating_mul(AUTHORIZATION),
    ];
    IntrinsicGas {
        intrinsic: intrinsic.into_iter().fold(base, u64::saturating_add),
        floor: base
            .saturating_add(length.saturating_mul(FLOOR_BYTE))
            .saturating_add(list_data),
    }
}
