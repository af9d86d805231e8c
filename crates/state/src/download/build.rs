//! The tries of a downloaded state, built once from its flat rows.
//!
//! ```text
//! flat rows, 4,096 parts by the first 12 bits of the hashed address
//!    |  any thread: storage tries of the accounts of a part, their roots compared with the accounts
//!    v
//! parts in order --> one account trie --> rows to the writer thread, which ingests them as tables
//! ```
//!
//! How many parts are done is marked once their rows are durable. A build that was interrupted goes on there: of the parts before it reads
//! the accounts alone. The flat rows do not change between, so what it writes again is the same.

mod storage_tries;

use super::StateDownload;
use crate::maintenance::row_writer::{RowWriter, write_all};
use crate::tries::disk_trie::row_key;
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Database, Segment};
use niwaki_threads::lock;
use niwaki_trie::{Path, TrieBuilder};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use storage_tries::{BuiltPart, KeysOfPart};

/// How many parts the accounts are cut into.
const PARTS: u32 = 4096;
/// Rows of this many bytes are ingested together.
const BATCH_BYTES: usize = 32 << 20;
/// Rows of the account trie down to this depth come last: their keys lie between those of all others.
const SHALLOW_NIBBLES: usize = 3;
/// Each thread may have built so many parts that are not joined yet.
const PARTS_AHEAD: usize = 4;
/// How long a thread that is too far ahead pauses.
const PAUSE: Duration = Duration::from_millis(1);

/// What a build made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The root of the tries.
    pub root: B256,
    /// Codes of the accounts that are not here.
    pub missing_codes: Vec<B256>,
}

impl StateDownload<'_> {
    /// Builds all tries from the flat rows, on so many threads, with the parts done and all of them to `report`, which returns whether to
    /// go on. Storage roots in the rows of accounts are set right. `None` if it did not go on.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If something of the state has not come.
    pub fn build(
        &self,
        threads: usize,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Built>, Fault> {
        self.build_in_batches(threads, BATCH_BYTES, report)
    }

    /// As [`Self::build`], with rows of so many bytes ingested together.
    pub(crate) fn build_in_batches(
        &self,
        threads: usize,
        batch_bytes: usize,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Built>, Fault> {
        assert!(self.remaining().is_empty(), "all of the state has come");
        let database = self.database();
        let done = self.built_parts();
        if done == 0 {
            let mut segments = [Segment::AccountTrie, Segment::StorageTrie].into_iter();
            segments.try_for_each(|segment| database.clear(segment))?;
        }
        let threads = threads.max(1);
        let shared = Shared {
            database,
            done,
            batch_bytes,
            next_part: AtomicU32::new(0),
            joined: AtomicU32::new(0),
            ahead: u32::try_from(threads * PARTS_AHEAD).unwrap_or(PARTS),
            is_over: AtomicBool::new(false),
        };
        let (sender, receiver) = sync_channel(threads);
        // One batch waits while another is written.
        let (batches_sender, batches) = sync_channel(1);
        let writer = RowWriter {
            batch: RefCell::default(),
            sender: Some(batches_sender),
            batches_sent: Cell::new(0),
            is_broken: Cell::new(false),
        };
        let written = AtomicU64::new(0);
        let mut marks = Marks {
            download: self,
            written: &written,
            last: 0,
            sent: 0,
            unwritten: VecDeque::new(),
        };
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| write_all(database, batches, &written));
            for _ in 0..threads {
                let (shared, sender) = (&shared, sender.clone());
                scope.spawn(move || shared.build_parts(&sender));
            }
            drop(sender);
            let joined = join(&shared, &receiver, &writer, &mut marks, report);
            shared.is_over.store(true, Ordering::Relaxed);
            // Those that wait for room in the channel go on and end.
            drop(receiver);
            drop(writer);
            match writing.join() {
                Ok(written) => written.and(joined),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// How many parts an earlier build has done.
    pub(crate) fn built_parts(&self) -> u32 {
        lock(&self.saved).built_parts
    }

    /// The tries are built, and all codes are here. Durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn finish_build(&self, root: B256) -> Result<(), Fault> {
        self.set_own_root(root, Batch::new())
    }
}

/// What the threads share.
struct Shared<'d> {
    database: &'d Database,
    /// Of the parts before this one the tries are built.
    done: u32,
    batch_bytes: usize,
    next_part: AtomicU32,
    /// How many parts are joined.
    joined: AtomicU32,
    /// How many parts may be built that are not joined yet.
    ahead: u32,
    /// No more parts are needed.
    is_over: AtomicBool,
}

type NumberedPart = (u32, Result<BuiltPart, Fault>);

