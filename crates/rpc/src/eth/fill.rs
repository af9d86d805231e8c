//! `eth_fillTransaction`: fills in what the caller has left out of a transaction, as geth does. It stays unsigned.

use super::call::CallRequest;
use super::estimate::least_gas;
use super::{fees, serialize};
use crate::json::Object;
use crate::params::{BlockRef, Number, Params};
use crate::simulation::Message;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::rlp::{Encodable, Header as RlpHeader};
use niwaki_primitives::{Fork, StateView, Transaction, TxEnvelope, Typed2718, U256};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most blobs of one transaction (EIP-7594).
const MAX_BLOBS: usize = 6;

pub(super) fn fill(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    #[derive(Deserialize)]
    struct Blobs<'a> {
        #[serde(borrow)]
        blobs: Option<&'a RawValue>,
    }
    let message: Message = params.required(0)?;
    if params.required::<Blobs<'_>>(0)?.blobs.is_some() {
        return Err(RpcError::invalid_params(
            "blobs are not taken: give their blobVersionedHashes, and add the blobs when it is \
             signed",
        ));
    }
    message.check(backend.chain().spec().chain_id)?;
    let (header, state) = backend.state(BlockRef::default())?;
    let mut request = CallRequest::new(message, header, state);
    fill_fees(backend, &mut request)?;
    check(&request.message)?;
    let message = &mut request.message;
    message.value.get_or_insert_default();
    let sender = message.sender();
    if message.nonce.is_none() {
        let account = request.state.account(&sender)?;
        let nonce = account.unwrap_or_default().nonce;
        let next = backend.pool.next_nonce(&sender).unwrap_or(nonce);
        message.nonce = Some(Number(next.max(nonce)));
    }
    if request.message.gas.is_none() {
        let gas = least_gas(backend, &request, params.deadline)?;
        request.message.gas = Some(Number(gas));
    }
    write(backend, &request.message, out);
    Ok(())
}

/// Fills in fees that the next blocks will likely accept.
fn fill_fees(backend: &Backend, request: &mut CallRequest) -> RpcResult {
    let refuse = |words: String| Err(RpcError::server(words));
    let spec = backend.chain().spec();
    let header = &request.header.header;
    let fork = spec.fork_of(header);
    let message = &mut request.message;
    if message.max_fee_per_blob_gas == Some(U256::ZERO) {
        return refuse("maxFeePerBlobGas, if specified, must be non-zero".to_owned());
    }
    if fork >= Fork::Cancun
        && message.blob_versioned_hashes.is_some()
        && message.max_fee_per_blob_gas.is_none()
    {
        let price = U256::from(serialize::blob_base_fee(spec, header));
        message.max_fee_per_blob_gas = Some(price.saturating_mul(U256::from(2)));
    }
    if message.gas_price.is_some() && message.authorization_list.is_some() {
        return refuse("both gasPrice and authorizationList specified".to_owned());
    }
    if let Some(price) = message.gas_price {
        return match price.is_zero() && fork >= Fork::London {
            true => refuse("gasPrice must be non-zero after london fork".to_owned()),
            false => Ok(()),
        };
    }
    let (fee, tip) = (message.max_fee_per_gas, message.max_priority_fee_per_gas);
    if fork < Fork::London {
        if fee.is_some() || tip.is_some() {
            let words = "maxFeePerGas and maxPriorityFeePerGas are not valid before London is \
                         active";
            return refuse(words.to_owned());
        }
        message.gas_price = Some(U256::from(fees::suggested_tip(backend)?));
        return Ok(());
    }
    if tip.is_some() && fee.is_some_and(|fee| fee.is_zero()) {
        return refuse("maxFeePerGas must be non-zero".to_owned());
    }
    let tip = match tip {
        Some(tip) => tip,
        None => U256::from(fees::suggested_tip(backend)?),
    };
    // Twice the base fee, in case it rises.
    let base_fee = U256::from(header.base_fee_per_gas.unwrap_or(0));
    let fee = fee.unwrap_or_else(|| tip.saturating_add(base_fee.saturating_mul(U256::from(2))));
    if fee < tip {
        return refuse(format!(
            "maxFeePerGas ({fee}) < maxPriorityFeePerGas ({tip})"
        ));
    }
    (message.max_fee_per_gas, message.max_priority_fee_per_gas) = (Some(fee), Some(tip));
    Ok(())
}

