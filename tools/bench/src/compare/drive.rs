//! One run: a client on a fresh data path gets the whole chain, block by block.

use super::client::{Client, Cost, Setup};
use super::requests::ChainFolder;
use crate::progress::Progress;
use eyre::{Result, WrapErr, bail, ensure};
use niwaki_primitives::Bytes;
use serde::{Serialize, Serializer};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Which blocks are sent, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlan {
    /// The first blocks are the cold part, the others the warm part.
    pub(super) cold_blocks: u64,
    /// Number of blocks sent in all.
    pub(super) blocks: u64,
    /// Time between two blocks.
    pub(super) pause: Duration,
    /// Percentage of a block's transactions that are sent to the pool before the pause that precedes the block.
    pub(super) known_percent: u64,
}

/// The times of one block, by the clock of this process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct BlockTime {
    pub(super) number: u64,
    pub(super) gas: u64,
    pub(super) transactions: usize,
    /// From request to response.
    pub(super) new_payload_ms: f64,
    /// The same for the fork choice that makes it the head.
    pub(super) fork_choice_ms: f64,
}

/// Our metrics over the blocks of a part: means per block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Phases {
    /// Of the phases in [`PHASES`].
    #[serde(flatten, serialize_with = "by_phase")]
    pub(super) ms: [f64; PHASES.len()],
    /// Percentage of transactions whose speculative execution was validated.
    pub(super) parallel_percent: f64,
    /// Percentage of transactions that were re-executed.
    pub(super) again_percent: f64,
}

/// A part of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Part {
    pub(super) blocks: Vec<BlockTime>,
    /// Transactions of these blocks that the pool had accepted before.
    pub(super) known: u64,
    #[serde(rename = "spent")]
    pub(super) cost: Cost,
    /// Of our client only.
    pub(super) phases: Option<Phases>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) cold: Part,
    pub(super) warm: Part,
    pub(super) peak_rss_bytes: Option<u64>,
    /// Of the whole process, after it has stopped.
    #[serde(rename = "spent")]
    pub(super) cost: Cost,
}

/// The names of our phases in the metrics.
const PHASES: [&str; 6] = ["check", "recover", "execute", "root", "compare", "commit"];
const VALIDATED: &str = "besu_block_processing_parallelized_transactions_counter_total";
const REEXECUTED: &str = "besu_block_processing_conflicted_transactions_counter_total";

