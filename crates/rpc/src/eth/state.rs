//! `eth` methods for accounts, storage and proofs at a block.

use crate::json::{self, Object};
use crate::params::{BlockRef, BlockTag, Params, storage_key};
use crate::state::State;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{Address, B256, Bytes, StateView, U256};
use std::collections::BTreeMap;

/// Most slots of one request.
const MAX_SLOTS: usize = 1024;

/// The block parameter at `index`; the head if it is left out.
fn block_at(params: &Params<'_>, index: usize) -> Result<BlockRef, RpcError> {
    Ok(params.optional(index)?.unwrap_or_default())
}

pub(super) fn balance(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(0)?;
    let (_, state) = backend.state(block_at(params, 1)?)?;
    let account = state.account(&address)?.unwrap_or_default();
    json::quantity(out, &account.balance);
    Ok(())
}

pub(super) fn nonce(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(0)?;
    json::number(out, nonce_at(backend, &address, block_at(params, 1)?)?);
    Ok(())
}

/// The nonce of an account after a block. For `pending`, the sender's transactions in the pool count, up to the first
/// gap.
pub(crate) fn nonce_at(
    backend: &Backend,
    address: &Address,
    block: BlockRef,
) -> Result<u64, RpcError> {
    let (_, state) = backend.state(block)?;
    let nonce = state.account(address)?.unwrap_or_default().nonce;
    let next = match block {
        BlockRef::Tag(BlockTag::Pending) => backend.pool.next_nonce(address),
        _ => None,
    };
    Ok(next.map_or(nonce, |next| nonce.max(next)))
}

pub(super) fn code(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(0)?;
    let (_, state) = backend.state(block_at(params, 1)?)?;
    json::data(out, &code_of(&state, &address)?);
    Ok(())
}

/// The code of an account; empty for one that is no contract.
pub(crate) fn code_of(state: &State, address: &Address) -> Result<Bytes, RpcError> {
    let account = state.account(address)?.unwrap_or_default();
    Ok(match account.has_code() {
        true => state.code(&account.code_hash)?,
        false => Bytes::new(),
    })
}

pub(super) fn storage_at(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(0)?;
    let slot = storage_key(&params.required::<String>(1)?)?;
    let (_, state) = backend.state(block_at(params, 2)?)?;
    let value = state.storage(&address, &slot)?;
    json::data(out, &value.to_be_bytes::<32>());
    Ok(())
}

/// Slots of several accounts: `{address: [slot...]}`.
pub(super) fn storage_values(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let requested: BTreeMap<Address, Vec<String>> = params.required(0)?;
    let slots: usize = requested.values().map(Vec::len).sum();
    if slots == 0 {
        return Err(RpcError::invalid_params("empty request"));
    }
    if slots > MAX_SLOTS {
        let message = format!("too many slots: {slots} (max {MAX_SLOTS})");
        return Err(RpcError::invalid_params(message));
    }
    let (_, state) = backend.state(block_at(params, 1)?)?;
    let mut object = Object::new(out);
    for (address, slots) in requested {
        let name = address.to_string().to_lowercase();
        let mut values = object.array(&name);
        for slot in slots {
            let value = state.storage(&address, &storage_key(&slot)?)?;
            values.data(&value.to_be_bytes::<32>());
        }
    }
    Ok(())
}

/// Spec: EIP-1186.
pub(super) fn proof(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(0)?;
    let keys: Vec<String> = params.optional(1)?.unwrap_or_default();
    if keys.len() > MAX_SLOTS {
        let message = format!("too many keys: {} (max {MAX_SLOTS})", keys.len());
        return Err(RpcError::invalid_params(message));
    }
    let slots = keys.iter().map(|key| storage_key(key));
    let slots: Vec<U256> = slots.collect::<Result<_, _>>()?;
    let (header, state) = backend.state(block_at(params, 2)?)?;

    let account = state.trie_account(&address)?;
    let root = header.header.state_root;
    let proofs = backend.provable.proofs(header.id, root, &state)?;
    let proofs = proofs.ok_or_else(|| {
        RpcError::server(format!(
            "proofs of block {} are not available: too much has changed since; they need \
             --data-storage-format=X_BONSAI_ARCHIVE",
            header.id.number
        ))
    })?;
    let mut object = Object::new(out);
    object.data("address", address.as_slice());
    object.data_list("accountProof", proofs.prove(&address, None)?);
    object.quantity("balance", &account.balance);
    object.data("codeHash", account.code_hash.as_slice());
    object.number("nonce", account.nonce);
    object.data("storageHash", account.storage_root.as_slice());
    let mut storage = object.array("storageProof");
    for (key, slot) in keys.iter().zip(&slots) {
        let mut entry = storage.object();
        // In the form of the request: 32 bytes as DATA, a number as QUANTITY.
        match key.len() {
            66 => entry.data("key", B256::from(slot.to_be_bytes::<32>()).as_slice()),
            _ => entry.quantity("key", slot),
        }
        entry.quantity("value", &state.storage(&address, slot)?);
        entry.data_list("proof", proofs.prove(&address, Some(slot))?);
    }
    Ok(())
}
