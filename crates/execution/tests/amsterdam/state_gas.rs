//! State gas: charges to the reservoir and to the gas left, refills, and frames that fail.

use super::{
    block_test::{ABSENT, BlockResult, BlockTest, CAP, EXISTING, GAS, MAIN, OTHER, Tx},
    code::{ALL, call, create_by, log_top, measure, push, sstore},
};
use niwaki_primitives::{U256, hex};

const REVERT: [u8; 3] = [0x5f, 0x5f, 0xfd];

fn run(test: BlockTest, gas: u64) -> BlockResult {
    test.then(Tx {
        gas,
        ..Tx::default()
    })
    .run()
}

/// Calls [`OTHER`] with 1 byte and then with none, and logs GAS after each, in one log.
fn sets_and_clears() -> BlockTest {
    let caller = hex!(
        "6000600060016000600073bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5af1505a600052"
        "6000600060006000600073bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5af1505a602052"
        "60406000a000"
    );
    // Slot 0 becomes the size of the input.
    BlockTest::running(caller).code(OTHER, hex!("3660005500"))
}

#[test]
fn clearing_a_slot_in_another_frame_returns_97_920_state_gas() {
    // The first call charges 97,920 to the gas left or to the reservoir; the second one returns them to the same.
    for (gas, first, second) in [
        (0x10_0000, 0xe_0bcc, 0xf_8961),
        (CAP + 97_920, 0xff_8a4c, 0xff_8961),
    ] {
        let ran = run(sets_and_clears(), gas);
        let data = &ran.receipts[0].logs[0].data.data;
        let logged = [&data[..32], &data[32..]].map(U256::from_be_slice);
        assert_eq!(logged, [first, second].map(U256::from));
        assert_eq!(ran.slot(OTHER, 0), U256::ZERO);
        // 31,269 before the refund of a fifth.
        assert_eq!((ran.gas(0), ran.gas_used), (25_016, 31_269));
    }
}

#[test]
fn gas_used_is_the_same_from_reservoir_and_gas_left() {
    let from_gas = run(sets_and_clears(), GAS);
    let from_reservoir = run(sets_and_clears(), CAP + 97_920);
    assert_eq!(from_gas.gas(0), from_reservoir.gas(0));
    assert_eq!(from_gas.gas_used, from_reservoir.gas_used);
}

#[test]
fn gas_opcode_excludes_the_reservoir() {
    let log_gas = || BlockTest::running([vec![0x5a], log_top()].concat());
    assert_eq!(run(log_gas(), CAP).logged(), [CAP - 15_000 - 2]);
    assert_eq!(run(log_gas(), CAP + 500_000).logged(), [CAP - 15_000 - 2]);
}

#[test]
fn reservoir_pays_before_gas_left() {
    let test = || BlockTest::running(measure(&sstore(0, 1)));
    assert_eq!(run(test(), CAP).logged(), [6 + 12_100 + 97_920 + 2]);
    assert_eq!(run(test(), CAP + 97_920).logged(), [6 + 12_100 + 2]);
    assert_eq!(run(test(), CAP + 97_919).logged(), [6 + 12_100 + 1 + 2]);
}

#[test]
fn reverted_transaction_gets_its_state_gas_back() {
    let test = || BlockTest::running([sstore(0, 1), REVERT.to_vec()].concat());
    for gas in [GAS, CAP + 97_920] {
        let ran = run(test(), gas);
        assert!(!ran.succeeded(0));
        assert_eq!(ran.gas(0), 15_000 + 6 + 12_100 + 4);
        assert_eq!(ran.gas_used, ran.gas(0));
    }
}

#[test]
fn halted_transaction_burns_gas_left_and_keeps_the_reservoir() {
    let test = || BlockTest::running([sstore(0, 1), vec![0xfe]].concat());
    assert_eq!(run(test(), 200_000).gas(0), 200_000);
    assert_eq!(run(test(), CAP + 97_920).gas(0), CAP);
    assert_eq!(run(test(), CAP + 50_000).gas(0), CAP);
}

#[test]
fn reverted_frame_returns_state_gas_to_gas_left() {
    let test = BlockTest::running(call(OTHER, 0, ALL))
        .code(OTHER, [sstore(0, 1), REVERT.to_vec()].concat());
    let ran = run(test, GAS);
    assert!(ran.succeeded(0));
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 6 + 12_100 + 4);
}

