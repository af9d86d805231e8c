//! EIP-7928: who and what is in the block access list, at which index, and with which values.

use super::{
    code::{ALL, ask, call, call_by, create_by, deploy, destroy, sstore},
    scene::{
        COINBASE, Listed, MAIN, NOBODY, OTHER, Ran, SOMEBODY, SYSTEM_ADDRESS, Scene, Tx,
        account_of_key, authorize, delegation, sender, system_contracts,
    },
};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, Bytes, Withdrawal};

fn run(scene: Scene) -> Ran {
    scene.then(Tx::default()).run()
}

/// Listed, and nothing more.
fn merely(ran: &Ran, address: Address) -> bool {
    ran.listed(address) == Some(Listed::default())
}

#[test]
fn a_block_without_transactions_lists_the_system_contracts_and_nobody_else() {
    let ran = Scene::new().run();
    let mut expected: Vec<Address> = system_contracts().map(|(address, _)| address).to_vec();
    expected.sort_unstable();
    assert_eq!(ran.list.keys().copied().collect::<Vec<_>>(), expected);
    for (queue, _) in &system_contracts()[2..] {
        let listed = Listed {
            reads: vec![0, 1, 2, 3],
            ..Listed::default()
        };
        assert_eq!(ran.listed(*queue), Some(listed));
    }
    let [roots, hashes, ..] = system_contracts();
    let roots = ran.listed(roots.0).unwrap().writes;
    assert_eq!(roots.len(), 2);
    assert_eq!(roots[0], (1_000, vec![(0, 1_000)]));
    assert_eq!(ran.listed(hashes.0).unwrap().writes[0].0, 0);
}

#[test]
fn a_system_contract_without_code_is_listed() {
    let roots = system_contracts()[0].0;
    let mut scene = Scene::new();
    scene.state.accounts.remove(&roots);
    assert!(merely(&scene.run(), roots));
}

#[test]
fn transactions_have_the_indices_from_1_and_what_comes_after_has_the_next() {
    let mut scene = Scene::new();
    scene.withdrawals = [(SOMEBODY, 0), (NOBODY, 3)]
        .map(|(address, amount)| Withdrawal {
            index: 0,
            validator_index: 0,
            address,
            amount,
        })
        .to_vec();
    let ran = scene.clone().run();
    let gwei = 1_000_000_000;
    assert_eq!(ran.listed(NOBODY).unwrap().balances, [(1, 3 * gwei)]);
    assert!(merely(&ran, SOMEBODY));
    let pays = || Tx {
        value: 1,
        ..Tx::to(SOMEBODY)
    };
    let ran = scene.then(pays()).then(pays()).run();
    assert_eq!(ran.listed(SOMEBODY).unwrap().balances, [(1, 2), (2, 3)]);
    assert_eq!(ran.listed(NOBODY).unwrap().balances, [(3, 3 * gwei)]);
    assert_eq!(ran.listed(sender()).unwrap().nonces, [(1, 1), (2, 2)]);
    assert_eq!(
        ran.listed(COINBASE).unwrap().balances,
        [(1, 21_000), (2, 42_000)]
    );
}

#[test]
fn the_coinbase_is_listed_without_a_tip_and_its_recipient_without_value() {
    let ran = Scene::new()
        .then(Tx {
            tip: 0,
            ..Tx::to(SOMEBODY)
        })
        .run();
    assert!(merely(&ran, COINBASE));
    assert!(merely(&ran, SOMEBODY));
}

#[test]
fn what_the_access_list_names_is_not_listed() {
    let access_list = AccessList(vec![
        AccessListItem {
            address: OTHER,
            storage_keys: vec![B256::ZERO],
        },
        AccessListItem {
            address: MAIN,
            storage_keys: vec![B256::ZERO],
        },
    ]);
    let ran = Scene::running(sstore(1, 0))
        .then(Tx {
            access_list,
            ..Tx::default()
        })
        .run();
    assert_eq!(ran.listed(OTHER), None);
    assert_eq!(ran.listed(MAIN).unwrap().reads, [1]);
}

