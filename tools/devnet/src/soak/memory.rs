//! Samples of the node's memory, one a second.

use super::Shared;
use crate::process::memory;
use eyre::Result;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Memory and progress at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at_s: f64,
    rss_bytes: u64,
    /// Transactions in the chain since the start.
    included: u64,
    requests: u64,
}

impl Sample {
    pub(super) fn to_json(self) -> Value {
        json!([self.at_s, self.rss_bytes, self.included, self.requests])
    }
}

/// Takes samples until the soak is over.
pub(super) fn sample(process: u32, shared: &Shared) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut samples = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let sample = Sample {
            at_s: began.elapsed().as_secs_f64(),
            rss_bytes: memory(process, "VmRSS:")?,
            included: shared.included.load(Ordering::Relaxed),
            requests: shared.requests.load(Ordering::Relaxed),
        };
        samples.push(sample);
        if samples.len() % 60 == 0 {
            eprintln!(
                "{:.0} s: {} MiB, {} transactions in the chain, {} requests",
                sample.at_s,
                sample.rss_bytes >> 20,
                sample.included,
                sample.requests
            );
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(samples)
}

/// Slope of a least-squares line through the second half of the samples, bytes per minute.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
pub(super) fn slope_of_second_half(samples: &[Sample]) -> f64 {
    let samples = &samples[samples.len() / 2..];
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (at, rss) = (mean(|s| s.at_s), mean(|s| s.rss_bytes as f64));
    let (mut up, mut down) = (0.0, 0.0);
    for sample in samples {
        up += (sample.at_s - at) * (sample.rss_bytes as f64 - rss);
        down += (sample.at_s - at).powi(2);
    }
    if down > 0.0 { up / down * 60.0 } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "printed only")]
pub(super) fn print(samples: &[Sample], peak_bytes: u64) {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    if let Some(last) = samples.last() {
        println!(
            "{:.0} s: {:.0} transactions and {:.0} requests a second; resident at most {:.0} MiB, {:+.2} MiB a minute",
            last.at_s,
            last.included as f64 / last.at_s,
            last.requests as f64 / last.at_s,
            mib(peak_bytes as f64),
            mib(slope_of_second_half(samples)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_second_half() {
        let sample = |at: u32, rss_bytes: u64| Sample {
            at_s: f64::from(at),
            rss_bytes,
            included: 0,
            requests: 0,
        };
        let steep = (0..60).map(|at| sample(at, u64::from(at) * 1_000_000));
        let then = (60..120).map(|at| sample(at, 60_000_000 + u64::from(at) * 50));
        let samples: Vec<_> = steep.chain(then).collect();
        assert!((slope_of_second_half(&samples) - 3_000.0).abs() < 1e-6);
        assert_eq!(slope_of_second_half(&samples[..1]), 0.0);
        assert_eq!(slope_of_second_half(&[]), 0.0);
    }
}
