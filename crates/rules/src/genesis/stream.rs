//! Reads a genesis file in one pass, in memory that does not grow with its alloc.
//!
//! Accounts are passed to a sink as they are read, in the order of the file, including duplicates of one address;
//! everything else is kept as text and parsed at the end, so that `alloc` may precede `config`.

use super::scan::Scanner;
use super::{GenesisAccount, GenesisError, GenesisHead};
use crate::json::{
    narrow, parse_address, parse_b256, parse_code, parse_hex_u256, parse_u256, shortened,
};
use alloy_primitives::{Address, Bytes, U256};
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;

/// A piece of the genesis state. An account's slots precede the account itself; of several accounts with one address
/// the last one counts, with its own slots only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocItem {
    /// A slot; of several with one number the last one counts, even if it is zero.
    Slot {
        /// The account.
        address: Address,
        /// Its number.
        slot: U256,
        /// Its value.
        value: U256,
    },
    /// An account without its storage.
    Account {
        /// Its address.
        address: Address,
        /// Nonce.
        nonce: u64,
        /// Balance in wei.
        balance: U256,
        /// Code; empty if none.
        code: Bytes,
    },
}

/// Why a genesis could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is malformed or not supported.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// Reading failed.
    #[error("the genesis can't be read: {0}")]
    Io(std::io::Error),
    /// The sink stopped the reading.
    #[error("stopped while reading the genesis")]
    Stopped,
}

/// Receives the pieces of an alloc; returning `false` stops the reading.
pub type AllocSink<'a> = dyn FnMut(AllocItem) -> bool + 'a;

/// Reads a genesis file in geth's or Besu's form, as [`Genesis::from_json`](super::Genesis) does, passing the pieces of
/// its alloc to `sink`. Memory is bounded by the largest code and the rest of the file. Of duplicate addresses and
/// slots the last one counts; `sink` must see to that.
///
/// # Errors
/// [`ReadError`]; the pieces passed before it are then void.
pub fn read_genesis(
    input: &mut dyn Read,
    sink: &mut AllocSink<'_>,
) -> Result<GenesisHead, ReadError> {
    let file = || "the file".to_owned();
    let mut scanner = Scanner::new(input);
    scanner.expect(b'{', &file)?;
    let mut alloc: Option<(String, Range<u64>)> = None;
    let mut is_first = true;
    while let Some(key) = scanner.next_key(&mut is_first, &file)? {
        if !key.eq_ignore_ascii_case("alloc") {
            scanner.value(&|| key.clone())?;
            continue;
        }
        if let Some((first, _)) = alloc {
            return Err(duplicate("the file".to_owned(), first, key).into());
        }
        let next = scanner.peek()?;
        scanner.stop_copying();
        let start = scanner.offset();
        match next {
            Some(b'{') => read_alloc(&mut scanner, &key, sink)?,
            _ if scanner.value(&|| key.clone())? == "null" => {}
            _ => return Err(scanner.bad(&|| key.clone(), "expected '{'")),
        }
        alloc = Some((key, start..scanner.offset()));
        scanner.resume_copying(NO_ALLOC);
    }
    if scanner.peek()?.is_some() {
        return Err(scanner.bad(&file, "something after its end"));
    }
    let text = String::from_utf8(scanner.into_copy()).map_err(|error| GenesisError::Json {
        at: file(),
        reason: error.to_string(),
    })?;
    Ok(GenesisHead::parse(text, alloc.map(|(_, range)| range))?)
}

/// The text in [`GenesisHead::text`] instead of an alloc.
pub const NO_ALLOC: &[u8] = b"null";

fn duplicate(at: String, first: String, second: String) -> GenesisError {
    GenesisError::DuplicateKey { at, first, second }
}

/// Reads the alloc, starting at its brace.
fn read_alloc(
    scanner: &mut Scanner<'_>,
    name: &str,
    sink: &mut AllocSink<'_>,
) -> Result<(), ReadError> {
    let path = || name.to_owned();
    scanner.expect(b'{', &path)?;
    let mut is_first = true;
    while let Some(key) = scanner.next_key(&mut is_first, &path)? {
        let address = parse_address(&key)
            .map_err(|reason| bad_value(format!("{name}.{key}"), &key, reason))?;
        read_account(scanner, &|| format!("{name}.{key}"), address, sink)?;
    }
    Ok(())
}

