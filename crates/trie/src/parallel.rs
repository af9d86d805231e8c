//! The updates of a block to many tries, on several threads.
//!
//! Tries with few leaves are updated several at a time in one job. A trie with many leaves is split below its root into
//! up to 16 subtries, one job each, and rebuilt when all of them are done:
//!
//! ```text
//! account trie, 900 leaves   -> SplitTrie: jobs 0.., 1.., ... f..   -> rebuild the root
//! storage tries, 1-60 leaves -> jobs of 16 to 128 leaves each
//! ```
//!
//! Threads take jobs from a shared counter. The roots do not depend on the number of threads; only the order of the
//! rows does.

use crate::branch::{CachedNode, Child};
use crate::cpu_cache::is_cold;
use crate::dirty_nodes::{NewNode, PartOutcome, RowFn};
use crate::update::Source;
use crate::{Branch, LeafUpdate, NodeRef, Owner, Path, TrieUpdate, TrieView};
use niwaki_primitives::Fault;
use niwaki_threads::{WorkerPool, lock};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Leaves of a job at most: enough nodes of each height to fill the lanes of the batch keccak, few enough for all of
/// them to stay in a core's cache until they are hashed.
const MAX_LEAVES_PER_JOB: usize = 128;

/// On several threads each finds several jobs, so that all end together, of this many leaves at least.
const MIN_LEAVES_PER_JOB: usize = 16;
const JOBS_PER_THREAD: usize = 8;

/// How tries are updated.
#[derive(Clone, Copy, Debug)]
pub struct UpdateOptions {
    /// Threads to use, this one included, if there is enough to do. Where most nodes must be read there may be more,
    /// which wait for the disk together.
    pub threads: usize,
    /// See [`Trie`](crate::Trie).
    pub clock: u32,
}

/// Threads at least where most nodes must be read, so that as many reads wait for the disk together.
const MIN_THREADS_READING: usize = 16;

/// Adds a row that must be set (`Some`) or removed (`None`) to a collection of rows. No row is emitted twice, and a
/// removed one was there.
pub type EmitRow<R> = dyn Fn(&mut R, &Owner, &Path, Option<&[u8]>) + Sync;

/// Applies each of `updates` to its trie and returns the changed rows, in one collection per thread.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if its nodes can't be those of a trie. Then the tries have lost
/// their nodes and must be dropped.
///
/// # Panics
/// If the keys of an update do not strictly ascend.
///
/// Spec: execution-specs `trie.py`, `trie_set` and `root`.
pub fn update_tries<R: Default + Send>(
    view: &dyn TrieView,
    mut updates: Vec<TrieUpdate<'_>>,
    options: UpdateOptions,
    emit: &EmitRow<R>,
) -> Result<Vec<R>, Fault> {
    for update in &updates {
        let ascend = update.leaves.is_sorted_by(|a, b| a.key < b.key);
        assert!(ascend, "the keys of an update ascend");
    }
    updates.retain(|update| !update.leaves.is_empty());
    let clock = options.clock;
    let source = Source { view, clock };
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    if options.threads <= 1 || leaves <= 2 * MIN_LEAVES_PER_JOB {
        let mut rows = R::default();
        let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
            emit(&mut rows, owner, path, row);
        };
        for part in parts(&mut updates, MAX_LEAVES_PER_JOB) {
            source.update(part, &mut sink)?;
        }
        return Ok(vec![rows]);
    }
    let threads = match is_cold(&updates) {
        true => options.threads.max(MIN_THREADS_READING),
        false => options.threads,
    };
    update_in_parallel(source, updates, threads, emit)
}

fn update_in_parallel<R: Default + Send>(
    source: Source<'_>,
    updates: Vec<TrieUpdate<'_>>,
    threads: usize,
    emit: &EmitRow<R>,
) -> Result<Vec<R>, Fault> {
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    let size = (leaves / (JOBS_PER_THREAD * threads)).clamp(MIN_LEAVES_PER_JOB, MAX_LEAVES_PER_JOB);
    let (mut split, mut whole) = (Vec::new(), Vec::new());
    for update in updates {
        let has_nibbles = update
            .leaves
            .first()
            .is_some_and(|leaf| !leaf.key.is_empty());
        match has_nibbles && update.leaves.len() > 2 * size {
            true => split.push(SplitTrie::new(source, update)?),
            false => whole.push(update),
        }
    }
    let (mut split, unsplit): (Vec<_>, Vec<_>) =
        split.into_iter().partition(|s| s.branch.is_some());
    whole.extend(unsplit.into_iter().map(|split| split.update));

    let mut jobs = Vec::new();
    for (index, split) in split.iter_mut().enumerate() {
        jobs.extend(split.jobs(index));
    }
    jobs.extend(parts(&mut whole, size).map(Job::Tries));
    let (outcomes, mut rows) = run(source, jobs, threads, emit);

    for below in outcomes {
        let (index, nibble, outcome) = below?;
        split[index].add(nibble, outcome);
    }
    let mut first = R::default();
    let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
        emit(&mut first, owner, path, row);
    };
    for split in split {
        split.rebuild(source, &mut sink)?;
    }
    rows.push(first);
    Ok(rows)
}

