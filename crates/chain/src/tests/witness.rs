//! Real mainnet blocks of the corpus, executed on their witnesses to their exact state roots.

use super::*;
use alloy_primitives::{Bytes, keccak256};
use niwaki_execution::{apply_body, recover_block};
use niwaki_primitives::{Header, rlp};
use niwaki_rules::Network;
use niwaki_trie::WitnessState;
use serde_json::Value;

fn list(value: &Value) -> Vec<Bytes> {
    let items = value.as_array().unwrap().iter();
    items
        .map(|item| item.as_str().unwrap().parse().unwrap())
        .collect()
}

/// Gives the state root by execution and the one expected.
fn replay(case: &Value) -> (B256, B256) {
    let network = Network::from_name(case["chain"].as_str().unwrap()).unwrap();
    let spec = network.genesis().spec;
    let block: Bytes = case["block"].as_str().unwrap().parse().unwrap();
    let block: Block = rlp::decode_exact(&block[..]).unwrap();
    let headers: Vec<Bytes> = list(&case["witness"]["headers"]);
    // A header names its own hash and its parent's.
    let hashes = headers.iter().flat_map(|header| {
        let decoded: Header = rlp::decode_exact(&header[..]).unwrap();
        let parent = (decoded.number.saturating_sub(1), decoded.parent_hash);
        [(decoded.number, keccak256(header)), parent]
    });
    let root: B256 = case["preStateRoot"].as_str().unwrap().parse().unwrap();
    let (nodes, codes) = (
        list(&case["witness"]["state"]),
        list(&case["witness"]["codes"]),
    );
    let witness = WitnessState::new(root, nodes, codes, hashes);
    let hash = block.header.hash_slow();
    let block = recover_block(block, hash).unwrap().into();
    let mut post_state = |diff: &niwaki_primitives::StateDiff| witness.post_root(diff);
    let executed = apply_body(&spec, &block, &witness, &mut post_state);
    let executed =
        executed.unwrap_or_else(|error| panic!("{}: {error}", block.block.header.number));
    assert_eq!(executed.gas_used, block.block.header.gas_used);
    let expected = case["expect"]["stateRoot"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    (witness.post_root(&executed.diff).unwrap(), expected)
}

#[test]
fn mainnet_blocks_of_the_corpus_reach_their_state_roots_where_there_is_one() {
    let Some(folder) = niwaki_testkit::corpus("mainnet-blocks/witness") else {
        return;
    };
    let mut paths = Vec::new();
    fixtures::files(&folder, &mut paths);
    assert!(paths.len() > 40);
    for path in paths {
        let case: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (got, expected) = replay(&case);
        assert_eq!(got, expected, "{}", path.display());
    }
}
