//! What a load that was cut short has left to go on with: whole runs, and a manifest that lists them.
//!
//! The manifest is a file beside the runs. It takes its place when they are on the disk, so they are
//! at least as long as it says; what else lies there is no part of what is kept. Nothing is proven by
//! it: whoever takes the runs up must hold the root of what they make against one that is known.

use super::sorter::{Kept, Sorter, run_path};
use super::{GenesisLoad, RUN_BYTES};
use crate::WorldState;
use crate::genesis::{is_loading, sweep};
use alloy_primitives::{Bytes, keccak256};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::Fault;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

const MANIFEST: &str = "manifest";

/// The first line of the manifest; raised with any change of it or of the runs.
const MAGIC: &[u8] = b"niwaki-loading 1\n";

/// What a load that was cut short has left.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct KeptLoad {
    runs: Kept,
    /// What the caller noted when it was kept.
    pub note: Bytes,
}

impl WorldState {
    /// What a load that was cut short has left, if all of it is there.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn kept_load(&self) -> Result<Option<KeptLoad>, Fault> {
        let database = self.database();
        if self.head().is_some() || !is_loading(database)? {
            return Ok(None);
        }
        let Some(folder) = database.aside() else {
            return Ok(None);
        };
        let path = folder.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault("read", &path, error)),
        };
        let kept = bytes.strip_prefix(MAGIC).and_then(|bytes| {
            let (hash, rest) = bytes.split_first_chunk::<32>()?;
            let is_whole = keccak256(rest) == *hash;
            is_whole.then(|| alloy_rlp::decode_exact::<KeptLoad>(rest).ok())?
        });
        let has_run = |(run, bytes): (usize, &u64)| {
            let metadata = fs::metadata(run_path(folder, run));
            metadata.is_ok_and(|metadata| metadata.len() == *bytes)
        };
        Ok(kept.filter(|kept| kept.runs.run_bytes.iter().enumerate().all(has_run)))
    }

    /// As [`WorldState::begin_genesis`], with the records of a load that was cut short.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If there is a head already.
    pub fn resume_genesis(&self, kept: &KeptLoad) -> Result<GenesisLoad<'_>, Fault> {
        assert_eq!(self.head(), None, "a genesis is loaded into an empty state");
        let database = self.database();
        sweep(database)?;
        let Some(folder) = database.make_aside()? else {
            return GenesisLoad::new(database, true, RUN_BYTES);
        };
        let runs = kept.runs.run_bytes.len();
        let stays: Vec<_> = (0..runs).map(|run| run_path(folder, run)).collect();
        let remove = || -> std::io::Result<()> {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    fs::remove_dir_all(&path)?;
                } else if path != folder.join(MANIFEST) && !stays.contains(&path) {
                    fs::remove_file(&path)?;
                }
            }
            Ok(())
        };
        remove().map_err(|error| fault("clear", folder, error))?;
        let sorter = Sorter::resume(folder, RUN_BYTES, &kept.runs);
        Ok(GenesisLoad::with_sorter(database, true, sorter))
    }
}

impl GenesisLoad<'_> {
    /// Whether enough was added since [`GenesisLoad::keep`] to call it.
    pub fn is_worth_keeping(&self) -> bool {
        self.sorter.is_nearly_full()
    }

    /// Brings all that was added to the disk, for [`WorldState::kept_load`] to find together with
    /// `note` if this load is cut short.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn keep(&mut self, note: Bytes) -> Result<(), Fault> {
        let Some(runs) = self.sorter.keep()? else {
            return Ok(());
        };
        let Some(folder) = self.database.make_aside()? else {
            return Ok(());
        };
        let rest = alloy_rlp::encode(KeptLoad { runs, note });
        let (path, new) = (folder.join(MANIFEST), folder.join("manifest.new"));
        let write = || -> std::io::Result<()> {
            let mut out = File::create(&new)?;
            out.write_all(MAGIC)?;
            out.write_all(keccak256(&rest).as_slice())?;
            out.write_all(&rest)?;
            out.sync_all()?;
            // The names of the runs come first.
            File::open(folder)?.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| fault("write", &path, error))
    }

    /// With at most about `run_bytes` sorted in memory at a time.
    #[must_use]
    pub fn with_run_bytes(mut self, run_bytes: usize) -> Self {
        self.sorter.set_run_bytes(run_bytes);
        self
    }
}

pub(super) fn fault(operation: &'static str, path: &Path, error: std::io::Error) -> Fault {
    Fault::Io {
        operation,
        path: path.display().to_string(),
        source: Arc::new(error),
    }
}
