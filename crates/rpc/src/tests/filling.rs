//! `eth_fillTransaction` and `rpc.discover`.

use super::operating::{build, dev, transfer};
use super::*;

const SENDER: &str = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
const TO: &str = "0x0505050505050505050505050505050505050505";

#[test]
fn missing_fields_of_a_transaction_are_filled_in() {
    let rig = dev();
    let filled = rig.result("eth_fillTransaction", json!([{"from": SENDER, "to": TO}]));
    let tx = &filled["tx"];
    let base_fee = rig
        .dispatcher
        .backend()
        .chain()
        .head()
        .header
        .base_fee_per_gas;
    let fee = 1_000_000_000 + 2 * base_fee.unwrap();
    for (name, want) in [
        ("type", json!("0x2")),
        ("nonce", json!("0x0")),
        ("gas", json!("0x5208")),
        ("gasPrice", Value::Null),
        ("maxPriorityFeePerGas", json!("0x3b9aca00")),
        ("maxFeePerGas", json!(format!("{fee:#x}"))),
        ("value", json!("0x0")),
        ("input", json!("0x")),
        ("chainId", rig.result("eth_chainId", json!([]))),
        ("r", json!("0x0")),
        ("yParity", json!("0x0")),
    ] {
        assert_eq!(tx[name], want, "{name}");
    }
    let raw = niwaki_primitives::hex::decode(filled["raw"].as_str().unwrap()).unwrap();
    let hash = niwaki_crypto::keccak256(&raw);
    assert_eq!(tx["hash"], json!(hash));
}

#[test]
fn a_price_makes_a_legacy_transaction_whose_bytes_are_known() {
    let rig = dev();
    let asked = json!({
        "from": SENDER, "to": TO, "gasPrice": "0x4a817c800", "gas": "0x5208", "nonce": "0x9",
        "value": "0xde0b6b3a7640000",
    });
    let filled = rig.result("eth_fillTransaction", json!([asked]));
    // nonce 9, 20 gwei, 21,000 gas, 1 ether, no data, no signature.
    let want = "0xec098504a817c800825208940505050505050505050505050505050505050505880de0b6b3a7640000\
                80808080";
    assert_eq!(filled["raw"], want);
    assert_eq!(
        (&filled["tx"]["type"], &filled["tx"]["gasPrice"]),
        (&json!("0x0"), &json!("0x4a817c800"))
    );
    assert_eq!(filled["tx"]["maxFeePerGas"], Value::Null);
    assert!(filled["tx"].get("chainId").is_none());
}

#[test]
fn invalid_transactions_are_not_filled_in() {
    let rig = dev();
    for (asked, word) in [
        (
            json!({"from": SENDER}),
            "contract creation without any data",
        ),
        (
            json!({"to": TO, "gasPrice": "0x1", "maxFeePerGas": "0x1"}),
            "both gasPrice and",
        ),
        (
            json!({"to": TO, "gasPrice": "0x0"}),
            "gasPrice must be non-zero",
        ),
        (
            json!({"to": TO, "maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x2"}),
            "< maxPriorityFeePerGas (2)",
        ),
        (
            json!({"to": TO, "maxFeePerGas": "0x0", "maxPriorityFeePerGas": "0x0"}),
            "maxFeePerGas must be",
        ),
        (
            json!({"to": TO, "blobVersionedHashes": []}),
            "at least 1 blob",
        ),
        (json!({"to": TO, "blobs": ["0x00"]}), "blobs are not taken"),
        (
            json!({"to": TO, "chainId": "0x1"}),
            "chainId does not match",
        ),
        (
            json!({"from": TO, "to": SENDER, "value": "0x1"}),
            "insufficient funds",
        ),
    ] {
        let (_, words) = rig.refusal("eth_fillTransaction", json!([asked]));
        assert!(words.contains(word), "{asked}: {words}");
    }
    assert_eq!(rig.refusal("eth_fillTransaction", json!([])).0, -32602);
}

#[test]
fn the_filled_nonce_follows_the_pending_transactions() {
    let rig = dev();
    let sent = super::operating::transfer(&rig, 0, 1_000_000_000);
    rig.result("eth_sendRawTransaction", json!([sent]));
    let filled = rig.result("eth_fillTransaction", json!([{"from": SENDER, "to": TO}]));
    assert_eq!(filled["tx"]["nonce"], "0x1");
}

#[test]
fn the_document_lists_every_method_that_is_offered() {
    let document = RIG.result("rpc.discover", json!([]));
    let listed: Vec<&str> = document["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["name"].as_str().unwrap())
        .collect();
    for method in methods() {
        assert!(listed.contains(&method.name), "{}", method.name);
    }
    assert_eq!(listed.len(), methods().count() + 4);
}

/// A rig whose pool and blocks take this much, and its suggestions of a price and a tip.
fn suggestions(min_gas_price: u128, options: ApiOptions) -> (Rig, impl Fn(&Rig) -> [u128; 3]) {
    let config = PoolConfig {
        min_gas_price,
        no_local_priority: true,
        ..PoolConfig::default()
    };
    let rig = rig_with(chain_of(&Network::Dev.genesis()), config, options);
    let ask = |rig: &Rig| {
        ["eth_baseFee", "eth_gasPrice", "eth_maxPriorityFeePerGas"].map(|method| {
            let number = rig.result(method, json!([]));
            let digits = number.as_str().unwrap().trim_start_matches("0x");
            u128::from_str_radix(digits, 16).unwrap()
        })
    };
    (rig, ask)
}

#[test]
fn without_tips_to_go_by_the_default_is_suggested_but_no_less_than_the_node_takes() {
    for (default_tip, min_gas_price, min_priority_fee) in
        [(0, 0, 0), (0, 0, 7), (0, 1 << 50, 0), (9, 0, 7), (9, 0, 11)]
    {
        let options = ApiOptions {
            default_tip,
            min_priority_fee,
            ..ApiOptions::default()
        };
        let (rig, ask) = suggestions(min_gas_price, options);
        let [base_fee, price, tip] = ask(&rig);
        assert!(base_fee > 0);
        let least = min_priority_fee.max(min_gas_price.saturating_sub(base_fee));
        assert_eq!([tip, price], [least.max(default_tip), base_fee + tip]);
    }
}

#[test]
fn where_gas_is_free_one_wallet_that_pays_does_not_make_all_others_pay() {
    let options = ApiOptions {
        default_tip: 0,
        ..ApiOptions::default()
    };
    let (rig, ask) = suggestions(0, options);
    for (nonce, tip) in [(0, 0), (1, 0), (2, 1_000_000_000)] {
        let sent = transfer(&rig, nonce, tip);
        rig.result("eth_sendRawTransaction", json!([sent]));
    }
    let block = build(&rig);
    assert_eq!(block.body.transactions.len(), 3);
    rig.dispatcher.backend().chain().import(block).unwrap();
    let [_, _, tip] = ask(&rig);
    assert_eq!(tip, 0);
}
