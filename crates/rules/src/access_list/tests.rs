//! Possible access lists, and each error of an impossible one.

use super::*;
use alloy_primitives::address;
use niwaki_primitives::{
    BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges, StorageChange,
};

const AT: Address = address!("0x00000000000000000000000000000000000000aa");

/// The check for a block with two transactions, so that 3 is the last index.
fn check(list: &[AccountChanges]) -> Result<(), InvalidAccessList> {
    let header = Header {
        gas_limit: 20_000,
        ..Header::default()
    };
    check_access_list(&ChainSpec::frontier(1), list, &header, 2)
}

fn index(index: u64) -> BlockAccessIndex {
    BlockAccessIndex(index)
}

fn changed(slot: u64, indices: &[u64]) -> SlotChanges {
    let change = |at: &u64| StorageChange::new(index(*at), U256::from(7));
    SlotChanges::new(U256::from(slot), indices.iter().map(change).collect())
}

fn full() -> AccountChanges {
    AccountChanges {
        address: AT,
        storage_changes: vec![changed(0, &[0, 3]), changed(5, &[1])],
        storage_reads: vec![U256::from(1), U256::MAX],
        balance_changes: vec![
            BalanceChange::new(index(1), U256::ZERO),
            BalanceChange::new(index(3), U256::MAX),
        ],
        nonce_changes: vec![NonceChange::new(index(2), 9)],
        code_changes: vec![CodeChange::new(index(2), vec![1; 65_536].into())],
    }
}

#[test]
fn an_access_list_round_trips_and_the_empty_one_has_the_eip_7928_hash() {
    let list = vec![AccountChanges::new(Address::ZERO), full()];
    let bytes = encode_access_list(&list);
    assert_eq!(decode_access_list(&bytes), Ok(list.clone()));
    assert_eq!(check(&list), Ok(()));
    let empty = encode_access_list(&Vec::new());
    assert_eq!(&empty[..], [0xc0]);
    assert_eq!(
        access_list_hash(&empty).to_string(),
        "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"
    );
    assert_eq!(check(&[]), Ok(()));
}

/// Decodes the bytes for a block with two transactions and a gas limit of 20,000.
fn decode(bytes: &[u8]) -> Result<Result<BlockAccessList, InvalidAccessList>, InvalidBlock> {
    decode_bounded_access_list(bytes, 20_000, 2)
}

#[test]
fn a_list_is_decoded_up_to_the_size_that_its_block_allows() {
    // An account, two changed slots and two read ones; ten items are allowed.
    let mut list = vec![full()];
    assert_eq!(decode(&encode_access_list(&list)), Ok(Ok(list.clone())));
    list[0].storage_reads = (10..17).map(U256::from).collect();
    assert_eq!(decode(&encode_access_list(&list)), Ok(Ok(list.clone())));
    assert_eq!(check(&list), Ok(()));
    list[0].storage_reads.push(U256::MAX);
    let too_many = InvalidAccessList::TooManyItems { got: 11, max: 10 };
    assert_eq!(check(&list), Err(too_many.clone()));
    assert_eq!(decode(&encode_access_list(&list)), Ok(Err(too_many)));

    let accounts = (1..=11).map(|number| AccountChanges::new(Address::repeat_byte(number)));
    let too_many = InvalidAccessList::TooManyItems { got: 11, max: 10 };
    let bytes = encode_access_list(&accounts.collect());
    assert_eq!(decode(&bytes), Ok(Err(too_many)));
    let slots = (0..10).map(|slot| changed(slot, &[1])).collect();
    let changes = AccountChanges {
        storage_changes: slots,
        ..AccountChanges::new(AT)
    };
    let too_many = InvalidAccessList::TooManyItems { got: 11, max: 10 };
    let bytes = encode_access_list(&vec![changes]);
    assert_eq!(decode(&bytes), Ok(Err(too_many)));
}

