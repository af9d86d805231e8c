//! Imports of a state that were cut short: gone on with, they end as if they had not been; what was
//! kept and does not fit is never taken for it.

use super::state_file::{exported, import_of};
use super::*;
use crate::{Loading, TransferError};
use niwaki_storage::Row;
use std::fs;
use std::path::PathBuf;

/// Few, so that a small state has several runs.
const RUN_BYTES: usize = 4000;

struct Place {
    dir: tempfile::TempDir,
    chain: Chain,
    file: PathBuf,
    /// Of an import that was not cut short.
    rows: Vec<(Segment, Row)>,
    /// The reports of one.
    reports: usize,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (chain, _) = exported(dir.path(), 5);
        let mut place = Self {
            file: dir.path().join("file"),
            chain,
            dir,
            rows: Vec::new(),
            reports: 0,
        };
        place.export(&place.chain, &place.file, 400);
        let (whole, reports) = place.import_into("whole", &place.file, usize::MAX);
        place.rows = dump(&whole.unwrap());
        place.reports = reports;
        assert!(reports > 20, "{reports}");
        place
    }

    fn export(&self, chain: &Chain, to: &Path, chunk_bytes: usize) {
        let exported = chain.export_state_with(5, chunk_bytes, to, &mut |_| true);
        exported.unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Imports until more than `stop_at` reports were made; gives how many were.
    fn import_into(
        &self,
        name: &str,
        file: &Path,
        stop_at: usize,
    ) -> (Result<Chain, TransferError>, usize) {
        let mut seen = 0;
        let import = import_of(&self.path(name), file);
        let report = &mut |loading| {
            assert!(matches!(
                loading,
                Loading::Reading(..) | Loading::Writing(..)
            ));
            seen += 1;
            seen <= stop_at
        };
        let imported = Chain::import_state_with(&import, Some(RUN_BYTES), report);
        (imported, seen)
    }

    /// Leaves in `name` what an import has kept that was stopped at its last report but one.
    fn cut_short(&self, name: &str) {
        let (stopped, _) = self.import_into(name, &self.file, self.reports - 2);
        assert!(matches!(stopped, Err(TransferError::Stopped)));
        let folder = self.path(name).join("loading");
        assert!(folder.join("manifest").exists() && folder.join("run-1").exists());
    }

    /// Imports to the end; gives how many reports that took.
    #[track_caller]
    fn finish(&self, name: &str) -> usize {
        let (imported, seen) = self.import_into(name, &self.file, usize::MAX);
        let chain = imported.unwrap();
        assert!(dump(&chain) == self.rows, "{name}");
        assert_clean(&chain);
        assert!(!self.path(name).join("loading").exists());
        seen
    }
}

#[test]
fn an_import_stopped_at_any_report_resumes_to_the_same_rows() {
    let place = Place::new();
    for stop_at in (0..place.reports).step_by(3) {
        let name = format!("data-{stop_at}");
        let (stopped, _) = place.import_into(&name, &place.file, stop_at);
        assert!(matches!(stopped, Err(TransferError::Stopped)), "{stop_at}");
        place.finish(&name);
    }
    // One and the same, again and again.
    let mut stops = 0;
    let chain = loop {
        match place.import_into("again", &place.file, stops).0 {
            Err(TransferError::Stopped) => stops += 5,
            other => break other.unwrap(),
        }
    };
    assert!(stops < place.reports, "{stops} of {}", place.reports);
    assert!(dump(&chain) == place.rows);
}

#[test]
fn what_the_runs_hold_is_not_read_again() {
    let place = Place::new();
    place.cut_short("data");
    let seen = place.finish("data");
    assert!(seen * 2 < place.reports, "{seen} of {}", place.reports);
}

#[test]
fn another_file_does_not_resume_an_interrupted_import() {
    let place = Place::new();
    // Of another head; of the same one in other chunks.
    let other = open(None);
    import_all(&other, &blocks()[..39]);
    for (name, chain, chunk_bytes) in [("head", &other, 400), ("chunks", &place.chain, 420)] {
        let file = place.path(&format!("{name}.file"));
        place.export(chain, &file, chunk_bytes);
        place.cut_short(name);
        let (imported, _) = place.import_into(name, &file, usize::MAX);
        let imported = imported.unwrap();
        assert_eq!(imported.head(), chain.head());
        let fresh = place
            .import_into(&format!("{name}.fresh"), &file, usize::MAX)
            .0;
        assert!(dump(&imported) == dump(&fresh.unwrap()), "{name}");
    }
    // As long, with the same first chunk, and another byte everywhere behind it.
    place.cut_short("bytes");
    let mut bytes = fs::read(&place.file).unwrap();
    bytes[200..].iter_mut().for_each(|byte| *byte ^= 1);
    let file = place.path("bytes.file");
    fs::write(&file, bytes).unwrap();
    let error = place.import_into("bytes", &file, usize::MAX).0.unwrap_err();
    assert!(matches!(error, TransferError::Damaged { .. }), "{error}");
    assert_eq!(place.finish("bytes"), place.reports);
}

