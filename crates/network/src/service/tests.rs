//! Networks on loopback.

mod discovery;
mod gossip;
mod hundred;
mod switchboard;

use super::*;
use crate::peers::NodeFilter;
use crate::peers::{End, SavedPeers};
use crate::rlpx::DisconnectReason;
use crate::stats::{Direction, Initiator};
use crate::wire::{Answer, BlockRange, Items, Request};
use niwaki_primitives::{B256, U256};
use niwaki_rules::fork_filter;

fn chain(network_id: u64) -> LocalChain {
    let spec = niwaki_rules::Network::from_name("mainnet")
        .unwrap()
        .genesis()
        .spec;
    let genesis = B256::repeat_byte(9);
    LocalChain {
        network_id,
        genesis,
        forks: fork_filter(&spec, genesis, 0, 0, 0),
        range: BlockRange {
            earliest: 0,
            latest: 7,
            latest_hash: B256::repeat_byte(7),
        },
        total_difficulty: U256::from(1_000),
        is_merged: true,
        validators: None,
    }
}

fn config(number: u8) -> NetworkConfig {
    NetworkConfig {
        key: NodeKey::new(B256::repeat_byte(number)).unwrap(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        client: format!("test {number}"),
        versions: EthVersion::ALL.to_vec(),
        snap: Vec::new(),
        subprotocols: Vec::new(),
        max_peers: 4,
        inbound_percent: 50,
        filter: NodeFilter::default(),
        listen_also: None,
        static_nodes: Vec::new(),
        trusted_nodes: Vec::new(),
        boot_nodes: Vec::new(),
        discovery: None,
        net_restrict: NetRestrict::default(),
        advertised: Vec::new(),
        nat: NatMethod::None,
        folder: None,
    }
}

/// Waits until something holds, a minute at most.
async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.expect("what is waited for did not happen");
}

struct Node {
    network: Network,
    inbound: Inbound,
    _chain: watch::Sender<LocalChain>,
}

impl Node {
    async fn start(config: NetworkConfig, network_id: u64) -> Self {
        Self::start_with(config, network_id, PoolView::default()).await
    }

    async fn start_with(config: NetworkConfig, network_id: u64, pool: PoolView) -> Self {
        let (sender, chain) = watch::channel(chain(network_id));
        let (network, inbound) = Network::start(config, chain, pool).await.unwrap();
        Self {
            network,
            inbound,
            _chain: sender,
        }
    }

    fn enode(&self) -> crate::Node {
        self.network.enode()
    }

    /// Waits until it has so many peers.
    async fn peers(&self, count: usize) -> Arc<[Arc<Peer>]> {
        let mut peers = self.network.peers();
        let all = peers.wait_for(|peers| peers.len() == count).await;
        Arc::clone(&all.unwrap())
    }

    /// Waits for a departure.
    async fn departure(&self) -> End {
        let departed = async {
            loop {
                if let Some(departure) = self.network.report().await.departures.first() {
                    return departure.end;
                }
                tokio::task::yield_now().await;
            }
        };
        let departed = tokio::time::timeout(Duration::from_secs(60), departed).await;
        departed.expect("no peer left")
    }
}

#[tokio::test]
async fn a_static_node_is_dialled_asked_and_sees_the_other_leave() {
    let mut one = Node::start(config(1), 1).await;
    let two = NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(2)
    };
    let two = Node::start(two, 1).await;
    let (of_one, of_two) = (two.peers(1).await, one.peers(1).await);
    let (of_one, of_two) = (&of_one[0], &of_two[0]);
    assert_eq!(
        (of_one.info.client.as_str(), of_two.info.client.as_str()),
        ("test 1", "test 2")
    );
    assert!(of_two.info.origin.is_inbound && !of_one.info.origin.is_inbound);
    let answer = of_one.ask(&Request::Bodies(vec![B256::ZERO])).unwrap();
    let request = one.inbound.requests.recv().await.unwrap();
    let message = Items::default().answer(request.id);
    request.answer(message);
    assert_eq!(
        answer.await.unwrap().unwrap().answer,
        Answer::Bodies(vec![])
    );
    let report = two.network.report().await;
    assert!(report.peers[0].is_static && !report.peers[0].is_inbound);

    one.network.stop().await;
    two.peers(0).await;
    assert_eq!(
        two.departure().await,
        End::Theirs(DisconnectReason::ClientQuitting)
    );
}

#[tokio::test]
async fn an_end_counts_once_on_each_side_and_so_do_dial_and_messages() {
    let one = Node::start(config(1), 1).await;
    let two = NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(2)
    };
    let two = Node::start(two, 1).await;
    two.peers(1).await;
    one.peers(1).await;
    let (of_one, of_two) = (one.network.stats(), two.network.stats());
    assert_eq!((of_one.connected(), of_two.connected()), (1, 1));
    assert_eq!((of_one.incomplete(), of_two.incomplete()), (0, 0));
    assert!(of_two.dials().any(|dial| dial == (Source::Static, 1)));
    assert_eq!(of_two.dial_results()[0], ("connected", 1));
    assert!(of_one.dials().all(|(_, count)| count == 0));

    two.network.send(Event::RemoveStatic(one.enode().id));
    one.peers(0).await;
    // The tasks of the connection have ended when the network has stopped.
    two.network.stop().await;
    one.network.stop().await;
    let reason = DisconnectReason::Requested;
    assert!(
        of_one
            .ends()
            .filter(|end| end.2 > 0)
            .eq([(Initiator::Remote, reason, 1)])
    );
    assert!(
        of_two
            .ends()
            .filter(|end| end.2 > 0)
            .eq([(Initiator::Local, reason, 1)])
    );
    let count = |stats: &Stats, direction, name| {
        let mut all = stats.messages();
        let row = all.find(|one| one.direction == direction && one.name == name);
        row.map(|one| (one.protocol.to_owned(), one.messages, one.bytes))
    };
    for name in ["Hello", "Status"] {
        let sent = count(of_one, Direction::Outbound, name);
        assert!(sent.is_some(), "{name}");
        assert_eq!(sent, count(of_two, Direction::Inbound, name));
    }
    let goodbye = Some(("Wire".to_owned(), 1, 2));
    assert_eq!(count(of_two, Direction::Outbound, "Disconnect"), goodbye);
    assert_eq!(count(of_one, Direction::Inbound, "Disconnect"), goodbye);
}

