//! Gossip over peers in memory, with time that stands still unless all wait.

use super::*;
use crate::gossip::Announceable;
use crate::gossip::send::Spread;
use crate::peer::InboundRequest;
use crate::peer::tests::{Side, chain, sessions};
use crate::peers::Conduct;
use crate::rlpx::DisconnectReason;
use crate::wire::{Announced, Announcement, CellMask, EthVersion, Items, encode_item};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, Bytes};

struct Network {
    gossip: GossipHandle,
    batches: mpsc::Receiver<ReceivedBatch>,
    /// Our ends of the connections, and the peers'.
    ours: Vec<Arc<Peer>>,
    theirs: Vec<(Side, Arc<Peer>)>,
    list: watch::Sender<Arc<[Arc<Peer>]>>,
    reports: mpsc::UnboundedReceiver<Event>,
    _ended: Vec<tokio::task::JoinHandle<crate::peer::PeerError>>,
}

impl Network {
    async fn start(peers: u8, pool: PoolView) -> Self {
        let (events, event_receiver) = mpsc::channel(16);
        let (mut ours, mut theirs, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=peers {
            let (a, b) = sessions(&EthVersion::ALL, &EthVersion::ALL).await;
            let mut a = Side::start(a, number, chain());
            let mut b = Side::start(b, 100, chain());
            ours.push(a.peer().await);
            let of_us = b.peer().await;
            theirs.push((b, of_us));
            let events = events.clone();
            tokio::spawn(async move {
                // The chain is kept for the session.
                let _chain = a.chain;
                while let Some(event) = a.gossip.recv().await {
                    let _ = events.try_send(event);
                }
            });
            ended.push(a.ended);
        }
        let (list, peers) = watch::channel(Arc::from(ours.clone()));
        let (sender, reports) = mpsc::unbounded_channel();
        let (gossip, batches) = super::start(Links {
            stats: Arc::default(),
            peers,
            events: event_receiver,
            pool,
            report: Box::new(move |event| sender.send(event).unwrap()),
        });
        gossip.set_syncing(false);
        tokio::time::sleep(Duration::from_millis(1)).await;
        Self {
            gossip,
            batches,
            ours,
            theirs,
            list,
            reports,
            _ended: ended,
        }
    }

    /// What a peer is sent unasked.
    async fn gossip_to(&mut self, peer: usize) -> GossipContent {
        self.theirs[peer].0.gossip.recv().await.unwrap().content
    }

    async fn asked_of(&mut self, peer: usize) -> InboundRequest {
        self.theirs[peer].0.requests.recv().await.unwrap()
    }
}

fn transaction(seed: u16, bytes: usize) -> Bytes {
    let mut all = vec![2, 0xc1];
    all.extend(seed.to_be_bytes());
    all.resize(bytes, 7);
    all.into()
}

fn announce(peer: &Peer, transactions: &[Bytes]) {
    let all = transactions.iter().map(|bytes| Announced {
        hash: keccak256(bytes),
        tx_type: 2,
        size: u32::try_from(bytes.len()).unwrap(),
    });
    peer.announce(&Announcement {
        transactions: all.collect(),
        columns: None,
    });
}

fn answer(request: InboundRequest, transactions: &[Bytes]) {
    let mut items = Items::default();
    transactions
        .iter()
        .for_each(|tx| assert!(items.push(&encode_item(tx))));
    let message = items.answer(request.id);
    request.answer(message);
}

#[tokio::test(start_paused = true)]
async fn an_announced_transaction_is_fetched_accepted_and_sent_on() {
    let mut network = Network::start(2, PoolView::default()).await;
    let tx = transaction(1, 100);
    let start = Instant::now();
    announce(&network.theirs[0].1, std::slice::from_ref(&tx));
    let request = network.asked_of(0).await;
    let waited_ms = start.elapsed().as_millis();
    assert!((600..=650).contains(&waited_ms), "{waited_ms}");
    assert_eq!(
        request.request,
        Request::PooledTransactions(vec![keccak256(&tx)])
    );
    answer(request, std::slice::from_ref(&tx));
    let batch = network.batches.recv().await.unwrap();
    let hash = keccak256(&tx);
    assert_eq!(
        (batch.transactions[0].hash, &batch.transactions[0].bytes),
        (hash, &tx)
    );
    network
        .gossip
        .report(batch.peer, &[(hash, Verdict::Accepted)]);
    network.gossip.broadcast(&[NewTransaction {
        announceable: Announceable {
            hash,
            tx_type: 2,
            size_with_blobs: 100,
            size_without_blobs: 100,
            columns: CellMask::ALL,
        },
        sender: Address::ZERO,
        encoded: Some(tx.clone()),
        spread: Spread::SquareRoot,
    }]);
    let sent = network.gossip_to(1).await;
    assert!(matches!(sent, GossipContent::Transactions(all) if all == [tx]));
    assert!(network.theirs[0].0.gossip.try_recv().is_err());
    network.gossip.mined(&[hash]);
    let conn = ConnId(1);
    let conduct = Conduct::FirstAnnouncer;
    let report = network.reports.recv().await;
    assert_eq!(report, Some(Event::Conduct { conn, conduct }));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_breaks_the_rules_is_cut_and_stays_out_when_the_list_changes() {
    let mut network = Network::start(1, PoolView::default()).await;
    let tx = transaction(1, 100);
    let twice = encode_transactions([&tx, &tx]);
    network.theirs[0].1.send_transactions(twice);
    let (side, _) = network.theirs.pop().unwrap();
    let reason = side.ended.await.unwrap().reason();
    assert_eq!(reason, DisconnectReason::ProtocolBreach);
    let (conn, conduct) = (ConnId(1), Conduct::BadMessage);
    let report = network.reports.recv().await;
    assert_eq!(report, Some(Event::Conduct { conn, conduct }));
    network.list.send_replace(Arc::from(network.ours.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(network.gossip.0.state().peers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_4_mib_on_the_way_and_4_waiting_gossip_waits_and_then_goes_on() {
    let mut network = Network::start(1, PoolView::default()).await;
    let size = 100_000;
    for seed in 0..200 {
        let message = encode_transactions([&transaction(seed, size)]);
        network.theirs[0].1.send_transactions(message);
        // One after the other, so that its writer drops none.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let shared = Arc::clone(&network.gossip.0);
    let queued = || shared.state().queue_bytes;
    assert!(
        (QUEUE_BYTES..QUEUE_BYTES + 2 * size).contains(&queued()),
        "{}",
        queued()
    );
    let mut held = Vec::new();
    while let Ok(batch) = network.batches.try_recv() {
        held.push(batch);
    }
    assert_eq!(held.len(), HANDED_BYTES / size);
    // Nothing is asked meanwhile, and the peer is asked other things as ever.
    announce(&network.theirs[0].1, &[transaction(1_000, 100)]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(network.theirs[0].0.requests.try_recv().is_err());
    let bodies = Request::Bodies(vec![B256::ZERO]);
    let _answer = network.ours[0].ask(&bodies).unwrap();
    assert_eq!(network.asked_of(0).await.request, bodies);

    held.clear();
    for _ in 0..QUEUE_BYTES / size {
        network.batches.recv().await.unwrap();
    }
    announce(&network.theirs[0].1, &[transaction(1_001, 100)]);
    let request = network.asked_of(0).await.request;
    assert!(
        matches!(request, Request::PooledTransactions(_)),
        "{request:?}"
    );
    assert!(queued() < QUEUE_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_new_peer_gets_the_hashes_of_what_the_pool_has() {
    let hash = B256::repeat_byte(5);
    let pool = PoolView {
        whole_percent: 100,
        pending: Arc::new(move |most| {
            assert_eq!(most, 4096);
            vec![Announceable {
                hash,
                tx_type: 1,
                size_with_blobs: 200,
                size_without_blobs: 200,
                columns: CellMask::ALL,
            }]
        }),
        ..PoolView::default()
    };
    let mut network = Network::start(1, pool).await;
    let GossipContent::Announced(announcement) = network.gossip_to(0).await else {
        panic!("no announcement");
    };
    let expected = Announced {
        hash,
        tx_type: 1,
        size: 200,
    };
    assert_eq!(announcement.transactions, [expected]);
}

#[tokio::test(start_paused = true)]
async fn peers_that_came_while_this_node_synced_get_the_hashes_when_it_has() {
    let is_known = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_asked = Arc::clone(&is_known);
    let pool = PoolView {
        whole_percent: 100,
        pending: Arc::new(move |_| {
            let one = Announceable {
                hash: B256::repeat_byte(5),
                tx_type: 1,
                size_with_blobs: 200,
                size_without_blobs: 200,
                columns: CellMask::ALL,
            };
            let has_one = is_asked.load(std::sync::atomic::Ordering::Relaxed);
            has_one.then_some(one).into_iter().collect()
        }),
        ..PoolView::default()
    };
    let mut network = Network::start(2, pool).await;
    network.gossip.set_syncing(true);
    is_known.store(true, std::sync::atomic::Ordering::Relaxed);
    network.gossip.set_syncing(false);
    for peer in 0..2 {
        assert!(matches!(
            network.gossip_to(peer).await,
            GossipContent::Announced(_)
        ));
    }
    network.gossip.set_syncing(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(network.theirs[0].0.gossip.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_sends_before_the_list_has_it_counts() {
    let mut network = Network::start(1, PoolView::default()).await;
    network.list.send_replace(Arc::from([]));
    let shared = Arc::clone(&network.gossip.0);
    shared.state().peers.clear();
    let _ = shared.state().gossip.leave(ConnId(1), 0);
    let message = encode_transactions([&transaction(1, 100)]);
    network.theirs[0].1.send_transactions(message);
    assert_eq!(network.batches.recv().await.unwrap().peer, ConnId(1));
    // A list from before the peer came does not send it away.
    network.list.send_replace(Arc::from([]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shared.state().peers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn when_the_network_stops_no_more_batches_come() {
    let network = Network::start(1, PoolView::default()).await;
    let mut batches = network.batches;
    drop(network.list);
    assert!(batches.recv().await.is_none());
}
