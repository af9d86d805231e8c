//! The dashboard: a page of the node itself, and `niwaki_dashboard`, which gives it all that it shows in one call.
//!
//! The page (`crates/rpc/dashboard`) is served by the server of JSON-RPC over HTTP and calls it as any client does, so hosts, users
//! and TLS are those of that server. It has no data of its own and needs nothing from outside.

use crate::json::{Array, Object};
use crate::methods::{Lane, Method, row};
use crate::niwaki::{RecordedBlock, microseconds};
use crate::node::now_ms;
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult, SyncStatus, niwaki, sync, validators};
use niwaki_chain::StoredHeader;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("niwaki_dashboard", "afterBlock? afterLine?", Lane::Call, dashboard),
];

/// What the page calls.
pub const DASHBOARD_METHODS: [&str; 1] = ["niwaki_dashboard"];

/// What the page may load, and that no other page may show it (Content Security Policy).
pub(crate) const SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
pub(crate) struct PagePart {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of the page: its path on the server, its type, its name in the repository.
macro_rules! part {
    ($path:literal, $content_type:expr, $file:literal) => {
        PagePart {
            path: $path,
            content_type: $content_type,
            text: include_str!(concat!("../dashboard/", $file)),
        }
    };
}

pub(crate) const PAGE: [PagePart; 5] = [
    part!("/dashboard", HTML, "index.html"),
    part!("/dashboard/app.js", SCRIPT, "app.js"),
    part!("/dashboard/app.css", STYLE, "app.css"),
    part!("/dashboard/uPlot.js", SCRIPT, "uPlot.iife.min.js"),
    part!("/dashboard/uPlot.css", STYLE, "uPlot.min.css"),
];

/// Says how the program and its machine are; the parameter is the number of the last line of the log that is known.
pub type MachineHook = Box<dyn Fn(u64) -> MachineReport + Send + Sync>;

/// How the program and its machine are.
#[derive(Clone, Debug, Default)]
pub struct MachineReport {
    /// Seconds since the start.
    pub up_s: u64,
    /// Processor time that the program has used, milliseconds.
    pub cpu_ms: u64,
    /// Processors.
    pub cores: usize,
    /// The operator's memory budget, bytes.
    pub memory_budget: u64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Its peak.
    pub peak_bytes: u64,
    /// What uses memory.
    pub memory: Vec<MemoryPart>,
    /// Bytes free on the disk of the data path, and its size.
    pub disk: Option<(u64, u64)>,
    /// Bytes of the database, by segment.
    pub segments: Vec<(&'static str, u64)>,
    /// The lines of the log after the one that is known, oldest first.
    pub lines: Vec<LogLine>,
}

/// A user of memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart {
    /// What it is.
    pub name: &'static str,
    /// Bytes in use.
    pub bytes: u64,
    /// Its share of the budget, if it has one.
    pub budget: Option<u64>,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// How many lines there were with it since the start.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Its level.
    pub level: &'static str,
    /// Message and fields.
    pub text: String,
}

/// How many peers and slow blocks are listed.
const MAX_PEERS: usize = 100;
const SLOW_BLOCKS: usize = 10;

/// Parameters: the sequence number of the last block and of the last line of the log that the caller has; 0, or none, for all that are
/// kept.
fn dashboard(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let after_block = params.optional(0)?.unwrap_or(0);
    let after_line = params.optional(1)?.unwrap_or(0);
    let machine = backend.operator().machine().ok_or_else(|| {
        RpcError::server("this node has no dashboard: start it with --dashboard-enabled")
    })?;
    let mut object = Object::new(out);
    object.string("client", &backend.identity.client_version);
    object.decimal("chainId", backend.chain().spec().chain_id);
    object.decimal("now", now_ms());
    write_head(&mut object, backend);
    write_sync(&mut object, backend);
    write_blocks(object.array("blocks"), backend, after_block);
    let mut slow = object.array("slow");
    for block in backend.block_stats.slowest(SLOW_BLOCKS) {
        niwaki::write(&block, slow.object());
    }
    drop(slow);
    write_peers(object.object("peers"), backend);
    write_pool(object.object("pool"), backend);
    match backend.operator().validator() {
        Some(hooks) => validators::write_state((hooks.state)(), object.object("validator")),
        None => object.null("validator"),
    }
    write_machine(object.object("machine"), &machine(after_line));
    Ok(())
}

fn write_head(object: &mut Object<'_>, backend: &Backend) {
    let head = backend.chain().head();
    let header = &head.header;
    let mut written = object.object("head");
    written.decimal("number", head.id.number);
    written.data("hash", head.id.hash.as_slice());
    written.decimal("timestamp", header.timestamp);
    written.decimal("gasUsed", header.gas_used);
    written.decimal("gasLimit", header.gas_limit);
    written.decimal("baseFee", header.base_fee_per_gas.unwrap_or(0));
    drop(written);
    let chain = backend.chain();
    for (name, block) in [("finalized", chain.finalized()), ("safe", chain.safe())] {
        match block.ok().flatten() {
            Some(StoredHeader { id, .. }) => object.decimal(name, id.number),
            None => object.null(name),
        }
    }
}

fn write_sync(object: &mut Object<'_>, backend: &Backend) {
    let status = match backend.sync_status() {
        SyncStatus::Current => "current",
        SyncStatus::Behind(_) => "behind",
        SyncStatus::Unknown => "unknown",
    };
    object.string("status", status);
    object.boolean("driven", backend.is_driven());
    let silence = backend.consensus_silence().as_secs();
    object.decimal("consensusSilenceSeconds", silence);
    match backend.operator().sync_report() {
        Some(report) => sync::write(&report, &mut object.object("sync")),
        None => object.null("sync"),
    }
}

/// A row of numbers for each block, in the order of the page's `BLOCK_FIELDS`.
fn write_blocks(mut rows: Array<'_>, backend: &Backend, after: u64) {
    for block in backend.block_stats.after(after) {
        let out = rows.item();
        out.push(b'[');
        for (index, number) in block_row(&block).into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(number.to_string().as_bytes());
        }
        out.push(b']');
    }
}

