//! The Engine API by REST beside JSON-RPC.

use super::amsterdam::{blob_transaction, rig_at};
use super::blocks::{blocks, genesis, whole};
use super::*;
use crate::engine::rest::{Endpoint, RestError, RestReply, RestRequest};
use alloy_rpc_types_engine::ssz_engine_types as containers;
use alloy_rpc_types_engine::{ExecutionPayload, ForkchoiceState};
use containers::{Optional, PayloadStatus, PayloadStatusKind};
use niwaki_crypto::{Blob, sha256};
use niwaki_primitives::{B256, Block, Requests};
use ssz::{Decode, Encode};

const FORKS: [&str; 6] = [
    "paris",
    "shanghai",
    "cancun",
    "prague",
    "osaka",
    "amsterdam",
];

fn ask(
    rig: &Rig,
    path: &str,
    fork: Option<&str>,
    body: Option<Vec<u8>>,
) -> Result<RestReply, RestError> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let path = format!("/engine/v1/{path}");
    let (endpoint, tail) = Endpoint::find(body.is_some(), &path).expect("an endpoint");
    let request = RestRequest {
        tail,
        query: query.to_owned(),
        fork: fork.map(str::to_owned),
        body: body.unwrap_or_default().into(),
        ..RestRequest::default()
    };
    endpoint.run(rig.dispatcher.backend(), &request)
}

#[track_caller]
fn read<T: Decode>(answer: Result<RestReply, RestError>) -> T {
    match answer {
        Ok(RestReply::Ssz(bytes)) => T::from_ssz_bytes(&bytes).expect("the container"),
        other => panic!("{other:?}"),
    }
}

/// Status and kind of an error.
#[track_caller]
fn error(answer: Result<RestReply, RestError>) -> (u16, String) {
    let error = answer.expect_err("an error");
    let body: Value = serde_json::from_slice(&error.to_json()).unwrap();
    let kind = body["type"]
        .as_str()
        .unwrap()
        .strip_prefix("/engine-api/errors/");
    (error.status, kind.unwrap().to_owned())
}

/// The fork of a block of proof of stake, and its envelope; `None` if it has requests, which blocks do not hold.
fn envelope(block: &Block) -> Option<(&'static str, Vec<u8>)> {
    let (payload, _) = ExecutionPayload::from_block_slow(block);
    let root = block.header.parent_beacon_block_root.unwrap_or_default();
    let bytes = match payload {
        ExecutionPayload::V1(payload) => (
            "paris",
            containers::ExecutionPayloadEnvelopeParis { payload }.as_ssz_bytes(),
        ),
        ExecutionPayload::V2(payload) => (
            "shanghai",
            containers::ExecutionPayloadEnvelopeShanghai { payload }.as_ssz_bytes(),
        ),
        ExecutionPayload::V3(payload) => match block.header.requests_hash {
            None => {
                let envelope = containers::ExecutionPayloadEnvelopeCancun::from((payload, root));
                ("cancun", envelope.as_ssz_bytes())
            }
            Some(hash) if hash != sha256(&[]) => return None,
            Some(_) => {
                let parts = (payload, root, Requests::default());
                let envelope = containers::ExecutionPayloadEnvelopePrague::from(parts);
                let fork = if block.header.timestamp >= 480 {
                    "osaka"
                } else {
                    "prague"
                };
                (fork, envelope.as_ssz_bytes())
            }
        },
        ExecutionPayload::V4(_) => return None,
    };
    Some(bytes)
}

fn head(hash: B256) -> Vec<u8> {
    containers::ForkchoiceUpdateParis {
        forkchoice_state: ForkchoiceState {
            head_block_hash: hash,
            safe_block_hash: B256::ZERO,
            finalized_block_hash: B256::ZERO,
        },
        payload_attributes: Optional::none(),
    }
    .as_ssz_bytes()
}

