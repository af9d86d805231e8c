//! `niwaki-bench gen-chain`: valid chains with real contracts and a transaction mix like mainnet's.
//!
//! Writes a folder with `genesis.json`; `chain.rlp`, which `geth import` and `niwaki blocks import` read; `chain.json`,
//! a summary; and from Amsterdam on `access-lists.rlp`, a byte string per block. Blocks are built and imported by our
//! chain on a temporary data path. The same options always give the same bytes.
//!
//! ```text
//! mix -> draw -> (kind, sender, call) -> sign -> fill -> build_best -> import -> chain.rlp, summary
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `mix` | the kinds of transactions and their shares |
//! | `draw` | draws and signs transactions |
//! | `calls`, `abi` | the calls of each kind |
//! | `population` | senders, accounts, holders of tokens |
//! | `contracts`, `genesis` | the contracts and the genesis file |
//! | `growth` | what the first blocks add to the state of the genesis, if it is to be large |
//! | `fill` | how many transactions fill a block |
//! | `summary` | what the chain holds |

mod abi;
mod calls;
mod contracts;
mod draw;
mod fill;
mod genesis;
mod growth;
mod mix;
mod population;
mod summary;

#[cfg(test)]
mod tests;

use crate::process::proc_field;
use crate::progress::Progress;
use draw::{Draw, Drawn};
use eyre::{Result, WrapErr, ensure};
use fill::Filler;
use genesis::{ChainFork, Filling, Size};
use growth::Growth;
use niwaki_chain::{
    BlockTemplate, BuiltBlock, Chain, GenesisFileConfig, StateOptions, StorageOptions,
};
use niwaki_primitives::{B256, Withdrawal, rlp};
use population::Senders;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use summary::Summary;

/// Options of `niwaki-bench gen-chain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder to write; it must be empty or not exist.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Blocks after genesis.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: u64,
    /// Gas limit of each block, such as 36000000, 60000000 or 300000000.
    #[arg(long, value_name = "GAS", default_value_t = 60_000_000, value_parser = clap::value_parser!(u64).range(1_000_000..=2_000_000_000))]
    gas_limit: u64,
    /// Percentage of the gas limit that transactions use.
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u64).range(1..=100))]
    fill: u64,
    /// Fork, from the first block on.
    #[arg(long, value_enum, default_value = "osaka")]
    fork: ChainFork,
    /// Accounts in the genesis that only receive.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    accounts: u64,
    /// Slots in the genesis: balances and allowances of tokens, NFTs, lists.
    #[arg(long, value_name = "M", default_value_t = 1_000_000)]
    slots: u64,
    /// Slots that the first blocks write, beside those of the genesis. The blocks of --blocks come after these, which use half of the
    /// gas limit.
    #[arg(long, value_name = "M", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000))]
    grow_slots: u64,
    /// Accounts that the first blocks make.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000_000))]
    grow_accounts: u64,
    /// Accounts that send transactions.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    senders: u64,
    /// Seed of addresses, transactions and blocks.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Seconds between blocks.
const SLOT_S: u64 = 12;
/// Withdrawals per block, as on mainnet.
const WITHDRAWALS: u64 = 16;
/// Wei: above this base fee a block stays empty, so that the fee falls again. It is reached after about 370 full
/// blocks.
const QUIET_ABOVE: u64 = 1 << 62;
/// A block of this gas limit has room for a transaction that lets the state grow.
const LEAST_TO_GROW: u64 = 32_000_000;
/// Bytes for the caches of the chain that builds.
const CACHE_BYTES: usize = 1 << 30;

/// Generates the chain.
pub(crate) fn run(options: &Options) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        // No other memory depends on this flag; it is polled between blocks.
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping after this block; press Ctrl-C again to stop at once");
    })
    .wrap_err("can't listen for Ctrl-C")?;
    let summary = generate(options, &stop)?;
    summary.print();
    if let Some(kib) = proc_field(std::process::id(), "status", "VmHWM:") {
        println!("peak memory  {} MiB", kib >> 10);
    }
    if stop.load(Ordering::Relaxed) {
        eprintln!("stopped by Ctrl-C; the chain is complete but shorter");
    }
    Ok(())
}

