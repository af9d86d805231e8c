//! `--pid-path`: a file with the process id.

use std::path::{Path, PathBuf};
use tracing::warn;

/// The file; dropping this removes it.
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, over one that another process left. If that fails, the node runs without it.
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
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_process_id_until_it_is_dropped() {
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
