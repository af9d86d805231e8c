//! A discrete-event simulation of the parallel schedule of `niwaki_execution` on any number of threads.
//!
//! Input: the times and dependences of each transaction. Output: the time at which the last one is committed. It
//! follows the scheduler of `niwaki_execution` step by step, with its constants, and knows no transaction, state or
//! clock.
//!
//! ```text
//! thread 0, commits: | tx 0 sequential | validate tx 1 | validate tx 2 | re-execute tx 3 | ...
//! thread 1:          | speculate tx 2  | speculate tx 3 | ...
//! ```

use niwaki_execution::tuning::{
    CLOCK_CHECK_GAS, HEAD_START, HEAVY_GAS, MIN_REMAINING_NS, MIN_SEQUENTIAL_NS, MIN_WASTE_GAS,
    SPECULATION_WINDOW, TRANSFER_GAS,
};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::Range;

/// A transaction; times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Sequential execution.
    pub(crate) sequential: u64,
    /// Speculative execution.
    pub(crate) speculate: u64,
    /// Validating what it has read, and applying its changes to the block's state.
    pub(crate) validate: u64,
    /// Execution after a failed validation.
    pub(crate) reexecute: u64,
    /// How many transactions must be committed before it starts for its speculation to be valid, without a BAL; `None`
    /// if it is never valid.
    pub(crate) after: Option<usize>,
    /// The transactions it depends on, ascending.
    pub(crate) depends_on: Vec<usize>,
    /// The called contract, as any number.
    pub(crate) to: Option<usize>,
    /// Whether it is a transfer, or a call without input.
    pub(crate) is_plain: bool,
    pub(crate) gas_limit: u64,
    pub(crate) gas_used: u64,
}

/// A block, as the schedule sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockLoad {
    pub(crate) jobs: Vec<Job>,
    /// Other work of the commit thread per transaction, nanoseconds.
    pub(crate) overhead: u64,
    /// From waking a worker until it runs, nanoseconds.
    pub(crate) wake: u64,
    pub(crate) has_bal: bool,
}

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Nanoseconds until the last transaction is committed.
    pub(crate) end: u64,
    pub(crate) validated: usize,
    pub(crate) reexecuted: usize,
    pub(crate) sequential: usize,
    /// The time of the commit thread.
    pub(crate) spent: Spent,
}

/// Nanoseconds of the commit thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) sequential: u64,
    pub(crate) validate: u64,
    pub(crate) reexecute: u64,
    /// Speculation while it waited for a worker.
    pub(crate) speculate: u64,
    /// Waiting with nothing to do.
    pub(crate) idle: u64,
}

impl BlockLoad {
    /// The time of all transactions, executed sequentially.
    pub(crate) fn work(&self) -> u64 {
        self.jobs
            .iter()
            .map(|job| job.sequential + self.overhead)
            .sum()
    }

    /// The longest chain of dependent transactions.
    pub(crate) fn longest_chain(&self) -> u64 {
        let mut ends: Vec<u64> = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let depends_on = job.depends_on.iter().map(|index| ends[*index]);
            let start = match job.after {
                None => ends.iter().copied().max().unwrap_or(0),
                Some(_) if self.has_bal => 0,
                Some(_) => depends_on.max().unwrap_or(0),
            };
            ends.push(start + job.sequential);
        }
        ends.into_iter().max().unwrap_or(0)
    }

    /// The work of the commit thread if all other transactions were speculated and validated.
    pub(crate) fn serial_share(&self) -> u64 {
        let committed = self.jobs.iter().map(|job| match job.after {
            Some(_) if job.gas_limit >= HEAVY_GAS || !is_plain(job) => job.validate,
            _ => job.sequential,
        });
        committed.map(|time| time + self.overhead).sum()
    }
}

fn is_plain(job: &Job) -> bool {
    job.gas_limit <= TRANSFER_GAS || job.is_plain
}

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Free,
    Claimed,
    /// Speculated; whether the result is valid.
    Done(bool),
}

/// Something that ends at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The commit thread has committed its transaction.
    Committed,
    /// A thread has speculated a transaction that it began after `committed` commits; thread 0 is the commit thread.
    Speculated {
        thread: usize,
        index: usize,
        committed: usize,
    },
    /// A worker starts to run.
    WorkerReady(usize),
}

struct Simulation<'l> {
    load: &'l BlockLoad,
    threads: usize,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    slots: Vec<Slot>,
    committed: usize,
    /// The index after the highest that was claimed for speculation.
    next: usize,
    /// Workers without work.
    idle: BTreeSet<usize>,
    /// Validated and re-executed calls of each contract.
    called: HashMap<usize, (u32, u32)>,
    wasted_gas: u64,
    is_over: bool,
    gas_used: u64,
    gas_checked_at: u64,
    has_workers: bool,
    /// Since when the commit thread waits.
    waits_since: Option<u64>,
    outcome: Outcome,
}

/// Simulates a block on this many threads, the commit thread included.
pub(crate) fn simulate(load: &BlockLoad, threads: usize) -> Outcome {
    let mut simulation = Simulation {
        load,
        threads: threads.max(1),
        now: 0,
        events: BinaryHeap::new(),
        slots: vec![Slot::Free; load.jobs.len()],
        committed: 0,
        next: 0,
        idle: BTreeSet::new(),
        called: HashMap::new(),
        wasted_gas: 0,
        is_over: false,
        gas_used: 0,
        gas_checked_at: 0,
        has_workers: threads <= 1,
        waits_since: None,
        outcome: Outcome::default(),
    };
    simulation.start_next();
    while let Some(Reverse((at, event))) = simulation.events.pop() {
        simulation.now = at;
        simulation.handle(event);
        if simulation.committed == load.jobs.len() {
            break;
        }
        simulation.assign_workers();
    }
    simulation.outcome.end = simulation.now;
    simulation.outcome
}

