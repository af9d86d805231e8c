//! `peers devp2p`: the suites of go-ethereum's `devp2p` tool, each against a new node that has imported the suite's chain.

use super::Binaries;
use super::findings::Findings;
use super::node::{self, without_discovery};
use crate::process::{ClientKind, P2pOptions, Process, StartOptions, new_folder};
use clap::{Args, ValueEnum};
use eyre::{Result, WrapErr, ensure, eyre};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct Devp2pOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The node under test.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    node: ClientKind,
    /// Path of `devp2p` 1.17.10 of go-ethereum (`go install github.com/ethereum/go-ethereum/cmd/devp2p@v1.17.10`).
    #[arg(long, value_name = "FILE")]
    devp2p: PathBuf,
    /// Folder of the suites' chain [default: the one in the folder that NIWAKI_CORPUS names].
    #[arg(long, value_name = "DIR")]
    chain: Option<PathBuf>,
    /// The suites.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "ping,eth,snap,snap2,discv4,discv5"
    )]
    suites: Vec<Suite>,
    /// Longest time of a suite, seconds.
    #[arg(long, value_name = "N", default_value_t = 180)]
    timeout_s: u64,
    /// Run only the tests whose name matches this pattern.
    #[arg(long, value_name = "REGEX")]
    run: Option<String>,
    /// Folder for the nodes' data and logs and the suites' output, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// `rlpx ping`: a handshake and both Hellos.
    Ping,
    /// `rlpx eth-test`.
    Eth,
    /// `rlpx snap-test`.
    Snap,
    /// `rlpx snap2-test`.
    Snap2,
    /// `discv4 test`.
    Discv4,
    /// `discv5 test`.
    Discv5,
}

/// Where the chain is in the corpus.
const IN_CORPUS: &str = "rpc-engine-p2p/go-ethereum/devp2p-ethtest";

pub(crate) fn run(options: &Devp2pOptions) -> Result<()> {
    let chain = match &options.chain {
        Some(chain) => chain.clone(),
        None => {
            let corpus = std::env::var_os("NIWAKI_CORPUS");
            let corpus = corpus.ok_or_else(|| eyre!("--chain DIR or NIWAKI_CORPUS is needed"))?;
            Path::new(&corpus).join(IN_CORPUS)
        }
    };
    let chain = std::path::absolute(chain)?;
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let mut findings = Findings::default();
    for (index, suite) in options.suites.iter().enumerate() {
        let name = format!("{suite:?}").to_lowercase();
        let node = start(options, *suite, &chain, &folder.join(&name))?;
        if index == 0 {
            findings.text("node", node::version(&node.client)?);
        }
        let began = Instant::now();
        let log = folder.join(format!("{name}.tap"));
        let output = match run_suite(options, *suite, &chain, &node, &log) {
            Ok(output) => output,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                findings.claim(format!("{name}: can be run"), false);
                continue;
            }
        };
        let tests = match suite {
            Suite::Ping => vec![("handshake".to_owned(), output.is_success)],
            _ => results(&output.text),
        };
        ensure!(
            !tests.is_empty() || !output.is_over,
            "{name} ran no test:\n{}",
            output.text
        );
        if !output.is_over {
            let after = tests.last().map_or("the start", |(test, _)| test.as_str());
            let what = format!("{name}: ends within {} s, after {after}", options.timeout_s);
            findings.claim(what, false);
        }
        let passed = tests.iter().filter(|(_, passed)| *passed).count();
        findings.figure(
            format!("{name}, passed of {}", tests.len()),
            passed as f64,
            "",
        );
        findings.figure(format!("{name}, time"), began.elapsed().as_secs_f64(), "s");
        for (test, passed) in &tests {
            findings.claim(format!("{name}: {test}"), *passed);
            if !passed {
                eprintln!("{name}: {test} fails:\n{}", diagnosis(&output.text, test));
            }
        }
    }
    findings.finish("devp2p", options.json.as_deref())
}

fn start(options: &Devp2pOptions, suite: Suite, chain: &Path, folder: &Path) -> Result<Process> {
    let (genesis, blocks) = (chain.join("genesis.json"), chain.join("chain.rlp"));
    let has_discovery = matches!(suite, Suite::Discv4 | Suite::Discv5);
    let start = StartOptions {
        chain: Some(&blocks),
        // The suites pay the base fee and a tip of one wei, and send 2,000 transactions of one account.
        flags: &[
            "--tx-pool-min-gas-price",
            "0",
            "--tx-pool-max-future-by-sender",
            "5000",
        ],
        p2p: Some(P2pOptions {
            has_discovery,
            max_peers: 50,
            ..P2pOptions::default()
        }),
        ..without_discovery(&genesis)
    };
    node::start(options.node, "node", &options.binaries, folder, start)
}

