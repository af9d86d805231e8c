//! Compares the error of an invalid block or transaction with the one that a fixture expects.
//!
//! Newer fixtures use the names that `spec_name` gives, with alternatives between bars. Older ones have the names of
//! retesteth, which filled them, from its client configurations (ethereum/retesteth,
//! `retesteth/configs/clientconfigs`). Each, except those of EOF, which no suite here has, is below: in [`SAME`], or in
//! [`MALFORMED`] if it means that bytes can't be decoded. Several are coarser than ours, and some of the newer ones
//! name a stage that a client may reach in another order. A name without a row means itself.

/// Our names for bytes that can't be decoded.
const UNDECODED: &[&str] = &[
    "RLP_STRUCTURES_ENCODING",
    "INCORRECT_BLOCK_FORMAT",
    "RLP_WITHDRAWALS_NOT_READ",
];

/// Prefix of ethereum-tests names for a block field that can't be decoded; the rest is the field and the error.
const MALFORMED_FIELDS: &[&str] = &[
    "RLP_ExpectedInput",
    "RLP_InputList_",
    "RLP_InputString_",
    "RLP_NonCanonical",
];

/// Other names of ethereum-tests for bytes that can't be decoded.
const MALFORMED: &[&str] = &[
    "1559BaseFeeTooLarge",
    "1559LeadingZerosBaseFee",
    "1559LeadingZerosPriorityFee",
    "2930AccessListAddressTooLong",
    "2930AccessListAddressTooShort",
    "2930AccessListStorageHashTooLong",
    "2930AccessListStorageHashTooShort",
    "AddressTooLong",
    "AddressTooShort",
    "BLOCKHEADER_VALUE_TOOLARGE",
    "INPUT_UNMARSHAL_ADDRESS_ERROR",
    "INPUT_UNMARSHAL_ERROR",
    "INPUT_UNMARSHAL_SIZE_ERROR",
    "InvalidData",
    "InvalidDifficulty_TooLarge",
    "InvalidGasLimit4",
    "InvalidGasLimit5",
    "InvalidGasPrice",
    "InvalidMaxFeePerGas",
    "InvalidMaxPriorityFeePerGas",
    "InvalidNonce",
    "InvalidTo",
    "LeadingZerosDataSize",
    "LeadingZerosGasLimit",
    "LeadingZerosGasPrice",
    "LeadingZerosNonce",
    "LeadingZerosNonceSize",
    "LeadingZerosR",
    "LeadingZerosS",
    "LeadingZerosV",
    "LeadingZerosValue",
    "NonceTooLong",
    "OVERSIZE_RLP",
    "RLP_BODY_UNMARSHAL_ERROR",
    "RLP_BadCast",
    "RLP_ELEMENT_LARGER_CONTAININGLIST_OVERSIZE",
    "RLP_ELEMENT_LARGER_CONTAININGLIST_UNDERSIZE",
    "RLP_Error_EOF",
    "RLP_Error_RLP_Size",
    "RLP_Error_Size_Information",
    "RLP_ExpectedAsList",
    "RLP_InputContainsMoreThanOneValue",
    "RLP_InvalidArg0_UNMARSHAL_BYTES",
    "RLP_TooFewElements",
    "RLP_TooManyElements",
    "RLP_VALUESIZE_MORE_AVAILABLEINPUTLENGTH",
    "RLP_WrongAuthEncoding",
    "TRANSACTION_VALUE_TOOLARGE",
    "TRANSACTION_VALUE_TOOSHORT",
    "TR_BlobDecodeError",
    "TR_TooShort",
    "invalid transaction",
];

