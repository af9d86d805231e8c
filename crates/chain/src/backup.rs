//! Backups of a chain that is open.

use crate::{BackupError, BackupProgress, Chain, NewBackup};
use std::path::Path;

impl Chain {
    /// Adds a backup of everything, state and blocks, to `folder`, and removes all but the latest
    /// `keep` (`None` keeps all). Import goes on meanwhile. A folder takes backups of one chain only.
    ///
    /// # Errors
    /// [`BackupError`]; then the backups that were there are as they were. Of
    /// [`BackupError::Stopped`] see [`niwaki_storage::Database::backup`].
    pub fn backup(
        &self,
        folder: &Path,
        keep: Option<usize>,
        report: &mut BackupProgress<'_>,
    ) -> Result<NewBackup, BackupError> {
        let of = format!("the chain with genesis {}", self.genesis_hash());
        self.database().backup(folder, &of, keep, report)
    }
}
