//! `niwaki-bench listed`: blocks of Amsterdam with their access list, and the same blocks without.
//!
//! A chain begins with contracts that have many slots. Transactions hash, read slots by chance and set
//! some; some count in one slot that they all share. Each block is judged as the Engine API has it
//! judged, senders known, by chains that differ in threads and in whether the list comes with it, each
//! with a database of its own, in an order that turns from block to block.

use crate::disk;
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, bail, ensure};
use niwaki_chain::{
    BlockTemplate, BuiltBlock, Candidate, Chain, ChainConfig, Consensus, ForkChoice, GenesisBlock,
    PayloadHints, StateOptions, StorageOptions, Verdict,
};
use niwaki_primitives::{
    Address, B256, BlockAccessList, SignableTransaction, Signature, TxEip1559, TxKind, U256,
};
use niwaki_rules::{Genesis, GenesisAccount, decode_access_list};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options of `niwaki-bench listed`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Blocks.
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    blocks: usize,
    /// Transactions of a block.
    #[arg(long, default_value_t = 200)]
    transactions: u64,
    /// Slots that each reads.
    #[arg(long, default_value_t = 20)]
    reads: u64,
    /// Slots that each sets.
    #[arg(long, default_value_t = 5)]
    writes: u64,
    /// Words that each hashes, one after the other.
    #[arg(long, default_value_t = 200)]
    hashes: u64,
    /// Every so manyth transaction counts in one slot that they share; 0 for none.
    #[arg(long, default_value_t = 4)]
    shared: u64,
    /// Contracts.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    contracts: u64,
    /// Slots of each, a power of two.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=32_768))]
    slots: u64,
    /// Threads of the chains that have several.
    #[arg(long, default_value_t = 2, value_parser = crate::at_least_one)]
    threads: usize,
    /// Bytes of each chain's caches and buffers.
    #[arg(long, default_value_t = 256 << 20)]
    memory_bytes: usize,
    /// Opens each chain anew for each block, with its files out of the system's cache.
    #[arg(long)]
    cold: bool,
    /// Folder of the databases [default: the system's folder for such].
    #[arg(long)]
    data_path: Option<PathBuf>,
    /// Seed of the transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Accounts that send, in turn.
const SENDERS: u64 = 512;
const GAS_LIMIT: u64 = 1_000_000_000;
const TX_GAS: u64 = 16_000_000;
/// Seconds between blocks.
const SLOT_S: u64 = 12;
const CHAIN_ID: u64 = 7014;

/// A word hashed, and put in its place.
const HASH: &[u8] = &[0x60, 0x20, 0x5f, 0x20, 0x5f, 0x52];
/// So too, and the slot below a number of slots that it names read.
const READ: &[u8] = &[
    0x60, 0x20, 0x5f, 0x20, 0x80, 0x5f, 0x52, 0x61, MASK, MASK, 0x16, 0x54, 0x50,
];
/// So too, and the slot set to it.
const WRITE: &[u8] = &[
    0x60, 0x20, 0x5f, 0x20, 0x80, 0x5f, 0x52, 0x80, 0x61, MASK, MASK, 0x16, 0x55,
];
/// One added to the highest slot.
const COUNT: &[u8] = &[0x5f, 0x19, 0x80, 0x54, 0x60, 0x01, 0x01, 0x90, 0x55];
/// In the place of the two bytes of a slot.
const MASK: u8 = 0xee;

/// The words of the input after the one that is hashed: hashes, reads, writes, counts.
fn code(slots: u64) -> Result<Vec<u8>> {
    let mut code = vec![0x5f, 0x35, 0x5f, 0x52];
    for (word, body) in (1_u8..).zip([HASH, READ, WRITE, COUNT]) {
        code.extend([0x60, word * 32, 0x35]);
        let start = u8::try_from(code.len())?;
        let end = u8::try_from(code.len() + body.len() + 13)?;
        // While the count is not zero.
        code.extend([0x5b, 0x80, 0x15, 0x60, end, 0x57]);
        code.extend(body);
        code.extend([0x60, 0x01, 0x90, 0x03, 0x60, start, 0x56, 0x5b, 0x50]);
    }
    let mask = u16::try_from(slots - 1)?.to_be_bytes();
    let at = (0..code.len() - 1).filter(|at| code[*at..at + 2] == [MASK, MASK]);
    for at in at.collect::<Vec<_>>() {
        code[at..at + 2].copy_from_slice(&mask);
    }
    Ok(code)
}

fn sender(number: u64) -> Address {
    Address::left_padding_from(&(0x5e00_0000 + number % SENDERS).to_be_bytes())
}

fn contract(number: u64) -> Address {
    Address::left_padding_from(&(0xc0de_0000 + number).to_be_bytes())
}

