//! `niwaki-bench compare`: sends the blocks of a chain through the Engine API of each client, as a consensus client
//! does, in paired runs.
//!
//! ```text
//! run 1: niwaki [cold blocks | warm blocks]  geth [cold | warm]
//! run 2: geth   [cold | warm]                niwaki [cold | warm]      ...
//! ```
//!
//! A run is a process on a fresh copy of a data path with the genesis, with its files dropped from the page cache.
//! The first blocks are the cold part; then the client's files are read once into the page cache and the other blocks
//! are the warm part. A block's time is from request to response, by the clock of this process.
//!
//! | file | what it is |
//! |---|---|
//! | `client` | a client as a process: start, requests, cost, stop |
//! | `drive` | one run: all blocks of the chain, in two parts |
//! | `requests`, `payloads` | blocks as requests of the Engine API; those as a file |
//! | `transports` | JSON-RPC beside REST and SSZ |
//! | `report`, `plot` | the results as table, JSON and picture |

mod client;
mod drive;
mod payloads;
mod plot;
mod report;
mod requests;
mod transports;

use crate::harness::{JsonFile, work_dir};
use crate::machine::Machine;
use crate::peers;
use client::{Contender, Setup};
use drive::{Run, RunPlan};
use eyre::{Result, WrapErr, ensure, eyre};
pub(crate) use payloads::{PayloadsOptions, run as write_payloads};
use report::{Report, Runs};
use requests::ChainFolder;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
pub(crate) use transports::{TransportOptions, run as compare_transports};

/// Options of `niwaki-bench compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder with genesis.json, chain.rlp and, from Amsterdam on, access-lists.rlp, as written by `gen-chain`; or the
    /// chain.rlp in such a folder.
    chain: PathBuf,
    /// Our binary [default: niwaki in the folder of this program].
    #[arg(long, value_name = "FILE")]
    niwaki: Option<PathBuf>,
    /// Numbers of threads that execute our transactions, each measured as a client of its own: a number, all, or
    /// default for the node's choice. Everything else may use all cores.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads, default_value = "1,2,all")]
    threads: Vec<Threads>,
    /// Peer to compare with: geth, geth=FILE or reth=FILE; may be given several times.
    #[arg(long, value_parser = peer)]
    peer: Vec<Peer>,
    /// Runs of each client.
    #[arg(long, default_value = "5", value_parser = crate::harness::at_least_one)]
    runs: usize,
    /// Send only the first N blocks [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    blocks: Option<u64>,
    /// The first N of them are the cold part [default: a quarter].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cold_blocks: Option<u64>,
    /// Milliseconds between two blocks, in which clients finish background work.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause_ms: u64,
    /// Busy processes that run at the same time, each using one processor fully.
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// Percentage of a block's transactions that are sent to the client's pool before the pause. Blob transactions are
    /// never sent: the block does not hold their sidecars.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=100))]
    known_percent: u64,
    /// Folder for the data paths, which are removed afterwards [default: the system's temporary folder].
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Additional flag for our client; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    niwaki_flag: Vec<String>,
    /// Additional flag for geth; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    geth_flag: Vec<String>,
    #[command(flatten)]
    json: JsonFile,
    /// Draw the results here as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The value of `--threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    Default,
    All,
    Number(u16),
}

fn threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        Ok(0) => Err("nothing runs on no thread; use 1 or more".to_owned()),
        Ok(number) => Ok(Threads::Number(number)),
        Err(_) if text == "all" => Ok(Threads::All),
        Err(_) if text == "default" => Ok(Threads::Default),
        Err(error) => Err(format!("{error}; use a number, all or default")),
    }
}

/// A peer, as `--peer` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer {
    contender: Contender,
    program: Option<PathBuf>,
}

