//! The words of the command line, each flag with its value attached.
//!
//! Where a value may stand differs from flag to flag with Besu: `--p2p-enabled false` is one option,
//! `--rpc-http-enabled storage check` is a switch and a command, `--rpc-http-api ETH NET` a list.
//! clap gets `--name=value` of all of them, and options that have no effect here are taken out.

use super::besu::Arity;
use super::flags::Known;
use clap::Command;
use eyre::{Result, eyre};
use std::ffi::{OsStr, OsString};

/// A flag that was typed.
pub(super) struct Typed<'c> {
    pub(super) known: Known<'c>,
    /// As it was typed, without dashes.
    pub(super) name: String,
    /// Its value; `None` if it stands alone.
    pub(super) value: Option<OsString>,
}

/// The command line, read.
pub(super) struct Words<'c> {
    /// What is left for clap, the name of the program left out.
    pub(super) rest: Vec<OsString>,
    pub(super) typed: Vec<Typed<'c>>,
}

/// Reads the words after the name of the program.
pub(super) fn read<'c>(command: &'c Command, words: Vec<OsString>) -> Result<Words<'c>> {
    let mut reader = Reader {
        command,
        words: words.into_iter().peekable(),
        is_inside: false,
    };
    let (mut rest, mut typed) = (Vec::new(), Vec::new());
    while let Some(word) = reader.words.next() {
        if word == "--" {
            rest.push(word);
            rest.extend(reader.words);
            break;
        }
        let Some((known, name, value)) = reader.flag(&word) else {
            reader.is_inside |= is_command(command, &word);
            rest.push(word);
            continue;
        };
        let value = match value {
            Some(value) => Some(value),
            None => reader.following(known, &name)?,
        };
        if let Known::Flag(_) = known {
            let place = format!("--{name}");
            rest.push(match &value {
                None => format!("--{}", known.name()).into(),
                Some(value) => attached(known.name(), &known.normalized(value, &place)?),
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
    /// Whether a command was named: then its own flags follow, which clap knows.
    is_inside: bool,
}

impl<'c, I: Iterator<Item = OsString>> Reader<'c, I> {
    /// The flag that `word` is, the name that it was called by, and its value if it is attached.
    fn flag(&self, word: &OsStr) -> Option<(Known<'c>, String, Option<OsString>)> {
        let (name, value) = parts(word)?;
        let known = Known::find(self.command, &name)?;
        let is_elsewhere = match known {
            Known::Flag(arg) => self.is_inside && !arg.is_global_set(),
            Known::Besu(_) => false,
        };
        (!is_elsewhere).then_some((known, name, value))
    }

    /// The words after a flag that are its value.
    fn following(&mut self, known: Known<'c>, name: &str) -> Result<Option<OsString>> {
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
