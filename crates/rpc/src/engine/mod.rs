//! The namespaces `engine` and `testing`: what a consensus client calls.
//!
//! Spec: execution-apis `engine/`. `rest` offers the methods by REST and SSZ too.

mod blobs;
mod bodies;
mod forkchoice;
mod identity;
mod log;
mod new_payload;
mod payload;
pub(crate) mod rest;
mod testing;

pub(crate) use log::{EngineLog, write_imported, write_syncing};

use crate::methods::{Lane, Method, row};

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("engine_exchangeCapabilities", "capabilities", Lane::Inline, identity::capabilities),
    row("engine_exchangeTransitionConfigurationV1", "configuration", Lane::Inline, identity::transition_configuration),
    row("engine_forkchoiceUpdatedV1", "forkchoiceState payloadAttributes?", Lane::Engine, forkchoice::v1),
    row("engine_forkchoiceUpdatedV2", "forkchoiceState payloadAttributes?", Lane::Engine, forkchoice::v2),
    row("engine_forkchoiceUpdatedV3", "forkchoiceState payloadAttributes?", Lane::Engine, forkchoice::v3),
    row("engine_forkchoiceUpdatedV4", "forkchoiceState payloadAttributes? custodyColumns?", Lane::Engine, forkchoice::v4),
    row("engine_getBlobsV1", "versionedHashes", Lane::Payload, blobs::v1),
    row("engine_getBlobsV2", "versionedHashes", Lane::Payload, blobs::v2),
    row("engine_getBlobsV3", "versionedHashes", Lane::Payload, blobs::v3),
    row("engine_getBlobsV4", "versionedHashes indicesBitarray", Lane::Payload, blobs::v4),
    row("engine_getClientVersionV1", "clientVersion", Lane::Inline, identity::client_version),
    row("engine_getPayloadBodiesByHashV1", "hashes", Lane::Payload, bodies::by_hash_v1),
    row("engine_getPayloadBodiesByHashV2", "hashes", Lane::Payload, bodies::by_hash_v2),
    row("engine_getPayloadBodiesByRangeV1", "start count", Lane::Payload, bodies::by_range_v1),
    row("engine_getPayloadBodiesByRangeV2", "start count", Lane::Payload, bodies::by_range_v2),
    row("engine_getPayloadV1", "payloadId", Lane::Payload, payload::v1),
    row("engine_getPayloadV2", "payloadId", Lane::Payload, payload::v2),
    row("engine_getPayloadV3", "payloadId", Lane::Payload, payload::v3),
    row("engine_getPayloadV4", "payloadId", Lane::Payload, payload::v4),
    row("engine_getPayloadV5", "payloadId", Lane::Payload, payload::v5),
    row("engine_getPayloadV6", "payloadId", Lane::Payload, payload::v6),
    row("engine_hasBlobs", "versionedHashes", Lane::Payload, blobs::has),
    row("engine_newPayloadV1", "executionPayload", Lane::Engine, new_payload::v1),
    row("engine_newPayloadV2", "executionPayload", Lane::Engine, new_payload::v2),
    row("engine_newPayloadV3", "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot", Lane::Engine, new_payload::v3),
    row("engine_newPayloadV4", "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot executionRequests", Lane::Engine, new_payload::v4),
    row("engine_newPayloadV5", "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot executionRequests", Lane::Engine, new_payload::v5),
    row("testing_buildBlockV1", "parentBlockHash payloadAttributes transactions? extraData?", Lane::Heavy, testing::build_block),
];
