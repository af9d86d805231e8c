//! A process that dies: a chain in memory forgets everything, its journal nothing.

use super::bal::{blocks_and_rows, hints, open_with_contracts};
use super::consensus::{choose, empty_upon, hash, new_payload};
use super::*;
use crate::journal::{Journal, Record, encode};
use crate::{Consensus, ForkChoice, Verdict};
use std::fs;

fn driven(folder: &Path) -> (Consensus, usize) {
    Consensus::with_journal(Arc::new(open(None)), folder).unwrap()
}

/// Takes in `blocks`, and chooses those of proof of stake.
fn play(consensus: &Consensus, blocks: &[Block]) {
    for block in blocks {
        assert!(matches!(new_payload(consensus, block), Verdict::Valid(_)));
        if block.header.difficulty.is_zero() {
            let chosen = choose(consensus, hash(block));
            assert!(matches!(chosen, Ok(Verdict::Valid(_))), "{chosen:?}");
        }
    }
}

fn file(folder: &Path) -> std::path::PathBuf {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn side_blocks_head_and_finality_are_restored_from_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let side;
    {
        let (consensus, taken) = driven(folder.path());
        assert_eq!(taken, 0);
        play(&consensus, &blocks);
        side = empty_upon(consensus.chain(), hash(&blocks[52]), 1);
        new_payload(&consensus, &side);
        let choice = ForkChoice {
            head: HEAD,
            safe: hash(&blocks[45]),
            finalized: hash(&blocks[40]),
        };
        consensus.fork_choice(choice).unwrap();
    }
    let (consensus, taken) = driven(folder.path());
    assert_eq!(taken, 55);
    let chain = consensus.chain();
    assert_eq!(chain.head().id.hash, HEAD);
    assert_eq!(chain.safe().unwrap().unwrap().id.number, 46);
    assert_eq!(chain.finalized().unwrap().unwrap().id.number, 41);
    assert!(matches!(
        new_payload(&consensus, &side),
        Verdict::Valid(None)
    ));
    assert_clean(chain);
    drop(consensus);
    // What was taken in is on the disk by then, and goes from the journal.
    assert_eq!(driven(folder.path()).1, 0);
}

#[test]
fn a_file_that_was_cut_off_or_changed_gives_what_comes_before_and_refuses_no_block() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = &blocks();
    play(&driven(folder.path()).0, blocks);
    let path = file(folder.path());
    let whole = fs::read(&path).unwrap();
    let (mut best, mut least) = (0, u64::MAX);
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut changed = whole.clone();
        changed[at] ^= 0x11;
        for bytes in [&whole[..at], &changed] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("7.journal"), bytes).unwrap();
            let (consensus, _) = driven(folder.path());
            let head = consensus.chain().head().id;
            assert_eq!(
                consensus.chain().canonical_hash(head.number).unwrap(),
                Some(head.hash)
            );
            (best, least) = (best.max(head.number), least.min(head.number));
            play(&consensus, blocks);
            assert_eq!(consensus.chain().head().id.hash, HEAD);
        }
    }
    assert!(best >= 50 && least == 0, "{least}..{best}");
}

#[test]
fn a_database_that_is_ahead_or_of_another_chain_is_left_alone() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blocks = blocks();
    play(&driven(folder.path()).0, &blocks[..50]);
    let chain = Arc::new(open(Some(data.path())));
    import_all(&chain, &blocks);
    let (consensus, taken) = Consensus::with_journal(chain, folder.path()).unwrap();
    assert_eq!((taken, consensus.chain().head().id.hash), (0, HEAD));
    drop(consensus);

    let folder = tempfile::tempdir().unwrap();
    play(&driven(folder.path()).0, &blocks);
    let text = include_str!("../../../../testdata/chain/genesis.json");
    let mut other: serde_json::Value = serde_json::from_str(text).unwrap();
    other["extraData"] = "0x07".into();
    let other = Genesis::from_json(&other.to_string()).unwrap();
    let chain = open_eager(config(None, &other));
    let (consensus, taken) = Consensus::with_journal(Arc::new(chain), folder.path()).unwrap();
    assert_eq!((taken, consensus.chain().head().id.number), (0, 0));
}

#[test]
fn a_head_that_was_set_back_stays_back() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blocks = blocks();
    let begin = || {
        let chain = Arc::new(open(Some(data.path())));
        Consensus::with_journal(chain, folder.path()).unwrap().0
    };
    let consensus = begin();
    play(&consensus, &blocks);
    consensus.set_head(&hash(&blocks[49])).unwrap();
    drop(consensus);
    assert_eq!(begin().chain().head().id.number, 50);
}

#[test]
fn the_journal_keeps_two_files_with_more_blocks_than_may_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::begin(folder.path()).unwrap();
    let record = encode(&blocks()[0]);
    for count in 1..=5 * niwaki_storage::MAX_PENDING_BATCHES {
        journal.block(&record).unwrap();
        journal.count_block();
        let mut held = 0;
        Journal::read(folder.path(), &mut |_| {
            held += 1;
            Ok(())
        })
        .unwrap();
        assert!(held >= count.min(niwaki_storage::MAX_PENDING_BATCHES + 1));
        assert!(fs::read_dir(folder.path()).unwrap().count() <= 2);
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::write(&path, b"a file").unwrap();
    let error = Consensus::with_journal(Arc::new(open(None)), &path).unwrap_err();
    assert!(error.to_string().contains("journal"), "{error}");
}

#[test]
fn a_block_reaches_the_journal_in_parallel_with_its_roots_valid_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let (blocks, _) = blocks_and_rows();
    let chain = Arc::new(open_with_contracts());
    let (consensus, _) = Consensus::with_journal(chain, folder.path()).unwrap();
    let mut judged = Vec::new();
    for (built, senders) in &blocks {
        let mut wrong = built.block.clone();
        wrong.header.state_root = B256::repeat_byte(1);
        for (block, is_right) in [(wrong, false), (built.block.clone(), true)] {
            judged.push(hash(&block));
            let verdict = consensus.new_payload(block.clone(), hash(&block), hints(senders, None));
            assert_eq!(matches!(verdict, Ok(Verdict::Valid(Some(_)))), is_right);
        }
    }
    let mut noted = Vec::new();
    Journal::read(folder.path(), &mut |record| {
        if let Record::Block(block) = record {
            noted.push(hash(&block));
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(noted, judged);
}

#[test]
fn what_was_noted_and_is_invalid_is_refused_again() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let mut wrong = blocks[1].clone();
    wrong.header.state_root = B256::repeat_byte(1);
    let mut journal = Journal::begin(folder.path()).unwrap();
    for block in [&blocks[0], &wrong, &blocks[1]] {
        journal.block(&encode(block)).unwrap();
    }
    let (consensus, taken) = driven(folder.path());
    assert_eq!(taken, 2);
    assert!(
        consensus
            .chain()
            .header(&hash(&blocks[1]))
            .unwrap()
            .is_some()
    );
    assert!(consensus.chain().header(&hash(&wrong)).unwrap().is_none());
}