#[test]
fn slots_are_changed_or_read_and_never_both() {
    // 0 is written, 1 read, 2 written back, 3 cleared, 4 written with what it holds.
    let code = [
        sstore(0, 9),
        vec![0x60, 1, 0x54, 0x50],
        sstore(2, 5),
        sstore(2, 0),
        sstore(3, 0),
        sstore(4, 4),
        vec![0x60, 0, 0x54, 0x50],
    ]
    .concat();
    let scene = Scene::running(code).slot(MAIN, 3, 7).slot(MAIN, 4, 4);
    let listed = run(scene).listed(MAIN).unwrap();
    assert_eq!(listed.writes, [(0, vec![(1, 9)]), (3, vec![(1, 0)])]);
    assert_eq!(listed.reads, [1, 2, 4]);
}

#[test]
fn a_slot_that_another_transaction_changes_is_no_read() {
    // Slot 0 becomes what it was plus the size of the input.
    let code = [0x36, 0x5f, 0x54, 0x01, 0x5f, 0x55];
    let input = |bytes: usize| Tx {
        input: vec![0; bytes].into(),
        ..Tx::default()
    };
    let ran = Scene::running(code)
        .then(input(0))
        .then(input(2))
        .then(input(0))
        .then(input(3))
        .run();
    let listed = ran.listed(MAIN).unwrap();
    assert_eq!(listed.writes, [(0, vec![(2, 2), (4, 5)])]);
    assert!(listed.reads.is_empty());
}

#[test]
fn what_failed_has_read_and_not_changed() {
    for end in [&[0x5f, 0x5f, 0xfd][..], &[0xfe]] {
        let writes = [&sstore(0, 1)[..], &ask(0x31, NOBODY), end].concat();
        let ran = run(Scene::running(writes.clone()));
        assert_eq!(ran.listed(MAIN).unwrap().reads, [0]);
        assert!(merely(&ran, NOBODY));
        assert_eq!(ran.listed(sender()).unwrap().nonces, [(1, 1)]);
        let ran = run(Scene::running(call(OTHER, 0, 200_000)).code(OTHER, writes));
        assert_eq!(ran.listed(OTHER).unwrap().reads, [0]);
        assert!(merely(&ran, NOBODY));
    }
}

#[test]
fn an_account_is_listed_once_its_access_can_be_paid() {
    // Gas at the opcode: access, and for the size 100 more.
    for (opcode, access) in [(0x31, 3_000), (0x3b, 3_100), (0x3f, 3_000)] {
        for (gas, is_listed) in [(access, true), (access - 1, false)] {
            let scene = Scene::running(call(OTHER, 0, 3 + gas)).code(OTHER, ask(opcode, NOBODY));
            assert_eq!(run(scene).listed(NOBODY).is_some(), is_listed, "{opcode:x}");
        }
    }
}

#[test]
fn a_slot_is_listed_once_its_access_can_be_paid() {
    for (gas, is_listed) in [(2_100, true), (2_099, false)] {
        let scene = Scene::running(call(OTHER, 0, 2 + gas)).code(OTHER, [0x5f, 0x54]);
        assert_eq!(
            run(scene).listed(OTHER).unwrap().reads.len(),
            usize::from(is_listed)
        );
    }
    // SSTORE asks for 2,301 and the access first, and for its price when it has read.
    for (gas, is_listed) in [(2_301, true), (2_300, false)] {
        let scene = Scene::running(call(OTHER, 0, 6 + gas)).code(OTHER, sstore(0, 1));
        assert_eq!(
            run(scene).listed(OTHER).unwrap().reads.len(),
            usize::from(is_listed)
        );
    }
}

#[test]
fn a_callee_is_listed_once_access_and_value_can_be_paid() {
    for (value, needed) in [(0, 3_000), (1, 14_300)] {
        for (gas, is_listed) in [(needed, true), (needed - 1, false)] {
            let scene = Scene::running(call(OTHER, 0, 17 + gas))
                .code(OTHER, call(NOBODY, value, 0))
                .balance(OTHER, 1);
            assert_eq!(
                run(scene).listed(NOBODY).is_some(),
                is_listed,
                "{value} {gas}"
            );
        }
    }
}

