//! The tries in memory: the account trie and the storage tries that were touched lately.
//!
//! They are those of one state: the head's, or one that was last computed upon it and may become
//! the head (*ahead*). Moving them from one state to another takes the changes between the two, so
//! going back, sideways and forward are the same thing, and the work for a block is done once.

use crate::changes::{AccountChange, Changes};
use crate::disk_trie::{DiskTrie, Rows, row_key};
use crate::layers::Layers;
use niwaki_primitives::map::B256Map;
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database};
use niwaki_trie::{
    LeafUpdate, Node, Owner, Path, Trie, TrieUpdate, Work, encode_slot_to, update_tries,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) accounts: Trie,
    pub(crate) storage: B256Map<Trie>,
    /// Bytes of the nodes of all tries in memory.
    pub(crate) bytes: usize,
    limit_bytes: usize,
    threads: usize,
    pub(crate) clock: Clock,
    /// From the head's state to that of the tries.
    ahead: Layers,
    /// What the rows on the way are.
    rows: Batch,
    /// Counts moves.
    moves: u64,
    /// Whether a move has begun and not ended: only a panic leaves it so.
    is_torn: bool,
    nodes_read: u64,
    sweep: Option<Sweep>,
    pub(crate) leaves: Leaves,
}

/// Leaves that are in the way of what may be inserted, each by its hash, which is all that it hangs on.
pub(crate) type Leaves = B256Map<Node>;

/// Ticks whenever a quarter of the limit was touched.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub(crate) now: u32,
    touched_bytes: usize,
}

/// Tries from which nodes of before `clock` are yet to be dropped.
#[derive(Debug)]
struct Sweep {
    clock: u32,
    owners: Vec<B256>,
    /// The children of the account trie's root that are left.
    nibbles: u8,
}

/// Bytes of rows on the way from the head that are kept whatever the limit is.
pub(crate) const LEAST_ROW_BYTES: usize = 1 << 20;

/// Bytes of nodes that are looked at in one go, at least.
const SWEPT_AT_ONCE_BYTES: usize = 1 << 20;
/// And for each byte over the limit. About half of what is looked at goes, so what blocks bring
/// stays small beside the limit.
const SWEPT_PER_BYTE_OVER: usize = 8;

impl Tries {
    /// Those of a state with this root, with nothing in memory.
    pub(crate) fn new(root: B256, limit_bytes: usize, threads: usize) -> Self {
        Self {
            accounts: Trie::new(root),
            storage: B256Map::default(),
            bytes: 0,
            limit_bytes,
            threads,
            clock: Clock::default(),
            ahead: Layers::default(),
            rows: Batch::new(),
            moves: 0,
            is_torn: false,
            nodes_read: 0,
            sweep: None,
            leaves: Leaves::default(),
        }
    }

    /// Forgets everything: the tries are those of the head again, whose root is `root`.
    pub(crate) fn reset(&mut self, root: B256) {
        *self = Self {
            moves: self.moves + 1,
            nodes_read: self.nodes_read,
            ..Self::new(root, self.limit_bytes, self.threads)
        };
    }

    /// How many moves there were: while it stays the same, so do the tries.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Nodes read from the storage so far, and bytes of those in memory now.
    pub(crate) fn figures(&self) -> (u64, usize) {
        (self.nodes_read, self.bytes)
    }

    /// Moves the tries to the state that is `before` and then `last` away from the head's, and fills
    /// in the new storage roots of `last`. Steps that the tries have made are known by their place in
    /// memory and not made again. [`Tries::set_ahead`] must follow; after an error, and only then,
    /// the tries must be reset.
    pub(crate) fn move_to(
        &mut self,
        database: &Database,
        before: &Layers,
        last: &mut Changes,
    ) -> Result<B256, Fault> {
        self.moving(database, |tries, ahead, source| {
            tries.move_from(ahead, source, (before, last))
        })
    }

