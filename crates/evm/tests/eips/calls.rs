//! Calls: gas of the callee, value, depth, delegation.

use crate::machine::{CALLEE, Machine, OTHER, push};
use niwaki_evm::Exit;
use niwaki_primitives::{Address, Fork, U256};

/// Calls OTHER with `gas` (hex of a push) and no ranges; returns the word `then` leaves.
fn call(gas: &str, value: &str, then: &str) -> String {
    format!("5f5f5f5f{value}{}{gas}f1{then}5f5260205ff3", push(OTHER))
}

#[test]
fn callee_gets_all_but_one_64th_of_gas() {
    // The callee returns the gas it sees; 2 for GAS itself.
    let callee = "5a5f5260205ff3";
    let code = format!(
        "60205f5f5f5f{}61ffff5af1505f5160205260206020f3",
        push(OTHER)
    )
    .replace("61ffff", "");
    let machine = Machine::new(Fork::Shanghai, &code).with(OTHER, 0, callee);
    let ran = machine.run_with(100_000);
    assert_eq!(ran.exit, Exit::Return);
    // Before the call: 5 pushes, PUSH20, GAS; then the cold call; one 64th of the rest stays.
    let left = 100_000 - (3 + 4 * 2 + 3 + 2) - 2_600 - 3;
    let given = left - left / 64;
    let seen = U256::from_be_slice(&ran.output);
    assert_eq!(seen, U256::from(given - 2));
}

#[test]
fn call_with_more_gas_than_left_fails_before_eip_150() {
    let code = format!("60006000600060006000{}62ffffff f1", push(OTHER)).replace(' ', "");
    assert!(
        Machine::new(Fork::Homestead, &code)
            .run_with(100_000)
            .ran_out_of_gas()
    );
    let later = Machine::new(Fork::TangerineWhistle, &code)
        .with(OTHER, 0, "")
        .run_with(100_000);
    assert_eq!(later.exit, Exit::Stop);
}

#[test]
fn value_moves_and_the_stipend_is_free() {
    // The callee returns its gas: 2300 with a gas of zero.
    let code = format!("60205f5f5f6001{}5ff1505f5160205260206020f3", push(OTHER));
    let ran = Machine::new(Fork::Shanghai, &code)
        .with(OTHER, 5, "5a5f5260205ff3")
        .run();
    assert_eq!(ran.number(), U256::from(2_300 - 2));
    let balance = |address: Address| {
        let (_, change) = ran
            .diff
            .accounts
            .iter()
            .find(|(a, _)| *a == address)
            .expect("changed");
        change.new.expect("exists").balance
    };
    assert_eq!(
        (balance(CALLEE), balance(OTHER)),
        (U256::from(999), U256::from(6))
    );
}

#[test]
fn a_call_for_more_value_than_there_is_fails_and_gives_its_gas_back() {
    let poor = call("5f", "61ffff", "");
    let ran = Machine::new(Fork::Shanghai, &poor)
        .with(OTHER, 0, "00")
        .run();
    assert_eq!((ran.exit, ran.number()), (Exit::Return, U256::ZERO));
    assert!(ran.diff.is_empty());
}

#[test]
fn a_new_account_costs_25000_only_with_value_from_eip_161() {
    let gas = |fork, value: &str| {
        let code = format!("60006000600060006{value}{}6000f1", push(OTHER));
        Machine::new(fork, &code).run().gas_used
    };
    let pushes = 7 * 3;
    assert_eq!(gas(Fork::Homestead, "000"), pushes + 40 + 25_000);
    assert_eq!(gas(Fork::SpuriousDragon, "000"), pushes + 700);
    // 2300 of the 9000 are the stipend, which comes back from an account without code.
    assert_eq!(
        gas(Fork::SpuriousDragon, "001"),
        pushes + 700 + 9_000 + 25_000 - 2_300
    );
}

#[test]
fn calls_nest_1024_deep() {
    // Each frame calls itself with all its gas and returns the depth below it plus one.
    let code = "60205f5f5f5f305af1505f516001015f5260205ff3";
    // Without the 64th rule: Homestead gives a callee the gas it requests.
    let homestead = "6020600060006000600030 6107d05a03 f1506000516001016000526020 6000f3";
    let ran = Machine::new(Fork::Homestead, &homestead.replace(' ', "")).run_with(1 << 40);
    assert_eq!((ran.exit, ran.number()), (Exit::Return, U256::from(1025)));
    let ran = Machine::new(Fork::Shanghai, code).run_with(1 << 50);
    assert_eq!((ran.exit, ran.number()), (Exit::Return, U256::from(1025)));
}

#[test]
fn delegatecall_keeps_caller_value_and_storage() {
    // OTHER stores CALLER in slot 0.
    let code = format!("5f5f5f5f{}5af4", push(OTHER));
    let ran = Machine::new(Fork::Shanghai, &code)
        .with(OTHER, 0, "335f55")
        .run();
    let (address, change) = &ran.diff.accounts[0];
    assert_eq!(*address, CALLEE);
    let caller = U256::from_be_bytes(crate::machine::CALLER.into_word().0);
    assert_eq!(change.slots[0].1.new, caller);
}

#[test]
fn eip_7702_delegated_code_uses_storage_of_the_delegating_account() {
    // OTHER delegates to 0x77.., which stores 1 in slot 0: in OTHER's storage.
    let target = Address::repeat_byte(0x77);
    let designator = format!("ef0100{}", niwaki_primitives::hex::encode(target));
    let code = format!("5f5f5f5f5f{}5af1", push(OTHER));
    let machine = |fork| {
        Machine::new(fork, &code)
            .with(OTHER, 0, &designator)
            .with(target, 0, "60015f55")
    };
    let ran = machine(Fork::Prague).run();
    let (address, change) = &ran.diff.accounts[0];
    assert_eq!((*address, change.slots.len()), (OTHER, 1));
    // Before Prague the designator is code that begins with an undefined opcode.
    assert!(machine(Fork::Cancun).run().diff.is_empty());
    // EXTCODESIZE sees the designator itself.
    let size = format!("{}3b5f5260205ff3", push(OTHER));
    let ran = Machine::new(Fork::Prague, &size)
        .with(OTHER, 0, &designator)
        .run();
    assert_eq!(ran.number(), U256::from(23));
}
