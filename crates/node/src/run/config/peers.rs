//! The network of peers, as the flags describe it.

use crate::options::{DiscoveryMode, DnsList, PeerFlags, SyncModeFlag};
use niwaki_network::wire::EthVersion;
use niwaki_network::{BootNode, NatMethod, NetRestrict, Node, NodeId, Subnet};
use niwaki_primitives::B256;
use niwaki_sync::{HistoryFloor, SyncMode};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// Static nodes of a data path, as Besu and geth name the file.
const STATIC_NODES: &str = "static-nodes.json";

/// What the network is started with.
pub(crate) struct PeersConfig {
    /// Where it listens for connections.
    pub(crate) listen: SocketAddr,
    pub(crate) discovery_port: u16,
    /// Where it listens by IPv6 beside IPv4.
    pub(crate) listen_ipv6: Option<ListenIpv6>,
    /// The addresses that other nodes see, if the operator gives them.
    pub(crate) hosts: Vec<IpAddr>,
    pub(crate) prefers_ipv6: bool,
    pub(crate) nat: NatMethod,
    pub(crate) key_file: PathBuf,
    /// The folder of saved peers and of the record.
    pub(crate) folder: PathBuf,
    pub(crate) versions: Vec<EthVersion>,
    /// Whether parts of states are given.
    pub(crate) has_snap: bool,
    /// Whether `snap/2` is offered too; `None`: if the chain has access lists.
    pub(crate) has_snap2: Option<bool>,
    /// Most bytes of answers to peers in a second.
    pub(crate) serving_rate: Option<NonZeroU64>,
    pub(crate) max_peers: usize,
    pub(crate) inbound_percent: usize,
    /// `None` without discovery.
    pub(crate) discovery: Option<DiscoveryMode>,
    /// The operator's boot nodes; `None` for the network's.
    pub(crate) boot_nodes: Option<Vec<BootNode>>,
    /// The operator's DNS list; `None` for the network's.
    pub(crate) dns_list: Option<DnsList>,
    /// The name server for it; `None` for the system's.
    pub(crate) dns_server: Option<SocketAddr>,
    pub(crate) static_nodes: StaticNodesFile,
    pub(crate) trusted_nodes: Vec<Node>,
    pub(crate) banned: Vec<NodeId>,
    pub(crate) net_restrict: NetRestrict,
    /// Whether that leaves no public address.
    pub(crate) is_private: bool,
    pub(crate) sync_mode: SyncMode,
    /// Which blocks are wanted below those that come with a state.
    pub(crate) history: HistoryFloor,
    /// A folder of files that have such blocks.
    pub(crate) history_files: Option<PathBuf>,
    /// The block to reach while no consensus client has chosen a head.
    pub(crate) sync_target: Option<B256>,
}

/// Addresses to listen on by IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenIpv6 {
    /// For connections, TCP.
    pub(crate) peers: SocketAddrV6,
    /// For discovery, UDP.
    pub(crate) discovery: SocketAddrV6,
}

/// The file of static nodes.
pub(crate) struct StaticNodesFile {
    pub(crate) path: PathBuf,
    /// Whether the operator named it, so that it must exist.
    pub(crate) is_named: bool,
}

