//! `niwaki-bench recover`: signers of many signatures, together and one by one.
//!
//! A lot of signatures is recovered again and again for some milliseconds together, then one by one by the
//! library in force; that is a round. The figure is time per signature, the ratio that of a round.

use crate::machine::Machine;
use crate::stats::Spread;
use alloy_primitives::keccak256;
use eyre::{Result, ensure};
use niwaki_crypto::{Signed, recover_signer, recover_signers, sign};
use serde::Serialize;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `niwaki-bench recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds: in each, both ways recover for --round-ms.
    #[arg(long, default_value_t = 15, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Least time that a way recovers in a round, ms.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    round_ms: u64,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Signatures that are recovered in one call.
const LOTS: [usize; 6] = [2, 4, 8, 16, 64, 1000];

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    lots: Vec<Lot>,
}

#[derive(Debug, Serialize)]
struct Lot {
    signatures: usize,
    together_us: Spread,
    one_by_one_us: Spread,
    /// Time one by one over time together.
    ratio: Spread,
}

/// Measures every size of lot.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let mut lots = Vec::new();
    for signatures in LOTS {
        let lot = measure(signatures, options)?;
        print(&lot);
        lots.push(lot);
    }
    let report = Report {
        machine: Machine::here(),
        rounds: options.rounds,
        lots,
    };
    crate::write_json(options.json.as_deref(), &report)
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

fn measure(signatures: usize, options: &Options) -> Result<Lot> {
    let signed: Vec<Signed> = (0..signatures).map(signed).collect::<Result<_>>()?;
    let one_by_one = |signed: &[Signed]| -> Vec<_> {
        let each = signed.iter();
        each.map(|s| recover_signer(&s.hash, &s.r, &s.s, s.y_parity))
            .collect()
    };
    let is_same = recover_signers(&signed) == one_by_one(&signed);
    ensure!(
        is_same,
        "{signatures} signatures recover otherwise together"
    );

    let time = Duration::from_millis(options.round_ms);
    let us_each = |work: &dyn Fn()| {
        let (began, mut count) = (Instant::now(), 0);
        loop {
            work();
            count += signatures;
            let taken = began.elapsed();
            if taken >= time {
                return taken.as_secs_f64() * 1e6 / count as f64;
            }
        }
    };
    let rounds = (0..options.rounds).map(|_| {
        let together = us_each(&|| drop(black_box(recover_signers(black_box(&signed)))));
        let one = us_each(&|| drop(black_box(one_by_one(black_box(&signed)))));
        (together, one)
    });
    let rounds: Vec<(f64, f64)> = rounds.collect();
    Ok(Lot {
        signatures,
        together_us: Spread::of(rounds.iter().map(|(together, _)| *together)),
        one_by_one_us: Spread::of(rounds.iter().map(|(_, one)| *one)),
        ratio: Spread::of(rounds.iter().map(|(together, one)| one / together)),
    })
}

fn print(lot: &Lot) {
    let show = |spread: Spread| {
        let Spread { median, min, max } = spread;
        format!("{median:.2} ({min:.2}..{max:.2})")
    };
    println!(
        "{:>5} signatures: together {} us each, one by one {}, ratio {}",
        lot.signatures,
        show(lot.together_us),
        show(lot.one_by_one_us),
        show(lot.ratio)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lot_of_any_size_is_measured() {
        let options = Options {
            rounds: 2,
            round_ms: 1,
            json: None,
        };
        for signatures in [1, 9] {
            let lot = measure(signatures, &options).unwrap();
            assert_eq!(lot.signatures, signatures);
            assert!(lot.together_us.min > 0.0 && lot.one_by_one_us.min > 0.0);
        }
    }
}
