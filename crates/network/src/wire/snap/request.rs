//! What one side asks the other for by `snap`.

use super::SnapKind;
use crate::wire::fields::{Fields, list};
use crate::wire::limits::{MAX_LOOKED_UP, MAX_REQUESTED};
use niwaki_primitives::rlp::{Error, Result, encode};
use niwaki_primitives::{B256, Bytes};

/// The last of all keys.
const LAST_KEY: B256 = B256::repeat_byte(0xff);

/// A request of `snap`. An answer holds as many items as `bytes` allow, and at least one if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapRequest {
    /// Accounts, ascending by hashed address.
    AccountRange {
        /// Root of the state.
        root: B256,
        /// The first hashed address.
        origin: B256,
        /// After the first account at or above this hashed address no more is needed.
        limit: B256,
        /// About so many bytes of items at most.
        bytes: u64,
    },
    /// Slots of accounts, ascending by hashed slot, account by account.
    StorageRanges {
        /// Root of the state.
        root: B256,
        /// The hashed addresses.
        accounts: Vec<B256>,
        /// The first hashed slot of the first account; all others are asked from the beginning.
        origin: B256,
        /// After the first slot of the first account at or above this hashed slot no more is needed of it.
        limit: B256,
        /// About so many bytes of items at most.
        bytes: u64,
    },
    /// Codes by hash.
    ByteCodes {
        /// Their hashes.
        hashes: Vec<B256>,
        /// About so many bytes of items at most.
        bytes: u64,
    },
    /// Nodes of tries by path.
    TrieNodes {
        /// Root of the state.
        root: B256,
        /// Where they are.
        paths: Vec<TriePaths>,
        /// About so many bytes of items at most.
        bytes: u64,
    },
    /// Block access lists of blocks by hash.
    AccessLists {
        /// The blocks.
        blocks: Vec<B256>,
        /// About so many bytes of items at most.
        bytes: u64,
    },
}

/// Paths of trie nodes as the wire has them, in compact form (Yellow Paper, appendix C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriePaths {
    /// Without `slots` a path in the account trie, with them the hashed address of the storage's account.
    pub account: Bytes,
    /// Paths in the account's storage trie.
    pub slots: Vec<Bytes>,
}

impl SnapRequest {
    /// What is asked for.
    pub fn kind(&self) -> SnapKind {
        match self {
            Self::AccountRange { .. } => SnapKind::AccountRange,
            Self::StorageRanges { .. } => SnapKind::StorageRanges,
            Self::ByteCodes { .. } => SnapKind::ByteCodes,
            Self::TrieNodes { .. } => SnapKind::TrieNodes,
            Self::AccessLists { .. } => SnapKind::AccessLists,
        }
    }

    /// The most items that an answer may have: of accounts as many as fit, of storage one list for each account.
    pub(crate) fn most_items(&self) -> usize {
        match self {
            Self::AccountRange { .. } => usize::MAX,
            Self::StorageRanges { accounts: all, .. }
            | Self::ByteCodes { hashes: all, .. }
            | Self::AccessLists { blocks: all, .. } => all.len(),
            Self::TrieNodes { paths, .. } => paths.iter().map(TriePaths::count).sum(),
        }
    }

    /// The message with this request id, which is encoded already.
    pub(in crate::wire) fn encode(&self, id: &[u8]) -> Vec<u8> {
        match self {
            Self::AccountRange {
                root,
                origin,
                limit,
                bytes,
            } => list(&[
                id,
                &encode(root),
                &encode(origin),
                &encode(limit),
                &encode(bytes),
            ]),
            Self::StorageRanges {
                root,
                accounts,
                origin,
                limit,
                bytes,
            } => list(&[
                id,
                &encode(root),
                &encode(accounts),
                &encode(origin),
                &encode(limit),
                &encode(bytes),
            ]),
            Self::ByteCodes {
                hashes: all, bytes, ..
            }
            | Self::AccessLists { blocks: all, bytes } => list(&[id, &encode(all), &encode(bytes)]),
            Self::TrieNodes { root, paths, bytes } => {
                let paths: Vec<u8> = paths.iter().flat_map(TriePaths::encode).collect();
                list(&[id, &encode(root), &list(&[&paths]), &encode(bytes)])
            }
        }
    }

    /// Reads the fields of a request of this kind after its id. At most [`MAX_REQUESTED`] items are read, of paths
    /// [`MAX_LOOKED_UP`], and none without a path.
    pub(in crate::wire) fn read(kind: SnapKind, fields: &mut Fields<'_>) -> Result<Self> {
        Ok(match kind {
            SnapKind::AccountRange => Self::AccountRange {
                root: fields.next()?,
                origin: fields.next()?,
                limit: fields.next()?,
                bytes: fields.next()?,
            },
            SnapKind::StorageRanges => Self::StorageRanges {
                root: fields.next()?,
                accounts: fields.list()?.all(MAX_REQUESTED)?,
                origin: read_key(fields, B256::ZERO)?,
                limit: read_key(fields, LAST_KEY)?,
                bytes: fields.next()?,
            },
            SnapKind::ByteCodes => Self::ByteCodes {
                hashes: fields.list()?.all(MAX_REQUESTED)?,
                bytes: fields.next()?,
            },
            SnapKind::TrieNodes => Self::TrieNodes {
                root: fields.next()?,
                paths: TriePaths::read_all(fields.list()?)?,
                bytes: fields.next()?,
            },
            SnapKind::AccessLists => Self::AccessLists {
                blocks: fields.list()?.all(MAX_REQUESTED)?,
                bytes: fields.next()?,
            },
        })
    }
}

/// A key of at most 32 bytes, its first ones left out if they are zero; an empty one means `default`.
fn read_key(fields: &mut Fields<'_>, default: B256) -> Result<B256> {
    match fields.bytes()? {
        [] => Ok(default),
        bytes if bytes.len() <= 32 => Ok(B256::left_padding_from(bytes)),
        _ => Err(Error::UnexpectedLength),
    }
}

impl TriePaths {
    /// How many nodes.
    pub fn count(&self) -> usize {
        self.slots.len().max(1)
    }

    fn encode(&self) -> Vec<u8> {
        let slots: Vec<u8> = self.slots.iter().flat_map(encode).collect();
        list(&[&encode(&self.account), &slots])
    }

    fn read_all(mut sets: Fields<'_>) -> Result<Vec<Self>> {
        let (mut all, mut count) = (Vec::new(), 0);
        while !sets.is_empty() {
            let mut set = sets.list()?;
            let account = set.next()?;
            // What is left of the total, so that it is not read first and counted then.
            let slots = set.all(MAX_LOOKED_UP - count)?;
            let paths = Self { account, slots };
            count += paths.count();
            if count > MAX_LOOKED_UP {
                return Err(Error::Custom("more nodes than allowed"));
            }
            all.push(paths);
        }
        Ok(all)
    }
}
