//! Blocks to validate, and blocks that were built.

use super::fork::EngineFork;
use super::large::{Bundle, built_payload};
use super::{Answer, RestError, RestReply, RestRequest};
use crate::engine::new_payload::validate_input;
use crate::eth::serialize::encoded;
use crate::payloads::Payload;
use crate::{Backend, RpcError};
use alloy_rpc_types_engine::ssz_engine_types as containers;
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadV1, ExecutionPayloadV2, ExecutionPayloadV3,
    ExecutionPayloadV4,
};
use containers::{Optional, PayloadStatus, PayloadStatusKind, ValidationError};
use niwaki_chain::Verdict;
use niwaki_primitives::{
    B256, Bytes, Decodable2718, FixedBytes, Requests, Transaction, TxEnvelope, U256,
};
use niwaki_rules::{PayloadInput, PayloadVersion};
use ssz::Encode;

/// The type byte of transactions with blobs (EIP-4844).
const BLOB_TX_TYPE: u8 = 3;

/// Validates a block.
pub(super) fn submit(backend: &Backend, request: &RestRequest) -> Answer {
    let fork = request.fork()?;
    let input = read_envelope(request, fork)?;
    let (spec, v1) = (backend.chain().spec(), input.payload.as_v1());
    let of = spec.fork_at(v1.block_number, v1.timestamp, true);
    check_fork(fork, EngineFork::of(of))?;
    let version = match fork {
        EngineFork::Paris => PayloadVersion::V1,
        EngineFork::Shanghai => PayloadVersion::V2,
        EngineFork::Cancun => PayloadVersion::V3,
        EngineFork::Prague | EngineFork::Osaka => PayloadVersion::V4,
        EngineFork::Amsterdam => PayloadVersion::V5,
    };
    let (verdict, hash) = validate_input(backend, version, input)?;
    Ok(RestReply::of(&status(&verdict, hash)))
}

/// A block of one fork in the container of another is refused.
pub(super) fn check_fork(named: EngineFork, fork: EngineFork) -> Result<(), RestError> {
    if named == fork {
        return Ok(());
    }
    let words = format!(
        "Unsupported fork: Eth-Execution-Version is {}, the block is of {}",
        named.name(),
        fork.name()
    );
    Err(RpcError::new(-38005, words).into())
}

fn read_envelope(request: &RestRequest, fork: EngineFork) -> Result<PayloadInput, RestError> {
    Ok(match fork {
        EngineFork::Paris => {
            let read: containers::ExecutionPayloadEnvelopeParis = request.read()?;
            input(ExecutionPayload::V1(read.payload), None, None)
        }
        EngineFork::Shanghai => {
            let read: containers::ExecutionPayloadEnvelopeShanghai = request.read()?;
            input(ExecutionPayload::V2(read.payload), None, None)
        }
        EngineFork::Cancun => {
            let read: containers::ExecutionPayloadEnvelopeCancun = request.read()?;
            let root = Some(read.parent_beacon_block_root);
            input(ExecutionPayload::V3(read.payload), root, None)
        }
        EngineFork::Prague | EngineFork::Osaka => {
            let read: containers::ExecutionPayloadEnvelopePrague = request.read()?;
            let root = Some(read.parent_beacon_block_root);
            let requests = Some(read.execution_requests);
            input(ExecutionPayload::V3(read.payload), root, requests)
        }
        EngineFork::Amsterdam => {
            let read: containers::ExecutionPayloadEnvelopeAmsterdam = request.read()?;
            let root = Some(read.parent_beacon_block_root);
            let requests = Some(read.execution_requests);
            input(ExecutionPayload::V4(read.payload), root, requests)
        }
    })
}

/// What `engine_newPayload` takes. The versioned hashes are those of the transactions, which the block's hash covers.
fn input(
    payload: ExecutionPayload,
    parent_beacon_block_root: Option<B256>,
    requests: Option<Requests>,
) -> PayloadInput {
    PayloadInput {
        versioned_hashes: parent_beacon_block_root
            .map(|_| versioned_hashes(payload.transactions())),
        payload,
        parent_beacon_block_root,
        execution_requests: requests.map(Requests::take),
    }
}

/// The versioned hashes of the blobs. A transaction that can't be decoded has none: the block is refused for it later.
fn versioned_hashes(transactions: &[Bytes]) -> Vec<B256> {
    let with_blobs = transactions
        .iter()
        .filter(|tx| tx.first() == Some(&BLOB_TX_TYPE));
    let with_blobs = with_blobs.filter_map(|tx| TxEnvelope::decode_2718_exact(tx).ok());
    let hashes = with_blobs.filter_map(|tx| tx.blob_versioned_hashes().map(<[B256]>::to_vec));
    hashes.flatten().collect()
}