/// Starts a client on the data in `folder` and sends it the chain.
pub(super) fn run(
    setup: &Setup,
    chain: &ChainFolder,
    plan: RunPlan,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Run> {
    crate::disk::drop_cached(folder)?;
    let client = setup.start(folder)?;
    let mut reader = chain.read()?;
    let mut progress = Progress::new(plan.blocks, "blocks");
    let mut parts = Vec::new();
    for end in [plan.cold_blocks, plan.blocks] {
        if !parts.is_empty() {
            // Fill the page cache for the warm part.
            crate::disk::read_through(folder)?;
        }
        let before = Snapshot::of(&client)?;
        let (mut blocks, mut accepted, mut refusal) = (Vec::new(), 0, None);
        while blocks.last().map_or(0, |block: &BlockTime| block.number) < end {
            ensure!(!stop.load(Ordering::Relaxed), "stopped by Ctrl-C");
            let Some(requests) = reader.next_block()? else {
                break;
            };
            let at = || {
                let log = client.last_log_lines();
                format!("block {}; the end of its log: {log}", requests.number)
            };
            let known = known(&requests.raw, plan.known_percent);
            let (count, refused) = client.send_transactions(&known).wrap_err_with(at)?;
            accepted += count;
            refusal = refusal.or(refused);
            std::thread::sleep(plan.pause);
            let new_payload = client.send_valid(&requests.new_payload).wrap_err_with(at)?;
            let fork_choice = client.send_valid(&requests.fork_choice).wrap_err_with(at)?;
            blocks.push(BlockTime {
                number: requests.number,
                gas: requests.gas,
                transactions: requests.transactions,
                new_payload_ms: new_payload.as_secs_f64() * 1e3,
                fork_choice_ms: fork_choice.as_secs_f64() * 1e3,
            });
            progress.show(requests.number, &setup.contender.name());
        }
        if let Some(refusal) = refusal.filter(|_| accepted == 0) {
            bail!("its pool accepts none of the transactions: {refusal}");
        }
        std::thread::sleep(plan.pause);
        parts.push(before.until(&Snapshot::of(&client)?, blocks, accepted));
    }
    progress.finish();
    let peak_rss_bytes = client.peak_rss_bytes();
    let cost = client.stop()?;
    let warm = parts.pop().unwrap_or_default();
    let cold = parts.pop().unwrap_or_default();
    Ok(Run {
        cold,
        warm,
        peak_rss_bytes,
        cost,
    })
}

/// Cost and metrics of a client at a moment.
struct Snapshot {
    cost: Cost,
    metrics: Option<String>,
}

impl Snapshot {
    fn of(client: &Client) -> Result<Self> {
        Ok(Self {
            cost: client.cost(),
            metrics: client.metrics()?,
        })
    }

    fn until(&self, after: &Self, blocks: Vec<BlockTime>, known: u64) -> Part {
        let transactions: usize = blocks.iter().map(|block| block.transactions).sum();
        let phases = self.metrics.as_deref().zip(after.metrics.as_deref());
        Part {
            cost: after.cost.since(self.cost),
            phases: phases
                .map(|(before, after)| Phases::between(before, after, blocks.len(), transactions)),
            blocks,
            known,
        }
    }
}

/// A percentage of the transactions, scattered over the block. Later transactions of a sender whose earlier one is
/// left out wait in the pool, as happens when a builder has transactions that pools don't.
fn known(transactions: &[Bytes], percent: u64) -> Vec<Bytes> {
    const STEP: u64 = 61; // Coprime to 100.
    let is_known = |(index, _): &(u64, &Bytes)| index * STEP % 100 < percent;
    let known = (0..).zip(transactions).filter(is_known);
    known.map(|(_, raw)| raw.clone()).collect()
}

impl Phases {
    /// The means per block, from the growth of the sums in the metrics.
    fn between(before: &str, after: &str, blocks: usize, transactions: usize) -> Self {
        let grown = |name: &str| metric(after, name) - metric(before, name);
        let mean_ms = |phase: &str| {
            let sum = grown(&format!("niwaki_block_{phase}_seconds_sum"));
            sum * 1e3 / blocks.max(1) as f64
        };
        let percent = |name: &str| grown(name) * 100.0 / transactions.max(1) as f64;
        Self {
            ms: PHASES.map(mean_ms),
            parallel_percent: percent(VALIDATED),
            again_percent: percent(REEXECUTED),
        }
    }

    /// Each phase with its name.
    pub(super) fn named(&self) -> [(&'static str, f64); PHASES.len()] {
        std::array::from_fn(|at| (PHASES[at], self.ms[at]))
    }
}

/// Writes the times as `check_ms` and so on.
fn by_phase<S: Serializer>(ms: &[f64; PHASES.len()], serializer: S) -> Result<S::Ok, S::Error> {
    let names = PHASES.map(|phase| format!("{phase}_ms"));
    serializer.collect_map(names.iter().zip(ms))
}

/// The value of a metric without labels; 0 if it is not there yet.
fn metric(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(' ')?.trim().parse().ok()
    });
    value.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_means_of_the_growth_of_the_sums() {
        let before = "niwaki_block_execute_seconds_sum 1.5\n";
        let after = "# HELP x\nniwaki_block_execute_seconds{quantile=\"0.5\"} 9\n\
                     niwaki_block_execute_seconds_sum 2.5\n\
                     niwaki_block_execute_seconds_sum_x 7\n\
                     niwaki_block_root_seconds_sum 0.25\n\
                     besu_block_processing_parallelized_transactions_counter_total 30\n";
        let phases = Phases::between(before, after, 10, 120);
        assert_eq!(phases.ms[2..4], [100.0, 25.0]);
        assert_eq!(phases.parallel_percent, 25.0);
        assert_eq!(phases.again_percent, 0.0);
        assert_eq!(phases.named()[2], ("execute", 100.0));
        let json = serde_json::to_value(phases).unwrap();
        assert_eq!(json["execute_ms"], 100.0);
        assert_eq!(json.as_object().unwrap().len(), 8);
    }

    #[test]
    fn known_transactions_are_the_requested_percentage_in_block_order() {
        let transactions: Vec<Bytes> = (0..200_u8).map(|number| vec![number].into()).collect();
        for percent in [0, 1, 50, 80, 100] {
            let known = known(&transactions, percent);
            assert_eq!(known.len() as u64, 2 * percent);
            assert!(
                known.is_sorted_by(|a, b| a < b),
                "in the order of the block"
            );
        }
    }
}
