//! `peers hive`: a simulator of hive (github.com/ethereum/hive) against local processes, without containers.
//!
//! A simulator is a program that tests clients; hive starts it, and the clients for it, in containers, and serves it an HTTP API to do so.
//! Here this tool serves that API, and a client is a process that has a loopback address of its own:
//!
//! ```text
//! simulator --HTTP--> this tool --starts--> niwaki at 127.x.0.2, go-ethereum at 127.x.0.3, ...
//!     +---------------- JSON-RPC, Engine API, peers, discovery --------^
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `server` | HTTP: a request with its body, a JSON response |
//! | `route` | which request is which |
//! | `simulation` | what is done for each |
//! | `suites`, `networks` | suites and tests with their results; who is in which network |
//! | `form` | what a client starts with, as a multipart form |
//! | `launch`, `genesis` | a client as a process; its genesis file |

mod form;
mod genesis;
mod launch;
mod networks;
mod route;
mod server;
mod simulation;
mod suites;

use super::findings::Findings;
use super::{Binaries, devp2p};
use crate::process::{ClientKind, new_folder};
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure, eyre};
use server::Server;
use simulation::{ClientType, Simulation};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct HiveOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Path of a simulator (`go build` in a folder of `simulators` in a clone of github.com/ethereum/hive); it runs in the folder that it
    /// lies in, where its files are.
    #[arg(long, value_name = "FILE")]
    simulator: PathBuf,
    /// The clients that the simulator may start; in hive geth is called go-ethereum.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "niwaki,geth"
    )]
    clients: Vec<ClientKind>,
    /// Run only the suites and tests that match, as in hive's --sim.limit, such as sync/niwaki.
    #[arg(long, value_name = "SUITE/TEST")]
    run: Option<String>,
    /// How long a client may take to start, imports included, seconds.
    #[arg(long, value_name = "N", default_value_t = 180)]
    start_timeout_s: u64,
    /// Longest time of the simulator, seconds.
    #[arg(long, value_name = "N", default_value_t = 3_600)]
    timeout_s: u64,
    /// Folder for the clients' data and logs and the simulator's output, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file: each test with suite, verdict, details, seconds and clients.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &HiveOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let types = options.clients.iter();
    let types = types.map(|kind| client_type(*kind, &options.binaries));
    let types: Vec<ClientType> = types.collect::<Result<_>>()?;
    let start_timeout = Duration::from_secs(options.start_timeout_s);
    let simulation = Arc::new(Simulation::new(
        types.clone(),
        folder.clone(),
        start_timeout,
    ));
    let server = Server::start(Arc::clone(&simulation))?;
    let log = folder.join("simulator.log");
    let command = simulator(options, &server)?;
    let output = devp2p::finish(command, &log, Duration::from_secs(options.timeout_s))?;

    let suites = simulation.suites();
    let outcomes = suites.outcomes();
    let mut findings = Findings::default();
    for kind in types {
        findings.text(kind.name, kind.version);
    }
    for outcome in &outcomes {
        let what = format!("{}: {}", outcome.suite, outcome.test);
        findings.figure(format!("{what}, time"), outcome.time.as_secs_f64(), "s");
        findings.claim(&what, outcome.pass);
        if !outcome.pass {
            eprintln!("{what} fails:\n{}", outcome.details);
        }
    }
    if !output.is_success {
        eprintln!("the simulator's output:\n{}", output.text);
    }
    findings.claim("the simulator ran a test", !outcomes.is_empty());
    findings.claim("the simulator ends in time", output.is_over);
    findings.claim("the simulator ends with success", output.is_success);
    findings.attach(
        "tests",
        outcomes.iter().map(suites::Outcome::to_json).collect(),
    );
    findings.finish("hive", options.json.as_deref())
}

fn client_type(kind: ClientKind, binaries: &Binaries) -> Result<ClientType> {
    let binary = std::path::absolute(binaries.of(kind)?)?;
    let name = match kind {
        ClientKind::Niwaki => "niwaki",
        ClientKind::Geth => "go-ethereum",
        other => bail!("{other:?} has no launcher here; choose of niwaki and geth"),
    };
    let output = Command::new(&binary).arg("--version").output();
    let output = output.wrap_err_with(|| format!("can't run {}", binary.display()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        output.status.success() && !version.is_empty(),
        "{} --version: {}",
        binary.display(),
        output.status
    );
    Ok(ClientType {
        kind,
        name,
        version,
        binary,
    })
}

/// The simulator, with the variables by which hive tells it what it needs.
fn simulator(options: &HiveOptions, server: &Server) -> Result<Command> {
    let path = std::path::absolute(&options.simulator)?;
    let folder = path.parent().map(Path::to_owned);
    let folder = folder.ok_or_else(|| eyre!("{} is no file", path.display()))?;
    let mut command = Command::new(&path);
    command
        .current_dir(folder)
        .env("HIVE_SIMULATOR", format!("http://{}", server.address))
        .env("HIVE_PARALLELISM", "1")
        .env("HIVE_LOGLEVEL", "3");
    if let Some(pattern) = &options.run {
        command.env("HIVE_TEST_PATTERN", pattern);
    }
    Ok(command)
}
