//! Backups of an open database, and a data path restored from one.
//!
//! A folder has any number of backups. Tables never change once they are written, so a backup copies only those that no
//! earlier backup has. The checksum of each file is stored and compared when it is restored. A backup exists once it
//! is complete: an interrupted one leaves only files that the next one removes.

use crate::fault::{engine_fault, entries};
use crate::format_file::{engine_dir, format_file, mark};
use crate::{Database, SCHEMA_VERSION, Segment};
use niwaki_primitives::Fault;
use rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rocksdb::{Env, FlushOptions};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use watch::CopyWatch;

pub use watch::BackupProgress;

mod watch;

/// The version of the NIWAKI_BACKUP file.
const BACKUP_VERSION: u32 = 1;

/// Why a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder has something else.
    #[error("{path} is not a folder of backups: {reason}; choose another one")]
    NotOurs {
        /// The folder.
        path: String,
        /// What is there instead.
        reason: &'static str,
    },
    /// The folder has backups of something else.
    #[error("{path} has backups of {found}, not of {given}; choose another folder")]
    OfAnother {
        /// The folder.
        path: String,
        /// What its backups are of.
        found: String,
        /// What was to be added.
        given: String,
    },
    /// The backups were made by another version.
    #[error(
        "the backups in {path} have schema {found}, this program knows schema {SCHEMA_VERSION}; \
         use the version of niwaki that made them"
    )]
    OtherSchema {
        /// The folder.
        path: String,
        /// The schema they have.
        found: u32,
    },
    /// There is no backup of this number.
    #[error("{path} has no backup {id}; it has {available}")]
    Unknown {
        /// The folder.
        path: String,
        /// The requested backup.
        id: u32,
        /// The backups that look complete, in words.
        available: String,
    },
    /// The files of a backup are not what was written.
    #[error(
        "backup {id} in {path} is damaged: {reason}; nothing was restored; choose another one \
         with --backup: the folder has {available}"
    )]
    Damaged {
        /// The folder.
        path: String,
        /// The backup.
        id: u32,
        /// What is wrong with it.
        reason: String,
        /// The backups that look complete, in words.
        available: String,
    },
    /// The data path to restore into has a database already.
    #[error(
        "there is a database in {path} already; a backup is restored into an empty data path: \
         choose another --data-path"
    )]
    NotEmpty {
        /// The data path.
        path: String,
    },
    /// The progress callback returned `false`.
    #[error("stopped on request")]
    Stopped,
    /// The disk or the engine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// One backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Counts up from 1 in its folder.
    pub id: u32,
    /// Bytes of all its files, those shared with other backups included.
    pub bytes: u64,
}

/// The outcome of [`Database::backup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBackup {
    /// The new backup.
    pub backup: Backup,
    /// Bytes of files that no earlier backup has.
    pub added_bytes: u64,
    /// All backups that the folder has now, oldest first.
    pub backups: Vec<Backup>,
}

impl Database {
    /// Adds a backup of all segments to `folder`, which is created if it is absent, and removes all but the latest
    /// `keep` backups (at least one; `None` keeps all). `of` is one line that names the contents of the database: a
    /// folder takes backups of one database only. Reads and writes continue; a batch that is written after the call
    /// has begun is in the backup completely or not at all.
    ///
    /// # Errors
    /// [`BackupError`]; then older backups are unchanged. After [`BackupError::Stopped`] a thread still copies until it
    /// is done or the process ends; only if it is done the new backup exists.
    pub fn backup(
        &self,
        folder: &Path,
        of: &str,
        keep: Option<usize>,
        report: &mut BackupProgress<'_>,
    ) -> Result<NewBackup, BackupError> {
        self.sync()?;
        claim(folder, of)?;
        let mut engine = open_engine(folder)?;
        let fault = |error: rocksdb::Error| engine_fault("backup", "all", error.as_ref());
        // Keeps all backups, and removes what an interrupted one has left.
        engine.purge_old_backups(u32::MAX as usize).map_err(fault)?;
        let data_before = data_bytes(folder)?;
        // So that everything to be copied is in files and can be counted.
        let families = Segment::ALL.map(|segment| self.family(segment));
        self.engine
            .flush_cfs_opt(&families, &FlushOptions::default())
            .map_err(fault)?;
        let watch = CopyWatch {
            folder: &engine_folder(folder),
            before: bytes_below(&engine_folder(folder))?,
            of: bytes_to_add(self.engine.path(), folder)?,
        };
        let database = Arc::clone(&self.engine);
        let copy = move || {
            let copied = engine.create_new_backup_flush(&database, true);
            (engine, copied)
        };
        let copied = watch.run(copy, report)?;
        let (mut engine, copied) = copied.ok_or(BackupError::Stopped)?;
        copied.map_err(fault)?;
        let added_bytes = data_bytes(folder)?.saturating_sub(data_before);
        if let Some(keep) = keep {
            engine.purge_old_backups(keep.max(1)).map_err(fault)?;
        }
        let backups = backups(&engine);
        let backup = *backups.last().ok_or_else(|| {
            let text = "the backup is not there after it was made";
            BackupError::Fault(engine_fault("backup", "all", text))
        })?;
        Ok(NewBackup {
            backup,
            added_bytes,
            backups,
        })
    }
}

