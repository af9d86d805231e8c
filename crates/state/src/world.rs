//! The world state: opened, viewed, moved by one block or along trie logs.
//!
//! One writer (the thread that imports), any number of readers. Lock order: `tries`, then `head`; a commit holds
//! `tries` until the head has moved, so tries and head are of the same state for every holder of `tries`.

use crate::commit::hashed_diff::HashedDiff;
use crate::commit::hashed_keys::HashedKeys;
use crate::commit::history::{HISTORY_START, HistoryRecorder, HistoryStep};
use crate::commit::root::ComputedRoot;
use crate::commit::rows::{BYTES_PER_VALUE, TrieLogRows, add_flat};
use crate::tries::trie_cache::TrieCache;
use crate::views::cache::{CacheStats, Caches, ReadStats};
use crate::views::layers::DiffLayers;
use crate::views::overlay::{Overlay, OverlayCache, RollPath, diff_to, overlay_at, roll_path};
use crate::{BlockId, HistoricalView, StateHead, View};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database, DeferredRows, Segment, corrupt};
use niwaki_threads::lock;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many blocks below the head keep their trie logs, at least: the state can be rolled back that far.
pub const TRIE_LOGS_KEPT: u64 = 512;

/// The row of `meta` that says which block's state the flat segments and the trie hold.
const HEAD: &[u8] = b"head";

/// How a world state is opened.
#[derive(Clone, Copy, Debug)]
pub struct StateOptions {
    /// Bytes for cached accounts, slots and code, and for trie nodes in memory: half each.
    pub cache_bytes: usize,
    /// Threads that compute a root together, where there is enough to do; at least one.
    pub threads: usize,
    /// Keep the history of every value from the first state on. Only used for an empty database; a database
    /// that has a head knows whether it is an archive.
    pub archive: bool,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 512 << 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            archive: false,
        }
    }
}

/// The state on disk with its caches. One writer, any number of views; see the crate.
pub struct WorldState {
    database: Database,
    caches: Arc<Caches>,
    /// Locked before `head`, and until the head has moved.
    tries: Mutex<TrieCache>,
    head: Mutex<HeadState>,
    overlays: Mutex<OverlayCache>,
    /// The keys of the diff that was hashed last.
    keys: Mutex<Arc<HashedKeys>>,
    archive: bool,
}

/// What a commit changes under one lock, together with the database.
struct HeadState {
    head: Option<StateHead>,
    /// Counts commits; the shards of the value caches have versions too.
    version: u64,
}

