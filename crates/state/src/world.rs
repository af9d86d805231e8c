//! The world state: opened, viewed, moved by one block or along branches.

use crate::branch::{Overlay, Overlays, Way, block_key, changes_to, overlay_at, way};
use crate::cache::{CacheFigures, Caches, HitRate};
use crate::changes::Changes;
use crate::commit_rows::{BYTES_PER_VALUE, Log, add_flat};
use crate::disk_trie::corrupt;
use crate::history::{HISTORY, Recorder, Step};
use crate::keys::Keys;
use crate::layers::Layers;
use crate::root::Prepared;
use crate::tries::Tries;
use crate::{PastView, View};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database, Later, Segment};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many blocks below the head keep their trie logs, at least: as deep can the state be rolled
/// back.
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
    /// Bytes for cached accounts, slots and code, and for trie nodes in memory: half each.
    pub cache_bytes: usize,
    /// Threads that compute a root together, where there is enough to do; at least one.
    pub threads: usize,
    /// Keep the history of every value from the first state on. Asked for when a state is begun;
    /// later the database knows.
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

/// The state on disk with its caches. One writer, any number of views.
pub struct WorldState {
    database: Database,
    caches: Arc<Caches>,
    /// Locked before `shared`, and as long as the head moves.
    tries: Mutex<Tries>,
    shared: Mutex<Shared>,
    overlays: Mutex<Overlays>,
    /// Those of the diff that was hashed last.
    keys: Mutex<Arc<Keys>>,
    archive: bool,
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
        let root = head.map_or(EMPTY_ROOT_HASH, |head| head.root);
        let half_bytes = options.cache_bytes / 2;
        let archive = match head {
            Some(_) => database.get(Segment::Meta, HISTORY)?.is_some(),
            None => options.archive,
        };
        let threads = options.threads.max(1);
        Ok(Self {
            database,
            caches: Arc::new(Caches::new(half_bytes)),
            tries: Mutex::new(Tries::new(root, half_bytes, threads)),
            shared: Mutex::new(Shared { head, version: 0 }),
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
    pub fn view_of_past(&self, past: StateHead) -> Result<Option<PastView>, Fault> {
        let now = self.view_at_head()?;
        let first = self.database.get(Segment::Meta, HISTORY)?;
        // Numbers of 8 bytes sort as their bytes do.
        let is_kept = first.is_some_and(|first| first[..] <= past.block.number.to_be_bytes()[..]);
        Ok((self.archive && is_kept).then(|| PastView::new(now, past)))
    }

    /// The database, for whoever keeps blocks beside the state. The state's own segments are
    /// written through here only.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Closes the state and gives back its database. Views of it stay as they are.
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
    pub fn view_at_head(&self) -> Result<View, Fault> {
        let shared = self.shared();
        let head = shared.head.ok_or_else(|| Fault::Missing {
            segment: Segment::Meta.name(),
            key: "head (no genesis was loaded)".to_owned(),
        })?;
        let snapshot = self.database.snapshot();
        let caches = Arc::clone(&self.caches);
        Ok(View::new(caches, snapshot, head, shared.version))
    }

    /// The state after `block`; `None` if it is not the head and a trie log on the way is not
    /// kept. Costs a walk over the blocks between the head and `block`, unless it or its parent
    /// was asked for lately.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn view_at(&self, block: BlockId) -> Result<Option<View>, Fault> {
        let view = self.view_at_head()?;
        self.laid_over(view, block)
    }

    /// The state after `block`, seen from that of `view`, a head's.
    pub(crate) fn laid_over(&self, view: View, block: BlockId) -> Result<Option<View>, Fault> {
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

    pub(crate) fn keys(&self) -> MutexGuard<'_, Arc<Keys>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves `tries` to the state that is `before` and then `last` away from the head's; see
    /// [`Tries::move_to`].
    pub(crate) fn advance(
        &self,
        tries: &mut Tries,
        head: &StateHead,
        before: &Layers,
        last: &mut Changes,
    ) -> Result<B256, Fault> {
        if tries.has_strayed() {
            tries.reset(head.root);
        }
        let moved = tries.move_to(&self.database, before, last);
        moved.inspect_err(|_| tries.reset(head.root))
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
        let mut tries = self.tries();
        let from = prepared.head;
        if tries.moves() != prepared.moves {
            // Another block was prepared since.
            let mut own = Changes::clone(&prepared.own);
            self.advance(&mut tries, &from, &prepared.before, &mut own)?;
            tries.set_ahead(prepared.after.clone());
        }
        let head = StateHead {
            block,
            root: prepared.root,
        };
        if self.archive {
            let number = block.number.saturating_sub(1);
            let parent = BlockId {
                number,
                hash: parent,
            };
            let own = (block, Changes::clone(&prepared.own));
            self.record(&mut tries, (from, parent), Some(own), &mut batch)
                .inspect_err(|_| tries.reset(from.root))?;
        }
        let (total, codes) = (prepared.after.total(), prepared.codes.clone());
        let own = Arc::clone(&prepared.own);
        let is_upon_head = prepared.before.steps().is_empty();
        let log = Some(Log::of(prepared, (block, parent)));
        self.write(&mut tries, (from, head), total, (batch, log), durable)?;
        if is_upon_head {
            let mut overlays = self.overlays();
            overlays.follow(&from.block.hash, &block, &own);
        }
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

    /// Keeps the state of `block` reachable without making it the head. Gives what adds its trie log and
    /// codes to the batch that stores it, which must be used. `view` is what it was executed upon.
    pub fn keep_beside(
        &self,
        view: &View,
        prepared: &Prepared,
        (block, parent): (BlockId, B256),
    ) -> impl FnOnce(&mut Batch) + Send + use<> {
        let log = Log::of(prepared.clone(), (block, parent));
        // Else the head has moved, and the layers are upon another one than the view's.
        if prepared.head == view.head() {
            let overlay = Overlay::child(view.overlay(), block, prepared.after.clone());
            self.overlays().put(&view.head(), Arc::new(overlay));
        }
        move |batch| log.add_to(batch)
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
        mut batch: Batch,
        durable: bool,
    ) -> Result<bool, Fault> {
        let mut tries = self.tries();
        let view = self.view_at_head()?;
        let from = view.head();
        let Some(mut total) = changes_to(&self.database, &from, block)? else {
            return Ok(false);
        };
        let got = self.advance(&mut tries, &from, &Layers::default(), &mut total)?;
        if got != root {
            tries.reset(from.root);
            let reason = format!("the trie logs lead to state root {got}, not {root}");
            return Err(corrupt(Segment::TrieLogs, &block_key(&block), &reason));
        }
        let head = StateHead { block, root };
        let total = Arc::new(total);
        tries.set_ahead(Layers::from_iter([Arc::clone(&total)]));
        if self.archive {
            self.record(&mut tries, (from, block), None, &mut batch)
                .inspect_err(|_| tries.reset(from.root))?;
        }
        self.write(&mut tries, (from, head), total, (batch, None), durable)?;
        Ok(true)
    }

    /// Adds to `batch` the history of the way from one block to another, and then of one block
    /// more; the tries, which are at its end, still are when this returns.
    fn record(
        &self,
        tries: &mut Tries,
        (from, to): (StateHead, BlockId),
        last: Option<(BlockId, Changes)>,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let found = way(&self.database, &from, to)?;
        let Way { down, mut up } = found.ok_or_else(|| Fault::Missing {
            segment: Segment::TrieLogs.name(),
            key: format!("block {to} (its state is out of reach)"),
        })?;
        up.extend(last);
        let mut recorder = Recorder::new(&self.database);
        if let ([], [(block, changes)]) = (&down[..], &up[..]) {
            return recorder.add(Step::Up(block.number), changes, tries.rows(), batch);
        }
        let down = down.into_iter();
        let down = down.map(|(block, changes)| (Step::Down(block.number), changes));
        let up = up.into_iter();
        let up = up.map(|(block, changes)| (Step::Up(block.number), changes));

        // One step at a time, each with its own rows.
        self.advance(tries, &from, &Layers::default(), &mut Changes::default())?;
        tries.take_rows();
        let mut made = Layers::default();
        for (step, mut changes) in down.chain(up) {
            tries.set_ahead(made.clone());
            self.advance(tries, &from, &made, &mut changes)?;
            let rows = tries.take_rows();
            recorder.add(step, &changes, &rows, batch)?;
            batch.append(rows);
            made.add(Arc::new(changes));
        }
        tries.set_ahead(made);
        Ok(())
    }

    /// Writes a move of the head, by `total`, as one batch; then the caches follow. The tries are
    /// there already. What nobody reads at once is encoded behind: flat rows and the trie log.
    fn write(
        &self,
        tries: &mut Tries,
        (from, head): (StateHead, StateHead),
        total: Arc<Changes>,
        (mut batch, log): (Batch, Option<Log>),
        durable: bool,
    ) -> Result<(), Fault> {
        assert_eq!(self.head(), Some(from), "only one writer moves the head");
        self.prune_logs(from.block.number, head.block.number, &mut batch)?;
        batch.put(Segment::Meta, HEAD, &head.to_row());
        batch.append(tries.land());
        let values = total.len();
        let code_bytes = log
            .iter()
            .flat_map(|log| &log.codes)
            .map(|(_, code)| code.len());
        let bytes = values * BYTES_PER_VALUE + code_bytes.sum::<usize>();
        let (changes, caches) = (Arc::clone(&total), Arc::clone(&self.caches));
        let later = Later::new(bytes, move |batch| {
            add_flat(&changes, batch);
            if let Some(log) = log {
                log.add_to(batch);
            }
        });
        let later = later.then(move || caches.catch_up());
        let written = self.put_head((batch, later), head, total);
        written.inspect_err(|_| tries.reset(from.root))?;
        if values < MANY_VALUES || self.caches.is_far_behind() {
            self.caches.catch_up();
        }
        if durable {
            self.database.sync()?;
        }
        Ok(())
    }

    /// Writes a batch and lets views see it, with the new head, all at once.
    fn put_head(
        &self,
        (batch, later): (Batch, Later),
        head: StateHead,
        total: Arc<Changes>,
    ) -> Result<(), Fault> {
        self.database.wait_for_room()?;
        let mut shared = self.shared();
        self.database.write_completed(batch, later, false)?;
        shared.head = Some(head);
        shared.version += 1;
        self.caches.follow(shared.version, total);
        Ok(())
    }

    /// Removes the trie logs that fall out of reach when the head moves up, some blocks' at a time.
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

    /// Puts the state of a freshly loaded genesis in force.
    pub(crate) fn set_first_head(&self, head: StateHead, mut batch: Batch) -> Result<(), Fault> {
        batch.put(Segment::Meta, HEAD, &head.to_row());
        if self.archive {
            batch.put(Segment::Meta, HISTORY, &head.block.number.to_be_bytes());
        }
        let mut shared = self.shared();
        assert_eq!(shared.head, None, "a genesis is loaded into an empty state");
        self.database.write(batch, true)?;
        shared.head = Some(head);
        shared.version += 1;
        self.caches.follow(shared.version, Arc::default());
        drop(shared);
        self.tries().reset(head.root);
        Ok(())
    }

    /// What the caches hold and how often it was asked for.
    pub fn cache_figures(&self) -> CacheFigures {
        let (trie_nodes_read, trie_bytes) = self.tries().figures();
        CacheFigures {
            trie_nodes_read,
            trie_bytes,
            ..self.caches.figures()
        }
    }

    /// How often the caches were asked for accounts and slots. About 2 us.
    pub fn values_looked_up(&self) -> HitRate {
        let figures = self.caches.figures();
        let mut both = figures.accounts;
        both.add(figures.slots);
        both
    }

    pub(crate) fn tries(&self) -> MutexGuard<'_, Tries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlays(&self) -> MutexGuard<'_, Overlays> {
        self.overlays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caches follow so many values behind, and fewer at once.
const MANY_VALUES: usize = 256;

impl fmt::Debug for WorldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldState")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}
