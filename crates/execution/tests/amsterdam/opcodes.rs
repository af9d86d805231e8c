//! Prices of opcodes that access accounts, and new opcodes.

use super::{
    block_test::{ABSENT, BlockTest, EXISTING, GAS, MAIN, OTHER, Tx, delegation},
    code::{ALL, call, call_by, create_by, log_top, measure, query},
};
use niwaki_primitives::Address;

/// Gas that `body` costs in a contract that is warm and has a balance of 10.
fn cost(body: &[u8]) -> u64 {
    let test = BlockTest::running(measure(body))
        .balance(MAIN, 10)
        .code(OTHER, [0x00]);
    test.then(Tx::default()).run().logged()[0] - 2
}

#[test]
fn account_access_costs_3_000_cold_100_warm_and_100_more_for_code() {
    for (opcode, cold, warm) in [(0x31, 3_000, 100), (0x3b, 3_100, 200), (0x3f, 3_000, 100)] {
        for account in [EXISTING, ABSENT, OTHER] {
            let once = query(opcode, account);
            assert_eq!(cost(&once), 5 + cold, "{opcode:x}");
            let twice = [once.clone(), once].concat();
            assert_eq!(cost(&twice), 10 + cold + warm, "{opcode:x}");
        }
    }
}

#[test]
fn extcodecopy_costs_access_100_and_3_per_word() {
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
fn sload_costs_2_100_cold_and_100_warm() {
    let load = [0x5f, 0x54, 0x50];
    assert_eq!(cost(&load), 2 + 2_100 + 2);
    assert_eq!(cost(&[load, load].concat()), 2 * 4 + 2_100 + 100);
}

#[test]
fn call_value_costs_11_300_of_which_the_callee_gets_2_300() {
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
fn callcode_with_value_creates_no_account() {
    let code = [call_by(0xf2, ABSENT, 1, ALL), vec![0x50]].concat();
    assert_eq!(cost(&code), 17 + 3_000 + 11_300 - 2_300 + 2);
}

#[test]
fn call_of_delegated_account_charges_its_target() {
    let delegated = Address::repeat_byte(0x77);
    let code = [call(delegated, 0, ALL), vec![0x50]].concat();
    let test = |code: &[u8]| {
        BlockTest::running(measure(code))
            .code(delegated, delegation(OTHER))
            .code(OTHER, [0x00])
    };
    let logged = |code: &[u8]| test(code).then(Tx::default()).run().logged()[0] - 2;
    assert_eq!(logged(&code), 17 + 3_000 + 3_000 + 2);
    let warm = [query(0x31, OTHER), code].concat();
    assert_eq!(logged(&warm), 5 + 3_000 + 17 + 3_000 + 100 + 2);
}

#[test]
fn delegation_to_precompiled_contract_runs_no_code() {
    let delegated = Address::repeat_byte(0x77);
    let pairing = Address::with_last_byte(8);
    // With one gas the contract itself would fail.
    let ran = BlockTest::running([call(delegated, 0, 1), log_top()].concat())
        .code(delegated, delegation(pairing))
        .then(Tx::default())
        .run();
    assert_eq!(ran.logged(), [1]);
}

#[test]
fn create_costs_12_000_and_2_per_word_create2_8() {
    // At an address with a balance no account is charged.
    let create2 = MAIN.create2_from_code([0; 32], [0]);
    for (opcode, at, word) in [(0xf0, MAIN.create(1), 2), (0xf5, create2, 8)] {
        let code = [create_by(opcode, &[0], 0), vec![0x50]].concat();
        let test = BlockTest::running(measure(&code)).balance(at, 1);
        let pushes = 3 + 2 + 3 + 3 + 3 + 2 + 3 + if opcode == 0xf5 { 2 } else { 0 };
        assert_eq!(
            test.then(Tx::default()).run().logged(),
            [pushes + 12_000 + word + 2 + 2],
            "{opcode:x}"
        );
    }
}

#[test]
fn slotnum_is_the_slot_of_the_header_for_2_gas() {
    let ran = BlockTest::running([vec![0x4b], log_top()].concat())
        .then(Tx::default())
        .run();
    assert_eq!(ran.logged(), [5]);
    assert_eq!(cost(&[0x4b, 0x50]), 4);
}

/// Runs an opcode on the words 1 to 40, 40 on top; returns the top word.
fn reach(code: &[u8]) -> Option<u64> {
    let words: Vec<u8> = (1..=40).flat_map(|word| [0x60, word]).collect();
    let test = BlockTest::running([words, code.to_vec(), log_top()].concat());
    test.then(Tx::default()).run().logged().first().copied()
}

#[test]
fn dupn_copies_the_word_at_the_depth_of_its_immediate() {
    assert_eq!(reach(&[0xe6, 0x80]), Some(40 - 16));
    assert_eq!(reach(&[0xe6, 0x81]), Some(40 - 17));
    assert_eq!(reach(&[0xe6, 0x97]), Some(1));
    // One deeper than the stack.
    assert_eq!(reach(&[0xe6, 0x98]), None);
}

#[test]
fn swapn_swaps_the_top_with_the_word_one_below_its_depth() {
    assert_eq!(reach(&[0xe7, 0x80]), Some(40 - 17));
    assert_eq!(reach(&[0xe7, 0x96]), Some(1));
    assert_eq!(reach(&[0xe7, 0x97]), None);
}

#[test]
fn exchange_swaps_two_words_below_the_top() {
    // 143 xor 0x8e = 0x01: the second and the third.
    assert_eq!(reach(&[0xe8, 0x8e, 0x50]), Some(38));
    assert_eq!(reach(&[0xe8, 0x8e, 0x50, 0x50]), Some(39));
    assert_eq!(reach(&[0xe8, 0x8e]), Some(40));
}

#[test]
fn immediate_jumpdest_is_invalid_and_a_jump_destination() {
    for opcode in [0xe6, 0xe7, 0xe8] {
        for immediate in [0x5b, 0x60, 0x7f] {
            assert_eq!(reach(&[opcode, immediate, 0x00]), None, "{immediate:x}");
        }
    }
    // JUMPDEST as an immediate is a valid jump destination.
    let ran =
        BlockTest::running([&[0x60, 0x04, 0x56, 0xe6, 0x5b, 0x60, 1][..], &log_top()].concat())
            .then(Tx::default())
            .run();
    assert_eq!(ran.logged(), [1]);
}

#[test]
fn immediate_beyond_the_code_is_0() {
    // 145 + 0: the 145th word.
    let words: Vec<u8> = (0..=144).flat_map(|word| [0x60, word]).collect();
    let enough = BlockTest::running([words.clone(), vec![0xe6]].concat());
    assert!(enough.then(Tx::default()).run().succeeded(0));
    let few = BlockTest::running([words[2..].to_vec(), vec![0xe6]].concat());
    assert!(!few.then(Tx::default()).run().succeeded(0));
}

#[test]
fn deployed_code_has_at_most_65_536_bytes() {
    for (size, succeeds) in [(0x01_0000_u32, true), (0x01_0001, false)] {
        let [_, high, middle, low] = size.to_be_bytes();
        let tx = Tx {
            gas: 130_000_000,
            ..Tx::create([0x62, high, middle, low, 0x5f, 0xf3])
        };
        let mut test = BlockTest::new();
        test.header.gas_limit = 1 << 30;
        let ran = test.then(tx).run();
        assert_eq!(ran.succeeded(0), succeeds, "{size}");
    }
}

#[test]
fn init_code_of_create_has_at_most_131_072_bytes() {
    for (size, succeeds) in [(0x02_0000_u32, true), (0x02_0001, false)] {
        let [_, high, middle, low] = size.to_be_bytes();
        let ran = BlockTest::running([0x62, high, middle, low, 0x5f, 0x5f, 0xf0])
            .then(Tx::default())
            .run();
        assert_eq!(ran.succeeded(0), succeeds, "{size}");
        assert!(succeeds || ran.gas(0) == GAS);
    }
}
