//! Recent states with their tries: proofs of any of them, and their nodes by path.

use super::*;
use crate::ProvableView;
use alloy_primitives::keccak256 as hash;
use niwaki_trie::{Node, NodeRef};

/// Follows all nodes of a trie that are named by hash, from its root down, and counts them.
fn count_nodes(view: &ProvableView, owner: Option<&B256>, root: B256) -> usize {
    let node = |path: &Path| {
        let path = compact(path);
        let node = match owner {
            None => view.account_node(&path),
            Some(owner) => view.storage_node(owner, root, &path),
        };
        node.unwrap()
    };
    let (mut count, mut open) = (0, vec![(Path::EMPTY, root)]);
    while let Some((at, expected)) = open.pop() {
        let rlp = node(&at).unwrap();
        assert_eq!(hash(&rlp), expected);
        count += 1;
        let mut add = |path: Option<Path>, reference: NodeRef| {
            if let NodeRef::Hash(hash) | NodeRef::Leaf(hash) = reference {
                open.push((path.unwrap(), hash));
            }
        };
        match Node::decode(&rlp).unwrap() {
            Node::Leaf { path, .. } => {
                assert_eq!(at.len() + path.len(), Path::MAX);
                let below = at.join(&[0]);
                assert_eq!(below.and_then(|below| node(&below)), None);
            }
            Node::Extension(extension) => {
                let path = extension.path.as_slice();
                if path.len() > 1 {
                    assert_eq!(node(&at.join(&path[..1]).unwrap()), None);
                }
                add(at.join(path), extension.child.reference);
            }
            Node::Branch(branch) => {
                (0..16).for_each(|nibble| add(at.join(&[nibble]), branch.get(nibble)));
            }
        }
    }
    count
}

/// Hex-prefix encoding of an inner node's path (Yellow Paper, appendix C).
fn compact(path: &Path) -> Vec<u8> {
    let nibbles = path.as_slice();
    let (odd, even) = nibbles.split_at(nibbles.len() % 2);
    let first = odd.first().map_or(0, |nibble| 0x10 | nibble);
    let rest = even.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn each_recent_state_proves_its_accounts_and_slots_and_has_all_its_nodes() {
    let mut rng = StdRng::seed_from_u64(820);
    let (world, mut state) = world(&mut rng, &small_cache());
    let mut past = Vec::new();
    for _ in 0..10 {
        past.push((world.head().unwrap(), state.clone()));
        advance(&mut rng, &world, &mut state, 0);
    }
    past.push((world.head().unwrap(), state.clone()));
    for (threads, (head, state)) in (1..).zip(&past) {
        let view = world.view_at(head.block).unwrap().unwrap();
        let view = view.with_tries(threads % 3).unwrap();
        assert_eq!(view.head(), *head);
        let mut nodes = count_nodes(&view, None, head.root);
        for at in 0..61 {
            let (address, key) = (address(at), hash(address(at)));
            let proof = view.prove_account_by_key(&key).unwrap();
            let leaf = verify_proof(head.root, &Path::of_hash(&key), &proof).unwrap();
            let proved = leaf.map(|leaf| TrieAccount::from_leaf(&leaf).unwrap());
            assert_eq!(proved, view.account_by_key(&key).unwrap());
            let account = proved.map(|account| account.account());
            assert_eq!(account, state.account(&address).unwrap());
            let Some(account) = proved else { continue };
            let root = account.storage_root;
            for slot in (0..40).map(U256::from) {
                let slot_key = hash(B256::from(slot));
                let proof = view.prove_slot_by_key(&key, root, &slot_key).unwrap();
                let leaf = verify_proof(root, &Path::of_hash(&slot_key), &proof).unwrap();
                let value = leaf.map(|leaf| niwaki_trie::decode_slot(&leaf).unwrap());
                let expected = state.storage(&address, &slot).unwrap();
                assert_eq!(value.unwrap_or_default(), expected);
            }
            if root != alloy_trie::EMPTY_ROOT_HASH {
                nodes += count_nodes(&view, Some(&key), root);
            }
        }
        assert!(nodes > 60, "{nodes}");
    }
}

#[test]
fn what_is_no_path_of_an_inner_node_has_no_node() {
    let mut rng = StdRng::seed_from_u64(821);
    let (world, _) = world(&mut rng, &small_cache());
    let view = world.view_at_head().unwrap().with_tries(1).unwrap();
    assert!(view.account_node(&[0]).unwrap().is_some());
    for path in [&[][..], &[0x20], &[0x40], &[0x01], &[0; 34]] {
        assert_eq!(view.account_node(path).unwrap(), None, "{path:?}");
    }
}
