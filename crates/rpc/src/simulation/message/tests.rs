//! The transactions of messages, and messages without one.

use super::*;
use niwaki_primitives::Typed2718;

fn message(json: &str) -> Message {
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_transaction_type_follows_from_the_fields() {
    for (json, or_else, want) in [
        ("{}", 0, 0),
        ("{}", 2, 2),
        ("{\"gasPrice\":\"0x1\"}", 2, 0),
        ("{\"accessList\":[]}", 0, 1),
        ("{\"accessList\":[],\"gasPrice\":\"0x1\"}", 0, 1),
        ("{\"maxFeePerGas\":\"0x1\"}", 0, 2),
        ("{\"blobVersionedHashes\":[]}", 0, 3),
        ("{\"authorizationList\":[]}", 0, 4),
    ] {
        let tx = message(json).transaction(1, 2, 3, or_else);
        assert_eq!(tx.ty(), want, "{json}");
    }
}

#[test]
fn contradictory_fields_are_refused() {
    for (json, word) in [
        (
            "{\"gasPrice\":\"0x1\",\"maxFeePerGas\":\"0x1\"}",
            "both gasPrice",
        ),
        ("{\"data\":\"0x00\",\"input\":\"0x01\"}", "not equal"),
        ("{\"chainId\":\"0x2\"}", "have=2, want=1"),
        ("{\"blobVersionedHashes\":[]}", "type create"),
        ("{\"authorizationList\":[]}", "create contract"),
    ] {
        let error = message(json).check(1).unwrap_err();
        assert!(error.message.contains(word), "{json}: {error}");
    }
    let same = "{\"data\":\"0x00\",\"input\":\"0x00\",\"chainId\":\"0x1\"}";
    assert_eq!(message(same).check(1), Ok(()));
}
