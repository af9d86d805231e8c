//! Payloads whose transactions are decoded on one thread and on two.

use super::access_list::AMSTERDAM;
use super::senders::{build, open_funded};
use crate::BuiltBlock;
use alloy_rpc_types_engine::ExecutionPayload;
use niwaki_primitives::Bytes;
use niwaki_rules::{Payload, PayloadError, PayloadInput, PayloadVersion};

fn input(built: &BuiltBlock) -> PayloadInput {
    let (payload, _) = ExecutionPayload::from_block_slow(&built.block);
    PayloadInput {
        payload,
        versioned_hashes: Some(Vec::new()),
        parent_beacon_block_root: built.block.header.parent_beacon_block_root,
        execution_requests: Some(built.requests.clone()),
    }
}

/// The same on one thread and on two.
fn decode(input: &PayloadInput) -> Result<Payload, PayloadError> {
    let [one, two] = [1, 2]
        .map(|beside| open_funded(beside, 1).decode_payload(PayloadVersion::V4, input.clone()));
    assert_eq!(one, two);
    one
}

#[test]
fn a_payload_is_its_block() {
    let (built, _) = build(AMSTERDAM - 12);
    let payload = decode(&input(&built)).unwrap();
    assert_eq!((payload.block, payload.hash), (built.block, built.hash));
}

#[test]
fn a_payload_is_refused_for_the_first_that_is_wrong_with_it() {
    let (built, _) = build(AMSTERDAM - 12);
    let refusal = |change: &dyn Fn(&mut Vec<Bytes>)| {
        let mut input = input(&built);
        change(&mut input.payload.as_v1_mut().transactions);
        decode(&input).unwrap_err().to_string()
    };
    let torn = refusal(&|transactions| transactions[9] = Bytes::from_static(&[2, 0xc0]));
    assert!(torn.contains("transaction 9"), "{torn}");
    let torn = refusal(&|transactions| {
        transactions[9] = Bytes::new();
        transactions[5] = Bytes::new();
        transactions.pop();
    });
    assert!(torn.contains("transaction 5"), "{torn}");
    let others = refusal(&|transactions| drop(transactions.pop()));
    assert!(others.contains("block hash"), "{others}");
}