    /// Does `work` with how far the tries are ahead, which they are not then, and what their nodes are read from.
    fn moving<T>(
        &mut self,
        database: &Database,
        work: impl FnOnce(&mut Self, &Layers, &DiskTrie<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.moves += 1;
        let ahead = std::mem::take(&mut self.ahead);
        let leaves = std::mem::take(&mut self.leaves);
        let source = DiskTrie::new(Rows::Now(database), ahead.steps()).knowing(&leaves);
        self.is_torn = true;
        let done = work(self, &ahead, &source);
        self.is_torn = false;
        self.count(&source);
        self.leaves = leaves;
        done
    }

    /// Counts what was read through `source`.
    pub(crate) fn count(&mut self, source: &DiskTrie<'_>) {
        self.nodes_read += source.nodes_read();
    }

    fn move_from(
        &mut self,
        ahead: &Layers,
        source: &DiskTrie<'_>,
        (before, last): (&Layers, &mut Changes),
    ) -> Result<B256, Fault> {
        let pairs = ahead.steps().iter().zip(before.steps());
        let shared = pairs.take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
        let (back, up) = (&ahead.steps()[shared..], &before.steps()[shared..]);
        if back.is_empty() && up.is_empty() {
            return self.apply(source, last);
        }
        let joined;
        let from = match back {
            [from] => &**from,
            _ => {
                joined = ahead.above(shared);
                &joined
            }
        };
        let mut step = match up {
            [] => from.way_to(last),
            _ => from.way_to(&before.above(shared).then(last.clone())),
        };
        let root = self.apply(source, &mut step)?;
        for account in &mut last.accounts {
            let Some(new) = &mut account.new else {
                continue;
            };
            let key = &account.key;
            // What the step does not list ends as the tries had it: as the last step there left it,
            // or as the head has it, which the first one to change it tells.
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

    /// Whether more nodes are in memory than should be.
    pub(crate) fn are_full(&self) -> bool {
        self.bytes > self.limit_bytes
    }

    /// The rows that changed since the head or since they were taken.
    pub(crate) fn rows(&self) -> &Batch {
        &self.rows
    }

    /// Whether the way is better begun again: a move ended in a panic, or the rows on the way from the
    /// head are too many.
    /// Every move adds to them, back and forth alike, and only a block that lands takes them:
    /// without a bound, states that nothing comes of would fill the memory.
    pub(crate) fn has_strayed(&self) -> bool {
        self.is_torn || self.rows.bytes() > self.most_row_bytes()
    }

    /// Whether moves that need not be made had better not be: half of the rows are there that make the way
    /// begin again.
    pub(crate) fn have_moved_far(&self) -> bool {
        self.is_torn || self.rows.bytes() > self.most_row_bytes() / 2
    }

    fn most_row_bytes(&self) -> usize {
        LEAST_ROW_BYTES.max(self.limit_bytes / 4)
    }

    pub(crate) fn take_rows(&mut self) -> Batch {
        std::mem::take(&mut self.rows)
    }

    /// What leads to the state of the tries, where that is one step from the one that is `before` away from the
    /// head's.
    pub(crate) fn last_step_upon(&self, before: &Layers) -> Option<Arc<Changes>> {
        let (last, below) = self.ahead.steps().split_last()?;
        let before = before.steps();
        let is_same =
            below.len() == before.len() && below.iter().zip(before).all(|(a, b)| Arc::ptr_eq(a, b));
        is_same.then(|| Arc::clone(last))
    }

    /// Moves the tries, which are `last` away from the state that is `before` away from the head's, on to how
    /// `part` says that it differs from that. After an error, and only then, they must be reset.
    pub(crate) fn move_on(
        &mut self,
        database: &Database,
        (before, last): (&Layers, Arc<Changes>),
        part: &Changes,
    ) -> Result<(), Fault> {
        let mut way = last.onward(part);
        self.moving(database, |tries, _, source| tries.apply(source, &mut way))?;
        // Nobody else has it, as a rule, now that the tries are not there any more.
        let last = Arc::unwrap_or_clone(last).then(way);
        self.ahead = before.clone();
        self.ahead.add(Arc::new(last));
        Ok(())
    }

    /// Says that the tries are ahead of the head.
    pub(crate) fn set_ahead(&mut self, ahead: Layers) {
        self.ahead = ahead;
    }

    /// Says that the state of the tries has become the head: gives the rows that changed.
    pub(crate) fn land(&mut self) -> Batch {
        self.ahead = Layers::default();
        self.sweep_some();
        self.take_rows()
    }

    /// Applies `changes` to the tries and fills in the new storage roots.
    fn apply(&mut self, source: &DiskTrie<'_>, changes: &mut Changes) -> Result<B256, Fault> {
        self.update_storage(source, changes)?;
        let leaf = |account: &AccountChange| account.new.map(|new| new.to_leaf());
        let values: Vec<Option<Vec<u8>>> = changes.accounts.iter().map(leaf).collect();
        let leaves = changes.accounts.iter().zip(&values);
        let leaves = leaves.map(|(account, value)| LeafUpdate {
            key: Path::of_hash(&account.key),
            value: value.as_deref(),
            replaces: account.prior.is_some(),
        });
        let leaves: Vec<LeafUpdate<'_>> = leaves.collect();
        let (work, before) = (self.work(), self.accounts.bytes());
        let update = TrieUpdate {
            owner: None,
            trie: &mut self.accounts,
            leaves: &leaves,
        };
        let rows = update_tries(source, vec![update], work, &tell)?;
        self.bytes = self.bytes + self.accounts.bytes() - before;
        self.keep_rows(rows);
        Ok(self.accounts.root())
    }

    fn update_storage(
        &mut self,
        source: &DiskTrie<'_>,
        changes: &mut Changes,
    ) -> Result<(), Fault> {
        let values = SlotValues::of(changes);
        let leaves: Vec<LeafUpdate<'_>> = values.leaves(changes).collect();
        let (mut tries, mut rest) = (Vec::new(), &leaves[..]);
        for account in &changes.accounts {
            let (leaves, others) = rest.split_at(account.slots.len());
            rest = others;
            if !leaves.is_empty() {
                tries.push((account.key, self.take(account), leaves));
            }
        }
        let updates = tries.iter_mut().map(|(owner, trie, leaves)| TrieUpdate {
            owner: Some(*owner),
            trie,
            leaves,
        });
        let rows = update_tries(source, updates.collect(), self.work(), &tell)?;
        self.keep_rows(rows);

        let updated = tries.into_iter().map(|(owner, trie, _)| (owner, trie));
        let mut updated = updated.collect::<Vec<_>>().into_iter().peekable();
        for account in &mut changes.accounts {
            let trie = updated.next_if(|(owner, _)| *owner == account.key);
            if let Some(new) = &mut account.new {
                // Without a change of slots it is as it was.
                let before = account
                    .prior
                    .map_or(EMPTY_ROOT_HASH, |prior| prior.storage_root);
                new.storage_root = trie.as_ref().map_or(before, |(_, trie)| trie.root());
            }
            // A single leaf has no nodes in memory, but the disk may have another trie.
            if let Some((owner, trie)) = trie
                && trie.root() != EMPTY_ROOT_HASH
            {
                self.bytes += bytes_of(&trie);
                self.storage.insert(owner, trie);
            }
        }
        Ok(())
    }

    /// The storage trie of an account before its change.
    fn take(&mut self, account: &AccountChange) -> Trie {
        let root = account.prior_storage_root();
        let held = self.storage.remove(&account.key);
        self.bytes -= held.as_ref().map_or(0, bytes_of);
        // What was read ahead for a view of another state is of no use.
        let held = held.filter(|trie| trie.root() == root);
        held.unwrap_or_else(|| Trie::new(root))
    }

    fn keep_rows(&mut self, rows: Vec<Batch>) {
        for rows in rows {
            self.clock.touched_bytes += rows.bytes();
            self.rows.append(rows);
        }
        if self.clock.touched_bytes > self.limit_bytes / 4 {
            self.clock.touched_bytes = 0;
            self.clock.now += 1;
        }
    }

    /// Does `work` on the calling thread only.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let threads = std::mem::replace(&mut self.threads, 1);
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.threads = threads;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn work(&self) -> Work {
        Work {
            threads: self.threads,
            clock: self.clock.now,
        }
    }

    /// Drops nodes that were not used lately, if there are too many: a little at a time. Only
    /// while the tries are the head's, whose rows the storage has.
    fn sweep_some(&mut self) {
        if self.sweep.is_none() && self.are_full() {
            self.sweep = Some(Sweep {
                clock: self.clock.now.saturating_sub(1),
                owners: self.storage.keys().copied().collect(),
                nibbles: 16,
            });
        }
        let Some(sweep) = &mut self.sweep else {
            return;
        };
        let clock = sweep.clock;
        let over = self.bytes.saturating_sub(self.limit_bytes);
        let most_bytes = SWEPT_AT_ONCE_BYTES + SWEPT_PER_BYTE_OVER * over;
        let mut swept_bytes = 0;
        while swept_bytes < most_bytes {
            if let Some(nibble) = sweep.nibbles.checked_sub(1) {
                sweep.nibbles = nibble;
                let before = self.accounts.bytes();
                self.accounts.forget(clock, Some(nibble));
                self.bytes -= before - self.accounts.bytes();
                swept_bytes += before / 16;
                continue;
            }
            let Some(owner) = sweep.owners.pop() else {
                self.sweep = None;
                return;
            };
            let Some(trie) = self.storage.get_mut(&owner) else {
                continue;
            };
            let before = bytes_of(trie);
            trie.forget(clock, None);
            self.bytes -= before - bytes_of(trie);
            swept_bytes += before;
            if trie.bytes() == 0 {
                self.bytes -= bytes_of(trie);
                self.storage.remove(&owner);
            }
        }
    }
}

/// Bytes that a storage trie takes.
pub(crate) fn bytes_of(trie: &Trie) -> usize {
    const ENTRY_BYTES: usize = size_of::<B256>() + size_of::<Trie>() + 16;
    ENTRY_BYTES + trie.bytes()
}

fn tell(rows: &mut Batch, owner: &Owner, path: &Path, row: Option<&[u8]>) {
    let (segment, key) = row_key(owner, path);
    match row {
        Some(row) => rows.put_parts(segment, &key, &[row]),
        None => rows.delete_parts(segment, &key),
    }
}

/// The values of all slots that changes set, as they stand in the leaves, one after the other.
struct SlotValues {
    bytes: Vec<u8>,
    /// Where each ends; of a removed slot as that before.
    ends: Vec<usize>,
}

impl SlotValues {
    fn of(changes: &Changes) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for slot in changes.accounts.iter().flat_map(|account| &account.slots) {
            if !slot.new.is_zero() {
                encode_slot_to(&slot.new, &mut bytes);
            }
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// The leaves of all slots of the same changes.
    fn leaves<'a>(&'a self, changes: &'a Changes) -> impl Iterator<Item = LeafUpdate<'a>> {
        let slots = changes.accounts.iter().flat_map(|account| &account.slots);
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