/// What a suite printed, and how it ended.
pub(super) struct Output {
    pub(super) text: String,
    pub(super) is_success: bool,
    /// It ended by itself.
    pub(super) is_over: bool,
}

fn run_suite(
    options: &Devp2pOptions,
    suite: Suite,
    chain: &Path,
    node: &Process,
    log: &Path,
) -> Result<Output> {
    let info = node.client.call("admin_nodeInfo", json!([]))?;
    let text = |field: &str| -> Result<String> {
        let text = info[field].as_str().map(str::to_owned);
        text.ok_or_else(|| eyre!("admin_nodeInfo has no {field}: {info}"))
    };
    let enode = text("enode")?;
    let mut command = Command::new(std::path::absolute(&options.devp2p)?);
    match suite {
        Suite::Ping => command.args(["rlpx", "ping", &enode]),
        Suite::Eth | Suite::Snap | Suite::Snap2 => {
            let (engine, secret) = node.engine()?;
            let name = match suite {
                Suite::Eth => "eth-test",
                Suite::Snap => "snap-test",
                _ => "snap2-test",
            };
            let secret = secret.trim_start_matches("0x");
            command
                .args(["rlpx", name, "--tap", "--chain"])
                .arg(chain)
                .args([
                    "--node",
                    &enode,
                    "--engineapi",
                    &engine,
                    "--jwtsecret",
                    secret,
                ])
        }
        Suite::Discv4 => {
            // geth leaves the port out of an enode whose discovery listens on the same.
            let remote = enode.replace("?discport=0", "");
            let listen = ["--listen1", "127.0.0.1", "--listen2", "127.0.0.2"];
            command
                .args(["discv4", "test", "--tap", "--remote", &remote])
                .args(listen)
        }
        Suite::Discv5 => {
            let listen = ["--listen1", "127.0.0.1", "--listen2", "127.0.0.2"];
            command.args(["discv5", "test", "--tap"]).args(listen)
        }
    };
    if let Some(pattern) = &options.run
        && suite != Suite::Ping
    {
        command.args(["--run", pattern]);
    }
    if suite == Suite::Discv5 {
        command.arg(text("enr")?);
    }
    finish(command, log, Duration::from_secs(options.timeout_s))
}

/// Runs a command with its output in a file, and ends it if it takes too long: a suite waits for ever for some answers.
pub(super) fn finish(mut command: Command, log: &Path, limit: Duration) -> Result<Output> {
    let file = std::fs::File::create(log)?;
    command.stdin(Stdio::null());
    command.stdout(file.try_clone()?).stderr(file);
    let mut child = command
        .spawn()
        .wrap_err_with(|| format!("can't run {}", command.get_program().display()))?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = std::fs::read(log)?;
    Ok(Output {
        text: String::from_utf8_lossy(&text).into_owned(),
        is_success: status.is_some_and(|status| status.success()),
        is_over: status.is_some(),
    })
}

/// The tests of a TAP output: name, and whether it passed.
fn results(text: &str) -> Vec<(String, bool)> {
    let result = |line: &str| {
        let (rest, passed) = match line.strip_prefix("not ok ") {
            Some(rest) => (rest, false),
            None => (line.strip_prefix("ok ")?, true),
        };
        let (number, name) = rest.split_once(' ')?;
        number.parse::<u32>().ok()?;
        Some((name.trim_start_matches("- ").to_owned(), passed))
    };
    text.lines().filter_map(result).collect()
}

/// What the output says of a test that failed.
fn diagnosis(text: &str, test: &str) -> String {
    let lines = text
        .lines()
        .skip_while(|line| !(line.starts_with("not ok") && line.ends_with(test)));
    let lines = lines
        .skip(1)
        .take_while(|line| !line.starts_with("ok ") && !line.starts_with("not ok "));
    lines.take(12).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tap_are_read_with_their_names() {
        let text = "TAP version 13\n1..3\nok 1 Status\nnot ok 2 - GetCells\n# no answer\nok 3 Ping/Basic\n";
        let all = results(text);
        assert_eq!(all[0], ("Status".to_owned(), true));
        assert_eq!(all[1], ("GetCells".to_owned(), false));
        assert_eq!(all.len(), 3);
        assert_eq!(diagnosis(text, "GetCells"), "# no answer");
    }
}
