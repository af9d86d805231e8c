//! Random blocks, receipts and transactions, small ones.

use niwaki_primitives::{
    AccessList, AccessListItem, Address, B256, BlockBody, Bytes, Encodable2718, Header, Log,
    Receipt, SignableTransaction, Signature, TxEip1559, TxEip2930, TxEip4844, TxEip7702,
    TxEnvelope, TxKind, TxLegacy, U256, Withdrawal, Withdrawals,
};
use rand::Rng;
use rand::rngs::SmallRng;

/// Fewer than `max` values.
pub(super) fn some<T>(
    rng: &mut SmallRng,
    max: usize,
    mut make: impl FnMut(&mut SmallRng) -> T,
) -> Vec<T> {
    (0..rng.random_range(0..max)).map(|_| make(rng)).collect()
}

/// A number of any size: as many small ones as large ones.
pub(super) fn number(rng: &mut SmallRng) -> u64 {
    rng.random::<u64>() >> rng.random_range(0..64)
}

pub(super) fn bytes(rng: &mut SmallRng, max: usize) -> Bytes {
    some(rng, max, |rng| rng.random::<u8>()).into()
}

pub(super) fn hash(rng: &mut SmallRng) -> B256 {
    B256::new(rng.random())
}

fn address(rng: &mut SmallRng) -> Address {
    Address::new(rng.random())
}

fn word(rng: &mut SmallRng) -> U256 {
    U256::from_be_bytes(rng.random::<[u8; 32]>()) >> rng.random_range(0..256_usize)
}

pub(super) fn header(rng: &mut SmallRng) -> Header {
    // Later fields are only there if the earlier ones are.
    let fields = rng.random_range(0..8);
    Header {
        parent_hash: hash(rng),
        state_root: hash(rng),
        beneficiary: address(rng),
        difficulty: word(rng),
        number: number(rng),
        gas_limit: number(rng),
        timestamp: number(rng),
        extra_data: bytes(rng, 33),
        base_fee_per_gas: (fields > 0).then(|| number(rng)),
        withdrawals_root: (fields > 1).then(|| hash(rng)),
        blob_gas_used: (fields > 2).then(|| number(rng)),
        excess_blob_gas: (fields > 3).then(|| number(rng)),
        parent_beacon_block_root: (fields > 4).then(|| hash(rng)),
        requests_hash: (fields > 5).then(|| hash(rng)),
        block_access_list_hash: (fields > 6).then(|| hash(rng)),
        slot_number: (fields > 6).then(|| number(rng)),
        ..Header::default()
    }
}

pub(super) fn receipt(rng: &mut SmallRng) -> Receipt {
    let has_status = rng.random_ratio(9, 10);
    Receipt {
        tx_type: rng.random_range(0..5),
        status: has_status.then(|| rng.random()),
        post_state: (!has_status).then(|| hash(rng)),
        cumulative_gas_used: number(rng),
        logs: some(rng, 3, |rng| {
            Log::new_unchecked(address(rng), some(rng, 5, hash), bytes(rng, 40))
        }),
    }
}

pub(super) fn body(rng: &mut SmallRng) -> BlockBody {
    let withdrawal = |rng: &mut SmallRng| Withdrawal {
        index: number(rng),
        validator_index: number(rng),
        address: address(rng),
        amount: number(rng),
    };
    let withdrawals = rng
        .random::<bool>()
        .then(|| Withdrawals::new(some(rng, 3, withdrawal)));
    BlockBody {
        transactions: some(rng, 5, transaction),
        ommers: some(rng, 2, header),
        withdrawals,
    }
}

/// A transaction in EIP-2718 form.
pub(super) fn encoded_transaction(rng: &mut SmallRng) -> Bytes {
    transaction(rng).encoded_2718().into()
}

fn transaction(rng: &mut SmallRng) -> TxEnvelope {
    let tx = TxEip1559 {
        chain_id: rng.random_range(1..10_000),
        nonce: number(rng),
        gas_limit: number(rng),
        max_fee_per_gas: number(rng).into(),
        max_priority_fee_per_gas: number(rng).into(),
        to: match rng.random_ratio(1, 4) {
            true => TxKind::Create,
            false => TxKind::Call(address(rng)),
        },
        value: word(rng),
        access_list: AccessList(some(rng, 3, |rng| AccessListItem {
            address: address(rng),
            storage_keys: some(rng, 3, hash),
        })),
        input: bytes(rng, 60),
    };
    let signature = Signature::new(word(rng), word(rng), rng.random());
    match rng.random_range(0..5) {
        0 => legacy(tx).into_signed(signature).into(),
        1 => eip2930(tx).into_signed(signature).into(),
        2 => tx.into_signed(signature).into(),
        3 => eip4844(tx, rng).into_signed(signature).into(),
        _ => eip7702(tx, rng).into_signed(signature).into(),
    }
}

fn legacy(tx: TxEip1559) -> TxLegacy {
    TxLegacy {
        chain_id: Some(tx.chain_id),
        nonce: tx.nonce,
        gas_price: tx.max_fee_per_gas,
        gas_limit: tx.gas_limit,
        to: tx.to,
        value: tx.value,
        input: tx.input,
    }
}

fn eip2930(tx: TxEip1559) -> TxEip2930 {
    TxEip2930 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_price: tx.max_fee_per_gas,
        gas_limit: tx.gas_limit,
        to: tx.to,
        value: tx.value,
        access_list: tx.access_list,
        input: tx.input,
    }
}

fn eip4844(tx: TxEip1559, rng: &mut SmallRng) -> TxEip4844 {
    TxEip4844 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_limit: tx.gas_limit,
        max_fee_per_gas: tx.max_fee_per_gas,
        max_priority_fee_per_gas: tx.max_priority_fee_per_gas,
        to: address(rng),
        value: tx.value,
        access_list: tx.access_list,
        blob_versioned_hashes: some(rng, 4, hash),
        max_fee_per_blob_gas: number(rng).into(),
        input: tx.input,
    }
}

fn eip7702(tx: TxEip1559, rng: &mut SmallRng) -> TxEip7702 {
    TxEip7702 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_limit: tx.gas_limit,
        max_fee_per_gas: tx.max_fee_per_gas,
        max_priority_fee_per_gas: tx.max_priority_fee_per_gas,
        to: address(rng),
        value: tx.value,
        access_list: tx.access_list,
        authorization_list: Vec::new(),
        input: tx.input,
    }
}
