//! What makes a transaction invalid: the bounds of its gas, the room in the block, its init code.

use super::code::sstore;
use super::scene::{CAP, GAS, MAIN, SOMEBODY, Scene, Tx};
use niwaki_primitives::{AccessList, AccessListItem, Address, U256};

/// A block without bounds worth mentioning.
fn roomy() -> Scene {
    let mut scene = Scene::running(sstore(0, 1)).change(super::scene::sender(), |account| {
        account.balance = U256::MAX >> 1;
    });
    scene.header.gas_limit = 1 << 40;
    scene
}

fn with_gas(gas: u64) -> Tx {
    Tx {
        gas,
        ..Tx::to(SOMEBODY)
    }
}

#[test]
fn gas_below_the_intrinsic_gas_is_refused() {
    assert_eq!(roomy().then(with_gas(15_000)).refused(), None);
    assert_eq!(roomy().then(with_gas(14_999)).refused(), Some(0));
}

#[test]
fn gas_below_the_floor_is_refused() {
    let tx = |gas| Tx {
        gas,
        input: vec![0; 100].into(),
        ..Tx::to(SOMEBODY)
    };
    assert_eq!(roomy().then(tx(15_000 + 6_400)).refused(), None);
    assert_eq!(roomy().then(tx(15_000 + 6_399)).refused(), Some(0));
}

#[test]
fn gas_may_be_2_to_the_32nd_less_one_and_no_more() {
    assert_eq!(roomy().then(with_gas(u64::from(u32::MAX))).refused(), None);
    assert_eq!(roomy().then(with_gas(1 << 32)).refused(), Some(0));
}

#[test]
fn intrinsic_gas_has_the_bound_of_execution() {
    let tx = |addresses: usize| Tx {
        gas: CAP * 2,
        access_list: AccessList(vec![AccessListItem::default(); addresses]),
        ..Tx::to(SOMEBODY)
    };
    let most = usize::try_from((CAP - 15_000) / 4_180).unwrap();
    assert_eq!(roomy().then(tx(most)).refused(), None);
    assert_eq!(roomy().then(tx(most + 1)).refused(), Some(0));
}

#[test]
fn the_floor_has_the_bound_of_execution() {
    let tx = |bytes: usize| Tx {
        gas: CAP * 2,
        input: vec![0; bytes].into(),
        ..Tx::to(SOMEBODY)
    };
    let most = usize::try_from((CAP - 15_000) / 64).unwrap();
    assert_eq!(roomy().then(tx(most)).refused(), None);
    assert_eq!(roomy().then(tx(most + 1)).refused(), Some(0));
}

#[test]
fn init_code_of_a_transaction_may_have_131_072_bytes_and_no_more() {
    let tx = |bytes: usize| Tx {
        gas: CAP,
        ..Tx::create(vec![0; bytes])
    };
    assert_eq!(roomy().then(tx(131_072)).refused(), None);
    assert_eq!(roomy().then(tx(131_073)).refused(), Some(0));
}

fn block_of(gas_limit: u64, first: Tx, second: Tx) -> Option<usize> {
    let mut scene = roomy();
    scene.header.gas_limit = gas_limit;
    scene.then(first).then(second).refused()
}

#[test]
fn room_for_execution_is_asked_of_the_gas_up_to_its_bound() {
    for gas in [CAP, CAP - 1] {
        let first = || with_gas(GAS);
        assert_eq!(block_of(gas + 15_000, first(), with_gas(gas)), None);
        assert_eq!(block_of(gas + 14_999, first(), with_gas(gas)), Some(1));
    }
    // What is above the bound needs no room for execution, and has room for state.
    let gas = CAP + 15_000;
    assert_eq!(block_of(gas, with_gas(GAS), with_gas(gas)), None);
    assert_eq!(block_of(gas - 1, with_gas(GAS), with_gas(gas - 1)), Some(1));
}

#[test]
fn room_for_state_is_asked_of_the_whole_gas() {
    let sets_slot = || Tx::to(MAIN);
    let gas = CAP * 2;
    assert_eq!(block_of(gas + 97_920, sets_slot(), with_gas(gas)), None);
    assert_eq!(block_of(gas + 97_919, sets_slot(), with_gas(gas)), Some(1));
}

#[test]
fn refunds_make_no_room() {
    // Clears a slot: 27,106 of execution, of which the sender pays four fifths.
    let clears = || {
        let mut scene = Scene::running(sstore(0, 0)).slot(MAIN, 0, 1);
        scene.header.gas_limit = GAS + 27_106;
        scene.then(Tx::to(MAIN))
    };
    assert_eq!(clears().then(with_gas(GAS)).refused(), None);
    assert_eq!(clears().then(with_gas(GAS + 1)).refused(), Some(1));
}

#[test]
fn the_sender_must_have_the_price_of_all_gas() {
    let price = GAS * 8;
    let scene = |wei| Scene::new().balance(super::scene::sender(), wei);
    assert_eq!(scene(price).then(with_gas(GAS)).refused(), None);
    assert_eq!(scene(price - 1).then(with_gas(GAS)).refused(), Some(0));
}

#[test]
fn a_contract_is_no_sender() {
    let with_code = |code: Vec<u8>| {
        Scene::new().change(super::scene::sender(), |account| {
            account.code = niwaki_primitives::Bytes::from(code).into();
        })
    };
    let delegated = super::scene::delegation(Address::ZERO);
    assert_eq!(with_code(vec![0]).then(with_gas(GAS)).refused(), Some(0));
    assert_eq!(with_code(delegated).then(with_gas(GAS)).refused(), None);
}
