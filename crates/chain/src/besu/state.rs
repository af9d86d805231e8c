//! The state of a late block of Besu's chain, loaded into an empty data path.

use super::rollback::Earlier;
use super::rows::{Position, RowLoader, Values};
use super::{BesuError, BesuFolder, BesuLayout, TRIE_BRANCH, WORLD_STATE};
use crate::genesis_file::{Loading, LoadingReport};
use crate::open::{GENESIS, has_genesis, stored_genesis};
use crate::state_file::{BLOCKS, verify_genesis};
use crate::tree::{FIRST_BLOCK, StoredHeader};
use crate::{BlockId, Chain, GenesisSource};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, U256};
use niwaki_rules::ChainSpec;
use niwaki_state::{GenesisLoad, StateOptions, WorldState};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment};
use std::path::PathBuf;

/// The state of this block is that which Bonsai stores.
const STATE_BLOCK: &[u8] = b"worldBlockHash";

/// What is taken over, and where to.
#[derive(Clone, Debug)]
pub struct BesuImport {
    /// The data path.
    pub data_path: PathBuf,
    /// The chain that the folder must be of.
    pub genesis: GenesisSource,
    /// How the storage is opened.
    pub storage: StorageOptions,
    /// How the state is opened.
    pub state: StateOptions,
    /// So many blocks up to Besu's head are executed, if Besu has what it takes to go back that far.
    pub executed: u64,
}

/// Which state is loaded, and from where.
struct Base {
    /// The block whose state Besu stores.
    stored: B256,
    /// The block whose state is loaded.
    block: StoredHeader,
    values: Values,
    earlier: Earlier,
}

impl Chain {
    /// Loads a late state of Besu's chain into a data path without one, and the blocks that BLOCKHASH needs with it. A data path that has a
    /// chain is opened, if its head is a block of Besu's. Memory is bounded, whatever the size of the state.
    ///
    /// # Errors
    /// [`BesuError`]. If the load was stopped or died, the same call resumes it.
    pub fn import_besu_state(
        folder: &BesuFolder,
        import: &BesuImport,
        report: &mut LoadingReport<'_>,
    ) -> Result<Self, BesuError> {
        Self::import_besu_state_with(folder, import, None, report)
    }

    /// With runs of about `run_bytes` in memory, if given.
    pub(crate) fn import_besu_state_with(
        folder: &BesuFolder,
        import: &BesuImport,
        run_bytes: Option<usize>,
        report: &mut LoadingReport<'_>,
    ) -> Result<Self, BesuError> {
        let database = Database::open(&import.data_path, &import.storage)
            .map_err(crate::OpenError::Storage)?;
        let world = WorldState::open(database, &import.state)?;
        let known = match has_genesis(&world)? {
            true => Some(stored_genesis(&world)?),
            false => None,
        };
        let genesis = known.unwrap_or(folder.genesis);
        let (spec, identity) = verify_genesis(&world, genesis, &import.genesis, report)?;
        if known.is_some() {
            let chain = Self::open_world(world, spec)?;
            folder.check_head_of(&chain)?;
            return Ok(chain);
        }
        let base = folder.base(import.executed, &spec, report)?;
        let mut batch = folder.blocks_of(&base.block, &spec)?;
        batch.append(identity);
        let (block, root) = (base.block.id, base.block.header.state_root);
        if let Err(error) = folder.load(&world, base, run_bytes, report) {
            if !is_resumable(&error) {
                world.database().remove_staging_dir()?;
            }
            return Err(error);
        }
        world.finish_genesis(block, root, batch)?;
        Ok(Self::open_world(world, spec)?)
    }
}

/// Whether what was loaded before an error may be right.
fn is_resumable(error: &BesuError) -> bool {
    match error {
        BesuError::Stopped => true,
        BesuError::Fault(fault) => crate::state_file::is_resumable_fault(fault),
        _ => false,
    }
}

impl BesuFolder {
    /// Loads the rows of the base and compares their root.
    fn load(
        &self,
        world: &WorldState,
        base: Base,
        run_bytes: Option<usize>,
        report: &mut LoadingReport<'_>,
    ) -> Result<(), BesuError> {
        let (mut load, position) = self.begin_load(world, &base)?;
        if let Some(run_bytes) = run_bytes {
            load = load.with_run_bytes(run_bytes);
        }
        let loader = RowLoader::new(self, load, base.earlier, position);
        let load = loader.run(base.values, report)?;
        let got = load.finish(&mut |done, of| report(Loading::Writing(done, of)))?;
        let (block, expected) = (base.block.id, base.block.header.state_root);
        if got != expected {
            return Err(BesuError::Root {
                got,
                expected,
                block,
            });
        }
        match world.missing_code()? {
            Some(hash) => {
                Err(self.damaged(format!("an account has code {hash}, which is not there")))
            }
            None => Ok(()),
        }
    }

