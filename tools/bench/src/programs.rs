//! `niwaki-bench evm`: EVM programs, in paired runs beside a peer.
//!
//! Each program is runtime code at an address that is called once with the input, under Osaka's
//! rules, upon a state that is fresh each time. Batches of the contenders alternate, so that
//! whatever else the machine does hits all of them; the figure of a batch is time per call, that
//! of a program the median of its batches, and a speedup the median of the pairs' ratios. A table
//! with rows of a host's own differs by so little that it has short batches of its own.

mod geth;
mod revm;

use crate::{
    machine::Machine,
    peers,
    stats::{geometric_mean, median, percentile},
};
use eyre::{Context, Result, bail, ensure};
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
    /// Peer to run beside; may be given twice.
    #[arg(long = "peer", value_enum)]
    peers: Vec<Peer>,
    #[command(flatten)]
    how: How,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How programs are run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct How {
    /// geth's `evm`; without it, the one in PATH or ~/go/bin.
    #[arg(long)]
    geth_evm: Option<PathBuf>,
    /// Batches per contender and program.
    #[arg(long, default_value = "9", value_parser = crate::at_least_one)]
    batches: usize,
    /// Least length of a batch, ms.
    #[arg(long, default_value_t = 60)]
    batch_ms: u64,
    /// Only programs whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Forgets before each of our calls the hashes that a thread keeps, which nobody else does.
    #[arg(long)]
    forget_hashes: bool,
    /// Dispatch of our interpreter: fused, threaded or loop.
    #[arg(long, default_value_t)]
    dispatch: Dispatch,
}

/// A contender besides us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Peer {
    /// revm 43, in this process.
    Revm,
    /// geth's `evm run --bench`.
    Geth,
    /// Ourselves without fused sequences.
    Threaded,
    /// Ourselves with a table that has rows of a host's own, which no program uses.
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
struct Row {
    name: String,
    gas: u64,
    /// Median ns per call of each contender.
    ns: BTreeMap<&'static str, f64>,
    /// Distance between the quartiles over the median, of each contender.
    spread: BTreeMap<&'static str, f64>,
    /// Peer's time over ours; of ourselves with a host's rows by batches of its own.
    speedup: BTreeMap<&'static str, f64>,
}

/// The figures of all programs.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    batches: usize,
    geomean_speedup: BTreeMap<&'static str, f64>,
    programs: Vec<Row>,
}

impl Figures {
    /// Each program's name with the peer's time over ours; none if the peer did not take part.
    pub(crate) fn over(&self, peer: Peer) -> impl Iterator<Item = (&str, f64)> {
        let ratio = move |row: &Row| row.speedup.get(peer.name()).copied();
        let rows = self.programs.iter();
        rows.filter_map(move |row| Some((row.name.as_str(), ratio(row)?)))
    }

    /// How many programs, and the geometric mean of their speedups over `peer` with the least and
    /// the greatest one; none if the peer did not take part.
    pub(crate) fn outcome(&self, peer: Peer) -> Option<(usize, f64, f64, f64)> {
        let mean = *self.geomean_speedup.get(peer.name())?;
        let speedups: Vec<f64> = self.over(peer).map(|(_, ratio)| ratio).collect();
        let ends = (percentile(&speedups, 0.0), percentile(&speedups, 100.0));
        Some((speedups.len(), mean, ends.0, ends.1))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    #[serde(flatten)]
    figures: Figures,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let figures = measure_all(&options.dir, &options.peers, &options.how)?;
    let machine = Machine::here();
    crate::write_json(options.json.as_deref(), &Report { machine, figures })
}

/// Measures every program of `dir` beside `peers`, and prints a line for each.
pub(crate) fn measure_all(dir: &Path, peers: &[Peer], how: &How) -> Result<Figures> {
    let programs = load(dir, how.only.as_deref())?;
    // Programs are run again and again: every time is to count.
    niwaki_crypto::set_precompile_result_bytes(0);
    let mut field = Field {
        peers: peers.to_vec(),
        geth_evm: PathBuf::new(),
        overridden: overridden(),
        how,
    };
    if peers.contains(&Peer::Geth) {
        field.geth_evm = peers::find("evm", how.geth_evm.as_deref())?;
    }
    println!(
        "{:<34} {:>12} {:>12} {:>9}",
        "program", "gas", "niwaki us", "Mgas/s"
    );
    let mut rows = Vec::new();
    for program in &programs {
        let row = measure(program, &field)?;
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
    Ok(Figures {
        batches: how.batches,
        geomean_speedup,
        programs: rows,
    })
}

/// Who takes part, and how.
struct Field<'a> {
    peers: Vec<Peer>,
    geth_evm: PathBuf,
    overridden: Table,
    how: &'a How,
}

impl Peer {
    /// As it stands in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Revm => "revm",
            Self::Geth => "geth",
            Self::Threaded => "threaded",
            Self::Overridden => "overridden",
        }
    }
}

