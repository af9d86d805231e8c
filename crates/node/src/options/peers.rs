//! Flags of the network of peers. Names are Besu's.

use crate::memory::parse_bytes;
use clap::{Args, ValueEnum};
use niwaki_network::discovery::dns::ListUrl;
use niwaki_network::{Node, NodeId, Subnet, SubnetError};
use niwaki_primitives::{B256, Fork};
use niwaki_sync::HistoryFloor;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Args, Debug)]
#[command(next_help_heading = "Peers")]
pub(crate) struct PeerFlags {
    /// Connect to peers [default: true; false with --network=dev].
    #[arg(long, value_name = "BOOL")]
    pub(crate) p2p_enabled: Option<bool>,
    /// Address at which other nodes reach this one [default: that of --p2p-interface, or 127.0.0.1].
    #[arg(long, value_name = "HOST", value_parser = super::node::host)]
    pub(crate) p2p_host: Option<IpAddr>,
    /// Address to listen on for peers and discovery.
    #[arg(long, value_name = "HOST", default_value = "0.0.0.0", value_parser = super::node::host)]
    pub(crate) p2p_interface: IpAddr,
    /// Port for peers, TCP, and for discovery, UDP.
    #[arg(long, value_name = "PORT", default_value_t = 30303)]
    pub(crate) p2p_port: u16,
    /// Port for discovery [default: that of --p2p-port].
    #[arg(long, value_name = "PORT")]
    pub(crate) p2p_discovery_port: Option<u16>,
    /// How to find the address that others see, unless --p2p-host gives it: AUTO takes a public one of the name
    /// HOST_IP in a container, else it asks the router by NAT-PMP and UPnP; UPNP asks by UPnP, and takes any
    /// device; DOCKER takes that of the name HOST_IP.
    #[arg(long, value_enum, value_name = "METHOD", ignore_case = true, default_value_t = NatMethodFlag::Auto)]
    pub(crate) nat_method: NatMethodFlag,
    /// IPv6 address at which other nodes reach this one, beside its IPv4 one [default: as they see it].
    #[arg(long, value_name = "HOST", value_parser = host_ipv6)]
    pub(crate) p2p_host_ipv6: Option<Ipv6Addr>,
    /// IPv6 address to listen on beside --p2p-interface [default: :: with --p2p-host-ipv6, else none].
    #[arg(long, value_name = "HOST", value_parser = host_ipv6)]
    pub(crate) p2p_interface_ipv6: Option<Ipv6Addr>,
    /// Port for peers by IPv6, TCP.
    #[arg(long, value_name = "PORT", default_value_t = 30404)]
    pub(crate) p2p_port_ipv6: u16,
    /// Port for discovery by IPv6, UDP [default: that of --p2p-port-ipv6].
    #[arg(long, value_name = "PORT")]
    pub(crate) p2p_discovery_port_ipv6: Option<u16>,
    /// Dial nodes by IPv6 whose records have addresses of both kinds [default: false]; those that discovery v4
    /// found are dialled where they answered.
    #[arg(long, value_name = "BOOL")]
    pub(crate) p2p_ipv6_outbound_enabled: Option<bool>,
    /// File with the node's private key, 64 hex digits; made if it does not exist [default: key in the data
    /// path].
    #[arg(long, value_name = "FILE")]
    pub(crate) node_private_key_file: Option<PathBuf>,
    /// Most peers; trusted nodes do not count.
    #[arg(
        long,
        alias = "p2p-peer-upper-bound",
        value_name = "N",
        default_value_t = 50
    )]
    pub(crate) max_peers: usize,
    /// Bound the share of peers that connected by themselves [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) remote_connections_limit_enabled: Option<bool>,
    /// That share, in percent of --max-peers.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) remote_connections_max_percentage: u8,
    /// Find peers [default: true]; without it only static, trusted and boot nodes are dialled.
    #[arg(long, value_name = "BOOL")]
    pub(crate) discovery_enabled: Option<bool>,
    /// Which discovery protocols are spoken.
    #[arg(long, value_enum, value_name = "MODE", ignore_case = true, default_value_t = DiscoveryMode::Both)]
    pub(crate) discovery_mode: DiscoveryMode,
    /// Nodes to begin with, enode:// or enr: [default: those of the network]; an empty value for none.
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = boot_node)]
    pub(crate) bootnodes: Option<Vec<BootNode>>,
    /// List of nodes in the DNS, enrtree://KEY@DOMAIN [default: that of the network]; none to read no list.
    #[arg(long, value_name = "URL")]
    pub(crate) discovery_dns_url: Option<DnsList>,
    /// Name server that is asked for that list, IP or IP:PORT [default: those of the system].
    #[arg(long = "Xp2p-dns-discovery-server", value_name = "ADDRESS", value_parser = name_server)]
    pub(crate) dns_server: Option<SocketAddr>,
    /// JSON array of nodes that are dialled for ever [default: static-nodes.json in the data path, if it
    /// exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) static_nodes_file: Option<PathBuf>,
    /// Nodes that are peers beyond all limits, enode:// or enr:.
    #[arg(long, value_name = "NODE", value_delimiter = ',', value_parser = Node::from_str)]
    pub(crate) trusted_nodes: Vec<Node>,
    /// How to get the chain: FULL executes every block; SNAP gets the state of a late block and executes those after it.
    #[arg(long, value_enum, value_name = "MODE", ignore_case = true, default_value_t = SyncModeFlag::Full)]
    pub(crate) sync_mode: SyncModeFlag,
    /// Blocks to get below the first one that came with a state: all, postmerge, postprague, none, or those from a
    /// number on. They come while there is nothing else to do.
    #[arg(long, value_name = "BLOCKS", default_value = "postmerge")]
    pub(crate) history: HistoryFlag,
    /// Folder of Ere and ERA1 files (.ere, .era1) from which such blocks are read before peers are asked, also as file:// URI.
    #[arg(long, alias = "era1-data-uri", value_name = "DIR", value_parser = folder)]
    pub(crate) history_files: Option<PathBuf>,
    /// Give peers that sync parts of the state (snap/1 and snap/2) [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) snapsync_server_enabled: Option<bool>,
    /// Offer snap/2, which has block access lists in the place of trie nodes, beside snap/1 [default: from Amsterdam on].
    #[arg(long = "Xsnap2-enabled", value_name = "BOOL")]
    pub(crate) snap2_enabled: Option<bool>,
    /// Most bytes per second that peers get as answers, all together, such as 64M; 0 for no bound.
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) p2p_serving_rate: u64,
    /// Hash of a block to sync to while no consensus client has chosen a head.
    #[arg(long, value_name = "HASH")]
    pub(crate) sync_target: Option<B256>,
    /// Ids of nodes that are never peers: 128 hex digits.
    #[arg(
        long,
        alias = "banned-node-id",
        value_name = "ID",
        value_delimiter = ',',
        value_parser = NodeId::from_str
    )]
    pub(crate) banned_node_ids: Vec<NodeId>,
    /// Networks of all nodes that are dealt with, CIDR, IPv4 and IPv6 each for itself [default: all].
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    pub(crate) net_restrict: Vec<AllowedNetwork>,
    /// Oldest version of eth to offer: 66 to 68 are for private networks of older clients, there are 66 to 72 [default: 69, and 66 with
    /// a genesis file of GoQuorum].
    #[arg(long = "Xeth-capability-min", value_name = "VERSION")]
    pub(crate) eth_capability_min: Option<u64>,
    /// Newest version of eth to offer.
    #[arg(
        long = "Xeth-capability-max",
        value_name = "VERSION",
        default_value_t = 72
    )]
    pub(crate) eth_capability_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum SyncModeFlag {
    Full,
    #[value(
        alias = "CHECKPOINT",
        alias = "FAST",
        alias = "X_SNAP",
        alias = "X_CHECKPOINT"
    )]
    Snap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum NatMethodFlag {
    None,
    Auto,
    #[value(alias = "UPNPP2PONLY")]
    Upnp,
    Docker,
}

