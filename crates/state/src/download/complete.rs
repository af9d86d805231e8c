//! The tries of a downloaded state made whole, once all ranges have come.
//!
//! Each range came with the rows of the nodes between its ends. Those on the paths to an end are missing: they are made of their
//! children, from the top down to where a row is found, and back.
//!
//! ```text
//!                 missing
//!            /       |       \
//!        row: all  missing   row: all below it is here
//!      below it     /   \
//!       is here   row   one flat row below: a leaf
//! ```
//!
//! A row is only there if all below it came in one range, so it fits the flat rows. The row of a root is durable last: a trie that has
//! one is whole, and a run that was interrupted is begun again.

use super::changes::Changes;
use super::{IN_RANGES, StateDownload};
use crate::tries::disk_trie::{leaf_of_row, node_rlp, range_below, row_key};
use niwaki_crypto::keccak256;
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database, Segment, corrupt};
use niwaki_trie::{Branch, Extension, Node, NodeRef, Owner, Path};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Rows of this many bytes are ingested together.
const BATCH_BYTES: usize = 32 << 20;
/// The account trie is made whole in so many parts, by the first two nibbles.
const ACCOUNT_PARTS: usize = 256;

impl StateDownload<'_> {
    /// Makes the tries whole, on so many threads, with the parts done and all of them to `report`, which returns whether to go on. Storage
    /// roots in the rows of accounts are set right. Returns whether it is done; then there is an [own root](Self::own_root).
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If something of the state has not come.
    pub fn complete(
        &self,
        threads: usize,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, Fault> {
        assert!(self.remaining().is_empty(), "all of the state has come");
        let threads = threads.max(1);
        let work = Work {
            database: self.database(),
            storages: self.storages_in_ranges()?,
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let (sender, receiver) = sync_channel(threads);
        let done = std::thread::scope(|scope| {
            for _ in 0..threads {
                let (work, sender) = (&work, sender.clone());
                scope.spawn(move || work.run(&sender));
            }
            drop(sender);
            let done = self.collect(&work, &receiver, report);
            // It orders nothing: a thread that sees it late does one part more. Those that wait for room in the channel go on and end.
            work.is_over.store(true, Ordering::Relaxed);
            drop(receiver);
            done
        })?;
        let Some(roots) = done else {
            return Ok(false);
        };
        let changes = Changes::of_storage_roots(roots.storages);
        changes.write(self, roots.accounts, Batch::new(), threads)?;
        Ok(true)
    }

    /// The accounts whose storage came in ranges.
    fn storages_in_ranges(&self) -> Result<Vec<B256>, Fault> {
        let rows = self.database().prefix(Segment::Meta, IN_RANGES);
        let account = |row: Result<niwaki_storage::Row, Fault>| {
            let (key, _) = row?;
            let account = key.get(IN_RANGES.len()..);
            let account = account.and_then(|account| B256::try_from(account).ok());
            account.ok_or_else(|| corrupt(Segment::Meta, &key, "it does not end in 32 bytes"))
        };
        rows.map(account).collect()
    }

    /// Writes what the threads make. `None` if it is not to go on.
    fn collect(
        &self,
        work: &Work<'_>,
        parts: &Receiver<(usize, Result<Made, Fault>)>,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<Roots>, Fault> {
        let (mut rows, mut storages) = (Rows::default(), Vec::new());
        let mut accounts: Vec<Subtrie> = vec![Subtrie::Empty; ACCOUNT_PARTS];
        let of = work.parts();
        for done in 1..=of {
            // The threads make every part, or one of them has panicked, which the scope passes on.
            let Ok((part, made)) = parts.recv() else {
                return Ok(None);
            };
            let Made { subtrie, rows: new } = made?;
            rows.append(new);
            match work.storages.get(part) {
                Some(account) => {
                    let root = subtrie.root();
                    let own = self.account(account)?;
                    let is_other = own.is_some_and(|own| own.storage_root != root);
                    storages.extend(is_other.then_some((*account, root)));
                }
                None => accounts[part - work.storages.len()] = subtrie,
            }
            if rows.set.bytes() >= BATCH_BYTES {
                std::mem::take(&mut rows).write(self.database())?;
            }
            if !report(done as u64, of as u64) {
                return Ok(None);
            }
        }
        let mut trie = Trie {
            database: self.database(),
            owner: None,
            rows,
        };
        let accounts = trie.join(accounts)?;
        trie.rows.write(self.database())?;
        Ok(Some(Roots { accounts, storages }))
    }
}

/// The roots of tries that are whole.
struct Roots {
    accounts: B256,
    /// Of accounts whose rows say another.
    storages: Vec<(B256, B256)>,
}

/// What the threads share.
struct Work<'d> {
    database: &'d Database,
    storages: Vec<B256>,
    /// The next part: the storages, then those of the account trie.
    next: AtomicUsize,
    is_over: AtomicBool,
}

/// What came of a part.
struct Made {
    subtrie: Subtrie,
    rows: Rows,
}

impl Work<'_> {
    fn parts(&self) -> usize {
        self.storages.len() + ACCOUNT_PARTS
    }

    fn run(&self, made: &SyncSender<(usize, Result<Made, Fault>)>) {
        while !self.is_over.load(Ordering::Relaxed) {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts() || made.send((part, self.part(part))).is_err() {
                return;
            }
        }
    }

    fn part(&self, part: usize) -> Result<Made, Fault> {
        let owner = self.storages.get(part).copied();
        let mut trie = Trie {
            database: self.database,
            owner,
            rows: Rows::default(),
        };
        let subtrie = match part.checked_sub(self.storages.len()) {
            None => {
                let root = trie.below(Path::EMPTY)?;
                trie.as_root(root)?
            }
            Some(part) => trie.below(account_path(part))?,
        };
        let rows = trie.rows;
        Ok(Made { subtrie, rows })
    }
}

