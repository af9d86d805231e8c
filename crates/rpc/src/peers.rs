//! The methods about peers (`admin_*Peer*`, `net_enode`, ...) and the hooks into the program's network that they use.
//!
//! The program sets [`PeerHooks`] once if it has a network. Without one these methods answer what Besu does with
//! `--p2p-enabled=false`.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{B256, U256};
use std::fmt;
use std::net::SocketAddr;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("admin_addPeer", "node", Lane::Call, add),
    row("admin_addTrustedPeer", "node", Lane::Call, add_trusted),
    row("admin_bannedPeers", "", Lane::Call, bans),
    row("admin_departedPeers", "", Lane::Call, departures),
    row("admin_nodeInfo", "", Lane::Call, node_info),
    row("admin_peers", "", Lane::Call, peers),
    row("admin_removePeer", "node", Lane::Call, remove),
    row("admin_removeTrustedPeer", "node", Lane::Call, remove_trusted),
    row("admin_unban", "nodeOrHost", Lane::Call, unban),
    row("net_enode", "", Lane::Inline, enode),
    row("net_listening", "", Lane::Inline, listening),
    row("net_peerCount", "", Lane::Inline, peer_count),
];

/// Carries out commands.
pub type PeerCommands = Box<dyn Fn(PeerCommand<'_>) -> Result<bool, String> + Send + Sync>;

/// A network as the methods see it. They call the functions from worker threads; `count` and `own` from any.
pub struct PeerHooks {
    /// Most peers.
    pub limit: usize,
    /// How many peers there are.
    pub count: Box<dyn Fn() -> usize + Send + Sync>,
    /// This node.
    pub own: Box<dyn Fn() -> OwnNode + Send + Sync>,
    /// The peers.
    pub peers: Box<dyn Fn() -> Vec<PeerReport> + Send + Sync>,
    /// The bans in force.
    pub bans: Box<dyn Fn() -> Vec<BanReport> + Send + Sync>,
    /// The peers that left last.
    pub departures: Box<dyn Fn() -> Vec<DepartureReport> + Send + Sync>,
    /// Carries out a command; whether it changed anything, or why it can't be carried out.
    pub command: PeerCommands,
}

impl fmt::Debug for PeerHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerHooks").finish_non_exhaustive()
    }
}

