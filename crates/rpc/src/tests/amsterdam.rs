//! What Amsterdam adds to the responses.

use super::*;
use alloy_eips::eip7594::BlobTransactionSidecarEip7594;
use niwaki_crypto::{Blob, blob_cells, blob_commitment, cell_proofs};
use niwaki_primitives::{B256, Signed, TxEip4844, U256};
use niwaki_txpool::{CellCache, Incoming, Origin, Sidecar};
use niwaki_txpool::{encode_network, encode_without_blobs};

/// The chain of `testdata/amsterdam` with the fork at `time`.
pub(super) fn rig_at(time: u64) -> Rig {
    let text = include_str!("../../../../testdata/amsterdam/genesis.json");
    let mut json: Value = serde_json::from_str(text).unwrap();
    json["config"]["amsterdamTime"] = time.into();
    let genesis = Genesis::from_json(&json.to_string()).unwrap();
    rig(chain_of(&genesis), PoolConfig::default())
}

#[test]
fn a_block_has_slot_and_access_list_in_every_method() {
    let rig = rig_at(0);
    let block = rig.result("eth_getBlockByNumber", json!(["latest", false]));
    let empty = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347";
    assert_eq!(block["blockAccessListHash"], empty);
    assert_eq!(block["slotNumber"], "0x0");
    let header = rig.result("eth_getHeaderByNumber", json!(["latest"]));
    assert_eq!(header["blockAccessListHash"], empty);
    for block in [json!("latest"), json!("0x0"), block["hash"].clone()] {
        assert_eq!(
            rig.result("eth_getBlockAccessList", json!([block])),
            json!([])
        );
        let raw = rig.result("debug_getRawBlockAccessList", json!([block]));
        assert_eq!(raw, "0xc0");
    }
    let bodies = rig.result(
        "engine_getPayloadBodiesByHashV2",
        json!([[block["hash"], B256::ZERO]]),
    );
    assert_eq!(bodies[0]["blockAccessList"], "0xc0");
    assert_eq!(bodies[1], Value::Null);
    let bodies = rig.result("engine_getPayloadBodiesByHashV1", json!([[block["hash"]]]));
    assert_eq!(bodies[0].get("blockAccessList"), None);
}

#[test]
fn a_block_before_amsterdam_has_no_access_list() {
    let rig = rig_at(24);
    let block = rig.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(block.get("blockAccessListHash"), None);
    assert_eq!(block.get("slotNumber"), None);
    for method in ["eth_getBlockAccessList", "debug_getRawBlockAccessList"] {
        let (code, words) = rig.refusal(method, json!(["latest"]));
        assert_eq!(code, -32001, "{words}");
    }
    let unknown = rig.result("eth_getBlockAccessList", json!(["0x1"]));
    assert_eq!(unknown, Value::Null);
    rig.refusal("debug_getRawBlockAccessList", json!(["0x1"]));
    let hash = &block["hash"];
    let bodies = rig.result("engine_getPayloadBodiesByHashV2", json!([[hash]]));
    assert_eq!(bodies[0]["blockAccessList"], Value::Null);
}

#[test]
fn the_configuration_names_the_contracts_of_builders_from_the_fork_on() {
    let of = |config: &Value| -> Vec<String> {
        let contracts = config["systemContracts"].as_object().unwrap();
        let builders = contracts
            .iter()
            .filter(|(name, _)| name.starts_with("BUILDER"));
        builders.map(|(_, address)| address.to_string()).collect()
    };
    let config = rig_at(24).result("eth_config", json!([]));
    assert_eq!(of(&config["current"]), [""; 0]);
    let both = [
        "\"0x0000bff46984e3725691fa540a8c7589300d8282\"",
        "\"0x000064d678505ad48f8ccb093bc65613800e8282\"",
    ];
    assert_eq!(of(&config["next"]), both);
    let config = rig_at(0).result("eth_config", json!([]));
    assert_eq!(of(&config["current"]), both);
}

/// A transaction of the account of key 1.
fn signed<T: SignableTransaction<Signature>>(unsigned: T) -> TxEnvelope
where
    TxEnvelope: From<Signed<T>>,
{
    Key::new(B256::with_last_byte(1)).sign(unsigned)
}

