//! The names of blocks and of the head's state, and the bytes that they have as keys and rows.

use niwaki_primitives::B256;
use std::fmt;

/// A block by number and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// Number.
    pub number: u64,
    /// Hash.
    pub hash: B256,
}

impl BlockId {
    const BYTES: usize = 40;

    /// The key of a block's trie log, header, body, receipts or access list.
    pub fn to_key(self) -> [u8; Self::BYTES] {
        let mut key = [0; Self::BYTES];
        key[..8].copy_from_slice(&self.number.to_be_bytes());
        key[8..].copy_from_slice(self.hash.as_slice());
        key
    }

    /// The block whose rows have this key.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        let (number, hash) = key.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            hash: B256::try_from(hash).ok()?,
        })
    }
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
    const BYTES: usize = BlockId::BYTES + size_of::<B256>();

    pub(crate) fn to_row(self) -> [u8; Self::BYTES] {
        let mut row = [0; Self::BYTES];
        row[..BlockId::BYTES].copy_from_slice(&self.block.to_key());
        row[BlockId::BYTES..].copy_from_slice(self.root.as_slice());
        row
    }

    pub(crate) fn from_row(row: &[u8]) -> Option<Self> {
        let (key, root) = row.split_at_checked(BlockId::BYTES)?;
        Some(Self {
            block: BlockId::from_key(key)?,
            root: B256::try_from(root).ok()?,
        })
    }
}
