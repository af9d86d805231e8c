//! Transactions that come by JSON-RPC.

use crate::params::Params;
use crate::{Backend, RpcError, json};
use niwaki_primitives::Bytes;
use niwaki_txpool::{Incoming, Origin};

type Answer = Result<(), RpcError>;

pub(super) fn raw(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let bytes: Bytes = params.required(0)?;
    let incoming = Incoming::decode(&bytes).map_err(|error| refused(&error))?;
    let hash = *incoming.tx.tx_hash();
    let now = crate::node::now();
    backend
        .pool
        .add(incoming, Origin::Local, now)
        .map_err(|error| refused(&error))?;
    json::data(out, hash.as_slice());
    Ok(())
}

fn refused(error: &niwaki_txpool::PoolError) -> RpcError {
    RpcError::server(error.to_string())
}

/// Keys are for wallets to keep: whatever would need one is refused.
pub(super) fn unsigned(_: &Backend, _: &Params<'_>, _: &mut Vec<u8>) -> Answer {
    Err(RpcError::server(
        "this node keeps no keys: sign the transaction and use eth_sendRawTransaction",
    ))
}
