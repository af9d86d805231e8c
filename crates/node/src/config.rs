//! Flags from elsewhere than the command line: environment, TOML file, profile.
//!
//! The command line comes first, then the environment (`NIWAKI_*`, `BESU_*`), then the file, then
//! the profile, then the default. All of them name the same flags, so whatever is not on the
//! command line is put there, in front of what is; clap reads the rest. Flags of Besu's that mean
//! nothing here are taken out again, with a word.

use clap::{Arg, Command};
use eyre::{Result, WrapErr, eyre};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Besu's flags that mean nothing here, and whether they are followed by a value.
const WITHOUT_MEANING: &[(&str, bool)] = &[
    ("Xbonsai-full-flat-db-enabled", true),
    ("Xplugin-rocksdb-background-thread-count", true),
    ("Xplugin-rocksdb-cache-capacity", true),
    ("Xplugin-rocksdb-max-open-files", true),
    ("Xsecp-native-enabled", true),
    ("bonsai-historical-block-limit", true),
    ("bonsai-limit-trie-logs-enabled", true),
    ("bonsai-parallel-state-root-computation-enabled", true),
    ("bonsai-trie-logs-pruning-window-size", true),
    ("bootnodes", true),
    ("cache-last-block-headers", true),
    ("cache-last-blocks", true),
    ("discovery-enabled", true),
    ("identity", true),
    ("key-value-storage", true),
    ("max-peers", true),
    ("metrics-category", true),
    ("metrics-protocol", true),
    ("nat-method", true),
    ("node-private-key-file", true),
    ("p2p-enabled", true),
    ("p2p-host", true),
    ("p2p-interface", true),
    ("p2p-port", true),
    ("plugins", true),
    ("receipt-compaction-enabled", true),
    ("remote-connections-limit-enabled", true),
    ("remote-connections-max-percentage", true),
    ("revert-reason-enabled", true),
    ("security-module", true),
    ("static-nodes-file", true),
    ("sync-min-peers", true),
    ("sync-mode", true),
    ("version-compatibility-protection", true),
];

/// What the profiles of this name set, as a file would; lower case.
fn profile(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "dev" => "network = 'dev'",
        "staker" => "network = 'mainnet'",
        "minimalist_staker" => "network = 'mainnet'\ndata-storage-format = 'BONSAI'",
        "enterprise" | "private" => {
            "tx-pool = 'SEQUENCED'\ntx-pool-no-local-priority = true\n\
             tx-pool-limit-by-account-percentage = 0.15\nrpc-http-max-active-connections = 300\n\
             tx-pool-min-gas-price = 0"
        }
        "performance" | "performance_rpc" => "Xplugin-rocksdb-high-spec-enabled = true",
        _ => return None,
    })
}

const PROFILES: &str =
    "DEV, STAKER, MINIMALIST_STAKER, ENTERPRISE (or PRIVATE), PERFORMANCE, PERFORMANCE_RPC";

/// The arguments with all that environment, file and profile add.
pub(crate) fn merge(command: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let mut merged = Merged::new(command, arguments);
    merged.leave_out();
    merged.add_environment();
    if let Some(file) = merged.value_of("config-file") {
        let table = read_file(Path::new(&file))?;
        merged.add_table(&table, &format!("the configuration file {file}"))?;
    }
    if let Some(name) = merged.value_of("profile") {
        let text = match profile(&name) {
            Some(text) => text.to_owned(),
            None => external_profile(&name)?,
        };
        let table: Table = text
            .parse()
            .wrap_err_with(|| format!("the profile {name}"))?;
        merged.add_table(&table, &format!("the profile {name}"))?;
    }
    Ok(merged.arguments)
}

/// A profile of the operator's own: a file in the folder `profiles`.
fn external_profile(name: &str) -> Result<String> {
    let path = PathBuf::from("profiles").join(format!("{name}.toml"));
    std::fs::read_to_string(&path).map_err(|_| {
        eyre!(
            "there is no profile {name}: choose one of {PROFILES}, or write {}",
            path.display()
        )
    })
}

/// Checks a configuration file by itself.
pub(crate) fn validate(command: &Command, file: &Path) -> Result<()> {
    let mut merged = Merged::new(command, vec!["niwaki".into()]);
    merged.add_table(
        &read_file(file)?,
        &format!("the configuration file {}", file.display()),
    )?;
    command
        .clone()
        .try_get_matches_from(merged.arguments)
        .map(drop)
        .map_err(|error| eyre!("{error}"))
}

fn read_file(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the configuration file {}", path.display()))?;
    text.parse()
        .wrap_err_with(|| format!("the configuration file {} is not TOML", path.display()))
}

struct Merged<'c> {
    command: &'c Command,
    arguments: Vec<OsString>,
    given: BTreeSet<String>,
}

impl<'c> Merged<'c> {
    fn new(command: &'c Command, arguments: Vec<OsString>) -> Self {
        let mut merged = Self {
            command,
            arguments,
            given: BTreeSet::new(),
        };
        for index in 0..merged.arguments.len() {
            if let Some((name, _)) = merged.flag_at(index) {
                let name = merged.canonical(&name).unwrap_or(name);
                merged.given.insert(name);
            }
        }
        merged
    }

    /// Name and value of the flag at `index`, if there is one; the value only if it is attached.
    fn flag_at(&self, index: usize) -> Option<(String, Option<String>)> {
        let text = self.arguments.get(index)?.to_str()?.strip_prefix("--")?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        (!name.is_empty()).then(|| (name.to_owned(), value))
    }

