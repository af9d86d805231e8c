//! System calls before and after the transactions.

use super::block_test::{BlockTest, MAIN, SYSTEM_ADDRESS, Tx, sender, system_contracts};
use niwaki_primitives::{B256, Bytes, U256};

/// The queues, by the type of their requests.
const QUEUES: [(u8, usize); 4] = [(1, 2), (2, 3), (3, 4), (4, 5)];

#[test]
fn block_without_transactions_uses_no_gas_and_has_no_requests() {
    let ran = BlockTest::new().run();
    assert_eq!((ran.gas_used, ran.requests.len()), (0, 0));
    assert_eq!(ran.state.accounts.get(&SYSTEM_ADDRESS), None);
}

#[test]
fn missing_queue_contract_makes_the_block_invalid() {
    for (_, at) in QUEUES {
        let mut test = BlockTest::new();
        test.state.accounts.remove(&system_contracts()[at].0);
        assert!(test.is_invalid());
    }
}

#[test]
fn failing_queue_contract_makes_the_block_invalid() {
    for (_, at) in QUEUES {
        let address = system_contracts()[at].0;
        assert!(BlockTest::new().code(address, [0xfe]).is_invalid());
        assert!(!BlockTest::new().code(address, [0x00]).is_invalid());
    }
}

#[test]
fn beacon_roots_and_history_contracts_may_be_missing_or_fail() {
    for at in [0, 1] {
        let address = system_contracts()[at].0;
        let mut missing = BlockTest::new();
        missing.state.accounts.remove(&address);
        assert!(!missing.is_invalid());
        assert!(!BlockTest::new().code(address, [0xfe]).is_invalid());
    }
}

#[test]
fn requests_are_in_the_order_of_their_types() {
    let mut test = BlockTest::new();
    for (kind, at) in QUEUES {
        // MSTORE8 of the type, and one byte returned.
        let code = [0x60, kind + 0x10, 0x5f, 0x53, 0x60, 1, 0x5f, 0xf3];
        test = test.code(system_contracts()[at].0, code);
    }
    let expected: Vec<Bytes> = QUEUES
        .iter()
        .map(|(kind, _)| Bytes::from(vec![*kind, kind + 0x10]))
        .collect();
    assert_eq!(test.run().requests, expected);
}

#[test]
fn builder_deposit_and_exit_become_requests() {
    let [.., deposits, exits] = system_contracts();
    let mut deposit = vec![7; 184];
    deposit[80..88].copy_from_slice(&1_000_000_000_u64.to_be_bytes());
    let exit = vec![9; 48];
    let ran = BlockTest::new()
        .then(Tx {
            value: 1_000_000_000_000_000_000 + 1,
            input: deposit.clone().into(),
            ..Tx::to(deposits.0)
        })
        .then(Tx {
            value: 1,
            input: exit.clone().into(),
            ..Tx::to(exits.0)
        })
        .run();
    assert!(ran.succeeded(0) && ran.succeeded(1));
    // The amount is little-endian in the request.
    deposit[80..88].reverse();
    let with_type =
        |kind: u8, data: &[&[u8]]| Bytes::from([&[kind], data.concat().as_slice()].concat());
    assert_eq!(
        ran.requests,
        [
            with_type(3, &[&deposit]),
            with_type(4, &[sender().as_slice(), &exit]),
        ]
    );
}

#[test]
fn system_call_has_30_million_gas_and_a_reservoir_of_16_slots() {
    // Sets slots from 16 down, and then one more.
    let sets = |count: u8| -> Vec<u8> {
        (1..=count)
            .flat_map(|key| [0x60, 1, 0x60, key, 0x55])
            .collect()
    };
    let queue = system_contracts()[2].0;
    // GAS is stored in slot 0 after the sets: the reservoir has paid for 15 slots, and pays for slot 0.
    let code = |count| [sets(count), vec![0x5a, 0x5f, 0x55]].concat();
    let left = |count: u64| 30_000_000 - count * (6 + 12_100) - 2;
    let ran = BlockTest::new().code(queue, code(15)).run();
    assert_eq!(ran.slot(queue, 0), U256::from(left(15)));
    let ran = BlockTest::new().code(queue, code(17)).run();
    assert_eq!(ran.slot(queue, 0), U256::from(left(17) - 97_920));
    assert_eq!(ran.gas_used, 0);
}

#[test]
fn system_calls_ignore_the_gas_limit_of_the_block() {
    let mut test = BlockTest::running(vec![]);
    test.header.gas_limit = 15_000;
    let tx = Tx {
        gas: 15_000,
        ..Tx::to(MAIN)
    };
    assert_eq!(test.then(tx).invalid_transaction(), None);
}

#[test]
fn parent_beacon_root_and_parent_hash_are_stored() {
    let ran = BlockTest::new().run();
    let [roots, hashes, ..] = system_contracts();
    assert_eq!(ran.slot(roots.0, 1_000), U256::from(1_000));
    let root = U256::from_be_bytes(B256::repeat_byte(0x22).0);
    assert_eq!(ran.slot(roots.0, 1_000 + 8_191), root);
    let hash = U256::from_be_bytes(B256::repeat_byte(0x11).0);
    assert_eq!(ran.slot(hashes.0, 0), hash);
}
