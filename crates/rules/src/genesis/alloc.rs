//! The first state: accounts from JSON, and the compact form in which built-in chains carry it.

use super::GenesisError;
use crate::json::{Object, parse_address, parse_b256};
use alloy_primitives::{Address, Bytes, U256};
use alloy_rlp::{Decodable, RlpDecodable, RlpEncodable};
use std::collections::BTreeMap;

/// One account of the first state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenesisAccount {
    /// Nonce.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Code; empty if none.
    pub code: Bytes,
    /// Slots that are not zero.
    pub storage: BTreeMap<U256, U256>,
}

pub(super) fn parse_alloc(
    alloc: &Object<'_>,
) -> Result<BTreeMap<Address, GenesisAccount>, GenesisError> {
    let mut accounts = BTreeMap::new();
    for (key, text) in alloc.entries() {
        let path = format!("alloc.{key}");
        let address = parse_address(key).map_err(|reason| GenesisError::Value {
            key: path.clone(),
            value: key.to_owned(),
            reason,
        })?;
        let object = Object::parse(&path, text)?;
        let mut storage = BTreeMap::new();
        if let Some(slots) = object.object("storage")? {
            for (slot, value) in slots.entries() {
                let word = |text: &str| {
                    parse_b256(text).map_err(|reason| GenesisError::Value {
                        key: format!("{path}.storage.{slot}"),
                        value: text.to_owned(),
                        reason,
                    })
                };
                let value: U256 = word(value)?.into();
                if !value.is_zero() {
                    storage.insert(word(slot)?.into(), value);
                }
            }
        }
        let account = GenesisAccount {
            nonce: object.u64("nonce")?.unwrap_or(0),
            balance: object.u256("balance")?.unwrap_or_default(),
            code: object.bytes("code")?.unwrap_or_default(),
            storage,
        };
        if accounts.insert(address, account).is_some() {
            return Err(GenesisError::DuplicateKey {
                at: "alloc".to_owned(),
                first: key.to_owned(),
                second: address.to_string(),
            });
        }
    }
    Ok(accounts)
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
