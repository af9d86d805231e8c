//! What holds of the router whatever peers do.

use super::super::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

const HONEST: ConnId = ConnId(0);
const PEERS: u64 = 6;
const KINDS: [RequestKind; 3] = [
    RequestKind::Headers,
    RequestKind::Bodies,
    RequestKind::Receipts,
];

fn info() -> Abilities {
    Abilities {
        kinds: KINDS.to_vec(),
        earliest: 0,
        latest: 100,
    }
}

impl Router {
    /// Panics if something does not hold.
    fn check(&self) {
        assert!(self.jobs.len() <= MAX_JOBS);
        for peer in self.peers.values() {
            assert!(peer.open.len() <= MAX_OPEN);
            for kind in KINDS {
                assert!(peer.open_of(kind).count() <= MAX_OPEN_OF_KIND);
            }
            assert!(peer.stateless.len() <= MAX_STATELESS);
        }
        for (id, job) in &self.jobs {
            self.check_job(*id, job);
        }
    }

    /// Every item of a job is there, queued, open or given up; what is queued is not open.
    fn check_job(&self, id: JobId, job: &Job) {
        let open = self.peers.values().flat_map(|peer| peer.open.values());
        let open = open.filter(|open| open.job == id).map(|open| &open.piece);
        let open: Vec<&Piece> = open.collect();
        for (item, is_there) in (0..).zip(&job.is_there) {
            let has_it = |piece: &&Piece| piece.items.contains(&item);
            let queued = job.queue.iter().filter(has_it).count();
            let given_up = job.given_up.iter().filter(|up| up.items.contains(&item));
            let given_up = given_up.count();
            let is_open = open.iter().any(has_it);
            if *is_there {
                assert_eq!(queued + given_up, 0, "item {item} is there");
            } else {
                let places = queued + given_up + usize::from(is_open);
                assert_eq!(places, 1, "item {item}");
            }
        }
        for piece in job.queue.iter().chain(open.iter().copied()) {
            let conns: HashSet<ConnId> = piece.tries.iter().map(|one| one.conn).collect();
            assert_eq!(conns.len(), piece.tries.len(), "a peer failed twice");
            assert!(piece.tries.len() < MAX_TRIES);
        }
    }
}

/// The honest peer has all, but may cut its answer; the others do what they like.
fn outcome(rng: &mut SmallRng, conn: ConnId, items: &Range<u32>) -> Option<Outcome> {
    let cut = rng.random_range(items.start + 1..=items.end);
    let missing = std::iter::once(cut..items.end).collect();
    match rng.random_range(0..6) {
        _ if conn == HONEST => Some(Outcome::Items { missing }),
        0 => Some(Outcome::Items { missing }),
        1 => Some(Outcome::Items {
            missing: vec![items.clone()],
        }),
        2 => Some(Outcome::Stateless),
        3 => Some(Outcome::Wrong(Conduct::Lie)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_job_ends_and_if_repeated_with_all_items_while_one_honest_peer_lives(
        seed in any::<u64>()
    ) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut router = Router::new(SmallRng::seed_from_u64(seed));
        for number in 0..PEERS {
            router.join(ConnId(number), info(), 0);
        }
        let mut now_ms = 0;
        // What the asker still lacks: items, of which kind.
        let mut lacking: Vec<Ask> = (0..6)
            .map(|number| Ask {
                kind: KINDS[number % 3],
                items: rng.random_range(1..400),
                need: Need::default(),
            })
            .collect();
        let mut begun: BTreeMap<JobId, (u64, RequestKind)> = BTreeMap::new();
        // When, by whom, to which request: what comes, and what the asker finds.
        let mut answers: Vec<(u64, ConnId, u64, Outcome)> = Vec::new();
        let mut checks: Vec<(u64, ConnId, u64, Outcome)> = Vec::new();
        let mut actions = Vec::new();
        while !lacking.is_empty() || !begun.is_empty() {
            prop_assert!(now_ms < 1_200_000, "no end");
            for ask in lacking.drain(..) {
                let (id, sent) = router.ask(ask, now_ms).unwrap();
                begun.insert(id, (now_ms, ask.kind));
                actions.extend(sent);
            }
            for action in actions.drain(..) {
                match action {
                    AskAction::Send { conn, request, items, .. } => {
                        prop_assert!(items.end - items.start <= 256);
                        let latency_ms = match conn {
                            HONEST => rng.random_range(1..1_900),
                            _ => rng.random_range(1..20_000),
                        };
                        if let Some(outcome) = outcome(&mut rng, conn, &items) {
                            answers.push((now_ms + latency_ms, conn, request, outcome));
                        }
                    }
                    AskAction::Done { job, given_up } => {
                        let (_, kind) = begun.remove(&job).unwrap();
                        let left = given_up.iter().map(|up| up.items.end - up.items.start);
                        let items = left.sum();
                        if items > 0 {
                            lacking.push(Ask { kind, items, need: Need::default() });
                        }
                        for up in given_up {
                            prop_assert!(up.tries.iter().all(|one| one.conn != HONEST));
                        }
                    }
                    // Its answer may come all the same.
                    AskAction::Abandon { .. } => (),
                    AskAction::Conduct { conn, conduct } => {
                        prop_assert!(conn != HONEST || conduct == Conduct::Content);
                    }
                }
            }
            router.check();
            now_ms += 100;
            let is_due = |answer: &(u64, ConnId, u64, Outcome)| answer.0 <= now_ms;
            let (due, later) = answers.into_iter().partition(is_due);
            answers = later;
            for (_, conn, request, outcome) in due {
                if router.arrived(conn, request, now_ms).is_some() {
                    // The caller has 30 s.
                    let check_ms = rng.random_range(0..2_000);
                    checks.push((now_ms + check_ms, conn, request, outcome));
                }
                router.check();
            }
            let (due, later) = checks.into_iter().partition(is_due);
            checks = later;
            for (_, conn, request, outcome) in due {
                actions.extend(router.answer(conn, request, outcome, now_ms));
                router.check();
            }
            if rng.random_range(0..50) == 0 {
                let conn = ConnId(rng.random_range(1..PEERS));
                actions.extend(router.leave(conn, now_ms));
                actions.extend(router.join(conn, info(), now_ms));
            }
            actions.extend(router.tick(now_ms));
            let is_late = |began_ms: u64| now_ms.saturating_sub(began_ms) > 600_000;
            prop_assert!(begun.values().all(|(began_ms, _)| !is_late(*began_ms)));
        }
    }
}