enum Job<'a, 'b> {
    Tries(&'a mut [TrieUpdate<'b>]),
    /// The subtrie below a nibble of a split trie, which is given by its index.
    Subtrie(usize, Owner, u8, Child, &'b [LeafUpdate<'b>]),
}

type SubtrieResult<'b> = Result<(usize, u8, PartOutcome<'b>), Fault>;

/// Runs `jobs` on up to `threads` threads; returns the new subtries and the rows.
fn run<'b, R: Default + Send>(
    source: Source<'_>,
    jobs: Vec<Job<'_, 'b>>,
    threads: usize,
    emit: &EmitRow<R>,
) -> (Vec<SubtrieResult<'b>>, Vec<R>) {
    let jobs: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Vec::new(), Vec::new()));
    let work = || {
        let (mut outcomes, mut rows) = (Vec::new(), R::default());
        let mut sink = |owner: &Owner, path: &Path, row: Option<&[u8]>| {
            emit(&mut rows, owner, path, row);
        };
        // The counter only decides which thread takes which job.
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let job = lock(job).take();
            outcomes.extend(job.and_then(|job| do_job(source, job, &mut sink)));
        }
        let mut done = lock(&done);
        done.0.extend(outcomes);
        done.1.push(rows);
    };
    let helpers = threads.min(jobs.len()).saturating_sub(1);
    let pool = (helpers > 0).then(|| WorkerPool::named("tries", threads - 1));
    match pool.flatten() {
        None => work(),
        Some(pool) => pool.scope(|scope| {
            scope.spawn_many(helpers, work);
            work();
        }),
    }
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The new subtrie; `None` for whole tries, which are updated in place.
fn do_job<'b>(
    source: Source<'_>,
    job: Job<'_, 'b>,
    rows: &mut RowFn<'_>,
) -> Option<SubtrieResult<'b>> {
    match job {
        Job::Tries(updates) => source.update(updates, rows).err().map(Err),
        Job::Subtrie(index, owner, nibble, child, leaves) => {
            let path = Path::EMPTY.join(&[nibble]).expect("one nibble");
            let outcome = source.update_below(owner, path, child, leaves, rows);
            Some(outcome.map(|outcome| (index, nibble, outcome)))
        }
    }
}

/// `updates` in parts of about `size` leaves, at least one trie each.
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
struct SplitTrie<'a> {
    update: TrieUpdate<'a>,
    /// Its root, if that is a branch.
    branch: Option<Box<Branch>>,
    tops: Vec<(u8, Option<NewNode<'a>>)>,
    /// Bytes of nodes that were removed from memory, and added.
    bytes_removed: usize,
    bytes_added: usize,
}

impl<'a> SplitTrie<'a> {
    /// Takes the root out of its trie, if it is a branch.
    fn new(source: Source<'_>, update: TrieUpdate<'a>) -> Result<Self, Fault> {
        let TrieUpdate { owner, trie, .. } = update;
        if let (NodeRef::Hash(hash), None) = (trie.root.reference, &trie.root.cached) {
            let node = source.view.node(&owner, &Path::EMPTY, &hash)?;
            trie.root.cached = node.and_then(|node| CachedNode::of(node).ok());
            trie.bytes += trie.root.cached.as_ref().map_or(0, CachedNode::bytes);
        }
        let (mut branch, mut taken) = (None, 0);
        match trie.root.cached.take() {
            Some(CachedNode::Branch(root)) => {
                taken = root.bytes();
                branch = Some(root);
            }
            other => trie.root.cached = other,
        }
        Ok(Self {
            update: TrieUpdate {
                owner,
                trie,
                ..update
            },
            branch,
            tops: Vec::new(),
            bytes_removed: taken,
            bytes_added: 0,
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
            jobs.push(Job::Subtrie(
                index,
                owner,
                *nibble,
                branch.take_child(*nibble),
                group,
            ));
            leaves = rest;
        }
        jobs
    }

    /// Adds the new subtrie below `nibble`.
    fn add(&mut self, nibble: u8, outcome: PartOutcome<'a>) {
        self.bytes_removed += outcome.bytes_removed;
        self.bytes_added += outcome.bytes_added;
        self.tops.push((nibble, outcome.top));
    }

    /// Puts the trie together again.
    fn rebuild(mut self, source: Source<'_>, rows: &mut RowFn<'_>) -> Result<(), Fault> {
        let Some(branch) = self.branch else {
            return Ok(());
        };
        self.tops.sort_unstable_by_key(|(nibble, _)| *nibble);
        let mut outcome = source.rebuild(self.update.owner, branch, self.tops, rows)?;
        outcome.bytes_removed += self.bytes_removed;
        outcome.bytes_added += self.bytes_added;
        self.update.trie.replace_with(outcome);
        Ok(())
    }
}
