//! The results of the runs: per client, and ratios of paired runs.

use super::client::Contender;
use super::drive::{BlockTime, Part, Phases, Run};
use crate::machine::Machine;
use crate::stats::{Spread, median, percentile};
use serde::Serialize;

/// All runs of one client.
#[derive(Debug, Serialize)]
pub(super) struct Runs {
    pub(super) contender: Contender,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) cold: PartResults,
    pub(super) warm: PartResults,
    /// MiB.
    pub(super) peak_rss_mib: Option<Spread>,
    /// MiB, of the whole process until it exited.
    pub(super) written_mib: Spread,
    pub(super) runs: Vec<Run>,
}

/// One part of the chain, over the runs. Blocks without gas count only in the costs.
#[derive(Debug, Serialize)]
pub(super) struct PartResults {
    pub(super) blocks: usize,
    /// Over the payload and fork choice of all blocks.
    pub(super) mgas_per_s: Spread,
    /// Percentiles of the blocks: the payload alone.
    pub(super) payload_ms: Percentiles,
    /// Percentiles of the blocks: payload and fork choice.
    pub(super) whole_ms: Percentiles,
    pub(super) cpu_ms_per_block: Spread,
    pub(super) written_mib: Spread,
    /// Medians over the runs.
    pub(super) phases: Option<Phases>,
}

/// Percentiles of the blocks of a run, over the runs.
#[derive(Debug, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: Spread,
    pub(super) p95: Spread,
    pub(super) p99: Spread,
}

/// How much longer a peer takes than ours, run by run.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) peer: String,
    pub(super) ours: String,
    /// Of the totals of all blocks, payload and fork choice.
    pub(super) cold: Spread,
    pub(super) warm: Spread,
    /// Of the payloads alone.
    pub(super) warm_payload: Spread,
    /// Of the medians of the blocks.
    pub(super) warm_p50: Spread,
}

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) chain: String,
    pub(super) blocks: usize,
    pub(super) transactions: usize,
    pub(super) gas: u64,
    pub(super) cold_blocks: u64,
    pub(super) pause_ms: u64,
    /// Busy processes that ran at the same time.
    pub(super) busy: usize,
    pub(super) known_percent: u64,
    pub(super) runs: usize,
    pub(super) clients: Vec<Runs>,
    pub(super) ratios: Vec<Ratio>,
}

impl BlockTime {
    /// Time of payload and fork choice.
    pub(super) fn whole_ms(&self) -> f64 {
        self.new_payload_ms + self.fork_choice_ms
    }
}

fn counted(part: &Part) -> impl Iterator<Item = &BlockTime> {
    part.blocks.iter().filter(|block| block.gas > 0)
}

fn sum_ms(part: &Part, of: fn(&BlockTime) -> f64) -> f64 {
    counted(part).map(of).sum()
}

impl Runs {
    pub(super) fn new(contender: Contender, version: String, runs: Vec<Run>) -> Self {
        let rss: Option<Vec<u64>> = runs.iter().map(|run| run.peak_rss_bytes).collect();
        let cold: Vec<&Part> = runs.iter().map(|run| &run.cold).collect();
        let warm: Vec<&Part> = runs.iter().map(|run| &run.warm).collect();
        Self {
            name: contender.name(),
            version,
            cold: PartResults::new(&cold),
            warm: PartResults::new(&warm),
            peak_rss_mib: rss.map(|all| Spread::of(all.into_iter().map(mib))),
            written_mib: Spread::of(runs.iter().map(|run| mib(run.cost.written_bytes))),
            contender,
            runs,
        }
    }

