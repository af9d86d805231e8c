//! `niwaki-bench overview`: `import` compared with geth, then `evm` compared with revm and geth, in one table.

use crate::{
    harness::JsonFile,
    import::{self, GethPeer},
    machine::Machine,
    programs::{self, Peer},
    stats::{Spread, geometric_mean},
};
use eyre::{Result, ensure};
use serde::Serialize;
use std::path::PathBuf;

/// Options of `niwaki-bench overview`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder with NAME.code and NAME.input files.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Chain to import: a file of RLP blocks with genesis.json next to it, or a folder with
    /// chain.rlp and genesis.json; may be given several times.
    #[arg(long = "chain")]
    chains: Vec<PathBuf>,
    /// geth [default: the one in PATH or ~/go/bin].
    #[arg(long)]
    geth: Option<PathBuf>,
    #[command(flatten)]
    programs_runs: programs::RunOptions,
    #[command(flatten)]
    import_runs: import::RunOptions,
    #[command(flatten)]
    json: JsonFile,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    clients: Option<import::Clients>,
    evm: Option<programs::Results>,
    /// Geometric mean over the chains of geth's init and import over our import.
    import_geomean_speedup: Option<f64>,
    import: Vec<import::ChainResults>,
}

/// Runs both parts.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    ensure!(
        options.programs.is_some() || !options.chains.is_empty(),
        "nothing to compare; give --programs DIR, --chain PATH, or both"
    );
    let mut report = Report {
        machine: Machine::here(),
        clients: None,
        evm: None,
        import_geomean_speedup: None,
        import: Vec::new(),
    };
    // Chains first: a child's peak memory is unknown while ours is higher.
    if !options.chains.is_empty() {
        let cases = import::cases(&options.chains, None)?;
        let geth = GethPeer(options.geth.clone());
        let clients = import::Clients::find(&options.import_runs, Some(&geth))?;
        report.import = import::measure_all(&cases, &clients, &options.import_runs)?;
        report.clients = Some(clients);
        let outcomes = report.import.iter().filter_map(|row| row.outcome().geth);
        let ratios: Vec<f64> = outcomes.map(|(_, ratio)| ratio.median).collect();
        report.import_geomean_speedup = Some(geometric_mean(&ratios));
        println!();
    }
    if let Some(dir) = &options.programs {
        let peers = [Peer::Revm, Peer::Geth];
        report.evm = Some(programs::measure_all(dir, &peers, &options.programs_runs)?);
    }
    print_summary(&report);
    options.json.write(&report)
}

/// One table over both parts: how much longer each peer takes.
fn print_summary(report: &Report) {
    println!(
        "\n{:<38} {:<5} {:>10} {:>10} {:>8} {:>16}",
        "summary", "peer", "niwaki ms", "peer ms", "speedup", "min..max"
    );
    let line = |what: &str, peer: &str, ms: [String; 2], ratio: f64, spread: Option<Spread>| {
        let [ours, theirs] = ms;
        println!(
            "{what:<38} {peer:<5} {ours:>10} {theirs:>10} {ratio:>8.2} {:>16}",
            spread.map(|spread| spread.range(2)).unwrap_or_default()
        );
    };
    for outcome in report.import.iter().map(import::ChainResults::outcome) {
        if let Some((peer_ms, ratio)) = outcome.geth {
            let ms = [outcome.niwaki_ms, peer_ms].map(|ms| format!("{ms:.1}"));
            let what = format!("import {}", outcome.chain);
            line(&what, "geth", ms, ratio.median, Some(ratio));
        }
    }
    if let Some(mean) = report.import_geomean_speedup {
        let what = "import, geometric mean";
        line(what, "geth", Default::default(), mean, None);
    }
    for peer in [Peer::Revm, Peer::Geth] {
        let outcome = report.evm.as_ref().and_then(|evm| evm.outcome(peer));
        if let Some((count, mean, spread)) = outcome {
            let what = format!("{count} EVM programs, geometric mean");
            line(&what, peer.name(), Default::default(), mean, Some(spread));
        }
    }
}
