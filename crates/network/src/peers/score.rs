//! What the conduct of a peer is worth: a score from -100 to 100 that halves in ten minutes.
//!
//! Faults wait ten seconds before they count. If more than four fifths of the peers fail within that time, the trouble is this
//! node's own (its network, its disk, a fork it does not know), and none of those faults counts. With fewer than five peers there
//! is no telling, and all faults count.
//!
//! ```text
//! report -> fault waits 10 s -> score -> at -50 away for 15 min, at -100 for 12 h
//!                     \-> > 80 % of the peers failed: dropped
//! ```
//!
//! A peer's record goes with it, unless it is worth remembering: then it is one of at most [`MAX_DEPARTED`].

use crate::key::NodeId;
use std::collections::{HashMap, VecDeque};

/// The best score; the worst is its negative.
const BEST: f64 = 100.0;
/// A score halves in this time.
const HALF_LIFE_MS: f64 = 600_000.0;
/// At this score a peer has to go.
pub(crate) const CUT_SCORE: f64 = -50.0;
/// How long a peer that had to go stays away.
const AWAY_MS: u64 = 15 * 60_000;
/// How long a peer of the worst score stays away.
const FAR_AWAY_MS: u64 = 12 * 3_600_000;
/// Faults wait so long, and failures within this time count together.
const WINDOW_MS: u64 = 10_000;
/// If more than this share of the peers fails, it is this node's fault.
const OWN_FAULT_PERCENT: usize = 80;
/// With fewer peers than this no fault is taken for this node's own.
const OWN_FAULT_PEERS: usize = 5;
/// Most faults that wait; the oldest count early if there are more.
const MAX_WAITING: usize = 4096;
/// Most records of nodes that are not connected.
const MAX_DEPARTED: usize = 4096;
/// A score nearer to zero than this is not remembered.
const FORGOTTEN: f64 = 1.0;

/// What a peer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conduct {
    /// It answered with what was asked for.
    Content,
    /// It was the first to announce a transaction that was mined.
    FirstAnnouncer,
    /// It did not answer in time.
    Timeout,
    /// It had promised what it did not deliver. go-ethereum sends an empty range of a state, with the proof that it is none, where a block
    /// comes while it reads one.
    Empty,
    /// It sent a part of a state that is not proved. That may be a lie; but go-ethereum also sends lists of slots that are cut without a
    /// proof, where a block comes while it reads them.
    Unproved,
    /// It sent what can't be read or was not asked for.
    BadMessage,
    /// It sent what is proved wrong by a hash, a proof or a root.
    Lie,
}

impl Conduct {
    /// Points. A lie takes the score from the best to the worst: no good conduct outweighs it.
    fn points(self) -> f64 {
        match self {
            Self::Content => 1.0,
            Self::FirstAnnouncer => 2.0,
            Self::Timeout => -4.0,
            Self::Empty => -3.0,
            Self::Unproved => -20.0,
            Self::BadMessage => -50.0,
            Self::Lie => -2.0 * BEST,
        }
    }

    /// Whether it is a failure.
    pub(crate) fn is_fault(self) -> bool {
        self.points() < 0.0
    }
}

/// Most peers failed at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnFault {
    /// How many failed within ten seconds.
    pub(crate) failed: usize,
    /// Of how many.
    pub(crate) peers: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    value: f64,
    at_ms: u64,
    /// Points of the faults that wait.
    waiting: f64,
    is_connected: bool,
    /// The score has reached its worst.
    was_worst: bool,
}

impl Record {
    fn value(&self, now_ms: u64) -> f64 {
        let elapsed = now_ms.saturating_sub(self.at_ms) as f64;
        self.value * (-elapsed / HALF_LIFE_MS).exp2()
    }

    fn add(&mut self, points: f64, now_ms: u64) {
        self.value = (self.value(now_ms) + points).clamp(-BEST, BEST);
        self.at_ms = self.at_ms.max(now_ms);
        self.was_worst |= self.value <= -BEST;
    }
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    at_ms: u64,
    id: NodeId,
    points: f64,
}

