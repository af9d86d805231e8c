//! State transitions and built blocks from the command line: documents in, documents out.

use niwaki_testkit::corpus;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const KEY: &str = "0x45a915e4d060149eb4365960e6a7a45f334393093061116b197e3240065ff2d8";
/// The address of that key.
const SENDER: &str = "0xa94f5374fce5edbc8e2a8697c15331677e6ebf0b";
/// PUSH1 2; PUSH1 1; SSTORE; PUSH1 7; PUSH0; PUSH0; LOG1.
const CODE: &str = "0x600260015560075f5fa1";
const CONTRACT: &str = "0x00000000000000000000000000000000000000c0";

fn start(arguments: &[&str], folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn run(arguments: &[&str], folder: &Path, stdin: &Value) -> Output {
    let mut child = start(arguments, folder);
    let mut pipe = child.stdin.take().expect("asked for");
    // A program that rejects its options does not read.
    drop(pipe.write_all(stdin.to_string().as_bytes()));
    drop(pipe);
    child.wait_with_output().expect("a child can be waited for")
}

/// All documents through standard input and output.
const PIPED: [&str; 7] = [
    "t8n",
    "--input.alloc=stdin",
    "--input.env=stdin",
    "--input.txs=stdin",
    "--output.alloc=stdout",
    "--output.result=stdout",
    "--output.body=stdout",
];

/// The output for `input` by the rules of `fork`.
fn transition(fork: &str, input: &Value) -> Value {
    let fork = format!("--state.fork={fork}");
    let arguments = [&PIPED[..], &[&fork]].concat();
    let output = run(&arguments, Path::new("."), input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn legacy(nonce: u64, gas: u64) -> Value {
    json!({
        "nonce": format!("{nonce:#x}"), "gas": format!("{gas:#x}"), "gasPrice": "0x10",
        "to": CONTRACT, "value": "0x1", "input": "0x", "secretKey": KEY,
    })
}

fn shanghai(txs: &Value) -> Value {
    json!({
        "alloc": {
            SENDER: { "balance": "0xffffffffffff" },
            CONTRACT: { "balance": "0x0", "code": CODE },
        },
        "env": {
            "currentCoinbase": "0x00000000000000000000000000000000000000fe",
            "currentGasLimit": "0x1000000", "currentNumber": "1", "currentTimestamp": 1000,
            "currentRandom": "0x0", "withdrawals": [], "parentBaseFee": "0x7",
            "parentGasUsed": "0x0", "parentGasLimit": "0x1000000",
        },
        "txs": txs,
    })
}

#[test]
fn transactions_change_state_and_give_receipts() {
    let answer = transition(
        "Shanghai",
        &shanghai(&json!([legacy(0, 60_000), legacy(1, 60_000)])),
    );
    let result = &answer["result"];
    let receipts = result["receipts"].as_array().unwrap();
    assert_eq!(receipts.len(), 2);
    let log = &receipts[1]["logs"][0];
    assert_eq!(log["logIndex"], "0x1");
    assert_eq!(log["transactionHash"], receipts[1]["transactionHash"]);
    assert_eq!(receipts[1]["cumulativeGasUsed"], result["gasUsed"]);
    assert_eq!(result["currentBaseFee"], "0x7", "an eighth of 7 is nothing");
    assert!(result["rejected"].is_null());
    let alloc = &answer["alloc"];
    assert_eq!(alloc[SENDER]["nonce"], "0x2");
    assert_eq!(alloc[CONTRACT]["balance"], "0x2");
    let slots: Vec<_> = alloc[CONTRACT]["storage"]
        .as_object()
        .unwrap()
        .values()
        .collect();
    assert_eq!(slots, [&format!("0x{:064x}", 2)]);
    // The body has the same transactions, which give the same result.
    let mut again = shanghai(&json!([]));
    again["txs"] = answer["body"].clone();
    assert_eq!(transition("Shanghai", &again), answer);
    again["txsRlp"] = answer["body"].clone();
    again.as_object_mut().unwrap().remove("txs");
    assert_eq!(transition("Shanghai", &again), answer);
}

#[test]
fn invalid_transaction_is_rejected_and_the_rest_runs() {
    let txs = json!([legacy(1, 60_000), legacy(0, 1_000), legacy(0, 60_000)]);
    let answer = transition("Shanghai", &shanghai(&txs));
    let rejected = answer["result"]["rejected"].as_array().unwrap();
    let indexes: Vec<_> = rejected.iter().map(|refusal| &refusal["index"]).collect();
    assert_eq!(indexes, [0, 1]);
    let error = rejected[0]["error"].as_str().unwrap();
    assert!(error.contains("nonce"), "{error}");
    assert_eq!(answer["result"]["receipts"].as_array().unwrap().len(), 1);
}

#[test]
fn malformed_transaction_is_rejected_at_its_index() {
    let with = |name: &str, value: Value| {
        let mut tx = legacy(0, 60_000);
        tx[name] = value;
        tx
    };
    let unsigned = json!({ "nonce": "0x0", "gas": "0xea60", "gasPrice": "0x10", "to": CONTRACT });
    let blob = json!({ "type": "0x3", "nonce": "0x0", "gas": "0xea60", "to": null });
    let mut parity = json!({ "type": "0x2", "nonce": "0x0", "gas": "0xea60", "to": CONTRACT });
    (parity["v"], parity["r"], parity["s"]) = (json!("0x2"), json!("0x1"), json!("0x1"));
    let txs = [
        (with("type", json!("0x9")), "9 is no type"),
        (unsigned, "v 0 is of no signature"),
        (
            with("gasPrice", json!(format!("0x1{}", "0".repeat(32)))),
            "128 bits",
        ),
        (with("to", json!("0x01")), "an address has 20"),
        (blob, "can't create"),
        (parity, "v 2 is of no signature"),
    ];
    let given: Vec<&Value> = txs.iter().map(|(tx, _)| tx).collect();
    let answer = transition("Shanghai", &shanghai(&json!(given)));
    let rejected = answer["result"]["rejected"].as_array().unwrap();
    assert_eq!(rejected.len(), txs.len());
    for (refusal, (_, text)) in rejected.iter().zip(&txs) {
        let error = refusal["error"].as_str().unwrap();
        assert!(error.contains(text), "{error}");
    }
}

/// Test fillers write fields that have two names under both.
#[test]
fn fields_may_have_both_of_their_names() {
    let authorization = json!({
        "chainId": "0x0", "address": CONTRACT, "nonce": "0x0",
        "v": "0x0", "yParity": "0x0", "r": "0x1", "s": "0x1",
    });
    let tx = json!({
        "nonce": "0x0", "gas": "0x30d40", "gasLimit": "0x30d40", "maxFeePerGas": "0x10",
        "maxPriorityFeePerGas": "0x0", "to": CONTRACT, "input": "0x", "data": "0x",
        "authorizationList": [authorization], "secretKey": KEY,
    });
    let mut input = shanghai(&json!([tx]));
    input["env"]["parentHash"] = json!(format!("0x{}", "11".repeat(32)));
    input["env"]["previousHash"] = input["env"]["parentHash"].clone();
    for (contract, code) in [
        ("0x00000961ef480eb55e80d19ad83579a64c007002", "0x00"),
        ("0x0000bbddc7ce488642fb579f8b00f3a590007251", "0x00"),
    ] {
        input["alloc"][contract] = json!({ "balance": "0x0", "code": code });
    }
    let answer = transition("Prague", &input);
    let result = &answer["result"];
    assert!(result["rejected"].is_null(), "{result}");
    assert_eq!(result["receipts"][0]["status"], "0x1");
    assert!(result["requestsHash"].is_string());
}

#[test]
fn b11r_builds_and_seals_a_block() {
    let header = json!({
        "stateRoot": format!("0x{}", "22".repeat(32)), "number": "0x1", "gasLimit": "0x1000000",
        "timestamp": "0x5", "difficulty": "0x2",
    });
    let clique = json!({ "secretKey": KEY, "voted": CONTRACT, "authorize": true });
    let options = [
        "b11r",
        "--input.header=stdin",
        "--input.txs=stdin",
        "--input.ommers=stdin",
        "--seal.clique=stdin",
        "--output.block=stdout",
    ];
    let build = |header: &Value, ommers: &Value| {
        let parts = json!({ "header": header, "txs": "0xc0", "uncles": ommers, "clique": clique });
        run(&options, Path::new("."), &parts)
    };
    let output = build(&header, &json!([]));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let block: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rlp = block["rlp"].as_str().unwrap();
    // The vote, and extra data of 32 and 65 bytes.
    assert!(rlp.contains(&CONTRACT[2..]) && rlp.contains("88ffffffffffffffff"));
    assert!(rlp.contains(&format!("b861{}", "00".repeat(32))));
    let mut voted = header.clone();
    voted["miner"] = json!(SENDER);
    for (header, ommers, code, text) in [
        (&voted, json!([]), 3, "clique's voted says too"),
        (&header, json!(["0x01"]), 12, "ommers: not one list"),
        (&header, json!(["0x"]), 12, "ommers: no RLP"),
    ] {
        let output = build(header, &ommers);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(text), "{errors}");
    }
}

#[test]
fn files_are_read_and_written_with_a_trace_per_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let input = shanghai(&json!([legacy(0, 60_000)]));
    for part in ["alloc", "env", "txs"] {
        let path = folder.path().join(format!("{part}.json"));
        std::fs::write(path, input[part].to_string()).unwrap();
    }
    let arguments = [
        "t8n",
        "--state.fork=Shanghai",
        "--output.basedir=out",
        "--trace",
    ];
    let body = ["--output.body=txs.rlp", "--trace.memory", "--trace.nostack"];
    let arguments = [&arguments[..], &body].concat();
    let output = run(&arguments, folder.path(), &Value::Null);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout.is_empty());
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(folder.path().join("out").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let whole = transition("Shanghai", &input);
    assert_eq!(read("result.json"), whole["result"]);
    assert_eq!(read("alloc.json"), whole["alloc"]);
    assert_eq!(read("txs.rlp"), whole["body"]);
    let hash = whole["result"]["receipts"][0]["transactionHash"]
        .as_str()
        .unwrap();
    let trace = folder.path().join(format!("out/trace-0-{hash}.jsonl"));
    let trace = std::fs::read_to_string(trace).unwrap();
    let lines: Vec<Value> = trace
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["opName"], "PUSH1");
    assert_eq!(lines[0]["memory"], "0x");
    assert!(lines[0].get("stack").is_none());
    let gas = &whole["result"]["receipts"][0]["gasUsed"];
    assert_eq!(&lines.last().unwrap()["gasUsed"], gas);
    // The written body can be read as transactions.
    std::fs::rename(
        folder.path().join("out/txs.rlp"),
        folder.path().join("txs.rlp"),
    )
    .unwrap();
    let arguments = [
        "t8n",
        "--state.fork=Shanghai",
        "--input.txs=txs.rlp",
        "--output.basedir=2",
    ];
    assert!(
        run(&arguments, folder.path(), &Value::Null)
            .status
            .success()
    );
    let again = std::fs::read_to_string(folder.path().join("2/result.json")).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&again).unwrap(),
        whole["result"]
    );
}

