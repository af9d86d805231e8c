//! `eth_getLogs` with and without the index, on a chain longer than a section.

use super::operating::{dev, send_to};
use super::*;
use niwaki_chain::SECTION_BLOCKS;
use niwaki_primitives::{Address, Bytes, TxKind};

/// Init code that emits a log with one topic.
fn emits(topic: u8) -> Bytes {
    // PUSH1 topic, PUSH1 0, PUSH1 0, LOG1, STOP
    vec![0x60, topic, 0x60, 0, 0x60, 0, 0xa1, 0].into()
}

/// Makes blocks up to `number`, one in 40 of them with a log; the topics go round from `mark` on.
fn grow(rig: &Rig, nonce: &mut u64, number: u64, mark: u8) {
    let backend = rig.dispatcher.backend();
    loop {
        let head = backend.chain().head();
        if head.id.number >= number {
            return;
        }
        let mut transactions = Vec::new();
        if head.id.number % 40 == 7 {
            let topic = mark + u8::try_from(head.id.number / 40 % 5).unwrap();
            transactions.push(send_to(rig, *nonce, TxKind::Create, emits(topic)));
            *nonce += 1;
        }
        let template = niwaki_chain::BlockTemplate {
            parent: head.id.hash,
            timestamp: head.header.timestamp + 1,
            ..backend.block_template()
        };
        let built = backend.chain().build(template, transactions).unwrap();
        backend.chain().import(built.block).unwrap();
    }
}

fn logs(rig: &Rig, filter: Value) -> Vec<Value> {
    let found = rig.result("eth_getLogs", json!([filter]));
    found.as_array().unwrap().clone()
}

fn topic(byte: u8) -> String {
    format!("0x{byte:064x}")
}

/// The results of all kinds of filters.
fn responses(rig: &Rig) -> Vec<Vec<Value>> {
    let all = logs(rig, json!({"fromBlock": "0x0", "toBlock": "latest"}));
    let address = all[all.len() / 2]["address"].clone();
    let absent = Address::repeat_byte(9);
    let (from, to) = ("0x0", "latest");
    let mut found = vec![all];
    for filter in [
        json!({"fromBlock": from, "toBlock": to, "topics": [topic(1)]}),
        json!({"fromBlock": from, "toBlock": to, "topics": [[topic(2), topic(3), topic(77)]]}),
        json!({"fromBlock": from, "toBlock": to, "address": [address, absent]}),
        json!({"fromBlock": from, "toBlock": to, "address": address, "topics": [[]]}),
        json!({"fromBlock": from, "toBlock": to, "address": absent}),
        json!({"fromBlock": "0xc8", "toBlock": "0x1037", "topics": [topic(4)]}),
        json!({"fromBlock": "0xfff", "toBlock": "0x1000", "topics": [topic(2)]}),
        json!({"fromBlock": from, "toBlock": to, "topics": [topic(1), topic(1)]}),
    ] {
        found.push(logs(rig, filter));
    }
    found
}

fn index(rig: &Rig) {
    let chain = rig.dispatcher.backend().chain();
    chain.set_log_index_target(u64::MAX);
    while chain.index_logs().unwrap() {}
}

#[test]
fn get_logs_returns_the_same_with_and_without_the_index_and_after_a_reorganization() {
    let rig = dev();
    let chain = rig.dispatcher.backend().chain();
    let mut nonce = 0;
    grow(&rig, &mut nonce, SECTION_BLOCKS + 100, 1);
    let plain = responses(&rig);
    assert_eq!(plain[0].len(), 105);
    assert!(plain[1].len() > 15 && plain[3].len() == 1 && plain[5].is_empty());
    index(&rig);
    assert_eq!(chain.log_index_state().unwrap().below, SECTION_BLOCKS);
    assert_eq!(responses(&rig), plain);

    // Another branch, with other topics, from within the section on.
    let nonce_there = rig.result("eth_getTransactionCount", json!([sender(), "0xf80"]));
    assert_eq!(rig.result("debug_setHead", json!(["0xf80"])), Value::Null);
    assert_eq!(chain.log_index_state().unwrap().below, 0);
    let text = nonce_there.as_str().unwrap().trim_start_matches("0x");
    let mut nonce = u64::from_str_radix(text, 16).unwrap();
    grow(&rig, &mut nonce, SECTION_BLOCKS + 100, 2);
    let plain = responses(&rig);
    index(&rig);
    assert_eq!(chain.log_index_state().unwrap().below, SECTION_BLOCKS);
    assert_eq!(responses(&rig), plain);
}

fn sender() -> &'static str {
    "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73"
}

#[test]
fn the_log_index_is_generated_repaired_and_removed() {
    let rig = dev();
    let chain = rig.dispatcher.backend().chain();
    let mut nonce = 0;
    grow(&rig, &mut nonce, SECTION_BLOCKS + 64, 1);
    let ask = |method: &str, params: Value| rig.result(&format!("admin_{method}"), params);

    let made = ask("generateLogBloomCache", json!(["0x0", "0x10"]));
    let want = json!({
        "startBlock": "0x0", "endBlock": "0x10", "currentBlock": "0x0",
        "caching": true, "requestAccepted": true,
    });
    assert_eq!(made, want);
    assert_eq!(
        ask("logsRepairCache", json!([]))["Status"],
        "Already running"
    );
    while chain.index_logs().unwrap() {}
    let made = ask("generateLogBloomCache", json!([]));
    assert_eq!(
        (&made["endBlock"], &made["caching"]),
        (&json!("latest"), &json!(false))
    );
    assert_eq!(made["currentBlock"], "0x1000");
    let nothing = ask("generateLogBloomCache", json!(["latest", "latest"]));
    assert_eq!(nothing["requestAccepted"], false);

    assert_eq!(ask("logsRepairCache", json!(["0x5"]))["Status"], "Started");
    assert!(chain.index_logs().unwrap());
    let response = ask("logsRemoveCache", json!(["0x1001", "latest"]));
    assert_eq!(response, json!({"Status": "Cache Removed"}));
    assert_eq!(chain.log_index_state().unwrap().below, SECTION_BLOCKS);
    ask("logsRemoveCache", json!([]));
    assert_eq!(chain.log_index_state().unwrap().below, 0);
    assert!(!chain.index_logs().unwrap(), "not before it is asked for");

    let (_, words) = rig.refusal("admin_logsRemoveCache", json!(["0x2000"]));
    assert_eq!(words, "Block not found, 8192");
    let (code, _) = rig.refusal("admin_logsRemoveCache", json!(["0x5", "0x4"]));
    assert_eq!(code, -32602);
    let (_, words) = rig.refusal("admin_logsRepairCache", json!(["0x2000"]));
    assert_eq!(words, "Block not found, 8192");
}
