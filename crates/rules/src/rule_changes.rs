//! What another configuration of a chain changes about the blocks that it has.
//!
//! Goes in: the parameters that the blocks were made by, those that are given now, and the head.
//! Comes out: each difference that reaches back to the head or below. Forks that lie ahead may move
//! as they like. What breaks the chain is what go-ethereum refuses, and what else would judge the
//! blocks that are there differently; the rest is for the operator to know.

use crate::chain_spec::{Activation, ChainSpec};
use crate::genesis::fork_key;
use alloy_primitives::U256;
use niwaki_primitives::{Fork, Header};
use std::collections::BTreeSet;
use std::fmt;

/// A parameter that reaches back to blocks that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// Its key in a genesis file.
    pub key: String,
    /// What it was when the blocks were made.
    pub was: String,
    /// What it is now.
    pub is: String,
    /// Whether blocks that are there, or the next one, break the rules that are given now.
    pub is_breaking: bool,
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {} and is {}", self.key, self.was, self.is)
    }
}

/// The differences between `stored` and `given` that concern `head` or blocks below it, those that
/// break the chain first. `total_difficulty` is the head's.
pub fn rule_changes(
    stored: &ChainSpec,
    given: &ChainSpec,
    head: &Header,
    total_difficulty: U256,
) -> Vec<RuleChange> {
    let mut found = Changes(Vec::new());
    found.breaking("chainId", &stored.chain_id, &given.chain_id);
    for fork in Fork::ALL {
        let (was, is) = (stored.activation(fork), given.activation(fork));
        let has_begun = has_begun(was, head) || has_begun(is, head);
        if has_begun && !is_petersburg_with_constantinople(fork, stored, is) {
            found.breaking(fork_key(fork), &Began(was), &Began(is));
        }
    }
    let dao = |spec: &ChainSpec| spec.dao_fork.filter(|dao| dao.block <= head.number);
    let said = |spec: &ChainSpec| dao(spec).map(|dao| (dao.block, dao.support));
    if said(stored) != said(given) {
        let block = |spec: &ChainSpec| Absent(spec.dao_fork.map(|dao| dao.block));
        found.breaking("daoForkBlock", &block(stored), &block(given));
        let support = |spec: &ChainSpec| Absent(spec.dao_fork.map(|dao| dao.support));
        found.breaking("daoForkSupport", &support(stored), &support(given));
    }
    let netsplit = |spec: &ChainSpec| Absent(spec.merge_netsplit_block);
    if [stored, given]
        .iter()
        .any(|spec| reaches(spec.merge_netsplit_block, head.number))
    {
        found.breaking("mergeNetsplitBlock", &netsplit(stored), &netsplit(given));
    }
    if [stored, given]
        .iter()
        .any(|spec| spec.is_terminal(total_difficulty))
    {
        let ttd = |spec: &ChainSpec| Absent(spec.terminal_total_difficulty);
        found.breaking("terminalTotalDifficulty", &ttd(stored), &ttd(given));
    }
    blob_schedule(stored, given, head, &mut found);
    others(stored, given, head, &mut found);
    let Changes(mut changes) = found;
    changes.sort_by_key(|change| !change.is_breaking);
    changes
}

/// Blob parameters of every time at which they may have changed. A file of go-ethereum's may leave
/// out the entry of a fork that has those of the fork before, so they are compared by time.
fn blob_schedule(stored: &ChainSpec, given: &ChainSpec, head: &Header, found: &mut Changes) {
    let times: BTreeSet<u64> = [stored, given]
        .iter()
        .flat_map(|spec| spec.fork_times(0))
        .chain([0, head.timestamp])
        .filter(|time| *time <= head.timestamp)
        .collect();
    for time in times {
        let (Some(was), Some(is)) = (stored.blob_params_at(time), given.blob_params_at(time))
        else {
            // A fork that began or ended is told by its own key.
            continue;
        };
        if was != is {
            let told = |params: crate::BlobParams| {
                let (target, max) = (params.target, params.max);
                format!("{target}/{max}/{}", params.update_fraction)
            };
            found.breaking("blobSchedule", &told(was), &told(is));
            return;
        }
    }
}

