//! The first state, of any size: an external sort, then one pass that writes all rows and computes the root.
//!
//! Goes in: accounts, slots and codes in any order. Comes out: the flat rows, the rows of all tries and the root, as
//! [`WorldState::load_genesis`] gives them. Memory is bounded whatever the number of accounts, and of slots in one
//! account.
//!
//! ```text
//! add_slot, add_account, add_code --> Sorter: runs of 128 MiB on disk --merge--> Pass, in key order:
//!   00 ++ code hash                     -> code rows
//!   01 ++ hashed address ++ kind        -> account row, after its slots the leaf of the account trie
//!   01 ++ hashed address ++ kind ++ ..  -> slot rows, storage trie rows
//! Pass --batches of 32 MiB--> writer thread: ingested as tables whose key ranges do not overlap
//! ```

mod by_key;
mod resume;
mod sorter;

use crate::WorldState;
use crate::commit::flat::{account_of_row, encode_account, encode_value, value_of_row};
use crate::maintenance::genesis::begin_loading;
use crate::maintenance::row_writer::{RowWriter, write_all};
use crate::tries::disk_trie::row_key;
use alloy_primitives::{hex, keccak256};
use niwaki_primitives::{Address, B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Database, Segment, corrupt};
use niwaki_trie::{Path, TrieAccount, TrieBuilder, encode_slot};
use sorter::{Merge, Record, Sorter};
use std::cell::{Cell, RefCell};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;

pub use resume::ResumableLoad;

/// Records that are sorted in memory at a time.
const RUN_BYTES: usize = 128 << 20;

/// A batch of this many bytes is written at the end of an account,
const BATCH_BYTES: usize = 32 << 20;
/// and one of this many also between slots of one account.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Trie rows down to this depth are written last, in a batch of their own, because their keys lie between those of all
/// other batches. An account trie has at most 4369 of them.
const SHALLOW_NIBBLES: usize = 3;

/// Records between two reports of progress.
const RECORDS_PER_REPORT: u64 = 4096;

/// The first byte of a record's key, and the kind byte after a hashed address.
const CODE: u8 = 0;
const ACCOUNT: u8 = 1;
/// An account, or a slot, that is added once.
const ITSELF: u8 = 0;
const SLOT: u8 = 1;
/// The same from a genesis file, which may list an address several times; the last one counts. The value begins with a
/// number: how many accounts were added before this one.
const NUMBERED: u8 = 2;
const NUMBERED_SLOT: u8 = 3;
const NUMBER_BYTES: usize = 4;

/// Why a state was not loaded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// An account that must be added once was added twice.
    #[error("the account with key {0} is given twice")]
    AccountTwice(B256),
    /// A slot that must be added once was added twice.
    #[error("the account with key {account} has the slot with key {slot} twice")]
    SlotTwice {
        /// The key of its account.
        account: B256,
        /// The hash of its number.
        slot: B256,
    },
    /// The progress callback returned `false`.
    #[error("stopped while loading the genesis")]
    Stopped,
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Called with how many of how many rows are done; `false` stops.
pub type LoadProgress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// A load of the first state in progress.
pub struct GenesisLoad<'a> {
    database: &'a Database,
    is_written: bool,
    sorter: Sorter,
    /// The address that was hashed last: the slots of an account are added one after the other.
    owner: (Address, B256),
    /// How many accounts of a genesis file were added.
    number: u32,
    /// The account whose slots were added since the last account.
    slots_of: Option<Address>,
}

impl WorldState {
    /// Begins to load a first state; what an interrupted load has left is removed. There is no head before
    /// [`WorldState::finish_genesis`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If there is a head already.
    pub fn begin_genesis(&self) -> Result<GenesisLoad<'_>, Fault> {
        assert_eq!(self.head(), None, "a genesis is loaded into an empty state");
        let mut batch = Batch::new();
        begin_loading(self.database(), &mut batch)?;
        // Ingested rows bypass the log, so the mark must be durable before them.
        self.database().write(batch, true)?;
        GenesisLoad::new(self.database(), true, RUN_BYTES)
    }

    /// As [`WorldState::begin_genesis`], for the root alone: only runs are written.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn begin_genesis_root(&self) -> Result<GenesisLoad<'_>, Fault> {
        GenesisLoad::new(self.database(), false, RUN_BYTES)
    }
}

impl<'a> GenesisLoad<'a> {
    pub(crate) fn new(
        database: &'a Database,
        is_written: bool,
        run_bytes: usize,
    ) -> Result<Self, Fault> {
        clear_folder(database, is_written)?;
        let folder = folder(database, is_written)?;
        let sorter = Sorter::new(folder.as_deref(), run_bytes);
        Ok(Self::with_sorter(database, is_written, sorter))
    }

