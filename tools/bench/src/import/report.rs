//! The results of an import: per client, and as speedups.

use super::Pair;
use crate::chain_file::Work;
use crate::process::Cost;
use crate::stats::{Spread, median};
use serde::Serialize;

/// The results of one chain.
#[derive(Debug, Serialize)]
pub(crate) struct ChainResults {
    chain: String,
    #[serde(flatten)]
    work: Work,
    /// Number of imports by each client.
    n: usize,
    niwaki: ClientResults,
    geth: Option<GethResults>,
    speedup: Option<Speedups>,
    /// Every run, in order; the client that went first alternates.
    pairs: Vec<Pair>,
}

/// The results of a client, or of one of its processes.
#[derive(Debug, Serialize)]
struct ClientResults {
    wall_ms: Spread,
    cpu_ms: Spread,
    peak_rss_mib: Option<Spread>,
    written_mib: Option<Spread>,
    /// Gas of the chain over the median wall time.
    mgas_per_s: f64,
}

#[derive(Debug, Serialize)]
struct GethResults {
    init: ClientResults,
    import: ClientResults,
    /// Both processes: sums of times and bytes, the higher peak.
    whole: ClientResults,
}

/// geth's wall time over ours. Ours always includes the genesis.
#[derive(Debug, Serialize)]
struct Speedups {
    /// Of geth's import alone.
    import: Speedup,
    /// Of geth's init and import.
    whole: Speedup,
    /// Of the CPU time of geth's init and import.
    whole_cpu: Speedup,
}

#[derive(Debug, Serialize)]
struct Speedup {
    of_medians: f64,
    /// The ratios of the pairs.
    pairs: Spread,
}

impl ChainResults {
    pub(super) fn new(chain: &str, work: Work, pairs: Vec<Pair>) -> Self {
        let ours: Vec<Cost> = pairs.iter().map(|pair| pair.niwaki.import).collect();
        let geth: Vec<_> = pairs.iter().filter_map(|pair| pair.geth).collect();
        let init: Vec<Cost> = geth.iter().map(|run| run.init).collect();
        let import: Vec<Cost> = geth.iter().map(|run| run.import).collect();
        let whole: Vec<Cost> = geth.iter().map(|run| both(run.init, run.import)).collect();
        let results = |costs: &[Cost]| ClientResults::new(costs, work.gas);
        let is_paired = !geth.is_empty();
        let wall = |cost: &Cost| cost.wall_ms;
        Self {
            chain: chain.to_owned(),
            n: pairs.len(),
            niwaki: results(&ours),
            geth: is_paired.then(|| GethResults {
                init: results(&init),
                import: results(&import),
                whole: results(&whole),
            }),
            speedup: is_paired.then(|| Speedups {
                import: Speedup::new(&import, &ours, wall),
                whole: Speedup::new(&whole, &ours, wall),
                whole_cpu: Speedup::new(&whole, &ours, |cost| cost.cpu_ms),
            }),
            pairs,
            work,
        }
    }
}

/// A chain in one line: wall times in ms, and geth's over ours in pairs.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    pub(crate) chain: &'a str,
    pub(crate) niwaki_ms: f64,
    /// Time of init and import, and its ratio to ours; `None` without geth.
    pub(crate) geth: Option<(f64, Spread)>,
}

impl ChainResults {
    /// The line of this chain in a summary.
    pub(crate) fn outcome(&self) -> Outcome<'_> {
        let geth = self.geth.as_ref().zip(self.speedup.as_ref());
        Outcome {
            chain: &self.chain,
            niwaki_ms: self.niwaki.wall_ms.median,
            geth: geth.map(|(geth, ratio)| (geth.whole.wall_ms.median, ratio.whole.pairs)),
        }
    }
}

/// Two processes, one after the other.
fn both(first: Cost, second: Cost) -> Cost {
    let join = |join: fn(u64, u64) -> u64, a: Option<u64>, b: Option<u64>| Some(join(a?, b?));
    Cost {
        wall_ms: first.wall_ms + second.wall_ms,
        cpu_ms: first.cpu_ms + second.cpu_ms,
        peak_rss_bytes: join(u64::max, first.peak_rss_bytes, second.peak_rss_bytes),
        written_bytes: join(
            u64::saturating_add,
            first.written_bytes,
            second.written_bytes,
        ),
    }
}

impl ClientResults {
    fn new(costs: &[Cost], gas: u64) -> Self {
        let spread = |of: fn(&Cost) -> f64| Spread::of(costs.iter().map(of));
        let mib = |of: fn(&Cost) -> Option<u64>| {
            let bytes: Option<Vec<u64>> = costs.iter().map(of).collect();
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            bytes.map(|bytes| Spread::of(bytes.into_iter().map(mib)))
        };
        let wall_ms = spread(|cost| cost.wall_ms);
        Self {
            mgas_per_s: gas as f64 / 1e3 / wall_ms.median.max(1e-9),
            wall_ms,
            cpu_ms: spread(|cost| cost.cpu_ms),
            peak_rss_mib: mib(|cost| cost.peak_rss_bytes),
            written_mib: mib(|cost| cost.written_bytes),
        }
    }
}