impl Shared<'_> {
    fn build_parts(&self, parts: &SyncSender<NumberedPart>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let part = self.next_part.fetch_add(1, Ordering::Relaxed);
            if part >= PARTS || !self.wait_for_turn(part) {
                return;
            }
            let keys = KeysOfPart {
                first: first_key(part),
                end: first_key(part + 1),
            };
            let built = match part < self.done {
                true => storage_tries::read_accounts(self.database, keys),
                false => storage_tries::build(self.database, keys),
            };
            if parts.send((part, built)).is_err() {
                return;
            }
        }
    }

    /// Waits while a part is too far ahead; `false` if no more parts are needed. The atomics order nothing: what was built goes through
    /// the channel.
    fn wait_for_turn(&self, part: u32) -> bool {
        while part >= self.joined.load(Ordering::Relaxed) + self.ahead {
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

/// The first two bytes of the keys of a part; `None` after the last part.
fn first_key(part: u32) -> Option<[u8; 2]> {
    let first = u16::try_from(part << 4).ok()?;
    Some(first.to_be_bytes())
}

/// Marks parts as done.
struct Marks<'d, 'w> {
    download: &'d StateDownload<'w>,
    /// How many batches are durable.
    written: &'d AtomicU64,
    /// The last part that had accounts: the account trie's rows of it are whole when the next ones come.
    last: u32,
    /// How many batches were sent.
    sent: u64,
    /// Batches that were sent, by their count, and the parts that are done with each.
    unwritten: VecDeque<(u64, u32)>,
}

impl Marks<'_, '_> {
    /// So many batches were sent: marks what is durable.
    fn update(&mut self, sent: u64) -> Result<(), Fault> {
        if std::mem::replace(&mut self.sent, sent) < sent {
            self.unwritten.push_back((sent, self.last));
        }
        let written = self.written.load(Ordering::Acquire);
        let mut done = None;
        while let Some((_, parts)) = self.unwritten.pop_front_if(|(batch, _)| *batch <= written) {
            done = Some(parts);
        }
        match done.filter(|parts| *parts > self.download.built_parts()) {
            Some(parts) => {
                let rows = Batch::new();
                self.download
                    .change(rows, |saved| saved.built_parts = parts)
            }
            None => Ok(()),
        }
    }
}

/// The part in which all keys below a path are, if it is not in several.
fn part_of(path: &Path) -> Option<u32> {
    let nibbles = path.as_slice().get(..SHALLOW_NIBBLES)?;
    Some(
        nibbles
            .iter()
            .fold(0, |part, nibble| part << 4 | u32::from(*nibble)),
    )
}

/// Rows of the account trie of the last part that has any: its inner nodes come with the accounts of the next one, and would lie between
/// the rows of a table that is written before.
#[derive(Default)]
struct HeldRows {
    part: u32,
    rows: Batch,
}

impl HeldRows {
    /// Gives them to the writer if they are of a part before this one.
    fn release_before(&mut self, part: u32, writer: &RowWriter) {
        if self.part < part {
            let rows = std::mem::take(&mut self.rows);
            writer.batch.borrow_mut().append(rows);
        }
    }
}

/// Takes the parts in order and makes the account trie of them.
fn join(
    shared: &Shared<'_>,
    parts: &Receiver<NumberedPart>,
    writer: &RowWriter,
    marks: &mut Marks<'_, '_>,
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<Built>, Fault> {
    let shallow = RefCell::new(Batch::new());
    let held = RefCell::new(HeldRows::default());
    let mut sink = |path: &Path, row: &[u8]| {
        let (segment, key) = row_key(&None, path);
        let part = part_of(path).filter(|_| path.len() > SHALLOW_NIBBLES);
        match part {
            None => shallow.borrow_mut().put_parts(segment, &key, &[row]),
            Some(part) if part < shared.done => {}
            Some(part) => {
                let mut held = held.borrow_mut();
                held.release_before(part, writer);
                held.part = part;
                held.rows.put_parts(segment, &key, &[row]);
            }
        }
    };
    let mut builder = TrieBuilder::new(&mut sink);
    let (mut missing_codes, mut early) = (BTreeSet::new(), BTreeMap::new());
    for part in 0..PARTS {
        let built = loop {
            if let Some(built) = early.remove(&part) {
                break built;
            }
            // The threads build every part, or the thread that took it has panicked, which the scope passes on.
            let Ok((number, built)) = parts.recv() else {
                return Ok(None);
            };
            early.insert(number, built);
        };
        let built: BuiltPart = built?;
        shared.joined.store(part + 1, Ordering::Relaxed);
        if !built.accounts.is_empty() {
            marks.last = part;
        }
        for (key, leaf) in built.accounts {
            builder.add(Path::of_hash(&key), leaf);
        }
        missing_codes.extend(built.missing_codes);
        shared.database.write(built.removed, false)?;
        held.borrow_mut().release_before(marks.last, writer);
        writer.batch.borrow_mut().append(built.rows);
        writer.send_if_large(shared.batch_bytes);
        marks.update(writer.batches_sent.get())?;
        let is_stopped = !report(u64::from(part) + 1, u64::from(PARTS));
        if is_stopped || writer.is_broken.get() {
            return Ok(None);
        }
    }
    let root = builder.finish();
    held.borrow_mut().release_before(PARTS, writer);
    writer.send_if_large(1);
    writer.batch.replace(shallow.into_inner());
    writer.send_if_large(1);
    Ok(Some(Built {
        root,
        missing_codes: missing_codes.into_iter().collect(),
    }))
}
