//! `niwaki_explainBlock` beside the struct logger.

use super::blocks::whole;
use super::*;
use std::collections::BTreeMap;

/// How often each opcode runs in a block, by the struct logger.
fn opcode_counts(rig: &Rig, number: &str) -> BTreeMap<String, u64> {
    let options = json!({ "disableStack": true, "disableStorage": true });
    let traces = rig.result("debug_traceBlockByNumber", json!([number, options]));
    let mut counts = BTreeMap::new();
    let logs = |trace: &Value| trace["result"]["structLogs"].as_array().unwrap().clone();
    for line in traces.as_array().unwrap().iter().flat_map(logs) {
        let name = line["op"].as_str().unwrap().to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn sum(list: &Value, field: &str) -> f64 {
    let rows = list.as_array().unwrap().iter();
    rows.map(|row| row[field].as_f64().unwrap()).sum()
}

#[test]
fn opcodes_are_those_of_the_struct_logger_and_shares_add_up() {
    let rig = whole();
    let mut with_code = 0;
    for number in (1..=54).map(|number| format!("{number:#x}")) {
        let explained = rig.result("niwaki_explainBlock", json!([number, 1_000]));
        let header = rig.result("eth_getBlockByNumber", json!([number, false]));
        for field in ["number", "hash", "gasUsed"] {
            assert_eq!(explained[field], header[field], "{number}");
        }
        let transactions = explained["transactions"].as_array().unwrap();
        let hashes: Vec<&Value> = transactions.iter().map(|one| &one["hash"]).collect();
        let listed = header["transactions"].as_array().unwrap();
        assert!(listed.iter().all(|hash| hashes.contains(&hash)) && hashes.len() == listed.len());
        let counts = opcode_counts(&rig, &number);
        let of_explained: BTreeMap<String, u64> = explained["opcodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                (
                    row["opcode"].as_str().unwrap().to_owned(),
                    row["count"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(of_explained, counts, "block {number}");
        if counts.is_empty() {
            continue;
        }
        with_code += 1;
        let percent = sum(&explained["classes"], "percent");
        assert!((99.0..101.0).contains(&percent), "{percent}");
        for list in ["opcodes", "contracts"] {
            assert!(
                sum(&explained[list], "percent") < 101.0,
                "{list} of {number}"
            );
        }
        // What a contract and a class have used, the opcodes have.
        let gas = sum(&explained["classes"], "gas");
        assert_eq!(gas, sum(&explained["contracts"], "gas"), "block {number}");
    }
    assert!(with_code > 20, "{with_code}");
}

#[test]
fn the_gas_of_a_block_is_that_of_its_transactions_opcodes_and_precompiled_contracts() {
    let rig = operating::dev();
    // SHA-256 of no bytes, ten times.
    let call = "5f5f5f5f60025afa50".repeat(10);
    let code = hex::decode(format!("{call}00")).unwrap();
    tracing::import(
        &rig,
        vec![operating::send_to(&rig, 0, TxKind::Create, code.into())],
    );
    let explained = rig.result("niwaki_explainBlock", json!(["latest"]));
    let classes = explained["classes"].as_array().unwrap();
    let class = |name: &str| classes.iter().find(|row| row["class"] == name).unwrap();
    assert_eq!(class("precompiled contracts")["count"], 10);
    assert_eq!(class("precompiled contracts")["gas"], 600);
    assert_eq!(class("calls")["count"], 10);
    assert_eq!(class("stack")["count"], 60);
    let contracts = explained["contracts"].as_array().unwrap();
    let sha256 = contracts
        .iter()
        .find(|row| row["address"] == "0x0000000000000000000000000000000000000002");
    assert_eq!(sha256.unwrap()["count"], 10);
    assert!(explained["reads"]["accounts"]["count"].as_u64() > Some(0));
    let one = rig.result("niwaki_explainBlock", json!(["latest", 1]));
    for list in ["transactions", "contracts", "opcodes"] {
        assert_eq!(one[list].as_array().unwrap().len(), 1, "{list}");
    }
}

#[test]
fn a_block_that_is_not_there_has_no_explanation() {
    let rig = operating::dev();
    let (code, words) = rig.refusal("niwaki_explainBlock", json!(["0x10"]));
    assert_eq!((code, words.as_str()), (-32000, "block #16 not found"));
    let (code, words) = rig.refusal("niwaki_explainBlock", json!(["0x0"]));
    assert_eq!((code, words.as_str()), (-32000, "genesis is not traceable"));
    let nothing = rig.result("niwaki_getSlowBlocks", json!([]));
    assert_eq!(nothing, json!([]));
}