/// What go-ethereum does not compare, and what blocks may or may not have made use of.
fn others(stored: &ChainSpec, given: &ChainSpec, head: &Header, found: &mut Changes) {
    let limit = |spec: &ChainSpec| Absent(spec.contract_size_limit);
    found.other("contractSizeLimit", &limit(stored), &limit(given));
    if stored.fork_of(head) >= Fork::London {
        let (was, is) = (stored.zero_base_fee, given.zero_base_fee);
        found.other("zeroBaseFee", &was, &is);
    }
    if stored.fork_of(head) >= Fork::Prague {
        for (key, of) in [
            (
                "depositContractAddress",
                (|spec| spec.deposit_contract) as fn(&ChainSpec) -> _,
            ),
            ("withdrawalRequestContractAddress", |spec| {
                spec.withdrawal_request_contract
            }),
            ("consolidationRequestContractAddress", |spec| {
                spec.consolidation_request_contract
            }),
        ] {
            found.other(key, &of(stored), &of(given));
        }
    }
    if stored.seal != given.seal {
        let told = |spec: &ChainSpec| format!("{:?}", spec.seal);
        found.other("the seal of blocks", &told(stored), &told(given));
    }
}

fn has_begun(activation: Activation, head: &Header) -> bool {
    match activation {
        Activation::Block(block) => block <= head.number,
        Activation::Time(time) => time <= head.timestamp,
        // Paris is compared by its difficulty.
        Activation::Never | Activation::TotalDifficulty => false,
    }
}

fn reaches(block: Option<u64>, head: u64) -> bool {
    block.is_some_and(|block| block <= head)
}

/// go-ethereum lets a file name Petersburg late if it begins with Constantinople.
fn is_petersburg_with_constantinople(fork: Fork, stored: &ChainSpec, is: Activation) -> bool {
    fork == Fork::Petersburg
        && stored.activation(fork) == Activation::Never
        && stored.activation(Fork::Constantinople) == is
}

struct Changes(Vec<RuleChange>);

impl Changes {
    fn breaking<T: PartialEq + fmt::Display>(&mut self, key: &str, was: &T, is: &T) {
        self.add(key, was, is, true);
    }

    fn other<T: PartialEq + fmt::Display>(&mut self, key: &str, was: &T, is: &T) {
        self.add(key, was, is, false);
    }

    fn add<T: PartialEq + fmt::Display>(&mut self, key: &str, was: &T, is: &T, is_breaking: bool) {
        if was != is {
            self.0.push(RuleChange {
                key: key.to_owned(),
                was: was.to_string(),
                is: is.to_string(),
                is_breaking,
            });
        }
    }
}

/// A value that may be absent.
#[derive(PartialEq)]
struct Absent<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Absent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("absent"),
        }
    }
}

/// When a fork begins.
#[derive(PartialEq)]
struct Began(Activation);

impl fmt::Display for Began {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Activation::Never => f.write_str("absent"),
            Activation::TotalDifficulty => f.write_str("at the terminal total difficulty"),
            Activation::Block(at) | Activation::Time(at) => at.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlobParams;
    use crate::chain_spec::DaoFork;

    /// London at block 10, Shanghai at 1000, Cancun at 2000, Prague at 3000; merged at 500.
    fn chain() -> ChainSpec {
        let mut spec = ChainSpec::single(1, Fork::Berlin);
        spec.set(Fork::London, Activation::Block(10));
        spec.set(Fork::Shanghai, Activation::Time(1000));
        spec.set(Fork::Cancun, Activation::Time(2000));
        spec.set(Fork::Prague, Activation::Time(3000));
        spec.set(Fork::Paris, Activation::TotalDifficulty);
        spec.terminal_total_difficulty = Some(U256::from(500));
        spec
    }

    /// What `change` changes about a chain with a head of this number and time.
    fn told(number: u64, timestamp: u64, change: impl FnOnce(&mut ChainSpec)) -> Vec<String> {
        let stored = chain();
        let mut given = chain();
        change(&mut given);
        let head = Header {
            number,
            timestamp,
            ..Header::default()
        };
        let total = U256::from(if number >= 10 { 500 } else { 499 });
        let changes = rule_changes(&stored, &given, &head, total);
        let mark = |breaks: bool| if breaks { "!" } else { "?" };
        let told = changes
            .iter()
            .map(|change| format!("{}{change}", mark(change.is_breaking)));
        told.collect()
    }

