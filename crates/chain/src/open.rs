//! Opening a chain, and its genesis block.

use crate::Chain;
use crate::forkchoice::SafeFinalized;
use crate::genesis_file::remembered_rules;
use crate::indices::index_canonical;
use crate::persist::add_block;
use crate::tree::{StoredHeader, read_header};
use niwaki_primitives::{Address, B256, BlockAccessList, BlockBody, Fault, Header, Withdrawals};
use niwaki_rules::{
    ChainSpec, GenesisError, Network, RuleChange, encode_access_list, rule_changes,
};
use niwaki_state::{BlockId, GenesisAccount, LoadError, StateOptions, WorldState, genesis_root};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment, corrupt, missing};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The row of `meta` that names the genesis block.
pub(crate) const GENESIS: &[u8] = b"genesis";

/// The first block and the first state.
#[derive(Clone, Debug, Default)]
pub struct GenesisBlock {
    /// The header; its state root is computed, and compared if it is not zero.
    pub header: Header,
    /// The accounts.
    pub alloc: BTreeMap<Address, niwaki_rules::GenesisAccount>,
}

impl From<&niwaki_rules::Genesis> for GenesisBlock {
    fn from(genesis: &niwaki_rules::Genesis) -> Self {
        Self {
            header: genesis.header(B256::ZERO),
            alloc: genesis.alloc.clone(),
        }
    }
}

/// How a chain is opened.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    /// The folder of its database; `None` for one in memory.
    pub data_path: Option<PathBuf>,
    /// The rules.
    pub spec: Arc<ChainSpec>,
    /// The first block.
    pub genesis: GenesisBlock,
    /// How the storage is opened.
    pub storage: StorageOptions,
    /// How the state is opened.
    pub state: StateOptions,
}

/// Why a chain did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database did not open.
    #[error(transparent)]
    Storage(#[from] niwaki_storage::OpenError),
    /// The data path holds another chain.
    #[error(
        "the data path holds the chain with genesis {stored}, the given genesis is {given}; \
         choose the network or genesis file it was made with, or another --data-path"
    )]
    OtherGenesis {
        /// Of the data path.
        stored: B256,
        /// Of the configuration.
        given: B256,
    },
    /// The given rules are not those by which the blocks were validated.
    #[error(
        "{change}, but the chain is at block {head} and was made by the rules before; give it the \
         genesis file that it was made with, or start a new chain in another --data-path"
    )]
    OtherRules {
        /// The change that reaches back furthest.
        change: RuleChange,
        /// The number of the head.
        head: u64,
    },
    /// The genesis is not the one that the chain is known by.
    #[error("the genesis block has hash {got}, the chain is known by {expected}")]
    GenesisHash {
        /// Computed.
        got: B256,
        /// By the chain spec.
        expected: B256,
    },
    /// The genesis accounts do not have the state root of the header.
    #[error("the genesis accounts have state root {got}, the genesis header says {expected}")]
    GenesisRoot {
        /// Computed.
        got: B256,
        /// By the header.
        expected: B256,
    },
    /// The genesis file can't be used.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// The caller asked to stop.
    #[error("stopped while loading the genesis; the next start begins again")]
    Stopped,
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<LoadError> for OpenError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Stopped => Self::Stopped,
            LoadError::Fault(fault) => fault.into(),
            // Of a genesis file the last one counts, and the keys of an exported state ascend, so the runs are damaged.
            LoadError::AccountTwice(_) | LoadError::SlotTwice { .. } => {
                Self::Fault(Fault::Corrupt {
                    segment: "loading",
                    key: "of a record".to_owned(),
                    reason: format!("{error}; the same command begins again"),
                })
            }
        }
    }
}

impl Chain {
    /// Opens the chain, or begins it with its genesis block if there is none yet.
    ///
    /// # Errors
    /// [`OpenError`]; a data path with another chain is not changed.
    pub fn open(config: ChainConfig) -> Result<Self, OpenError> {
        let database = match &config.data_path {
            Some(path) => Database::open(path, &config.storage)?,
            None => Database::in_memory()?,
        };
        let world = WorldState::open(database, &config.state)?;
        let mut changes = Vec::new();
        if has_genesis(&world)? {
            let stored = stored_genesis(&world)?;
            check_genesis(stored, &config.genesis, &config.spec)?;
            changes = check_rules(&world, stored, &config.spec)?;
        } else {
            begin(&world, &config.genesis, &config.spec, Batch::new())?;
        }
        let chain = Self::open_world(world, config.spec)?;
        Ok(chain.with_rule_changes(changes))
    }

    /// The chain of a state that has a genesis.
    pub(crate) fn open_world(world: WorldState, spec: Arc<ChainSpec>) -> Result<Self, OpenError> {
        let genesis = stored_genesis(&world)?;
        let head = match world.head() {
            Some(head) => head.block,
            // While a state is downloaded there is none.
            None => genesis_id(&world, genesis)?,
        };
        let head = read_header(world.database(), head)?;
        let safe_finalized = SafeFinalized::read(world.database())?;
        Ok(Self::new(spec, world, genesis, head, safe_finalized))
    }
}

fn accounts(genesis: &GenesisBlock) -> impl Iterator<Item = GenesisAccount> {
    genesis
        .alloc
        .iter()
        .map(|(address, account)| GenesisAccount {
            address: *address,
            nonce: account.nonce,
            balance: account.balance,
            code: account.code.clone(),
            storage: account
                .storage
                .iter()
                .map(|(slot, value)| (*slot, *value))
                .collect(),
        })
}