impl PeersConfig {
    /// The network; `None` if there is to be none. Networks of GoQuorum (`is_quorum`) speak old versions of `eth`.
    pub(crate) fn resolve(
        flags: &PeerFlags,
        data_path: &Path,
        is_dev: bool,
        is_quorum: bool,
    ) -> Option<Self> {
        if !flags.p2p_enabled.unwrap_or(!is_dev) {
            return None;
        }
        let named = flags.bootnodes.as_ref();
        let boot_nodes = named.map(|all| all.iter().filter_map(|node| node.0.clone()).collect());
        let versions = EthVersion::ALL.into_iter();
        let oldest = match is_quorum {
            true => EthVersion::Eth66,
            false => EthVersion::Eth69,
        };
        let oldest = flags.eth_capability_min.unwrap_or(oldest.number());
        let offered = oldest..=flags.eth_capability_max;
        let networks = flags.net_restrict.iter();
        let networks: Vec<Subnet> = networks.filter_map(|network| network.0).collect();
        let is_bounded = flags.remote_connections_limit_enabled != Some(false);
        Some(Self {
            listen: SocketAddr::new(flags.p2p_interface, flags.p2p_port),
            discovery_port: flags.p2p_discovery_port.unwrap_or(flags.p2p_port),
            listen_ipv6: listen_ipv6(flags),
            hosts: flags
                .p2p_host
                .into_iter()
                .chain(flags.p2p_host_ipv6.map(IpAddr::V6))
                .collect(),
            nat: flags.nat_method.into(),
            prefers_ipv6: flags.p2p_ipv6_outbound_enabled == Some(true),
            key_file: key_file(flags, data_path),
            folder: data_path.join("network"),
            versions: versions
                .filter(|version| offered.contains(&version.number()))
                .collect(),
            has_snap: flags.snapsync_server_enabled != Some(false),
            has_snap2: flags.snap2_enabled,
            serving_rate: NonZeroU64::new(flags.p2p_serving_rate),
            max_peers: flags.max_peers,
            inbound_percent: match is_bounded {
                true => usize::from(flags.remote_connections_max_percentage),
                false => 100,
            },
            discovery: (flags.discovery_enabled != Some(false)).then_some(flags.discovery_mode),
            boot_nodes,
            dns_list: flags.discovery_dns_url.clone(),
            dns_server: flags.dns_server,
            static_nodes: StaticNodesFile {
                is_named: flags.static_nodes_file.is_some(),
                path: (flags.static_nodes_file.clone())
                    .unwrap_or_else(|| data_path.join(STATIC_NODES)),
            },
            trusted_nodes: flags.trusted_nodes.clone(),
            banned: flags.banned_node_ids.clone(),
            is_private: is_private(&networks),
            net_restrict: networks.into_iter().collect(),
            sync_mode: match flags.sync_mode {
                SyncModeFlag::Full => SyncMode::Full,
                SyncModeFlag::Snap => SyncMode::Snap,
            },
            history: flags.history.0,
            history_files: flags.history_files.clone(),
            sync_target: flags.sync_target,
        })
    }
}

impl PeersConfig {
    /// Why ports that a router opened would be of no use: no node far away may connect. Discovery is no reason, as an operator gives
    /// this node's URL to others too.
    pub(crate) fn needs_no_router(&self) -> Option<&'static str> {
        let inbound = self.max_peers.saturating_mul(self.inbound_percent) / 100;
        if self.is_private {
            Some("--net-restrict allows private addresses only")
        } else if inbound == 0 && self.trusted_nodes.is_empty() {
            Some("no slot is for nodes that connect by themselves")
        } else {
            None
        }
    }
}

fn is_private(networks: &[Subnet]) -> bool {
    !networks.is_empty() && !networks.iter().any(|network| network.has_public_address())
}

/// Where to listen by IPv6: as Besu does, everywhere if only the address is given that others see.
fn listen_ipv6(flags: &PeerFlags) -> Option<ListenIpv6> {
    let everywhere = flags.p2p_host_ipv6.map(|_| Ipv6Addr::UNSPECIFIED);
    let interface = flags.p2p_interface_ipv6.or(everywhere)?;
    let at = |port| SocketAddrV6::new(interface, port, 0, 0);
    let port = flags.p2p_port_ipv6;
    Some(ListenIpv6 {
        peers: at(port),
        discovery: at(flags.p2p_discovery_port_ipv6.unwrap_or(port)),
    })
}

/// The file of the node's key.
pub(crate) fn key_file(flags: &PeerFlags, data_path: &Path) -> PathBuf {
    let named = flags.node_private_key_file.clone();
    named.unwrap_or_else(|| data_path.join("key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser;

    #[test]
    fn a_router_is_of_use_if_a_node_far_away_may_connect() {
        let needs_router = |arguments: &[&str]| {
            let words = [&["niwaki"], arguments].concat();
            let options = Options::try_parse_from(words).expect("known flags");
            let config =
                PeersConfig::resolve(&options.node.peers, Path::new(""), false, false).unwrap();
            config.needs_no_router().is_none()
        };
        // The generator of the curve.
        let trusted = "--trusted-nodes=enode://\
                       79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798\
                       483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8@8.8.8.8:1";
        assert!(needs_router(&[]));
        assert!(needs_router(&["--discovery-enabled=false"]));
        assert!(needs_router(&["--net-restrict=10.0.0.0/8,8.8.8.0/24"]));
        assert!(needs_router(&["--net-restrict="]));
        assert!(!needs_router(&["--net-restrict=10.0.0.0/8,fd00::/8"]));
        for no_slots in [
            "--max-peers=0",
            "--max-peers=1",
            "--remote-connections-max-percentage=0",
        ] {
            assert!(!needs_router(&[no_slots]), "{no_slots}");
            assert!(needs_router(&[no_slots, trusted]), "{no_slots}");
        }
    }
}
