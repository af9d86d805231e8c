//! `niwaki-bench engine-rest`: the Engine API by JSON-RPC and by REST and SSZ, on one block with as many blobs as it may
//! have, request by request in turn.
//!
//! A node builds the block from its own pool. Each request is timed from the first byte sent to the last byte read; what
//! the client does with an answer is not counted.

use super::client::{Client, Contender, Setup};
use super::requests::request;
use crate::harness::{JsonFile, work_dir};
use crate::machine::Machine;
use crate::stats::Spread;
use alloy_eips::eip7594::BlobTransactionSidecarEip7594;
use alloy_rpc_types_engine::ssz_engine_types as containers;
use eyre::{Result, ensure, eyre};
use niwaki_crypto::{Blob, blob_commitment, cell_proofs, sha256};
use niwaki_primitives::{B256, TxEip4844, hex};
use niwaki_testkit::Key;
use niwaki_txpool::{Sidecar, encode_network};
use serde::Serialize;
use serde_json::{Value, json};
use ssz::{Decode, Encode};
use std::path::PathBuf;
use std::time::Instant;

/// Blobs of a block of mainnet at most since BPO2, and of a transaction since Osaka (EIP-7594).
const BLOBS: usize = 21;
const BLOBS_OF_TX: usize = 6;
/// The header that names the fork.
const OSAKA: &str = "osaka";

/// Options of `niwaki-bench engine-rest`.
#[derive(Debug, clap::Args)]
pub(crate) struct TransportOptions {
    /// Our binary [default: niwaki in the folder of this program].
    #[arg(long, value_name = "FILE")]
    niwaki: Option<PathBuf>,
    /// Requests of each kind.
    #[arg(long, default_value = "21", value_parser = crate::harness::at_least_one)]
    runs: usize,
    /// Folder for the data path, which is removed afterwards [default: the system's temporary folder].
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    json: JsonFile,
}

/// One kind of request.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    json_ms: Spread,
    ssz_ms: Spread,
    /// Of each pair, JSON by SSZ.
    ratio: Spread,
    json_bytes: usize,
    ssz_bytes: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    blobs: usize,
    runs: usize,
    rows: Vec<Row>,
}

/// Measures, prints a table and writes JSON.
pub(crate) fn run(options: &TransportOptions) -> Result<()> {
    options.json.check()?;
    let folder = work_dir(options.work_dir.as_deref())?;
    let genesis = folder.path().join("genesis.json");
    std::fs::write(&genesis, genesis_with_blobs()?.to_string())?;
    let program = crate::import::niwaki_program(options.niwaki.as_deref())?;
    let setup = Setup {
        contender: Contender::Niwaki { threads: None },
        program: std::path::absolute(program)?,
        genesis,
        flags: Vec::new(),
    };
    let client = setup.start(folder.path())?;
    let rows = measure(&client, options.runs);
    client.stop()?;
    let report = Report {
        machine: Machine::here(),
        blobs: BLOBS,
        runs: options.runs,
        rows: rows?,
    };
    println!(
        "one block with {BLOBS} blobs, {} requests of each kind in turn, ms",
        options.runs
    );
    for row in &report.rows {
        println!(
            "{:12} JSON {:24} SSZ {:24} ratio {:20} bytes {:9} {:9}",
            row.name, row.json_ms, row.ssz_ms, row.ratio, row.json_bytes, row.ssz_bytes
        );
    }
    options.json.write(&report)
}

/// A genesis with Osaka and BPO2's numbers of blobs from the start.
fn genesis_with_blobs() -> Result<Value> {
    let text = include_str!("../../../../testdata/amsterdam/genesis.json");
    let mut genesis: Value = serde_json::from_str(text)?;
    let config = &mut genesis["config"];
    config["amsterdamTime"] = json!(u64::MAX);
    config["blobSchedule"]["osaka"] =
        json!({"target": 14, "max": BLOBS, "baseFeeUpdateFraction": 11_684_671});
    Ok(genesis)
}

/// A transaction of the account of key 1 with so many blobs, as it is sent, and their versioned hashes.
fn blob_transaction(nonce: u64, blobs: usize) -> Result<(Vec<u8>, Vec<B256>)> {
    let (mut all, mut commitments, mut proofs, mut hashes) = (vec![], vec![], vec![], vec![]);
    for index in 0..blobs as u64 {
        let mut blob = Box::new(Blob::ZERO);
        for (element, at) in blob.chunks_mut(32).zip(0_u64..) {
            let word = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (nonce << 8 | index);
            element[24..].copy_from_slice(&word.to_be_bytes());
        }
        let commitment = blob_commitment(&blob).map_err(|error| eyre!("{error}"))?;
        let mut hash = sha256(commitment.as_slice());
        hash.0[0] = 1;
        proofs.extend(cell_proofs(&blob).map_err(|error| eyre!("{error}"))?);
        all.push(*blob);
        commitments.push(commitment);
        hashes.push(hash);
    }
    let tx = Key::new(B256::with_last_byte(1)).sign(TxEip4844 {
        chain_id: 7_014,
        nonce,
        gas_limit: 100_000,
        max_fee_per_gas: 100_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        max_fee_per_blob_gas: 1_000_000_000,
        blob_versioned_hashes: hashes.clone(),
        ..TxEip4844::default()
    });
    let sidecar = Sidecar::Eip7594(BlobTransactionSidecarEip7594::new(all, commitments, proofs));
    Ok((encode_network(&tx, Some(&sidecar)), hashes))
}

