//! The consensus client of the soak: a block each slot, and now and then two of one height.

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

/// One slot in so many has a second block, which becomes the head instead of the first.
const REORG_EVERY: u64 = 20;

pub(super) struct Slots<'a> {
    node: &'a Process,
    shared: &'a Shared,
    head: Value,
    number: u64,
    report: Report,
}

impl<'a> Slots<'a> {
    pub(super) fn begin(node: &'a Process, shared: &'a Shared) -> Result<Self> {
        let client = &node.client;
        let genesis = client.ask("eth_getBlockByNumber", json!(["latest", false]))?;
        Ok(Self {
            node,
            shared,
            head: genesis["hash"].clone(),
            number: 0,
            report: Report::default(),
        })
    }

    /// Of slots that were played.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Has blocks built, gives them back, makes the last one the head; lasts `length` if it can.
    pub(super) fn slot(&mut self, length: Duration) -> Result<()> {
        let began = Instant::now();
        self.number += 1;
        let count = 1 + u64::from(self.number.is_multiple_of(REORG_EVERY));
        let ids = (0..count).map(|index| self.begin_payload(index));
        let ids = ids.collect::<Result<Vec<_>>>()?;
        std::thread::sleep((length / 2).saturating_sub(began.elapsed()));
        let mut transactions = 0;
        for (index, id) in ids.into_iter().enumerate() {
            transactions = self.give_back(index as u64, &id)?;
        }
        self.shared
            .included
            .fetch_add(transactions, Ordering::Relaxed);
        std::thread::sleep(length.saturating_sub(began.elapsed()));
        Ok(())
    }

    fn choice(&self, head: &Value) -> Value {
        json!({ "headBlockHash": head, "safeBlockHash": B256::ZERO, "finalizedBlockHash": B256::ZERO })
    }

    fn root(&self, index: u64) -> B256 {
        B256::from(U256::from(self.number * 10 + index))
    }

    fn begin_payload(&mut self, index: u64) -> Result<Value> {
        let attributes = json!({
            "timestamp": format!("{:#x}", GENESIS_TIME + self.number),
            "prevRandao": self.root(index),
            "suggestedFeeRecipient": Address::repeat_byte(0xfe),
            "withdrawals": [],
            "parentBeaconBlockRoot": self.root(index),
        });
        let params = json!([self.choice(&self.head), attributes]);
        let answer = self.drive("engine_forkchoiceUpdatedV3", params)?;
        ensure!(
            answer["payloadId"].is_string(),
            "no payload is begun: {answer}"
        );
        Ok(answer["payloadId"].clone())
    }

    /// Takes a payload, gives it back, makes it the head; how many transactions it has.
    fn give_back(&mut self, index: u64, id: &Value) -> Result<u64> {
        let answer = self.drive("engine_getPayloadV5", json!([id]))?;
        let payload = &answer["executionPayload"];
        let transactions = payload["transactions"].as_array().map_or(0, Vec::len) as u64;
        let requests = &answer["executionRequests"];
        let params = json!([payload, [], self.root(index), requests]);
        let verdict = self.drive("engine_newPayloadV4", params)?;
        ensure!(
            verdict["status"] == "VALID",
            "a block was answered {verdict}"
        );
        let head = payload["blockHash"].clone();
        let params = json!([self.choice(&head), null]);
        let answer = self.drive("engine_forkchoiceUpdatedV3", params)?;
        let status = &answer["payloadStatus"]["status"];
        ensure!(status == "VALID", "a fork choice was answered {answer}");
        self.head = head;
        self.report.count("blocks");
        self.report.add("transactions in blocks", transactions);
        Ok(transactions)
    }

    fn drive(&mut self, method: &str, params: Value) -> Result<Value> {
        let (answer, took) = self.node.client.drive(method, params)?;
        let beside = match self.shared.is_paused.load(Ordering::Relaxed) {
            true => "alone",
            false => "beside requests",
        };
        self.report.took(format!("{method} {beside}"), took);
        Ok(answer)
    }

    /// Plays slots until the pool has nothing left.
    pub(super) fn drain(&mut self, length: Duration, within: u64) -> Result<()> {
        let mut left = Value::Null;
        for _ in 0..within {
            left = self.node.client.ask("txpool_status", json!([]))?;
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

    /// The chain has every transaction of every sender.
    pub(super) fn check_nonces(&self, senders: &[Account]) -> Result<()> {
        for sender in senders {
            let params = json!([sender.key.address, "latest"]);
            let nonce = number(&self.node.client.ask("eth_getTransactionCount", params)?)?;
            ensure!(
                nonce == sender.nonce,
                "{} is at nonce {nonce} and sent up to {}",
                sender.key.address,
                sender.nonce
            );
        }
        Ok(())
    }

    /// What was seen, with the last head.
    pub(super) fn finish(mut self) -> Result<Report> {
        let params = json!([self.head, false]);
        let head = self.node.client.ask("eth_getBlockByHash", params)?;
        let text = |name: &str| head[name].as_str().unwrap_or_default().to_owned();
        self.report.head = number(&head["number"])?;
        self.report.head_hash = text("hash");
        self.report.state_root = text("stateRoot");
        Ok(self.report)
    }
}
