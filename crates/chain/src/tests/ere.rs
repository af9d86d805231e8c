//! Ere files: written, read back, damaged.

use super::*;
use crate::{EreError, EreFile, ErePart, EreWriter, header_accumulator, slim_receipts};
use niwaki_primitives::rlp::encode;
use std::ops::Range;

/// The file of some blocks of a chain that begins with proof of work.
fn file_of(chain: &Chain, numbers: Range<u64>) -> Vec<u8> {
    let mut writer = EreWriter::new(Vec::new(), numbers.start).unwrap();
    let mut records = Vec::new();
    for part in [
        ErePart::Header,
        ErePart::Body,
        ErePart::Receipts,
        ErePart::Difficulty,
    ] {
        for number in numbers.clone() {
            let stored = chain.header_at(number).unwrap().unwrap();
            let hash = stored.id.hash;
            let data = match part {
                ErePart::Header => encode(&stored.header),
                ErePart::Body => encode(chain.body(&hash).unwrap().unwrap()),
                ErePart::Receipts => slim_receipts(&chain.receipts(&hash).unwrap().unwrap()),
                ErePart::Difficulty => {
                    records.push((hash, stored.total_difficulty));
                    stored.total_difficulty.to_le_bytes::<32>().to_vec()
                }
            };
            writer.put(part, &data).unwrap();
        }
    }
    let root = header_accumulator(records.into_iter());
    writer.finish(Some(root)).unwrap()
}

fn chain_of_all_blocks() -> Chain {
    let chain = open(None);
    import_all(&chain, &blocks());
    chain
}

fn open_bytes(bytes: &[u8]) -> (tempfile::TempDir, Result<EreFile, EreError>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blocks.ere");
    std::fs::write(&path, bytes).unwrap();
    let file = EreFile::open(&path);
    (dir, file)
}

#[test]
fn a_file_gives_its_blocks_in_any_order_and_no_others() {
    let chain = chain_of_all_blocks();
    for numbers in [0..55, 7..8, 20..54] {
        let (_dir, file) = open_bytes(&file_of(&chain, numbers.clone()));
        let file = file.unwrap();
        assert_eq!(file.numbers(), numbers);
        for number in numbers.clone().rev() {
            let stored = chain.header_at(number).unwrap().unwrap();
            let hash = stored.id.hash;
            assert_eq!(file.header(number).unwrap(), stored.header);
            assert_eq!(
                file.body(number).unwrap(),
                chain.body(&hash).unwrap().unwrap()
            );
            let receipts = chain.receipts(&hash).unwrap().unwrap();
            assert_eq!(file.receipts(number).unwrap(), receipts);
        }
        for number in [numbers.start.wrapping_sub(1), numbers.end, u64::MAX] {
            let error = file.header(number).unwrap_err().to_string();
            assert!(error.contains("blocks.ere"), "{error}");
        }
    }
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_damaged_or_gives_what_it_gave() {
    let chain = chain_of_all_blocks();
    let bytes = file_of(&chain, 30..50);
    let headers: Vec<_> = (30..50)
        .map(|number| chain.header_at(number).unwrap().unwrap().header)
        .collect();
    for length in (0..bytes.len()).step_by(17) {
        let (_dir, file) = open_bytes(&bytes[..length]);
        assert!(file.is_err(), "{length}");
    }
    let mut told = 0;
    for at in (0..bytes.len()).step_by(11) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        let (_dir, file) = open_bytes(&changed);
        let Ok(file) = file else {
            told += 1;
            continue;
        };
        for number in file.numbers().take(30) {
            let [header, body, receipts] = [
                file.header(number).map(drop),
                file.body(number).map(drop),
                file.receipts(number).map(drop),
            ];
            told += [header, body, receipts]
                .iter()
                .filter(|part| part.is_err())
                .count();
        }
        // Snappy frames have checksums, so what is read of a header is that header.
        for (number, expected) in (30..50).zip(&headers) {
            if let Ok(header) = file.header(number) {
                assert!(
                    headers.contains(&header) && (header == *expected || at > 8),
                    "{at}"
                );
            }
        }
    }
    assert!(told > 100, "{told}");
    let (_dir, file) = open_bytes(&file_of(&chain, 30..31)[8..]);
    assert!(
        file.is_ok_and(|file| file.header(30).is_ok()),
        "the index is relative"
    );
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = EreFile::open(&dir.path().join("none.ere")).unwrap_err();
    assert!(matches!(error, EreError::Unreadable { .. }));
    assert!(error.to_string().contains("none.ere"), "{error}");
}
