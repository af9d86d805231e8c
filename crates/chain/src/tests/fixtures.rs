//! Blockchain test cases: those of `testdata`, and all of the corpus that `NIWAKI_CORPUS` names.

use super::*;
use alloy_primitives::hex;
use niwaki_primitives::{Address, Bytes, Fork, Header, rlp};
use niwaki_rules::{Activation, ChainSpec, DaoFork, GenesisAccount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

/// The chain spec of a fixture's network: a fork, or one fork and when the next begins.
fn spec(network: &str) -> ChainSpec {
    if let Some(fork) = Fork::from_name(network) {
        return ChainSpec::single(1, fork);
    }
    let (from, rest) = network.split_once("To").unwrap();
    let mut spec = ChainSpec::single(1, Fork::from_name(from).unwrap());
    let (to, at) = rest.split_once("At").unwrap();
    let to = match to {
        "Dao" => Fork::DaoFork,
        name => Fork::from_name(name).unwrap(),
    };
    let activation = match at {
        "Time15k" => Activation::Time(15_000),
        "DiffC0000" => {
            spec.terminal_total_difficulty = Some(U256::from(0xc0000));
            Activation::TotalDifficulty
        }
        number => Activation::Block(number.parse().unwrap()),
    };
    if to == Fork::DaoFork {
        spec.dao_fork = Some(DaoFork {
            block: 5,
            support: true,
        });
    }
    for fork in Fork::ALL {
        let is_between = fork > Fork::from_name(from).unwrap() && fork <= to;
        if is_between && (fork != Fork::DaoFork || to == fork) {
            spec.set(fork, activation);
        }
    }
    spec
}

fn bytes(value: &Value) -> Bytes {
    value.as_str().unwrap().parse().unwrap()
}

fn number(value: &Value) -> U256 {
    let text = value.as_str().unwrap();
    let digits = text.strip_prefix("0x").unwrap();
    U256::from_str_radix(if digits.is_empty() { "0" } else { digits }, 16).unwrap()
}

fn alloc(value: &Value) -> BTreeMap<Address, GenesisAccount> {
    let account = |(address, value): (&String, &Value)| {
        let slots = value["storage"].as_object().unwrap().iter();
        let slot = |(slot, value): (&String, &Value)| {
            (number(&Value::String(slot.clone())), number(value))
        };
        let account = GenesisAccount {
            nonce: number(&value["nonce"]).to(),
            balance: number(&value["balance"]),
            code: bytes(&value["code"]),
            storage: slots
                .map(slot)
                .filter(|(_, value)| !value.is_zero())
                .collect(),
        };
        (address.parse().unwrap(), account)
    };
    value.as_object().unwrap().iter().map(account).collect()
}

fn open_case(case: &Value) -> Result<Chain, String> {
    let genesis_rlp = bytes(&case["genesisRLP"]);
    let mut rest = &genesis_rlp[..];
    let header: Header = Block::decode(&mut rest)
        .map(|b| b.header)
        .map_err(|e| e.to_string())?;
    let mut spec = spec(case["network"].as_str().unwrap());
    spec.genesis_hash = Some(header.hash_slow());
    Chain::open(ChainConfig {
        data_path: None,
        spec: Arc::new(spec),
        genesis: GenesisBlock {
            header,
            alloc: alloc(&case["pre"]),
        },
        storage: StorageOptions::default(),
        state: StateOptions {
            cache_bytes: 1 << 20,
            ..StateOptions::default()
        },
    })
    .map_err(|error| error.to_string())
}

/// The blocks that were taken one by one give the same chain when they come as one batch.
fn run_batch(case: &Value, blocks: Vec<Block>, expected: &Chain) -> Result<(), String> {
    let chain = open_case(case)?;
    let results = chain.import_batch(blocks.into_iter().map(ImportRequest::from).collect());
    for result in results {
        result.map_err(|error| format!("as a batch: {error}"))?;
    }
    match dump(&chain) == dump(expected) {
        true => Ok(()),
        false => Err("as a batch: other rows".to_owned()),
    }
}

/// Runs one case; the error says what differs.
fn run(case: &Value) -> Result<(), String> {
    let chain = open_case(case)?;
    let mut taken = Vec::new();
    for (at, block) in case["blocks"].as_array().unwrap().iter().enumerate() {
        // A block without an expected header, or with an exception, must be refused.
        let is_bad = block.get("blockHeader").is_none()
            || block
                .as_object()
                .unwrap()
                .keys()
                .any(|key| key.starts_with("expectException"));
        let rlp = hex::decode(block["rlp"].as_str().unwrap()).unwrap_or_default();
        let decoded: Result<Block, _> = rlp::decode_exact(&rlp);
        let outcome = match decoded {
            Err(error) => Err(error.to_string()),
            Ok(block) => {
                taken.extend((!is_bad).then(|| block.clone()));
                chain.import(block).map_err(|error| match error {
                    ImportError::Fault(fault) => panic!("{fault}"),
                    other => other.to_string(),
                })
            }
        };
        match outcome {
            Ok(_) if is_bad => return Err(format!("block {at} was taken")),
            Err(error) if !is_bad => return Err(format!("block {at}: {error}")),
            _ => {}
        }
    }
    let expected: B256 = case["lastblockhash"].as_str().unwrap().parse().unwrap();
    if chain.head().id.hash != expected {
        return Err(format!("head {}, not {expected}", chain.head().id));
    }
    let view = chain.view_at_head().unwrap();
    if case["postState"].is_object() {
        for (address, account) in alloc(&case["postState"]) {
            let held = view
                .account(&address)
                .unwrap()
                .ok_or(format!("no {address}"))?;
            let code = view.code(&held.code_hash).unwrap();
            if (held.nonce, held.balance, &code) != (account.nonce, account.balance, &account.code)
            {
                return Err(format!("{address} is {held:?}"));
            }
            for (slot, value) in &account.storage {
                if view.storage(&address, slot).unwrap() != *value {
                    return Err(format!("{address} slot {slot} is not {value}"));
                }
            }
        }
    }
    drop(view);
    let mut problem = None;
    chain
        .check(&mut |found| problem = Some(found.to_string()))
        .unwrap();
    problem.map_or(Ok(()), Err)?;
    match taken.len() {
        0 | 1 => Ok(()),
        _ => run_batch(case, taken, &chain),
    }
}

pub(super) fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        entries.sort();
        entries.iter().for_each(|path| files(path, found));
    } else if path.extension().is_some_and(|e| e == "json") {
        found.push(path.to_owned());
    }
}

