//! The format file: one line in the data path that says what the path holds, read before the engine touches anything.

use crate::SCHEMA_VERSION;
use crate::database::OpenError;
use crate::fault::{engine_fault, entries};
use crate::log_guard::cut_logs;
use niwaki_primitives::Fault;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The engine's directory within the data path.
pub(crate) fn engine_dir(data_path: &Path) -> PathBuf {
    data_path.join("database")
}

/// The format file.
pub(crate) fn format_file(data_path: &Path) -> PathBuf {
    data_path.join("NIWAKI_FORMAT")
}

/// Whether there is a database in `data_path`.
///
/// # Errors
/// A [`Fault`] if the path can't be looked at.
pub fn is_data_path(data_path: &Path) -> Result<bool, Fault> {
    let file = format_file(data_path);
    file.try_exists()
        .map_err(|error| Fault::io("look for", &file, error))
}

/// Makes sure that `data_path` is ours and of our schema, or empty; an empty one becomes ours.
pub(crate) fn claim(data_path: &Path) -> Result<(), OpenError> {
    let file = format_file(data_path);
    let path = data_path.display().to_string();
    match fs::read_to_string(&file) {
        Ok(text) => {
            let version = text.trim().strip_prefix("niwaki-database ");
            match version.and_then(|version| version.parse::<u32>().ok()) {
                Some(SCHEMA_VERSION) => {
                    let engine = engine_dir(data_path);
                    refuse_headless(&engine)?;
                    Ok(cut_logs(&engine)?)
                }
                Some(found) => Err(OpenError::OtherSchema { path, found }),
                None => Err(OpenError::NotOurs {
                    path,
                    reason: "its NIWAKI_FORMAT file can't be read as one",
                }),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if engine_dir(data_path).exists() {
                let reason = "it has a database directory but no NIWAKI_FORMAT file";
                return Err(OpenError::NotOurs { path, reason });
            }
            Ok(mark(data_path, &file)?)
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let reason = "its NIWAKI_FORMAT file is not text";
            Err(OpenError::NotOurs { path, reason })
        }
        Err(error) => Err(Fault::io("read", &file, error).into()),
    }
}

/// Without a CURRENT file the engine creates a new database and removes the files that it does not know. That must not
/// happen to a database that has lost its CURRENT file.
fn refuse_headless(engine: &Path) -> Result<(), OpenError> {
    if engine.join("CURRENT").exists() {
        return Ok(());
    }
    for entry in entries(engine)? {
        let path = entry.path();
        let is_data = path.extension().is_some_and(|e| e == "sst" || e == "log");
        if is_data {
            let text = "Corruption: the file CURRENT is missing, files with data are there";
            return Err(engine_fault("open", "all", text).into());
        }
    }
    Ok(())
}

/// Makes `data_path` ours, and creates it if it is absent.
pub(crate) fn mark(data_path: &Path, file: &Path) -> Result<(), Fault> {
    fs::create_dir_all(data_path).map_err(|error| Fault::io("create", data_path, error))?;
    write_whole(file, &format!("niwaki-database {SCHEMA_VERSION}\n"))
        .map_err(|error| Fault::io("write", file, error))
}

/// Writes a small file so that after a crash it is there completely or not at all.
pub(crate) fn write_whole(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_extension("new");
    let mut out = fs::File::create(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    file.parent()
        .map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}
