//! The report of a benchmark.

use super::case::Case;
use crate::cartevm::quantile;
use serde::Serialize;

/// The measurement of one case on one library.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    library: &'static str,
    /// Median of the batches, per call.
    ns: f64,
    least_ns: f64,
    mgas_per_second: f64,
    /// Interquartile range divided by the median.
    spread: f64,
}

impl Measured {
    #[expect(clippy::cast_precision_loss, reason = "printed only")]
    pub(super) fn new(library: &'static str, gas: u64, mut ns: Vec<f64>) -> Self {
        ns.sort_by(f64::total_cmp);
        let median = quantile(&ns, 0.5);
        Self {
            library,
            ns: median,
            least_ns: quantile(&ns, 0.0),
            mgas_per_second: gas as f64 * 1e3 / median,
            spread: (quantile(&ns, 0.75) - quantile(&ns, 0.25)) / median,
        }
    }
}

/// One case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    gas: u64,
    input_bytes: usize,
    libraries: Vec<Measured>,
    /// The pure library's time over the native one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_pure: Option<f64>,
}

impl Row {
    pub(super) fn new(case: &Case, gas: u64, libraries: Vec<Measured>) -> Self {
        let over_pure = match &libraries[..] {
            [native, pure] => Some(pure.ns / native.ns),
            _ => None,
        };
        Self {
            name: case.name.clone(),
            gas,
            input_bytes: case.input.len(),
            libraries,
            over_pure,
        }
    }

    pub(super) fn print(&self) {
        print!("{:<30} {:>11}", self.name, self.gas);
        for library in &self.libraries {
            print!(
                "  {:>12.1} {:>9.1} {:>6.2}  {:<18}",
                library.ns, library.mgas_per_second, library.spread, library.library
            );
        }
        match self.over_pure {
            Some(over) => println!(" {over:.2}x"),
            None => println!(),
        }
    }
}

/// Prints the column titles.
pub(super) fn print_head() {
    let library = format!(
        "{:>12} {:>9} {:>6}  {:<18}",
        "ns", "Mgas/s", "spread", "library"
    );
    println!("{:<30} {:>11}  {library}  {library}", "case", "gas");
}

/// All cases.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) fork: &'static str,
    pub(super) batches: u32,
    /// Minimum time of a batch, ms.
    pub(super) batch_ms: u64,
    pub(super) cases: Vec<Row>,
}