/// Fills the pool, has the block built, and times each kind of request.
fn measure(client: &Client, runs: usize) -> Result<Vec<Row>> {
    let mut hashes = Vec::new();
    for (nonce, first) in (0..).zip((0..BLOBS).step_by(BLOBS_OF_TX)) {
        let (raw, added) = blob_transaction(nonce, BLOBS_OF_TX.min(BLOBS - first))?;
        let sent = client.call(
            "eth_sendRawTransaction",
            &json!([hex::encode_prefixed(raw)]),
        )?;
        ensure!(sent.is_string(), "the pool refuses a transaction: {sent}");
        hashes.extend(added);
    }
    let genesis = client.call("eth_getBlockByNumber", &json!(["latest", false]))?["hash"].clone();
    let state = json!({"headBlockHash": genesis, "safeBlockHash": B256::ZERO,
        "finalizedBlockHash": B256::ZERO});
    let attributes = json!({"timestamp": "0xc", "prevRandao": B256::ZERO,
        "suggestedFeeRecipient": format!("0x{}", "00".repeat(20)), "withdrawals": [],
        "parentBeaconBlockRoot": B256::ZERO});
    let started = client.call("engine_forkchoiceUpdatedV3", &json!([state, attributes]))?;
    let id = started["payloadId"].as_str();
    let id = id.ok_or_else(|| eyre!("no payload is built: {started}"))?;
    let get_json = request("engine_getPayloadV5", &json!([id]));
    let path = format!("payloads/{id}");
    let built = client.rest(&path, OSAKA, None)?;
    let built = containers::BuiltPayloadOsaka::from_ssz_bytes(&built);
    let built = built.map_err(|error| eyre!("the payload: {error:?}"))?;
    let found = built.blobs_bundle.blobs.len();
    ensure!(found == BLOBS, "the block has {found} blobs");

    let payload = serde_json::to_value(&built.payload)?;
    let params = json!([payload, hashes, B256::ZERO, built.execution_requests]);
    let new_json = request("engine_newPayloadV4", &params);
    let new_ssz = containers::ExecutionPayloadEnvelopePrague {
        payload: built.payload,
        parent_beacon_block_root: B256::ZERO,
        execution_requests: built.execution_requests,
    }
    .as_ssz_bytes();
    let blobs_json = request("engine_getBlobsV2", &json!([hashes]));
    let versioned_hashes = hashes;
    let blobs_ssz = containers::BlobsV2Request { versioned_hashes }.as_ssz_bytes();

    // The first one is executed; the others are known.
    client.rest("payloads", OSAKA, Some(&new_ssz))?;
    Ok(vec![
        pairs("getPayload", client, runs, &get_json, &path, None)?,
        pairs(
            "newPayload",
            client,
            runs,
            &new_json,
            "payloads",
            Some(&new_ssz),
        )?,
        pairs(
            "getBlobs",
            client,
            runs,
            &blobs_json,
            "blobs/v2",
            Some(&blobs_ssz),
        )?,
    ])
}

/// Times a request by JSON and by SSZ in turn.
fn pairs(
    name: &'static str,
    client: &Client,
    runs: usize,
    json: &str,
    path: &str,
    body: Option<&[u8]>,
) -> Result<Row> {
    let (mut by_json, mut by_ssz, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut json_bytes, mut ssz_bytes) = (0, 0);
    for _ in 0..runs {
        let began = Instant::now();
        let answer = client.post(json)?;
        by_json.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(
            answer.contains("\"result\":{") || answer.contains("\"result\":["),
            "{answer:.300}"
        );
        json_bytes = json.len() + answer.len();
        let began = Instant::now();
        let answer = client.rest(path, OSAKA, body)?;
        by_ssz.push(began.elapsed().as_secs_f64() * 1e3);
        ssz_bytes = body.map_or(0, <[u8]>::len) + answer.len();
        ratios.extend(
            by_json
                .last()
                .zip(by_ssz.last())
                .map(|(json, ssz)| json / ssz),
        );
    }
    Ok(Row {
        name,
        json_ms: Spread::of(by_json),
        ssz_ms: Spread::of(by_ssz),
        ratio: Spread::of(ratios),
        json_bytes,
        ssz_bytes,
    })
}
