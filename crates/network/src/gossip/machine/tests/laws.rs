//! What holds of gossip whatever peers, the pool and the node do.

use super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::sync::Mutex;

const PEERS: u8 = 6;
const TRANSACTIONS: u8 = 60;

/// A node whose pool takes what it gets, and what its peers know.
struct World {
    gossip: Gossip,
    rng: SmallRng,
    pool: Arc<Mutex<HashSet<B256>>>,
    here: HashSet<u8>,
    /// What each peer sent, announced or got.
    known: BTreeMap<ConnId, HashSet<B256>>,
    /// Handed over, without a report.
    handed: Vec<(ConnId, B256)>,
    open: Vec<(ConnId, u64, Vec<B256>)>,
    now_ms: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let pool: Arc<Mutex<HashSet<B256>>> = Arc::default();
        let own = Arc::clone(&pool);
        let is_here = move |hash: &B256| own.lock().unwrap().contains(hash);
        let mut gossip = Gossip::new(SendSecret([3; 16]), seed, 15, Arc::new(is_here));
        gossip.set_syncing(false);
        Self {
            gossip,
            rng: SmallRng::seed_from_u64(seed),
            pool,
            here: HashSet::new(),
            known: BTreeMap::new(),
            handed: Vec::new(),
            open: Vec::new(),
            now_ms: 0,
        }
    }

    fn some(&mut self) -> Vec<Bytes> {
        let count = self.rng.random_range(1..5);
        let all: HashSet<u8> = (0..count)
            .map(|_| self.rng.random_range(0..TRANSACTIONS))
            .collect();
        all.into_iter().map(plain).collect()
    }

    fn peer(&mut self) -> ConnId {
        conn(self.rng.random_range(1..=PEERS))
    }

    /// One event.
    fn step(&mut self) {
        let (of, some) = (self.peer(), self.some());
        let is_here = self.known.contains_key(&of);
        let mut learn = |all: &[Bytes]| {
            if let Some(known) = self.known.get_mut(&of) {
                known.extend(all.iter().map(keccak256));
            }
        };
        let now_ms = self.now_ms;
        let actions = match self.rng.random_range(0..9) {
            0 if !is_here => {
                self.known.insert(of, HashSet::new());
                let node = NodeId(FixedBytes::repeat_byte(of.0.to_le_bytes()[0]));
                self.gossip.join(of, node, OLD);
                Vec::new()
            }
            0 if self.rng.random_ratio(1, 5) => {
                self.known.remove(&of);
                self.open.retain(|open| open.0 != of);
                self.gossip.leave(of, now_ms)
            }
            1 | 2 => {
                learn(&some);
                self.gossip.announced(of, &announcement(&some), now_ms)
            }
            3 => {
                learn(&some);
                self.gossip.sent(of, some, now_ms)
            }
            4 | 5 if !self.open.is_empty() => self.answer(),
            6 if !self.handed.is_empty() => self.report(),
            7 => {
                let new: Vec<u8> = some.iter().map(|bytes| bytes[2]).collect();
                self.submit(&new)
            }
            _ => {
                self.now_ms += self.rng.random_range(0..400);
                self.gossip.tick(self.now_ms)
            }
        };
        self.act(actions);
    }

    /// A peer answers with all, a part, or nothing.
    fn answer(&mut self) -> Vec<Action> {
        let at = self.rng.random_range(0..self.open.len());
        let (of, request, hashes) = self.open.swap_remove(at);
        let all = (0..TRANSACTIONS).map(plain);
        let part: Vec<Bytes> = all
            .filter(|bytes| hashes.contains(&keccak256(bytes)) && self.rng.random_ratio(3, 4))
            .collect();
        self.gossip.answered(of, request, part, self.now_ms)
    }

    /// The pool takes what came, and the node sends it on.
    fn report(&mut self) -> Vec<Action> {
        let at = self.rng.random_range(0..self.handed.len());
        let (of, hash) = self.handed.swap_remove(at);
        let taken = (0..TRANSACTIONS)
            .find(|seed| keccak256(plain(*seed)) == hash)
            .unwrap();
        self.pool.lock().unwrap().insert(hash);
        let mut actions = self
            .gossip
            .report(of, &[(hash, Verdict::Accepted)], self.now_ms);
        self.here.remove(&taken);
        actions.extend(self.submit(&[taken]));
        actions
    }

    fn submit(&mut self, all: &[u8]) -> Vec<Action> {
        let all: Vec<u8> = all
            .iter()
            .copied()
            .filter(|seed| self.here.insert(*seed))
            .collect();
        let new = all.iter().map(|seed| {
            let bytes = plain(*seed);
            self.pool.lock().unwrap().insert(keccak256(&bytes));
            NewTransaction {
                encoded: (seed % 2 == 0).then(|| bytes.clone()),
                ..new(&bytes, *seed)
            }
        });
        let new: Vec<NewTransaction> = new.collect();
        self.gossip.broadcast(&new, self.now_ms)
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask {
                    conn,
                    request,
                    hashes,
                } => {
                    assert!(self.known.contains_key(&conn));
                    self.open.push((conn, request, hashes));
                }
                Action::Announce { conn, announcement } => {
                    let hashes = announcement.transactions.iter().map(|tx| tx.hash);
                    self.gets(conn, hashes.collect());
                }
                Action::Send { conn, transactions } => {
                    self.gets(conn, transactions.iter().map(keccak256).collect());
                }
                Action::HandOver { conn, transactions } => {
                    for tx in transactions {
                        assert!(!self.pool.lock().unwrap().contains(&tx.hash), "it was here");
                        let is_handed = self.handed.iter().any(|(_, hash)| *hash == tx.hash);
                        assert!(!is_handed, "handed over twice");
                        self.handed.push((conn, tx.hash));
                    }
                }
                Action::Conduct { conduct, .. } => assert_eq!(conduct, Conduct::Timeout),
                Action::AskCells { .. } | Action::Disconnect { .. } => panic!("{action:?}"),
            }
        }
    }

    /// A peer gets nothing that it knows.
    fn gets(&mut self, conn: ConnId, hashes: Vec<B256>) {
        let known = self.known.get_mut(&conn).expect("only peers get something");
        assert!(
            hashes.into_iter().all(|hash| known.insert(hash)),
            "it knew that"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_peer_gets_what_it_knows_and_the_pool_gets_each_transaction_once(seed in any::<u64>()) {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step());
    }
}
