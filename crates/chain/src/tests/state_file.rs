//! A state exported and imported: the same head and rows, and the chain imports the next block.

use super::*;
use crate::chunks::{About, CHUNK_BYTES, ChunkReader, ChunkWriter, FileKind};
use crate::{Exporting, GenesisSource, Loading, StateImport, TransferError};
use niwaki_primitives::EMPTY_ROOT_HASH;
use std::fs;
use std::path::PathBuf;

pub(super) fn source(genesis: &Genesis) -> GenesisSource {
    let block = Box::new(GenesisBlock::from(genesis));
    GenesisSource::Known(block, Arc::new(genesis.spec.clone()))
}

pub(super) fn import_of(data_path: &Path, from: &Path) -> StateImport {
    let chain = config(Some(data_path), &genesis());
    StateImport {
        data_path: data_path.to_owned(),
        from: from.to_owned(),
        genesis: source(&genesis()),
        storage: chain.storage,
        state: chain.state,
    }
}

/// A chain of 40 blocks, and its state with the last `blocks` blocks in a file.
pub(super) fn exported(folder: &Path, blocks: u64) -> (Chain, PathBuf) {
    let chain = open(None);
    import_all(&chain, &self::blocks()[..40]);
    let file = folder.join(format!("state-{blocks}"));
    let exported = chain.export_state_with(blocks, CHUNK_BYTES, &file, &mut |_| true);
    assert_eq!(exported.unwrap().head.number, 40);
    (chain, file)
}

pub(super) fn import_into(data_path: &Path, file: &Path) -> Result<Chain, TransferError> {
    Chain::import_state(&import_of(data_path, file), &mut |_| true)
}

#[test]
fn an_imported_state_equals_the_exported_rows_and_imports_the_next_block() {
    let dir = tempfile::tempdir().unwrap();
    // All blocks, the last few with a gap above the genesis block, the fewest there can be.
    for count in [256, 10, 1] {
        let (from, file) = exported(dir.path(), count);
        let data_path = dir.path().join(format!("data-{count}"));
        let chain = import_into(&data_path, &file).unwrap();
        assert_eq!(chain.head(), from.head());
        assert_eq!(chain.genesis_hash(), from.genesis_hash());
        assert_clean(&chain);
        let state = |chain: &Chain| -> Vec<_> {
            let is_state = |segment: Segment| (segment as u8) <= Segment::StorageTrie as u8;
            let rows = dump(chain).into_iter();
            rows.filter(|(segment, _)| is_state(*segment)).collect()
        };
        assert!(state(&chain) == state(&from));
        if count == 256 {
            let is_alike = |row: &(Segment, niwaki_storage::Row)| row.1.0[..] != b"first block"[..];
            let rows = |chain| -> Vec<_> { dump(chain).into_iter().filter(is_alike).collect() };
            assert!(rows(&chain) == rows(&from));
        } else {
            assert_eq!(chain.block_at(40 - count).unwrap(), None);
        }
        assert!(chain.block_at(0).unwrap().is_some());
        drop(chain);

        let chain = open(Some(&data_path));
        import_all(&chain, &blocks()[40..]);
        assert_eq!(chain.head().id.hash, HEAD);
        assert_clean(&chain);
        // What was taken in is taken out again, gap and all.
        let again = dir.path().join(format!("again-{count}"));
        chain.export_state(&again, &mut |_| true).unwrap();
        let other = import_into(&dir.path().join(format!("other-{count}")), &again).unwrap();
        assert_eq!(other.head(), chain.head());
        assert_clean(&other);
    }
}

#[test]
fn a_data_path_with_a_chain_and_a_file_of_another_chain_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, file) = exported(dir.path(), 5);
    let data_path = dir.path().join("data");
    drop(import_into(&data_path, &file).unwrap());
    let error = import_into(&data_path, &file).unwrap_err();
    assert!(matches!(error, TransferError::NotEmpty), "{error}");

    let fresh = dir.path().join("fresh");
    let mut other = genesis();
    other.alloc.values_mut().next().unwrap().balance += U256::ONE;
    let mut import = import_of(&fresh, &file);
    import.genesis = source(&other);
    let error = Chain::import_state(&import, &mut |_| true).unwrap_err();
    assert!(matches!(error, TransferError::OtherChain { .. }), "{error}");
    let mut other = genesis();
    other.spec.chain_id += 1;
    import.genesis = source(&other);
    let error = Chain::import_state(&import, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("chain id"), "{error}");
    // What was refused leaves the data path good for what is not.
    assert_eq!(import_into(&fresh, &file).unwrap().head().id.number, 40);
}

