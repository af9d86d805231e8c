//! Networks that find each other, on loopback. Where nodes wait for others the clock of the timers is paused: it moves on when every
//! task waits.

use super::*;
use crate::discovery::{BootNode, DiscoveryMode, DiscoverySettings};
use crate::{Host, Node as NodeAddress};
use niwaki_rules::{ForkFilter, Network as BuiltIn};
use std::collections::HashSet;
use std::net::SocketAddrV4;

/// Virtual time in which everything that is waited for here happens.
const LONG: Duration = Duration::from_secs(600);

fn discovering(number: u8, mode: DiscoveryMode, boot: &[BootNode]) -> NetworkConfig {
    NetworkConfig {
        max_peers: 50,
        discovery: Some(DiscoverySettings {
            ipv4: Some(SocketAddrV4::new([127, 0, 0, 1].into(), 0)),
            mode,
            ..DiscoverySettings::default()
        }),
        boot_nodes: boot.to_vec(),
        ..config(number)
    }
}

async fn connected(nodes: &[Node]) -> Vec<usize> {
    let mut counts = Vec::new();
    for node in nodes {
        counts.push(node.network.peers().borrow().len());
    }
    counts
}

async fn all_connect(nodes: &[Node], least: usize) {
    let all = async {
        for node in nodes {
            let mut peers = node.network.peers();
            let _ = peers.wait_for(|peers| peers.len() >= least).await;
        }
    };
    if tokio::time::timeout(LONG, all).await.is_err() {
        panic!("peers: {:?}", connected(nodes).await);
    }
}

async fn ten_nodes_connect(mode: DiscoveryMode) {
    let boot = Node::start(discovering(1, mode, &[]), 1).await;
    let first = boot.network.record().borrow().to_string();
    let first: BootNode = first.parse().unwrap();
    let mut nodes = vec![boot];
    for number in 2..=10 {
        nodes.push(Node::start(discovering(number, mode, std::slice::from_ref(&first)), 1).await);
    }
    // A third of all: more than the boot node alone gives.
    all_connect(&nodes, 3).await;
    let figures = nodes[3].network.discovery();
    assert_eq!(figures.v4_table.is_some(), mode.has_v4());
    assert_eq!(figures.v5_table.is_some(), mode.has_v5());
    let table = figures.v4_table.or(figures.v5_table);
    assert!(table >= Some(2), "{figures:?}");
    assert!(figures.found > 0 && figures.other_chain == 0, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_nodes_that_know_one_of_them_are_connected_by_v4() {
    ten_nodes_connect(DiscoveryMode::V4).await;
}

#[tokio::test]
async fn ten_nodes_that_know_one_of_them_are_connected_by_v5() {
    ten_nodes_connect(DiscoveryMode::V5).await;
}

#[tokio::test]
async fn ten_nodes_that_know_one_of_them_are_connected_by_both_on_one_port() {
    ten_nodes_connect(DiscoveryMode::Both).await;
}

#[tokio::test]
async fn a_static_node_is_dialled_at_the_address_that_its_name_has() {
    let one = Node::start(config(1), 1).await;
    let named = NodeAddress {
        host: Host::Name("localhost".into()),
        ..one.enode()
    };
    let two = NetworkConfig {
        static_nodes: vec![named],
        ..config(2)
    };
    let two = Node::start(two, 1).await;
    two.peers(1).await;
    let report = two.network.report().await;
    assert_eq!(Some(report.peers[0].address), one.network.address());
}

#[tokio::test]
async fn a_name_that_nothing_has_is_a_failed_dial() {
    let nowhere = NodeAddress {
        id: config(2).key.id(),
        host: Host::Name("does-not-exist.invalid".into()),
        tcp: 30303,
        udp: 0,
    };
    let one = Node::start(config(1), 1).await;
    let two = NetworkConfig {
        static_nodes: vec![nowhere, one.enode()],
        ..config(3)
    };
    let two = Node::start(two, 1).await;
    two.peers(1).await;
}

#[tokio::test]
async fn the_record_says_both_ports_and_the_forks_and_rises_with_a_fork_and_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = || NetworkConfig {
        folder: Some(folder.path().to_owned()),
        ..discovering(1, DiscoveryMode::V4, &[])
    };
    let node = Node::start(config(), 1).await;
    let record = node.network.record().borrow().clone();
    let entries = record.entries();
    assert_eq!(entries.tcp, node.network.address().unwrap().port());
    assert!(entries.udp != 0 && entries.ip == Some([127, 0, 0, 1].into()));
    assert_eq!(entries.fork_id, Some(chain(1).forks.current()));
    let enode = node.enode();
    assert_eq!((enode.tcp, enode.udp), (entries.tcp, entries.udp));

    let mut changed = node.network.record();
    let spec = BuiltIn::from_name("mainnet").unwrap().genesis().spec;
    let later = niwaki_rules::fork_filter(&spec, B256::repeat_byte(9), 0, 2_000_000, 0);
    let forks: ForkFilter = later;
    node._chain.send_modify(|chain| chain.forks = forks.clone());
    changed.changed().await.unwrap();
    let newer = changed.borrow().clone();
    assert_eq!(newer.fork_id(), Some(forks.current()));
    assert_eq!(newer.seq(), record.seq() + 1);
    node.network.stop().await;
    let again = Node::start(config(), 1).await;
    assert!(again.network.record().borrow().seq() > newer.seq());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_chain_is_found_and_never_dialled() {
    let mode = DiscoveryMode::V4;
    let boot = Node::start(discovering(1, mode, &[]), 1).await;
    let first = BootNode::Node(NodeAddress {
        tcp: 0,
        ..boot.enode()
    });
    let same = Node::start(discovering(2, mode, std::slice::from_ref(&first)), 1).await;
    let spec = BuiltIn::from_name("sepolia").unwrap().genesis().spec;
    let genesis = B256::repeat_byte(8);
    let other = LocalChain {
        genesis,
        forks: niwaki_rules::fork_filter(&spec, genesis, 0, 0, 0),
        ..chain(1)
    };
    let (_sender, other) = watch::channel(other);
    let stranger = discovering(3, mode, &[first]);
    let (stranger, _inbound) = Network::start(stranger, other, PoolView::default())
        .await
        .unwrap();
    let is_seen = async {
        while stranger.discovery().other_chain < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let is_seen = tokio::time::timeout(LONG, is_seen).await;
    assert!(is_seen.is_ok(), "{:?}", stranger.discovery());
    same.peers(1).await;
    let departed: HashSet<_> = stranger
        .report()
        .await
        .departures
        .iter()
        .map(|departure| departure.id)
        .collect();
    assert!(stranger.peers().borrow().is_empty());
    assert!(departed.is_empty(), "{departed:?}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let one = Node::start(discovering(1, DiscoveryMode::V4, &[]), 1).await;
    let mut taken = discovering(2, DiscoveryMode::V4, &[]);
    let udp = one.enode().udp;
    taken.discovery = taken.discovery.map(|settings| DiscoverySettings {
        ipv4: Some(SocketAddrV4::new([127, 0, 0, 1].into(), udp)),
        ..settings
    });
    let error = Network::start(taken, watch::channel(chain(1)).1, PoolView::default()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&format!("UDP 127.0.0.1:{udp}")), "{error}");
}