#[test]
fn halted_frame_burns_state_gas_from_gas_left() {
    let test = |gas| {
        BlockTest::running(call(OTHER, 0, gas)).code(OTHER, [sstore(0, 1), vec![0xfe]].concat())
    };
    let ran = run(test(150_000), GAS);
    assert!(ran.succeeded(0));
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 150_000);
    // The reservoir is as full as before.
    let ran = run(test(150_000), CAP + 97_920);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 150_000);
}

#[test]
fn callee_can_use_the_whole_reservoir() {
    let test = |gas| {
        BlockTest::running([call(OTHER, 0, gas), log_top()].concat()).code(OTHER, sstore(0, 1))
    };
    assert_eq!(run(test(12_106), CAP + 97_920).logged(), [1]);
    assert_eq!(run(test(12_105), CAP + 97_920).logged(), [0]);
    assert_eq!(run(test(12_106), CAP + 97_919).logged(), [0]);
    assert_eq!(run(test(12_107), CAP + 97_919).logged(), [1]);
    assert_eq!(run(test(12_106 + 97_920), GAS).logged(), [1]);
    assert_eq!(run(test(12_105 + 97_920), GAS).logged(), [0]);
}

#[test]
fn sstore_sentry_of_2300_excludes_the_reservoir() {
    // Warm and without change: 100 gas, but more than 2,300 must be left.
    let test = |gas| {
        BlockTest::running([vec![0x5f, 0x54, 0x50], call(OTHER, 0, gas), log_top()].concat())
            .code(OTHER, [vec![0x5f, 0x54, 0x50], sstore(0, 0)].concat())
    };
    let sload = 2 + 2_100 + 2;
    assert_eq!(run(test(sload + 6 + 2_300), CAP + 97_920).logged(), [0]);
    assert_eq!(run(test(sload + 6 + 2_301), CAP + 97_920).logged(), [1]);
}

#[test]
fn value_to_absent_account_charges_the_account_as_state_gas() {
    let test = |to| {
        BlockTest::running(measure(&[call(to, 1, ALL), vec![0x50]].concat())).balance(MAIN, 10)
    };
    let stipend = 2_300;
    let plain = 17 + 3_000 + 11_300 - stipend + 2 + 2;
    assert_eq!(run(test(EXISTING), GAS).logged(), [plain]);
    assert_eq!(run(test(ABSENT), GAS).logged(), [plain + 183_600]);
    assert_eq!(run(test(ABSENT), CAP + 183_600).logged(), [plain]);
}

#[test]
fn call_without_value_charges_no_new_account() {
    let ran = run(BlockTest::running(call(ABSENT, 0, ALL)), GAS);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000);
    assert_eq!(ran.balance(ABSENT), None);
}

#[test]
fn value_above_the_callers_balance_charges_no_new_account() {
    let ran = run(BlockTest::running(call(ABSENT, 1, ALL)), GAS);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 11_300 - 2_300);
}

#[test]
fn new_account_is_charged_before_the_63_64ths_of_the_callee() {
    // The caller keeps one 64th of the gas left after the charge.
    let gas: u64 = 400_000;
    let left = gas - 15_000 - 17 - 3_000 - 11_300 - 183_600;
    let test = BlockTest::running([call(OTHER, 1, ALL), vec![0x50, 0x5a], log_top()].concat())
        .balance(MAIN, 1);
    // An account without code returns all gas, with the stipend.
    assert_eq!(run(test, gas).logged(), [left + 2_300 - 2 - 2]);
    // 183,600 in the reservoir do not change the split of the gas left.
    let gas = CAP + 183_600;
    let halts = BlockTest::running([call(OTHER, 1, ALL), vec![0x50, 0x5a], log_top()].concat())
        .balance(MAIN, 1)
        .code(OTHER, [0xfe]);
    let left: u64 = CAP - 15_000 - 17 - 3_000 - 11_300;
    assert_eq!(run(halts, gas).logged(), [left / 64 - 2 - 2]);
}