fn peer(text: &str) -> Result<Peer, String> {
    let (name, program) = match text.split_once('=') {
        Some((name, path)) if !path.is_empty() => (name, Some(PathBuf::from(path))),
        Some(_) => return Err("there is no path; write geth=FILE".to_owned()),
        None => (text, None),
    };
    let contender = match name {
        "geth" => Contender::Geth,
        "reth" if program.is_some() => Contender::Reth,
        "reth" => return Err("give its path: reth=FILE".to_owned()),
        _ => return Err("no such peer; use geth, geth=FILE or reth=FILE".to_owned()),
    };
    Ok(Peer { contender, program })
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = listen_for_stop()?;
    match measure(options, &stop) {
        // The clients get the same Ctrl-C; their errors then are no errors of the benchmark.
        Err(_) if stop.load(Ordering::Relaxed) => {
            Err(eyre!("stopped by Ctrl-C; all files are removed"))
        }
        outcome => outcome,
    }
}

fn measure(options: &Options, stop: &AtomicBool) -> Result<()> {
    options.json.check()?;
    crate::harness::check_writable(options.plot.as_deref(), "--plot")?;
    let chain = ChainFolder::find(&options.chain)?;
    let work = crate::chain_file::read(&chain.blocks)?;
    let plan = plan(options, work.blocks)?;
    let setups = setups(options, &chain)?;
    let work_dir = work_dir(options.work_dir.as_deref())?;
    let prepared = prepare(&setups, work_dir.path(), stop)?;
    let _busy = BusyProcesses::start(options.busy)?;
    let mut runs: Vec<Vec<Run>> = setups.iter().map(|_| Vec::new()).collect();
    for number in 0..options.runs {
        for offset in 0..setups.len() {
            let at = (offset + number) % setups.len();
            let setup = &setups[at];
            let folder = work_dir.path().join("client");
            let name = setup.contender.name();
            crate::disk::copy_folder(&prepared[at], &folder)?;
            let run = drive::run(setup, &chain, plan, &folder, stop)
                .wrap_err_with(|| format!("run {}, {name}", number + 1))?;
            eprintln!("run {} of {}: {name}", number + 1, options.runs);
            runs[at].push(run);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    let report = report(options, &setups, runs, plan)?;
    report.print();
    options.json.write(&report)?;
    if let Some(path) = &options.plot {
        std::fs::write(path, plot::svg(&report))
            .wrap_err_with(|| format!("can't write {}; give another --plot", path.display()))?;
    }
    Ok(())
}

/// Processes that use one processor each until this is dropped.
struct BusyProcesses(Vec<Child>);

impl BusyProcesses {
    fn start(count: usize) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            let child = command.args(["-c", "while :; do :; done"]).spawn();
            busy.0.push(child.wrap_err("can't start a busy process")?);
        }
        Ok(busy)
    }
}

impl Drop for BusyProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Prepares the folder of each client with the genesis; all of ours share one.
fn prepare(setups: &[Setup], work_dir: &Path, stop: &AtomicBool) -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for setup in setups {
        let kind = match setup.contender {
            Contender::Niwaki { .. } => "niwaki",
            Contender::Geth => "geth",
            Contender::Reth => "reth",
        };
        let folder = work_dir.join(kind);
        if !folders.contains(&folder) {
            eprintln!("{kind}: the genesis");
            setup.prepare(&folder, stop)?;
        }
        folders.push(folder);
    }
    Ok(folders)
}

fn report(
    options: &Options,
    setups: &[Setup],
    runs: Vec<Vec<Run>>,
    plan: RunPlan,
) -> Result<Report> {
    let mut clients = Vec::new();
    for (setup, runs) in setups.iter().zip(runs) {
        clients.push(Runs::new(setup.contender.clone(), setup.version()?, runs));
    }
    let blocks = clients.first().and_then(|runs| runs.runs.first());
    let blocks = blocks.map(|run| run.cold.blocks.iter().chain(&run.warm.blocks));
    let blocks: Vec<_> = blocks.into_iter().flatten().collect();
    Ok(Report {
        machine: Machine::here(),
        chain: name_of(&options.chain),
        blocks: blocks.len(),
        transactions: blocks.iter().map(|block| block.transactions).sum(),
        gas: blocks.iter().map(|block| block.gas).sum(),
        cold_blocks: plan.cold_blocks,
        pause_ms: options.pause_ms,
        busy: options.busy,
        known_percent: options.known_percent,
        runs: options.runs,
        ratios: report::ratios(&clients),
        clients,
    })
}

