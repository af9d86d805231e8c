//! Ranges of tries that are known as a whole: what is sent, changed or not, and what the verifier must say.

use super::*;
use crate::tests::Disk;
use crate::{Owner, prove};
use alloy_primitives::{U256, keccak256};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const WHOLE: Owner = None;
const LAST_KEY: B256 = B256::repeat_byte(0xff);

/// A trie with the means to prove.
struct Proven {
    leaves: BTreeMap<B256, Vec<u8>>,
    root: B256,
    disk: Disk,
}

/// A range with its proof, as a peer sends it.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    origin: B256,
    leaves: Vec<(B256, Vec<u8>)>,
    proof: Vec<Bytes>,
}

impl Proven {
    fn of(leaves: BTreeMap<B256, Vec<u8>>) -> Self {
        let by_path = leaves
            .iter()
            .map(|(key, value)| (Path::of_hash(key), value.clone()))
            .collect();
        let (root, disk) = Disk::built(&by_path);
        Self { leaves, root, disk }
    }

    fn with(count: u64) -> Self {
        let key = |number: u64| keccak256(number.to_be_bytes());
        Self::of((0..count).map(|at| (key(at), vec![1; 40])).collect())
    }

    /// At most `most` leaves from `origin` on.
    fn range(&self, origin: B256, most: usize) -> Sent {
        let leaves = self.leaves.range(origin..).take(most);
        let leaves: Vec<_> = leaves.map(|(key, value)| (*key, value.clone())).collect();
        let last = leaves.last().map_or(origin, |(key, _)| *key);
        let mut proof = BTreeSet::new();
        for end in [origin, last] {
            proof.extend(prove(&self.disk, WHOLE, self.root, &Path::of_hash(&end)).unwrap());
        }
        Sent {
            origin,
            leaves,
            proof: proof.into_iter().collect(),
        }
    }

    /// What a range must be, and whether there is more: none of the verifier's reasoning.
    fn truth(&self, sent: &Sent) -> (bool, bool) {
        let from = self.leaves.range(sent.origin..);
        let expected: Vec<_> = match sent.leaves.last() {
            Some((last, _)) => from.clone().filter(|(key, _)| *key <= last).collect(),
            None => from.clone().collect(),
        };
        let sent_leaves: Vec<_> = sent
            .leaves
            .iter()
            .map(|(key, value)| (key, value))
            .collect();
        (expected == sent_leaves, from.count() > expected.len())
    }
}

impl Sent {
    fn verify(&self, root: B256) -> Result<bool, RangeError> {
        self.verify_up_to(LAST_KEY, root, &mut |_, _| ())
    }

    fn verify_up_to(
        &self,
        last: B256,
        root: B256,
        rows: &mut RowSink<'_>,
    ) -> Result<bool, RangeError> {
        let leaves: Vec<(B256, &[u8])> = self
            .leaves
            .iter()
            .map(|(key, value)| (*key, value.as_slice()))
            .collect();
        verify_range(root, self.origin..=last, &leaves, &self.proof, rows)
    }
}

/// Keys that share much: deep extensions, and nodes so small that they are inline.
fn key() -> impl Strategy<Value = B256> {
    let first = prop::sample::select(vec![0x00, 0x01, 0x10, 0x7f, 0xff]);
    let fill = prop::sample::select(vec![0x00, 0xff]);
    (first, fill, 0..4_u8, any::<u8>()).prop_map(|(first, fill, middle, last)| {
        let mut key = B256::repeat_byte(fill);
        (key[0], key[17], key[31]) = (first, middle, last);
        key
    })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..3),
        prop::collection::vec(any::<u8>(), 33..80)
    ]
}

fn trie() -> impl Strategy<Value = BTreeMap<B256, Vec<u8>>> {
    prop::collection::btree_map(key(), value(), 0..40)
}

/// One change to what is sent.
#[derive(Clone, Debug)]
enum Change {
    Value(prop::sample::Index, Vec<u8>),
    Drop(prop::sample::Index),
    Add(B256, Vec<u8>),
    Swap(prop::sample::Index, prop::sample::Index),
    Repeat(prop::sample::Index),
    Origin(B256),
    DropNode(prop::sample::Index),
    NodeByte(prop::sample::Index, prop::sample::Index, u8),
    AddNode(Vec<u8>),
    NoProof,
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), value()).prop_map(|(at, value)| Change::Value(at, value)),
        at().prop_map(Change::Drop),
        (key(), value()).prop_map(|(key, value)| Change::Add(key, value)),
        (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        at().prop_map(Change::Repeat),
        key().prop_map(Change::Origin),
        at().prop_map(Change::DropNode),
        (at(), at(), any::<u8>()).prop_map(|(node, byte, to)| Change::NodeByte(node, byte, to)),
        value().prop_map(Change::AddNode),
        Just(Change::NoProof),
    ]
}

