//! Files that outlive a restart.

use std::fs::{File, rename};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};

/// Makes `text` the content of a file. It is written into a new file next to it, which then takes its name, so that a crash leaves the
/// old content or the new.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let mut file = File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    rename(&aside, path)
}
