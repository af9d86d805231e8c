//! For tests: two nodes that are connected by a stream in memory.

use super::{Budget, GossipEvent, InboundRequest, LocalChain, Origin, Peer, PeerChannels};
use super::{PeerError, PeerEvent, SubprotocolEvent, run};
use crate::key::NodeKey;
use crate::peers::ConnId;
use crate::rlpx::hello as base;
use crate::rlpx::{Hello, Protocol, Session, initiate, respond};
use crate::wire::{BlockRange, EthVersion};
use niwaki_primitives::{B256, U256};
use niwaki_rules::{Network, fork_filter};
use std::sync::Arc;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub(crate) type Stream = Session<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

pub(crate) fn key(number: u8) -> NodeKey {
    NodeKey::new(B256::repeat_byte(number)).unwrap()
}

pub(crate) fn chain() -> LocalChain {
    let network = Network::from_name("mainnet").unwrap().genesis();
    let genesis = B256::repeat_byte(9);
    LocalChain {
        network_id: 1,
        genesis,
        forks: fork_filter(&network.spec, genesis, 0, 0, 0),
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

/// Two greeted sides that speak these versions.
pub(crate) async fn sessions(ours: &[EthVersion], theirs: &[EthVersion]) -> (Stream, Stream) {
    let protocols = |versions: &[EthVersion]| -> Vec<Protocol> {
        let protocol = |v: &EthVersion| Protocol::new("eth", v.number(), v.length());
        versions.iter().map(protocol).collect()
    };
    sessions_of(protocols(ours), protocols(theirs)).await
}

/// Two greeted sides that speak these protocols.
pub(crate) async fn sessions_of(ours: Vec<Protocol>, theirs: Vec<Protocol>) -> (Stream, Stream) {
    let (a, b) = duplex(1 << 16);
    sessions_over(a, b, ours, theirs).await
}

/// The same over the two ends of a connection.
pub(crate) async fn sessions_over(
    a: DuplexStream,
    b: DuplexStream,
    ours: Vec<Protocol>,
    theirs: Vec<Protocol>,
) -> (Stream, Stream) {
    let hello = |number, protocols: &[Protocol]| Hello {
        version: base::VERSION,
        client: "test".into(),
        capabilities: protocols.iter().map(|p| p.capability.clone()).collect(),
        port: 0,
        id: key(number).id(),
    };
    let ((ar, aw), (br, bw)) = (split(a), split(b));
    let (ka, kb) = (key(1), key(2));
    let (a, b) = tokio::join!(initiate(ar, aw, &ka, kb.id()), respond(br, bw, &kb));
    let (ha, hb) = (hello(1, &ours), hello(2, &theirs));
    let (a, b) = tokio::join!(a.unwrap().greet(&ha, &ours), b.unwrap().greet(&hb, &theirs));
    (a.unwrap(), b.unwrap())
}

/// A running node's end of a connection.
pub(crate) struct Side {
    pub(crate) chain: watch::Sender<LocalChain>,
    pub(crate) events: mpsc::Receiver<PeerEvent>,
    pub(crate) requests: mpsc::Receiver<InboundRequest>,
    pub(crate) gossip: mpsc::Receiver<GossipEvent>,
    pub(crate) subprotocols: mpsc::Receiver<SubprotocolEvent>,
    pub(crate) ended: JoinHandle<PeerError>,
}

impl Side {
    pub(crate) fn start(session: Stream, node: u8, chain: LocalChain) -> Self {
        let (chain, chain_receiver) = watch::channel(chain);
        let (events_sender, events) = mpsc::channel(16);
        let (requests_sender, requests) = mpsc::channel(256);
        let (gossip_sender, gossip) = mpsc::channel(16);
        let (subprotocols_sender, subprotocols) = mpsc::channel(4);
        let channels = PeerChannels {
            chain: chain_receiver,
            requests: requests_sender,
            gossip: gossip_sender,
            subprotocols: subprotocols_sender,
            budget: Budget::default(),
            stats: Arc::default(),
        };
        let origin = Origin {
            conn: ConnId(node.into()),
            node: key(node).id(),
            remote: ([127, 0, 0, 1], 30303).into(),
            local: None,
            is_inbound: false,
        };
        let ended = tokio::spawn(async move {
            let events = &events_sender;
            run(session, origin, &channels, |event| events.send(event)).await
        });
        Self {
            chain,
            events,
            requests,
            gossip,
            subprotocols,
            ended,
        }
    }

    pub(crate) async fn peer(&mut self) -> Arc<Peer> {
        match self.events.recv().await {
            Some(PeerEvent::Up(peer)) => peer,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn pair() -> (Side, Side) {
    let all = EthVersion::ALL;
    let (a, b) = sessions(&all, &all).await;
    (Side::start(a, 2, chain()), Side::start(b, 1, chain()))
}
