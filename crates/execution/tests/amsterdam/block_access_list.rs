//! EIP-7928: which accounts and slots the block access list has, at which index and with which values.

use super::{
    block_test::{
        ABSENT, AccountEntry, BlockResult, BlockTest, COINBASE, EXISTING, MAIN, OTHER,
        SYSTEM_ADDRESS, Tx, account_of_key, authorize, delegation, sender, system_contracts,
    },
    code::{ALL, call, call_by, create_by, deploy, destroy, query, sstore},
};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, Bytes, Withdrawal};

fn run(test: BlockTest) -> BlockResult {
    test.then(Tx::default()).run()
}

/// AccountEntry, and nothing more.
fn is_entry_empty(ran: &BlockResult, address: Address) -> bool {
    ran.entry(address) == Some(AccountEntry::default())
}

#[test]
fn block_without_transactions_lists_only_system_contracts() {
    let ran = BlockTest::new().run();
    let mut expected: Vec<Address> = system_contracts().map(|(address, _)| address).to_vec();
    expected.sort_unstable();
    assert_eq!(ran.bal.keys().copied().collect::<Vec<_>>(), expected);
    for (queue, _) in &system_contracts()[2..] {
        let entry = AccountEntry {
            reads: vec![0, 1, 2, 3],
            ..AccountEntry::default()
        };
        assert_eq!(ran.entry(*queue), Some(entry));
    }
    let [roots, hashes, ..] = system_contracts();
    let roots = ran.entry(roots.0).unwrap().writes;
    assert_eq!(roots.len(), 2);
    assert_eq!(roots[0], (1_000, vec![(0, 1_000)]));
    assert_eq!(ran.entry(hashes.0).unwrap().writes[0].0, 0);
}

#[test]
fn system_contract_without_code_is_listed() {
    let roots = system_contracts()[0].0;
    let mut test = BlockTest::new();
    test.state.accounts.remove(&roots);
    assert!(is_entry_empty(&test.run(), roots));
}

#[test]
fn transactions_have_indices_from_1_and_withdrawals_the_next() {
    let mut test = BlockTest::new();
    test.withdrawals = [(EXISTING, 0), (ABSENT, 3)]
        .map(|(address, amount)| Withdrawal {
            index: 0,
            validator_index: 0,
            address,
            amount,
        })
        .to_vec();
    let ran = test.clone().run();
    let gwei = 1_000_000_000;
    assert_eq!(ran.entry(ABSENT).unwrap().balances, [(1, 3 * gwei)]);
    assert!(is_entry_empty(&ran, EXISTING));
    let pays = || Tx {
        value: 1,
        ..Tx::to(EXISTING)
    };
    let ran = test.then(pays()).then(pays()).run();
    assert_eq!(ran.entry(EXISTING).unwrap().balances, [(1, 2), (2, 3)]);
    assert_eq!(ran.entry(ABSENT).unwrap().balances, [(3, 3 * gwei)]);
    assert_eq!(ran.entry(sender()).unwrap().nonces, [(1, 1), (2, 2)]);
    assert_eq!(
        ran.entry(COINBASE).unwrap().balances,
        [(1, 21_000), (2, 42_000)]
    );
}

#[test]
fn coinbase_is_listed_without_tip_and_recipient_without_value() {
    let ran = BlockTest::new()
        .then(Tx {
            tip: 0,
            ..Tx::to(EXISTING)
        })
        .run();
    assert!(is_entry_empty(&ran, COINBASE));
    assert!(is_entry_empty(&ran, EXISTING));
}

#[test]
fn unused_entries_of_the_access_list_are_not_listed() {
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
    let ran = BlockTest::running(sstore(1, 0))
        .then(Tx {
            access_list,
            ..Tx::default()
        })
        .run();
    assert_eq!(ran.entry(OTHER), None);
    assert_eq!(ran.entry(MAIN).unwrap().reads, [1]);
}

