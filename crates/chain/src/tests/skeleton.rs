//! Runs of headers, and what becomes of a fork choice whose blocks come from peers.

use super::consensus::{choose, hash, new_payload};
use super::*;
use crate::{BlockId, Consensus, HeaderRun, Verdict};

fn id(block: &Block) -> BlockId {
    BlockId {
        number: block.header.number,
        hash: hash(block),
    }
}

/// A run of `blocks`, lowest first.
fn run(run: u32, blocks: &[Block]) -> HeaderRun {
    HeaderRun {
        run,
        head: id(&blocks[blocks.len() - 1]),
        tail: blocks[0].header.number,
        parent: blocks[0].header.parent_hash,
    }
}

fn add(chain: &Chain, number: u32, blocks: &[Block], runs: &[HeaderRun]) {
    let headers = blocks.iter().map(|block| (hash(block), &block.header));
    chain.add_run_headers(number, headers, runs).unwrap();
}

#[test]
fn runs_of_headers_are_there_after_the_chain_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let runs = [run(1, &blocks[10..20]), run(7, &blocks[30..31])];
    {
        let chain = open(Some(dir.path()));
        assert_eq!(chain.header_runs().unwrap(), []);
        add(&chain, 1, &blocks[10..20], &runs[..1]);
        add(&chain, 7, &blocks[30..31], &runs);
    }
    let chain = open(Some(dir.path()));
    assert_eq!(chain.header_runs().unwrap(), runs);
    let header = |run, number| chain.run_header(run, number).unwrap();
    assert_eq!(
        header(1, 11),
        Some((hash(&blocks[10]), blocks[10].header.clone()))
    );
    assert_eq!(
        header(7, 31),
        Some((hash(&blocks[30]), blocks[30].header.clone()))
    );
    assert_eq!(
        (header(1, 10), header(1, 31), header(7, 11)),
        (None, None, None)
    );
    // They are no blocks of the chain.
    assert_eq!(chain.header(&hash(&blocks[10])).unwrap(), None);
    assert_clean(&chain);
}

#[test]
fn removed_headers_leave_no_row() {
    let chain = open(None);
    let before = dump(&chain);
    let blocks = blocks();
    let runs = [run(1, &blocks[10..20]), run(2, &blocks[10..20])];
    add(&chain, 1, &blocks[10..20], &runs[..1]);
    add(&chain, 2, &blocks[10..20], &runs);
    let upper = run(1, &blocks[15..20]);
    chain
        .remove_run_headers(1, 11..16, &[upper, runs[1]])
        .unwrap();
    let header = |run, number| chain.run_header(run, number).unwrap();
    assert_eq!((header(1, 15), header(1, 16).is_some()), (None, true));
    assert!(header(2, 15).is_some());
    chain
        .remove_run_headers(1, 0..u64::MAX, &[runs[1]])
        .unwrap();
    assert!(header(2, 11).is_some());
    chain.remove_run_headers(2, 0..u64::MAX, &[]).unwrap();
    assert_eq!(dump(&chain), before);
}

#[test]
fn the_missing_block_is_the_parent_of_the_lowest_one_that_waits() {
    let consensus = Consensus::new(Arc::new(open(None)));
    let blocks = blocks();
    assert_eq!(consensus.missing_block(), None);
    assert!(matches!(choose(&consensus, HEAD), Ok(Verdict::Syncing)));
    let missing = consensus.missing_block().unwrap();
    assert_eq!((missing.hash, missing.number), (HEAD, None));
    for block in blocks[50..].iter().rev() {
        assert!(matches!(new_payload(&consensus, block), Verdict::Syncing));
    }
    let missing = consensus.missing_block().unwrap();
    assert_eq!(
        (missing.hash, missing.number, missing.head.hash),
        (hash(&blocks[49]), Some(50), HEAD)
    );

    // A sync imports the blocks up to it; the fork choice is followed without the consensus client.
    import_all(consensus.chain(), &blocks[..50]);
    assert!(matches!(
        consensus.retry_fork_choice(),
        Ok(Some(Verdict::Valid(_)))
    ));
    assert_eq!(consensus.chain().head().id.hash, HEAD);
    assert_eq!(consensus.missing_block(), None);
    assert!(matches!(consensus.retry_fork_choice(), Ok(None)));
}

#[test]
fn blocks_that_wait_upon_a_block_that_a_sync_found_invalid_are_invalid() {
    let consensus = Consensus::new(Arc::new(open(None)));
    let blocks = blocks();
    import_all(consensus.chain(), &blocks[..40]);
    for block in &blocks[50..] {
        assert!(matches!(new_payload(&consensus, block), Verdict::Syncing));
    }
    assert!(matches!(choose(&consensus, HEAD), Ok(Verdict::Syncing)));
    let reason = InvalidBlock::LogsBloom;
    let descendants = blocks[41..50].iter().rev().map(hash);
    consensus
        .reject_branch(hash(&blocks[39]), hash(&blocks[40]), &reason, descendants)
        .unwrap();
    assert!(consensus.is_rejected(&hash(&blocks[40])));
    assert_eq!(consensus.missing_block(), None);
    let is_invalid = |verdict| match verdict {
        Verdict::Invalid(rejected) => rejected.latest_valid == Some(hash(&blocks[39])),
        _ => false,
    };
    assert!(is_invalid(choose(&consensus, HEAD).unwrap()));
    for block in &blocks[40..] {
        assert!(is_invalid(new_payload(&consensus, block)));
    }
    assert_eq!(consensus.waiting_blocks(), 0);
    assert_eq!(consensus.chain().head().id.number, 40);
}