impl Change {
    fn apply(self, sent: &mut Sent) {
        let Sent {
            origin,
            leaves,
            proof,
        } = sent;
        match self {
            Self::Value(at, value) if !leaves.is_empty() => at.get_mut(leaves).1 = value,
            Self::Drop(at) if !leaves.is_empty() => drop(leaves.remove(at.index(leaves.len()))),
            Self::Add(key, value) => {
                let at = leaves.partition_point(|(other, _)| *other < key);
                leaves.insert(at, (key, value));
            }
            Self::Swap(a, b) if !leaves.is_empty() => {
                let (a, b) = (a.index(leaves.len()), b.index(leaves.len()));
                leaves.swap(a, b);
            }
            Self::Repeat(at) if !leaves.is_empty() => {
                let at = at.index(leaves.len());
                leaves.insert(at, leaves[at].clone());
            }
            Self::Origin(to) => *origin = to,
            Self::DropNode(at) if !proof.is_empty() => drop(proof.remove(at.index(proof.len()))),
            Self::NodeByte(node, byte, to) if !proof.is_empty() => {
                let node = node.get_mut(proof);
                let mut bytes = node.to_vec();
                *byte.get_mut(&mut bytes) = to;
                *node = bytes.into();
            }
            Self::AddNode(node) => proof.push(node.into()),
            Self::NoProof => proof.clear(),
            _ => {}
        }
    }
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

    #[test]
    fn every_range_is_proven_with_whether_there_is_more(
        leaves in trie(), origin in key(), most in 0_usize..40
    ) {
        let trie = Proven::of(leaves);
        let mut sent = trie.range(origin, most);
        if sent.leaves.is_empty() && trie.leaves.range(origin..).count() > 0 {
            sent = trie.range(origin, 1);
        }
        let (is_whole, has_more) = trie.truth(&sent);
        prop_assert!(is_whole);
        prop_assert_eq!(sent.verify(trie.root), Ok(has_more));
    }

    #[test]
    fn a_whole_trie_needs_no_proof(leaves in trie()) {
        let trie = Proven::of(leaves);
        let mut sent = trie.range(B256::ZERO, usize::MAX);
        prop_assert_eq!(sent.verify(trie.root), Ok(false));
        sent.proof.clear();
        prop_assert_eq!(sent.verify(trie.root), Ok(false));
    }

    #[test]
    fn rows_between_the_ends_come_out(
        leaves in trie(), origin in key(), last in key(), most in 1_usize..40
    ) {
        let trie = Proven::of(leaves);
        let sent = trie.range(origin, most);
        let last_leaf = sent.leaves.last().map(|(key, _)| *key);
        let mut rows = BTreeMap::new();
        let mut take = |path: &Path, row: &[u8]| {
            assert!(rows.insert(*path, row.to_vec()).is_none());
        };
        prop_assert!(sent.verify_up_to(last, trie.root, &mut take).is_ok());
        let is_between = |path: &Path| {
            let end = |nibble: u8| path.join(&[nibble; 64][path.len()..]).unwrap().to_hash().unwrap();
            let is_on_path = |key: &B256| Path::of_hash(key).as_slice().starts_with(path.as_slice());
            let is_before = last_leaf.is_some_and(|last| end(0x0f) < last && !is_on_path(&last));
            end(0) >= origin && !is_on_path(&origin) && is_before && end(0x0f) <= last
        };
        let expected = trie.disk.rows.clone();
        let expected: BTreeMap<Path, Vec<u8>> =
            expected.into_iter().filter(|(path, _)| is_between(path)).collect();
        prop_assert_eq!(rows, expected);
    }

    #[test]
    fn all_rows_of_a_whole_trie_come_out(leaves in trie()) {
        let trie = Proven::of(leaves);
        let mut sent = trie.range(B256::ZERO, usize::MAX);
        sent.proof.clear();
        let mut rows = BTreeMap::new();
        let mut take = |path: &Path, row: &[u8]| drop(rows.insert(*path, row.to_vec()));
        prop_assert_eq!(sent.verify_up_to(LAST_KEY, trie.root, &mut take), Ok(false));
        prop_assert_eq!(rows, trie.disk.rows.clone());
    }

