//! What consensus and execution client tell each other about themselves.

use crate::json::{self, Array, Object};
use crate::params::Params;
use crate::{Backend, RpcResult};
use niwaki_primitives::{U256, hex};
use serde_json::Value;

/// The two letters of this client in client version lists.
const CODE: &str = "NW";

/// Every `engine` method but this one.
pub(super) fn capabilities(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = Array::new(out);
    for method in super::METHODS {
        let is_one = method.namespace() == "engine" && method.name != "engine_exchangeCapabilities";
        if is_one {
            json::string(list.item(), method.name);
        }
    }
    Ok(())
}

pub(super) fn client_version(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    if let Some(client) = params.optional::<Value>(0)? {
        let of = |field: &str| client[field].as_str().unwrap_or("?");
        let (name, version) = (of("name"), of("version"));
        tracing::info!(%name, %version, "Consensus client");
    }
    write_client_version(backend, out);
    Ok(())
}

/// Writes the list of clients that answer: this one.
pub(super) fn write_client_version(backend: &Backend, out: &mut Vec<u8>) {
    let mut list = Array::new(out);
    let mut object = list.object();
    object.string("code", CODE);
    object.string("name", "Niwaki");
    object.string("version", &backend.identity.version);
    object.string("commit", &hex::encode_prefixed(backend.identity.commit));
}

/// Deprecated since Cancun; some clients still call it.
pub(super) fn transition_configuration(
    backend: &Backend,
    _: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let total = backend.chain().spec().terminal_total_difficulty;
    let mut object = Object::new(out);
    object.quantity("terminalTotalDifficulty", &total.unwrap_or(U256::MAX));
    object.data("terminalBlockHash", &[0; 32]);
    object.number("terminalBlockNumber", 0);
    Ok(())
}
