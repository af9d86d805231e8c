//! Which gas pays for state, and who gets it back: reservoir, what was lent, frames that fail.

use super::{
    code::{ALL, call, create_by, measure, push, sstore, tell},
    scene::{CAP, GAS, MAIN, NOBODY, OTHER, Ran, SOMEBODY, Scene, Tx},
};
use niwaki_primitives::{U256, hex};

const REVERT: [u8; 3] = [0x5f, 0x5f, 0xfd];

fn run(scene: Scene, gas: u64) -> Ran {
    scene
        .then(Tx {
            gas,
            ..Tx::default()
        })
        .run()
}

/// Calls [`OTHER`] with 1 byte and then with none, and logs GAS after each, in one log.
fn sets_and_clears() -> Scene {
    let caller = hex!(
        "6000600060016000600073bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5af1505a600052"
        "6000600060006000600073bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5af1505a602052"
        "60406000a000"
    );
    // Slot 0 becomes the size of the input.
    Scene::running(caller).code(OTHER, hex!("3660005500"))
}

#[test]
fn a_slot_set_in_one_frame_and_cleared_in_another_pays_its_loan_back() {
    // The first call has lent 97,920, or the reservoir has paid them; after the second one all are
    // back where they came from.
    for (gas, first, second) in [
        (0x10_0000, 0xe_0bcc, 0xf_8961),
        (CAP + 97_920, 0xff_8a4c, 0xff_8961),
    ] {
        let ran = run(sets_and_clears(), gas);
        let data = &ran.receipts[0].logs[0].data.data;
        let told = [&data[..32], &data[32..]].map(U256::from_be_slice);
        assert_eq!(told, [first, second].map(U256::from));
        assert_eq!(ran.slot(OTHER, 0), U256::ZERO);
        // 31,269 before the refund of a fifth.
        assert_eq!((ran.gas(0), ran.gas_used), (25_016, 31_269));
    }
}

#[test]
fn both_purses_give_the_same_price() {
    let from_gas = run(sets_and_clears(), GAS);
    let from_reservoir = run(sets_and_clears(), CAP + 97_920);
    assert_eq!(from_gas.gas(0), from_reservoir.gas(0));
    assert_eq!(from_gas.gas_used, from_reservoir.gas_used);
}

#[test]
fn gas_tells_nothing_of_the_reservoir() {
    let tells = || Scene::running([vec![0x5a], tell()].concat());
    assert_eq!(run(tells(), CAP).told(), [CAP - 15_000 - 2]);
    assert_eq!(run(tells(), CAP + 500_000).told(), [CAP - 15_000 - 2]);
}

#[test]
fn the_reservoir_pays_first() {
    let scene = || Scene::running(measure(&sstore(0, 1)));
    assert_eq!(run(scene(), CAP).told(), [6 + 12_100 + 97_920 + 2]);
    assert_eq!(run(scene(), CAP + 97_920).told(), [6 + 12_100 + 2]);
    assert_eq!(run(scene(), CAP + 97_919).told(), [6 + 12_100 + 1 + 2]);
}

#[test]
fn a_transaction_that_reverts_gets_its_state_gas_back() {
    let scene = || Scene::running([sstore(0, 1), REVERT.to_vec()].concat());
    for gas in [GAS, CAP + 97_920] {
        let ran = run(scene(), gas);
        assert!(!ran.succeeded(0));
        assert_eq!(ran.gas(0), 15_000 + 6 + 12_100 + 4);
        assert_eq!(ran.gas_used, ran.gas(0));
    }
}

#[test]
fn a_transaction_that_halts_burns_what_was_lent_and_keeps_the_reservoir() {
    let scene = || Scene::running([sstore(0, 1), vec![0xfe]].concat());
    assert_eq!(run(scene(), 200_000).gas(0), 200_000);
    assert_eq!(run(scene(), CAP + 97_920).gas(0), CAP);
    assert_eq!(run(scene(), CAP + 50_000).gas(0), CAP);
}

#[test]
fn a_frame_that_reverts_gives_its_caller_back_what_it_lent() {
    let scene =
        Scene::running(call(OTHER, 0, ALL)).code(OTHER, [sstore(0, 1), REVERT.to_vec()].concat());
    let ran = run(scene, GAS);
    assert!(ran.succeeded(0));
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 6 + 12_100 + 4);
}

