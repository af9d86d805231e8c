//! SSTORE's prices and refunds, and transient storage.

use crate::machine::Machine;
use niwaki_evm::{Exit, HaltReason};
use niwaki_primitives::{Fork, U256};

/// Code that stores the values one after another in slot 0.
fn stores(values: &[u8]) -> String {
    values
        .iter()
        .map(|value| format!("60{value:02x}600055"))
        .collect()
}

/// Gas beyond the pushes, and refund, of storing `values` over `original`.
fn price(fork: Fork, original: u64, values: &[u8]) -> (u64, i64) {
    let mut machine = Machine::new(fork, &stores(values));
    if original != 0 {
        machine = machine.with_slot(0, original);
    }
    let ran = machine.run();
    assert_eq!(ran.exit, Exit::Stop);
    (ran.gas_used - 6 * values.len() as u64, ran.refund)
}

#[test]
fn legacy_sstore_looks_at_current_and_new_value() {
    for fork in [Fork::Frontier, Fork::Byzantium, Fork::Petersburg] {
        assert_eq!(price(fork, 0, &[1]), (20_000, 0));
        assert_eq!(price(fork, 0, &[1, 0]), (25_000, 15_000));
        assert_eq!(price(fork, 1, &[0, 1]), (25_000, 15_000));
        assert_eq!(price(fork, 1, &[1]), (5_000, 0));
    }
}

#[test]
fn eip_1283_prices_constantinople_alone() {
    // From the EIP's table.
    assert_eq!(price(Fork::Constantinople, 0, &[0, 0]), (400, 0));
    assert_eq!(price(Fork::Constantinople, 0, &[0, 1]), (20_200, 0));
    assert_eq!(price(Fork::Constantinople, 0, &[1, 0]), (20_200, 19_800));
    assert_eq!(price(Fork::Constantinople, 1, &[0, 0]), (5_200, 15_000));
    assert_eq!(price(Fork::Constantinople, 1, &[0, 1]), (5_200, 4_800));
    assert_eq!(price(Fork::Constantinople, 1, &[2, 0]), (5_200, 15_000));
}

#[test]
fn eip_2200_prices_from_istanbul() {
    // From the EIP's table.
    assert_eq!(price(Fork::Istanbul, 0, &[0, 0]), (1_600, 0));
    assert_eq!(price(Fork::Istanbul, 0, &[1, 0]), (20_800, 19_200));
    assert_eq!(price(Fork::Istanbul, 1, &[0, 1]), (5_800, 4_200));
    assert_eq!(price(Fork::Istanbul, 1, &[0, 1, 0]), (10_800, 19_200));
}

#[test]
fn eip_2929_and_3529_prices_from_london() {
    assert_eq!(price(Fork::London, 0, &[1]), (22_100, 0));
    assert_eq!(price(Fork::London, 0, &[1, 0]), (22_200, 19_900));
    assert_eq!(price(Fork::London, 1, &[0]), (5_000, 4_800));
    assert_eq!(price(Fork::London, 1, &[0, 1]), (5_100, 2_800));
    assert_eq!(price(Fork::London, 1, &[2, 1]), (5_100, 2_800));
}

#[test]
fn eip_2200_sstore_fails_with_the_stipend_left_and_works_with_one_more() {
    // Storing what is there costs 800, yet 2301 gas must be left before it.
    let machine = Machine::new(Fork::Istanbul, &stores(&[0]));
    assert!(machine.run_with(6 + 2_300).ran_out_of_gas());
    assert_eq!(machine.run_with(6 + 2_301).exit, Exit::Stop);
}

#[test]
fn transient_storage_lives_within_the_transaction_and_reverts_with_its_frame() {
    // tstore(0, 7); return tload(0)
    let ran = Machine::new(Fork::Cancun, "600760005d60005c60005260206000f3").run();
    assert_eq!(ran.number(), U256::from(7));
    assert!(
        ran.diff
            .accounts
            .iter()
            .all(|(_, account)| account.slots.is_empty())
    );
    Machine::new(Fork::Cancun, "600760005d").costs(3 + 3 + 100);
    // The callee calls itself: the inner call (with one byte of input) stores and reverts.
    let code = "36601157 5f5f60015f5f305af150 601a56 5b600760005d5f5ffd 5b60005c60005260206000f3";
    let ran = Machine::new(Fork::Cancun, &code.replace(' ', "")).run();
    assert_eq!((ran.exit, ran.number()), (Exit::Return, U256::ZERO));
}

#[test]
fn a_static_call_may_not_write() {
    // staticcall(gas, self with input, ...) -> the inner frame tries; returns its success.
    for write in ["60015f55", "60015f5d", "5f5fa0", "5f5f5ff0", "30ff"] {
        let inner = format!("5b{write}00");
        let code = format!(
            "366018575f5f60015f305afa60005260206000f3{}{inner}",
            "00".repeat(4)
        );
        let ran = Machine::new(Fork::Cancun, &code).run();
        assert_eq!(ran.exit, Exit::Return, "{write}");
        assert_eq!(
            ran.number(),
            U256::ZERO,
            "{write} must fail in a static call"
        );
        assert!(ran.logs.is_empty());
    }
    // On its own it may.
    assert_ne!(
        Machine::new(Fork::Cancun, "60015f55").run().exit,
        Exit::Halt(HaltReason::WriteInStaticContext)
    );
}
