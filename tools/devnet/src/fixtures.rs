//! Engine fixtures of execution-spec-tests through the real port: each case starts a node on its
//! genesis and sends its payloads with JWT tokens.

use crate::load::number;
use crate::process::{Process, StartOptions};
use clap::Args;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_testkit::genesis::BLOCK_FORKS;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct FixtureOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Files or folders of engine fixtures.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Run only cases whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Run only every Nth case.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Nodes that run at the same time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

/// Runs the cases.
///
/// # Errors
/// If a case fails.
pub(crate) fn run(options: &FixtureOptions) -> Result<()> {
    let began = Instant::now();
    let mut files = Vec::new();
    for path in &options.paths {
        collect(path, &mut files)?;
    }
    files.sort();
    let mut cases = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        let all: Map<String, Value> =
            serde_json::from_str(&text).wrap_err_with(|| file.display().to_string())?;
        cases.extend(
            all.into_iter()
                .filter(|(name, _)| name.contains(&options.filter)),
        );
    }
    let cases: Vec<_> = cases.into_iter().step_by(options.every.max(1)).collect();
    ensure!(
        !cases.is_empty(),
        "no case has '{}' in its name",
        options.filter
    );
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = play(&options.niwaki, case) {
                        eprintln!("{name}: {error:#}");
                        failed.lock().expect("no thread panics").push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics").len();
    println!(
        "engine fixtures through the port: {} passed, {failed} failed, {:.0} s",
        cases.len() - failed,
        began.elapsed().as_secs_f64()
    );
    ensure!(failed == 0, "{failed} of {} cases failed", cases.len());
    Ok(())
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        files.push(path.to_owned());
    }
    Ok(())
}

/// Runs one case: every payload must get its expected status, and the last valid one must be the head.
fn play(niwaki: &Path, case: &Value) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let genesis = folder.path().join("genesis.json");
    std::fs::write(&genesis, genesis_of(case)?.to_string())?;
    let data = folder.path().join("node");
    let node = Process::start_niwaki(niwaki, data, StartOptions::genesis(&genesis))?;
    let client = &node.client;
    client.check_hash("0x0", &case["genesisBlockHeader"]["hash"])?;

    let payloads = case["engineNewPayloads"].as_array();
    for (index, payload) in payloads.into_iter().flatten().enumerate() {
        let at = || format!("payload {index}");
        let version = |name: &str| payload[name].as_str().unwrap_or("1").to_owned();
        let method = format!("engine_newPayloadV{}", version("newPayloadVersion"));
        let response = client.engine_response(&method, payload["params"].clone())?;
        if let Some(code) = payload.get("errorCode").filter(|code| !code.is_null()) {
            let code = code.as_i64().or_else(|| code.as_str()?.parse().ok());
            let got = response["error"]["code"].as_i64();
            ensure!(got == code, "{}: {response}, expected error {code:?}", at());
            continue;
        }
        let status = &response["result"]["status"];
        let is_invalid = payload
            .get("validationError")
            .is_some_and(|error| !error.is_null());
        let expected = if is_invalid { "INVALID" } else { "VALID" };
        ensure!(
            status == expected,
            "{}: {response}, expected {expected}",
            at()
        );
        if is_invalid {
            continue;
        }
        let version = version("forkchoiceUpdatedVersion");
        let method = format!("engine_forkchoiceUpdatedV{version}");
        let hash = &payload["params"][0]["blockHash"];
        client.make_head(&method, hash).wrap_err_with(at)?;
    }
    client.check_hash("latest", &case["lastblockhash"])
}

/// The genesis file of a case.
fn genesis_of(case: &Value) -> Result<Value> {
    let header = &case["genesisBlockHeader"];
    let mut config = config_of(case["network"].as_str().unwrap_or_default())?;
    let case_config = &case["config"];
    if case_config["chainid"].is_string() {
        config["chainId"] = json!(number(&case_config["chainid"])?);
    }
    if let Some(schedule) = case_config["blobSchedule"].as_object() {
        let mut blobs = Map::new();
        for (fork, entry) in schedule {
            let entry = json!({
                "target": number(&entry["target"])?,
                "max": number(&entry["max"])?,
                "baseFeeUpdateFraction": number(&entry["baseFeeUpdateFraction"])?,
            });
            blobs.insert(fork.to_lowercase(), entry);
        }
        config["blobSchedule"] = Value::Object(blobs);
    }
    let mut genesis = json!({ "config": config, "alloc": case["pre"] });
    for name in [
        "nonce",
        "timestamp",
        "extraData",
        "gasLimit",
        "difficulty",
        "mixHash",
        "coinbase",
        "baseFeePerGas",
        "excessBlobGas",
        "blobGasUsed",
        "parentBeaconBlockRoot",
    ] {
        if let Some(value) = header.get(name) {
            genesis[name] = value.clone();
        }
    }
    Ok(genesis)
}

/// The chain config of a fixture's network such as `CancunToPragueAtTime15k`: every fork up to the first is active
/// from genesis, the second at timestamp 15,000.
fn config_of(network: &str) -> Result<Value> {
    let mut config = json!({ "chainId": 1, "terminalTotalDifficulty": 0 });
    for fork in BLOCK_FORKS {
        config[format!("{fork}Block")] = json!(0);
    }
    let (first, second) = match network.strip_suffix("AtTime15k") {
        Some(both) => {
            let (first, second) = both.split_once("To").unwrap_or((both, ""));
            (first, Some(second))
        }
        None => (network, None),
    };
    let times = ["Paris", "Shanghai", "Cancun", "Prague", "Osaka"];
    let last = times.iter().position(|fork| *fork == first);
    let last = last.ok_or_else(|| eyre!("unknown network {network}"))?;
    for fork in times.iter().skip(1).take(last) {
        config[format!("{}Time", fork.to_lowercase())] = json!(0);
    }
    if let Some(second) = second {
        config[format!("{}Time", second.to_lowercase())] = json!(15_000);
    }
    Ok(config)
}
