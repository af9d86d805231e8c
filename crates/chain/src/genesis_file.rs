//! A chain begun from a genesis file of any size, and opened again without reading all of it.
//!
//! The data path remembers the file: size, time of change, samples of the alloc, and all that is not alloc. While the
//! file looks the same the alloc is not read; else it is read again and must have the same genesis block. The alloc has
//! no effect after genesis, so a disguised change of it goes unnoticed but does no harm. The rest, with the forks, is
//! compared in full at every start.

use crate::Chain;
use crate::open::{
    GenesisBlock, LoadedGenesis, OpenError, begin, check_genesis, check_hash, check_rules,
    genesis_header, has_genesis, stored_genesis,
};
use alloy_primitives::keccak256;
use alloy_rlp::{Decodable, RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Fault, Header};
use niwaki_rules::{AllocItem, ChainSpec, Genesis, GenesisHead, ReadError, read_genesis};
use niwaki_state::{GenesisLoad, StateOptions, WorldState};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment, corrupt, is_data_path};
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::UNIX_EPOCH;

/// The row of `meta` that remembers the genesis file.
const GENESIS_FILE: &[u8] = b"genesis file";

/// A file of up to this many bytes is read into memory at once, which costs less than the runs and the second thread of
/// a large one.
const SMALL_BYTES: u64 = 4 << 20;

/// How many samples of the alloc are compared.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;

/// Items of the alloc that the reading thread sends to the loading one at a time.
const ITEMS: usize = 1024;

/// How a chain of a genesis file is opened.
#[derive(Clone, Debug)]
pub struct GenesisFileConfig {
    /// The data path.
    pub data_path: PathBuf,
    /// The genesis file.
    pub file: PathBuf,
    /// The base fee of the blocks that this node makes, if the file has `fixedBaseFee`.
    pub fixed_base_fee: u64,
    /// How the storage is opened.
    pub storage: StorageOptions,
    /// How the state is opened.
    pub state: StateOptions,
}

/// How far the loading of a genesis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// Bytes of the file read, of how many.
    Reading(u64, u64),
    /// Rows written, of how many.
    Writing(u64, u64),
}

/// Called with how far the loading is; `false` stops it.
pub type LoadingReport<'a> = dyn FnMut(Loading) -> bool + 'a;

/// What the data path remembers of a genesis file.
#[derive(Clone, Debug, Default, PartialEq, Eq, RlpDecodable, RlpEncodable)]
struct Identity {
    size_bytes: u64,
    /// Nanoseconds since the epoch.
    changed_at: u64,
    /// Of the alloc's samples.
    samples: B256,
    /// Where in the file the alloc is; both are zero if there is none.
    alloc_start: u64,
    alloc_end: u64,
    /// All that is not alloc.
    text: Vec<u8>,
}

impl Identity {
    fn into_text(self) -> Result<String, Fault> {
        String::from_utf8(self.text).map_err(|error| corrupt(Segment::Meta, GENESIS_FILE, error))
    }
}

/// What the data path remembers, if anything.
fn stored_identity(database: &Database) -> Result<Option<Identity>, Fault> {
    let Some(row) = database.get(Segment::Meta, GENESIS_FILE)? else {
        return Ok(None);
    };
    let identity = Identity::decode(&mut &row[..]);
    identity
        .map(Some)
        .map_err(|error| corrupt(Segment::Meta, GENESIS_FILE, error))
}

/// The rules of the genesis file that the data path remembers; `None` if only an earlier version could read that file.
pub(crate) fn remembered_rules(database: &Database) -> Result<Option<ChainSpec>, Fault> {
    let Some(identity) = stored_identity(database)? else {
        return Ok(None);
    };
    let head = GenesisHead::parse(identity.into_text()?, None);
    Ok(head.ok().map(|head| head.spec))
}

