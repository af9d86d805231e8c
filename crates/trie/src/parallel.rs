//! The changes of a block to many tries, on as many threads as there are.
//!
//! Tries with few changes are taken up several at a time, a trie with many is split below its root.
//! The outcome does not depend on the number of threads, only the order of the rows does.

use crate::branch::{Child, Held};
use crate::draft::{Outcome, Rows, Top};
use crate::update::Source;
use crate::warm::is_cold;
use crate::{Branch, LeafUpdate, NodeRef, Owner, Path, TrieUpdate, TrieView};
use niwaki_primitives::Fault;
use niwaki_threads::Crew;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Changed leaves that are taken up at once: enough nodes of each height to fill the lanes of the
/// batch keccak, few enough for all of them to stay in a core's cache until they are hashed.
const LEAVES_PER_PART: usize = 128;

/// The same where several threads take parts: each finds several, so that all end together, of so many leaves at
/// least.
const LEAST_PER_PART: usize = 16;
const PARTS_PER_THREAD: usize = 8;

/// How the tries of a block are changed.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Threads to use, this one included, if there is enough to do. Where most nodes have to be read
    /// there may be more, which wait for the disk together.
    pub threads: usize,
    /// See [`Trie`](crate::Trie).
    pub clock: u32,
}

/// Threads, at least, where most nodes are to be read: as many reads wait for the disk together.
const READERS: usize = 16;

/// Tells a collection of rows that a row of a trie is to be set (`Some`) or removed (`None`). No row
/// is told twice, and a removed one was there.
pub type Tell<R> = dyn Fn(&mut R, &Owner, &Path, Option<&[u8]>) + Sync;

/// Applies each of `updates` to its trie, and gives the changed rows, in some collections.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if its nodes can't be those of a trie. Then the
/// tries have lost their nodes and must be made anew.
///
/// # Panics
/// If the keys of an update do not strictly ascend.
///
/// Spec: execution-specs `trie.py`, `trie_set` and `root`.
pub fn update_tries<R: Default + Send>(
    view: &dyn TrieView,
    mut updates: Vec<TrieUpdate<'_>>,
    work: Work,
    tell: &Tell<R>,
) -> Result<Vec<R>, Fault> {
    for update in &updates {
        let ascend = update.leaves.is_sorted_by(|a, b| a.key < b.key);
        assert!(ascend, "the keys of an update ascend");
    }
    updates.retain(|update| !update.leaves.is_empty());
    let clock = work.clock;
    let source = Source { view, clock };
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    if work.threads <= 1 || leaves <= 2 * LEAST_PER_PART {
        let mut rows = R::default();
        let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
            tell(&mut rows, owner, path, row);
        };
        for part in parts(&mut updates, LEAVES_PER_PART) {
            source.update(part, &mut sink)?;
        }
        return Ok(vec![rows]);
    }
    let threads = match is_cold(&updates) {
        true => work.threads.max(READERS),
        false => work.threads,
    };
    on_threads(source, updates, threads, tell)
}

fn on_threads<R: Default + Send>(
    source: Source<'_>,
    updates: Vec<TrieUpdate<'_>>,
    threads: usize,
    tell: &Tell<R>,
) -> Result<Vec<R>, Fault> {
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    let size = (leaves / (PARTS_PER_THREAD * threads)).clamp(LEAST_PER_PART, LEAVES_PER_PART);
    let (mut split, mut whole) = (Vec::new(), Vec::new());
    for update in updates {
        let has_nibbles = update
            .leaves
            .first()
            .is_some_and(|leaf| !leaf.key.is_empty());
        match has_nibbles && update.leaves.len() > 2 * size {
            true => split.push(Split::new(source, update)?),
            false => whole.push(update),
        }
    }
    let (split, unsplit): (Vec<_>, Vec<_>) = split.into_iter().partition(|s| s.branch.is_some());
    whole.extend(unsplit.into_iter().map(|split| split.update));
    let mut split = split;

    let mut jobs = Vec::new();
    for (index, split) in split.iter_mut().enumerate() {
        jobs.extend(split.jobs(index));
    }
    jobs.extend(parts(&mut whole, size).map(Job::Whole));
    let (outcomes, mut rows) = run(source, jobs, threads, tell);

    for below in outcomes {
        let (index, nibble, outcome) = below?;
        split[index].add(nibble, outcome);
    }
    let mut first = R::default();
    let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
        tell(&mut first, owner, path, row);
    };
    for split in split {
        split.rejoin(source, &mut sink)?;
    }
    rows.push(first);
    Ok(rows)
}

enum Job<'a, 'b> {
    Whole(&'a mut [TrieUpdate<'b>]),
    /// The subtrie of a split trie (by its index) below a nibble.
    Below(usize, Owner, u8, Child, &'b [LeafUpdate<'b>]),
}

type Below<'b> = Result<(usize, u8, Outcome<'b>), Fault>;

