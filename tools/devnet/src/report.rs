//! Counts and latencies of a run, printed and as JSON.

use eyre::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The time that `percent` of the sorted times do not exceed; zero if there are none.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = sorted.len() * percent / 100;
    let time = sorted.get(index).or(sorted.last());
    time.copied().unwrap_or_default()
}

/// Writes `value` to the file, if one is given.
pub(crate) fn write_json(path: Option<&Path>, value: &Value) -> Result<()> {
    if let Some(path) = path {
        std::fs::write(path, format!("{value:#}\n"))?;
    }
    Ok(())
}

/// Counts and latencies of all slots.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Occurrences of each event.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Durations of each operation.
    pub(crate) times: BTreeMap<String, Vec<Duration>>,
    pub(crate) head: u64,
    pub(crate) head_hash: String,
    pub(crate) state_root: String,
}

impl Report {
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, count: u64) {
        *self.counts.entry(what.into()).or_default() += count;
    }

    pub(crate) fn took(&mut self, what: impl Into<String>, time: Duration) {
        self.times.entry(what.into()).or_default().push(time);
    }

    /// P50, P95, P99 and maximum, milliseconds.
    fn percentiles(times: &[Duration]) -> [f64; 4] {
        let mut times = times.to_vec();
        times.sort_unstable();
        [50, 95, 99, 100].map(|percent| percentile(&times, percent).as_secs_f64() * 1e3)
    }

    pub(crate) fn print(&self) {
        println!(
            "head {} {}, state root {}",
            self.head, self.head_hash, self.state_root
        );
        for (what, count) in &self.counts {
            println!("{count:>8}  {what}");
        }
        println!("milliseconds: P50, P95, P99, longest, n");
        for (what, times) in &self.times {
            let [p50, p95, p99, longest] = Self::percentiles(times);
            let n = times.len();
            println!("{p50:>8.1} {p95:>8.1} {p99:>8.1} {longest:>8.1} {n:>6}  {what}");
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let times = self.times.iter().map(|(what, times)| {
            let [p50, p95, p99, longest] = Self::percentiles(times);
            let percentiles = json!({
                "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "longest_ms": longest, "n": times.len(),
            });
            (what.clone(), percentiles)
        });
        let times: serde_json::Map<String, Value> = times.collect();
        json!({
            "head": self.head,
            "head_hash": self.head_hash,
            "state_root": self.state_root,
            "counts": self.counts,
            "times": times,
        })
    }
}
