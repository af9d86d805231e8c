//! `engine_getPayload`: returns a payload that was built.

use crate::eth::serialize::{encoded, withdrawals};
use crate::json::Object;
use crate::params::Params;
use crate::payloads::Payload;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{FixedBytes, Fork};

/// A version of the method: its fields and forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1,
    V2,
    V3,
    V4,
    V5,
    V6,
}

impl Version {
    /// Whether the method returns payloads of `fork`. The newest version takes all later forks.
    fn serves(self, fork: Fork) -> bool {
        match self {
            Self::V1 => fork < Fork::Shanghai,
            Self::V2 => fork < Fork::Cancun,
            Self::V3 => (Fork::Cancun..Fork::Prague).contains(&fork),
            Self::V4 => (Fork::Prague..Fork::Osaka).contains(&fork),
            Self::V5 => (Fork::Osaka..Fork::Amsterdam).contains(&fork),
            Self::V6 => fork >= Fork::Amsterdam,
        }
    }
}

macro_rules! versions {
    ($($name:ident $version:ident)*) => {$(
        pub(super) fn $name(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
            get(backend, params, Version::$version, out)
        }
    )*};
}

versions! { v1 V1 v2 V2 v3 V3 v4 V4 v5 V5 v6 V6 }

fn get(backend: &Backend, params: &Params<'_>, version: Version, out: &mut Vec<u8>) -> RpcResult {
    let id: FixedBytes<8> = params.required(0)?;
    let payload = backend.payloads.get(id.0)?;
    let header = &payload.built.block.header;
    let fork = backend.chain().spec().fork_of(header);
    if !version.serves(fork) {
        let message = format!(
            "Unsupported fork: engine_getPayload{version:?} gives no payload of timestamp {}, \
             that is {fork}",
            header.timestamp
        );
        return Err(RpcError::new(-38005, message));
    }
    backend.engine_log.built(&payload);
    match version {
        Version::V1 => write_payload(out, &payload),
        _ => write(out, &payload, version),
    }
    Ok(())
}

/// Writes payload, value and the other fields of the version.
pub(super) fn write(out: &mut Vec<u8>, payload: &Payload, version: Version) {
    let mut object = Object::new(out);
    write_payload(object.field("executionPayload"), payload);
    object.quantity("blockValue", &payload.built.value);
    if version >= Version::V3 {
        write_bundle(object.field("blobsBundle"), payload);
        object.boolean("shouldOverrideBuilder", false);
    }
    if version >= Version::V4 {
        object.data_list("executionRequests", &payload.built.requests);
    }
}

/// Writes an ExecutionPayload in the version of the block's fork.
fn write_payload(out: &mut Vec<u8>, payload: &Payload) {
    let block = &payload.built.block;
    let header = &block.header;
    let mut object = Object::new(out);
    object.data("parentHash", header.parent_hash.as_slice());
    object.data("feeRecipient", header.beneficiary.as_slice());
    object.data("stateRoot", header.state_root.as_slice());
    object.data("receiptsRoot", header.receipts_root.as_slice());
    object.data("logsBloom", header.logs_bloom.as_slice());
    object.data("prevRandao", header.mix_hash.as_slice());
    object.number("blockNumber", header.number);
    object.number("gasLimit", header.gas_limit);
    object.number("gasUsed", header.gas_used);
    object.number("timestamp", header.timestamp);
    object.data("extraData", &header.extra_data);
    object.number("baseFeePerGas", header.base_fee_per_gas.unwrap_or(0));
    object.data("blockHash", payload.built.hash.as_slice());
    object.data_list("transactions", block.body.transactions.iter().map(encoded));
    if let Some(list) = &block.body.withdrawals {
        withdrawals(&mut object, list);
    }
    if let Some(gas) = header.blob_gas_used {
        object.number("blobGasUsed", gas);
    }
    if let Some(gas) = header.excess_blob_gas {
        object.number("excessBlobGas", gas);
    }
    if let Some(list) = &payload.built.block_access_list {
        object.data("blockAccessList", list);
    }
    if let Some(slot) = header.slot_number {
        object.number("slotNumber", slot);
    }
}

/// Writes a BlobsBundle: one proof per blob before Osaka, one per cell from then on, as in the sidecars.
fn write_bundle(out: &mut Vec<u8>, payload: &Payload) {
    let mut object = Object::new(out);
    let sidecars = || payload.sidecars.iter();
    object.data_list(
        "commitments",
        sidecars().flat_map(|sidecar| sidecar.commitments()),
    );
    object.data_list("proofs", sidecars().flat_map(|sidecar| sidecar.proofs()));
    object.data_list("blobs", sidecars().flat_map(|sidecar| sidecar.blobs()));
}
