//! `eth_getTransactionBySenderAndNonce` beside the blocks.

use super::blocks::whole;
use super::operating::{dev, send_to};
use super::*;

#[test]
fn each_transaction_of_the_chain_is_found_by_its_sender_and_nonce() {
    let rig = whole();
    let mut found = 0;
    for number in (1..=54).map(|number| format!("{number:#x}")) {
        let block = rig.result("eth_getBlockByNumber", json!([number, true]));
        for tx in block["transactions"].as_array().unwrap() {
            let params = json!([tx["from"], tx["nonce"]]);
            assert_eq!(
                rig.result("eth_getTransactionBySenderAndNonce", params),
                *tx
            );
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
    let sender = "0x00000000000000000000000000000000000000e9";
    let none = rig.result("eth_getTransactionBySenderAndNonce", json!([sender, "0x0"]));
    assert_eq!(none, Value::Null);
}

#[test]
fn a_pooled_transaction_is_found_too_and_a_nonce_that_is_not_used_is_not() {
    let rig = dev();
    let tx = send_to(&rig, 0, TxKind::Create, Bytes::new().into());
    let raw = hex::encode_prefixed(tx.encoded_2718());
    let hash = rig.result("eth_sendRawTransaction", json!([raw]));
    let pending = rig.result("eth_getTransactionByHash", json!([hash]));
    let of = |nonce: &str| {
        rig.result(
            "eth_getTransactionBySenderAndNonce",
            json!([pending["from"], nonce]),
        )
    };
    assert_eq!(of("0x0"), pending);
    assert_eq!(of("0x1"), Value::Null);
    let (code, _) = rig.refusal(
        "eth_getTransactionBySenderAndNonce",
        json!([pending["from"], 0]),
    );
    assert_eq!(code, -32602);
}
