//! Requests and answers, written and read again; bytes that are none.

use super::*;
use crate::wire::{BlockId, Request};
use niwaki_primitives::{Address, Log, hex};
use proptest::prelude::*;

const KINDS: [RequestKind; 6] = [
    RequestKind::Headers,
    RequestKind::Bodies,
    RequestKind::Receipts,
    RequestKind::PooledTransactions,
    RequestKind::AccessLists,
    RequestKind::Cells,
];

fn hashes() -> impl Strategy<Value = Vec<B256>> {
    prop::collection::vec(any::<[u8; 32]>().prop_map(B256::from), 0..10)
}

fn request() -> impl Strategy<Value = Request> {
    let start = prop_oneof![
        any::<[u8; 32]>().prop_map(|hash| BlockId::Hash(hash.into())),
        any::<u64>().prop_map(BlockId::Number),
    ];
    let headers = (start, any::<u64>(), any::<u64>(), any::<bool>());
    prop_oneof![
        headers.prop_map(|(start, limit, skip, reverse)| Request::Headers {
            start,
            limit,
            skip,
            reverse
        }),
        hashes().prop_map(Request::Bodies),
        (hashes(), any::<u64>()).prop_map(|(blocks, first_receipt)| Request::Receipts {
            blocks,
            first_receipt
        }),
        hashes().prop_map(Request::PooledTransactions),
        hashes().prop_map(Request::AccessLists),
        (hashes(), any::<[u8; 16]>()).prop_map(|(transactions, columns)| Request::Cells {
            transactions,
            columns: CellMask(columns)
        }),
    ]
}

fn receipt(number: u8) -> Receipt {
    Receipt {
        tx_type: number % 5,
        status: (number < 4).then_some(number.is_multiple_of(2)),
        post_state: (number >= 4).then(|| B256::repeat_byte(number)),
        cumulative_gas_used: 21_000 * u64::from(number),
        logs: vec![Log::new_unchecked(
            Address::repeat_byte(number),
            vec![B256::repeat_byte(1)],
            Bytes::from_static(b"data"),
        )],
    }
}

proptest! {
    #[test]
    fn requests_survive_their_encoding(id: u64, request in request()) {
        let version = EthVersion::Eth72;
        let data = request.encode(id, version);
        prop_assert_eq!(Request::decode(request.kind(), &data, version), Ok((id, request)));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        for kind in KINDS {
            for version in EthVersion::ALL {
                let _ = Request::decode(kind, &data, version);
                let _ = Answer::decode(kind, &data, version);
            }
        }
    }
}

#[test]
fn a_request_for_headers_is_written_as_the_specification_has_it() {
    let by_number = Request::Headers {
        start: BlockId::Number(9999),
        limit: 5,
        skip: 5,
        reverse: false,
    };
    // EIP-2481, GetBlockHeaders.
    let encoded = by_number.encode(1111, EthVersion::Eth69);
    assert_eq!(hex::encode(encoded), "ca820457c682270f050580");
    let data = hex::decode("ca820457c682000f050580").unwrap();
    assert!(Request::decode(RequestKind::Headers, &data, EthVersion::Eth69).is_err());
}

#[test]
fn receipts_have_an_index_and_a_flag_since_eth_70() {
    let request = Request::Receipts {
        blocks: vec![B256::repeat_byte(1)],
        first_receipt: 7,
    };
    let old = request.encode(1, EthVersion::Eth69);
    let (_, read) = Request::decode(RequestKind::Receipts, &old, EthVersion::Eth69).unwrap();
    assert!(matches!(
        read,
        Request::Receipts {
            first_receipt: 0,
            ..
        }
    ));

    let receipts: Vec<Receipt> = (0..6).map(receipt).collect();
    let mut block = Vec::new();
    receipts
        .iter()
        .for_each(|receipt| put_receipt(receipt, EthVersion::Eth69, &mut block));
    let mut items = Items::default();
    items.push(&list(&[&block]));
    items.push(&list(&[]));
    let blocks = vec![receipts, vec![]];
    let read = Answer::decode(RequestKind::Receipts, &items.answer(9), EthVersion::Eth69);
    let expected = |is_last_incomplete| Answer::Receipts {
        blocks: blocks.clone(),
        is_last_incomplete,
    };
    assert_eq!(read, Ok((9, expected(false))));
    for flag in [false, true] {
        let data = items.receipts_answer(9, flag);
        let read = Answer::decode(RequestKind::Receipts, &data, EthVersion::Eth70);
        assert_eq!(read, Ok((9, expected(flag))));
    }
}

