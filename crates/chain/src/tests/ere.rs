//! Ere files: written, read back, damaged.

use super::*;
use crate::{EreError, EreFile, ErePart, EreWriter, header_accumulator, slim_receipts};
use niwaki_primitives::Bytes;
use niwaki_primitives::rlp::encode;
use std::io::Write;
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

/// As it is in an ERA1 file: the parts of each block together, receipts with their blooms.
fn era1_file_of(chain: &Chain, numbers: Range<u64>) -> Vec<u8> {
    let mut file = Vec::new();
    let put = |file: &mut Vec<u8>, kind: u16, data: &[u8]| {
        file.extend(kind.to_le_bytes());
        file.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        file.extend([0; 2]);
        file.extend(data);
    };
    let compressed = |data: &[u8]| {
        let mut frames = snap::write::FrameEncoder::new(Vec::new());
        frames.write_all(data).unwrap();
        frames.into_inner().unwrap()
    };
    put(&mut file, 0x3265, &[]);
    let mut places = Vec::new();
    for number in numbers.clone() {
        places.push(file.len() as u64);
        let stored = chain.header_at(number).unwrap().unwrap();
        let hash = stored.id.hash;
        put(&mut file, 0x03, &compressed(&encode(&stored.header)));
        let body = encode(chain.body(&hash).unwrap().unwrap());
        put(&mut file, 0x04, &compressed(&body));
        let mut receipts = Vec::new();
        for receipt in chain.receipts(&hash).unwrap().unwrap() {
            match receipt.tx_type {
                0 => receipts.extend(receipt.encode_2718()),
                _ => receipts.extend(encode(Bytes::from(receipt.encode_2718()))),
            }
        }
        let header = niwaki_primitives::rlp::Header {
            list: true,
            payload_length: receipts.len(),
        };
        let mut list = Vec::new();
        header.encode(&mut list);
        list.extend(receipts);
        put(&mut file, 0x05, &compressed(&list));
        let total = stored.total_difficulty.to_le_bytes::<32>();
        put(&mut file, 0x06, &total);
    }
    put(&mut file, 0x07, &[7; 32]);
    let at = file.len() as u64;
    let mut index = numbers.start.to_le_bytes().to_vec();
    index.extend(
        places
            .iter()
            .flat_map(|place| place.wrapping_sub(at).to_le_bytes()),
    );
    index.extend((places.len() as u64).to_le_bytes());
    put(&mut file, 0x3266, &index);
    file
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
    let ranges = [0..55, 7..8, 20..54].into_iter();
    let files = ranges.flat_map(|numbers| {
        let both = [
            file_of(&chain, numbers.clone()),
            era1_file_of(&chain, numbers.clone()),
        ];
        both.map(|file| (numbers.clone(), file))
    });
    for (numbers, bytes) in files {
        let (_dir, file) = open_bytes(&bytes);
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
    damaged_files_are_told(&chain, file_of(&chain, 30..50));
    damaged_files_are_told(&chain, era1_file_of(&chain, 30..50));
    let (_dir, file) = open_bytes(&file_of(&chain, 30..31)[8..]);
    assert!(
        file.is_ok_and(|file| file.header(30).is_ok()),
        "the index is relative"
    );
}

fn damaged_files_are_told(chain: &Chain, bytes: Vec<u8>) {
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
}

#[test]
fn era1_files_of_public_networks_give_blocks_that_fit_their_headers() {
    let Some(folder) = niwaki_testkit::corpus("mainnet-blocks/chains") else {
        return;
    };
    let mut blocks = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = EreFile::open(&entry.unwrap().path()).unwrap();
        let mut parent = None;
        for number in file.numbers() {
            let block = Block {
                header: file.header(number).unwrap(),
                body: file.body(number).unwrap(),
            };
            let hash = block.header.hash_slow();
            assert!(parent.is_none_or(|parent| parent == block.header.parent_hash));
            parent = Some(hash);
            let root = crate::check::receipts_root(&file.receipts(number).unwrap());
            assert_eq!(root, block.header.receipts_root, "block {number}");
            assert!(crate::check::is_body_valid(&block), "block {number}");
            blocks += 1;
        }
    }
    assert_eq!(blocks, 2 * 8_192);
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = EreFile::open(&dir.path().join("none.ere")).unwrap_err();
    assert!(matches!(error, EreError::Unreadable { .. }));
    assert!(error.to_string().contains("none.ere"), "{error}");
}
