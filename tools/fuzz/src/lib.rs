//! Differential fuzzing of the state transition against revm and go-ethereum.
//!
//! A case is a fork, a small state full of contracts, and a few transactions in one block, all
//! drawn from one seed. Both machines run it; every transaction must be accepted or refused alike,
//! end alike, cost the same gas, return the same bytes and log the same logs, and the state after
//! the block must be the same. The seed of a case is all it takes to see a difference again.
//!
//! [`check_block`] does the same with whole blocks, system calls and requests among them, beside
//! go-ethereum's `evm t8n`, where that program is at hand.

mod block;
mod case;
mod ours;
mod peer;
mod program;
mod terms;

pub use block::{BLOCK_FORKS, T8n, check_block};
pub use case::{Case, Outcome};
pub use terms::{spec_id, tx_env};

use niwaki_evm::Dispatch;
use niwaki_primitives::Fork;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// The forks that both machines know.
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

/// Two machines that do not agree.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the case.
    pub seed: u64,
    /// The fork of the case.
    pub fork: Fork,
    /// What differs, ours first.
    pub what: String,
}

/// What a run of cases looked like: random programs that all fail at once would prove nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Transactions that both refused.
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

/// Runs the case of `seed` on both machines, ours with `dispatch`; the fork is drawn unless it is
/// given.
///
/// # Errors
/// The first [`Difference`].
pub fn check(
    seed: u64,
    fork: Option<Fork>,
    dispatch: Dispatch,
    tally: &mut Tally,
) -> Result<(), Difference> {
    let case = Case::of(seed, fork);
    let (ours, our_state) = ours::run(&case, dispatch);
    let (theirs, their_state) = peer::run(&case);
    let differs = |what: String| Difference {
        seed,
        fork: case.fork,
        what,
    };
    for (at, (us, them)) in ours.iter().zip(&theirs).enumerate() {
        if us != them {
            return Err(differs(format!(
                "transaction {at}:\n  niwaki {us:?}\n  revm   {them:?}"
            )));
        }
        tally.count(us);
    }
    let addresses: std::collections::BTreeSet<_> =
        our_state.keys().chain(their_state.keys()).collect();
    for address in addresses {
        let (us, them) = (our_state.get(address), their_state.get(address));
        if us != them {
            return Err(differs(format!(
                "account {address}:\n  niwaki {us:?}\n  revm   {them:?}"
            )));
        }
    }
    Ok(())
}

/// How long to look, and where.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The first seed.
    pub seed: u64,
    /// Cases to run; `u64::MAX` for as many as the time allows.
    pub cases: u64,
    /// When to stop.
    pub until: Option<Instant>,
    /// Threads.
    pub jobs: usize,
    /// Cases that a thread takes at once.
    pub chunk: u64,
}

/// What checks the case of one seed: [`check`] or [`check_block`].
pub type Check<'a> = &'a (dyn Fn(u64, &mut Tally) -> Result<(), Difference> + Sync);

/// Runs cases until the search is over or a difference is found. Gives the number of cases run
/// and what they looked like; `progress` is told of the number now and then.
///
/// # Errors
/// The [`Difference`] found first.
pub fn search(
    search: &Search,
    check: Check<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(u64, Tally), Difference> {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let found: Mutex<Option<Difference>> = Mutex::new(None);
    let tally = Mutex::new(Tally::default());
    let stop = || {
        let late = search.until.is_some_and(|until| Instant::now() >= until);
        late || found
            .lock()
            .expect("no thread panics while it holds the lock")
            .is_some()
    };
    let work = || {
        let mut own = Tally::default();
        while !stop() {
            let first = next.fetch_add(search.chunk, Ordering::Relaxed);
            if first >= search.cases {
                break;
            }
            let chunk = first..first.saturating_add(search.chunk).min(search.cases);
            let cases = chunk.end - chunk.start;
            for case in chunk {
                let seed = search.seed.wrapping_add(case);
                if let Err(difference) = check(seed, &mut own) {
                    *found.lock().expect("as above") = Some(difference);
                    return;
                }
            }
            progress(done.fetch_add(cases, Ordering::Relaxed) + cases);
        }
        tally.lock().expect("as above").add(&own);
    };
    std::thread::scope(|scope| {
        for _ in 0..search.jobs.max(1) {
            scope.spawn(work);
        }
    });
    match found.into_inner().expect("as above") {
        Some(difference) => Err(difference),
        None => Ok((done.into_inner(), tally.into_inner().expect("as above"))),
    }
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

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
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
    fn the_first_thousand_seeds_agree_with_revm_on_every_dispatch() {
        niwaki_evm::set_runs_to_be_hot(1);
        for dispatch in Dispatch::ALL {
            let look = Search {
                seed: 0,
                cases: 1000,
                until: None,
                jobs: 2,
                chunk: 64,
            };
            let check = |seed, tally: &mut Tally| check(seed, None, dispatch, tally);
            match search(&look, &check, &|_| ()) {
                Err(difference) => panic!("{difference:?}"),
                Ok((cases, tally)) => {
                    assert_eq!(cases, 1000);
                    assert!(
                        tally.succeeded > 500,
                        "most cases must get somewhere: {tally:?}"
                    );
                }
            }
        }
    }
}
