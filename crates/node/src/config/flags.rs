//! The known flags, ours and Besu's: their names, and how their values are written.

use super::besu::{self, Arity};
use clap::{Arg, Command};
use eyre::{Result, eyre};
use std::ffi::{OsStr, OsString};

/// Switches that also take their value after a space, as in Besu (and switches that Besu does not have).
/// Every other switch takes a value only after `=`, so that a command can follow it.
const SPACED: [&str; 9] = [
    "auto-log-bloom-caching-enabled",
    "bonsai-parallel-tx-processing-enabled",
    "discovery-enabled",
    "p2p-enabled",
    "strict-tx-replay-protection-enabled",
    "tx-pool-enable-balance-check",
    "tx-pool-enable-save-restore",
    "tx-pool-no-local-priority",
    "tx-pool-warming-enabled",
];

/// Lists that also take their values separated by spaces, as in `--rpc-http-api ETH NET`.
const LISTS: [&str; 12] = [
    "Xrpc-ipc-apis",
    "banned-node-ids",
    "bootnodes",
    "net-restrict",
    "rpc-http-api",
    "rpc-http-api-methods-no-auth",
    "rpc-http-tls-cipher-suites",
    "rpc-http-tls-protocols",
    "rpc-ws-api",
    "rpc-ws-api-methods-no-auth",
    "trusted-nodes",
    "tx-pool-priority-senders",
];

/// Flags that exclude each other. If one source gives both, the first counts.
pub(super) const EXCLUSIVE: [(&str, &str); 6] = [
    ("genesis-file", "network"),
    ("rpc-ws-ssl-keystore-file", "rpc-ws-ssl-key-file"),
    ("rpc-ws-ssl-keystore-file", "rpc-ws-ssl-cert-file"),
    (
        "rpc-ws-ssl-keystore-password-file",
        "rpc-ws-ssl-keystore-password",
    ),
    ("rpc-ws-ssl-truststore-file", "rpc-ws-ssl-trustcert-file"),
    (
        "rpc-ws-ssl-truststore-password-file",
        "rpc-ws-ssl-truststore-password",
    ),
];

/// A flag of this node, or an option of Besu that has no effect here.
#[derive(Clone, Copy)]
pub(super) enum KnownFlag<'c> {
    Flag(&'c Arg),
    Besu(&'static besu::BesuOption),
}

impl<'c> KnownFlag<'c> {
    /// The flag called `name`, without dashes.
    pub(super) fn find(command: &'c Command, name: &str) -> Option<Self> {
        let flag = flags(command).find(|arg| names(arg).any(|known| known == name));
        let row = || besu::find(name).map(Self::Besu);
        flag.map(Self::Flag).or_else(row)
    }

    /// Its canonical name.
    pub(super) fn name(self) -> &'c str {
        match self {
            Self::Flag(arg) => arg.get_long().unwrap_or_default(),
            Self::Besu(row) => row.name,
        }
    }

    /// How the command line gives its values.
    pub(super) fn arity(self) -> Arity {
        match self {
            Self::Besu(row) => row.arity,
            Self::Flag(arg) if is_switch(arg) => match SPACED.contains(&self.name()) {
                true => Arity::Spaced,
                false => Arity::Flag,
            },
            Self::Flag(_) => match LISTS.contains(&self.name()) {
                true => Arity::List,
                false => Arity::Value,
            },
        }
    }

    /// `value` as clap reads it: switches in lower case, lists without blanks around commas. `origin` says
    /// where it was given. Values that are not UTF-8 are left for clap to refuse.
    pub(super) fn normalized(self, value: &OsStr, origin: &str) -> Result<OsString> {
        match (self, value.to_str()) {
            (Self::Flag(arg), Some(text)) if is_switch(arg) => {
                let lower = text.trim().to_ascii_lowercase();
                match lower.as_str() {
                    "true" | "false" => Ok(lower.into()),
                    _ => Err(eyre!("{origin} is {text}; it must be true or false")),
                }
            }
            (Self::Flag(arg), Some(text)) if is_list(arg) => {
                let items: Vec<_> = text.split(',').map(str::trim).collect();
                Ok(items.join(",").into())
            }
            _ => Ok(value.to_owned()),
        }
    }
}

/// The flags that have a name, without those of commands.
pub(super) fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let has_name = |arg: &&Arg| arg.get_long().is_some();
    command.get_arguments().filter(has_name)
}

/// All names of a flag, the canonical one first.
pub(super) fn names(arg: &Arg) -> impl Iterator<Item = &str> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases)
}

/// Whether a flag is a list separated by commas.
pub(super) fn is_list(arg: &Arg) -> bool {
    arg.get_value_delimiter().is_some()
}

/// Whether a flag without a value is true.
fn is_switch(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_some_and(|range| range.min_values() == 0)
}

/// A hint at the known name that is most similar to `key`.
pub(super) fn nearest(command: &Command, key: &str) -> String {
    let ours = flags(command).filter_map(Arg::get_long);
    let all = ours.chain(besu::ROWS.iter().map(|row| row.name));
    let scored = all.map(|name| (strsim::jaro_winkler(name, key), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    match best.filter(|(score, _)| *score > 0.8) {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => "; `niwaki --help` lists them".to_owned(),
    }
}
