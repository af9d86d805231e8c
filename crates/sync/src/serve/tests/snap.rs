//! Requests by `snap` to the states of the testdata's blocks: each answer is checked against the state root, as a peer does.

use super::{blocks, chain as imported, testdata};
use crate::serve::{RecentStates, snap};
use niwaki_chain::{Chain, ChainConfig};
use niwaki_crypto::keccak256;
use niwaki_network::wire::{Answer, EthVersion, Request, SnapAnswer, SnapRequest, TriePaths};
use niwaki_primitives::rlp::Decodable;
use niwaki_primitives::{B256, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, U256};
use niwaki_rules::Genesis;
use niwaki_state::{
    KeyRange, TrieAccount, TrieRows, decode_account, verify_accounts, verify_slots,
};
use niwaki_threads::lock;
use std::sync::Arc;

const LAST: B256 = B256::repeat_byte(0xff);

/// A peer that asks a node for parts of its states.
struct Asker {
    chain: Chain,
    states: RecentStates,
}

impl Asker {
    fn ask(&self, request: SnapRequest) -> SnapAnswer {
        let message = snap::answer(&self.chain, &self.states, &request, 9).unwrap();
        let kind = Request::Snap(request).kind();
        match Answer::decode(kind, &message, EthVersion::Eth72).unwrap() {
            (9, Answer::Snap(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn accounts(&self, root: B256, origin: B256, bytes: u64) -> (Accounts, Vec<Bytes>) {
        let request = SnapRequest::AccountRange {
            root,
            origin,
            limit: LAST,
            bytes,
        };
        let SnapAnswer::AccountRange { accounts, proof } = self.ask(request) else {
            panic!("another answer");
        };
        let decoded = accounts.iter();
        let decoded = decoded.map(|(key, slim)| (key, decode_account(slim).unwrap()));
        (decoded.collect(), proof)
    }

    fn storage(
        &self,
        root: B256,
        accounts: &[B256],
        origin: B256,
        bytes: u64,
    ) -> (Vec<Slots>, Vec<Bytes>) {
        let request = SnapRequest::StorageRanges {
            root,
            accounts: accounts.to_vec(),
            origin,
            limit: LAST,
            bytes,
        };
        let SnapAnswer::StorageRanges { slots, proof } = self.ask(request) else {
            panic!("another answer");
        };
        let value = |mut value: &[u8]| U256::decode(&mut value).unwrap();
        let decoded = slots.iter().map(|slots| {
            let slots = slots.iter();
            slots.map(|(key, bytes)| (key, value(bytes))).collect()
        });
        (decoded.collect(), proof)
    }

    /// All accounts, by answers of about so many bytes, each proved.
    fn all_accounts(&self, root: B256, bytes: u64) -> Accounts {
        let (mut all, mut origin) = (Accounts::new(), B256::ZERO);
        loop {
            let (accounts, proof) = self.accounts(root, origin, bytes);
            let (keys, mut rows) = (keys_from(origin), TrieRows::default());
            let has_more = verify_accounts(root, keys, &accounts, &proof, &mut rows).unwrap();
            all.extend(accounts);
            match has_more {
                true => origin = after(all.last().unwrap().0),
                false => return all,
            }
        }
    }

    /// All slots of an account, by answers of about so many bytes, each proved.
    fn all_slots(&self, root: B256, account: B256, storage_root: B256, bytes: u64) -> Slots {
        let (mut all, mut origin) = (Slots::new(), B256::ZERO);
        loop {
            let (lists, proof) = self.storage(root, &[account], origin, bytes);
            let slots = lists.into_iter().next().unwrap_or_default();
            let has_more = are_slots(account, storage_root, origin, &slots, &proof);
            all.extend(slots);
            match has_more {
                true => origin = after(all.last().unwrap().0),
                false => return all,
            }
        }
    }
}

type Accounts = Vec<(B256, TrieAccount)>;
type Slots = Vec<(B256, U256)>;

/// The accounts that have storage, and its root.
fn keys_from(first: B256) -> KeyRange {
    KeyRange { first, last: LAST }
}

/// Checks slots of an account from a key on; returns whether there are more.
fn are_slots(
    account: B256,
    storage_root: B256,
    origin: B256,
    slots: &[(B256, U256)],
    proof: &[Bytes],
) -> bool {
    let (keys, mut rows) = (keys_from(origin), TrieRows::default());
    verify_slots(account, storage_root, keys, slots, proof, &mut rows).unwrap()
}

fn with_storage(all: &Accounts) -> Vec<(B256, B256)> {
    let roots = all
        .iter()
        .map(|(key, account)| (*key, account.storage_root));
    roots.filter(|(_, root)| *root != EMPTY_ROOT_HASH).collect()
}

fn after(key: B256) -> B256 {
    (U256::from_be_bytes(key.0) + U256::from(1)).into()
}

/// Without kept views, and with those that a node keeps while its head moves.
fn askers() -> [Asker; 2] {
    let without = Asker {
        chain: imported().0,
        states: RecentStates::default(),
    };
    let genesis = String::from_utf8(testdata("genesis.json")).unwrap();
    let genesis = Genesis::from_json(&genesis).unwrap();
    let config = ChainConfig {
        data_path: None,
        spec: Arc::new(genesis.spec.clone()),
        genesis: (&genesis).into(),
        storage: Default::default(),
        state: Default::default(),
    };
    let (chain, states) = (Chain::open(config).unwrap(), RecentStates::default());
    for block in blocks() {
        let root = chain.head().header.state_root;
        assert!(states.find(&chain, &root).unwrap().is_some());
        states.head_moved(&chain).unwrap();
        chain.import(block).unwrap();
    }
    assert_eq!(lock(&states.kept).len(), 4);
    [without, Asker { chain, states }]
}

#[test]
fn no_view_is_kept_until_a_recent_state_is_asked_for() {
    let (chain, states) = (imported().0, RecentStates::default());
    states.head_moved(&chain).unwrap();
    assert!(
        states
            .find(&chain, &B256::repeat_byte(1))
            .unwrap()
            .is_none()
    );
    states.head_moved(&chain).unwrap();
    assert_eq!(lock(&states.kept).len(), 0);
    let root = chain.head().header.state_root;
    assert!(states.find(&chain, &root).unwrap().is_some());
    states.head_moved(&chain).unwrap();
    assert_eq!(lock(&states.kept).len(), 1);
}

#[test]
fn each_recent_state_is_given_whole_in_parts_of_any_size_and_each_part_is_proved() {
    for asker in askers() {
        for number in (0..=54).step_by(6) {
            let header = asker.chain.header_at(number).unwrap().unwrap().header;
            let root = header.state_root;
            let all = asker.all_accounts(root, u64::MAX);
            assert!(all.len() > 10, "{}", all.len());
            for bytes in [0, 700] {
                assert_eq!(asker.all_accounts(root, bytes), all);
            }
            let with_storage = with_storage(&all);
            let keys: Vec<B256> = with_storage.iter().map(|(key, _)| *key).collect();
            let (lists, proof) = asker.storage(root, &keys, B256::ZERO, u64::MAX);
            assert_eq!((lists.len(), proof.len()), (keys.len(), 0));
            for ((key, storage_root), list) in with_storage.iter().zip(&lists) {
                assert!(!are_slots(*key, *storage_root, B256::ZERO, list, &[]));
                for bytes in [0, 100] {
                    assert_eq!(&asker.all_slots(root, *key, *storage_root, bytes), list);
                }
            }
        }
    }
}

#[test]
fn a_list_of_slots_that_is_cut_is_the_last_one_and_has_a_proof() {
    let [asker, _] = askers();
    let root = asker.chain.head().header.state_root;
    let with_storage = with_storage(&asker.all_accounts(root, u64::MAX));
    let keys: Vec<B256> = with_storage.iter().map(|(key, _)| *key).collect();
    let (whole, _) = asker.storage(root, &keys, B256::ZERO, u64::MAX);
    let mut was_cut = false;
    for bytes in (33..2_000).step_by(33) {
        let (lists, proof) = asker.storage(root, &keys, B256::ZERO, bytes);
        assert!(!lists.is_empty());
        let (last, before) = lists.split_last().unwrap();
        assert_eq!(before, &whole[..before.len()]);
        let is_cut = *last != whole[before.len()];
        was_cut |= is_cut;
        assert_eq!(proof.is_empty(), !is_cut, "{bytes}");
        if is_cut {
            let (account, root) = with_storage[before.len()];
            assert!(are_slots(account, root, B256::ZERO, last, &proof));
        }
    }
    assert!(was_cut);
}

#[test]
fn of_an_unknown_state_there_is_nothing_and_no_proof() {
    let [asker, _] = askers();
    let unknown = B256::repeat_byte(7);
    assert_eq!(asker.accounts(unknown, B256::ZERO, 1000), (vec![], vec![]));
    let slots = asker.storage(unknown, &[unknown], B256::ZERO, 1000);
    assert_eq!(slots, (vec![], vec![]));
    let paths = vec![TriePaths {
        account: Bytes::from_static(&[0]),
        slots: Vec::new(),
    }];
    let request = SnapRequest::TrieNodes {
        root: unknown,
        paths,
        bytes: 1000,
    };
    assert_eq!(asker.ask(request), SnapAnswer::TrieNodes(vec![]));
}

#[test]
fn codes_come_in_the_order_asked_for_without_the_unknown_ones() {
    let [asker, _] = askers();
    let root = asker.chain.head().header.state_root;
    let all = asker.all_accounts(root, u64::MAX);
    let hashes = all.iter().map(|(_, account)| account.code_hash);
    let mut hashes: Vec<B256> = hashes.collect();
    hashes.insert(1, B256::repeat_byte(5));
    let ask = |bytes| {
        let hashes = hashes.clone();
        match asker.ask(SnapRequest::ByteCodes { hashes, bytes }) {
            SnapAnswer::ByteCodes(codes) => codes,
            other => panic!("{other:?}"),
        }
    };
    let codes = ask(u64::MAX);
    hashes.remove(1);
    let got: Vec<B256> = codes.iter().map(keccak256).collect();
    assert_eq!(got, hashes);
    assert!(hashes.iter().any(|hash| *hash != EMPTY_CODE_HASH));
}

#[test]
fn nodes_are_where_they_are_asked_for_and_empty_where_there_is_none() {
    let [asker, _] = askers();
    let root = asker.chain.head().header.state_root;
    let path = |account: &[u8], slots: &[&[u8]]| TriePaths {
        account: Bytes::copy_from_slice(account),
        slots: slots
            .iter()
            .map(|slot| Bytes::copy_from_slice(slot))
            .collect(),
    };
    let with_storage = with_storage(&asker.all_accounts(root, u64::MAX));
    let (key, storage_root) = with_storage[0];
    let request = SnapRequest::TrieNodes {
        root,
        paths: vec![
            path(&[0], &[]),
            path(&[0; 40], &[]),
            path(key.as_slice(), &[&[0], &[0; 40]]),
            // No such account.
            path(&[7; 32], &[&[0]]),
            path(&[0x40], &[]),
            path(&[0], &[]),
        ],
        bytes: u64::MAX,
    };
    let SnapAnswer::TrieNodes(nodes) = asker.ask(request) else {
        panic!("another answer");
    };
    let hashes: Vec<B256> = nodes.iter().map(keccak256).collect();
    let nothing = keccak256([]);
    let expected = [root, nothing, storage_root, nothing, nothing, root];
    assert_eq!(hashes, expected);
}
