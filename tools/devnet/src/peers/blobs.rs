//! `peers blobs`: blob transactions among nodes that take the blobs whole and nodes that sample them.
//!
//! ```text
//! source -- provider      take all blobs whole: their consensus client keeps all columns
//!    \\    /  \\
//!    sampler  geth         their consensus client keeps eight columns
//! ```
//!
//! All are peers of each other. The transactions are sent to the source.

use super::Binaries;
use super::chain::ChainBlock;
use super::findings::Findings;
use super::node::{self, connect, new_payload, wait_until, without_discovery};
use crate::accounts::{self, Account, BlobSidecars};
use crate::build::{self, BuildRequest};
use crate::client::Client;
use crate::genesis::{GAS_LIMIT, genesis};
use crate::process::{ClientKind, Process, StartOptions, new_folder};
use clap::Args;
use eyre::{Result, ensure};
use niwaki_primitives::{B256, hex};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct BlobOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Transactions, of one to three blobs each. geth 1.17 asks a peer for 256 columns, then for 9 a second: 60 are too many for it.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u8).range(1..=64))]
    transactions: u8,
    /// How long a transaction may take to all pools, seconds.
    #[arg(long, value_name = "N", default_value_t = 30)]
    timeout_s: u64,
    /// Folder for the nodes' data and logs, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The columns that the consensus clients of the samplers keep.
const CUSTODY: [usize; 8] = [0, 3, 17, 63, 64, 90, 101, 127];
const SOURCE: usize = 0;
const SAMPLER: usize = 2;

/// A mask as the Engine API writes it.
fn mask(columns: &[usize]) -> String {
    let bits = columns
        .iter()
        .fold(0_u128, |bits, column| bits | 1 << column);
    format!("0x{}", hex::encode(bits.to_le_bytes()))
}

/// The cells that a client has of the kept columns of some blobs, with their proofs.
fn cells(client: &Client, hashes: &Value) -> Result<(Value, Duration)> {
    client.call_engine("engine_getBlobsV4", json!([hashes, mask(&CUSTODY)]))
}

/// What messages of peers have brought to a niwaki, MiB, not compressed.
fn came(client: &Client) -> Result<f64> {
    fn sum(value: &Value) -> f64 {
        match value {
            Value::Object(inner) => inner.values().map(sum).sum(),
            other => other.as_f64().unwrap_or_default(),
        }
    }
    let metrics = client.call("debug_metrics", json!([]))?;
    let bytes = &metrics["network"]["p2p_bytes_inbound_total"];
    ensure!(
        bytes.is_object(),
        "{} counts no bytes of peers",
        client.name
    );
    Ok(sum(bytes) / f64::from(1 << 20))
}

/// How many transactions a client could put into a block.
fn pending(client: &Client) -> Result<u64> {
    let status = client.call("txpool_status", json!([]))?;
    crate::load::number(&status["pending"])
}

/// Whether none is missing.
fn is_complete(cells: &Value) -> bool {
    let all = cells.as_array().into_iter().flatten();
    let count = |blob: &Value| {
        let cells = blob["blob_cells"].as_array().into_iter().flatten();
        cells.filter(|cell| cell.is_string()).count()
    };
    let mut counts = all.map(count);
    cells.is_array() && counts.all(|count| count == CUSTODY.len())
}

struct Blobs<'a> {
    options: &'a BlobOptions,
    nodes: Vec<Process>,
    accounts: Vec<Account>,
    head: String,
    slot: u64,
}

pub(crate) fn run(options: &BlobOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let accounts = accounts::make(options.transactions.into());
    let file = folder.join("genesis.json");
    std::fs::write(&file, genesis(&accounts, GAS_LIMIT))?;
    let mut kinds = vec![ClientKind::Niwaki; 3];
    kinds.extend(options.binaries.geth.is_some().then_some(ClientKind::Geth));
    let names = ["source", "provider", "sampler", "geth"];
    let mut nodes: Vec<Process> = Vec::new();
    for (kind, name) in kinds.into_iter().zip(names) {
        let data = folder.join(name);
        let start = StartOptions {
            flags: &["--metrics-enabled", "--metrics-port=0"],
            ..without_discovery(&file)
        };
        let node = node::start(kind, name, &options.binaries, &data, start)?;
        for other in &nodes {
            connect(&node.client, &other.client)?;
        }
        nodes.push(node);
    }
    let head = build::text(&nodes[SOURCE].client.block("0x0")?["hash"])?;
    let mut blobs = Blobs {
        options,
        nodes,
        accounts,
        head,
        slot: 0,
    };
    blobs.play()?.finish("blobs", options.json.as_deref())
}

