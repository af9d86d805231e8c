//! Two nodes over TCP on loopback: one serves, the other syncs from it.

use super::{BLOCKS, empty_chain, hash_of, main_branch, side_branch};
use crate::{
    HistoryFloor, RecentStates, Requests, Sources, Sync, SyncConfig, SyncMode, SyncState, serve,
};
use niwaki_chain::{Chain, Consensus, ForkChoice, PayloadHints, Verdict};
use niwaki_network::gossip::PoolView;
use niwaki_network::peers::NodeFilter;
use niwaki_network::wire::{Answer, BlockRange, EthVersion, Request};
use niwaki_network::{LocalChain, NatMethod, NetRestrict, Network, NetworkConfig, NodeKey};
use niwaki_primitives::{B256, Block};
use niwaki_rules::fork_filter;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::runtime::Runtime;
use tokio::sync::watch;

fn local_chain(chain: &Chain) -> LocalChain {
    let (genesis, head) = (chain.genesis_hash(), chain.head());
    let time = chain.header(&genesis).unwrap().unwrap().header.timestamp;
    let forks = fork_filter(
        chain.spec(),
        genesis,
        time,
        head.id.number,
        head.header.timestamp,
    );
    LocalChain {
        network_id: 1,
        genesis,
        forks,
        range: BlockRange {
            earliest: 0,
            latest: head.id.number,
            latest_hash: head.id.hash,
        },
        total_difficulty: head.total_difficulty,
        is_merged: true,
        validators: None,
    }
}

/// A node with its network.
struct Node {
    runtime: Runtime,
    consensus: Arc<Consensus>,
    network: Network,
    id: niwaki_network::Node,
    serving: JoinHandle<()>,
    _local: watch::Sender<LocalChain>,
}

impl Node {
    fn start(number: u8, chain: Arc<Chain>, static_nodes: Vec<niwaki_network::Node>) -> Self {
        Self::start_with(number, chain, static_nodes, &EthVersion::CURRENT)
    }

    fn start_with(
        number: u8,
        chain: Arc<Chain>,
        static_nodes: Vec<niwaki_network::Node>,
        versions: &[EthVersion],
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let key = NodeKey::new(B256::repeat_byte(number)).unwrap();
        let (local, receiver) = watch::channel(local_chain(&chain));
        let config = NetworkConfig {
            key,
            listen: Some(([127, 0, 0, 1], 0).into()),
            client: format!("test {number}"),
            versions: versions.to_vec(),
            snap: Vec::new(),
            subprotocols: Vec::new(),
            max_peers: 4,
            inbound_percent: 50,
            filter: NodeFilter::default(),
            static_nodes,
            trusted_nodes: Vec::new(),
            boot_nodes: Vec::new(),
            listen_also: None,
            discovery: None,
            net_restrict: NetRestrict::default(),
            advertised: Vec::new(),
            nat: NatMethod::None,
            folder: None,
        };
        let starting = Network::start(config, receiver, PoolView::default());
        let (network, inbound) = runtime.block_on(starting).unwrap();
        let own = Arc::clone(&chain);
        let requests = Requests::new(inbound.requests, NonZeroU64::new(32 << 20));
        let serving = thread::spawn(move || {
            let sources = Sources {
                chain: &own,
                states: &RecentStates::default(),
                transaction: &|_, _| None,
                cells: &|_, _| None,
            };
            serve(sources, &requests);
        });
        let id = network.enode();
        Self {
            runtime,
            consensus: Arc::new(Consensus::new(chain)),
            network,
            id,
            serving,
            _local: local,
        }
    }

    fn sync(&self) -> Sync {
        let config = SyncConfig {
            consensus: Arc::clone(&self.consensus),
            router: {
                // The router's task belongs to the network's runtime.
                let _runtime = self.runtime.enter();
                self.network.router()
            },
            peers: self.network.peers(),
            folder: std::env::temp_dir(),
            mode: SyncMode::Full,
            history: HistoryFloor::State,
            history_files: None,
            is_driven: true,
            follows_peers: None,
            target: None,
        };
        Sync::start(config).unwrap()
    }

