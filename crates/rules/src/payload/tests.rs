//! Payloads of each version: before, in and after their forks.

use super::*;
use crate::access_list::encode_access_list;
use crate::chain_spec::Activation;
use alloy_consensus::SignableTransaction;
use alloy_primitives::{Address, Signature};
use alloy_rpc_types_engine::ExecutionPayloadV4;
use niwaki_crypto::keccak256;
use niwaki_primitives::{
    AccessList, AccessListItem, AccountChanges, Authorization, BlockAccessIndex, Encodable2718,
    NonceChange, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy,
};
use proptest::prelude::*;

fn root(items: &[Bytes]) -> B256 {
    alloy_trie::root::ordered_trie_root_with_encoder(items, |item, out| {
        alloy_rlp::BufMut::put_slice(out, item);
    })
}

/// Paris from genesis, Shanghai at 10, Cancun at 20, Prague at 30, Amsterdam at 40.
fn spec() -> ChainSpec {
    let mut spec = ChainSpec::single(1, Fork::Paris);
    spec.set(Fork::Shanghai, Activation::Time(10));
    spec.set(Fork::Cancun, Activation::Time(20));
    spec.set(Fork::Prague, Activation::Time(30));
    spec.set(Fork::Amsterdam, Activation::Time(40));
    spec
}

/// A block with a legacy and a blob transaction (from Cancun on), with the fields of its fork.
fn block(timestamp: u64) -> Block {
    let signature = Signature::new(U256::ONE, U256::ONE, false);
    let mut transactions: Vec<TxEnvelope> = vec![TxLegacy::default().into_signed(signature).into()];
    if timestamp >= 20 {
        let blob = TxEip4844 {
            blob_versioned_hashes: vec![B256::repeat_byte(1), B256::repeat_byte(2)],
            ..TxEip4844::default()
        };
        transactions.push(blob.into_signed(signature).into());
    }
    let encoded: Vec<Bytes> = transactions
        .iter()
        .map(|tx| tx.encoded_2718().into())
        .collect();
    let header = Header {
        timestamp,
        transactions_root: root(&encoded),
        base_fee_per_gas: Some(7),
        withdrawals_root: (timestamp >= 10).then(|| root(&[])),
        blob_gas_used: (timestamp >= 20).then_some(2 << 17),
        excess_blob_gas: (timestamp >= 20).then_some(3),
        parent_beacon_block_root: (timestamp >= 20).then_some(B256::repeat_byte(9)),
        requests_hash: (timestamp >= 30).then(|| requests_hash(&[requests()])),
        ..Header::default()
    };
    let body = BlockBody {
        transactions,
        ommers: Vec::new(),
        withdrawals: (timestamp >= 10).then(Withdrawals::default),
    };
    Block::new(header, body)
}

fn requests() -> Bytes {
    Bytes::from_static(&[1, 2, 3])
}

fn input(timestamp: u64) -> PayloadInput {
    let block = block(timestamp);
    let (payload, _) = ExecutionPayload::from_block_slow(&block);
    PayloadInput {
        payload,
        versioned_hashes: (timestamp >= 20)
            .then(|| vec![B256::repeat_byte(1), B256::repeat_byte(2)]),
        parent_beacon_block_root: block.header.parent_beacon_block_root,
        execution_requests: (timestamp >= 30).then(|| vec![requests()]),
    }
}

fn decode(version: PayloadVersion, input: PayloadInput) -> Result<(Block, B256), PayloadError> {
    let Payload {
        block,
        hash,
        roots,
        invalid,
        ..
    } = decode_payload(&spec(), version, input, root)?;
    assert_eq!(roots.transactions, block.header.transactions_root);
    assert_eq!(roots.withdrawals, block.header.withdrawals_root);
    match invalid {
        Some(reason) => Err(reason.into()),
        None => Ok((block, hash)),
    }
}

fn refusal(version: PayloadVersion, timestamp: u64, change: fn(&mut PayloadInput)) -> PayloadError {
    let mut input = input(timestamp);
    change(&mut input);
    decode(version, input).expect_err("it must be refused")
}