/// The scores of the connected peers and of some that left.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    pub(super) records: HashMap<NodeId, Record>,
    departed: usize,
    faults: VecDeque<Fault>,
    /// When each peer failed last, of the last ten seconds.
    failed: HashMap<NodeId, u64>,
    own_fault_until_ms: u64,
}

impl Scores {
    /// A peer is connected now.
    pub(crate) fn connect(&mut self, id: NodeId, now_ms: u64) {
        let known = self.records.contains_key(&id);
        let record = self.records.entry(id).or_insert(Record {
            at_ms: now_ms,
            ..Record::default()
        });
        if known && !record.is_connected {
            self.departed -= 1;
        }
        record.is_connected = true;
    }

    /// A peer is not connected any more. Its record stays if it is worth that.
    pub(crate) fn depart(&mut self, id: &NodeId, now_ms: u64) {
        let Some(record) = self.records.get_mut(id).filter(|r| r.is_connected) else {
            return;
        };
        record.is_connected = false;
        self.departed += 1;
        let is_nothing = record.value(now_ms).abs() < FORGOTTEN && record.waiting == 0.0;
        if is_nothing {
            self.forget(*id);
        } else if self.departed > MAX_DEPARTED {
            let departed = self.records.iter().filter(|(_, r)| !r.is_connected);
            let least = departed.min_by(|(_, a), (_, b)| {
                let weight = |record: &Record| record.value(now_ms).abs() + record.waiting.abs();
                weight(a).total_cmp(&weight(b))
            });
            if let Some(id) = least.map(|(id, _)| *id) {
                self.forget(id);
            }
        }
    }

    fn forget(&mut self, id: NodeId) {
        let record = self.records.remove(&id);
        self.departed -= usize::from(record.is_some_and(|record| !record.is_connected));
    }

    /// Notes what a peer did; `peers` are connected. Says once if most of them fail at the same time.
    pub(crate) fn report(
        &mut self,
        id: &NodeId,
        conduct: Conduct,
        peers: usize,
        now_ms: u64,
    ) -> Option<OwnFault> {
        let record = self.records.get_mut(id)?;
        if !conduct.is_fault() {
            record.add(conduct.points(), now_ms);
            return None;
        }
        let own_fault = self.failure(*id, peers, now_ms);
        if own_fault.is_some() {
            let is_new = now_ms >= self.own_fault_until_ms;
            self.own_fault_until_ms = now_ms.saturating_add(WINDOW_MS);
            self.faults.clear();
            for record in self.records.values_mut() {
                record.waiting = 0.0;
            }
            return own_fault.filter(|_| is_new);
        }
        if now_ms >= self.own_fault_until_ms {
            self.wait(*id, conduct.points(), now_ms);
        }
        None
    }