#[test]
fn more_changes_than_indices_are_refused_as_the_first_index_out_of_order() {
    for (what, indices) in [
        ("in order, too high", [0, 1, 2, 3, 4]),
        ("twice", [0, 1, 1, 2, 3]),
        ("back", [3, 0, 1, 2, 3]),
    ] {
        let mut storage = vec![AccountChanges::new(AT)];
        storage[0].storage_changes = vec![changed(0, &indices)];
        let mut balances = vec![AccountChanges::new(AT)];
        balances[0].balance_changes = indices
            .map(|at| BalanceChange::new(index(at), U256::ZERO))
            .to_vec();
        let mut nonces = vec![AccountChanges::new(AT)];
        nonces[0].nonce_changes = indices.map(|at| NonceChange::new(index(at), 1)).to_vec();
        let mut codes = vec![AccountChanges::new(AT)];
        codes[0].code_changes = indices
            .map(|at| CodeChange::new(index(at), Bytes::new()))
            .to_vec();
        for list in [storage, balances, nonces, codes] {
            let reason = check(&list).expect_err(what);
            let decoded = decode(&encode_access_list(&list));
            assert_eq!(decoded, Ok(Err(reason)), "{what}");
        }
    }
    // As many as there are indices are decoded, whatever they are.
    let mut list = vec![AccountChanges::new(AT)];
    list[0].storage_changes = vec![changed(0, &[9, 1, 1, 2])];
    assert_eq!(decode(&encode_access_list(&list)), Ok(Ok(list)));
}

#[test]
fn a_list_is_either_malformed_to_both_decoders_or_to_neither() {
    let bytes = encode_access_list(&vec![AccountChanges::new(Address::ZERO), full()]);
    let plain = |bytes: &[u8]| decode_access_list(bytes).is_ok();
    let bounded = |bytes: &[u8]| decode_bounded_access_list(bytes, 20_000, 2);
    for cut in 0..200 {
        assert!(bounded(&bytes[..cut]).is_err(), "{cut}");
        assert!(bounded(&bytes[..bytes.len() - 1 - cut]).is_err(), "{cut}");
    }
    for at in 0..200 {
        for new in [0, 0x01, 0x80, 0xb8, 0xc0, 0xc1, 0xf8, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = new;
            match bounded(&changed) {
                Ok(Ok(_)) => assert!(plain(&changed), "{at}: {new}"),
                Ok(Err(_)) => {}
                Err(_) => assert!(!plain(&changed), "{at}: {new}"),
            }
        }
    }
    let longer = [&bytes[..], &[0xc0]].concat();
    assert!(bounded(&longer).is_err() && !plain(&longer));
}

#[test]
fn slot_and_index_zero_are_the_empty_string() {
    let account = AccountChanges {
        storage_changes: vec![changed(0, &[0])],
        ..AccountChanges::new(Address::ZERO)
    };
    let mut expected = vec![0xdf, 0xde, 0x94];
    expected.extend([0; 20]);
    // One slot, of one change, then four empty lists.
    expected.extend([
        0xc6, 0xc5, 0x80, 0xc3, 0xc2, 0x80, 0x07, 0xc0, 0xc0, 0xc0, 0xc0,
    ]);
    expected[0] = 0xc0 + u8::try_from(expected.len() - 1).unwrap();
    expected[1] = 0xc0 + u8::try_from(expected.len() - 2).unwrap();
    assert_eq!(encode_access_list(&vec![account])[..], expected);
}