    fn with_sorter(database: &'a Database, is_written: bool, sorter: Sorter) -> Self {
        let none = Address::ZERO;
        Self {
            database,
            is_written,
            sorter,
            owner: (none, keccak256(none)),
            number: 0,
            slots_of: None,
        }
    }

    /// Adds a slot of the account that is added next. The last value of a slot counts; zero removes it.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    ///
    /// # Panics
    /// If a slot of another account came before, and not that account.
    pub fn add_slot(&mut self, address: &Address, slot: &U256, value: &U256) -> Result<(), Fault> {
        self.check_owner(address);
        self.slots_of = Some(*address);
        let owner = self.hashed(address);
        let slot = keccak256(B256::from(*slot));
        let kind = &[NUMBERED_SLOT];
        let key = [&[ACCOUNT][..], owner.as_slice(), kind, slot.as_slice()];
        let value = [&self.number.to_be_bytes()[..], &encode_value(value)].concat();
        self.sorter.push(&key, &value)
    }

    /// Slots that were added since the last account must be of `address`: otherwise they would be lost.
    fn check_owner(&self, address: &Address) {
        assert!(
            self.slots_of.is_none_or(|owner| owner == *address),
            "the slots of an account are added before it"
        );
    }

    /// Adds an account without its storage, which must have been added before. Of several with one address the last one
    /// counts, with only its own storage.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn add_account(
        &mut self,
        address: &Address,
        nonce: u64,
        balance: U256,
        code: &[u8],
    ) -> Result<(), Fault> {
        self.check_owner(address);
        self.slots_of = None;
        let mut code_hash = EMPTY_CODE_HASH;
        if !code.is_empty() {
            code_hash = keccak256(code);
            self.sorter.push(&[&[CODE], code_hash.as_slice()], code)?;
        }
        let flat = TrieAccount {
            nonce,
            balance,
            storage_root: EMPTY_ROOT_HASH,
            code_hash,
        };
        let key = self.hashed(address);
        let value = [&self.number.to_be_bytes()[..], &encode_account(&flat)].concat();
        // No file has 2^32 accounts.
        self.number = self.number.saturating_add(1);
        let key = [&[ACCOUNT][..], key.as_slice(), &[NUMBERED]];
        self.sorter.push(&key, &value)
    }

    /// Adds a code.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn add_code(&mut self, code: &[u8]) -> Result<(), Fault> {
        let hash = keccak256(code);
        self.sorter.push(&[&[CODE], hash.as_slice()], code)
    }

    /// Writes everything, with progress to `report`; returns the root of the state.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self, report: &mut LoadProgress<'_>) -> Result<B256, LoadError> {
        let (database, is_written) = (self.database, self.is_written);
        let total = self.sorter.count();
        let merge = self.sorter.merge()?;
        // One batch is queued while another is written.
        let (sender, receiver) = sync_channel(1);
        let writer = RowWriter {
            batch: RefCell::default(),
            sender: is_written.then_some(sender),
            batches_sent: Cell::new(0),
            is_broken: Cell::new(false),
        };
        let mut pass = Pass {
            merge,
            record: Record::default(),
            has_record: false,
            last: Vec::new(),
            done: 0,
            total,
            report,
        };
        let written = AtomicU64::new(0);
        let root = std::thread::scope(|scope| {
            let thread = scope.spawn(|| write_all(database, receiver, &written));
            let root = pass.run(&writer);
            drop(writer);
            match thread.join() {
                Ok(written) => written?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
            root
        })?;
        clear_folder(database, is_written)?;
        Ok(root)
    }

    fn hashed(&mut self, address: &Address) -> B256 {
        if self.owner.0 != *address {
            self.owner = (*address, keccak256(address));
        }
        self.owner.1
    }
}

/// The folder of the runs; a load for the root alone has its own, so that it does not remove those of a resumable one.
fn folder(database: &Database, is_written: bool) -> Result<Option<PathBuf>, Fault> {
    let aside = database.create_staging_dir()?;
    let folder = aside.map(|aside| match is_written {
        true => aside.to_owned(),
        false => aside.join("root"),
    });
    if let Some(folder) = &folder {
        fs::create_dir_all(folder).map_err(|error| Fault::io("create", folder, error))?;
    }
    Ok(folder)
}

