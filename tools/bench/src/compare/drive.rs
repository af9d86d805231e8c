//! One run: a client upon a fresh data path is given the whole chain, block by block.

use super::client::{Client, Setup, Spent};
use super::requests::ChainFolder;
use crate::progress::Progress;
use eyre::{Result, WrapErr, bail, ensure};
use niwaki_primitives::Bytes;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much of the chain is sent, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// The first so many blocks are the cold part, what comes after them the warm one.
    pub(super) cold_blocks: u64,
    /// All blocks that are sent.
    pub(super) blocks: u64,
    /// Between two blocks.
    pub(super) pause: Duration,
    /// Percent of a block's transactions that are sent to the pool before the pause before it.
    pub(super) known_percent: u64,
}

/// One block, by the clock of whoever sent it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct BlockTime {
    pub(super) number: u64,
    pub(super) gas: u64,
    pub(super) transactions: usize,
    /// From the request to the answer.
    pub(super) new_payload_ms: f64,
    /// The same of the fork choice that makes it the head.
    pub(super) fork_choice_ms: f64,
}

/// Our own figures of the blocks of a part, means of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Phases {
    pub(super) check_ms: f64,
    pub(super) recover_ms: f64,
    pub(super) execute_ms: f64,
    pub(super) root_ms: f64,
    pub(super) compare_ms: f64,
    pub(super) commit_ms: f64,
    /// Percent of the transactions that ran ahead of their turn and were kept.
    pub(super) parallel_percent: f64,
    /// Percent of the transactions that ran ahead of their turn, and again.
    pub(super) again_percent: f64,
}

/// A part of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Part {
    pub(super) blocks: Vec<BlockTime>,
    /// Transactions of these blocks that its pool had taken before they came.
    pub(super) known: u64,
    pub(super) spent: Spent,
    /// Of ours only.
    pub(super) phases: Option<Phases>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) cold: Part,
    pub(super) warm: Part,
    pub(super) peak_rss_bytes: Option<u64>,
    /// By the process as a whole, after it has stopped.
    pub(super) spent: Spent,
}

/// The names of our phases in the metrics, in the order of [`Phases`].
const PHASES: [&str; 6] = ["check", "recover", "execute", "root", "compare", "commit"];
const KEPT: &str = "besu_block_processing_parallelized_transactions_counter_total";
const AGAIN: &str = "besu_block_processing_conflicted_transactions_counter_total";

