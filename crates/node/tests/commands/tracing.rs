//! Calls and traces: agreement between methods, overrides, limits, rejections.

use crate::running::{Node, post};
use crate::support::TestDir;
use serde_json::{Value, json};
use std::path::Path;

/// A contract that spends all its gas.
const LOOPS: &str = "0x5b600056";
/// Returns the word in slot 1.
const GIVES_SLOT_1: &str = "0x60015460005260206000f3";
/// Returns the remaining gas.
const GIVES_GAS: &str = "0x5a60005260206000f3";
/// Reverts unless more than 100,000 gas remain.
const WANTS_GAS: &str = "0x620186a05a11600a57fe5b00";

const CONTRACT: &str = "0xc000000000000000000000000000000000000000";

fn with_code(code: &str) -> Value {
    json!({CONTRACT: {"code": code}})
}

fn error(node: &Node, method: &str, params: Value) -> (i64, String) {
    let response = node.call(method, params);
    let error = &response["error"];
    assert!(error.is_object(), "{method}: {response}");
    let message = error["message"].as_str().unwrap();
    (error["code"].as_i64().unwrap(), message.to_owned())
}

/// The blocks of the chain that have transactions, as `[number, hashes]`.
fn blocks(node: &Node) -> Vec<(String, Vec<String>)> {
    let numbers = 1..=0x36;
    let blocks = numbers.map(|number| {
        let number = format!("{number:#x}");
        let block = node.result("eth_getBlockByNumber", json!([number, false]));
        let hashes = block["transactions"].as_array().unwrap().iter();
        let hashes = hashes.map(|hash| hash.as_str().unwrap().to_owned());
        (number, hashes.collect())
    });
    blocks
        .filter(|(_, hashes): &(String, Vec<String>)| !hashes.is_empty())
        .collect()
}

#[test]
fn all_tracers_of_a_block_agree_with_its_receipts() {
    let node = Node::with_chain();
    let mut traces = 0;
    for (number, hashes) in blocks(&node) {
        let receipts = node.result("eth_getBlockReceipts", json!([number]));
        let lines = node.result("debug_traceBlockByNumber", json!([number, {"limit": 1}]));
        let calls = json!({"tracer": "callTracer", "tracerConfig": {"withLog": true}});
        let calls = node.result("debug_traceBlockByNumber", json!([number, calls]));
        let flat = node.result("trace_block", json!([number]));
        let replayed = json!([number, ["trace", "stateDiff", "vmTrace"]]);
        let replayed = node.result("trace_replayBlockTransactions", replayed);
        for (index, hash) in hashes.iter().enumerate() {
            let receipt = &receipts[index];
            let failed = receipt["status"] == "0x0";
            assert_eq!(lines[index]["txHash"], json!(hash));
            assert_eq!(lines[index]["result"]["failed"], failed, "{hash}");
            let gas = format!("{:#x}", lines[index]["result"]["gas"].as_u64().unwrap());
            assert_eq!(json!(gas), receipt["gasUsed"], "{hash}");

            let call = &calls[index]["result"];
            assert_eq!(call["gasUsed"], receipt["gasUsed"], "{hash}");
            assert_eq!(call["from"], receipt["from"]);
            assert_eq!(call.get("error").is_some(), failed);
            assert_eq!(
                logs_of(call),
                receipt["logs"].as_array().unwrap().len(),
                "{hash}"
            );

            let own = node.result("trace_transaction", json!([hash]));
            let of_block: Vec<&Value> = flat
                .as_array()
                .unwrap()
                .iter()
                .filter(|trace| trace["transactionHash"] == json!(hash))
                .collect();
            assert_eq!(own.as_array().unwrap().iter().collect::<Vec<_>>(), of_block);
            assert_eq!(node.result("trace_get", json!([hash, []])), own[0]);
            traces += of_block.len();

            let one = json!([hash, ["trace", "stateDiff"]]);
            let one = node.result("trace_replayTransaction", one);
            assert_eq!(one["stateDiff"], replayed[index]["stateDiff"]);
            assert_eq!(replayed[index]["transactionHash"], json!(hash));
            let nonce = &one["stateDiff"][receipt["from"].as_str().unwrap()]["nonce"];
            assert!(nonce["*"].is_object(), "{hash}: {nonce}");
        }
    }
    let all = json!([{"fromBlock": "earliest", "toBlock": "latest"}]);
    let all = node.result("trace_filter", all);
    assert_eq!(all.as_array().unwrap().len(), traces);
    let some = json!([{"fromBlock": "0x0", "after": "0x3", "count": "0x5"}]);
    let some = node.result("trace_filter", some);
    let want = &all.as_array().unwrap()[3..8];
    assert_eq!(some.as_array().unwrap().as_slice(), want);
}