/// Removes the folder of the runs.
fn clear_folder(database: &Database, is_written: bool) -> Result<(), Fault> {
    if is_written {
        return database.remove_staging_dir();
    }
    let Some(folder) = folder(database, is_written)? else {
        return Ok(());
    };
    fs::remove_dir_all(&folder).map_err(|error| Fault::io("remove", &folder, error))?;
    match folder.parent().map(fs::remove_dir) {
        Some(Err(error)) if error.kind() != ErrorKind::DirectoryNotEmpty => {
            Err(Fault::io("remove", &folder, error))
        }
        _ => Ok(()),
    }
}

/// The first two bytes of a key: rows that share them are in one batch.
fn group(key: &B256) -> u16 {
    u16::from_be_bytes([key[0], key[1]])
}

/// Whether a record has one of the forms that a load adds.
fn is_record(record: &Record) -> bool {
    match record.key.split_first() {
        Some((&CODE, hash)) => hash.len() == 32,
        Some((&ACCOUNT, rest)) if rest.len() == 33 => match rest[32] {
            ITSELF => record.value.len() >= size_of::<Address>(),
            NUMBERED => record.value.len() >= NUMBER_BYTES,
            _ => false,
        },
        Some((&ACCOUNT, rest)) if rest.len() == 65 => match rest[32] {
            SLOT => true,
            NUMBERED_SLOT => record.value.len() >= NUMBER_BYTES,
            _ => false,
        },
        _ => false,
    }
}

fn bad_run(key: &[u8]) -> Fault {
    Fault::Corrupt {
        segment: "loading",
        key: hex::encode(key),
        reason: "a run is not what was written; the same command begins again".to_owned(),
    }
}

/// The pass over all records in key order: first codes, then each account with its slots.
struct Pass<'a, 'b> {
    merge: Merge,
    record: Record,
    has_record: bool,
    /// The key of the previous record.
    last: Vec<u8>,
    done: u64,
    total: u64,
    report: &'a mut LoadProgress<'b>,
}

impl Pass<'_, '_> {
    fn run(&mut self, writer: &RowWriter) -> Result<B256, LoadError> {
        self.advance(writer)?;
        self.codes(writer)?;

        let shallow = RefCell::new(Batch::new());
        let mut sink = |path: &Path, row: &[u8]| {
            let (segment, key) = row_key(&None, path);
            if path.len() <= SHALLOW_NIBBLES {
                shallow.borrow_mut().put_parts(segment, &key, &[row]);
            } else {
                writer.put(segment, &key, row);
            }
        };
        let mut builder = TrieBuilder::new(&mut sink);
        let mut last = None;
        while self.has_record {
            let (key, account) = self.account(writer, &shallow)?;
            builder.add(Path::of_hash(&key), account.to_leaf());
            if last.replace(group(&key)) != Some(group(&key)) {
                writer.send_if_large(BATCH_BYTES);
            }
        }
        let root = builder.finish();
        writer.send_if_large(1);
        writer.batch.replace(shallow.into_inner());
        writer.send_if_large(1);
        Ok(root)
    }

    /// Reads the next record.
    fn advance(&mut self, writer: &RowWriter) -> Result<(), LoadError> {
        std::mem::swap(&mut self.last, &mut self.record.key);
        self.has_record = self.merge.next(&mut self.record)?;
        // Resumed runs may have been damaged on the disk.
        if self.has_record && !(is_record(&self.record) && self.last <= self.record.key) {
            return Err(bad_run(&self.record.key).into());
        }
        self.done += u64::from(self.has_record);
        if self.done.is_multiple_of(RECORDS_PER_REPORT) && !(self.report)(self.done, self.total) {
            return Err(LoadError::Stopped);
        }
        if writer.is_broken.get() {
            // The fault of the writer thread is returned instead.
            return Err(LoadError::Stopped);
        }
        Ok(())
    }

    fn codes(&mut self, writer: &RowWriter) -> Result<(), LoadError> {
        let mut last = Vec::new();
        while self.has_record && self.record.key.first() == Some(&CODE) {
            let key = &self.record.key[1..];
            // Contracts share codes.
            if last != key {
                if keccak256(&self.record.value) != *key {
                    return Err(bad_run(&self.record.key).into());
                }
                writer.put(Segment::Code, &[key], &self.record.value);
                writer.send_if_large(BATCH_BYTES);
                last.clear();
                last.extend_from_slice(key);
            }
            self.advance(writer)?;
        }
        Ok(())
    }