#[test]
fn blocks_of_each_fork_are_validated_and_become_the_head() {
    let rig = rig(chain_of(&genesis()), PoolConfig::default());
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for block in blocks() {
        let hash = block.header.hash_slow();
        let is_mined = !block.header.difficulty.is_zero();
        let envelope = (!is_mined).then(|| envelope(&block)).flatten();
        let Some((fork, body)) = envelope else {
            rig.dispatcher.backend().chain().import(block).unwrap();
            continue;
        };
        *seen.entry(fork).or_default() += 1;
        for other in FORKS.into_iter().filter(|other| *other != fork) {
            let refused = ask(&rig, "payloads", Some(other), Some(body.clone()));
            assert!(refused.is_err(), "{fork} as {other}");
        }
        let mut wrong = body.clone();
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        if let Ok(answer) = ask(&rig, "payloads", Some(fork), Some(wrong)) {
            let status: PayloadStatus = read(Ok(answer));
            assert_eq!(status.status, PayloadStatusKind::Invalid);
        }
        let status: PayloadStatus = read(ask(&rig, "payloads", Some(fork), Some(body)));
        assert_eq!(status.status, PayloadStatusKind::Valid, "{status:?}");
        assert_eq!(status.latest_valid_hash.as_ref(), Some(&hash));
        let update: containers::ForkchoiceUpdateResponse =
            read(ask(&rig, "forkchoice", Some("paris"), Some(head(hash))));
        assert_eq!(update.payload_status.status, PayloadStatusKind::Valid);
        assert!(update.payload_id.is_none());
        assert_eq!(rig.dispatcher.backend().chain().head().id.hash, hash);
    }
    for fork in &FORKS[..5] {
        assert!(
            seen.get(fork).is_some_and(|count| *count > 1),
            "{fork}: {seen:?}"
        );
    }
}

#[test]
fn a_status_has_the_bytes_of_the_specification() {
    // Examples A and B of execution-apis `refactor-ssz.md`.
    let valid = PayloadStatus {
        status: PayloadStatusKind::Valid,
        latest_valid_hash: Optional::some(B256::repeat_byte(7)),
        validation_error: Optional::none(),
    };
    let mut want = vec![0, 9, 0, 0, 0, 41, 0, 0, 0];
    want.extend_from_slice(&[7; 32]);
    assert_eq!(valid.as_ssz_bytes(), want);
    let rig = whole();
    let mut block = blocks().pop().unwrap();
    block.header.gas_used += 1;
    let (fork, body) = envelope(&block).unwrap();
    let answer = ask(&rig, "payloads", Some(fork), Some(body)).unwrap();
    let RestReply::Ssz(bytes) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(bytes[0], 1, "INVALID");
    let text = &bytes[bytes.len() - 20..];
    assert!(text.is_ascii(), "{text:?}");
}

/// Attributes of Osaka's blocks in the JSON and the SSZ of a fork choice.
fn attributes(rig: &Rig) -> (Value, containers::ForkchoiceUpdateCancun) {
    let parent = rig.dispatcher.backend().chain().head();
    let timestamp = parent.header.timestamp + 12;
    let state = json!({"headBlockHash": parent.id.hash, "safeBlockHash": B256::ZERO,
        "finalizedBlockHash": B256::ZERO});
    let json = json!([state, {"timestamp": format!("{timestamp:#x}"), "prevRandao": B256::ZERO,
        "suggestedFeeRecipient": Address::ZERO, "withdrawals": [],
        "parentBeaconBlockRoot": B256::ZERO}]);
    let ssz = containers::ForkchoiceUpdateCancun {
        forkchoice_state: ForkchoiceState {
            head_block_hash: parent.id.hash,
            safe_block_hash: B256::ZERO,
            finalized_block_hash: B256::ZERO,
        },
        payload_attributes: Optional::some(containers::PayloadAttributesCancun {
            timestamp,
            ..containers::PayloadAttributesCancun::default()
        }),
    };
    (json, ssz)
}

fn full_blob() -> Box<Blob> {
    let mut blob = Box::new(Blob::ZERO);
    for (element, at) in blob.chunks_mut(32).zip(0_u64..) {
        element[24..].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    }
    blob
}

