//! The laws of the trie, on random tries against `alloy-trie`, and the published trie cases.

use crate::{
    LeafUpdate, Node, OrderedTrie, Owner, Path, PathEnd, ProofError, Trie, TrieBuilder, TrieUpdate,
    TrieView, UpdateOptions, WitnessState, find, ordered_root, prove, update_tries, verify_proof,
};
use alloy_primitives::{B256, U256, keccak256};
use alloy_trie::{HashBuilder, Nibbles};
use niwaki_primitives::{
    Account, AccountDiff, Address, Bytes, EMPTY_ROOT_HASH, Fault, SlotDiff, StateDiff, StateView,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

mod branches;
mod published;

/// One trie as a disk keeps it: rows by path, leaves by key.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) rows: BTreeMap<Path, Vec<u8>>,
    leaves: BTreeMap<Path, Vec<u8>>,
    leaf_reads: AtomicUsize,
}

impl TrieView for Disk {
    fn node(&self, _: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault> {
        let Some(row) = self.rows.get(path) else {
            return Ok(None);
        };
        assert_eq!(keccak256(&row[2..]), *hash, "row at {path}");
        Ok(Some(Node::from_row(row).unwrap()))
    }

    fn leaf(&self, _: &Owner, path: &Path, hash: &B256) -> Result<Node, Fault> {
        self.leaf_reads.fetch_add(1, Ordering::Relaxed);
        let (key, value) = self.leaves.range(path..).next().unwrap();
        assert!(
            key.as_slice().starts_with(path.as_slice()),
            "leaf below {path}"
        );
        let node = Node::Leaf {
            path: key.skip(path.len()),
            value: value.clone(),
        };
        let mut rlp = Vec::new();
        node.encode(&mut rlp);
        assert_eq!(keccak256(&rlp), *hash, "leaf {key}");
        Ok(node)
    }
}

impl Disk {
    pub(crate) fn built(leaves: &BTreeMap<Path, Vec<u8>>) -> (B256, Self) {
        let mut rows = BTreeMap::new();
        let mut sink = |path: &Path, row: &[u8]| {
            assert_eq!(
                rows.insert(*path, row.to_vec()),
                None,
                "row {path} came twice"
            );
        };
        let mut builder = TrieBuilder::new(&mut sink);
        for (key, value) in leaves {
            builder.add(*key, value.clone());
        }
        let root = builder.finish();
        let leaves = leaves.clone();
        let leaf_reads = AtomicUsize::default();
        (
            root,
            Self {
                rows,
                leaves,
                leaf_reads,
            },
        )
    }

    /// Updates the trie and the stored rows and leaves.
    fn update(&mut self, trie: &mut Trie, changes: &Changes, updater: Updater) -> B256 {
        let updates: Vec<_> = changes
            .iter()
            .map(|(key, value)| LeafUpdate {
                key: *key,
                value: value.as_deref(),
                replaces: updater.hint && self.leaves.contains_key(key),
            })
            .collect();
        let emit = |rows: &mut Vec<(Path, Option<Vec<u8>>)>,
                    owner: &Owner,
                    path: &Path,
                    row: Option<&[u8]>| {
            assert_eq!(*owner, None);
            rows.push((*path, row.map(<[u8]>::to_vec)));
        };
        let update = TrieUpdate {
            owner: None,
            trie,
            leaves: &updates,
        };
        let rows = update_tries(self, vec![update], updater.options, &emit).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for (path, row) in rows.into_iter().flatten() {
            assert!(seen.insert(path), "row {path} is listed twice");
            match row {
                Some(row) => drop(self.rows.insert(path, row)),
                None => assert!(self.rows.remove(&path).is_some(), "no row at {path}"),
            }
        }
        for (key, value) in changes {
            match value {
                Some(value) => drop(self.leaves.insert(*key, value.clone())),
                None => drop(self.leaves.remove(key)),
            }
        }
        trie.root()
    }
}

#[derive(Clone, Copy, Debug)]
struct Updater {
    /// Whether updates say which leaves they replace.
    hint: bool,
    options: UpdateOptions,
}

impl Updater {
    fn single_threaded(hint: bool, clock: u32) -> Self {
        let threads = 1;
        let options = UpdateOptions { threads, clock };
        Self { hint, options }
    }
}

fn oracle_root(leaves: &BTreeMap<Path, Vec<u8>>) -> B256 {
    let mut builder = HashBuilder::default();
    for (key, value) in leaves {
        builder.add_leaf(Nibbles::from_nibbles(key.as_slice()), value);
    }
    builder.root()
}

/// Keys of `bytes` bytes that share prefixes, so that nodes of all shapes occur.
fn crowded_key(bytes: usize) -> impl Strategy<Value = Path> {
    let nibble = prop_oneof![4 => Just(0_u8), 3 => Just(1_u8), 1 => 0..16_u8];
    proptest::collection::vec(nibble, bytes * 2).prop_map(|n| Path::of_nibbles(&n).unwrap())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(1..=255_u8, 1..4),
        proptest::collection::vec(any::<u8>(), 30..40),
    ]
}

