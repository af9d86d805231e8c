//! Differential fuzzing of the state transition against revm and go-ethereum.
//!
//! A case is a fork, a small state full of contracts, and a few transactions in one block, all drawn from one seed.
//! Both machines run it: validity, end, gas, output and logs of each transaction and the post-state must be equal. The
//! seed reproduces a difference.
//!
//! [`check_traces`] compares the first transaction of a case with go-ethereum's, opcode by opcode, [`check_block`] whole
//! blocks, and [`check_precompile`] the two libraries of a precompiled contract. A case that differs is shrunk, and
//! printed as a state test if one transaction shows the difference.
//!
//! | file | what it is |
//! |---|---|
//! | `case`, `program`, `program/edges` | drawing of cases and of their programs |
//! | `ours`, `peer`, `terms` | a case on this machine, on revm, and revm's names |
//! | `trace`, `statetest`, `state_test` | EIP-3155 traces, go-ethereum's `evm statetest`, a case as a state test |
//! | `block/*` | whole blocks: drawing, signing, execution here and by `evm t8n`, comparison |
//! | `precompiles/*` | inputs of precompiled contracts: drawing, simple reference forms, prices |
//! | `shrink` | shrinking of cases that differ |

mod block;
mod case;
mod ours;
mod peer;
mod precompiles;
mod program;
mod shrink;
mod state_test;
mod statetest;
mod terms;
mod trace;

pub use block::{BLOCK_FORKS, T8n, check_block};
pub use case::{Case, Outcome};
pub use precompiles::{
    CONTRACTS, Disagreement, Outcomes, check_precompile, contract_at, valid_input,
};
pub use state_test::state_test;
pub use statetest::Statetest;
pub use terms::{revm_block, spec_id, tx_env};

use niwaki_evm::{Dispatch, Exit};
use niwaki_primitives::Fork;
use serde_json::Value;
use shrink::shrink;
use std::{
    collections::BTreeSet,
    ops::{AddAssign, Range},
    sync::Mutex,
    time::Instant,
};

/// The forks that both machines have.
pub const FORKS: [Fork; 15] = [
    Fork::Frontier,
    Fork::Homestead,
    Fork::TangerineWhistle,
    Fork::SpuriousDragon,
    Fork::Byzantium,
    Fork::Petersburg,
    Fork::Istanbul,
    Fork::Berlin,
    Fork::London,
    Fork::Paris,
    Fork::Shanghai,
    Fork::Cancun,
    Fork::Prague,
    Fork::Osaka,
    Fork::Amsterdam,
];

/// A difference between two machines.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the case.
    pub seed: u64,
    /// The fork of the case.
    pub fork: Fork,
    /// What differs, ours first.
    pub what: String,
    /// A state test that shows it, with one shrunk transaction; `None` if it needs several.
    pub test: Option<Value>,
}

/// Statistics of a run, since random programs that all fail at once would prove nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Transactions that both found invalid.
    pub refused: u64,
    /// Transactions that succeeded.
    pub succeeded: u64,
    /// Transactions that reverted.
    pub reverted: u64,
    /// Transactions that halted.
    pub halted: u64,
    /// Gas of all transactions.
    pub gas: u64,
}

/// Runs the case of `seed` here with `dispatch` and on revm; the fork is drawn unless given.
///
/// # Errors
/// The first [`Difference`], shrunk.
pub fn check(
    seed: u64,
    fork: Option<Fork>,
    dispatch: Dispatch,
    tally: &mut Tally,
) -> Result<(), Difference> {
    let case = Case::of(seed, fork);
    let found = difference_from_revm(&case, dispatch, &mut |outcome| tally.count(outcome));
    match found {
        Some(what) => Err(shrunk(seed, case, what, &|case| {
            difference_from_revm(case, dispatch, &mut |_| ())
        })),
        None => Ok(()),
    }
}

/// Runs the first transactions of the cases of `seeds` here and on go-ethereum, and compares their traces and
/// post-states; the fork is drawn unless given.
///
/// # Errors
/// The first [`Difference`], shrunk.
pub fn check_traces(
    seeds: Range<u64>,
    fork: Option<Fork>,
    peer: &Statetest,
    tally: &mut Tally,
) -> Result<(), Difference> {
    let first = seeds.start;
    let cases: Vec<Case> = seeds.map(|seed| Case::of(seed, fork)).collect();
    let theirs = peer.run(&cases);
    for ((seed, case), theirs) in (first..).zip(cases).zip(theirs) {
        let (ours, result) = trace::Trace::of(&case);
        if let Some(what) = ours.difference(&theirs, case.fork) {
            return Err(shrunk(seed, case, what, &|case| {
                let theirs = peer.run(std::slice::from_ref(case)).pop()?;
                trace::Trace::of(case).0.difference(&theirs, case.fork)
            }));
        }
        match result {
            Err(_) => tally.refused += 1,
            Ok(result) => {
                tally.gas += result.gas_used;
                match result.exit {
                    Exit::Revert => tally.reverted += 1,
                    Exit::Halt(_) => tally.halted += 1,
                    _ => tally.succeeded += 1,
                }
            }
        }
    }
    Ok(())
}