impl Chain {
    /// Opens the chain of a genesis file, or begins it if the data path is empty. The file's alloc is read, with calls
    /// of `report`, only if the data path was not begun with this very file. Memory is bounded.
    ///
    /// # Errors
    /// [`OpenError`]; a data path with another chain is not changed.
    pub fn open_genesis_file(
        config: &GenesisFileConfig,
        report: &mut LoadingReport<'_>,
    ) -> Result<Self, OpenError> {
        let mut file = GenesisFile::open(&config.file)?;
        let mut small = None;
        if !is_data_path(&config.data_path)? {
            // Nothing is created if the file is invalid.
            small = file.read_if_small()?;
        }
        let database = Database::open(&config.data_path, &config.storage)?;
        if let Some(spec) = file.spec_if_unchanged(&database)? {
            let world = WorldState::open(database, &config.state)?;
            return Self::open_world(world, with_fixed_base_fee(spec, config));
        }
        if small.is_none() {
            small = file.read_if_small()?;
        }
        let world = WorldState::open(database, &config.state)?;
        let mut changes = Vec::new();
        let spec = match (has_genesis(&world)?, small) {
            (true, small) => {
                let stored = stored_genesis(&world)?;
                let (spec, batch) = file.verify_genesis(&world, small, stored, report)?;
                changes = check_rules(&world, stored, &spec)?;
                world.database().write(batch, false)?;
                spec
            }
            (false, Some((head, genesis))) => file.begin_small(&world, head, genesis)?,
            (false, None) => file.begin_large(&world, report)?,
        };
        let spec = with_fixed_base_fee(spec, config);
        Ok(Self::open_world(world, spec)?.with_rule_changes(changes))
    }
}

fn with_fixed_base_fee(spec: Arc<ChainSpec>, config: &GenesisFileConfig) -> Arc<ChainSpec> {
    match spec.fixed_base_fee {
        None => spec,
        Some(_) => Arc::new(ChainSpec {
            fixed_base_fee: Some(config.fixed_base_fee),
            ..ChainSpec::clone(&spec)
        }),
    }
}

/// As [`GenesisFile::verify_genesis`], for the file at `path`.
pub(crate) fn verify_genesis_file(
    world: &WorldState,
    path: &Path,
    stored: B256,
    report: &mut LoadingReport<'_>,
) -> Result<(Arc<ChainSpec>, Batch), OpenError> {
    let mut file = GenesisFile::open(path)?;
    let small = file.read_if_small()?;
    file.verify_genesis(world, small, stored, report)
}

/// A genesis file, opened.
struct GenesisFile<'a> {
    path: &'a Path,
    file: File,
    metadata: Metadata,
}

impl<'a> GenesisFile<'a> {
    fn open(path: &'a Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|error| io_fault("open", path, error))?;
        let metadata = file
            .metadata()
            .map_err(|error| io_fault("look at", path, error))?;
        Ok(Self {
            path,
            file,
            metadata,
        })
    }

