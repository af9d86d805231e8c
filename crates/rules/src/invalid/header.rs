//! Why a header is invalid.

use alloy_primitives::{Address, B256, U256};
use niwaki_primitives::Fork;

/// Why a header is not valid after its parent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum InvalidHeader {
    /// `BlockException.UNKNOWN_PARENT`
    #[error("parent hash is {got}, the parent's hash is {expected}")]
    ParentHash { got: B256, expected: B256 },
    /// `BlockException.INVALID_BLOCK_NUMBER`
    #[error("block number is {got}, must be {expected}")]
    Number { got: u64, expected: u64 },
    /// `BlockException.INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT`
    #[error("timestamp {got} is not after the parent's {parent}")]
    Timestamp { got: u64, parent: u64 },
    /// `BlockException.GASLIMIT_TOO_BIG`
    #[error("gas limit {got} is above 2^63 - 1")]
    GasLimitTooBig { got: u64 },
    /// `BlockException.INVALID_GASLIMIT`
    #[error("gas limit {got} must be at least 5000 and within {parent} +- {bound} (exclusive)")]
    GasLimit {
        got: u64,
        parent: u64,
        /// A 1024th of the parent's gas limit.
        bound: u64,
    },
    /// `BlockException.INVALID_GAS_USED_ABOVE_LIMIT`
    #[error("gas used {got} is above the gas limit {limit}")]
    GasUsedAboveLimit { got: u64, limit: u64 },
    /// `BlockException.EXTRA_DATA_TOO_BIG`
    #[error("extra data has {got} bytes, at most {max} are allowed")]
    ExtraDataTooBig { got: usize, max: usize },
    /// No name in the spec tests: Clique (EIP-225) is not theirs. Reported as
    /// `BlockException.INCORRECT_BLOCK_FORMAT`.
    #[error("extra data has {got} bytes, Clique asks for 97 plus 20 per signer")]
    ExtraDataClique { got: usize },
    /// No name in the spec tests, as all that begin with Bft: such chains are not theirs.
    #[error("{0}")]
    BftExtraData(String),
    /// See [`InvalidHeader::BftExtraData`].
    #[error("mix hash is {got}, that of a BFT chain is always the same")]
    BftMixHash { got: B256 },
    /// See [`InvalidHeader::BftExtraData`].
    #[error("timestamp {got} is less than the period of {period_s} s after the parent's {parent}")]
    BftPeriod {
        got: u64,
        parent: u64,
        period_s: u64,
    },
    /// See [`InvalidHeader::BftExtraData`].
    #[error("the list of {got} validators is not that of the {expected} after the parent")]
    BftValidators { got: usize, expected: usize },
    /// See [`InvalidHeader::BftExtraData`].
    #[error("the coinbase {got} is no validator")]
    BftProposer { got: Address },
    /// See [`InvalidHeader::BftExtraData`].
    #[error("a seal is of {}, which is no validator, or sealed twice", .got.map_or("no key".to_owned(), |got| got.to_string()))]
    BftSealer { got: Option<Address> },
    /// See [`InvalidHeader::BftExtraData`].
    #[error("{got} validators have sealed it, {expected} are a quorum")]
    BftSeals { got: usize, expected: usize },
    /// `BlockException.EXTRA_DATA_INVALID_DAO`
    #[error("extra data at block {number} must {must}be \"dao-hard-fork\"")]
    ExtraDataDao {
        number: u64,
        /// `""` on a chain that supports the DAO fork, `"not "` on one that does not.
        must: &'static str,
    },
    /// `BlockException.INVALID_DIFFICULTY`
    #[error("difficulty is {got}, must be {expected}")]
    Difficulty { got: U256, expected: U256 },
    /// `BlockException.IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS`
    #[error("difficulty is {got}, must be zero from Paris on")]
    DifficultyNotZero { got: U256 },
    /// `BlockException.IMPORT_IMPOSSIBLE_PARIS_WRONG_POS`
    #[error("difficulty is zero before the terminal total difficulty is reached")]
    DifficultyZeroBeforeParis,
    /// `BlockException.INCORRECT_BLOCK_FORMAT`
    #[error("nonce is {got:#x}, must be zero from Paris on")]
    NonceNotZero { got: u64 },
    /// `BlockException.IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS`
    #[error("ommers hash is {got}, must be that of the empty list from Paris on")]
    OmmersHashNotEmpty { got: B256 },
    /// `BlockException.INVALID_BASEFEE_PER_GAS`
    #[error("base fee is {got} wei, must be {expected} wei")]
    BaseFee {
        got: u64,
        /// What EIP-1559 computes from the parent.
        expected: u64,
    },
    /// `BlockException.INCORRECT_EXCESS_BLOB_GAS`
    #[error("excess blob gas is {got}, must be {expected}")]
    ExcessBlobGas {
        got: u64,
        /// What EIP-4844 (EIP-7918 from Osaka on) computes from the parent.
        expected: u64,
    },
    /// `BlockException.INCORRECT_BLOCK_FORMAT`
    #[error("field {field} is missing, {fork} requires it")]
    MissingField {
        /// The field, as the spec names it.
        field: &'static str,
        fork: Fork,
    },
    /// `BlockException.INCORRECT_BLOCK_FORMAT`
    #[error("field {field} is present, {fork} does not know it")]
    UnexpectedField {
        /// The field, as the spec names it.
        field: &'static str,
        fork: Fork,
    },
}

impl InvalidHeader {
    /// The execution-spec-tests name of this error, without `BlockException.`.
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::ParentHash { .. } => "UNKNOWN_PARENT",
            Self::Number { .. } => "INVALID_BLOCK_NUMBER",
            Self::Timestamp { .. } => "INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT",
            Self::GasLimitTooBig { .. } => "GASLIMIT_TOO_BIG",
            Self::GasLimit { .. } => "INVALID_GASLIMIT",
            Self::GasUsedAboveLimit { .. } => "INVALID_GAS_USED_ABOVE_LIMIT",
            Self::ExtraDataTooBig { .. } => "EXTRA_DATA_TOO_BIG",
            Self::ExtraDataDao { .. } => "EXTRA_DATA_INVALID_DAO",
            Self::Difficulty { .. } => "INVALID_DIFFICULTY",
            Self::DifficultyNotZero { .. } => "IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
            Self::DifficultyZeroBeforeParis => "IMPORT_IMPOSSIBLE_PARIS_WRONG_POS",
            Self::OmmersHashNotEmpty { .. } => "IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS",
            Self::BaseFee { .. } => "INVALID_BASEFEE_PER_GAS",
            Self::ExcessBlobGas { .. } => "INCORRECT_EXCESS_BLOB_GAS",
            Self::BftExtraData(_)
            | Self::BftMixHash { .. }
            | Self::BftPeriod { .. }
            | Self::BftValidators { .. }
            | Self::BftProposer { .. }
            | Self::BftSealer { .. }
            | Self::BftSeals { .. }
            | Self::ExtraDataClique { .. }
            | Self::NonceNotZero { .. }
            | Self::MissingField { .. }
            | Self::UnexpectedField { .. } => "INCORRECT_BLOCK_FORMAT",
        }
    }
}