/// The shrunk difference of a case in which `what` differs.
fn shrunk(seed: u64, case: Case, what: String, differs: shrink::Differs<'_>) -> Difference {
    let fork = case.fork;
    let (small, what) = shrink(case, what, differs);
    let name = format!("fuzz-{}-{seed}", fork.name().to_lowercase());
    let alone = small.transactions.len() == 1;
    Difference {
        seed,
        fork,
        what,
        test: alone.then(|| state_test(&name, &small)),
    }
}

/// The difference from revm in a case; `ran` is called with equal outcomes.
fn difference_from_revm(
    case: &Case,
    dispatch: Dispatch,
    ran: &mut dyn FnMut(&Outcome),
) -> Option<String> {
    let (ours, our_state) = ours::run(case, dispatch);
    let (theirs, their_state) = peer::run(case);
    for (at, (us, them)) in ours.iter().zip(&theirs).enumerate() {
        if us != them {
            return Some(format!(
                "transaction {at}:\n  niwaki {us:?}\n  revm   {them:?}"
            ));
        }
        ran(us);
    }
    let addresses: BTreeSet<_> = our_state.keys().chain(their_state.keys()).collect();
    addresses.into_iter().find_map(|address| {
        let (us, them) = (our_state.get(address), their_state.get(address));
        (us != them).then(|| format!("account {address}:\n  niwaki {us:?}\n  revm   {them:?}"))
    })
}

/// The extent of a search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The seed of case 0.
    pub seed: u64,
    /// First case and end; `u64::MAX` for as many as the time allows.
    pub cases: (u64, u64),
    /// When to stop.
    pub until: Option<Instant>,
    /// Threads.
    pub jobs: usize,
    /// Cases that a thread takes at once.
    pub chunk: u64,
}

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress<T> {
    /// Cases that were run.
    pub cases: u64,
    /// All cases before this one were run.
    pub next: u64,
    /// Their statistics.
    pub tally: T,
}

/// A check of the cases of some seeds, which adds to a tally.
pub type Check<'a, T, D> = &'a (dyn Fn(Range<u64>, &mut T) -> Result<(), D> + Sync);

/// Runs `check` on the seeds of one chunk of cases after another until the search is over or a difference is found.
/// `should_continue` is called with the progress now and then; if it returns false, running cases are completed.
///
/// # Errors
/// The difference found first.
pub fn search<T: Default + AddAssign + Send, D: Send>(
    search: &Search,
    check: Check<'_, T, D>,
    should_continue: &(dyn Fn(&Progress<T>) -> bool + Sync),
) -> Result<Progress<T>, D> {
    let (first, end) = search.cases;
    let found: Mutex<Option<D>> = Mutex::new(None);
    // The progress, the next case, and the chunks that are running.
    let shared = Mutex::new((Progress::default(), first, BTreeSet::new()));
    let lock = || shared.lock().expect("no thread panics while it holds it");
    let is_late = || search.until.is_some_and(|until| Instant::now() >= until);
    let work = || {
        while !is_late() && found.lock().expect("as above").is_none() {
            let mut locked = lock();
            let (progress, next, running) = &mut *locked;
            progress.next = running.first().copied().unwrap_or(*next);
            if *next >= end || !should_continue(progress) {
                break;
            }
            let chunk = *next..next.saturating_add(search.chunk).min(end);
            *next = chunk.end;
            running.insert(chunk.start);
            drop(locked);

            let mut tally = T::default();
            let seed = |case: u64| search.seed.saturating_add(case);
            let result = check(seed(chunk.start)..seed(chunk.end), &mut tally);
            if let Err(difference) = result {
                let mut found = found.lock().expect("as above");
                found.get_or_insert(difference);
                return;
            }
            let (progress, _, running) = &mut *lock();
            running.remove(&chunk.start);
            progress.cases += chunk.end - chunk.start;
            progress.tally += tally;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..search.jobs.max(1) {
            scope.spawn(work);
        }
    });
    if let Some(difference) = found.into_inner().expect("as above") {
        return Err(difference);
    }
    let (progress, next, _) = shared.into_inner().expect("as above");
    Ok(Progress { next, ..progress })
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Ran { end, gas_used, .. } => {
                self.gas += gas_used;
                match end {
                    case::End::Success => self.succeeded += 1,
                    case::End::Revert => self.reverted += 1,
                    case::End::Halt => self.halted += 1,
                }
            }
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.refused += other.refused;
        self.succeeded += other.succeeded;
        self.reverted += other.reverted;
        self.halted += other.halted;
        self.gas += other.gas;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_1000_seeds_agree_with_revm_on_every_dispatch() {
        niwaki_evm::set_hot_threshold(1);
        for dispatch in Dispatch::ALL {
            let plan = Search {
                seed: 0,
                cases: (0, 1000),
                until: None,
                jobs: 2,
                chunk: 64,
            };
            let check = |mut seeds: Range<u64>, tally: &mut Tally| {
                seeds.try_for_each(|seed| check(seed, None, dispatch, tally))
            };
            match search(&plan, &check, &|_| true) {
                Err(difference) => panic!("{difference:?}"),
                Ok(Progress { cases, next, tally }) => {
                    assert_eq!((cases, next), (1000, 1000));
                    assert!(
                        tally.succeeded > 500,
                        "most cases must get somewhere: {tally:?}"
                    );
                }
            }
        }
    }
}
