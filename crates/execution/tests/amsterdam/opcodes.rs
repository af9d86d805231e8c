//! Prices of opcodes that look at accounts, and the opcodes that are new.

use super::{
    code::{ALL, ask, call, call_by, create_by, measure, tell},
    scene::{GAS, MAIN, NOBODY, OTHER, SOMEBODY, Scene, Tx, delegation},
};
use niwaki_primitives::Address;

/// Gas that `body` costs in a contract that is warm and has a balance of 10.
fn cost(body: &[u8]) -> u64 {
    let scene = Scene::running(measure(body))
        .balance(MAIN, 10)
        .code(OTHER, [0x00]);
    scene.then(Tx::default()).run().told()[0] - 2
}

#[test]
fn looking_at_an_account_costs_3_000_and_again_100_and_its_code_100_more() {
    for (opcode, cold, warm) in [(0x31, 3_000, 100), (0x3b, 3_100, 200), (0x3f, 3_000, 100)] {
        for account in [SOMEBODY, NOBODY, OTHER] {
            let once = ask(opcode, account);
            assert_eq!(cost(&once), 5 + cold, "{opcode:x}");
            let twice = [once.clone(), once].concat();
            assert_eq!(cost(&twice), 10 + cold + warm, "{opcode:x}");
        }
    }
}

#[test]
fn copying_code_costs_the_access_100_and_3_for_each_word() {
    let copy = |bytes: u8| {
        [
            &[0x60, bytes, 0x5f, 0x5f, 0x73][..],
            OTHER.as_slice(),
            &[0x3c],
        ]
        .concat()
    };
    assert_eq!(cost(&copy(0)), 3 + 2 + 2 + 3 + 3_100);
    assert_eq!(cost(&copy(32)), 3 + 2 + 2 + 3 + 3_100 + 3 + 3);
    let twice = [copy(0), copy(0)].concat();
    assert_eq!(cost(&twice), 2 * 10 + 3_100 + 200);
}

#[test]
fn a_slot_costs_2_100_and_again_100() {
    let load = [0x5f, 0x54, 0x50];
    assert_eq!(cost(&load), 2 + 2_100 + 2);
    assert_eq!(cost(&[load, load].concat()), 2 * 4 + 2_100 + 100);
}

#[test]
fn calls_cost_the_access_and_value_11_300_of_which_the_callee_gets_2_300() {
    for opcode in [0xf1, 0xf2, 0xf4, 0xfa] {
        let code = [call_by(opcode, OTHER, 0, ALL), vec![0x50]].concat();
        let pushes = if opcode < 0xf3 { 17 } else { 14 };
        assert_eq!(cost(&code), pushes + 3_000 + 2, "{opcode:x}");
        let twice = [code.clone(), code].concat();
        assert_eq!(cost(&twice), 2 * (pushes + 2) + 3_100, "{opcode:x}");
    }
    for opcode in [0xf1, 0xf2] {
        let code = [call_by(opcode, OTHER, 1, ALL), vec![0x50]].concat();
        assert_eq!(cost(&code), 17 + 3_000 + 11_300 - 2_300 + 2, "{opcode:x}");
    }
}

#[test]
fn callcode_with_value_creates_nobody() {
    let code = [call_by(0xf2, NOBODY, 1, ALL), vec![0x50]].concat();
    assert_eq!(cost(&code), 17 + 3_000 + 11_300 - 2_300 + 2);
}

#[test]
fn a_call_by_delegation_pays_for_its_target_too() {
    let delegated = Address::repeat_byte(0x77);
    let code = [call(delegated, 0, ALL), vec![0x50]].concat();
    let scene = |code: &[u8]| {
        Scene::running(measure(code))
            .code(delegated, delegation(OTHER))
            .code(OTHER, [0x00])
    };
    let told = |code: &[u8]| scene(code).then(Tx::default()).run().told()[0] - 2;
    assert_eq!(told(&code), 17 + 3_000 + 3_000 + 2);
    let warm = [ask(0x31, OTHER), code].concat();
    assert_eq!(told(&warm), 5 + 3_000 + 17 + 3_000 + 100 + 2);
}

#[test]
fn a_delegation_to_a_precompiled_contract_runs_nothing() {
    let delegated = Address::repeat_byte(0x77);
    let pairing = Address::with_last_byte(8);
    // With one gas the contract itself would fail.
    let ran = Scene::running([call(delegated, 0, 1), tell()].concat())
        .code(delegated, delegation(pairing))
        .then(Tx::default())
        .run();
    assert_eq!(ran.told(), [1]);
}

