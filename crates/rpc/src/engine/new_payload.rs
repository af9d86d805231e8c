//! `engine_newPayload`: validates a block.

use super::forkchoice::write_status;
use super::log::count_status;
use crate::json_reader::Reader;
use crate::params::{Params, missing};
use crate::{Backend, RpcError, RpcResult};
use alloy_rpc_types_engine::ExecutionPayload;
use niwaki_chain::{PayloadHints, RejectedBlock, Verdict};
use niwaki_primitives::{B256, Bytes};
use niwaki_rules::{Payload, PayloadError, PayloadInput, PayloadVersion};
use serde::Deserialize;
use serde_json::Value;

/// The fields of a payload that are numbers, those of its withdrawals among them.
const QUANTITIES: &[&str] = &[
    "amount",
    "baseFeePerGas",
    "blobGasUsed",
    "blockNumber",
    "excessBlobGas",
    "gasLimit",
    "gasUsed",
    "index",
    "slotNumber",
    "timestamp",
    "validatorIndex",
];

macro_rules! versions {
    ($($name:ident $version:ident)*) => {$(
        pub(super) fn $name(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
            let (verdict, hash) = new_payload(backend, params, PayloadVersion::$version)?;
            write_verdict(out, &verdict, hash);
            Ok(())
        }
    )*};
}

versions! { v1 V1 v2 V2 v3 V3 v4 V4 v5 V5 }

fn new_payload(
    backend: &Backend,
    params: &Params<'_>,
    version: PayloadVersion,
) -> Result<(Verdict, B256), RpcError> {
    let input = PayloadInput {
        payload: payload(params)?,
        versioned_hashes: params.optional::<Vec<B256>>(1)?,
        parent_beacon_block_root: params.optional::<B256>(2)?,
        execution_requests: params.optional::<Vec<Bytes>>(3)?,
    };
    validate_input(backend, version, input)
}

/// Validates a payload in a version of the method, counts the verdict, and returns the hash of its block too.
///
/// # Errors
/// What the method does not take, or a fault.
pub(super) fn validate_input(
    backend: &Backend,
    version: PayloadVersion,
    input: PayloadInput,
) -> Result<(Verdict, B256), RpcError> {
    let (number, claimed) = (input.payload.block_number(), input.payload.block_hash());
    let (verdict, hash) = match backend.chain().decode_payload(version, input) {
        Ok(payload) => {
            let hash = payload.hash;
            (validate(backend, payload)?, hash)
        }
        // Nothing is known of its ancestors.
        Err(PayloadError::Invalid(reason)) => {
            let refused = RejectedBlock {
                latest_valid: None,
                reason: reason.to_string(),
            };
            (Verdict::Invalid(refused), claimed)
        }
        Err(error) => {
            let code = error.code().unwrap_or(-32602);
            return Err(RpcError::new(code, error.to_string()));
        }
    };
    count_status(format!("newPayload{version:?}"), &verdict);
    if let Verdict::Invalid(refused) = &verdict {
        backend.engine_log.invalid(number, hash, refused);
    }
    Ok((verdict, hash))
}

/// Validates a payload whose hash is right; logs and counts it if it was executed.
fn validate(backend: &Backend, payload: Payload) -> Result<Verdict, RpcError> {
    let Payload {
        block,
        hash,
        roots,
        access_list,
        invalid,
        ..
    } = payload;
    if let Some(reason) = invalid {
        let parent = block.header.parent_hash;
        return Ok(backend.consensus.reject_payload(parent, hash, &reason)?);
    }
    let known = PayloadHints {
        senders: backend.known_senders(&block),
        roots: Some(roots),
        access_list,
    };
    let header = block.header.clone();
    let verdict = backend.consensus.new_payload(block, hash, known)?;
    if let Verdict::Valid(Some(imported)) = &verdict {
        backend.record_import(&header, imported);
    }
    Ok(verdict)
}

/// The payload. A field that is null counts as absent: clients that know later forks write it so.
fn payload(params: &Params<'_>) -> Result<ExecutionPayload, RpcError> {
    let unchanged = params.read(0, QUANTITIES);
    let unchanged = unchanged.and_then(|read| read.ok_or_else(|| missing(0)));
    if unchanged.is_ok() {
        return unchanged;
    }
    let Ok(mut fields) = params.required::<serde_json::Map<String, Value>>(0) else {
        return unchanged;
    };
    let before = fields.len();
    fields.retain(|_, value| !value.is_null());
    if fields.len() == before {
        return unchanged;
    }
    ExecutionPayload::deserialize(Reader::of(Value::Object(fields), QUANTITIES))
        .map_err(|error| RpcError::invalid_params(format!("invalid argument 0: {error}")))
}

fn write_verdict(out: &mut Vec<u8>, verdict: &Verdict, hash: B256) {
    match verdict {
        Verdict::Valid(_) => write_status(out, "VALID", Some(hash), None),
        Verdict::Invalid(refused) => {
            write_status(out, "INVALID", refused.latest_valid, Some(&refused.reason));
        }
        Verdict::Syncing => write_status(out, "SYNCING", None, None),
        Verdict::Accepted => write_status(out, "ACCEPTED", None, None),
    }
}
