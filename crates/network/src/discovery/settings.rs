//! How discovery is set up: what the operator chose, as values.

use super::dns::ListUrl;
use crate::node::{Node, NodeError};
use crate::record::Record;
use crate::subnet::NetRestrict;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// Which of the two discovery protocols run. They share one UDP port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiscoveryMode {
    /// Discovery v4 alone.
    V4,
    /// Discovery v5 alone.
    V5,
    /// Both.
    #[default]
    Both,
}

impl DiscoveryMode {
    /// Whether v4 runs.
    pub fn has_v4(self) -> bool {
        self != Self::V5
    }

    /// Whether v5 runs.
    pub fn has_v5(self) -> bool {
        self != Self::V4
    }
}

impl FromStr for DiscoveryMode {
    type Err = String;

    /// Reads `V4`, `V5` or `BOTH`, in any letter case.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_uppercase().as_str() {
            "V4" => Ok(Self::V4),
            "V5" => Ok(Self::V5),
            "BOTH" => Ok(Self::Both),
            _ => Err(format!(
                "{text:?} is no discovery mode: it must be V4, V5 or BOTH"
            )),
        }
    }
}

/// A node that discovery begins with: `enode://` or `enr:`. Discovery v5 begins with records; v4 asks a node without for its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootNode {
    /// A node without its record.
    Node(Node),
    /// A node's record.
    Record(Box<Record>),
}

impl BootNode {
    /// The node; `None` for a record without an address.
    pub fn node(&self) -> Option<Node> {
        self.node_preferring(false, &NetRestrict::default())
    }

    /// The same; a record's address is an allowed one, and of two equal ones that of IPv6 if that is preferred.
    pub(crate) fn node_preferring(
        &self,
        prefers_ipv6: bool,
        allowed: &NetRestrict,
    ) -> Option<Node> {
        match self {
            Self::Node(node) => Some(node.clone()),
            Self::Record(record) => record.node_preferring(prefers_ipv6, allowed),
        }
    }

    /// Its record, if it was given as one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Node(_) => None,
            Self::Record(record) => Some(record),
        }
    }
}

impl FromStr for BootNode {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        let node: Node = text.parse()?;
        // A record that names a node can be read.
        Ok(match text.parse::<Record>() {
            Ok(record) => Self::Record(Box::new(record)),
            Err(_) => Self::Node(node),
        })
    }
}

/// How nodes are found.
#[derive(Clone, Debug)]
pub struct DiscoverySettings {
    /// The UDP address for IPv4; port 0 is any free one.
    pub ipv4: Option<SocketAddrV4>,
    /// The UDP address for IPv6.
    pub ipv6: Option<SocketAddrV6>,
    /// Which protocols run.
    pub mode: DiscoveryMode,
    /// Whether found nodes are dialled only if their records say a fork id that fits this node's chain, and those that say none are
    /// dialled last.
    pub checks_forks: bool,
    /// Whether a node whose record has a public address of each family is dialled at that of IPv6. One that v4 found is dialled where it
    /// answered.
    pub prefers_ipv6: bool,
    /// Lists of nodes in the DNS. Those that they link to are read too.
    pub dns_lists: Vec<ListUrl>,
    /// The name server that is asked for them; `None` for the system's.
    pub dns_server: Option<SocketAddr>,
}

impl Default for DiscoverySettings {
    /// Both protocols on all IPv4 addresses, port 30303, without lists.
    fn default() -> Self {
        Self {
            ipv4: Some(SocketAddrV4::new([0, 0, 0, 0].into(), 30303)),
            ipv6: None,
            mode: DiscoveryMode::default(),
            checks_forks: true,
            prefers_ipv6: false,
            dns_lists: Vec::new(),
            dns_server: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_any_letter_case() {
        for (text, expected) in [
            ("v4", Some(DiscoveryMode::V4)),
            ("V5", Some(DiscoveryMode::V5)),
            ("Both", Some(DiscoveryMode::Both)),
            ("v6", None),
        ] {
            assert_eq!(text.parse().ok(), expected);
        }
        assert!(DiscoveryMode::Both.has_v4() && DiscoveryMode::Both.has_v5());
        assert!(!DiscoveryMode::V5.has_v4() && !DiscoveryMode::V4.has_v5());
    }

    #[test]
    fn a_boot_node_given_as_a_record_keeps_it() {
        let key = crate::NodeKey::random();
        let entries = crate::RecordEntries {
            ip: Some([10, 0, 0, 1].into()),
            udp: 7,
            ..Default::default()
        };
        let record = Record::sign(&key, 1, &entries).unwrap();
        let boot: BootNode = record.to_string().parse().unwrap();
        assert_eq!(boot.record(), Some(&record));
        let node = boot.node().unwrap();
        assert_eq!(node.udp_address(), Some(([10, 0, 0, 1], 7).into()));
        let boot: BootNode = node.to_string().parse().unwrap();
        assert_eq!(boot, BootNode::Node(node));
        assert!("enr:x".parse::<BootNode>().is_err());
    }

    #[test]
    fn every_boot_node_and_list_of_the_built_in_chains_can_be_read() {
        for network in niwaki_rules::Network::ALL {
            for text in network.boot_nodes() {
                let boot: BootNode = text.parse().unwrap();
                assert!(boot.node().unwrap().udp_address().is_some(), "{text}");
            }
            if let Some(url) = network.dns_list() {
                let url: ListUrl = url.parse().unwrap();
                assert!(url.domain().contains(network.name()));
            }
        }
    }
}