#[test]
fn an_import_that_is_stopped_or_killed_is_redone_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (_, file) = exported(dir.path(), 5);
    let data_path = dir.path().join("data");
    for stop_at in [0, 3, 5] {
        let mut seen = 0;
        let stopped = Chain::import_state(&import_of(&data_path, &file), &mut |loading| {
            assert!(matches!(
                loading,
                Loading::Reading(..) | Loading::Writing(..)
            ));
            seen += 1;
            seen <= stop_at
        });
        assert!(matches!(stopped, Err(TransferError::Stopped)), "{stop_at}");
    }
    // A process that died left rows in force of nothing.
    {
        let database = Database::open(&data_path, &StorageOptions::default()).unwrap();
        let mut batch = niwaki_storage::Batch::new();
        batch.put(Segment::Accounts, &[7; 32], b"half");
        batch.put(Segment::AccountTrie, &[1, 2], b"half");
        database.ingest(batch).unwrap();
    }
    assert_clean(&import_into(&data_path, &file).unwrap());

    // Without another import, the chain begins with its genesis block.
    let fresh = dir.path().join("fresh");
    let stopped = Chain::import_state(&import_of(&fresh, &file), &mut |_| false);
    assert!(matches!(stopped, Err(TransferError::Stopped)));
    let chain = open(Some(&fresh));
    assert_eq!(chain.head().id.number, 0);
    import_all(&chain, &blocks());
    assert_clean(&chain);
}

#[test]
fn a_state_file_with_a_byte_changed_or_cut_off_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, file) = exported(dir.path(), 3);
    let bytes = fs::read(&file).unwrap();
    let (bad, data_path) = (dir.path().join("bad"), dir.path().join("data"));
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        for bytes in [&changed[..], &bytes[..at]] {
            fs::write(&bad, bytes).unwrap();
            let error = import_into(&data_path, &bad).unwrap_err();
            assert!(
                matches!(
                    error,
                    TransferError::Damaged { .. } | TransferError::NotOurs { .. }
                ),
                "{error}"
            );
        }
    }
    assert_clean(&import_into(&data_path, &file).unwrap());
}

/// Given a row of a segment, the rows that take its place.
type Change<'a> = dyn FnMut(Segment, &[u8], &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> + 'a;

/// The file `from` written again with other rows: `change` gives those that replace one.
fn rewrite(from: &Path, to: &Path, change: &mut Change<'_>) {
    let (mut file, about): (_, About) = ChunkReader::open(from, FileKind::State).unwrap();
    let _ = fs::remove_file(to);
    let mut out = ChunkWriter::create(to, FileKind::State, &about).unwrap();
    while let Some(chunk) = file.next().unwrap() {
        let is_whole = chunk.each(|key, value| {
            for (key, value) in change(chunk.segment, key, value) {
                out.row(chunk.segment, &key, &value)?;
            }
            Ok(())
        });
        assert!(is_whole.unwrap());
    }
    out.finish().unwrap();
}