    /// Counts a failure. Returns the figures if most peers failed.
    fn failure(&mut self, id: NodeId, peers: usize, now_ms: u64) -> Option<OwnFault> {
        self.failed
            .retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < WINDOW_MS);
        if self.failed.len() < MAX_WAITING {
            self.failed.insert(id, now_ms);
        }
        let is_connected = |id: &NodeId| self.records.get(id).is_some_and(|r| r.is_connected);
        let gone = self.failed.keys().filter(|id| !is_connected(id)).count();
        let (failed, peers) = (self.failed.len(), peers + gone);
        let is_own = peers >= OWN_FAULT_PEERS && failed * 100 > peers * OWN_FAULT_PERCENT;
        is_own.then_some(OwnFault { failed, peers })
    }

    fn wait(&mut self, id: NodeId, points: f64, now_ms: u64) {
        if self.faults.len() >= MAX_WAITING
            && let Some(fault) = self.faults.pop_front()
        {
            self.count(fault, now_ms);
        }
        let at_ms = now_ms;
        self.faults.push_back(Fault { at_ms, id, points });
        if let Some(record) = self.records.get_mut(&id) {
            record.waiting += points;
        }
    }

    fn count(&mut self, fault: Fault, now_ms: u64) {
        if let Some(record) = self.records.get_mut(&fault.id) {
            record.waiting -= fault.points;
            record.add(fault.points, now_ms);
        }
    }

    /// Lets the faults count that have waited long enough. Returns whose they are.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<NodeId> {
        let mut counted = Vec::new();
        while let Some(fault) = self.faults.front().copied() {
            if now_ms.saturating_sub(fault.at_ms) < WINDOW_MS {
                break;
            }
            self.faults.pop_front();
            self.count(fault, now_ms);
            counted.push(fault.id);
        }
        counted
    }

    /// The score; 0 for a node that is not known.
    pub(crate) fn value(&self, id: &NodeId, now_ms: u64) -> f64 {
        self.records.get(id).map_or(0.0, |r| r.value(now_ms))
    }

    /// The score as it will be once the faults count that wait.
    pub(crate) fn expected(&self, id: &NodeId, now_ms: u64) -> f64 {
        let record = self.records.get(id);
        let expected = record.map_or(0.0, |r| r.value(now_ms) + r.waiting);
        expected.clamp(-BEST, BEST)
    }

    /// Whether a peer has to stay away even where its going is inconvenient.
    pub(crate) fn is_worst(&self, id: &NodeId, now_ms: u64) -> bool {
        let was_worst = self.records.get(id).is_some_and(|r| r.was_worst);
        was_worst || self.expected(id, now_ms) <= -BEST
    }

    /// Forgets the faults of a node that has left and would be kept away, also those that wait: it starts afresh.
    pub(crate) fn forgive(&mut self, id: &NodeId, now_ms: u64) {
        let is_gone = self.records.get(id).is_some_and(|r| !r.is_connected);
        if is_gone && self.expected(id, now_ms) <= CUT_SCORE {
            self.faults.retain(|fault| fault.id != *id);
            self.forget(*id);
        }
    }

    /// The ban that a node has earned by faults that count: how long, and whether it lied. Asked once: then it starts afresh from
    /// its score.
    pub(crate) fn take_ban(&mut self, id: &NodeId, now_ms: u64) -> Option<Sentence> {
        let record = self.records.get_mut(id)?;
        if std::mem::take(&mut record.was_worst) {
            record.value = CUT_SCORE;
            record.at_ms = now_ms;
            return Some(Sentence {
                ms: FAR_AWAY_MS,
                is_liar: true,
            });
        }
        (record.value(now_ms) <= CUT_SCORE).then_some(Sentence {
            ms: AWAY_MS,
            is_liar: false,
        })
    }
}

