//! `niwaki-bench compare`: the blocks of a chain through the Engine API of each client, as a consensus
//! client sends them, in pairs of runs.
//!
//! In a run, each client is a process upon a fresh copy of a data path with the genesis, whose files
//! are out of the system's cache. It is given the whole chain: its first blocks are the cold part,
//! the others the warm one, before which its files are read once, so that they are in the system's
//! cache. A block's time is that from the request to the answer, by the clock of this process. Runs
//! alternate between the clients, and the one that goes first changes from run to run.

mod client;
mod drive;
mod plot;
mod report;
mod requests;

use crate::machine::Machine;
use crate::peers;
use client::{Contender, Setup};
use drive::{Course, Run};
use eyre::{Result, WrapErr, ensure, eyre};
use report::{Report, Runs};
use requests::ChainFolder;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `niwaki-bench compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A folder with genesis.json, chain.rlp and, from Amsterdam on, access-lists.rlp, as `gen-chain`
    /// makes it; or such a file of blocks, with the others beside it.
    chain: PathBuf,
    /// Our binary; without it, the one beside this program.
    #[arg(long, value_name = "FILE")]
    niwaki: Option<PathBuf>,
    /// Threads that the transactions of our blocks run on, for each a client of its own: a number, all, or
    /// default for what the client chooses itself. All else has all cores.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads, default_value = "1,2,all")]
    threads: Vec<Threads>,
    /// Peer to run beside: geth, geth=FILE or reth=FILE; may be given several times.
    #[arg(long, value_parser = peer)]
    peer: Vec<Peer>,
    /// Runs of each client.
    #[arg(long, default_value = "5", value_parser = crate::at_least_one)]
    runs: usize,
    /// Only the first so many blocks of the chain [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    blocks: Option<u64>,
    /// The first so many of them are the cold part [default: a quarter].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cold_blocks: Option<u64>,
    /// Milliseconds between two blocks, for what clients leave for later.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pause_ms: u64,
    /// Processes beside, each of which takes a processor all the time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// Percent of a block's transactions that are in the client's pool when it comes: they are sent to it before
    /// the pause. Blobs need more than a block has, so their transactions are not among them.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=100))]
    known_percent: u64,
    /// Folder for the data paths, which are removed again [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// A flag more for ours; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    niwaki_flag: Vec<String>,
    /// A flag more for geth; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    geth_flag: Vec<String>,
    /// Writes all figures here as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws them here, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// A number of threads.
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
        "reth" => return Err("say where it is: reth=FILE".to_owned()),
        _ => return Err("no such peer; use geth, geth=FILE or reth=FILE".to_owned()),
    };
    Ok(Peer { contender, program })
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    let stop = listen()?;
    match measure(options, &stop) {
        // The clients have heard of it too, and whatever they say then is no trouble.
        Err(_) if stop.load(Ordering::Relaxed) => Err(eyre!("stopped as asked; nothing is left")),
        outcome => outcome,
    }
}

fn measure(options: &Options, stop: &AtomicBool) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    crate::check_place(options.plot.as_deref(), "--plot")?;
    let chain = ChainFolder::find(&options.chain)?;
    let work = crate::chain_file::read(&chain.blocks)?;
    let course = course(options, work.blocks)?;
    let setups = setups(options, &chain)?;
    let parent = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let work_dir = work_dir(&parent)?;
    let begun = prepare(&setups, work_dir.path(), stop)?;
    let _busy = Busy::begin(options.busy)?;
    let mut runs: Vec<Vec<Run>> = setups.iter().map(|_| Vec::new()).collect();
    for number in 0..options.runs {
        for place in 0..setups.len() {
            let at = (place + number) % setups.len();
            let setup = &setups[at];
            let folder = work_dir.path().join("client");
            let name = setup.contender.name();
            crate::disk::copy_folder(&begun[at], &folder)?;
            let run = drive::run(setup, &chain, course, &folder, stop)
                .wrap_err_with(|| format!("run {}, {name}", number + 1))?;
            eprintln!("run {} of {}: {name}", number + 1, options.runs);
            runs[at].push(run);
            std::fs::remove_dir_all(&folder)?;
        }
    }
    let report = report(options, &setups, runs, course)?;
    report.print();
    crate::write_json(options.json.as_deref(), &report)?;
    if let Some(path) = &options.plot {
        std::fs::write(path, plot::svg(&report))
            .wrap_err_with(|| format!("can't write {}; give another --plot", path.display()))?;
    }
    Ok(())
}

/// Processes that do nothing but take processors, until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn begin(count: usize) -> Result<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            let child = command.args(["-c", "while :; do :; done"]).spawn();
            busy.0
                .push(child.wrap_err("can't start a process beside the clients")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder in `parent`, which is made if it is not there; removed with all in it in the end.
fn work_dir(parent: &Path) -> Result<tempfile::TempDir> {
    let mut folder = tempfile::Builder::new();
    std::fs::create_dir_all(parent)
        .and_then(|()| folder.prefix("niwaki-bench-").tempdir_in(parent))
        .wrap_err_with(|| {
            format!(
                "can't make a folder in {}; give another --work-dir",
                parent.display()
            )
        })
}

/// The folder of each client with its genesis in it; all of ours share one.
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
    course: Course,
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
        cold_blocks: course.cold_blocks,
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

fn course(options: &Options, there: u64) -> Result<Course> {
    let blocks = options.blocks.unwrap_or(there).min(there);
    let cold_blocks = options.cold_blocks.unwrap_or((blocks / 4).max(1));
    ensure!(
        cold_blocks < blocks,
        "the cold part of {cold_blocks} blocks leaves none of {blocks} for the warm one; give a \
         smaller --cold-blocks or a longer chain"
    );
    Ok(Course {
        cold_blocks,
        blocks,
        pause: Duration::from_millis(options.pause_ms),
        known_percent: options.known_percent,
    })
}

/// The clients that take part, ours first.
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

/// Says from now on whether Ctrl-C was pressed: clients are then stopped, and their data removed.
fn listen() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    // Nothing is ordered by this flag; it is looked at between blocks.
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .wrap_err("can't listen for Ctrl-C")?;
    Ok(stop)
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

    fn options(words: &str) -> Options {
        let words = ["compare"].into_iter().chain(words.split(' '));
        Line::try_parse_from(words).unwrap().options
    }

    #[test]
    fn threads_and_peers_are_read_and_others_refused_with_what_to_do() {
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
    fn a_work_dir_is_made_and_one_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        assert!(work_dir(&new).unwrap().path().starts_with(&new));
        let file = folder.path().join("file");
        std::fs::write(&file, []).unwrap();
        let text = work_dir(&file.join("x")).unwrap_err().to_string();
        assert!(
            text.contains("file/x") && text.contains("--work-dir"),
            "{text}"
        );
    }

    #[test]
    fn the_cold_part_is_a_quarter_and_leaves_something() {
        let course = |words: &str, blocks| super::course(&options(words), blocks);
        assert_eq!(course("x", 100).unwrap().cold_blocks, 25);
        assert_eq!(course("x --blocks 8", 100).unwrap().cold_blocks, 2);
        assert_eq!(course("x --blocks 8", 100).unwrap().blocks, 8);
        assert_eq!(course("x --blocks 800", 100).unwrap().blocks, 100);
        let none = course("x --cold-blocks 100", 100).unwrap_err().to_string();
        assert!(none.contains("--cold-blocks"), "{none}");
    }
}
