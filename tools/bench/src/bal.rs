//! `niwaki-bench bal`: blocks of Amsterdam with their block access list (BAL), and the same blocks without it.
//!
//! The genesis holds contracts with many slots. Transactions hash, read random slots and set some; every fourth also
//! increments one slot that all of them share. Contenders differ in the number of threads and in whether they get the
//! BAL; each has its own database. Each validates every block as `engine_newPayload` does, with its senders known. The
//! order of the contenders rotates from block to block.

use crate::disk;
use crate::harness::{JsonFile, Seed};
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
use rand::{Rng, rngs::SmallRng};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options of `niwaki-bench bal`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of blocks.
    #[arg(long, default_value_t = 20, value_parser = crate::harness::at_least_one)]
    blocks: usize,
    /// Transactions per block.
    #[arg(long, default_value_t = 200)]
    transactions: u64,
    /// Slots that each transaction reads.
    #[arg(long, default_value_t = 20)]
    reads: u64,
    /// Slots that each transaction sets.
    #[arg(long, default_value_t = 5)]
    writes: u64,
    /// Words that each transaction hashes, one after the other.
    #[arg(long, default_value_t = 200)]
    hashes: u64,
    /// Every Nth transaction increments one shared slot; 0 for none.
    #[arg(long, default_value_t = 4)]
    shared: u64,
    /// Number of contracts.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    contracts: u64,
    /// Slots of each contract, a power of two.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=32_768))]
    slots: u64,
    /// Threads of the contenders with several threads.
    #[arg(long, default_value_t = 2, value_parser = crate::harness::at_least_one)]
    threads: usize,
    /// Bytes of caches and buffers of each contender.
    #[arg(long, default_value_t = 256 << 20)]
    memory_bytes: usize,
    /// Reopen each database for each block, with its files dropped from the page cache.
    #[arg(long)]
    cold: bool,
    /// Folder of the databases [default: the system's temporary folder].
    #[arg(long)]
    data_path: Option<PathBuf>,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: JsonFile,
}

/// Accounts that send in turn.
const SENDERS: u64 = 512;
const GAS_LIMIT: u64 = 1_000_000_000;
const TX_GAS: u64 = 16_000_000;
/// Seconds between blocks.
const SLOT_S: u64 = 12;
const CHAIN_ID: u64 = 7014;

// Loop bodies of the contract. Memory word 0 holds a running hash.

/// Hashes word 0 into itself.
const HASH: &[u8] = &[0x60, 0x20, 0x5f, 0x20, 0x5f, 0x52];
/// Hashes, then reads the slot that the hash selects.
const READ: &[u8] = &[
    0x60, 0x20, 0x5f, 0x20, 0x80, 0x5f, 0x52, 0x61, MASK, MASK, 0x16, 0x54, 0x50,
];
/// Hashes, then writes the hash to the slot that it selects.
const WRITE: &[u8] = &[
    0x60, 0x20, 0x5f, 0x20, 0x80, 0x5f, 0x52, 0x80, 0x61, MASK, MASK, 0x16, 0x55,
];
/// Increments the highest slot.
const COUNT: &[u8] = &[0x5f, 0x19, 0x80, 0x54, 0x60, 0x01, 0x01, 0x90, 0x55];
/// Placeholder of each of the two bytes of the slot mask.
const MASK: u8 = 0xee;