#[test]
fn a_block_with_a_blob_is_built_fetched_and_validated() {
    let rig = rig_at(u64::MAX);
    let blob = full_blob();
    let (hash, raw) = blob_transaction(&blob);
    rig.result("eth_sendRawTransaction", json!([hex::encode_prefixed(raw)]));
    let (json, ssz) = attributes(&rig);
    let refused = ask(&rig, "forkchoice", Some("prague"), Some(ssz.as_ssz_bytes()));
    assert_eq!(error(refused), (400, "unsupported-fork".to_owned()));
    let update: containers::ForkchoiceUpdateResponse = read(ask(
        &rig,
        "forkchoice",
        Some("osaka"),
        Some(ssz.as_ssz_bytes()),
    ));
    let id = update.payload_id.into_option().expect("an id");
    let by_json = rig.result("engine_forkchoiceUpdatedV3", json);
    assert_eq!(by_json["payloadId"], json!(id), "the same attributes");
    let path = format!("payloads/{id}");
    let built: containers::BuiltPayloadOsaka = read(ask(&rig, &path, Some("osaka"), None));
    let want = rig.result("engine_getPayloadV5", json!([id]));
    let payload = serde_json::to_value(&built.payload).unwrap();
    assert_eq!(payload["blockHash"], want["executionPayload"]["blockHash"]);
    assert_eq!(
        payload["transactions"],
        want["executionPayload"]["transactions"]
    );
    assert_eq!(json!(built.block_value), want["blockValue"]);
    assert_eq!(
        serde_json::to_value(&built.blobs_bundle).unwrap(),
        want["blobsBundle"]
    );
    assert_eq!(
        (
            built.blobs_bundle.blobs.len(),
            built.blobs_bundle.proofs.len()
        ),
        (1, 128)
    );
    assert_eq!(
        error(ask(&rig, &path, Some("cancun"), None)).1,
        "unsupported-fork"
    );
    let envelope = containers::ExecutionPayloadEnvelopePrague {
        payload: built.payload,
        parent_beacon_block_root: B256::ZERO,
        execution_requests: built.execution_requests,
    };
    let status: PayloadStatus = read(ask(
        &rig,
        "payloads",
        Some("osaka"),
        Some(envelope.as_ssz_bytes()),
    ));
    assert_eq!(status.status, PayloadStatusKind::Valid, "{status:?}");
    check_blobs(&rig, hash);
}

/// Blobs of the pool by REST and by JSON.
fn check_blobs(rig: &Rig, hash: B256) {
    let body = |hashes: &[B256]| {
        let versioned_hashes = hashes.to_vec();
        containers::BlobsV1Request { versioned_hashes }.as_ssz_bytes()
    };
    let found: containers::BlobsV2Response =
        read(ask(rig, "blobs/v2", None, Some(body(&[hash, hash]))));
    let want = rig.result("engine_getBlobsV2", json!([[hash, hash]]));
    for (got, want) in found.entries.iter().zip(want.as_array().unwrap()) {
        assert!(got.available);
        assert_eq!(serde_json::to_value(&got.contents).unwrap(), *want);
    }
    let missing = Some(body(&[hash, B256::ZERO]));
    assert_eq!(
        ask(rig, "blobs/v2", None, missing.clone()),
        Ok(RestReply::NoContent)
    );
    let found: containers::BlobsV3Response = read(ask(rig, "blobs/v3", None, missing));
    assert_eq!(
        found
            .entries
            .iter()
            .map(|entry| entry.available)
            .collect::<Vec<_>>(),
        [true, false]
    );
    let mut mask = [0; 16];
    (mask[0], mask[1], mask[15]) = (1, 2, 0x80);
    let request = containers::BlobsV4Request {
        versioned_hashes: vec![hash, B256::ZERO],
        indices_bitarray: mask.into(),
    };
    let found: containers::BlobsV4Response =
        read(ask(rig, "blobs/v4", None, Some(request.as_ssz_bytes())));
    let want = rig.result(
        "engine_getBlobsV4",
        json!([[hash], hex::encode_prefixed(mask)]),
    );
    let contents = &found.entries[0].contents;
    let cells = contents.blob_cells.iter().enumerate();
    let present = cells.filter_map(|(index, cell)| Some((index, cell.as_ref()?)));
    let present: Vec<_> = present.collect();
    assert_eq!(
        present.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
        [0, 9, 127]
    );
    for ((_, cell), want) in present
        .iter()
        .zip(want[0]["blob_cells"].as_array().unwrap())
    {
        assert_eq!(json!(hex::encode_prefixed(cell)), *want);
    }
    assert_eq!(contents.blob_cells.len(), 128);
    assert!(!found.entries[1].available);
    assert_eq!(
        error(ask(rig, "blobs/v1", None, Some(body(&[hash])))).1,
        "unsupported-fork"
    );
}

