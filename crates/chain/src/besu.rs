//! The data folder of a stopped Besu, taken over: read, never changed.
//!
//! ```text
//! state of a late block  --rows, or the trie walked--> loader of a first state, root compared with the header
//! blocks below it        --verified by their headers-> copied (`Chain::add_history`)
//! blocks above it        -----------------------------> executed, as all blocks are
//! ```
//!
//! The state is that of Besu's head, rolled back by Besu's own trie logs, so that the last blocks can be executed: that verifies the rules
//! of the genesis file on them, and leaves trie logs of ours, by which recent states are read. Besu stores whole headers, seals and all.
//!
//! | file | what it is |
//! |---|---|
//! | `blocks` | headers, bodies, receipts; blocks copied below the first one that is stored |
//! | `receipts` | the forms in which Besu stores receipts |
//! | `rollback` | Besu's trie logs: what a state was before its last blocks |
//! | `rows` | accounts, slots and codes: Bonsai's flat rows, or the leaves of a trie |
//! | `state` | a state loaded into an empty data path |
//! | `walk` | the leaves of a trie in the order of their keys |

mod blocks;
mod receipts;
mod rollback;
mod rows;
mod state;
mod walk;

use crate::{BlockId, OpenError};
use alloy_rlp::Decodable;
use niwaki_primitives::{B256, Fault, Header};
use niwaki_state::LoadError;
use niwaki_storage::{ForeignDatabase, ForeignFamily, ForeignOpenError};
use std::fmt;
use std::path::{Path, PathBuf};

pub use blocks::CopiedHistory;
pub use state::BesuImport;

const fn family(id: &'static str, name: &'static str) -> ForeignFamily {
    ForeignFamily { id, name }
}

/// Besu's families of rows that are read; each is named by one byte.
pub(crate) const BLOCKCHAIN: ForeignFamily = family("\u{1}", "BLOCKCHAIN");
pub(crate) const WORLD_STATE: ForeignFamily = family("\u{2}", "WORLD_STATE");
pub(crate) const ACCOUNT_INFO_STATE: ForeignFamily = family("\u{6}", "ACCOUNT_INFO_STATE");
pub(crate) const CODE_STORAGE: ForeignFamily = family("\u{7}", "CODE_STORAGE");
pub(crate) const ACCOUNT_STORAGE: ForeignFamily = family("\u{8}", "ACCOUNT_STORAGE_STORAGE");
pub(crate) const TRIE_BRANCH: ForeignFamily = family("\u{9}", "TRIE_BRANCH_STORAGE");
pub(crate) const TRIE_LOG: ForeignFamily = family("\u{a}", "TRIE_LOG_STORAGE");
pub(crate) const VARIABLES: ForeignFamily = family("\u{b}", "VARIABLES");

/// The file that says how Besu's database is laid out.
const METADATA: &str = "DATABASE_METADATA.json";
const CHAIN_HEAD: &[u8] = b"chainHeadHash";

/// Why a folder of Besu was not taken over.
#[derive(Debug, thiserror::Error)]
pub enum BesuError {
    /// The folder is something else, or of a layout that is not known.
    #[error("{path} can't be read as a data folder of Besu: {reason}")]
    NotBesu {
        /// The folder.
        path: String,
        /// Why.
        reason: String,
    },
    /// Besu runs.
    #[error("Besu has {0} open; stop it first, and take the folder over while it stands still")]
    InUse(String),
    /// What is in it can't be.
    #[error(
        "the database of Besu in {path} is damaged or not whole: {what}; start Besu with it once, let it stand at its head, stop it with \
         SIGTERM and try again, or sync from its peers instead"
    )]
    Damaged {
        /// The folder.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The folder is of another chain.
    #[error(
        "the folder is of the chain with genesis {found}, the given one has {given}; name its --network or --genesis-file"
    )]
    OtherChain {
        /// In the folder.
        found: B256,
        /// Of the command line.
        given: B256,
    },
    /// The data path holds a chain that is not that of the folder.
    #[error(
        "the data path holds a chain whose head {head} is no block of Besu's chain; name an empty --data-path"
    )]
    OtherHead {
        /// The head of the data path.
        head: BlockId,
    },
    /// The data path is one of a node whose state is on its way.
    #[error("the data path has a chain whose state is being downloaded; name an empty --data-path")]
    NoState,
    /// The rows are not those of the header.
    #[error(
        "the accounts and slots of Besu have state root {got}, the header of block {block} says {expected}; nothing was taken over. \
         Besu's own state is damaged: sync from its peers, or export its blocks (besu blocks export) and import those"
    )]
    Root {
        /// Computed.
        got: B256,
        /// By the header.
        expected: B256,
        /// The block.
        block: BlockId,
    },
    /// The caller asked to stop.
    #[error("stopped on request")]
    Stopped,
    /// The chain did not open.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<OpenError> for BesuError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Stopped => Self::Stopped,
            OpenError::Fault(fault) => Self::Fault(fault),
            OpenError::OtherGenesis { stored, given } => Self::OtherChain {
                found: stored,
                given,
            },
            other => Self::Open(Box::new(other)),
        }
    }
}

