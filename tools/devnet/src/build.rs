//! Has a client build a block, through the Engine API.

use crate::accounts;
use crate::client::Client;
use crate::genesis::{GAS_LIMIT, GENESIS_TIME, SLOT_S};
use crate::load::number;
use eyre::{Result, ensure, eyre};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, hex};
use serde_json::{Value, json};
use std::time::Duration;

/// A block that was built, with the parameters of its `engine_newPayload`.
#[derive(Clone, Debug)]
pub(crate) struct BuiltBlock {
    pub(crate) number: u64,
    pub(crate) hash: String,
    pub(crate) params: Value,
    pub(crate) is_amsterdam: bool,
}

impl BuiltBlock {
    pub(crate) fn new_payload_method(&self) -> &'static str {
        match self.is_amsterdam {
            true => "engine_newPayloadV5",
            false => "engine_newPayloadV4",
        }
    }

    pub(crate) fn fork_choice_method(&self) -> &'static str {
        match self.is_amsterdam {
            true => "engine_forkchoiceUpdatedV4",
            false => "engine_forkchoiceUpdatedV3",
        }
    }

    /// How many transactions it has.
    pub(crate) fn transactions(&self) -> usize {
        self.params[0]["transactions"]
            .as_array()
            .map_or(0, Vec::len)
    }

    /// How many blobs it has.
    pub(crate) fn blobs(&self) -> usize {
        self.params[1].as_array().map_or(0, Vec::len)
    }
}

/// What is to be built.
#[derive(Clone, Debug)]
pub(crate) struct BuildRequest {
    /// The fork choice; its head is the parent.
    pub(crate) fork_choice: Value,
    /// The slot, which sets the timestamp.
    pub(crate) slot: u64,
    /// Which of the clients builds: two that build in the same slot make different blocks.
    pub(crate) builder: usize,
    pub(crate) is_amsterdam: bool,
    /// How long the client may take.
    pub(crate) time: Duration,
}

impl BuildRequest {
    fn attributes(&self, beacon_root: &str) -> Value {
        let timestamp = GENESIS_TIME + self.slot * SLOT_S;
        let withdrawals: Vec<Value> = (0..2)
            .map(|at| {
                json!({
                    "index": format!("{:#x}", self.slot * 2 + at),
                    "validatorIndex": "0x1",
                    "address": Address::repeat_byte(0xaa),
                    "amount": "0x64",
                })
            })
            .collect();
        let mut attributes = json!({
            "timestamp": format!("{timestamp:#x}"),
            "prevRandao": self.mark("randao"),
            "suggestedFeeRecipient": Address::repeat_byte(0xfe),
            "withdrawals": withdrawals,
            "parentBeaconBlockRoot": beacon_root,
        });
        if self.is_amsterdam {
            attributes["slotNumber"] = json!(format!("{:#x}", self.slot));
            attributes["targetGasLimit"] = json!(format!("{GAS_LIMIT:#x}"));
        }
        attributes
    }

    /// A hash of this slot and builder.
    fn mark(&self, what: &str) -> String {
        keccak256(format!("{what} {} {}", self.slot, self.builder)).to_string()
    }
}

/// Has a client build a block. Returns it, and how long `getPayload` took.
///
/// # Errors
/// If the client does not build, or what it built can't be right.
pub(crate) fn build(client: &Client, request: &BuildRequest) -> Result<(BuiltBlock, Duration)> {
    let [start, get] = match request.is_amsterdam {
        true => ["engine_forkchoiceUpdatedV4", "engine_getPayloadV6"],
        false => ["engine_forkchoiceUpdatedV3", "engine_getPayloadV5"],
    };
    let root = request.mark("beacon root");
    let params = json!([request.fork_choice, request.attributes(&root)]);
    let (response, _) = client.call_engine(start, params)?;
    ensure!(
        response["payloadStatus"]["status"] == "VALID" && response["payloadId"].is_string(),
        "{} does not start to build: {response}",
        client.name
    );
    // geth needs a moment to fill its first block.
    std::thread::sleep(request.time.max(Duration::from_millis(20)));
    let (response, took) = client.call_engine(get, json!([response["payloadId"]]))?;
    let payload = &response["executionPayload"];
    let commitments = response["blobsBundle"]["commitments"].as_array();
    let hashes = commitments.into_iter().flatten().map(versioned_hash);
    let hashes: Vec<String> = hashes.collect::<Result<_>>()?;
    let proofs = response["blobsBundle"]["proofs"].as_array();
    let proofs = proofs.map_or(0, Vec::len);
    ensure!(
        proofs == 128 * hashes.len(),
        "{proofs} proofs of {} blobs",
        hashes.len()
    );
    let built = BuiltBlock {
        number: number(&payload["blockNumber"])?,
        hash: text(&payload["blockHash"])?,
        params: json!([payload, hashes, root, response["executionRequests"]]),
        is_amsterdam: request.is_amsterdam,
    };
    Ok((built, took))
}

/// The string that a value is.
pub(crate) fn text(value: &Value) -> Result<String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| eyre!("{value} is not a string"))
}

fn versioned_hash(commitment: &Value) -> Result<String> {
    let commitment = hex::decode(text(commitment)?)?;
    Ok(accounts::versioned_hash(&commitment).to_string())
}
