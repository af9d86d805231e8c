//! The world state: opened, viewed, moved by one block or along branches.

use crate::branch::{Overlay, Overlays, block_key, overlay_at};
use crate::cache::Caches;
use crate::changes::Changes;
use crate::disk_trie::{corrupt, row_key};
use crate::flat::{encode_account, encode_value};
use crate::root::{Prepared, advance, prepare};
use crate::{LogRow, View};
use niwaki_primitives::{B256, Fault, StateDiff};
use niwaki_storage::{Batch, Database, Segment};
use niwaki_trie::{Owner, RowUpdates};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many blocks below the head keep their trie logs: as deep can the state be rolled back.
pub const TRIE_LOGS_KEPT: u64 = 512;

/// The row of `meta` that says which block's state the flat segments and the trie hold.
const HEAD: &[u8] = b"head";

/// A block by number and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Number.
    pub number: u64,
    /// Hash.
    pub hash: B256,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.hash)
    }
}

/// The block whose state is on disk, and that state's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateHead {
    /// The block.
    pub block: BlockId,
    /// The state root after it.
    pub root: B256,
}

impl StateHead {
    const BYTES: usize = 72;

    pub(crate) fn to_row(self) -> [u8; Self::BYTES] {
        let mut row = [0; Self::BYTES];
        row[..40].copy_from_slice(&block_key(&self.block));
        row[40..].copy_from_slice(self.root.as_slice());
        row
    }

    fn from_row(row: &[u8]) -> Option<Self> {
        let (number, rest) = row.split_first_chunk::<8>()?;
        let (hash, root) = rest.split_first_chunk::<32>()?;
        let (number, hash) = (u64::from_be_bytes(*number), B256::from(*hash));
        let block = BlockId { number, hash };
        let root = B256::try_from(root).ok()?;
        Some(Self { block, root })
    }
}

/// How a world state is opened.
#[derive(Clone, Copy, Debug)]
pub struct StateOptions {
    /// Bytes for cached accounts, slots, code and trie rows together.
    pub cache_bytes: usize,
    /// Threads that compute a root together, where there is enough to do; at least one.
    pub threads: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 512 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The state on disk with its caches. One writer, any number of views.
pub struct WorldState {
    database: Database,
    threads: usize,
    caches: Caches,
    shared: Mutex<Shared>,
    overlays: Mutex<Overlays>,
}

/// What changes with a commit: all of it at once, under one lock.
struct Shared {
    head: Option<StateHead>,
    /// Counts commits; the caches have the same.
    version: u64,
}

impl WorldState {
    /// Opens the state in `database`, which may be empty.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`Fault::Corrupt`] if the head's row can't be read.
    pub fn open(database: Database, options: &StateOptions) -> Result<Self, Fault> {
        let row = database.get(Segment::Meta, HEAD)?;
        let head = row.map(|row| {
            StateHead::from_row(&row)
                .ok_or_else(|| corrupt(Segment::Meta, HEAD, "a head has 72 bytes"))
        });
        let head = head.transpose()?;
        Ok(Self {
            database,
            threads: options.threads.max(1),
            caches: Caches::new(options.cache_bytes),
            shared: Mutex::new(Shared { head, version: 0 }),
            overlays: Mutex::default(),
        })
    }

    /// The database, for whoever keeps blocks beside the state. The state's own segments are
    /// written through here only.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Closes the state and gives back its database.
    pub fn into_database(self) -> Database {
        self.database
    }

    /// The block whose state is on disk; `None` before a genesis was loaded.
    pub fn head(&self) -> Option<StateHead> {
        self.shared().head
    }

    /// The state after the head.
    ///
    /// # Errors
    /// [`Fault::Missing`] before a genesis was loaded.
    pub fn view_at_head(&self) -> Result<View<'_>, Fault> {
        let shared = self.shared();
        let head = shared.head.ok_or_else(|| Fault::Missing {
            segment: Segment::Meta.name(),
            key: "head (no genesis was loaded)".to_owned(),
        })?;
        let snapshot = self.database.snapshot();
        Ok(View::new(self, snapshot, head, shared.version))
    }

