//! `peers follow`: two nodes on one chain that hear of each block from each other.
//!
//! ```text
//! builder   build, newPayload, forkchoiceUpdated
//! other                        forkchoiceUpdated alone, again until VALID: it has to fetch the block
//! ```
//!
//! The nodes build in turn. Transactions of all types are sent to one node each and must come to the other's pool; in the end all are
//! in the chain.

use super::Binaries;
use super::chain::{ChainBlock, TransactionSource};
use super::findings::Findings;
use super::node::{
    self, connect, fork_choice, new_payload, same_block, wait_until, without_discovery,
};
use crate::build::{self, BuildRequest};
use crate::client::Client;
use crate::process::{ClientKind, Process, new_folder};
use clap::Args;
use eyre::{Result, WrapErr, ensure};
use niwaki_primitives::B256;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct FollowOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// One node.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    first: ClientKind,
    /// The other node.
    #[arg(long, value_name = "CLIENT", default_value = "geth")]
    second: ClientKind,
    /// Slots to play.
    #[arg(long, value_name = "N", default_value_t = 500)]
    slots: u64,
    /// Least length of a slot, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 200)]
    slot_ms: u64,
    /// Transactions of each slot.
    #[arg(long, value_name = "N", default_value_t = 8)]
    transactions: usize,
    /// How long a block or a transaction may take to the other node, seconds.
    #[arg(long, value_name = "N", default_value_t = 15)]
    timeout_s: u64,
    /// Folder for the nodes' data and logs, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One slot in so many has blob transactions.
const BLOB_EVERY: u64 = 3;

/// Slots without new transactions at the end, in which the pools become empty.
const DRAIN_SLOTS: u64 = 6;

/// How long a blob transaction is waited for that geth may leave out.
const SAMPLED_WITHIN: Duration = Duration::from_secs(3);

