//! `niwaki-bench gen-genesis`: genesis files of any size. The same options always give the same bytes.
//!
//! The file activates every fork up to Osaka at genesis, and holds accounts in random order of address, some of them
//! contracts with code and storage. It is streamed to disk, so memory does not grow with it.

use crate::random::Random;
use clap::{Args, ValueEnum};
use eyre::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Options of `niwaki-bench gen-genesis`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Accounts; one in 32 is a contract [default: the preset's, or 1000].
    #[arg(long, value_name = "N")]
    accounts: Option<u64>,

    /// Total slots of all contracts; a tenth of them are in one contract [default: the preset's, or 1000].
    #[arg(long, value_name = "M")]
    slots: Option<u64>,

    /// Accounts and slots for a file of about this size.
    #[arg(long, value_enum)]
    preset: Option<Preset>,

    /// Seed of addresses, balances, codes and slots.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// 3.26 million accounts, 4.07 million slots.
    #[value(name = "1.1GB")]
    Large,
    /// 14.82 million accounts, 18.5 million slots.
    #[value(name = "5GB")]
    Huge,
}

/// One account in this many is a contract.
const CONTRACT_EVERY: u64 = 32;
/// Contracts share this many codes, as those of tokens and wallets do.
const CODES: u64 = 4096;

/// The file up to the accounts. There are no system contracts; a chain starts without them as well.
const HEAD: &str = r#"{
  "config": {
    "chainId": 20261121,
    "homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0, "eip158Block": 0,
    "byzantiumBlock": 0, "constantinopleBlock": 0, "petersburgBlock": 0, "istanbulBlock": 0,
    "berlinBlock": 0, "londonBlock": 0,
    "terminalTotalDifficulty": 0, "terminalTotalDifficultyPassed": true,
    "shanghaiTime": 0, "cancunTime": 0, "pragueTime": 0, "osakaTime": 0,
    "blobSchedule": {
      "cancun": {"target": 3, "max": 6, "baseFeeUpdateFraction": 3338477},
      "prague": {"target": 6, "max": 9, "baseFeeUpdateFraction": 5007716},
      "osaka": {"target": 6, "max": 9, "baseFeeUpdateFraction": 5007716}
    }
  },
  "nonce": "0x0", "timestamp": "0x0", "extraData": "0x", "gasLimit": "0x3938700",
  "difficulty": "0x0", "baseFeePerGas": "0x3b9aca00",
  "coinbase": "0x0000000000000000000000000000000000000000",
  "mixHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
  "alloc": {"#;

/// Writes the file.
///
/// # Errors
/// The file exists, or can't be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (accounts, slots) = match options.preset {
        None => (1000, 1000),
        Some(Preset::Large) => (3_260_000, 4_070_000),
        Some(Preset::Huge) => (14_820_000, 18_500_000),
    };
    let (accounts, slots) = (
        options.accounts.unwrap_or(accounts),
        options.slots.unwrap_or(slots),
    );
    ensure!(
        slots == 0 || accounts >= CONTRACT_EVERY,
        "--slots needs a contract, and --accounts {accounts} makes none; use {CONTRACT_EVERY} or more"
    );
    let path = options.to.display();
    let file = File::create_new(&options.to)
        .wrap_err_with(|| format!("can't make {path} as a new file"))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out, accounts, slots, options.seed).and_then(|()| out.flush());
    written.wrap_err_with(|| format!("can't write {path}"))?;
    let bytes = out.get_ref().metadata()?.len();
    println!("{path}: {accounts} accounts, {slots} slots, {bytes} bytes");
    Ok(())
}

fn write(out: &mut dyn Write, accounts: u64, slots: u64, seed: u64) -> std::io::Result<()> {
    let mut random = Random(seed);
    out.write_all(HEAD.as_bytes())?;
    let contracts = accounts / CONTRACT_EVERY;
    for at in 0..accounts {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        let (a, b) = (random.word(), random.word());
        write!(out, "    \"0x{}\": {{", &hex::encode([a, b].concat())[..40])?;
        write!(out, "\"balance\": \"0x{:x}\"", random.next() >> 1)?;
        if at % CONTRACT_EVERY == CONTRACT_EVERY - 1 {
            let number = at / CONTRACT_EVERY;
            out.write_all(b", \"nonce\": \"0x1\", \"code\": \"0x")?;
            out.write_all(code(seed, random.next() % CODES).as_bytes())?;
            out.write_all(b"\"")?;
            write_slots(out, slots_of(number, contracts, slots), &mut random)?;
        }
        out.write_all(b"}")?;
    }
    out.write_all(b"\n  }\n}\n")
}

/// A tenth of all slots are in the contract in the middle; the others are spread evenly.
fn slots_of(number: u64, contracts: u64, slots: u64) -> u64 {
    let large = slots / 10;
    let rest = slots - large;
    let own = rest / contracts + u64::from(number < rest % contracts);
    own + if number == contracts / 2 { large } else { 0 }
}

/// Every second slot has a small number, like fields of a contract; the others are hashes, like entries of mappings.
fn write_slots(out: &mut dyn Write, count: u64, random: &mut Random) -> std::io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    out.write_all(b", \"storage\": {")?;
    for at in 0..count {
        let comma = if at == 0 { "" } else { "," };
        let slot = match at % 2 {
            0 => format!("{at:064x}"),
            _ => hex::encode(random.word()),
        };
        let value = match at % 3 {
            0 => hex::encode(random.word()),
            _ => format!("{:064x}", random.next() | 1),
        };
        write!(out, "{comma}\"0x{slot}\":\"0x{value}\"")?;
    }
    out.write_all(b"}")
}

/// Code number `at`, in hex: 256 to 2303 random bytes, never executed.
fn code(seed: u64, at: u64) -> String {
    let mut random = Random(seed ^ (at + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
    let words = 8 + random.next() % 64;
    (0..words).map(|_| hex::encode(random.word())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::Fork;
    use niwaki_rules::Genesis;

    fn text(accounts: u64, slots: u64, seed: u64) -> String {
        let mut out = Vec::new();
        write(&mut out, accounts, slots, seed).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_generated_file_is_an_osaka_genesis_of_the_requested_size() {
        let genesis = Genesis::from_json(&text(330, 1003, 7)).unwrap();
        assert_eq!(genesis.spec.fork_at(0, 0, true), Fork::Osaka);
        assert_eq!(genesis.alloc.len(), 330);
        let slots: usize = genesis.alloc.values().map(|a| a.storage.len()).sum();
        assert_eq!(slots, 1003);
        let contracts = genesis.alloc.values().filter(|a| !a.code.is_empty());
        assert_eq!(contracts.count(), 10);
    }

    #[test]
    fn bytes_depend_on_the_options_and_the_seed_only() {
        assert_eq!(text(64, 50, 1), text(64, 50, 1));
        assert_ne!(text(64, 50, 1), text(64, 50, 2));
    }
}