/// How long a node stays away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) ms: u64,
    pub(crate) is_liar: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;
    use proptest::prelude::*;

    fn id(number: usize) -> NodeId {
        NodeId(FixedBytes::left_padding_from(&number.to_be_bytes()))
    }

    fn connected(peers: usize) -> Scores {
        let mut scores = Scores::default();
        (0..peers).for_each(|number| scores.connect(id(number), 0));
        scores
    }

    #[test]
    fn a_score_halves_in_ten_minutes() {
        let mut scores = connected(1);
        for _ in 0..40 {
            scores.report(&id(0), Conduct::Content, 1, 0);
        }
        assert_eq!(scores.value(&id(0), 0), 40.0);
        assert_eq!(scores.value(&id(0), 600_000), 20.0);
        assert_eq!(scores.value(&id(0), 1_200_000), 10.0);
    }

    #[test]
    fn a_fault_counts_after_ten_seconds_and_is_expected_at_once() {
        let mut scores = connected(10);
        scores.report(&id(0), Conduct::BadMessage, 10, 0);
        assert_eq!(scores.expected(&id(0), 0), -50.0);
        assert!(scores.tick(9_999).is_empty());
        assert_eq!(scores.take_ban(&id(0), 9_999), None);
        assert_eq!(scores.tick(10_000), [id(0)]);
        let sentence = scores.take_ban(&id(0), 10_000).unwrap();
        assert_eq!((sentence.ms, sentence.is_liar), (900_000, false));
    }

    #[test]
    fn a_lie_outweighs_the_best_score_and_keeps_a_node_away_for_12_hours() {
        let mut scores = connected(10);
        for _ in 0..200 {
            scores.report(&id(0), Conduct::FirstAnnouncer, 10, 0);
        }
        assert_eq!(scores.value(&id(0), 0), 100.0);
        scores.report(&id(0), Conduct::Lie, 10, 0);
        scores.tick(10_000);
        assert!(scores.is_worst(&id(0), 70_000));
        let sentence = scores.take_ban(&id(0), 70_000).unwrap();
        assert_eq!((sentence.ms, sentence.is_liar), (43_200_000, true));
        assert!(!scores.is_worst(&id(0), 70_000));
    }

    #[test]
    fn no_fault_counts_if_more_than_80_percent_of_the_peers_fail_within_10_seconds() {
        let mut scores = connected(10);
        for number in 0..8 {
            assert_eq!(
                scores.report(&id(number), Conduct::Timeout, 10, 1_000),
                None
            );
        }
        let fault = scores.report(&id(8), Conduct::Timeout, 10, 10_999);
        let expected = OwnFault {
            failed: 9,
            peers: 10,
        };
        assert_eq!(fault, Some(expected));
        assert_eq!(scores.report(&id(9), Conduct::Timeout, 10, 10_999), None);
        assert!(scores.tick(60_000).is_empty());
        assert!((0..10).all(|number| scores.expected(&id(number), 60_000) == 0.0));
    }

    #[test]
    fn failures_11_seconds_apart_do_not_count_together() {
        let mut scores = connected(5);
        for number in 0..5 {
            let at_ms = number as u64 * 11_000;
            assert_eq!(scores.report(&id(number), Conduct::Timeout, 5, at_ms), None);
        }
    }

    #[test]
    fn of_four_peers_all_may_be_at_fault() {
        let mut scores = connected(4);
        for number in 0..4 {
            scores.report(&id(number), Conduct::Lie, 4, 0);
        }
        assert_eq!(scores.tick(10_000).len(), 4);
    }

    #[test]
    fn peers_that_left_after_failing_count_among_those_that_failed() {
        let mut scores = connected(10);
        for number in 0..8 {
            scores.report(&id(number), Conduct::Lie, 10 - number, 0);
            scores.depart(&id(number), 0);
        }
        assert!(scores.report(&id(8), Conduct::Lie, 2, 0).is_some());
    }

    #[test]
    fn of_those_that_left_4096_are_remembered_and_none_without_a_score() {
        let mut scores = Scores::default();
        for number in 0..5000 {
            scores.connect(id(number), 0);
            scores.depart(&id(number), 0);
        }
        assert_eq!(scores.records.len(), 0);
        for number in 0..5000 {
            scores.connect(id(number), 0);
            scores.report(&id(number), Conduct::FirstAnnouncer, 1, 0);
            scores.depart(&id(number), 0);
        }
        assert_eq!(scores.records.len(), MAX_DEPARTED);
    }

    proptest! {
        #[test]
        fn scores_stay_within_their_bounds(
            steps in prop::collection::vec((0..6_u8, 0..4_usize, 0..30_000_u64), 0..200)
        ) {
            const ALL: [Conduct; 7] = [
                Conduct::Content, Conduct::FirstAnnouncer, Conduct::Timeout, Conduct::Empty,
                Conduct::Unproved, Conduct::BadMessage, Conduct::Lie,
            ];
            let (mut scores, mut now_ms) = (connected(10), 0);
            for (conduct, number, elapsed) in steps {
                now_ms += elapsed;
                scores.report(&id(number), ALL[usize::from(conduct)], 10, now_ms);
                scores.tick(now_ms);
                for number in 0..4 {
                    let (value, expected) =
                        (scores.value(&id(number), now_ms), scores.expected(&id(number), now_ms));
                    prop_assert!((-100.0..=100.0).contains(&value));
                    prop_assert!((-100.0..=100.0).contains(&expected));
                }
                prop_assert!(scores.failed.len() <= 4);
            }
            scores.tick(now_ms + 10_000);
            prop_assert!(scores.records.values().all(|record| record.waiting == 0.0));
        }
    }
}
