//! Trie logs counted, pruned, and carried to another data path.

use super::*;
use crate::{BlockTemplate, PrunedTrieLogs, TransferError, TrieLogChoice, TrieLogCount};
use niwaki_storage::Batch;
use std::fs;

/// An empty block on top of the block with this hash.
fn empty_upon(chain: &Chain, parent: B256, extra: u8) -> Block {
    let timestamp = chain.header(&parent).unwrap().unwrap().header.timestamp + 12;
    let template = BlockTemplate {
        parent,
        timestamp,
        extra_data: vec![extra].into(),
        ..BlockTemplate::default()
    };
    chain.build(template, Vec::new()).unwrap().block
}

fn count(chain: &Chain) -> TrieLogCount {
    chain.count_trie_logs(&mut |_| true).unwrap()
}

fn logs(chain: &Chain) -> Vec<niwaki_storage::Row> {
    let rows = chain.database().prefix(Segment::TrieLogs, &[]);
    rows.map(Result::unwrap).collect()
}

#[test]
fn pruning_leaves_only_canonical_trie_logs_within_reach() {
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks);
    let side = empty_upon(&chain, blocks[52].header.hash_slow(), 7);
    import_side(&chain, side);
    let mut batch = Batch::new();
    let orphan = [&9_u64.to_be_bytes()[..], &[9; 32]].concat();
    batch.put(Segment::TrieLogs, &orphan, b"some log");
    chain.database().write(batch, false).unwrap();
    let expected = TrieLogCount {
        total: 56,
        canonical: 54,
        fork: 1,
        orphaned: 1,
    };
    assert_eq!(count(&chain), expected);
    let stopped = chain.count_trie_logs(&mut |seen| seen < 5);
    assert!(matches!(stopped, Err(TransferError::Stopped)));

    let prune = || chain.prune_trie_logs(&mut |_| true).unwrap();
    assert_eq!(
        prune(),
        PrunedTrieLogs {
            old: 0,
            non_canonical: 2
        }
    );
    assert_eq!((count(&chain).total, count(&chain).canonical), (54, 54));
    // Still within reach of the head.
    chain.set_head(&chain.genesis_hash()).unwrap();
    chain.set_head(&HEAD).unwrap();
    assert_clean(&chain);
}

#[test]
fn exported_trie_logs_are_imported_byte_for_byte_and_roll_back() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks);
    let all = logs(&chain);
    let file = dir.path().join("logs");
    let numbers = TrieLogChoice::Numbers(0..u64::MAX);
    let exported = chain.export_trie_logs(&numbers, &file, &mut |_| true);
    assert_eq!(exported.unwrap(), 54);
    let error = chain.export_trie_logs(&numbers, &file, &mut |_| true);
    assert!(matches!(error, Err(TransferError::Exists { .. })));

    let mut batch = Batch::new();
    for (key, _) in &all[..40] {
        batch.delete(Segment::TrieLogs, key);
    }
    chain.database().write(batch, false).unwrap();
    assert!(matches!(
        chain.set_head(&chain.genesis_hash()),
        Err(SetHeadError::OutOfReach(_))
    ));
    assert_eq!(chain.import_trie_logs(&file, &mut |_| true).unwrap(), 40);
    assert_eq!(chain.import_trie_logs(&file, &mut |_| true).unwrap(), 0);
    assert!(logs(&chain) == all);
    chain.set_head(&chain.genesis_hash()).unwrap();

    // By hash, and what is not there.
    let some = dir.path().join("some");
    let hashes = TrieLogChoice::Blocks(vec![blocks[4].header.hash_slow(), HEAD]);
    let exported = chain.export_trie_logs(&hashes, &some, &mut |_| true);
    assert_eq!(exported.unwrap(), 2);
    let none = dir.path().join("none");
    for choice in [
        TrieLogChoice::Blocks(vec![B256::ZERO]),
        TrieLogChoice::Numbers(900..1000),
    ] {
        let error = chain.export_trie_logs(&choice, &none, &mut |_| true);
        assert!(error.is_err());
    }
    let stopped = chain.export_trie_logs(&hashes, &none, &mut |_| false);
    assert!(matches!(stopped, Err(TransferError::Stopped)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn logs_that_can_not_be_those_of_their_blocks_are_refused_and_none_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks[..30]);
    let file = dir.path().join("logs");
    let numbers = TrieLogChoice::Numbers(10..21);
    chain
        .export_trie_logs(&numbers, &file, &mut |_| true)
        .unwrap();
    let refused = |chain: &Chain, file: &Path| {
        let before = logs(chain);
        let error = chain.import_trie_logs(file, &mut |_| true).unwrap_err();
        assert!(logs(chain) == before);
        error
    };

    // Another log of the last block is there.
    let (key, log) = logs(&chain)[19].clone();
    let (next, _) = logs(&chain)[20].clone();
    let mut batch = Batch::new();
    for (key, _) in &logs(&chain)[..15] {
        batch.delete(Segment::TrieLogs, key);
    }
    batch.put(Segment::TrieLogs, &key, b"another log");
    chain.database().write(batch, false).unwrap();
    let error = refused(&chain, &file);
    assert!(
        error.to_string().contains("another one is there"),
        "{error}"
    );

    // What is exported as a log need not be one, or not that of its block.
    for (key, log, words) in [
        (&key, &b"another log"[..], "version"),
        (&next, &log, "not its parent"),
    ] {
        let mut batch = Batch::new();
        batch.put(Segment::TrieLogs, key, log);
        chain.database().write(batch, false).unwrap();
        let bad = dir.path().join(words);
        chain
            .export_trie_logs(&TrieLogChoice::Numbers(20..22), &bad, &mut |_| true)
            .unwrap();
        let error = refused(&chain, &bad);
        assert!(error.to_string().contains(words), "{error}");
        let mut batch = Batch::new();
        batch.delete(Segment::TrieLogs, key);
        chain.database().write(batch, false).unwrap();
    }

    // A block that is not stored, a chain that is another one.
    let young = open(None);
    import_all(&young, &blocks[..12]);
    let error = refused(&young, &file);
    assert!(error.to_string().contains("not stored"), "{error}");
    let mut other = genesis();
    other.alloc.values_mut().next().unwrap().balance += U256::ONE;
    let other = open_eager(config(None, &other));
    let error = refused(&other, &file);
    assert!(matches!(error, TransferError::OtherChain { .. }), "{error}");
}

#[test]
fn a_file_with_any_byte_changed_or_cut_off_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks[..12]);
    let file = dir.path().join("logs");
    let numbers = TrieLogChoice::Numbers(1..9);
    chain
        .export_trie_logs(&numbers, &file, &mut |_| true)
        .unwrap();
    let bytes = fs::read(&file).unwrap();
    let bad = dir.path().join("bad");
    let refused = |bytes: &[u8]| {
        fs::write(&bad, bytes).unwrap();
        let error = chain.import_trie_logs(&bad, &mut |_| true).unwrap_err();
        assert!(
            matches!(
                error,
                TransferError::Damaged { .. } | TransferError::NotOurs { .. }
            ),
            "{error}"
        );
    };
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&changed);
        refused(&bytes[..at]);
    }
    refused(&[&bytes[..], &[0]].concat());
    refused(b"");
    assert_eq!(chain.import_trie_logs(&file, &mut |_| true).unwrap(), 0);
}