    #[test]
    fn a_fork_that_has_begun_neither_moves_nor_goes_and_one_ahead_may() {
        let london = |to: Activation| move |spec: &mut ChainSpec| spec.set(Fork::London, to);
        assert_eq!(told(9, 0, london(Activation::Block(11))), [""; 0]);
        assert_eq!(told(9, 0, london(Activation::Never)), [""; 0]);
        let moved = ["!londonBlock was 10 and is 11"];
        assert_eq!(told(10, 0, london(Activation::Block(11))), moved);
        let past = ["!londonBlock was 10 and is 9"];
        assert_eq!(told(9, 0, london(Activation::Block(9))), past);
        let lost = ["!londonBlock was 10 and is absent"];
        assert_eq!(told(10, 0, london(Activation::Never)), lost);
    }

    #[test]
    fn forks_by_time_are_compared_with_the_time_of_the_head() {
        let shanghai = |to: Activation| move |spec: &mut ChainSpec| spec.set(Fork::Shanghai, to);
        assert_eq!(told(9, 999, shanghai(Activation::Time(1001))), [""; 0]);
        let moved = ["!shanghaiTime was 1000 and is 1001"];
        assert_eq!(told(9, 1000, shanghai(Activation::Time(1001))), moved);
        let new = told(9, 5000, |spec| {
            spec.set(Fork::Osaka, Activation::Time(5000))
        });
        assert_eq!(new, ["!osakaTime was absent and is 5000"]);
        let ahead = told(9, 5000, |spec| {
            spec.set(Fork::Osaka, Activation::Time(5001))
        });
        assert_eq!(ahead, [""; 0]);
    }

    #[test]
    fn what_else_judges_blocks_that_are_there_is_breaking() {
        assert_eq!(
            told(1, 1, |spec| spec.chain_id = 2),
            ["!chainId was 1 and is 2"]
        );
        let ttd = |spec: &mut ChainSpec| spec.terminal_total_difficulty = Some(U256::from(600));
        assert_eq!(told(9, 1, ttd), [""; 0]);
        assert_eq!(
            told(10, 1, ttd),
            ["!terminalTotalDifficulty was 500 and is 600"]
        );
        let blobs = |spec: &mut ChainSpec| {
            spec.blob_schedule[Fork::Cancun as usize] = Some(BlobParams::new(4, 6, 3_338_477));
        };
        assert_eq!(told(9, 1999, blobs), [""; 0]);
        // Prague's own figures are those of the head; Cancun's were other blocks'.
        for time in [2000, 4000] {
            let changed = ["!blobSchedule was 3/6/3338477 and is 4/6/3338477"];
            assert_eq!(told(9, time, blobs), changed);
        }
        let dao = |spec: &mut ChainSpec| {
            spec.dao_fork = Some(DaoFork {
                block: 7,
                support: false,
            });
        };
        assert_eq!(told(6, 1, dao), [""; 0]);
        assert_eq!(told(7, 1, dao).len(), 2);
        let netsplit = |spec: &mut ChainSpec| spec.merge_netsplit_block = Some(5);
        assert_eq!(told(4, 1, netsplit), [""; 0]);
        assert_eq!(
            told(5, 1, netsplit),
            ["!mergeNetsplitBlock was absent and is 5"]
        );
    }

    #[test]
    fn what_blocks_may_not_have_used_is_told_and_breaks_nothing() {
        let limit = told(1, 1, |spec| spec.contract_size_limit = Some(64));
        assert_eq!(limit, ["?contractSizeLimit was absent and is 64"]);
        let deposits = |spec: &mut ChainSpec| spec.deposit_contract = Default::default();
        assert_eq!(told(9, 2999, deposits), [""; 0]);
        let told = told(9, 3000, deposits);
        assert!(
            told[0].starts_with("?depositContractAddress was 0x0000"),
            "{told:?}"
        );
    }

    #[test]
    fn petersburg_may_be_named_late_if_it_begins_with_constantinople() {
        let mut stored = ChainSpec::single(1, Fork::Constantinople);
        stored.set(Fork::Constantinople, Activation::Block(3));
        let head = Header {
            number: 9,
            ..Header::default()
        };
        for (block, breaks) in [(3, 0), (4, 1)] {
            let mut given = stored.clone();
            given.set(Fork::Petersburg, Activation::Block(block));
            let changes = rule_changes(&stored, &given, &head, U256::ZERO);
            assert_eq!(changes.len(), breaks);
        }
    }
}
