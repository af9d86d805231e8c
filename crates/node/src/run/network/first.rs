//! Where the network begins: at the nodes and the DNS list of the flags, else of the genesis file, else of the built-in chain.

use super::super::config::PeersConfig;
use crate::options::DnsList;
use eyre::{Result, WrapErr};
use niwaki_chain::Chain;
use niwaki_network::BootNode;
use niwaki_network::discovery::dns::ListUrl;
use niwaki_network::wire::SnapVersion;
use niwaki_primitives::{B256, Fork};
use niwaki_rules::{ChainSpec, FirstPeers, Network};

/// What the network begins with.
#[derive(Debug)]
pub(super) struct First {
    pub(super) boot_nodes: Vec<BootNode>,
    pub(super) dns_list: Option<ListUrl>,
    /// The versions of `snap` that are offered.
    pub(super) snap: Vec<SnapVersion>,
}

impl First {
    /// What a node with this configuration begins with on this chain.
    pub(super) fn resolve(config: &PeersConfig, chain: &Chain) -> Result<Self> {
        let (genesis, in_file) = (chain.genesis_hash(), &chain.spec().first_peers);
        Ok(Self {
            boot_nodes: match &config.boot_nodes {
                Some(nodes) => nodes.clone(),
                None => boot_nodes(in_file, genesis)?,
            },
            dns_list: match &config.dns_list {
                Some(DnsList(url)) => url.clone(),
                None => dns_list(in_file, genesis)?,
            },
            snap: snap_versions(config, chain.spec(), crate::run::now()),
        })
    }
}

/// Two nodes speak the highest version that both offer. `snap/2` has access lists in the place of trie nodes, so it is of no use
/// before a chain has lists.
fn snap_versions(config: &PeersConfig, spec: &ChainSpec, now: u64) -> Vec<SnapVersion> {
    let has_lists = spec.fork_at(u64::MAX, now, true) >= Fork::Amsterdam;
    let mut versions = SnapVersion::ALL.to_vec();
    versions.retain(|version| match version {
        SnapVersion::Snap1 => config.has_snap,
        SnapVersion::Snap2 => config.has_snap && config.has_snap2.unwrap_or(has_lists),
    });
    versions
}

/// The built-in chain with this genesis block.
fn built_in(genesis: B256) -> Option<Network> {
    let mut all = Network::ALL.into_iter();
    all.find(|network| network.genesis_hash() == genesis)
}

fn boot_nodes(in_file: &FirstPeers, genesis: B256) -> Result<Vec<BootNode>> {
    let Some(texts) = &in_file.boot_nodes else {
        let texts = built_in(genesis).map(Network::boot_nodes);
        let texts = texts.into_iter().flatten();
        return Ok(texts.filter_map(|text| text.parse().ok()).collect());
    };
    let parse = |text: &String| {
        let node = text.trim().parse::<BootNode>();
        node.wrap_err_with(|| {
            format!(
                "can't use the boot node {text:?} of config.discovery in the genesis file; change it there, or give --bootnodes"
            )
        })
    };
    texts.iter().map(parse).collect()
}

fn dns_list(in_file: &FirstPeers, genesis: B256) -> Result<Option<ListUrl>> {
    let Some(text) = &in_file.dns_list else {
        let text = built_in(genesis).and_then(Network::dns_list);
        return Ok(text.and_then(|text| text.parse().ok()));
    };
    let list = text.parse::<DnsList>().map_err(eyre::Report::msg);
    let list = list.wrap_err_with(|| {
        format!(
            "can't use the DNS list {text:?} of config.discovery in the genesis file; change it there, or give --discovery-dns-url"
        )
    })?;
    Ok(list.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str =
        "enrtree://AKA3AM6LPBYEUDMVNU3BSVQJ5AD45Y7YPOHJLEF6W26QOE4VTUDPE@all.example.org";

    fn in_file(boot_nodes: &[&str], dns: &str) -> FirstPeers {
        FirstPeers {
            boot_nodes: Some(boot_nodes.iter().map(|text| (*text).to_owned()).collect()),
            dns_list: Some(dns.to_owned()),
        }
    }

    #[test]
    fn a_genesis_file_that_names_first_peers_replaces_those_of_the_built_in_chain() {
        let genesis = Network::Mainnet.genesis_hash();
        let silent = FirstPeers::default();
        assert_eq!(boot_nodes(&silent, genesis).unwrap().len(), 9);
        let list = dns_list(&silent, genesis).unwrap().unwrap();
        assert_eq!(list.domain(), "all.mainnet.ethdisco.net");
        let own: Vec<_> = Network::Hoodi.boot_nodes().take(2).collect();
        let named = in_file(&own, URL);
        let nodes = boot_nodes(&named, genesis).unwrap();
        let expected: Vec<BootNode> = own.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(nodes, expected);
        let list = dns_list(&named, genesis).unwrap();
        assert_eq!(list.unwrap().to_string(), URL);
        let none = in_file(&[], "");
        assert!(boot_nodes(&none, genesis).unwrap().is_empty());
        assert_eq!(dns_list(&none, genesis).unwrap(), None);
        let unknown = B256::ZERO;
        assert!(boot_nodes(&silent, unknown).unwrap().is_empty());
        assert_eq!(dns_list(&silent, unknown).unwrap(), None);
    }

    #[test]
    fn a_malformed_node_or_list_of_a_genesis_file_is_named_with_its_key() {
        let bad = in_file(&["enode://12"], "https://example.org");
        let error = format!("{:#}", boot_nodes(&bad, B256::ZERO).unwrap_err());
        assert!(
            error.contains("enode://12") && error.contains("--bootnodes"),
            "{error}"
        );
        let error = format!("{:#}", dns_list(&bad, B256::ZERO).unwrap_err());
        assert!(error.contains("https://example.org"), "{error}");
        assert!(
            error.contains("config.discovery") && error.contains("enrtree://"),
            "{error}"
        );
    }
}
