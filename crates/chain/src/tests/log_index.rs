//! The index of logs against the headers: what it finds, what a reorganisation leaves of it.

use super::*;
use crate::log_index::SECTION_BLOCKS;
use crate::persist::add_block;
use crate::tree::FIRST_BLOCK;
use crate::{BlockId, StoredHeader};
use niwaki_primitives::{Bloom, Header};
use niwaki_storage::Batch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A bloom with about `bits` bits of the first `of`.
fn bloom(rng: &mut StdRng, bits: usize, of: usize) -> Bloom {
    let mut bloom = Bloom::ZERO;
    for _ in 0..bits {
        let bit = rng.random_range(0..of);
        bloom.0[bit / 8] |= 0x80 >> (bit % 8);
    }
    bloom
}

/// Puts headers with random blooms at `numbers`, and the head at the last of them. There is no state
/// behind them: the index asks for headers only.
fn put_headers(chain: &Chain, rng: &mut StdRng, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let bits = rng.random_range(0..40);
        let header = Header {
            number,
            logs_bloom: bloom(rng, bits, 300),
            ..Header::default()
        };
        let id = BlockId {
            number,
            hash: header.hash_slow(),
        };
        let stored = StoredHeader {
            id,
            header,
            total_difficulty: U256::ZERO,
        };
        let mut batch = Batch::new();
        add_block(&stored, &Default::default(), &[], None, &mut batch);
        batch.put(
            Segment::Canonical,
            &number.to_be_bytes(),
            id.hash.as_slice(),
        );
        chain.database().write(batch, false).unwrap();
        *chain.head.lock().unwrap() = stored;
    }
}

fn index_all(chain: &Chain) -> u64 {
    let mut sections = 0;
    while chain.index_logs().unwrap() {
        sections += 1;
    }
    sections
}

/// Asks the index for random places, and holds what it says against the headers.
fn assert_answers(chain: &Chain, rng: &mut StdRng) {
    let (index, state) = (chain.log_index().unwrap(), chain.log_index_state().unwrap());
    for _ in 0..60 {
        let places: Vec<Vec<Bloom>> = (0..rng.random_range(1..4))
            .map(|_| {
                (0..rng.random_range(0..4))
                    .map(|_| bloom(rng, 3, 310))
                    .collect()
            })
            .collect();
        let wanted: Vec<&[Bloom]> = places.iter().map(Vec::as_slice).collect();
        for first in (state.from..state.below).step_by(4_096) {
            let found = index.search(first, &wanted).unwrap();
            for number in first..first + SECTION_BLOCKS {
                let header = chain.header_at(number).unwrap().unwrap().header;
                let holds = places.iter().all(|masks| {
                    masks.is_empty() || masks.iter().any(|mask| header.logs_bloom.contains(mask))
                });
                assert_eq!(found.contains(number - first), holds, "{number}");
            }
        }
    }
    let mut bad = Vec::new();
    let mut tell = |key: &[u8], what: String| bad.push((key.to_vec(), what));
    chain.check_log_index(&mut tell).unwrap();
    assert_eq!(bad, []);
}

