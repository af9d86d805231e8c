//! A branch, kept as its row, is what sixteen references and a value in a list would be.

use crate::{Branch, InlineNode, Node, NodeRef};
use alloy_primitives::B256;
use alloy_rlp::{Encodable, Header};
use proptest::prelude::*;

fn reference() -> impl Strategy<Value = NodeRef> {
    prop_oneof![
        Just(NodeRef::Empty),
        any::<[u8; 32]>().prop_map(|hash| NodeRef::Hash(B256::from(hash))),
        any::<[u8; 32]>().prop_map(|hash| NodeRef::Leaf(B256::from(hash))),
        // A leaf of a few bytes.
        (0..28_u8, any::<u8>()).prop_map(|(more, fill)| {
            let mut rlp = vec![0xc0 + 2 + more, 0x20, 0x80 + more];
            rlp.resize(3 + usize::from(more), fill);
            NodeRef::Inline(InlineNode::new(&rlp).unwrap())
        }),
    ]
}

/// The row by the book: leaf mask, then the RLP of a list of 17.
fn row(children: &[NodeRef; 16], value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for child in children {
        match child {
            NodeRef::Empty => payload.push(0x80),
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => hash.encode(&mut payload),
            NodeRef::Inline(node) => payload.extend_from_slice(node.as_slice()),
        }
    }
    value.encode(&mut payload);
    let leaf = |(at, child): (usize, &NodeRef)| u16::from(matches!(child, NodeRef::Leaf(_))) << at;
    let mask: u16 = children.iter().enumerate().map(leaf).sum();
    let mut row = mask.to_be_bytes().to_vec();
    let (list, payload_length) = (true, payload.len());
    Header {
        list,
        payload_length,
    }
    .encode(&mut row);
    row.extend_from_slice(&payload);
    row
}

fn assert_is(branch: &Branch, children: &[NodeRef; 16], value: &[u8]) {
    assert_eq!(branch.row(), row(children, value));
    assert_eq!(branch.value().unwrap_or_default(), value);
    for (nibble, child) in (0..16).zip(children) {
        assert_eq!(branch.get(nibble), *child, "child {nibble}");
    }
    let there = |(_, child): &(u8, NodeRef)| *child != NodeRef::Empty;
    let listed: Vec<_> = (0..16)
        .zip(children.iter().copied())
        .filter(there)
        .collect();
    assert_eq!(branch.children().collect::<Vec<_>>(), listed);
    assert_eq!(
        (branch.len(), branch.is_empty()),
        (listed.len(), listed.is_empty())
    );
}

proptest! {
    #[test]
    fn a_branch_row_encodes_its_children_after_any_changes(
        changes in prop::collection::vec((0..16_u8, reference()), 0..60),
        value in prop::collection::vec(any::<u8>(), 0..70),
        with_room in any::<bool>(),
    ) {
        let mut branch = if with_room { Branch::with_room() } else { Branch::default() };
        let mut children = [NodeRef::Empty; 16];
        assert_is(&branch, &children, &[]);
        for (nibble, child) in changes {
            branch.set(nibble, child);
            children[usize::from(nibble)] = child;
            assert_is(&branch, &children, &[]);
        }
        branch.set_value(&value);
        assert_is(&branch, &children, &value);
        let read = Node::from_row(branch.row()).unwrap();
        prop_assert_eq!(&read, &Node::Branch(Box::new(branch.clone())));
        branch.set_value(&[]);
        assert_is(&branch, &children, &[]);
    }
}
