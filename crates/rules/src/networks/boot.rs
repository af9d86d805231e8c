//! Where a node of a built-in chain finds the first others: its boot nodes, and a signed list in the DNS.
//!
//! The records come first: they name both families and are those that are kept up. The URLs below them are being phased out.
//!
//! Spec: go-ethereum 1.17.10, `params/bootnodes.go`; EIP-1459.

use super::Network;

/// The key by which the lists of `ethdisco.net` are signed, as their URLs have it.
macro_rules! list {
    ($name:literal) => {
        concat!(
            "enrtree://AKA3AM6LPBYEUDMVNU3BSVQJ5AD45Y7YPOHJLEF6W26QOE4VTUDPE@all.",
            $name,
            ".ethdisco.net"
        )
    };
}

impl Network {
    /// The boot nodes, each `enr:` or `enode://`; none for a chain that has none or is retired.
    pub fn boot_nodes(self) -> impl Iterator<Item = &'static str> {
        let texts = match self {
            Self::Mainnet => include_str!("../../boot/mainnet.txt"),
            Self::Sepolia => include_str!("../../boot/sepolia.txt"),
            Self::Hoodi => include_str!("../../boot/hoodi.txt"),
            Self::Holesky | Self::Dev => "",
        };
        texts.lines()
    }

    /// The URL of the list of nodes in the DNS, if there is one.
    pub const fn dns_list(self) -> Option<&'static str> {
        match self {
            Self::Mainnet => Some(list!("mainnet")),
            Self::Sepolia => Some(list!("sepolia")),
            Self::Hoodi => Some(list!("hoodi")),
            Self::Holesky | Self::Dev => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn mainnet_sepolia_and_hoodi_have_five_records_each_and_4_5_and_3_urls() {
        let count = |network: Network, prefix| {
            let nodes = network.boot_nodes();
            nodes.filter(|node| node.starts_with(prefix)).count()
        };
        for (network, urls) in [
            (Network::Mainnet, 4),
            (Network::Sepolia, 5),
            (Network::Hoodi, 3),
            (Network::Holesky, 0),
            (Network::Dev, 0),
        ] {
            let records = if urls == 0 { 0 } else { 5 };
            assert_eq!(count(network, "enr:"), records, "{network:?}");
            assert_eq!(count(network, "enode://"), urls, "{network:?}");
            assert_eq!(network.boot_nodes().count(), records + urls);
            assert_eq!(network.dns_list().is_some(), urls != 0);
        }
    }

    #[test]
    fn no_node_is_of_two_networks() {
        let mut all = HashSet::new();
        for network in Network::ALL {
            network.boot_nodes().for_each(|node| {
                assert!(all.insert(node), "{node}");
            });
        }
    }
}
