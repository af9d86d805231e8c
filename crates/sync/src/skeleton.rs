//! Headers above the blocks that are stored: runs, each linked by hash from its head down, in memory or in the chain's database.
//!
//! ```text
//!   target A --> [run 1 ..........................] --> its parent: a stored block, or one still to be asked for
//!   target B --> [run 2 ..] --> its parent is in run 1
//! ```
//!
//! A target that is a child of a run's head extends that run; another one begins a run of its own, which ends where it meets an older
//! run. No run is cut for another target, so two targets in turn cost their own headers once. What is in a run is as true as the hash
//! of its head.

use crate::header_window::SealedHeader;
use niwaki_chain::{BlockId, Chain, HeaderRun};
use niwaki_primitives::{B256, Fault};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most runs; the oldest one that the present target does not need goes first.
const MAX_RUNS: usize = 16;

#[derive(Debug)]
enum Store {
    /// By run and number.
    Memory(BTreeMap<(u32, u64), SealedHeader>),
    Chain(Arc<Chain>),
}

/// Blocks of a run that are on the way to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathPart {
    pub(crate) run: u32,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// The way from a target down, as far as headers are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Highest first, without gaps.
    pub(crate) parts: Vec<PathPart>,
    /// The run of the lowest header.
    pub(crate) run: u32,
    /// The number of the lowest header.
    pub(crate) low: u64,
    /// The parent of the lowest header.
    pub(crate) parent: B256,
}

impl Path {
    /// How many headers it has.
    pub(crate) fn count(&self) -> u64 {
        let counts = self
            .parts
            .iter()
            .map(|part| part.high.saturating_sub(part.low).saturating_add(1));
        counts.fold(0, u64::saturating_add)
    }
}

/// All runs.
#[derive(Debug)]
pub(crate) struct Skeleton {
    store: Store,
    /// The newest last.
    runs: Vec<HeaderRun>,
}

impl Skeleton {
    /// An empty one, gone with the process.
    pub(crate) fn in_memory() -> Self {
        Self {
            store: Store::Memory(BTreeMap::new()),
            runs: Vec::new(),
        }
    }

    /// The one that the chain keeps.
    pub(crate) fn of_chain(chain: Arc<Chain>) -> Result<Self, Fault> {
        Ok(Self {
            runs: chain.header_runs()?,
            store: Store::Chain(chain),
        })
    }

    /// Whether it has no header.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The header of a run at a height.
    pub(crate) fn header(&self, run: u32, number: u64) -> Result<Option<SealedHeader>, Fault> {
        Ok(match &self.store {
            Store::Memory(headers) => headers.get(&(run, number)).cloned(),
            Store::Chain(chain) => chain
                .run_header(run, number)?
                .map(|(hash, header)| SealedHeader { hash, header }),
        })
    }

    /// The header of a path at a height.
    pub(crate) fn path_header(
        &self,
        path: &Path,
        number: u64,
    ) -> Result<Option<SealedHeader>, Fault> {
        let mut parts = path.parts.iter();
        match parts.find(|part| (part.low..=part.high).contains(&number)) {
            Some(part) => self.header(part.run, number),
            None => Ok(None),
        }
    }

    /// The run that a block is in.
    fn run_of(&self, number: u64, hash: &B256) -> Result<Option<HeaderRun>, Fault> {
        for run in self.runs.iter().rev() {
            if run.head.number == number && run.head.hash == *hash {
                return Ok(Some(*run));
            }
            let is_within = (run.tail..run.head.number).contains(&number);
            if is_within
                && self
                    .header(run.run, number)?
                    .is_some_and(|h| h.hash == *hash)
            {
                return Ok(Some(*run));
            }
        }
        Ok(None)
    }

    /// Whether a block's header is here.
    pub(crate) fn has(&self, number: u64, hash: &B256) -> Result<bool, Fault> {
        Ok(self.run_of(number, hash)?.is_some())
    }

    /// The header of a block, if it is here.
    pub(crate) fn find(&self, number: u64, hash: &B256) -> Result<Option<SealedHeader>, Fault> {
        match self.run_of(number, hash)? {
            Some(run) => self.header(run.run, number),
            None => Ok(None),
        }
    }

    /// The highest number below `number` at which a run has its head.
    pub(crate) fn head_below(&self, number: u64) -> Option<u64> {
        let heads = self.runs.iter().map(|run| run.head.number);
        heads.filter(|head| *head < number).max()
    }

    /// Whether another run than this one has a header at this height.
    pub(crate) fn is_covered(&self, number: u64, but: u32) -> bool {
        let mut others = self.runs.iter().filter(|run| run.run != but);
        others.any(|run| (run.tail..=run.head.number).contains(&number))
    }

