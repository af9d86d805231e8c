//! Comparing the reason of a refusal with the one that a fixture names.
//!
//! Newer fixtures use the names that `spec_name` gives, with alternatives between bars. Older ones
//! have names of their own, several of them coarser than ours, and some of the newer ones name a
//! stage that a client may reach in another order. Each row below is such a case; a name that has
//! no row stands for itself.

/// An expected name, and the names of ours that are the same refusal.
const SAME: &[(&str, &[&str])] = &[
    // Decoded before it is judged: a creation of these types, and a transaction with its blobs,
    // have no place in a block's encoding.
    ("TYPE_3_TX_CONTRACT_CREATION", &["RLP_STRUCTURES_ENCODING"]),
    ("TYPE_4_TX_CONTRACT_CREATION", &["RLP_STRUCTURES_ENCODING"]),
    ("INCORRECT_BLOCK_FORMAT", &["RLP_STRUCTURES_ENCODING"]),
    // The limit of a block was then the limit of a transaction.
    (
        "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
        &["TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED"],
    ),
    // The names of ethereum-tests.
    (
        "1559BlockImportImpossible_BaseFeeWrong",
        &["INVALID_BASEFEE_PER_GAS"],
    ),
    (
        "1559BlockImportImpossible_HeaderIsLegacy",
        &["INCORRECT_BLOCK_FORMAT"],
    ),
    (
        "3675PoSBlockRejected",
        &["IMPORT_IMPOSSIBLE_PARIS_WRONG_POS", "INVALID_DIFFICULTY"],
    ),
    (
        "3675PoWBlockRejected",
        &["IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS"],
    ),
    (
        "3675PreParis1559BlockRejected",
        &[
            "IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
            "IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS",
        ],
    ),
    ("BlockGasLimitReached", &["GAS_ALLOWANCE_EXCEEDED"]),
    ("ExtraDataIncorrectDAO", &["EXTRA_DATA_INVALID_DAO"]),
    ("ExtraDataTooBig", &["EXTRA_DATA_TOO_BIG"]),
    (
        "INPUT_UNMARSHAL_ADDRESS_ERROR",
        &["RLP_STRUCTURES_ENCODING"],
    ),
    ("INPUT_UNMARSHAL_ERROR", &["RLP_STRUCTURES_ENCODING"]),
    ("IntrinsicGas", &["INTRINSIC_GAS_TOO_LOW"]),
    (
        "InvalidDifficulty",
        &[
            "INVALID_DIFFICULTY",
            "IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
        ],
    ),
    ("InvalidGasLimit", &["GASLIMIT_TOO_BIG", "INVALID_GASLIMIT"]),
    ("InvalidGasLimit2", &["INVALID_GASLIMIT"]),
    ("InvalidGasUsed", &["INVALID_GAS_USED"]),
    ("InvalidLogBloom", &["INVALID_LOG_BLOOM"]),
    ("InvalidNumber", &["INVALID_BLOCK_NUMBER"]),
    (
        "InvalidReceiptsStateRoot",
        &["INVALID_RECEIPTS_ROOT", "INVALID_STATE_ROOT"],
    ),
    ("InvalidStateRoot", &["INVALID_STATE_ROOT"]),
    (
        "InvalidTimestamp",
        &["INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"],
    ),
    (
        "InvalidTimestampOlderParent",
        &["INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"],
    ),
    ("InvalidTransactionsRoot", &["INVALID_TRANSACTIONS_ROOT"]),
    (
        "InvalidUncleParentHash",
        &["UNCLE_PARENT_INCORRECT", "UNCLE_IS_ANCESTOR"],
    ),
    ("InvalidWithdrawals", &["INVALID_WITHDRAWALS_ROOT"]),
    ("LegacyBlockImportImpossible2", &["INCORRECT_BLOCK_FORMAT"]),
    ("ParisBlockImportImpossible", &["INCORRECT_BLOCK_FORMAT"]),
    (
        "PostParisDifficultyIsNot0",
        &["IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS"],
    ),
    (
        "PostParisUncleHashIsNotEmpty",
        &["IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS"],
    ),
    ("SenderNotEOA", &["SENDER_NOT_EOA"]),
    (
        "SenderNotEOAorNoCASH",
        &["SENDER_NOT_EOA", "INSUFFICIENT_ACCOUNT_FUNDS"],
    ),
    ("ShanghaiBlockImportImpossible", &["INCORRECT_BLOCK_FORMAT"]),
    ("TR_BLOBCREATE", &["TYPE_3_TX_CONTRACT_CREATION"]),
    (
        "TR_BLOBLIST_OVERSIZE",
        &["TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED"],
    ),
    (
        "TR_BLOBVERSION_INVALID",
        &["TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH"],
    ),
    ("TR_EMPTYBLOB", &["TYPE_3_TX_ZERO_BLOBS"]),
    ("TR_FeeCapLessThanBlocks", &["INSUFFICIENT_MAX_FEE_PER_GAS"]),
    (
        "TR_FeeCapLessThanBlocksORNoFunds",
        &[
            "INSUFFICIENT_MAX_FEE_PER_GAS",
            "INSUFFICIENT_ACCOUNT_FUNDS",
            "INTRINSIC_GAS_TOO_LOW",
        ],
    ),
    ("TR_GasLimitReached", &["GAS_ALLOWANCE_EXCEEDED"]),
    ("TR_InitCodeLimitExceeded", &["INITCODE_SIZE_EXCEEDED"]),
    ("TR_IntrinsicGas", &["INTRINSIC_GAS_TOO_LOW"]),
    ("TR_NoFunds", &["INSUFFICIENT_ACCOUNT_FUNDS"]),
    (
        "TR_NoFundsOrGas",
        &["INSUFFICIENT_ACCOUNT_FUNDS", "INTRINSIC_GAS_TOO_LOW"],
    ),
    (
        "TR_NoFundsX",
        &[
            "INSUFFICIENT_ACCOUNT_FUNDS",
            "GASLIMIT_PRICE_PRODUCT_OVERFLOW",
        ],
    ),
    ("TR_NonceHasMaxValue", &["NONCE_IS_MAX"]),
    ("TR_NonceTooHigh", &["NONCE_MISMATCH_TOO_HIGH"]),
    ("TR_NonceTooLow", &["NONCE_MISMATCH_TOO_LOW"]),
    ("TR_RLP_WRONGVALUE", &["VALUE_OVERFLOW"]),
    ("TR_TipGtFeeCap", &["PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS"]),
    (
        "TR_TypeNotSupported",
        &[
            "TYPE_1_TX_PRE_FORK",
            "TYPE_2_TX_PRE_FORK",
            "TYPE_3_TX_PRE_FORK",
        ],
    ),
    ("TooMuchGasUsed", &["INVALID_GAS_USED_ABOVE_LIMIT"]),
    ("UncleInChain", &["UNCLE_IN_CHAIN", "UNCLE_IS_ANCESTOR"]),
    ("UncleIsAncestor", &["UNCLE_IS_ANCESTOR"]),
    ("UncleIsBrother", &["UNCLE_IS_BROTHER"]),
    (
        "UncleParentIsNotAncestor",
        &["UNCLE_PARENT_INCORRECT", "UNCLE_IS_BROTHER"],
    ),
    ("UncleTooOld", &["UNCLE_PARENT_INCORRECT"]),
    ("UnknownParent", &["UNKNOWN_PARENT"]),
    ("UnknownParent2", &["UNKNOWN_PARENT"]),
];

/// Whether the refusal `got` is one that the fixture's `expected` names.
pub(crate) fn matches(expected: &str, got: &str) -> bool {
    expected.split('|').any(|alternative| {
        let name = alternative
            .rsplit_once('.')
            .map_or(alternative, |(_, name)| name)
            .trim();
        name == got
            || SAME
                .iter()
                .any(|(other, ours)| *other == name && ours.contains(&got))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_class_and_with_alternatives() {
        let both = "TransactionException.A|BlockException.B";
        assert!(matches(both, "A"));
        assert!(matches(both, "B"));
        assert!(!matches(both, "C"));
        assert!(matches("TR_NoFundsOrGas", "INTRINSIC_GAS_TOO_LOW"));
        assert!(!matches("TR_NoFunds", "INTRINSIC_GAS_TOO_LOW"));
    }

    #[test]
    fn each_name_has_one_row() {
        let mut names: Vec<&str> = SAME.iter().map(|(name, _)| *name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
