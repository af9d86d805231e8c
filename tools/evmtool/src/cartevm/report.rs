//! The report of a measurement.

use super::CartOptions;
use niwaki_primitives::Fork;
use serde::Serialize;
use std::time::Duration;

/// One case.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    /// The mnemonics.
    pub(super) name: String,
    /// Gas of each run.
    gas: u64,
    /// How often the opcode, or the pair, ran.
    times: u64,
    /// Median time of the runs, divided by that.
    ns: f64,
    pub(super) mgas_per_second: f64,
    /// Interquartile range divided by the median.
    spread: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revm_mgas_per_second: Option<f64>,
    /// revm's time over ours, the median of the pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_revm: Option<f64>,
}

/// The value at this part, 0 to 1, of the sorted values.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among a few runs"
    )]
    let rank = (part * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(rank).copied().unwrap_or(0.0)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

impl Case {
    /// A case whose runs used `gas` and ran the opcode `ran` times each.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "printed only"
    )]
    pub(super) fn new(
        name: String,
        gas: u64,
        ran: f64,
        times: &[(Duration, Option<Duration>)],
    ) -> Self {
        let ours = sorted(times.iter().map(|(took, _)| took.as_secs_f64()));
        let median = quantile(&ours, 0.5);
        let pairs = || {
            times
                .iter()
                .filter_map(|(ours, revm)| Some((ours, (*revm)?)))
        };
        let revm = sorted(pairs().map(|(_, revm)| revm.as_secs_f64()));
        let ratios = sorted(pairs().map(|(ours, revm)| revm.as_secs_f64() / ours.as_secs_f64()));
        let rate = |seconds: f64| gas as f64 / seconds / 1e6;
        Self {
            name,
            gas,
            times: ran as u64,
            ns: median * 1e9 / ran,
            mgas_per_second: rate(median),
            spread: (quantile(&ours, 0.75) - quantile(&ours, 0.25)) / median,
            revm_mgas_per_second: (!revm.is_empty()).then(|| rate(quantile(&revm, 0.5))),
            over_revm: (!ratios.is_empty()).then(|| quantile(&ratios, 0.5)),
        }
    }
}

/// All cases, the slowest first.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) fork: &'static str,
    gas: u64,
    /// Approximate bytes of each program, if they have a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_size: Option<u32>,
    batches: u32,
    pub(super) median_mgas_per_second: f64,
    /// How much slower the slowest is than the median.
    median_over_slowest: f64,
    pub(super) cases: Vec<Case>,
    /// Cases whose program does not complete, mostly for lack of gas, and how it ends.
    left_out: Vec<String>,
}

impl Report {
    pub(super) fn new(
        fork: Fork,
        options: &CartOptions,
        mut cases: Vec<Case>,
        left_out: Vec<String>,
    ) -> Self {
        cases.sort_by(|a, b| a.mgas_per_second.total_cmp(&b.mgas_per_second));
        let rates: Vec<f64> = cases.iter().map(|case| case.mgas_per_second).collect();
        let median = quantile(&rates, 0.5);
        Self {
            fork: fork.name(),
            gas: options.gas,
            code_size: (!options.worst).then_some(options.code_size),
            batches: options.batches,
            median_mgas_per_second: median,
            median_over_slowest: median / rates.first().copied().unwrap_or(median),
            cases,
            left_out,
        }
    }

    pub(super) fn print(&self, slowest: usize) {
        let code_size = self.code_size.map(|size| format!("{size} bytes of code, "));
        println!(
            "{} cases, {}, {} gas each, {}medians of {} runs",
            self.cases.len(),
            self.fork,
            self.gas,
            code_size.unwrap_or_default(),
            self.batches
        );
        println!(
            "{:<32} {:>10} {:>10} {:>7}  revm",
            "slowest", "ns", "Mgas/s", "spread"
        );
        for case in self.cases.iter().take(slowest) {
            case.print();
        }
        println!(
            "median {:.0} Mgas/s, {:.2} times that of the slowest",
            self.median_mgas_per_second, self.median_over_slowest
        );
        if !self.left_out.is_empty() {
            println!("left out: {}", self.left_out.join("; "));
        }
        let is_behind = |case: &&Case| case.over_revm.is_some_and(|over| over < 1.0);
        let mut behind: Vec<&Case> = self.cases.iter().filter(is_behind).collect();
        behind.sort_by(|a, b| {
            a.over_revm
                .partial_cmp(&b.over_revm)
                .unwrap_or(a.ns.total_cmp(&b.ns))
        });
        if !behind.is_empty() {
            println!("slower than revm: {}", behind.len());
            behind.into_iter().for_each(Case::print);
        }
    }
}

impl Case {
    fn print(&self) {
        let peer = match (self.revm_mgas_per_second, self.over_revm) {
            (Some(rate), Some(over)) => format!("{rate:.0} Mgas/s, {over:.2}x"),
            _ => String::new(),
        };
        println!(
            "{:<32} {:>10.1} {:>10.0} {:>7.2}  {peer}",
            self.name, self.ns, self.mgas_per_second, self.spread
        );
    }
}
