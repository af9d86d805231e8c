//! Counts and latencies of a run.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

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
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let index = (ms.len() * percent / 100).min(ms.len().saturating_sub(1));
            ms.get(index).copied().unwrap_or(0.0)
        };
        [at(50), at(95), at(99), at(100)]
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