#[test]
fn a_callee_is_listed_where_the_call_does_not_begin() {
    // Without the money, by each call.
    for opcode in [0xf1, 0xf2] {
        let scene = Scene::running(call_by(opcode, NOBODY, 1, ALL));
        assert!(merely(&run(scene), NOBODY), "{opcode:x}");
    }
    // Value in a static frame is refused before the callee is looked at.
    let scene = Scene::running(call_by(0xfa, OTHER, 0, ALL)).code(OTHER, call(NOBODY, 1, ALL));
    assert_eq!(run(scene).listed(NOBODY), None);
}

#[test]
fn each_call_lists_its_callee() {
    for opcode in [0xf1, 0xf2, 0xf4, 0xfa] {
        assert!(merely(
            &run(Scene::running(call_by(opcode, NOBODY, 0, ALL))),
            NOBODY
        ));
    }
}

#[test]
fn precompiled_contracts_are_listed_when_called_and_have_an_entry_for_value() {
    let identity = Address::with_last_byte(4);
    let pairing = Address::with_last_byte(8);
    let scene =
        Scene::running([call(identity, 1, ALL), call(pairing, 0, 1)].concat()).balance(MAIN, 1);
    let ran = run(scene);
    assert_eq!(ran.listed(identity).unwrap().balances, [(1, 1)]);
    assert!(merely(&ran, pairing));
    assert_eq!(ran.listed(Address::with_last_byte(1)), None);
}

#[test]
fn the_system_address_is_listed_if_code_looks_at_it() {
    let ran = Scene::new()
        .then(Tx {
            value: 1,
            ..Tx::to(SOMEBODY)
        })
        .run();
    assert_eq!(ran.listed(SYSTEM_ADDRESS), None);
    let ran = run(Scene::running(ask(0x31, SYSTEM_ADDRESS)));
    assert!(merely(&ran, SYSTEM_ADDRESS));
}

#[test]
fn a_delegations_target_is_listed_by_calls_alone() {
    let delegated = Address::repeat_byte(0x77);
    let scene = |code: Vec<u8>| Scene::running(code).code(delegated, delegation(OTHER));
    for code in [
        ask(0x31, delegated),
        ask(0x3b, delegated),
        ask(0x3f, delegated),
        destroy(delegated),
    ] {
        let ran = run(scene(code));
        assert!(ran.listed(delegated).is_some());
        assert_eq!(ran.listed(OTHER), None);
    }
    for opcode in [0xf1, 0xf2, 0xf4, 0xfa] {
        assert!(merely(
            &run(scene(call_by(opcode, delegated, 0, ALL))),
            OTHER
        ));
    }
    // Also where the caller lacks the money, and not where the gas ends before it.
    assert!(merely(&run(scene(call(delegated, 1, ALL))), OTHER));
    for (gas, is_listed) in [(6_000, true), (5_999, false)] {
        let caller = Address::repeat_byte(0x78);
        let ran = run(Scene::running(call(caller, 0, 17 + gas))
            .code(caller, call(delegated, 0, 0))
            .code(delegated, delegation(OTHER)));
        assert!(merely(&ran, delegated));
        assert_eq!(ran.listed(OTHER).is_some(), is_listed);
    }
}

#[test]
fn a_delegation_is_followed_one_step() {
    let (first, second) = (Address::repeat_byte(0x77), Address::repeat_byte(0x78));
    let ran = run(Scene::running(call(first, 0, ALL))
        .code(first, delegation(second))
        .code(second, delegation(OTHER)));
    assert!(merely(&ran, second));
    assert_eq!(ran.listed(OTHER), None);
}

#[test]
fn a_delegated_recipient_lists_its_target_if_that_can_be_paid() {
    let delegated = Address::repeat_byte(0x77);
    for (gas, is_listed) in [(18_000, true), (17_999, false)] {
        let tx = Tx {
            gas,
            ..Tx::to(delegated)
        };
        let ran = Scene::new()
            .code(delegated, delegation(OTHER))
            .then(tx)
            .run();
        assert!(merely(&ran, delegated));
        assert_eq!(ran.listed(OTHER).is_some(), is_listed);
        assert_eq!(ran.succeeded(0), is_listed);
    }
}

