//! The consensus client of the soak: one block each slot, and in every 20th slot a second one that becomes the head
//! instead.

use super::Shared;
use crate::accounts::Account;
use crate::genesis::GENESIS_TIME;
use crate::load::number;
use crate::process::Process;
use crate::report::Report;
use eyre::{Result, ensure};
use niwaki_primitives::{Address, B256, U256};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Slots from one reorg to the next.
const REORG_EVERY: u64 = 20;

/// Drives the node through the Engine API, slot by slot.
pub(super) struct Slots<'a> {
    node: &'a Process,
    shared: &'a Shared,
    head: Value,
    number: u64,
    report: Report,
}

impl<'a> Slots<'a> {
    pub(super) fn new(node: &'a Process, shared: &'a Shared) -> Result<Self> {
        Ok(Self {
            node,
            shared,
            head: node.client.block("latest")?["hash"].clone(),
            number: 0,
            report: Report::default(),
        })
    }

    /// Slots played so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Plays one slot of `length`: the node builds blocks, imports them, and makes the last one its head.
    pub(super) fn slot(&mut self, length: Duration) -> Result<()> {
        let began = Instant::now();
        self.number += 1;
        let count = 1 + u64::from(self.number.is_multiple_of(REORG_EVERY));
        let ids = (0..count).map(|index| self.start_payload(index));
        let ids = ids.collect::<Result<Vec<_>>>()?;
        std::thread::sleep((length / 2).saturating_sub(began.elapsed()));
        let mut transactions = 0;
        for (index, id) in ids.into_iter().enumerate() {
            transactions = self.import_payload(index as u64, &id)?;
        }
        self.shared
            .included
            .fetch_add(transactions, Ordering::Relaxed);
        std::thread::sleep(length.saturating_sub(began.elapsed()));
        Ok(())
    }

    fn fork_choice(&self, head: &Value) -> Value {
        json!({ "headBlockHash": head, "safeBlockHash": B256::ZERO, "finalizedBlockHash": B256::ZERO })
    }

    fn beacon_root(&self, index: u64) -> B256 {
        B256::from(U256::from(self.number * 10 + index))
    }

    fn start_payload(&mut self, index: u64) -> Result<Value> {
        let attributes = json!({
            "timestamp": format!("{:#x}", GENESIS_TIME + self.number),
            "prevRandao": self.beacon_root(index),
            "suggestedFeeRecipient": Address::repeat_byte(0xfe),
            "withdrawals": [],
            "parentBeaconBlockRoot": self.beacon_root(index),
        });
        let params = json!([self.fork_choice(&self.head), attributes]);
        let response = self.call("engine_forkchoiceUpdatedV3", params)?;
        ensure!(
            response["payloadId"].is_string(),
            "no payload was started: {response}"
        );
        Ok(response["payloadId"].clone())
    }

    /// Gets a payload, imports it and makes it the head. Returns its number of transactions.
    fn import_payload(&mut self, index: u64, id: &Value) -> Result<u64> {
        let response = self.call("engine_getPayloadV5", json!([id]))?;
        let payload = &response["executionPayload"];
        let transactions = payload["transactions"].as_array().map_or(0, Vec::len) as u64;
        let requests = &response["executionRequests"];
        let params = json!([payload, [], self.beacon_root(index), requests]);
        let status = self.call("engine_newPayloadV4", params)?;
        ensure!(status["status"] == "VALID", "newPayload returned {status}");
        let head = payload["blockHash"].clone();
        let params = json!([self.fork_choice(&head), null]);
        let response = self.call("engine_forkchoiceUpdatedV3", params)?;
        let status = &response["payloadStatus"]["status"];
        ensure!(status == "VALID", "forkchoiceUpdated returned {response}");
        self.head = head;
        self.report.count("blocks");
        self.report.add("transactions in blocks", transactions);
        Ok(transactions)
    }

    /// An Engine API call, with its time recorded by whether requests run in parallel.
    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let (response, took) = self.node.client.call_engine(method, params)?;
        let load = match self.shared.is_paused.load(Ordering::Relaxed) {
            true => "alone",
            false => "beside requests",
        };
        self.report.took(format!("{method} {load}"), took);
        Ok(response)
    }

    /// Plays up to `within` slots until the pool is empty.
    pub(super) fn drain(&mut self, length: Duration, within: u64) -> Result<()> {
        let mut left = Value::Null;
        for _ in 0..within {
            left = self.node.client.call("txpool_status", json!([]))?;
            if number(&left["pending"])? + number(&left["queued"])? == 0 {
                return Ok(());
            }
            self.slot(length)?;
        }
        ensure!(
            false,
            "stuck in the pool after {within} more blocks: {left}"
        );
        Ok(())
    }

    /// Checks that the chain has every transaction of every sender.
    pub(super) fn check_nonces(&self, senders: &[Account]) -> Result<()> {
        for sender in senders {
            let params = json!([sender.key.address, "latest"]);
            let nonce = number(&self.node.client.call("eth_getTransactionCount", params)?)?;
            ensure!(
                nonce == sender.nonce,
                "{} is at nonce {nonce} and sent up to {}",
                sender.key.address,
                sender.nonce
            );
        }
        Ok(())
    }

    /// The report, with the last head.
    pub(super) fn finish(mut self) -> Result<Report> {
        let params = json!([self.head, false]);
        let head = self.node.client.call("eth_getBlockByHash", params)?;
        let text = |name: &str| head[name].as_str().unwrap_or_default().to_owned();
        self.report.head = number(&head["number"])?;
        self.report.head_hash = text("hash");
        self.report.state_root = text("stateRoot");
        Ok(self.report)
    }
}
