//! Block access lists: kept beside their blocks, held against their headers.

use super::*;
use crate::{BlockTemplate, BuildError};
use niwaki_primitives::{AccountChanges, Address, Bytes, Header};
use niwaki_rules::{access_list_hash, decode_access_list, encode_access_list};
use niwaki_storage::Batch;

/// The time at which Amsterdam begins.
pub(super) const AMSTERDAM: u64 = 24;

fn genesis_at(time: u64) -> Genesis {
    genesis_with(time, "0x3938700")
}

fn genesis_with(time: u64, gas_limit: &str) -> Genesis {
    let text = include_str!("../../../../testdata/amsterdam/genesis.json");
    let mut json: serde_json::Value = serde_json::from_str(text).unwrap();
    json["config"]["amsterdamTime"] = time.into();
    json["gasLimit"] = gas_limit.into();
    Genesis::from_json(&json.to_string()).unwrap()
}

fn open_at(path: Option<&Path>, time: u64) -> Chain {
    open_eager(config(path, &genesis_at(time)))
}

pub(super) fn template(parent: &Header, timestamp: u64) -> BlockTemplate {
    BlockTemplate {
        parent: parent.hash_slow(),
        coinbase: Address::repeat_byte(0xfe),
        timestamp,
        slot_number: 7,
        ..BlockTemplate::default()
    }
}

fn list_of(chain: &Chain, hash: &B256) -> Option<Bytes> {
    chain.block_access_list(hash).unwrap()
}

fn problems(chain: &Chain) -> Vec<&'static str> {
    let mut segments = Vec::new();
    chain
        .check(&mut |problem| segments.push(problem.segment))
        .unwrap();
    segments
}

#[test]
fn a_genesis_block_of_amsterdam_has_an_empty_list() {
    let chain = open_at(None, 0);
    let hash = chain.genesis_hash();
    let list = chain.block_access_list(&hash).unwrap().unwrap();
    assert_eq!(&list[..], [0xc0]);
    let header = chain.header(&hash).unwrap().unwrap().header;
    assert_eq!(header.block_access_list_hash, Some(access_list_hash(&list)));
    assert_eq!(header.slot_number, Some(0));
    assert_eq!(problems(&chain), [""; 0]);

    let key = chain.head().id.to_key();
    let mut batch = Batch::new();
    batch.put(Segment::AccessLists, &key, &[0xc1, 0xc0]);
    chain.database().write(batch, false).unwrap();
    assert_eq!(problems(&chain), [Segment::AccessLists.name()]);
    // A block may be without its list.
    let mut batch = Batch::new();
    batch.delete(Segment::AccessLists, &key);
    chain.database().write(batch, false).unwrap();
    assert_eq!(problems(&chain), [""; 0]);
    assert_eq!(list_of(&chain, &hash), None);
    assert_eq!(list_of(&chain, &B256::ZERO), None);
}

#[test]
fn blocks_before_amsterdam_have_neither_list_nor_slot() {
    let chain = open_at(None, AMSTERDAM);
    let genesis = chain.head().header;
    let built = chain
        .build(template(&genesis, AMSTERDAM - 1), vec![])
        .unwrap();
    assert_eq!(built.block_access_list, None);
    assert_eq!(built.block.header.block_access_list_hash, None);
    assert_eq!(built.block.header.slot_number, None);
    chain.import(built.block).unwrap();
    assert_eq!(list_of(&chain, &built.hash), None);
    assert_eq!(problems(&chain), [""; 0]);
}

#[test]
fn an_amsterdam_block_is_built_imported_and_returns_its_access_list() {
    let folder = tempfile::tempdir().unwrap();
    let chain = open_at(Some(folder.path()), AMSTERDAM);
    let genesis = chain.head().header;
    let built = chain.build(template(&genesis, AMSTERDAM), vec![]).unwrap();
    let header = &built.block.header;
    let list = built.block_access_list.clone().unwrap();
    assert_eq!(header.block_access_list_hash, Some(access_list_hash(&list)));
    assert_eq!(header.slot_number, Some(7));
    let decoded = decode_access_list(&list).unwrap();
    // The six system contracts, and nothing else in a block without transactions.
    assert_eq!(decoded.len(), 6);
    chain.import(built.block.clone()).unwrap();
    assert_eq!(list_of(&chain, &built.hash), Some(list.clone()));
    assert_eq!(problems(&chain), [""; 0]);
    drop(chain);
    let chain = open_at(Some(folder.path()), AMSTERDAM);
    assert_eq!(chain.head().id.hash, built.hash);
    assert_eq!(list_of(&chain, &built.hash), Some(list));
}

#[test]
fn a_header_with_the_hash_of_another_list_is_refused() {
    let chain = open_at(None, AMSTERDAM);
    let genesis = chain.head().header;
    let built = chain.build(template(&genesis, AMSTERDAM), vec![]).unwrap();
    let honest = decode_access_list(&built.block_access_list.unwrap()).unwrap();
    let mut more = honest.clone();
    more.push(AccountChanges::new(Address::repeat_byte(0xff)));
    let mut less = honest.clone();
    less.pop();
    let mut unread = honest.clone();
    let read = unread
        .iter_mut()
        .find(|account| !account.storage_reads.is_empty());
    read.unwrap().storage_reads.pop();
    let mut wrong = honest.clone();
    let mut slots = wrong
        .iter_mut()
        .flat_map(|account| &mut account.storage_changes);
    slots.next().unwrap().changes[0].new_value += U256::ONE;
    for lie in [more, less, unread, wrong, vec![]] {
        let mut block = built.block.clone();
        let expected = access_list_hash(&encode_access_list(&lie));
        block.header.block_access_list_hash = Some(expected);
        let error = chain.import(block).unwrap_err();
        let ImportError::Invalid { reason, .. } = error else {
            panic!("{error}");
        };
        let got = access_list_hash(&encode_access_list(&honest));
        assert_eq!(*reason, InvalidBlock::BlockAccessListHash { got, expected });
        assert_eq!(reason.spec_name(), "INVALID_BLOCK_ACCESS_LIST");
    }
    chain.import(built.block).unwrap();
}

#[test]
fn a_block_whose_access_list_exceeds_its_gas_limit_is_neither_built_nor_imported() {
    // The system contracts alone are 6 accounts and 19 slots.
    let genesis = genesis_with(AMSTERDAM, "0x9c40");
    let chain = open_eager(config(None, &genesis));
    let head = chain.head().header;
    let error = chain.build(template(&head, AMSTERDAM), vec![]).unwrap_err();
    let BuildError::Invalid(reason) = &error else {
        panic!("{error}");
    };
    assert_eq!(reason.spec_name(), "BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED");
}