    /// The value of a flag that is on the command line by now.
    fn value_of(&self, wanted: &str) -> Option<String> {
        (0..self.arguments.len()).find_map(|index| {
            let (name, value) = self.flag_at(index)?;
            let next = self.arguments.get(index + 1);
            let value = value.or_else(|| next?.to_str().map(str::to_owned));
            value.filter(|_| name == wanted)
        })
    }

    /// Takes out what means nothing here.
    fn leave_out(&mut self) {
        let mut index = 0;
        while index < self.arguments.len() {
            let flag = self.flag_at(index).and_then(|(name, value)| {
                let known = WITHOUT_MEANING.iter().find(|(known, _)| *known == name)?;
                Some((known, value))
            });
            let Some(((name, has_value), value)) = flag else {
                index += 1;
                continue;
            };
            eprintln!("note: --{name} has no effect here");
            self.arguments.remove(index);
            let next = self.arguments.get(index).and_then(|next| next.to_str());
            let is_value = next.is_some_and(|next| !next.starts_with('-'));
            if *has_value && value.is_none() && is_value {
                self.arguments.remove(index);
            }
        }
    }

    fn flags(&self) -> impl Iterator<Item = &'c Arg> + use<'c> {
        let has_name = |arg: &&Arg| arg.get_long().is_some();
        self.command.get_arguments().filter(has_name)
    }

    /// The name of the flag that is also called `name`.
    fn canonical(&self, name: &str) -> Option<String> {
        let found = self.flags().find(|arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        });
        found?.get_long().map(str::to_owned)
    }

    /// Adds a flag unless something before it has given it.
    fn add(&mut self, name: &str, value: &str) {
        if self.given.insert(name.to_owned()) {
            self.arguments.insert(1, format!("--{name}={value}").into());
        }
    }

    fn add_environment(&mut self) {
        let names: Vec<_> = self.flags().filter_map(Arg::get_long).collect();
        for name in names {
            let variable = name.replace('-', "_").to_ascii_uppercase();
            let value = ["NIWAKI", "BESU"]
                .iter()
                .find_map(|prefix| std::env::var(format!("{prefix}_{variable}")).ok());
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                self.add(name, &value);
            }
        }
    }

    fn add_table(&mut self, table: &Table, place: &str) -> Result<()> {
        for (key, value) in table {
            if WITHOUT_MEANING
                .iter()
                .any(|(name, _)| *name == key.as_str())
            {
                eprintln!("note: {key} in {place} has no effect here");
                continue;
            }
            let name = self.canonical(key).ok_or_else(|| {
                eyre!(
                    "{place} has the key {key}, which no flag has{}",
                    self.nearest(key)
                )
            })?;
            let text = text_of(value).ok_or_else(|| {
                eyre!("{place} gives {key} a {}; give it a string, a number, true or false, or a list of them", value.type_str())
            })?;
            self.add(&name, &text);
        }
        Ok(())
    }

    fn nearest(&self, key: &str) -> String {
        let names = self.flags().filter_map(Arg::get_long);
        let scored = names.map(|name| (strsim::jaro_winkler(name, key), name));
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
        match best.filter(|(score, _)| *score > 0.8) {
            Some((_, name)) => format!("; did you mean {name}?"),
            None => "; `niwaki --help` lists them".to_owned(),
        }
    }
}

/// A value as the command line has it; a list with commas.
fn text_of(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(text_of).collect();
            items?.join(",")
        }
        Value::Datetime(_) | Value::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::CommandFactory;

    fn merged(arguments: &[&str]) -> Result<Vec<String>> {
        let arguments = ["niwaki"].iter().chain(arguments);
        let merged = merge(&Options::command(), arguments.map(OsString::from).collect())?;
        Ok(merged
            .into_iter()
            .map(|text| text.into_string().unwrap())
            .collect())
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn the_command_line_comes_before_the_file_and_the_file_before_the_profile() {
        let file =
            file("rpc-http-port = 1234\nrpc-http-api = ['ETH', 'DEBUG']\ntx-pool-max-size = 7");
        let path = file.path().to_str().unwrap();
        let found = merged(&[
            "--config-file",
            path,
            "--rpc-http-port=99",
            "--profile=enterprise",
        ])
        .unwrap();
        let has = |text: &str| found.iter().any(|argument| argument == text);
        assert!(
            has("--rpc-http-port=99") && !has("--rpc-http-port=1234"),
            "{found:?}"
        );
        assert!(has("--rpc-http-api=ETH,DEBUG"), "{found:?}");
        assert!(has("--tx-pool=SEQUENCED"), "{found:?}");
        assert!(has("--tx-pool-max-size=7"), "{found:?}");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name() {
        let unknown = file("rpc-http-prot = 1");
        let error = merged(&["--config-file", unknown.path().to_str().unwrap()]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did you mean rpc-http-port?"), "{text}");
        let table = file("[rpc-http-port]\na = 1");
        let error = merged(&["--config-file", table.path().to_str().unwrap()]).unwrap_err();
        assert!(
            error.to_string().contains("gives rpc-http-port a table"),
            "{error}"
        );
        let error = merged(&["--profile", "fast"]).unwrap_err();
        assert!(error.to_string().contains("MINIMALIST_STAKER"), "{error}");
    }

    #[test]
    fn what_means_nothing_here_is_left_out_with_its_value() {
        let found = merged(&[
            "--sync-mode",
            "FULL",
            "--p2p-enabled=false",
            "--rpc-http-enabled",
        ]);
        assert_eq!(found.unwrap(), ["niwaki", "--rpc-http-enabled"]);
    }

    #[test]
    fn every_profile_names_flags_that_there_are() {
        let names = [
            "dev",
            "staker",
            "minimalist_staker",
            "enterprise",
            "private",
            "performance",
            "performance_rpc",
        ];
        for name in names {
            merged(&["--profile", name]).unwrap();
        }
    }
}