#[test]
fn an_authority_is_listed_once_it_is_known_and_its_delegate_is_not() {
    let [one, two, three] = [1, 2, 3].map(account_of_key);
    let tx = Tx {
        authorizations: vec![
            authorize(1, OTHER, 0),
            // Holds not, for its nonce; and before anybody is recovered.
            authorize(2, OTHER, 5),
            authorize(3, OTHER, u64::MAX),
        ],
        ..Tx::to(SOMEBODY)
    };
    let ran = Scene::new().then(tx).run();
    let listed = ran.listed(one).unwrap();
    assert_eq!(listed.nonces, [(1, 1)]);
    assert_eq!(listed.codes, [(1, Bytes::from(delegation(OTHER)))]);
    assert!(merely(&ran, two));
    assert_eq!((ran.listed(three), ran.listed(OTHER)), (None, None));
}

#[test]
fn code_that_is_the_same_in_the_end_has_no_entry() {
    let one = account_of_key(1);
    let run = |scene: Scene, authorizations| {
        let tx = Tx {
            authorizations,
            ..Tx::to(SOMEBODY)
        };
        scene.then(tx).run().listed(one).unwrap()
    };
    let there_and_back = vec![authorize(1, OTHER, 0), authorize(1, Address::ZERO, 1)];
    let listed = run(Scene::new(), there_and_back);
    assert_eq!((listed.nonces, listed.codes), (vec![(1, 2)], vec![]));
    let again = Scene::new().code(one, delegation(OTHER));
    let listed = run(again, vec![authorize(1, OTHER, 1)]);
    assert_eq!((listed.nonces, listed.codes), (vec![(1, 2)], vec![]));
    let cleared = Scene::new().code(one, delegation(OTHER));
    let listed = run(cleared, vec![authorize(1, Address::ZERO, 1)]);
    assert_eq!(listed.codes, [(1, Bytes::new())]);
}

#[test]
fn without_the_gas_for_authorizations_the_recipient_is_not_listed() {
    let tx = Tx {
        gas: 15_000 + 7_816,
        authorizations: vec![authorize(1, OTHER, 0)],
        ..Tx::to(SOMEBODY)
    };
    let ran = Scene::new().then(tx).run();
    assert!(merely(&ran, account_of_key(1)));
    assert_eq!(ran.listed(SOMEBODY), None);
    assert!(ran.listed(COINBASE).is_some());
}

#[test]
fn without_the_gas_for_a_new_recipient_it_is_listed() {
    let tx = Tx {
        gas: 100_000,
        value: 1,
        ..Tx::to(NOBODY)
    };
    assert!(merely(&Scene::new().then(tx).run(), NOBODY));
}

#[test]
fn a_created_contract_is_listed_with_what_it_is_in_the_end() {
    let created = sender().create(0);
    let code = [0x60, 1];
    let tx = Tx {
        value: 3,
        ..Tx::create(deploy(&code))
    };
    let ran = Scene::new().then(tx).run();
    let expected = Listed {
        balances: vec![(1, 3)],
        nonces: vec![(1, 1)],
        codes: vec![(1, Bytes::from(code))],
        ..Listed::default()
    };
    assert_eq!(ran.listed(created), Some(expected));
    let ran = Scene::new().then(Tx::create(vec![])).run();
    let listed = ran.listed(created).unwrap();
    assert_eq!((listed.nonces, listed.codes), (vec![(1, 1)], vec![]));
}

#[test]
fn a_creation_that_fails_lists_its_address_alone() {
    let created = sender().create(0);
    let taken = || Scene::new().change(created, |account| account.nonce = 1);
    let poor = Tx {
        gas: 24_000 + 100_000,
        ..Tx::create(vec![])
    };
    for (scene, tx) in [
        (Scene::new(), Tx::create([0x5f, 0x5f, 0xfd])),
        (Scene::new(), Tx::create([0xfe])),
        (Scene::new(), poor),
        (taken(), Tx::create([0x00])),
    ] {
        let ran = scene.then(tx).run();
        assert!(!ran.succeeded(0));
        assert!(merely(&ran, created));
        assert_eq!(ran.listed(sender()).unwrap().nonces, [(1, 1)]);
    }
}

