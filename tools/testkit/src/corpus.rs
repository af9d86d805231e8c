//! The folder of the full public fixtures (docs/testing.md).

use std::path::PathBuf;

/// Path of a part, such as `state-tests`, of the corpus that `NIWAKI_CORPUS` names. Prints a notice and returns `None`
/// if the variable is not set or the part is missing.
pub fn corpus(part: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("NIWAKI_CORPUS").filter(|folder| !folder.is_empty()) else {
        println!("skipped: {part}: NIWAKI_CORPUS is not set (docs/testing.md)");
        return None;
    };
    let path = PathBuf::from(folder).join(part);
    if !path.exists() {
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(path)
}