fn logs_of(call: &Value) -> usize {
    let own = call["logs"].as_array().map_or(0, Vec::len);
    let calls = call["calls"].as_array().into_iter().flatten();
    own + calls.map(logs_of).sum::<usize>()
}

#[test]
fn state_overrides_apply_to_the_call_only() {
    let node = Node::with_chain();
    let call = json!({"to": CONTRACT});
    let word = |value: u64| json!(format!("{value:#066x}"));
    let mut overrides = with_code(GIVES_SLOT_1);
    let slot = format!("{:#066x}", 1);
    overrides[CONTRACT]["stateDiff"] = json!({&slot: word(7)});
    let params = json!([call, "latest", overrides]);
    assert_eq!(node.result("eth_call", params), word(7));
    assert_eq!(node.result("eth_call", json!([call, "latest"])), "0x");
    // NUMBER, TIMESTAMP, GASLIMIT in order.
    for (opcode, name, value) in [
        ("43", "number", 99),
        ("42", "time", 5),
        ("45", "gasLimit", 8),
    ] {
        let code = with_code(&format!("0x{opcode}60005260206000f3"));
        let block = json!({name: format!("{value:#x}")});
        let params = json!([call, "latest", code, block]);
        assert_eq!(node.result("eth_call", params), word(value), "{name}");
    }
    let both = json!({CONTRACT: {"state": {}, "stateDiff": {}}});
    let refused = error(&node, "eth_call", json!([call, "latest", both]));
    assert!(
        refused.1.contains("both 'state' and 'stateDiff'"),
        "{refused:?}"
    );
    let moved = json!({CONTRACT: {"movePrecompileToAddress": CONTRACT}});
    let refused = error(&node, "eth_call", json!([call, "latest", moved]));
    assert!(refused.1.contains("is not a precompile"), "{refused:?}");
    let root = json!([call, "latest", {}, {"beaconRoot": slot}]);
    assert!(error(&node, "eth_call", root).1.contains("beaconRoot"));
}

