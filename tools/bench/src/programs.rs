//! `niwaki-bench evm`: EVM programs, in paired runs with peers.
//!
//! A program is runtime code at an address that is called with the input, under Osaka's rules, on a fresh state each
//! time. Batches of calls of the contenders alternate, so that other load on the machine affects all of them. The
//! result of a batch is the time per call, that of a program the median of its batches; a speedup is the median ratio
//! of paired batches. A table with custom rows differs by so little that it is measured in short batches of its own.

mod geth;
mod revm;

use crate::{
    harness::JsonFile,
    machine::Machine,
    peers,
    stats::{Spread, geometric_mean, median, percentile},
};
use eyre::{Context, Result, ensure};
use niwaki_evm::{
    BlockEnv, ContractCall, ContractOutput, Dispatch, Evm, Flow, Message, OpcodeInfo, Table,
    Target, TxEnv, clear_keccak_cache,
};
use niwaki_primitives::{Address, Bytes, Fork, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Options of `niwaki-bench evm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory with NAME.code and NAME.input files.
    dir: PathBuf,
    /// Peer to compare with; may be given several times.
    #[arg(long = "peer", value_enum)]
    peers: Vec<Peer>,
    #[command(flatten)]
    runs: RunOptions,
    #[command(flatten)]
    json: JsonFile,
}

/// How programs are run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// geth's `evm` [default: the one in PATH or ~/go/bin].
    #[arg(long)]
    geth_evm: Option<PathBuf>,
    /// Batches per contender and program.
    #[arg(long, default_value = "9", value_parser = crate::harness::at_least_one)]
    batches: usize,
    /// Minimum length of a batch, ms.
    #[arg(long, default_value_t = 60)]
    batch_ms: u64,
    /// Only programs whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Clear our per-thread hash cache before each call; the peers have none.
    #[arg(long)]
    forget_hashes: bool,
    /// Dispatch of our interpreter: fused, threaded or loop.
    #[arg(long, default_value_t)]
    dispatch: Dispatch,
}

/// A contender to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// revm 43, in this process.
    Revm,
    /// geth's `evm run --bench`.
    Geth,
    /// Niwaki without superinstructions.
    Threaded,
    /// Niwaki with a table that has custom rows, which no program uses.
    Overridden,
}

/// Gas given to each call; the programs use less.
const GAS: u64 = 1_000_000_000;
const CALLER: Address = Address::repeat_byte(0x10);
const CONTRACT: Address = Address::repeat_byte(0xc0);

struct Program {
    name: String,
    code: Bytes,
    input: Bytes,
}

#[derive(Debug, Serialize)]
struct ProgramResults {
    name: String,
    gas: u64,
    /// Median ns per call of each contender.
    ns: BTreeMap<&'static str, f64>,
    /// Interquartile range over the median, of each contender.
    spread: BTreeMap<&'static str, f64>,
    /// The peer's time over ours.
    speedup: BTreeMap<&'static str, f64>,
}

/// The results of all programs.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    batches: usize,
    geomean_speedup: BTreeMap<&'static str, f64>,
    programs: Vec<ProgramResults>,
}

impl Results {
    /// Each program's name with the peer's time over ours; empty if the peer was not measured.
    pub(crate) fn over(&self, peer: Peer) -> impl Iterator<Item = (&str, f64)> {
        let ratio = move |row: &ProgramResults| row.speedup.get(peer.name()).copied();
        let rows = self.programs.iter();
        rows.filter_map(move |row| Some((row.name.as_str(), ratio(row)?)))
    }

    /// The number of programs, and the geometric mean and the spread of their speedups over `peer`; `None` if the peer
    /// was not measured.
    pub(crate) fn outcome(&self, peer: Peer) -> Option<(usize, f64, Spread)> {
        let mean = *self.geomean_speedup.get(peer.name())?;
        let spread = Spread::of(self.over(peer).map(|(_, ratio)| ratio));
        Some((self.over(peer).count(), mean, spread))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    #[serde(flatten)]
    results: Results,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let results = measure_all(&options.dir, &options.peers, &options.runs)?;
    let machine = Machine::here();
    options.json.write(&Report { machine, results })
}

/// Measures every program of `dir` and prints a line for each.
pub(crate) fn measure_all(dir: &Path, peers: &[Peer], runs: &RunOptions) -> Result<Results> {
    let programs = load(dir, runs.only.as_deref())?;
    // Programs run again and again: cached results of precompiles would hide their cost.
    niwaki_crypto::set_precompile_result_bytes(0);
    let mut setup = Setup {
        peers: peers.to_vec(),
        geth_evm: PathBuf::new(),
        overridden: overridden(),
        runs,
    };
    if peers.contains(&Peer::Geth) {
        setup.geth_evm = peers::find("evm", runs.geth_evm.as_deref())?;
    }
    println!(
        "{:<34} {:>12} {:>12} {:>9}",
        "program", "gas", "niwaki us", "Mgas/s"
    );
    let mut rows = Vec::new();
    for program in &programs {
        let row = measure(program, &setup)?;
        print_row(&row);
        rows.push(row);
    }
    let mut geomean_speedup = BTreeMap::new();
    for peer in peers {
        let speedups: Vec<f64> = rows.iter().map(|row| row.speedup[peer.name()]).collect();
        let mean = geometric_mean(&speedups);
        println!(
            "geometric mean of the speedups over {}: {mean:.3}",
            peer.name()
        );
        geomean_speedup.insert(peer.name(), mean);
    }
    Ok(Results {
        batches: runs.batches,
        geomean_speedup,
        programs: rows,
    })
}

/// The contenders and their options.
struct Setup<'a> {
    peers: Vec<Peer>,
    geth_evm: PathBuf,
    overridden: Table,
    runs: &'a RunOptions,
}

impl Peer {
    /// Its name in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Revm => "revm",
            Self::Geth => "geth",
            Self::Threaded => "threaded",
            Self::Overridden => "overridden",
        }
    }
}

fn print_row(row: &ProgramResults) {
    let ours = row.ns["niwaki"];
    let rate = row.gas as f64 * 1e3 / ours;
    print!(
        "{:<34} {:>12} {:>12.1} {:>9.0}",
        row.name,
        row.gas,
        ours / 1e3,
        rate
    );
    for (peer, speedup) in &row.speedup {
        print!("  {peer} {:.1} us, {speedup:.2}x", row.ns[peer] / 1e3);
    }
    println!();
}

fn load(dir: &Path, only: Option<&str>) -> Result<Vec<Program>> {
    let read = |path: &Path| -> Result<Bytes> {
        let text = std::fs::read_to_string(path)
            .wrap_err_with(|| format!("can't read {}", path.display()))?;
        let bytes =
            hex::decode(text.trim()).wrap_err_with(|| format!("{} is not hex", path.display()))?;
        Ok(bytes.into())
    };
    let entries = std::fs::read_dir(dir)
        .wrap_err_with(|| format!("can't list {}; give a directory of programs", dir.display()))?;
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_code = path
            .extension()
            .is_some_and(|extension| extension == "code");
        if is_code && only.is_none_or(|only| name.contains(only)) {
            programs.push(Program {
                code: read(&path)?,
                input: read(&path.with_extension("input"))?,
                name: name.into_owned(),
            });
        }
    }
    ensure!(
        !programs.is_empty(),
        "no NAME.code files in {}",
        dir.display()
    );
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// A contender: runs the program `times` times; returns the time of all runs and the gas of one.
type Contender<'a> = Box<dyn FnMut(u32) -> Result<(Duration, u64)> + 'a>;

fn measure(program: &Program, setup: &Setup<'_>) -> Result<ProgramResults> {
    let osaka = Table::of(Fork::Osaka);
    let (dispatch, clear_hashes) = (setup.runs.dispatch, setup.runs.forget_hashes);
    let mut contenders: Vec<(&'static str, Contender<'_>)> =
        vec![("niwaki", niwaki(program, osaka, dispatch, clear_hashes)?)];
    for peer in &setup.peers {
        contenders.push(match peer {
            Peer::Revm => ("revm", revm::contender(program)),
            Peer::Geth => ("geth", geth::contender(program, &setup.geth_evm)?),
            Peer::Threaded => (
                "threaded",
                niwaki(program, osaka, Dispatch::Threaded, clear_hashes)?,
            ),
            Peer::Overridden => {
                let ours = niwaki(program, &setup.overridden, dispatch, clear_hashes)?;
                ("overridden", ours)
            }
        });
    }
    // Warm up, and find how many calls make a batch.
    let mut gas = None;
    let mut calls = Vec::new();
    for (name, contender) in &mut contenders {
        let (once, used) = contender(1)?;
        let ours = *gas.get_or_insert(used);
        ensure!(
            ours == used,
            "{}: {name} used {used} gas, niwaki {ours}",
            program.name
        );
        let (once, _) = if once < Duration::from_millis(5) {
            contender(3)?
        } else {
            (once, used)
        };
        let batch = Duration::from_millis(setup.runs.batch_ms).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a small positive number"
        )]
        calls.push((batch / once.as_secs_f64() * 1.5).clamp(1.0, 20_000.0) as u32);
    }
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..setup.runs.batches {
        for &at in &order {
            let (took, _) = contenders[at].1(calls[at])?;
            samples[at].push(took.as_secs_f64() * 1e9 / f64::from(calls[at]));
        }
        order.reverse();
    }
    let mut row = ProgramResults {
        name: program.name.clone(),
        gas: gas.unwrap_or(0),
        ns: BTreeMap::new(),
        spread: BTreeMap::new(),
        speedup: BTreeMap::new(),
    };
    for (at, (name, _)) in contenders.iter().enumerate() {
        let middle = median(&samples[at]);
        let width = percentile(&samples[at], 75.0) - percentile(&samples[at], 25.0);
        row.ns.insert(name, middle);
        row.spread.insert(name, width / middle);
        if at > 0 {
            let pairs = samples[at].iter().zip(&samples[0]);
            let ratios: Vec<f64> = pairs.map(|(peer, ours)| peer / ours).collect();
            row.speedup.insert(name, median(&ratios));
        }
    }
    if setup.peers.contains(&Peer::Overridden) {
        let speedup = overridden_ratio(program, setup, calls[0])?;
        row.speedup.insert(Peer::Overridden.name(), speedup);
    }
    Ok(row)
}

/// The time with custom rows over the time without, which hardly differ. Many short batches run in the order A, B, B,
/// A, so that neither the previous run nor a drift favours one. Several tables and states are used, because their
/// addresses in memory make a difference of 1 or 2 %. Returns the median; ratios above 1.007 are measured for longer.
fn overridden_ratio(program: &Program, setup: &Setup<'_>, calls: u32) -> Result<f64> {
    const TABLES: [usize; 2] = [9, 27];
    const ROUNDS: usize = 9;
    let calls = (calls / 12).max(1);
    let (dispatch, clear_hashes) = (setup.runs.dispatch, setup.runs.forget_hashes);
    let mut ratios = Vec::new();
    for tables in TABLES {
        for table in &vec![setup.overridden.clone(); tables] {
            let mut ours = niwaki(program, Table::of(Fork::Osaka), dispatch, clear_hashes)?;
            let mut theirs = niwaki(program, table, dispatch, clear_hashes)?;
            let time = |contender: &mut Contender<'_>| contender(calls).map(|(took, _)| took);
            time(&mut ours)?;
            time(&mut theirs)?;
            for _ in 0..ROUNDS {
                let first = time(&mut ours)?;
                let between = time(&mut theirs)? + time(&mut theirs)?;
                let last = time(&mut ours)?;
                ratios.push(between.as_secs_f64() / (first + last).as_secs_f64());
            }
        }
        if median(&ratios) < 1.007 {
            break;
        }
    }
    Ok(median(&ratios))
}

/// Osaka's table with a custom opcode, guard and precompile.
fn overridden() -> Table {
    let mut table = Table::of(Fork::Osaka).clone();
    let info = OpcodeInfo {
        mnemonic: "OWN",
        input: 0,
        output: 0,
        immediate: 0,
    };
    table.set_opcode(0x0c, info, 1, |_| Ok(Flow::Next));
    table.set_guard(0xff, |_| Ok(()));
    let contract = |_: ContractCall<'_>| Ok(ContractOutput::default());
    table.set_precompile(Address::repeat_byte(0x0c), Some(Arc::new(contract)));
    table
}

fn niwaki<'a>(
    program: &'a Program,
    table: &'a Table,
    dispatch: Dispatch,
    clear_hashes: bool,
) -> Result<Contender<'a>> {
    let contract = MemoryAccount {
        code: program.code.clone().into(),
        ..MemoryAccount::default()
    };
    let caller = MemoryAccount {
        balance: U256::from(1) << 128,
        ..MemoryAccount::default()
    };
    let state: MemoryState = [(CONTRACT, contract), (CALLER, caller)]
        .into_iter()
        .collect();
    let message = Message {
        caller: CALLER,
        target: Target::Call(CONTRACT),
        value: U256::ZERO,
        input: program.input.clone(),
        gas: GAS,
        reservoir: 0,
    };
    Ok(Box::new(move |times| {
        let mut start = Instant::now();
        let (mut used, mut earlier) = (0, Duration::ZERO);
        for _ in 0..times {
            if clear_hashes {
                earlier += start.elapsed();
                clear_keccak_cache();
                start = Instant::now();
            }
            let block = BlockEnv {
                number: 1,
                gas_limit: GAS,
                chain_id: 1,
                ..BlockEnv::default()
            };
            let mut evm = Evm::new(&state, table, block);
            evm.set_dispatch(dispatch);
            evm.begin_transaction(TxEnv {
                origin: CALLER,
                ..TxEnv::default()
            });
            for address in [CALLER, CONTRACT] {
                evm.world().load_warm(&address)?;
            }
            let outcome = evm.run(&message, None)?;
            ensure!(
                outcome.exit.is_success(),
                "the program failed: {:?}",
                outcome.exit
            );
            used = GAS - outcome.gas_left;
            std::hint::black_box(evm.world().diff());
        }
        Ok((earlier + start.elapsed(), used))
    }))
}
