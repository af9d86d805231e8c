//! The words of the command line, rewritten so that each flag has its value attached.
//!
//! Besu's flags differ in where a value may stand: `--p2p-enabled false` is one option,
//! `--rpc-http-enabled storage check` is a switch and a command, `--rpc-http-api ETH NET` is a list.
//! clap gets `--name=value` for all of them; options of Besu that have no effect here are removed.

use super::besu::Arity;
use super::flags::KnownFlag;
use clap::Command;
use eyre::{Result, eyre};
use std::ffi::{OsStr, OsString};

/// A flag of the command line.
pub(super) struct Typed<'c> {
    pub(super) known: KnownFlag<'c>,
    /// As it was typed, without dashes.
    pub(super) name: String,
    /// Its value, if it has one.
    pub(super) value: Option<OsString>,
}

/// The command line, read.
pub(super) struct Words<'c> {
    /// The words for clap, without the program's name.
    pub(super) rest: Vec<OsString>,
    pub(super) typed: Vec<Typed<'c>>,
}

/// Reads the words after the program's name.
pub(super) fn read<'c>(command: &'c Command, words: Vec<OsString>) -> Result<Words<'c>> {
    let mut reader = Reader {
        command,
        words: words.into_iter().peekable(),
        is_in_command: false,
    };
    let (mut rest, mut typed) = (Vec::new(), Vec::new());
    while let Some(word) = reader.words.next() {
        if word == "--" {
            rest.push(word);
            rest.extend(reader.words);
            break;
        }
        let Some((known, name, value)) = reader.flag(&word) else {
            reader.is_in_command |= is_command(command, &word);
            rest.push(word);
            continue;
        };
        let value = match value {
            Some(value) => Some(value),
            None => reader.value_after(known, &name)?,
        };
        if let KnownFlag::Flag(_) = known {
            let origin = format!("--{name}");
            rest.push(match &value {
                None => format!("--{}", known.name()).into(),
                Some(value) => attached(known.name(), &known.normalized(value, &origin)?),
            });
        }
        typed.push(Typed { known, name, value });
    }
    Ok(Words { rest, typed })
}

pub(super) fn attached(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

fn is_command(command: &Command, word: &OsStr) -> bool {
    word.to_str()
        .is_some_and(|word| command.find_subcommand(word).is_some())
}

struct Reader<'c, I: Iterator<Item = OsString>> {
    command: &'c Command,
    words: std::iter::Peekable<I>,
    /// Whether a command was read: its own flags follow, which clap knows.
    is_in_command: bool,
}

impl<'c, I: Iterator<Item = OsString>> Reader<'c, I> {
    /// The flag that `word` is, the name it was given by, and its attached value.
    fn flag(&self, word: &OsStr) -> Option<(KnownFlag<'c>, String, Option<OsString>)> {
        let (name, value) = parts(word)?;
        let known = KnownFlag::find(self.command, &name)?;
        let is_of_command = match known {
            KnownFlag::Flag(arg) => self.is_in_command && !arg.is_global_set(),
            KnownFlag::Besu(_) => false,
        };
        (!is_of_command).then_some((known, name, value))
    }

    /// Takes the words after a flag that are its value.
    fn value_after(&mut self, known: KnownFlag<'c>, name: &str) -> Result<Option<OsString>> {
        match known.arity() {
            Arity::Value => Ok(self.words.next_if(|word| !is_flag(word, b"--"))),
            Arity::Spaced => Ok(self.words.next_if(|word| is_boolean(word))),
            Arity::Flag => match self.words.peek().filter(|word| is_boolean(word)) {
                Some(value) => Err(eyre!(
                    "--{name} {0}: a switch takes its value after '='; write --{name}={0}",
                    value.display()
                )),
                None => Ok(None),
            },
            Arity::List => {
                let mut list: Option<OsString> = None;
                while let Some(word) = self
                    .words
                    .next_if(|word| !is_flag(word, b"-") && !is_command(self.command, word))
                {
                    let list = list.get_or_insert_default();
                    if !list.is_empty() {
                        list.push(",");
                    }
                    list.push(word);
                }
                Ok(list)
            }
        }
    }
}

fn is_flag(word: &OsStr, dashes: &[u8]) -> bool {
    word.as_encoded_bytes().starts_with(dashes)
}

/// Name and attached value of a word that is a flag.
fn parts(word: &OsStr) -> Option<(String, Option<OsString>)> {
    let bytes = word.as_encoded_bytes();
    if let Some(rest) = bytes.strip_prefix(b"-l")
        && !bytes.starts_with(b"--")
    {
        let rest = rest.strip_prefix(b"=").unwrap_or(rest);
        let value = std::str::from_utf8(rest).ok()?;
        let value = (!value.is_empty()).then(|| value.into());
        return Some(("logging".to_owned(), value));
    }
    let text = bytes.strip_prefix(b"--")?;
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        None => (text, None),
        Some(end) => {
            let (name, value) = text.split_at_checked(end)?;
            (name, value.get(1..))
        }
    };
    let name = std::str::from_utf8(name).ok()?;
    if name.is_empty() {
        return None;
    }
    let value = value.map(os_string);
    Some((name.to_owned(), value))
}

fn os_string(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

fn is_boolean(word: &OsStr) -> bool {
    word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false")
}
