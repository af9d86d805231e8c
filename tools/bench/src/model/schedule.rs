//! The schedule of `niwaki_execution` on any number of threads, event after event, in simulated time.
//!
//! In go what each transaction takes and waits for, out comes when the last one counts. It follows
//! `parallel/run.rs` step by step, with its figures, and knows no transaction, no state and no clock.

use niwaki_execution::tuning::{
    CLOCK_CHECK_GAS, HEAD_START, HEAVY_GAS, MIN_REMAINING_NS, MIN_SEQUENTIAL_NS, MIN_WASTE_GAS,
    SPECULATION_WINDOW, TRANSFER_GAS,
};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::Range;

/// A transaction: times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Run when it is its turn.
    pub(crate) in_turn: u64,
    /// Run ahead of it.
    pub(crate) ahead: u64,
    /// To compare what it has read, and lay what it has changed upon the block's state.
    pub(crate) adopt: u64,
    /// Run in its turn, after a run ahead for nothing.
    pub(crate) again: u64,
    /// How many must count before a run ahead holds, without a list.
    pub(crate) after: Option<usize>,
    /// Those whose changes it looks at, ascending.
    pub(crate) upon: Vec<usize>,
    /// Whom it calls, by any number.
    pub(crate) to: Option<usize>,
    /// Whether it is a transfer, or a call without input.
    pub(crate) is_plain: bool,
    pub(crate) gas_limit: u64,
    pub(crate) gas_used: u64,
}

/// A block, as the schedule sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) jobs: Vec<Job>,
    /// What the committing thread does beside them, for each, nanoseconds.
    pub(crate) each: u64,
    /// From a call for help to the first thread that comes, nanoseconds.
    pub(crate) wake: u64,
    pub(crate) has_list: bool,
}

/// What came of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Nanoseconds until the last transaction counts.
    pub(crate) end: u64,
    pub(crate) kept: usize,
    pub(crate) repeated: usize,
    pub(crate) in_turn: usize,
    /// What the committing thread spent its time on.
    pub(crate) spent: Spent,
}

/// Nanoseconds of the committing thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) in_turn: u64,
    pub(crate) adopt: u64,
    pub(crate) again: u64,
    /// What it ran ahead while it waited for another.
    pub(crate) ahead: u64,
    /// With nothing to do.
    pub(crate) idle: u64,
}

impl Load {
    /// All transactions, one after the other.
    pub(crate) fn work(&self) -> u64 {
        self.jobs.iter().map(|job| job.in_turn + self.each).sum()
    }

    /// The longest chain of transactions each of which looks at what the one before has changed.
    pub(crate) fn longest_chain(&self) -> u64 {
        let mut ends: Vec<u64> = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let upon = job.upon.iter().map(|index| ends[*index]);
            let start = match job.after {
                None => ends.iter().copied().max().unwrap_or(0),
                Some(_) if self.has_list => 0,
                Some(_) => upon.max().unwrap_or(0),
            };
            ends.push(start + job.in_turn);
        }
        ends.into_iter().max().unwrap_or(0)
    }

    /// What the committing thread would do if all others ran ahead and were kept.
    pub(crate) fn serial_share(&self) -> u64 {
        let counted = self.jobs.iter().map(|job| match job.after {
            Some(_) if job.gas_limit >= HEAVY_GAS || !is_plain(job) => job.adopt,
            _ => job.in_turn,
        });
        counted.map(|time| time + self.each).sum()
    }
}

fn is_plain(job: &Job) -> bool {
    job.gas_limit <= TRANSFER_GAS || job.is_plain
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Free,
    Taken,
    /// Whether what was read will hold.
    Done(bool),
}

/// What ends at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The committing thread's transaction counts.
    Counts,
    /// A thread has run a transaction ahead that was begun after so many counted; thread 0 commits.
    Ran {
        thread: usize,
        index: usize,
        counted: usize,
    },
    /// A thread comes to help.
    Comes(usize),
}

struct Simulation<'l> {
    load: &'l Load,
    threads: usize,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    places: Vec<Place>,
    counted: usize,
    /// Behind all that were taken to run ahead.
    next: usize,
    /// Threads that look for something to do.
    idle: BTreeSet<usize>,
    called: HashMap<usize, (u32, u32)>,
    wasted_gas: u64,
    is_over: bool,
    gas_used: u64,
    gas_looked_at: u64,
    has_help: bool,
    /// Since when the committing thread waits.
    waits_since: Option<u64>,
    outcome: Outcome,
}

/// Runs a block on so many threads, the committing one included.
pub(crate) fn simulate(load: &Load, threads: usize) -> Outcome {
    let mut simulation = Simulation {
        load,
        threads: threads.max(1),
        now: 0,
        events: BinaryHeap::new(),
        places: vec![Place::Free; load.jobs.len()],
        counted: 0,
        next: 0,
        idle: BTreeSet::new(),
        called: HashMap::new(),
        wasted_gas: 0,
        is_over: false,
        gas_used: 0,
        gas_looked_at: 0,
        has_help: threads <= 1,
        waits_since: None,
        outcome: Outcome::default(),
    };
    simulation.take_turn();
    while let Some(Reverse((at, event))) = simulation.events.pop() {
        simulation.now = at;
        simulation.happens(event);
        if simulation.counted == load.jobs.len() {
            break;
        }
        simulation.employ();
    }
    simulation.outcome.end = simulation.now;
    simulation.outcome
}

