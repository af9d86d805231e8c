//! Decodes an Engine API payload into a block.
//!
//! A payload is a header without its derived fields. This module rebuilds the header, decodes the transactions and
//! compares the block's hash with the one in the payload. The fields are checked against method version and fork first,
//! because such an error is a JSON-RPC error, not an INVALID block.

use crate::BodyRoots;
use crate::access_list::{access_list_hash, check_access_list, decode_bounded_access_list};
use crate::chain_spec::ChainSpec;
use crate::invalid::{InvalidAccessList, InvalidBlock};
use crate::requests::requests_hash;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rpc_types_engine::{ExecutionPayload, ExecutionPayloadV1};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{
    Block, BlockAccessList, BlockBody, Decodable2718, EMPTY_OMMER_ROOT_HASH, Fork, Header, Signed,
    Transaction, TxEnvelope, Withdrawals,
};

/// A version of `engine_newPayload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum PayloadVersion {
    V1 = 1,
    V2,
    V3,
    V4,
    V5,
}

impl PayloadVersion {
    /// The version with this number, as in the method's name.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// Whether the method takes payloads of `fork`. The newest version takes all later forks.
    pub fn accepts(self, fork: Fork) -> bool {
        match self {
            Self::V1 => fork < Fork::Shanghai,
            Self::V2 => fork < Fork::Cancun,
            Self::V3 => (Fork::Cancun..Fork::Prague).contains(&fork),
            Self::V4 => (Fork::Prague..Fork::Amsterdam).contains(&fork),
            Self::V5 => fork >= Fork::Amsterdam,
        }
    }
}

/// The parameters of `engine_newPayload`, decoded from JSON and not yet checked.
#[derive(Clone, Debug)]
pub struct PayloadInput {
    /// The payload, in the version that its fields make it.
    pub payload: ExecutionPayload,
    /// Expected blob versioned hashes; `None` if the parameter is absent or null.
    pub versioned_hashes: Option<Vec<B256>>,
    /// Parent beacon block root; `None` if the parameter is absent or null.
    pub parent_beacon_block_root: Option<B256>,
    /// Execution requests, type byte first; `None` if the parameter is absent or null.
    pub execution_requests: Option<Vec<Bytes>>,
}

/// Why a payload did not become a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// JSON-RPC error -32602: the parameters are not those of the method.
    #[error("invalid params: {0}")]
    InvalidParams(String),
    /// JSON-RPC error -38005: the method does not take payloads of this fork.
    #[error("unsupported fork: {method} takes no payload of timestamp {timestamp}, that is {fork}")]
    UnsupportedFork {
        /// The method.
        method: String,
        /// The payload's timestamp, seconds.
        timestamp: u64,
        /// The fork at that timestamp.
        fork: Fork,
    },
    /// The payload is well-formed, but the block is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidBlock),
}

impl PayloadError {
    /// The JSON-RPC error code; `None` if the response is the status INVALID instead.
    pub const fn code(&self) -> Option<i64> {
        match self {
            Self::InvalidParams(_) => Some(-32602),
            Self::UnsupportedFork { .. } => Some(-38005),
            Self::Invalid(_) => None,
        }
    }
}

/// A payload whose block hash is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The block.
    pub block: Block,
    /// Its hash.
    pub hash: B256,
    /// The roots of its body, as in its header.
    pub roots: BodyRoots,
    /// Its block access list, whose hash is in the header; not compared with the execution of the block yet.
    pub access_list: Option<BlockAccessList>,
    /// Why it is known to be invalid: an impossible block access list.
    pub invalid: Option<InvalidBlock>,
}