/// A transaction, the node that does not have it yet, its kind, and since when.
type Waiting = (B256, usize, &'static str, Instant);

struct Follow<'a> {
    options: &'a FollowOptions,
    nodes: [Process; 2],
    source: TransactionSource,
    slot: u64,
    head: String,
    /// Which node each transaction was sent to, and its kind.
    sent: HashMap<B256, (usize, &'static str)>,
    /// From one pool to the other, by kind and by the node that it comes to.
    spread: BTreeMap<(&'static str, usize), Vec<Duration>>,
    lost: Vec<String>,
    /// Blob transactions that did not come to geth: it takes a part of them if fewer than two peers have all cells (EIP-8070).
    unsampled: u64,
    fetched: [Vec<Duration>; 2],
    /// Blocks by each node, and transactions in them that were sent to the other node.
    built: [u64; 2],
    from_other: [u64; 2],
}

pub(crate) fn run(options: &FollowOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let source = TransactionSource::new()?;
    let genesis = source.write_genesis(&folder)?;
    let start = |kind, name: &'static str| {
        let options_of = without_discovery(&genesis);
        node::start(
            kind,
            name,
            &options.binaries,
            &folder.join(name),
            options_of,
        )
    };
    let nodes = [
        start(options.first, "first")?,
        start(options.second, "second")?,
    ];
    let connected = connect(&nodes[0].client, &nodes[1].client)?;
    let head = build::text(&nodes[0].client.block("0x0")?["hash"])?;
    let mut follow = Follow {
        options,
        nodes,
        source,
        slot: 0,
        head,
        sent: HashMap::new(),
        spread: BTreeMap::new(),
        lost: Vec::new(),
        unsampled: 0,
        fetched: [Vec::new(), Vec::new()],
        built: [0; 2],
        from_other: [0; 2],
    };
    for slot in 1..=options.slots + DRAIN_SLOTS {
        let began = Instant::now();
        // A node that has no block but the genesis may not take transactions yet.
        if slot > 2 && slot <= options.slots {
            follow.spread_transactions(slot)?;
        }
        follow.play(slot).wrap_err_with(|| format!("slot {slot}"))?;
        if slot.is_multiple_of(50) {
            eprintln!("slot {slot}");
        }
        std::thread::sleep(Duration::from_millis(options.slot_ms).saturating_sub(began.elapsed()));
    }
    let mut findings = follow.findings()?;
    findings.figure("until they are peers", connected.as_secs_f64() * 1e3, "ms");
    findings.finish("follow", options.json.as_deref())
}

impl Follow<'_> {
    fn client(&self, index: usize) -> &Client {
        &self.nodes[index].client
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.options.timeout_s)
    }

    /// Sends transactions to one node each, and waits until the other one has them.
    fn spread_transactions(&mut self, slot: u64) -> Result<()> {
        let kind = |account: usize| match account {
            0..4 => Some(4),
            4..8 => slot.is_multiple_of(BLOB_EVERY).then_some(3),
            _ => Some([0, 1, 2, 5, 6][account % 5]),
        };
        let all = self.source.next(self.options.transactions, kind);
        let mut waiting: Vec<Waiting> = Vec::new();
        for (at, sent) in all.iter().enumerate() {
            let to = (at + usize::try_from(slot)?) % 2;
            let raw = std::slice::from_ref(&sent.raw);
            let error = self.client(to).send_batch(raw)?.pop().flatten();
            let was_refused = error.is_some();
            self.source.refused(sent, error)?;
            if !was_refused {
                self.sent.insert(sent.hash, (to, sent.kind));
                waiting.push((sent.hash, 1 - to, sent.kind, Instant::now()));
            }
        }
        let began = Instant::now();
        while !waiting.is_empty() {
            let mut still = Vec::new();
            for (hash, at, kind, since) in waiting {
                match self.has_transaction(at, &hash)? {
                    true => self
                        .spread
                        .entry((kind, at))
                        .or_default()
                        .push(since.elapsed()),
                    false => still.push((hash, at, kind, since)),
                }
            }
            let (late, in_time) = still
                .into_iter()
                .partition(|(_, at, kind, _)| began.elapsed() > self.patience(*at, kind));
            waiting = in_time;
            self.give_up(slot, late);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// How long a transaction may take to a node.
    fn patience(&self, index: usize, kind: &str) -> Duration {
        match self.may_leave_out(index, kind) {
            true => self.timeout().min(SAMPLED_WITHIN),
            false => self.timeout(),
        }
    }

    /// geth fetches a blob transaction from one peer alone with a probability of 15 % (EIP-8070); else it waits for a second one.
    fn may_leave_out(&self, index: usize, kind: &str) -> bool {
        kind == "blob" && self.nodes[index].kind == ClientKind::Geth
    }

    fn give_up(&mut self, slot: u64, late: Vec<Waiting>) {
        for (hash, at, kind, _) in late {
            if self.may_leave_out(at, kind) {
                self.unsampled += 1;
                continue;
            }
            let name = self.nodes[at].client.name;
            let text = format!("slot {slot}: {kind} {hash} does not come to the {name} node");
            eprintln!("{text}");
            self.lost.push(text);
        }
    }

    fn has_transaction(&self, index: usize, hash: &B256) -> Result<bool> {
        let found = self
            .client(index)
            .call("eth_getTransactionByHash", json!([hash]))?;
        Ok(!found.is_null())
    }

    /// One node builds; the other one gets the hash alone.
    fn play(&mut self, slot: u64) -> Result<()> {
        self.slot = slot;
        let builder = usize::try_from(slot % 2)?;
        let request = BuildRequest {
            fork_choice: node::choice(&self.head),
            slot,
            builder,
            is_amsterdam: false,
            time: Duration::from_millis(50),
        };
        let (built, _) = build::build(self.client(builder), &request)?;
        self.built[builder] += 1;
        let block = ChainBlock {
            number: built.number,
            hash: built.hash.clone(),
            method: built.new_payload_method().into(),
            params: built.params,
        };
        let status = new_payload(self.client(builder), &block)?;
        ensure!(status == "VALID", "the builder says {status}");
        let status = fork_choice(self.client(builder), &block)?;
        ensure!(status == "VALID", "the builder says {status} to the head");
        let other = self.client(1 - builder);
        let took = wait_until("the other node has the block", self.timeout(), || {
            Ok(fork_choice(other, &block)? == "VALID")
        })?;
        self.fetched[1 - builder].push(took);
        self.head = built.hash;
        let included = self.client(builder).block("latest")?;
        let hashes = included["transactions"].as_array().into_iter().flatten();
        let hashes = hashes.filter_map(|hash| hash.as_str()?.parse::<B256>().ok());
        let foreign =
            hashes.filter(|hash| self.sent.get(hash).is_some_and(|(to, _)| *to != builder));
        self.from_other[builder] += foreign.count() as u64;
        Ok(())
    }

    fn findings(self) -> Result<Findings> {
        let mut findings = Findings::default();
        let [first, second] = [self.client(0), self.client(1)];
        for client in [first, second] {
            findings.text(client.name, node::version(client)?);
        }
        let head = first.block_number()?;
        findings.count("blocks", head);
        findings.count("transactions sent", self.sent.len() as u64);
        let mut missing = 0;
        for hash in self.sent.keys() {
            let receipt = first.call("eth_getTransactionReceipt", json!([hash]))?;
            missing += u64::from(receipt.is_null());
        }
        findings.count("transactions in no block", missing);
        for (index, client) in [first, second].into_iter().enumerate() {
            let name = client.name;
            findings.times(
                &format!("a block to the {name} node"),
                self.fetched[index].clone(),
            );
            findings.count(format!("blocks of the {name} node"), self.built[index]);
            let what = format!("in blocks of the {name} node, sent to the other");
            findings.count(&what, self.from_other[index]);
            findings.claim(format!("{what}: some"), self.from_other[index] > 0);
        }
        let kinds: BTreeSet<&str> = self.spread.keys().map(|(kind, _)| *kind).collect();
        for ((kind, at), times) in &self.spread {
            let name = self.client(*at).name;
            let what = format!("{kind} transaction to the {name} node's pool");
            findings.times(&what, times.clone());
        }
        let mut same = true;
        for number in 0..=head {
            same &= same_block(first, second, &format!("{number:#x}"))?;
        }
        let slots = self.options.slots + DRAIN_SLOTS;
        findings.claim("every slot has its block", head == slots);
        findings.claim("all blocks and receipts are equal", same);
        findings.count(
            "blob transactions that geth left out (EIP-8070)",
            self.unsampled,
        );
        let least = if self.unsampled > 0 { 6 } else { 7 };
        findings.claim("transactions of all 7 kinds spread", kinds.len() >= least);
        findings.claim(
            "each transaction comes to the other pool",
            self.lost.is_empty(),
        );
        findings.claim("each transaction is in a block", missing == 0);
        Ok(findings)
    }
}
