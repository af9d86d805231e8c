//! `peers idle`: a node with three peers that have nothing to say and say it often. What a day of idling brings, in minutes: its memory
//! must stay flat.

use super::Binaries;
use super::chain::TransactionSource;
use super::findings::Findings;
use super::node::{self, without_discovery};
use super::raw_peer::{
    ANNOUNCEMENT, BLOCK_RANGE, PING, PONG, RawPeer, TRANSACTIONS, Target, VERSION, read,
};
use crate::process::{ClientKind, memory, new_folder};
use clap::Args;
use eyre::{Result, ensure, eyre};
use niwaki_network::wire::{Announcement, BlockId, BlockRange, Request, RequestKind};
use niwaki_primitives::B256;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[derive(Args, Debug)]
pub(crate) struct IdleOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Messages without content that the peers send in all.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u64,
    /// Largest growth of the resident memory from the first tenth of the messages to the end, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 4)]
    growth_mib: u64,
    /// Folder for the node's data and log, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const PEERS: u64 = 3;
const PARTS: u64 = 10;
/// The node reads 50 requests and updates of a peer in a second, and one ping: of so many messages one is of these.
const METERED_EVERY: u64 = 10;

pub(crate) fn run(options: &IdleOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let genesis = TransactionSource::new()?.write_genesis(&folder)?;
    let start = without_discovery(&genesis);
    let node = node::start(
        ClientKind::Niwaki,
        "node",
        &options.binaries,
        &folder.join("node"),
        start,
    )?;
    let target = Target::of(&node.client.enode()?)?;
    let runtime = Runtime::new()?;
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        peers.push(IdlePeer::start(&runtime, target)?);
    }
    let mut findings = Findings::default();
    let mut resident = Vec::new();
    let each = options.events / PARTS / PEERS;
    for part in 1..=PARTS {
        for peer in &peers {
            peer.order(each)?;
        }
        for peer in &mut peers {
            peer.wait()?;
        }
        let bytes = memory(node.id(), "VmRSS:")?;
        findings.count(
            format!("resident memory after part {part} of {PARTS}, KiB"),
            bytes >> 10,
        );
        resident.push(bytes);
    }
    let count = node.client.peer_count()?;
    findings.count("messages", each * PARTS * PEERS);
    findings.figure("CPU", node.cpu_time()?.as_secs_f64(), "s");
    findings.claim(
        format!("all {PEERS} peers are there at the end"),
        count == PEERS,
    );
    let (first, last) = (resident[0], resident[resident.len() - 1]);
    findings.claim(
        format!("at most {} MiB more at the end", options.growth_mib),
        last.saturating_sub(first) <= options.growth_mib << 20,
    );
    findings.claim("nothing panicked", !node.log().contains("panicked"));
    findings.finish("idle", options.json.as_deref())
}

/// A peer that sends as many messages as it is told to.
struct IdlePeer {
    orders: mpsc::UnboundedSender<u64>,
    done: std::sync::mpsc::Receiver<()>,
}

impl IdlePeer {
    fn start(runtime: &Runtime, target: Target) -> Result<Self> {
        let joined = async { timeout(Duration::from_secs(10), RawPeer::join(target)).await };
        let session = runtime.block_on(joined)??;
        let (orders, ordered) = mpsc::unbounded_channel();
        let (done_sender, done) = std::sync::mpsc::channel();
        runtime.spawn(talk(session, ordered, done_sender));
        Ok(Self { orders, done })
    }

    fn order(&self, messages: u64) -> Result<()> {
        let sent = self.orders.send(messages);
        sent.map_err(|_| eyre!("the node has ended a session"))
    }

    fn wait(&mut self) -> Result<()> {
        let done = self.done.recv();
        done.map_err(|_| eyre!("the node has ended a session"))
    }
}

/// Sends and answers pings until the session ends or there are no more orders.
async fn talk(
    session: RawPeer,
    mut orders: mpsc::UnboundedReceiver<u64>,
    done: std::sync::mpsc::Sender<()>,
) {
    let RawPeer {
        reader,
        mut writer,
        offset,
        ..
    } = session;
    let (pings, mut pinged) = mpsc::channel(16);
    let reading = tokio::spawn(read(reader, pings));
    loop {
        let messages = tokio::select! {
            ping = pinged.recv() => match ping {
                Some(()) => 0,
                None => break,
            },
            order = orders.recv() => match order {
                Some(messages) => messages,
                None => break,
            },
        };
        if messages == 0 {
            if writer.send(PONG, &[0xc0]).await.is_err() {
                break;
            }
            continue;
        }
        if send(&mut writer, offset, messages).await.is_err() || done.send(()).is_err() {
            break;
        }
    }
    reading.abort();
}

async fn send(
    writer: &mut niwaki_network::rlpx::MessageWriter<tokio::net::tcp::OwnedWriteHalf>,
    offset: u8,
    messages: u64,
) -> Result<()> {
    let nothing = Announcement {
        transactions: Vec::new(),
        columns: None,
    };
    let nothing = nothing.encode(VERSION);
    let range = BlockRange {
        earliest: 0,
        latest: 0,
        latest_hash: B256::repeat_byte(1),
    };
    for at in 0..messages {
        let (number, data) = match at % METERED_EVERY {
            0 if at == 0 => (PING, vec![0xc0]),
            0 if at % 20 == 0 => (offset + BLOCK_RANGE, range.encode()),
            0 => {
                // Of a block that does not exist.
                let request = Request::Headers {
                    start: BlockId::Number(u64::MAX),
                    limit: 1,
                    skip: 0,
                    reverse: false,
                };
                let number = offset + RequestKind::Headers.number();
                (number, request.encode(at, VERSION))
            }
            odd if odd % 2 == 1 => (offset + TRANSACTIONS, vec![0xc0]),
            _ => (offset + ANNOUNCEMENT, nothing.clone()),
        };
        let sent = timeout(Duration::from_secs(60), writer.send(number, &data)).await;
        ensure!(
            sent.is_ok_and(|sent| sent.is_ok()),
            "the node has ended a session"
        );
    }
    Ok(())
}
