//! Blocks that come below those that are stored.

use super::state_download::{downloaded, fill, pivot, source};
use super::*;
use crate::PrunedBlocks;
use crate::log_index::SECTION_BLOCKS;
use niwaki_storage::Batch;

/// A chain that began with the state of block 40, and has the blocks from 31 on.
fn late_chain(source: &Chain) -> Chain {
    late_chain_at(None, source)
}

fn late_chain_at(path: Option<&Path>, source: &Chain) -> Chain {
    let chain = open(path);
    let download = chain.begin_state_download(pivot(source)).unwrap();
    fill(&download, source, usize::MAX);
    assert!(download.complete(1, &mut |_, _| true).unwrap());
    let blocks = downloaded(source, 31..=40);
    chain.finish_state_download(download, &blocks).unwrap();
    chain
}

#[test]
fn older_blocks_join_those_above_down_to_the_genesis_block() {
    let source = source();
    let chain = late_chain(&source);
    for (numbers, first) in [(25..=30, 25), (2..=24, 2), (1..=1, 0)] {
        let end = chain.history_end().unwrap().unwrap();
        assert_eq!(end.id.number, numbers.end() + 1);
        chain.add_history(&downloaded(&source, numbers)).unwrap();
        assert_eq!(chain.first_block().unwrap(), first);
        assert_clean(&chain);
    }
    assert_eq!(chain.history_end().unwrap(), None);
    chain.add_history(&[]).unwrap();
    // Nothing tells this chain from one that has executed all blocks, but for what that kept to undo them.
    for number in 0..=40 {
        let hash = source.canonical_hash(number).unwrap().unwrap();
        assert_eq!(chain.canonical_hash(number).unwrap(), Some(hash));
        assert_eq!(chain.header(&hash).unwrap(), source.header(&hash).unwrap());
        assert_eq!(chain.block(&hash).unwrap(), source.block(&hash).unwrap());
        let receipts = chain.receipts(&hash).unwrap();
        assert_eq!(receipts, source.receipts(&hash).unwrap());
    }
    import_all(&chain, &blocks()[40..]);
    assert_eq!(chain.head().id.hash, HEAD);
    assert_clean(&chain);
}

#[test]
fn blocks_of_proof_of_work_are_removed_from_the_lowest_up_and_can_come_back() {
    const MERGED: u64 = 36;
    let (source, chain) = (source(), open(None));
    let (blocks, merged) = (blocks(), usize::try_from(MERGED).unwrap());
    import_all(&chain, &blocks[..merged - 1]);
    let pruned = chain.prune_proof_of_work(0, &mut |_| true).unwrap();
    assert_eq!((pruned.blocks, pruned.first), (0, 1), "it is not merged");
    import_all(&chain, &blocks[merged - 1..40]);
    let removed = downloaded(&chain, 1..=MERGED - 1);
    let pruned = chain.prune_proof_of_work(0, &mut |number| number < 20);
    let expected = PrunedBlocks {
        blocks: 19,
        first: 20,
        is_stopped: true,
    };
    assert_eq!(pruned.unwrap(), expected);
    assert_clean(&chain);
    let pruned = chain.prune_proof_of_work(0, &mut |_| true).unwrap();
    assert_eq!((pruned.blocks, pruned.first), (MERGED - 20, MERGED));
    assert_eq!(chain.first_block().unwrap(), MERGED);
    assert_clean(&chain);
    for block in &removed {
        let hash = block.header.id.hash;
        assert_eq!(chain.header(&hash).unwrap(), None);
        assert_eq!(chain.canonical_hash(block.header.id.number).unwrap(), None);
        for tx in &block.body.transactions {
            assert_eq!(chain.transaction_place(tx.tx_hash()).unwrap(), None);
        }
    }
    let pruned = chain.prune_pre_merge_blocks(&mut |_| true).unwrap();
    assert_eq!((pruned.blocks, pruned.first), (0, MERGED));
    // All rows are gone: with them back, the chain is the one that never lost them.
    chain.add_history(&removed).unwrap();
    assert_clean(&chain);
    assert_eq!(dump(&chain), dump(&source));
}

#[test]
#[should_panic(expected = "does not link")]
fn blocks_that_are_not_the_parents_of_stored_ones_are_a_bug_of_the_caller() {
    let source = source();
    let chain = late_chain(&source);
    let _ = chain.add_history(&downloaded(&source, 20..=29));
}

#[test]
fn an_index_of_a_time_with_fewer_blocks_loses_the_sections_that_blocks_are_added_to() {
    let source = source();
    let chain = late_chain(&source);
    // Earlier versions counted blocks that are not stored as blocks without logs.
    let mut batch = Batch::new();
    let row = [SECTION_BLOCKS.to_be_bytes(), SECTION_BLOCKS.to_be_bytes()].concat();
    batch.put(Segment::Meta, b"log index", &row);
    chain.database().write(batch, false).unwrap();
    assert!(chain.log_index().unwrap().has_section(0));
    chain.add_history(&downloaded(&source, 25..=30)).unwrap();
    assert!(!chain.log_index().unwrap().has_section(0));
    let row = || chain.database().get(Segment::Meta, b"log index").unwrap();
    let struck = row();
    chain.add_history(&downloaded(&source, 20..=24)).unwrap();
    assert_eq!(row(), struck, "it is struck once");
}

#[test]
fn older_blocks_that_are_written_as_tables_are_the_same_rows() {
    let (source, dir) = (source(), tempfile::tempdir().unwrap());
    let in_batches = late_chain(&source);
    in_batches
        .add_history(&downloaded(&source, 1..=30))
        .unwrap();
    let in_tables = late_chain_at(Some(dir.path()), &source);
    for numbers in [11..=30, 1..=10] {
        let blocks = downloaded(&source, numbers);
        in_tables.add_history_by(&blocks, 0).unwrap();
        assert_clean(&in_tables);
    }
    assert!(dump(&in_tables) == dump(&in_batches));
    assert!(!dir.path().join("loading").exists());
    drop(in_tables);
    let opened = open(Some(dir.path()));
    assert!(dump(&opened) == dump(&in_batches), "opened again");
}

#[test]
fn blocks_that_come_back_as_tables_outlive_their_removal() {
    const MERGED: u64 = 36;
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks()[..40]);
    let before = dump(&chain);
    let removed = downloaded(&chain, 1..=MERGED - 1);
    let pruned = chain.prune_proof_of_work(0, &mut |_| true).unwrap();
    assert_eq!(pruned.blocks, MERGED - 1);
    // The removal may not have reached the engine yet.
    chain.add_history_by(&removed, 0).unwrap();
    drop(chain);
    let opened = open(Some(dir.path()));
    assert!(dump(&opened) == before);
    assert_clean(&opened);
}
