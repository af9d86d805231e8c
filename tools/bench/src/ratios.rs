//! `niwaki-bench ratios`: compares the EVM with its peers in one run and checks its performance targets.

mod plot;

use crate::{
    harness::JsonFile,
    keccak,
    machine::Machine,
    peers,
    programs::{self, Peer, Results},
    replay,
    stats::{geometric_mean, median},
};
use eyre::{Context, Result, ensure, eyre};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Options of `niwaki-bench ratios`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder with NAME.code and NAME.input files: programs to compare with revm, geth, evmone and Besu.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Folder with recorded blocks to compare with revm.
    #[arg(long, value_name = "DIR")]
    blocks: Option<PathBuf>,
    /// Skip the opcodes, which take minutes.
    #[arg(long)]
    no_opcodes: bool,
    /// Our `niwaki-evm` [default: the one in the folder of this program].
    #[arg(long, value_name = "FILE")]
    niwaki_evm: Option<PathBuf>,
    /// Skip geth.
    #[arg(long)]
    no_geth: bool,
    /// Runs of each recorded block.
    #[arg(long, default_value = "7", value_parser = crate::harness::at_least_one)]
    repeat: usize,
    #[command(flatten)]
    runs: programs::RunOptions,
    #[command(flatten)]
    json: JsonFile,
    /// Draw the ratios here as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A comparison and its result.
#[derive(Debug, Serialize)]
struct Ratio {
    what: String,
    ratio: f64,
    /// Least and greatest of the ratios that `ratio` summarises.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<(f64, f64)>,
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
}

/// The target of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    ratios: Vec<Ratio>,
    programs: Option<Results>,
    blocks: Option<replay::Report>,
    opcodes: Option<serde_json::Value>,
    keccak: keccak::Report,
}

/// Program, time of evmone 0.23 over revm 43.0.3, time of Besu 26.4 over revm: measured once on another machine;
/// medians of 7 batches, processor time.
const OVER_REVM: [(&str, f64, f64); 12] = [
    ("snailtracer-eb", 38_887.0 / 43_725.0, 268_726.0 / 43_725.0),
    ("erc20-transfer", 13_865.0 / 8_894.0, 44_957.0 / 8_894.0),
    ("erc20-mint", 10_474.0 / 4_806.0, 30_010.0 / 4_806.0),
    ("erc20-approval", 10_035.0 / 7_695.0, 32_051.0 / 7_695.0),
    ("ten-thousand-hashes", 2_611.0 / 3_596.0, 32_260.0 / 3_596.0),
    ("blake2b_huff.8415nulls", 676.0 / 944.0, 8_022.0 / 944.0),
    (
        "blake2b_shifts.8415nulls",
        6_661.0 / 9_157.0,
        90_715.0 / 9_157.0,
    ),
    ("sha1_divs.5311", 4_338.0 / 3_665.0, 31_860.0 / 3_665.0),
    ("sha1_shifts.5311", 2_435.0 / 2_828.0, 28_263.0 / 2_828.0),
    (
        "structarray_alloc.nfts_rank",
        500.0 / 805.0,
        6_690.0 / 805.0,
    ),
    ("swap_math.spent", 8.0 / 4.0, 33.0 / 4.0),
    ("weierstrudel.15", 1_656.0 / 1_318.0, 8_763.0 / 1_318.0),
];

/// Measures what the flags ask for.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let mut report = Report {
        machine: Machine::here(),
        ratios: Vec::new(),
        programs: None,
        blocks: None,
        opcodes: None,
        keccak: keccak::measure_all(15, 4)?,
    };
    if let Some(dir) = &options.programs {
        let mut peers = vec![Peer::Revm, Peer::Threaded, Peer::Overridden];
        if !options.no_geth {
            peers.push(Peer::Geth);
        }
        report.programs = Some(programs::measure_all(dir, &peers, &options.runs)?);
    }
    if let Some(dir) = &options.blocks {
        let replay = replay::Options::with_revm(dir, options.repeat);
        report.blocks = Some(replay::measure_all(&replay)?.0);
    }
    if !options.no_opcodes {
        report.opcodes = Some(opcodes(options.niwaki_evm.as_deref())?);
    }
    report.ratios = report.all_ratios()?;
    print(&report.ratios);
    if let Some(path) = &options.svg {
        let wrap = || format!("can't write {}", path.display());
        std::fs::write(path, plot::svg(&report.ratios)).wrap_err_with(wrap)?;
    }
    options.json.write(&report)
}

