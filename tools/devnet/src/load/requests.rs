//! The requests of the load, by method and weight.

use crate::client::Client;
use eyre::Result;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Each method's share of the traffic.
const WEIGHTS: [(&str, u32); 9] = [
    ("eth_call", 2000),
    ("eth_getTransactionReceipt", 600),
    ("eth_getBalance", 550),
    ("eth_getBlockByNumber", 400),
    ("eth_getTransactionCount", 400),
    ("eth_blockNumber", 350),
    ("eth_getLogs", 250),
    ("eth_getTransactionByHash", 250),
    ("eth_getCode", 100),
];

/// Methods that are measured separately and not part of the mix.
const NOT_IN_MIX: [&str; 2] = ["eth_getProof", "eth_chainId"];

/// Different requests of each method.
const PER_METHOD: usize = 200;

/// Requests of each method.
pub(crate) struct Requests(BTreeMap<&'static str, Vec<String>>);

impl Requests {
    /// Draws requests about the head of `client` and the `recent` blocks below it.
    pub(crate) fn of(client: &Client, recent: u64) -> Result<Self> {
        let head = client.block_number()?;
        let (mut blocks, mut transactions) = (Vec::new(), Vec::new());
        for at in head.saturating_sub(recent)..=head {
            let block = client.call("eth_getBlockByNumber", json!([format!("{at:#x}"), true]))?;
            let all = block["transactions"].as_array().into_iter().flatten();
            transactions.extend(all.cloned());
            blocks.push(block);
        }
        let mut random = SmallRng::seed_from_u64(1);
        let methods = WEIGHTS.iter().map(|(method, _)| *method).chain(NOT_IN_MIX);
        let requests = methods.map(|method| {
            let bodies = (0..PER_METHOD).map(|id| {
                let params = params(method, &blocks, &transactions, &mut random);
                json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
                    .to_string()
            });
            (method, bodies.collect())
        });
        Ok(Self(requests.collect()))
    }

    /// `count` requests of all methods by their weights, always the same ones.
    pub(crate) fn mix(&self, count: usize) -> Vec<String> {
        let mut random = SmallRng::seed_from_u64(2);
        let draw = |_| {
            let (method, _) = WEIGHTS
                .choose_weighted(&mut random, |(_, weight)| *weight)
                .expect("weights above zero");
            let bodies = &self.0[method];
            bodies[random.random_range(0..bodies.len())].clone()
        };
        (0..count).map(draw).collect()
    }

    pub(crate) fn by_method(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.0.iter().map(|(method, bodies)| (*method, &bodies[..]))
    }
}

fn params(method: &str, blocks: &[Value], transactions: &[Value], random: &mut SmallRng) -> Value {
    let transaction = transactions.choose(random).unwrap_or(&Value::Null);
    let calls: Vec<&Value> = transactions
        .iter()
        .filter(|tx| tx["to"].is_string())
        .collect();
    let call = calls.choose(random).copied().unwrap_or(&Value::Null);
    let block = blocks.choose(random).unwrap_or(&Value::Null);
    let account = match transaction["to"].is_string() && random.random() {
        true => &transaction["to"],
        false => &transaction["from"],
    };
    match method {
        "eth_call" => json!([
            { "from": call["from"], "to": call["to"], "gas": call["gas"], "data": call["input"] },
            "latest"
        ]),
        "eth_getTransactionReceipt" | "eth_getTransactionByHash" => json!([transaction["hash"]]),
        "eth_getBalance" | "eth_getTransactionCount" | "eth_getCode" => json!([account, "latest"]),
        "eth_getBlockByNumber" => json!([block["number"], random.random::<bool>()]),
        "eth_getLogs" => json!([{ "fromBlock": block["number"], "toBlock": block["number"] }]),
        "eth_getProof" => json!([account, ["0x0"], "latest"]),
        _ => json!([]),
    }
}