#[test]
fn a_call_is_limited_by_the_gas_cap_and_reports_its_failure() {
    let node = Node::with_chain_and("--rpc-gas-cap=1000000");
    let call = json!({"to": CONTRACT, "gas": "0xffffffffffff"});
    for (code, want) in [
        (LOOPS, "out of gas"),
        ("0xfe", "invalid opcode: INVALID"),
        ("0x0c", "invalid opcode: opcode 0xc not defined"),
        ("0x01", "stack underflow (0 <=> 2)"),
        ("0x56", "stack underflow (0 <=> 1)"),
        ("0x5b6000600056", "stack limit reached 1024 (1023)"),
        ("0x600056", "invalid jump destination"),
        ("0x3d60013d3e", "return data out of bounds"),
    ] {
        let params = json!([call, "latest", with_code(code)]);
        let (number, message) = error(&node, "eth_call", params);
        assert_eq!((number, message.as_str()), (-32000, want), "{code}");
    }
    let params = json!([call, "latest", with_code("0x60006000fd")]);
    assert_eq!(
        error(&node, "eth_call", params),
        (3, "execution reverted".to_owned())
    );
    let params = json!([call, "latest", with_code(GIVES_GAS)]);
    let gas = node.result("eth_call", params);
    let gas = u64::from_str_radix(gas.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    assert!((900_000..1_000_000).contains(&gas), "{gas}");
    let poor = json!([{"from": CONTRACT, "to": CONTRACT, "value": "0x1"}, "latest"]);
    let refused = error(&node, "eth_call", poor);
    assert!(
        refused
            .1
            .contains("insufficient funds for gas * price + value"),
        "{refused:?}"
    );
}

#[test]
fn an_estimate_suffices_within_the_tolerance() {
    let node = Node::with_chain();
    let call = json!({"to": CONTRACT});
    let code = with_code(WANTS_GAS);
    let gas = node.result("eth_estimateGas", json!([call, "latest", code]));
    let gas = u64::from_str_radix(&gas.as_str().unwrap()[2..], 16).unwrap();
    let with = |gas: u64| json!([{"to": CONTRACT, "gas": format!("{gas:#x}")}, "latest", code]);
    assert_eq!(node.result("eth_call", with(gas)), "0x");
    let less = gas - gas * 2 / 100;
    assert!(
        node.call("eth_call", with(less)).get("error").is_some(),
        "{gas}"
    );

    let little = json!([{"to": CONTRACT, "gas": "0xc350"}, "latest", with_code(LOOPS)]);
    let refused = error(&node, "eth_estimateGas", little);
    assert_eq!(
        refused,
        (-32000, "gas required exceeds allowance (50000)".to_owned())
    );
    let poor =
        json!([{"from": CONTRACT, "to": CONTRACT, "value": "0x1", "gasPrice": "0xffffffffff"}]);
    let refused = error(&node, "eth_estimateGas", poor);
    assert_eq!(
        refused,
        (-32000, "insufficient funds for transfer".to_owned())
    );
}

#[test]
fn untraceable_requests_are_refused_with_a_message() {
    let node = Node::with_chain();
    let call = json!({"to": CONTRACT});
    let hash = format!("{:#066x}", 1);
    for (method, params, code, word) in [
        (
            "debug_traceTransaction",
            json!([hash]),
            -32000,
            "transaction not found",
        ),
        (
            "debug_traceCall",
            json!([call, "latest", {"tracer": "nope"}]),
            -32000,
            "callTracer",
        ),
        (
            "debug_traceCall",
            json!([call, "0x1000"]),
            -32000,
            "header not found",
        ),
        (
            "debug_traceBlock",
            json!(["0x01"]),
            -32000,
            "could not decode block",
        ),
        (
            "debug_traceBlockByNumber",
            json!(["0x1000"]),
            -32000,
            "block #4096 not found",
        ),
        (
            "trace_replayTransaction",
            json!([hash, ["vmtrace"]]),
            -32602,
            "want trace, stateDiff or vmTrace",
        ),
        (
            "trace_call",
            json!([call, ["nope"]]),
            -32602,
            "want trace, stateDiff or vmTrace",
        ),
        (
            "trace_rawTransaction",
            json!(["0x00", ["trace"]]),
            -32000,
            "could not decode",
        ),
        (
            "trace_filter",
            json!([{"fromBlock": "0x5", "toBlock": "0x4"}]),
            -32602,
            "is after",
        ),
    ] {
        let (number, message) = error(&node, method, params);
        assert_eq!(number, code, "{method}: {message}");
        assert!(message.contains(word), "{method}: {message}");
    }
    assert_eq!(node.result("trace_transaction", json!([hash])), Value::Null);
    assert_eq!(node.result("trace_block", json!(["0x1000"])), Value::Null);
    assert_eq!(node.result("trace_block", json!(["earliest"])), json!([]));
}

#[test]
fn a_streamed_trace_equals_a_whole_one() {
    let node = Node::with_chain();
    let call = json!({"to": CONTRACT, "gas": "0x30d40"});
    let options = json!({"stateOverrides": with_code(LOOPS), "disableStack": true});
    let params = json!([call, "latest", options]);
    let traced = node.result("debug_traceCall", params.clone());
    let lines = traced["structLogs"].as_array().unwrap();
    assert!(lines.len() > 40_000, "{}", lines.len());
    assert_eq!(lines.last().unwrap()["error"], "out of gas");
    assert_eq!(
        (&traced["failed"], &traced["gas"]),
        (&json!(true), &json!(200_000))
    );
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "debug_traceCall", "params": params,
    });
    let mut ipc = node.ipc();
    ipc.send(&request.to_string());
    assert_eq!(ipc.receive()["result"], traced);

    // A trace that exceeds its time is cut off, and no other call is delayed.
    let call = json!({"to": CONTRACT, "gas": "0x2faf080"});
    let options = json!({"stateOverrides": with_code(LOOPS), "timeout": "200ms"});
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "debug_traceCall", "params": [call, "latest", options],
    });
    let (status, body) = post(node.http, &request.to_string(), &[]);
    assert_eq!(status, 200);
    assert!(serde_json::from_str::<Value>(&body).is_err());
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x36");
}