/// The status of the block with this hash.
pub(super) fn status(verdict: &Verdict, hash: B256) -> PayloadStatus {
    let (status, latest_valid, error) = match verdict {
        Verdict::Valid(_) => (PayloadStatusKind::Valid, Some(hash), None),
        Verdict::Invalid(refused) => {
            let reason = Some(bounded(&refused.reason));
            (PayloadStatusKind::Invalid, refused.latest_valid, reason)
        }
        Verdict::Syncing => (PayloadStatusKind::Syncing, None, None),
        Verdict::Accepted => (PayloadStatusKind::Accepted, None, None),
    };
    let error =
        error.and_then(|error| ValidationError::try_from(Bytes::from(error.into_bytes())).ok());
    PayloadStatus {
        status,
        latest_valid_hash: latest_valid.into(),
        validation_error: Optional::from(error),
    }
}

/// The text in at most as many bytes as an error may have.
fn bounded(text: &str) -> String {
    let mut end = text.len().min(containers::MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Returns a block that was built.
pub(super) fn built(backend: &Backend, request: &RestRequest) -> Answer {
    let fork = request.fork()?;
    let id: Result<FixedBytes<8>, _> = request.tail.parse();
    let id = id.ok().filter(|_| request.tail.starts_with("0x"));
    let id = id.ok_or_else(|| RestError::invalid_request("a payload's id is 0x and 16 digits"))?;
    let payload = backend.payloads.get(id.0)?;
    let spec = backend.chain().spec();
    let of = spec.fork_of(&payload.built.block.header);
    check_fork(fork, EngineFork::of(of))?;
    backend.engine_log.built(&payload);
    Ok(write_built(fork, &payload))
}

fn write_built(fork: EngineFork, payload: &Payload) -> RestReply {
    let built = &payload.built;
    let block_value = built.value;
    let with_blobs = |requests| {
        let bundle = bundle(payload);
        built_payload(&payload_v3(payload), &block_value, &bundle, requests)
    };
    RestReply::Ssz(match fork {
        EngineFork::Paris => containers::BuiltPayloadParis {
            payload: payload_v1(payload),
            block_value,
        }
        .as_ssz_bytes(),
        EngineFork::Shanghai => containers::BuiltPayloadShanghai {
            payload: payload_v2(payload),
            block_value,
        }
        .as_ssz_bytes(),
        EngineFork::Cancun => with_blobs(None),
        EngineFork::Prague | EngineFork::Osaka => with_blobs(Some(&built.requests)),
        EngineFork::Amsterdam => {
            let (payload_v4, bundle) = (payload_v4(payload), bundle(payload));
            built_payload(&payload_v4, &block_value, &bundle, Some(&built.requests))
        }
    })
}

fn payload_v1(payload: &Payload) -> ExecutionPayloadV1 {
    let block = &payload.built.block;
    let header = &block.header;
    let transactions = block.body.transactions.iter();
    ExecutionPayloadV1 {
        parent_hash: header.parent_hash,
        fee_recipient: header.beneficiary,
        state_root: header.state_root,
        receipts_root: header.receipts_root,
        logs_bloom: header.logs_bloom,
        prev_randao: header.mix_hash,
        block_number: header.number,
        gas_limit: header.gas_limit,
        gas_used: header.gas_used,
        timestamp: header.timestamp,
        extra_data: header.extra_data.clone(),
        base_fee_per_gas: U256::from(header.base_fee_per_gas.unwrap_or(0)),
        block_hash: payload.built.hash,
        transactions: transactions.map(|tx| encoded(tx).into()).collect(),
    }
}

fn payload_v2(payload: &Payload) -> ExecutionPayloadV2 {
    let withdrawals = payload.built.block.body.withdrawals.clone();
    ExecutionPayloadV2 {
        payload_inner: payload_v1(payload),
        withdrawals: withdrawals.unwrap_or_default().into_inner(),
    }
}

fn payload_v3(payload: &Payload) -> ExecutionPayloadV3 {
    let header = &payload.built.block.header;
    ExecutionPayloadV3 {
        payload_inner: payload_v2(payload),
        blob_gas_used: header.blob_gas_used.unwrap_or(0),
        excess_blob_gas: header.excess_blob_gas.unwrap_or(0),
    }
}

fn payload_v4(payload: &Payload) -> ExecutionPayloadV4 {
    let slot = payload.built.block.header.slot_number;
    ExecutionPayloadV4 {
        payload_inner: payload_v3(payload),
        block_access_list: payload.built.block_access_list.clone().unwrap_or_default(),
        slot_number: slot.unwrap_or(0),
    }
}

/// The blobs with one proof each before Osaka, one for each cell from then on, as sidecars have them.
fn bundle(payload: &Payload) -> Bundle<'_> {
    let sidecars = || payload.sidecars.iter();
    Bundle {
        commitments: sidecars().flat_map(|each| each.commitments()).collect(),
        proofs: sidecars().flat_map(|each| each.proofs()).collect(),
        blobs: sidecars().flat_map(|each| each.blobs()).collect(),
    }
}
