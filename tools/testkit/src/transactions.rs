//! Transactions of the other types, each made from one with dynamic fees.

use niwaki_primitives::{
    Address, B256, SignedAuthorization, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy,
};

/// `tx` with its maximum fee as the gas price, and without its access list.
pub fn legacy(tx: TxEip1559) -> TxLegacy {
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

/// `tx` with its maximum fee as the gas price.
pub fn eip2930(tx: TxEip1559) -> TxEip2930 {
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

/// `tx` to `to`, with blobs.
pub fn eip4844(
    tx: TxEip1559,
    to: Address,
    max_fee_per_blob_gas: u128,
    blob_versioned_hashes: Vec<B256>,
) -> TxEip4844 {
    TxEip4844 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_limit: tx.gas_limit,
        max_fee_per_gas: tx.max_fee_per_gas,
        max_priority_fee_per_gas: tx.max_priority_fee_per_gas,
        to,
        value: tx.value,
        access_list: tx.access_list,
        blob_versioned_hashes,
        max_fee_per_blob_gas,
        input: tx.input,
    }
}

/// `tx` to `to`, with authorizations.
pub fn eip7702(
    tx: TxEip1559,
    to: Address,
    authorization_list: Vec<SignedAuthorization>,
) -> TxEip7702 {
    TxEip7702 {
        chain_id: tx.chain_id,
        nonce: tx.nonce,
        gas_limit: tx.gas_limit,
        max_fee_per_gas: tx.max_fee_per_gas,
        max_priority_fee_per_gas: tx.max_priority_fee_per_gas,
        to,
        value: tx.value,
        access_list: tx.access_list,
        authorization_list,
        input: tx.input,
    }
}
