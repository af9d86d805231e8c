//! `niwaki-bench import`: imports of whole chains from a file to a database on disk, compared with geth.
//!
//! Each run is a new process on an empty data path. Runs alternate between the clients, and so does the client that
//! goes first, so that other load on the machine affects both. Every run must end at the last block of the file, by
//! number and hash. Niwaki writes the genesis and imports in one process; geth needs two, which are reported
//! separately and together.

mod contenders;
mod report;

pub(crate) use contenders::{HeadOptions, niwaki_program, print_head, version};
pub(crate) use report::ChainResults;

use crate::chain_file::{self, Head};
use crate::harness::{JsonFile, work_dir};
use crate::machine::Machine;
use crate::peers;
use contenders::{GethRun, NiwakiRun};
use eyre::{Context, Result, ensure};
use report::{print_header, print_row};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Options of `niwaki-bench import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Chains: a file of RLP blocks, or a folder with chain.rlp and genesis.json.
    #[arg(required = true)]
    chains: Vec<PathBuf>,
    /// Genesis file of the chains [default: genesis.json in the folder of each].
    #[arg(long)]
    genesis_file: Option<PathBuf>,
    /// Peer to compare with: geth, or geth=PATH.
    #[arg(long, value_parser = peer)]
    peer: Option<GethPeer>,
    #[command(flatten)]
    runs: RunOptions,
    #[command(flatten)]
    json: JsonFile,
}

/// How imports run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// Our binary [default: niwaki in the folder of this program].
    #[arg(long)]
    niwaki: Option<PathBuf>,
    /// Imports per client and chain.
    #[arg(long, default_value = "5", value_parser = crate::harness::at_least_one)]
    runs: usize,
    /// Empty folder for the data paths, which are removed afterwards [default: a new one in the system's temporary
    /// folder].
    #[arg(long)]
    work_dir: Option<PathBuf>,
}

/// geth, as `--peer` names it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GethPeer(pub(crate) Option<PathBuf>);

fn peer(text: &str) -> Result<GethPeer, String> {
    match text.split_once('=') {
        None if text == "geth" => Ok(GethPeer(None)),
        Some(("geth", path)) if !path.is_empty() => Ok(GethPeer(Some(path.into()))),
        _ => Err("no such peer imports chains; use geth, or geth=PATH".to_owned()),
    }
}

/// A chain and its genesis.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    name: String,
    chain: PathBuf,
    genesis: PathBuf,
}

/// One import by each client, one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    niwaki: NiwakiRun,
    geth: Option<GethRun>,
}

/// The clients, found before anything runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Clients {
    niwaki: PathBuf,
    niwaki_version: String,
    geth: Option<PathBuf>,
    geth_version: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    machine: Machine,
    clients: &'a Clients,
    import: Vec<ChainResults>,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let cases = cases(&options.chains, options.genesis_file.as_deref())?;
    let clients = Clients::find(&options.runs, options.peer.as_ref())?;
    let measured = measure_all(&cases, &clients, &options.runs)?;
    let report = Report {
        machine: Machine::here(),
        clients: &clients,
        import: measured,
    };
    options.json.write(&report)
}

/// The chains that `paths` name, each with its genesis.
pub(crate) fn cases(paths: &[PathBuf], genesis: Option<&Path>) -> Result<Vec<Case>> {
    paths.iter().map(|path| case(path, genesis)).collect()
}

fn case(path: &Path, genesis: Option<&Path>) -> Result<Case> {
    let chain = crate::chain_file::in_folder(path);
    let shown = chain.display();
    ensure!(
        chain.is_file(),
        "there is no chain {shown}; give a file of RLP blocks, or a folder with chain.rlp"
    );
    let genesis = genesis.map_or_else(|| chain.with_file_name("genesis.json"), Path::to_owned);
    let shown = genesis.display();
    ensure!(
        genesis.is_file(),
        "there is no genesis file {shown}; give it with --genesis-file"
    );
    Ok(Case {
        name: name_of(&chain),
        chain,
        genesis,
    })
}

/// The last folders and the stem, without words that many chains share.
fn name_of(chain: &Path) -> String {
    let absolute = chain.canonicalize().unwrap_or_else(|_| chain.to_owned());
    let stem = absolute.with_extension("");
    let words = stem.iter().map(|word| word.to_string_lossy());
    let distinct = words.filter(|word| word != "chain" && word != "tests" && word != "/");
    let mut distinct: Vec<_> = distinct.collect();
    let last = distinct.split_off(distinct.len().saturating_sub(2));
    last.join("/")
}

impl Clients {
    pub(crate) fn find(runs: &RunOptions, peer: Option<&GethPeer>) -> Result<Self> {
        let niwaki = contenders::niwaki_program(runs.niwaki.as_deref())?;
        let geth = peer.map(|GethPeer(path)| peers::find("geth", path.as_deref()));
        let geth = geth.transpose()?;
        let geth_version = geth.as_deref();
        let geth_version = geth_version.map(|geth| contenders::version(geth, "version"));
        Ok(Self {
            niwaki_version: contenders::version(&niwaki, "--version")?,
            geth_version: geth_version.transpose()?,
            niwaki,
            geth,
        })
    }
}

/// Measures every case and prints a few lines for each.
pub(crate) fn measure_all(
    cases: &[Case],
    clients: &Clients,
    runs: &RunOptions,
) -> Result<Vec<ChainResults>> {
    if let Some(parent) = &runs.work_dir {
        check_empty(parent)?;
    }
    let work_dir = work_dir(runs.work_dir.as_deref())?;
    print_header();
    let mut rows = Vec::new();
    for case in cases {
        let row = measure(case, clients, runs.runs, work_dir.path())
            .wrap_err_with(|| format!("chain {}", case.name))?;
        print_row(&row);
        rows.push(row);
    }
    Ok(rows)
}

fn check_empty(path: &Path) -> Result<()> {
    let shown = path.display();
    let mut entries = std::fs::read_dir(path)
        .wrap_err_with(|| format!("can't list {shown}; give an empty folder as --work-dir"))?;
    ensure!(
        entries.next().is_none(),
        "{shown} is not empty; give an empty folder as --work-dir"
    );
    Ok(())
}

fn measure(case: &Case, clients: &Clients, runs: usize, work_dir: &Path) -> Result<ChainResults> {
    let work = chain_file::read(&case.chain)?;
    // Bring programs and blocks into the page cache, so that no client pays for it.
    for path in clients.geth.iter().chain([&clients.niwaki, &case.chain]) {
        let mut file = std::fs::File::open(path)?;
        io::copy(&mut file, &mut io::sink())?;
    }
    let niwaki = || {
        fresh(work_dir, "niwaki", work.head, |data| {
            contenders::niwaki(&clients.niwaki, case, data)
        })
    };
    let geth = || {
        let run = |program: &PathBuf| {
            fresh(work_dir, "geth", work.head, |data| {
                contenders::geth(program, case, data)
            })
        };
        clients.geth.as_ref().map(run).transpose()
    };
    let mut pairs = Vec::new();
    for run in 0..runs {
        pairs.push(if run % 2 == 0 {
            let niwaki = niwaki()?;
            let geth = geth()?;
            Pair { niwaki, geth }
        } else {
            let geth = geth()?;
            let niwaki = niwaki()?;
            Pair { niwaki, geth }
        });
    }
    Ok(ChainResults::new(&case.name, work, pairs))
}

/// Runs a client on a data path that does not exist yet, checks the head that it ends at, and removes the data.
fn fresh<T>(
    work_dir: &Path,
    client: &str,
    expected: Head,
    run: impl FnOnce(&Path) -> Result<(T, Head)>,
) -> Result<T> {
    let data = work_dir.join(client);
    let result = run(&data);
    if data.exists() {
        std::fs::remove_dir_all(&data)
            .wrap_err_with(|| format!("can't remove {}", data.display()))?;
    }
    let (cost, head) = result?;
    check_head(client, head, expected)?;
    Ok(cost)
}

fn check_head(client: &str, got: Head, expected: Head) -> Result<()> {
    ensure!(
        got == expected,
        "{client} ended at block {} ({}), the file ends at block {} ({}); the results would compare \
         different work",
        got.number,
        got.hash,
        expected.number,
        expected.hash
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_geth_with_or_without_a_path() {
        assert!(peer("geth").is_ok_and(|peer| peer.0.is_none()));
        assert!(peer("geth=/x/geth").is_ok_and(|peer| peer.0 == Some("/x/geth".into())));
        assert!(peer("besu").is_err());
        assert!(peer("geth=").is_err());
    }

    #[test]
    fn a_missing_chain_or_genesis_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = case(dir.path(), None).unwrap_err().to_string();
        assert!(text.contains("chain.rlp"), "{text}");
        std::fs::write(dir.path().join("chain.rlp"), []).unwrap();
        let text = case(dir.path(), None).unwrap_err().to_string();
        assert!(
            text.contains("genesis.json") && text.contains("--genesis-file"),
            "{text}"
        );
        std::fs::write(dir.path().join("genesis.json"), []).unwrap();
        assert!(case(dir.path(), None).is_ok());
    }

    #[test]
    fn a_work_dir_that_is_not_empty_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_empty(dir.path()).is_ok());
        std::fs::write(dir.path().join("x"), []).unwrap();
        let text = check_empty(dir.path()).unwrap_err().to_string();
        assert!(
            text.contains("not empty") && text.contains("--work-dir"),
            "{text}"
        );
    }

    #[test]
    fn a_chain_is_named_by_its_last_two_distinct_folders() {
        assert_eq!(name_of(Path::new("/a/hive/sync/chain.rlp")), "hive/sync");
        assert_eq!(
            name_of(Path::new("/b/execution-apis/tests/chain.rlp")),
            "b/execution-apis"
        );
        assert_eq!(name_of(Path::new("/b/c/mainnet.rlp")), "c/mainnet");
    }

    #[test]
    fn a_run_that_ends_elsewhere_is_an_error() {
        let head = |number| Head {
            number,
            hash: niwaki_primitives::B256::ZERO,
        };
        assert!(check_head("geth", head(3), head(3)).is_ok());
        let text = check_head("geth", head(2), head(3))
            .unwrap_err()
            .to_string();
        assert!(text.contains("geth ended at block 2"), "{text}");
    }
}