    /// Percentage of all transactions that its pool had accepted before their blocks.
    fn known_percent(&self) -> f64 {
        let parts = || self.runs.iter().flat_map(|run| [&run.cold, &run.warm]);
        let known: u64 = parts().map(|part| part.known).sum();
        let blocks = parts().flat_map(|part| &part.blocks);
        let all: usize = blocks.map(|block| block.transactions).sum();
        known as f64 * 100.0 / all.max(1) as f64
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl PartResults {
    fn new(parts: &[&Part]) -> Self {
        let over = |of: &dyn Fn(&Part) -> f64| Spread::of(parts.iter().map(|part| of(part)));
        let rate = |part: &Part| {
            let gas: u64 = counted(part).map(|block| block.gas).sum();
            gas as f64 / 1e3 / sum_ms(part, BlockTime::whole_ms).max(1e-9)
        };
        let per_block = |part: &Part| part.cost.cpu_ms / part.blocks.len().max(1) as f64;
        Self {
            blocks: parts.first().map_or(0, |part| counted(part).count()),
            mgas_per_s: over(&rate),
            payload_ms: Percentiles::new(parts, |block| block.new_payload_ms),
            whole_ms: Percentiles::new(parts, BlockTime::whole_ms),
            cpu_ms_per_block: over(&per_block),
            written_mib: over(&|part| mib(part.cost.written_bytes)),
            phases: Phases::median(parts),
        }
    }
}

impl Phases {
    fn median(parts: &[&Part]) -> Option<Self> {
        let all: Vec<Self> = parts.iter().filter_map(|part| part.phases).collect();
        let of = |of: &dyn Fn(&Self) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
        (!all.is_empty()).then(|| Self {
            ms: std::array::from_fn(|at| of(&|phases| phases.ms[at])),
            parallel_percent: of(&|phases| phases.parallel_percent),
            again_percent: of(&|phases| phases.again_percent),
        })
    }
}

impl Percentiles {
    fn new(parts: &[&Part], of: fn(&BlockTime) -> f64) -> Self {
        let at = |percent: f64| {
            Spread::of(parts.iter().map(|part| {
                let times: Vec<f64> = counted(part).map(of).collect();
                percentile(&times, percent)
            }))
        };
        Self {
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
        }
    }
}

/// The ratios of every peer over each of our clients.
pub(super) fn ratios(clients: &[Runs]) -> Vec<Ratio> {
    let is_ours = |runs: &&Runs| matches!(runs.contender, Contender::Niwaki { .. });
    let peers = clients.iter().filter(|runs| !is_ours(runs));
    let pairs = peers.flat_map(|peer| clients.iter().filter(is_ours).map(move |ours| (peer, ours)));
    pairs
        .map(|(peer, ours)| {
            let over = |part: fn(&Run) -> &Part, of: &dyn Fn(&Part) -> f64| {
                let pairs = peer.runs.iter().zip(&ours.runs);
                Spread::of(pairs.map(|(peer, ours)| of(part(peer)) / of(part(ours)).max(1e-9)))
            };
            let whole = |part: &Part| sum_ms(part, BlockTime::whole_ms);
            let payload = |part: &Part| sum_ms(part, |block| block.new_payload_ms);
            let p50 = |part: &Part| {
                let times: Vec<f64> = counted(part).map(BlockTime::whole_ms).collect();
                median(&times)
            };
            Ratio {
                peer: peer.name.clone(),
                ours: ours.name.clone(),
                cold: over(|run| &run.cold, &whole),
                warm: over(|run| &run.warm, &whole),
                warm_payload: over(|run| &run.warm, &payload),
                warm_p50: over(|run| &run.warm, &p50),
            }
        })
        .collect()
}

impl Report {
    /// Prints the tables.
    pub(super) fn print(&self) {
        println!(
            "{}: {} blocks ({} cold), {} transactions, {:.1} Mgas; medians of {} runs",
            self.chain,
            self.blocks,
            self.cold_blocks,
            self.transactions,
            self.gas as f64 / 1e6,
            self.runs
        );
        println!(
            "\n{:<20} {:<5} {:>7} {:>17} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
            "payload+fork choice",
            "part",
            "Mgas/s",
            "min..max",
            "P50 ms",
            "P95",
            "P99",
            "P99/P50",
            "payl.P50",
            "CPU ms",
            "disk MiB"
        );
        for runs in &self.clients {
            print_part(&runs.name, "cold", &runs.cold);
            print_part("", "warm", &runs.warm);
            let rss = runs.peak_rss_mib.map_or("-".to_owned(), |rss| {
                format!("{:.0} MiB ({:.0}..{:.0})", rss.median, rss.min, rss.max)
            });
            let Spread { median, min, max } = runs.written_mib;
            println!(
                "{:<20} peak memory {rss}; written {median:.0} MiB ({min:.0}..{max:.0}); {:.0} % of the \
                 transactions known",
                "",
                runs.known_percent()
            );
        }
        self.print_phases();
        for ratio in &self.ratios {
            println!(
                "{} over {}: warm {}, payload alone {}, of P50s {}; cold {}",
                ratio.peer, ratio.ours, ratio.warm, ratio.warm_payload, ratio.warm_p50, ratio.cold
            );
        }
    }

    fn print_phases(&self) {
        println!("\nphases of a warm block, ms, by our own clock");
        for runs in &self.clients {
            let Some(phases) = &runs.warm.phases else {
                continue;
            };
            let shown = phases.named().map(|(name, ms)| format!("{name} {ms:.2}"));
            println!(
                "{:<20} {}; {:.1} % of the transactions speculated and validated, {:.1} % re-executed",
                runs.name,
                shown.join(", "),
                phases.parallel_percent,
                phases.again_percent
            );
        }
        println!();
    }
}

fn print_part(name: &str, part: &str, results: &PartResults) {
    let (speed, whole) = (results.mgas_per_s, &results.whole_ms);
    println!(
        "{name:<20} {part:<5} {:>7.0} {:>17} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.1} {:>9.1}",
        speed.median,
        speed.range(0),
        whole.p50.median,
        whole.p95.median,
        whole.p99.median,
        whole.p99.median / whole.p50.median.max(1e-9),
        results.payload_ms.p50.median,
        results.cpu_ms_per_block.median,
        results.written_mib.median
    );
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::client::Cost;
    use super::*;

    pub(crate) fn run(ms: &[f64]) -> Run {
        let blocks = (1..).zip(ms).map(|(number, ms)| BlockTime {
            number,
            gas: if *ms > 0.0 { 1_000_000 } else { 0 },
            transactions: 10,
            new_payload_ms: *ms,
            fork_choice_ms: 0.0,
        });
        let part = Part {
            blocks: blocks.collect(),
            known: 0,
            cost: Cost {
                cpu_ms: 100.0,
                written_bytes: 1 << 20,
            },
            phases: Some(Phases {
                ms: [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
                ..Phases::default()
            }),
        };
        Run {
            cold: part.clone(),
            warm: part,
            peak_rss_bytes: Some(1 << 30),
            cost: Cost {
                cpu_ms: 1.0,
                written_bytes: 2 << 20,
            },
        }
    }

    pub(crate) fn runs() -> Vec<Runs> {
        let ours = Contender::Niwaki { threads: Some(1) };
        let (fast, slow) = (run(&[1.0, 2.0, 0.0, 3.0]), run(&[2.0, 8.0, 0.0, 8.0]));
        let version = || "1".to_owned();
        vec![
            Runs::new(ours, version(), vec![fast.clone(), fast]),
            Runs::new(Contender::Geth, version(), vec![slow.clone(), slow]),
        ]
    }

    #[test]
    fn empty_blocks_count_only_in_the_cost() {
        let runs = runs();
        let warm = &runs[0].warm;
        assert_eq!(warm.blocks, 3);
        assert_eq!(warm.mgas_per_s.median, 500.0);
        assert_eq!(warm.whole_ms.p50.median, 2.0);
        assert_eq!(warm.whole_ms.p99.median, 3.0);
        assert_eq!(warm.cpu_ms_per_block.median, 25.0);
        assert_eq!(warm.phases.map(|phases| phases.ms[2]), Some(1.0));
        assert_eq!(runs[0].peak_rss_mib.map(|rss| rss.max), Some(1024.0));
    }

    #[test]
    fn a_ratio_is_the_peers_time_over_ours() {
        let ratios = ratios(&runs());
        let [ratio] = &ratios[..] else {
            panic!("one peer and one of ours");
        };
        assert_eq!(ratio.warm.median, 3.0);
        assert_eq!(ratio.warm_p50.median, 4.0);
        assert_eq!(
            (ratio.peer.as_str(), ratio.ours.as_str()),
            ("geth", "niwaki, 1 thread")
        );
    }
}
