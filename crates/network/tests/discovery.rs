//! Discovery v4 over sockets of this machine: nodes find each other through one boot node. The clock of the timers is paused: it
//! moves on when every task waits.

use niwaki_network::discovery::v4::{Discovery, DiscoveryConfig, DiscoveryEvent, start};
use niwaki_network::{Host, NetRestrict, Node, NodeId, NodeKey, Record, RecordEntries};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::watch;

struct Running {
    key: NodeKey,
    node: Node,
    discovery: Discovery,
    record: watch::Sender<Record>,
}

async fn run(boot_nodes: &[Node], bind: &str) -> Running {
    let key = NodeKey::random();
    let socket = UdpSocket::bind(bind).await.expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    let entries = RecordEntries {
        ip: Some(Ipv4Addr::LOCALHOST),
        udp: port,
        tcp: port,
        ..RecordEntries::default()
    };
    let (record, records) = watch::channel(Record::sign(&key, 1, &entries).expect("it is small"));
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let node = Node::at(key.id(), ip, port, port);
    let config = DiscoveryConfig {
        key: key.clone(),
        record: records,
        boot_nodes: boot_nodes.to_vec(),
        net_restrict: NetRestrict::default(),
        is_wanting: watch::channel(true).1,
    };
    let discovery = start(socket.into(), config);
    Running {
        key,
        node,
        discovery,
        record,
    }
}

/// Reads until so many other nodes were found, each with its record.
async fn find(running: &mut Running, count: usize) -> HashSet<NodeId> {
    let mut found = HashSet::new();
    let all = async {
        while found.len() < count {
            let event = running.discovery.events.recv().await.expect("it runs");
            match event {
                DiscoveryEvent::Found(node) => {
                    if node.record.is_some() {
                        found.insert(node.node.id);
                    }
                }
                DiscoveryEvent::Observed { address, .. } => {
                    assert_eq!(Some(address), running.node.udp_address());
                }
                DiscoveryEvent::BootRecord(_) => {}
                DiscoveryEvent::Decided(address) => panic!("v4 decides nothing: {address}"),
            }
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(600), all).await;
    assert!(in_time.is_ok(), "{} of {count} nodes found", found.len());
    found
}

#[tokio::test(start_paused = true)]
async fn two_nodes_find_each_other() {
    let mut a = run(&[], "127.0.0.1:0").await;
    let mut b = run(&[a.node.clone()], "127.0.0.1:0").await;
    assert_eq!(find(&mut a, 1).await, [b.node.id].into());
    assert_eq!(find(&mut b, 1).await, [a.node.id].into());
    assert_eq!(
        (
            a.discovery.figures.table_len(),
            b.discovery.figures.table_len()
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn twenty_nodes_find_each_other_through_one() {
    let boot = run(&[], "127.0.0.1:0").await;
    let first = boot.node.clone();
    let mut all = vec![boot];
    for _ in 1..20 {
        all.push(run(std::slice::from_ref(&first), "127.0.0.1:0").await);
    }
    let ids: HashSet<_> = all.iter().map(|running| running.node.id).collect();
    let tasks = all.into_iter().map(|mut running| {
        tokio::spawn(async move {
            let found = find(&mut running, 19).await;
            // It stays, so that the others find it too.
            (running, found)
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut running = Vec::new();
    for task in tasks {
        let (node, found) = task.await.unwrap();
        assert!(found.is_subset(&ids) && !found.contains(&node.node.id));
        running.push(node);
    }
}

#[tokio::test(start_paused = true)]
async fn a_boot_node_is_found_by_its_name_from_an_ipv6_socket() {
    let mut boot = run(&[], "127.0.0.1:0").await;
    let named = Node {
        host: Host::Name("localhost".into()),
        ..boot.node.clone()
    };
    // Both families on one socket: IPv4 addresses are mapped ones there. On a machine without IPv6, IPv4 alone.
    let bind = match UdpSocket::bind("[::]:0").await {
        Ok(_) => "[::]:0",
        Err(_) => {
            eprintln!("not tested by IPv6: this machine has none");
            "0.0.0.0:0"
        }
    };
    let mut node = run(&[named], bind).await;
    find(&mut boot, 1).await;
    assert_eq!(find(&mut node, 1).await, [boot.node.id].into());
}

#[tokio::test(start_paused = true)]
async fn a_changed_record_reaches_the_other_node() {
    let a = run(&[], "127.0.0.1:0").await;
    let mut b = run(std::slice::from_ref(&a.node), "127.0.0.1:0").await;
    find(&mut b, 1).await;
    let entries = RecordEntries {
        serves_snap: true,
        ..a.record.borrow().entries()
    };
    let changed = Record::sign(&a.key, 2, &entries).unwrap();
    a.record.send(changed.clone()).unwrap();
    let has_changed = async {
        while let Some(event) = b.discovery.events.recv().await {
            if matches!(event, DiscoveryEvent::Found(node) if node.record.as_deref() == Some(&changed))
            {
                return true;
            }
        }
        false
    };
    let has_changed = tokio::time::timeout(Duration::from_secs(60), has_changed).await;
    assert_eq!(has_changed, Ok(true));
}