/// The transactions of each body that is there.
fn bodies<T: Encode + Decode>(
    answer: Result<RestReply, RestError>,
    transactions: impl Fn(T) -> Vec<niwaki_primitives::Bytes>,
) -> Vec<Option<Vec<niwaki_primitives::Bytes>>> {
    let read: containers::BodiesResponse<T> = read(answer);
    let entries = read.entries.into_iter();
    let bodies = entries.map(|entry| entry.available.then(|| transactions(entry.body)));
    bodies.collect()
}

#[test]
fn bodies_are_of_the_named_fork_only_and_end_at_the_head() {
    let rig = whole();
    let mut available = 0;
    for fork in &FORKS[..5] {
        for first in [1, 30, 54] {
            let path = format!("bodies?from={first}&count=32");
            let answer = ask(&rig, &path, Some(fork), None);
            let bodies = match *fork {
                "paris" => bodies(answer, |body: containers::ExecutionPayloadBodyParis| {
                    body.transactions
                }),
                _ => bodies(answer, |body: containers::ExecutionPayloadBodyShanghai| {
                    body.transactions
                }),
            };
            assert_eq!(bodies.len(), 32.min(55 - first));
            for (number, body) in (first..).zip(bodies) {
                let Some(body) = body else { continue };
                let block = &blocks()[number - 1];
                let want: Vec<Bytes> = block
                    .body
                    .transactions
                    .iter()
                    .map(|tx| tx.encoded_2718().into())
                    .collect();
                assert_eq!(body, want);
                available += usize::from(first == 1 || first == 30 && number > 32);
            }
        }
    }
    let mined = blocks()
        .iter()
        .filter(|block| !block.header.difficulty.is_zero())
        .count();
    assert_eq!(available, 54 - mined, "each block is of one fork");
    let beyond: containers::BodiesResponseParis =
        read(ask(&rig, "bodies?from=55&count=1", Some("paris"), None));
    assert!(beyond.entries.is_empty());
    let hashes = containers::BodiesByHashRequest {
        block_hashes: vec![blocks()[53].header.hash_slow(), B256::ZERO],
    };
    let read_hashes: containers::BodiesResponseOsaka = read(ask(
        &rig,
        "bodies/hash",
        Some("osaka"),
        Some(hashes.as_ssz_bytes()),
    ));
    let entries = read_hashes.entries.iter().map(|entry| entry.available);
    assert_eq!(entries.collect::<Vec<_>>(), [true, false]);
    for (query, want) in [
        ("from=1&count=33", (413, "request-too-large")),
        ("from=0&count=1", (400, "invalid-request")),
        ("from=1&count=0", (400, "invalid-request")),
        ("from=1", (400, "invalid-request")),
        ("from=0x1&count=1", (400, "invalid-request")),
    ] {
        let refused = ask(&rig, &format!("bodies?{query}"), Some("osaka"), None);
        assert_eq!(error(refused), (want.0, want.1.to_owned()), "{query}");
    }
}