/// A transaction of the account of key 1 with this blob, as it is sent.
pub(super) fn blob_transaction(blob: &Blob) -> (B256, Vec<u8>) {
    let commitment = blob_commitment(blob).unwrap();
    let mut versioned_hash = niwaki_crypto::sha256(commitment.as_slice());
    versioned_hash.0[0] = 1;
    let proofs = cell_proofs(blob).unwrap();
    let sidecar = BlobTransactionSidecarEip7594::new(vec![*blob], vec![commitment], proofs);
    let sidecar = Sidecar::Eip7594(sidecar);
    let unsigned = TxEip4844 {
        chain_id: 7_014,
        gas_limit: 100_000,
        max_fee_per_gas: 100_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        max_fee_per_blob_gas: 1_000_000_000,
        blob_versioned_hashes: vec![versioned_hash],
        ..TxEip4844::default()
    };
    let tx = signed(unsigned);
    (versioned_hash, encode_network(&tx, Some(&sidecar)))
}

#[test]
fn get_blobs_v4_returns_the_cells_of_the_mask() {
    let rig = rig_at(0);
    let mut blob = Box::new(Blob::ZERO);
    for (element, at) in blob.chunks_mut(32).zip(0_u64..) {
        element[24..].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    }
    let (hash, raw) = blob_transaction(&blob);
    rig.result("eth_sendRawTransaction", json!([hex::encode_prefixed(raw)]));
    let (cells, proofs) = (blob_cells(&blob).unwrap(), cell_proofs(&blob).unwrap());
    assert_eq!(
        cells[0].as_slice(),
        &blob[..2_048],
        "the first half is the blob"
    );
    // Bits 0, 9 and 127.
    let mask = "0x01020000000000000000000000000080";
    let got = rig.result("engine_getBlobsV4", json!([[B256::ZERO, hash, hash], mask]));
    let wanted = [0, 9, 127];
    assert_eq!(got[0], Value::Null);
    assert_eq!(got[1]["blob_cells"], json!(wanted.map(|at| cells[at])));
    assert_eq!(got[1]["proofs"], json!(wanted.map(|at| proofs[at])));
    assert_eq!(got[2], got[1]);
    let has = rig.result("engine_hasBlobs", json!([[hash, B256::ZERO, hash]]));
    assert_eq!(has, json!([true, false, true]));
    let none = rig.result(
        "engine_getBlobsV4",
        json!([[hash], format!("0x{}", "00".repeat(16))]),
    );
    assert_eq!(none, json!([{ "blob_cells": [], "proofs": [] }]));
}

#[test]
fn sampled_blobs_are_served_by_v4_alone_and_null_for_the_cells_that_are_not_here() {
    let rig = rig_at(0);
    let blob = Blob::ZERO;
    let (hash, raw) = blob_transaction(&blob);
    let whole = Incoming::decode(&raw).unwrap();
    let sidecar = whole.sidecar.unwrap();
    let bytes = encode_without_blobs(&whole.tx, &sidecar).unwrap();
    let columns = 1 | 1 << 127;
    let cells = CellCache::default().cells_of(&sidecar, columns);
    let cells = cells.unwrap().unwrap();
    let sampled = Incoming::decode_sampled(&bytes, columns, &cells).unwrap();
    let pool = &rig.dispatcher.backend().pool;
    pool.add(sampled, Origin::Remote, 0).unwrap();
    // Bits 0, 9 and 127.
    let mask = "0x01020000000000000000000000000080";
    let got = rig.result("engine_getBlobsV4", json!([[hash], mask]));
    let all = blob_cells(&blob).unwrap();
    let proofs = sidecar.proofs();
    assert_eq!(got[0]["blob_cells"], json!([all[0], null, all[127]]));
    assert_eq!(got[0]["proofs"], json!([proofs[0], null, proofs[127]]));
    assert_eq!(
        rig.result("engine_getBlobsV2", json!([[hash]])),
        json!(null)
    );
    assert_eq!(
        rig.result("engine_getBlobsV3", json!([[hash]])),
        json!([null])
    );
    assert_eq!(
        rig.result("engine_hasBlobs", json!([[hash]])),
        json!([true])
    );
}

