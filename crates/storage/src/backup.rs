//! Copies of an open database that are kept elsewhere, and a data path made of one.
//!
//! A folder of backups holds any number of them. Files of the engine never change once they are
//! written, so a backup adds only those that no backup before it has. Each file's checksum is kept
//! and compared when it is restored. A backup counts once it is whole: one that was cut short
//! leaves nothing but files that the next one removes.

use crate::database::{engine_fault, io_fault};
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
use watch::Filling;

pub use watch::BackupReport;

mod watch;

/// The version of what stands in a folder of backups beside the engine's own files.
const BACKUP_VERSION: u32 = 1;

/// Why there is no backup, or no data path made of one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something else lies in the folder.
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
    #[error("{path} has no backup {id}; it has {kept}")]
    Unknown {
        /// The folder.
        path: String,
        /// What was asked for.
        id: u32,
        /// What is there, in words.
        kept: String,
    },
    /// A backup is not what was written.
    #[error(
        "backup {id} in {path} is damaged: {reason}; nothing was restored; choose another one \
         with --backup: the folder has {kept}"
    )]
    Damaged {
        /// The folder.
        path: String,
        /// The backup.
        id: u32,
        /// What is wrong with it.
        reason: String,
        /// Which backups look whole, in words.
        kept: String,
    },
    /// A data path that is to be filled has a database already.
    #[error(
        "there is a database in {path} already; a backup is restored into an empty data path: \
         choose another --data-path"
    )]
    NotEmpty {
        /// The data path.
        path: String,
    },
    /// Whoever was told of the progress asked to stop.
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

/// What making a backup did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupMade {
    /// The new one.
    pub backup: Backup,
    /// Bytes of files that no backup before had.
    pub added_bytes: u64,
    /// All that the folder has now, oldest first.
    pub kept: Vec<Backup>,
}

impl Database {
    /// Adds a backup of all segments as they are now to `folder`, which is made if it is absent, and
    /// removes all but the latest `keep` backups (at least one; `None` keeps all). `of` is one line
    /// that names what the database holds: a folder takes backups of one thing only. Reading and
    /// writing go on meanwhile; what is written after the call has begun may be in it or not, each
    /// batch whole.
    ///
    /// # Errors
    /// [`BackupError`]; then the backups that were there are as they were. After
    /// [`BackupError::Stopped`] a thread still copies, until it has done or the process ends, and
    /// the new backup counts only if it gets so far.
    pub fn backup(
        &self,
        folder: &Path,
        of: &str,
        keep: Option<usize>,
        report: &mut BackupReport<'_>,
    ) -> Result<BackupMade, BackupError> {
        self.sync()?;
        claim(folder, of)?;
        let mut engine = open_engine(folder)?;
        let fault = |error: rocksdb::Error| engine_fault("backup", "all", error.as_ref());
        // Keeps all backups, and removes what one that was cut short has left.
        engine.purge_old_backups(u32::MAX as usize).map_err(fault)?;
        let bytes_before = bytes_below(&engine_folder(folder))?;
        // So that what is to be copied is there to be counted.
        let families = Segment::ALL.map(|segment| self.family(segment));
        self.engine_ref()
            .flush_cfs_opt(&families, &FlushOptions::default())
            .map_err(fault)?;
        let filling = Filling {
            folder: &engine_folder(folder),
            before: bytes_before,
            of: bytes_to_add(self.engine_ref().path(), folder)?,
        };
        let database = Arc::clone(self.engine_shared());
        let copy = move || {
            let copied = engine.create_new_backup_flush(&database, true);
            (engine, copied)
        };
        let copied = filling.watch(copy, report)?;
        let (mut engine, copied) = copied.ok_or(BackupError::Stopped)?;
        copied.map_err(fault)?;
        let added_bytes = bytes_below(&engine_folder(folder))?.saturating_sub(bytes_before);
        if let Some(keep) = keep {
            engine.purge_old_backups(keep.max(1)).map_err(fault)?;
        }
        let kept = backups(&engine);
        let backup = *kept.last().ok_or_else(|| {
            let text = "the backup is not there after it was made";
            BackupError::Fault(engine_fault("backup", "all", text))
        })?;
        Ok(BackupMade {
            backup,
            added_bytes,
            kept,
        })
    }
}