/// Writes the folder; returns its summary. Ends early if `stop` is set.
fn generate(options: &Options, stop: &AtomicBool) -> Result<Summary> {
    let folder = &options.to;
    let size = options.size();
    let filling = Filling::new(&size, options.senders)?;
    if size.has_growth {
        check_growth(&size)?;
    }
    create_folder(folder)?;
    let senders = Senders::new(options.seed, options.senders);
    let genesis = folder.join("genesis.json");
    let mut out = new_file(&genesis)?;
    genesis::write(&mut out, &size, &filling, &senders)?;
    out.flush()?;

    let data = tempfile::tempdir_in(folder)?;
    let chain = open(&genesis, data.path()).wrap_err("the genesis that was made")?;
    let mut writer = ChainWriter {
        summary: Summary::new(&size),
        draw: Draw::new(&size, filling, senders),
        blocks: new_file(&folder.join("chain.rlp"))?,
        lists: match size.fork {
            ChainFork::Amsterdam => Some(new_file(&folder.join("access-lists.rlp"))?),
            ChainFork::Prague | ChainFork::Osaka => None,
        },
        chain,
        size,
    };
    writer.grow(Growth::new(options.grow_slots, options.grow_accounts), stop)?;
    let mut filler = Filler::new(options.gas_limit, options.fill);
    let mut progress = Progress::new(options.blocks, "blocks");
    for done in 1..=options.blocks {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let count = writer.add_block(&mut filler, &mut |draw, blobs| draw.next(blobs).map(Some))?;
        progress.show(done, &format!("{count} txs"));
    }
    progress.finish();
    writer.blocks.flush()?;
    if let Some(lists) = &mut writer.lists {
        lists.flush()?;
    }
    crate::harness::write_json(&folder.join("chain.json"), &writer.summary)?;
    Ok(writer.summary)
}

/// Draws a transaction with at most so many blobs; `None` if the block is to have no more.
type Next<'a> = dyn FnMut(&mut Draw, u64) -> Result<Option<Drawn>> + 'a;

/// A chain that is written while it is built.
struct ChainWriter {
    chain: Chain,
    size: Size,
    draw: Draw,
    summary: Summary,
    blocks: BufWriter<File>,
    lists: Option<BufWriter<File>>,
}

impl ChainWriter {
    /// Adds the blocks that let the state grow.
    fn grow(&mut self, mut growth: Growth, stop: &AtomicBool) -> Result<()> {
        let mut filler = Filler::new(self.size.gas_limit, growth::FILL_PERCENT);
        let mut progress = Progress::new(growth.total(), "slots and accounts");
        while (growth.left() > 0 || filler.has_waiting()) && !stop.load(Ordering::Relaxed) {
            let mut next = |draw: &mut Draw, _| {
                let call = growth.next();
                call.map(|call| draw.growth(call)).transpose()
            };
            self.add_block(&mut filler, &mut next)?;
            let number = self.chain.head().id.number;
            progress.show(growth.total() - growth.left(), &format!("block {number}"));
        }
        progress.finish();
        Ok(())
    }

    /// Adds a block with the transactions of `next`. Returns how many it has.
    fn add_block(&mut self, filler: &mut Filler, next: &mut Next<'_>) -> Result<usize> {
        let number = self.chain.head().id.number + 1;
        let built = build(&self.chain, &mut self.draw, filler, next, &self.size);
        let built = built.wrap_err_with(|| format!("block {number}"))?;
        let encoded = rlp::encode(&built.block);
        self.blocks.write_all(&encoded)?;
        if let Some(lists) = &mut self.lists {
            let list = built.block_access_list.clone().unwrap_or_default();
            lists.write_all(&rlp::encode(&list))?;
        }
        let hash = built.hash;
        let transactions = filler.included();
        self.chain.import(built.block)?;
        let receipts = self.chain.receipts(&hash)?.unwrap_or_default();
        let header = self.chain.head().header;
        ensure!(
            header.hash_slow() == hash && receipts.len() == transactions.len(),
            "block {number} did not become the head; this is a bug"
        );
        filler.update_estimate(&header);
        let bytes = encoded.len();
        self.summary
            .add(&header, hash, bytes, &transactions, &receipts);
        Ok(receipts.len())
    }
}

