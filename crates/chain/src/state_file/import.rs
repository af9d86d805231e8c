//! An exported state imported into an empty data path.
//!
//! One pass over the file: its blocks are checked against their headers; its accounts and slots go through the loader
//! of a large genesis, which builds the tries. The head is written last, and only if their root is that of its header;
//! until then the data path counts as being loaded. Meanwhile checkpoints are written, so that an interrupted import
//! can resume; any other command that opens the data path removes them.

mod resume;

pub(crate) use resume::is_resumable_fault;

use crate::check::{are_receipts_valid, is_body_valid};
use crate::chunks::{About, Chunk, ChunkReader, FileKind};
use crate::genesis_file::{Loading, LoadingReport, verify_genesis_file};
use crate::indices::index_canonical;
use crate::open::{GENESIS, GenesisBlock, check_genesis};
use crate::rows::{decode_header, decode_receipts};
use crate::tree::FIRST_BLOCK;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, TransferError};
use niwaki_primitives::{B256, Block, BlockBody};
use niwaki_rules::ChainSpec;
use niwaki_state::{GenesisLoad, StateOptions, WorldState};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the parameters of a chain come from.
#[derive(Clone, Debug)]
pub enum GenesisSource {
    /// They are known.
    Known(Box<GenesisBlock>, Arc<ChainSpec>),
    /// A genesis file.
    File(PathBuf),
}

/// What is imported, and where to.
#[derive(Clone, Debug)]
pub struct StateImport {
    /// The data path.
    pub data_path: PathBuf,
    /// The exported state.
    pub from: PathBuf,
    /// The chain that it must be of.
    pub genesis: GenesisSource,
    /// How the storage is opened.
    pub storage: StorageOptions,
    /// How the state is opened.
    pub state: StateOptions,
}

impl Chain {
    /// Imports an exported state into a data path without a chain. Memory is bounded whatever the size of the state.
    ///
    /// # Errors
    /// [`TransferError`]; then the data path has no chain. If the import was stopped, died or met a failing disk, the
    /// same call resumes it; else that begins again.
    pub fn import_state(
        import: &StateImport,
        report: &mut LoadingReport<'_>,
    ) -> Result<Self, TransferError> {
        Self::import_state_with(import, None, report)
    }

    /// With runs of about `run_bytes` in memory, if given.
    pub(crate) fn import_state_with(
        import: &StateImport,
        run_bytes: Option<usize>,
        report: &mut LoadingReport<'_>,
    ) -> Result<Self, TransferError> {
        // Nothing is created if the file is not an exported state.
        let (mut file, about) = ChunkReader::open(&import.from, FileKind::State)?;
        let database = Database::open(&import.data_path, &import.storage)
            .map_err(crate::OpenError::Storage)?;
        let world = WorldState::open(database, &import.state)?;
        if world.head().is_some() {
            return Err(TransferError::NotEmpty);
        }
        let (spec, identity) = verify_chain(&world, &about, &import.genesis, report)?;

        let (mut load, position) = resume::begin(&world, &mut file)?;
        if let Some(run_bytes) = run_bytes {
            load = load.with_run_bytes(run_bytes);
        }
        let read = read(&mut file, &about, &spec, &mut load, position, report);
        let filled = read.and_then(|(head, mut batch)| {
            write(load, &head, report)?;
            if let Some(hash) = world.missing_code()? {
                return Err(file.damaged(format!("an account has code {hash}, which is not there")));
            }
            batch.put(Segment::Meta, GENESIS, about.genesis.as_slice());
            batch.append(identity);
            let root = head.header.state_root;
            Ok(world.finish_genesis(head.id, root, batch)?)
        });
        match filled {
            Ok(()) => Ok(Self::open_world(world, spec)?),
            Err(error) => {
                if !resume::is_resumable(&error) {
                    world.database().remove_staging_dir()?;
                }
                Err(error)
            }
        }
    }
}

