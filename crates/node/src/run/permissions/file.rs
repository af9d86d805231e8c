//! A file of lists: TOML, a key for each. Two lists may share one.

use eyre::{WrapErr, eyre};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use toml::{Table, Value};

/// A list in a file.
#[derive(Clone, Debug)]
pub(super) struct AllowlistFile {
    pub(super) path: PathBuf,
    pub(super) key: &'static str,
}

impl AllowlistFile {
    fn table(&self) -> eyre::Result<Table> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path).wrap_err_with(|| {
            format!(
                "can't read the permissions of {path}; it has {} = [..]",
                self.key
            )
        })?;
        text.parse::<Table>()
            .wrap_err_with(|| format!("{path} is not TOML"))
    }

    /// The entries as they are written.
    pub(super) fn read(&self) -> eyre::Result<Vec<String>> {
        let (path, key) = (self.path.display(), self.key);
        let table = self.table()?;
        let list = table.get(key).and_then(Value::as_array);
        let list = list.ok_or_else(|| eyre!("{path} has no list {key}: write {key} = []"))?;
        let texts = list.iter().map(|entry| {
            let text = entry.as_str().map(str::to_owned);
            text.ok_or_else(|| {
                eyre!(
                    "{path}: {key} has an entry that is no text in quotes ({})",
                    entry.type_str()
                )
            })
        });
        texts.collect()
    }

    /// Writes these entries; other lists of the file stay. The file is replaced whole.
    pub(super) fn write(&self, entries: &[String]) -> io::Result<()> {
        let mut table = self.table().map_err(io::Error::other)?;
        let entries = entries.iter().cloned().map(Value::String).collect();
        table.insert(self.key.to_owned(), Value::Array(entries));
        let lines: Result<Vec<String>, String> =
            table.iter().map(|(key, value)| line(key, value)).collect();
        let text = lines.map_err(io::Error::other)?.join("\n");
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

/// A list on one line without blanks, as Besu writes it.
fn line(key: &str, value: &Value) -> Result<String, String> {
    let entries = value.as_array();
    let texts: Option<Vec<&str>> =
        entries.and_then(|entries| entries.iter().map(Value::as_str).collect());
    let list = texts.and_then(|texts| serde_json::to_string(&texts).ok());
    let list = list.ok_or_else(|| format!("{key} is no list of texts in quotes: remove it"))?;
    Ok(format!("{key}={list}"))
}