#[tokio::test]
async fn a_node_of_another_network_is_no_peer() {
    let one = Node::start(config(1), 1).await;
    let two = NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(2)
    };
    let two = Node::start(two, 5).await;
    assert_eq!(two.departure().await, End::OtherChain);
    assert!(two.network.report().await.peers.is_empty());
}

#[tokio::test]
async fn the_third_node_finds_no_slot_and_is_told_so() {
    let one = NetworkConfig {
        max_peers: 1,
        inbound_percent: 100,
        ..config(1)
    };
    let one = Node::start(one, 1).await;
    let dialling = |number| NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(number)
    };
    let two = Node::start(dialling(2), 1).await;
    two.peers(1).await;
    let three = Node::start(dialling(3), 1).await;
    assert_eq!(
        three.departure().await,
        End::Theirs(DisconnectReason::TooManyPeers)
    );
    assert_eq!(one.peers(1).await[0].info.client, "test 2");
}

#[tokio::test]
async fn a_removed_static_node_is_cut_and_a_dialled_peer_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peers");
    let one = Node::start(config(1), 1).await;
    let two = NetworkConfig {
        folder: Some(folder.path().to_owned()),
        ..config(2)
    };
    let two = Node::start(two, 1).await;
    two.network.add_static(one.enode());
    two.peers(1).await;
    two.network.send(Event::RemoveStatic(one.enode().id));
    two.peers(0).await;
    assert_eq!(
        two.departure().await,
        End::Ours(DisconnectReason::Requested)
    );
    two.network.stop().await;
    let saved = SavedPeers::load(&path).unwrap();
    assert_eq!(saved.best()[0].candidate.id, one.enode().id);
}

#[tokio::test]
async fn validators_speak_a_protocol_of_their_own_beside_eth() {
    let qbft = Subprotocol {
        name: "istanbul".to_owned(),
        version: 100,
        length: 0x16,
    };
    let speaking = |config| NetworkConfig {
        subprotocols: vec![qbft.clone()],
        ..config
    };
    let mut one = Node::start(speaking(config(1)), 1).await;
    let dialling = |number| NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(number)
    };
    let mut two = Node::start(speaking(dialling(2)), 1).await;
    let three = Node::start(dialling(3), 1).await;
    one.peers(2).await;
    let of_three = three.peers(1).await;
    let caps = of_three[0].info.capabilities.iter();
    assert_eq!(
        caps.last().map(ToString::to_string).as_deref(),
        Some("istanbul/100")
    );
    let up = async |node: &mut Node| match node.inbound.subprotocols.recv().await {
        Some(SubprotocolEvent::Up(peer)) => peer,
        other => panic!("{other:?}"),
    };
    let (of_two, of_one) = (up(&mut one).await, up(&mut two).await);
    assert_eq!(of_two.info.client, "test 2");

    let data = Bytes::from_static(&[0xc1, 1]);
    assert_eq!(one.network.send_to_all("istanbul", 0x12, &data), 1);
    assert!(of_one.send_message("istanbul", 0x15, &data));
    for (node, code) in [(&mut two, 0x12), (&mut one, 0x15)] {
        let Some(SubprotocolEvent::Message(message)) = node.inbound.subprotocols.recv().await
        else {
            panic!("no message");
        };
        assert_eq!((message.code, message.data), (code, data.to_vec()));
        let mut counts = node.network.stats().messages();
        let is_this = |count: &crate::MessageCount<'_>| {
            (count.protocol, count.code, count.direction)
                == ("istanbul/100", code, Direction::Inbound)
        };
        assert!(counts.any(|count| is_this(&count) && count.bytes == 2));
    }
    two.network.stop().await;
    let last = one.inbound.subprotocols.recv().await;
    assert!(matches!(last, Some(SubprotocolEvent::Down(conn)) if conn == of_two.info.origin.conn));

    let mut wrong = config(4);
    wrong.subprotocols = vec![Subprotocol {
        name: "eth".to_owned(),
        ..qbft
    }];
    let (_sender, chain) = watch::channel(chain(1));
    let refused = Network::start(wrong, chain, PoolView::default()).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

#[tokio::test]
async fn a_connection_from_outside_of_the_networks_ends_before_the_handshake() {
    let elsewhere = "192.0.2.0/24".parse().into_iter().collect();
    let one = NetworkConfig {
        net_restrict: elsewhere,
        ..config(1)
    };
    let one = Node::start(one, 1).await;
    let two = NetworkConfig {
        static_nodes: vec![one.enode()],
        ..config(2)
    };
    let two = Node::start(two, 1).await;
    let failed = |node: &Node| {
        let results = node.network.stats().dial_results();
        let failed = results.iter().find(|(result, _)| *result == "failed");
        failed.map_or(0, |(_, count)| *count)
    };
    until(|| failed(&two) > 0).await;
    let hellos = one.network.stats().messages();
    assert_eq!(hellos.map(|count| count.messages).sum::<u64>(), 0);
}