impl Speedup {
    fn new(peer: &[Cost], ours: &[Cost], of: fn(&Cost) -> f64) -> Self {
        let of_all = |costs: &[Cost]| -> Vec<f64> { costs.iter().map(of).collect() };
        let pairs = peer.iter().zip(ours);
        Self {
            of_medians: median(&of_all(peer)) / median(&of_all(ours)).max(1e-9),
            pairs: Spread::of(pairs.map(|(peer, ours)| of(peer) / of(ours).max(1e-9))),
        }
    }
}

/// Prints the header of the columns of [`print_row`].
pub(super) fn print_header() {
    println!(
        "{:<26} {:>7} {:>7} {:>9}  {:<11} {:>9} {:>19} {:>9} {:>8} {:>8} {:>8}",
        "chain",
        "blocks",
        "txs",
        "Mgas",
        "client",
        "wall ms",
        "min..max",
        "CPU ms",
        "Mgas/s",
        "RSS MiB",
        "disk MiB"
    );
}

/// Prints the results of a chain: a line per process, and the speedups.
pub(super) fn print_row(row: &ChainResults) {
    let Work {
        blocks,
        transactions,
        gas,
        ..
    } = row.work;
    let mgas = gas as f64 / 1e6;
    print!(
        "{:<26} {blocks:>7} {transactions:>7} {mgas:>9.1}  ",
        row.chain
    );
    print_client("niwaki", &row.niwaki);
    let (Some(geth), Some(speedup)) = (&row.geth, &row.speedup) else {
        return;
    };
    for (name, results) in [("geth init", &geth.init), ("geth import", &geth.import)] {
        print!("{:<54}", "");
        print_client(name, results);
    }
    for (name, ratio) in [
        ("geth's import over niwaki", &speedup.import),
        ("geth's init and import over niwaki", &speedup.whole),
        ("the same in CPU time", &speedup.whole_cpu),
    ] {
        let Spread { median, min, max } = ratio.pairs;
        println!(
            "  {name:<36} {:.2} (medians); of {} pairs: median {median:.2}, {min:.2}..{max:.2}",
            ratio.of_medians, row.n
        );
    }
}

fn print_client(client: &str, results: &ClientResults) {
    let wall = results.wall_ms;
    let (median, range) = (wall.median, wall.range(1));
    let shown = |spread: &Option<Spread>| match spread {
        Some(spread) => format!("{:.1}", spread.median),
        None => "-".to_owned(),
    };
    println!(
        "{client:<11} {median:>9.1} {range:>19} {:>9.1} {:>8.0} {:>8} {:>8}",
        results.cpu_ms.median,
        results.mgas_per_s,
        shown(&results.peak_rss_mib),
        shown(&results.written_mib)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain_file::Head;
    use crate::import::contenders::{GethRun, NiwakiRun};

    fn cost(wall_ms: f64) -> Cost {
        Cost {
            wall_ms,
            cpu_ms: 2.0 * wall_ms,
            peak_rss_bytes: Some(3 << 20),
            written_bytes: Some(1 << 20),
        }
    }

    fn row(walls: &[(f64, f64, f64)]) -> ChainResults {
        let pairs = walls.iter().map(|(ours, init, import)| Pair {
            niwaki: NiwakiRun {
                import: cost(*ours),
            },
            geth: Some(GethRun {
                init: cost(*init),
                import: cost(*import),
            }),
        });
        let head = Head {
            number: 1,
            hash: niwaki_primitives::B256::ZERO,
        };
        let work = Work {
            blocks: 1,
            transactions: 0,
            gas: 1_000_000,
            head,
        };
        ChainResults::new("x", work, pairs.collect())
    }

    #[test]
    fn geths_whole_time_is_that_of_both_processes() {
        let row = row(&[
            (100.0, 50.0, 200.0),
            (100.0, 50.0, 300.0),
            (50.0, 50.0, 200.0),
        ]);
        let speedup = row.speedup.as_ref().unwrap();
        assert_eq!(speedup.import.of_medians, 2.0);
        assert_eq!(speedup.whole.of_medians, 2.5);
        assert_eq!(
            speedup.whole.pairs,
            Spread {
                median: 3.5,
                min: 2.5,
                max: 5.0
            }
        );
        let outcome = row.outcome();
        assert_eq!(outcome.niwaki_ms, 100.0);
        assert_eq!(
            outcome.geth.map(|(ms, ratio)| (ms, ratio.median)),
            Some((250.0, 3.5))
        );
        let whole = row.geth.unwrap().whole;
        assert_eq!(whole.written_mib.unwrap().median, 2.0);
        assert_eq!(whole.peak_rss_mib.unwrap().median, 3.0);
        assert_eq!(row.niwaki.mgas_per_s, 10.0);
    }

    #[test]
    fn a_value_that_one_run_lacks_is_left_out() {
        let mut without = cost(1.0);
        without.peak_rss_bytes = None;
        let results = ClientResults::new(&[cost(1.0), without], 1);
        assert!(results.peak_rss_mib.is_none());
        assert!(results.written_mib.is_some());
    }
}
