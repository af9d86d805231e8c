//! EIP-7702 under the new meter: what each authorization pays, and what of it stays.

use super::{
    code::sstore,
    scene::{
        CAP, GAS, MAIN, NOBODY, OTHER, Ran, SOMEBODY, Scene, Tx, account_of_key, authorize,
        delegation, sender,
    },
};
use niwaki_primitives::{AccessList, AccessListItem, Address, Bytes, SignedAuthorization, U256};

/// Paid for each authorization before anything is known of it.
const EACH: u64 = 7_816;
const WRITE: u64 = 9_000;
const ACCOUNT: u64 = 183_600;
const DELEGATION: u64 = 35_190;

/// [`SOMEBODY`] is called without value, which costs 15,000.
fn run(scene: Scene, authorizations: Vec<SignedAuthorization>) -> Ran {
    let tx = Tx {
        authorizations,
        ..Tx::to(SOMEBODY)
    };
    scene.then(tx).run()
}

/// Key 1 has an account.
fn known() -> Scene {
    Scene::new().balance(account_of_key(1), 1)
}

#[test]
fn an_authority_that_is_nobody_pays_for_account_write_and_delegation() {
    let ran = run(Scene::new(), vec![authorize(1, MAIN, 0)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + WRITE + ACCOUNT + DELEGATION);
    assert_eq!(ran.gas_used, ACCOUNT + DELEGATION);
    let authority = account_of_key(1);
    assert_eq!(ran.nonce(authority), Some(1));
    assert_eq!(ran.code(authority), Some(Bytes::from(delegation(MAIN))));
}

#[test]
fn an_authority_that_is_somebody_pays_for_write_and_delegation() {
    let ran = run(known(), vec![authorize(1, MAIN, 0)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + WRITE + DELEGATION);
}

#[test]
fn the_sender_as_authority_pays_for_the_delegation_alone() {
    let ran = run(Scene::new(), vec![authorize(0, MAIN, 1)]);
    assert_eq!(ran.gas(0), 15_000 + EACH + DELEGATION);
    assert_eq!(ran.nonce(sender()), Some(2));
}

#[test]
fn the_recipient_as_authority_pays_for_its_write_unless_it_gets_value() {
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
fn an_authorization_that_does_not_hold_pays_its_base_alone() {
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
    let contract = Scene::new().code(account_of_key(1), [0x00]);
    let ran = run(contract, vec![authorize(1, MAIN, 1)]);
    assert_eq!(ran.gas(0), 15_000 + EACH);
}

#[test]
fn write_and_delegation_are_paid_once_for_an_authority() {
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
fn a_delegation_that_was_there_before_is_changed_and_cleared_for_nothing() {
    let delegated = || Scene::new().code(account_of_key(1), delegation(MAIN));
    for delegate in [OTHER, Address::ZERO] {
        let ran = run(delegated(), vec![authorize(1, delegate, 1)]);
        assert_eq!(ran.gas(0), 15_000 + EACH + WRITE, "{delegate}");
    }
    let cleared_and_set = vec![authorize(1, Address::ZERO, 1), authorize(1, OTHER, 2)];
    let ran = run(delegated(), cleared_and_set);
    assert_eq!(ran.gas(0), 15_000 + 2 * EACH + WRITE);
}

#[test]
fn clearing_what_was_set_in_the_transaction_gives_nothing_back() {
    let set_and_clear = vec![authorize(1, MAIN, 0), authorize(1, Address::ZERO, 1)];
    let ran = run(known(), set_and_clear);
    assert_eq!(ran.gas(0), 15_000 + 2 * EACH + WRITE + DELEGATION);
    assert_eq!(ran.code(account_of_key(1)), Some(Bytes::new()));
}

#[test]
fn delegations_and_their_state_gas_outlive_a_frame_that_fails() {
    let authority = account_of_key(1);
    for (end, burns) in [(&[0x5f, 0x5f, 0xfd][..], false), (&[0xfe], true)] {
        let tx = Tx::set_code(vec![authorize(1, MAIN, 0)]);
        let code = [&sstore(0, 1), end].concat();
        let ran = Scene::running(code).balance(authority, 1).then(tx).run();
        assert!(!ran.succeeded(0));
        let paid = 15_000 + EACH + WRITE + DELEGATION;
        let expected = if burns { GAS } else { paid + 6 + 12_100 + 4 };
        assert_eq!(ran.gas(0), expected);
        assert_eq!(ran.gas_used, (expected - DELEGATION).max(DELEGATION));
        assert_eq!(ran.nonce(authority), Some(1));
    }
}

#[test]
fn without_the_gas_for_an_authorization_nothing_of_any_stays() {
    let enough = 15_000 + 2 * EACH + WRITE + DELEGATION + WRITE + ACCOUNT + DELEGATION;
    for (gas, succeeds) in [(enough, true), (enough - 1, false)] {
        let tx = Tx {
            gas,
            authorizations: vec![authorize(1, MAIN, 0), authorize(2, MAIN, 0)],
            ..Tx::to(SOMEBODY)
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
fn a_recipient_that_cannot_be_paid_gives_the_reservoir_back_that_authorizations_took() {
    let addresses = 4_000;
    let tx = Tx {
        gas: CAP + DELEGATION,
        value: 1,
        access_list: AccessList(vec![AccessListItem::default(); addresses]),
        authorizations: vec![authorize(1, MAIN, 0)],
        ..Tx::to(NOBODY)
    };
    let intrinsic = 21_000 + EACH + 4_180 * 4_000;
    assert!((WRITE..ACCOUNT).contains(&(CAP - intrinsic)));
    let ran = known().then(tx).run();
    assert!(!ran.succeeded(0));
    assert_eq!((ran.gas(0), ran.gas_used), (CAP, CAP));
    assert_eq!(ran.nonce(account_of_key(1)), Some(0));
}

#[test]
fn the_code_of_a_delegated_recipient_runs_for_the_price_of_its_target() {
    let tx = Tx {
        to: account_of_key(1).into(),
        authorizations: vec![authorize(1, MAIN, 0)],
        ..Tx::default()
    };
    let ran = Scene::running(sstore(0, 1))
        .balance(account_of_key(1), 1)
        .then(tx)
        .run();
    let paid = 15_000 + EACH + WRITE + DELEGATION + 3_000 + 6 + 12_100 + 97_920;
    assert_eq!(ran.gas(0), paid);
    assert_eq!(ran.slot(account_of_key(1), 0), U256::from(1));
}

#[test]
fn a_delegated_sender_that_sends_to_itself_pays_for_the_target() {
    let scene = Scene::running([0x00]).change(sender(), |account| {
        account.code = Bytes::from(delegation(MAIN)).into();
    });
    let ran = scene.then(Tx::to(sender())).run();
    assert_eq!(ran.gas(0), 12_000 + 3_000);
}