#[test]
fn trace_call_overrides_code_and_call_many_sees_earlier_calls() {
    let node = Node::with_chain();
    // Increments slot 1 and returns it.
    let counts = "0x6001546001018060015560005260206000f3";
    let options = json!({
        "tracer": "muxTracer",
        "tracerConfig": {"callTracer": {}, "prestateTracer": {"diffMode": true}, "4byteTracer": {}},
        "stateOverrides": with_code(counts),
    });
    let call = json!({"to": CONTRACT, "data": "0x0102030405"});
    let traced = node.result("debug_traceCall", json!([call, "latest", options]));
    assert_eq!(
        traced["callTracer"]["output"],
        json!(format!("{:#066x}", 1))
    );
    assert_eq!(traced["4byteTracer"], json!({"0x01020304-1": 1}));
    let slots = &traced["prestateTracer"]["post"][CONTRACT]["storage"];
    assert_eq!(slots[format!("{:#066x}", 1)], json!(format!("{:#066x}", 1)));

    // A creation, then a call of the created contract.
    let caller = "0x0000000000000000000000000000000000000000";
    let nonce = node.result("eth_getTransactionCount", json!([caller, "latest"]));
    assert_eq!(nonce, "0x0");
    let created = "0xbd770416a3345f91e4b34576cb804a576fa48eb1";
    let init = format!("0x6012600c60003960126000f3{}", &counts[2..]);
    let create = json!([{"data": init}, ["trace", "stateDiff"]]);
    let first = json!([{"to": created}, ["trace"]]);
    let many = json!([[create, first, first], "latest"]);
    let many = node.result("trace_callMany", many);
    assert_eq!(many[0]["trace"][0]["result"]["address"], json!(created));
    assert!(many[0]["stateDiff"][created]["code"]["+"].is_string());
    assert_eq!(many[1]["output"], json!(format!("{:#066x}", 1)));
    assert_eq!(many[2]["output"], json!(format!("{:#066x}", 2)));
}

/// Where Besu's responses differ: it treats each message of a `trace_callMany` as a transaction of its own.
const OTHER_COSTS: [&str; 5] = [
    "trace_callMany_04_vmTrace.json",
    "trace_callMany_0e_vmTrace.json",
    "trace_callMany_15_vmTrace.json",
    "trace_callMany_16_vmTrace.json",
    "trace_callMany_20_vmTrace.json",
];

/// Strips the comments, which blocks to build do not have.
fn without_comments(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.iter().filter(|(name, _)| *name != "comment");
            let kept = kept.map(|(name, value)| (name.clone(), without_comments(value)));
            Value::Object(kept.collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_comments).collect()),
        other => other.clone(),
    }
}

/// The opcodes of a response, of all its transactions.
fn opcodes(response: &Value) -> Vec<&Value> {
    match &response["result"] {
        Value::Array(list) => list.iter().map(|one| &one["vmTrace"]).collect(),
        one => vec![&one["vmTrace"]],
    }
}

fn json_of(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn vm_traces_equal_those_recorded_from_besu() {
    let Some(folder) = niwaki_testkit::corpus("besu-fixtures/api/jsonrpc/trace") else {
        return;
    };
    let mut dir = TestDir::new();
    dir.genesis = folder.join("chain-data/genesis.json");
    let blocks = without_comments(&json_of(&folder.join("chain-data/blocks.json")));
    let blocks = dir.file("blocks.json", blocks.to_string().as_bytes());
    dir.run("blocks import --format JSON --from", &[&blocks])
        .succeeded();
    let node = Node::start(dir, "--engine-rpc-enabled=false");
    let (mut passed, mut failed) = (0, Vec::new());
    let kinds = [
        "replay-trace-transaction/vm-trace",
        "replay-trace-transaction/all",
        "trace-call",
        "trace-callMany",
        "trace-raw-transaction",
    ];
    for kind in kinds {
        for file in std::fs::read_dir(folder.join("specs").join(kind)).unwrap() {
            let path = file.unwrap().path();
            let case = json_of(&path);
            let is_other = OTHER_COSTS.iter().any(|other| path.ends_with(other));
            if is_other || !case["request"].to_string().contains("vmTrace") {
                continue;
            }
            let got = node.call(
                case["request"]["method"].as_str().unwrap(),
                case["request"]["params"].clone(),
            );
            match opcodes(&got) == opcodes(&case["response"]) {
                true => passed += 1,
                false => failed.push(path),
            }
        }
    }
    assert!(failed.is_empty(), "{passed} passed, failed: {failed:#?}");
    assert!(passed >= 150, "{passed}");
}
