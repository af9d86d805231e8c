//! What a changed configuration of a chain means for the blocks that exist.
//!
//! In: the parameters that the blocks were made with, the parameters that are given now, and the head. Out: each
//! difference that affects the head or blocks below it; future forks may change freely. A difference breaks the chain
//! if go-ethereum refuses it, or if existing blocks would be validated differently; all others are reported to the
//! operator.

use crate::bft::BftRules;
use crate::chain_spec::{Activation, ChainSpec};
use crate::genesis::fork_key;
use alloy_primitives::U256;
use niwaki_primitives::{Fork, Header};
use std::collections::BTreeSet;
use std::fmt;

/// A changed parameter that affects existing blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// Its key in a genesis file.
    pub key: String,
    /// Its value when the blocks were made.
    pub was: String,
    /// Its value now.
    pub is: String,
    /// Whether existing blocks, or the next one, break the rules that are given now.
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
            found.breaking(fork_key(fork), &ActivationText(was), &ActivationText(is));
        }
    }
    let dao = |spec: &ChainSpec| spec.dao_fork.filter(|dao| dao.block <= head.number);
    let said = |spec: &ChainSpec| dao(spec).map(|dao| (dao.block, dao.support));
    if said(stored) != said(given) {
        let block = |spec: &ChainSpec| OrAbsent(spec.dao_fork.map(|dao| dao.block));
        found.breaking("daoForkBlock", &block(stored), &block(given));
        let support = |spec: &ChainSpec| OrAbsent(spec.dao_fork.map(|dao| dao.support));
        found.breaking("daoForkSupport", &support(stored), &support(given));
    }
    let netsplit = |spec: &ChainSpec| OrAbsent(spec.merge_netsplit_block);
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
        let ttd = |spec: &ChainSpec| OrAbsent(spec.terminal_total_difficulty);
        found.breaking("terminalTotalDifficulty", &ttd(stored), &ttd(given));
    }
    blob_schedule(stored, given, head, &mut found);
    bft_rules(stored, given, head, &mut found);
    others(stored, given, head, &mut found);
    let Changes(mut changes) = found;
    changes.sort_by_key(|change| !change.is_breaking);
    changes
}

/// Compares blob parameters at every time at which they may have changed. A go-ethereum file may omit the entry of a
/// fork that keeps the parameters, so they are compared by time, not by entry.
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
            // A moved fork is reported by its own key.
            continue;
        };
        if was != is {
            let text = |params: crate::BlobParams| {
                let (target, max) = (params.target, params.max);
                format!("{target}/{max}/{}", params.update_fraction)
            };
            found.breaking("blobSchedule", &text(was), &text(is));
            return;
        }
    }
}

/// Compares what says who made the blocks of a BFT chain, and what they paid, up to the next one. How long a round lasts may change.
fn bft_rules(stored: &ChainSpec, given: &ChainSpec, head: &Header, found: &mut Changes) {
    let next = head.number.saturating_add(1);
    let held = |spec: &ChainSpec| {
        let begun = spec
            .bft_rules
            .iter()
            .filter(|rules| rules.from.has_begun(next, head.timestamp));
        let of_blocks = begun.map(|rules| BftRules {
            request_timeout_s: 0,
            empty_period_s: 0,
            ..rules.clone()
        });
        of_blocks.collect::<Vec<_>>()
    };
    let (was, is) = (held(stored), held(given));
    let longest = was.len().max(is.len());
    let differing = (0..longest).find(|index| was.get(*index) != is.get(*index));
    if let Some(index) = differing {
        let text = |rules: &[BftRules]| match rules.get(index) {
            Some(rules) => format!("{rules:?}"),
            None => "absent".to_owned(),
        };
        found.breaking("qbft, ibft2 or a transition", &text(&was), &text(&is));
    }
}

/// Parameters that go-ethereum does not compare, and that existing blocks may or may not have used.
fn others(stored: &ChainSpec, given: &ChainSpec, head: &Header, found: &mut Changes) {
    let next = head.number.saturating_add(1);
    let limits = |spec: &ChainSpec| {
        let begun = spec.contract_size_limits.iter();
        let begun = begun.filter(|limit| limit.from_block <= next);
        let text: Vec<String> = begun.map(ToString::to_string).collect();
        OrAbsent((!text.is_empty()).then(|| text.join(", ")))
    };
    found.other("contractSizeLimit", &limits(stored), &limits(given));
    let quorum = |spec: &ChainSpec| spec.quorum.map(|quorum| quorum.gas_price_block);
    if quorum(stored) != quorum(given) {
        let text = |spec: &ChainSpec| format!("{:?}", spec.quorum);
        found.other("isQuorum, enableGasPriceBlock", &text(stored), &text(given));
    }
    if stored.fork_of(head) >= Fork::London {
        let (was, is) = (stored.zero_base_fee, given.zero_base_fee);
        found.other("zeroBaseFee", &was, &is);
        let is_fixed = |spec: &ChainSpec| spec.fixed_base_fee.is_some();
        found.other("fixedBaseFee", &is_fixed(stored), &is_fixed(given));
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
        let text = |spec: &ChainSpec| format!("{:?}", spec.seal);
        found.other("the seal of blocks", &text(stored), &text(given));
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

/// Displays a value that may be absent.
#[derive(PartialEq)]
struct OrAbsent<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrAbsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("absent"),
        }
    }
}

