//! Trie nodes in memory: the account trie and the storage tries that were used lately.
//!
//! The tries in memory are those of exactly one state: the head's, or that of a block which was computed on
//! top of it and may become the head. How that state differs from the head's is the *offset*, a list of diffs
//! with one step per block. To compute the root of another state the tries move there by the difference
//! between the two offsets, so that going back, sideways and forward are the same operation, and the trie work
//! of a block is done once, however often its root is asked for:
//!
//! ```text
//! head 10 --a--> 11 --b--> 12     offset [a, b]: the tries are those of block 12
//!          \
//!           `-c--> 11'            wanted: offset [c]
//!
//! shared steps: none; diff to apply: undo b, undo a, then c, joined into one
//! ```
//!
//! Steps are compared by address in memory (`Arc::ptr_eq`), so a step that both offsets share is recognised
//! without looking at it.
//!
//! The rows that a move sets or removes are collected; a commit of the state that the tries have takes them
//! ([`TrieCache::commit_head`]). Nodes that are not in memory are read from disk, where they are the head's:
//! correct, because a node that differs from the head's was changed by a move and is therefore in memory.
//! For the same reason nodes are evicted only right after a commit.
//!
//! [`WorldState`](crate::WorldState) owns one `TrieCache` behind a mutex, which a commit holds as long as the
//! head moves. After an error or a panic in a move the tries are unusable and must be [reset](TrieCache::reset).

use crate::commit::hashed_diff::{HashedAccountDiff, HashedDiff};
use crate::tries::disk_trie::{DiskTrie, LeafCache, RowSource, row_key};
use crate::views::layers::DiffLayers;
use niwaki_primitives::map::B256Map;
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database};
use niwaki_trie::{
    LeafUpdate, Owner, Path, Trie, TrieUpdate, UpdateOptions, encode_slot_to, update_tries,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct TrieCache {
    pub(crate) accounts: Trie,
    pub(crate) storage: B256Map<Trie>,
    /// Bytes of the nodes of all tries.
    pub(crate) bytes: usize,
    limit_bytes: usize,
    threads: usize,
    pub(crate) clock: Clock,
    /// From the head's state to that of the tries.
    offset: DiffLayers,
    /// Rows that moves have set or removed since the last commit.
    rows: Batch,
    /// Counts moves and resets.
    epoch: u64,
    /// Whether a move has begun and not ended, which only a panic leaves so.
    is_poisoned: bool,
    nodes_read: u64,
    eviction: Option<Eviction>,
    pub(crate) leaves: LeafCache,
}

/// The clock of the nodes: ticks whenever a quarter of the limit was touched.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) now: u32,
    touched_bytes: usize,
}

/// An eviction in progress: nodes that were last used before `clock` go, trie by trie.
#[derive(Debug)]
struct Eviction {
    clock: u32,
    /// Storage tries that are left.
    owners: Vec<B256>,
    /// Children of the account trie's root that are left.
    nibbles: u8,
}

/// Rows that moves may collect whatever the limit is.
pub(crate) const MIN_ROW_BYTES: usize = 1 << 20;

/// Bytes of nodes that one step of an eviction visits, at least.
const EVICTION_STEP_BYTES: usize = 1 << 20;
/// And for each byte over the limit. About half of what is visited is evicted, so what blocks add in the
/// meantime stays small compared to the limit.
const EVICTION_BYTES_PER_EXCESS_BYTE: usize = 8;

impl TrieCache {
    /// The tries of a head's state with this root, with no node in memory.
    pub(crate) fn new(root: B256, limit_bytes: usize, threads: usize) -> Self {
        Self {
            accounts: Trie::new(root),
            storage: B256Map::default(),
            bytes: 0,
            limit_bytes,
            threads,
            clock: Clock::default(),
            offset: DiffLayers::default(),
            rows: Batch::new(),
            epoch: 0,
            is_poisoned: false,
            nodes_read: 0,
            eviction: None,
            leaves: LeafCache::default(),
        }
    }

    /// Forgets everything: the tries are those of the head, whose root is `root`.
    pub(crate) fn reset(&mut self, root: B256) {
        *self = Self {
            epoch: self.epoch + 1,
            nodes_read: self.nodes_read,
            ..Self::new(root, self.limit_bytes, self.threads)
        };
    }

    /// How many moves and resets there were: while it stays the same, the tries are those of the same state.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Nodes read from the storage so far, and bytes of the nodes in memory.
    pub(crate) fn stats(&self) -> (u64, usize) {
        (self.nodes_read, self.bytes)
    }