/// Reads the rows of the file into `load`, except those that it has by `position`. Returns the head and a batch of all
/// blocks.
fn read(
    file: &mut ChunkReader,
    about: &About,
    spec: &ChainSpec,
    load: &mut GenesisLoad<'_>,
    mut position: Option<resume::LoadPosition>,
    report: &mut LoadingReport<'_>,
) -> Result<(StoredHeader, Batch), TransferError> {
    let first = file.place();
    let mut blocks = Blocks {
        spec,
        headers: BTreeMap::new(),
        bodies: BTreeMap::new(),
        receipts: 0,
        batch: Batch::new(),
    };
    let mut rows = Rows::default();
    while let Some(chunk) = file.next()? {
        match (chunk.segment, position.take()) {
            (Segment::Headers | Segment::Bodies | Segment::Receipts, unused) => {
                position = unused;
                blocks.add(&chunk, file)?;
            }
            (_, Some(position)) => rows = position.seek(file)?,
            (_, None) => {
                rows.load(&chunk, file, load)?;
                if load.should_checkpoint() {
                    resume::checkpoint(load, file, first, &rows)?;
                }
            }
        }
        let (done, of) = file.done();
        if !report(Loading::Reading(done, of)) {
            return Err(TransferError::Stopped);
        }
    }
    blocks.finish(about, file)
}

/// Writes what was read, if its root is that of the head.
fn write(
    load: GenesisLoad<'_>,
    head: &StoredHeader,
    report: &mut LoadingReport<'_>,
) -> Result<(), TransferError> {
    let got = load.finish(&mut |done, of| report(Loading::Writing(done, of)))?;
    let expected = head.header.state_root;
    if got == expected {
        return Ok(());
    }
    let number = head.id.number;
    Err(TransferError::Root {
        got,
        expected,
        number,
    })
}

/// Verifies that the file is of the requested chain. Returns its parameters, and a batch that makes the data path
/// remember its genesis file.
fn verify_chain(
    world: &WorldState,
    about: &About,
    genesis: &GenesisSource,
    report: &mut LoadingReport<'_>,
) -> Result<(Arc<ChainSpec>, Batch), TransferError> {
    let verified = verify_genesis(world, about.genesis, genesis, report);
    let (spec, identity) = verified.map_err(|error| match error {
        crate::OpenError::OtherGenesis { given, .. } => {
            TransferError::other_chain("genesis", about.genesis, given)
        }
        error => error.into(),
    })?;
    if spec.chain_id != about.chain_id {
        let (found, given) = (about.chain_id, spec.chain_id);
        return Err(TransferError::other_chain("chain id", found, given));
    }
    Ok((spec, identity))
}

/// Verifies that the chain with the genesis block `stored` is the requested one. Returns its parameters, and a batch that makes the data
/// path remember its genesis file.
pub(crate) fn verify_genesis(
    world: &WorldState,
    stored: B256,
    genesis: &GenesisSource,
    report: &mut LoadingReport<'_>,
) -> Result<(Arc<ChainSpec>, Batch), crate::OpenError> {
    match genesis {
        GenesisSource::Known(block, spec) => {
            check_genesis(stored, block, spec).map(|()| (Arc::clone(spec), Batch::new()))
        }
        GenesisSource::File(file) => verify_genesis_file(world, file, stored, report),
    }
}

/// The rows of the state: known segments, in this order, keys ascending.
#[derive(Default)]
struct Rows {
    last: Option<(u8, Vec<u8>)>,
}

impl Rows {
    fn load(
        &mut self,
        chunk: &Chunk,
        file: &ChunkReader,
        load: &mut GenesisLoad<'_>,
    ) -> Result<(), TransferError> {
        let order = match chunk.segment {
            Segment::Code => 0,
            Segment::Accounts => 1,
            Segment::Slots => 2,
            _ => return Err(file.damaged("it has rows that are no part of a state")),
        };
        file.each_row(chunk, |key, value| {
            let is_next = self
                .last
                .as_ref()
                .is_none_or(|(last_order, last)| (*last_order, &last[..]) < (order, key));
            if !is_next {
                return Err(file.damaged("its rows are not in order"));
            }
            match order {
                0 => load.add_code(value)?,
                1 => load.add_flat_account(key, value)?,
                _ => load.add_flat_slot(key, value)?,
            }
            let (last_order, last) = self.last.get_or_insert_default();
            *last_order = order;
            last.clear();
            last.extend_from_slice(key);
            Ok(())
        })
    }
}

/// The blocks of the file. Its exporter wrote 257 at most; more are refused.
struct Blocks<'s> {
    spec: &'s ChainSpec,
    headers: BTreeMap<u64, StoredHeader>,
    bodies: BTreeMap<u64, BlockBody>,
    receipts: u64,
    batch: Batch,
}

