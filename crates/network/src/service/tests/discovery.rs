//! Networks that find each other, on loopback. Where nodes wait for others the clock of the timers is paused: it moves on when every
//! task waits.

use super::*;
use crate::discovery::dns::example::{Zone, url_of};
use crate::discovery::{BootNode, DiscoveryMode, DiscoverySettings};
use crate::{Host, Node as NodeAddress, RecordEntries};
use niwaki_rules::{ForkFilter, Network as BuiltIn};
use std::collections::HashSet;
use std::net::SocketAddrV4;
use tokio::net::UdpSocket;

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

/// Whether this machine has an IPv6 loopback address. Says so if not: then nothing is tested.
fn has_ipv6() -> bool {
    let has_one = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has_one {
        eprintln!("not tested: this machine has no IPv6 loopback address");
    }
    has_one
}

fn dual_stack(number: u8, mode: DiscoveryMode, boot: &[BootNode]) -> NetworkConfig {
    let mut config = discovering(number, mode, boot);
    config.listen_also = Some((std::net::Ipv6Addr::LOCALHOST, 0).into());
    config.discovery = config.discovery.map(|settings| DiscoverySettings {
        ipv6: Some(std::net::SocketAddrV6::new(
            std::net::Ipv6Addr::LOCALHOST,
            0,
            0,
            0,
        )),
        ..settings
    });
    config
}

#[tokio::test]
async fn a_node_on_both_families_says_both_addresses_and_is_found_and_dialled_on_each() {
    if !has_ipv6() {
        return;
    }
    for mode in [DiscoveryMode::V4, DiscoveryMode::V5] {
        let both = Node::start(dual_stack(1, mode, &[]), 1).await;
        let record = both.network.record().borrow().clone();
        let entries = record.entries();
        assert_eq!(entries.ip, Some([127, 0, 0, 1].into()));
        assert_eq!(entries.ip6, Some(std::net::Ipv6Addr::LOCALHOST));
        assert_eq!(both.network.address().unwrap().port(), entries.tcp);
        let listens = both.network.address_ipv6().unwrap();
        assert_eq!((listens.port(), entries.udp6 != 0), (entries.tcp6, true));
        let enode = both.network.enode_ipv6().unwrap();
        assert_eq!(enode.tcp_address(), Some(listens));

        let boot = match mode {
            DiscoveryMode::V4 => BootNode::Node(enode),
            _ => record.to_string().parse().unwrap(),
        };
        let mut only_ipv6 = dual_stack(2, mode, std::slice::from_ref(&boot));
        only_ipv6.listen = only_ipv6.listen_also.take();
        only_ipv6.discovery = only_ipv6.discovery.map(|settings| DiscoverySettings {
            ipv4: None,
            prefers_ipv6: true,
            ..settings
        });
        let only_ipv6 = Node::start(only_ipv6, 1).await;
        let peers = only_ipv6.peers(1).await;
        assert_eq!(
            peers[0].info.origin.remote.ip(),
            std::net::Ipv6Addr::LOCALHOST
        );
        let found = BootNode::Node(both.enode());
        let only_ipv4 = Node::start(discovering(3, DiscoveryMode::V4, &[found]), 1).await;
        let peers = only_ipv4.peers(1).await;
        assert!(peers[0].info.origin.remote.is_ipv4());
    }
}

#[tokio::test]
async fn both_families_may_have_one_port_and_a_second_that_can_not_be_bound_is_left_out() {
    if !has_ipv6() {
        return;
    }
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let mut config = dual_stack(1, DiscoveryMode::Both, &[]);
    config.listen = Some(([0, 0, 0, 0], port).into());
    config.listen_also = Some((std::net::Ipv6Addr::UNSPECIFIED, port).into());
    let one = Node::start(config, 1).await;
    let ports = [one.network.address(), one.network.address_ipv6()];
    assert_eq!(ports.map(|address| address.unwrap().port()), [port, port]);

    let mut taken = dual_stack(2, DiscoveryMode::Both, &[]);
    taken.listen_also = one.network.address_ipv6();
    let two = Node::start(taken, 1).await;
    assert_eq!(two.network.address_ipv6(), None);
    assert_eq!(two.network.record().borrow().entries().ip6, None);
}