#[test]
fn custody_columns_are_for_the_pool_and_null_changes_nothing() {
    let rig = rig_at(0);
    let head = rig.result("eth_getBlockByNumber", json!(["latest", false]))["hash"].clone();
    let choice = json!({
        "headBlockHash": head,
        "safeBlockHash": B256::ZERO,
        "finalizedBlockHash": B256::ZERO,
    });
    let method = "engine_forkchoiceUpdatedV4";
    let pool = &rig.dispatcher.backend().pool;
    assert_eq!(pool.custody_columns(), u128::MAX);
    rig.result(
        method,
        json!([choice, null, "0x01020000000000000000000000000080"]),
    );
    let expected = 1 | 1 << 9 | 1 << 127;
    assert_eq!(pool.custody_columns(), expected);
    for params in [
        json!([choice, null, null]),
        json!([choice, null]),
        json!([choice]),
    ] {
        rig.result(method, params);
        assert_eq!(pool.custody_columns(), expected);
    }
    let (code, message) = rig.refusal(method, json!([choice, null, "0x01"]));
    assert_eq!((code, message.contains("16 bytes")), (-32602, true));
    assert_eq!(pool.custody_columns(), expected);
}

#[test]
fn get_blobs_v4_needs_a_mask_of_16_bytes_and_returns_null_for_unknown_blobs() {
    let rig = rig_at(0);
    let mask = format!("0x{}", "ff".repeat(16));
    let cells = rig.result("engine_getBlobsV4", json!([[B256::ZERO, B256::ZERO], mask]));
    assert_eq!(cells, json!([null, null]));
    for bad in [
        json!("0xff"),
        json!(format!("0x{}", "ff".repeat(17))),
        Value::Null,
    ] {
        let (code, _) = rig.refusal("engine_getBlobsV4", json!([[B256::ZERO], bad]));
        assert_eq!(code, -32602);
    }
    for bad in [json!([]), json!([null]), json!(["0x00"]), json!([["0x00"]])] {
        assert_eq!(rig.refusal("engine_hasBlobs", bad).0, -32602);
    }
    assert_eq!(rig.result("engine_hasBlobs", json!([[]])), json!([]));
    let offered = rig.result("engine_exchangeCapabilities", json!([[]]));
    let offered = offered.as_array().unwrap();
    assert!(offered.contains(&json!("engine_hasBlobs")));
    let many = vec![B256::ZERO; 129];
    let (code, _) = rig.refusal("engine_getBlobsV4", json!([many, mask]));
    assert_eq!(code, -38004);
}

/// The account of key 1.
const FUNDED: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
const OTHER: &str = "0x00000000000000000000000000000000000000aa";

#[test]
fn the_estimate_of_a_transfer_is_the_sum_of_its_costs() {
    let rig = rig_at(0);
    let alive = json!({ OTHER: { "balance": "0x1" } });
    for (to, value, overrides, want) in [
        (FUNDED, "0x1", json!({}), 12_000_u64),
        (OTHER, "0x0", json!({}), 15_000),
        (OTHER, "0x1", alive, 21_000),
        (OTHER, "0x1", json!({}), 204_600),
    ] {
        let message = json!({ "from": FUNDED, "to": to, "value": value });
        let gas = rig.result("eth_estimateGas", json!([message, "latest", overrides]));
        assert_eq!(gas, format!("{want:#x}"), "{to} {value}");
    }
    // Before the fork it is 21,000.
    let message = json!({ "from": FUNDED, "to": OTHER, "value": "0x1" });
    let gas = rig_at(24).result("eth_estimateGas", json!([message]));
    assert_eq!(gas, "0x5208");
}

