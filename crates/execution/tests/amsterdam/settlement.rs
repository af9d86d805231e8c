//! Worked numbers of whole transactions and blocks: intrinsic gas, floor, refunds, both sums.

use super::{
    code::{ALL, call, sstore},
    scene::{CAP, COINBASE, GAS, MAIN, NOBODY, OTHER, Ran, SOMEBODY, Scene, Tx, sender},
};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, U256};

fn gas_of(scene: Scene, tx: Tx) -> u64 {
    scene.then(tx).run().gas(0)
}

#[test]
fn a_transaction_to_oneself_costs_12_000_with_value_and_without() {
    for value in [0, 1] {
        let tx = Tx {
            value,
            ..Tx::to(sender())
        };
        assert_eq!(gas_of(Scene::new(), tx), 12_000);
    }
}

#[test]
fn a_call_costs_15_000_a_transfer_21_000_and_one_to_nobody_204_600() {
    for (to, value, gas) in [
        (SOMEBODY, 0, 15_000),
        (NOBODY, 0, 15_000),
        (SOMEBODY, 1, 21_000),
        (NOBODY, 1, 204_600),
    ] {
        let tx = Tx {
            value,
            ..Tx::to(to)
        };
        assert_eq!(gas_of(Scene::new(), tx), gas, "{to} {value}");
    }
}

#[test]
fn a_creation_costs_24_000_its_words_and_the_new_account() {
    let nothing = Tx::create(vec![]);
    assert_eq!(gas_of(Scene::new(), nothing), 24_000 + 183_600);
    let two_words = Tx::create(vec![0; 33]);
    assert_eq!(
        gas_of(Scene::new(), two_words),
        24_000 + 33 * 4 + 2 * 2 + 183_600
    );
}

#[test]
fn the_access_list_is_paid_by_entry_and_by_byte_as_often_as_it_names_something() {
    let item = |keys: usize| AccessListItem {
        address: SOMEBODY,
        storage_keys: vec![B256::ZERO; keys],
    };
    let tx = Tx {
        access_list: AccessList(vec![item(2), item(0)]),
        ..Tx::to(SOMEBODY)
    };
    let gas = gas_of(Scene::new(), tx);
    assert_eq!(gas, 15_000 + 2 * 4_180 + 2 * 4_048);
}

#[test]
fn the_floor_counts_64_for_each_byte_of_calldata_and_access_list() {
    let zeros = Tx {
        input: vec![0; 100].into(),
        ..Tx::to(SOMEBODY)
    };
    assert_eq!(gas_of(Scene::new(), zeros), 15_000 + 100 * 64);
    let listed = Tx {
        access_list: AccessList(vec![AccessListItem {
            address: SOMEBODY,
            storage_keys: vec![],
        }]),
        input: vec![1; 1_000].into(),
        ..Tx::to(SOMEBODY)
    };
    assert_eq!(gas_of(Scene::new(), listed), 15_000 + 1_000 * 64 + 20 * 64);
}

#[test]
fn a_new_slot_costs_execution_gas_and_state_gas() {
    let scene = Scene::running(sstore(0, 1));
    assert_eq!(gas_of(scene, Tx::default()), 15_000 + 6 + 12_100 + 97_920);
}

fn three_in_a_block() -> Ran {
    Scene::running(sstore(0, 1))
        .then(Tx::default())
        .then(Tx {
            value: 1,
            ..Tx::to(NOBODY)
        })
        .then(Tx::create([0x60, 0, 0x60, 0, 0xf3]))
        .run()
}

#[test]
fn the_headers_gas_is_the_larger_of_both_sums() {
    let ran = three_in_a_block();
    assert_eq!([0, 1, 2].map(|at| ran.gas(at)), [125_026, 204_600, 207_664]);
    assert_eq!(ran.gas_used, 97_920 + 2 * 183_600);
}

#[test]
fn receipts_add_up_what_senders_pay() {
    let ran = three_in_a_block();
    let last = ran.receipts.last().unwrap();
    assert_eq!(last.cumulative_gas_used, 125_026 + 204_600 + 207_664);
}

#[test]
fn a_refund_spares_the_sender_and_not_the_block() {
    let ran = Scene::running(sstore(0, 0))
        .slot(MAIN, 0, 1)
        .then(Tx::default())
        .run();
    let before = 15_000 + 6 + 12_100;
    assert_eq!(ran.gas(0), before - before / 5);
    assert_eq!(ran.gas_used, before);
}