#[test]
fn errors_have_the_status_and_the_type_of_the_specification() {
    let rig = whole();
    let body = || Some(vec![1, 2, 3]);
    for (path, fork, body, want) in [
        ("payloads", None, body(), (400, "unsupported-fork")),
        ("payloads", Some("bpo1"), body(), (400, "unsupported-fork")),
        ("payloads", Some("osaka"), body(), (400, "ssz-decode-error")),
        (
            "forkchoice",
            Some("osaka"),
            body(),
            (400, "ssz-decode-error"),
        ),
        ("blobs/v2", None, body(), (400, "ssz-decode-error")),
        (
            "payloads/0x0102030405060708",
            Some("osaka"),
            None,
            (404, "unknown-payload"),
        ),
        (
            "payloads/0102030405060708",
            Some("osaka"),
            None,
            (400, "invalid-request"),
        ),
        (
            "payloads/0x01",
            Some("osaka"),
            None,
            (400, "invalid-request"),
        ),
    ] {
        let got = error(ask(&rig, path, fork, body));
        assert_eq!(got, (want.0, want.1.to_owned()), "{path} {fork:?}");
    }
    let head = rig.dispatcher.backend().chain().head().id.hash;
    let inconsistent = containers::ForkchoiceUpdateParis {
        forkchoice_state: ForkchoiceState {
            head_block_hash: head,
            safe_block_hash: B256::repeat_byte(9),
            finalized_block_hash: B256::ZERO,
        },
        payload_attributes: Optional::none(),
    };
    let refused = ask(
        &rig,
        "forkchoice",
        Some("osaka"),
        Some(inconsistent.as_ssz_bytes()),
    );
    assert_eq!(error(refused), (409, "invalid-forkchoice".to_owned()));
    let (_, mut ssz) = attributes(&rig);
    let mut early = ssz.payload_attributes.into_option().unwrap();
    early.timestamp -= 12;
    ssz.payload_attributes = Optional::some(early);
    let refused = ask(&rig, "forkchoice", Some("osaka"), Some(ssz.as_ssz_bytes()));
    assert_eq!(error(refused), (422, "invalid-attributes".to_owned()));
    for (is_post, path) in [
        (false, "payload"),
        (true, "capabilities"),
        (false, "forkchoice"),
        (true, "blobs/v5"),
    ] {
        assert!(
            Endpoint::find(is_post, &format!("/engine/v1/{path}")).is_none(),
            "{path}"
        );
    }
    let Ok(RestReply::Json(text)) = ask(&rig, "capabilities", None, None) else {
        panic!("no JSON")
    };
    let capabilities: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(capabilities["supported_forks"], json!(FORKS));
    assert_eq!(capabilities["limits"]["bodies.max_count"], 32);
    let revisions = &capabilities["independently_versioned"]["blobs"];
    assert_eq!(
        *revisions,
        json!(["v2", "v3", "v4"]),
        "the head is after Osaka"
    );
    let Ok(RestReply::Json(text)) = ask(&rig, "identity", None, None) else {
        panic!("no JSON")
    };
    let identity: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(identity[0]["name"], "Niwaki");
}

#[test]
fn more_hashes_than_are_served_are_refused_as_too_many() {
    let rig = whole();
    let hashes = |count: usize| {
        let mut body = vec![4, 0, 0, 0];
        body.resize(4 + 32 * count, 7);
        Some(body)
    };
    for (path, most) in [("blobs/v2", 128), ("blobs/v3", 128), ("bodies/hash", 32)] {
        ask(&rig, path, Some("osaka"), hashes(most)).unwrap();
        let refused = ask(&rig, path, Some("osaka"), hashes(most + 1));
        assert_eq!(
            error(refused),
            (413, "request-too-large".to_owned()),
            "{path}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_body_gets_an_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
        offset in 0_u8..9,
        fork in 0..6_usize,
    ) {
        // Often an offset that is nearly right, where containers have their first.
        let mut body = bytes;
        if let Some(first) = body.first_chunk_mut::<4>() {
            *first = [offset * 4, 0, 0, 0];
        }
        for path in ["payloads", "forkchoice", "bodies/hash", "blobs/v2", "blobs/v3", "blobs/v4"] {
            if let Err(error) = ask(&RIG, path, Some(FORKS[fork]), Some(body.clone())) {
                prop_assert!(error.status < 500, "{path}: {error:?}");
            }
        }
    }
}