impl Simulation<'_> {
    fn after(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((self.now + time, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Committed => {
                self.gas_used += self.load.jobs[self.committed].gas_used;
                self.committed += 1;
                self.start_next();
            }
            Event::WorkerReady(thread) => {
                self.idle.insert(thread);
            }
            Event::Speculated {
                thread,
                index,
                committed,
            } => {
                let after = self.load.jobs[index].after;
                let is_valid = after.is_some_and(|after| self.load.has_bal || committed >= after);
                self.slots[index] = Slot::Done(is_valid);
                if thread > 0 {
                    self.idle.insert(thread);
                }
                let is_awaited = self.waits_since.is_some() && index == self.committed;
                if thread == 0 || is_awaited {
                    self.commit_or_speculate();
                }
            }
        }
    }

    /// The commit thread starts its next transaction.
    fn start_next(&mut self) {
        let Some(job) = self.load.jobs.get(self.committed) else {
            return;
        };
        if !self.has_workers && self.should_start_workers() {
            self.has_workers = true;
            for thread in 1..self.threads {
                self.after(self.load.wake, Event::WorkerReady(thread));
            }
        }
        if self.slots[self.committed] == Slot::Free {
            self.slots[self.committed] = Slot::Claimed;
            self.outcome.sequential += 1;
            self.outcome.spent.sequential += job.sequential + self.load.overhead;
            self.after(job.sequential + self.load.overhead, Event::Committed);
        } else {
            self.commit_or_speculate();
        }
    }

    /// The next transaction was claimed for speculation: the commit thread commits it if it is done, else speculates
    /// another one meanwhile.
    fn commit_or_speculate(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.outcome.spent.idle += self.now - since;
        }
        let index = self.committed;
        let job = &self.load.jobs[index];
        let Slot::Done(is_valid) = self.slots[index] else {
            match self.claim_next() {
                Some(other) => self.speculate(0, other),
                None => self.waits_since = Some(self.now),
            }
            return;
        };
        self.record_validation(job, is_valid);
        let reexecute = if is_valid { 0 } else { job.reexecute };
        let count = match is_valid {
            true => &mut self.outcome.validated,
            false => &mut self.outcome.reexecuted,
        };
        *count += 1;
        self.outcome.spent.validate += job.validate + self.load.overhead;
        self.outcome.spent.reexecute += reexecute;
        self.after(
            job.validate + reexecute + self.load.overhead,
            Event::Committed,
        );
    }

    fn record_validation(&mut self, job: &Job, is_valid: bool) {
        if self.load.has_bal {
            self.is_over |= !is_valid;
            return;
        }
        if let Some(to) = job.to {
            let (validated, reexecuted) = self.called.entry(to).or_default();
            let count = if is_valid { validated } else { reexecuted };
            *count += 1;
        }
        if !is_valid {
            self.wasted_gas += job.gas_used;
            let gas = self.load.jobs.iter().map(|job| job.gas_used);
            self.is_over |= self.wasted_gas > gas.sum::<u64>().max(MIN_WASTE_GAS);
        }
    }

    fn should_start_workers(&mut self) -> bool {
        if self.gas_used - self.gas_checked_at < CLOCK_CHECK_GAS {
            return false;
        }
        self.gas_checked_at = self.gas_used;
        let jobs = &self.load.jobs;
        let plain = (jobs.len() - self.committed) as u64 * TRANSFER_GAS;
        let gas = jobs.iter().map(|job| job.gas_used).sum::<u64>();
        let rest = gas.saturating_sub(self.gas_used + plain);
        let expected = u128::from(self.now) * u128::from(rest);
        self.now >= MIN_SEQUENTIAL_NS
            && expected >= u128::from(MIN_REMAINING_NS) * u128::from(self.gas_used)
    }

    /// Gives idle workers transactions to speculate.
    fn assign_workers(&mut self) {
        while let Some(thread) = self.idle.first().copied() {
            let Some(index) = self.claim_next() else {
                return;
            };
            self.idle.remove(&thread);
            self.speculate(thread, index);
        }
    }

    fn speculate(&mut self, thread: usize, index: usize) {
        let speculated = Event::Speculated {
            thread,
            index,
            committed: self.committed,
        };
        let time = self.load.jobs[index].speculate;
        if thread == 0 {
            self.outcome.spent.speculate += time;
        }
        self.after(time, speculated);
    }

    fn claim_next(&mut self) -> Option<usize> {
        if self.is_over {
            return None;
        }
        let end = (self.committed + SPECULATION_WINDOW).min(self.slots.len());
        let from = self.next.max(self.committed + HEAD_START);
        let first = self.committed + 1;
        let index = self
            .first_worthwhile(from..end)
            .or_else(|| self.first_worthwhile(first..from.min(end)))?;
        self.slots[index] = Slot::Claimed;
        self.next = self.next.max(index + 1);
        Some(index)
    }

    fn first_worthwhile(&self, mut range: Range<usize>) -> Option<usize> {
        range.find(|index| {
            let job = &self.load.jobs[*index];
            let is_heavy = job.gas_limit >= HEAVY_GAS;
            self.slots[*index] == Slot::Free
                && (is_heavy || !is_plain(job) && !self.is_contended(job.to))
        })
    }

    fn is_contended(&self, to: Option<usize>) -> bool {
        let shares = to.and_then(|to| self.called.get(&to));
        shares.is_some_and(|(validated, reexecuted)| reexecuted > validated)
    }
}

#[cfg(test)]
mod tests;