/// The results of `niwaki-evm cartevm` for every opcode of Osaka.
fn opcodes(niwaki_evm: Option<&Path>) -> Result<serde_json::Value> {
    let default = std::env::current_exe()
        .wrap_err("can't tell where this program is")?
        .with_file_name("niwaki-evm");
    let program = match niwaki_evm {
        Some(given) => peers::find("niwaki-evm", Some(given))?,
        None => default,
    };
    let mut all = cartevm(&program, &["--batches", "9"])?;
    // Opcodes close to revm are measured again with more batches, because a single run varies.
    let cases = cases_of(&all)?;
    let close = cases
        .iter()
        .filter(|case| case.over_revm.is_some_and(|over| over < 1.05));
    let names: Vec<&str> = close.map(|case| case.name.as_str()).collect();
    if !names.is_empty() {
        let again = cartevm(&program, &["--batches", "31", "--only", &names.join(",")])?;
        replace(&mut all, &again);
    }
    Ok(all)
}

/// Runs `niwaki-evm cartevm --revm`.
fn cartevm(program: &Path, options: &[&str]) -> Result<serde_json::Value> {
    let shown = program.display();
    let folder = tempfile::tempdir().wrap_err("can't make a folder for the results of opcodes")?;
    let json = folder.path().join("opcodes.json");
    let status = Command::new(program)
        .args(["cartevm", "--revm", "--gas", "30000000"])
        .args(options)
        .arg("--json")
        .arg(&json)
        .status()
        .wrap_err_with(|| format!("can't run {shown}; build niwaki-evm, or give --niwaki-evm"))?;
    ensure!(status.success(), "{shown} cartevm failed: {status}");
    let text = std::fs::read_to_string(&json).wrap_err("can't read the figures of opcodes")?;
    serde_json::from_str(&text).wrap_err("the figures of opcodes are no JSON")
}

/// Replaces cases by those of `again` with the same name.
fn replace(all: &mut serde_json::Value, again: &serde_json::Value) {
    let fresh = again["cases"].as_array().map_or(&[][..], Vec::as_slice);
    for case in all["cases"].as_array_mut().into_iter().flatten() {
        if let Some(new) = fresh.iter().find(|new| new["name"] == case["name"]) {
            *case = new.clone();
        }
    }
}

fn cases_of(opcodes: &serde_json::Value) -> Result<Vec<Opcode>> {
    let cases = opcodes.get("cases").cloned().unwrap_or_default();
    serde_json::from_value(cases).wrap_err("can't read the figures of opcodes")
}

/// The needed fields of a case of `cartevm`.
#[derive(Deserialize)]
struct Opcode {
    name: String,
    mgas_per_second: f64,
    over_revm: Option<f64>,
}