/// Turns a payload into a block with its hash. `ordered_root` returns the root of the trie that maps the RLP of an
/// index to the value at that index.
///
/// # Errors
/// [`PayloadError::InvalidParams`] and [`PayloadError::UnsupportedFork`] for what the method does
/// not take; [`PayloadError::Invalid`] for a transaction or a block access list that can't be
/// decoded, versioned hashes that differ, or a block hash that differs.
///
/// Spec: execution-apis `engine/paris.md` to `engine/amsterdam.md`, `newPayload`; EIP-7685.
pub fn decode_payload(
    spec: &ChainSpec,
    version: PayloadVersion,
    input: PayloadInput,
    ordered_root: impl Fn(&[Bytes]) -> B256,
) -> Result<Payload, PayloadError> {
    decode_payload_with(spec, version, input, ordered_root, |decode, hash| {
        decode();
        hash();
    })
}

/// As [`decode_payload`]. `both` must run its two arguments, which decode the transactions and compute their root, in
/// any order or in parallel.
///
/// # Errors
/// As [`decode_payload`].
pub fn decode_payload_with(
    spec: &ChainSpec,
    version: PayloadVersion,
    input: PayloadInput,
    ordered_root: impl Fn(&[Bytes]) -> B256,
    both: impl FnOnce(&mut (dyn FnMut() + Send), &mut dyn FnMut()),
) -> Result<Payload, PayloadError> {
    check_params(spec, version, &input)?;
    let fields = PayloadFields::of(input);
    let encoded = &fields.v1.transactions;
    let (mut transactions, mut root) = (Ok(Vec::new()), B256::ZERO);
    both(
        &mut || transactions = decode_transactions(encoded),
        &mut || root = ordered_root(encoded),
    );
    let transactions = transactions?;
    if let Some(expected) = &fields.versioned_hashes {
        check_versioned_hashes(&transactions, expected)?;
    }
    let access_list = match &fields.block_access_list {
        Some(bytes) => {
            let (gas_limit, transactions) = (fields.v1.gas_limit, transactions.len());
            Some(decode_bounded_access_list(bytes, gas_limit, transactions)?)
        }
        None => None,
    };

    let withdrawals = fields.withdrawals.as_ref().map(|list| {
        let encoded: Vec<Bytes> = list.iter().map(|w| alloy_rlp::encode(w).into()).collect();
        ordered_root(&encoded)
    });
    let roots = BodyRoots {
        transactions: root,
        withdrawals,
    };
    let header = fields.header(roots)?;
    let (got, expected) = (header.hash_slow(), fields.v1.block_hash);
    if got != expected {
        return Err(InvalidBlock::BlockHash { got, expected }.into());
    }

    let access_list = access_list.map(|list| {
        let list = list?;
        check_access_list(spec, &list, &header, transactions.len())?;
        Ok::<_, InvalidAccessList>(list)
    });
    let (access_list, invalid) = match access_list.transpose() {
        Ok(list) => (list, None),
        Err(reason) => (None, Some(reason.into())),
    };
    let body = BlockBody {
        transactions,
        ommers: Vec::new(),
        withdrawals: fields.withdrawals,
    };
    Ok(Payload {
        block: Block::new(header, body),
        hash: got,
        roots,
        access_list,
        invalid,
    })
}

/// The fields of the payload and the other parameters, once their version is checked.
struct PayloadFields {
    v1: ExecutionPayloadV1,
    withdrawals: Option<Withdrawals>,
    blob_gas_used: Option<u64>,
    excess_blob_gas: Option<u64>,
    block_access_list: Option<Bytes>,
    slot_number: Option<u64>,
    versioned_hashes: Option<Vec<B256>>,
    parent_beacon_block_root: Option<B256>,
    execution_requests: Option<Vec<Bytes>>,
}