impl Simulation<'_> {
    fn after(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((self.now + time, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Counts => {
                self.gas_used += self.load.jobs[self.counted].gas_used;
                self.counted += 1;
                self.take_turn();
            }
            Event::Comes(thread) => {
                self.idle.insert(thread);
            }
            Event::Ran {
                thread,
                index,
                counted,
            } => {
                let after = self.load.jobs[index].after;
                let holds = after.is_some_and(|after| self.load.has_list || counted >= after);
                self.places[index] = Place::Done(holds);
                if thread > 0 {
                    self.idle.insert(thread);
                }
                let is_awaited = self.waits_since.is_some() && index == self.counted;
                if thread == 0 || is_awaited {
                    self.go_on();
                }
            }
        }
    }

    /// The committing thread comes to its next transaction.
    fn take_turn(&mut self) {
        let Some(job) = self.load.jobs.get(self.counted) else {
            return;
        };
        if !self.has_help && self.is_help_due() {
            self.has_help = true;
            for thread in 1..self.threads {
                self.after(self.load.wake, Event::Comes(thread));
            }
        }
        if self.places[self.counted] == Place::Free {
            self.places[self.counted] = Place::Taken;
            self.outcome.in_turn += 1;
            self.outcome.spent.in_turn += job.in_turn + self.load.each;
            self.after(job.in_turn + self.load.each, Event::Counts);
        } else {
            self.go_on();
        }
    }

    /// The committing thread's transaction was begun by another, or by itself: counts it if it is done, and
    /// else runs one ahead meanwhile.
    fn go_on(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.outcome.spent.idle += self.now - since;
        }
        let index = self.counted;
        let job = &self.load.jobs[index];
        let Place::Done(holds) = self.places[index] else {
            match self.take_next() {
                Some(other) => self.run_ahead(0, other),
                None => self.waits_since = Some(self.now),
            }
            return;
        };
        self.note(job, holds);
        let again = if holds { 0 } else { job.again };
        let count = match holds {
            true => &mut self.outcome.kept,
            false => &mut self.outcome.repeated,
        };
        *count += 1;
        self.outcome.spent.adopt += job.adopt + self.load.each;
        self.outcome.spent.again += again;
        self.after(job.adopt + again + self.load.each, Event::Counts);
    }

    fn note(&mut self, job: &Job, holds: bool) {
        if self.load.has_list {
            self.is_over |= !holds;
            return;
        }
        if let Some(to) = job.to {
            let (kept, repeated) = self.called.entry(to).or_default();
            let count = if holds { kept } else { repeated };
            *count += 1;
        }
        if !holds {
            self.wasted_gas += job.gas_used;
            let gas = self.load.jobs.iter().map(|job| job.gas_used);
            self.is_over |= self.wasted_gas > gas.sum::<u64>().max(MIN_WASTE_GAS);
        }
    }

    fn is_help_due(&mut self) -> bool {
        if self.gas_used - self.gas_looked_at < CLOCK_CHECK_GAS {
            return false;
        }
        self.gas_looked_at = self.gas_used;
        let jobs = &self.load.jobs;
        let plain = (jobs.len() - self.counted) as u64 * TRANSFER_GAS;
        let gas = jobs.iter().map(|job| job.gas_used).sum::<u64>();
        let rest = gas.saturating_sub(self.gas_used + plain);
        let expected = u128::from(self.now) * u128::from(rest);
        self.now >= MIN_SEQUENTIAL_NS
            && expected >= u128::from(MIN_REMAINING_NS) * u128::from(self.gas_used)
    }

    /// Gives idle threads something to do.
    fn employ(&mut self) {
        while let Some(thread) = self.idle.first().copied() {
            let Some(index) = self.take_next() else {
                return;
            };
            self.idle.remove(&thread);
            self.run_ahead(thread, index);
        }
    }

    fn run_ahead(&mut self, thread: usize, index: usize) {
        let ran = Event::Ran {
            thread,
            index,
            counted: self.counted,
        };
        let time = self.load.jobs[index].ahead;
        if thread == 0 {
            self.outcome.spent.ahead += time;
        }
        self.after(time, ran);
    }

    fn take_next(&mut self) -> Option<usize> {
        if self.is_over {
            return None;
        }
        let end = (self.counted + SPECULATION_WINDOW).min(self.places.len());
        let from = self.next.max(self.counted + HEAD_START);
        let first = self.counted + 1;
        let index = self
            .first_worth_it(from..end)
            .or_else(|| self.first_worth_it(first..from.min(end)))?;
        self.places[index] = Place::Taken;
        self.next = self.next.max(index + 1);
        Some(index)
    }

    fn first_worth_it(&self, mut range: Range<usize>) -> Option<usize> {
        range.find(|index| {
            let job = &self.load.jobs[*index];
            let is_heavy = job.gas_limit >= HEAVY_GAS;
            self.places[*index] == Place::Free
                && (is_heavy || !is_plain(job) && !self.is_disturbed(job.to))
        })
    }

    fn is_disturbed(&self, to: Option<usize>) -> bool {
        let shares = to.and_then(|to| self.called.get(&to));
        shares.is_some_and(|(kept, repeated)| repeated > kept)
    }
}

#[cfg(test)]
mod tests;
