//! A node of a scenario: a process that takes part in the network of peers, and what its consensus client tells it.

use super::Binaries;
use super::chain::ChainBlock;
use crate::client::Client;
use crate::process::{ClientKind, P2pOptions, Process, StartOptions};
use eyre::{Result, bail, ensure, eyre};
use niwaki_primitives::B256;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a condition is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts a node with peers, with its data in `folder`.
pub(super) fn start(
    kind: ClientKind,
    name: &'static str,
    binaries: &Binaries,
    folder: &Path,
    options: StartOptions<'_>,
) -> Result<Process> {
    let p2p = Some(options.p2p.unwrap_or_default());
    let options = StartOptions { p2p, ..options };
    let process = Process::start(kind, name, binaries.of(kind)?, folder.to_owned(), options)?;
    // The port for requests is open before the one for peers.
    wait_until(
        "the node listens for peers",
        Duration::from_secs(20),
        || Ok(process.client.enode().is_ok()),
    )?;
    Ok(process)
}

/// Options of a node that is connected by hand.
pub(super) fn without_discovery(genesis: &Path) -> StartOptions<'_> {
    StartOptions {
        p2p: Some(P2pOptions::default()),
        ..StartOptions::genesis(genesis)
    }
}

/// The same of a node that, with `has_snap`, downloads the state of a late block.
pub(super) fn syncing(genesis: &Path, has_snap: bool) -> StartOptions<'_> {
    StartOptions {
        p2p: Some(P2pOptions {
            has_snap,
            ..P2pOptions::default()
        }),
        ..StartOptions::genesis(genesis)
    }
}

/// Whether all blocks of a niwaki have come that are below the state it began with.
pub(super) fn has_history(node: &Process) -> Result<bool> {
    let status = node.client.call("niwaki_syncStatus", json!([]))?;
    Ok(status["historyComplete"] == true)
}

/// Waits until `is_so`. Returns for how long.
///
/// # Errors
/// If it takes longer than `timeout`, or `is_so` fails.
pub(super) fn wait_until(
    what: &str,
    timeout: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let began = Instant::now();
    while !is_so()? {
        ensure!(began.elapsed() < timeout, "not within {timeout:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(began.elapsed())
}

/// Has the first node dial the second, and waits until both count each other.
pub(super) fn connect(first: &Client, second: &Client) -> Result<Duration> {
    connect_at(first, second, &second.enode()?)
}

/// The same, where the first one reaches the second by another URL.
pub(super) fn connect_at(first: &Client, second: &Client, enode: &str) -> Result<Duration> {
    let before = [first.peer_count()?, second.peer_count()?];
    first.add_peer(enode)?;
    wait_until("the nodes are peers", Duration::from_secs(60), || {
        Ok(first.peer_count()? > before[0] && second.peer_count()? > before[1])
    })
}

/// What a client is and says of itself.
pub(super) fn version(client: &Client) -> Result<String> {
    let version = client.call("web3_clientVersion", json!([]))?;
    Ok(version.as_str().unwrap_or_default().to_owned())
}

/// Sends a block. Returns the status.
pub(super) fn new_payload(client: &Client, block: &ChainBlock) -> Result<String> {
    let (response, _) = client.call_engine(&block.method, block.params.clone())?;
    let status = response["status"].as_str().unwrap_or_default();
    match status {
        "VALID" | "SYNCING" | "ACCEPTED" => Ok(status.to_owned()),
        _ => bail!("{} on block {}: {response}", client.name, block.number),
    }
}

/// Makes a block the head. Returns the status.
pub(super) fn fork_choice(client: &Client, block: &ChainBlock) -> Result<String> {
    let params = json!([block.fork_choice(), null]);
    let response = client.engine_response(block.fork_choice_method(), params)?;
    let status = response["result"]["payloadStatus"]["status"].as_str();
    match status.unwrap_or_default() {
        status @ ("VALID" | "SYNCING") => Ok(status.to_owned()),
        // What geth answers while the sync to an earlier head ends.
        _ if response["error"]["message"] == "beacon syncer reorging" => Ok("SYNCING".to_owned()),
        _ => bail!("{} on the head {}: {response}", client.name, block.number),
    }
}

/// Gives a node a chain block by block, and makes its last block the head.
pub(super) fn give(client: &Client, blocks: &[ChainBlock]) -> Result<()> {
    for block in blocks {
        let status = new_payload(client, block)?;
        ensure!(
            status == "VALID",
            "{} on block {}: {status}",
            client.name,
            block.number
        );
        let is_last = Some(block.number) == blocks.last().map(|last| last.number);
        if is_last || block.number.is_multiple_of(32) {
            let status = fork_choice(client, block)?;
            ensure!(
                status == "VALID",
                "{} on the head {}: {status}",
                client.name,
                block.number
            );
        }
    }
    Ok(())
}

/// A chain that grows while another node syncs: its last blocks come one by one.
pub(super) struct GrowingChain<'c> {
    late: std::slice::Iter<'c, ChainBlock>,
    head: &'c ChainBlock,
}

impl<'c> GrowingChain<'c> {
    /// Begins at the last of the `early` blocks.
    pub(super) fn new(early: &'c [ChainBlock], late: &'c [ChainBlock]) -> Result<Self> {
        let head = early.last();
        let head = head.ok_or_else(|| eyre!("all {} blocks of the chain are late", late.len()))?;
        Ok(Self {
            late: late.iter(),
            head,
        })
    }

    /// Gives the node that has the chain its next block, if one is left. Returns the head.
    pub(super) fn grow(&mut self, source: &Client) -> Result<&'c ChainBlock> {
        if let Some(next) = self.late.next() {
            give(source, std::slice::from_ref(next))?;
            self.head = next;
        }
        Ok(self.head)
    }

    /// Whether no block is left.
    pub(super) fn is_whole(&self) -> bool {
        self.late.len() == 0
    }
}

/// The fork choice with this head and no finalized block.
pub(super) fn choice(hash: &str) -> Value {
    json!({
        "headBlockHash": hash, "safeBlockHash": B256::ZERO, "finalizedBlockHash": B256::ZERO,
    })
}

/// Checks that both have the same block at `tag`, and the same receipts of it.
pub(super) fn same_block(first: &Client, second: &Client, tag: &str) -> Result<bool> {
    let (a, b) = (first.block(tag)?, second.block(tag)?);
    let receipts = |client: &Client| client.call("eth_getBlockReceipts", json!([a["hash"]]));
    let roots = ["hash", "stateRoot"]
        .iter()
        .all(|field| a[*field] == b[*field] && !a[*field].is_null());
    Ok(roots && hashes_of(&receipts(first)?) == hashes_of(&receipts(second)?))
}

/// Transaction, status and gas of each receipt: fields that all clients write in the same way.
fn hashes_of(receipts: &Value) -> Vec<[Value; 3]> {
    let receipts = receipts.as_array().into_iter().flatten();
    let fields = ["transactionHash", "status", "cumulativeGasUsed"];
    receipts
        .map(|receipt| fields.map(|field| receipt[field].clone()))
        .collect()
}
