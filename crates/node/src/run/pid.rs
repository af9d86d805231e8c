//! The file that tells other programs the number of this process.

use std::path::{Path, PathBuf};
use tracing::warn;

/// While it lives, the file is there.
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file; one that another process has left is written over. A node runs without it too.
    pub(super) fn write(path: &Path) -> Option<Self> {
        let number = std::process::id();
        match std::fs::write(path, format!("{number}\n")) {
            Ok(()) => Some(Self(path.to_owned())),
            Err(error) => {
                warn!("Can't write --pid-path {}: {error}", path.display());
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If it was removed already, nothing is to be done.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_number_of_this_process_for_as_long_as_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.pid");
        std::fs::write(&path, "1\n").unwrap();
        let file = PidFile::write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        assert!(PidFile::write(&folder.path().join("no/such")).is_none());
    }
}
