//! geth's own tracer tests, if the corpus is installed.

use super::subject::Subject;
use super::tracers::Tracing;
use crate::simulation::SimulatedBlock;
use niwaki_primitives::{Address, B256, Bytes, Decodable2718, Fork, Header, TxEnvelope, U256, hex};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{MemoryAccount, MemoryState, corpus};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// A number in hexadecimal or decimal, as text or not.
fn number(value: &Value) -> U256 {
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => U256::from_str_radix(digits, 16).unwrap(),
            None => U256::from_str_radix(text, 10).unwrap(),
        },
        Value::Number(number) => U256::from(number.as_u64().unwrap()),
        _ => U256::ZERO,
    }
}

fn small(value: &Value) -> u64 {
    u64::try_from(number(value)).unwrap()
}

fn bytes(value: &Value) -> Bytes {
    hex::decode(value.as_str().unwrap_or("0x")).unwrap().into()
}

fn state(alloc: &Map<String, Value>) -> MemoryState {
    let mut state = MemoryState::default();
    for (address, account) in alloc {
        let slots = account["storage"].as_object().into_iter().flatten();
        let storage = slots.map(|(slot, value)| {
            let slot: B256 = slot.parse().unwrap();
            (U256::from_be_bytes(slot.0), number(value))
        });
        let account = MemoryAccount {
            nonce: small(&account["nonce"]),
            balance: number(&account["balance"]),
            code: bytes(&account["code"]).into(),
            storage: storage.filter(|(_, value)| !value.is_zero()).collect(),
        };
        let address: Address = address.parse().unwrap();
        state.insert(address, account);
    }
    state
}

/// The rules at the case's block. The forks of some cases are in an order that no genesis file may have, and Go reads
/// names in any letter case.
fn spec(case: &Value) -> ChainSpec {
    let blocks = [
        ("homesteadblock", Fork::Homestead),
        ("eip150block", Fork::TangerineWhistle),
        ("eip158block", Fork::SpuriousDragon),
        ("byzantiumblock", Fork::Byzantium),
        ("constantinopleblock", Fork::Constantinople),
        ("petersburgblock", Fork::Petersburg),
        ("istanbulblock", Fork::Istanbul),
        ("berlinblock", Fork::Berlin),
        ("londonblock", Fork::London),
    ];
    let times = [
        ("shanghaitime", Fork::Shanghai),
        ("cancuntime", Fork::Cancun),
        ("praguetime", Fork::Prague),
    ];
    let config: BTreeMap<String, &Value> = case["genesis"]["config"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    let context = &case["context"];
    let (height, time) = (small(&context["number"]), small(&context["timestamp"]));
    let at = blocks.iter().map(|row| (row, height));
    let begun = at
        .chain(times.iter().map(|row| (row, time)))
        .filter(|((name, _), now)| config.get(*name).is_some_and(|from| small(from) <= *now))
        .map(|((_, fork), _)| *fork);
    let mut fork = begun.max().unwrap_or(Fork::Frontier);
    if config.contains_key("terminaltotaldifficulty") && number(&context["difficulty"]).is_zero() {
        fork = fork.max(Fork::Paris);
    }
    ChainSpec::single(small(config["chainid"]), fork)
}

fn header(context: &Value) -> Header {
    let base_fee = context.get("baseFeePerGas").map(small);
    Header {
        number: small(&context["number"]),
        timestamp: small(&context["timestamp"]),
        gas_limit: small(&context["gasLimit"]),
        difficulty: number(&context["difficulty"]),
        beneficiary: context["miner"].as_str().unwrap().parse().unwrap(),
        base_fee_per_gas: base_fee,
        excess_blob_gas: base_fee.map(|_| 0),
        ..Header::default()
    }
}

/// The value without empty members and without the location, which the cases lack.
fn plain(value: &Value) -> Value {
    const PLACE: [&str; 5] = [
        "blockHash",
        "blockNumber",
        "transactionHash",
        "transactionPosition",
        "time",
    ];
    match value {
        Value::Object(object) => {
            let kept = object
                .iter()
                .filter(|(name, _)| !PLACE.contains(&name.as_str()));
            let kept = kept.map(|(name, value)| (name.clone(), plain(value)));
            let is_empty = |value: &Value| {
                let zero = json!(Address::ZERO);
                let empty = [
                    zero,
                    json!(null),
                    json!({}),
                    json!(""),
                    json!("0x"),
                    json!("0x0"),
                    json!([]),
                ];
                empty.contains(value)
            };
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(plain).collect()),
        other => other.clone(),
    }
}

fn trace(case: &Value, tracer: &str) -> Value {
    let spec = spec(case);
    let state = state(case["genesis"]["alloc"].as_object().unwrap());
    let header = header(&case["context"]);
    let before = header.number.saturating_sub(1);
    let block = SimulatedBlock::new(&spec, header, &state, before);
    let input = bytes(&case["input"]);
    let tx = TxEnvelope::decode_2718(&mut input.as_ref()).unwrap();
    let sender = niwaki_rules::recover_sender(&tx).unwrap();
    let subject = Subject::Transaction {
        tx: &tx,
        sender,
        location: None,
    };
    let mut options = json!({"tracer": tracer});
    if let Some(config) = case.get("tracerConfig") {
        options["tracerConfig"] = config.clone();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let tracing = Tracing::read(Some(&options.to_string()), deadline).unwrap();
    let mut out = Vec::new();
    tracing.write(&block, &subject, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// geth has its own messages for the errors of precompiled contracts and for the gas that SSTORE requires (EIP-2200);
/// here they are general ones.
const OTHER_WORDS: &str = "callcode_precompiled_throw.json";

fn run(folder: &Path, tracer: &str) -> (usize, Vec<String>) {
    let (mut passed, mut failed) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with(OTHER_WORDS) {
            continue;
        }
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let (want, got) = (plain(&case["result"]), plain(&trace(&case, tracer)));
        match want == got {
            true => passed += 1,
            false => failed.push(format!("{}:\nwant {want}\ngot  {got}", path.display())),
        }
    }
    (passed, failed)
}

#[test]
fn every_tracer_case_of_geth_gives_its_result() {
    let Some(corpus) = corpus("rpc-engine-p2p/go-ethereum/tracetest") else {
        return;
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for (folder, tracer) in [
        ("call_tracer", "callTracer"),
        ("call_tracer_withLog", "callTracer"),
        ("call_tracer_flat", "flatCallTracer"),
        ("prestate_tracer", "prestateTracer"),
        ("prestate_tracer_with_diff_mode", "prestateTracer"),
    ] {
        let found = run(&corpus.join(folder), tracer);
        passed += found.0;
        failed.extend(found.1);
    }
    let failed_count = failed.len();
    assert!(
        failed.is_empty(),
        "{passed} passed, {failed_count} failed: {}",
        failed.join("\n")
    );
    assert!(passed >= 60, "{passed}");
}