    /// Moves the tries to the state that is `before` and then `last` away from the head's; returns its root and
    /// fills in the new storage roots of `last`. [`TrieCache::set_offset`] must follow; after an error,
    /// and only then, the tries must be reset.
    pub(crate) fn move_to(
        &mut self,
        database: &Database,
        before: &DiffLayers,
        last: &mut HashedDiff,
    ) -> Result<B256, Fault> {
        self.with_source(database, |tries, offset, source| {
            tries.move_from(offset, source, before, last)
        })
    }

    /// Runs `work` with the present offset, which is cleared, and the source of nodes that are not in memory.
    fn with_source<T>(
        &mut self,
        database: &Database,
        work: impl FnOnce(&mut Self, &DiffLayers, &DiskTrie<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.epoch += 1;
        let offset = std::mem::take(&mut self.offset);
        let leaves = std::mem::take(&mut self.leaves);
        let source =
            DiskTrie::new(RowSource::Latest(database), offset.steps()).with_known_leaves(&leaves);
        self.is_poisoned = true;
        let done = work(self, &offset, &source);
        self.is_poisoned = false;
        self.count_reads(&source);
        self.leaves = leaves;
        done
    }

    /// Adds what was read through `source` to the statistics.
    pub(crate) fn count_reads(&mut self, source: &DiskTrie<'_>) {
        self.nodes_read += source.nodes_read();
    }

    fn move_from(
        &mut self,
        offset: &DiffLayers,
        source: &DiskTrie<'_>,
        before: &DiffLayers,
        last: &mut HashedDiff,
    ) -> Result<B256, Fault> {
        let pairs = offset.steps().iter().zip(before.steps());
        let shared = pairs.take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
        let (back, up) = (&offset.steps()[shared..], &before.steps()[shared..]);
        if back.is_empty() && up.is_empty() {
            return self.apply(source, last);
        }
        let joined;
        let from = match back {
            [from] => &**from,
            _ => {
                joined = offset.above(shared);
                &joined
            }
        };
        let mut step = match up {
            [] => from.diff_to(last),
            _ => from.diff_to(&before.above(shared).then(last.clone())),
        };
        let root = self.apply(source, &mut step)?;
        for account in &mut last.accounts {
            let Some(new) = &mut account.new else {
                continue;
            };
            let key = &account.key;
            // An account that the step does not list has the storage root that it had in the tries: that of
            // the last step back that lists it, or else the head's, which is the prior value of the
            // first step up that lists it.
            let after = match step.account(key) {
                Some(change) => change.new,
                None => match back.iter().rev().find_map(|step| step.account(key)) {
                    Some(change) => change.new,
                    None => match up.iter().find_map(|step| step.account(key)) {
                        Some(change) => change.prior,
                        None => account.prior,
                    },
                },
            };
            new.storage_root = after.map_or(EMPTY_ROOT_HASH, |after| after.storage_root);
        }
        Ok(root)
    }

    /// Whether more bytes of nodes are in memory than should be.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.bytes > self.limit_bytes
    }

    /// The rows that have changed since the last commit, or since they were taken.
    pub(crate) fn rows(&self) -> &Batch {
        &self.rows
    }

    /// Whether the tries must be reset before they move: a move has panicked, or too many rows have been
    /// collected. Every move adds rows, also one back, and only a commit takes them: without a bound, roots of
    /// blocks that are never committed would fill the memory.
    pub(crate) fn needs_reset(&self) -> bool {
        self.is_poisoned || self.rows.bytes() > self.max_row_bytes()
    }

    /// Whether optional moves should be left out: half of the rows are there at which the tries are reset.
    pub(crate) fn is_near_reset(&self) -> bool {
        self.is_poisoned || self.rows.bytes() > self.max_row_bytes() / 2
    }

    fn max_row_bytes(&self) -> usize {
        MIN_ROW_BYTES.max(self.limit_bytes / 4)
    }

    pub(crate) fn take_rows(&mut self) -> Batch {
        std::mem::take(&mut self.rows)
    }

    /// The last step to the state of the tries, if that is one step from the state `before` away from the
    /// head's.
    pub(crate) fn last_step_from(&self, before: &DiffLayers) -> Option<Arc<HashedDiff>> {
        let (last, below) = self.offset.steps().split_last()?;
        let before = before.steps();
        let is_same =
            below.len() == before.len() && below.iter().zip(before).all(|(a, b)| Arc::ptr_eq(a, b));
        is_same.then(|| Arc::clone(last))
    }

