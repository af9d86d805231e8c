//! Traces as in geth: logs and their indexes, the cost of failing opcodes, the prestate.

use super::operating::{dev, send_to};
use super::*;
use niwaki_primitives::{Bytes, TxEnvelope, TxKind};

/// Calls the other with CALLCODE and then emits a log with topic 0xaa.
const F1: &str = "0x00000000000000000000000000000000000000f1";
const F1_CODE: &str = "0x5f5f5f5f5f7300000000000000000000000000000000000000f25af15060aa5f5fa100";
/// Emits a log with topic 0xbb and reverts.
const F2: &str = "0x00000000000000000000000000000000000000f2";
const F2_CODE: &str = "0x60bb5f5fa15f5ffd";
/// As F2, but it does not revert.
const F2_STOPS: &str = "0x60bb5f5fa100";

/// The result of callTracer for a call of F1, where F2 has `code`.
fn calls(rig: &Rig, only_top: bool, code: &str) -> Value {
    let options = json!({
        "tracer": "callTracer", "tracerConfig": {"withLog": true, "onlyTopCall": only_top},
        "stateOverrides": {F1: {"code": F1_CODE}, F2: {"code": code}},
    });
    rig.result("debug_traceCall", json!([{"to": F1}, "latest", options]))
}

/// Address, last byte of the topic, index and position of each log of a frame.
fn logs(frame: &Value) -> Vec<(String, String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let logs = frame["logs"].as_array().into_iter().flatten();
    let log = |log: &Value| {
        let topic = text(&log["topics"][0]);
        (
            text(&log["address"]),
            topic[64..].to_owned(),
            text(&log["index"]),
            text(&log["position"]),
        )
    };
    logs.map(log).collect()
}

fn log(
    address: &str,
    topic: &str,
    index: &str,
    position: &str,
) -> (String, String, String, String) {
    let [address, topic, index, position] = [address, topic, index, position].map(str::to_owned);
    (address, topic, index, position)
}

#[test]
fn a_frame_of_call_tracer_has_its_own_logs_and_no_others() {
    let rig = dev();
    let top = calls(&rig, true, F2_CODE);
    assert_eq!(logs(&top), [log(F1, "aa", "0x0", "0x0")]);
    assert_eq!(top["calls"], Value::Null);
    let top = calls(&rig, true, F2_STOPS);
    assert_eq!(
        logs(&top),
        [log(F1, "aa", "0x1", "0x0")],
        "the hidden one counts"
    );
    let all = calls(&rig, false, F2_STOPS);
    assert_eq!(logs(&all), [log(F1, "aa", "0x1", "0x1")]);
    assert_eq!(logs(&all["calls"][0]), [log(F2, "bb", "0x0", "0x0")]);
}

#[test]
fn a_reverted_log_has_no_index() {
    let rig = dev();
    let all = calls(&rig, false, F2_CODE);
    assert_eq!(logs(&all), [log(F1, "aa", "0x0", "0x1")]);
    assert_eq!(logs(&all["calls"][0]), []);
}

/// Init code that emits a log with topic 1, calls SHA-256 and emits one with topic 2.
fn emits_two() -> Bytes {
    let code = "60015f5fa15f5f5f5f60025afa5060025f5fa100";
    hex::decode(code).unwrap().into()
}

/// Adds a block of these transactions on top of the head.
pub(super) fn import(rig: &Rig, transactions: Vec<TxEnvelope>) {
    let backend = rig.dispatcher.backend();
    let head = backend.chain().head();
    let template = niwaki_chain::BlockTemplate {
        parent: head.id.hash,
        timestamp: head.header.timestamp + 1,
        ..backend.block_template()
    };
    let built = backend.chain().build(template, transactions).unwrap();
    backend.chain().import(built.block).unwrap();
}

#[test]
fn the_index_of_a_log_is_that_of_its_receipt() {
    let rig = dev();
    let sends = |nonce| send_to(&rig, nonce, TxKind::Create, emits_two());
    import(&rig, (0..3).map(sends).collect());
    let receipts = rig.result("eth_getBlockReceipts", json!(["0x1"]));
    let of_receipts: Vec<Value> = receipts
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|receipt| receipt["logs"].as_array().unwrap().clone())
        .map(|log| log["logIndex"].clone())
        .collect();
    assert_eq!(of_receipts, ["0x0", "0x1", "0x2", "0x3", "0x4", "0x5"]);
    let options = json!({"tracer": "callTracer", "tracerConfig": {"withLog": true}});
    let index = |trace: &Value| logs(trace).into_iter().map(|log| json!(log.2));
    let block = rig.result("debug_traceBlockByNumber", json!(["0x1", options]));
    let block = block.as_array().unwrap();
    let of_block: Vec<Value> = block.iter().flat_map(|tx| index(&tx["result"])).collect();
    assert_eq!(of_block, of_receipts);
    let mut alone = Vec::new();
    for receipt in receipts.as_array().unwrap() {
        let hash = &receipt["transactionHash"];
        let trace = rig.result("debug_traceTransaction", json!([hash, options]));
        alone.extend(index(&trace));
    }
    assert_eq!(alone, of_receipts);
    // A call within the block comes after the logs before it.
    let mut options = options;
    options["txIndex"] = json!("0x2");
    options["stateOverrides"] = json!({F1: {"code": F1_CODE}});
    let call = rig.result("debug_traceCall", json!([{"to": F1}, "0x1", options]));
    assert_eq!(logs(&call), [log(F1, "aa", "0x4", "0x1")]);
    let mux = json!({"tracer": "muxTracer", "tracerConfig": {"callTracer": {"withLog": true}}});
    let hash = &receipts[2]["transactionHash"];
    let trace = rig.result("debug_traceTransaction", json!([hash, mux]));
    let of_mux: Vec<Value> = index(&trace["callTracer"]).collect();
    assert_eq!(of_mux, ["0x4", "0x5"]);
}