fn block_row(block: &RecordedBlock) -> [u64; 16] {
    let imported = &block.imported;
    let (stats, timings) = (&imported.tx_stats, &imported.timings);
    let reads = imported.reads.values();
    [
        block.sequence,
        block.at_ms,
        imported.id.number,
        imported.gas_used,
        imported.transactions as u64,
        stats.validated as u64,
        stats.reexecuted as u64,
        stats.sequential as u64,
        microseconds(timings.check),
        microseconds(timings.recover),
        microseconds(timings.execute),
        microseconds(timings.root),
        microseconds(timings.compare),
        microseconds(timings.commit),
        reads.hits,
        reads.misses,
    ]
}

fn write_peers(mut object: Object<'_>, backend: &Backend) {
    object.decimal("count", backend.peer_count());
    let hooks = backend.operator().peers();
    object.decimal("limit", hooks.map_or(0, |hooks| hooks.limit as u64));
    let peers = hooks.map_or_else(Vec::new, |hooks| (hooks.peers)());
    let mut list = object.array("list");
    for peer in peers.iter().take(MAX_PEERS) {
        let mut written = list.object();
        written.string("id", peer.id.get(..16).unwrap_or(&peer.id));
        written.string("client", &peer.client);
        written.string("remote", &peer.remote.to_string());
        written.boolean("inbound", peer.is_inbound);
        written.string("capabilities", &peer.capabilities.join(" "));
        written.float("score", peer.score, 0);
        written.decimal("latest", peer.blocks.1);
    }
}

fn write_pool(mut object: Object<'_>, backend: &Backend) {
    let stats = backend.pool().stats();
    for (name, number) in [
        ("pending", stats.pending as u64),
        ("queued", stats.queued as u64),
        ("senders", stats.senders as u64),
        ("bytes", stats.bytes as u64),
        ("blobBytes", stats.blob_bytes as u64),
        ("added", stats.flows.added()),
        ("rejected", stats.rejected.values().sum()),
    ] {
        object.decimal(name, number);
    }
}

fn write_machine(mut object: Object<'_>, machine: &MachineReport) {
    object.decimal("upSeconds", machine.up_s);
    object.decimal("cpuMilliseconds", machine.cpu_ms);
    object.decimal("cores", machine.cores as u64);
    object.decimal("memoryBudget", machine.memory_budget);
    object.decimal("residentBytes", machine.resident_bytes);
    object.decimal("peakBytes", machine.peak_bytes);
    let mut parts = object.array("memory");
    for part in &machine.memory {
        let mut written = parts.object();
        written.string("name", part.name);
        written.decimal("bytes", part.bytes);
        if let Some(budget) = part.budget {
            written.decimal("budget", budget);
        }
    }
    drop(parts);
    if let Some((free, size)) = machine.disk {
        object.decimal("diskFree", free);
        object.decimal("diskSize", size);
    }
    let mut segments = object.object("segments");
    for (name, bytes) in &machine.segments {
        segments.decimal(name, *bytes);
    }
    drop(segments);
    let mut lines = object.array("lines");
    for line in &machine.lines {
        let mut written = lines.object();
        written.decimal("number", line.number);
        written.decimal("at", line.at_ms);
        written.string("level", line.level);
        written.string("text", &line.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_loads_nothing_from_outside() {
        let bytes: usize = PAGE.iter().map(|part| part.text.len()).sum();
        assert!(bytes < 150_000, "{bytes}");
        for part in &PAGE {
            for reference in ["src=\"http", "href=\"http", "url(http", "@import", "//cdn"] {
                assert!(!part.text.contains(reference), "{}: {reference}", part.path);
            }
        }
        let html = PAGE[0].text;
        let parts = PAGE[1..].iter();
        let loaded = parts.filter(|part| html.contains(&format!("\"{}\"", part.path)));
        assert_eq!(loaded.count(), PAGE.len() - 1);
        assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains("onclick"));
    }
}