    /// The whole genesis, if it is small.
    fn read_if_small(&mut self) -> Result<Option<(GenesisHead, Genesis)>, OpenError> {
        if self.metadata.len() > SMALL_BYTES {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = self.file.read_to_end(&mut bytes);
        read.map_err(|error| io_fault("read", self.path, error))?;
        let (head, alloc) = Genesis::parts_from_json(&bytes)?;
        Ok(Some((head.clone(), Genesis::new(head, alloc))))
    }

    /// Begins the chain of a small file.
    fn begin_small(
        &mut self,
        world: &WorldState,
        head: GenesisHead,
        genesis: Genesis,
    ) -> Result<Arc<ChainSpec>, OpenError> {
        let batch = self.identity_batch(&head)?;
        let block = GenesisBlock::from(&genesis);
        let spec = Arc::new(genesis.spec);
        begin(world, &block, &spec, batch)?;
        Ok(spec)
    }

    /// The same for one of any size.
    fn begin_large(
        &mut self,
        world: &WorldState,
        report: &mut LoadingReport<'_>,
    ) -> Result<Arc<ChainSpec>, OpenError> {
        let (head, header, hash) = self.load(world.begin_genesis()?, report)?;
        let batch = self.identity_batch(&head)?;
        LoadedGenesis { header, hash }.write(world, batch)?;
        Ok(Arc::new(head.spec))
    }

    /// Verifies that the file has the genesis block `stored`. Returns the chain's parameters, and a batch that makes
    /// the data path remember the file.
    fn verify_genesis(
        &mut self,
        world: &WorldState,
        small: Option<(GenesisHead, Genesis)>,
        stored: B256,
        report: &mut LoadingReport<'_>,
    ) -> Result<(Arc<ChainSpec>, Batch), OpenError> {
        if let Some((head, genesis)) = small {
            let batch = self.identity_batch(&head)?;
            let block = GenesisBlock::from(&genesis);
            check_genesis(stored, &block, &genesis.spec)?;
            return Ok((Arc::new(genesis.spec), batch));
        }
        let (head, _, hash) = self.load(world.begin_genesis_root()?, report)?;
        check_hash(stored, hash)?;
        let batch = self.identity_batch(&head)?;
        Ok((Arc::new(head.spec), batch))
    }

    /// Reads the file into `load` and finishes that. Returns the genesis header and its hash.
    fn load(
        &mut self,
        mut load: GenesisLoad<'_>,
        report: &mut LoadingReport<'_>,
    ) -> Result<(GenesisHead, Header, B256), OpenError> {
        let head = self.read(&mut load, report)?;
        let root = load.finish(&mut |done, of| report(Loading::Writing(done, of)))?;
        let (header, hash) = genesis_header(&head.header(B256::ZERO), &head.spec, root)?;
        Ok((head, header, hash))
    }

    /// Reads the file into `load`: one thread reads and parses, this one hashes and sorts.
    fn read(
        &mut self,
        load: &mut GenesisLoad<'_>,
        report: &mut LoadingReport<'_>,
    ) -> Result<GenesisHead, OpenError> {
        let path = self.path;
        let total = self.metadata.len();
        let rewound = self.file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| io_fault("read", path, error))?;
        let read_bytes = AtomicU64::new(0);
        let mut counted = Counted(&self.file, &read_bytes);
        let (sender, receiver) = sync_channel::<Vec<AllocItem>>(16);
        // Set when this thread receives no more; orders no other memory.
        let is_over = AtomicBool::new(false);
        let (outcome, loaded) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let reader = scope.spawn(move || {
                let mut items = Vec::with_capacity(ITEMS);
                let outcome = read_genesis(&mut counted, &mut |item| {
                    items.push(item);
                    if items.len() < ITEMS {
                        return !is_over.load(Ordering::Relaxed);
                    }
                    let full = std::mem::replace(&mut items, Vec::with_capacity(ITEMS));
                    sender.send(full).is_ok()
                });
                // Fails only if the receiver has failed, which returns its own error.
                let _ = sender.send(items);
                outcome
            });
            let mut loaded = Ok(());
            for items in receiver {
                let done = read_bytes.load(Ordering::Relaxed);
                loaded = if report(Loading::Reading(done, total)) {
                    items.iter().try_for_each(|item| add(load, item))
                } else {
                    Err(OpenError::Stopped)
                };
                if loaded.is_err() {
                    is_over.store(true, Ordering::Relaxed);
                    break;
                }
            }
            match reader.join() {
                Ok(outcome) => (outcome, loaded),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        loaded?;
        outcome.map_err(|error| match error {
            ReadError::Genesis(error) => error.into(),
            ReadError::Io(error) => io_fault("read", path, error).into(),
            ReadError::Stopped => OpenError::Stopped,
        })
    }

    /// The chain's parameters, if the data path was begun with this file as it is now.
    fn spec_if_unchanged(
        &mut self,
        database: &Database,
    ) -> Result<Option<Arc<ChainSpec>>, OpenError> {
        let Some(identity) = stored_identity(database)? else {
            return Ok(None);
        };
        let range = identity.alloc_start..identity.alloc_end;
        let range = (!range.is_empty()).then_some(range);
        let size = self.metadata.len();
        let is_alike = identity.size_bytes == size
            && Some(identity.changed_at) == self.changed_at()
            && range.as_ref().is_none_or(|range| range.end <= size);
        if !is_alike || self.identity(range.clone())? != identity {
            return Ok(None);
        }
        let head = GenesisHead::parse(identity.into_text()?, range)?;
        Ok(Some(Arc::new(head.spec)))
    }

    /// A batch that makes the data path remember the file; only its rules if it can't be recognised later.
    fn identity_batch(&mut self, head: &GenesisHead) -> Result<Batch, Fault> {
        let text = head.text().as_bytes();
        let mut identity = match self.changed_at() {
            Some(_) => self.identity(head.alloc_bytes())?,
            None => Identity::default(),
        };
        // A file that was changed while it was read is not the one that was read.
        if identity.text != text {
            identity = Identity {
                text: text.to_owned(),
                ..Identity::default()
            };
        }
        let mut batch = Batch::new();
        batch.put(Segment::Meta, GENESIS_FILE, &alloy_rlp::encode(identity));
        Ok(batch)
    }

    /// When the file was changed last; `None` if it is not a file that stays.
    fn changed_at(&self) -> Option<u64> {
        let changed_at = self.metadata.modified().ok()?;
        let since = changed_at.duration_since(UNIX_EPOCH).ok()?;
        let nanos = u64::try_from(since.as_nanos()).ok()?;
        self.metadata.is_file().then_some(nanos)
    }

    /// The identity of the file if its alloc is at `alloc`.
    fn identity(&mut self, alloc: Option<Range<u64>>) -> Result<Identity, Fault> {
        let size = self.metadata.len();
        let range = alloc.clone().unwrap_or(size..size);
        let mut text = self.part(0, range.start)?;
        if alloc.is_some() {
            text.extend_from_slice(niwaki_rules::NO_ALLOC);
        }
        text.extend(self.part(range.end, size)?);

        let length = range.end - range.start;
        let mut samples = Vec::new();
        for at in 0..SAMPLES {
            // Evenly, the first at the beginning and the last at the end.
            let last_start = length.saturating_sub(SAMPLE_BYTES);
            let offset = last_start.saturating_mul(at) / (SAMPLES - 1);
            let start = range.start + offset;
            samples.extend(self.part(start, (start + SAMPLE_BYTES).min(range.end))?);
        }
        let alloc = alloc.unwrap_or(0..0);
        Ok(Identity {
            size_bytes: size,
            changed_at: self.changed_at().unwrap_or(0),
            samples: keccak256(&samples),
            alloc_start: alloc.start,
            alloc_end: alloc.end,
            text,
        })
    }

    /// Some bytes of the file; fewer if it has become shorter.
    fn part(&mut self, start: u64, end: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| {
            let mut part = (&self.file).take(end.saturating_sub(start));
            part.read_to_end(&mut bytes)
        });
        read.map_err(|error| io_fault("read", self.path, error))?;
        Ok(bytes)
    }
}

/// Counts what is read.
struct Counted<'a>(&'a File, &'a AtomicU64);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer)?;
        // For display only: orders no other memory.
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

fn add(load: &mut GenesisLoad<'_>, item: &AllocItem) -> Result<(), OpenError> {
    match item {
        AllocItem::Slot {
            address,
            slot,
            value,
        } => load.add_slot(address, slot, value)?,
        AllocItem::Account {
            address,
            nonce,
            balance,
            code,
        } => load.add_account(address, *nonce, *balance, code)?,
    }
    Ok(())
}

fn io_fault(operation: &'static str, path: &Path, error: std::io::Error) -> Fault {
    Fault::Io {
        operation,
        path: format!("the genesis file {}", path.display()),
        error: Arc::new(error),
    }
}

#[cfg(test)]
mod tests;