    /// Writes the account of the present record, with its slots; returns its key and flat form.
    fn account(
        &mut self,
        writer: &RowWriter,
        shallow: &RefCell<Batch>,
    ) -> Result<(B256, TrieAccount), LoadError> {
        let (key, kind) = (&self.record.key[1..33], self.record.key[33]);
        let key = B256::from_slice(key);
        let head_bytes = match kind {
            ITSELF => size_of::<Address>(),
            NUMBERED => NUMBER_BYTES,
            _ => {
                let reason = "a slot of no account was loaded";
                return Err(corrupt(Segment::Accounts, &self.record.key, reason).into());
            }
        };
        let (mut number, mut account);
        loop {
            let (head, slim) = self.record.value.split_at(head_bytes);
            number = (kind == NUMBERED).then(|| head.to_vec());
            account = account_of_row(&self.record.key, slim)?;
            self.advance(writer)?;
            if !(self.is_of(&key) && self.record.key[33] == kind) {
                break;
            }
            if kind == ITSELF {
                return Err(LoadError::AccountTwice(key));
            }
        }
        if self.is_of(&key) {
            account.storage_root = self.storage(&key, number.as_deref(), writer, shallow)?;
        }
        let slim = encode_account(&account);
        writer.put(Segment::Accounts, &[key.as_slice()], &slim);
        Ok((key, account))
    }

    /// Whether the present record is of this account.
    fn is_of(&self, account: &B256) -> bool {
        self.has_record && self.record.key[1..33] == account[..]
    }

    /// Writes the slots of an account, the present record first; returns their root. Slots with another `number` are of
    /// an account that does not count.
    fn storage(
        &mut self,
        key: &B256,
        number: Option<&[u8]>,
        writer: &RowWriter,
        shallow: &RefCell<Batch>,
    ) -> Result<B256, LoadError> {
        let owner = Some(*key);
        let batches_before = writer.batches_sent.get();
        let mut top = Batch::new();
        let mut rows_below = |path: &Path, row: &[u8]| {
            let (segment, key) = row_key(&owner, path);
            if path.len() <= SHALLOW_NIBBLES {
                top.put_parts(segment, &key, &[row]);
            } else {
                writer.put(segment, &key, row);
            }
        };
        let mut builder = TrieBuilder::new(&mut rows_below);
        let mut last: Option<B256> = None;
        while let Some((slot, stored)) = self.slot(key, number, writer)? {
            let value = value_of_row(slot.as_slice(), &stored)?;
            builder.add(Path::of_hash(&slot), encode_slot(&value));
            writer.put(Segment::Slots, &[key.as_slice(), slot.as_slice()], &stored);
            if last.is_some_and(|last| group(&last) != group(&slot)) {
                writer.send_if_large(MAX_BATCH_BYTES);
            }
            last = Some(slot);
        }
        let root = builder.finish();
        // If the whole storage is in one batch, its shallow rows may be in it too.
        let is_whole = writer.batches_sent.get() == batches_before;
        let mut into = if is_whole {
            writer.batch.borrow_mut()
        } else {
            shallow.borrow_mut()
        };
        into.append(top);
        Ok(root)
    }

    /// The next slot of an account that has a value: its key and value.
    fn slot(
        &mut self,
        account: &B256,
        number: Option<&[u8]>,
        writer: &RowWriter,
    ) -> Result<Option<(B256, Vec<u8>)>, LoadError> {
        let mut found: Option<(B256, Vec<u8>)> = None;
        while self.is_of(account) {
            let slot = B256::from_slice(&self.record.key[34..]);
            let is_again = found.as_ref().is_some_and(|(last, _)| *last == slot);
            if number.is_none() && is_again {
                let account = *account;
                return Err(LoadError::SlotTwice { account, slot });
            }
            let value = match number {
                None => &self.record.value[..],
                Some(number) => match self.record.value.split_at_checked(NUMBER_BYTES) {
                    Some((theirs, value)) if theirs == number => value,
                    Some(_) => {
                        self.advance(writer)?;
                        continue;
                    }
                    None => return Err(bad_run(&self.record.key).into()),
                },
            };
            match &mut found {
                Some((_, last)) if is_again => {
                    last.clear();
                    last.extend_from_slice(value);
                }
                // A slot of a genesis file whose last value is zero.
                Some((_, last)) if number.is_some() && last.is_empty() => {
                    found = Some((slot, value.to_vec()));
                }
                Some(_) => return Ok(found),
                None => found = Some((slot, value.to_vec())),
            }
            self.advance(writer)?;
        }
        Ok(found.filter(|(_, value)| number.is_none() || !value.is_empty()))
    }
}

#[cfg(test)]
mod tests;