#[test]
fn slots_are_listed_as_changed_or_read_never_both() {
    // 0 is written, 1 read, 2 written and restored, 3 cleared, 4 written with its own value.
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
    let test = BlockTest::running(code).slot(MAIN, 3, 7).slot(MAIN, 4, 4);
    let entry = run(test).entry(MAIN).unwrap();
    assert_eq!(entry.writes, [(0, vec![(1, 9)]), (3, vec![(1, 0)])]);
    assert_eq!(entry.reads, [1, 2, 4]);
}

#[test]
fn slot_changed_by_another_transaction_is_no_read() {
    // Slot 0 becomes what it was plus the size of the input.
    let code = [0x36, 0x5f, 0x54, 0x01, 0x5f, 0x55];
    let input = |bytes: usize| Tx {
        input: vec![0; bytes].into(),
        ..Tx::default()
    };
    let ran = BlockTest::running(code)
        .then(input(0))
        .then(input(2))
        .then(input(0))
        .then(input(3))
        .run();
    let entry = ran.entry(MAIN).unwrap();
    assert_eq!(entry.writes, [(0, vec![(2, 2), (4, 5)])]);
    assert!(entry.reads.is_empty());
}

#[test]
fn reverted_writes_are_listed_as_reads() {
    for end in [&[0x5f, 0x5f, 0xfd][..], &[0xfe]] {
        let writes = [&sstore(0, 1)[..], &query(0x31, ABSENT), end].concat();
        let ran = run(BlockTest::running(writes.clone()));
        assert_eq!(ran.entry(MAIN).unwrap().reads, [0]);
        assert!(is_entry_empty(&ran, ABSENT));
        assert_eq!(ran.entry(sender()).unwrap().nonces, [(1, 1)]);
        let ran = run(BlockTest::running(call(OTHER, 0, 200_000)).code(OTHER, writes));
        assert_eq!(ran.entry(OTHER).unwrap().reads, [0]);
        assert!(is_entry_empty(&ran, ABSENT));
    }
}

#[test]
fn account_is_listed_if_gas_covers_its_access() {
    // Gas at the opcode: access, and for the size 100 more.
    for (opcode, access) in [(0x31, 3_000), (0x3b, 3_100), (0x3f, 3_000)] {
        for (gas, is_listed) in [(access, true), (access - 1, false)] {
            let test =
                BlockTest::running(call(OTHER, 0, 3 + gas)).code(OTHER, query(opcode, ABSENT));
            assert_eq!(run(test).entry(ABSENT).is_some(), is_listed, "{opcode:x}");
        }
    }
}

#[test]
fn slot_is_listed_if_gas_covers_its_access() {
    for (gas, is_listed) in [(2_100, true), (2_099, false)] {
        let test = BlockTest::running(call(OTHER, 0, 2 + gas)).code(OTHER, [0x5f, 0x54]);
        assert_eq!(
            run(test).entry(OTHER).unwrap().reads.len(),
            usize::from(is_listed)
        );
    }
    // SSTORE requires 2,301 and the access first, and its price after the read.
    for (gas, is_listed) in [(2_301, true), (2_300, false)] {
        let test = BlockTest::running(call(OTHER, 0, 6 + gas)).code(OTHER, sstore(0, 1));
        assert_eq!(
            run(test).entry(OTHER).unwrap().reads.len(),
            usize::from(is_listed)
        );
    }
}

#[test]
fn callee_is_listed_if_gas_covers_access_and_value() {
    for (value, needed) in [(0, 3_000), (1, 14_300)] {
        for (gas, is_listed) in [(needed, true), (needed - 1, false)] {
            let test = BlockTest::running(call(OTHER, 0, 17 + gas))
                .code(OTHER, call(ABSENT, value, 0))
                .balance(OTHER, 1);
            assert_eq!(
                run(test).entry(ABSENT).is_some(),
                is_listed,
                "{value} {gas}"
            );
        }
    }
}

#[test]
fn callee_of_refused_call_is_listed() {
    // With too little balance, by each call.
    for opcode in [0xf1, 0xf2] {
        let test = BlockTest::running(call_by(opcode, ABSENT, 1, ALL));
        assert!(is_entry_empty(&run(test), ABSENT), "{opcode:x}");
    }
    // Value in a static frame halts before the callee is accessed.
    let test = BlockTest::running(call_by(0xfa, OTHER, 0, ALL)).code(OTHER, call(ABSENT, 1, ALL));
    assert_eq!(run(test).entry(ABSENT), None);
}