    /// The head of a chain that is there already must be a block of Besu's.
    fn check_head_of(&self, chain: &Chain) -> Result<(), BesuError> {
        if !chain.has_state() {
            return Err(BesuError::NoState);
        }
        let head = chain.head().id;
        match self.hash_at(head.number)? == Some(head.hash) {
            true => Ok(()),
            false => Err(BesuError::OtherHead { head }),
        }
    }

    /// The state that is loaded: that of Besu's head, `executed` blocks earlier if that can be had.
    fn base(
        &self,
        executed: u64,
        spec: &ChainSpec,
        report: &mut LoadingReport<'_>,
    ) -> Result<Base, BesuError> {
        let target = self.head.number.saturating_sub(executed);
        let (stored, block, values, earlier) = match self.layout {
            BesuLayout::Forest => {
                let (block, root) = self.forest_base(target)?;
                (block.hash, block, Values::ByHash(root), Earlier::default())
            }
            BesuLayout::Bonsai => {
                let row = self.database.get(TRIE_BRANCH, STATE_BLOCK)?;
                let row =
                    row.ok_or_else(|| self.damaged("it has no state: its sync has not ended"))?;
                let hash = self.hash(&row, "worldBlockHash")?;
                let header = self.header(&hash)?;
                let number = header.number;
                let from = BlockId { number, hash };
                let (block, earlier) = self.roll_back(from, target, report)?;
                (hash, block, self.bonsai_values(header.state_root)?, earlier)
            }
        };
        let total_difficulty = self.total_difficulty(&block.hash)?;
        let header = self.header(&block.hash)?;
        if spec.header_hash(&header) != block.hash {
            return Err(self.damaged(format!("the header of block {block} has another hash")));
        }
        Ok(Base {
            stored,
            block: StoredHeader {
                id: block,
                header,
                total_difficulty,
            },
            values,
            earlier,
        })
    }

    /// The lowest canonical block from `target` on whose state a Forest has, and its root.
    fn forest_base(&self, target: u64) -> Result<(BlockId, B256), BesuError> {
        for number in target..=self.head.number {
            let Some(hash) = self.hash_at(number)? else {
                continue;
            };
            let root = self.header(&hash)?.state_root;
            let is_empty = root == EMPTY_ROOT_HASH;
            if is_empty || self.database.get(WORLD_STATE, root.as_slice())?.is_some() {
                return Ok((BlockId { number, hash }, root));
            }
        }
        Err(self.damaged("it has no state: its sync has not ended"))
    }

    /// The rows of the base block, of those before it that BLOCKHASH needs, and of the genesis block.
    fn blocks_of(&self, base: &StoredHeader, spec: &ChainSpec) -> Result<Batch, BesuError> {
        let mut batch = Batch::new();
        let (mut hash, mut total) = (base.id.hash, base.total_difficulty);
        let mut first = None;
        for _ in 0..BLOCKS {
            if hash == self.genesis {
                break;
            }
            let block = self.whole_block(&hash, total, spec)?;
            let (block, _) = block.ok_or_else(|| {
                self.damaged(format!("block {hash} is not whole, which its state needs"))
            })?;
            block.add_to(&mut batch);
            first = Some(block.header.id.number);
            hash = block.header.header.parent_hash;
            let before = total.checked_sub(block.header.header.difficulty);
            total = before.ok_or_else(|| self.damaged("a total difficulty is too low"))?;
        }
        self.add_genesis(spec, &mut batch)?;
        batch.put(Segment::Meta, GENESIS, self.genesis.as_slice());
        if let Some(first) = first {
            batch.put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes());
        }
        Ok(batch)
    }

    fn add_genesis(&self, spec: &ChainSpec, batch: &mut Batch) -> Result<(), BesuError> {
        let total: U256 = self.header(&self.genesis)?.difficulty;
        let block = self.whole_block(&self.genesis, total, spec)?;
        let (block, _) = block.ok_or_else(|| self.damaged("its genesis block is not whole"))?;
        block.add_to(batch);
        Ok(())
    }

    /// Begins the load, or goes on with one of the same state.
    fn begin_load<'w>(
        &self,
        world: &'w WorldState,
        base: &Base,
    ) -> Result<(GenesisLoad<'w>, Position), BesuError> {
        let position = Position {
            base: base.block.id.hash,
            stored: base.stored,
            ..Position::default()
        };
        if let Some(checkpoint) = world.resumable_load()?
            && let Ok(known) = alloy_rlp::decode_exact::<Position>(&checkpoint.note)
            && (known.base, known.stored) == (position.base, position.stored)
        {
            return Ok((world.resume_genesis(&checkpoint)?, known));
        }
        Ok((world.begin_genesis()?, position))
    }
}