    #[test]
    fn nothing_that_the_trie_has_not_is_ever_proven(
        leaves in trie(), origin in key(), most in 0_usize..40,
        changes in prop::collection::vec(change(), 1..4)
    ) {
        let trie = Proven::of(leaves);
        let mut sent = trie.range(origin, most);
        changes.into_iter().for_each(|change| change.apply(&mut sent));
        if let Ok(said_more) = sent.verify(trie.root) {
            let (is_whole, has_more) = trie.truth(&sent);
            prop_assert!(is_whole);
            prop_assert_eq!(said_more, has_more);
        }
    }
}

#[test]
fn each_way_to_be_wrong_is_named() {
    let trie = Proven::with(200);
    let keys: Vec<B256> = trie.leaves.keys().copied().collect();
    let good = trie.range(keys[20], 100);
    assert_eq!(good.verify(trie.root), Ok(true));
    let wrong = |change: &dyn Fn(&mut Sent)| {
        let mut sent = good.clone();
        change(&mut sent);
        sent.verify(trie.root).unwrap_err()
    };
    let differs = |error: RangeError| matches!(error, RangeError::Differs { .. });
    assert!(differs(wrong(&|sent| sent.leaves[50].1[0] ^= 1)));
    assert!(differs(wrong(&|sent| drop(sent.leaves.remove(50)))));
    assert!(differs(wrong(&|sent| drop(sent.leaves.remove(0)))));
    assert!(differs(wrong(&|sent| {
        let key = U256::from_be_bytes(sent.leaves[50].0.0) + U256::ONE;
        sent.leaves.insert(51, (key.into(), vec![1]));
    })));
    let key = keys[70];
    assert_eq!(
        wrong(&|sent| sent.leaves[50].1.clear()),
        RangeError::EmptyValue { key }
    );
    assert_eq!(
        wrong(&|sent| sent.leaves.swap(50, 51)),
        RangeError::Unordered { key }
    );
    let below = keys[19];
    assert_eq!(
        wrong(&|sent| sent.leaves[0].0 = below),
        RangeError::Unordered { key: below }
    );
    assert!(matches!(
        wrong(&|sent| drop(sent.proof.pop())),
        RangeError::MissingNode { .. } | RangeError::Differs { .. }
    ));
    assert_eq!(
        wrong(&|sent| sent.proof.push(vec![0xc0].into())),
        RangeError::Surplus { count: 1 }
    );
    let empty = Sent {
        leaves: Vec::new(),
        ..trie.range(keys[20], 1)
    };
    assert_eq!(empty.verify(trie.root), Err(RangeError::NotEmpty));
    let other = B256::repeat_byte(7);
    let path = Path::EMPTY;
    assert_eq!(
        good.verify(other),
        Err(RangeError::MissingNode { path, hash: other })
    );
}

#[test]
fn nothing_is_after_the_greatest_key() {
    let last = LAST_KEY;
    let trie = Proven::of([(B256::ZERO, vec![1]), (last, vec![2])].into());
    let sent = trie.range(last, 1);
    assert_eq!(sent.verify(trie.root), Ok(false));
    let mut twice = sent;
    twice.leaves.push((last, vec![2]));
    assert_eq!(
        twice.verify(trie.root),
        Err(RangeError::Unordered { key: last })
    );
}

#[test]
fn an_empty_trie_has_an_empty_range_without_proof() {
    let trie = Proven::of(BTreeMap::new());
    let mut sent = trie.range(B256::ZERO, 9);
    assert_eq!(sent.verify(trie.root), Ok(false));
    sent.leaves.push((B256::ZERO, vec![1]));
    assert_eq!(
        sent.verify(trie.root),
        Err(RangeError::Differs { path: Path::EMPTY })
    );
}

#[test]
fn a_node_in_which_a_key_can_not_be_is_malformed() {
    // A leaf of a key of one byte, and a branch with a value.
    let mut branch = crate::Branch::default();
    branch.set_value(&[1]);
    let mut with_value = Vec::new();
    Node::Branch(Box::new(branch)).encode(&mut with_value);
    let mut short = Vec::new();
    let path = Path::of_key(&[7]).unwrap();
    let value = vec![1; 40];
    Node::Leaf { path, value }.encode(&mut short);
    for node in [with_value, short, vec![0xc0]] {
        let sent = Sent {
            origin: B256::ZERO,
            leaves: Vec::new(),
            proof: vec![node.clone().into()],
        };
        let error = sent.verify(keccak256(&node)).unwrap_err();
        assert!(matches!(error, RangeError::Malformed { .. }), "{error}");
    }
}
