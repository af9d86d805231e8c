//! Engine fixtures of execution-spec-tests through the real port: for each case a node of its own,
//! begun with the case's genesis, given its payloads with tokens.

use crate::process::{Given, Kind, Process};
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
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Files or folders of engine fixtures.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Only cases with this in their names.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Only every Nth case.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Nodes at a time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
}

/// Runs as the options say; fails if a case does.
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
    let niwaki = std::path::absolute(&options.niwaki)?;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = play(&niwaki, case) {
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

/// One case: every payload is answered as it says, and the last valid one is the head.
fn play(niwaki: &Path, case: &Value) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let genesis = folder.path().join("genesis.json");
    std::fs::write(&genesis, genesis_of(case)?.to_string())?;
    let place = folder.path().join("node");
    let node = Process::start(
        Kind::Niwaki,
        "niwaki",
        niwaki,
        place,
        Given::genesis(&genesis),
    )?;
    let client = &node.client;
    let first = client.ask("eth_getBlockByNumber", json!(["0x0", false]))?;
    let want = &case["genesisBlockHeader"]["hash"];
    ensure!(
        first["hash"] == *want,
        "genesis {}, want {want}",
        first["hash"]
    );

    let payloads = case["engineNewPayloads"].as_array();
    for (index, payload) in payloads.into_iter().flatten().enumerate() {
        let at = || format!("payload {index}");
        let version = |name: &str| payload[name].as_str().unwrap_or("1").to_owned();
        let method = format!("engine_newPayloadV{}", version("newPayloadVersion"));
        let answer = client.drive_raw(&method, payload["params"].clone())?;
        if let Some(code) = payload.get("errorCode").filter(|code| !code.is_null()) {
            let code = code.as_i64().or_else(|| code.as_str()?.parse().ok());
            let got = answer["error"]["code"].as_i64();
            ensure!(got == code, "{}: {answer}, want error {code:?}", at());
            continue;
        }
        let status = &answer["result"]["status"];
        let is_invalid = payload
            .get("validationError")
            .is_some_and(|error| !error.is_null());
        let want = if is_invalid { "INVALID" } else { "VALID" };
        ensure!(status == want, "{}: {answer}, want {want}", at());
        if is_invalid {
            continue;
        }
        let method = format!(
            "engine_forkchoiceUpdatedV{}",
            version("forkchoiceUpdatedVersion")
        );
        let hash = &payload["params"][0]["blockHash"];
        let zero = format!("0x{}", "0".repeat(64));
        let state =
            json!({ "headBlockHash": hash, "safeBlockHash": zero, "finalizedBlockHash": zero });
        let answer = client.drive_raw(&method, json!([state, null]))?;
        let status = &answer["result"]["payloadStatus"]["status"];
        ensure!(status == "VALID", "{}, fork choice: {answer}", at());
    }
    let head = client.ask("eth_getBlockByNumber", json!(["latest", false]))?;
    let want = &case["lastblockhash"];
    ensure!(head["hash"] == *want, "head {}, want {want}", head["hash"]);
    Ok(())
}

/// The genesis file that says what the case says.
fn genesis_of(case: &Value) -> Result<Value> {
    let header = &case["genesisBlockHeader"];
    let mut config = config_of(case["network"].as_str().unwrap_or_default())?;
    let given = &case["config"];
    config["chainId"] = match given["chainid"].as_str() {
        Some(id) => json!(number(id)?),
        None => json!(1),
    };
    if let Some(schedule) = given["blobSchedule"].as_object() {
        let mut blobs = Map::new();
        for (fork, entry) in schedule {
            let field = |name: &str| -> Result<Value> {
                Ok(json!(number(entry[name].as_str().unwrap_or("0x0"))?))
            };
            let entry = json!({
                "target": field("target")?,
                "max": field("max")?,
                "baseFeeUpdateFraction": field("baseFeeUpdateFraction")?,
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

/// The forks of a fixture's network: all up to the first from the beginning, the second at its time.
fn config_of(network: &str) -> Result<Value> {
    let mut config = json!({ "terminalTotalDifficulty": 0 });
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
    let last = last.ok_or_else(|| eyre!("the network {network} is not known here"))?;
    for fork in times.iter().skip(1).take(last) {
        config[format!("{}Time", fork.to_lowercase())] = json!(0);
    }
    if let Some(second) = second {
        config[format!("{}Time", second.to_lowercase())] = json!(15_000);
    }
    Ok(config)
}

fn number(text: &str) -> Result<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).wrap_err_with(|| text.to_owned())
}