/// The last line of the struct logger of a call of `code` with so much gas.
fn last_line(rig: &Rig, code: &str, gas: &str) -> Value {
    let account = "0x00000000000000000000000000000000000000e9";
    let options = json!({"stateOverrides": {account: {"code": code}}});
    let call = json!({"to": account, "gas": gas});
    let trace = rig.result("debug_traceCall", json!([call, "latest", options]));
    trace["structLogs"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone()
}

#[test]
fn a_struct_log_out_of_gas_has_the_price_in_full() {
    let rig = dev();
    for (op, code, gas, cost) in [
        (
            "BALANCE",
            "0x7300000000000000000000000000000000000000f23100",
            "0x55f0",
            2_600,
        ),
        ("LOG1", "0x600760405fa100", "0x5460", 1_268),
        ("MSTORE", "0x600161ffff5200", "0x526c", 14_350),
        ("SLOAD", "0x60015400", "0x55f0", 2_100),
        ("SSTORE", "0x60015f55600160015500", "0xc738", 22_100),
    ] {
        let line = last_line(&rig, code, gas);
        assert_eq!(line["op"], op);
        assert_eq!(line["gasCost"], cost, "{line}");
        assert_eq!(line["error"], "out of gas");
        assert!(line["gas"].as_u64().unwrap() < cost);
        assert_eq!(line["storage"], Value::Null, "it has seen none");
    }
}

#[test]
fn a_struct_log_shows_accessed_storage_and_the_refund() {
    let rig = dev();
    // SSTORE(0, 1), SLOAD(1), SSTORE(0, 0), which gives gas back, SLOAD(0).
    let code = "0x60015f55600154505f5f555f5400";
    let options = json!({"stateOverrides": {F1: {"code": code}}});
    let trace = rig.result("debug_traceCall", json!([{"to": F1}, "latest", options]));
    let lines = trace["structLogs"].as_array().unwrap();
    let word = |number: u8| format!("0x{number:064x}");
    let storage: Vec<&Value> = lines.iter().map(|line| &line["storage"]).collect();
    let storage: Vec<&Value> = storage.into_iter().filter(|of| of.is_object()).collect();
    let want = [
        json!({ word(0): word(1) }),
        json!({ word(0): word(1), word(1): word(0) }),
        json!({ word(0): word(0), word(1): word(0) }),
        json!({ word(0): word(0), word(1): word(0) }),
    ];
    assert_eq!(storage, want.iter().collect::<Vec<_>>());
    assert_eq!(lines.last().unwrap()["refund"], 19_900);
}

#[test]
fn the_limit_of_a_struct_log_is_bytes() {
    let rig = dev();
    let lines = |limit: usize| {
        let options = json!({"stateOverrides": {F1: {"code": F2_CODE}}, "limit": limit});
        let trace = rig.result("debug_traceCall", json!([{"to": F1}, "latest", options]));
        trace["structLogs"].as_array().unwrap().clone()
    };
    let all = lines(0);
    let bytes: Vec<usize> = all.iter().map(|line| line.to_string().len()).collect();
    assert_eq!(all.len(), 7);
    for count in 1..all.len() {
        let sum: usize = bytes[..count].iter().sum();
        assert_eq!(lines(sum - 1), all[..count], "more than the limit");
        assert_eq!(lines(sum), all[..=count], "no more than the limit yet");
    }
}

#[test]
fn an_index_beyond_the_block_is_refused() {
    let rig = dev();
    import(&rig, vec![send_to(&rig, 0, TxKind::Create, emits_two())]);
    import(&rig, Vec::new());
    let trace = |block: &str, index: &str| json!([{"to": F1}, block, {"txIndex": index}]);
    rig.result("debug_traceCall", trace("0x1", "0x0"));
    for index in ["0x1", "0x2", "0xffffffffffffffff"] {
        let (code, words) = rig.refusal("debug_traceCall", trace("0x1", index));
        assert_eq!(code, -32000);
        assert!(words.contains("out of range for block 0x"), "{words}");
    }
    // Before the first transaction of a block without any.
    rig.result("debug_traceCall", trace("0x2", "0x0"));
    assert_eq!(
        rig.refusal("debug_traceCall", trace("0x2", "0x1")).0,
        -32000
    );
}

#[test]
fn prestate_diff_mode_excludes_include_empty_and_untouched_accounts() {
    let rig = dev();
    let config = json!({"diffMode": true, "includeEmpty": true});
    let options = json!({"tracer": "prestateTracer", "tracerConfig": config});
    let (code, words) = rig.refusal("debug_traceCall", json!([{"to": F1}, "latest", options]));
    let want = (-32000, "cannot use diffMode with includeEmpty");
    assert_eq!((code, words.as_str()), want);
    let mux = json!({"tracer": "muxTracer", "tracerConfig": {"prestateTracer": config}});
    assert_eq!(
        rig.refusal("debug_traceCall", json!([{"to": F1}, "latest", mux]))
            .0,
        -32000
    );
    // BALANCE of an account with a balance, which there is gas for or not.
    let code = format!("0x73{}3100", &"fe3b557e8fb62b89f4916b721be55ceb828dbd73");
    let options = json!({"tracer": "prestateTracer", "stateOverrides": {F1: {"code": code}}});
    let rich = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
    let looked_at = |gas: u64| {
        let call = json!({"to": F1, "gas": format!("{gas:#x}")});
        let trace = rig.result("debug_traceCall", json!([call, "latest", options]));
        trace[rich].is_object()
    };
    assert!(looked_at(21_000 + 3 + 2_600));
    assert!(!looked_at(21_000 + 3 + 2_599));
}