fn name_of(chain: &Path) -> String {
    let absolute = std::path::absolute(chain).unwrap_or_else(|_| chain.to_owned());
    let name = absolute.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn plan(options: &Options, chain_blocks: u64) -> Result<RunPlan> {
    let blocks = options.blocks.unwrap_or(chain_blocks).min(chain_blocks);
    let cold_blocks = options.cold_blocks.unwrap_or((blocks / 4).max(1));
    ensure!(
        cold_blocks < blocks,
        "the cold part of {cold_blocks} blocks leaves none of {blocks} for the warm one; give a \
         smaller --cold-blocks or a longer chain"
    );
    Ok(RunPlan {
        cold_blocks,
        blocks,
        pause: Duration::from_millis(options.pause_ms),
        known_percent: options.known_percent,
    })
}

/// The clients, ours first.
fn setups(options: &Options, chain: &ChainFolder) -> Result<Vec<Setup>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<Option<usize>> = Vec::new();
    for threads in &options.threads {
        let count = match threads {
            Threads::Default => None,
            Threads::All => Some(cores),
            Threads::Number(number) => Some(usize::from(*number)),
        };
        if !counts.contains(&count) {
            counts.push(count);
        }
    }
    let niwaki = std::path::absolute(crate::import::niwaki_program(options.niwaki.as_deref())?)?;
    let ours = counts.into_iter().map(|threads| Setup {
        contender: Contender::Niwaki { threads },
        program: niwaki.clone(),
        genesis: chain.genesis.clone(),
        flags: options.niwaki_flag.clone(),
    });
    let mut setups: Vec<Setup> = ours.collect();
    for Peer { contender, program } in &options.peer {
        let name = contender.name();
        setups.push(Setup {
            contender: contender.clone(),
            program: std::path::absolute(peers::find(&name, program.as_deref())?)?,
            genesis: chain.genesis.clone(),
            flags: match contender {
                Contender::Geth => options.geth_flag.clone(),
                Contender::Niwaki { .. } | Contender::Reth => Vec::new(),
            },
        });
    }
    Ok(setups)
}

/// The flag that Ctrl-C sets; the clients are then stopped and their data removed.
fn listen_for_stop() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // No other memory depends on this flag; it is polled between blocks.
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .wrap_err("can't listen for Ctrl-C")?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Options {
        let words: Vec<&str> = words.split(' ').collect();
        crate::harness::tests::parse(&words).unwrap()
    }

    #[test]
    fn threads_and_peers_are_parsed_and_others_refused() {
        assert_eq!(threads("all"), Ok(Threads::All));
        assert_eq!(threads("default"), Ok(Threads::Default));
        assert_eq!(threads("2"), Ok(Threads::Number(2)));
        assert!(threads("0").is_err_and(|why| why.contains("1 or more")));
        assert!(threads("many").is_err_and(|why| why.contains("all")));
        assert_eq!(peer("geth").map(|peer| peer.program), Ok(None));
        assert!(peer("reth=/x/reth").is_ok_and(|peer| peer.contender == Contender::Reth));
        for bad in ["reth", "besu", "geth="] {
            assert!(peer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_work_dir_is_created_or_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        assert!(work_dir(Some(&new)).unwrap().path().starts_with(&new));
        let file = folder.path().join("file");
        std::fs::write(&file, []).unwrap();
        let text = work_dir(Some(&file.join("x"))).unwrap_err().to_string();
        assert!(
            text.contains("file/x") && text.contains("--work-dir"),
            "{text}"
        );
    }

    #[test]
    fn the_cold_part_is_a_quarter_by_default_and_never_everything() {
        let plan = |words: &str, blocks| super::plan(&options(words), blocks);
        assert_eq!(plan("x", 100).unwrap().cold_blocks, 25);
        assert_eq!(plan("x --blocks 8", 100).unwrap().cold_blocks, 2);
        assert_eq!(plan("x --blocks 8", 100).unwrap().blocks, 8);
        assert_eq!(plan("x --blocks 800", 100).unwrap().blocks, 100);
        let none = plan("x --cold-blocks 100", 100).unwrap_err().to_string();
        assert!(none.contains("--cold-blocks"), "{none}");
    }
}
