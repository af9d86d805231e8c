//! Sending transactions.

use crate::json::{self, Array};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{B256, Bytes, TxEnvelope, hex};
use niwaki_txpool::{Incoming, Origin, PoolError};

/// Besu's code for a sender that is not on the list.
const NOT_PERMITTED: i64 = -32007;

pub(super) fn raw(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    json::data(out, send_raw(backend, &bytes)?.as_slice());
    Ok(())
}

/// Adds a signed transaction to the pool and returns its hash.
///
/// # Errors
/// Why the pool refuses it.
pub(crate) fn send_raw(backend: &Backend, bytes: &Bytes) -> Result<B256, RpcError> {
    add_to_pool(backend, bytes).map_err(|error| match error {
        PoolError::SenderNotPermitted => RpcError::new(NOT_PERMITTED, error.to_string()),
        _ => RpcError::server(error.to_string()),
    })
}

fn add_to_pool(backend: &Backend, bytes: &Bytes) -> Result<B256, PoolError> {
    let incoming = Incoming::decode(bytes)?;
    let hash = *incoming.tx.tx_hash();
    backend
        .pool
        .add(incoming, Origin::Local, crate::node::now())?;
    Ok(hash)
}

/// Recovers the senders of the transactions that a batch of requests sends, all at once: each is known when its turn comes.
pub(crate) fn learn_senders<'a>(backend: &Backend, raw: impl Iterator<Item = &'a str>) {
    let decoded = raw.filter_map(|text| {
        let bytes = hex::decode(text.strip_prefix("0x")?).ok()?;
        Some(Incoming::decode(&bytes).ok()?.tx)
    });
    let decoded: Vec<TxEnvelope> = decoded.collect();
    if decoded.len() > 1 {
        backend.pool.learn_senders(&decoded);
    }
}

/// `debug_batchSendRawTransaction`: each parameter is a transaction; a refused one does not affect the others.
pub(crate) fn many(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = Array::new(out);
    let (mut decoded, mut outcomes) = (Vec::new(), Vec::new());
    for index in 0..params.len() {
        let bytes = params.required::<Bytes>(index);
        let incoming = bytes.map_err(|error| error.message);
        let incoming =
            incoming.and_then(|bytes| Incoming::decode(&bytes).map_err(|error| error.to_string()));
        outcomes.push(incoming.map(|incoming| decoded.push(incoming)));
    }
    params.check_deadline()?;
    let now = crate::node::now();
    let mut added = backend
        .pool
        .add_many(decoded, Origin::Local, now)
        .into_iter();
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let added = outcome.and_then(|()| match added.next() {
            Some(Err(error)) => Err(error.to_string()),
            _ => Ok(()),
        });
        let mut object = list.object();
        object.decimal("index", index as u64);
        object.boolean("success", added.is_ok());
        if let Err(reason) = added {
            object.string("errorMessage", &reason);
        }
    }
    Ok(())
}

/// Methods that need a private key are refused: wallets keep keys, this node does not.
pub(super) fn unsigned(_: &Backend, _: &Params<'_>, _: &mut Vec<u8>) -> RpcResult {
    Err(RpcError::server(
        "this node keeps no keys: sign the transaction and use eth_sendRawTransaction",
    ))
}
