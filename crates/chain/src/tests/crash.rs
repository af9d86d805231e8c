//! A write-ahead log truncated anywhere: the chain opens at a whole block and imports the next.

use super::*;
use std::fs;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The log with the most bytes.
fn log(path: &Path) -> (std::path::PathBuf, u64) {
    let logs = fs::read_dir(path.join("database"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
    let sized = logs.map(|path| (path.clone(), fs::metadata(&path).unwrap().len()));
    sized.max_by_key(|(_, bytes)| *bytes).unwrap()
}

#[test]
fn a_log_truncated_anywhere_opens_at_a_whole_block_and_imports_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let blocks = blocks();
    let chain = open(Some(&whole));
    // Where in the log each block ends.
    let mut ends = vec![log(&whole).1];
    for block in &blocks {
        import(&chain, block);
        chain.database().flush().unwrap();
        ends.push(log(&whole).1);
    }
    drop(chain);

    for at in (0..blocks.len()).step_by(4) {
        let torn = dir.path().join("torn");
        copy(&whole, &torn);
        // The block after `at` is cut off somewhere in its middle.
        let keep = ends[at] + (ends[at + 1] - ends[at]) * (1 + at as u64 % 7) / 8;
        let (path, _) = log(&torn);
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(keep).unwrap();

        let chain = open(Some(&torn));
        assert_eq!(chain.head().id.number, at as u64);
        assert_clean(&chain);
        for block in &blocks[at..] {
            assert_eq!(import(&chain, block).status, ImportStatus::Canonical);
        }
        assert_eq!(chain.head().id.hash, HEAD);
        assert_clean(&chain);
        drop(chain);
        fs::remove_dir_all(torn).unwrap();
    }
}
