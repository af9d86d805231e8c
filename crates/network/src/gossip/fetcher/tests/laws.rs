//! What holds of the fetcher whatever peers do.

use super::super::taker::MAX_ASKED;
use super::super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const HONEST: ConnId = ConnId(0);
const PEERS: u64 = 6;
const HASHES: u64 = 60;

/// The bytes that differ are the first.
fn hash(number: u64) -> B256 {
    let mut hash = B256::ZERO;
    hash[..8].copy_from_slice(&(number + 1).to_be_bytes());
    hash
}

fn announced(number: u64) -> Announced {
    Announced {
        hash: hash(number),
        tx_type: if number.is_multiple_of(7) { 3 } else { 2 },
        size: 100,
    }
}

fn received(hash: &B256) -> Received {
    let all = (0..HASHES).map(announced);
    let tx = all.into_iter().find(|tx| tx.hash == *hash).unwrap();
    Received {
        hash: tx.hash,
        tx_type: tx.tx_type,
        size: tx.size,
    }
}

impl Fetcher {
    /// Panics if something does not hold.
    fn check(&self) {
        let announced = self.peers.values().map(|peer| peer.announced.len());
        assert_eq!(announced.sum::<usize>(), self.announcements);
        assert!(self.announcements <= MAX_IN_ALL);
        let announcers = self.wanted.values().map(|wanted| wanted.announcers.len());
        assert_eq!(announcers.sum::<usize>(), self.announcements);
        for peer in self.peers.values() {
            assert_eq!(peer.announced.len(), peer.by_age.len());
            assert!(peer.announced.len() <= MAX_OF_PEER);
        }
        let mut asked: HashSet<B256> = HashSet::default();
        for (conn, peer) in &self.peers {
            let open = peer.open.iter().filter(|open| !open.is_late);
            for (hash, _) in open.flat_map(|open| &open.asked) {
                if let Some(wanted) = self.wanted.get(hash) {
                    assert_eq!(wanted.stage, Stage::Asked(*conn));
                    assert!(asked.insert(*hash), "asked of two peers");
                }
            }
        }
        let (mut waiting, mut queued) = (0, 0);
        for (hash, wanted) in &self.wanted {
            assert!(!wanted.announcers.is_empty());
            match wanted.stage {
                Stage::Waiting(ready_ms) => {
                    assert!(self.waiting.contains(&(ready_ms, *hash)));
                    waiting += 1;
                }
                Stage::Asked(_) => assert!(asked.contains(hash), "asked of no peer"),
                Stage::Queued => queued += 1,
            }
        }
        assert_eq!((waiting, queued), (self.waiting.len(), self.queued));
    }
}

/// A hostile peer's answer: anything from nothing to what was not asked for, or silence.
fn hostile(rng: &mut SmallRng, hashes: &[B256]) -> Option<Vec<Received>> {
    match rng.random_range(0..6) {
        0 => Some(Vec::new()),
        1 => Some(hashes.iter().skip(1).map(received).collect()),
        2 => Some(vec![received(&hash(rng.random_range(0..HASHES)))]),
        3 => Some(vec![Received {
            size: 1,
            ..received(&hashes[0])
        }]),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_hash_is_asked_of_one_peer_at_a_time_and_none_is_lost_that_an_honest_peer_announced(
        seed in any::<u64>()
    ) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut fetcher = Fetcher::new(seed | 1, 15);
        let mut here: HashSet<B256> = HashSet::default();
        let (mut promised, mut now_ms): (HashSet<B256>, u64) = (HashSet::default(), 0);
        // When which answer comes.
        let mut answers: Vec<(u64, ConnId, u64, Vec<Received>)> = Vec::new();
        while now_ms < 120_000 {
            now_ms += rng.random_range(1..400);
            if now_ms < 30_000 {
                let conn = ConnId(rng.random_range(0..PEERS));
                let first = rng.random_range(0..HASHES);
                let last = (first + rng.random_range(0..10)).min(HASHES);
                let all: Vec<Announced> = (first..last).map(announced).collect();
                if conn == HONEST {
                    promised.extend(all.iter().map(|tx| tx.hash));
                }
                fetcher.announce(conn, &all, |hash| here.contains(hash), now_ms).unwrap();
                if rng.random_range(0..10) == 0 {
                    fetcher.gone(ConnId(rng.random_range(1..PEERS)));
                }
            }
            fetcher.check();
            let (due, later) = answers.into_iter().partition(|answer| answer.0 <= now_ms);
            answers = later;
            for (_, conn, request, received) in due {
                let is_asked = fetcher.peers.get(&conn).is_some_and(|p| is_open(p, request));
                let result = fetcher.answer(conn, request, &received);
                prop_assert!(conn != HONEST || result.is_ok());
                if is_asked && result.is_ok() {
                    here.extend(received.iter().map(|tx| tx.hash));
                }
                fetcher.check();
            }
            for action in fetcher.tick(now_ms) {
                let FetchAction::Request { conn, request, hashes } = action else { continue };
                prop_assert!(hashes.len() <= MAX_ASKED);
                let latency_ms = rng.random_range(1..4_000);
                if conn == HONEST {
                    // It cuts its answers as it likes, but never to nothing.
                    let count = rng.random_range(1..=hashes.len());
                    let answer = hashes[..count].iter().map(received).collect();
                    answers.push((now_ms + latency_ms, conn, request, answer));
                } else if let Some(answer) = hostile(&mut rng, &hashes) {
                    answers.push((now_ms + 2 * latency_ms, conn, request, answer));
                }
            }
            fetcher.check();
        }
        let lost: Vec<&B256> = promised.difference(&here).collect();
        prop_assert!(lost.is_empty(), "{lost:?}");
        prop_assert!(fetcher.is_empty());
    }
}

#[test]
fn a_flood_of_a_million_hashes_of_50_peers_stays_within_the_bounds() {
    let mut fetcher = Fetcher::new(1 << 63 | 1, 15);
    for round in 0..20_u64 {
        for peer in 1..=50 {
            let first = (round * 50 + peer) * 1000;
            let all: Vec<Announced> = (first..first + 1000)
                .map(|number| Announced {
                    hash: hash(number),
                    ..announced(1)
                })
                .collect();
            let done = fetcher.announce(ConnId(peer), &all, |_| false, round);
            assert_eq!(done, Ok(()));
        }
    }
    let quiet = announced(0);
    fetcher.announce(HONEST, &[quiet], |_| false, 20).unwrap();
    assert!(fetcher.wanted.contains_key(&quiet.hash));
    fetcher.check();
}
