//! Resuming an interrupted load: the runs that it has written, and a manifest that lists them.
//!
//! The manifest is a file next to the runs. It is renamed into place when they are on the disk, so they are at least as
//! long as it says; other files in the folder are ignored. The manifest proves nothing about what is in the runs: the
//! caller must compare the root of the loaded state with one that it knows.

use super::sorter::{SavedRuns, Sorter, run_path};
use super::{GenesisLoad, RUN_BYTES};
use crate::WorldState;
use crate::maintenance::genesis::{is_loading, remove_partial_state};
use alloy_primitives::{Bytes, keccak256};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::Fault;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};

const MANIFEST: &str = "manifest";

/// The first line of the manifest; raised with any change of it or of the runs.
const MAGIC: &[u8] = b"niwaki-loading 1\n";

/// What an interrupted load has left.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct ResumableLoad {
    runs: SavedRuns,
    /// What the caller passed to [`GenesisLoad::checkpoint`].
    pub note: Bytes,
}

impl WorldState {
    /// What an interrupted load has left, if it is complete.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn resumable_load(&self) -> Result<Option<ResumableLoad>, Fault> {
        let database = self.database();
        if self.head().is_some() || !is_loading(database)? {
            return Ok(None);
        }
        let Some(folder) = database.staging_dir() else {
            return Ok(None);
        };
        let path = folder.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Fault::io("read", &path, error)),
        };
        let load = bytes.strip_prefix(MAGIC).and_then(|bytes| {
            let (hash, rest) = bytes.split_first_chunk::<32>()?;
            let is_whole = keccak256(rest) == *hash;
            is_whole.then(|| alloy_rlp::decode_exact::<ResumableLoad>(rest).ok())?
        });
        let has_run = |(run, bytes): (usize, &u64)| {
            let metadata = fs::metadata(run_path(folder, run));
            metadata.is_ok_and(|metadata| metadata.len() == *bytes)
        };
        Ok(load.filter(|load| load.runs.run_bytes.iter().enumerate().all(has_run)))
    }

    /// As [`WorldState::begin_genesis`], with the records of an interrupted load.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If there is a head already.
    pub fn resume_genesis(&self, load: &ResumableLoad) -> Result<GenesisLoad<'_>, Fault> {
        assert_eq!(self.head(), None, "a genesis is loaded into an empty state");
        let database = self.database();
        remove_partial_state(database)?;
        let Some(folder) = database.create_staging_dir()? else {
            return GenesisLoad::new(database, true, RUN_BYTES);
        };
        let runs = load.runs.run_bytes.len();
        let run_paths: Vec<_> = (0..runs).map(|run| run_path(folder, run)).collect();
        let remove = || -> std::io::Result<()> {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    fs::remove_dir_all(&path)?;
                } else if path != folder.join(MANIFEST) && !run_paths.contains(&path) {
                    fs::remove_file(&path)?;
                }
            }
            Ok(())
        };
        remove().map_err(|error| Fault::io("clear", folder, error))?;
        let sorter = Sorter::resume(folder, RUN_BYTES, &load.runs);
        Ok(GenesisLoad::with_sorter(database, true, sorter))
    }
}

impl GenesisLoad<'_> {
    /// Whether enough was added since the last [`GenesisLoad::checkpoint`] to make another one.
    pub fn should_checkpoint(&self) -> bool {
        self.sorter.is_nearly_full()
    }

    /// Brings everything that was added to the disk, for [`WorldState::resumable_load`] to find together with `note` if
    /// this load is interrupted.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn checkpoint(&mut self, note: Bytes) -> Result<(), Fault> {
        let Some(runs) = self.sorter.save()? else {
            return Ok(());
        };
        let Some(folder) = self.database.create_staging_dir()? else {
            return Ok(());
        };
        let rest = alloy_rlp::encode(ResumableLoad { runs, note });
        let (path, new) = (folder.join(MANIFEST), folder.join("manifest.new"));
        let write = || -> std::io::Result<()> {
            let mut out = File::create(&new)?;
            out.write_all(MAGIC)?;
            out.write_all(keccak256(&rest).as_slice())?;
            out.write_all(&rest)?;
            out.sync_all()?;
            // The names of the runs must be on the disk first.
            File::open(folder)?.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| Fault::io("write", &path, error))
    }

    /// Sorts at most about `run_bytes` in memory at a time.
    #[must_use]
    pub fn with_run_bytes(mut self, run_bytes: usize) -> Self {
        self.sorter.set_run_bytes(run_bytes);
        self
    }
}