type Changes = BTreeMap<Path, Option<Vec<u8>>>;

fn changes(bytes: usize) -> impl Strategy<Value = Vec<Changes>> {
    let change = proptest::option::weighted(0.6, value());
    let step = proptest::collection::btree_map(crowded_key(bytes), change, 1..25);
    proptest::collection::vec(step, 1..8)
}

/// Updates step by step give the rows and the root of a trie built at once, whatever is evicted
/// between them; roots agree with the oracle; all of it removed leaves nothing.
fn check_steps(steps: &[Changes], hint: bool, evictions: &[u32]) {
    let (root, mut disk) = Disk::built(&BTreeMap::new());
    assert_eq!(root, EMPTY_ROOT_HASH);
    let mut trie = Trie::new(root);
    for ((clock, step), ago) in (0..).zip(steps).zip(evictions.iter().cycle()) {
        let root = disk.update(&mut trie, step, Updater::single_threaded(hint, clock));
        let (built_root, built) = Disk::built(&disk.leaves);
        assert_eq!(root, built_root);
        assert_eq!(disk.rows, built.rows);
        assert_eq!(root, oracle_root(&disk.leaves));
        trie.evict((clock + 1).saturating_sub(*ago), None);
        assert!(*ago > 0 || trie.bytes() == 0, "{} bytes", trie.bytes());
    }
    let all: Changes = disk.leaves.keys().map(|key| (*key, None)).collect();
    disk.leaf_reads = AtomicUsize::default();
    let root = disk.update(&mut trie, &all, Updater::single_threaded(hint, 100));
    assert_eq!(root, EMPTY_ROOT_HASH);
    assert!(disk.rows.is_empty());
    assert_eq!(trie.bytes(), 0);
    let reads = disk.leaf_reads.load(Ordering::Relaxed);
    assert!(!hint || reads == 0, "a replaced leaf was read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn updates_give_the_rows_of_a_trie_built_at_once(
        steps in changes(3), hint: bool, evictions in proptest::collection::vec(0..3_u32, 8),
    ) {
        check_steps(&steps, hint, &evictions);
    }

    #[test]
    fn updates_of_full_length_keys_give_the_rows_of_a_trie_built_at_once(
        steps in changes(32), hint: bool, evictions in proptest::collection::vec(0..3_u32, 8),
    ) {
        check_steps(&steps, hint, &evictions);
    }

    #[test]
    fn one_update_equals_the_same_in_two(a in changes(2), b in changes(2), hint: bool) {
        let fold = |steps: &[Changes]| -> Changes { steps.iter().flatten()
            .map(|(key, value)| (*key, value.clone())).collect() };
        let (a, b) = (fold(&a), fold(&b));
        let updater = Updater::single_threaded(hint, 0);
        let (mut apart, mut trie) = (Disk::default(), Trie::new(EMPTY_ROOT_HASH));
        apart.update(&mut trie, &a, updater);
        let root = apart.update(&mut trie, &b, updater);
        let mut both = a;
        both.extend(b);
        let (mut at_once, mut trie) = (Disk::default(), Trie::new(EMPTY_ROOT_HASH));
        prop_assert_eq!(root, at_once.update(&mut trie, &both, updater));
        prop_assert_eq!(apart.rows, at_once.rows);
    }

    #[test]
    fn a_proof_verifies_and_any_shorter_or_longer_one_does_not(
        leaves in proptest::collection::btree_map(crowded_key(2), value(), 0..40),
        key in crowded_key(2),
    ) {
        let (root, disk) = Disk::built(&leaves);
        let cached = leaves.get(&key).cloned();
        prop_assert_eq!(&find(&disk, None, root, &key, &mut |_| {}).unwrap(), &cached);
        let proof = prove(&disk, None, root, &key).unwrap();
        prop_assert_eq!(verify_proof(root, &key, &proof), Ok(cached));
        if let Some((_, shorter)) = proof.split_last() {
            let have = shorter.len();
            prop_assert_eq!(verify_proof(root, &key, shorter), Err(ProofError::Incomplete { have }));
            let mut longer = proof.clone();
            longer.push(Bytes::from_static(&[0xc0]));
            prop_assert!(verify_proof(root, &key, &longer).is_err());
            let mut altered = proof;
            let mut node = altered[0].to_vec();
            node[0] ^= 1;
            altered[0] = node.into();
            prop_assert!(verify_proof(root, &key, &altered).is_err());
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(node) = Node::decode(&bytes) {
            let mut again = Vec::new();
            node.encode(&mut again);
            prop_assert_eq!(Node::decode(&again), Ok(node));
        }
    }
}

/// Random leaves under full-length keys: enough of them for a trie to be split between threads.
fn many_leaves(seed: u64, count: u64) -> impl Iterator<Item = (Path, Vec<u8>)> {
    (0..count).map(move |n| {
        let hash = keccak256([seed.to_be_bytes(), n.to_be_bytes()].concat());
        let value = hash[..1 + usize::from(hash[31] % 32)].to_vec();
        (Path::of_hash(&hash), [vec![1], value].concat())
    })
}

#[test]
fn any_number_of_threads_gives_the_same_trie_and_the_same_rows() {
    for threads in [1, 2, 3, 8] {
        let updater = |clock| Updater {
            hint: clock % 2 == 0,
            options: UpdateOptions { threads, clock },
        };
        let (mut disk, mut trie) = (Disk::default(), Trie::new(EMPTY_ROOT_HASH));
        let mut removed = Vec::new();
        for clock in 0..6 {
            let mut step: Changes = many_leaves(clock.into(), 700)
                .map(|(k, v)| (k, Some(v)))
                .collect();
            // What was set in the step before goes, all of it below some nibbles.
            let goes = |key: &&Path| key.as_slice()[0] < 9 || key.as_slice()[5] == 0;
            removed.extend(disk.leaves.keys().filter(goes));
            step.extend(removed.drain(..).map(|key| (key, None)));
            disk.update(&mut trie, &step, updater(clock));
            let (root, built) = Disk::built(&disk.leaves);
            assert_eq!(trie.root(), root, "{threads} threads, step {clock}");
            assert_eq!(disk.rows, built.rows);
            trie.evict(clock, Some(3));
        }
        // The branch at the root collapses together.
        let all_but_one: Changes = disk.leaves.keys().skip(1).map(|key| (*key, None)).collect();
        disk.update(&mut trie, &all_but_one, updater(7));
        assert_eq!(trie.root(), Disk::built(&disk.leaves).0);
        assert_eq!((disk.rows.len(), trie.bytes()), (0, 0));
    }
}

/// Loads the inner nodes on the path to `key`; returns where it ends.
fn load(trie: &mut Trie, disk: &Disk, key: &Path, clock: u32) -> PathEnd {
    loop {
        let end = trie.descend(key, clock);
        let PathEnd::NotCached(depth, hash) = end else {
            return end;
        };
        match disk.node(&None, &key.first(depth), &hash).unwrap() {
            Some(node) => assert!(trie.insert_node(key, depth, node)),
            None => return PathEnd::Leaf(depth, hash),
        }
    }
}

#[test]
fn a_node_is_inserted_once_and_only_below_nodes_in_memory() {
    let leaves: BTreeMap<_, _> = many_leaves(1, 2000).collect();
    let (root, disk) = Disk::built(&leaves);
    let mut trie = Trie::new(root);
    let key = *leaves.keys().next().unwrap();
    assert_eq!(trie.descend(&key, 0), PathEnd::NotCached(0, root));
    let node = disk.node(&None, &Path::EMPTY, &root).unwrap().unwrap();
    // The trie has no node yet that could be its parent.
    assert!(!trie.insert_node(&key, 2, node.clone()));
    assert_eq!(trie.bytes(), 0);
    assert!(trie.insert_node(&key, 0, node.clone()));
    let bytes = trie.bytes();
    assert!(bytes > 0);
    assert!(trie.insert_node(&key, 0, node));
    assert_eq!(trie.bytes(), bytes);
    let (path, value) = (key, vec![1]);
    assert!(!trie.insert_node(&key, 1, Node::Leaf { path, value }));
    assert!(matches!(trie.descend(&key, 0), PathEnd::NotCached(1, _)));
    assert_eq!(Trie::new(EMPTY_ROOT_HASH).descend(&key, 0), PathEnd::Cached);
}

#[test]
fn an_update_reads_0_nodes_on_loaded_paths() {
    let leaves: BTreeMap<_, _> = many_leaves(1, 2000).collect();
    let (root, mut disk) = Disk::built(&leaves);
    let mut trie = Trie::new(root);
    let changed: Changes = leaves
        .keys()
        .step_by(7)
        .map(|key| (*key, Some(vec![9])))
        .collect();
    for key in changed.keys() {
        load(&mut trie, &disk, key, 5);
    }
    trie.evict(5, None);
    let rows = std::mem::take(&mut disk.rows);
    let root = disk.update(&mut trie, &changed, Updater::single_threaded(true, 5));
    assert_eq!(root, oracle_root(&disk.leaves));
    assert!(disk.rows.keys().all(|path| rows.contains_key(path)));
}

#[test]
fn a_loaded_path_ends_at_its_leaf() {
    let leaves: BTreeMap<_, _> = many_leaves(1, 2000).collect();
    let (root, disk) = Disk::built(&leaves);
    let mut trie = Trie::new(root);
    let mut between = 0;
    for (key, _) in many_leaves(1, 2000).chain(many_leaves(2, 2000)) {
        let PathEnd::Leaf(depth, hash) = load(&mut trie, &disk, &key, 0) else {
            assert!(!leaves.contains_key(&key));
            continue;
        };
        // The disk gives a leaf by what it hashes to.
        let at = key.first(depth);
        let Node::Leaf { path, value } = disk.leaf(&None, &at, &hash).unwrap() else {
            panic!("a leaf");
        };
        let there = at.join(path.as_slice()).unwrap();
        assert_eq!(leaves.get(&there), Some(&value));
        assert_eq!(there == key, leaves.contains_key(&key));
        between += usize::from(there != key);
    }
    assert!(between > 500, "{between}");
}

#[test]
fn ordered_roots_agree_with_the_oracle_for_0_to_300_items() {
    for count in [
        0, 1, 2, 3, 16, 17, 126, 127, 128, 129, 130, 255, 256, 257, 300,
    ] {
        let item = |at: usize| vec![u8::try_from(at % 251).unwrap(); 1 + at % 50];
        let items: Vec<Vec<u8>> = (0..count).map(item).collect();
        let oracle = alloy_trie::root::ordered_trie_root_with_encoder(&items, |item, out| {
            alloy_rlp::BufMut::put_slice(out, item);
        });
        let root = ordered_root(&items, |item, out| out.extend_from_slice(item));
        assert_eq!(root, oracle, "{count} items");
    }
}

proptest! {
    // Of some 30 bytes on, leaves are no longer part of their parents.
    #[test]
    fn a_list_extended_in_chunks_has_the_root_of_the_whole(
        chunks in prop::collection::vec(prop::collection::vec(1..60_usize, 0..50), 0..12),
        is_small: bool,
    ) {
        let encode = |item: &Vec<u8>, out: &mut Vec<u8>| out.extend_from_slice(item);
        let (mut trie, mut items) = (OrderedTrie::default(), Vec::new());
        for chunk in chunks {
            let bytes = |count: usize| if is_small { 1 + count % 4 } else { count };
            let chunk: Vec<Vec<u8>> = chunk.into_iter().map(|count| vec![7; bytes(count)]).collect();
            trie.extend(&chunk, encode);
            items.extend(chunk);
            prop_assert_eq!(trie.len(), items.len());
            prop_assert_eq!(trie.is_empty(), items.is_empty());
            prop_assert_eq!(trie.root(), ordered_root(&items, encode));
        }
    }
}

#[test]
#[should_panic(expected = "keys ascend")]
fn a_builder_refuses_keys_out_of_order() {
    let mut sink = |_: &Path, _: &[u8]| {};
    let mut builder = TrieBuilder::new(&mut sink);
    builder.add(Path::of_key(&[2]).unwrap(), vec![1]);
    builder.add(Path::of_key(&[1]).unwrap(), vec![1]);
}

/// A witness of a whole small state: two accounts, one with storage.
struct Small {
    nodes: Vec<Bytes>,
    root: B256,
    owner: Address,
    other: Address,
}

const SLOTS: [(u64, u64); 4] = [(1, 7), (2, 8), (3, 9), (400, 10)];

fn hashed_leaves(slots: &[(u64, u64)]) -> BTreeMap<Path, Vec<u8>> {
    let leaf = |(slot, value): &(u64, u64)| {
        let key = Path::of_hash(&keccak256(B256::from(U256::from(*slot))));
        (key, crate::encode_slot(&U256::from(*value)))
    };
    slots.iter().map(leaf).collect()
}

fn account_root(accounts: &[(Address, Account, B256)]) -> B256 {
    oracle_root(&account_leaves(accounts))
}

fn account_leaves(accounts: &[(Address, Account, B256)]) -> BTreeMap<Path, Vec<u8>> {
    let leaf = |(address, account, root): &(Address, Account, B256)| {
        let key = Path::of_hash(&keccak256(address));
        (key, crate::TrieAccount::new(account, *root).to_leaf())
    };
    accounts.iter().map(leaf).collect()
}

fn with_nonce(nonce: u64) -> Account {
    Account {
        nonce,
        ..Account::EMPTY
    }
}

fn small() -> Small {
    let (owner, other) = (Address::repeat_byte(0xaa), Address::repeat_byte(0xbb));
    let mut nodes = Vec::new();
    let mut collect = |leaves: &BTreeMap<Path, Vec<u8>>| {
        let (root, disk) = Disk::built(leaves);
        for key in leaves.keys() {
            nodes.extend(prove(&disk, None, root, key).unwrap());
        }
        root
    };
    let storage = collect(&hashed_leaves(&SLOTS));
    let accounts = [
        (owner, with_nonce(1), storage),
        (other, with_nonce(2), EMPTY_ROOT_HASH),
    ];
    let root = collect(&account_leaves(&accounts));
    Small {
        nodes,
        root,
        owner,
        other,
    }
}

fn slot_diff(prior: u64, new: u64) -> SlotDiff {
    let (prior, new) = (U256::from(prior), U256::from(new));
    SlotDiff { prior, new }
}

#[test]
fn a_witness_serves_accounts_slots_and_absences() {
    let small = small();
    let witness = WitnessState::new(small.root, small.nodes, [], [(7, B256::repeat_byte(7))]);
    assert_eq!(witness.account(&small.owner).unwrap(), Some(with_nonce(1)));
    assert_eq!(witness.account(&Address::ZERO).unwrap(), None);
    for (slot, value) in SLOTS {
        let got = witness.storage(&small.owner, &U256::from(slot)).unwrap();
        assert_eq!(got, U256::from(value));
    }
    assert_eq!(
        witness.storage(&small.owner, &U256::from(5)).unwrap(),
        U256::ZERO
    );
    assert!(witness.has_storage(&small.owner).unwrap());
    assert!(!witness.has_storage(&small.other).unwrap());
    assert_eq!(witness.block_hash(7).unwrap(), B256::repeat_byte(7));
    assert!(matches!(witness.block_hash(8), Err(Fault::Missing { .. })));
    assert!(matches!(
        witness.code(&B256::ZERO),
        Err(Fault::Missing { .. })
    ));
}

#[test]
fn a_witness_without_a_needed_node_is_a_fault_never_an_absence() {
    let small = small();
    let witness = WitnessState::new(small.root, [], [], []);
    assert!(matches!(
        witness.account(&small.owner),
        Err(Fault::Missing { .. })
    ));
    let diff = StateDiff {
        accounts: vec![(
            small.owner,
            AccountDiff {
                new: Some(with_nonce(9)),
                ..Default::default()
            },
        )],
        codes: Vec::new(),
    };
    assert!(matches!(
        witness.post_root(&diff),
        Err(Fault::Missing { .. })
    ));
}

#[test]
fn a_post_root_follows_changed_slots_wiped_storage_and_removed_accounts() {
    let small = small();
    let witness = WitnessState::new(small.root, small.nodes, [], []);
    let change = |storage_wiped, slots, new| AccountDiff {
        prior: Some(with_nonce(1)),
        new,
        storage_wiped,
        slots,
    };
    let root_after = |change: AccountDiff| {
        let accounts = vec![(small.owner, change)];
        let codes = Vec::new();
        witness.post_root(&StateDiff { accounts, codes }).unwrap()
    };
    let expected = |slots: &[(u64, u64)]| {
        let storage = oracle_root(&hashed_leaves(slots));
        let other = (small.other, with_nonce(2), EMPTY_ROOT_HASH);
        account_root(&[(small.owner, with_nonce(3), storage), other])
    };
    let slots = vec![
        (U256::from(1), slot_diff(7, 0)),
        (U256::from(5), slot_diff(0, 6)),
    ];
    let got = root_after(change(false, slots, Some(with_nonce(3))));
    assert_eq!(got, expected(&[(2, 8), (3, 9), (400, 10), (5, 6)]));

    let slots = vec![(U256::from(2), slot_diff(8, 1))];
    let got = root_after(change(true, slots, Some(with_nonce(3))));
    assert_eq!(got, expected(&[(2, 1)]));

    let got = root_after(change(true, Vec::new(), None));
    assert_eq!(
        got,
        account_root(&[(small.other, with_nonce(2), EMPTY_ROOT_HASH)])
    );
    assert_eq!(
        witness.post_root(&StateDiff::default()).unwrap(),
        small.root
    );
}