impl From<LoadError> for BesuError {
    fn from(error: LoadError) -> Self {
        OpenError::from(error).into()
    }
}

/// How Besu stores states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BesuLayout {
    /// Nodes of all states by their hashes.
    Forest,
    /// One state: flat rows, and nodes by their paths.
    Bonsai,
}

impl fmt::Display for BesuLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forest => "FOREST",
            Self::Bonsai => "BONSAI",
        })
    }
}

/// The data folder of a stopped Besu.
#[derive(Debug)]
pub struct BesuFolder {
    path: PathBuf,
    database: ForeignDatabase,
    layout: BesuLayout,
    genesis: B256,
    head: BlockId,
}

impl BesuFolder {
    /// Opens the folder that Besu's `--data-path` names. It is not changed.
    ///
    /// # Errors
    /// [`BesuError`].
    pub fn open(path: &Path) -> Result<Self, BesuError> {
        let layout = read_layout(path)?;
        let database = ForeignDatabase::open(&path.join("database"));
        let database = database.map_err(|error| match error {
            ForeignOpenError::InUse(_) => BesuError::InUse(path.display().to_string()),
            ForeignOpenError::Fault(fault) => BesuError::Fault(fault),
        })?;
        let mut folder = Self {
            path: path.to_owned(),
            database,
            layout,
            genesis: B256::ZERO,
            head: BlockId {
                number: 0,
                hash: B256::ZERO,
            },
        };
        folder.genesis = folder
            .hash_at(0)?
            .ok_or_else(|| folder.damaged("it has no block 0"))?;
        let head = folder.head_hash()?;
        let number = folder.header(&head)?.number;
        folder.head = BlockId { number, hash: head };
        Ok(folder)
    }

    /// Besu's head.
    pub fn head(&self) -> BlockId {
        self.head
    }

    /// How it stores states.
    pub fn layout(&self) -> BesuLayout {
        self.layout
    }

    fn head_hash(&self) -> Result<B256, BesuError> {
        // Before 23.4 the variables were among the blocks.
        let of_blocks = [&[1], CHAIN_HEAD].concat();
        let rows = [(VARIABLES, CHAIN_HEAD), (BLOCKCHAIN, &of_blocks[..])];
        for (family, key) in rows {
            if self.database.has(family)
                && let Some(row) = self.database.get(family, key)?
            {
                return self.hash(&row, "chainHeadHash");
            }
        }
        Err(self.damaged("it has no head"))
    }

    fn hash(&self, row: &[u8], what: impl fmt::Display) -> Result<B256, BesuError> {
        B256::try_from(row).map_err(|_| self.damaged(format!("{what} is no hash")))
    }

    /// The header with this hash, as it is stored.
    fn header(&self, hash: &B256) -> Result<Header, BesuError> {
        self.stored_header(hash)?
            .ok_or_else(|| self.damaged(format!("it has no header of block {hash}")))
    }

    fn stored_header(&self, hash: &B256) -> Result<Option<Header>, BesuError> {
        let Some(row) = self.block_row(blocks::HEADER, hash)? else {
            return Ok(None);
        };
        let header = Header::decode(&mut &row[..]);
        let header = header
            .map_err(|error| self.damaged(format!("the header of block {hash} is {error}")))?;
        Ok(Some(header))
    }

    fn damaged(&self, what: impl fmt::Display) -> BesuError {
        BesuError::Damaged {
            path: self.path.display().to_string(),
            what: what.to_string(),
        }
    }
}

/// Reads the file that says how the database is laid out.
fn read_layout(path: &Path) -> Result<BesuLayout, BesuError> {
    let not_besu = |reason: String| BesuError::NotBesu {
        path: path.display().to_string(),
        reason,
    };
    let text = std::fs::read(path.join(METADATA)).map_err(|error| {
        not_besu(format!(
            "{METADATA} in it can't be read ({error}); name the folder that Besu's --data-path names"
        ))
    })?;
    let json: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|error| not_besu(format!("{METADATA} is no JSON: {error}")))?;
    let newer = &json["v2"];
    match (json["version"].as_u64(), newer["format"].as_str()) {
        (Some(1), _) | (_, Some("FOREST")) => Ok(BesuLayout::Forest),
        // The trie of an archive is that of its head, by paths too.
        (Some(2), _) | (_, Some("BONSAI" | "X_BONSAI_ARCHIVE")) => Ok(BesuLayout::Bonsai),
        _ => Err(not_besu(format!(
            "{METADATA} says {json}; the formats FOREST, BONSAI and X_BONSAI_ARCHIVE are known"
        ))),
    }
}