#[test]
fn create_charges_the_account_and_each_byte_of_code() {
    for opcode in [0xf0, 0xf5] {
        // Returns 5 bytes of memory: one word.
        let init = [0x60, 5, 0x5f, 0xf3];
        let test =
            || BlockTest::running(measure(&[create_by(opcode, &init, 0), vec![0x50]].concat()));
        let (salt, word) = if opcode == 0xf5 { (2, 8) } else { (0, 2) };
        let around = 3 + 2 + 6 + 3 + 2 + 3 + salt + 2 + 2;
        let runs = 3 + 2 + 3;
        let execution = around + 12_000 + word + runs + 6;
        let state = 183_600 + 5 * 1_530;
        assert_eq!(run(test(), GAS).logged(), [execution + state], "{opcode:x}");
        assert_eq!(run(test(), CAP + state).logged(), [execution], "{opcode:x}");
    }
}

#[test]
fn failed_create_returns_the_charge_for_the_account() {
    for (init, gas) in [
        (&REVERT[..], 4),
        (&[0x60, 0xef, 0x5f, 0x53, 0x60, 1, 0x5f, 0xf3], 0),
    ] {
        let test = BlockTest::running(measure(&[create_by(0xf0, init, 0), vec![0x50]].concat()));
        let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
        let logged = run(test, GAS).logged();
        if gas == 0 {
            // Code that begins with 0xef: all but one 64th burns.
            assert!(logged[0] > 700_000, "{logged:?}");
            let test =
                BlockTest::running(measure(&[create_by(0xf0, init, 0), vec![0x50]].concat()));
            let left: u64 = CAP - 15_000 - 2 - (around - 2 - 2) - 12_000 - 2;
            let burnt = left - left / 64;
            assert_eq!(
                run(test, CAP + 183_600).logged(),
                [around + 12_000 + 2 + burnt]
            );
        } else {
            assert_eq!(logged, [around + 12_000 + 2 + gas]);
        }
    }
}

#[test]
fn endowment_above_the_creators_balance_charges_no_account() {
    let test = BlockTest::running(measure(&[create_by(0xf0, &[0], 1), vec![0x50]].concat()));
    let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
    assert_eq!(run(test, GAS).logged(), [around + 12_000 + 2]);
}

#[test]
fn create_at_address_with_balance_charges_only_the_code() {
    let test = BlockTest::running(measure(
        &[create_by(0xf0, &[0x60, 1, 0x5f, 0xf3], 0), vec![0x50]].concat(),
    ))
    .balance(MAIN.create(1), 1);
    let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
    assert_eq!(
        run(test, GAS).logged(),
        [around + 12_000 + 2 + 8 + 6 + 1_530]
    );
}

#[test]
fn selfdestruct_to_absent_account_charges_write_and_account() {
    let destroys = |to| BlockTest::running(super::code::destroy(to)).balance(MAIN, 1);
    let base = 15_000 + 3 + 5_000;
    assert_eq!(
        run(destroys(ABSENT), GAS).gas(0),
        base + 3_000 + 9_000 + 183_600
    );
    assert_eq!(run(destroys(EXISTING), GAS).gas(0), base + 3_000);
    assert_eq!(run(destroys(MAIN), GAS).gas(0), base);
    let poor = BlockTest::running(super::code::destroy(ABSENT));
    assert_eq!(run(poor, GAS).gas(0), base + 3_000);
}

#[test]
fn refill_precedes_the_charge_of_the_same_sstore() {
    // 0 -> 1 takes 97,920 from the gas left; then a callee burns most of the rest; 1 -> 0 costs 100 and first returns
    // the 97,920. Only the sentry's 2,301 must be left.
    let code = [
        sstore(0, 1),
        vec![0x5a],
        push(0x50),
        vec![0x50, 0x50],
        sstore(0, 0),
        vec![0x5a],
        log_top(),
    ]
    .concat();
    let spent = 15_000 + 6 + 12_100 + 97_920 + 2 + 3 + 4 + 6;
    let gas = spent + 2_301;
    let ran = run(BlockTest::running(code.clone()), gas);
    assert!(ran.succeeded(0));
    assert_eq!(ran.logged(), [2_301 - 100 + 97_920 - 2]);
    assert!(!run(BlockTest::running(code), gas - 1).succeeded(0));
}