#[test]
fn the_log_index_agrees_with_headers_after_any_rollback() {
    for seed in 0..3 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let chain = open(None);
        put_headers(&chain, &mut rng, 1..=2 * SECTION_BLOCKS + 62);
        assert_eq!(index_all(&chain), 0, "it was not requested");
        chain.set_log_index_target(u64::MAX);
        assert_eq!(
            index_all(&chain),
            1,
            "the second section is too near the head"
        );
        put_headers(
            &chain,
            &mut rng,
            2 * SECTION_BLOCKS + 63..=2 * SECTION_BLOCKS + 70,
        );
        assert_eq!(index_all(&chain), 1);
        assert_eq!(chain.log_index_state().unwrap().below, 2 * SECTION_BLOCKS);
        assert_answers(&chain, &mut rng);

        // Another branch from the middle of the second section.
        let from = SECTION_BLOCKS + 1_000;
        let mut batch = Batch::new();
        chain.strike_logs(from, &mut batch).unwrap();
        chain.database().write(batch, false).unwrap();
        assert_eq!(chain.log_index_state().unwrap().below, SECTION_BLOCKS);
        put_headers(&chain, &mut rng, from..=2 * SECTION_BLOCKS + 70);
        assert_eq!(index_all(&chain), 1);
        assert_answers(&chain, &mut rng);

        // Above the index nothing is struck.
        let before = dump(&chain);
        let mut batch = Batch::new();
        chain.strike_logs(2 * SECTION_BLOCKS, &mut batch).unwrap();
        assert_eq!(batch.changes().count(), 0);
        assert_eq!(dump(&chain), before);
    }
}

#[test]
fn the_log_index_is_removed_rebuilt_and_built_only_to_its_target() {
    let mut rng = StdRng::seed_from_u64(9);
    let chain = open(None);
    put_headers(&chain, &mut rng, 1..=3 * SECTION_BLOCKS + 64);
    chain.set_log_index_target(SECTION_BLOCKS);
    assert_eq!(index_all(&chain), 1);
    chain.set_log_index_target(u64::MAX);
    assert_eq!(index_all(&chain), 2);
    let whole = dump(&chain);

    chain.strike_log_index(0).unwrap();
    assert_eq!(chain.log_index_state().unwrap().below, 0);
    assert!(chain.log_index_state().unwrap().is_behind);
    assert_eq!(index_all(&chain), 3);
    assert_eq!(dump(&chain), whole);

    chain.set_log_index_target(0);
    chain.remove_log_index(SECTION_BLOCKS + 5).unwrap();
    assert_eq!(chain.log_index_state().unwrap().below, SECTION_BLOCKS);
    let rows = |first: u64| {
        let rows = chain.database().prefix(Segment::LogIndex, &[]);
        let keys = rows.map(|row| row.unwrap().0);
        keys.filter(|key| key[2..] == first.to_be_bytes()).count()
    };
    assert!(rows(0) > 100);
    assert_eq!((rows(SECTION_BLOCKS), rows(2 * SECTION_BLOCKS)), (0, 0));
    assert_eq!(index_all(&chain), 0);
    chain.set_log_index_target(u64::MAX);
    assert_eq!(index_all(&chain), 2);
    assert_eq!(dump(&chain), whole);
}

/// Headers below the first one come, and that is at `first` now.
fn put_older_headers(chain: &Chain, rng: &mut StdRng, first: u64, old_first: u64) {
    let head = chain.head();
    put_headers(chain, rng, first..=old_first - 1);
    *chain.head.lock().unwrap() = head;
    let mut batch = Batch::new();
    chain.strike_logs_below(old_first, &mut batch).unwrap();
    match first {
        1 => batch.delete(Segment::Meta, FIRST_BLOCK),
        _ => batch.put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes()),
    }
    chain.database().write(batch, false).unwrap();
}

