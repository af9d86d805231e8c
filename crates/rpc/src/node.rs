//! The namespaces about this node rather than the chain: `net`, `web3`, `admin`, `miner`, `rpc`.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::Params;
use crate::{Backend, RpcError};
use niwaki_primitives::Bytes;
use std::time::{SystemTime, UNIX_EPOCH};

type Answer = Result<(), RpcError>;

pub(crate) const METHODS: &[Method] = &[
    row("admin_nodeInfo", Lane::Inline, node_info),
    row("admin_peers", Lane::Inline, peers),
    row("net_listening", Lane::Inline, listening),
    row("net_peerCount", Lane::Inline, peer_count),
    row("net_version", Lane::Inline, network_id),
    row("rpc_modules", Lane::Inline, modules),
    row("web3_clientVersion", Lane::Inline, client_version),
    row("web3_sha3", Lane::Inline, sha3),
];

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn network_id(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    json::string(out, &backend.chain().spec().network_id.to_string());
    Ok(())
}

fn listening(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    out.extend_from_slice(b"false");
    Ok(())
}

fn peer_count(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    json::number(out, 0);
    Ok(())
}

fn peers(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    out.extend_from_slice(b"[]");
    Ok(())
}

fn client_version(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    json::string(out, &backend.identity.client_version);
    Ok(())
}

fn sha3(_: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let bytes: Bytes = params.required(0)?;
    json::data(out, niwaki_crypto::keccak256(&bytes).as_slice());
    Ok(())
}

fn modules(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let mut object = Object::new(out);
    for namespace in crate::methods::NAMESPACES {
        object.string(namespace, "1.0");
    }
    Ok(())
}

fn node_info(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let chain = backend.chain();
    let head = chain.head();
    let mut object = Object::new(out);
    object.string("name", &backend.identity.client_version);
    object.string("listenAddr", "");
    let mut protocols = object.object("protocols");
    let mut eth = protocols.object("eth");
    eth.decimal("network", chain.spec().network_id);
    eth.string("difficulty", &head.total_difficulty.to_string());
    eth.data("genesis", chain.genesis_hash().as_slice());
    eth.data("head", head.id.hash.as_slice());
    eth.decimal("chainId", chain.spec().chain_id);
    Ok(())
}