/// Restores backup `id` in `folder`, or the latest one, into `data_path`. If the process dies, there is no database
/// in the data path unless all of it is on the disk; the next restore begins again.
///
/// # Errors
/// [`BackupError`]; then the data path has no database. After [`BackupError::Stopped`] a thread still copies into the
/// `restoring` folder until it is done or the process ends.
pub fn restore(
    folder: &Path,
    data_path: &Path,
    id: Option<u32>,
    report: &mut BackupProgress<'_>,
) -> Result<Backup, BackupError> {
    read_mark(folder)?.ok_or_else(|| not_ours(folder, "it has no NIWAKI_BACKUP file"))?;
    let staging = data_path.join("restoring");
    prepare_data_path(data_path, &staging)?;

    let mut engine = open_engine(folder)?;
    let complete = backups(&engine);
    let on_disk = ids_on_disk(folder)?;
    let Some(id) = id.or_else(|| on_disk.last().copied()) else {
        return Err(not_ours(folder, "no backup in it is whole"));
    };
    let damaged = |reason: &str| BackupError::Damaged {
        path: folder.display().to_string(),
        id,
        reason: reason.to_owned(),
        available: names(&complete),
    };
    let Some(backup) = complete.iter().find(|backup| backup.id == id).copied() else {
        return Err(if on_disk.contains(&id) {
            damaged("a file of it is missing or cut off")
        } else {
            BackupError::Unknown {
                path: folder.display().to_string(),
                id,
                available: names(&complete),
            }
        });
    };

    let inner = engine_dir(&staging);
    fs::create_dir_all(&inner).map_err(|error| Fault::io("create", &inner, error))?;
    let watch = CopyWatch {
        folder: &inner,
        before: 0,
        of: backup.bytes,
    };
    let to = inner.clone();
    let copy = move || {
        let restored = engine.restore_from_backup(&to, &to, &RestoreOptions::default(), id);
        // After a failure its threads may still be writing until it is dropped.
        drop(engine);
        restored
    };
    let restored = watch.run(copy, report)?;
    if let Err(error) = restored.ok_or(BackupError::Stopped)? {
        fs::remove_dir_all(&staging).map_err(|error| Fault::io("remove", &staging, error))?;
        let text: &str = error.as_ref();
        if text.starts_with("Corruption") || text.contains("No such file") {
            return Err(damaged(text));
        }
        return Err(engine_fault("restore", "all", text).into());
    }
    sync_files(&inner)?;
    let target = engine_dir(data_path);
    fs::rename(&inner, &target).map_err(|error| Fault::io("rename", &inner, error))?;
    mark(data_path, &format_file(data_path))?;
    fs::remove_dir_all(&staging).map_err(|error| Fault::io("remove", &staging, error))?;
    Ok(backup)
}

/// Refuses a data path with a database; removes what an interrupted restore has left.
fn prepare_data_path(data_path: &Path, staging: &Path) -> Result<(), BackupError> {
    let database = engine_dir(data_path);
    let is_interrupted = staging.exists() && !format_file(data_path).exists();
    if !is_interrupted && (database.exists() || format_file(data_path).exists()) {
        let path = data_path.display().to_string();
        return Err(BackupError::NotEmpty { path });
    }
    for folder in [&database, &staging.to_owned()] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| Fault::io("remove", folder, error))?;
        }
    }
    Ok(())
}

fn engine_folder(folder: &Path) -> PathBuf {
    folder.join("backups")
}

fn mark_file(folder: &Path) -> PathBuf {
    folder.join("NIWAKI_BACKUP")
}

fn open_engine(folder: &Path) -> Result<BackupEngine, Fault> {
    let fault = |error: rocksdb::Error| engine_fault("open backups", "all", error.as_ref());
    let mut options = BackupEngineOptions::new(engine_folder(folder)).map_err(fault)?;
    options.set_max_background_operations(2);
    let env = Env::new().map_err(fault)?;
    BackupEngine::open(&options, &env).map_err(fault)
}

/// The backups that look complete, oldest first.
fn backups(engine: &BackupEngine) -> Vec<Backup> {
    let infos = engine.get_backup_info().into_iter();
    let mut found: Vec<_> = infos
        .map(|info| Backup {
            id: info.backup_id,
            bytes: info.size,
        })
        .collect();
    found.sort_by_key(|backup| backup.id);
    found
}

fn names(backups: &[Backup]) -> String {
    if backups.is_empty() {
        return "none that is whole".to_owned();
    }
    let ids: Vec<_> = backups.iter().map(|backup| backup.id.to_string()).collect();
    ids.join(", ")
}