#[test]
fn a_refund_below_a_fifth_is_given_whole() {
    let scene = Scene::running([sstore(0, 1), sstore(0, 0)].concat());
    let before = 15_000 + 12 + 12_100 + 100;
    assert_eq!(gas_of(scene, Tx::default()), before - before / 5);
    // A hundred reads make the fifth larger than the refund of 10,000.
    let reads: Vec<u8> = (0..10)
        .flat_map(|key| [0x60, key + 1, 0x54, 0x50])
        .collect();
    let scene = Scene::running([sstore(0, 1), sstore(0, 0), reads].concat());
    let before = before + 10 * (2_100 + 5);
    assert!(before / 5 < 10_000);
    assert_eq!(gas_of(scene, Tx::default()), before - before / 5);
    let reads: Vec<u8> = (0..20)
        .flat_map(|key| [0x60, key + 1, 0x54, 0x50])
        .collect();
    let scene = Scene::running([sstore(0, 1), sstore(0, 0), reads].concat());
    let before = before + 10 * (2_100 + 5);
    assert!(before / 5 > 10_000);
    assert_eq!(gas_of(scene, Tx::default()), before - 10_000);
}

#[test]
fn the_floor_holds_against_execution_alone_in_the_block_and_against_all_for_the_sender() {
    let ran = Scene::running(sstore(0, 1))
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
fn the_floor_takes_back_a_refund() {
    let scene = Scene::running(sstore(0, 0)).slot(MAIN, 0, 1);
    let tx = Tx {
        input: vec![0; 150].into(),
        ..Tx::default()
    };
    // Before the refund it is 27,706, after it 22,165.
    assert_eq!(gas_of(scene, tx), 15_000 + 150 * 64);
}

#[test]
fn what_cannot_pay_for_a_new_recipient_fails_before_its_frame() {
    let ran = Scene::new()
        .then(Tx {
            value: 1,
            gas: 100_000,
            ..Tx::to(NOBODY)
        })
        .run();
    assert!(!ran.succeeded(0));
    assert_eq!((ran.gas(0), ran.gas_used), (100_000, 100_000));
    assert_eq!(ran.transfers(), []);
    assert_eq!((ran.nonce(sender()), ran.balance(NOBODY)), (Some(1), None));
}

#[test]
fn a_new_recipient_is_paid_from_both_purses_and_not_with_one_gas_less() {
    let enough = 21_000 + 183_600;
    for (gas, succeeds) in [(CAP + 183_599, true), (enough, true), (enough - 1, false)] {
        let tx = Tx {
            value: 1,
            gas,
            ..Tx::to(NOBODY)
        };
        let ran = Scene::new().then(tx).run();
        assert_eq!(ran.succeeded(0), succeeds);
        assert_eq!(ran.gas(0), enough.min(gas));
    }
}

#[test]
fn a_creation_that_reverts_pays_for_no_account_and_the_floor_at_least() {
    let tx = Tx {
        value: 1,
        ..Tx::create([0x60, 0, 0x60, 0, 0xfd])
    };
    assert_eq!(gas_of(Scene::new(), tx), 24_000 + 5 * 64);
}

#[test]
fn a_creation_that_halts_burns_what_it_lent_and_keeps_its_reservoir() {
    let tx = |gas| Tx {
        gas,
        value: 1,
        ..Tx::create([0xfe])
    };
    assert_eq!(gas_of(Scene::new(), tx(1 << 20)), 1 << 20);
    assert_eq!(gas_of(Scene::new(), tx(CAP)), CAP);
    assert_eq!(gas_of(Scene::new(), tx(CAP + 200_000)), CAP);
}

#[test]
fn a_creation_that_collides_burns_all_but_the_reservoir() {
    let at = sender().create(0);
    let scene = || Scene::new().change(at, |account| account.nonce = 1);
    let tx = |gas| Tx {
        gas,
        ..Tx::create([0])
    };
    assert_eq!(gas_of(scene(), tx(GAS)), GAS);
    assert_eq!(gas_of(scene(), tx(CAP + 5)), CAP);
}

#[test]
fn a_creation_where_money_lies_pays_for_no_account() {
    let scene = Scene::new().balance(sender().create(0), 1);
    assert_eq!(gas_of(scene, Tx::create(vec![])), 24_000);
}

#[test]
fn gas_is_paid_at_the_price_and_the_tip_goes_to_the_coinbase() {
    let ran = Scene::new()
        .then(Tx {
            tip: 3,
            ..Tx::to(SOMEBODY)
        })
        .run();
    assert_eq!(ran.balance(COINBASE), Some(U256::from(15_000 * 3)));
    assert_eq!(
        ran.balance(sender()),
        Some(U256::from(u64::MAX) - U256::from(15_000 * 10))
    );
}

#[test]
fn without_a_tip_the_coinbase_does_not_come_into_being() {
    let ran = Scene::new()
        .then(Tx {
            tip: 0,
            ..Tx::to(SOMEBODY)
        })
        .run();
    assert_eq!(ran.balance(COINBASE), None);
}

#[test]
fn a_precompiled_contract_with_too_little_gas_costs_its_caller_the_access() {
    let pairing = Address::with_last_byte(8);
    let scene = Scene::running(call(pairing, 0, 1));
    assert_eq!(gas_of(scene, Tx::default()), 15_000 + 17 + 100 + 1);
    let scene = Scene::running(call(OTHER, 0, ALL));
    assert_eq!(gas_of(scene, Tx::default()), 15_000 + 17 + 3_000);
}