    /// The state after `block`; `None` if it is not the head and a trie log on the way is not
    /// kept. Costs a walk over the blocks between the head and `block`, unless it or its parent
    /// was asked for lately.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn view_at(&self, block: BlockId) -> Result<Option<View<'_>>, Fault> {
        let view = self.view_at_head()?;
        let head = view.head();
        if head.block == block {
            return Ok(Some(view));
        }
        let known = self.overlays().get(&head, &block);
        let overlay = match known {
            Some(overlay) => overlay,
            None => match overlay_at(&self.database, &head, block)? {
                Some(overlay) => Arc::new(overlay),
                None => return Ok(None),
            },
        };
        self.overlays().put(&head, Arc::clone(&overlay));
        Ok(Some(view.with_overlay(overlay)))
    }

    /// Computes the root of the state that `diff` makes of `view`'s, without writing anything.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prepare(&self, view: &View<'_>, diff: &StateDiff) -> Result<Prepared, Fault> {
        prepare(view, diff)
    }

    /// Makes `block` the head: writes `batch`, the state, the trie log and the head's row as one.
    /// With `durable` it survives a power cut before this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    ///
    /// # Panics
    /// If the head moved since `prepared` was made.
    pub fn commit(
        &self,
        prepared: Prepared,
        (block, parent): (BlockId, B256),
        mut batch: Batch,
        durable: bool,
    ) -> Result<(), Fault> {
        self.add_log(&prepared, (block, parent), &mut batch);
        let root = prepared.root;
        let from = prepared.head;
        let codes = prepared.codes;
        let total = prepared.from_head.unwrap_or(prepared.own);
        let head = StateHead { block, root };
        self.write(
            Move {
                from,
                head,
                total,
                rows: prepared.rows,
            },
            batch,
            durable,
        )?;
        let mut cached = self.caches.codes();
        for (hash, code) in codes {
            let bytes = code.len();
            cached.insert(hash, code, bytes);
        }
        Ok(())
    }

    /// Whether `prepared` can be committed: the head is the one it was made upon.
    pub fn is_current(&self, prepared: &Prepared) -> bool {
        self.head() == Some(prepared.head)
    }

    /// Adds to `batch` what keeps the state of `block` reachable without making it the head: its
    /// trie log and codes. `view` is what it was executed upon.
    pub fn keep_beside(
        &self,
        view: &View<'_>,
        prepared: &Prepared,
        (block, parent): (BlockId, B256),
        batch: &mut Batch,
    ) {
        self.add_log(prepared, (block, parent), batch);
        let own = prepared.own.clone();
        let overlay = match view.overlay() {
            Some(overlay) => overlay.child(block, own),
            None => Overlay::child_of_head(block, own),
        };
        self.overlays().put(&view.head(), Arc::new(overlay));
    }

    /// Makes `block`, whose state root is `root`, the head by trie logs, back to the common
    /// ancestor and forward again; writes `batch` and all of that as one. `false`, with nothing
    /// written, if a trie log on the way is not kept.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`Fault::Corrupt`] if the logs do not lead to `root`. Then
    /// nothing was written.
    pub fn move_to(
        &self,
        block: BlockId,
        root: B256,
        batch: Batch,
        durable: bool,
    ) -> Result<bool, Fault> {
        let view = self.view_at_head()?;
        let from = view.head();
        let Some(overlay) = overlay_at(&self.database, &from, block)? else {
            return Ok(false);
        };
        let mut total = overlay.changes;
        let (got, rows) = advance(&view, &mut total)?;
        if got != root {
            let reason = format!("the trie logs lead to state root {got}, not {root}");
            return Err(corrupt(Segment::TrieLogs, &block_key(&block), &reason));
        }
        let head = StateHead { block, root };
        self.write(
            Move {
                from,
                head,
                total,
                rows,
            },
            batch,
            durable,
        )?;
        Ok(true)
    }

    fn add_log(&self, prepared: &Prepared, (block, parent): (BlockId, B256), batch: &mut Batch) {
        let log = LogRow::encode(parent, &prepared.own);
        batch.put(Segment::TrieLogs, &block_key(&block), &log);
        for (hash, code) in &prepared.codes {
            batch.put(Segment::Code, hash.as_slice(), code);
        }
    }

    /// Writes a move of the head as one batch, then lets the caches follow.
    fn write(&self, moved: Move, mut batch: Batch, durable: bool) -> Result<(), Fault> {
        let Move {
            from,
            head,
            total,
            rows,
        } = moved;
        add_flat(&total, &mut batch);
        for (owner, updates) in &rows {
            for (path, row) in updates {
                let (segment, key) = row_key(owner, path);
                match row {
                    Some(row) => batch.put(segment, &key, &row.bytes),
                    None => batch.delete(segment, &key),
                }
            }
        }
        self.prune_logs(from.block.number, head.block.number, &mut batch)?;
        batch.put(Segment::Meta, HEAD, &head.to_row());

        let mut shared = self.shared();
        assert_eq!(shared.head, Some(from), "only one writer moves the head");
        self.database.write(&batch, durable)?;
        shared.head = Some(head);
        self.caches.follow(shared.version, &total, rows);
        shared.version += 1;
        Ok(())
    }

    /// Removes the trie logs that fall out of reach when the head moves up.
    fn prune_logs(&self, from: u64, to: u64, batch: &mut Batch) -> Result<(), Fault> {
        let start = from.saturating_sub(TRIE_LOGS_KEPT).to_be_bytes();
        let end = to.saturating_sub(TRIE_LOGS_KEPT).to_be_bytes();
        if start < end {
            for row in self.database.range(Segment::TrieLogs, &start, Some(&end)) {
                batch.delete(Segment::TrieLogs, &row?.0);
            }
        }
        Ok(())
    }

    /// Puts the state of a freshly loaded genesis in force.
    pub(crate) fn set_first_head(&self, head: StateHead, mut batch: Batch) -> Result<(), Fault> {
        batch.put(Segment::Meta, HEAD, &head.to_row());
        let mut shared = self.shared();
        assert_eq!(shared.head, None, "a genesis is loaded into an empty state");
        self.database.write(&batch, true)?;
        shared.head = Some(head);
        self.caches
            .follow(shared.version, &Changes::default(), Vec::new());
        shared.version += 1;
        Ok(())
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Threads that compute a root together.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlays(&self) -> MutexGuard<'_, Overlays> {
        self.overlays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A move of the head.
struct Move {
    from: StateHead,
    head: StateHead,
    total: Changes,
    rows: Vec<(Owner, RowUpdates)>,
}

/// Adds the flat accounts and slots of `changes`' second state.
fn add_flat(changes: &Changes, batch: &mut Batch) {
    for account in &changes.accounts {
        let key = account.key.as_slice();
        match &account.new {
            Some(new) => batch.put(Segment::Accounts, key, &encode_account(new)),
            None => batch.delete(Segment::Accounts, key),
        }
        for slot in &account.slots {
            let key = [key, slot.key.as_slice()];
            if slot.new.is_zero() {
                batch.delete_parts(Segment::Slots, &key);
            } else {
                batch.put_parts(Segment::Slots, &key, &[&encode_value(&slot.new)]);
            }
        }
    }
}

impl fmt::Debug for WorldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldState")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}