impl Blocks<'_> {
    fn add(&mut self, chunk: &Chunk, file: &ChunkReader) -> Result<(), TransferError> {
        file.each_row(chunk, |key, value| {
            let block = BlockId::from_key(key)
                .ok_or_else(|| file.damaged("a block's key is not 40 bytes"))?;
            match self.row(chunk.segment, block, value) {
                Ok(()) => {
                    self.batch.put(chunk.segment, key, value);
                    Ok(())
                }
                Err(reason) => Err(file.damaged(format!("block {block}: {reason}"))),
            }
        })
    }

    /// Checks one row against those before it: headers come first, then bodies, then receipts.
    fn row(&mut self, segment: Segment, id: BlockId, value: &[u8]) -> Result<(), &'static str> {
        if segment == Segment::Headers {
            let (header, total_difficulty) = decode_header(value)?;
            if self.spec.header_hash(&header) != id.hash || header.number != id.number {
                return Err("the header is not the one of its key");
            }
            let stored = StoredHeader {
                id,
                header,
                total_difficulty,
            };
            let is_new = self.headers.insert(id.number, stored).is_none();
            let is_bounded = self.headers.len() as u64 <= super::BLOCKS + 1;
            return match is_new && is_bounded {
                true => Ok(()),
                false => Err("there are more headers than there may be"),
            };
        }
        let stored = self
            .headers
            .get(&id.number)
            .filter(|stored| stored.id == id);
        let stored = stored.ok_or("a body or receipts without a header")?;
        if segment == Segment::Receipts {
            let receipts = decode_receipts(value).map_err(|_| "the receipts are not RLP of any")?;
            self.receipts += 1;
            return match are_receipts_valid(&receipts, &stored.header) {
                true => Ok(()),
                false => Err("the receipts are not those of the header"),
            };
        }
        let body = alloy_rlp::decode_exact(value).map_err(|_| "the body is not RLP of one")?;
        let header = stored.header.clone();
        let block = Block { header, body };
        if !is_body_valid(&block) {
            return Err("the body is not the one of its header");
        }
        self.bodies.insert(id.number, block.body);
        Ok(())
    }

    /// The head and a batch of all blocks with their indices, if they are a chain to `about`'s head, from its genesis
    /// or, after a gap, from further up.
    fn finish(
        mut self,
        about: &About,
        file: &ChunkReader,
    ) -> Result<(StoredHeader, Batch), TransferError> {
        let count = self.headers.len();
        if self.bodies.len() != count || self.receipts != count as u64 {
            return Err(file.damaged("a block has no body or no receipts"));
        }
        let genesis = self.headers.values().next();
        if genesis.is_none_or(|genesis| genesis.id.hash != about.genesis) {
            return Err(file.damaged("its first block is not the genesis block"));
        }
        let mut before: Option<&StoredHeader> = None;
        for stored in self.headers.values() {
            // Above the genesis block there may be a gap, elsewhere not.
            let is_gap = |before: &StoredHeader| {
                before.id.hash == about.genesis && stored.id.number > before.id.number + 1
            };
            if before.is_some_and(|before| !is_gap(before) && !is_child(stored, before)) {
                let what = format!("block {} is not a child of the one before it", stored.id);
                return Err(file.damaged(what));
            }
            before = Some(stored);
        }
        for (stored, body) in self.headers.values().zip(self.bodies.values()) {
            let number = stored.id.number.to_be_bytes();
            self.batch
                .put(Segment::Numbers, stored.id.hash.as_slice(), &number);
            index_canonical(&stored.id, body, &mut self.batch);
        }
        if let Some(first) = self.headers.keys().nth(1) {
            self.batch
                .put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes());
        }
        let head = self.headers.pop_last().map(|(_, head)| head);
        let is_head = |head: &StoredHeader| head.id.hash == about.hash;
        match head.filter(is_head) {
            Some(head) => Ok((head, self.batch)),
            None => Err(file.damaged("its last block is not its head")),
        }
    }
}

fn is_child(block: &StoredHeader, parent: &StoredHeader) -> bool {
    let total = parent
        .total_difficulty
        .saturating_add(block.header.difficulty);
    block.id.number.checked_sub(1) == Some(parent.id.number)
        && block.header.parent_hash == parent.id.hash
        && block.total_difficulty == total
}