#[test]
fn a_payload_decodes_to_the_block_it_was_made_from() {
    for (version, timestamp) in [
        (PayloadVersion::V1, 9),
        (PayloadVersion::V2, 9),
        (PayloadVersion::V2, 19),
        (PayloadVersion::V3, 20),
        (PayloadVersion::V3, 29),
        (PayloadVersion::V4, 30),
        (PayloadVersion::V4, 39),
    ] {
        let (got, hash) = decode(version, input(timestamp)).expect("it is valid");
        assert_eq!(got, block(timestamp));
        assert_eq!(hash, got.header.hash_slow());
    }
}

#[test]
fn a_method_outside_its_window_is_an_unsupported_fork() {
    for (version, timestamp) in [(PayloadVersion::V3, 30), (PayloadVersion::V4, 40)] {
        let error = refusal(version, timestamp, |_| {});
        assert_eq!(error.code(), Some(-38005), "{error}");
    }
    let mut early = input(29);
    early.execution_requests = Some(vec![]);
    let error = decode(PayloadVersion::V4, early).unwrap_err();
    assert_eq!(error.code(), Some(-38005), "{error}");
}

#[test]
fn fields_of_another_version_are_invalid_params() {
    for (version, timestamp) in [
        (PayloadVersion::V1, 10),
        (PayloadVersion::V2, 20),
        (PayloadVersion::V3, 10),
        (PayloadVersion::V5, 30),
    ] {
        let error = refusal(version, timestamp, |_| {});
        assert_eq!(error.code(), Some(-32602), "{error}");
    }
}

#[test]
fn missing_parameters_are_invalid_params() {
    let changes: [fn(&mut PayloadInput); 3] = [
        |input| input.versioned_hashes = None,
        |input| input.parent_beacon_block_root = None,
        |input| input.execution_requests = None,
    ];
    for change in changes {
        let error = refusal(PayloadVersion::V4, 30, change);
        assert_eq!(error.code(), Some(-32602), "{error}");
    }
}

#[test]
fn requests_have_data_and_ascend_by_type() {
    let changes: [fn(&mut PayloadInput); 4] = [
        |input| input.execution_requests = Some(vec![Bytes::new()]),
        |input| input.execution_requests = Some(vec![Bytes::from_static(&[0])]),
        |input| input.execution_requests = Some(vec![requests(), requests()]),
        |input| {
            input.execution_requests = Some(vec![requests(), Bytes::from_static(&[0, 1])]);
        },
    ];
    for change in changes {
        let error = refusal(PayloadVersion::V4, 30, change);
        assert_eq!(error.code(), Some(-32602), "{error}");
    }
}

