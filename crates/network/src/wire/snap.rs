//! The messages of `snap`, versions 1 and 2: parts of a state, in the order of their hashed keys, with proofs.
//!
//! | file | what it is |
//! |---|---|
//! | `request` | what is asked: accounts, slots, codes, trie nodes, block access lists |
//! | `answer` | the answers |
//!
//! Spec: devp2p `caps/snap.md`; EIP-8189 (version 2).

mod answer;
mod request;

pub(super) use answer::footprint;
pub use answer::{Entries, SlotItems, SnapAnswer, SnapItems};
pub use request::{SnapRequest, TriePaths};

/// A version of `snap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SnapVersion {
    /// Version 1, which has trie nodes.
    Snap1,
    /// Version 2, which has block access lists instead (EIP-8189).
    Snap2,
}

impl SnapVersion {
    /// All, the lowest first.
    pub const ALL: [Self; 2] = [Self::Snap1, Self::Snap2];

    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            Self::Snap1 => 1,
            Self::Snap2 => 2,
        }
    }

    /// The version with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.number() == number)
    }

    /// How many message numbers it has.
    pub fn length(self) -> u8 {
        match self {
            Self::Snap1 => 8,
            Self::Snap2 => 10,
        }
    }
}

/// What is asked for by `snap`, without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SnapKind {
    /// A range of accounts.
    AccountRange,
    /// Storage of accounts.
    StorageRanges,
    /// Codes of contracts.
    ByteCodes,
    /// Nodes of tries.
    TrieNodes,
    /// Block access lists.
    AccessLists,
}

impl SnapKind {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::AccountRange,
        Self::StorageRanges,
        Self::ByteCodes,
        Self::TrieNodes,
        Self::AccessLists,
    ];

    /// Whether a version has such requests.
    pub fn is_spoken(self, version: SnapVersion) -> bool {
        match self {
            Self::TrieNodes => version == SnapVersion::Snap1,
            Self::AccessLists => version >= SnapVersion::Snap2,
            _ => true,
        }
    }

    /// The number of the request's message, from the protocol's first. The answer's is one higher.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::AccountRange => 0x00,
            Self::StorageRanges => 0x02,
            Self::ByteCodes => 0x04,
            Self::TrieNodes => 0x06,
            Self::AccessLists => 0x08,
        }
    }
}

/// The name of the message of `snap` with this number.
pub(crate) fn message_name(number: u8) -> &'static str {
    const NAMES: [&str; 10] = [
        "GetAccountRange",
        "AccountRange",
        "GetStorageRanges",
        "StorageRanges",
        "GetByteCodes",
        "ByteCodes",
        "GetTrieNodes",
        "TrieNodes",
        "GetBlockAccessLists",
        "BlockAccessLists",
    ];
    NAMES.get(usize::from(number)).copied().unwrap_or_default()
}