#[test]
fn an_estimate_may_exceed_the_execution_gas_cap() {
    let rig = rig_at(0);
    // Writes 200 slots: for i from 200 down to 1, slot i becomes i.
    let code = "0x60c85b808055600190038060025700";
    let overrides = json!({ OTHER: { "code": code } });
    let message = json!({ "from": FUNDED, "to": OTHER });
    let params = json!([message, "latest", overrides]);
    let gas = rig.result("eth_estimateGas", params);
    let gas = u64::from_str_radix(gas.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let of_slots = 200 * (64 * 1_530 + 12_100);
    assert!((of_slots..of_slots + of_slots / 50).contains(&gas), "{gas}");
    assert!(gas > 1 << 24);
    let (code, words) = rig.refusal(
        "eth_estimateGas",
        json!([{ "from": FUNDED, "to": OTHER, "gas": "0x1000000" }, "latest", overrides]),
    );
    assert_eq!(code, -32000, "{words}");
}

#[test]
fn simulated_blocks_have_slot_and_access_list_hash() {
    let rig = rig_at(0);
    let call = json!({ "from": FUNDED, "to": OTHER, "value": "0x1" });
    let blocks = json!({ "blockStateCalls": [{ "calls": [call, call] }, {}] });
    let blocks = rig.result("eth_simulateV1", json!([blocks, "latest"]));
    assert_eq!(blocks[0]["slotNumber"], "0x1");
    assert_eq!(blocks[1]["slotNumber"], "0x2");
    let calls = &blocks[0]["calls"];
    assert_eq!(calls[0]["gasUsed"], format!("{:#x}", 204_600));
    assert_eq!(calls[1]["gasUsed"], "0x5208");
    // Execution gas: twice 21,000; state gas: one account.
    assert_eq!(blocks[0]["gasUsed"], format!("{:#x}", 183_600));
    assert_ne!(
        blocks[0]["blockAccessListHash"],
        blocks[1]["blockAccessListHash"]
    );
}

#[test]
fn a_simulated_block_has_the_access_list_of_the_built_one() {
    let rig = rig_at(0);
    let parent = rig.result("eth_getBlockByNumber", json!(["latest", false]));
    let (prices, gas) = ((100_000_000_000_u128, 1_000_000_000_u128), 300_000_u64);
    let raw = [0, 1].map(|nonce| {
        let unsigned = TxEip1559 {
            chain_id: 7_014,
            nonce,
            gas_limit: gas,
            max_fee_per_gas: prices.0,
            max_priority_fee_per_gas: prices.1,
            to: TxKind::Call(OTHER.parse().unwrap()),
            value: U256::from(1),
            ..TxEip1559::default()
        };
        hex::encode_prefixed(signed(unsigned).encoded_2718())
    });
    let coinbase = "0xfefefefefefefefefefefefefefefefefefefefe";
    let attributes = json!({
        "timestamp": "0xc",
        "prevRandao": B256::ZERO,
        "suggestedFeeRecipient": coinbase,
        "withdrawals": [],
        "parentBeaconBlockRoot": B256::repeat_byte(3),
        "slotNumber": "0x1",
    });
    let built = rig.result(
        "testing_buildBlockV1",
        json!([parent["hash"], attributes, raw]),
    );
    let payload = &built["executionPayload"];
    assert_eq!(payload["transactions"].as_array().map(Vec::len), Some(2));
    let list = hex::decode(payload["blockAccessList"].as_str().unwrap()).unwrap();

    let call = |nonce: u64| {
        json!({
            "from": FUNDED, "to": OTHER, "value": "0x1", "nonce": format!("{nonce:#x}"),
            "gas": format!("{gas:#x}"), "maxFeePerGas": format!("{:#x}", prices.0),
            "maxPriorityFeePerGas": format!("{:#x}", prices.1),
        })
    };
    let overrides = json!({
        "time": "0xc", "feeRecipient": coinbase, "beaconRoot": B256::repeat_byte(3),
    });
    let wanted = json!({
        "validation": true,
        "blockStateCalls": [{ "blockOverrides": overrides, "calls": [call(0), call(1)] }],
    });
    let blocks = rig.result("eth_simulateV1", json!([wanted, "latest"]));
    assert_eq!(blocks[0]["stateRoot"], payload["stateRoot"]);
    assert_eq!(
        blocks[0]["blockAccessListHash"],
        json!(niwaki_crypto::keccak256(list))
    );
}