#[test]
fn each_of_4_calls_lists_its_callee() {
    for opcode in [0xf1, 0xf2, 0xf4, 0xfa] {
        assert!(is_entry_empty(
            &run(BlockTest::running(call_by(opcode, ABSENT, 0, ALL))),
            ABSENT
        ));
    }
}

#[test]
fn called_precompiled_contract_is_listed_with_its_balance_change() {
    let identity = Address::with_last_byte(4);
    let pairing = Address::with_last_byte(8);
    let test =
        BlockTest::running([call(identity, 1, ALL), call(pairing, 0, 1)].concat()).balance(MAIN, 1);
    let ran = run(test);
    assert_eq!(ran.entry(identity).unwrap().balances, [(1, 1)]);
    assert!(is_entry_empty(&ran, pairing));
    assert_eq!(ran.entry(Address::with_last_byte(1)), None);
}

#[test]
fn system_address_is_listed_if_code_accesses_it() {
    let ran = BlockTest::new()
        .then(Tx {
            value: 1,
            ..Tx::to(EXISTING)
        })
        .run();
    assert_eq!(ran.entry(SYSTEM_ADDRESS), None);
    let ran = run(BlockTest::running(query(0x31, SYSTEM_ADDRESS)));
    assert!(is_entry_empty(&ran, SYSTEM_ADDRESS));
}

#[test]
fn delegation_target_is_listed_by_calls_only() {
    let delegated = Address::repeat_byte(0x77);
    let test = |code: Vec<u8>| BlockTest::running(code).code(delegated, delegation(OTHER));
    for code in [
        query(0x31, delegated),
        query(0x3b, delegated),
        query(0x3f, delegated),
        destroy(delegated),
    ] {
        let ran = run(test(code));
        assert!(ran.entry(delegated).is_some());
        assert_eq!(ran.entry(OTHER), None);
    }
    for opcode in [0xf1, 0xf2, 0xf4, 0xfa] {
        assert!(is_entry_empty(
            &run(test(call_by(opcode, delegated, 0, ALL))),
            OTHER
        ));
    }
    // Also if the caller's balance is too low, and not if the gas ends before the access.
    assert!(is_entry_empty(&run(test(call(delegated, 1, ALL))), OTHER));
    for (gas, is_listed) in [(6_000, true), (5_999, false)] {
        let caller = Address::repeat_byte(0x78);
        let ran = run(BlockTest::running(call(caller, 0, 17 + gas))
            .code(caller, call(delegated, 0, 0))
            .code(delegated, delegation(OTHER)));
        assert!(is_entry_empty(&ran, delegated));
        assert_eq!(ran.entry(OTHER).is_some(), is_listed);
    }
}

#[test]
fn delegation_is_followed_one_step() {
    let (first, second) = (Address::repeat_byte(0x77), Address::repeat_byte(0x78));
    let ran = run(BlockTest::running(call(first, 0, ALL))
        .code(first, delegation(second))
        .code(second, delegation(OTHER)));
    assert!(is_entry_empty(&ran, second));
    assert_eq!(ran.entry(OTHER), None);
}

#[test]
fn delegation_target_of_recipient_is_listed_if_gas_covers_it() {
    let delegated = Address::repeat_byte(0x77);
    for (gas, is_listed) in [(18_000, true), (17_999, false)] {
        let tx = Tx {
            gas,
            ..Tx::to(delegated)
        };
        let ran = BlockTest::new()
            .code(delegated, delegation(OTHER))
            .then(tx)
            .run();
        assert!(is_entry_empty(&ran, delegated));
        assert_eq!(ran.entry(OTHER).is_some(), is_listed);
        assert_eq!(ran.succeeded(0), is_listed);
    }
}