#[test]
fn receipts_before_eth_69_have_blooms_and_typed_ones_are_strings() {
    let legacy = receipt(0);
    let mut block = Vec::new();
    put_receipt(&legacy, EthVersion::Eth68, &mut block);
    assert_eq!(block, legacy.encode_2718());
    assert!(block.windows(256).any(|part| part == legacy.bloom().0));
    let typed = receipt(3);
    let mut as_string = Vec::new();
    put_receipt(&typed, EthVersion::Eth68, &mut as_string);
    assert_eq!(as_string, encode(Bytes::from(typed.encode_2718())));

    let receipts: Vec<Receipt> = (0..6).map(receipt).collect();
    for version in [EthVersion::Eth66, EthVersion::Eth67, EthVersion::Eth68] {
        let mut block = Vec::new();
        let put = |receipt| put_receipt(receipt, version, &mut block);
        receipts.iter().for_each(put);
        let mut items = Items::default();
        items.push(&list(&[&block]));
        let read = Answer::decode(RequestKind::Receipts, &items.answer(9), version);
        let expected = Answer::Receipts {
            blocks: vec![receipts.clone()],
            is_last_incomplete: false,
        };
        assert_eq!(read, Ok((9, expected)));
        assert!(
            Answer::decode(RequestKind::Receipts, &items.answer(9), EthVersion::Eth69).is_err()
        );
    }
    // A legacy receipt in a string, one with a field more, and bytes after a typed one.
    let mut long = legacy.encode_2718();
    long.push(0x80);
    let odd = [
        encode(Bytes::from(legacy.encode_2718())),
        encode(Bytes::from([&[0][..], &legacy.encode_2718()].concat())),
        encode(Bytes::from([&typed.encode_2718()[..], &[0x80]].concat())),
        list(&[&long[3..]]),
    ];
    for odd in odd {
        let mut items = Items::default();
        items.push(&list(&[&odd]));
        let message = items.answer(9);
        let read = Answer::decode(RequestKind::Receipts, &message, EthVersion::Eth68);
        assert!(read.is_err(), "{read:?}");
    }
}

#[test]
fn a_missing_access_list_is_not_an_empty_one() {
    let mut items = Items::default();
    for item in [&[0x80][..], &[0xc0], &[0xc1, 0xc0]] {
        items.push(item);
    }
    let read = Answer::decode(
        RequestKind::AccessLists,
        &items.answer(1),
        EthVersion::Eth71,
    );
    let lists = vec![
        None,
        Some(Bytes::from_static(&[0xc0])),
        Some(Bytes::from_static(&[0xc1, 0xc0])),
    ];
    assert_eq!(read, Ok((1, Answer::AccessLists(lists))));
    let mut items = Items::default();
    items.push(&[0x81, 0x80]);
    assert!(
        Answer::decode(
            RequestKind::AccessLists,
            &items.answer(1),
            EthVersion::Eth71
        )
        .is_err()
    );
}

#[test]
fn cells_come_back_as_they_were_and_must_be_2048_bytes() {
    let columns = CellMask([1; 16]);
    let transactions = vec![B256::repeat_byte(1), B256::repeat_byte(2)];
    let cell = Bytes::from(vec![3; CELL_BYTES]);
    let cells = vec![vec![cell.clone(), cell.clone()], vec![]];
    let data = cells_answer(4, &transactions, &cells, columns);
    let read = Answer::decode(RequestKind::Cells, &data, EthVersion::Eth72);
    let expected = Answer::Cells {
        transactions: transactions.clone(),
        cells,
        columns,
    };
    assert_eq!(read, Ok((4, expected)));
    let short = vec![vec![cell.slice(1..)], vec![]];
    for bad in [short, vec![vec![cell]]] {
        let data = cells_answer(4, &transactions, &bad, columns);
        assert!(Answer::decode(RequestKind::Cells, &data, EthVersion::Eth72).is_err());
    }
}

#[test]
fn an_answer_takes_items_until_it_has_2_mib() {
    let mut items = Items::default();
    let item = list(&[&vec![0; 1 << 20]]);
    assert!(items.push(&item) && !items.push(&item));
    assert_eq!((items.count(), items.is_full()), (2, true));
}

#[test]
fn a_mask_numbers_its_bits_from_the_lowest_of_the_first_byte() {
    let mut mask = CellMask::default();
    for index in [0, 9, 127, 128] {
        mask.set(index);
    }
    assert_eq!(
        (mask.0[0], mask.0[1], mask.0[15], mask.count()),
        (1, 2, 0x80, 3)
    );
    assert!(mask.has(127) && !mask.has(1) && !mask.has(128));
}

/// The second list is none, but it is not reached.
#[test]
fn cells_of_more_transactions_than_named_are_refused_at_the_first_of_them() {
    let version = EthVersion::Eth72;
    let columns = encode(CellMask::default());
    let (none, broken) = (vec![0xc0], vec![0xc2, 0xc0, 0x81]);
    let message = list(&[&encode(7_u64), &none, &broken, &columns]);
    let refused = Answer::decode(RequestKind::Cells, &message, version);
    assert_eq!(refused, Err(OTHER_TRANSACTIONS));
    let named = encode(vec![B256::ZERO]);
    let message = list(&[&encode(7_u64), &named, &[0xc0], &columns]);
    let refused = Answer::decode(RequestKind::Cells, &message, version);
    assert_eq!(refused, Err(OTHER_TRANSACTIONS));
}
