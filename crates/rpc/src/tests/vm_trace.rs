//! `vmTrace` against results worked out by hand, and against the struct logger.

use super::operating::dev;
use super::*;

const SENDER: &str = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";

/// The opcodes of a creation with this init code and 200,000 gas, on the state of the head.
fn created(rig: &Rig, code: &str) -> Value {
    let call = json!({"from": SENDER, "data": code, "gas": "0x30d40"});
    let response = rig.result("trace_call", json!([call, ["vmTrace"]]));
    assert_eq!(response["trace"], json!([]));
    assert_eq!(response["stateDiff"], Value::Null);
    response["vmTrace"].clone()
}

fn op(cost: u64, pc: u64, used: u64, push: &[&str]) -> Value {
    json!({
        "cost": cost, "pc": pc, "sub": null,
        "ex": {"mem": null, "push": push, "store": null, "used": used},
    })
}

#[test]
fn opcodes_have_the_cost_and_the_effect_that_the_yellow_paper_gives_them() {
    let rig = dev();
    // PUSH1 2, PUSH1 3, ADD, PUSH1 0, MSTORE, PUSH1 7, PUSH1 1, SSTORE, PUSH1 1, DUP1, SWAP1, STOP
    let code = "0x600260030160005260076001556001809000";
    let trace = created(&rig, code);
    assert_eq!(trace["code"], code);
    // 21,000 and 32,000 for a creation, 2 for a word of init code, 16 for a byte of it or 4 if it is 0.
    let start = 200_000 - 53_000 - 2 - (16 * 16 + 2 * 4);
    let mut left = start;
    let mut next = |cost: u64| {
        left -= cost;
        left
    };
    let mut want = vec![
        op(3, 0, next(3), &["0x2"]),
        op(3, 2, next(3), &["0x3"]),
        op(3, 4, next(3), &["0x5"]),
        op(3, 5, next(3), &["0x0"]),
        op(6, 7, next(6), &[]), // and a word of memory
        op(3, 8, next(3), &["0x7"]),
        op(3, 10, next(3), &["0x1"]),
        op(22_100, 12, next(22_100), &[]), // cold, from zero
        op(3, 13, next(3), &["0x1"]),
        op(3, 15, next(3), &["0x1", "0x1"]),
        op(3, 16, next(3), &["0x1", "0x1"]),
        op(0, 17, next(0), &[]),
    ];
    want[4]["ex"]["mem"] = json!({"data": format!("0x{:064x}", 5), "off": 0});
    want[7]["ex"]["store"] = json!({"key": "0x1", "val": "0x7"});
    let got = trace["ops"].as_array().unwrap();
    assert_eq!(got.len(), want.len(), "{got:#?}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(*got, want);
    }
}

#[test]
fn an_inner_call_is_nested_in_its_opcode() {
    let rig = dev();
    // MSTORE8(0, STOP); CREATE(0, 0, 1); CALL(gas, 4, 0, 0, 0, 0, 32): the identity contract.
    let code = "0x6000600053600160006000f0506020600060006000600060045af100";
    let trace = created(&rig, code);
    let ops = trace["ops"].as_array().unwrap();
    let at = |pc: u64| ops.iter().find(|op| op["pc"] == pc).unwrap();
    let create = at(11);
    assert_eq!(create["sub"]["code"], "0x00");
    let inner = create["sub"]["ops"].as_array().unwrap();
    assert_eq!((inner.len(), &inner[0]["pc"]), (1, &json!(0)));
    assert_eq!(create["ex"]["push"].as_array().unwrap().len(), 1);
    assert_eq!(at(12)["ex"]["push"], json!([]), "POP");
    let call = at(26);
    assert_eq!(call["sub"], json!({"code": "0x", "ops": []}));
    assert_eq!(call["ex"]["push"], json!(["0x1"]));
    assert_eq!(call["ex"]["mem"]["off"], 0);
    let used = |op: &Value| op["ex"]["used"].as_u64().unwrap();
    assert!(
        call["cost"].as_u64().unwrap() > used(at(25)) - used(call),
        "what came back counts"
    );
    assert_eq!(ops.last().unwrap()["pc"], 27);
}

