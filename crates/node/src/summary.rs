//! The summary of an import: counts, rates, percentiles, phases, caches, memory.

use crate::memory::peak_rss_bytes;
use niwaki_chain::{CacheStats, HitRate, Imported, ReadStats, Timings};
use std::fmt;
use std::time::Duration;

/// A histogram of durations with 32 buckets per doubling: a percentile is accurate to 3 %, and memory does
/// not grow with the number of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Durations {
    buckets: Vec<u64>,
    count: u64,
}

const BUCKETS_PER_DOUBLING: usize = 32;

impl Default for Durations {
    fn default() -> Self {
        Self {
            buckets: vec![0; 65 * BUCKETS_PER_DOUBLING],
            count: 0,
        }
    }
}

impl Durations {
    fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
    }

    /// The smallest duration that `percent` of all do not exceed; zero if none was added.
    fn percentile(&self, percent: u64) -> Duration {
        let rank = self.count.saturating_mul(percent).div_ceil(100).max(1);
        let mut below = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return Duration::from_nanos(nanos_of(bucket));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of `nanos`.
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(1);
    let doubling = nanos.ilog2();
    // The five bits below the highest one.
    let part = if doubling >= 5 {
        nanos >> (doubling - 5)
    } else {
        nanos << (5 - doubling)
    };
    doubling as usize * BUCKETS_PER_DOUBLING + (part & 31) as usize
}

/// The least value of a bucket.
fn nanos_of(bucket: usize) -> u64 {
    let doubling = bucket / BUCKETS_PER_DOUBLING;
    let part = (bucket % BUCKETS_PER_DOUBLING) as u64 | 32;
    if doubling >= 5 {
        part << (doubling - 5)
    } else {
        part >> (5 - doubling)
    }
}

/// Statistics of one import.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) blocks: u64,
    pub(crate) transactions: u64,
    pub(crate) gas: u64,
    /// Blocks that the chain already had.
    pub(crate) known: u64,
    /// Blocks outside the requested range.
    pub(crate) left_out: u64,
    /// From opening the first file to the last sync.
    pub(crate) elapsed: Duration,
    /// Time the import waited for blocks to be read, decoded and their senders recovered.
    pub(crate) wait: Duration,
    pub(crate) caches: CacheStats,
    phases: Timings,
    per_block: Durations,
}

impl Summary {
    pub(crate) fn add(&mut self, block: &Imported) {
        self.blocks += 1;
        self.transactions += block.transactions as u64;
        self.gas = self.gas.saturating_add(block.gas_used);
        self.per_block.add(block.timings.total());
        let (sum, own) = (&mut self.phases, &block.timings);
        sum.check += own.check;
        sum.recover += own.recover;
        sum.execute += own.execute;
        sum.root += own.root;
        sum.compare += own.compare;
        sum.commit += own.commit;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        writeln!(
            f,
            "imported     {} blocks, {} transactions, {:.1} Mgas in {seconds:.2} s",
            self.blocks,
            self.transactions,
            self.gas as f64 / 1e6
        )?;
        if self.known > 0 {
            writeln!(f, "there before {} blocks", self.known)?;
        }
        if self.left_out > 0 {
            writeln!(f, "left out     {} blocks outside the range", self.left_out)?;
        }
        writeln!(
            f,
            "speed        {:.0} blocks/s, {:.1} Mgas/s",
            self.blocks as f64 / seconds,
            self.gas as f64 / seconds / 1e6
        )?;
        let milliseconds = |percent| self.per_block.percentile(percent).as_secs_f64() * 1e3;
        writeln!(
            f,
            "per block    P50 {:.3} ms, P95 {:.3} ms, P99 {:.3} ms",
            milliseconds(50),
            milliseconds(95),
            milliseconds(99)
        )?;
        let phases = [
            ("wait", self.wait),
            ("check", self.phases.check),
            ("recover", self.phases.recover),
            ("execute", self.phases.execute),
            ("root", self.phases.root),
            ("compare", self.phases.compare),
            ("commit", self.phases.commit),
        ];
        let phases = phases.map(|(name, time)| format!("{name} {:.3} s", time.as_secs_f64()));
        writeln!(f, "phases       {}", phases.join(", "))?;
        let ReadStats {
            accounts,
            slots,
            codes,
        } = &self.caches.reads;
        writeln!(
            f,
            "caches       held {} of accounts, {} of slots, {} of codes; {} trie nodes were read, \
             {} MiB of them are in memory",
            hit_rate(accounts),
            hit_rate(slots),
            hit_rate(codes),
            self.caches.trie_nodes_read,
            self.caches.trie_bytes >> 20
        )?;
        match peak_rss_bytes() {
            Some(bytes) => write!(f, "peak memory  {:.0} MiB", bytes as f64 / 1048576.0),
            None => write!(f, "peak memory  unknown on this system"),
        }
    }
}

/// The share of lookups that hit, in percent.
fn hit_rate(rate: &HitRate) -> String {
    match rate.hits + rate.misses {
        0 => "none".to_owned(),
        all => format!("{:.1} %", rate.hits as f64 * 100.0 / all as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_starts_at_most_a_32nd_below_its_values() {
        for nanos in (1..5000).chain([1 << 40, (1 << 40) + 12345, u64::MAX]) {
            let least = nanos_of(bucket_of(nanos));
            assert!(least <= nanos, "{nanos}");
            assert!((nanos - least) as f64 <= nanos as f64 / 32.0, "{nanos}");
        }
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile(50), Duration::ZERO);
        for ms in 1..=100 {
            durations.add(Duration::from_millis(ms));
        }
        for percent in [1, 50, 95, 99, 100] {
            let got = durations.percentile(percent).as_secs_f64() * 1e3;
            let off = percent as f64 - got;
            assert!((0.0..=percent as f64 / 32.0).contains(&off), "{got}");
        }
    }
}