#[test]
fn rows_that_do_not_make_the_state_of_the_header_are_refused_however_well_formed() {
    let dir = tempfile::tempdir().unwrap();
    let (_, file) = exported(dir.path(), 3);
    let (bad, data_path) = (dir.path().join("bad"), dir.path().join("data"));
    let refuse = |segment: Segment, at: usize, what: &str, words: &str| {
        let mut seen = 0;
        let mut last: Option<(Vec<u8>, Vec<u8>)> = None;
        rewrite(&file, &bad, &mut |found, key, value| {
            let row = (key.to_vec(), value.to_vec());
            if found != segment {
                return vec![row];
            }
            seen += 1;
            let before = last.replace(row.clone());
            match what {
                _ if seen != at => vec![row],
                "drop" => vec![],
                "twice" => vec![row.clone(), row],
                "order" => vec![before.unwrap(), row],
                "key" => vec![(key[1..].to_vec(), value.to_vec())],
                "cut" => vec![(key.to_vec(), value[..value.len() - 1].to_vec())],
                _ => {
                    let mut value = value.to_vec();
                    value[1] ^= 1;
                    vec![(key.to_vec(), value)]
                }
            }
        });
        assert!(seen >= at, "{segment:?}");
        let error = import_into(&data_path, &bad).unwrap_err().to_string();
        assert!(error.contains(words), "{segment:?} {what}: {error}");
        assert_eq!(
            Database::open(&data_path, &StorageOptions::default())
                .unwrap()
                .get(Segment::Meta, b"head")
                .unwrap(),
            None
        );
    };
    use Segment::{Accounts, Bodies, Code, Headers, Receipts, Slots};
    refuse(Accounts, 9, "drop", "state root");
    refuse(Accounts, 9, "twice", "not in order");
    refuse(Accounts, 9, "order", "not in order");
    refuse(Accounts, 9, "key", "32 bytes");
    refuse(Accounts, 9, "cut", "accounts");
    refuse(Slots, 9, "drop", "state root");
    refuse(Slots, 9, "twice", "not in order");
    refuse(Slots, 9, "key", "64 bytes");
    refuse(Code, 5, "drop", "an account has code");
    refuse(Code, 5, "cut", "an account has code");
    refuse(Headers, 1, "drop", "without a header");
    refuse(Headers, 3, "drop", "header");
    refuse(Headers, 4, "drop", "header");
    refuse(Headers, 2, "twice", "more headers");
    refuse(Headers, 2, "cut", "RLP");
    refuse(Bodies, 2, "drop", "no body");
    refuse(Bodies, 2, "cut", "body");
    refuse(Bodies, 2, "key", "40 bytes");
    refuse(Receipts, 2, "drop", "no body or no receipts");
    refuse(Receipts, 2, "cut", "receipts");
    assert_clean(&import_into(&data_path, &file).unwrap());
}

#[test]
fn an_export_leaves_a_whole_file_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, file) = exported(dir.path(), 3);
    let again = chain.export_state(&file, &mut |_| true).unwrap_err();
    assert!(matches!(again, TransferError::Exists { .. }), "{again}");
    let to = dir.path().join("new");
    let stopped = chain.export_state(&to, &mut |_| false).unwrap_err();
    assert!(matches!(stopped, TransferError::Stopped), "{stopped}");
    assert!(!to.exists() && dir.path().join("new.part").exists());
    let report = &mut |exporting| match exporting {
        Exporting::Writing(done, of) => done <= of,
        _ => true,
    };
    let exported = chain.export_state(&to, report).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().len(), exported.bytes);
    let counted = exported.accounts + exported.slots + exported.codes;
    let segments = [Segment::Accounts, Segment::Slots, Segment::Code];
    let rows = segments.map(|segment| chain.database().prefix(segment, &[]).count());
    assert_eq!(counted, rows.iter().sum::<usize>() as u64);
    assert!(!dir.path().join("new.part").exists());
}

#[test]
fn a_state_without_accounts_and_one_of_the_genesis_block_alone_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let mut empty = genesis();
    empty.alloc.clear();
    for (at, genesis) in [empty, genesis()].into_iter().enumerate() {
        let chain = open_eager(config(None, &genesis));
        let file = dir.path().join(format!("state-{at}"));
        chain.export_state(&file, &mut |_| true).unwrap();
        let mut import = import_of(&dir.path().join(format!("data-{at}")), &file);
        import.genesis = source(&genesis);
        let imported = Chain::import_state(&import, &mut |_| true).unwrap();
        assert_eq!(imported.head(), chain.head());
        let root = imported.head().header.state_root;
        assert_eq!(root == EMPTY_ROOT_HASH, at == 0);
    }
}