impl From<NatMethodFlag> for niwaki_network::NatMethod {
    fn from(method: NatMethodFlag) -> Self {
        match method {
            NatMethodFlag::None => Self::None,
            NatMethodFlag::Auto => Self::Auto,
            NatMethodFlag::Upnp => Self::Upnp,
            NatMethodFlag::Docker => Self::Docker,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum DiscoveryMode {
    V4,
    V5,
    Both,
}

impl From<DiscoveryMode> for niwaki_network::DiscoveryMode {
    fn from(mode: DiscoveryMode) -> Self {
        match mode {
            DiscoveryMode::V4 => Self::V4,
            DiscoveryMode::V5 => Self::V5,
            DiscoveryMode::Both => Self::Both,
        }
    }
}

/// A folder, or a URI of one.
fn folder(text: &str) -> Result<PathBuf, String> {
    let text = text.trim();
    match text.split_once("://") {
        Some(("file", path)) if path.starts_with('/') => Ok(path.into()),
        Some(_) => Err("only folders of this machine are read: give DIR or file:///DIR".to_owned()),
        None => Ok(text.into()),
    }
}

/// Which old blocks are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryFlag(pub(crate) HistoryFloor);

impl FromStr for HistoryFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let floor = match text.to_ascii_lowercase().as_str() {
            "all" => HistoryFloor::Genesis,
            "postmerge" => HistoryFloor::Fork(Fork::Paris),
            "postprague" => HistoryFloor::Fork(Fork::Prague),
            "none" => HistoryFloor::State,
            _ => match text.parse() {
                Ok(number) => HistoryFloor::Block(number),
                Err(_) => {
                    return Err(
                        "give all, postmerge, postprague, none, or the number of a block"
                            .to_owned(),
                    );
                }
            },
        };
        Ok(Self(floor))
    }
}

/// An IPv6 address, or a name that has one.
fn host_ipv6(text: &str) -> Result<Ipv6Addr, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return match ip {
            IpAddr::V6(ip) => Ok(ip),
            IpAddr::V4(_) => Err("an IPv4 address; the flag takes an IPv6 one".to_owned()),
        };
    }
    let found = (text, 0).to_socket_addrs();
    let found = found.map_err(|error| format!("no address and no known host: {error}"))?;
    let mut ipv6 = found.filter_map(|address| match address.ip() {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    });
    ipv6.next()
        .ok_or_else(|| "a host without an IPv6 address".to_owned())
}