    /// Moves the tries by `part`, which says how the accounts and slots that it lists are in the target state;
    /// what it does not list stays. The tries must be `last` away from the state that is `before` away
    /// from the head's, and `part` is relative to that state too. After an error, and only then, they must be reset.
    pub(crate) fn apply_part(
        &mut self,
        database: &Database,
        before: &DiffLayers,
        last: Arc<HashedDiff>,
        part: &HashedDiff,
    ) -> Result<(), Fault> {
        let mut step = last.diff_to_part(part);
        self.with_source(database, |tries, _, source| tries.apply(source, &mut step))?;
        // As a rule this is the only reference by now, because the old offset is gone.
        let last = Arc::unwrap_or_clone(last).then(step);
        self.offset = before.clone();
        self.offset.add(Arc::new(last));
        Ok(())
    }

    /// Declares which state the tries are of.
    pub(crate) fn set_offset(&mut self, offset: DiffLayers) {
        self.offset = offset;
    }

    /// Declares that the state of the tries has become the head; returns the rows that have changed.
    pub(crate) fn commit_head(&mut self) -> Batch {
        self.offset = DiffLayers::default();
        self.evict_some();
        self.take_rows()
    }

    /// Applies `diff` to the tries and fills in the new storage roots.
    pub(crate) fn apply(
        &mut self,
        source: &DiskTrie<'_>,
        diff: &mut HashedDiff,
    ) -> Result<B256, Fault> {
        self.update_storage(source, diff)?;
        let leaf = |account: &HashedAccountDiff| account.new.map(|new| new.to_leaf());
        let values: Vec<Option<Vec<u8>>> = diff.accounts.iter().map(leaf).collect();
        let leaves = diff.accounts.iter().zip(&values);
        let leaves = leaves.map(|(account, value)| LeafUpdate {
            key: Path::of_hash(&account.key),
            value: value.as_deref(),
            replaces: account.prior.is_some(),
        });
        let leaves: Vec<LeafUpdate<'_>> = leaves.collect();
        let (options, before) = (self.update_options(), self.accounts.bytes());
        let update = TrieUpdate {
            owner: None,
            trie: &mut self.accounts,
            leaves: &leaves,
        };
        let rows = update_tries(source, vec![update], options, &emit_row)?;
        self.bytes = self.bytes + self.accounts.bytes() - before;
        self.add_rows(rows);
        Ok(self.accounts.root())
    }

    fn update_storage(
        &mut self,
        source: &DiskTrie<'_>,
        diff: &mut HashedDiff,
    ) -> Result<(), Fault> {
        let values = SlotValues::of(diff);
        let leaves: Vec<LeafUpdate<'_>> = values.leaves(diff).collect();
        let (mut tries, mut rest) = (Vec::new(), &leaves[..]);
        for account in &diff.accounts {
            let (leaves, others) = rest.split_at(account.slots.len());
            rest = others;
            if !leaves.is_empty() {
                tries.push((account.key, self.take_storage_trie(account), leaves));
            }
        }
        let updates = tries.iter_mut().map(|(owner, trie, leaves)| TrieUpdate {
            owner: Some(*owner),
            trie,
            leaves,
        });
        let rows = update_tries(source, updates.collect(), self.update_options(), &emit_row)?;
        self.add_rows(rows);

        let updated = tries.into_iter().map(|(owner, trie, _)| (owner, trie));
        let mut updated = updated.collect::<Vec<_>>().into_iter().peekable();
        for account in &mut diff.accounts {
            let trie = updated.next_if(|(owner, _)| *owner == account.key);
            if let Some(new) = &mut account.new {
                // Without a changed slot the root stays.
                let before = account
                    .prior
                    .map_or(EMPTY_ROOT_HASH, |prior| prior.storage_root);
                new.storage_root = trie.as_ref().map_or(before, |(_, trie)| trie.root());
            }
            // A trie of a single leaf has no node in memory, but it must be remembered: on disk may be
            // another trie.
            if let Some((owner, trie)) = trie
                && trie.root() != EMPTY_ROOT_HASH
            {
                self.bytes += storage_trie_bytes(&trie);
                self.storage.insert(owner, trie);
            }
        }
        Ok(())
    }