impl Blobs<'_> {
    fn play(&mut self) -> Result<Findings> {
        // A node may take no transactions of peers before it has a head of its consensus client.
        self.block(SOURCE)?;
        let sent = self.send()?;
        let mut findings = Findings::default();
        for node in &self.nodes {
            findings.text(node.client.name, node::version(&node.client)?);
        }
        findings.count("transactions", sent.len() as u64);
        let mut expected = Vec::new();
        for hash in sent {
            let source = &self.nodes[SOURCE].client;
            let tx = source.call("eth_getTransactionByHash", json!([hash]))?;
            let hashes = tx["blobVersionedHashes"].clone();
            let (cells, _) = cells(source, &hashes)?;
            ensure!(is_complete(&cells), "the source lacks cells of {hash}");
            expected.push((hashes, cells));
        }
        for node in &self.nodes[1..] {
            match node.kind {
                ClientKind::Niwaki => self.compare_cells(node, &expected, &mut findings)?,
                _ => self.compare_count(node, expected.len() as u64, &mut findings)?,
            }
        }
        self.drain(expected.len(), &mut findings)?;
        Ok(findings)
    }

    /// Sends one transaction of each account to the source.
    fn send(&mut self) -> Result<Vec<B256>> {
        let sidecars = BlobSidecars::new(self.options.transactions)?;
        let mut rng = SmallRng::seed_from_u64(1);
        let mut sent = Vec::new();
        for (index, account) in self.accounts.iter_mut().enumerate() {
            let blob = accounts::KINDS.iter().position(|kind| *kind == "blob");
            let own = sidecars.only(index);
            sent.push(account.send(index, blob.unwrap_or_default(), &own, &mut rng));
        }
        for part in sent.chunks(8) {
            let errors = self.nodes[SOURCE]
                .client
                .send_batch(&super::chain::raw(part))?;
            let error = errors.into_iter().flatten().next();
            ensure!(error.is_none(), "a transaction is refused: {error:?}");
        }
        Ok(sent.into_iter().map(|sent| sent.hash).collect())
    }

    /// The transactions must come. geth 1.17.8 finds none by its hash of which it lacks the blobs, and answers with cells of the best few.
    fn compare_count(&self, node: &Process, count: u64, findings: &mut Findings) -> Result<()> {
        let name = node.client.name;
        let timeout = Duration::from_secs(self.options.timeout_s);
        let came = wait_until("the transactions are here", timeout, || {
            Ok(pending(&node.client)? == count)
        });
        findings.count(
            format!("transactions in the pool of {name}"),
            pending(&node.client)?,
        );
        findings.claim(format!("{name} has all transactions"), came.is_ok());
        Ok(())
    }

    /// The kept columns must come, and be those of the source; all blobs to the provider, and few to the sampler.
    fn compare_cells(
        &self,
        node: &Process,
        expected: &[(Value, Value)],
        findings: &mut Findings,
    ) -> Result<()> {
        let (client, name) = (&node.client, node.client.name);
        let count = expected.len() as u64;
        let equal = || -> Result<u64> {
            let mut equal = 0;
            for (hashes, expected) in expected {
                equal += u64::from(cells(client, hashes)?.0 == *expected);
            }
            Ok(equal)
        };
        let timeout = Duration::from_secs(self.options.timeout_s);
        let took = wait_until("the cells are here", timeout, || Ok(equal()? == count));
        if let Ok(took) = took {
            let seconds = took.as_secs_f64();
            findings.figure(format!("all cells are at {name} after"), seconds, "s");
        }
        let (mut whole, mut times) = (0, Vec::new());
        for (hashes, _) in expected {
            times.push(cells(client, hashes)?.1);
            let (blobs, _) = client.call_engine("engine_getBlobsV2", json!([hashes]))?;
            whole += u64::from(!blobs.is_null());
        }
        findings.times(&format!("engine_getBlobsV4 of {name}"), times);
        let bytes = came(client)?;
        findings.figure(format!("came to {name} from its peers"), bytes, "MiB");
        let equal = equal()?;
        findings.count(format!("transactions whose kept columns {name} has"), equal);
        findings.count(format!("transactions whose blobs {name} has"), whole);
        findings.claim(
            format!("{name} has the kept columns of all"),
            equal == count,
        );
        match name {
            "provider" => findings.claim("provider has the blobs of all", whole == count),
            _ => findings.claim(
                format!("{name} has the blobs of half at most"),
                2 * whole <= count,
            ),
        }
        Ok(())
    }

    /// The sampler builds a block of what it has whole, then the source takes out the others.
    fn drain(&mut self, count: usize, findings: &mut Findings) -> Result<()> {
        let sampled = self.block(SAMPLER)?;
        findings.count("blobs in the sampler's block", sampled as u64);
        let mut slots = 0;
        while slots < count && pending(&self.nodes[SOURCE].client)? > 0 {
            self.block(SOURCE)?;
            slots += 1;
        }
        findings.claim(
            "in the end every transaction is in a block",
            pending(&self.nodes[SOURCE].client)? == 0,
        );
        Ok(())
    }

    /// A node builds a block, all get it, and what their consensus client keeps. Returns its blobs.
    fn block(&mut self, builder: usize) -> Result<usize> {
        self.slot += 1;
        let request = BuildRequest {
            fork_choice: node::choice(&self.head),
            slot: self.slot,
            builder,
            is_amsterdam: false,
            time: Duration::from_millis(300),
        };
        let (built, _) = build::build(&self.nodes[builder].client, &request)?;
        let blobs = built.blobs();
        let block = ChainBlock::from(built);
        for (index, node) in self.nodes.iter().enumerate() {
            let status = new_payload(&node.client, &block)?;
            let custody = (index >= SAMPLER).then(|| mask(&CUSTODY));
            let params = json!([block.fork_choice(), null, custody]);
            let (response, _) = node
                .client
                .call_engine("engine_forkchoiceUpdatedV4", params)?;
            let head = &response["payloadStatus"]["status"];
            ensure!(
                status == "VALID" && *head == "VALID",
                "{}: {status}, {head}",
                node.client.name
            );
        }
        self.head = block.hash;
        Ok(blobs)
    }
}
