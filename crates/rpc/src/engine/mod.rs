//! The namespaces `engine` and `testing`: what a consensus client calls.
//!
//! Spec: execution-apis `engine/`.

mod blobs;
mod bodies;
mod forkchoice;
mod identity;
mod log;
mod new_payload;
mod payload;
mod testing;

pub(crate) use log::{EngineLog, write_imported, write_syncing};

use crate::methods::{Lane, Method, row};

pub(crate) const METHODS: &[Method] = &[
    row(
        "engine_exchangeCapabilities",
        Lane::Inline,
        identity::capabilities,
    ),
    row(
        "engine_exchangeTransitionConfigurationV1",
        Lane::Inline,
        identity::transition_configuration,
    ),
    row("engine_forkchoiceUpdatedV1", Lane::Engine, forkchoice::v1),
    row("engine_forkchoiceUpdatedV2", Lane::Engine, forkchoice::v2),
    row("engine_forkchoiceUpdatedV3", Lane::Engine, forkchoice::v3),
    row("engine_forkchoiceUpdatedV4", Lane::Engine, forkchoice::v4),
    row("engine_getBlobsV1", Lane::Payload, blobs::v1),
    row("engine_getBlobsV2", Lane::Payload, blobs::v2),
    row("engine_getBlobsV3", Lane::Payload, blobs::v3),
    row("engine_getBlobsV4", Lane::Payload, blobs::v4),
    row(
        "engine_getClientVersionV1",
        Lane::Inline,
        identity::client_version,
    ),
    row(
        "engine_getPayloadBodiesByHashV1",
        Lane::Payload,
        bodies::by_hash_v1,
    ),
    row(
        "engine_getPayloadBodiesByHashV2",
        Lane::Payload,
        bodies::by_hash_v2,
    ),
    row(
        "engine_getPayloadBodiesByRangeV1",
        Lane::Payload,
        bodies::by_range_v1,
    ),
    row(
        "engine_getPayloadBodiesByRangeV2",
        Lane::Payload,
        bodies::by_range_v2,
    ),
    row("engine_getPayloadV1", Lane::Payload, payload::v1),
    row("engine_getPayloadV2", Lane::Payload, payload::v2),
    row("engine_getPayloadV3", Lane::Payload, payload::v3),
    row("engine_getPayloadV4", Lane::Payload, payload::v4),
    row("engine_getPayloadV5", Lane::Payload, payload::v5),
    row("engine_getPayloadV6", Lane::Payload, payload::v6),
    row("engine_hasBlobs", Lane::Payload, blobs::has),
    row("engine_newPayloadV1", Lane::Engine, new_payload::v1),
    row("engine_newPayloadV2", Lane::Engine, new_payload::v2),
    row("engine_newPayloadV3", Lane::Engine, new_payload::v3),
    row("engine_newPayloadV4", Lane::Engine, new_payload::v4),
    row("engine_newPayloadV5", Lane::Engine, new_payload::v5),
    row("testing_buildBlockV1", Lane::Heavy, testing::build_block),
];