#[tokio::test]
async fn v5_begins_with_an_enode_whose_record_v4_gets() {
    let one = Node::start(discovering(1, DiscoveryMode::Both, &[]), 1).await;
    let enode = BootNode::Node(NodeAddress {
        // It takes no connections, as many boot nodes.
        tcp: 0,
        ..one.enode()
    });
    let two = Node::start(discovering(2, DiscoveryMode::Both, &[enode]), 1).await;
    until(|| two.network.discovery().v5_live == Some(1)).await;
}

/// A name server on loopback that knows TXT records.
async fn name_server(zone: Zone) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let _ = socket
                .send_to(&answer(&zone, &packet[..length]), from)
                .await;
        }
    });
    address
}

/// The answer to a question for TXT records: each of strings of at most 255 bytes.
fn answer(zone: &Zone, query: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let label = &query[at + 1..][..usize::from(query[at])];
        labels.push(String::from_utf8_lossy(label).into_owned());
        at += 1 + label.len();
    }
    let (name, question) = (labels.join("."), &query[12..at + 5]);
    let mut names = zone.0.iter();
    let known = names.find(|(known, _)| known.eq_ignore_ascii_case(&name));
    let texts = known.map(|(_, texts)| texts.clone()).unwrap_or_default();
    let code = if texts.is_empty() { 3 } else { 0 };
    let mut packet = query[..2].to_vec();
    packet.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::try_from(texts.len()).unwrap(),
        0,
        0,
        0,
        0,
    ]);
    packet.extend(question);
    for text in texts {
        let strings = text.as_bytes().chunks(255);
        let data: Vec<u8> = strings
            .flat_map(|string| [&[u8::try_from(string.len()).unwrap()], string].concat())
            .collect();
        // The name of the question, TXT, IN, 60 s.
        packet.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
    }
    packet
}

#[tokio::test]
async fn a_node_connects_to_those_of_a_dns_list_that_are_of_its_chain() {
    let listed = Node::start(discovering(1, DiscoveryMode::V4, &[]), 1).await;
    let stranger = RecordEntries {
        ip: Some([127, 0, 0, 1].into()),
        tcp: 9,
        fork_id: Some(
            niwaki_rules::fork_filter(&BuiltIn::Sepolia.genesis().spec, B256::ZERO, 0, 0, 0)
                .current(),
        ),
        ..RecordEntries::default()
    };
    let stranger = Record::sign(&config(8).key, 1, &stranger).unwrap();
    let texts = [
        listed.network.record().borrow().to_string(),
        stranger.to_string(),
    ];
    let (key, mut zone) = (config(9).key, Zone::default());
    // Linked to from another list.
    zone.put_list(&key, "nodes.example.org", 1, texts.into(), Vec::new());
    let link = url_of(&key, "nodes.example.org").to_string();
    zone.put_list(&key, "all.example.org", 1, Vec::new(), vec![link]);
    let server = name_server(zone).await;
    let mut reader = discovering(2, DiscoveryMode::V4, &[]);
    reader.discovery = reader.discovery.map(|settings| DiscoverySettings {
        dns_lists: vec![url_of(&key, "all.example.org")],
        dns_server: Some(server),
        ..settings
    });
    let reader = Node::start(reader, 1).await;
    reader.peers(1).await;
    let report = reader.network.report().await;
    assert_eq!(report.peers[0].id, listed.enode().id);
    until(|| reader.network.discovery().other_chain > 0).await;
    let figures = reader.network.discovery();
    assert_eq!((figures.found, figures.other_chain), (1, 1), "{figures:?}");
    let queries = figures.dns_queries.unwrap();
    assert!(queries.answered >= 6, "{figures:?}");
    assert_eq!((queries.refused, queries.failed), (0, 0));
}