/// The header with its state root filled in, and its hash.
pub(crate) fn genesis_header(
    template: &Header,
    spec: &ChainSpec,
    root: B256,
) -> Result<(Header, B256), OpenError> {
    let mut header = template.clone();
    let expected = header.state_root;
    if !expected.is_zero() && expected != root {
        return Err(OpenError::GenesisRoot {
            got: root,
            expected,
        });
    }
    header.state_root = root;
    let got = spec.header_hash(&header);
    match spec.genesis_hash {
        Some(expected) if got != expected => Err(OpenError::GenesisHash { got, expected }),
        _ => Ok((header, got)),
    }
}

/// The requested chain must be the one with the genesis `stored`. The root of the accounts is
/// computed only if the chain is not known by its genesis hash.
pub(crate) fn check_genesis(
    stored: B256,
    genesis: &GenesisBlock,
    spec: &ChainSpec,
) -> Result<(), OpenError> {
    if spec.genesis_hash == Some(stored) {
        return Ok(());
    }
    let root = genesis_root(accounts(genesis));
    let (_, given) = genesis_header(&genesis.header, spec, root)?;
    check_hash(stored, given)
}

/// The data path's genesis and the given one must be the same.
pub(crate) fn check_hash(stored: B256, given: B256) -> Result<(), OpenError> {
    if stored == given {
        return Ok(());
    }
    Err(OpenError::OtherGenesis { stored, given })
}

/// The given rules must not change those by which the chain's blocks were validated. Returns the changes that do not
/// matter to them. `genesis` is the hash of its genesis block.
pub(crate) fn check_rules(
    world: &WorldState,
    genesis: B256,
    given: &ChainSpec,
) -> Result<Vec<RuleChange>, OpenError> {
    let Some(head) = world.head() else {
        // Its state is being downloaded, and no block was executed.
        return Ok(Vec::new());
    };
    let head = read_header(world.database(), head.block)?;
    // A chain without blocks may have any rules that make its genesis block.
    let stored = match head.id.hash == genesis {
        true => None,
        false => stored_rules(world.database(), genesis)?,
    };
    let Some(stored) = stored else {
        return Ok(Vec::new());
    };
    let changes = rule_changes(&stored, given, &head.header, head.total_difficulty);
    match changes.first() {
        Some(change) if change.is_breaking => Err(OpenError::OtherRules {
            change: change.clone(),
            head: head.id.number,
        }),
        _ => Ok(changes),
    }
}

/// The rules by which the chain's blocks were validated: those of the stored genesis file, else those of the network
/// with this genesis block; `None` if there is neither.
fn stored_rules(database: &Database, genesis: B256) -> Result<Option<ChainSpec>, Fault> {
    if let Some(spec) = remembered_rules(database)? {
        return Ok(Some(spec));
    }
    let mut networks = Network::ALL.into_iter();
    let network = networks.find(|network| network.genesis_hash() == genesis);
    Ok(network.map(|network| network.genesis().spec))
}

pub(crate) fn stored_genesis(world: &WorldState) -> Result<B256, Fault> {
    let row = world.database().get(Segment::Meta, GENESIS)?;
    let row = row.ok_or_else(|| missing(Segment::Meta, GENESIS))?;
    B256::try_from(&row[..]).map_err(|_| corrupt(Segment::Meta, GENESIS, "a hash has 32 bytes"))
}

/// Whether there is a chain: its state may be on its way.
pub(crate) fn has_genesis(world: &WorldState) -> Result<bool, Fault> {
    Ok(world.head().is_some() || world.has_download()?)
}

/// Number and hash of the genesis block.
fn genesis_id(world: &WorldState, hash: B256) -> Result<BlockId, Fault> {
    let row = world.database().get(Segment::Numbers, hash.as_slice())?;
    let row = row.ok_or_else(|| missing(Segment::Numbers, hash.as_slice()))?;
    let number = row.try_into().map(u64::from_be_bytes);
    let number =
        number.map_err(|_| corrupt(Segment::Numbers, hash.as_slice(), "a number has 8 bytes"))?;
    Ok(BlockId { number, hash })
}

/// Writes the genesis block and its state, together with `batch`.
pub(crate) fn begin(
    world: &WorldState,
    genesis: &GenesisBlock,
    spec: &ChainSpec,
    batch: Batch,
) -> Result<(), OpenError> {
    let root = world.load_genesis(accounts(genesis).map(Ok))?;
    let (header, hash) = genesis_header(&genesis.header, spec, root)?;
    LoadedGenesis { header, hash }.write(world, batch)?;
    Ok(())
}

/// A genesis block whose state was loaded.
pub(crate) struct LoadedGenesis {
    pub(crate) header: Header,
    pub(crate) hash: B256,
}

impl LoadedGenesis {
    /// Writes it, together with `batch`.
    pub(crate) fn write(self, world: &WorldState, mut batch: Batch) -> Result<(), Fault> {
        let Self { header, hash } = self;
        let (number, root) = (header.number, header.state_root);
        let body = BlockBody {
            withdrawals: header.withdrawals_root.map(|_| Withdrawals::default()),
            ..BlockBody::default()
        };
        let block = StoredHeader {
            id: BlockId { number, hash },
            total_difficulty: header.difficulty,
            header,
        };
        // The genesis block changes nothing, so its list is empty.
        let access_list = block.header.block_access_list_hash;
        let access_list = access_list.map(|_| encode_access_list(&BlockAccessList::new()));
        add_block(&block, &body, &[], access_list.as_ref(), &mut batch);
        index_canonical(&block.id, &body, &mut batch);
        batch.put(Segment::Meta, GENESIS, hash.as_slice());
        world.finish_genesis(block.id, root, batch)
    }
}