/// Where a part of the account trie is.
fn account_path(part: usize) -> Path {
    let nibbles = [part >> 4, part & 0x0f].map(|nibble| nibble.to_le_bytes()[0]);
    Path::of_nibbles(&nibbles).expect("two nibbles")
}

/// Trie rows that are set, and removed before.
#[derive(Default)]
struct Rows {
    set: Batch,
    removed: Batch,
}

impl Rows {
    fn append(&mut self, other: Self) {
        self.set.append(other.set);
        self.removed.append(other.removed);
    }

    fn write(self, database: &Database) -> Result<(), Fault> {
        if !self.removed.is_empty() {
            database.write(self.removed, true)?;
        }
        match self.set.is_empty() {
            true => Ok(()),
            false => database.ingest(self.set),
        }
    }
}

/// All leaves below some path.
#[derive(Clone)]
enum Subtrie {
    Empty,
    /// One leaf: its key and value.
    Leaf(Path, Vec<u8>),
    /// The node that has all of them below it: where it is, its row, and whether that is written.
    Inner(Path, Vec<u8>, bool),
}

impl Subtrie {
    /// The root of the trie that has nothing else.
    fn root(&self) -> B256 {
        match self {
            Self::Empty => EMPTY_ROOT_HASH,
            Self::Leaf(key, value) => keccak256(leaf_rlp(key, 0, value)),
            Self::Inner(_, row, _) => keccak256(node_rlp(row)),
        }
    }
}

/// The leaf of a key, `depth` nibbles down.
fn leaf_rlp(key: &Path, depth: usize, value: &[u8]) -> Vec<u8> {
    let (path, value) = (key.skip(depth), value.to_vec());
    let mut rlp = Vec::new();
    Node::Leaf { path, value }.encode(&mut rlp);
    rlp
}

fn row_of(node: &Node) -> Vec<u8> {
    let mut row = Vec::new();
    node.encode_row(&mut row);
    row
}

/// A trie that is made whole.
struct Trie<'d> {
    database: &'d Database,
    owner: Owner,
    rows: Rows,
}

