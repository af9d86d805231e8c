//! `niwaki-bench keccak`: Keccak-256 of many messages, in lanes and one by one, beside keccak-asm
//! and sha3.
//!
//! A batch of messages is hashed again and again for a few milliseconds by one contender, then by
//! the next; such a round is a pair for each peer. The figure is time per hash, the ratio that of a
//! round. All messages of a case are in the processor's cache.

use crate::machine::Machine;
use crate::stats::Spread;
use alloy_primitives::keccak256;
use eyre::{Result, ensure};
use niwaki_crypto::{Lanes, keccak256_batch, keccak256_batch_by};
use niwaki_primitives::B256;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `niwaki-bench keccak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds: in each, every contender hashes for --round-ms.
    #[arg(long, default_value_t = 15, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Least time that a contender hashes in a round, ms.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    round_ms: u64,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Lengths of messages in bytes; none for a mix of trie nodes.
const LENGTHS: [Option<usize>; 5] = [Some(32), Some(64), Some(136), Some(532), None];
/// Messages that are hashed in one call.
const BATCHES: [usize; 3] = [8, 64, 1000];

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 15,
            round_ms: 4,
            json: None,
        }
    }
}

/// The figures of all cases.
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
    contenders: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    ns_per_hash: Spread,
    /// Its time over that of our batch in the same round; none for our batch.
    ratio: Option<Spread>,
}

/// One way of hashing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Ours, as the trie calls it.
    Batch,
    Lanes(Lanes),
    KeccakAsm,
    Sha3,
}

impl Way {
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
            for (message, place) in messages.iter().zip(hashes) {
                place.0 = hash(message);
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

    /// Hashes for at least `time`; gives ns per hash.
    fn time(self, messages: &[&[u8]], hashes: &mut Vec<B256>, time: Duration) -> f64 {
        let began = Instant::now();
        let mut count = 0;
        loop {
            self.hash(black_box(messages), black_box(hashes));
            count += messages.len();
            let taken = began.elapsed();
            if taken >= time {
                return taken.as_secs_f64() * 1e9 / count as f64;
            }
        }
    }
}

impl Report {
    /// The time of the contender `name` over that of our batch, of each case.
    pub(crate) fn over_batch(&self, name: &str) -> Vec<f64> {
        let rows = self.cases.iter().flat_map(|case| &case.contenders);
        let ratios = rows.filter(|row| row.name == name);
        ratios.filter_map(|row| Some(row.ratio?.median)).collect()
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    crate::write_json(options.json.as_deref(), &measure_all(options)?)
}

/// Measures every case, and prints it.
pub(crate) fn measure_all(options: &Options) -> Result<Report> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut cases = Vec::new();
    for length in LENGTHS {
        for batch in BATCHES {
            let messages: Vec<Vec<u8>> = (0..batch).map(|_| message(length, &mut random)).collect();
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let case = Case {
                messages: length.map_or("trie nodes".to_owned(), |bytes| format!("{bytes} B")),
                batch,
                contenders: measure(&messages, options)?,
            };
            print(&case);
            cases.push(case);
        }
    }
    Ok(Report {
        machine: Machine::here(),
        rounds: options.rounds,
        best_lanes: format!("{:?}", Lanes::best()),
        cases,
    })
}

/// A message of `length` bytes, or as long as a node of a trie that is being hashed anew: half are
/// full branches, a quarter branches of few children, a quarter leaves.
fn message(length: Option<usize>, random: &mut SmallRng) -> Vec<u8> {
    let length = length.unwrap_or_else(|| match random.random_range(0..4) {
        0 => random.random_range(38..=75),
        1 => 3 + 17 + 32 * random.random_range(2..=8),
        _ => 532,
    });
    (0..length).map(|_| random.random()).collect()
}

fn measure(messages: &[&[u8]], options: &Options) -> Result<Vec<Row>> {
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|w| w.is_available()).collect();
    let expected: Vec<B256> = messages.iter().map(keccak256).collect();
    let mut hashes = vec![B256::ZERO; messages.len()];
    for way in &ways {
        hashes.fill(B256::ZERO);
        way.hash(messages, &mut hashes);
        ensure!(hashes == expected, "{} hashes otherwise", way.name());
    }
    let time = Duration::from_millis(options.round_ms);
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for round in 0..=options.rounds {
        for (at, way) in ways.iter().enumerate() {
            let ns = way.time(messages, &mut hashes, time);
            // The first round warms up.
            if round > 0 {
                samples[at].push(ns);
            }
        }
    }
    let row = |(at, way): (usize, &Way)| {
        let ratios = samples[at].iter().zip(&samples[0]);
        Row {
            name: way.name(),
            ns_per_hash: Spread::of(samples[at].iter().copied()),
            ratio: (at > 0).then(|| Spread::of(ratios.map(|(peer, ours)| peer / ours))),
        }
    };
    Ok(ways.iter().enumerate().map(row).collect())
}

fn print(case: &Case) {
    println!("{}, {} in a batch", case.messages, case.batch);
    for row in &case.contenders {
        let Spread { median, min, max } = row.ns_per_hash;
        print!("  {:<13} {median:>8.1} ns ({min:.1}..{max:.1})", row.name);
        match row.ratio {
            Some(Spread { median, min, max }) => {
                println!("  {median:.2} times ours ({min:.2}..{max:.2})");
            }
            None => println!(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_hashes_alike() {
        let mut random = SmallRng::seed_from_u64(2);
        let messages: Vec<Vec<u8>> = (0..9).map(|_| message(None, &mut random)).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let options = Options {
            rounds: 1,
            round_ms: 1,
            json: None,
        };
        let rows = measure(&messages, &options).unwrap();
        assert!(rows.len() >= 4, "{rows:?}");
        assert!(rows.iter().all(|row| row.ns_per_hash.median > 0.0));
        assert_eq!(rows[0].ratio, None);
    }

    #[test]
    fn trie_nodes_are_as_long_as_leaves_and_branches() {
        let mut random = SmallRng::seed_from_u64(3);
        let lengths: Vec<usize> = (0..100).map(|_| message(None, &mut random).len()).collect();
        assert!(lengths.iter().all(|length| (38..=532).contains(length)));
        assert!(lengths.contains(&532) && lengths.iter().any(|length| *length < 76));
        assert_eq!(message(Some(64), &mut random).len(), 64);
    }
}