fn check_growth(size: &Size) -> Result<()> {
    let needs = "--grow-slots and --grow-accounts need";
    ensure!(
        size.fork != ChainFork::Amsterdam,
        "{needs} the prices of gas before Amsterdam; give --fork osaka"
    );
    ensure!(
        size.gas_limit >= LEAST_TO_GROW,
        "{needs} blocks with room for their transactions; give a --gas-limit of at least {LEAST_TO_GROW}"
    );
    Ok(())
}

impl Options {
    fn size(&self) -> Size {
        Size {
            accounts: self.accounts,
            slots: self.slots,
            gas_limit: self.gas_limit,
            fork: self.fork,
            seed: self.seed,
            has_growth: self.grow_slots > 0 || self.grow_accounts > 0,
        }
    }
}

fn create_folder(folder: &Path) -> Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).wrap_err_with(|| format!("can't make the folder {shown}"))?;
    let mut entries =
        std::fs::read_dir(folder).wrap_err_with(|| format!("can't list the folder {shown}"))?;
    ensure!(
        entries.next().is_none(),
        "{shown} is not empty; give a new folder with --to"
    );
    Ok(())
}

fn new_file(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create_new(path)
        .wrap_err_with(|| format!("can't make {} as a new file", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn open(genesis: &Path, data: &Path) -> Result<Chain> {
    let config = GenesisFileConfig {
        fixed_base_fee: 0,
        data_path: data.to_owned(),
        file: genesis.to_owned(),
        storage: StorageOptions::default(),
        state: StateOptions {
            cache_bytes: CACHE_BYTES,
            ..StateOptions::default()
        },
    };
    Ok(Chain::open_genesis_file(&config, &mut |_| true)?)
}

/// Builds the next block on top of the head; `filler` records the kinds of its transactions.
fn build(
    chain: &Chain,
    draw: &mut Draw,
    filler: &mut Filler,
    next: &mut Next<'_>,
    size: &Size,
) -> Result<BuiltBlock> {
    let number = chain.head().id.number + 1;
    let random = draw.random();
    let withdrawals = (0..WITHDRAWALS).map(|at| Withdrawal {
        index: (number - 1) * WITHDRAWALS + at,
        validator_index: random.below(1_000_000),
        address: population::account(size.seed, random.below(size.accounts.max(1))),
        amount: 10_000_000 + random.below(10_000_000),
    });
    let template = BlockTemplate {
        parent: chain.head().id.hash,
        coinbase: population::account(u64::MAX, size.seed),
        timestamp: number * SLOT_S,
        withdrawals: withdrawals.collect(),
        prev_randao: B256::from(random.word()),
        parent_beacon_block_root: B256::from(random.word()),
        slot_number: number,
        ..BlockTemplate::default()
    };
    let header = chain.next_header(template.clone())?;
    let blobs = chain.spec().blob_params_at(header.timestamp);
    let is_quiet = header.base_fee_per_gas > Some(QUIET_ABOVE);
    filler.begin(blobs.map_or(0, |params| params.max), is_quiet);
    let built = chain.build_best(template, &mut |refused| {
        filler.next(&mut |blobs| next(draw, blobs), refused)
    })?;
    filler.end()?;
    ensure!(
        built.requests.is_empty(),
        "the block has requests, which no file can carry; this is a bug"
    );
    Ok(built)
}
