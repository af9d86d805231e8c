//! What the dashboard shows of the program and its machine: memory by part, disk, processor time, the last lines of the log.

use super::config::NodeConfig;
use crate::memory::{MemoryBudget, peak_rss_bytes, rss_bytes};
use eyre::{Result, ensure};
use niwaki_chain::{Chain, StorageStats};
use niwaki_rpc::{LogLine, MachineReport, MemoryPart, Operator};
use niwaki_txpool::Pool;
use rustix::fs::statvfs;
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines that are kept, and the most bytes of one.
const MAX_LINES: usize = 256;
const MAX_LINE_BYTES: usize = 4 << 10;

/// The last lines of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLines(Arc<Mutex<VecDeque<LogLine>>>);

impl LogLines {
    /// The lines after that with this number, oldest first.
    fn after(&self, number: u64) -> Vec<LogLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = lines.partition_point(|line| line.number <= number);
        lines.range(first..).cloned().collect()
    }

    fn push(&self, level: &'static str, mut text: String) {
        let length = text.floor_char_boundary(MAX_LINE_BYTES);
        text.truncate(length);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lines.back().map_or(1, |last| last.number + 1);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(LogLine {
            number,
            at_ms,
            level,
            text,
        });
    }
}

impl<S: Subscriber> Layer<S> for LogLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Text::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields);
        self.push(event.metadata().level().as_str(), text);
    }
}

/// A line as text: its message, then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

/// Gives the dashboard what it shows of this program.
///
/// # Errors
/// Without the server that serves its page.
pub(super) fn install(
    operator: &Operator,
    chain: &Arc<Chain>,
    pool: &Arc<Pool>,
    config: &NodeConfig,
    lines: LogLines,
) -> Result<()> {
    ensure!(
        config.servers.http.is_some(),
        "--dashboard-enabled needs --rpc-http-enabled: the page is served there"
    );
    let (chain, pool) = (Arc::clone(chain), Arc::clone(pool));
    let (began, memory, data_path) = (Instant::now(), config.memory, config.data_path.clone());
    operator.set_machine(Box::new(move |after| {
        let pool = pool.stats();
        let storage = chain.storage_stats();
        let mut parts = memory_parts(&chain, &storage, memory);
        parts.push(MemoryPart {
            name: "transaction pool",
            bytes: (pool.bytes + pool.blob_bytes) as u64,
            budget: None,
        });
        MachineReport {
            up_s: began.elapsed().as_secs(),
            cpu_ms: cpu_ms().unwrap_or(0),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_budget: memory.bytes(),
            resident_bytes: rss_bytes().unwrap_or(0),
            peak_bytes: peak_rss_bytes().unwrap_or(0),
            memory: parts,
            disk: disk(&data_path),
            segments: storage.segments,
            lines: lines.after(after),
        }
    }));
    Ok(())
}

fn memory_parts(chain: &Chain, storage: &StorageStats, memory: MemoryBudget) -> Vec<MemoryPart> {
    let caches = chain.cache_stats();
    let state = memory.state().cache_bytes as u64;
    let engine = memory.storage().memory_budget_bytes as u64;
    let waiting = (storage.waiting_bytes + storage.pinned_bytes) as u64;
    let part = |name, bytes, budget| MemoryPart {
        name,
        bytes,
        budget,
    };
    vec![
        part("trie nodes", caches.trie_bytes as u64, Some(state / 2)),
        part(
            "accounts, slots, code",
            caches.value_bytes as u64,
            Some(state / 2),
        ),
        part(
            "storage: cache and buffers",
            storage.cache_bytes + storage.buffer_bytes,
            Some(engine),
        ),
        part("storage: waiting and pinned", waiting, None),
    ]
}

fn cpu_ms() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // User and system time are fields 14 and 15, in hundredths of a second; field 2 is the name, in brackets.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>().ok()?;
    Some(ticks * 10)
}

/// Bytes that are free, and all.
fn disk(path: &Path) -> Option<(u64, u64)> {
    let found = statvfs(path).ok()?;
    Some((
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn the_last_256_lines_are_kept_with_message_and_fields_and_long_ones_are_cut() {
        let lines = LogLines::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, || {
            for number in 1..=300_u64 {
                tracing::info!(number, name = "a b", shown = %7, "Line");
            }
            tracing::warn!("{}", "\u{e9}".repeat(MAX_LINE_BYTES));
        });
        let kept = lines.after(0);
        assert_eq!(kept.len(), MAX_LINES);
        assert_eq!(kept[254].text, "Line number=300 name=a b shown=7");
        assert_eq!((kept[254].number, kept[254].level), (300, "INFO"));
        assert_eq!(
            (kept[255].text.len(), kept[255].level),
            (MAX_LINE_BYTES, "WARN")
        );
        let numbers = |after| {
            lines
                .after(after)
                .iter()
                .map(|line| line.number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(299), [300, 301]);
        assert!(numbers(301).is_empty());
    }

    #[test]
    fn this_process_has_memory_a_disk_and_used_time() {
        assert!(rss_bytes() > Some(1 << 20));
        assert!(cpu_ms().is_some());
        let (free, size) = disk(Path::new("/")).unwrap();
        assert!(free < size);
    }
}