impl PayloadFields {
    fn of(input: PayloadInput) -> Self {
        let (mut v2, mut v3, mut v4) = (None, None, None);
        let v1 = match input.payload {
            ExecutionPayload::V1(p) => p,
            ExecutionPayload::V2(p) => {
                v2 = Some(p.withdrawals);
                p.payload_inner
            }
            ExecutionPayload::V3(p) => {
                v3 = Some((p.blob_gas_used, p.excess_blob_gas));
                v2 = Some(p.payload_inner.withdrawals);
                p.payload_inner.payload_inner
            }
            ExecutionPayload::V4(p) => {
                v4 = Some((p.block_access_list, p.slot_number));
                let p = p.payload_inner;
                v3 = Some((p.blob_gas_used, p.excess_blob_gas));
                v2 = Some(p.payload_inner.withdrawals);
                p.payload_inner.payload_inner
            }
        };
        let (block_access_list, slot_number) = v4.unzip();
        Self {
            v1,
            withdrawals: v2.map(Withdrawals::new),
            blob_gas_used: v3.map(|(used, _)| used),
            excess_blob_gas: v3.map(|(_, excess)| excess),
            block_access_list,
            slot_number,
            versioned_hashes: input.versioned_hashes,
            parent_beacon_block_root: input.parent_beacon_block_root,
            execution_requests: input.execution_requests,
        }
    }

    fn header(&self, roots: BodyRoots) -> Result<Header, InvalidBlock> {
        let p = &self.v1;
        let base_fee = u64::try_from(p.base_fee_per_gas).map_err(|_| InvalidBlock::Encoding {
            what: "base fee".to_owned(),
            reason: format!("{} does not fit in 64 bits", p.base_fee_per_gas),
        })?;
        Ok(Header {
            parent_hash: p.parent_hash,
            ommers_hash: EMPTY_OMMER_ROOT_HASH,
            beneficiary: p.fee_recipient,
            state_root: p.state_root,
            transactions_root: roots.transactions,
            receipts_root: p.receipts_root,
            logs_bloom: p.logs_bloom,
            difficulty: U256::ZERO,
            number: p.block_number,
            gas_limit: p.gas_limit,
            gas_used: p.gas_used,
            timestamp: p.timestamp,
            extra_data: p.extra_data.clone(),
            mix_hash: p.prev_randao,
            base_fee_per_gas: Some(base_fee),
            withdrawals_root: roots.withdrawals,
            blob_gas_used: self.blob_gas_used,
            excess_blob_gas: self.excess_blob_gas,
            parent_beacon_block_root: self.parent_beacon_block_root,
            requests_hash: self.execution_requests.as_deref().map(requests_hash),
            block_access_list_hash: self.block_access_list.as_ref().map(access_list_hash),
            slot_number: self.slot_number,
            ..Header::default()
        })
    }
}

/// Checks the fields of the parameters first, then the fork, in the order of execution-apis.
fn check_params(
    spec: &ChainSpec,
    version: PayloadVersion,
    input: &PayloadInput,
) -> Result<(), PayloadError> {
    let timestamp = input.payload.as_v1().timestamp;
    let fork = spec.fork_at(input.payload.as_v1().block_number, timestamp, true);
    let invalid = |what: &str| Err(PayloadError::InvalidParams(what.to_owned()));
    let shanghai = fork >= Fork::Shanghai;
    match (version, &input.payload) {
        (PayloadVersion::V1, ExecutionPayload::V1(_)) => {}
        (PayloadVersion::V2, ExecutionPayload::V1(_)) if !shanghai => {}
        (PayloadVersion::V2, ExecutionPayload::V1(_)) => {
            return invalid("withdrawals are missing, Shanghai requires them");
        }
        (PayloadVersion::V2, ExecutionPayload::V2(_)) if shanghai => {}
        (PayloadVersion::V2, ExecutionPayload::V2(_)) => {
            return invalid("withdrawals are present, the fork before Shanghai has none");
        }
        (PayloadVersion::V3 | PayloadVersion::V4, ExecutionPayload::V3(_)) => {}
        (PayloadVersion::V5, ExecutionPayload::V4(_)) => {}
        _ => return invalid("the payload's fields are not those of the method's version"),
    }

    if version >= PayloadVersion::V3 {
        if input.versioned_hashes.is_none() {
            return invalid("expectedBlobVersionedHashes is missing");
        }
        if input.parent_beacon_block_root.is_none() {
            return invalid("parentBeaconBlockRoot is missing");
        }
    }
    match &input.execution_requests {
        Some(requests) if version >= PayloadVersion::V4 => check_requests(requests)?,
        None if version >= PayloadVersion::V4 => return invalid("executionRequests is missing"),
        _ => {}
    }

    if !version.accepts(fork) {
        return Err(PayloadError::UnsupportedFork {
            method: format!("engine_newPayload{version:?}"),
            timestamp,
            fork,
        });
    }
    Ok(())
}

