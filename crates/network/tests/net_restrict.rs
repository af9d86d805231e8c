//! A network that deals with some addresses only, in a process of its own: discovery v5 has one restriction in a process.

use niwaki_network::gossip::PoolView;
use niwaki_network::wire::{BlockRange, EthVersion};
use niwaki_network::{
    BootNode, DiscoveryMode, DiscoverySettings, Inbound, LocalChain, NatMethod, NetRestrict,
    Network, NetworkConfig, NodeKey,
};
use niwaki_primitives::U256;
use niwaki_rules::{Network as BuiltIn, fork_filter};
use std::net::SocketAddrV4;
use tokio::sync::watch;

struct Running {
    network: Network,
    _inbound: Inbound,
    _chain: watch::Sender<LocalChain>,
}

async fn run(ip: [u8; 4], boot: Option<&Running>, net_restrict: NetRestrict) -> Running {
    let genesis = BuiltIn::Sepolia.genesis_hash();
    let local_chain = LocalChain {
        network_id: 1,
        genesis,
        forks: fork_filter(&BuiltIn::Sepolia.genesis().spec, genesis, 0, 0, 0),
        range: BlockRange {
            earliest: 0,
            latest: 0,
            latest_hash: genesis,
        },
        total_difficulty: U256::ZERO,
        is_merged: true,
    };
    let record = boot.map(|boot| boot.network.record().borrow().to_string());
    let boot: Option<BootNode> = record.map(|record| record.parse().expect("it has an address"));
    let config = NetworkConfig {
        key: NodeKey::random(),
        listen: Some((ip, 0).into()),
        listen_also: None,
        client: "test".to_owned(),
        versions: EthVersion::CURRENT.to_vec(),
        subprotocols: Vec::new(),
        max_peers: 50,
        // A connection comes from 127.0.0.1 wherever on loopback its node listens.
        inbound_percent: if net_restrict.is_restricted() { 0 } else { 50 },
        static_nodes: Vec::new(),
        trusted_nodes: Vec::new(),
        boot_nodes: boot.into_iter().collect(),
        discovery: Some(DiscoverySettings {
            ipv4: Some(SocketAddrV4::new(ip.into(), 0)),
            mode: DiscoveryMode::V5,
            ..DiscoverySettings::default()
        }),
        net_restrict,
        advertised: Vec::new(),
        nat: NatMethod::None,
        folder: None,
    };
    let (sender, chain) = watch::channel(local_chain);
    let started = Network::start(config, chain, PoolView::default()).await;
    let (network, inbound) = started.expect("loopback is free");
    Running {
        network,
        _inbound: inbound,
        _chain: sender,
    }
}

/// Four nodes know one, which names them to each other. The last one deals with those of 127.0.0.1 and 127.0.0.3 only.
#[tokio::test]
async fn discovery_v5_finds_nodes_within_the_networks_and_no_others() {
    let all = NetRestrict::default;
    let boot = run([127, 0, 0, 1], None, all()).await;
    let outside = run([127, 0, 0, 2], Some(&boot), all()).await;
    let inside = run([127, 0, 0, 3], Some(&boot), all()).await;
    let met = |running: &Running| running.network.peers();
    let _ = met(&boot).wait_for(|peers| peers.len() == 2).await;

    let networks = ["127.0.0.1/32", "127.0.0.3/32"].map(|text| text.parse().expect("CIDR"));
    let restricted = run([127, 0, 0, 1], Some(&boot), networks.into_iter().collect()).await;
    let _ = met(&restricted).wait_for(|peers| peers.len() == 2).await;
    let peers = met(&restricted).borrow().clone();
    let of = |running: &Running| running.network.record().borrow().id();
    let ids: Vec<_> = peers.iter().map(|peer| peer.info.origin.node).collect();
    assert!(ids.contains(&of(&boot)) && ids.contains(&of(&inside)));
    assert!(!ids.contains(&of(&outside)));
    // The one outside is put out of the table when it has come there by itself.
    while restricted.network.discovery().v5_table != Some(2) {
        tokio::task::yield_now().await;
    }
}