/// Makes a data path of backup `id` in `folder`, or of the latest one. Whatever the process dies
/// of, there is no database in the data path before all of it is there and on the disk; a restore
/// that was cut short is done again by the next one.
///
/// # Errors
/// [`BackupError`]; then the data path has no database. After [`BackupError::Stopped`] a thread still
/// copies, aside, until it has done or the process ends.
pub fn restore(
    folder: &Path,
    data_path: &Path,
    id: Option<u32>,
    report: &mut BackupReport<'_>,
) -> Result<Backup, BackupError> {
    read_mark(folder)?.ok_or_else(|| not_ours(folder, "it has no NIWAKI_BACKUP file"))?;
    let aside = data_path.join("restoring");
    sweep(data_path, &aside)?;

    let mut engine = open_engine(folder)?;
    let kept = backups(&engine);
    let names = names(&kept);
    let path = folder.display().to_string();
    let on_disk = ids_on_disk(folder)?;
    let Some(id) = id.or_else(|| on_disk.last().copied()) else {
        return Err(not_ours(folder, "no backup in it is whole"));
    };
    let Some(backup) = kept.iter().find(|backup| backup.id == id).copied() else {
        return Err(if on_disk.contains(&id) {
            let reason = "a file of it is missing or cut off".to_owned();
            let kept = names;
            BackupError::Damaged {
                path,
                id,
                reason,
                kept,
            }
        } else {
            let kept = names;
            BackupError::Unknown { path, id, kept }
        });
    };

    let inner = engine_dir(&aside);
    fs::create_dir_all(&inner).map_err(|error| io_fault("create", &inner, error))?;
    let filling = Filling {
        folder: &inner,
        before: 0,
        of: backup.bytes,
    };
    let to = inner.clone();
    let copy = move || {
        let restored = engine.restore_from_backup(&to, &to, &RestoreOptions::default(), id);
        // Its threads may still be writing what was asked of them before a failure.
        drop(engine);
        restored
    };
    let restored = filling.watch(copy, report)?;
    if let Err(error) = restored.ok_or(BackupError::Stopped)? {
        fs::remove_dir_all(&aside).map_err(|error| io_fault("remove", &aside, error))?;
        let text: &str = error.as_ref();
        if text.starts_with("Corruption") || text.contains("No such file") {
            let (reason, kept) = (text.to_owned(), names);
            return Err(BackupError::Damaged {
                path,
                id,
                reason,
                kept,
            });
        }
        return Err(engine_fault("restore", "all", text).into());
    }
    sync_files(&inner)?;
    let target = engine_dir(data_path);
    fs::rename(&inner, &target).map_err(|error| io_fault("rename", &inner, error))?;
    mark(data_path, &format_file(data_path))?;
    fs::remove_dir_all(&aside).map_err(|error| io_fault("remove", &aside, error))?;
    Ok(backup)
}

/// Refuses a data path with a database; removes what a restore that was cut short has left.
fn sweep(data_path: &Path, aside: &Path) -> Result<(), BackupError> {
    let database = engine_dir(data_path);
    let is_cut_short = aside.exists() && !format_file(data_path).exists();
    if !is_cut_short && (database.exists() || format_file(data_path).exists()) {
        let path = data_path.display().to_string();
        return Err(BackupError::NotEmpty { path });
    }
    for folder in [&database, &aside.to_owned()] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| io_fault("remove", folder, error))?;
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

/// Those that look whole, oldest first.
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

fn names(kept: &[Backup]) -> String {
    if kept.is_empty() {
        return "none that is whole".to_owned();
    }
    let ids: Vec<_> = kept.iter().map(|backup| backup.id.to_string()).collect();
    ids.join(", ")
}

/// The numbers of all backups that were finished, damaged since or not, ascending.
fn ids_on_disk(folder: &Path) -> Result<Vec<u32>, Fault> {
    let metas = engine_folder(folder).join("meta");
    let fault = |error| io_fault("read", &metas, error);
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

/// What the backups in `folder` are of; `None` if the folder is absent or empty.
fn read_mark(folder: &Path) -> Result<Option<String>, BackupError> {
    let file = mark_file(folder);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_empty = match fs::read_dir(folder) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(io_fault("read", folder, error).into()),
            };
            if is_empty {
                return Ok(None);
            }
            return Err(not_ours(folder, "it has other files and no NIWAKI_BACKUP"));
        }
        Err(error) => return Err(io_fault("read", &file, error).into()),
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

/// Makes `folder` one of backups of `of`, if it is empty or absent; else it must be one.
fn claim(folder: &Path, of: &str) -> Result<(), BackupError> {
    match read_mark(folder)? {
        Some(found) if found == of => Ok(()),
        Some(found) => Err(BackupError::OfAnother {
            path: folder.display().to_string(),
            found,
            given: of.to_owned(),
        }),
        None => {
            fs::create_dir_all(folder).map_err(|error| io_fault("create", folder, error))?;
            let file = mark_file(folder);
            let text = format!("niwaki-backup {BACKUP_VERSION} {SCHEMA_VERSION} {of}\n");
            crate::format_file::write_whole(&file, &text)
                .map_err(|error| io_fault("write", &file, error).into())
        }
    }
}

/// Bytes of the engine's files in `engine` that no backup in `folder` has, about: what is written
/// meanwhile is not counted.
fn bytes_to_add(engine: &Path, folder: &Path) -> Result<u64, Fault> {
    let names_and_bytes = |folder: &Path| {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_fault("read", folder, error)),
        };
        let found = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            // A file that has gone meanwhile is not copied either.
            let bytes = entry.metadata().ok()?.len();
            Some((entry.file_name().into_string().ok()?, bytes))
        });
        Ok(found.collect())
    };
    // A shared file is named by the number of the engine's, a checksum or session, and its size.
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

/// Bytes of all files below `folder`; none if it is absent.
fn bytes_below(folder: &Path) -> Result<u64, Fault> {
    let fault = |error| io_fault("read", folder, error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(fault(error)),
    };
    let mut bytes = 0;
    for entry in entries {
        let entry = entry.map_err(fault)?;
        let metadata = entry.metadata().map_err(fault)?;
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
        synced.map_err(|error| io_fault("sync", path, error))
    };
    for entry in fs::read_dir(folder).map_err(|error| io_fault("read", folder, error))? {
        sync(
            &entry
                .map_err(|error| io_fault("read", folder, error))?
                .path(),
        )?;
    }
    sync(folder)
}

#[cfg(test)]
mod tests;
