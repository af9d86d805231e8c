//! `eth_getBlockAccessList`: the accounts and slots that a block read and wrote (EIP-7928).

use super::blocks::null;
use crate::json::{Array, Object};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::StoredHeader;
use niwaki_primitives::{AccountChanges, Bytes, U256};
use niwaki_rules::decode_access_list;

/// Spec: execution-apis `eth/block.yaml`, `schemas/block-access-list.yaml`.
pub(super) fn by_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Some(header) = backend.header_by_ref(params.required(0)?)? else {
        return null(out);
    };
    let bytes = raw(backend, &header)?;
    let accounts = decode_access_list(&bytes)
        .map_err(|error| RpcError::internal(format!("block {}: {error}", header.id)))?;
    let mut list = Array::new(out);
    for account in &accounts {
        params.check_deadline()?;
        write_account(&mut list.object(), account);
    }
    Ok(())
}

/// The RLP of a block's access list.
///
/// # Errors
/// -32001 for a block before Amsterdam, 4444 for one that is stored without its list.
pub(crate) fn raw(backend: &Backend, header: &StoredHeader) -> Result<Bytes, RpcError> {
    if header.header.block_access_list_hash.is_none() {
        let message = format!(
            "Resource not found: block {} has no block access list, they begin with Amsterdam",
            header.id
        );
        return Err(RpcError::new(-32001, message));
    }
    let list = backend.chain().block_access_list(&header.id.hash)?;
    list.ok_or_else(|| {
        let message = format!(
            "Pruned history unavailable: block {} is stored without its block access list",
            header.id
        );
        RpcError::new(4444, message)
    })
}

fn write_account(object: &mut Object<'_>, account: &AccountChanges) {
    object.data("address", account.address.as_slice());
    let mut slots = object.array("storageChanges");
    for slot in &account.storage_changes {
        let mut object = slots.object();
        object.data("key", &word(slot.slot));
        let mut changes = object.array("changes");
        for change in &slot.changes {
            let mut object = changes.object();
            object.number("index", change.block_access_index.0);
            object.data("value", &word(change.new_value));
        }
    }
    drop(slots);
    let reads = account.storage_reads.iter();
    object.data_list("storageReads", reads.map(|slot| word(*slot)));
    let mut changes = object.array("balanceChanges");
    for change in &account.balance_changes {
        let mut object = changes.object();
        object.number("index", change.block_access_index.0);
        object.quantity("value", &change.post_balance);
    }
    drop(changes);
    let mut changes = object.array("nonceChanges");
    for change in &account.nonce_changes {
        let mut object = changes.object();
        object.number("index", change.block_access_index.0);
        object.number("value", change.new_nonce);
    }
    drop(changes);
    let mut changes = object.array("codeChanges");
    for change in &account.code_changes {
        let mut object = changes.object();
        object.number("index", change.block_access_index.0);
        object.data("code", &change.new_code);
    }
}

fn word(value: U256) -> [u8; 32] {
    value.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{
        Address, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
        StorageChange,
    };
    use serde_json::{Value, json};

    #[test]
    fn slots_and_their_values_are_32_bytes_and_the_rest_quantities() {
        let at = BlockAccessIndex(1);
        let account = AccountChanges {
            address: Address::repeat_byte(0xaa),
            storage_changes: vec![SlotChanges::new(
                U256::ZERO,
                vec![StorageChange::new(at, U256::from(0x100))],
            )],
            storage_reads: vec![U256::from(2)],
            balance_changes: vec![BalanceChange::new(at, U256::from(0x100))],
            nonce_changes: vec![NonceChange::new(BlockAccessIndex(0), 0)],
            code_changes: vec![CodeChange::new(at, Bytes::new())],
        };
        let mut out = Vec::new();
        write_account(&mut Object::new(&mut out), &account);
        let word = |number: u64| json!(format!("0x{number:064x}"));
        assert_eq!(
            serde_json::from_slice::<Value>(&out).unwrap(),
            json!({
                "address": format!("0x{}", "aa".repeat(20)),
                "storageChanges": [
                    { "key": word(0), "changes": [{ "index": "0x1", "value": word(0x100) }] },
                ],
                "storageReads": [word(2)],
                "balanceChanges": [{ "index": "0x1", "value": "0x100" }],
                "nonceChanges": [{ "index": "0x0", "value": "0x0" }],
                "codeChanges": [{ "index": "0x1", "code": "0x" }],
            })
        );
    }
}
