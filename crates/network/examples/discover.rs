//! A node that takes part in discovery on loopback and takes connections, without a chain: for the test suites of other clients.
//!
//! ```text
//! cargo run --release -p niwaki-network --example discover -- [UDP port] [boot node...]
//! ```
//!
//! It prints its URL and its record, then its figures every ten seconds.

use niwaki_network::gossip::PoolView;
use niwaki_network::peers::NodeFilter;
use niwaki_network::wire::{BlockRange, EthVersion};
use niwaki_network::{
    BootNode, DiscoverySettings, LocalChain, NatMethod, NetRestrict, Network, NetworkConfig,
    NodeKey,
};
use niwaki_primitives::U256;
use niwaki_rules::{Network as BuiltIn, fork_filter};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let boot_nodes: Result<Vec<BootNode>, _> = arguments.map(|node| node.parse()).collect();
    let (network, genesis) = (BuiltIn::Sepolia, BuiltIn::Sepolia.genesis_hash());
    let chain = LocalChain {
        network_id: 11_155_111,
        genesis,
        forks: fork_filter(&network.genesis().spec, genesis, 0, 0, 0),
        range: BlockRange {
            earliest: 0,
            latest: 0,
            latest_hash: genesis,
        },
        total_difficulty: U256::ZERO,
        is_merged: true,
        validators: None,
    };
    let config = NetworkConfig {
        key: NodeKey::random(),
        listen: Some((Ipv4Addr::LOCALHOST, port).into()),
        listen_also: None,
        client: "discover".into(),
        versions: EthVersion::CURRENT.to_vec(),
        snap: Vec::new(),
        subprotocols: Vec::new(),
        max_peers: 50,
        inbound_percent: 50,
        filter: NodeFilter::default(),
        static_nodes: Vec::new(),
        trusted_nodes: Vec::new(),
        boot_nodes: boot_nodes?,
        discovery: Some(DiscoverySettings {
            ipv4: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)),
            ..DiscoverySettings::default()
        }),
        net_restrict: NetRestrict::default(),
        advertised: Vec::new(),
        nat: NatMethod::None,
        folder: None,
    };
    let (_chain, chain) = watch::channel(chain);
    let (network, _inbound) = Network::start(config, chain, PoolView::default()).await?;
    let record = network.record().borrow().to_string();
    println!("{}\n{record}", network.enode());
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        println!("{:?}", network.discovery());
    }
}