#[test]
fn creations_cost_12_000_and_2_or_8_for_each_word() {
    // Where there is money already, no account is paid for.
    let create2 = MAIN.create2_from_code([0; 32], [0]);
    for (opcode, at, word) in [(0xf0, MAIN.create(1), 2), (0xf5, create2, 8)] {
        let code = [create_by(opcode, &[0], 0), vec![0x50]].concat();
        let scene = Scene::running(measure(&code)).balance(at, 1);
        let pushes = 3 + 2 + 3 + 3 + 3 + 2 + 3 + if opcode == 0xf5 { 2 } else { 0 };
        assert_eq!(
            scene.then(Tx::default()).run().told(),
            [pushes + 12_000 + word + 2 + 2],
            "{opcode:x}"
        );
    }
}

#[test]
fn slotnum_gives_the_slot_of_the_header_for_2_gas() {
    let ran = Scene::running([vec![0x4b], tell()].concat())
        .then(Tx::default())
        .run();
    assert_eq!(ran.told(), [5]);
    assert_eq!(cost(&[0x4b, 0x50]), 4);
}

/// Runs an opcode upon the words 1 to 40, 40 on top, and tells the topmost word.
fn reach(code: &[u8]) -> Option<u64> {
    let words: Vec<u8> = (1..=40).flat_map(|word| [0x60, word]).collect();
    let scene = Scene::running([words, code.to_vec(), tell()].concat());
    scene.then(Tx::default()).run().told().first().copied()
}

#[test]
fn dupn_copies_the_word_that_its_immediate_names() {
    assert_eq!(reach(&[0xe6, 0x80]), Some(40 - 16));
    assert_eq!(reach(&[0xe6, 0x81]), Some(40 - 17));
    assert_eq!(reach(&[0xe6, 0x97]), Some(1));
    // One deeper than the stack.
    assert_eq!(reach(&[0xe6, 0x98]), None);
}

#[test]
fn swapn_exchanges_the_top_with_the_word_below_the_one_named() {
    assert_eq!(reach(&[0xe7, 0x80]), Some(40 - 17));
    assert_eq!(reach(&[0xe7, 0x96]), Some(1));
    assert_eq!(reach(&[0xe7, 0x97]), None);
}

#[test]
fn exchange_leaves_the_top_and_swaps_two_below() {
    // 143 xor 0x8e = 0x01: the second and the third.
    assert_eq!(reach(&[0xe8, 0x8e, 0x50]), Some(38));
    assert_eq!(reach(&[0xe8, 0x8e, 0x50, 0x50]), Some(39));
    assert_eq!(reach(&[0xe8, 0x8e]), Some(40));
}

#[test]
fn an_immediate_that_looks_like_an_opcode_of_jumps_is_refused_and_still_one() {
    for opcode in [0xe6, 0xe7, 0xe8] {
        for immediate in [0x5b, 0x60, 0x7f] {
            assert_eq!(reach(&[opcode, immediate, 0x00]), None, "{immediate:x}");
        }
    }
    // JUMPDEST as an immediate is where one may jump to.
    let ran = Scene::running([&[0x60, 0x04, 0x56, 0xe6, 0x5b, 0x60, 1][..], &tell()].concat())
        .then(Tx::default())
        .run();
    assert_eq!(ran.told(), [1]);
}

#[test]
fn an_immediate_beyond_the_code_is_zero() {
    // 145 + 0: the 145th word.
    let words: Vec<u8> = (0..=144).flat_map(|word| [0x60, word]).collect();
    let enough = Scene::running([words.clone(), vec![0xe6]].concat());
    assert!(enough.then(Tx::default()).run().succeeded(0));
    let few = Scene::running([words[2..].to_vec(), vec![0xe6]].concat());
    assert!(!few.then(Tx::default()).run().succeeded(0));
}

#[test]
fn deployed_code_may_have_65_536_bytes_and_no_more() {
    for (size, succeeds) in [(0x01_0000_u32, true), (0x01_0001, false)] {
        let [_, high, middle, low] = size.to_be_bytes();
        let tx = Tx {
            gas: 130_000_000,
            ..Tx::create([0x62, high, middle, low, 0x5f, 0xf3])
        };
        let mut scene = Scene::new();
        scene.header.gas_limit = 1 << 30;
        let ran = scene.then(tx).run();
        assert_eq!(ran.succeeded(0), succeeds, "{size}");
    }
}

#[test]
fn init_code_of_an_opcode_may_have_131_072_bytes_and_no_more() {
    for (size, succeeds) in [(0x02_0000_u32, true), (0x02_0001, false)] {
        let [_, high, middle, low] = size.to_be_bytes();
        let ran = Scene::running([0x62, high, middle, low, 0x5f, 0x5f, 0xf0])
            .then(Tx::default())
            .run();
        assert_eq!(ran.succeeded(0), succeeds, "{size}");
        assert!(succeeds || ran.gas(0) == GAS);
    }
}
