//! Flags from other sources than the command line: environment, TOML file, profile.
//!
//! Precedence: command line, environment (`NIWAKI_*`, `BESU_*`), file, profile, default. All sources name
//! the same flags, so those that the command line does not have are inserted before it, and clap parses the
//! result. Options of Besu that have no effect here are removed, with a note for each:
//!
//! ```text
//! niwaki --p2p-port=30303 storage check        file: rpc-http-enabled = true
//!     -> niwaki --rpc-http-enabled=true storage check
//!        note: --p2p-port has no effect: this version has no peers
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `words` | the command line, each flag with its value attached |
//! | `flags` | the known flags: names, arity, values |
//! | `besu` | options of Besu without effect |
//! | `file` | the TOML file |
//! | `refusal` | clap's errors as sentences |

mod besu;
mod file;
mod flags;
mod refusal;
mod words;

use clap::Command;
use eyre::{Result, WrapErr, eyre};
use file::Entry;
use flags::{EXCLUSIVE, KnownFlag};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use words::{Words, attached};

/// The flags that a built-in profile sets, in the form of a configuration file.
fn profile(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "none" => "",
        "dev" => "network = 'dev'",
        "staker" => "network = 'mainnet'",
        "minimalist_staker" => "data-storage-format = 'BONSAI'",
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
    "DEV, STAKER, MINIMALIST_STAKER, ENTERPRISE (or PRIVATE), PERFORMANCE, PERFORMANCE_RPC, NONE";

/// Something about the configuration that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Whether the node does less than, or something other than, the configuration asks for.
    pub(crate) is_warning: bool,
    /// A sentence in lower case.
    pub(crate) text: String,
}

/// The command line with the flags that environment, file and profile add.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// For clap, the name of the program first.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) notes: Vec<Note>,
    /// The origin of each flag that the command line does not have.
    origins: BTreeMap<String, String>,
}

impl Merged {
    /// clap's error as one sentence, with the origin of the value.
    pub(crate) fn explain(&self, error: &clap::Error) -> String {
        let mut text = refusal::sentence(error);
        let flag = refusal::flag_of(error);
        if let Some(origin) = flag.and_then(|flag| self.origins.get(&flag)) {
            text = format!("{text} ({origin})");
        }
        text
    }
}

/// Merges the command line with environment, file and profile.
pub(crate) fn merge(
    command: &Command,
    arguments: Vec<OsString>,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Merged> {
    let mut words = arguments.into_iter();
    let program = words.next().unwrap_or_else(|| "niwaki".into());
    let Words { rest, typed } = words::read(command, words.collect())?;
    let mut sources = Sources::new(command);
    for flag in typed {
        let origin = Origin {
            level: Level::Typed,
            text: format!("--{}", flag.name),
        };
        sources.add(flag.known, flag.value.unwrap_or_default(), origin)?;
    }
    sources.add_environment(environment)?;
    if let Some(path) = sources.value_of("config-file") {
        let path = PathBuf::from(path);
        let place = format!("the configuration file {}", path.display());
        sources.add_file(&read_file(&path, &place)?, &place, Level::File)?;
    }
    if let Some(name) = sources.value_of("profile") {
        let name = name.to_string_lossy();
        let text = match profile(&name) {
            Some(text) => text.to_owned(),
            None => external_profile(&name)?,
        };
        sources.add_file(&text, &format!("the profile {name}"), Level::Profile)?;
    }
    Ok(sources.merged(program, rest))
}

/// A profile that the operator wrote: a file in the folder `profiles`.
fn external_profile(name: &str) -> Result<String> {
    let path = PathBuf::from("profiles").join(format!("{name}.toml"));
    std::fs::read_to_string(&path).map_err(|_| {
        eyre!(
            "there is no profile {name}: choose one of {PROFILES}, or write {}",
            path.display()
        )
    })
}

/// Checks a configuration file alone; returns the notes on it.
pub(crate) fn validate(command: &Command, file: &Path) -> Result<Vec<Note>> {
    let place = format!("the configuration file {}", file.display());
    let mut sources = Sources::new(command);
    sources.add_file(&read_file(file, &place)?, &place, Level::File)?;
    let merged = sources.merged("niwaki".into(), Vec::new());
    match command.clone().try_get_matches_from(&merged.arguments) {
        Ok(_) => Ok(merged.notes),
        Err(error) => Err(eyre!("{}", merged.explain(&error))),
    }
}

fn read_file(path: &Path, place: &str) -> Result<String> {
    std::fs::read_to_string(path).wrap_err_with(|| format!("can't read {place}"))
}

/// The kind of source of a value, highest precedence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Typed,
    Environment,
    File,
    Profile,
}

/// The source of a value, and its description for messages.
#[derive(Clone, Debug)]
struct Origin {
    level: Level,
    text: String,
}

/// The values given so far; sources are added from the highest precedence to the lowest.
struct Sources<'c> {
    command: &'c Command,
    given: BTreeMap<&'c str, (OsString, Origin)>,
    notes: Vec<Note>,
}