    /// Adds a target: to the run whose head is its parent, or as the head of a new run. Nothing, if it is here.
    pub(crate) fn add_target(&mut self, target: SealedHeader) -> Result<(), Fault> {
        let (number, hash) = (target.header.number, target.hash);
        if self.has(number, &hash)? {
            return Ok(());
        }
        let head = BlockId { number, hash };
        let parent = target.header.parent_hash;
        let below = self.runs.iter_mut().find(|run| run.head.hash == parent);
        let run = match below {
            Some(run) => {
                run.head = head;
                run.run
            }
            None => {
                self.make_room()?;
                let newest = self.runs.iter().map(|run| run.run).max();
                let run = newest.map_or(0, |newest| newest.wrapping_add(1));
                self.runs.push(HeaderRun {
                    run,
                    head,
                    tail: number,
                    parent,
                });
                run
            }
        };
        self.put(run, vec![target])
    }

    fn make_room(&mut self) -> Result<(), Fault> {
        while self.runs.len() >= MAX_RUNS {
            // A run that others end in is the longest one: it stays.
            let longest = self
                .runs
                .iter()
                .max_by_key(|run| run.head.number.saturating_sub(run.tail));
            let longest = longest.map(|run| run.run);
            let oldest = self.runs.iter().find(|run| Some(run.run) != longest);
            let Some(oldest) = oldest.map(|run| run.run) else {
                return Ok(());
            };
            self.remove(oldest)?;
        }
        Ok(())
    }

    fn remove(&mut self, run: u32) -> Result<(), Fault> {
        self.runs.retain(|other| other.run != run);
        self.remove_numbers(run, 0, u64::MAX)
    }

    /// The way from a target down; `None` if the target is not here.
    pub(crate) fn path(&self, target: BlockId) -> Result<Option<Path>, Fault> {
        let mut parts = Vec::new();
        let (mut number, mut hash) = (target.number, target.hash);
        let mut last: Option<Path> = None;
        while let Some(run) = self.run_of(number, &hash)? {
            parts.push(PathPart {
                run: run.run,
                low: run.tail,
                high: number,
            });
            hash = run.parent;
            last = Some(Path {
                parts: Vec::new(),
                run: run.run,
                low: run.tail,
                parent: run.parent,
            });
            let Some(below) = run.tail.checked_sub(1) else {
                break;
            };
            number = below;
        }
        Ok(last.map(|path| Path { parts, ..path }))
    }

    /// Adds headers below the lowest one of a run, highest first. They must link: the caller has compared the hashes.
    pub(crate) fn extend(&mut self, run: u32, headers: Vec<SealedHeader>) -> Result<(), Fault> {
        let Some(lowest) = headers.last() else {
            return Ok(());
        };
        let (tail, parent) = (lowest.header.number, lowest.header.parent_hash);
        if let Some(run) = self.runs.iter_mut().find(|other| other.run == run) {
            (run.tail, run.parent) = (tail, parent);
        }
        self.put(run, headers)
    }

    fn put(&mut self, run: u32, headers: Vec<SealedHeader>) -> Result<(), Fault> {
        match &mut self.store {
            Store::Memory(stored) => {
                let rows = headers
                    .into_iter()
                    .map(|header| ((run, header.header.number), header));
                stored.extend(rows);
                Ok(())
            }
            Store::Chain(chain) => {
                let rows = headers.iter().map(|header| (header.hash, &header.header));
                chain.add_run_headers(run, rows, &self.runs)
            }
        }
    }

    fn remove_numbers(&mut self, run: u32, from: u64, to: u64) -> Result<(), Fault> {
        match &mut self.store {
            Store::Memory(stored) => {
                stored.retain(|(of, number), _| *of != run || !(from..to).contains(number));
                Ok(())
            }
            Store::Chain(chain) => chain.remove_run_headers(run, from..to, &self.runs),
        }
    }

    /// Removes the headers of `path` up to a block that is stored now.
    pub(crate) fn remove_stored(&mut self, path: &Path, stored: BlockId) -> Result<(), Fault> {
        for part in path.parts.iter().rev() {
            let Some(index) = self.runs.iter().position(|run| run.run == part.run) else {
                continue;
            };
            let Some(run) = self.runs.get_mut(index) else {
                continue;
            };
            if run.tail > stored.number {
                break;
            }
            if run.head.number == part.high && part.high <= stored.number {
                let run = run.run;
                self.remove(run)?;
                continue;
            }
            // What is above the path in the run, on another branch, stays.
            let (run, from) = (run.run, run.tail);
            let upto = stored.number.min(part.high);
            let Some(lowest) = self.header(run, upto.saturating_add(1))? else {
                break;
            };
            if let Some(run) = self.runs.get_mut(index) {
                (run.tail, run.parent) = (upto.saturating_add(1), lowest.header.parent_hash);
            }
            self.remove_numbers(run, from, upto.saturating_add(1))?;
        }
        Ok(())
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) -> Result<(), Fault> {
        while let Some(run) = self.runs.pop() {
            self.remove_numbers(run.run, 0, u64::MAX)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
