//! The price of SSTORE by the transition of the slot in the transaction.

use super::{
    block_test::{BlockResult, BlockTest, GAS, MAIN, Tx},
    code::sstore,
};
use niwaki_primitives::{AccessList, AccessListItem, B256, U256};

const ACCESS: u64 = 2_100;
const WARM: u64 = 100;
const WRITE: u64 = 10_000;
const NEW: u64 = 97_920;
const CLEARED: u64 = 11_616;

fn run(original: u64, values: &[u8]) -> BlockResult {
    let code: Vec<u8> = values.iter().flat_map(|value| sstore(0, *value)).collect();
    let mut test = BlockTest::running(code);
    if original > 0 {
        test = test.slot(MAIN, 0, original);
    }
    test.then(Tx::default()).run()
}

/// Original value, values written, execution gas, state gas, refund.
const WAYS: [(u64, &[u8], u64, u64, u64); 14] = [
    (0, &[0], ACCESS, 0, 0),
    (0, &[1], ACCESS + WRITE, NEW, 0),
    (0, &[1, 1], ACCESS + WRITE + WARM, NEW, 0),
    (0, &[1, 2], ACCESS + WRITE + WARM, NEW, 0),
    (0, &[1, 0], ACCESS + WRITE + WARM, 0, WRITE),
    (
        0,
        &[1, 0, 2],
        ACCESS + WRITE + WARM + WARM + WRITE,
        NEW,
        WRITE,
    ),
    (1, &[1], ACCESS, 0, 0),
    (1, &[2], ACCESS + WRITE, 0, 0),
    (1, &[0], ACCESS + WRITE, 0, CLEARED),
    (1, &[0, 2], ACCESS + WRITE + WARM, 0, 0),
    (1, &[0, 1], ACCESS + WRITE + WARM, 0, WRITE),
    (1, &[2, 0], ACCESS + WRITE + WARM, 0, CLEARED),
    (1, &[2, 1], ACCESS + WRITE + WARM, 0, WRITE),
    (1, &[2, 3], ACCESS + WRITE + WARM, 0, 0),
];

#[test]
fn each_transition_of_a_slot_has_its_price() {
    for (original, values, execution, state, refund) in WAYS {
        let ran = run(original, values);
        let execution = 15_000 + 6 * values.len() as u64 + execution;
        let before = execution + state;
        let paid = before - refund.min(before / 5);
        assert_eq!(ran.gas(0), paid, "{original} {values:?}");
        assert_eq!(ran.gas_used, execution.max(state), "{original} {values:?}");
        let last = values.last().copied().unwrap();
        assert_eq!(ran.slot(MAIN, 0), U256::from(last));
    }
}

#[test]
fn slot_of_the_access_list_is_warm() {
    let access_list = AccessList(vec![AccessListItem {
        address: MAIN,
        storage_keys: vec![B256::ZERO],
    }]);
    let ran = BlockTest::running(sstore(0, 1))
        .then(Tx {
            access_list,
            ..Tx::default()
        })
        .run();
    let listed = 4_180 + 4_048;
    assert_eq!(ran.gas(0), 15_000 + listed + 6 + WARM + WRITE + NEW);
}

#[test]
fn original_value_is_that_before_the_transaction() {
    let ran = BlockTest::running([sstore(0, 1), sstore(0, 2)].concat())
        .then(Tx::default())
        .then(Tx::default())
        .run();
    assert_eq!(ran.gas(0), 15_000 + 12 + ACCESS + WRITE + WARM + NEW);
    // 2, then 1, then 2 again: the write is refunded.
    let before = 15_000 + 12 + ACCESS + WRITE + WARM;
    assert_eq!(ran.gas(1), before - before / 5);
}

#[test]
fn sstore_succeeds_with_its_exact_gas_and_fails_with_one_less() {
    let enough = 15_000 + 6 + ACCESS + WRITE + NEW;
    for (gas, succeeds) in [(enough, true), (enough - 1, false)] {
        let tx = Tx {
            gas,
            ..Tx::default()
        };
        let ran = BlockTest::running(sstore(0, 1)).then(tx).run();
        assert_eq!((ran.succeeded(0), ran.gas(0)), (succeeds, gas));
    }
    assert!(enough < GAS);
}