/// Refuses what can't be a transaction, in geth's words.
fn check(message: &Message) -> RpcResult {
    let refuse = |words: String| Err(RpcError::server(words));
    match message.blob_versioned_hashes.as_ref().map(Vec::len) {
        Some(0) => return refuse("need at least 1 blob for a blob transaction".to_owned()),
        Some(blobs) if blobs > MAX_BLOBS => {
            return refuse(format!(
                "too many blobs in transaction (have={blobs}, max={MAX_BLOBS})"
            ));
        }
        _ => {}
    }
    if message.to.is_none() && message.call_data().is_empty() {
        return refuse("contract creation without any data provided".to_owned());
    }
    Ok(())
}

fn write(backend: &Backend, message: &Message, out: &mut Vec<u8>) {
    let number = |number: Option<Number>| number.map_or(0, |number| number.0);
    let (nonce, gas_limit) = (number(message.nonce), number(message.gas));
    let tx = message.transaction(nonce, gas_limit, backend.chain().spec().chain_id, 2);
    let raw = raw(&tx);
    let mut object = Object::new(out);
    object.data("raw", &raw);
    let mut fields = object.object("tx");
    write_fields(&mut fields, &tx);
    let hash = niwaki_crypto::keccak256(&raw);
    fields.data("hash", hash.as_slice());
}

/// Writes a transaction as geth does for one that is in no block.
fn write_fields(object: &mut Object<'_>, tx: &TxEnvelope) {
    object.number("type", u64::from(tx.ty()));
    if let Some(id) = tx.chain_id() {
        object.number("chainId", id);
    }
    object.number("nonce", tx.nonce());
    object.data_or_null("to", tx.to());
    object.number("gas", tx.gas_limit());
    match tx.max_priority_fee_per_gas() {
        None => {
            object.quantity("gasPrice", &U256::from(tx.max_fee_per_gas()));
            object.null("maxPriorityFeePerGas");
            object.null("maxFeePerGas");
        }
        Some(tip) => {
            object.null("gasPrice");
            object.quantity("maxPriorityFeePerGas", &U256::from(tip));
            object.quantity("maxFeePerGas", &U256::from(tx.max_fee_per_gas()));
        }
    }
    if let Some(fee) = tx.max_fee_per_blob_gas() {
        object.quantity("maxFeePerBlobGas", &U256::from(fee));
    }
    object.quantity("value", &tx.value());
    object.data("input", tx.input());
    if let Some(list) = tx.access_list() {
        serialize::access_list(object.field("accessList"), list);
    }
    if let Some(hashes) = tx.blob_versioned_hashes() {
        object.data_list("blobVersionedHashes", hashes);
    }
    if let Some(list) = tx.authorization_list() {
        serialize::authorizations(object.field("authorizationList"), list);
    }
    for name in ["v", "r", "s"] {
        object.number(name, 0);
    }
    if tx.ty() != 0 {
        object.number("yParity", 0);
    }
}

/// The encoding with a signature of zeros; of a legacy transaction, without parity.
fn raw(tx: &TxEnvelope) -> Vec<u8> {
    if tx.ty() != 0 {
        return serialize::encoded(tx);
    }
    let mut fields = Vec::new();
    tx.nonce().encode(&mut fields);
    tx.max_fee_per_gas().encode(&mut fields);
    tx.gas_limit().encode(&mut fields);
    match tx.to() {
        Some(to) => to.encode(&mut fields),
        None => fields.push(0x80),
    }
    tx.value().encode(&mut fields);
    tx.input().encode(&mut fields);
    fields.extend_from_slice(&[0x80; 3]);
    let mut out = Vec::new();
    RlpHeader {
        list: true,
        payload_length: fields.len(),
    }
    .encode(&mut out);
    out.extend_from_slice(&fields);
    out
}
