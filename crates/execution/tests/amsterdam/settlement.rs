//! Gas of whole transactions and blocks: intrinsic gas, floor, refunds, both sums.

use super::{
    block_test::{
        ABSENT, BlockResult, BlockTest, CAP, COINBASE, EXISTING, GAS, MAIN, OTHER, Tx, sender,
    },
    code::{ALL, call, sstore},
};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, U256};

fn gas_of(test: BlockTest, tx: Tx) -> u64 {
    test.then(tx).run().gas(0)
}

#[test]
fn transaction_to_its_sender_costs_12_000_with_and_without_value() {
    for value in [0, 1] {
        let tx = Tx {
            value,
            ..Tx::to(sender())
        };
        assert_eq!(gas_of(BlockTest::new(), tx), 12_000);
    }
}

#[test]
fn call_costs_15_000_transfer_21_000_and_to_absent_account_204_600() {
    for (to, value, gas) in [
        (EXISTING, 0, 15_000),
        (ABSENT, 0, 15_000),
        (EXISTING, 1, 21_000),
        (ABSENT, 1, 204_600),
    ] {
        let tx = Tx {
            value,
            ..Tx::to(to)
        };
        assert_eq!(gas_of(BlockTest::new(), tx), gas, "{to} {value}");
    }
}

#[test]
fn creation_costs_24_000_its_words_and_the_new_account() {
    let nothing = Tx::create(vec![]);
    assert_eq!(gas_of(BlockTest::new(), nothing), 24_000 + 183_600);
    let two_words = Tx::create(vec![0; 33]);
    assert_eq!(
        gas_of(BlockTest::new(), two_words),
        24_000 + 33 * 4 + 2 * 2 + 183_600
    );
}

#[test]
fn access_list_is_charged_per_entry_and_byte_including_duplicates() {
    let item = |keys: usize| AccessListItem {
        address: EXISTING,
        storage_keys: vec![B256::ZERO; keys],
    };
    let tx = Tx {
        access_list: AccessList(vec![item(2), item(0)]),
        ..Tx::to(EXISTING)
    };
    let gas = gas_of(BlockTest::new(), tx);
    assert_eq!(gas, 15_000 + 2 * 4_180 + 2 * 4_048);
}

#[test]
fn floor_counts_64_per_byte_of_calldata_and_access_list() {
    let zeros = Tx {
        input: vec![0; 100].into(),
        ..Tx::to(EXISTING)
    };
    assert_eq!(gas_of(BlockTest::new(), zeros), 15_000 + 100 * 64);
    let listed = Tx {
        access_list: AccessList(vec![AccessListItem {
            address: EXISTING,
            storage_keys: vec![],
        }]),
        input: vec![1; 1_000].into(),
        ..Tx::to(EXISTING)
    };
    assert_eq!(
        gas_of(BlockTest::new(), listed),
        15_000 + 1_000 * 64 + 20 * 64
    );
}

#[test]
fn new_slot_costs_execution_gas_and_state_gas() {
    let test = BlockTest::running(sstore(0, 1));
    assert_eq!(gas_of(test, Tx::default()), 15_000 + 6 + 12_100 + 97_920);
}

fn three_in_a_block() -> BlockResult {
    BlockTest::running(sstore(0, 1))
        .then(Tx::default())
        .then(Tx {
            value: 1,
            ..Tx::to(ABSENT)
        })
        .then(Tx::create([0x60, 0, 0x60, 0, 0xf3]))
        .run()
}

#[test]
fn gas_used_of_header_is_the_larger_of_both_sums() {
    let ran = three_in_a_block();
    assert_eq!([0, 1, 2].map(|at| ran.gas(at)), [125_026, 204_600, 207_664]);
    assert_eq!(ran.gas_used, 97_920 + 2 * 183_600);
}

#[test]
fn receipts_sum_what_senders_pay() {
    let ran = three_in_a_block();
    let last = ran.receipts.last().unwrap();
    assert_eq!(last.cumulative_gas_used, 125_026 + 204_600 + 207_664);
}

#[test]
fn refund_reduces_the_senders_gas_and_not_the_blocks() {
    let ran = BlockTest::running(sstore(0, 0))
        .slot(MAIN, 0, 1)
        .then(Tx::default())
        .run();
    let before = 15_000 + 6 + 12_100;
    assert_eq!(ran.gas(0), before - before / 5);
    assert_eq!(ran.gas_used, before);
}

#[test]
fn refund_below_a_fifth_is_paid_in_full() {
    let test = BlockTest::running([sstore(0, 1), sstore(0, 0)].concat());
    let before = 15_000 + 12 + 12_100 + 100;
    assert_eq!(gas_of(test, Tx::default()), before - before / 5);
    // A hundred reads make the fifth larger than the refund of 10,000.
    let reads: Vec<u8> = (0..10)
        .flat_map(|key| [0x60, key + 1, 0x54, 0x50])
        .collect();
    let test = BlockTest::running([sstore(0, 1), sstore(0, 0), reads].concat());
    let before = before + 10 * (2_100 + 5);
    assert!(before / 5 < 10_000);
    assert_eq!(gas_of(test, Tx::default()), before - before / 5);
    let reads: Vec<u8> = (0..20)
        .flat_map(|key| [0x60, key + 1, 0x54, 0x50])
        .collect();
    let test = BlockTest::running([sstore(0, 1), sstore(0, 0), reads].concat());
    let before = before + 10 * (2_100 + 5);
    assert!(before / 5 > 10_000);
    assert_eq!(gas_of(test, Tx::default()), before - 10_000);
}