    fn choose(&self, head: &Block) -> Verdict {
        let choice = ForkChoice {
            head: hash_of(head),
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        self.consensus.fork_choice(choice).unwrap()
    }

    fn payload(&self, block: &Block) -> Verdict {
        let verdict =
            self.consensus
                .new_payload(block.clone(), hash_of(block), PayloadHints::default());
        verdict.unwrap()
    }

    fn wait_for_head(&self, hash: B256) {
        while self.consensus.chain().head().id.hash != hash {
            thread::yield_now();
        }
    }

    fn stop(self) {
        self.runtime.block_on(self.network.stop());
        drop(self.network);
        self.runtime.shutdown_background();
        self.serving.join().unwrap();
    }
}

fn wait_until_idle(sync: &crate::Sync) {
    while sync.status().state != SyncState::Idle {
        thread::yield_now();
    }
}

#[test]
fn a_node_gets_400_blocks_over_tcp_follows_the_head_and_a_reorganisation() {
    let full = empty_chain(None);
    for block in main_branch() {
        full.import(block.clone()).unwrap();
    }
    for block in &side_branch()[super::FORK as usize..] {
        full.import(niwaki_chain::ImportRequest {
            canonicalize: false,
            ..block.clone().into()
        })
        .unwrap();
    }
    let source = Node::start(1, full, Vec::new());
    let sink = Node::start(2, empty_chain(None), vec![source.id.clone()]);
    let (early, late) = main_branch().split_at(BLOCKS as usize - 10);

    // The consensus client is some blocks behind, then moves on.
    let sync = sink.sync();
    assert!(matches!(
        sink.choose(&early[early.len() - 1]),
        Verdict::Syncing
    ));
    sink.wait_for_head(hash_of(&early[early.len() - 1]));
    // Blocks become the head as they are imported: only then has it followed the consensus client.
    wait_until_idle(&sync);
    for block in late {
        assert!(matches!(sink.payload(block), Verdict::Valid(Some(_))));
        assert!(matches!(sink.choose(block), Verdict::Valid(_)));
    }

    // The other branch is asked for by hash: the source's canonical chain is the main one.
    let side = side_branch();
    let head = &side[side.len() - 1];
    assert!(matches!(sink.choose(head), Verdict::Syncing));
    sink.wait_for_head(hash_of(head));
    wait_until_idle(&sync);
    let status = sync.status();
    assert_eq!((status.reached, status.peers), (2, 1), "{status:?}");
    assert!(status.failures.is_empty(), "{:?}", status.failures);
    sync.stop();
    sink.stop();
    source.stop();
}

#[test]
fn over_eth_66_and_68_a_node_gets_400_blocks_and_receipts() {
    let head = &main_branch()[BLOCKS as usize - 1];
    for version in [EthVersion::Eth66, EthVersion::Eth68] {
        let full = empty_chain(None);
        for block in main_branch() {
            full.import(block.clone()).unwrap();
        }
        let source = Node::start_with(1, full, Vec::new(), &[version]);
        let nodes = vec![source.id.clone()];
        let sink = Node::start_with(2, empty_chain(None), nodes, &EthVersion::ALL);
        let sync = sink.sync();
        assert!(matches!(sink.choose(head), Verdict::Syncing));
        sink.wait_for_head(hash_of(head));
        sync.stop();
        let peer = Arc::clone(&sink.network.peers().borrow()[0]);
        assert_eq!(peer.info.version, version);
        let request = Request::Receipts {
            blocks: vec![hash_of(head)],
            first_receipt: 0,
        };
        let answer = peer.ask(&request).unwrap();
        let answer = sink.runtime.block_on(answer).unwrap().unwrap().answer;
        let receipts = sink.consensus.chain().receipts(&hash_of(head));
        let expected = Answer::Receipts {
            blocks: vec![receipts.unwrap().unwrap()],
            is_last_incomplete: false,
        };
        assert_eq!(answer, expected);
        sink.stop();
        source.stop();
    }
}