#[test]
fn an_index_of_late_blocks_grows_up_with_the_head_and_down_with_older_blocks() {
    for seed in 0..3 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(100 + seed);
        let chain = open(None);
        let mut first = 2 * SECTION_BLOCKS + rng.random_range(1..900);
        let mut head = 3 * SECTION_BLOCKS + 70;
        put_headers(&chain, &mut rng, first..=head);
        let mut batch = Batch::new();
        batch.put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes());
        chain.database().write(batch, false).unwrap();
        chain.set_log_index_target(u64::MAX);
        assert_eq!(index_all(&chain), 0, "no section has all its blocks");
        while first > 1 || head < 5 * SECTION_BLOCKS {
            match rng.random_range(0..4) {
                0 if first > 1 => {
                    let lower = first.saturating_sub(rng.random_range(1..3_000)).max(1);
                    put_older_headers(&chain, &mut rng, lower, first);
                    first = lower;
                }
                1 if head < 5 * SECTION_BLOCKS => {
                    let higher = head + rng.random_range(1..3_000);
                    put_headers(&chain, &mut rng, head + 1..=higher);
                    head = higher;
                }
                // Another branch.
                2 => {
                    let from = rng.random_range(head - 600..head);
                    let mut batch = Batch::new();
                    chain.strike_logs(from, &mut batch).unwrap();
                    chain.database().write(batch, false).unwrap();
                    put_headers(&chain, &mut rng, from..=head);
                }
                _ => {
                    chain.index_logs().unwrap();
                }
            }
        }
        index_all(&chain);
        let state = chain.log_index_state().unwrap();
        let deep = (head - 64) / SECTION_BLOCKS * SECTION_BLOCKS;
        assert_eq!((state.from, state.below), (0, deep));
        assert_answers(&chain, &mut rng);
        let grown = dump(&chain);
        chain.strike_log_index(0).unwrap();
        index_all(&chain);
        assert_eq!(dump(&chain), grown);
    }
}

#[test]
fn rows_of_sections_go_with_their_blocks() {
    let mut rng = StdRng::seed_from_u64(10);
    let chain = open(None);
    put_headers(&chain, &mut rng, 1..=3 * SECTION_BLOCKS + 64);
    chain.set_log_index_target(u64::MAX);
    index_all(&chain);
    let mut batch = Batch::new();
    chain
        .remove_logs_below(SECTION_BLOCKS + 10, &mut batch)
        .unwrap();
    chain.database().write(batch, false).unwrap();
    let state = chain.log_index_state().unwrap();
    let ends = (2 * SECTION_BLOCKS, 3 * SECTION_BLOCKS);
    assert_eq!((state.from, state.below), ends);
    let rows = chain.database().prefix(Segment::LogIndex, &[]);
    let firsts = rows.map(|row| row.unwrap().0[2..].to_vec());
    assert!(firsts.into_iter().all(|first| first != [0; 8]));
    assert_answers(&chain, &mut rng);
}

#[test]
fn a_wrong_row_is_reported_and_a_damaged_one_is_a_fault() {
    let mut rng = StdRng::seed_from_u64(11);
    let chain = open(None);
    put_headers(&chain, &mut rng, 1..=SECTION_BLOCKS + 64);
    chain.set_log_index_target(u64::MAX);
    index_all(&chain);
    let (key, row) = chain
        .database()
        .prefix(Segment::LogIndex, &[])
        .next()
        .unwrap()
        .unwrap();
    for (bytes, word) in [(vec![0; 512], "blooms"), (row[..9].to_vec(), "512 bytes")] {
        let mut batch = Batch::new();
        batch.put(Segment::LogIndex, &key, &bytes);
        chain.database().write(batch, false).unwrap();
        let mut bad = Vec::new();
        let mut tell = |key: &[u8], what: String| bad.push((key.to_vec(), what));
        chain.check_log_index(&mut tell).unwrap();
        assert_eq!(bad.len(), 1);
        assert_eq!(bad[0].0, key.to_vec());
        assert!(bad[0].1.contains(word), "{}", bad[0].1);
    }
    let bit = u16::from_be_bytes([key[0], key[1]]);
    let mut mask = Bloom::ZERO;
    mask.0[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
    assert!(chain.log_index().unwrap().search(0, &[&[mask]]).is_err());

    let mut batch = Batch::new();
    batch.put(Segment::Meta, b"log index", &[1, 2, 3]);
    chain.database().write(batch, false).unwrap();
    assert!(chain.log_index().is_err());
    let mut batch = Batch::new();
    chain.reset_log_index(&mut batch).unwrap();
    chain.database().write(batch, false).unwrap();
    assert_eq!(index_all(&chain), 1);
    assert_answers(&chain, &mut rng);
}
