//! `peers gossip`: transactions at a rate to several nodes, which spread them; blocks take them out again.
//!
//! Every sender sends to one node. At the end no block is built for a while, and all pools must hold the same transactions.

use super::Binaries;
use super::chain::ChainBlock;
use super::findings::Findings;
use super::node::{self, connect, fork_choice, new_payload};
use crate::accounts::{self, Account};
use crate::build::{self, BuildRequest};
use crate::genesis::genesis;
use crate::process::{ClientKind, P2pOptions, Process, StartOptions, memory};
use clap::Args;
use eyre::{Result, ensure};
use niwaki_primitives::{Address, Bytes};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct GossipOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Transactions per second, over all nodes.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    rate: u64,
    /// How long to send, seconds.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// Nodes, all peers of each other.
    #[arg(long, value_name = "N", default_value_t = 5)]
    nodes: usize,
    /// Accounts that send.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    senders: u64,
    /// Seconds from one block to the next; each is built by the next node.
    #[arg(long, value_name = "N", default_value_t = 2)]
    slot_s: u64,
    /// The nodes' --memory-budget.
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    memory_budget: String,
    /// Largest allowed resident memory at the end, in percent of that at half time.
    #[arg(long, value_name = "PERCENT", default_value_t = 125)]
    memory_percent: u64,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const GAS_LIMIT: u64 = 500_000_000;
/// Time of sending without blocks at the end, so that the pools that are compared are not empty.
const LAST: Duration = Duration::from_secs(2);
/// How long the last transactions may take to all pools.
const SETTLE: Duration = Duration::from_secs(20);
/// Sending goes in steps of this length.
const STEP: Duration = Duration::from_millis(100);

struct Gossip<'a> {
    options: &'a GossipOptions,
    nodes: Vec<Process>,
    accounts: Vec<Account>,
    next: usize,
    sent: u64,
    refused: u64,
    slot: u64,
    head: String,
    included: u64,
    took: Vec<Duration>,
}

pub(crate) fn run(options: &GossipOptions) -> Result<()> {
    ensure!(options.nodes >= 2, "--nodes must be 2 or more");
    let folder = tempfile::tempdir()?;
    let accounts = accounts::make(options.senders);
    let file = folder.path().join("genesis.json");
    std::fs::write(&file, genesis(&accounts, GAS_LIMIT))?;
    let target = GAS_LIMIT.to_string();
    let flags = [
        "--target-gas-limit",
        &target,
        "--tx-pool-no-local-priority",
        "--tx-pool-max-prioritized",
        "20000",
    ];
    let mut nodes: Vec<Process> = Vec::new();
    for index in 0..options.nodes {
        let start = StartOptions {
            memory_budget: &options.memory_budget,
            flags: &flags,
            p2p: Some(P2pOptions::default()),
            ..StartOptions::genesis(&file)
        };
        let data = folder.path().join(index.to_string());
        let node = node::start(ClientKind::Niwaki, "node", &options.binaries, &data, start)?;
        for other in &nodes {
            connect(&node.client, &other.client)?;
        }
        nodes.push(node);
    }
    let head = build::text(&nodes[0].client.block("0x0")?["hash"])?;
    let mut gossip = Gossip {
        options,
        nodes,
        accounts,
        next: 0,
        sent: 0,
        refused: 0,
        slot: 0,
        head,
        included: 0,
        took: Vec::new(),
    };
    gossip.play()?.finish("gossip", options.json.as_deref())
}

