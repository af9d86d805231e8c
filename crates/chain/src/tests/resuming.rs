//! Exports of a state that were interrupted: gone on with, they end as if they had not been.

use super::state_file::exported;
use super::*;
use crate::chunks::{ChunkReader, FileKind};
use crate::{Exporting, StateExported, TransferError};
use std::fs;
use std::path::PathBuf;

/// Small, so that a small state has many chunks.
const SHAPE: (u64, usize) = (5, 400);

/// A chain, the bytes of its exported state, and where a part of them may lie.
struct Place {
    _dir: tempfile::TempDir,
    chain: Chain,
    whole: Vec<u8>,
    to: PathBuf,
    part: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (chain, _) = exported(dir.path(), 5);
        let file = dir.path().join("whole");
        let exported = chain.export_state_with(SHAPE.0, SHAPE.1, &file, &mut |_| true);
        assert_eq!(exported.unwrap().resumed_bytes, 0);
        Self {
            chain,
            whole: fs::read(&file).unwrap(),
            to: dir.path().join("state"),
            part: dir.path().join("state.part"),
            _dir: dir,
        }
    }

    /// Exports; gives how, and what was said of what was there.
    fn export(&self) -> (StateExported, Option<Exporting>) {
        let mut left = None;
        let exported = self
            .chain
            .export_state_with(SHAPE.0, SHAPE.1, &self.to, &mut |exporting| {
                if !matches!(exporting, Exporting::Writing(..)) {
                    assert_eq!(left.replace(exporting), None);
                }
                true
            });
        (exported.unwrap(), left)
    }

    /// Goes on with `part`; the file must be the one that it would be without. Gives how many bytes
    /// were kept.
    fn finish(&self, part: &[u8], what: &str) -> (u64, Option<Exporting>) {
        fs::write(&self.part, part).unwrap();
        let (exported, left) = self.export();
        assert!(fs::read(&self.to).unwrap() == self.whole, "{what}");
        assert_eq!(exported.bytes, self.whole.len() as u64, "{what}");
        assert!(!self.part.exists());
        fs::remove_file(&self.to).unwrap();
        (exported.resumed_bytes, left)
    }

    /// Where the chunks end, the first of which says what the file is of.
    fn ends(&self) -> Vec<u64> {
        fs::write(&self.to, &self.whole).unwrap();
        let (mut file, _) = ChunkReader::open(&self.to, FileKind::State).unwrap();
        let mut ends = vec![file.place().at];
        while file.next().unwrap().is_some() {
            ends.push(file.place().at);
        }
        fs::remove_file(&self.to).unwrap();
        ends
    }
}

#[test]
fn an_export_stopped_at_any_report_resumes_to_the_same_bytes() {
    let place = Place::new();
    let (mut stops, mut kept) = (0, 0);
    loop {
        let mut seen = 0;
        let result = place
            .chain
            .export_state_with(SHAPE.0, SHAPE.1, &place.to, &mut |_| {
                seen += 1;
                seen <= stops
            });
        // Goes on with what the one before has left, and comes further by a report.
        match result {
            Err(TransferError::Stopped) => assert!(!place.to.exists()),
            other => {
                kept = other.unwrap().resumed_bytes;
                break;
            }
        }
        let part = fs::read(&place.part).unwrap();
        assert!(place.whole.starts_with(&part), "stop {stops}");
        assert!(part.len() as u64 >= kept, "stop {stops}");
        kept = part.len() as u64;
        stops += 1;
    }
    assert!(stops > 20, "{stops}");
    assert!(kept * 10 > place.whole.len() as u64 * 9);
    assert!(fs::read(&place.to).unwrap() == place.whole);
}

#[test]
fn an_export_cut_at_any_byte_keeps_what_is_whole_and_ends_in_the_same_bytes() {
    let place = Place::new();
    let ends = place.ends();
    assert!(ends.len() > 20, "{}", ends.len());
    let around = ends.iter().flat_map(|end| end - 1..=end + 1);
    let cuts = around.chain((0..place.whole.len() as u64).step_by(151));
    for cut in cuts.chain([place.whole.len() as u64]) {
        let part = &place.whole[..usize::try_from(cut).unwrap()];
        let is_whole = ends.iter().rev().find(|end| **end <= cut);
        for tail in [&[][..], &[0; 300], &[0xa5; 50]] {
            let part = [part, tail].concat();
            let (kept, left) = place.finish(&part, &format!("cut at {cut}"));
            assert_eq!(kept, is_whole.copied().unwrap_or(0), "cut at {cut}");
            let expected = match is_whole {
                Some(_) => Some(Exporting::Resuming(part.len() as u64)),
                None if part.is_empty() => None,
                None => left.clone(),
            };
            assert_eq!(left, expected, "cut at {cut}");
        }
    }
}

