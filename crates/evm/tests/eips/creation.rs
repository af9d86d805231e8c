//! Creations, and the end of contracts.

use crate::machine::{CALLEE, Machine, OTHER, push};
use niwaki_evm::Exit;
use niwaki_primitives::{Account, Address, Fork, U256};

/// Creates with `init` (hex, at most 32 bytes) by CREATE; returns the address or zero.
fn creates(init: &str) -> String {
    let length = init.len() / 2;
    format!("7f{init:0<64}600052 60{length:02x}6000 6000f0 60005260206000f3").replace(' ', "")
}

#[test]
fn new_contract_has_nonce_1_from_eip_161() {
    for (fork, nonce) in [(Fork::Homestead, 0), (Fork::SpuriousDragon, 1)] {
        let ran = Machine::new(fork, &creates("00")).run();
        let address = CALLEE.create(1);
        assert_eq!(
            ran.number(),
            U256::from_be_bytes(address.into_word().0),
            "{fork}"
        );
        let (_, change) = ran
            .diff
            .accounts
            .iter()
            .find(|(a, _)| *a == address)
            .expect("created");
        assert_eq!(change.new.map(|account| account.nonce), Some(nonce));
    }
}

#[test]
fn code_that_begins_with_ef_is_refused_from_eip_3541() {
    // mstore8(0, 0xef); return mem[0..1]
    let init = "60ef60005360016000f3";
    assert_ne!(
        Machine::new(Fork::Berlin, &creates(init)).run().number(),
        U256::ZERO
    );
    assert_eq!(
        Machine::new(Fork::London, &creates(init)).run().number(),
        U256::ZERO
    );
}

#[test]
fn code_beyond_24576_bytes_is_refused_from_eip_170() {
    let at_limit = "6160006000f3"; // return mem[0..0x6000]
    let beyond = "6160016000f3";
    let address = |fork, init| Machine::new(fork, &creates(init)).run().number();
    assert_ne!(address(Fork::SpuriousDragon, at_limit), U256::ZERO);
    assert_eq!(address(Fork::SpuriousDragon, beyond), U256::ZERO);
    assert_ne!(address(Fork::TangerineWhistle, beyond), U256::ZERO);
}

#[test]
fn init_code_beyond_49152_bytes_runs_out_of_gas_from_eip_3860() {
    let create = |length: &str| format!("{length}60006000f0");
    let run = |fork, length| Machine::new(fork, &create(length)).run();
    assert_eq!(run(Fork::Shanghai, "61c000").exit, Exit::Stop);
    assert!(run(Fork::Shanghai, "61c001").ran_out_of_gas());
    assert_eq!(run(Fork::Paris, "61c001").exit, Exit::Stop);
}

#[test]
fn address_collision_costs_all_but_one_64th_and_increments_the_nonce() {
    let taken = CALLEE.create(1);
    let ran = Machine::new(Fork::Shanghai, &creates("00"))
        .with(taken, 0, "00")
        .run();
    assert_eq!(ran.number(), U256::ZERO);
    let (_, change) = &ran.diff.accounts[0];
    assert_eq!(change.new.map(|account| account.nonce), Some(2));
    assert!(
        ran.gas_used > 9_000_000,
        "all but a 64th is gone: {}",
        ran.gas_used
    );
}

#[test]
fn create2_address_is_hash_of_salt_and_init_code() {
    // create2(0, 0, 0, 7)
    let code = "60076000600060 00f560005260206000f3".replace(' ', "");
    let ran = Machine::new(Fork::Constantinople, &code).run();
    let address = CALLEE.create2_from_code(U256::from(7).to_be_bytes::<32>(), []);
    assert_eq!(ran.number(), U256::from_be_bytes(address.into_word().0));
}

#[test]
fn selfdestruct_deletes_old_accounts_only_before_eip_6780() {
    let code = format!("{}ff", push(OTHER));
    let after = |fork| {
        let ran = Machine::new(fork, &code).with_slot(3, 9).run();
        assert_eq!(ran.exit, Exit::SelfDestruct);
        let find = |address: Address| {
            let found = ran.diff.accounts.iter().find(|(a, _)| *a == address);
            found.expect("changed").1.clone()
        };
        (
            find(CALLEE),
            find(OTHER).new.map(|account: Account| account.balance),
            ran.refund,
        )
    };
    let (callee, beneficiary, refund) = after(Fork::Berlin);
    assert_eq!(
        (callee.new, callee.storage_wiped, beneficiary),
        (None, true, Some(U256::from(1000)))
    );
    assert_eq!(refund, 24_000);
    let (callee, beneficiary, refund) = after(Fork::Cancun);
    assert_eq!(callee.new.map(|account| account.balance), Some(U256::ZERO));
    assert!(!callee.storage_wiped);
    assert_eq!((beneficiary, refund), (Some(U256::from(1000)), 0));
}

#[test]
fn selfdestruct_in_init_code_leaves_no_account() {
    // The init code destroys itself in favour of its creator.
    for fork in [Fork::Berlin, Fork::Cancun] {
        let ran = Machine::new(fork, &creates("33ff")).run();
        let created = CALLEE.create(1);
        assert!(
            ran.diff
                .accounts
                .iter()
                .all(|(address, _)| *address != created),
            "{fork}"
        );
    }
}