/// The code of a contract. Its input: the word to hash, then the number of hashes, reads, writes and increments.
fn code(slots: u64) -> Result<Vec<u8>> {
    let mut code = vec![0x5f, 0x35, 0x5f, 0x52];
    for (word, body) in (1_u8..).zip([HASH, READ, WRITE, COUNT]) {
        code.extend([0x60, word * 32, 0x35]);
        let start = u8::try_from(code.len())?;
        let end = u8::try_from(code.len() + body.len() + 13)?;
        // While the counter is not zero.
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

/// A block, the senders of its transactions, and its access list.
struct BlockWithBal {
    built: BuiltBlock,
    senders: Vec<Address>,
    bal: BlockAccessList,
}

fn candidate(options: &Options, number: u64, random: &mut SmallRng) -> Candidate {
    let shares = options.shared > 0 && number.is_multiple_of(options.shared);
    let seed = U256::from(random.random::<u64>());
    let (hashes, reads, writes) = (options.hashes, options.reads, options.writes);
    let counts = [hashes, reads, writes, u64::from(shares)].map(U256::from);
    let words = std::iter::once(seed).chain(counts);
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

/// Builds the next block of the chain.
fn build(
    chain: &Chain,
    options: &Options,
    block: u64,
    random: &mut SmallRng,
) -> Result<BlockWithBal> {
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
    let encoded = built.block_access_list.as_deref();
    let bal = decode_access_list(encoded.map_or(&[], |list| &list[..]))?;
    Ok(BlockWithBal {
        built,
        senders,
        bal,
    })
}

/// A chain that validates the blocks.
struct Contender {
    name: String,
    folder: PathBuf,
    threads: usize,
    with_bal: bool,
    consensus: Option<Consensus>,
    times: Vec<Times>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    total_ms: f64,
    execute_ms: f64,
    root_ms: f64,
}

impl Contender {
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

    /// Validates a block and makes it the head.
    fn validate(
        &mut self,
        block: &BlockWithBal,
        options: &Options,
        genesis: &Genesis,
    ) -> Result<()> {
        let consensus = match self.consensus.take() {
            Some(consensus) if !options.cold => consensus,
            open => {
                drop(open);
                disk::drop_cached(&self.folder)?;
                self.open(options, genesis)?
            }
        };
        let (payload, hash) = (block.built.block.clone(), block.built.hash);
        let hints = PayloadHints {
            senders: block.senders.iter().copied().map(Some).collect(),
            access_list: self.with_bal.then(|| block.bal.clone()),
            ..PayloadHints::default()
        };
        let clock = Instant::now();
        let verdict = consensus.new_payload(payload, hash, hints)?;
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
        // Background writes must not count in the next block's time.
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
    /// Gas and access list of the median block.
    gas: u64,
    list_accounts: usize,
    list_slots: usize,
    #[serde(rename = "judges")]
    contenders: Vec<ContenderTimes>,
}

#[derive(Debug, Serialize)]
struct ContenderTimes {
    name: String,
    total_ms: Spread,
    execute_ms: Spread,
    root_ms: Spread,
    /// Time of the first contender, one thread without BAL, over that of this one, block by block.
    faster: Spread,
}

/// Builds the blocks, lets every contender validate them, and compares the times.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    ensure!(
        options.slots.is_power_of_two(),
        "--slots {} is no power of two; use one up to 32768",
        options.slots
    );
    let folder = match &options.data_path {
        Some(path) => tempfile::tempdir_in(path)?,
        None => tempfile::tempdir()?,
    };
    let genesis = genesis(options)?;
    let mut contenders = contenders(options.threads, folder.path());
    let builder = Contender {
        folder: folder.path().join("builder"),
        ..self::contenders(1, folder.path()).swap_remove(0)
    };
    let builder = builder.open(options, &genesis)?;
    for contender in &mut contenders {
        contender.consensus = Some(contender.open(options, &genesis)?);
    }
    let mut random = options.seed.rng();
    let mut sizes = Vec::new();
    for number in 0..options.blocks {
        let chain = builder.chain();
        let block = build(chain, options, number as u64, &mut random)?;
        chain.import(niwaki_primitives::RecoveredBlock {
            block: block.built.block.clone().into(),
            hash: block.built.hash,
            senders: block.senders.clone(),
        })?;
        let count = contenders.len();
        for at in 0..count {
            contenders[(number + at) % count].validate(&block, options, &genesis)?;
        }
        let accounts = block.bal.iter();
        let slots: usize = accounts
            .map(|account| account.storage_slots().count())
            .sum();
        let gas = block.built.block.header.gas_used;
        sizes.push((gas, block.bal.len(), slots));
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
        contenders: contenders
            .iter()
            .map(|contender| ContenderTimes::new(contender, &contenders[0]))
            .collect(),
    };
    print(&report);
    options.json.write(&report)
}

fn contenders(threads: usize, folder: &Path) -> Vec<Contender> {
    let variants = [(1, false), (1, true), (threads, false), (threads, true)];
    let contender = |(threads, with_bal)| {
        let list = if with_bal { "list" } else { "no list" };
        Contender {
            name: format!("{threads} threads, {list}"),
            folder: folder.join(format!("{threads}-{with_bal}")),
            threads,
            with_bal,
            consensus: None,
            times: Vec::new(),
        }
    };
    variants.into_iter().map(contender).collect()
}

impl ContenderTimes {
    fn new(contender: &Contender, first: &Contender) -> Self {
        let pairs = first.times.iter().zip(&contender.times);
        let part = |part: fn(&Times) -> f64| Spread::of(contender.times.iter().map(part));
        Self {
            name: contender.name.clone(),
            total_ms: part(|times| times.total_ms),
            execute_ms: part(|times| times.execute_ms),
            root_ms: part(|times| times.root_ms),
            faster: Spread::of(pairs.map(|(first, own)| first.total_ms / own.total_ms)),
        }
    }
}

fn print(report: &Report) {
    println!(
        "{} blocks of {} transactions; {} gas, list of {} accounts and {} slots; ms, median (least \
         and most)",
        report.blocks, report.transactions, report.gas, report.list_accounts, report.list_slots
    );
    for row in &report.contenders {
        println!(
            "{:<20} {:26} execute {:26} root {:26} {} times as fast",
            row.name, row.total_ms, row.execute_ms, row.root_ms, row.faster
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tests::parse;

    #[test]
    fn blocks_are_valid_with_and_without_their_access_list() {
        for cold in [&[][..], &["--cold"]] {
            let words = ["--blocks", "3", "--transactions", "12"];
            let words = [&words[..], &["--contracts", "3", "--slots", "64"], cold].concat();
            run(&parse(&words).unwrap()).unwrap();
        }
        let odd = parse(&["--slots", "65"]).unwrap();
        let error = run(&odd).unwrap_err().to_string();
        assert!(error.contains("power of two"), "{error}");
    }
}