/// An expected name, and our names for the same error.
const SAME: &[(&str, &[&str])] = &[
    // Found when decoding: a block can't encode a creation of these types, nor a transaction with its blobs.
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
        "1559BlockImportImpossible_InitialBaseFeeWrong",
        &["INVALID_BASEFEE_PER_GAS"],
    ),
    (
        "1559BlockImportImpossible_InitialGasLimitInvalid",
        &["INVALID_GASLIMIT"],
    ),
    (
        "1559BlockImportImpossible_TargetGasHigh",
        &["INVALID_GASLIMIT"],
    ),
    (
        "1559BlockImportImpossible_TargetGasLow",
        &["INVALID_GASLIMIT"],
    ),
    (
        "1559PriorityFeeGreaterThanBaseFee",
        &["PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS"],
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
    (
        "ECRecoveryFail",
        &["EC_RECOVERY_FAIL", "INVALID_SIGNATURE_VRS"],
    ),
    ("ExtraDataIncorrectDAO", &["EXTRA_DATA_INVALID_DAO"]),
    ("ExtraDataTooBig", &["EXTRA_DATA_TOO_BIG"]),
    (
        "GasLimitPriceProductOverflow",
        &[
            "GASLIMIT_PRICE_PRODUCT_OVERFLOW",
            "INSUFFICIENT_ACCOUNT_FUNDS",
        ],
    ),
    ("IntrinsicGas", &["INTRINSIC_GAS_TOO_LOW"]),
    // Proof of work is not verified here. These blocks' state roots are wrong too.
    ("InvalidBlockMixHash", &["INVALID_STATE_ROOT"]),
    (
        "InvalidBlockNonce",
        &["INVALID_STATE_ROOT", "INCORRECT_BLOCK_FORMAT"],
    ),
    ("InvalidChainID", &["INVALID_CHAINID"]),
    (
        "InvalidDifficulty",
        &[
            "INVALID_DIFFICULTY",
            "IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
        ],
    ),
    (
        "InvalidDifficulty2",
        &[
            "INVALID_DIFFICULTY",
            "IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS",
        ],
    ),
    ("InvalidGasLimit", &["GASLIMIT_TOO_BIG", "INVALID_GASLIMIT"]),
    // A limit of zero is below the gas used, which is checked first; and a block at a fork may lack the base fee.
    (
        "InvalidGasLimit2",
        &[
            "INVALID_GASLIMIT",
            "INVALID_GAS_USED_ABOVE_LIMIT",
            "INCORRECT_BLOCK_FORMAT",
        ],
    ),
    (
        "InvalidGasLimit3",
        &["GASLIMIT_TOO_BIG", "INVALID_GASLIMIT"],
    ),
    ("InvalidGasUsed", &["INVALID_GAS_USED"]),
    (
        "InvalidGasUsed2",
        &[
            "INVALID_GAS_USED",
            "INVALID_GAS_USED_ABOVE_LIMIT",
            "GAS_ALLOWANCE_EXCEEDED",
        ],
    ),
    ("InvalidLogBloom", &["INVALID_LOG_BLOOM"]),
    ("InvalidNumber", &["INVALID_BLOCK_NUMBER"]),
    (
        "InvalidR",
        &["RLP_STRUCTURES_ENCODING", "INVALID_SIGNATURE_VRS"],
    ),
    (
        "InvalidReceiptsStateRoot",
        &["INVALID_RECEIPTS_ROOT", "INVALID_STATE_ROOT"],
    ),
    (
        "InvalidS",
        &["RLP_STRUCTURES_ENCODING", "INVALID_SIGNATURE_VRS"],
    ),
    ("InvalidStateRoot", &["INVALID_STATE_ROOT"]),
    (
        "InvalidTimestamp",
        &["INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"],
    ),
    (
        "InvalidTimestampEqualParent",
        &["INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"],
    ),
    (
        "InvalidTimestampOlderParent",
        &["INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"],
    ),
    (
        "InvalidTransactionVRS",
        &[
            "INVALID_SIGNATURE_VRS",
            "EC_RECOVERY_FAIL",
            "RLP_STRUCTURES_ENCODING",
        ],
    ),
    ("InvalidTransactionsRoot", &["INVALID_TRANSACTIONS_ROOT"]),
    (
        "InvalidUncleParentHash",
        &["UNCLE_PARENT_INCORRECT", "UNCLE_IS_ANCESTOR"],
    ),
    (
        "InvalidUnclesHash",
        &["INVALID_UNCLES_HASH", "IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS"],
    ),
    (
        "InvalidV",
        &["RLP_STRUCTURES_ENCODING", "INVALID_SIGNATURE_VRS"],
    ),
    ("InvalidVRS", &["INVALID_SIGNATURE_VRS", "EC_RECOVERY_FAIL"]),
    (
        "InvalidValue",
        &["VALUE_OVERFLOW", "RLP_STRUCTURES_ENCODING"],
    ),
    ("InvalidWithdrawals", &["INVALID_WITHDRAWALS_ROOT"]),
    ("LegacyBlockBaseFeeTransaction", &["TYPE_2_TX_PRE_FORK"]),
    ("LegacyBlockImportImpossible", &["INCORRECT_BLOCK_FORMAT"]),
    ("LegacyBlockImportImpossible2", &["INCORRECT_BLOCK_FORMAT"]),
    ("MergeBlockImportImpossible", &["INCORRECT_BLOCK_FORMAT"]),
    ("NonceMax", &["NONCE_IS_MAX", "RLP_STRUCTURES_ENCODING"]),
    ("OutOfGas", &["INTRINSIC_GAS_TOO_LOW"]),
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
    (
        "TR_BLOBCREATE",
        &["TYPE_3_TX_CONTRACT_CREATION", "RLP_STRUCTURES_ENCODING"],
    ),
    (
        "TR_BLOBLIST_OVERSIZE",
        &[
            "TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED",
            "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
        ],
    ),
    (
        "TR_BLOBVERSION_INVALID",
        &["TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH"],
    ),
    ("TR_EMPTYBLOB", &["TYPE_3_TX_ZERO_BLOBS"]),
    ("TR_FeeCapLessThanBlocks", &["INSUFFICIENT_MAX_FEE_PER_GAS"]),
    (
        "TR_FeeCapLessThanBlocksORGasLimitReached",
        &["INSUFFICIENT_MAX_FEE_PER_GAS", "GAS_ALLOWANCE_EXCEEDED"],
    ),
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
    ("TR_NoFundsValue", &["INSUFFICIENT_ACCOUNT_FUNDS"]),
    (
        "TR_NoFundsX",
        &[
            "INSUFFICIENT_ACCOUNT_FUNDS",
            "GASLIMIT_PRICE_PRODUCT_OVERFLOW",
            "RLP_STRUCTURES_ENCODING",
        ],
    ),
    ("TR_NonceHasMaxValue", &["NONCE_IS_MAX"]),
    ("TR_NonceTooHigh", &["NONCE_MISMATCH_TOO_HIGH"]),
    ("TR_NonceTooLow", &["NONCE_MISMATCH_TOO_LOW"]),
    (
        "TR_RLP_WRONGVALUE",
        &["VALUE_OVERFLOW", "RLP_STRUCTURES_ENCODING"],
    ),
    ("TR_TipGtFeeCap", &["PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS"]),
    (
        "TR_TypeNotSupported",
        &[
            "TYPE_1_TX_PRE_FORK",
            "TYPE_2_TX_PRE_FORK",
            "TYPE_3_TX_PRE_FORK",
            "TYPE_4_TX_PRE_FORK",
            "TYPE_NOT_SUPPORTED",
        ],
    ),
    ("TR_TypeNotSupportedBlob", &["TYPE_3_TX_PRE_FORK"]),
    ("TooManyUncles", &["TOO_MANY_UNCLES"]),
    ("TooMuchGasUsed", &["INVALID_GAS_USED_ABOVE_LIMIT"]),
    (
        "TooMuchGasUsed2",
        &["INVALID_GAS_USED_ABOVE_LIMIT", "GAS_ALLOWANCE_EXCEEDED"],
    ),
    ("UncleInChain", &["UNCLE_IN_CHAIN", "UNCLE_IS_ANCESTOR"]),
    ("UncleIsAncestor", &["UNCLE_IS_ANCESTOR"]),
    // If an ommer is there twice, the second is in the chain already.
    ("UncleIsBrother", &["UNCLE_IS_BROTHER", "UNCLE_IN_CHAIN"]),
    (
        "UncleParentIsNotAncestor",
        &["UNCLE_PARENT_INCORRECT", "UNCLE_IS_BROTHER"],
    ),
    ("UncleTooOld", &["UNCLE_PARENT_INCORRECT"]),
    ("UnknownParent", &["UNKNOWN_PARENT"]),
    ("UnknownParent2", &["UNKNOWN_PARENT"]),
    // Names of the first Python tests.
    ("Transaction without funds", &["INSUFFICIENT_ACCOUNT_FUNDS"]),
    ("blob fields missing post fork", &["INCORRECT_BLOCK_FORMAT"]),
    (
        "insufficient account balance",
        &["INSUFFICIENT_ACCOUNT_FUNDS"],
    ),
    (
        "insufficient max fee per blob gas",
        &["INSUFFICIENT_MAX_FEE_PER_BLOB_GAS"],
    ),
    (
        "insufficient max fee per gas",
        &["INSUFFICIENT_MAX_FEE_PER_GAS"],
    ),
    (
        "insufficient_account_balance",
        &["INSUFFICIENT_ACCOUNT_FUNDS"],
    ),
    ("intrinsic gas too low", &["INTRINSIC_GAS_TOO_LOW"]),
    ("invalid blob gas used", &["INCORRECT_BLOB_GAS_USED"]),
    (
        "invalid blob versioned hash",
        &["TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH"],
    ),
    ("invalid excess blob gas", &["INCORRECT_EXCESS_BLOB_GAS"]),
    ("invalid excessBlobGas", &["INCORRECT_EXCESS_BLOB_GAS"]),
    (
        "invalid max fee per blob gas",
        &["INSUFFICIENT_MAX_FEE_PER_BLOB_GAS"],
    ),
    ("invalid pre fork blob fields", &["INCORRECT_BLOCK_FORMAT"]),
    (
        "invalid_blob_count",
        &[
            "TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED",
            "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
        ],
    ),
    ("max initcode size exceeded", &["INITCODE_SIZE_EXCEEDED"]),
    (
        "too many blobs",
        &[
            "TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED",
            "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
        ],
    ),
    (
        "too_many_blobs_tx",
        &[
            "TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED",
            "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
        ],
    ),
    ("tx type 3 not allowed pre-Cancun", &["TYPE_3_TX_PRE_FORK"]),
    ("zero blob tx", &["TYPE_3_TX_ZERO_BLOBS"]),
];