/// Runs every case below `path` on two threads; gives how many there were.
fn run_all(path: &Path, filter: &str) -> usize {
    let mut paths = Vec::new();
    files(path, &mut paths);
    paths.retain(|path| path.display().to_string().contains(filter));
    let queue = Mutex::new(paths.into_iter());
    let failures = Mutex::new(Vec::new());
    let worker = || {
        let mut count = 0;
        loop {
            let next = queue.lock().unwrap().next();
            let Some(path) = next else { return count };
            let cases: BTreeMap<String, Value> =
                serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            for (name, case) in &cases {
                if !case["genesisRLP"].is_string() {
                    continue;
                }
                count += 1;
                if let Err(error) = run(case) {
                    let line = format!("{} {name}: {error}", path.display());
                    println!("{line}");
                    failures.lock().unwrap().push(line);
                }
            }
        }
    };
    let count = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {count} cases failed",
        failures.len()
    );
    count
}

#[test]
fn fork_choice_cases_of_the_repository_pass() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/blockchain-tests");
    assert_eq!(run_all(&path, ""), 5);
}

#[test]
fn blockchain_cases_of_the_corpus_pass_where_there_is_one() {
    let Some(folder) = niwaki_testkit::corpus("blockchain-tests") else {
        return;
    };
    let filter = std::env::var("NIWAKI_CASES").unwrap_or_default();
    let count = run_all(&folder, &filter);
    println!("{count} cases");
    assert!(count > 0);
}