/// Each request has data, and their types ascend strictly.
///
/// Spec: execution-apis `engine/prague.md`, `engine_newPayloadV4`.
fn check_requests(requests: &[Bytes]) -> Result<(), PayloadError> {
    let mut last: Option<u8> = None;
    for (index, request) in requests.iter().enumerate() {
        let invalid = |what: String| {
            let message = format!("executionRequests[{index}] has {what}");
            Err(PayloadError::InvalidParams(message))
        };
        let (Some(kind), true) = (request.first(), request.len() > 1) else {
            return invalid("no data".to_owned());
        };
        if last.is_some_and(|last| last >= *kind) {
            return invalid(format!("type {kind}, types must ascend"));
        }
        last = Some(*kind);
    }
    Ok(())
}

/// Decodes the transactions with their hashes. The encoding is canonical, so the root of these bytes is the root of the
/// transactions.
fn decode_transactions(encoded: &[Bytes]) -> Result<Vec<TxEnvelope>, InvalidBlock> {
    let bytes: Vec<&[u8]> = encoded.iter().map(AsRef::as_ref).collect();
    let mut transactions = Vec::with_capacity(bytes.len());
    for (index, (bytes, hash)) in bytes.iter().zip(keccak256_batch(&bytes)).enumerate() {
        let tx = TxEnvelope::decode_2718_exact(bytes).map_err(|error| InvalidBlock::Encoding {
            what: format!("transaction {index}"),
            reason: error.to_string(),
        })?;
        transactions.push(with_hash(tx, hash));
    }
    Ok(transactions)
}

/// A transaction whose hash is known.
fn with_hash(tx: TxEnvelope, hash: B256) -> TxEnvelope {
    fn hashed<T>(signed: Signed<T>, hash: B256) -> Signed<T> {
        let signature = *signed.signature();
        Signed::new_unchecked(signed.strip_signature(), signature, hash)
    }
    match tx {
        TxEnvelope::Legacy(tx) => TxEnvelope::Legacy(hashed(tx, hash)),
        TxEnvelope::Eip2930(tx) => TxEnvelope::Eip2930(hashed(tx, hash)),
        TxEnvelope::Eip1559(tx) => TxEnvelope::Eip1559(hashed(tx, hash)),
        TxEnvelope::Eip4844(tx) => TxEnvelope::Eip4844(hashed(tx, hash)),
        TxEnvelope::Eip7702(tx) => TxEnvelope::Eip7702(hashed(tx, hash)),
    }
}

/// Spec: EIP-4844, execution-apis `engine/cancun.md`, `engine_newPayloadV3`.
fn check_versioned_hashes(
    transactions: &[TxEnvelope],
    expected: &[B256],
) -> Result<(), InvalidBlock> {
    let got: Vec<B256> = transactions
        .iter()
        .filter_map(|tx| tx.blob_versioned_hashes())
        .flatten()
        .copied()
        .collect();
    if got == expected {
        return Ok(());
    }
    let reason = match got.iter().zip(expected).position(|(a, b)| a != b) {
        Some(index) => format!("blob versioned hash {index} differs from the expected one"),
        None => format!(
            "the payload has {} blob versioned hashes, {} are expected",
            got.len(),
            expected.len()
        ),
    };
    Err(InvalidBlock::VersionedHashes { reason })
}

#[cfg(test)]
mod tests;