fn genesis(options: &Options) -> Result<Genesis> {
    let text = include_str!("../../../testdata/amsterdam/genesis.json");
    let mut json: serde_json::Value = serde_json::from_str(text)?;
    json["config"]["amsterdamTime"] = 0.into();
    json["gasLimit"] = format!("{GAS_LIMIT:#x}").into();
    let mut genesis = Genesis::from_json(&json.to_string())?;
    for number in 0..SENDERS {
        let account = GenesisAccount {
            balance: U256::MAX >> 32,
            ..GenesisAccount::default()
        };
        genesis.alloc.insert(sender(number), account);
    }
    let code = code(options.slots)?;
    for number in 0..options.contracts {
        let slots = (0..options.slots).map(|slot| (U256::from(slot), U256::from(slot + 1)));
        let mut storage: std::collections::BTreeMap<_, _> = slots.collect();
        storage.insert(U256::MAX, U256::ONE);
        let account = GenesisAccount {
            nonce: 1,
            balance: U256::ZERO,
            code: code.clone().into(),
            storage,
        };
        genesis.alloc.insert(contract(number), account);
    }
    Ok(genesis)
}

/// A block, who sent its transactions, and its list.
struct Made {
    built: BuiltBlock,
    senders: Vec<Address>,
    list: BlockAccessList,
}

fn candidate(options: &Options, number: u64, random: &mut SmallRng) -> Candidate {
    let shares = options.shared > 0 && number.is_multiple_of(options.shared);
    let seed = U256::from(random.random::<u64>());
    let counts = [
        options.hashes,
        options.reads,
        options.writes,
        u64::from(shares),
    ];
    let words = std::iter::once(seed).chain(counts.map(U256::from));
    let input: Vec<u8> = words.flat_map(|word| word.to_be_bytes::<32>()).collect();
    let to = match shares {
        true => contract(0),
        false => contract(random.random_range(0..options.contracts)),
    };
    let tx = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce: number / SENDERS,
        gas_limit: TX_GAS,
        max_fee_per_gas: 1 << 60,
        max_priority_fee_per_gas: 1,
        to: TxKind::Call(to),
        input: input.into(),
        ..TxEip1559::default()
    };
    let signature = Signature::new(U256::ONE, U256::ONE, false);
    Candidate {
        tx: tx.into_signed(signature).into(),
        sender: sender(number),
    }
}

/// The next block of the chain, which takes it in.
fn make(chain: &Chain, options: &Options, block: u64, random: &mut SmallRng) -> Result<Made> {
    let first = block * options.transactions;
    let mut senders = Vec::new();
    let mut refusal = None;
    let mut offered = first..first + options.transactions;
    let mut next = |refused: Option<&_>| {
        refusal = refusal.take().or(refused.map(ToString::to_string));
        let candidate = candidate(options, offered.next()?, random);
        senders.push(candidate.sender);
        Some(candidate)
    };
    let head = chain.head();
    let template = BlockTemplate {
        parent: head.id.hash,
        coinbase: Address::repeat_byte(0xfe),
        timestamp: head.header.timestamp + SLOT_S,
        slot_number: head.id.number + 1,
        ..BlockTemplate::default()
    };
    let built = chain.build_best(template, &mut next)?;
    if let Some(refusal) = refusal {
        bail!("a transaction was refused: {refusal}; use fewer or smaller ones");
    }
    let list = decode_access_list(
        built
            .block_access_list
            .as_deref()
            .map_or(&[], |list| &list[..]),
    )?;
    Ok(Made {
        built,
        senders,
        list,
    })
}

/// A chain that judges.
struct Judge {
    name: String,
    folder: PathBuf,
    threads: usize,
    with_list: bool,
    consensus: Option<Consensus>,
    times: Vec<Times>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    total_ms: f64,
    execute_ms: f64,
    root_ms: f64,
}

impl Judge {
    fn open(&self, options: &Options, genesis: &Genesis) -> Result<Consensus> {
        let share = |percent: usize| options.memory_bytes / 100 * percent;
        let chain = Chain::open(ChainConfig {
            data_path: Some(self.folder.clone()),
            spec: Arc::new(genesis.spec.clone()),
            genesis: GenesisBlock::from(genesis),
            storage: StorageOptions {
                memory_budget_bytes: share(35),
                ..StorageOptions::default()
            },
            state: StateOptions {
                cache_bytes: share(45),
                ..StateOptions::default()
            },
        })?;
        chain.set_transaction_threads(self.threads);
        Ok(Consensus::new(Arc::new(chain)))
    }