#[test]
fn an_export_resumes_before_the_chunk_with_a_changed_byte() {
    let place = Place::new();
    let ends = place.ends();
    for at in (0..place.whole.len()).step_by(61) {
        let mut part = place.whole.clone();
        part[at] ^= 1 << (at % 8);
        let (kept, left) = place.finish(&part, &format!("changed at {at}"));
        let before = ends.iter().rev().find(|end| **end <= at as u64);
        assert_eq!(kept, before.copied().unwrap_or(0), "changed at {at}");
        assert_eq!(
            matches!(left, Some(Exporting::Overwriting(_))),
            before.is_none(),
            "changed at {at}"
        );
    }
}

#[test]
fn what_was_left_by_another_export_is_used_as_far_as_it_is_the_same() {
    let place = Place::new();
    let other = |shape: (u64, usize), chain: &Chain| {
        let file = place.to.with_file_name("other");
        chain
            .export_state_with(shape.0, shape.1, &file, &mut |_| true)
            .unwrap();
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        bytes
    };
    // Other blocks, larger and smaller chunks.
    for shape in [(9, SHAPE.1), (SHAPE.0, 900), (SHAPE.0, 90)] {
        let (kept, _) = place.finish(&other(shape, &place.chain), "shape");
        assert!(kept < place.whole.len() as u64 / 2, "{shape:?} {kept}");
    }
    let before = open(None);
    import_all(&before, &blocks()[..39]);
    let (kept, left) = place.finish(&other(SHAPE, &before), "head");
    let Some(Exporting::Overwriting(reason)) = left else {
        panic!("{left:?}");
    };
    assert!(reason.contains("block 39 0x"), "{reason}");
    assert_eq!(kept, 0);
    for odd in [&b"something else"[..], b"niwaki-trie-logs 1\n"] {
        let (kept, left) = place.finish(odd, "odd");
        let expected = Exporting::Overwriting("it is not an exported state".to_owned());
        assert_eq!((kept, left), (0, Some(expected)));
    }
    let (kept, left) = place.finish(b"", "empty");
    assert_eq!((kept, left), (0, None));
}

#[test]
fn codes_that_came_since_the_interruption_are_in_the_file() {
    let place = Place::new();
    let mut batch = niwaki_storage::Batch::new();
    for first in [0, 0x80, 0xff] {
        batch.put(Segment::Code, &[first; 32], b"of a block beside the head");
    }
    place.chain.database().write(batch, false).unwrap();
    let fresh = place.to.with_file_name("fresh");
    let export = |to: &Path| {
        place
            .chain
            .export_state_with(SHAPE.0, SHAPE.1, to, &mut |_| true)
    };
    export(&fresh).unwrap();
    fs::write(&place.part, &place.whole).unwrap();
    let kept = export(&place.to).unwrap().resumed_bytes;
    assert!(kept > 0 && kept < place.whole.len() as u64 / 2);
    assert!(fs::read(&place.to).unwrap() == fs::read(&fresh).unwrap());
}

#[test]
fn an_import_into_a_damaged_database_is_not_resumed() {
    let place = Place::new();
    let hash = place.chain.canonical_hash(38).unwrap().unwrap();
    let key = [&38_u64.to_be_bytes()[..], hash.as_slice()].concat();
    let mut batch = niwaki_storage::Batch::new();
    batch.delete(Segment::Bodies, &key);
    place.chain.database().write(batch, false).unwrap();
    fs::write(&place.part, &place.whole[..2000]).unwrap();
    let error = place
        .chain
        .export_state_with(SHAPE.0, SHAPE.1, &place.to, &mut |_| true);
    assert!(error.unwrap_err().to_string().contains("missing value"));
    assert!(!place.to.exists() && !place.part.exists());
}
