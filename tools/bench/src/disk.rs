//! Sizes of folders, bytes written by this process, and the page cache.

use eyre::{Context, Result, eyre};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// All regular files in `folder`, recursively.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).wrap_err_with(|| format!("can't list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Total bytes of the files in `folder`. A file that is removed meanwhile counts 0.
pub(crate) fn folder_bytes(folder: &Path) -> Result<u64> {
    let sizes = files(folder)?.into_iter();
    Ok(sizes
        .map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len()))
        .sum())
}

/// Bytes that this process has written to the disk since its start.
pub(crate) fn written_bytes() -> Result<u64> {
    crate::process::proc_field(std::process::id(), "io", "write_bytes:")
        .ok_or_else(|| eyre!("/proc/self/io does not tell what was written; use Linux"))
}

/// Copies the files in `from`, recursively, to the new folder `to`.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for path in files(from)? {
        let target = to.join(path.strip_prefix(from)?);
        let copy = || -> std::io::Result<()> {
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(&path, &target)?;
            Ok(())
        };
        copy()
            .wrap_err_with(|| format!("can't copy {} to {}", path.display(), target.display()))?;
    }
    Ok(())
}

/// Syncs the files in `folder` and drops them from the page cache. Pages that a process has mapped stay, so close
/// such a process first.
pub(crate) fn drop_cached(folder: &Path) -> Result<()> {
    for path in files(folder)? {
        let drop = || -> std::io::Result<()> {
            let file = File::open(&path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            Ok(())
        };
        drop().wrap_err_with(|| format!("can't drop {} from the cache", path.display()))?;
    }
    Ok(())
}

/// Reads the files in `folder` once, so that they are in the page cache as far as they fit. Skips files that are
/// removed meanwhile.
pub(crate) fn read_through(folder: &Path) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for path in files(folder)? {
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.wrap_err_with(|| format!("can't open {}", path.display()))?,
        };
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_folder_are_those_of_its_files_recursively() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("a"), [0; 10]).unwrap();
        fs::write(folder.path().join("below/b"), [0; 32]).unwrap();
        assert_eq!(folder_bytes(folder.path()).unwrap(), 42);
        read_through(folder.path()).unwrap();
        drop_cached(folder.path()).unwrap();
        assert_eq!(fs::read(folder.path().join("below/b")).unwrap(), [0; 32]);
        let copy = tempfile::tempdir().unwrap();
        copy_folder(folder.path(), &copy.path().join("new")).unwrap();
        assert_eq!(folder_bytes(copy.path()).unwrap(), 42);
        assert!(copy.path().join("new/below/b").is_file());
        std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        assert_eq!(files(folder.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = folder_bytes(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"));
    }
}
