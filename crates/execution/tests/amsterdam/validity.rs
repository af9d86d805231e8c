//! Invalid transactions: bounds of the gas limit, room in the block, init code, balance.

use super::block_test::{BlockTest, CAP, EXISTING, GAS, MAIN, Tx};
use super::code::sstore;
use niwaki_primitives::{AccessList, AccessListItem, Address, U256};

/// A block whose gas limit is no bound.
fn with_high_gas_limit() -> BlockTest {
    let mut test =
        BlockTest::running(sstore(0, 1)).change(super::block_test::sender(), |account| {
            account.balance = U256::MAX >> 1;
        });
    test.header.gas_limit = 1 << 40;
    test
}

fn with_gas(gas: u64) -> Tx {
    Tx {
        gas,
        ..Tx::to(EXISTING)
    }
}

#[test]
fn gas_below_the_intrinsic_gas_is_invalid() {
    assert_eq!(
        with_high_gas_limit()
            .then(with_gas(15_000))
            .invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(with_gas(14_999))
            .invalid_transaction(),
        Some(0)
    );
}

#[test]
fn gas_below_the_floor_is_invalid() {
    let tx = |gas| Tx {
        gas,
        input: vec![0; 100].into(),
        ..Tx::to(EXISTING)
    };
    assert_eq!(
        with_high_gas_limit()
            .then(tx(15_000 + 6_400))
            .invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(tx(15_000 + 6_399))
            .invalid_transaction(),
        Some(0)
    );
}

#[test]
fn gas_limit_of_transaction_is_at_most_2_32_minus_1() {
    assert_eq!(
        with_high_gas_limit()
            .then(with_gas(u64::from(u32::MAX)))
            .invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(with_gas(1 << 32))
            .invalid_transaction(),
        Some(0)
    );
}

#[test]
fn intrinsic_gas_is_at_most_2_24() {
    let tx = |addresses: usize| Tx {
        gas: CAP * 2,
        access_list: AccessList(vec![AccessListItem::default(); addresses]),
        ..Tx::to(EXISTING)
    };
    let most = usize::try_from((CAP - 15_000) / 4_180).unwrap();
    assert_eq!(
        with_high_gas_limit().then(tx(most)).invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(tx(most + 1))
            .invalid_transaction(),
        Some(0)
    );
}

#[test]
fn floor_is_at_most_2_24() {
    let tx = |bytes: usize| Tx {
        gas: CAP * 2,
        input: vec![0; bytes].into(),
        ..Tx::to(EXISTING)
    };
    let most = usize::try_from((CAP - 15_000) / 64).unwrap();
    assert_eq!(
        with_high_gas_limit().then(tx(most)).invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(tx(most + 1))
            .invalid_transaction(),
        Some(0)
    );
}

#[test]
fn init_code_of_transaction_has_at_most_131_072_bytes() {
    let tx = |bytes: usize| Tx {
        gas: CAP,
        ..Tx::create(vec![0; bytes])
    };
    assert_eq!(
        with_high_gas_limit()
            .then(tx(131_072))
            .invalid_transaction(),
        None
    );
    assert_eq!(
        with_high_gas_limit()
            .then(tx(131_073))
            .invalid_transaction(),
        Some(0)
    );
}

fn block_of(gas_limit: u64, first: Tx, second: Tx) -> Option<usize> {
    let mut test = with_high_gas_limit();
    test.header.gas_limit = gas_limit;
    test.then(first).then(second).invalid_transaction()
}

#[test]
fn block_room_for_execution_gas_counts_at_most_2_24_per_transaction() {
    for gas in [CAP, CAP - 1] {
        let first = || with_gas(GAS);
        assert_eq!(block_of(gas + 15_000, first(), with_gas(gas)), None);
        assert_eq!(block_of(gas + 14_999, first(), with_gas(gas)), Some(1));
    }
    // Gas above the bound needs no room for execution, and there is room for state.
    let gas = CAP + 15_000;
    assert_eq!(block_of(gas, with_gas(GAS), with_gas(gas)), None);
    assert_eq!(block_of(gas - 1, with_gas(GAS), with_gas(gas - 1)), Some(1));
}

#[test]
fn block_room_for_state_gas_counts_the_whole_gas_limit() {
    let sets_slot = || Tx::to(MAIN);
    let gas = CAP * 2;
    assert_eq!(block_of(gas + 97_920, sets_slot(), with_gas(gas)), None);
    assert_eq!(block_of(gas + 97_919, sets_slot(), with_gas(gas)), Some(1));
}

#[test]
fn refunds_do_not_reduce_block_gas() {
    // Clears a slot: 27,106 of execution, of which the sender pays four fifths.
    let clears = || {
        let mut test = BlockTest::running(sstore(0, 0)).slot(MAIN, 0, 1);
        test.header.gas_limit = GAS + 27_106;
        test.then(Tx::to(MAIN))
    };
    assert_eq!(clears().then(with_gas(GAS)).invalid_transaction(), None);
    assert_eq!(
        clears().then(with_gas(GAS + 1)).invalid_transaction(),
        Some(1)
    );
}

#[test]
fn sender_must_have_the_price_of_its_gas_limit() {
    let price = GAS * 8;
    let test = |wei| BlockTest::new().balance(super::block_test::sender(), wei);
    assert_eq!(test(price).then(with_gas(GAS)).invalid_transaction(), None);
    assert_eq!(
        test(price - 1).then(with_gas(GAS)).invalid_transaction(),
        Some(0)
    );
}

#[test]
fn contract_is_no_valid_sender() {
    let with_code = |code: Vec<u8>| {
        BlockTest::new().change(super::block_test::sender(), |account| {
            account.code = niwaki_primitives::Bytes::from(code).into();
        })
    };
    let delegated = super::block_test::delegation(Address::ZERO);
    assert_eq!(
        with_code(vec![0]).then(with_gas(GAS)).invalid_transaction(),
        Some(0)
    );
    assert_eq!(
        with_code(delegated)
            .then(with_gas(GAS))
            .invalid_transaction(),
        None
    );
}