#[test]
fn a_frame_that_halts_burns_what_it_lent() {
    let scene =
        |gas| Scene::running(call(OTHER, 0, gas)).code(OTHER, [sstore(0, 1), vec![0xfe]].concat());
    let ran = run(scene(150_000), GAS);
    assert!(ran.succeeded(0));
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 150_000);
    // The reservoir is as full as before.
    let ran = run(scene(150_000), CAP + 97_920);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 150_000);
}

#[test]
fn a_callee_may_use_the_whole_reservoir() {
    let scene =
        |gas| Scene::running([call(OTHER, 0, gas), tell()].concat()).code(OTHER, sstore(0, 1));
    assert_eq!(run(scene(12_106), CAP + 97_920).told(), [1]);
    assert_eq!(run(scene(12_105), CAP + 97_920).told(), [0]);
    assert_eq!(run(scene(12_106), CAP + 97_919).told(), [0]);
    assert_eq!(run(scene(12_107), CAP + 97_919).told(), [1]);
    assert_eq!(run(scene(12_106 + 97_920), GAS).told(), [1]);
    assert_eq!(run(scene(12_105 + 97_920), GAS).told(), [0]);
}

#[test]
fn the_sentry_of_sstore_does_not_look_into_the_reservoir() {
    // Warm and without change: 100 gas, but more than 2,300 must be left.
    let scene = |gas| {
        Scene::running([vec![0x5f, 0x54, 0x50], call(OTHER, 0, gas), tell()].concat())
            .code(OTHER, [vec![0x5f, 0x54, 0x50], sstore(0, 0)].concat())
    };
    let sload = 2 + 2_100 + 2;
    assert_eq!(run(scene(sload + 6 + 2_300), CAP + 97_920).told(), [0]);
    assert_eq!(run(scene(sload + 6 + 2_301), CAP + 97_920).told(), [1]);
}

#[test]
fn value_to_nobody_pays_for_the_account_from_state_gas() {
    let scene =
        |to| Scene::running(measure(&[call(to, 1, ALL), vec![0x50]].concat())).balance(MAIN, 10);
    let stipend = 2_300;
    let plain = 17 + 3_000 + 11_300 - stipend + 2 + 2;
    assert_eq!(run(scene(SOMEBODY), GAS).told(), [plain]);
    assert_eq!(run(scene(NOBODY), GAS).told(), [plain + 183_600]);
    assert_eq!(run(scene(NOBODY), CAP + 183_600).told(), [plain]);
}

#[test]
fn without_value_nobody_costs_no_account() {
    let ran = run(Scene::running(call(NOBODY, 0, ALL)), GAS);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000);
    assert_eq!(ran.balance(NOBODY), None);
}

#[test]
fn value_that_the_caller_does_not_have_costs_no_account() {
    let ran = run(Scene::running(call(NOBODY, 1, ALL)), GAS);
    assert_eq!(ran.gas(0), 15_000 + 17 + 3_000 + 11_300 - 2_300);
}

#[test]
fn the_account_is_paid_before_the_callee_gets_its_share() {
    // One 64th of what is left after the account remains with the caller.
    let gas: u64 = 400_000;
    let left = gas - 15_000 - 17 - 3_000 - 11_300 - 183_600;
    let scene =
        Scene::running([call(OTHER, 1, ALL), vec![0x50, 0x5a], tell()].concat()).balance(MAIN, 1);
    // An account without code gives all back, with the stipend.
    assert_eq!(run(scene, gas).told(), [left + 2_300 - 2 - 2]);
    // 183,600 of the reservoir do not change what is split.
    let gas = CAP + 183_600;
    let halts = Scene::running([call(OTHER, 1, ALL), vec![0x50, 0x5a], tell()].concat())
        .balance(MAIN, 1)
        .code(OTHER, [0xfe]);
    let left: u64 = CAP - 15_000 - 17 - 3_000 - 11_300;
    assert_eq!(run(halts, gas).told(), [left / 64 - 2 - 2]);
}