#[test]
fn a_creation_by_code_lists_its_address_once_it_may_begin() {
    let created = MAIN.create(1);
    // The endowment is there, or not.
    let scene = || Scene::running(create_by(0xf0, &[0], 1));
    let ran = run(scene());
    assert_eq!(ran.listed(created), None);
    assert!(merely(&ran, MAIN));
    let listed = run(scene().balance(MAIN, 1)).listed(created).unwrap();
    assert_eq!(
        (listed.balances, listed.nonces),
        (vec![(1, 1)], vec![(1, 1)])
    );
    // The nonce is at its end.
    let last = scene().change(MAIN, |account| account.nonce = u64::MAX);
    assert_eq!(run(last).listed(MAIN.create(u64::MAX)), None);
    // The account can't be paid.
    let maker = Scene::running(call(OTHER, 0, 100_000)).code(OTHER, create_by(0xf0, &[0], 0));
    let ran = run(maker);
    assert!(merely(&ran, OTHER.create(1)));
    assert!(merely(&ran, OTHER));
    // Somebody is there already.
    let taken =
        Scene::running(create_by(0xf0, &[0], 0)).change(created, |account| account.nonce = 1);
    let ran = run(taken);
    assert!(merely(&ran, created));
    assert_eq!(ran.listed(MAIN).unwrap().nonces, [(1, 2)]);
}

#[test]
fn a_beneficiary_is_listed_once_its_access_can_be_paid() {
    for (gas, is_listed) in [(8_000, true), (7_999, false)] {
        let scene = Scene::running(call(OTHER, 0, 3 + gas)).code(OTHER, destroy(NOBODY));
        assert_eq!(run(scene).listed(NOBODY).is_some(), is_listed);
    }
    let pays = Scene::running(destroy(SOMEBODY)).balance(MAIN, 5);
    let ran = run(pays);
    assert_eq!(ran.listed(SOMEBODY).unwrap().balances, [(1, 6)]);
    assert_eq!(ran.listed(MAIN).unwrap().balances, [(1, 0)]);
}

#[test]
fn what_was_created_and_destroyed_has_read_its_slots_and_nothing_more() {
    let created = sender().create(0);
    let init = [sstore(1, 1), destroy(NOBODY)].concat();
    let tx = |value| Tx {
        value,
        ..Tx::create(init.clone())
    };
    let ran = Scene::new().then(tx(5)).run();
    let read = Listed {
        reads: vec![1],
        ..Listed::default()
    };
    assert_eq!(ran.listed(created), Some(read.clone()));
    assert_eq!(ran.listed(NOBODY).unwrap().balances, [(1, 5)]);
    // To itself, it keeps what it has.
    let init = [sstore(1, 1), vec![0x30, 0xff]].concat();
    let tx = Tx {
        value: 5,
        ..Tx::create(init)
    };
    let kept = Listed {
        balances: vec![(1, 5)],
        ..read
    };
    assert_eq!(Scene::new().then(tx).run().listed(created), Some(kept));
}

#[test]
fn a_balance_that_comes_back_has_no_entry() {
    // MAIN pays OTHER, which destroys itself and pays it back by that.
    let both = Scene::running(call(OTHER, 1, ALL))
        .balance(MAIN, 1)
        .code(OTHER, destroy(MAIN));
    let ran = run(both);
    assert!(merely(&ran, OTHER));
    assert!(merely(&ran, MAIN));
}

#[test]
fn what_a_later_call_of_the_same_index_puts_back_has_no_entry() {
    // A queue contract that sends on what it has; go-ethereum lists what it had in between.
    let queue = system_contracts()[2].0;
    let code = [
        &[0x5f, 0x5f, 0x5f, 0x5f, 0x47, 0x73][..],
        SOMEBODY.as_slice(),
        &[0x5a, 0xf1],
    ]
    .concat();
    let mut scene = Scene::new().code(queue, code);
    scene.withdrawals.push(Withdrawal {
        index: 0,
        validator_index: 0,
        address: queue,
        amount: 1,
    });
    let ran = scene.run();
    assert_eq!(ran.listed(SOMEBODY).unwrap().balances, [(1, 1_000_000_001)]);
    assert!(merely(&ran, queue));
}