/// Whether the error `got` is one of the fixture's `expected`.
pub(crate) fn matches(expected: &str, got: &str) -> bool {
    expected.split('|').any(|alternative| {
        let name = alternative
            .rsplit_once('.')
            .map_or(alternative, |(_, name)| name)
            .trim();
        name == got || is_same(name, got)
    })
}

fn is_same(name: &str, got: &str) -> bool {
    let is_malformed =
        MALFORMED.contains(&name) || MALFORMED_FIELDS.iter().any(|start| name.starts_with(start));
    let mut rows = SAME.iter();
    is_malformed && UNDECODED.contains(&got)
        || rows.any(|(other, ours)| *other == name && ours.contains(&got))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_without_class_and_by_alternatives() {
        let both = "TransactionException.A|BlockException.B";
        assert!(matches(both, "A"));
        assert!(matches(both, "B"));
        assert!(!matches(both, "C"));
        assert!(matches("TR_NoFundsOrGas", "INTRINSIC_GAS_TOO_LOW"));
        assert!(!matches("TR_NoFunds", "INTRINSIC_GAS_TOO_LOW"));
    }

    #[test]
    fn legacy_names_match_ours() {
        for (legacy, ours) in [
            ("InvalidGasLimit2", "INVALID_GAS_USED_ABOVE_LIMIT"),
            ("InvalidUnclesHash", "INVALID_UNCLES_HASH"),
            ("TooManyUncles", "TOO_MANY_UNCLES"),
            ("UncleIsBrother", "UNCLE_IN_CHAIN"),
            (
                "TR_FeeCapLessThanBlocksORGasLimitReached",
                "GAS_ALLOWANCE_EXCEEDED",
            ),
            ("RLP_ExpectedAsList", "RLP_WITHDRAWALS_NOT_READ"),
            ("RLP_ExpectedAsList", "RLP_STRUCTURES_ENCODING"),
            (
                "RLP_InputString_TooLong_HASH_DECODEINTO_BLOCK_EXTBLOCK_HEADER_ROOT2",
                "RLP_STRUCTURES_ENCODING",
            ),
            ("invalid excess blob gas", "INCORRECT_EXCESS_BLOB_GAS"),
        ] {
            assert!(matches(legacy, ours), "{legacy} {ours}");
            assert!(!matches(legacy, "INVALID_LOG_BLOOM"), "{legacy}");
        }
        // A newer name with the prefix of an older one means itself.
        assert!(!matches(
            "RLP_BLOCK_LIMIT_EXCEEDED",
            "RLP_STRUCTURES_ENCODING"
        ));
    }

    #[test]
    fn each_name_has_one_row() {
        let mut names: Vec<&str> = SAME.iter().map(|(name, _)| *name).collect();
        names.extend(MALFORMED);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