#[test]
fn recovered_authority_is_listed_and_its_delegate_is_not() {
    let [one, two, three] = [1, 2, 3].map(account_of_key);
    let tx = Tx {
        authorizations: vec![
            authorize(1, OTHER, 0),
            // Invalid nonce; and invalid before the authority is recovered.
            authorize(2, OTHER, 5),
            authorize(3, OTHER, u64::MAX),
        ],
        ..Tx::to(EXISTING)
    };
    let ran = BlockTest::new().then(tx).run();
    let entry = ran.entry(one).unwrap();
    assert_eq!(entry.nonces, [(1, 1)]);
    assert_eq!(entry.codes, [(1, Bytes::from(delegation(OTHER)))]);
    assert!(is_entry_empty(&ran, two));
    assert_eq!((ran.entry(three), ran.entry(OTHER)), (None, None));
}

#[test]
fn code_unchanged_at_the_end_has_no_entry() {
    let one = account_of_key(1);
    let run = |test: BlockTest, authorizations| {
        let tx = Tx {
            authorizations,
            ..Tx::to(EXISTING)
        };
        test.then(tx).run().entry(one).unwrap()
    };
    let there_and_back = vec![authorize(1, OTHER, 0), authorize(1, Address::ZERO, 1)];
    let entry = run(BlockTest::new(), there_and_back);
    assert_eq!((entry.nonces, entry.codes), (vec![(1, 2)], vec![]));
    let again = BlockTest::new().code(one, delegation(OTHER));
    let entry = run(again, vec![authorize(1, OTHER, 1)]);
    assert_eq!((entry.nonces, entry.codes), (vec![(1, 2)], vec![]));
    let cleared = BlockTest::new().code(one, delegation(OTHER));
    let entry = run(cleared, vec![authorize(1, Address::ZERO, 1)]);
    assert_eq!(entry.codes, [(1, Bytes::new())]);
}

#[test]
fn recipient_is_not_listed_if_gas_ends_in_authorizations() {
    let tx = Tx {
        gas: 15_000 + 7_816,
        authorizations: vec![authorize(1, OTHER, 0)],
        ..Tx::to(EXISTING)
    };
    let ran = BlockTest::new().then(tx).run();
    assert!(is_entry_empty(&ran, account_of_key(1)));
    assert_eq!(ran.entry(EXISTING), None);
    assert!(ran.entry(COINBASE).is_some());
}

#[test]
fn recipient_is_listed_if_gas_ends_at_its_new_account() {
    let tx = Tx {
        gas: 100_000,
        value: 1,
        ..Tx::to(ABSENT)
    };
    assert!(is_entry_empty(&BlockTest::new().then(tx).run(), ABSENT));
}

#[test]
fn created_contract_is_listed_with_its_final_values() {
    let created = sender().create(0);
    let code = [0x60, 1];
    let tx = Tx {
        value: 3,
        ..Tx::create(deploy(&code))
    };
    let ran = BlockTest::new().then(tx).run();
    let expected = AccountEntry {
        balances: vec![(1, 3)],
        nonces: vec![(1, 1)],
        codes: vec![(1, Bytes::from(code))],
        ..AccountEntry::default()
    };
    assert_eq!(ran.entry(created), Some(expected));
    let ran = BlockTest::new().then(Tx::create(vec![])).run();
    let entry = ran.entry(created).unwrap();
    assert_eq!((entry.nonces, entry.codes), (vec![(1, 1)], vec![]));
}

#[test]
fn failed_creation_lists_its_address_without_changes() {
    let created = sender().create(0);
    let taken = || BlockTest::new().change(created, |account| account.nonce = 1);
    let poor = Tx {
        gas: 24_000 + 100_000,
        ..Tx::create(vec![])
    };
    for (test, tx) in [
        (BlockTest::new(), Tx::create([0x5f, 0x5f, 0xfd])),
        (BlockTest::new(), Tx::create([0xfe])),
        (BlockTest::new(), poor),
        (taken(), Tx::create([0x00])),
    ] {
        let ran = test.then(tx).run();
        assert!(!ran.succeeded(0));
        assert!(is_entry_empty(&ran, created));
        assert_eq!(ran.entry(sender()).unwrap().nonces, [(1, 1)]);
    }
}

