//! The head, and the block to build on it.

use super::fork::EngineFork;
use super::payloads::{check_fork, status};
use super::{Answer, RestReply, RestRequest};
use crate::Backend;
use crate::engine::forkchoice::{self, PayloadAttributes, Version};
use crate::params::Number;
use alloy_rpc_types_engine::ssz_engine_types as containers;
use alloy_rpc_types_engine::{ForkchoiceState, PayloadId};
use containers::{ForkchoiceUpdateResponse, Optional, PayloadStatusKind};
use niwaki_chain::ForkChoice;
use niwaki_primitives::{Address, B256};

/// Sets the head, and starts a block if there are attributes of one.
pub(super) fn update(backend: &Backend, request: &RestRequest) -> Answer {
    let fork = request.fork()?;
    let (state, attributes, version) = read(backend, request, fork)?;
    let choice = ForkChoice {
        head: state.head_block_hash,
        safe: state.safe_block_hash,
        finalized: state.finalized_block_hash,
    };
    let attributes = || {
        attributes.map(|attributes| {
            let spec = backend.chain().spec();
            let number = backend.chain().head().id.number.saturating_add(1);
            let of = EngineFork::of(spec.fork_at(number, attributes.timestamp.0, true));
            match check_fork(fork, of) {
                Ok(()) => Ok(attributes),
                Err(error) => Err(error.rpc()),
            }
        })
    };
    let (verdict, id) = forkchoice::apply(backend, version, &choice, attributes)?;
    let mut payload_status = status(&verdict, choice.head);
    if payload_status.status == PayloadStatusKind::Accepted {
        payload_status.status = PayloadStatusKind::Syncing;
    }
    Ok(RestReply::of(&ForkchoiceUpdateResponse {
        payload_status,
        payload_id: Optional::from(id.map(PayloadId::new)),
    }))
}

type Read = (ForkchoiceState, Option<PayloadAttributes>, Version);

fn read(
    backend: &Backend,
    request: &RestRequest,
    fork: EngineFork,
) -> Result<Read, super::RestError> {
    Ok(match fork {
        EngineFork::Paris => {
            let read: containers::ForkchoiceUpdateParis = request.read()?;
            let attributes = read.payload_attributes.into_option();
            (read.forkchoice_state, attributes.map(paris), Version::V1)
        }
        EngineFork::Shanghai => {
            let read: containers::ForkchoiceUpdateShanghai = request.read()?;
            let attributes = read.payload_attributes.into_option();
            (read.forkchoice_state, attributes.map(shanghai), Version::V2)
        }
        EngineFork::Cancun | EngineFork::Prague | EngineFork::Osaka => {
            let read: containers::ForkchoiceUpdateCancun = request.read()?;
            let attributes = read.payload_attributes.into_option();
            (read.forkchoice_state, attributes.map(cancun), Version::V3)
        }
        EngineFork::Amsterdam => {
            let read: containers::ForkchoiceUpdateAmsterdam = request.read()?;
            if let Some(columns) = read.custody_columns.into_option() {
                let columns = u128::from_le_bytes(columns.0);
                backend.pool.set_custody_columns(columns);
            }
            let attributes = read.payload_attributes.into_option();
            (
                read.forkchoice_state,
                attributes.map(amsterdam),
                Version::V4,
            )
        }
    })
}

fn paris(read: containers::PayloadAttributesParis) -> PayloadAttributes {
    attributes(
        read.timestamp,
        read.prev_randao,
        read.suggested_fee_recipient,
    )
}

fn shanghai(read: containers::PayloadAttributesShanghai) -> PayloadAttributes {
    PayloadAttributes {
        withdrawals: Some(read.withdrawals),
        ..attributes(
            read.timestamp,
            read.prev_randao,
            read.suggested_fee_recipient,
        )
    }
}

fn cancun(read: containers::PayloadAttributesCancun) -> PayloadAttributes {
    PayloadAttributes {
        withdrawals: Some(read.withdrawals),
        parent_beacon_block_root: Some(read.parent_beacon_block_root),
        ..attributes(
            read.timestamp,
            read.prev_randao,
            read.suggested_fee_recipient,
        )
    }
}

fn amsterdam(read: containers::PayloadAttributesAmsterdam) -> PayloadAttributes {
    PayloadAttributes {
        withdrawals: Some(read.withdrawals),
        parent_beacon_block_root: Some(read.parent_beacon_block_root),
        slot_number: Some(Number(read.slot_number)),
        target_gas_limit: Some(Number(read.target_gas_limit)),
        ..attributes(
            read.timestamp,
            read.prev_randao,
            read.suggested_fee_recipient,
        )
    }
}

/// What all forks have.
fn attributes(
    timestamp: u64,
    prev_randao: B256,
    suggested_fee_recipient: Address,
) -> PayloadAttributes {
    PayloadAttributes {
        timestamp: Number(timestamp),
        prev_randao,
        suggested_fee_recipient,
        withdrawals: None,
        parent_beacon_block_root: None,
        slot_number: None,
        target_gas_limit: None,
    }
}