/// The numbers of all backups that were completed, damaged since or not, ascending.
fn ids_on_disk(folder: &Path) -> Result<Vec<u32>, Fault> {
    let metas = engine_folder(folder).join("meta");
    let fault = |error| Fault::io("read", &metas, error);
    let mut ids = Vec::new();
    for entry in fs::read_dir(&metas).map_err(fault)? {
        let name = entry.map_err(fault)?.file_name();
        ids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

fn not_ours(folder: &Path, reason: &'static str) -> BackupError {
    let path = folder.display().to_string();
    BackupError::NotOurs { path, reason }
}

/// The name of the database that the backups in `folder` are of; `None` if the folder is absent or empty.
fn read_mark(folder: &Path) -> Result<Option<String>, BackupError> {
    let file = mark_file(folder);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if entries(folder)?.is_empty() {
                return Ok(None);
            }
            return Err(not_ours(folder, "it has other files and no NIWAKI_BACKUP"));
        }
        Err(error) => return Err(Fault::io("read", &file, error).into()),
    };
    let bad = || not_ours(folder, "its NIWAKI_BACKUP file can't be read as one");
    let rest = text.trim_end().strip_prefix("niwaki-backup ");
    let (version, rest) = rest.and_then(|rest| rest.split_once(' ')).ok_or_else(bad)?;
    if version.parse() != Ok(BACKUP_VERSION) {
        return Err(not_ours(folder, "it was made by another version of niwaki"));
    }
    let (schema, of) = rest.split_once(' ').ok_or_else(bad)?;
    let found: u32 = schema.parse().map_err(|_| bad())?;
    if found != SCHEMA_VERSION {
        let path = folder.display().to_string();
        return Err(BackupError::OtherSchema { path, found });
    }
    Ok(Some(of.to_owned()))
}

/// Makes `folder` a folder of backups of `of` if it is empty or absent; otherwise it must be one.
fn claim(folder: &Path, of: &str) -> Result<(), BackupError> {
    match read_mark(folder)? {
        Some(found) if found == of => Ok(()),
        Some(found) => Err(BackupError::OfAnother {
            path: folder.display().to_string(),
            found,
            given: of.to_owned(),
        }),
        None => {
            fs::create_dir_all(folder).map_err(|error| Fault::io("create", folder, error))?;
            let file = mark_file(folder);
            let text = format!("niwaki-backup {BACKUP_VERSION} {SCHEMA_VERSION} {of}\n");
            crate::format_file::write_whole(&file, &text)
                .map_err(|error| Fault::io("write", &file, error).into())
        }
    }
}

/// About the bytes of the engine's tables that no backup in `folder` has: what is written during the call is not
/// counted.
fn bytes_to_add(engine: &Path, folder: &Path) -> Result<u64, Fault> {
    let names_and_bytes = |folder: &Path| {
        let found = entries(folder)?.into_iter().filter_map(|entry| {
            // A file that was removed since is not copied either.
            let bytes = entry.metadata().ok()?.len();
            Some((entry.file_name().into_string().ok()?, bytes))
        });
        Ok::<Vec<_>, Fault>(found.collect())
    };
    // The name of a shared file has the number of the engine's file, a checksum or session, and the size.
    let number = |name: &str| name.split(['_', '.']).next().map(str::to_owned);
    let shared = names_and_bytes(&engine_folder(folder).join("shared_checksum"))?;
    let shared: HashSet<_> = shared
        .iter()
        .map(|(name, bytes)| (number(name), *bytes))
        .collect();
    let files = names_and_bytes(engine)?;
    let new = files.iter().filter(|(name, bytes)| {
        name.ends_with(".sst") && !shared.contains(&(number(name), *bytes))
    });
    Ok(new.map(|(_, bytes)| bytes).sum())
}

/// Bytes of the files in all backups of `folder`; the lists of these files do not count, as in [`Backup::bytes`].
fn data_bytes(folder: &Path) -> Result<u64, Fault> {
    let folder = engine_folder(folder);
    Ok(bytes_below(&folder)?.saturating_sub(bytes_below(&folder.join("meta"))?))
}

/// Bytes of all files below `folder`; 0 if it is absent.
fn bytes_below(folder: &Path) -> Result<u64, Fault> {
    let mut bytes = 0;
    for entry in entries(folder)? {
        let metadata = entry.metadata();
        let metadata = metadata.map_err(|error| Fault::io("read", folder, error))?;
        bytes += if metadata.is_dir() {
            bytes_below(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}

/// Brings the files of `folder` and their names to the disk.
fn sync_files(folder: &Path) -> Result<(), Fault> {
    let sync = |path: &Path| {
        let synced = fs::File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|error| Fault::io("sync", path, error))
    };
    for entry in entries(folder)? {
        sync(&entry.path())?;
    }
    sync(folder)
}

#[cfg(test)]
mod tests;
