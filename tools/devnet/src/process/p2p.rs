//! How a client takes part in a network of peers, on loopback only.

use super::ClientKind;
use std::fmt::Write;

/// The part of the network in how a client is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct P2pOptions<'a> {
    /// Whether it looks for nodes by itself.
    pub(crate) has_discovery: bool,
    pub(crate) max_peers: usize,
    /// Whether it downloads the state of a late block instead of executing all blocks.
    pub(crate) has_snap: bool,
    /// Whether geth speaks `snap/2` too, which it calls experimental.
    pub(crate) has_snap2: bool,
    /// Nodes that discovery begins with.
    pub(crate) boot_nodes: &'a [String],
}

impl Default for P2pOptions<'_> {
    fn default() -> Self {
        Self {
            has_discovery: false,
            max_peers: 25,
            has_snap: false,
            has_snap2: false,
            boot_nodes: &[],
        }
    }
}

/// The flags of a client that listens on `port`; without a port it takes no part.
pub(super) fn flags(kind: ClientKind, network: Option<(P2pOptions<'_>, u16)>) -> Vec<String> {
    let Some((options, port)) = network else {
        let flags = match kind {
            ClientKind::Niwaki | ClientKind::Besu => "--p2p-enabled=false",
            ClientKind::Geth | ClientKind::Quorum => "--syncmode=full",
            ClientKind::Reth => {
                "--addr 127.0.0.1 --port 0 --disable-discovery --max-outbound-peers 0 --max-inbound-peers 0"
            }
        };
        return flags.split(' ').map(str::to_owned).collect();
    };
    let boot_nodes = options.boot_nodes.join(",");
    let mode = match (kind, options.has_snap) {
        (ClientKind::Niwaki | ClientKind::Besu, true) => "--sync-mode=SNAP",
        (ClientKind::Niwaki | ClientKind::Besu, false) => "--sync-mode=FULL",
        (ClientKind::Geth, true) => "--syncmode=snap",
        (ClientKind::Geth, false) | (ClientKind::Quorum, _) => "--syncmode=full",
        // It has no other.
        (ClientKind::Reth, _) => "",
    };
    let flags = match kind {
        ClientKind::Niwaki => format!(
            "--p2p-enabled=true --p2p-host=127.0.0.1 --p2p-interface=127.0.0.1 --p2p-port={port} \
             --discovery-enabled={} --max-peers={} --bootnodes={boot_nodes} {mode}",
            options.has_discovery, options.max_peers
        ),
        ClientKind::Besu => format!(
            "--p2p-host=127.0.0.1 --p2p-interface=127.0.0.1 --p2p-port={port} --discovery-enabled=false --nat-method=NONE \
             --max-peers={} {mode}",
            options.max_peers
        ),
        ClientKind::Geth if options.has_snap2 => {
            format!("--netrestrict 127.0.0.0/8 {mode} --snap.v2")
        }
        ClientKind::Geth | ClientKind::Quorum => format!("--netrestrict 127.0.0.0/8 {mode}"),
        ClientKind::Reth => format!(
            "--addr 127.0.0.1 --port {port} --nat extip:127.0.0.1 --disable-discovery --max-outbound-peers {0} \
             --max-inbound-peers {0}",
            options.max_peers
        ),
    };
    flags.split(' ').map(str::to_owned).collect()
}

/// geth's configuration file: flags can't keep it on loopback.
pub(super) fn geth_config(kind: ClientKind, network: Option<(P2pOptions<'_>, u16)>) -> String {
    let Some((options, port)) = network else {
        return "[Node.P2P]\nListenAddr = \"127.0.0.1:0\"\nMaxPeers = 0\nNoDiscovery = true\n"
            .into();
    };
    let (discovery, peers) = (options.has_discovery, options.max_peers);
    let mut config = format!(
        "[Node.P2P]\nListenAddr = \"127.0.0.1:{port}\"\nMaxPeers = {peers}\nNoDiscovery = {}\n",
        !discovery
    );
    if kind == ClientKind::Quorum {
        return config;
    }
    let _ = write!(
        config,
        "DiscoveryV4 = {discovery}\nDiscoveryV5 = {discovery}\n"
    );
    let nodes = options.boot_nodes;
    for list in ["BootstrapNodes", "BootstrapNodesV5"] {
        let _ = writeln!(config, "{list} = {nodes:?}");
    }
    config
}