#[test]
fn another_file_of_the_same_length_and_head_is_recognised_by_its_checksums() {
    let place = Place::new();
    let with_code = |seed: u64| {
        let code = alloy_primitives::keccak256(seed.to_be_bytes());
        let mut batch = niwaki_storage::Batch::new();
        batch.put(Segment::Code, &[0; 32], code.as_slice());
        place.chain.database().write(batch, false).unwrap();
        let file = place.path(&format!("code-{seed}"));
        place.export(&place.chain, &file, 400);
        (fs::metadata(&file).unwrap().len(), file)
    };
    let (bytes, one) = with_code(0);
    let other = (1..50).map(with_code).find(|(length, _)| *length == bytes);
    let (_, other) = other.expect("a file of the same length");
    let (stopped, _) = place.import_into("data", &one, place.reports - 2);
    assert!(matches!(stopped, Err(TransferError::Stopped)));
    assert!(place.path("data").join("loading/manifest").exists());
    let imported = place.import_into("data", &other, usize::MAX).0.unwrap();
    let fresh = place.import_into("fresh", &other, usize::MAX).0.unwrap();
    assert!(dump(&imported) == dump(&fresh));
    assert!(dump(&imported) != place.rows);
}

#[test]
fn missing_or_truncated_sorted_runs_are_not_resumed() {
    let place = Place::new();
    for (name, run) in [("manifest", false), ("run-0", true), ("run-1", true)] {
        for what in ["gone", "cut", "longer", "changed"] {
            if what == "changed" && run {
                continue;
            }
            place.cut_short(what);
            let file = place.path(what).join("loading").join(name);
            let mut bytes = fs::read(&file).unwrap();
            let last = bytes.len() - 1;
            match what {
                "gone" => fs::remove_file(&file).unwrap(),
                "cut" => fs::write(&file, &bytes[..last]).unwrap(),
                "longer" => fs::write(&file, [&bytes[..], b"x"].concat()).unwrap(),
                _ => {
                    bytes[last] ^= 1;
                    fs::write(&file, bytes).unwrap();
                }
            }
            assert_eq!(place.finish(what), place.reports, "{name} {what}");
            fs::remove_dir_all(place.path(what)).unwrap();
        }
    }
}

#[test]
fn an_import_restarts_when_a_sorted_run_has_a_changed_byte() {
    let place = Place::new();
    let mut refused = 0;
    for run in ["run-0", "run-1"] {
        for step in 0..12 {
            place.cut_short("data");
            let file = place.path("data").join("loading").join(run);
            let mut bytes = fs::read(&file).unwrap();
            // The lengths of the first record too.
            let at = if step < 5 {
                step
            } else {
                bytes.len() * step / 12
            };
            bytes[at] ^= 1 << (step % 8);
            fs::write(&file, bytes).unwrap();
            let (imported, _) = place.import_into("data", &place.file, usize::MAX);
            match imported {
                // The storage root in an account follows from its slots, whatever it says.
                Ok(chain) => assert!(dump(&chain) == place.rows, "{run} {at}"),
                Err(error) => {
                    refused += 1;
                    assert!(!matches!(error, TransferError::Stopped), "{run} {at}");
                    assert!(!place.path("data").join("loading").exists(), "{error}");
                    assert_eq!(place.finish("data"), place.reports, "{run} {at}: {error}");
                }
            }
            fs::remove_dir_all(place.path("data")).unwrap();
        }
    }
    assert!(refused > 15, "{refused}");
}

#[test]
fn opening_the_data_path_removes_the_files_of_an_unfinished_import() {
    let place = Place::new();
    place.cut_short("data");
    let chain = open(Some(&place.path("data")));
    assert_eq!(chain.head().id.number, 0);
    assert!(!place.path("data").join("loading").exists());
    import_all(&chain, &blocks());
    assert_clean(&chain);
}
