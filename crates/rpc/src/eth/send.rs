//! Sending transactions.

use crate::json::{self, Array};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{B256, Bytes};
use niwaki_txpool::{Incoming, Origin, PoolError};

pub(super) fn raw(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    let hash = add_to_pool(backend, &bytes);
    let hash = hash.map_err(|error| RpcError::server(error.to_string()))?;
    json::data(out, hash.as_slice());
    Ok(())
}

fn add_to_pool(backend: &Backend, bytes: &Bytes) -> Result<B256, PoolError> {
    let incoming = Incoming::decode(bytes)?;
    let hash = *incoming.tx.tx_hash();
    backend
        .pool
        .add(incoming, Origin::Local, crate::node::now())?;
    Ok(hash)
}

/// `debug_batchSendRawTransaction`: each parameter is a transaction; a refused one does not affect the others.
pub(crate) fn many(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = Array::new(out);
    for index in 0..params.len() {
        params.check_deadline()?;
        let added = params.required::<Bytes>(index);
        let added = added.map_err(|error| error.message);
        let added =
            added.and_then(|bytes| add_to_pool(backend, &bytes).map_err(|error| error.to_string()));
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