/// A move of the head.
struct HeadChange {
    from: StateHead,
    to: StateHead,
    /// From the one state to the other.
    diff: Arc<HashedDiff>,
    /// Of the new head, if it is not stored yet.
    log: Option<TrieLogRows>,
    durable: bool,
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
        let root = head.map_or(EMPTY_ROOT_HASH, |head| head.root);
        let half_bytes = options.cache_bytes / 2;
        let archive = match head {
            Some(_) => database.get(Segment::Meta, HISTORY_START)?.is_some(),
            None => options.archive,
        };
        let threads = options.threads.max(1);
        Ok(Self {
            database,
            caches: Arc::new(Caches::new(half_bytes)),
            tries: Mutex::new(TrieCache::new(root, half_bytes, threads)),
            head: Mutex::new(HeadState { head, version: 0 }),
            overlays: Mutex::default(),
            keys: Mutex::default(),
            archive,
        })
    }

    /// Whether the history of every value is kept.
    pub fn is_archive(&self) -> bool {
        self.archive
    }

    /// The state of `past`, which must be a canonical block at or below the head and its state
    /// root; `None` where no history is kept, or only from a later block on.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn historical_view(&self, past: StateHead) -> Result<Option<HistoricalView>, Fault> {
        let now = self.view_at_head()?;
        let first = self.database.get(Segment::Meta, HISTORY_START)?;
        // Numbers of 8 bytes sort as their bytes do.
        let is_kept = first.is_some_and(|first| first[..] <= past.block.number.to_be_bytes()[..]);
        Ok((self.archive && is_kept).then(|| HistoricalView::new(now, past)))
    }

    /// The database, in which the caller keeps blocks next to the state. The segments of the state must not be
    /// written through it.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Closes the state and returns its database. Views of it stay valid.
    pub fn into_database(self) -> Database {
        self.database
    }

    /// The block whose state is on disk; `None` before a genesis was loaded.
    pub fn head(&self) -> Option<StateHead> {
        lock(&self.head).head
    }

    /// The state after the head.
    ///
    /// # Errors
    /// [`Fault::Missing`] before a genesis was loaded.
    pub fn view_at_head(&self) -> Result<View, Fault> {
        let state = lock(&self.head);
        let head = state.head.ok_or_else(|| Fault::Missing {
            segment: Segment::Meta.name(),
            key: "head (no genesis was loaded)".to_owned(),
        })?;
        Ok(View {
            caches: Arc::clone(&self.caches),
            snapshot: self.database.snapshot(),
            head,
            version: state.version,
            overlay: None,
            prefetch_sender: None,
        })
    }

    /// The state after `block`; `None` if a trie log between the head and `block` is not kept. Reads one trie log
    /// per block in between, unless `block` or its parent was requested lately.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn view_at(&self, block: BlockId) -> Result<Option<View>, Fault> {
        let view = self.view_at_head()?;
        self.overlaid(view, block)
    }

    /// The state after `block`, laid over `base`, which must be a view of a head, be it a past one; `None` as for
    /// [`WorldState::view_at`]. It costs one trie log for each block between the two.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If `base` is not of a head.
    pub fn view_over(&self, base: &View, block: BlockId) -> Result<Option<View>, Fault> {
        assert!(base.overlay.is_none(), "a view of a head");
        let overlay = overlay_at(&self.database, &base.head, block)?;
        Ok(overlay.map(|overlay| View {
            overlay: Some(Arc::new(overlay)),
            ..base.clone()
        }))
    }

    /// The state after `block`, as an overlay over `view`, which must be of a head.
    pub(crate) fn overlaid(&self, view: View, block: BlockId) -> Result<Option<View>, Fault> {
        let head = view.head;
        if head.block == block {
            return Ok(Some(view));
        }
        let cached = lock(&self.overlays).get(&head, &block);
        let overlay = match cached {
            Some(overlay) => overlay,
            None => match overlay_at(&self.database, &head, block)? {
                Some(overlay) => Arc::new(overlay),
                None => return Ok(None),
            },
        };
        lock(&self.overlays).put(&head, Arc::clone(&overlay));
        Ok(Some(View {
            overlay: Some(overlay),
            ..view
        }))
    }

    pub(crate) fn keys(&self) -> MutexGuard<'_, Arc<HashedKeys>> {
        lock(&self.keys)
    }

    /// As [`TrieCache::move_to`], and resets the tries first if they need it, and after an error.
    pub(crate) fn move_tries(
        &self,
        tries: &mut TrieCache,
        head: &StateHead,
        before: &DiffLayers,
        last: &mut HashedDiff,
    ) -> Result<B256, Fault> {
        if tries.needs_reset() {
            tries.reset(head.root);
        }
        let moved = tries.move_to(&self.database, before, last);
        moved.inspect_err(|_| tries.reset(head.root))
    }

    /// Makes `block`, a child of `parent`, the head: writes `batch`, the state, the trie log and the head's row
    /// as one. With `durable` it survives a power cut when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    ///
    /// # Panics
    /// If the head has moved since the root was computed.
    pub fn commit(
        &self,
        computed: ComputedRoot,
        block: BlockId,
        parent: B256,
        batch: Batch,
        durable: bool,
    ) -> Result<(), Fault> {
        self.commit_from(computed, block, Some(parent), batch, durable)
    }

    /// As [`WorldState::commit`] for several blocks at once, from the head's child up to `block`. It leaves no trie log, so no
    /// state below `block` can be reached afterwards.
    ///
    /// # Errors
    /// As [`WorldState::commit`].
    ///
    /// # Panics
    /// As [`WorldState::commit`], and in an archive, which keeps the state of each block.
    pub fn commit_batch(
        &self,
        computed: ComputedRoot,
        block: BlockId,
        batch: Batch,
    ) -> Result<(), Fault> {
        assert!(!self.archive, "an archive keeps the state of each block");
        self.commit_from(computed, block, None, batch, false)
    }

    /// Without a parent there is no trie log.
    fn commit_from(
        &self,
        computed: ComputedRoot,
        block: BlockId,
        parent: Option<B256>,
        mut batch: Batch,
        durable: bool,
    ) -> Result<(), Fault> {
        let mut tries = self.tries();
        let from = computed.head;
        if tries.epoch() != computed.epoch {
            // Another root was computed since.
            let mut own = HashedDiff::clone(&computed.own);
            self.move_tries(&mut tries, &from, &computed.before, &mut own)?;
            tries.set_offset(computed.after.clone());
        }
        let to = StateHead {
            block,
            root: computed.root,
        };
        if let Some(hash) = parent.filter(|_| self.archive) {
            let number = block.number.saturating_sub(1);
            let own = (block, HashedDiff::clone(&computed.own));
            let parent = BlockId { number, hash };
            self.record_history(&mut tries, &from, parent, Some(own), &mut batch)
                .inspect_err(|_| tries.reset(from.root))?;
        }
        let (diff, codes) = (computed.after.total(), computed.codes.clone());
        let own = Arc::clone(&computed.own);
        let is_child_of_head = computed.before.steps().is_empty();
        let log = match parent {
            Some(parent) => Some(TrieLogRows::of(computed, block, parent)),
            None => {
                for (hash, code) in &codes {
                    batch.put(Segment::Code, hash.as_slice(), code);
                }
                None
            }
        };
        let change = HeadChange {
            from,
            to,
            diff,
            log,
            durable,
        };
        self.write(&mut tries, change, batch)?;
        if is_child_of_head {
            let mut overlays = lock(&self.overlays);
            overlays.advance_head(&from.block.hash, &block, &own);
        }
        let mut cached = self.caches.codes();
        for (hash, code) in codes {
            let bytes = code.len();
            cached.insert(hash, code, bytes);
        }
        Ok(())
    }

    /// Whether [`WorldState::commit`] can be called: the head is still the one that the root was computed on.
    pub fn is_committable(&self, computed: &ComputedRoot) -> bool {
        self.head() == Some(computed.head)
    }

    /// Keeps the state of `block`, a child of `parent`, reachable without making it the head. Returns a function
    /// that adds its trie log and codes to the batch that stores the block; the caller must run it.
    /// `view` is the parent's state, on which the block was executed.
    pub fn stage_side_block(
        &self,
        view: &View,
        computed: &ComputedRoot,
        block: BlockId,
        parent: B256,
    ) -> impl FnOnce(&mut Batch) + Send + use<> {
        let log = TrieLogRows::of(computed.clone(), block, parent);
        // Otherwise the head has moved since, and the layers are relative to another head than the view's.
        if computed.head == view.head {
            let overlay = Overlay::child(view.overlay.as_ref(), block, computed.after.clone());
            lock(&self.overlays).put(&view.head, Arc::new(overlay));
        }
        move |batch| log.add_to(batch)
    }

    /// Makes `block`, whose state root is `root`, the head by trie logs: back to the common ancestor, then
    /// forward. Writes `batch` and all of that as one. `false`, with nothing written, if a trie log in
    /// between is not kept.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`Fault::Corrupt`] if the logs do not lead to `root`. Then
    /// nothing was written.
    pub fn roll_to(
        &self,
        block: BlockId,
        root: B256,
        mut batch: Batch,
        durable: bool,
    ) -> Result<bool, Fault> {
        let mut tries = self.tries();
        let view = self.view_at_head()?;
        let from = view.head;
        let Some(mut diff) = diff_to(&self.database, &from, block)? else {
            return Ok(false);
        };
        let got = self.move_tries(&mut tries, &from, &DiffLayers::default(), &mut diff)?;
        if got != root {
            tries.reset(from.root);
            let reason = format!("the trie logs lead to state root {got}, not {root}");
            return Err(corrupt(Segment::TrieLogs, &block.to_key(), &reason));
        }
        let to = StateHead { block, root };
        let diff = Arc::new(diff);
        tries.set_offset(DiffLayers::from_iter([Arc::clone(&diff)]));
        if self.archive {
            self.record_history(&mut tries, &from, block, None, &mut batch)
                .inspect_err(|_| tries.reset(from.root))?;
        }
        let change = HeadChange {
            from,
            to,
            diff,
            log: None,
            durable,
        };
        self.write(&mut tries, change, batch)?;
        Ok(true)
    }

    /// Adds to `batch` the history of all blocks between the head `from` and the block `to`, and then of `last`.
    /// The tries, which are of the final state, still are when this returns.
    fn record_history(
        &self,
        tries: &mut TrieCache,
        from: &StateHead,
        to: BlockId,
        last: Option<(BlockId, HashedDiff)>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let found = roll_path(&self.database, from, to)?;
        let RollPath { undo, mut apply } = found.ok_or_else(|| Fault::Missing {
            segment: Segment::TrieLogs.name(),
            key: format!("block {to} (its state is out of reach)"),
        })?;
        apply.extend(last);
        let mut recorder = HistoryRecorder::new(&self.database);
        if let ([], [(block, diff)]) = (&undo[..], &apply[..]) {
            return recorder.add(HistoryStep::Apply(block.number), diff, tries.rows(), batch);
        }
        let undo = undo.into_iter();
        let undo = undo.map(|(block, diff)| (HistoryStep::Undo(block.number), diff));
        let apply = apply.into_iter();
        let apply = apply.map(|(block, diff)| (HistoryStep::Apply(block.number), diff));

        // Back to the head, then one block at a time, so that each has its own rows.
        self.move_tries(
            tries,
            from,
            &DiffLayers::default(),
            &mut HashedDiff::default(),
        )?;
        tries.take_rows();
        let mut offset = DiffLayers::default();
        for (step, mut diff) in undo.chain(apply) {
            tries.set_offset(offset.clone());
            self.move_tries(tries, from, &offset, &mut diff)?;
            let rows = tries.take_rows();
            recorder.add(step, &diff, &rows, batch)?;
            batch.append(rows);
            offset.add(Arc::new(diff));
        }
        tries.set_offset(offset);
        Ok(())
    }

    /// Writes a change of the head together with `batch` as one; then the value caches follow. The tries are of
    /// the new state already. Flat rows and the trie log are deferred: no reader needs them at once, because
    /// the value caches have the same values.
    fn write(
        &self,
        tries: &mut TrieCache,
        change: HeadChange,
        mut batch: Batch,
    ) -> Result<(), Fault> {
        let HeadChange {
            from,
            to,
            diff,
            log,
            durable,
        } = change;
        assert_eq!(self.head(), Some(from), "only one writer moves the head");
        self.prune_logs(from.block.number, to.block.number, &mut batch)?;
        batch.put(Segment::Meta, HEAD, &to.to_row());
        batch.append(tries.commit_head());
        let values = diff.len();
        let code_bytes = log
            .iter()
            .flat_map(|log| &log.codes)
            .map(|(_, code)| code.len());
        let bytes = values * BYTES_PER_VALUE + code_bytes.sum::<usize>();
        let (flat, caches) = (Arc::clone(&diff), Arc::clone(&self.caches));
        let deferred = DeferredRows::new(bytes, move |batch| {
            add_flat(&flat, batch);
            if let Some(log) = log {
                log.add_to(batch);
            }
        });
        let deferred = deferred.on_ready(move || caches.catch_up());
        let written = self.publish_head(to, diff, batch, deferred);
        written.inspect_err(|_| tries.reset(from.root))?;
        if values < MANY_VALUES || self.caches.is_far_behind() {
            self.caches.catch_up();
        }
        if durable {
            self.database.sync()?;
        }
        Ok(())
    }

    /// Writes a batch and makes it visible to new views together with the new head.
    fn publish_head(
        &self,
        head: StateHead,
        diff: Arc<HashedDiff>,
        batch: Batch,
        deferred: DeferredRows,
    ) -> Result<(), Fault> {
        self.database.wait_for_room()?;
        let mut state = lock(&self.head);
        self.database.write_deferred(batch, deferred, false)?;
        state.head = Some(head);
        state.version += 1;
        self.caches.push_diff(state.version, diff);
        Ok(())
    }

    /// Removes the trie logs that are no longer needed when the head moves up, those of 32 blocks at a time.
    fn prune_logs(&self, from: u64, to: u64, batch: &mut Batch) -> Result<(), Fault> {
        const BLOCKS: u64 = 32;
        let first_kept = |head: u64| head.saturating_sub(TRIE_LOGS_KEPT) / BLOCKS * BLOCKS;
        let (start, end) = (first_kept(from).to_be_bytes(), first_kept(to).to_be_bytes());
        if start < end {
            for row in self.database.range(Segment::TrieLogs, &start, Some(&end)) {
                batch.delete(Segment::TrieLogs, &row?.0);
            }
        }
        Ok(())
    }

    /// Gives the head up, with a batch that is durable when this returns: another state takes its place.
    pub(crate) fn drop_head(&self, mut batch: Batch) -> Result<(), Fault> {
        batch.delete(Segment::Meta, HEAD);
        let mut tries = self.tries();
        let mut state = lock(&self.head);
        self.database.write(batch, true)?;
        state.head = None;
        state.version += 1;
        self.caches.clear(state.version);
        drop(state);
        *lock(&self.overlays) = OverlayCache::default();
        tries.reset(EMPTY_ROOT_HASH);
        Ok(())
    }

    /// Makes the block whose whole state is on disk the head.
    pub(crate) fn set_first_head(&self, head: StateHead, mut batch: Batch) -> Result<(), Fault> {
        batch.put(Segment::Meta, HEAD, &head.to_row());
        if self.archive {
            batch.put(
                Segment::Meta,
                HISTORY_START,
                &head.block.number.to_be_bytes(),
            );
        }
        let mut state = lock(&self.head);
        assert_eq!(state.head, None, "the first head of a state");
        self.database.write(batch, true)?;
        state.head = Some(head);
        state.version += 1;
        self.caches.push_diff(state.version, Arc::default());
        drop(state);
        self.tries().reset(head.root);
        Ok(())
    }

    /// Hits and misses of the value caches, and bytes of the trie nodes in memory.
    pub fn cache_stats(&self) -> CacheStats {
        let (trie_nodes_read, trie_bytes) = self.tries().stats();
        let (codes, code_evictions) = self.caches.code_stats();
        CacheStats {
            reads: self.read_stats(),
            codes,
            code_evictions,
            trie_nodes_read,
            trie_bytes,
            value_bytes: self.caches.bytes(),
        }
    }

    /// Hits and misses of the value caches. About 2 us.
    pub fn read_stats(&self) -> ReadStats {
        self.caches.stats()
    }

    pub(crate) fn tries(&self) -> MutexGuard<'_, TrieCache> {
        lock(&self.tries)
    }
}

/// A commit of fewer values updates the value caches at once; a larger one leaves it to the storage writer.
const MANY_VALUES: usize = 256;

impl fmt::Debug for WorldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldState")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}
