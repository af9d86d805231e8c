//! The published trie cases of `testdata`.

use super::{Changes, Disk, Updater};
use crate::{Extension, Node, NodeRef, Path, Trie};
use alloy_primitives::{B256, hex, keccak256};
use niwaki_primitives::EMPTY_ROOT_HASH;
use serde_json::Value;
use std::collections::BTreeMap;

fn bytes(text: &str) -> Vec<u8> {
    match text.strip_prefix("0x") {
        Some(digits) => hex::decode(digits).unwrap(),
        None => text.as_bytes().to_vec(),
    }
}

/// The changes of a case in order: from a list of pairs or from a map.
fn pairs(case: &Value) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let pair = |key: &str, value: &Value| (bytes(key), value.as_str().map(bytes));
    match &case["in"] {
        Value::Array(list) => list
            .iter()
            .map(|entry| pair(entry[0].as_str().unwrap(), &entry[1]))
            .collect(),
        Value::Object(map) => map.iter().map(|(key, value)| pair(key, value)).collect(),
        other => panic!("neither list nor map: {other}"),
    }
}

/// Runs every case of a file, changes one by one and, where their order does not matter, also
/// backwards and at once. Gives updater many cases there were.
fn run(file: &str, is_secure: bool, any_order: bool) -> usize {
    let cases: BTreeMap<String, Value> = serde_json::from_str(file).unwrap();
    for (name, case) in &cases {
        let expected: B256 = case["root"].as_str().unwrap().parse().unwrap();
        let mut steps: Vec<Changes> = Vec::new();
        for (key, value) in pairs(case) {
            let key = match is_secure {
                true => Path::of_hash(&keccak256(key)),
                false => Path::of_key(&key).unwrap(),
            };
            steps.push([(key, value)].into());
        }
        assert_eq!(root_after(&steps), expected, "{name}");
        let at_once: Changes = steps
            .iter()
            .flatten()
            .map(|(k, v)| (*k, v.clone()))
            .collect();
        assert_eq!(root_after(&[at_once]), expected, "{name} at once");
        if any_order {
            steps.reverse();
            assert_eq!(root_after(&steps), expected, "{name} backwards");
        }
    }
    cases.len()
}

fn root_after(steps: &[Changes]) -> B256 {
    let (mut trie, mut disk) = (Trie::new(EMPTY_ROOT_HASH), Disk::default());
    for step in steps {
        let known =
            |key: &Path, value: &Option<Vec<u8>>| value.is_some() || disk.leaves.contains_key(key);
        let step = step.iter().filter(|(k, v)| known(k, v));
        let step = step.map(|(k, v)| (*k, v.clone())).collect();
        disk.update(&mut trie, &step, Updater::single_threaded(true, 0));
    }
    trie.root()
}

#[test]
fn published_tries_have_their_roots_in_the_given_order() {
    let plain = run(include_str!("../../testdata/trietest.json"), false, false);
    let secure = include_str!("../../testdata/trietest_secureTrie.json");
    assert_eq!((plain, run(secure, true, false)), (5, 3));
}

#[test]
fn published_tries_have_their_roots_in_any_order() {
    let plain = run(
        include_str!("../../testdata/trieanyorder.json"),
        false,
        true,
    );
    let secure = run(
        include_str!("../../testdata/trieanyorder_secureTrie.json"),
        true,
        true,
    );
    let hexed = include_str!("../../testdata/hex_encoded_securetrie_test.json");
    assert_eq!((plain, secure, run(hexed, true, true)), (7, 7, 3));
}

#[test]
fn paths_order_keys_as_the_published_neighbours_say() {
    let file = include_str!("../../testdata/trietestnextprev.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(file).unwrap();
    let path = |value: &Value| Path::of_key(value.as_str().unwrap().as_bytes()).unwrap();
    for case in cases.values() {
        let mut keys: Vec<_> = case["in"].as_array().unwrap().iter().map(path).collect();
        keys.sort_unstable();
        for test in case["tests"].as_array().unwrap() {
            let key = path(&test[0]);
            let before = keys.iter().rev().find(|cached| **cached < key);
            let after = keys.iter().find(|cached| **cached > key);
            assert_eq!(
                before.copied().unwrap_or(Path::EMPTY),
                path(&test[1]),
                "{test}"
            );
            assert_eq!(
                after.copied().unwrap_or(Path::EMPTY),
                path(&test[2]),
                "{test}"
            );
        }
    }
}

#[test]
fn paths_are_packed_as_the_published_hex_prefixes_say() {
    let file = include_str!("../../testdata/hexencodetest.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(file).unwrap();
    assert_eq!(cases.len(), 12);
    for (name, case) in cases {
        let seq = case["seq"].as_array().unwrap().iter();
        let nibbles: Vec<u8> = seq
            .map(|n| u8::try_from(n.as_u64().unwrap()).unwrap())
            .collect();
        let path = Path::of_nibbles(&nibbles).unwrap();
        let (node, child) = match case["term"].as_bool().unwrap() {
            true => (
                Node::Leaf {
                    path,
                    value: vec![0x7f],
                },
                vec![0x7f],
            ),
            false => {
                let hash = B256::repeat_byte(1);
                let child = [&[0xa0][..], hash.as_slice()].concat();
                (
                    Node::Extension(Box::new(Extension {
                        path,
                        child: NodeRef::Hash(hash).into(),
                    })),
                    child,
                )
            }
        };
        let packed = hex::decode(case["out"].as_str().unwrap()).unwrap();
        let mut want = vec![0x80 + u8::try_from(packed.len()).unwrap()];
        want.extend(packed);
        want.extend(child);
        want.insert(0, 0xc0 + u8::try_from(want.len()).unwrap());
        let mut got = Vec::new();
        node.encode(&mut got);
        assert_eq!(got, want, "{name}");
        assert_eq!(Node::decode(&got).unwrap(), node, "{name}");
    }
}
