//! Finds the programs of the peers.

use eyre::{Result, eyre};
use std::path::{Path, PathBuf};

/// The program `name`: the one given, or the first in PATH, in the folder that `cargo xtask peers` installs into, or in
/// Go's.
pub(crate) fn find(name: &str, given: Option<&Path>) -> Result<PathBuf> {
    let candidates = match given {
        Some(path) if path.components().count() > 1 => vec![path.to_owned()],
        _ => {
            let name = given.unwrap_or_else(|| Path::new(name));
            folders().iter().map(|folder| folder.join(name)).collect()
        }
    };
    let found = candidates.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| {
        let missing = match given {
            Some(path) => path.display().to_string(),
            None => format!("{name} in PATH or ~/go/bin"),
        };
        eyre!("there is no {missing}; `cargo xtask peers` installs it, or give its path")
    })
}

/// The folder in the target directory that peers are installed into.
pub(crate) fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // target/release/niwaki-bench and target/peers.
    let target = program.ancestors().nth(2).unwrap_or(Path::new(""));
    target.join("peers")
}

fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(folder());
    folders.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin")));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_path_is_found_by_name() {
        assert!(find("sh", None).unwrap().ends_with("sh"));
        assert!(find("x", Some(Path::new("sh"))).unwrap().ends_with("sh"));
    }

    #[test]
    fn a_missing_program_is_named_with_the_next_step() {
        for given in [None, Some(Path::new("/nonexistent/no-such-peer"))] {
            let text = find("no-such-peer", given).unwrap_err().to_string();
            assert!(
                text.contains("no-such-peer") && text.contains("xtask peers"),
                "{text}"
            );
        }
    }
}