/// Does `jobs` on up to `threads` threads: what became of the subtries, and the rows.
fn run<'b, R: Default + Send>(
    source: Source<'_>,
    jobs: Vec<Job<'_, 'b>>,
    threads: usize,
    tell: &Tell<R>,
) -> (Vec<Below<'b>>, Vec<R>) {
    let jobs: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut outcomes, mut rows) = (Vec::new(), R::default());
        let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
            tell(&mut rows, owner, path, row);
        };
        // Only who takes which job hangs on the counter.
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
            outcomes.extend(job.and_then(|job| do_job(source, job, &mut sink)));
        }
        (outcomes, rows)
    };
    let done = Mutex::new((Vec::new(), Vec::new()));
    let work = || {
        let (outcomes, rows) = work();
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0.extend(outcomes);
        done.1.push(rows);
    };
    let helpers = threads.min(jobs.len()).saturating_sub(1);
    let crew = (helpers > 0).then(|| Crew::of("tries", threads - 1));
    match crew.flatten() {
        None => work(),
        Some(crew) => crew.scope(|beside| {
            beside.call(helpers, work);
            work();
        }),
    }
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What became of a subtrie; `None` for whole tries, which are in place.
fn do_job<'b>(source: Source<'_>, job: Job<'_, 'b>, rows: &mut Rows<'_>) -> Option<Below<'b>> {
    match job {
        Job::Whole(updates) => source.update(updates, rows).err().map(Err),
        Job::Below(index, owner, nibble, child, leaves) => {
            let path = Path::EMPTY.join(&[nibble]).expect("one nibble");
            let outcome = source.update_below((owner, path), child, leaves, rows);
            Some(outcome.map(|outcome| (index, nibble, outcome)))
        }
    }
}

/// `updates` in parts of about `size` leaves, each of one trie at least.
fn parts<'a, 'b>(
    updates: &'a mut [TrieUpdate<'b>],
    size: usize,
) -> impl Iterator<Item = &'a mut [TrieUpdate<'b>]> {
    let mut rest = Some(updates);
    std::iter::from_fn(move || {
        let updates = rest.take().filter(|rest| !rest.is_empty())?;
        let mut taken = 0;
        let fits = |update: &&TrieUpdate<'_>| {
            let has_room = taken < size;
            taken += update.leaves.len();
            has_room
        };
        let count = updates.iter().take_while(fits).count();
        let (part, others) = updates.split_at_mut(count);
        rest = Some(others);
        Some(part)
    })
}

/// A trie that is split below its root.
struct Split<'a> {
    update: TrieUpdate<'a>,
    /// Its root, if that is a branch.
    branch: Option<Box<Branch>>,
    tops: Vec<(u8, Option<Top<'a>>)>,
    /// Bytes of nodes taken out of memory, and put back.
    taken: usize,
    put: usize,
}

impl<'a> Split<'a> {
    /// Takes the root out of its trie, if it is a branch.
    fn new(source: Source<'_>, update: TrieUpdate<'a>) -> Result<Self, Fault> {
        let TrieUpdate { owner, trie, .. } = update;
        if let (NodeRef::Hash(hash), None) = (trie.root.reference, &trie.root.held) {
            let node = source.view.node(&owner, &Path::EMPTY, &hash)?;
            trie.root.held = node.and_then(|node| Held::of(node).ok());
            trie.bytes += trie.root.held.as_ref().map_or(0, Held::bytes);
        }
        let (mut branch, mut taken) = (None, 0);
        match trie.root.held.take() {
            Some(Held::Branch(root)) => {
                taken = root.bytes();
                branch = Some(root);
            }
            other => trie.root.held = other,
        }
        Ok(Self {
            update: TrieUpdate {
                owner,
                trie,
                ..update
            },
            branch,
            tops: Vec::new(),
            taken,
            put: 0,
        })
    }

    fn jobs<'b>(&mut self, index: usize) -> Vec<Job<'b, 'a>> {
        let mut jobs = Vec::new();
        let mut leaves = self.update.leaves;
        let Some(branch) = &mut self.branch else {
            return jobs;
        };
        while let Some(nibble) = leaves.first().and_then(|leaf| leaf.key.as_slice().first()) {
            let count = leaves.partition_point(|leaf| leaf.key.as_slice().first() <= Some(nibble));
            let (group, rest) = leaves.split_at(count);
            let owner = self.update.owner;
            jobs.push(Job::Below(
                index,
                owner,
                *nibble,
                branch.lend(*nibble),
                group,
            ));
            leaves = rest;
        }
        jobs
    }

    /// Takes in what became of the subtrie below `nibble`.
    fn add(&mut self, nibble: u8, outcome: Outcome<'a>) {
        self.taken += outcome.taken;
        self.put += outcome.put;
        self.tops.push((nibble, outcome.top));
    }

    /// Puts the trie together again.
    fn rejoin(mut self, source: Source<'_>, rows: &mut Rows<'_>) -> Result<(), Fault> {
        let Some(branch) = self.branch else {
            return Ok(());
        };
        self.tops.sort_unstable_by_key(|(nibble, _)| *nibble);
        let mut outcome = source.rejoin(self.update.owner, branch, self.tops, rows)?;
        outcome.taken += self.taken;
        outcome.put += self.put;
        self.update.trie.take_over(outcome);
        Ok(())
    }
}