/// Displays when a fork activates.
#[derive(PartialEq)]
struct ActivationText(Activation);

impl fmt::Display for ActivationText {
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
    use crate::chain_spec::{ContractSizeLimit, DaoFork};

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

    /// The reported changes if `change` is applied to a chain with a head of this number and time.
    fn changes_of(number: u64, timestamp: u64, change: impl FnOnce(&mut ChainSpec)) -> Vec<String> {
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
        let lines = changes
            .iter()
            .map(|change| format!("{}{change}", mark(change.is_breaking)));
        lines.collect()
    }

    #[test]
    fn an_active_fork_can_not_change_and_a_future_one_can() {
        let london = |to: Activation| move |spec: &mut ChainSpec| spec.set(Fork::London, to);
        assert_eq!(changes_of(9, 0, london(Activation::Block(11))), [""; 0]);
        assert_eq!(changes_of(9, 0, london(Activation::Never)), [""; 0]);
        let moved = ["!londonBlock was 10 and is 11"];
        assert_eq!(changes_of(10, 0, london(Activation::Block(11))), moved);
        let past = ["!londonBlock was 10 and is 9"];
        assert_eq!(changes_of(9, 0, london(Activation::Block(9))), past);
        let lost = ["!londonBlock was 10 and is absent"];
        assert_eq!(changes_of(10, 0, london(Activation::Never)), lost);
    }

    #[test]
    fn forks_by_time_are_compared_with_the_time_of_the_head() {
        let shanghai = |to: Activation| move |spec: &mut ChainSpec| spec.set(Fork::Shanghai, to);
        assert_eq!(
            changes_of(9, 999, shanghai(Activation::Time(1001))),
            [""; 0]
        );
        let moved = ["!shanghaiTime was 1000 and is 1001"];
        assert_eq!(changes_of(9, 1000, shanghai(Activation::Time(1001))), moved);
        let new = changes_of(9, 5000, |spec| {
            spec.set(Fork::Osaka, Activation::Time(5000))
        });
        assert_eq!(new, ["!osakaTime was absent and is 5000"]);
        let ahead = changes_of(9, 5000, |spec| {
            spec.set(Fork::Osaka, Activation::Time(5001))
        });
        assert_eq!(ahead, [""; 0]);
    }

    #[test]
    fn a_changed_validity_rule_of_stored_blocks_is_breaking() {
        assert_eq!(
            changes_of(1, 1, |spec| spec.chain_id = 2),
            ["!chainId was 1 and is 2"]
        );
        let ttd = |spec: &mut ChainSpec| spec.terminal_total_difficulty = Some(U256::from(600));
        assert_eq!(changes_of(9, 1, ttd), [""; 0]);
        assert_eq!(
            changes_of(10, 1, ttd),
            ["!terminalTotalDifficulty was 500 and is 600"]
        );
        let blobs = |spec: &mut ChainSpec| {
            spec.blob_schedule[Fork::Cancun as usize] = Some(BlobParams::new(4, 6, 3_338_477));
        };
        assert_eq!(changes_of(9, 1999, blobs), [""; 0]);
        // Prague's own figures are those of the head; Cancun's were other blocks'.
        for time in [2000, 4000] {
            let changed = ["!blobSchedule was 3/6/3338477 and is 4/6/3338477"];
            assert_eq!(changes_of(9, time, blobs), changed);
        }
        let dao = |spec: &mut ChainSpec| {
            spec.dao_fork = Some(DaoFork {
                block: 7,
                support: false,
            });
        };
        assert_eq!(changes_of(6, 1, dao), [""; 0]);
        assert_eq!(changes_of(7, 1, dao).len(), 2);
        let netsplit = |spec: &mut ChainSpec| spec.merge_netsplit_block = Some(5);
        assert_eq!(changes_of(4, 1, netsplit), [""; 0]);
        assert_eq!(
            changes_of(5, 1, netsplit),
            ["!mergeNetsplitBlock was absent and is 5"]
        );
    }

    #[test]
    fn a_change_that_stored_blocks_may_not_have_used_is_reported_but_not_breaking() {
        let limit = changes_of(1, 1, |spec| {
            spec.contract_size_limits = vec![ContractSizeLimit::always(64)];
        });
        assert_eq!(limit, ["?contractSizeLimit was absent and is 64"]);
        let deposits = |spec: &mut ChainSpec| spec.deposit_contract = Default::default();
        assert_eq!(changes_of(9, 2999, deposits), [""; 0]);
        let changes = changes_of(9, 3000, deposits);
        assert!(
            changes[0].starts_with("?depositContractAddress was 0x0000"),
            "{changes:?}"
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
