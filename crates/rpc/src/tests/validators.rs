//! The methods of BFT chains, against what Besu responds on the same chains.

use super::*;
use crate::{ValidatorHooks, ValidatorReport};
use niwaki_primitives::Block;
use niwaki_primitives::rlp::Decodable;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

fn folder(network: &str) -> PathBuf {
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft");
    folders.join(network)
}

fn text(network: &str, file: &str) -> String {
    std::fs::read_to_string(folder(network).join(file)).unwrap()
}

/// A chain that validators of Besu made.
fn besu(network: &str) -> Rig {
    besu_to(network, u64::MAX)
}

/// The same up to a block.
fn besu_to(network: &str, last: u64) -> Rig {
    let genesis = Genesis::from_json(&text(network, "genesis.json")).unwrap();
    let chain = chain_of(&genesis);
    let file = std::fs::read(folder(network).join("chain.rlp")).unwrap();
    let mut rest = &file[..];
    while !rest.is_empty() {
        let block = Block::decode(&mut rest).unwrap();
        if (1..=last).contains(&block.header.number) {
            chain.import(block).unwrap();
        }
    }
    rig(chain, PoolConfig::default())
}

/// Besu's lists of signers come in no order.
fn sorted(method: &str, mut result: Value) -> Value {
    if let (true, Some(list)) = (method.ends_with("Metrics"), result.as_array_mut()) {
        list.sort_by_key(|signer| signer["address"].to_string());
    }
    result
}

#[test]
fn besus_answers_are_given() {
    // Where the chain ended when it was asked.
    for (network, count, last) in [
        ("qbft", 28, u64::MAX),
        ("ibft", 27, u64::MAX),
        ("ibft-to-qbft", 8, 22),
    ] {
        let rig = besu_to(network, last);
        let recorded = text(network, "rpc.jsonl");
        let mut checked = 0;
        for line in recorded.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let (method, params) = (line["method"].as_str().unwrap(), line["params"].clone());
            let response = rig.response(method, params.clone());
            for key in ["result", "error"] {
                let [got, expected] =
                    [&response, &line].map(|one| sorted(method, one[key].clone()));
                assert_eq!(got, expected, "{network}: {method} {params}");
            }
            checked += 1;
        }
        assert_eq!(checked, count, "{network}");
    }
}

#[test]
fn the_validators_of_each_block_are_those_that_besu_says() {
    for (network, name) in [
        ("qbft", "qbft"),
        ("ibft", "ibft"),
        ("qbft-contract", "qbft"),
        ("ibft-to-qbft", "qbft"),
    ] {
        let rig = besu(network);
        let recorded: BTreeMap<String, Value> =
            serde_json::from_str(&text(network, "validators.json")).unwrap();
        let recorded = recorded.into_iter().map(|(number, list)| {
            let number = u64::from_str_radix(number.trim_start_matches("0x"), 16).unwrap();
            (number, list)
        });
        let recorded: BTreeMap<u64, Value> = recorded.collect();
        let head = rig.dispatcher.backend().chain().head().id.number;
        // The state of older blocks is not kept, and a contract is read in it.
        let first = if network == "qbft-contract" { head } else { 0 };
        for number in first..=head {
            let (_, expected) = recorded.range(..=number).next_back().unwrap();
            let method = format!("{name}_getValidatorsByBlockNumber");
            let got = rig.result(&method, json!([format!("{number:#x}")]));
            assert_eq!(got, *expected, "{network}: block {number}");
        }
    }
}

#[test]
fn votes_are_proposed_listed_and_discarded() {
    let rig = besu("qbft");
    let account = "0x5f200600666eddb26d69ed704c8823cd1a43947a";
    let (code, words) = rig.refusal("qbft_getPendingVotes", json!([]));
    assert_eq!(code, -32000);
    assert!(words.contains("no validator"), "{words}");
    let votes = Arc::new(Mutex::new(BTreeMap::new()));
    let [proposing, discarding, listed] = std::array::from_fn(|_| Arc::clone(&votes));
    rig.dispatcher
        .backend()
        .operator()
        .set_validator(ValidatorHooks {
            propose: Box::new(move |address, is_add| {
                proposing.lock().unwrap().insert(address, is_add);
                Ok(())
            }),
            discard: Box::new(move |address| {
                discarding.lock().unwrap().remove(&address);
                Ok(())
            }),
            pending: Box::new(move || {
                let votes = listed.lock().unwrap();
                votes
                    .iter()
                    .map(|(address, is_add)| (*address, *is_add))
                    .collect()
            }),
            state: Box::new(|| ValidatorReport {
                address: Address::repeat_byte(1),
                height: 7,
                round: 2,
                phase: "prepared",
                validators: [1, 2, 3].map(Address::repeat_byte).to_vec(),
                connected: vec![Address::repeat_byte(3)],
                executions: 9,
            }),
        });
    let state = rig.result("niwaki_bftState", json!([]));
    assert_eq!(
        (&state["height"], &state["isValidator"]),
        (&json!("0x7"), &json!(true))
    );
    assert_eq!(state["notConnected"], json!([Address::repeat_byte(2)]));
    assert_eq!(
        rig.result("qbft_proposeValidatorVote", json!([account, true])),
        true
    );
    assert_eq!(
        rig.result("qbft_proposeValidatorVote", json!(["0x12", "false"])),
        true
    );
    let pending = rig.result("qbft_getPendingVotes", json!(["extra"]));
    let short = "0x0000000000000000000000000000000000000012";
    assert_eq!(pending, json!({ account: true, short: false }));
    assert_eq!(
        rig.result("qbft_discardValidatorVote", json!([account])),
        true
    );
    assert_eq!(
        rig.result("qbft_discardValidatorVote", json!([account])),
        true
    );
    assert_eq!(
        rig.result("qbft_getPendingVotes", json!([])),
        json!({ short: false })
    );

    let refused = |method: &str, params: Value| rig.refusal(method, params);
    let address = (-32602, "Invalid address params".to_owned());
    for params in [
        json!([]),
        json!(["0x"]),
        json!(["0xzz", true]),
        json!([7, true]),
    ] {
        assert_eq!(refused("qbft_proposeValidatorVote", params), address);
    }
    let long = format!("0x{}", "1".repeat(41));
    assert_eq!(refused("qbft_discardValidatorVote", json!([long])), address);
    let kind = (-32602, "Invalid vote type params".to_owned());
    for params in [json!([account]), json!([account, 1])] {
        assert_eq!(refused("qbft_proposeValidatorVote", params), kind);
    }
    let other = (-32604, "Method not enabled".to_owned());
    assert_eq!(
        refused("ibft_proposeValidatorVote", json!([account, true])),
        other
    );
}

#[test]
fn where_a_contract_names_the_validators_or_there_are_none_methods_are_not_enabled() {
    let refused = (-32604, "Method not enabled".to_owned());
    for method in ["qbft_getSignerMetrics", "ibft_getPendingVotes"] {
        assert_eq!(RIG.refusal(method, json!([])), refused);
    }
    let genesis = Genesis::from_json(&text("qbft-contract", "genesis.json")).unwrap();
    let rig = rig(chain_of(&genesis), PoolConfig::default());
    assert_eq!(rig.refusal("qbft_getPendingVotes", json!([])), refused);
}