/// The least and the greatest.
fn ends(ratios: &[f64]) -> Option<(f64, f64)> {
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

/// A geometric mean.
fn mean(what: impl Into<String>, target: Target, ratios: &[f64]) -> Ratio {
    Ratio {
        what: what.into(),
        ratio: geometric_mean(ratios),
        ends: ends(ratios),
        target: Some(target),
    }
}

fn single(what: impl Into<String>, target: Option<Target>, ratio: f64) -> Ratio {
    Ratio {
        what: what.into(),
        ratio,
        ends: None,
        target,
    }
}

impl Report {
    /// The ratios of everything that was measured.
    fn all_ratios(&self) -> Result<Vec<Ratio>> {
        let mut ratios = Vec::new();
        if let Some(programs) = &self.programs {
            of_programs(programs, &mut ratios);
        }
        if let Some([all, middle]) = self.blocks.as_ref().and_then(|blocks| blocks.over_revm) {
            let target = Target::AtLeast(1.5);
            ratios.push(single("blocks, the middle one, revm", Some(target), middle));
            ratios.push(single("blocks, all, revm", None, all));
        }
        if let Some(opcodes) = &self.opcodes {
            of_opcodes(opcodes, &mut ratios)?;
        }
        let keccak = self.keccak.over_batch("keccak-asm");
        ratios.push(mean(
            "batches of Keccak-256, keccak-asm",
            Target::AtLeast(2.5),
            &keccak,
        ));
        Ok(ratios)
    }
}

fn of_programs(programs: &Results, ratios: &mut Vec<Ratio>) {
    let over = |peer: Peer| programs.over(peer);
    let revm: Vec<f64> = over(Peer::Revm).map(|(_, ratio)| ratio).collect();
    let unfused: Vec<f64> = over(Peer::Threaded).map(|(_, ratio)| ratio).collect();
    ratios.push(mean("programs, revm", Target::AtLeast(2.3), &revm));
    let (least, _) = ends(&revm).unwrap_or_default();
    ratios.push(single(
        "programs, revm, the least",
        Some(Target::AtLeast(1.0)),
        least,
    ));
    let ours: Vec<f64> = revm
        .iter()
        .zip(&unfused)
        .map(|(revm, ours)| revm / ours)
        .collect();
    ratios.push(mean("programs unfused, revm", Target::AtLeast(1.8), &ours));
    let geth: Vec<f64> = over(Peer::Geth).map(|(_, ratio)| ratio).collect();
    if !geth.is_empty() {
        ratios.push(mean("programs, geth", Target::AtLeast(5.0), &geth));
    }
    let known = |pick: fn(&(&str, f64, f64)) -> f64| -> Vec<f64> {
        let find = |name: &str| OVER_REVM.iter().find(|known| known.0 == name);
        let ratios = over(Peer::Revm).filter_map(|(name, ratio)| Some(ratio * pick(find(name)?)));
        ratios.collect()
    };
    for (what, bound, ratio) in [
        ("programs, evmone by revm", 1.5, known(|known| known.1)),
        ("programs, Besu by revm", 12.0, known(|known| known.2)),
    ] {
        if !ratio.is_empty() {
            ratios.push(mean(what, Target::AtLeast(bound), &ratio));
        }
    }
    let overridden: Vec<f64> = over(Peer::Overridden).map(|(_, ratio)| ratio).collect();
    if let Some((least, most)) = ends(&overridden) {
        ratios.push(Ratio {
            ends: Some((least, most)),
            ..single("unused rows, the most", Some(Target::AtMost(1.01)), most)
        });
    }
}

fn of_opcodes(opcodes: &serde_json::Value, ratios: &mut Vec<Ratio>) -> Result<()> {
    let cases = cases_of(opcodes)?;
    let rates: Vec<f64> = cases.iter().map(|case| case.mgas_per_second).collect();
    let (slowest, _) = ends(&rates).ok_or_else(|| eyre!("no opcode was measured"))?;
    let target = Some(Target::AtMost(5.0));
    ratios.push(single(
        "opcodes, the middle over the slowest",
        target,
        median(&rates) / slowest,
    ));
    let over: Vec<f64> = cases.iter().filter_map(|case| case.over_revm).collect();
    let (least, _) = ends(&over).unwrap_or_default();
    ratios.push(single(
        "opcodes, revm, the least",
        Some(Target::AtLeast(1.0)),
        least,
    ));
    Ok(())
}

fn print(ratios: &[Ratio]) {
    println!(
        "\n{:<40} {:>7} {:>14} {:>8}",
        "peer's time over ours", "ratio", "least..most", "goal"
    );
    for Ratio {
        what,
        ratio,
        ends,
        target,
    } in ratios
    {
        let ends = ends.map_or_else(String::new, |(least, most)| {
            format!("{least:.2}..{most:.2}")
        });
        let target = match target {
            None => String::new(),
            Some(target) => {
                let (sign, bound) = match target {
                    Target::AtLeast(bound) => (">=", bound),
                    Target::AtMost(bound) => ("<=", bound),
                };
                let verdict = if target.is_met(*ratio) {
                    "holds"
                } else {
                    "MISSED"
                };
                format!("{sign} {bound:<5} {verdict}")
            }
        };
        println!("{what:<40} {ratio:>7.3} {ends:>14}  {target}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_at_its_bound() {
        assert!(Target::AtLeast(1.5).is_met(1.5) && !Target::AtLeast(1.5).is_met(1.49));
        assert!(Target::AtMost(5.0).is_met(5.0) && !Target::AtMost(5.0).is_met(5.01));
    }

    #[test]
    fn opcode_ratios_are_median_over_slowest_and_the_least_over_revm() {
        let cases = r#"{"cases": [{"name": "A", "mgas_per_second": 100.0, "over_revm": 0.9},
            {"name": "B", "mgas_per_second": 300.0, "over_revm": 2.0},
            {"name": "C", "mgas_per_second": 900.0}]}"#;
        let mut ratios = Vec::new();
        of_opcodes(&serde_json::from_str(cases).unwrap(), &mut ratios).unwrap();
        let found: Vec<f64> = ratios.iter().map(|ratio| ratio.ratio).collect();
        assert_eq!(found, [3.0, 0.9]);
        assert!(of_opcodes(&serde_json::json!({}), &mut ratios).is_err());
        assert!(of_opcodes(&serde_json::json!({"cases": [{}]}), &mut ratios).is_err());
    }

    #[test]
    fn repeated_measurements_replace_earlier_ones() {
        let mut all =
            serde_json::json!({"cases": [{"name": "A", "ns": 1}, {"name": "B", "ns": 2}]});
        replace(
            &mut all,
            &serde_json::json!({"cases": [{"name": "B", "ns": 3}]}),
        );
        let expected =
            serde_json::json!({"cases": [{"name": "A", "ns": 1}, {"name": "B", "ns": 3}]});
        assert_eq!(all, expected);
        replace(&mut all, &serde_json::json!({}));
        assert_eq!(all, expected);
    }

    #[test]
    fn the_plot_names_every_ratio() {
        let ratios = [
            mean("a & b", Target::AtLeast(2.0), &[2.0, 4.0]),
            single("c", None, 0.5),
        ];
        let svg = plot::svg(&ratios);
        assert!(svg.contains("a &amp; b") && svg.contains(">c<") && svg.contains("2.83"));
    }
}