#[test]
fn what_is_not_the_rlp_of_one_list_is_refused() {
    let list = vec![full()];
    let good = encode_access_list(&list).to_vec();
    let mut longer = good.clone();
    longer.push(0);
    let shorter = good[..good.len() - 1].to_vec();
    // The index 0 as the byte 0 instead of the empty string.
    let zero = alloy_rlp::encode(vec![vec![Bytes::from(vec![0; 20])]]);
    let mut leading_zero = vec![0xdf, 0xde, 0x94];
    leading_zero.extend([0; 20]);
    leading_zero.extend([0xc0, 0xc1, 0x00, 0xc0, 0xc0, 0xc0]);
    leading_zero[0] = 0xc0 + u8::try_from(leading_zero.len() - 1).unwrap();
    leading_zero[1] = 0xc0 + u8::try_from(leading_zero.len() - 2).unwrap();
    for bytes in [
        vec![],
        vec![0x80],
        vec![0xc1],
        vec![0xc0, 0xc0],
        vec![0xff; 9],
        longer,
        shorter,
        zero,
        leading_zero,
    ] {
        let error = decode_access_list(&bytes).unwrap_err();
        assert_eq!(error.spec_name(), "RLP_STRUCTURES_ENCODING", "{bytes:02x?}");
    }
}

#[test]
fn access_list_entries_ascend_strictly() {
    type Change = fn(&mut AccountChanges);
    let changes: [(Change, &str); 12] = [
        (|a| a.storage_changes.swap(0, 1), "storage changes"),
        (
            |a| a.storage_changes[1].slot = U256::ZERO,
            "storage changes",
        ),
        (|a| a.storage_reads.swap(0, 1), "storage reads"),
        (|a| a.storage_reads[1] = U256::ONE, "storage reads"),
        (
            |a| a.storage_reads[1] = U256::from(5),
            "and its storage reads",
        ),
        (|a| a.storage_changes[0].changes.clear(), "has none"),
        (
            |a| a.storage_changes[0].changes.swap(0, 1),
            "storage changes",
        ),
        (|a| a.balance_changes.swap(0, 1), "balance changes"),
        (
            |a| a.nonce_changes.push(a.nonce_changes[0].clone()),
            "nonce changes",
        ),
        (
            |a| a.code_changes.push(a.code_changes[0].clone()),
            "code changes",
        ),
        (
            |a| a.storage_changes[1].changes[0].block_access_index.0 = 4,
            "above 3",
        ),
        (
            |a| a.nonce_changes[0].block_access_index.0 = u64::MAX,
            "above 3",
        ),
    ];
    for (change, says) in changes {
        let mut account = full();
        change(&mut account);
        let error = check(&[account]).unwrap_err();
        assert_eq!(error.spec_name(), "INVALID_BLOCK_ACCESS_LIST");
        assert!(error.to_string().contains(says), "{error}");
    }
    let other = AccountChanges::new(Address::repeat_byte(0xff));
    assert_eq!(check(&[full(), other.clone()]), Ok(()));
    for list in [vec![other.clone(), full()], vec![full(), full()]] {
        let address = list[1].address;
        assert_eq!(
            check(&list),
            Err(InvalidAccessList::AccountOrder { address })
        );
    }
}

#[test]
fn a_code_is_at_most_as_long_as_the_chain_allows() {
    let mut account = full();
    account.code_changes[0].new_code = vec![1; 65_537].into();
    let list = [account];
    let (got, max) = (65_537, 65_536);
    let error = InvalidAccessList::CodeTooLarge {
        address: AT,
        got,
        max,
    };
    assert_eq!(check(&list), Err(error));
}

#[test]
fn every_account_and_slot_takes_2000_gas_of_the_limit() {
    let list = [AccountChanges::new(Address::ZERO), full()];
    // Two accounts, two changed slots, two read ones.
    for (gas_limit, max) in [(12_000, 6), (11_999, 5), (0, 0)] {
        let header = Header {
            gas_limit,
            ..Header::default()
        };
        let expected = match max {
            6 => Ok(()),
            max => Err(InvalidAccessList::TooManyItems { got: 6, max }),
        };
        let got = check_access_list(&ChainSpec::frontier(1), &list, &header, 2);
        assert_eq!(got, expected);
        if let Err(error) = got {
            assert_eq!(error.spec_name(), "BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED");
        }
    }
}
