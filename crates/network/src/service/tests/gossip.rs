//! Transactions that go from node to node.

use super::*;
use crate::gossip::{Announceable, NewTransaction, ReceivedBatch, Spread, Verdict};
use crate::wire::CellMask;
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, Bytes};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Transactions that are sent.
const COUNT: u8 = 40;

fn announceable(bytes: &Bytes) -> Announceable {
    let size = u32::try_from(bytes.len()).unwrap();
    Announceable {
        hash: keccak256(bytes),
        tx_type: 2,
        size_with_blobs: size,
        size_without_blobs: size,
        columns: CellMask::ALL,
    }
}

/// A pool that takes everything.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<HashMap<B256, Bytes>>>);

impl Pool {
    fn transactions(&self) -> MutexGuard<'_, HashMap<B256, Bytes>> {
        self.0.lock().unwrap()
    }

    pub(super) fn len(&self) -> usize {
        self.transactions().len()
    }

    pub(super) fn view(&self) -> PoolView {
        let (first, second) = (self.clone(), self.clone());
        PoolView {
            whole_percent: 100,
            is_here: Arc::new(move |hash| first.transactions().contains_key(hash)),
            pending: Arc::new(move |_| second.transactions().values().map(announceable).collect()),
        }
    }

    /// Puts transactions into the pool, and sends them.
    pub(super) fn submit(&self, network: &Network, transactions: &[Bytes]) {
        let new = transactions.iter().map(|bytes| {
            let hash = keccak256(bytes);
            let before = self.transactions().insert(hash, bytes.clone());
            assert_eq!(before, None, "came twice");
            NewTransaction {
                announceable: announceable(bytes),
                sender: Address::repeat_byte(bytes[2]),
                // Half of them are announced only.
                encoded: (bytes[2] % 2 == 0).then(|| bytes.clone()),
                spread: Spread::SquareRoot,
            }
        });
        let new: Vec<NewTransaction> = new.collect();
        network.gossip().broadcast(&new);
    }

    /// Takes what came and sends it on. Returns how many they are.
    pub(super) fn take(&self, network: &Network, batch: ReceivedBatch) -> usize {
        let bytes: Vec<Bytes> = batch
            .transactions
            .iter()
            .map(|tx| tx.bytes.clone())
            .collect();
        self.submit(network, &bytes);
        let accepted = batch
            .transactions
            .iter()
            .map(|tx| (tx.hash, Verdict::Accepted));
        let accepted: Vec<_> = accepted.collect();
        network.gossip().report(batch.peer, &accepted);
        bytes.len()
    }

    /// Answers a peer that asks for transactions.
    pub(super) fn answer(&self, request: InboundRequest) {
        let Request::PooledTransactions(hashes) = &request.request else {
            panic!("{:?}", request.request);
        };
        let mut items = Items::default();
        for bytes in hashes
            .iter()
            .filter_map(|hash| self.transactions().get(hash).cloned())
        {
            items.push(&crate::wire::encode_item(&bytes));
        }
        let message = items.answer(request.id);
        request.answer(message);
    }
}

/// A node whose pool takes everything.
struct Pooled {
    node: Node,
    pool: Pool,
}

impl Pooled {
    async fn start(config: NetworkConfig) -> Self {
        let pool = Pool::default();
        let node = Node::start_with(config, 1, pool.view()).await;
        node.network.gossip().set_syncing(false);
        Self { node, pool }
    }

    /// Takes what comes and sends it on, answers what peers ask, and says how many transactions came. Stops when it shall, and
    /// returns how many came late.
    async fn run(mut self, came: mpsc::Sender<usize>, mut stop: watch::Receiver<bool>) -> usize {
        loop {
            tokio::select! {
                batch = self.node.inbound.transactions.recv() => {
                    came.send(self.pool.take(&self.node.network, batch.unwrap())).await.unwrap();
                }
                request = self.node.inbound.requests.recv() => self.pool.answer(request.unwrap()),
                _ = stop.changed() => break,
            }
        }
        self.node.network.stop().await;
        let mut late = 0;
        while let Some(batch) = self.node.inbound.transactions.recv().await {
            late += batch.transactions.len();
        }
        late
    }
}

/// The first node sends; the other two get each transaction once, and it none.
async fn check(nodes: [Pooled; 3]) {
    let transactions = (0..COUNT).map(|seed| Bytes::from(vec![2, 0xc1, seed]));
    let transactions: Vec<_> = transactions.collect();
    nodes[0].pool.submit(&nodes[0].node.network, &transactions);
    let (stop, stop_receiver) = watch::channel(false);
    let (sender, mut came) = mpsc::channel(1);
    let runs = nodes.map(|node| tokio::spawn(node.run(sender.clone(), stop_receiver.clone())));
    let mut left = 2 * usize::from(COUNT);
    while left > 0 {
        left = left
            .checked_sub(came.recv().await.unwrap())
            .expect("more came than was sent");
    }
    stop.send_replace(true);
    for run in runs {
        assert_eq!(run.await.unwrap(), 0);
    }
}

fn dialling(number: u8, nodes: &[(&Pooled, u8)]) -> NetworkConfig {
    let candidates = nodes.iter().map(|(pooled, _)| pooled.node.enode());
    NetworkConfig {
        static_nodes: candidates.collect(),
        ..config(number)
    }
}

#[tokio::test]
async fn of_three_nodes_that_all_know_each_other_two_get_every_transaction_once() {
    let one = Pooled::start(config(1)).await;
    let two = Pooled::start(dialling(2, &[(&one, 1)])).await;
    let three = Pooled::start(dialling(3, &[(&one, 1), (&two, 2)])).await;
    for pooled in [&one, &two, &three] {
        pooled.node.peers(2).await;
    }
    check([one, two, three]).await;
}

#[tokio::test]
async fn over_eth_66_and_68_a_transaction_goes_through_a_node_to_the_next() {
    for version in [EthVersion::Eth66, EthVersion::Eth68] {
        let of = |config| NetworkConfig {
            versions: vec![version],
            ..config
        };
        let one = Pooled::start(of(config(1))).await;
        let two = Pooled::start(of(dialling(2, &[(&one, 1)]))).await;
        let three = Pooled::start(of(dialling(3, &[(&two, 2)]))).await;
        one.node.peers(1).await;
        two.node.peers(2).await;
        let of_three = three.node.peers(1).await;
        assert_eq!(of_three[0].info.version, version);
        check([one, two, three]).await;
    }
}

#[tokio::test]
async fn a_transaction_goes_through_a_node_to_the_next() {
    let one = Pooled::start(config(1)).await;
    let two = Pooled::start(dialling(2, &[(&one, 1)])).await;
    let three = Pooled::start(dialling(3, &[(&two, 2)])).await;
    one.node.peers(1).await;
    two.node.peers(2).await;
    three.node.peers(1).await;
    check([one, two, three]).await;
}