#[test]
fn a_creation_by_code_pays_for_the_account_and_each_byte_of_code() {
    for opcode in [0xf0, 0xf5] {
        // Returns 5 bytes of memory: one word.
        let init = [0x60, 5, 0x5f, 0xf3];
        let scene = || Scene::running(measure(&[create_by(opcode, &init, 0), vec![0x50]].concat()));
        let (salt, word) = if opcode == 0xf5 { (2, 8) } else { (0, 2) };
        let around = 3 + 2 + 6 + 3 + 2 + 3 + salt + 2 + 2;
        let runs = 3 + 2 + 3;
        let execution = around + 12_000 + word + runs + 6;
        let state = 183_600 + 5 * 1_530;
        assert_eq!(run(scene(), GAS).told(), [execution + state], "{opcode:x}");
        assert_eq!(run(scene(), CAP + state).told(), [execution], "{opcode:x}");
    }
}

#[test]
fn a_creation_by_code_that_fails_gets_the_account_back() {
    for (init, gas) in [
        (&REVERT[..], 4),
        (&[0x60, 0xef, 0x5f, 0x53, 0x60, 1, 0x5f, 0xf3], 0),
    ] {
        let scene = Scene::running(measure(&[create_by(0xf0, init, 0), vec![0x50]].concat()));
        let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
        let told = run(scene, GAS).told();
        if gas == 0 {
            // Code that begins with 0xef: all but a 64th is burnt.
            assert!(told[0] > 700_000, "{told:?}");
            let scene = Scene::running(measure(&[create_by(0xf0, init, 0), vec![0x50]].concat()));
            let left: u64 = CAP - 15_000 - 2 - (around - 2 - 2) - 12_000 - 2;
            let burnt = left - left / 64;
            assert_eq!(
                run(scene, CAP + 183_600).told(),
                [around + 12_000 + 2 + burnt]
            );
        } else {
            assert_eq!(told, [around + 12_000 + 2 + gas]);
        }
    }
}

#[test]
fn an_endowment_that_the_creator_does_not_have_costs_no_account() {
    let scene = Scene::running(measure(&[create_by(0xf0, &[0], 1), vec![0x50]].concat()));
    let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
    assert_eq!(run(scene, GAS).told(), [around + 12_000 + 2]);
}

#[test]
fn a_creation_where_money_lies_pays_for_the_code_alone() {
    let scene = Scene::running(measure(
        &[create_by(0xf0, &[0x60, 1, 0x5f, 0xf3], 0), vec![0x50]].concat(),
    ))
    .balance(MAIN.create(1), 1);
    let around = 3 + 2 + 6 + 3 + 2 + 3 + 2 + 2;
    assert_eq!(
        run(scene, GAS).told(),
        [around + 12_000 + 2 + 8 + 6 + 1_530]
    );
}

#[test]
fn a_selfdestruct_to_nobody_pays_for_the_write_and_the_account() {
    let destroys = |to| Scene::running(super::code::destroy(to)).balance(MAIN, 1);
    let base = 15_000 + 3 + 5_000;
    assert_eq!(
        run(destroys(NOBODY), GAS).gas(0),
        base + 3_000 + 9_000 + 183_600
    );
    assert_eq!(run(destroys(SOMEBODY), GAS).gas(0), base + 3_000);
    assert_eq!(run(destroys(MAIN), GAS).gas(0), base);
    let poor = Scene::running(super::code::destroy(NOBODY));
    assert_eq!(run(poor, GAS).gas(0), base + 3_000);
}

#[test]
fn a_refill_comes_before_the_charge_that_it_makes_affordable() {
    // 0 -> 1 is lent 97,920; then all but a little is burnt by a callee; 1 -> 0 costs 100 and gives
    // the lent gas back first. What must be there is the sentry's 2,301.
    let code = [
        sstore(0, 1),
        vec![0x5a],
        push(0x50),
        vec![0x50, 0x50],
        sstore(0, 0),
        vec![0x5a],
        tell(),
    ]
    .concat();
    let spent = 15_000 + 6 + 12_100 + 97_920 + 2 + 3 + 4 + 6;
    let gas = spent + 2_301;
    let ran = run(Scene::running(code.clone()), gas);
    assert!(ran.succeeded(0));
    assert_eq!(ran.told(), [2_301 - 100 + 97_920 - 2]);
    assert!(!run(Scene::running(code), gas - 1).succeeded(0));
}
