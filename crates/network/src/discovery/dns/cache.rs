//! The file of entries that outlives a restart, so that a list is not resolved again.
//!
//! ```text
//! niwaki dns 1
//! enrtree://KEY@DOMAIN enrtree-root:v1 e=.. l=.. seq=.. sig=..
//! enrtree-branch:2XS2..,H4FH..
//! enr:-HW4..
//! ```
//!
//! A file of something else costs one warning and an empty start. Lines that were changed do no harm:
//! a root must be signed, and an entry is found by its hash alone.

use super::tree::{MAX_CACHED, MAX_CACHED_BYTES, MAX_LISTS};
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The first line.
const HEAD: &str = "niwaki dns 1";

/// Most bytes of a file that is read: the entries, their line ends, and the roots.
const MAX_FILE_BYTES: u64 = (MAX_CACHED_BYTES + (1 << 20)) as u64;

/// How the lines begin.
const KINDS: [&str; 3] = ["enr:", "enrtree-branch:", "enrtree://"];

/// Why the file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    /// The system refused.
    #[error("can't read the entries of DNS lists in {}: {error}; starting without them", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file holds something else.
    #[error("line {line} of {} is no entry of a DNS list; starting without them", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

/// The lines of a file, for [`super::DnsTree::restore`]; none if there is no file.
///
/// # Errors
/// [`CacheError`], which is a warning.
pub(super) fn load(path: &Path) -> Result<Vec<String>, CacheError> {
    let io = |error| CacheError::Io {
        path: path.into(),
        error,
    };
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(io)?,
    };
    let mut bytes = Vec::new();
    let mut file = file.take(MAX_FILE_BYTES);
    file.read_to_end(&mut bytes).map_err(io)?;
    parse(&String::from_utf8_lossy(&bytes)).map_err(|line| CacheError::Malformed {
        path: path.into(),
        line,
    })
}

/// The error is the number of the line that can't be read.
fn parse(text: &str) -> Result<Vec<String>, usize> {
    let mut lines = text.lines().zip(1..);
    if lines.next().is_none_or(|(line, _)| line != HEAD) {
        return Err(1);
    }
    let is_entry = |line: &str| {
        let is_known = KINDS.iter().any(|kind| line.starts_with(kind));
        is_known && line.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    let mut entries = Vec::new();
    for (line, number) in lines {
        if number > MAX_CACHED + MAX_LISTS + 1 || !is_entry(line) {
            return Err(number);
        }
        entries.push(line.to_owned());
    }
    Ok(entries)
}

/// Writes lines into a file.
///
/// # Errors
/// What the system says; the file is as it was.
pub(super) fn write(path: &Path, lines: impl Iterator<Item = String>) -> std::io::Result<()> {
    let mut text = format!("{HEAD}\n");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    crate::file::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::super::example::*;
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_file_beside_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns");
        assert!(load(&path).unwrap().is_empty());
        let mut lines = vec![format!("{URL} {ROOT_TEXT}")];
        lines.extend(ENTRIES.map(|(_, text)| text.to_owned()));
        write(&path, lines.clone().into_iter()).unwrap();
        assert_eq!(load(&path).unwrap(), lines);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_something_else_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns");
        let too_many = format!("{HEAD}\n{}", "enr:x\n".repeat(MAX_CACHED + MAX_LISTS + 1));
        for (text, expected) in [
            (&b""[..], 1),
            (b"{}", 1),
            (b"niwaki dns 1\nenr:x\nfoo", 3),
            (b"niwaki dns 1\nenr:\xff", 2),
            (too_many.as_bytes(), MAX_CACHED + MAX_LISTS + 2),
        ] {
            std::fs::write(&path, text).unwrap();
            match load(&path).unwrap_err() {
                CacheError::Malformed { line, .. } => assert_eq!(line, expected),
                other => panic!("{other}"),
            }
        }
        let error = load(folder.path()).unwrap_err();
        assert!(matches!(error, CacheError::Io { .. }), "{error}");
    }
}