impl<'c> Sources<'c> {
    fn new(command: &'c Command) -> Self {
        Self {
            command,
            given: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    fn value_of(&self, name: &str) -> Option<OsString> {
        let (value, _) = self.given.get(name)?;
        (!value.is_empty()).then(|| value.clone())
    }

    fn note(&mut self, is_warning: bool, text: String) {
        self.notes.push(Note { is_warning, text });
    }

    /// Adds a value unless a source of higher precedence has given one.
    fn add(&mut self, known: KnownFlag<'c>, value: OsString, origin: Origin) -> Result<()> {
        let name = known.name();
        if self.given.contains_key(name) {
            return Ok(());
        }
        if let KnownFlag::Besu(row) = known {
            let text = format!("{} has no effect: {}", origin.text, row.why);
            // A lone switch is on: its empty value is not among the harmless ones.
            let is_risky = row.is_risky(&value.to_string_lossy());
            self.note(is_risky, text);
        } else if self.is_overridden(name, &origin)? {
            return Ok(());
        }
        self.given.insert(name, (value, origin));
        Ok(())
    }

    /// Whether a flag that excludes `name` overrides it. If `name` overrides the other, removes the other.
    fn is_overridden(&mut self, name: &str, origin: &Origin) -> Result<bool> {
        for (first, second) in EXCLUSIVE {
            let rival = match name {
                name if name == first => second,
                name if name == second => first,
                _ => continue,
            };
            let Some((_, theirs)) = self.given.get(rival) else {
                continue;
            };
            if theirs.level != origin.level {
                let text = format!("{} gives way to {}", origin.text, theirs.text);
                self.note(false, text);
                return Ok(true);
            }
            if origin.level == Level::Typed {
                return Err(eyre!(
                    "{} and {} exclude each other; leave one of them out",
                    theirs.text,
                    origin.text
                ));
            }
            if name == second {
                let text = format!("{} gives way to {}", origin.text, theirs.text);
                self.note(true, text);
                return Ok(true);
            }
            let text = format!("{} gives way to {}", theirs.text, origin.text);
            self.note(true, text);
            self.given.remove(rival);
        }
        Ok(false)
    }

    fn add_environment(&mut self, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<()> {
        let ours = flags::flags(self.command).flat_map(|arg| {
            let known = KnownFlag::Flag(arg);
            flags::names(arg).map(move |name| (known, name))
        });
        let besus = besu::ROWS.iter().filter_map(|row| {
            let known = KnownFlag::find(self.command, row.name)?;
            matches!(known, KnownFlag::Besu(_)).then_some((known, row.name))
        });
        for (known, name) in ours.chain(besus) {
            let name = name.replace('-', "_").to_ascii_uppercase();
            for prefix in ["NIWAKI", "BESU"] {
                let variable = format!("{prefix}_{name}");
                let Some(value) = environment(&variable).filter(|value| !value.is_empty()) else {
                    continue;
                };
                let origin = Origin {
                    level: Level::Environment,
                    text: format!("the environment variable {variable}"),
                };
                let value = known.normalized(&value, &origin.text)?;
                self.add(known, value, origin)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, text: &str, place: &str, level: Level) -> Result<()> {
        let entries = file::entries(text, place)?;
        for (at, entry) in entries.iter().enumerate() {
            let key = entry.key.as_str();
            let known = KnownFlag::find(self.command, key).ok_or_else(|| {
                let nearest = flags::nearest(self.command, key);
                let location = &entry.location;
                eyre!("{place} has the key {key} in {location}, which no flag has{nearest}")
            })?;
            let others = entries.get(..at).unwrap_or_default();
            if let Some(other) = others.iter().find(|other| other.key == key) {
                return Err(eyre!(
                    "{place} gives {key} twice, in {} and in {}; keep one of them",
                    other.location,
                    entry.location
                ));
            }
            let is_alias = key != known.name();
            if is_alias && entries.iter().any(|other| other.key == known.name()) {
                let text = format!("{key} in {place} gives way to {} there", known.name());
                self.note(false, text);
                continue;
            }
            let origin = Origin {
                level,
                text: format!("{key} in {place} ({})", entry.location),
            };
            if let Some(value) = value_of(known, entry, &origin)? {
                let value = known.normalized(&value, &origin.text)?;
                self.add(known, value, origin)?;
            }
        }
        Ok(())
    }

    /// The arguments for clap; those of the command line come last.
    fn merged(self, program: OsString, rest: Vec<OsString>) -> Merged {
        let mut merged = Merged {
            arguments: vec![program],
            notes: self.notes,
            origins: BTreeMap::new(),
        };
        for (name, (value, origin)) in self.given {
            if origin.level != Level::Typed && besu::find(name).is_none() {
                merged.arguments.push(attached(name, &value));
                merged.origins.insert(name.to_owned(), origin.text);
            }
        }
        merged.arguments.extend(rest);
        merged
    }
}

/// The value of an entry; `None` for an empty list whose default is empty too.
fn value_of(known: KnownFlag<'_>, entry: &Entry, origin: &Origin) -> Result<Option<OsString>> {
    let KnownFlag::Flag(arg) = known else {
        return Ok(Some(entry.values.join(",").into()));
    };
    match entry.values.as_slice() {
        [] if flags::is_list(arg) && arg.get_default_values().is_empty() => Ok(None),
        [value] => Ok(Some(OsStr::new(value).to_owned())),
        values if flags::is_list(arg) => Ok(Some(values.join(",").into())),
        values => Err(eyre!(
            "{} has {} values; it takes one",
            origin.text,
            values.len()
        )),
    }
}

#[cfg(test)]
mod tests;
