//! The segments: what kinds of rows there are.

/// One key space: a column family. FORMAT.md gives keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Segment {
    /// Hashed address to slim account.
    Accounts,
    /// Hashed address and hashed slot to value.
    Slots,
    /// Code hash to code.
    Code,
    /// Nibble path to inner node of the account trie.
    AccountTrie,
    /// Hashed address and nibble path to inner node of a storage trie.
    StorageTrie,
    /// Block number and hash to what the block changed in the state.
    TrieLogs,
    /// Block number and hash to total difficulty and header.
    Headers,
    /// Block number and hash to body.
    Bodies,
    /// Block number and hash to receipts.
    Receipts,
    /// Block number to hash, of the canonical chain.
    Canonical,
    /// Block hash to number.
    Numbers,
    /// Transaction hash to block number and index, of the canonical chain.
    Transactions,
    /// Names to single values: head, genesis, progress.
    Meta,
    /// Hashed address and block number to the slim account before that block.
    AccountHistory,
    /// Hashed address, hashed slot and block number to the value before that block.
    SlotHistory,
    /// Nibble path and block number to the inner node of the account trie before that block.
    AccountTrieHistory,
    /// Hashed address, nibble path and block number to the inner node before that block.
    StorageTrieHistory,
    /// Bit of a bloom and first block of a section to which of its blocks have that bit.
    LogIndex,
    /// Block number and hash to block access list.
    AccessLists,
}

impl Segment {
    /// Every segment.
    pub const ALL: [Self; 19] = [
        Self::Accounts,
        Self::Slots,
        Self::Code,
        Self::AccountTrie,
        Self::StorageTrie,
        Self::TrieLogs,
        Self::Headers,
        Self::Bodies,
        Self::Receipts,
        Self::Canonical,
        Self::Numbers,
        Self::Transactions,
        Self::Meta,
        Self::AccountHistory,
        Self::SlotHistory,
        Self::AccountTrieHistory,
        Self::StorageTrieHistory,
        Self::LogIndex,
        Self::AccessLists,
    ];

    /// The name on disk and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Slots => "slots",
            Self::Code => "code",
            Self::AccountTrie => "account_trie",
            Self::StorageTrie => "storage_trie",
            Self::TrieLogs => "trie_logs",
            Self::Headers => "headers",
            Self::Bodies => "bodies",
            Self::Receipts => "receipts",
            Self::Canonical => "canonical",
            Self::Numbers => "numbers",
            Self::Transactions => "transactions",
            Self::Meta => "meta",
            Self::AccountHistory => "account_history",
            Self::SlotHistory => "slot_history",
            Self::AccountTrieHistory => "account_trie_history",
            Self::StorageTrieHistory => "storage_trie_history",
            Self::LogIndex => "log_index",
            Self::AccessLists => "access_lists",
        }
    }

    /// Whether values are worth compressing: texts, lists and sparse bits are, hashes and short numbers are not.
    pub(crate) const fn is_compressed(self) -> bool {
        matches!(
            self,
            Self::Code
                | Self::TrieLogs
                | Self::Headers
                | Self::Bodies
                | Self::Receipts
                | Self::LogIndex
                | Self::AccessLists
        )
    }

    /// Whether single rows are read by key, so that a filter pays. Histories are only searched for the first row from a
    /// key on.
    pub(crate) const fn is_read_by_key(self) -> bool {
        !matches!(
            self,
            Self::AccountHistory
                | Self::SlotHistory
                | Self::AccountTrieHistory
                | Self::StorageTrieHistory
        )
    }

    /// Whether its rows are values or inner nodes of the head's state.
    pub(crate) const fn is_state(self) -> bool {
        matches!(
            self,
            Self::Accounts | Self::Slots | Self::AccountTrie | Self::StorageTrie
        )
    }

    /// Bytes that a read of one row brings into memory: few where rows are short and scattered, more where larger
    /// blocks compress better.
    pub(crate) const fn block_bytes(self) -> usize {
        if self.is_compressed() {
            16 << 10
        } else {
            4 << 10
        }
    }
}
