//! The format file: one line in the data path that says what lies beside it, read before the
//! engine touches anything.

use crate::database::OpenError;
use crate::{SCHEMA_VERSION, database::io_fault};
use niwaki_primitives::Fault;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The engine's directory within the data path.
pub(crate) fn engine_dir(data_path: &Path) -> PathBuf {
    data_path.join("database")
}

fn format_file(data_path: &Path) -> PathBuf {
    data_path.join("NIWAKI_FORMAT")
}

/// Whether a database was begun in `data_path`.
///
/// # Errors
/// A [`Fault`] if the path can't be looked at.
pub fn is_data_path(data_path: &Path) -> Result<bool, Fault> {
    let file = format_file(data_path);
    file.try_exists()
        .map_err(|error| io_fault("look for", &file, error))
}

/// Makes sure that `data_path` is ours and of our schema, or empty, in which case it is claimed.
pub(crate) fn claim(data_path: &Path) -> Result<(), OpenError> {
    let file = format_file(data_path);
    let path = data_path.display().to_string();
    match fs::read_to_string(&file) {
        Ok(text) => {
            let version = text.trim().strip_prefix("niwaki-database ");
            match version.and_then(|version| version.parse::<u32>().ok()) {
                Some(SCHEMA_VERSION) => Ok(()),
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
            create(data_path, &file)
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            let reason = "its NIWAKI_FORMAT file is not text";
            Err(OpenError::NotOurs { path, reason })
        }
        Err(error) => Err(io_fault("read", &file, error).into()),
    }
}

fn create(data_path: &Path, file: &Path) -> Result<(), OpenError> {
    fs::create_dir_all(data_path).map_err(|error| io_fault("create", data_path, error))?;
    let write = || -> std::io::Result<()> {
        let aside = file.with_extension("new");
        let mut out = fs::File::create(&aside)?;
        writeln!(out, "niwaki-database {SCHEMA_VERSION}")?;
        out.sync_all()?;
        fs::rename(&aside, file)?;
        fs::File::open(data_path)?.sync_all()
    };
    write().map_err(|error| io_fault("write", file, error).into())
}