/// A network, or none: `--net-restrict=` restricts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedNetwork(pub(crate) Option<Subnet>);

fn network(text: &str) -> Result<AllowedNetwork, SubnetError> {
    let subnet = (!text.trim().is_empty()).then(|| text.parse());
    subnet.transpose().map(AllowedNetwork)
}

/// A boot node, or none: `--bootnodes=` leaves all out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BootNode(pub(crate) Option<niwaki_network::BootNode>);

fn boot_node(text: &str) -> Result<BootNode, String> {
    if text.trim().is_empty() {
        return Ok(BootNode(None));
    }
    let node = text.trim().parse::<niwaki_network::BootNode>();
    node.map(|node| BootNode(Some(node)))
        .map_err(|error| error.to_string())
}

/// A list in the DNS, or none: `--discovery-dns-url=none`, or without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsList(pub(crate) Option<ListUrl>);

impl FromStr for DnsList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Ok(Self(None)),
            text if text.eq_ignore_ascii_case("none") => Ok(Self(None)),
            text => match text.parse() {
                Ok(url) => Ok(Self(Some(url))),
                Err(error) => Err(format!("{error}; give enrtree://KEY@DOMAIN, or none")),
            },
        }
    }
}

fn name_server(text: &str) -> Result<SocketAddr, String> {
    const PORT: u16 = 53;
    let text = text.trim();
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    let address = address.or_else(|_| text.parse());
    address.map_err(|_| {
        "it must be an IP address, with or without a port: 9.9.9.9, [::1]:53".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_old_blocks_is_a_path_or_a_uri_of_this_machine() {
        for text in ["/a/b", "file:///a/b"] {
            assert_eq!(folder(text), Ok(PathBuf::from("/a/b")));
        }
        for text in ["https://example.org/a", "file://host/a"] {
            assert!(folder(text).unwrap_err().contains("file:///DIR"));
        }
    }

    #[test]
    fn history_is_a_word_or_a_number() {
        for (text, floor) in [
            ("all", HistoryFloor::Genesis),
            ("PostMerge", HistoryFloor::Fork(Fork::Paris)),
            ("postprague", HistoryFloor::Fork(Fork::Prague)),
            ("none", HistoryFloor::State),
            (" 17 ", HistoryFloor::Block(17)),
        ] {
            assert_eq!(text.parse(), Ok(HistoryFlag(floor)));
        }
        for text in ["", "-1", "everything", "0x11"] {
            let error = text.parse::<HistoryFlag>().unwrap_err();
            assert!(error.contains("postprague"), "{error}");
        }
    }

    #[test]
    fn a_dns_list_is_a_url_none_or_refused_with_the_form() {
        const URL: &str =
            "enrtree://AKA3AM6LPBYEUDMVNU3BSVQJ5AD45Y7YPOHJLEF6W26QOE4VTUDPE@all.example.org";
        for text in ["", " ", "none", "NONE"] {
            assert_eq!(text.parse(), Ok(DnsList(None)));
        }
        let DnsList(url) = URL.parse().unwrap();
        assert_eq!(url.unwrap().to_string(), URL);
        let error = "all.example.org".parse::<DnsList>().unwrap_err();
        assert!(error.contains("enrtree://KEY@DOMAIN, or none"), "{error}");
    }

    #[test]
    fn a_name_server_is_an_address_whose_port_is_53_unless_given() {
        for (text, expected) in [
            ("9.9.9.9", "9.9.9.9:53"),
            ("127.0.0.1:5353", "127.0.0.1:5353"),
            ("::1", "[::1]:53"),
            ("[::1]:5353", "[::1]:5353"),
        ] {
            assert_eq!(name_server(text), Ok(expected.parse().unwrap()));
        }
        assert!(name_server("dns.example.org").is_err());
    }
}
