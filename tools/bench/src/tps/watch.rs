//! The blocks as they come.

use super::DRAIN;
use super::client::{Client, number};
use super::send::{Sent, elapsed_ms};
use super::work::Work;
use eyre::Result;
use niwaki_primitives::{B256, Bytes};
use niwaki_rules::{BftExtra, BftProtocol};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the node is asked for its head.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A block that came.
#[derive(Debug)]
pub(super) struct SeenBlock {
    /// When it came, ms since the start.
    pub(super) at_ms: u64,
    /// Transactions of this run in it.
    pub(super) own: u64,
    pub(super) gas_used: u64,
    /// The round in which validators agreed on it; 0 on other chains.
    pub(super) round: u32,
    /// Transactions that were acknowledged and not included, then.
    pub(super) backlog: u64,
}

/// Watches until everything that was acknowledged is in blocks, or no more comes.
pub(super) fn watch(
    node: &Client,
    work: &Work,
    sent: &Sent,
    began: Instant,
) -> Result<Vec<SeenBlock>> {
    let places = work.transactions.iter().enumerate();
    let places: HashMap<B256, usize> = places.map(|(index, tx)| (tx.hash, index)).collect();
    let mut blocks: Vec<SeenBlock> = Vec::new();
    let (mut head, mut included) = (node.number("eth_blockNumber")?, 0_u64);
    let mut last_news = Instant::now();
    loop {
        let latest = node.number("eth_blockNumber")?;
        let at_ms = elapsed_ms(began);
        while head < latest {
            head += 1;
            let block = node.call(
                "eth_getBlockByNumber",
                &json!([format!("{head:#x}"), false]),
            )?;
            let mut own = 0;
            for hash in block["transactions"].as_array().into_iter().flatten() {
                let hash: B256 = serde_json::from_value(hash.clone())?;
                if let Some(index) = places.get(&hash) {
                    sent.include(*index, at_ms);
                    own += 1;
                }
            }
            included += own;
            if own > 0 {
                last_news = Instant::now();
            }
            blocks.push(SeenBlock {
                at_ms,
                own,
                gas_used: number(&block["gasUsed"])?,
                round: round(&block),
                backlog: sent.acknowledged().saturating_sub(included),
            });
        }
        if sent.has_ended() && (included >= sent.acknowledged() || last_news.elapsed() > DRAIN) {
            return Ok(blocks);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn round(block: &Value) -> u32 {
    let extra: Bytes = serde_json::from_value(block["extraData"].clone()).unwrap_or_default();
    let protocols = [BftProtocol::Qbft, BftProtocol::Ibft2];
    let extra = protocols
        .iter()
        .find_map(|protocol| BftExtra::decode(*protocol, &extra).ok());
    extra.map_or(0, |extra| extra.round)
}
