//! `niwaki-bench recover`: recovers the signers of many signatures, in batches and one by one.
//!
//! In a round, a batch of signatures is recovered together, again and again for some milliseconds, and then one by one
//! by the library in use. The results are the time per signature and the ratio of the two in the same round.

use crate::harness::{JsonFile, seconds_each};
use crate::machine::Machine;
use crate::stats::Spread;
use alloy_primitives::keccak256;
use eyre::{Result, ensure};
use niwaki_crypto::{Signed, recover_signer, recover_signers, sign};
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Options of `niwaki-bench recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; in each, batches and single signatures run for --round-ms each.
    #[arg(long, default_value_t = 15, value_parser = crate::harness::at_least_one)]
    rounds: usize,
    /// Minimum time of each in a round, ms.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    round_ms: u64,
    #[command(flatten)]
    json: JsonFile,
}

/// Signatures that are recovered in one call.
const BATCHES: [usize; 6] = [2, 4, 8, 16, 64, 1000];

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    #[serde(rename = "lots")]
    batches: Vec<Batch>,
}

#[derive(Debug, Serialize)]
struct Batch {
    signatures: usize,
    together_us: Spread,
    one_by_one_us: Spread,
    /// Time one by one over time together.
    ratio: Spread,
}

/// Measures every batch size.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let mut batches = Vec::new();
    for signatures in BATCHES {
        let batch = measure(signatures, options)?;
        print(&batch);
        batches.push(batch);
    }
    let report = Report {
        machine: Machine::here(),
        rounds: options.rounds,
        batches,
    };
    options.json.write(&report)
}

fn signed(number: usize) -> Result<Signed> {
    let [hash, key] = [0, 1].map(|which| keccak256((2 * number + which).to_be_bytes()));
    let (r, s, y_parity) = sign(&hash, &key)?;
    Ok(Signed {
        hash,
        r,
        s,
        y_parity,
    })
}

fn measure(signatures: usize, options: &Options) -> Result<Batch> {
    let signed: Vec<Signed> = (0..signatures).map(signed).collect::<Result<_>>()?;
    let one_by_one = |signed: &[Signed]| -> Vec<_> {
        let each = signed.iter();
        each.map(|s| recover_signer(&s.hash, &s.r, &s.s, s.y_parity))
            .collect()
    };
    ensure!(
        recover_signers(&signed) == one_by_one(&signed),
        "a batch of {signatures} signatures recovers other signers"
    );

    let time = Duration::from_millis(options.round_ms);
    let us_each = |work: &dyn Fn()| seconds_each(time, signatures, work) * 1e6;
    let rounds = (0..options.rounds).map(|_| {
        let together = us_each(&|| drop(black_box(recover_signers(black_box(&signed)))));
        let one = us_each(&|| drop(black_box(one_by_one(black_box(&signed)))));
        (together, one)
    });
    let rounds: Vec<(f64, f64)> = rounds.collect();
    Ok(Batch {
        signatures,
        together_us: Spread::of(rounds.iter().map(|(together, _)| *together)),
        one_by_one_us: Spread::of(rounds.iter().map(|(_, one)| *one)),
        ratio: Spread::of(rounds.iter().map(|(together, one)| one / together)),
    })
}

fn print(batch: &Batch) {
    println!(
        "{:>5} signatures: together {} us each, one by one {}, ratio {}",
        batch.signatures, batch.together_us, batch.one_by_one_us, batch.ratio
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_1_and_9_are_measured() {
        let options = Options {
            rounds: 2,
            round_ms: 1,
            json: JsonFile::default(),
        };
        for signatures in [1, 9] {
            let batch = measure(signatures, &options).unwrap();
            assert_eq!(batch.signatures, signatures);
            assert!(batch.together_us.min > 0.0 && batch.one_by_one_us.min > 0.0);
        }
    }
}