/// A command of the operator. Nodes are texts, `enode://` or `enr:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCommand<'t> {
    /// Dial a node for ever.
    Add(&'t str),
    /// Don't, and end the connection.
    Remove(&'t str),
    /// Let a node be a peer beyond all limits.
    Trust(&'t str),
    /// Don't.
    Distrust(&'t str),
    /// Lift the ban of a node's id, or of an address.
    Unban(&'t str),
}

/// This node on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNode {
    /// Its public key, 128 hex digits.
    pub id: String,
    /// Its URL.
    pub enode: String,
    /// Its record, `enr:...`; empty without discovery.
    pub enr: String,
    /// Where others reach it.
    pub host: String,
    /// Where it listens for peers; `None` if it only dials.
    pub listen: Option<SocketAddr>,
    /// The port of discovery; 0 without it.
    pub discovery_port: u16,
    /// The same by IPv6, if its record says an IPv6 address.
    pub ipv6: Option<OwnIpv6>,
}

/// This node by IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnIpv6 {
    /// Its URL with its IPv6 address.
    pub enode: String,
    /// Where others reach it.
    pub host: String,
    /// Where it listens for peers; `None` if it only dials.
    pub listen: Option<SocketAddr>,
    /// The port at which others reach it for peers.
    pub port: u16,
    /// That of discovery.
    pub discovery_port: u16,
}

/// A peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerReport {
    /// Its public key, 128 hex digits.
    pub id: String,
    /// Its URL, as far as it is known.
    pub enode: String,
    /// Its name, as it says.
    pub client: String,
    /// Its protocols, `eth/69`.
    pub capabilities: Vec<String>,
    /// This side of the connection.
    pub local: Option<SocketAddr>,
    /// Its side of the connection.
    pub remote: SocketAddr,
    /// Whether it connected by itself.
    pub is_inbound: bool,
    /// Whether the operator named it static.
    pub is_static: bool,
    /// Whether the operator trusts it.
    pub is_trusted: bool,
    /// Its score, -100 to 100.
    pub score: f64,
    /// The version of `eth` on the connection.
    pub eth_version: u64,
    /// The version of `snap`, if it is spoken.
    pub snap_version: Option<u64>,
    /// The first and the last block that it has.
    pub blocks: (u64, u64),
    /// The hash of the last one.
    pub head: B256,
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanReport {
    /// A node's id or an address.
    pub target: String,
    /// Seconds until it ends.
    pub left_s: u64,
}

/// A peer that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepartureReport {
    /// Its public key, 128 hex digits.
    pub id: String,
    /// Where it was.
    pub remote: SocketAddr,
    /// Who ended the connection, and why.
    pub reason: String,
    /// Seconds since then.
    pub ago_s: u64,
    /// For how many seconds it was a peer.
    pub up_s: u64,
}

fn hooks(backend: &Backend) -> Result<&PeerHooks, RpcError> {
    let hooks = backend.operator().peers();
    hooks.ok_or_else(|| {
        RpcError::server("P2P has been disabled. This functionality is not available")
    })
}

fn command(backend: &Backend, command: PeerCommand<'_>, out: &mut Vec<u8>) -> RpcResult {
    let changed = (hooks(backend)?.command)(command).map_err(RpcError::invalid_params)?;
    json::boolean(out, changed);
    Ok(())
}

fn add(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    command(
        backend,
        PeerCommand::Add(&params.required::<String>(0)?),
        out,
    )
}

fn remove(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    command(
        backend,
        PeerCommand::Remove(&params.required::<String>(0)?),
        out,
    )
}

fn add_trusted(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    command(
        backend,
        PeerCommand::Trust(&params.required::<String>(0)?),
        out,
    )
}

fn remove_trusted(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    command(
        backend,
        PeerCommand::Distrust(&params.required::<String>(0)?),
        out,
    )
}

fn unban(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    command(
        backend,
        PeerCommand::Unban(&params.required::<String>(0)?),
        out,
    )
}

fn listening(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hooks = backend.operator().peers();
    json::boolean(
        out,
        hooks.is_some_and(|hooks| (hooks.own)().listen.is_some()),
    );
    Ok(())
}

fn enode(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::string(out, &(hooks(backend)?.own)().enode);
    Ok(())
}

fn peer_count(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::number(out, backend.peer_count());
    Ok(())
}

/// Spec: execution-apis `admin`; the names that Besu and geth have in common, and geth's own.
fn peers(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let peers = match backend.operator().peers() {
        Some(hooks) => (hooks.peers)(),
        None => Vec::new(),
    };
    let mut list = json::Array::new(out);
    for peer in peers {
        write_peer(&mut list.object(), &peer);
    }
    Ok(())
}

fn write_peer(object: &mut Object<'_>, peer: &PeerReport) {
    object.string("version", "0x5");
    object.string("name", &peer.client);
    let mut capabilities = object.array("caps");
    for capability in &peer.capabilities {
        json::string(capabilities.item(), capability);
    }
    drop(capabilities);
    let mut network = object.object("network");
    if let Some(local) = peer.local {
        network.string("localAddress", &local.to_string());
    }
    network.string("remoteAddress", &peer.remote.to_string());
    network.boolean("inbound", peer.is_inbound);
    network.boolean("static", peer.is_static);
    network.boolean("trusted", peer.is_trusted);
    drop(network);
    object.number("port", u64::from(peer.remote.port()));
    object.string("id", &format!("0x{}", peer.id));
    object.string("enode", &peer.enode);
    let score = format!("{:.0}", peer.score);
    object.field("score").extend_from_slice(score.as_bytes());
    let mut protocols = object.object("protocols");
    let mut eth = protocols.object("eth");
    eth.decimal("version", peer.eth_version);
    eth.data("head", peer.head.as_slice());
    // Since eth/69 a peer does not say its total difficulty.
    eth.quantity("difficulty", &U256::ZERO);
    eth.decimal("earliestBlock", peer.blocks.0);
    eth.decimal("latestBlock", peer.blocks.1);
    eth.data("latestBlockHash", peer.head.as_slice());
    drop(eth);
    if let Some(version) = peer.snap_version {
        protocols.object("snap").decimal("version", version);
    }
}

fn bans(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = json::Array::new(out);
    for ban in (hooks(backend)?.bans)() {
        let mut object = list.object();
        object.string("target", &ban.target);
        object.decimal("secondsLeft", ban.left_s);
    }
    Ok(())
}

fn departures(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = json::Array::new(out);
    for departure in (hooks(backend)?.departures)() {
        let mut object = list.object();
        object.string("id", &format!("0x{}", departure.id));
        object.string("remoteAddress", &departure.remote.to_string());
        object.string("reason", &departure.reason);
        object.decimal("secondsAgo", departure.ago_s);
        object.decimal("secondsConnected", departure.up_s);
    }
    Ok(())
}

fn node_info(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let chain = backend.chain();
    let head = chain.head();
    let mut object = Object::new(out);
    object.string("name", &backend.identity.client_version);
    let own = backend.operator().peers().map(|hooks| (hooks.own)());
    let listen = own.as_ref().and_then(|own| own.listen);
    let listen_text = listen.map_or_else(String::new, |listen| listen.to_string());
    object.string("listenAddr", &listen_text);
    if let Some(own) = &own {
        object.string("enode", &own.enode);
        if !own.enr.is_empty() {
            object.string("enr", &own.enr);
        }
        object.string("id", &own.id);
        object.string("ip", &own.host);
        if let Some(ipv6) = &own.ipv6 {
            object.string("ipv6", &ipv6.host);
            object.string("enodeV6", &ipv6.enode);
            if let Some(listen) = ipv6.listen {
                object.string("listenAddrV6", &listen.to_string());
            }
        }
        let mut ports = object.object("ports");
        ports.decimal("discovery", u64::from(own.discovery_port));
        ports.decimal(
            "listener",
            listen.map_or(0, |listen| u64::from(listen.port())),
        );
        if let Some(ipv6) = &own.ipv6 {
            ports.decimal("discoveryV6", u64::from(ipv6.discovery_port));
            ports.decimal("listenerV6", u64::from(ipv6.port));
        }
    }
    let mut protocols = object.object("protocols");
    let mut eth = protocols.object("eth");
    eth.decimal("network", backend.network_id());
    eth.string("difficulty", &head.total_difficulty.to_string());
    eth.data("genesis", chain.genesis_hash().as_slice());
    eth.data("head", head.id.hash.as_slice());
    eth.decimal("chainId", chain.spec().chain_id);
    Ok(())
}
