//! The file of entries that outlives a restart, so that a list is not resolved again.
//!
//! ```text
//! niwaki dns 1
//! enrtree://KEY@DOMAIN enrtree-root:v1 e=.. l=.. seq=.. sig=..
//! enrtree-branch:2XS2..,H4FH..
//! enr:-HW4..
//! ```
//!
//! A file of something else costs one warning and an empty start. Lines that can't be read are passed over, and lines that were
//! changed do no harm: a root must be signed, and an entry is found by its hash alone. What they said is asked for again.

use super::entry::may_be_entry;
use super::tree::{MAX_CACHED, MAX_CACHED_BYTES, MAX_LISTS};
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The first line.
const HEAD: &str = "niwaki dns 1";

/// Most bytes of a file that is read: the entries, their line ends, and the roots.
const MAX_FILE_BYTES: u64 = (MAX_CACHED_BYTES + (1 << 20)) as u64;

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
    #[error("{} does not begin with {HEAD:?}; starting without entries of DNS lists", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
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
    parse(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| CacheError::Malformed { path: path.into() })
}

/// The lines that may be entries or roots, as many as are written; `None` for a file of something else.
fn parse(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines();
    lines.next().filter(|line| *line == HEAD)?;
    let entries = lines.filter(|line| may_be_entry(line));
    let entries = entries.take(MAX_CACHED + 2 * MAX_LISTS);
    Some(entries.map(str::to_owned).collect())
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
    fn a_file_of_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns");
        for text in ["", "{}", "niwaki dns 2\nenr:x"] {
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err();
            assert!(matches!(error, CacheError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains(&path.display().to_string()));
        }
        let error = load(folder.path()).unwrap_err();
        assert!(matches!(error, CacheError::Io { .. }), "{error}");
    }

    #[test]
    fn a_line_that_can_not_be_read_costs_that_line_alone_and_no_more_are_read_than_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns");
        std::fs::write(&path, b"niwaki dns 1\nenr:x\nfoo\n\nenr:\xff\nenr:y").unwrap();
        assert_eq!(load(&path).unwrap(), ["enr:x", "enr:y"]);
        let many = "enr:x\n".repeat(MAX_CACHED + 3 * MAX_LISTS);
        std::fs::write(&path, format!("{HEAD}\n{many}")).unwrap();
        assert_eq!(load(&path).unwrap().len(), MAX_CACHED + 2 * MAX_LISTS);
    }
}
