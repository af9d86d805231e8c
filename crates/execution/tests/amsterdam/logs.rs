//! EIP-7708: ether that moves leaves a log, in its place among the others.

use super::{
    code::{ALL, call, call_by, create_by, destroy, push, tell},
    scene::{COINBASE, MAIN, NOBODY, OTHER, Ran, SOMEBODY, SYSTEM_ADDRESS, Scene, Tx, sender},
};
use niwaki_primitives::Withdrawal;

fn run(scene: Scene, value: u64) -> Ran {
    scene
        .then(Tx {
            value,
            ..Tx::default()
        })
        .run()
}

#[test]
fn the_value_of_a_transaction_is_logged() {
    for to in [SOMEBODY, NOBODY] {
        let tx = Tx {
            value: 9,
            ..Tx::to(to)
        };
        let ran = Scene::new().then(tx).run();
        assert_eq!(ran.transfers(), [(sender(), to, 9)]);
    }
    let tx = Tx {
        value: 9,
        ..Tx::create(vec![])
    };
    let created = sender().create(0);
    assert_eq!(
        Scene::new().then(tx).run().transfers(),
        [(sender(), created, 9)]
    );
}

#[test]
fn no_value_and_value_to_oneself_leave_no_log() {
    for (to, value) in [(SOMEBODY, 0), (sender(), 9)] {
        let tx = Tx {
            value,
            ..Tx::to(to)
        };
        assert_eq!(Scene::new().then(tx).run().receipts[0].logs, []);
    }
}

#[test]
fn fees_and_withdrawals_leave_no_log() {
    let mut scene = Scene::new();
    scene.withdrawals.push(Withdrawal {
        index: 0,
        validator_index: 0,
        address: SOMEBODY,
        amount: 1,
    });
    scene.header.beneficiary = COINBASE;
    let ran = scene.then(Tx::to(SOMEBODY)).run();
    assert_eq!(ran.transfers(), []);
    assert!(ran.balance(COINBASE).is_some());
}

#[test]
fn a_transfer_comes_before_the_logs_of_the_code_that_it_starts() {
    let scene = Scene::running([push(1), tell(), call(OTHER, 3, ALL), push(2), tell()].concat())
        .balance(MAIN, 5)
        .code(OTHER, [push(7), tell()].concat());
    let ran = run(scene, 4);
    let emitters: Vec<_> = ran.receipts[0].logs.iter().map(|log| log.address).collect();
    assert_eq!(
        emitters,
        [SYSTEM_ADDRESS, MAIN, SYSTEM_ADDRESS, OTHER, MAIN]
    );
    assert_eq!(ran.transfers(), [(sender(), MAIN, 4), (MAIN, OTHER, 3)]);
    assert_eq!(ran.told(), [1, 7, 2]);
}

#[test]
fn the_bloom_of_a_block_knows_of_transfers() {
    let ran = run(Scene::running(vec![]), 1);
    assert_eq!(ran.receipts[0].logs.len(), 1);
    let bloom = ran.receipts[0].bloom();
    assert!(bloom.contains_input(niwaki_primitives::BloomInput::Raw(
        SYSTEM_ADDRESS.as_slice()
    )));
}

#[test]
fn calls_that_move_nothing_leave_no_log() {
    for opcode in [0xf2, 0xf4, 0xfa] {
        let scene = Scene::running(call_by(opcode, OTHER, 1, ALL)).balance(MAIN, 5);
        assert_eq!(run(scene, 0).receipts[0].logs, [], "{opcode:x}");
    }
    for (to, value) in [(OTHER, 0), (MAIN, 1), (OTHER, 6)] {
        // Without value; to oneself; more than there is.
        let scene = Scene::running(call(to, value, 0)).balance(MAIN, 5);
        assert_eq!(run(scene, 0).transfers(), [], "{to} {value}");
    }
}

#[test]
fn a_call_that_fails_takes_its_transfers_along() {
    for end in [&[0x5f, 0x5f, 0xfd][..], &[0xfe]] {
        let scene = Scene::running(call(OTHER, 1, 50_000))
            .balance(MAIN, 5)
            .balance(OTHER, 1)
            .code(OTHER, [&call(SOMEBODY, 1, 0)[..], end].concat());
        assert_eq!(run(scene, 0).receipts[0].logs, []);
    }
    let scene = Scene::running([0x5f, 0x5f, 0xfd]);
    assert_eq!(run(scene, 1).receipts[0].logs, []);
}

#[test]
fn an_endowment_is_logged() {
    for opcode in [0xf0, 0xf5] {
        let init = [0x00];
        let scene = Scene::running(create_by(opcode, &init, 2)).balance(MAIN, 5);
        let created = match opcode {
            0xf0 => MAIN.create(1),
            _ => MAIN.create2_from_code([0; 32], init),
        };
        assert_eq!(run(scene, 0).transfers(), [(MAIN, created, 2)]);
    }
    let reverts = create_by(0xf0, &[0x5f, 0x5f, 0xfd], 2);
    let scene = Scene::running(reverts).balance(MAIN, 5);
    assert_eq!(run(scene, 0).transfers(), []);
}

#[test]
fn selfdestruct_to_another_is_logged_and_to_itself_is_not() {
    let scene = |heir| Scene::running(destroy(heir)).balance(MAIN, 5);
    assert_eq!(run(scene(NOBODY), 0).transfers(), [(MAIN, NOBODY, 5)]);
    assert_eq!(run(scene(MAIN), 0).transfers(), []);
    assert_eq!(run(Scene::running(destroy(NOBODY)), 0).transfers(), []);
}

#[test]
fn a_contract_that_is_created_and_destroyed_keeps_what_it_has_and_burns_nothing() {
    // Init code that destroys itself to itself, with an endowment.
    let tx = Tx {
        value: 5,
        ..Tx::create([0x60, 1, 0x60, 1, 0x55, 0x30, 0xff])
    };
    let created = sender().create(0);
    let ran = Scene::new().then(tx).run();
    assert_eq!(
        ran.gas(0),
        24_000 + 4 * 16 + 3 * 16 + 2 + 6 + 12_100 + 2 + 5_000 + 281_520
    );
    assert_eq!(ran.transfers(), [(sender(), created, 5)]);
    let left = &ran.state.accounts[&created];
    assert_eq!((left.nonce, left.code.len(), left.storage.len()), (0, 0, 0));
    assert_eq!(ran.balance(created), Some(niwaki_primitives::U256::from(5)));
}

#[test]
fn a_contract_that_is_created_and_destroyed_without_money_is_gone_and_may_come_again() {
    let factory = create_by(0xf5, &[0x33, 0xff], 0);
    let ran = Scene::running(factory)
        .then(Tx::default())
        .then(Tx::default())
        .run();
    let created = MAIN.create2_from_code([0; 32], [0x33, 0xff]);
    assert_eq!(ran.state.accounts.get(&created), None);
    assert!(ran.succeeded(0) && ran.succeeded(1));
    assert_eq!(ran.gas(0), ran.gas(1));
}