#[test]
fn failed_opcodes_have_no_effect_and_those_that_can_not_begin_are_not_listed() {
    let rig = dev();
    let ops = |code: &str| created(&rig, code)["ops"].as_array().unwrap().clone();
    assert_eq!(ops("0x6001").len(), 1, "no STOP behind the end");
    // An invalid jump; ADD on an empty stack; an undefined opcode; MSTORE that costs too much gas.
    let jump = ops("0x600956");
    assert_eq!((jump.len(), &jump[1]["cost"]), (2, &json!(8)));
    let used = |op: &Value| op["ex"]["used"].as_u64().unwrap();
    assert_eq!(used(&jump[0]) - used(&jump[1]), 8);
    assert_eq!(ops("0x600101").len(), 1);
    assert_eq!(ops("0x60010c").len(), 1);
    assert_eq!(ops("0x6001fe").len(), 1);
    let dear = ops("0x600163ffffffff52");
    assert_eq!((dear.len(), &dear[2]["ex"]), (3, &Value::Null));
    let reverted = ops("0x60006000fd");
    assert_eq!(
        (reverted.len(), &reverted[2]["ex"]["push"]),
        (3, &json!([]))
    );
    let nothing = json!({"from": SENDER, "to": SENDER});
    let response = rig.result("trace_call", json!([nothing, ["vmTrace"]]));
    assert_eq!(response["vmTrace"], json!({"code": "0x", "ops": []}));
}

/// All opcodes of a trace, in the order in which they ran, with their depth.
fn flat(trace: &Value, depth: u64, all: &mut Vec<(u64, u64, Value)>) {
    for op in trace["ops"].as_array().unwrap() {
        all.push((depth, op["pc"].as_u64().unwrap(), op.clone()));
        if op["sub"].is_object() {
            flat(&op["sub"], depth + 1, all);
        }
    }
}

#[test]
fn every_transaction_has_the_opcodes_that_the_struct_logger_gives() {
    let rig = super::blocks::whole();
    let mut compared = 0;
    for number in 1..=54 {
        let block = format!("{number:#x}");
        let traces = rig.result("trace_replayBlockTransactions", json!([block, ["vmTrace"]]));
        let logs = rig.result("debug_traceBlockByNumber", json!([block]));
        let pairs = traces
            .as_array()
            .unwrap()
            .iter()
            .zip(logs.as_array().unwrap());
        for (trace, log) in pairs {
            let mut ops = Vec::new();
            flat(&trace["vmTrace"], 1, &mut ops);
            let lines = log["result"]["structLogs"].as_array().unwrap();
            let is_listed = |line: &&Value| {
                let words = line["error"].as_str().unwrap_or_default();
                let op = line["op"].as_str().unwrap();
                !words.starts_with("stack") && op != "INVALID" && !op.starts_with("opcode")
            };
            // Nor is the implicit STOP after the code.
            let mut listed = ops.iter().peekable();
            let is_there = |line: &&Value| {
                let op = listed
                    .peek()
                    .map(|(depth, pc, _)| (json!(depth), json!(pc)));
                let is_there = op == Some((line["depth"].clone(), line["pc"].clone()));
                assert!(is_there || line["op"] == "STOP", "{block}: {line}");
                is_there && listed.next().is_some()
            };
            let lines: Vec<&Value> = lines.iter().filter(is_listed).filter(is_there).collect();
            assert_eq!(ops.len(), lines.len(), "{block}");
            for (index, ((depth, pc, op), line)) in ops.iter().zip(&lines).enumerate() {
                assert_eq!(
                    (json!(depth), json!(pc)),
                    (line["depth"].clone(), line["pc"].clone())
                );
                let name = line["op"].as_str().unwrap();
                if op["ex"].is_object() && !name.starts_with("CREATE") {
                    assert_eq!(op["cost"], line["gasCost"], "{block} {name}");
                }
                let same_frame = lines[index + 1..]
                    .iter()
                    .take_while(|next| next["depth"].as_u64() >= Some(*depth))
                    .find(|next| next["depth"] == json!(depth));
                if let Some(next) = same_frame {
                    assert_eq!(op["ex"]["used"], next["gas"], "{block} {name}");
                    let push = op["ex"]["push"].as_array().unwrap();
                    let stack = next["stack"].as_array().unwrap();
                    assert_eq!(push[..], stack[stack.len() - push.len()..], "{name}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}