    /// Judges a block and makes it the head.
    fn judge(&mut self, made: &Made, options: &Options, genesis: &Genesis) -> Result<()> {
        let consensus = match self.consensus.take() {
            Some(consensus) if !options.cold => consensus,
            open => {
                drop(open);
                disk::drop_cached(&self.folder)?;
                self.open(options, genesis)?
            }
        };
        let (block, hash) = (made.built.block.clone(), made.built.hash);
        let known = PayloadHints {
            senders: made.senders.iter().copied().map(Some).collect(),
            access_list: self.with_list.then(|| made.list.clone()),
            ..PayloadHints::default()
        };
        let clock = Instant::now();
        let verdict = consensus.new_payload(block, hash, known)?;
        let total_ms = clock.elapsed().as_secs_f64() * 1e3;
        let Verdict::Valid(Some(imported)) = verdict else {
            bail!("{}: {verdict:?}, must be valid", self.name);
        };
        self.times.push(Times {
            total_ms,
            execute_ms: imported.timings.execute.as_secs_f64() * 1e3,
            root_ms: imported.timings.root.as_secs_f64() * 1e3,
        });
        let choice = ForkChoice {
            head: hash,
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        consensus.fork_choice(choice)?;
        // What is written behind must not be in the next one's time.
        consensus.chain().sync()?;
        self.consensus = Some(consensus);
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    blocks: usize,
    transactions: u64,
    cold: bool,
    /// Of the middle block.
    gas: u64,
    list_accounts: usize,
    list_slots: usize,
    judges: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    total_ms: Spread,
    execute_ms: Spread,
    root_ms: Spread,
    /// Time of the first judge, one thread and no list, over that of this one, block by block.
    faster: Spread,
}

/// Makes the blocks, has them judged in all ways, and compares the times.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    ensure!(
        options.slots.is_power_of_two(),
        "--slots {} is no power of two; use one up to 32768",
        options.slots
    );
    let place = match &options.data_path {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let genesis = genesis(options)?;
    let mut judges = judges(options.threads, place.path());
    let builder = Judge {
        folder: place.path().join("builder"),
        ..self::judges(1, place.path()).swap_remove(0)
    };
    let builder = builder.open(options, &genesis)?;
    for judge in &mut judges {
        judge.consensus = Some(judge.open(options, &genesis)?);
    }
    let mut random = SmallRng::seed_from_u64(options.seed);
    let mut sizes = Vec::new();
    for number in 0..options.blocks {
        let chain = builder.chain();
        let made = make(chain, options, number as u64, &mut random)?;
        chain.import(niwaki_primitives::RecoveredBlock {
            block: made.built.block.clone(),
            hash: made.built.hash,
            senders: made.senders.clone().into(),
        })?;
        let ways = judges.len();
        for at in 0..ways {
            judges[(number + at) % ways].judge(&made, options, &genesis)?;
        }
        let slots = made.list.iter();
        let slots = slots.map(|account| account.storage_slots().count());
        sizes.push((
            made.built.block.header.gas_used,
            made.list.len(),
            slots.sum(),
        ));
    }
    sizes.sort_unstable();
    let (gas, list_accounts, list_slots) = sizes[sizes.len() / 2];
    let report = Report {
        machine: Machine::here(),
        blocks: options.blocks,
        transactions: options.transactions,
        cold: options.cold,
        gas,
        list_accounts,
        list_slots,
        judges: judges.iter().map(|judge| row(judge, &judges[0])).collect(),
    };
    print(&report);
    crate::write_json(options.json.as_deref(), &report)
}

fn judges(threads: usize, place: &Path) -> Vec<Judge> {
    let ways = [(1, false), (1, true), (threads, false), (threads, true)];
    let judge = |(threads, with_list)| {
        let list = if with_list { "list" } else { "no list" };
        Judge {
            name: format!("{threads} threads, {list}"),
            folder: place.join(format!("{threads}-{with_list}")),
            threads,
            with_list,
            consensus: None,
            times: Vec::new(),
        }
    };
    ways.into_iter().map(judge).collect()
}

fn row(judge: &Judge, first: &Judge) -> Row {
    let pairs = first.times.iter().zip(&judge.times);
    let part = |part: fn(&Times) -> f64| Spread::of(judge.times.iter().map(part));
    Row {
        name: judge.name.clone(),
        total_ms: part(|times| times.total_ms),
        execute_ms: part(|times| times.execute_ms),
        root_ms: part(|times| times.root_ms),
        faster: Spread::of(pairs.map(|(first, own)| first.total_ms / own.total_ms)),
    }
}

fn print(report: &Report) {
    println!(
        "{} blocks of {} transactions; {} gas, list of {} accounts and {} slots; ms, median (least \
         and most)",
        report.blocks, report.transactions, report.gas, report.list_accounts, report.list_slots
    );
    for row in &report.judges {
        let show = |spread: &Spread| {
            let Spread { median, min, max } = spread;
            format!("{median:8.2} ({min:.2}..{max:.2})")
        };
        println!(
            "{:<20} {:<26} execute {:<26} root {:<26} {:.2} ({:.2}..{:.2}) times as fast",
            row.name,
            show(&row.total_ms),
            show(&row.execute_ms),
            show(&row.root_ms),
            row.faster.median,
            row.faster.min,
            row.faster.max
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn blocks_with_and_without_their_lists_are_judged_valid() {
        for cold in [&[][..], &["--cold"]] {
            let words = ["listed", "--blocks", "3", "--transactions", "12"];
            let words = [&words[..], &["--contracts", "3", "--slots", "64"], cold].concat();
            run(&Line::try_parse_from(words).unwrap().options).unwrap();
        }
        let odd = Line::try_parse_from(["listed", "--slots", "65"]).unwrap();
        let error = run(&odd.options).unwrap_err().to_string();
        assert!(error.contains("power of two"), "{error}");
    }
}
