//! `niwaki-bench keccak`: Keccak-256 of many messages, in lanes and one by one, compared with keccak-asm and sha3.
//!
//! In a round, each contender hashes the same batch again and again for a few milliseconds. The results are the time
//! per hash and the ratio to our batch in the same round. All messages of a case fit in the processor's cache.

use crate::harness::{JsonFile, seconds_each};
use crate::machine::Machine;
use crate::stats::Spread;
use alloy_primitives::keccak256;
use eyre::{Result, ensure};
use niwaki_crypto::{Lanes, keccak256_batch, keccak256_batch_by};
use niwaki_primitives::B256;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Options of `niwaki-bench keccak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; in each, every contender hashes for --round-ms.
    #[arg(long, default_value_t = 15, value_parser = crate::harness::at_least_one)]
    rounds: usize,
    /// Minimum time of a contender in a round, ms.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    round_ms: u64,
    #[command(flatten)]
    json: JsonFile,
}

/// Lengths of messages in bytes; `None` for a mix of trie nodes.
const LENGTHS: [Option<usize>; 5] = [Some(32), Some(64), Some(136), Some(532), None];
/// Messages that are hashed in one call.
const BATCHES: [usize; 3] = [8, 64, 1000];

/// The results of all cases.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    rounds: usize,
    best_lanes: String,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    messages: String,
    batch: usize,
    contenders: Vec<HashTimes>,
}

#[derive(Debug, Serialize)]
struct HashTimes {
    name: &'static str,
    ns_per_hash: Spread,
    /// Its time over that of our batch in the same round; `None` for our batch.
    ratio: Option<Spread>,
}

/// A function that hashes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// Our batch function, as the trie calls it.
    Batch,
    Lanes(Lanes),
    KeccakAsm,
    Sha3,
}

impl Contender {
    const ALL: [Self; 6] = [
        Self::Batch,
        Self::Lanes(Lanes::Eight),
        Self::Lanes(Lanes::Four),
        Self::Lanes(Lanes::One),
        Self::KeccakAsm,
        Self::Sha3,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Batch => "niwaki batch",
            Self::Lanes(Lanes::Eight) => "8 lanes",
            Self::Lanes(Lanes::Four) => "4 lanes",
            Self::Lanes(Lanes::One) => "1 lane",
            Self::KeccakAsm => "keccak-asm",
            Self::Sha3 => "sha3",
        }
    }

    fn is_available(self) -> bool {
        !matches!(self, Self::Lanes(lanes) if !lanes.is_available())
    }

    fn hash(self, messages: &[&[u8]], hashes: &mut Vec<B256>) {
        let one_by_one = |hash: fn(&[u8]) -> [u8; 32], hashes: &mut [B256]| {
            for (message, out) in messages.iter().zip(hashes) {
                out.0 = hash(message);
            }
        };
        match self {
            Self::Batch => *hashes = keccak256_batch(messages),
            Self::Lanes(lanes) => keccak256_batch_by(lanes, messages, hashes),
            Self::KeccakAsm => one_by_one(|m| keccak_asm::Keccak256::digest(m).into(), hashes),
            Self::Sha3 => {
                use sha3::Digest;
                one_by_one(|m| sha3::Keccak256::digest(m).into(), hashes);
            }
        }
    }

    /// Hashes for at least `time`; returns ns per hash.
    fn time(self, messages: &[&[u8]], hashes: &mut Vec<B256>, time: Duration) -> f64 {
        let hash = || self.hash(black_box(messages), black_box(hashes));
        seconds_each(time, messages.len(), hash) * 1e9
    }
}

impl Report {
    /// The time of the contender `name` over that of our batch, for each case.
    pub(crate) fn over_batch(&self, name: &str) -> Vec<f64> {
        let rows = self.cases.iter().flat_map(|case| &case.contenders);
        let ratios = rows.filter(|row| row.name == name);
        ratios.filter_map(|row| Some(row.ratio?.median)).collect()
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    options
        .json
        .write(&measure_all(options.rounds, options.round_ms)?)
}

/// Measures every case and prints it.
pub(crate) fn measure_all(rounds: usize, round_ms: u64) -> Result<Report> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut cases = Vec::new();
    for length in LENGTHS {
        for batch in BATCHES {
            let messages: Vec<Vec<u8>> = (0..batch).map(|_| message(length, &mut random)).collect();
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let case = Case {
                messages: length.map_or("trie nodes".to_owned(), |bytes| format!("{bytes} B")),
                batch,
                contenders: measure(&messages, rounds, round_ms)?,
            };
            print(&case);
            cases.push(case);
        }
    }
    Ok(Report {
        machine: Machine::here(),
        rounds,
        best_lanes: format!("{:?}", Lanes::best()),
        cases,
    })
}

/// A message of `length` bytes, or of the length of a trie node: half are full branches, a quarter branches with
/// few children, a quarter leaves.
fn message(length: Option<usize>, random: &mut SmallRng) -> Vec<u8> {
    let length = length.unwrap_or_else(|| match random.random_range(0..4) {
        0 => random.random_range(38..=75),
        1 => 3 + 17 + 32 * random.random_range(2..=8),
        _ => 532,
    });
    (0..length).map(|_| random.random()).collect()
}

fn measure(messages: &[&[u8]], rounds: usize, round_ms: u64) -> Result<Vec<HashTimes>> {
    let contenders = Contender::ALL.into_iter().filter(|one| one.is_available());
    let contenders: Vec<Contender> = contenders.collect();
    let expected: Vec<B256> = messages.iter().map(keccak256).collect();
    let mut hashes = vec![B256::ZERO; messages.len()];
    for contender in &contenders {
        hashes.fill(B256::ZERO);
        contender.hash(messages, &mut hashes);
        ensure!(
            hashes == expected,
            "{} computes other hashes",
            contender.name()
        );
    }
    let time = Duration::from_millis(round_ms);
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        for (at, contender) in contenders.iter().enumerate() {
            let ns = contender.time(messages, &mut hashes, time);
            // The first round warms up.
            if round > 0 {
                samples[at].push(ns);
            }
        }
    }
    let row = |(at, contender): (usize, &Contender)| {
        let ratios = samples[at].iter().zip(&samples[0]);
        HashTimes {
            name: contender.name(),
            ns_per_hash: Spread::of(samples[at].iter().copied()),
            ratio: (at > 0).then(|| Spread::of(ratios.map(|(peer, ours)| peer / ours))),
        }
    };
    Ok(contenders.iter().enumerate().map(row).collect())
}

fn print(case: &Case) {
    println!("{}, {} in a batch", case.messages, case.batch);
    for row in &case.contenders {
        let (name, ns) = (row.name, row.ns_per_hash);
        print!("  {name:<13} {:>8.1} ns ({})", ns.median, ns.range(1));
        match row.ratio {
            Some(ratio) => println!("  {:.2} times ours ({})", ratio.median, ratio.range(2)),
            None => println!(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contenders_agree() {
        let mut random = SmallRng::seed_from_u64(2);
        let messages: Vec<Vec<u8>> = (0..9).map(|_| message(None, &mut random)).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let rows = measure(&messages, 1, 1).unwrap();
        assert!(rows.len() >= 4, "{rows:?}");
        assert!(rows.iter().all(|row| row.ns_per_hash.median > 0.0));
        assert_eq!(rows[0].ratio, None);
    }

    #[test]
    fn trie_nodes_have_38_to_532_bytes() {
        let mut random = SmallRng::seed_from_u64(3);
        let lengths: Vec<usize> = (0..100).map(|_| message(None, &mut random).len()).collect();
        assert!(lengths.iter().all(|length| (38..=532).contains(length)));
        assert!(lengths.contains(&532) && lengths.iter().any(|length| *length < 76));
        assert_eq!(message(Some(64), &mut random).len(), 64);
    }
}