#[test]
fn floor_applies_to_execution_gas_in_the_block_and_to_all_gas_for_the_sender() {
    let ran = BlockTest::running(sstore(0, 1))
        .then(Tx {
            input: vec![1; 2_000].into(),
            ..Tx::default()
        })
        .run();
    let execution = 15_000 + 2_000 * 16 + 6 + 12_100;
    let floor = 15_000 + 2_000 * 64;
    assert_eq!(ran.gas(0), execution + 97_920);
    assert!(floor > execution && floor > 97_920);
    assert_eq!(ran.gas_used, floor);
}

#[test]
fn floor_cancels_a_refund() {
    let test = BlockTest::running(sstore(0, 0)).slot(MAIN, 0, 1);
    let tx = Tx {
        input: vec![0; 150].into(),
        ..Tx::default()
    };
    // Before the refund it is 27,706, after it 22,165.
    assert_eq!(gas_of(test, tx), 15_000 + 150 * 64);
}

#[test]
fn out_of_gas_at_new_recipient_fails_before_the_frame() {
    let ran = BlockTest::new()
        .then(Tx {
            value: 1,
            gas: 100_000,
            ..Tx::to(ABSENT)
        })
        .run();
    assert!(!ran.succeeded(0));
    assert_eq!((ran.gas(0), ran.gas_used), (100_000, 100_000));
    assert_eq!(ran.transfers(), []);
    assert_eq!((ran.nonce(sender()), ran.balance(ABSENT)), (Some(1), None));
}

#[test]
fn new_recipient_is_charged_to_reservoir_and_gas_left_and_fails_with_one_less() {
    let enough = 21_000 + 183_600;
    for (gas, succeeds) in [(CAP + 183_599, true), (enough, true), (enough - 1, false)] {
        let tx = Tx {
            value: 1,
            gas,
            ..Tx::to(ABSENT)
        };
        let ran = BlockTest::new().then(tx).run();
        assert_eq!(ran.succeeded(0), succeeds);
        assert_eq!(ran.gas(0), enough.min(gas));
    }
}

#[test]
fn reverted_creation_pays_no_account_and_at_least_the_floor() {
    let tx = Tx {
        value: 1,
        ..Tx::create([0x60, 0, 0x60, 0, 0xfd])
    };
    assert_eq!(gas_of(BlockTest::new(), tx), 24_000 + 5 * 64);
}

#[test]
fn halted_creation_burns_gas_left_and_keeps_the_reservoir() {
    let tx = |gas| Tx {
        gas,
        value: 1,
        ..Tx::create([0xfe])
    };
    assert_eq!(gas_of(BlockTest::new(), tx(1 << 20)), 1 << 20);
    assert_eq!(gas_of(BlockTest::new(), tx(CAP)), CAP);
    assert_eq!(gas_of(BlockTest::new(), tx(CAP + 200_000)), CAP);
}

#[test]
fn colliding_creation_burns_all_but_the_reservoir() {
    let at = sender().create(0);
    let test = || BlockTest::new().change(at, |account| account.nonce = 1);
    let tx = |gas| Tx {
        gas,
        ..Tx::create([0])
    };
    assert_eq!(gas_of(test(), tx(GAS)), GAS);
    assert_eq!(gas_of(test(), tx(CAP + 5)), CAP);
}

#[test]
fn creation_at_address_with_balance_charges_no_account() {
    let test = BlockTest::new().balance(sender().create(0), 1);
    assert_eq!(gas_of(test, Tx::create(vec![])), 24_000);
}

#[test]
fn sender_pays_the_effective_price_and_the_coinbase_gets_the_tip() {
    let ran = BlockTest::new()
        .then(Tx {
            tip: 3,
            ..Tx::to(EXISTING)
        })
        .run();
    assert_eq!(ran.balance(COINBASE), Some(U256::from(15_000 * 3)));
    assert_eq!(
        ran.balance(sender()),
        Some(U256::from(u64::MAX) - U256::from(15_000 * 10))
    );
}

#[test]
fn coinbase_without_tip_is_not_created() {
    let ran = BlockTest::new()
        .then(Tx {
            tip: 0,
            ..Tx::to(EXISTING)
        })
        .run();
    assert_eq!(ran.balance(COINBASE), None);
}

#[test]
fn out_of_gas_precompiled_contract_costs_the_access() {
    let pairing = Address::with_last_byte(8);
    let test = BlockTest::running(call(pairing, 0, 1));
    assert_eq!(gas_of(test, Tx::default()), 15_000 + 17 + 100 + 1);
    let test = BlockTest::running(call(OTHER, 0, ALL));
    assert_eq!(gas_of(test, Tx::default()), 15_000 + 17 + 3_000);
}
