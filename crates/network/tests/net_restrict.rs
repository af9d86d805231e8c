//! A network that deals with some addresses only, in a process of its own: discovery v5 has one restriction in a process.

use discv5::{ConfigBuilder, Discv5, ListenConfig};
use enr::CombinedKey;
use niwaki_network::gossip::PoolView;
use niwaki_network::peers::NodeFilter;
use niwaki_network::wire::{BlockRange, EthVersion};
use niwaki_network::{
    BootNode, DiscoveryMode, DiscoverySettings, Inbound, LocalChain, NatMethod, NetRestrict,
    Network, NetworkConfig, NodeKey,
};
use niwaki_primitives::{B256, U256};
use niwaki_rules::{ForkId, Network as BuiltIn, fork_filter};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::watch;

struct Running {
    network: Network,
    _inbound: Inbound,
    _chain: watch::Sender<LocalChain>,
}

async fn run(ip: [u8; 4], boot: &str, net_restrict: NetRestrict) -> std::io::Result<Running> {
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
        validators: None,
    };
    let boot: BootNode = boot.parse().expect("it has an address");
    let config = NetworkConfig {
        key: NodeKey::random(),
        listen: Some((ip, 0).into()),
        listen_also: None,
        client: "test".to_owned(),
        versions: EthVersion::CURRENT.to_vec(),
        snap: Vec::new(),
        subprotocols: Vec::new(),
        max_peers: 50,
        inbound_percent: 50,
        filter: NodeFilter::default(),
        static_nodes: Vec::new(),
        trusted_nodes: Vec::new(),
        boot_nodes: vec![boot],
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
    let (network, inbound) = started?;
    Ok(Running {
        network,
        _inbound: inbound,
        _chain: sender,
    })
}

/// A node of discovery v5 without any restriction, whose record has no TCP port unless it is to be dialled.
async fn stranger(ip: [u8; 4], fork_id: Option<ForkId>) -> Discv5 {
    let key = CombinedKey::generate_secp256k1();
    let socket = UdpSocket::bind((Ipv4Addr::from(ip), 0)).await;
    let socket = Arc::new(socket.expect("loopback is free"));
    let port = socket.local_addr().expect("it is bound").port();
    let mut record = enr::Enr::builder();
    record.ip4(ip.into()).udp4(port);
    if let Some(fork_id) = fork_id {
        record.tcp4(port).add_value("eth", &vec![fork_id]);
    }
    let record = record.build(&key).expect("it is short");
    let sockets = ListenConfig::FromSockets {
        ipv4: Some(socket),
        ipv6: None,
    };
    let mut settings = ConfigBuilder::new(sockets);
    settings.disable_enr_update();
    let mut stranger = Discv5::new(record, key, settings.build()).expect("it is its key");
    stranger.start().await.expect("its socket is bound");
    stranger
}

/// Waits until something holds, three minutes at most.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(180), waiting).await;
    assert!(waited.is_ok(), "not in three minutes: {what}");
}

/// One node knows all. Two deal with 127.0.0.1 and 127.0.0.3 only. That of 127.0.0.2 is of another chain: if it were found, the figures
/// would say so.
#[tokio::test]
async fn discovery_v5_finds_nodes_within_the_networks_and_answers_others_without_keeping_them() {
    let boot = stranger([127, 0, 0, 1], None).await;
    let forks = fork_filter(&BuiltIn::Mainnet.genesis().spec, B256::ZERO, 0, 0, 0);
    let outside = stranger([127, 0, 0, 2], Some(forks.current())).await;
    outside
        .add_enr(boot.local_enr())
        .expect("it has an address");
    let pong = outside.send_ping(boot.local_enr()).await;
    pong.expect("the boot node answers");
    until("the boot node knows the one outside", || {
        boot.connected_peers() == 1
    })
    .await;

    let networks = ["127.0.0.1/32", "127.0.0.3/32"].map(|text| text.parse().expect("CIDR"));
    let networks: NetRestrict = networks.into_iter().collect();
    let first = boot.local_enr().to_base64();
    let inside = run([127, 0, 0, 3], &first, networks.clone()).await;
    let restricted = run([127, 0, 0, 1], &first, networks).await;
    let inside = inside.expect("loopback is free");
    let restricted = restricted.expect("loopback is free");
    let has_peer = || restricted.network.peers().borrow().len() == 1;
    until("the one inside is a peer", has_peer).await;
    let has_two = || restricted.network.discovery().v5_table == Some(2);
    until("the boot node and the one inside are in the table", has_two).await;

    let own = restricted.network.record().borrow().to_string();
    let pong = outside.send_ping(own.parse().expect("a record")).await;
    pong.expect("who writes first is answered");
    until("the one outside is not in the table", has_two).await;
    let lookups = || restricted.network.discovery().v5_lookups.expect("v5 runs")[0];
    let before = lookups();
    until("the boot node was asked twice more", || {
        lookups() >= before + 2
    })
    .await;
    let figures = restricted.network.discovery();
    assert!(figures.found > 0, "{figures:?}");
    assert_eq!((figures.other_chain, figures.v5_table), (0, Some(2)));
    let peers = restricted.network.peers().borrow().clone();
    let inside = inside.network.record().borrow().id();
    assert_eq!(peers[0].info.origin.node, inside);

    let other = run([127, 0, 0, 1], &first, NetRestrict::default()).await;
    let error = other.map(drop).unwrap_err().to_string();
    assert!(error.contains("one process has one restriction"), "{error}");
}
