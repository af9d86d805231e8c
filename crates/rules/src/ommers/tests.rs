//! Each ommer check on both sides of its limit.

use super::*;
use crate::difficulty::block_difficulty;
use niwaki_primitives::Fork;

const FORK: Fork = Fork::Homestead;

fn child_of(parent: &Header, extra: u8) -> Header {
    Header {
        number: parent.number + 1,
        timestamp: parent.timestamp + 12,
        parent_hash: parent.hash_slow(),
        gas_limit: 1_000_000,
        difficulty: block_difficulty(FORK, parent.number + 1, parent.timestamp + 12, parent),
        extra_data: vec![extra].into(),
        ..Header::default()
    }
}

/// A chain of `length` blocks after genesis, the block to be checked on top of it, and its
/// ancestors, nearest first.
fn chain(length: usize) -> (Header, Vec<Ancestor>) {
    let genesis = Header {
        gas_limit: 1_000_000,
        difficulty: U256::from(1 << 20),
        ..Header::default()
    };
    let mut headers = vec![genesis];
    for _ in 0..=length {
        let tip = headers.last().expect("never empty");
        headers.push(child_of(tip, 0));
    }
    let block = headers.pop().expect("never empty");
    let ancestors = headers
        .into_iter()
        .rev()
        .map(|header| Ancestor {
            hash: header.hash_slow(),
            header,
            total_difficulty: None,
            ommers: Vec::new(),
        })
        .collect();
    (block, ancestors)
}

fn verdict(block: &Header, ommers: &[Header], ancestors: &[Ancestor]) -> Result<(), &'static str> {
    let spec = ChainSpec::single(1, FORK);
    check_ommers(&spec, block, ommers, ancestors).map_err(|error| error.spec_name())
}

#[test]
fn an_ommer_may_be_one_to_six_generations_old() {
    let (block, ancestors) = chain(10);
    for depth in 1..=6 {
        let ommer = child_of(&ancestors[depth].header, 1);
        assert_eq!(block.number - ommer.number, depth as u64);
        assert_eq!(verdict(&block, &[ommer], &ancestors), Ok(()), "{depth}");
    }
    let too_old = child_of(&ancestors[7].header, 1);
    assert_eq!(
        verdict(&block, &[too_old], &ancestors),
        Err("UNCLE_PARENT_INCORRECT")
    );
    let brother = child_of(&ancestors[0].header, 1);
    assert_eq!(
        verdict(&block, &[brother], &ancestors),
        Err("UNCLE_IS_BROTHER")
    );
}

#[test]
fn a_block_has_at_most_two_ommers_all_different() {
    let (block, ancestors) = chain(10);
    let ommer = |extra| child_of(&ancestors[2].header, extra);
    assert_eq!(verdict(&block, &[ommer(1), ommer(2)], &ancestors), Ok(()));
    assert_eq!(
        verdict(&block, &[ommer(1), ommer(1)], &ancestors),
        Err("UNCLE_IN_CHAIN")
    );
    let three = [ommer(1), ommer(2), ommer(3)];
    assert_eq!(verdict(&block, &three, &ancestors), Err("TOO_MANY_UNCLES"));
}

#[test]
fn an_ommer_is_neither_an_ancestor_nor_rewarded_before() {
    let (block, mut ancestors) = chain(10);
    let ancestor = ancestors[3].header.clone();
    assert_eq!(
        verdict(&block, &[ancestor], &ancestors),
        Err("UNCLE_IS_ANCESTOR")
    );
    let ommer = child_of(&ancestors[4].header, 1);
    ancestors[1].ommers.push(ommer.hash_slow());
    assert_eq!(verdict(&block, &[ommer], &ancestors), Err("UNCLE_IN_CHAIN"));
}

#[test]
fn an_ommer_is_a_valid_header() {
    let (block, ancestors) = chain(10);
    let mut ommer = child_of(&ancestors[2].header, 1);
    ommer.difficulty += U256::ONE;
    assert_eq!(
        verdict(&block, &[ommer], &ancestors),
        Err("INVALID_DIFFICULTY")
    );
}

#[test]
fn a_young_chain_has_fewer_ancestors() {
    let (block, ancestors) = chain(1);
    let ommer = child_of(&ancestors[1].header, 1);
    assert_eq!(verdict(&block, &[ommer], &ancestors), Ok(()));
    let stranger = child_of(&block, 1);
    assert_eq!(
        verdict(&block, &[stranger], &ancestors),
        Err("UNCLE_PARENT_INCORRECT")
    );
}