fn spec_name(error: PayloadError) -> &'static str {
    match error {
        PayloadError::Invalid(block) => block.spec_name(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_payload_whose_fields_do_not_match_its_hash_is_refused() {
    let changes: [fn(&mut PayloadInput); 3] = [
        |input| input.parent_beacon_block_root = Some(B256::ZERO),
        |input| input.execution_requests = Some(vec![]),
        |input| match &mut input.payload {
            ExecutionPayload::V3(p) => p.payload_inner.payload_inner.gas_used += 1,
            _ => panic!("it is of Prague"),
        },
    ];
    for change in changes {
        let error = refusal(PayloadVersion::V4, 30, change);
        assert_eq!(spec_name(error), "INVALID_BLOCK_HASH");
    }
}

#[test]
fn versioned_hashes_are_compared_in_order_and_number() {
    let changes: [fn(&mut PayloadInput); 3] = [
        |input| input.versioned_hashes = Some(vec![]),
        |input| input.versioned_hashes.as_mut().unwrap().reverse(),
        |input| input.versioned_hashes.as_mut().unwrap().push(B256::ZERO),
    ];
    for change in changes {
        let error = refusal(PayloadVersion::V3, 20, change);
        assert_eq!(spec_name(error), "INVALID_VERSIONED_HASHES");
    }
}

#[test]
fn a_transaction_that_can_not_be_decoded_is_an_invalid_block() {
    let error = refusal(PayloadVersion::V3, 20, |input| match &mut input.payload {
        ExecutionPayload::V3(p) => {
            p.payload_inner.payload_inner.transactions[0] = Bytes::from_static(&[9, 9]);
        }
        _ => panic!("it is of Cancun"),
    });
    assert_eq!(spec_name(error), "RLP_STRUCTURES_ENCODING");
}

/// A payload of Amsterdam with this encoded access list and the matching hash.
fn amsterdam(list: &[u8]) -> PayloadInput {
    let mut block = block(40);
    block.header.gas_limit = 10_000;
    block.header.block_access_list_hash = Some(access_list_hash(&Bytes::copy_from_slice(list)));
    block.header.slot_number = Some(5);
    let PayloadInput {
        payload: ExecutionPayload::V3(mut v3),
        ..
    } = input(40)
    else {
        panic!("without a list it is of Prague");
    };
    let v1 = &mut v3.payload_inner.payload_inner;
    v1.gas_limit = block.header.gas_limit;
    v1.block_hash = block.header.hash_slow();
    PayloadInput {
        payload: ExecutionPayload::V4(ExecutionPayloadV4 {
            payload_inner: v3,
            block_access_list: Bytes::copy_from_slice(list),
            slot_number: 5,
        }),
        ..input(40)
    }
}

#[test]
fn a_payload_of_amsterdam_becomes_a_block_and_its_list() {
    let list = vec![AccountChanges::new(Address::ZERO)];
    let (block, hash) = decode(PayloadVersion::V5, amsterdam(&encode_access_list(&list))).unwrap();
    assert_eq!(hash, block.header.hash_slow());
    assert_eq!(block.header.slot_number, Some(5));
    assert_eq!(
        block.header.block_access_list_hash,
        Some(access_list_hash(&encode_access_list(&list)))
    );
    assert_eq!(decode(PayloadVersion::V5, amsterdam(&[0xc0])).err(), None);
    let input = amsterdam(&encode_access_list(&list));
    let payload = decode_payload(&spec(), PayloadVersion::V5, input, root).unwrap();
    assert_eq!(payload.access_list, Some(list));
}

#[test]
fn slot_and_access_list_are_fields_of_version_5_only() {
    let error = decode(PayloadVersion::V4, amsterdam(&[0xc0])).unwrap_err();
    assert_eq!(error.code(), Some(-32602), "{error}");
    let mut early = amsterdam(&[0xc0]);
    let ExecutionPayload::V4(p) = &mut early.payload else {
        panic!("it is of Amsterdam");
    };
    p.payload_inner.payload_inner.payload_inner.timestamp = 39;
    let error = decode(PayloadVersion::V5, early).unwrap_err();
    assert_eq!(error.code(), Some(-38005), "{error}");
}

#[test]
fn a_malformed_access_list_makes_the_block_invalid() {
    for bytes in [&[][..], &[0x80], &[0xc1], &[0xc0, 0xc0]] {
        let error = decode(PayloadVersion::V5, amsterdam(bytes)).unwrap_err();
        assert_eq!(spec_name(error), "RLP_STRUCTURES_ENCODING");
    }
}

#[test]
fn an_impossible_access_list_is_invalid_after_the_hash_matches() {
    let twice = vec![AccountChanges::new(Address::ZERO); 2];
    let bytes = encode_access_list(&twice);
    let error = decode(PayloadVersion::V5, amsterdam(&bytes)).unwrap_err();
    assert_eq!(spec_name(error), "INVALID_BLOCK_ACCESS_LIST");
    let many: Vec<_> = (0..6)
        .map(|n| AccountChanges::new(Address::with_last_byte(n)))
        .collect();
    let bytes = encode_access_list(&many);
    let error = decode(PayloadVersion::V5, amsterdam(&bytes)).unwrap_err();
    assert_eq!(spec_name(error), "BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED");
    // The two transactions make 3 the last index.
    let mut late = AccountChanges::new(Address::ZERO);
    late.nonce_changes
        .push(NonceChange::new(BlockAccessIndex(3), 1));
    let good = encode_access_list(&vec![late.clone()]);
    assert_eq!(decode(PayloadVersion::V5, amsterdam(&good)).err(), None);
    late.nonce_changes[0].block_access_index.0 = 4;
    let bad = encode_access_list(&vec![late]);
    let error = decode(PayloadVersion::V5, amsterdam(&bad)).unwrap_err();
    assert_eq!(spec_name(error), "INVALID_BLOCK_ACCESS_LIST");

    let mut changed = amsterdam(&good);
    let ExecutionPayload::V4(p) = &mut changed.payload else {
        panic!("it is of Amsterdam");
    };
    p.block_access_list = Bytes::from_static(&[0xc0]);
    let error = decode(PayloadVersion::V5, changed).unwrap_err();
    assert_eq!(spec_name(error), "INVALID_BLOCK_HASH");
}

/// One of each type, with something in each list.
fn transactions() -> [TxEnvelope; 6] {
    let signature = Signature::new(U256::from(0x1234), U256::MAX >> 1, true);
    let access_list = AccessList(vec![AccessListItem {
        address: Address::repeat_byte(5),
        storage_keys: vec![B256::repeat_byte(6); 2],
    }]);
    let authorization = Authorization {
        chain_id: U256::ONE,
        address: Address::repeat_byte(7),
        nonce: 300,
    };
    let authorization = authorization.into_signed(signature);
    let legacy = |chain_id| TxLegacy {
        chain_id,
        gas_limit: 21_000,
        value: U256::from(1_u64 << 40),
        input: Bytes::from_static(&[0, 1, 0x80, 0xff]),
        ..TxLegacy::default()
    };
    let with_list = TxEip2930 {
        access_list: access_list.clone(),
        ..TxEip2930::default()
    };
    let dynamic = TxEip1559 {
        max_fee_per_gas: 0x100,
        access_list: access_list.clone(),
        ..TxEip1559::default()
    };
    let blob = TxEip4844 {
        blob_versioned_hashes: vec![B256::repeat_byte(1); 2],
        access_list: access_list.clone(),
        ..TxEip4844::default()
    };
    let code = TxEip7702 {
        access_list,
        authorization_list: vec![authorization; 2],
        ..TxEip7702::default()
    };
    [
        legacy(None).into_signed(signature).into(),
        legacy(Some(1)).into_signed(signature).into(),
        with_list.into_signed(signature).into(),
        dynamic.into_signed(signature).into(),
        blob.into_signed(signature).into(),
        code.into_signed(signature).into(),
    ]
}

/// Encoded transactions with a few bytes inserted, removed or replaced.
fn almost_transactions() -> impl Strategy<Value = Vec<u8>> {
    let places = prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<u8>()), 0..3);
    (0..6_usize, places).prop_map(|(which, edits)| {
        let mut bytes = transactions()[which].encoded_2718();
        for (at, edit, byte) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn bytes_that_decode_to_a_transaction_are_those_it_is_encoded_as(bytes in almost_transactions()) {
        let hash = keccak256(&bytes);
        if let Ok(transactions) = decode_transactions(&[bytes.clone().into()]) {
            prop_assert_eq!(transactions[0].tx_hash(), &hash);
            prop_assert_eq!(transactions[0].encoded_2718(), bytes);
        }
    }
}

#[test]
fn a_legacy_transaction_with_a_type_or_a_chain_beyond_64_bits_is_none() {
    let [legacy, ..] = transactions();
    let bytes = legacy.encoded_2718();
    let typed = [&[0], &bytes[..]].concat();
    assert!(decode_transactions(&[typed.into()]).is_err());
    // Its `v` is 28; the list's header was one byte, and is two with a longer one.
    let at = bytes.len() - 33 - 3 - 1;
    assert_eq!((bytes[0], bytes[at]), (0xf7, 28));
    let with = |v: &[u8]| {
        let length = u8::try_from(54 + v.len()).expect("a short list");
        let bytes = [&[0xf8, length], &bytes[1..at], v, &bytes[at + 1..]].concat();
        decode_transactions(&[bytes.into()])
    };
    let [tx] = &with(&[0x88, 2, 0, 0, 0, 0, 0, 0, 35]).unwrap()[..] else {
        panic!("one was given");
    };
    assert_eq!(tx.chain_id(), Some(1 << 56));
    assert!(with(&[0x89, 2, 0, 0, 0, 0, 0, 0, 0, 35]).is_err());
}

#[test]
fn transactions_of_every_type_are_decoded_with_their_hashes() {
    let transactions = transactions();
    let encoded = transactions.each_ref().map(|tx| tx.encoded_2718().into());
    let decoded = decode_transactions(&encoded).expect("they are encoded as they are");
    assert_eq!(decoded, transactions);
    for (tx, bytes) in decoded.iter().zip(&encoded) {
        assert_eq!(*tx.tx_hash(), keccak256(bytes));
    }
}
