//! EIP-7702 with state gas: the charges of authorizations, and what survives failures.

use super::{
    block_test::{
        ABSENT, BlockResult, BlockTest, CAP, EXISTING, GAS, MAIN, OTHER, Tx, account_of_key,
        authorize, delegation, sender,
    },
    code::sstore,
};
use niwaki_primitives::{AccessList, AccessListItem, Address, Bytes, SignedAuthorization, U256};

/// Intrinsic gas per authorization.
const EACH: u64 = 7_816;
const WRITE: u64 = 9_000;
const ACCOUNT: u64 = 183_600;
const DELEGATION: u64 = 35_190;

/// [`EXISTING`] is called without value, which costs 15,000.
fn run(test: BlockTest, authorizations: Vec<SignedAuthorization>) -> BlockResult {
    let tx = Tx {
        authorizations,
        ..Tx::to(EXISTING)
    };
    test.then(tx).run()
}

/// A block in which the account of key 1 exists.
fn known() -> BlockTest {
    BlockTest::new().balance(account_of_key(1), 1)
}

#[test]
fn absent_authority_is_charged_account_write_and_delegation() {
    let ran = run(BlockTest::new(), vec![authorize(1, MAIN, 0)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + WRITE + ACCOUNT + DELEGATION);
    assert_eq!(ran.gas_used, ACCOUNT + DELEGATION);
    let authority = account_of_key(1);
    assert_eq!(ran.nonce(authority), Some(1));
    assert_eq!(ran.code(authority), Some(Bytes::from(delegation(MAIN))));
}

#[test]
fn existing_authority_is_charged_write_and_delegation() {
    let ran = run(known(), vec![authorize(1, MAIN, 0)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + WRITE + DELEGATION);
}

#[test]
fn sender_as_authority_is_charged_only_the_delegation() {
    let ran = run(BlockTest::new(), vec![authorize(0, MAIN, 1)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + DELEGATION);
    assert_eq!(ran.nonce(sender()), Some(2));
}

#[test]
fn recipient_as_authority_is_charged_its_write_unless_it_gets_value() {
    for (value, base, write) in [(0, 15_000, WRITE), (1, 21_000, 0)] {
        let tx = Tx {
            value,
            authorizations: vec![authorize(1, Address::ZERO, 0)],
            ..Tx::to(account_of_key(1))
        };
        let ran = known().then(tx).run();
        assert_eq!(ran.gas(0), base + EACH + write, "{value}");
    }
}

#[test]
fn invalid_authorization_is_charged_only_its_base() {
    let mut other_chain = authorize(1, MAIN, 0).inner().clone();
    other_chain.chain_id = U256::from(2);
    let other_chain =
        SignedAuthorization::new_unchecked(other_chain, 0, U256::from(1), U256::from(1));
    let unsigned = SignedAuthorization::new_unchecked(
        authorize(1, MAIN, 0).inner().clone(),
        0,
        U256::ZERO,
        U256::ZERO,
    );
    for authorization in [
        authorize(1, MAIN, 1),
        authorize(1, MAIN, u64::MAX),
        other_chain,
        unsigned,
    ] {
        let ran = run(known(), vec![authorization]);
        assert_eq!(ran.gas(0), 15_000 + EACH);
        assert_eq!(ran.nonce(account_of_key(1)), Some(0));
    }
    let contract = BlockTest::new().code(account_of_key(1), [0x00]);
    let ran = run(contract, vec![authorize(1, MAIN, 1)]);
    assert_eq!(ran.gas(0), 15_000 + EACH);
}

#[test]
fn write_and_delegation_are_charged_once_per_authority() {
    let set_clear_set = vec![
        authorize(1, MAIN, 0),
        authorize(1, Address::ZERO, 1),
        authorize(1, OTHER, 2),
    ];
    let ran = run(known(), set_clear_set);
    assert_eq!(ran.gas(0), 15_000 + 3 * EACH + WRITE + DELEGATION);
    let authority = account_of_key(1);
    assert_eq!(ran.code(authority), Some(Bytes::from(delegation(OTHER))));
}

#[test]
fn changing_or_clearing_an_old_delegation_charges_no_state_gas() {
    let delegated = || BlockTest::new().code(account_of_key(1), delegation(MAIN));
    for delegate in [OTHER, Address::ZERO] {
        let ran = run(delegated(), vec![authorize(1, delegate, 1)]);
        assert_eq!(ran.gas(0), 15_000 + EACH + WRITE, "{delegate}");
    }
    let cleared_and_set = vec![authorize(1, Address::ZERO, 1), authorize(1, OTHER, 2)];
    let ran = run(delegated(), cleared_and_set);
    assert_eq!(ran.gas(0), 15_000 + 2 * EACH + WRITE);
}

#[test]
fn clearing_a_new_delegation_refunds_nothing() {
    let set_and_clear = vec![authorize(1, MAIN, 0), authorize(1, Address::ZERO, 1)];
    let ran = run(known(), set_and_clear);
    assert_eq!(ran.gas(0), 15_000 + 2 * EACH + WRITE + DELEGATION);
    assert_eq!(ran.code(account_of_key(1)), Some(Bytes::new()));
}

#[test]
fn delegations_and_their_state_gas_survive_a_failed_frame() {
    let authority = account_of_key(1);
    for (end, burns) in [(&[0x5f, 0x5f, 0xfd][..], false), (&[0xfe], true)] {
        let tx = Tx::set_code(vec![authorize(1, MAIN, 0)]);
        let code = [&sstore(0, 1), end].concat();
        let ran = BlockTest::running(code)
            .balance(authority, 1)
            .then(tx)
            .run();
        assert!(!ran.succeeded(0));
        let paid = 15_000 + EACH + WRITE + DELEGATION;
        let expected = if burns { GAS } else { paid + 6 + 12_100 + 4 };
        assert_eq!(ran.gas(0), expected);
        assert_eq!(ran.gas_used, (expected - DELEGATION).max(DELEGATION));
        assert_eq!(ran.nonce(authority), Some(1));
    }
}

#[test]
fn out_of_gas_in_one_authorization_drops_all() {
    let enough = 15_000 + 2 * EACH + WRITE + DELEGATION + WRITE + ACCOUNT + DELEGATION;
    for (gas, succeeds) in [(enough, true), (enough - 1, false)] {
        let tx = Tx {
            gas,
            authorizations: vec![authorize(1, MAIN, 0), authorize(2, MAIN, 0)],
            ..Tx::to(EXISTING)
        };
        let ran = known().then(tx).run();
        assert_eq!((ran.succeeded(0), ran.gas(0)), (succeeds, gas));
        let nonces = [1, 2].map(|key| ran.nonce(account_of_key(key)));
        let expected = if succeeds {
            [Some(1), Some(1)]
        } else {
            [Some(0), None]
        };
        assert_eq!(nonces, expected);
        assert_eq!(ran.nonce(sender()), Some(1));
        let state = if succeeds {
            2 * DELEGATION + ACCOUNT
        } else {
            0
        };
        assert_eq!(ran.gas_used, state.max(gas - state));
    }
}

#[test]
fn out_of_gas_at_recipient_returns_the_reservoir_of_authorizations() {
    let addresses = 4_000;
    let tx = Tx {
        gas: CAP + DELEGATION,
        value: 1,
        access_list: AccessList(vec![AccessListItem::default(); addresses]),
        authorizations: vec![authorize(1, MAIN, 0)],
        ..Tx::to(ABSENT)
    };
    let intrinsic = 21_000 + EACH + 4_180 * 4_000;
    assert!((WRITE..ACCOUNT).contains(&(CAP - intrinsic)));
    let ran = known().then(tx).run();
    assert!(!ran.succeeded(0));
    assert_eq!((ran.gas(0), ran.gas_used), (CAP, CAP));
    assert_eq!(ran.nonce(account_of_key(1)), Some(0));
}

#[test]
fn delegated_recipient_runs_its_targets_code_for_one_access() {
    let tx = Tx {
        to: account_of_key(1).into(),
        authorizations: vec![authorize(1, MAIN, 0)],
        ..Tx::default()
    };
    let ran = BlockTest::running(sstore(0, 1))
        .balance(account_of_key(1), 1)
        .then(tx)
        .run();
    let paid = 15_000 + EACH + WRITE + DELEGATION + 3_000 + 6 + 12_100 + 97_920;
    assert_eq!(ran.gas(0), paid);
    assert_eq!(ran.slot(account_of_key(1), 0), U256::from(1));
}

#[test]
fn delegated_sender_as_recipient_is_charged_the_target() {
    let test = BlockTest::running([0x00]).change(sender(), |account| {
        account.code = Bytes::from(delegation(MAIN)).into();
    });
    let ran = test.then(Tx::to(sender())).run();
    assert_eq!(ran.gas(0), 12_000 + 3_000);
}