#[test]
fn reward_is_the_forks_or_the_given_one() {
    let mut input = shanghai(&json!([]));
    input["env"]["currentDifficulty"] = json!("0x20000");
    input["env"]["ommers"] =
        json!([{ "delta": 1, "address": "0x00000000000000000000000000000000000000aa" }]);
    let coinbase = "0x00000000000000000000000000000000000000fe";
    let ommer = "0x00000000000000000000000000000000000000aa";
    let rewards = |more: &[&str]| {
        let arguments = [&PIPED[..], &["--state.fork=Berlin"], more].concat();
        let output = run(&arguments, Path::new("."), &input);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        [coinbase, ommer].map(|address| answer["alloc"][address]["balance"].clone())
    };
    // Two ether and a 32nd of them, and seven eighths.
    assert_eq!(
        rewards(&[]),
        [json!("0x1c9f78d2893e4000"), json!("0x18493fba64ef0000")]
    );
    assert_eq!(
        rewards(&["--state.reward=64"]),
        [json!("0x42"), json!("0x38")]
    );
    assert_eq!(
        rewards(&["--state.reward", "-1"]),
        [Value::Null, Value::Null]
    );
}

#[test]
fn errors_have_the_exit_codes_of_geth() {
    let cases: [(&str, Value, i32, &str); 6] = [
        ("/env/parentBaseFee", Value::Null, 3, "no currentBaseFee"),
        ("/env/currentNumber", json!("x"), 10, "env"),
        (
            "/env/currentNumber",
            json!("0x10000000000000000"),
            10,
            "beyond 64 bits",
        ),
        ("/alloc", json!([]), 10, "alloc"),
        ("/txs", json!("0xzz"), 10, "no hex"),
        ("/txs", json!("0x83aabbcc"), 12, "txs is no list"),
    ];
    for (at, value, code, text) in cases {
        let mut input = shanghai(&json!([legacy(0, 60_000)]));
        *input.pointer_mut(at).unwrap() = value;
        let arguments = [&PIPED[..], &["--state.fork=Shanghai"]].concat();
        let output = run(&arguments, Path::new("."), &input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{at}: {errors}");
        assert!(errors.contains(text), "{at}: {errors}");
    }
    let arguments = [&PIPED[..], &["--state.fork=Atlantis"]].concat();
    let output = run(&arguments, Path::new("."), &shanghai(&json!([])));
    assert_eq!(output.status.code(), Some(3));
    let output = run(
        &["t8n", "--input.alloc=none.json"],
        Path::new("."),
        &Value::Null,
    );
    assert_eq!(output.status.code(), Some(11));
    // BLOCKHASH of a block whose hash is not given.
    let mut input = shanghai(&json!([legacy(0, 60_000)]));
    input["env"]["currentNumber"] = json!(9);
    input["alloc"][CONTRACT]["code"] = json!("0x600840");
    let arguments = [&PIPED[..], &["--state.fork=Shanghai"]].concat();
    let output = run(&arguments, Path::new("."), &input);
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn server_gives_the_output_of_the_program() {
    let mut child = start(&["t8n-server", "--port", "0"], Path::new("."));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let port: u16 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let input = shanghai(&json!([legacy(0, 60_000)]));
    let state = json!({ "fork": "Shanghai", "chainid": 1, "reward": 0 });
    let good = json!({ "state": state, "input": input });
    let bad = json!({ "state": { "fork": "Atlantis" }, "input": input });
    let ask = |body: &Value| {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    };
    let (status, body) = ask(&good);
    assert!(status.contains("200"), "{status}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer, transition("Shanghai", &input));
    let (status, body) = ask(&bad);
    assert!(
        status.contains("400") && body.contains("Atlantis"),
        "{status} {body}"
    );
    assert!(ask(&json!(1)).0.contains("400"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Besu's own cases of `t8n` and `b11r`: command line, standard input, and what must be printed.
#[test]
fn cases_of_besu_give_the_output_of_besu() {
    let Some(folder) = corpus("besu-fixtures/evmtool") else {
        return;
    };
    let mut ran = 0;
    for kind in ["t8n", "b11r"] {
        for entry in std::fs::read_dir(folder.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let case: Value =
                serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let words: Vec<&str> = case["cli"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let scratch = tempfile::tempdir().unwrap();
            let output = run(
                &words,
                scratch.path(),
                &as_besu_reads(case["stdin"].clone()),
            );
            let at = path.display();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{at}: {errors}");
            let got: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(comparable(got), comparable(case["stdout"].clone()), "{at}");
            ran += 1;
        }
    }
    assert_eq!(ran, 22);
}

/// Besu reads numbers of an alloc as hex even without `0x`; here, as in go-ethereum, they are then decimal.
fn as_besu_reads(mut input: Value) -> Value {
    let accounts = input.get_mut("alloc").and_then(Value::as_object_mut);
    for (_, account) in accounts.into_iter().flatten() {
        let Some(balance) = account.get_mut("balance") else {
            continue;
        };
        let text = balance.as_str().expect("a number in a string");
        *balance = json!(format!("0x{}", text.strip_prefix("0x").unwrap_or(text)));
    }
    input
}

/// Without the parts that differ in Besu: error messages, and in logs block number, block hash, `removed`, and the log
/// index, which Besu counts per transaction and this program per block.
fn comparable(mut output: Value) -> Value {
    if let Some(rejected) = output
        .pointer_mut("/result/rejected")
        .and_then(Value::as_array_mut)
    {
        for refusal in rejected {
            refusal["error"] = Value::Null;
        }
    }
    let receipts = output
        .pointer_mut("/result/receipts")
        .and_then(Value::as_array_mut);
    for receipt in receipts.into_iter().flatten() {
        for log in receipt["logs"].as_array_mut().into_iter().flatten() {
            for own in ["blockNumber", "blockHash", "removed", "logIndex"] {
                log[own] = Value::Null;
            }
        }
    }
    output
}