#[test]
fn create_lists_its_address_if_it_can_begin() {
    let created = MAIN.create(1);
    // The creator has the endowment, or not.
    let test = || BlockTest::running(create_by(0xf0, &[0], 1));
    let ran = run(test());
    assert_eq!(ran.entry(created), None);
    assert!(is_entry_empty(&ran, MAIN));
    let entry = run(test().balance(MAIN, 1)).entry(created).unwrap();
    assert_eq!((entry.balances, entry.nonces), (vec![(1, 1)], vec![(1, 1)]));
    // The nonce is 2^64 - 1.
    let last = test().change(MAIN, |account| account.nonce = u64::MAX);
    assert_eq!(run(last).entry(MAIN.create(u64::MAX)), None);
    // The gas does not cover the account.
    let maker = BlockTest::running(call(OTHER, 0, 100_000)).code(OTHER, create_by(0xf0, &[0], 0));
    let ran = run(maker);
    assert!(is_entry_empty(&ran, OTHER.create(1)));
    assert!(is_entry_empty(&ran, OTHER));
    // Address collision.
    let taken =
        BlockTest::running(create_by(0xf0, &[0], 0)).change(created, |account| account.nonce = 1);
    let ran = run(taken);
    assert!(is_entry_empty(&ran, created));
    assert_eq!(ran.entry(MAIN).unwrap().nonces, [(1, 2)]);
}

#[test]
fn beneficiary_is_listed_if_gas_covers_its_access() {
    for (gas, is_listed) in [(8_000, true), (7_999, false)] {
        let test = BlockTest::running(call(OTHER, 0, 3 + gas)).code(OTHER, destroy(ABSENT));
        assert_eq!(run(test).entry(ABSENT).is_some(), is_listed);
    }
    let pays = BlockTest::running(destroy(EXISTING)).balance(MAIN, 5);
    let ran = run(pays);
    assert_eq!(ran.entry(EXISTING).unwrap().balances, [(1, 6)]);
    assert_eq!(ran.entry(MAIN).unwrap().balances, [(1, 0)]);
}

#[test]
fn account_created_and_destroyed_lists_its_slots_as_reads() {
    let created = sender().create(0);
    let init = [sstore(1, 1), destroy(ABSENT)].concat();
    let tx = |value| Tx {
        value,
        ..Tx::create(init.clone())
    };
    let ran = BlockTest::new().then(tx(5)).run();
    let read = AccountEntry {
        reads: vec![1],
        ..AccountEntry::default()
    };
    assert_eq!(ran.entry(created), Some(read.clone()));
    assert_eq!(ran.entry(ABSENT).unwrap().balances, [(1, 5)]);
    // To itself: the balance stays.
    let init = [sstore(1, 1), vec![0x30, 0xff]].concat();
    let tx = Tx {
        value: 5,
        ..Tx::create(init)
    };
    let expected = AccountEntry {
        balances: vec![(1, 5)],
        ..read
    };
    assert_eq!(
        BlockTest::new().then(tx).run().entry(created),
        Some(expected)
    );
}

#[test]
fn balance_unchanged_at_the_end_of_an_index_has_no_entry() {
    // MAIN pays OTHER, which destroys itself and pays it back by that.
    let both = BlockTest::running(call(OTHER, 1, ALL))
        .balance(MAIN, 1)
        .code(OTHER, destroy(MAIN));
    let ran = run(both);
    assert!(is_entry_empty(&ran, OTHER));
    assert!(is_entry_empty(&ran, MAIN));
}

#[test]
fn balance_restored_by_a_later_system_call_of_the_index_has_no_entry() {
    // A queue contract that sends its balance on; go-ethereum lists the balance in between.
    let queue = system_contracts()[2].0;
    let code = [
        &[0x5f, 0x5f, 0x5f, 0x5f, 0x47, 0x73][..],
        EXISTING.as_slice(),
        &[0x5a, 0xf1],
    ]
    .concat();
    let mut test = BlockTest::new().code(queue, code);
    test.withdrawals.push(Withdrawal {
        index: 0,
        validator_index: 0,
        address: queue,
        amount: 1,
    });
    let ran = test.run();
    assert_eq!(ran.entry(EXISTING).unwrap().balances, [(1, 1_000_000_001)]);
    assert!(is_entry_empty(&ran, queue));
}