    /// Takes the storage trie of an account, as it is before its change, out of the cache.
    fn take_storage_trie(&mut self, account: &HashedAccountDiff) -> Trie {
        let root = account.prior_storage_root();
        let cached = self.storage.remove(&account.key);
        self.bytes -= cached.as_ref().map_or(0, storage_trie_bytes);
        // Nodes that were prefetched for a view of another state are of no use.
        let cached = cached.filter(|trie| trie.root() == root);
        cached.unwrap_or_else(|| Trie::new(root))
    }

    fn add_rows(&mut self, rows: Vec<Batch>) {
        for rows in rows {
            self.clock.touched_bytes += rows.bytes();
            self.rows.append(rows);
        }
        if self.clock.touched_bytes > self.limit_bytes / 4 {
            self.clock.touched_bytes = 0;
            self.clock.now += 1;
        }
    }

    /// Runs `work`, in which the tries are updated on the calling thread only.
    pub(crate) fn single_threaded<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let threads = std::mem::replace(&mut self.threads, 1);
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.threads = threads;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn update_options(&self) -> UpdateOptions {
        UpdateOptions {
            threads: self.threads,
            clock: self.clock.now,
        }
    }

    /// One step of an eviction, if there are too many nodes. Only while the tries are the head's, whose rows
    /// are on disk or on their way.
    fn evict_some(&mut self) {
        if self.eviction.is_none() && self.is_over_budget() {
            self.eviction = Some(Eviction {
                clock: self.clock.now.saturating_sub(1),
                owners: self.storage.keys().copied().collect(),
                nibbles: 16,
            });
        }
        let Some(eviction) = &mut self.eviction else {
            return;
        };
        let clock = eviction.clock;
        let excess_bytes = self.bytes.saturating_sub(self.limit_bytes);
        let max_bytes = EVICTION_STEP_BYTES + EVICTION_BYTES_PER_EXCESS_BYTE * excess_bytes;
        let mut visited_bytes = 0;
        while visited_bytes < max_bytes {
            if let Some(nibble) = eviction.nibbles.checked_sub(1) {
                eviction.nibbles = nibble;
                let before = self.accounts.bytes();
                self.accounts.evict(clock, Some(nibble));
                self.bytes -= before - self.accounts.bytes();
                visited_bytes += before / 16;
                continue;
            }
            let Some(owner) = eviction.owners.pop() else {
                self.eviction = None;
                return;
            };
            let Some(trie) = self.storage.get_mut(&owner) else {
                continue;
            };
            let before = storage_trie_bytes(trie);
            trie.evict(clock, None);
            self.bytes -= before - storage_trie_bytes(trie);
            visited_bytes += before;
            if trie.bytes() == 0 {
                self.bytes -= storage_trie_bytes(trie);
                self.storage.remove(&owner);
            }
        }
    }
}

/// Bytes that a storage trie takes, its entry in the map included.
pub(crate) fn storage_trie_bytes(trie: &Trie) -> usize {
    const ENTRY_BYTES: usize = size_of::<B256>() + size_of::<Trie>() + 16;
    ENTRY_BYTES + trie.bytes()
}

pub(crate) fn emit_row(rows: &mut Batch, owner: &Owner, path: &Path, row: Option<&[u8]>) {
    let (segment, key) = row_key(owner, path);
    match row {
        Some(row) => rows.put_parts(segment, &key, &[row]),
        None => rows.delete_parts(segment, &key),
    }
}

/// The values of all slots that a diff sets, encoded as in the leaves, one after the other.
struct SlotValues {
    bytes: Vec<u8>,
    /// Where each ends; a removed slot ends where the one before it does.
    ends: Vec<usize>,
}

impl SlotValues {
    fn of(diff: &HashedDiff) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for slot in diff.accounts.iter().flat_map(|account| &account.slots) {
            if !slot.new.is_zero() {
                encode_slot_to(&slot.new, &mut bytes);
            }
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// The leaves of all slots of the same diff.
    fn leaves<'a>(&'a self, diff: &'a HashedDiff) -> impl Iterator<Item = LeafUpdate<'a>> {
        let slots = diff.accounts.iter().flat_map(|account| &account.slots);
        let mut start = 0;
        slots.zip(&self.ends).map(move |(slot, end)| {
            let value = &self.bytes[start..*end];
            start = *end;
            LeafUpdate {
                key: Path::of_hash(&slot.key),
                value: (!value.is_empty()).then_some(value),
                replaces: !slot.prior.is_zero(),
            }
        })
    }
}
