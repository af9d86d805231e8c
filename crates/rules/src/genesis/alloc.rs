//! The genesis state, and its compact form for the built-in chains.

use super::GenesisError;
use alloy_primitives::{Address, Bytes, U256};
use alloy_rlp::{Decodable, RlpDecodable, RlpEncodable};
use std::collections::BTreeMap;

/// One account of the genesis state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenesisAccount {
    /// Nonce.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Code; empty if none.
    pub code: Bytes,
    /// Nonzero slots.
    pub storage: BTreeMap<U256, U256>,
}

#[derive(RlpDecodable, RlpEncodable)]
struct Row {
    address: Address,
    nonce: u64,
    balance: U256,
    code: Bytes,
    storage: Vec<Slot>,
}

#[derive(RlpDecodable, RlpEncodable)]
struct Slot {
    slot: U256,
    value: U256,
}

/// The compact form of an alloc: the RLP of a list of
/// `[address, nonce, balance, code, [[slot, value], ...]]`, ascending by address.
pub fn encode_alloc(alloc: &BTreeMap<Address, GenesisAccount>) -> Vec<u8> {
    let rows: Vec<Row> = alloc
        .iter()
        .map(|(address, account)| Row {
            address: *address,
            nonce: account.nonce,
            balance: account.balance,
            code: account.code.clone(),
            storage: account
                .storage
                .iter()
                .map(|(slot, value)| Slot {
                    slot: *slot,
                    value: *value,
                })
                .collect(),
        })
        .collect();
    alloy_rlp::encode(rows)
}

/// Reads the compact form of an alloc, as [`encode_alloc`] writes it.
///
/// # Errors
/// [`GenesisError::Alloc`] if the bytes are not that.
pub fn decode_alloc(bytes: &[u8]) -> Result<BTreeMap<Address, GenesisAccount>, GenesisError> {
    let mut rest = bytes;
    let rows = Vec::<Row>::decode(&mut rest).map_err(|e| GenesisError::Alloc(e.to_string()))?;
    if !rest.is_empty() {
        let left = rest.len();
        return Err(GenesisError::Alloc(format!("{left} bytes after its end")));
    }
    Ok(rows
        .into_iter()
        .map(|row| {
            let account = GenesisAccount {
                nonce: row.nonce,
                balance: row.balance,
                code: row.code,
                storage: row.storage.into_iter().map(|s| (s.slot, s.value)).collect(),
            };
            (row.address, account)
        })
        .collect())
}