fn read_account(
    scanner: &mut Scanner<'_>,
    path: &dyn Fn() -> String,
    address: Address,
    sink: &mut AllocSink<'_>,
) -> Result<(), ReadError> {
    const FIELDS: [&str; 4] = ["nonce", "balance", "code", "storage"];
    let (mut nonce, mut balance, mut code) = (0, U256::ZERO, Bytes::new());
    scanner.expect(b'{', path)?;
    let mut is_first = true;
    while let Some(key) = scanner.next_key(&mut is_first, path)? {
        let path = || format!("{}.{key}", path());
        let field = FIELDS
            .iter()
            .position(|name| key.eq_ignore_ascii_case(name));
        if field == Some(3) && scanner.peek()? == Some(b'{') {
            read_storage(scanner, &path, address, sink)?;
        } else {
            let text = scanner.value(&path)?;
            let wrong = |reason: String| bad_value(path(), &text, reason);
            match field {
                _ if text == "null" => {}
                Some(0) => {
                    nonce = parse_hex_u256(&text).and_then(narrow).map_err(wrong)?;
                }
                Some(1) => balance = parse_u256(&text).map_err(wrong)?,
                Some(2) => code = parse_code(&text).map_err(wrong)?,
                Some(_) => return Err(scanner.bad(&path, "expected '{'")),
                None => {}
            }
        }
    }
    let item = AllocItem::Account {
        address,
        nonce,
        balance,
        code,
    };
    emit(sink, item)
}

fn read_storage(
    scanner: &mut Scanner<'_>,
    path: &dyn Fn() -> String,
    address: Address,
    sink: &mut AllocSink<'_>,
) -> Result<(), ReadError> {
    scanner.expect(b'{', path)?;
    let mut is_first = true;
    while let Some(key) = scanner.next_key(&mut is_first, path)? {
        let path = || format!("{}.{key}", path());
        let text = scanner.value(&path)?;
        let word = |text: &str| -> Result<U256, GenesisError> {
            let word = parse_b256(text).map_err(|reason| bad_value(path(), text, reason))?;
            Ok(word.into())
        };
        let item = AllocItem::Slot {
            address,
            slot: word(&key)?,
            value: word(&text)?,
        };
        emit(sink, item)?;
    }
    Ok(())
}

fn emit(sink: &mut AllocSink<'_>, item: AllocItem) -> Result<(), ReadError> {
    if sink(item) {
        Ok(())
    } else {
        Err(ReadError::Stopped)
    }
}

fn bad_value(key: String, text: &str, reason: String) -> GenesisError {
    GenesisError::Value {
        key,
        value: shortened(text),
        reason,
    }
}

/// An alloc collected in memory.
#[derive(Debug, Default)]
pub(super) struct CollectedAlloc {
    pub(super) alloc: BTreeMap<Address, GenesisAccount>,
    storage: BTreeMap<U256, U256>,
}

impl CollectedAlloc {
    /// Adds a piece.
    pub(super) fn add(&mut self, item: AllocItem) {
        match item {
            AllocItem::Slot { slot, value, .. } if value.is_zero() => {
                self.storage.remove(&slot);
            }
            AllocItem::Slot { slot, value, .. } => {
                self.storage.insert(slot, value);
            }
            AllocItem::Account {
                address,
                nonce,
                balance,
                code,
            } => {
                let account = GenesisAccount {
                    nonce,
                    balance,
                    code,
                    storage: std::mem::take(&mut self.storage),
                };
                self.alloc.insert(address, account);
            }
        }
    }

    /// The alloc, or why `outcome` has none.
    pub(super) fn finish(
        self,
        outcome: Result<GenesisHead, ReadError>,
    ) -> Result<(GenesisHead, BTreeMap<Address, GenesisAccount>), GenesisError> {
        match outcome {
            Ok(head) => Ok((head, self.alloc)),
            Err(ReadError::Genesis(error)) => Err(error),
            // Reading from memory can't fail, and this sink never stops.
            Err(error) => Err(GenesisError::Json {
                at: "the file".to_owned(),
                reason: error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