/// Sends the chain to a client that is started upon what lies in `folder`.
pub(super) fn run(
    setup: &Setup,
    chain: &ChainFolder,
    course: Course,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Run> {
    crate::disk::drop_cached(folder)?;
    let client = setup.start(folder)?;
    let mut reader = chain.read()?;
    let mut progress = Progress::new(course.blocks, "blocks");
    let mut parts = Vec::new();
    for end in [course.cold_blocks, course.blocks] {
        if !parts.is_empty() {
            // What the warm part asks for first would be read from the disk else.
            crate::disk::read_through(folder)?;
        }
        let before = Figures::of(&client)?;
        let (mut blocks, mut taken, mut refusal) = (Vec::new(), 0, None);
        while blocks.last().map_or(0, |block: &BlockTime| block.number) < end {
            ensure!(!stop.load(Ordering::Relaxed), "stopped as asked");
            let Some(requests) = reader.next_block()? else {
                break;
            };
            let at = || {
                format!(
                    "block {}; its last words: {}",
                    requests.number,
                    client.last_words()
                )
            };
            let known = known(&requests.raw, course.known_percent);
            let (took, refused) = client.offer(&known).wrap_err_with(at)?;
            taken += took;
            refusal = refusal.or(refused);
            std::thread::sleep(course.pause);
            let new_payload = client.drive(&requests.new_payload).wrap_err_with(at)?;
            let fork_choice = client.drive(&requests.choose).wrap_err_with(at)?;
            blocks.push(BlockTime {
                number: requests.number,
                gas: requests.gas,
                transactions: requests.transactions,
                new_payload_ms: new_payload.as_secs_f64() * 1e3,
                fork_choice_ms: fork_choice.as_secs_f64() * 1e3,
            });
            progress.show(requests.number, &setup.contender.name());
        }
        if let Some(refusal) = refusal.filter(|_| taken == 0) {
            bail!("its pool takes none of the transactions: {refusal}");
        }
        std::thread::sleep(course.pause);
        parts.push(before.until(&Figures::of(&client)?, blocks, taken));
    }
    progress.finish();
    let peak_rss_bytes = client.peak_rss_bytes();
    let spent = client.stop()?;
    let warm = parts.pop().unwrap_or_default();
    let cold = parts.pop().unwrap_or_default();
    Ok(Run {
        cold,
        warm,
        peak_rss_bytes,
        spent,
    })
}

/// What a client has counted so far.
struct Figures {
    spent: Spent,
    metrics: Option<String>,
}

impl Figures {
    fn of(client: &Client) -> Result<Self> {
        Ok(Self {
            spent: client.spent(),
            metrics: client.metrics()?,
        })
    }

    fn until(&self, after: &Self, blocks: Vec<BlockTime>, known: u64) -> Part {
        let transactions: usize = blocks.iter().map(|block| block.transactions).sum();
        let phases = self.metrics.as_deref().zip(after.metrics.as_deref());
        Part {
            spent: Spent {
                cpu_ms: after.spent.cpu_ms - self.spent.cpu_ms,
                written_bytes: after
                    .spent
                    .written_bytes
                    .saturating_sub(self.spent.written_bytes),
            },
            phases: phases
                .map(|(before, after)| Phases::between(before, after, blocks.len(), transactions)),
            blocks,
            known,
        }
    }
}

/// So many percent of the transactions, scattered over the block. What a sender sends after one that is
/// left out waits in the pool, as it does where a builder knows more than the pools.
fn known(transactions: &[Bytes], percent: u64) -> Vec<Bytes> {
    const STEP: u64 = 61; // Without a divisor in common with 100.
    let is_known = |(place, _): &(u64, &Bytes)| place * STEP % 100 < percent;
    let known = (0..).zip(transactions).filter(is_known);
    known.map(|(_, raw)| raw.clone()).collect()
}

impl Phases {
    /// The means of so many blocks, whose sums stand in the metrics before and after.
    fn between(before: &str, after: &str, blocks: usize, transactions: usize) -> Self {
        let grown = |name: &str| metric(after, name) - metric(before, name);
        let mean_ms = |phase: &str| {
            let sum = grown(&format!("niwaki_block_{phase}_seconds_sum"));
            sum * 1e3 / blocks.max(1) as f64
        };
        let [
            check_ms,
            recover_ms,
            execute_ms,
            root_ms,
            compare_ms,
            commit_ms,
        ] = PHASES.map(mean_ms);
        let percent = |name: &str| grown(name) * 100.0 / transactions.max(1) as f64;
        Self {
            check_ms,
            recover_ms,
            execute_ms,
            root_ms,
            compare_ms,
            commit_ms,
            parallel_percent: percent(KEPT),
            again_percent: percent(AGAIN),
        }
    }

    /// Each with its name.
    pub(super) fn named(&self) -> [(&'static str, f64); 6] {
        let times = [
            self.check_ms,
            self.recover_ms,
            self.execute_ms,
            self.root_ms,
            self.compare_ms,
            self.commit_ms,
        ];
        let mut named = PHASES.map(|name| (name, 0.0));
        for (phase, time) in named.iter_mut().zip(times) {
            phase.1 = time;
        }
        named
    }
}

/// A figure without labels; zero if it has not been counted yet.
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
    fn phases_are_means_of_what_the_sums_have_grown_by() {
        let before = "niwaki_block_execute_seconds_sum 1.5\n";
        let after = "# HELP x\nniwaki_block_execute_seconds{quantile=\"0.5\"} 9\n\
                     niwaki_block_execute_seconds_sum 2.5\n\
                     niwaki_block_execute_seconds_sum_x 7\n\
                     niwaki_block_root_seconds_sum 0.25\n\
                     besu_block_processing_parallelized_transactions_counter_total 30\n";
        let phases = Phases::between(before, after, 10, 120);
        assert_eq!(phases.execute_ms, 100.0);
        assert_eq!(phases.root_ms, 25.0);
        assert_eq!(phases.parallel_percent, 25.0);
        assert_eq!(phases.again_percent, 0.0);
        assert_eq!(phases.named()[2], ("execute", 100.0));
    }

    #[test]
    fn so_many_percent_of_a_block_are_known() {
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
