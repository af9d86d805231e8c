//! EIP-7708: logs of transfers, in order among the other logs.

use super::{
    block_test::{
        ABSENT, BlockResult, BlockTest, COINBASE, EXISTING, MAIN, OTHER, SYSTEM_ADDRESS, Tx, sender,
    },
    code::{ALL, call, call_by, create_by, destroy, log_top, push},
};
use niwaki_primitives::Withdrawal;

fn run(test: BlockTest, value: u64) -> BlockResult {
    test.then(Tx {
        value,
        ..Tx::default()
    })
    .run()
}

#[test]
fn value_of_a_transaction_is_logged() {
    for to in [EXISTING, ABSENT] {
        let tx = Tx {
            value: 9,
            ..Tx::to(to)
        };
        let ran = BlockTest::new().then(tx).run();
        assert_eq!(ran.transfers(), [(sender(), to, 9)]);
    }
    let tx = Tx {
        value: 9,
        ..Tx::create(vec![])
    };
    let created = sender().create(0);
    assert_eq!(
        BlockTest::new().then(tx).run().transfers(),
        [(sender(), created, 9)]
    );
}

#[test]
fn zero_value_and_value_to_oneself_are_not_logged() {
    for (to, value) in [(EXISTING, 0), (sender(), 9)] {
        let tx = Tx {
            value,
            ..Tx::to(to)
        };
        assert_eq!(BlockTest::new().then(tx).run().receipts[0].logs, []);
    }
}

#[test]
fn fees_and_withdrawals_are_not_logged() {
    let mut test = BlockTest::new();
    test.withdrawals.push(Withdrawal {
        index: 0,
        validator_index: 0,
        address: EXISTING,
        amount: 1,
    });
    test.header.beneficiary = COINBASE;
    let ran = test.then(Tx::to(EXISTING)).run();
    assert_eq!(ran.transfers(), []);
    assert!(ran.balance(COINBASE).is_some());
}

#[test]
fn transfer_log_precedes_logs_of_the_callee() {
    let test =
        BlockTest::running([push(1), log_top(), call(OTHER, 3, ALL), push(2), log_top()].concat())
            .balance(MAIN, 5)
            .code(OTHER, [push(7), log_top()].concat());
    let ran = run(test, 4);
    let emitters: Vec<_> = ran.receipts[0].logs.iter().map(|log| log.address).collect();
    assert_eq!(
        emitters,
        [SYSTEM_ADDRESS, MAIN, SYSTEM_ADDRESS, OTHER, MAIN]
    );
    assert_eq!(ran.transfers(), [(sender(), MAIN, 4), (MAIN, OTHER, 3)]);
    assert_eq!(ran.logged(), [1, 7, 2]);
}

#[test]
fn bloom_contains_transfer_logs() {
    let ran = run(BlockTest::running(vec![]), 1);
    assert_eq!(ran.receipts[0].logs.len(), 1);
    let bloom = ran.receipts[0].bloom();
    assert!(bloom.contains_input(niwaki_primitives::BloomInput::Raw(
        SYSTEM_ADDRESS.as_slice()
    )));
}

#[test]
fn calls_without_transfer_log_nothing() {
    for opcode in [0xf2, 0xf4, 0xfa] {
        let test = BlockTest::running(call_by(opcode, OTHER, 1, ALL)).balance(MAIN, 5);
        assert_eq!(run(test, 0).receipts[0].logs, [], "{opcode:x}");
    }
    for (to, value) in [(OTHER, 0), (MAIN, 1), (OTHER, 6)] {
        // No value; to oneself; more than the balance.
        let test = BlockTest::running(call(to, value, 0)).balance(MAIN, 5);
        assert_eq!(run(test, 0).transfers(), [], "{to} {value}");
    }
}

#[test]
fn failed_call_reverts_its_transfer_logs() {
    for end in [&[0x5f, 0x5f, 0xfd][..], &[0xfe]] {
        let test = BlockTest::running(call(OTHER, 1, 50_000))
            .balance(MAIN, 5)
            .balance(OTHER, 1)
            .code(OTHER, [&call(EXISTING, 1, 0)[..], end].concat());
        assert_eq!(run(test, 0).receipts[0].logs, []);
    }
    let test = BlockTest::running([0x5f, 0x5f, 0xfd]);
    assert_eq!(run(test, 1).receipts[0].logs, []);
}

#[test]
fn endowment_is_logged() {
    for opcode in [0xf0, 0xf5] {
        let init = [0x00];
        let test = BlockTest::running(create_by(opcode, &init, 2)).balance(MAIN, 5);
        let created = match opcode {
            0xf0 => MAIN.create(1),
            _ => MAIN.create2_from_code([0; 32], init),
        };
        assert_eq!(run(test, 0).transfers(), [(MAIN, created, 2)]);
    }
    let reverts = create_by(0xf0, &[0x5f, 0x5f, 0xfd], 2);
    let test = BlockTest::running(reverts).balance(MAIN, 5);
    assert_eq!(run(test, 0).transfers(), []);
}

#[test]
fn selfdestruct_to_another_is_logged_and_to_itself_is_not() {
    let test = |beneficiary| BlockTest::running(destroy(beneficiary)).balance(MAIN, 5);
    assert_eq!(run(test(ABSENT), 0).transfers(), [(MAIN, ABSENT, 5)]);
    assert_eq!(run(test(MAIN), 0).transfers(), []);
    assert_eq!(run(BlockTest::running(destroy(ABSENT)), 0).transfers(), []);
}

#[test]
fn contract_created_and_destroyed_keeps_its_balance() {
    // Init code that self-destructs to itself, with an endowment.
    let tx = Tx {
        value: 5,
        ..Tx::create([0x60, 1, 0x60, 1, 0x55, 0x30, 0xff])
    };
    let created = sender().create(0);
    let ran = BlockTest::new().then(tx).run();
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
fn contract_created_and_destroyed_without_balance_is_deleted_and_can_be_created_again() {
    let factory = create_by(0xf5, &[0x33, 0xff], 0);
    let ran = BlockTest::running(factory)
        .then(Tx::default())
        .then(Tx::default())
        .run();
    let created = MAIN.create2_from_code([0; 32], [0x33, 0xff]);
    assert_eq!(ran.state.accounts.get(&created), None);
    assert!(ran.succeeded(0) && ran.succeeded(1));
    assert_eq!(ran.gas(0), ran.gas(1));
}