impl Trie<'_> {
    /// What is below a path.
    fn below(&mut self, path: Path) -> Result<Subtrie, Fault> {
        let (segment, key) = row_key(&self.owner, &path);
        if let Some(row) = self.database.get(segment, &key.concat())? {
            return Ok(Subtrie::Inner(path, row, true));
        }
        if let Some(few) = self.at_most_one_leaf(&path)? {
            return Ok(few);
        }
        let mut children = Vec::with_capacity(16);
        for nibble in 0..16 {
            let child = path.join(&[nibble]);
            // Two keys differ before their end.
            let child = child.ok_or_else(|| corrupt(segment, path.as_slice(), "two leaves"))?;
            children.push(self.below(child)?);
        }
        self.branch(path, children)
    }

    /// What is below a path, if that is not two leaves or more.
    fn at_most_one_leaf(&self, path: &Path) -> Result<Option<Subtrie>, Fault> {
        let (segment, from, to) = range_below(&self.owner, path);
        let mut rows = self.database.range(segment, &from, to.as_deref());
        let Some(first) = rows.next().transpose()? else {
            return Ok(Some(Subtrie::Empty));
        };
        if rows.next().transpose()?.is_some() {
            return Ok(None);
        }
        let (key, value) = first;
        let (key, value) = leaf_of_row(&self.owner, &key, &value)?;
        Ok(Some(Subtrie::Leaf(key, value)))
    }

    /// The subtrie at `path` of its 16 children.
    fn branch(&mut self, path: Path, mut children: Vec<Subtrie>) -> Result<Subtrie, Fault> {
        let is_there = |child: &Subtrie| !matches!(child, Subtrie::Empty);
        let count = children.iter().filter(|child| is_there(child)).count();
        if count <= 1 {
            let only = children.iter().position(is_there);
            return Ok(only.map_or(Subtrie::Empty, |at| children.swap_remove(at)));
        }
        let mut branch = Branch::default();
        for (nibble, child) in (0_u8..).zip(children) {
            let at = path.join(&[nibble]).expect("it is no whole key");
            branch.set(nibble, self.reference(at, child)?);
        }
        let row = row_of(&Node::Branch(Box::new(branch)));
        Ok(Subtrie::Inner(path, row, false))
    }

    /// How a branch refers to its child at `path`. Adds the child's row.
    fn reference(&mut self, path: Path, child: Subtrie) -> Result<NodeRef, Fault> {
        match child {
            Subtrie::Empty => Ok(NodeRef::Empty),
            Subtrie::Leaf(key, value) => Ok(NodeRef::of(&leaf_rlp(&key, path.len(), &value), true)),
            Subtrie::Inner(at, row, is_written) if at == path => {
                let reference = NodeRef::of(node_rlp(&row), false);
                if matches!(reference, NodeRef::Hash(_)) && !is_written {
                    self.put(&path, &row);
                }
                Ok(reference)
            }
            Subtrie::Inner(at, row, is_written) => {
                let extension = self.extension(&path, at, row, is_written)?;
                self.reference(path, Subtrie::Inner(path, extension, false))
            }
        }
    }

    /// The row of the extension from `path` to the node at `at`.
    fn extension(
        &mut self,
        path: &Path,
        at: Path,
        row: Vec<u8>,
        is_written: bool,
    ) -> Result<Vec<u8>, Fault> {
        let (segment, key) = row_key(&self.owner, &at);
        let node = Node::from_row(&row);
        let node = node.map_err(|error| corrupt(segment, &key.concat(), error))?;
        let gap = at.skip(path.len());
        let extension = match node {
            // One that began below another branch, which has no other child now.
            Node::Extension(below) => {
                if is_written {
                    self.rows.removed.delete_parts(segment, &key);
                }
                let path = gap.join(below.path.as_slice());
                let path =
                    path.ok_or_else(|| corrupt(segment, &key.concat(), "it is longer than a key"))?;
                Extension { path, ..*below }
            }
            _ => {
                let child = self.reference(at, Subtrie::Inner(at, row, is_written))?;
                let (path, child) = (gap, child.into());
                Extension { path, child }
            }
        };
        Ok(row_of(&Node::Extension(Box::new(extension))))
    }

    /// The same as the root of the trie, with its row.
    fn as_root(&mut self, subtrie: Subtrie) -> Result<Subtrie, Fault> {
        let Subtrie::Inner(at, row, is_written) = subtrie else {
            return Ok(subtrie);
        };
        let (row, is_written) = match at.is_empty() {
            true => (row, is_written),
            false => (self.extension(&Path::EMPTY, at, row, is_written)?, false),
        };
        if !is_written {
            self.put(&Path::EMPTY, &row);
        }
        Ok(Subtrie::Inner(Path::EMPTY, row, true))
    }

    /// Joins the parts of the account trie; returns its root.
    fn join(&mut self, parts: Vec<Subtrie>) -> Result<B256, Fault> {
        let mut parts = parts.into_iter();
        let mut tops = Vec::with_capacity(16);
        for nibble in 0..16 {
            let path = Path::of_nibbles(&[nibble]).expect("one nibble");
            tops.push(self.branch(path, parts.by_ref().take(16).collect())?);
        }
        let top = self.branch(Path::EMPTY, tops)?;
        Ok(self.as_root(top)?.root())
    }

    fn put(&mut self, path: &Path, row: &[u8]) {
        let (segment, key) = row_key(&self.owner, path);
        self.rows.set.put_parts(segment, &key, &[row]);
    }
}