impl Gossip<'_> {
    fn play(&mut self) -> Result<Findings> {
        // A node may take no transactions of peers before it has a head of its consensus client.
        self.block()?;
        let cpu_before = self.cpu()?;
        let length = Duration::from_secs(self.options.seconds);
        let slot = Duration::from_secs(self.options.slot_s.max(1));
        let (began, mut half, mut next) = (Instant::now(), None, slot);
        while began.elapsed() < length {
            self.send_until(began, next)?;
            next += slot;
            self.block()?;
            if half.is_none() && began.elapsed() > length / 2 {
                half = Some(self.memory()?);
            }
            if self.slot.is_multiple_of(30) {
                let seconds = began.elapsed().as_secs();
                eprintln!(
                    "{seconds} s: {} sent, {} in blocks",
                    self.sent, self.included
                );
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let cpu = self.cpu()? - cpu_before;
        let (half, end) = (half.unwrap_or_default(), self.memory()?);
        let elapsed = began.elapsed();
        self.send_until(began, elapsed + LAST)?;
        let (is_equal, pending) = self.compare_pools()?;
        let mut findings = Findings::default();
        findings.text("node", node::version(&self.nodes[0].client)?);
        findings.count("nodes", self.nodes.len() as u64);
        findings.count("transactions sent", self.sent);
        findings.count("transactions refused", self.refused);
        findings.count("transactions in blocks", self.included);
        findings.figure(
            "transactions sent per second",
            self.sent as f64 / seconds,
            "",
        );
        let each = self.sent.max(1) as f64 * self.nodes.len() as f64;
        findings.figure(
            "CPU per transaction and node, blocks too",
            cpu.as_secs_f64() * 1e6 / each,
            "us",
        );
        findings.times(
            "newPayload of the nodes that did not build",
            std::mem::take(&mut self.took),
        );
        findings.count("resident memory at half time, the largest, MiB", half >> 20);
        findings.count("resident memory at the end, the largest, MiB", end >> 20);
        findings.count("transactions in each pool at the end", pending);
        findings.claim(
            "every pool holds the same transactions",
            is_equal && pending > 0,
        );
        findings.claim(
            "at most one in 100 transactions is refused",
            self.refused * 100 <= self.sent,
        );
        let percent = self.options.memory_percent;
        findings.claim(
            format!("memory at the end is at most {percent} % of that at half time"),
            end * 100 <= half * percent,
        );
        Ok(findings)
    }

    /// Sends until so long after the beginning. What was not sent while a block was made is sent now: the rate is that of all time.
    fn send_until(&mut self, began: Instant, end: Duration) -> Result<()> {
        while began.elapsed() < end {
            let elapsed_ms = u64::try_from(began.elapsed().as_millis())?;
            let due = elapsed_ms * self.options.rate / 1000;
            let behind = due.saturating_sub(self.sent);
            if behind == 0 {
                std::thread::sleep(STEP / 10);
                continue;
            }
            self.send(usize::try_from(behind)?.min(500))?;
            std::thread::sleep(STEP / 2);
        }
        Ok(())
    }

    /// Sends transactions of the next accounts, each to the node of its sender.
    fn send(&mut self, count: usize) -> Result<()> {
        let mut batches: Vec<(Vec<Bytes>, Vec<usize>)> = vec![Default::default(); self.nodes.len()];
        for _ in 0..count {
            let index = self.next % self.accounts.len();
            self.next += 1;
            let account = &mut self.accounts[index];
            let to = Address::left_padding_from(&self.next.to_be_bytes());
            let raw = account.call(account.nonce, to, Bytes::new(), 21_000, 2_000_000_000);
            account.nonce += 1;
            let (batch, senders) = &mut batches[index % self.nodes.len()];
            batch.push(raw);
            senders.push(index);
        }
        for (node, (batch, senders)) in self.nodes.iter().zip(batches) {
            if batch.is_empty() {
                continue;
            }
            let errors = node.client.send_batch(&batch)?;
            for (error, sender) in errors.into_iter().zip(senders) {
                self.sent += 1;
                if error.is_some() {
                    self.refused += 1;
                    self.accounts[sender].nonce -= 1;
                }
            }
        }
        Ok(())
    }

    /// The next node builds a block, all get it.
    fn block(&mut self) -> Result<()> {
        self.slot += 1;
        let builder = usize::try_from(self.slot)? % self.nodes.len();
        let request = BuildRequest {
            fork_choice: node::choice(&self.head),
            slot: self.slot,
            builder,
            is_amsterdam: false,
            time: Duration::from_millis(100),
        };
        let (built, _) = build::build(&self.nodes[builder].client, &request)?;
        self.included += built.transactions() as u64;
        let block = ChainBlock::from(built);
        for (index, node) in self.nodes.iter().enumerate() {
            let began = Instant::now();
            let status = new_payload(&node.client, &block)?;
            if index != builder {
                self.took.push(began.elapsed());
            }
            let head = fork_choice(&node.client, &block)?;
            ensure!(
                status == "VALID" && head == "VALID",
                "node {index}: {status}, {head}"
            );
        }
        self.head = block.hash;
        Ok(())
    }

    fn cpu(&self) -> Result<Duration> {
        self.nodes.iter().map(Process::cpu_time).sum()
    }

    /// The largest resident memory of a node.
    fn memory(&self) -> Result<u64> {
        let all = self.nodes.iter().map(|node| memory(node.id(), "VmRSS:"));
        Ok(all
            .collect::<Result<Vec<u64>>>()?
            .into_iter()
            .max()
            .unwrap_or_default())
    }

    /// Whether all pools become equal, and how many transactions the first one holds then.
    fn compare_pools(&self) -> Result<(bool, u64)> {
        let began = Instant::now();
        loop {
            let pools: Vec<BTreeSet<String>> =
                self.nodes.iter().map(pool).collect::<Result<_>>()?;
            let is_equal = pools.windows(2).all(|pair| pair[0] == pair[1]);
            if is_equal || began.elapsed() > SETTLE {
                let sizes: Vec<usize> = pools.iter().map(BTreeSet::len).collect();
                eprintln!("pools: {sizes:?}");
                return Ok((is_equal, sizes[0] as u64));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// The hashes of a pool.
fn pool(node: &Process) -> Result<BTreeSet<String>> {
    let content = node.client.call("txpool_content", json!([]))?;
    let mut hashes = BTreeSet::new();
    for part in ["pending", "queued"] {
        let senders = content[part].as_object().into_iter().flatten();
        let all = senders.filter_map(|(_, nonces)| nonces.as_object());
        let all = all.flatten().filter_map(|(_, tx)| tx["hash"].as_str());
        hashes.extend(all.map(str::to_owned));
    }
    Ok(hashes)
}