fn print_row(row: &Row) {
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
        if path
            .extension()
            .is_some_and(|extension| extension == "code")
        {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if only.is_none_or(|only| name.contains(only)) {
                let input = read(&path.with_extension("input"))?;
                programs.push(Program {
                    name,
                    code: read(&path)?,
                    input,
                });
            }
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

/// One contender: runs the program `times` times; gives the time taken and the gas of a run.
type Contender<'a> = Box<dyn FnMut(u32) -> Result<(Duration, u64)> + 'a>;

fn measure(program: &Program, field: &Field<'_>) -> Result<Row> {
    let (osaka, forgets) = (Table::of(Fork::Osaka), field.how.forget_hashes);
    let mut contenders: Vec<(&'static str, Contender<'_>)> = vec![(
        "niwaki",
        niwaki(program, (field.how.dispatch, forgets), osaka)?,
    )];
    for peer in &field.peers {
        contenders.push(match peer {
            Peer::Revm => ("revm", revm::contender(program)),
            Peer::Geth => ("geth", geth::contender(program, &field.geth_evm)?),
            Peer::Threaded => (
                "threaded",
                niwaki(program, (Dispatch::Threaded, forgets), osaka)?,
            ),
            Peer::Overridden => {
                let ours = niwaki(program, (field.how.dispatch, forgets), &field.overridden)?;
                ("overridden", ours)
            }
        });
    }
    // Warm up, and find how many calls make a batch.
    let mut gas = None;
    let mut calls = Vec::new();
    for (name, contender) in &mut contenders {
        let (once, used) = contender(1)?;
        if *gas.get_or_insert(used) != used {
            bail!(
                "{}: {name} used {used} gas, niwaki {}",
                program.name,
                gas.unwrap_or(0)
            );
        }
        let (once, _) = if once < Duration::from_millis(5) {
            contender(3)?
        } else {
            (once, used)
        };
        let batch = Duration::from_millis(field.how.batch_ms).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to a small positive number"
        )]
        calls.push((batch / once.as_secs_f64() * 1.5).clamp(1.0, 20_000.0) as u32);
    }
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..field.how.batches {
        for &at in &order {
            let (taken, _) = contenders[at].1(calls[at])?;
            samples[at].push(taken.as_secs_f64() * 1e9 / f64::from(calls[at]));
        }
        order.reverse();
    }
    let mut row = Row {
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
            let pairs = samples[at]
                .iter()
                .zip(&samples[0])
                .map(|(peer, us)| peer / us);
            row.speedup.insert(name, median(&pairs.collect::<Vec<_>>()));
        }
    }
    if field.peers.contains(&Peer::Overridden) {
        let speedup = closely(program, field, calls[0])?;
        row.speedup.insert(Peer::Overridden.name(), speedup);
    }
    Ok(row)
}

/// Time of ourselves with a host's rows over ours, which hardly differ: many short batches in the order
/// ours, theirs, theirs, ours, so that neither whoever ran before nor a drift favours one, and several
/// tables and states, for where they happen to lie makes a percent or two; the median. What comes near to
/// losing is measured for longer.
fn closely(program: &Program, field: &Field<'_>, calls: u32) -> Result<f64> {
    const TABLES: [usize; 2] = [9, 27];
    const ROUNDS: usize = 9;
    let calls = (calls / 12).max(1);
    let how = (field.how.dispatch, field.how.forget_hashes);
    let mut ratios = Vec::new();
    for tables in TABLES {
        for table in &vec![field.overridden.clone(); tables] {
            let mut ours = niwaki(program, how, Table::of(Fork::Osaka))?;
            let mut theirs = niwaki(program, how, table)?;
            let time = |contender: &mut Contender<'_>| contender(calls).map(|(taken, _)| taken);
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

/// Osaka's table with an opcode, a guard and a contract of a host's own.
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
    (dispatch, forgets): (Dispatch, bool),
    table: &'a Table,
) -> Result<Contender<'a>> {
    let mut state = MemoryState::default();
    let code = program.code.clone().into();
    state.insert(
        CONTRACT,
        MemoryAccount {
            code,
            ..MemoryAccount::default()
        },
    );
    let balance = U256::from(1) << 128;
    state.insert(
        CALLER,
        MemoryAccount {
            balance,
            ..MemoryAccount::default()
        },
    );
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
            if forgets {
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
