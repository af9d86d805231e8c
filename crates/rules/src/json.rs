//! Lenient reading of genesis files.
//!
//! geth and Besu write the same values differently: keys in any letter case, numbers as JSON numbers, decimal strings
//! or hex strings, and total difficulties beyond 64 bits as bare JSON numbers. So an object is a map from lower-case
//! keys to the unparsed text of their values, and the reader states the type that it expects.

use crate::genesis::GenesisError;
use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// A JSON object whose values have not been parsed yet.
pub(crate) struct Object<'a> {
    path: String,
    fields: BTreeMap<String, (String, &'a RawValue)>,
}

/// The members of a JSON object in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(Vec::new()))
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Members<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(member) = map.next_entry()? {
            self.0.push(member);
        }
        Ok(self)
    }
}

impl<'a> Object<'a> {
    /// Parses the text of an object. `path` names it in errors. Of duplicate
    /// keys, perhaps in different letter case, the last one counts, as in geth and Besu.
    pub(crate) fn parse(path: &str, text: &'a str) -> Result<Self, GenesisError> {
        let Members(members) = serde_json::from_str(text).map_err(|error| GenesisError::Json {
            at: at(path),
            reason: error.to_string(),
        })?;
        let named = |(key, value): (String, &'a RawValue)| (key.to_ascii_lowercase(), (key, value));
        Ok(Self {
            path: path.to_owned(),
            fields: members.into_iter().map(named).collect(),
        })
    }

    /// Whether the key is present and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// The keys as they are written, with the text of their values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.fields
            .values()
            .map(|(key, value)| (key.as_str(), value.get()))
    }

    /// The object under `key`.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, GenesisError> {
        match self.raw(key) {
            Some(text) => Self::parse(&self.path_of(key), text).map(Some),
            None => Ok(None),
        }
    }

    /// The objects of the list under `key`; none if it is absent.
    pub(crate) fn objects(&self, key: &str) -> Result<Vec<Self>, GenesisError> {
        let Some(text) = self.raw(key) else {
            return Ok(Vec::new());
        };
        let path = self.path_of(key);
        let items: Vec<&'a RawValue> =
            serde_json::from_str(text).map_err(|error| GenesisError::Json {
                at: path.clone(),
                reason: error.to_string(),
            })?;
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| Self::parse(&format!("{path}[{index}]"), item.get()))
            .collect()
    }

    /// The text under `key`, without its quotes.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.raw(key).map(unquote)
    }

    /// The string under `key`.
    pub(crate) fn string(&self, key: &str) -> Result<Option<String>, GenesisError> {
        let parse = |text: &str| serde_json::from_str(text);
        self.value(key, |text| {
            parse(text).map_err(|_| "is not a string".to_owned())
        })
    }

    /// The strings of the list under `key`.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<String>>, GenesisError> {
        let parse = |text: &str| serde_json::from_str(text);
        self.value(key, |text| {
            parse(text).map_err(|_| "is not a list of strings".to_owned())
        })
    }

    /// The unsigned number under `key`, of up to 256 bits.
    pub(crate) fn u256(&self, key: &str) -> Result<Option<U256>, GenesisError> {
        self.value(key, parse_u256)
    }

    /// The unsigned number under `key`, of up to 64 bits.
    pub(crate) fn u64(&self, key: &str) -> Result<Option<u64>, GenesisError> {
        self.value(key, |text| narrow(parse_u256(text)?))
    }

    /// As [`Self::u64`], under `key` or else under `other`.
    pub(crate) fn first_u64(&self, key: &str, other: &str) -> Result<Option<u64>, GenesisError> {
        match self.u64(key)? {
            Some(number) => Ok(Some(number)),
            None => self.u64(other),
        }
    }

    /// As [`Self::u256`], of a key that Besu reads as hex digits without `0x` too.
    pub(crate) fn hex_u256(&self, key: &str) -> Result<Option<U256>, GenesisError> {
        self.value(key, parse_hex_u256)
    }

    /// As [`Self::u64`], of a key that Besu reads as hex digits without `0x` too.
    pub(crate) fn hex_u64(&self, key: &str) -> Result<Option<u64>, GenesisError> {
        self.value(key, |text| narrow(parse_hex_u256(text)?))
    }

    /// The boolean under `key`; `"true"` and `"false"` count.
    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, GenesisError> {
        self.value(key, |text| match unquote(text) {
            text if text.eq_ignore_ascii_case("true") => Ok(true),
            text if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err("is not true or false".to_owned()),
        })
    }

    /// The address under `key`.
    pub(crate) fn address(&self, key: &str) -> Result<Option<Address>, GenesisError> {
        self.value(key, |text| parse_address(unquote(text)))
    }

    /// The addresses of the list under `key`.
    pub(crate) fn addresses(&self, key: &str) -> Result<Option<Vec<Address>>, GenesisError> {
        let parse = |text: &str| -> Result<Vec<Address>, String> {
            let all: Vec<String> =
                serde_json::from_str(text).map_err(|_| "is not a list of strings".to_owned())?;
            all.iter().map(|one| parse_address(one)).collect()
        };
        self.value(key, parse)
    }

    /// An error of this object.
    pub(crate) fn contradiction(&self, what: &str) -> GenesisError {
        GenesisError::Contradiction(format!("{}: {what}", self.path))
    }

    /// The 32-byte value under `key`; shorter ones are filled with zeros on the left.
    pub(crate) fn b256(&self, key: &str) -> Result<Option<B256>, GenesisError> {
        self.value(key, |text| parse_b256(unquote(text)))
    }

    /// The bytes under `key`.
    pub(crate) fn bytes(&self, key: &str) -> Result<Option<Bytes>, GenesisError> {
        self.value(key, |text| parse_bytes(unquote(text)))
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        let written = self
            .fields
            .get(&key.to_ascii_lowercase())
            .map_or(key, |(key, _)| key.as_str());
        if self.path.is_empty() {
            written.to_owned()
        } else {
            format!("{}.{written}", self.path)
        }
    }

    fn raw(&self, key: &str) -> Option<&'a str> {
        let (_, value) = self.fields.get(&key.to_ascii_lowercase())?;
        let value: &'a RawValue = value;
        (value.get() != "null").then_some(value.get())
    }

    fn value<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, GenesisError> {
        let Some(text) = self.raw(key) else {
            return Ok(None);
        };
        parse(text).map(Some).map_err(|reason| GenesisError::Value {
            key: self.path_of(key),
            value: shortened(text),
            reason,
        })
    }
}

fn at(path: &str) -> String {
    if path.is_empty() {
        "the file".to_owned()
    } else {
        path.to_owned()
    }
}

/// `text`, or its beginning if it is long.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// The text of a JSON string without its quotes, or of any other value unchanged. No value that is read here needs an
/// escape.
fn unquote(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

/// `text` without the mark of a hex number; `None` if it has none.
fn without_0x(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

pub(crate) fn narrow(number: U256) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| "does not fit in 64 bits".to_owned())
}

/// As [`parse_u256`], and hex digits without `0x` if one of them is a letter. Without a letter they
/// are decimal, as with geth.
pub(crate) fn parse_hex_u256(text: &str) -> Result<U256, String> {
    let digits = unquote(text);
    let has_letter = digits.bytes().any(|byte| byte.is_ascii_alphabetic());
    match padded(digits) {
        Some(word) if has_letter => Ok(word.into()),
        _ => parse_u256(text),
    }
}

/// A number: `12`, `"12"`, `"0x0c"`, `"0x"` (zero).
pub(crate) fn parse_u256(text: &str) -> Result<U256, String> {
    let text = unquote(text);
    if let Some(digits) = without_0x(text) {
        if digits.is_empty() {
            return Ok(U256::ZERO);
        }
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("is not a hex number".to_owned());
        }
        if let Some(word) = padded(digits) {
            return Ok(word.into());
        }
        return U256::from_str_radix(digits, 16).map_err(|_| "does not fit in 256 bits".to_owned());
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("is not an unsigned decimal or 0x-prefixed hex number".to_owned());
    }
    U256::from_str_radix(text, 10).map_err(|_| "does not fit in 256 bits".to_owned())
}

/// An address with or without `0x`, in any letter case; a shorter one is padded with zeros on the left, as in Besu.
pub(crate) fn parse_address(text: &str) -> Result<Address, String> {
    let digits = without_0x(text).unwrap_or(text);
    let word = padded(digits).filter(|_| !digits.is_empty());
    let word = word.ok_or_else(|| "is not hex of at most 20 bytes".to_owned())?;
    match word.split_at(12) {
        (zeros, address) if zeros.iter().all(|byte| *byte == 0) && digits.len() <= 40 => {
            Ok(Address::from_slice(address))
        }
        _ => Err(format!("has {} bytes, not 20", digits.len().div_ceil(2))),
    }
}

/// Code in hex with or without `0x`; an odd digit at its beginning is a byte, as in Besu.
pub(crate) fn parse_code(text: &str) -> Result<Bytes, String> {
    let digits = unquote(text);
    let digits = without_0x(digits).unwrap_or(digits);
    match digits.len().is_multiple_of(2) {
        true => parse_bytes(digits),
        false => parse_bytes(&format!("0{digits}")),
    }
}

/// Bytes in hex with or without `0x`.
pub(crate) fn parse_bytes(text: &str) -> Result<Bytes, String> {
    let text = unquote(text);
    hex::decode(without_0x(text).unwrap_or(text))
        .map(Bytes::from)
        .map_err(|error| format!("is not hex: {error}"))
}

/// Up to 32 bytes in hex, with or without `0x`, filled with zeros on the left.
pub(crate) fn parse_b256(text: &str) -> Result<B256, String> {
    let text = unquote(text);
    let digits = without_0x(text).unwrap_or(text);
    padded(digits).ok_or_else(|| "is not hex of at most 32 bytes".to_owned())
}

/// Up to 64 hex digits, filled with zeros on the left.
fn padded(digits: &str) -> Option<B256> {
    let missing = 64_usize.checked_sub(digits.len())?;
    let mut text = [b'0'; 64];
    text[missing..].copy_from_slice(digits.as_bytes());
    if !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut word = B256::ZERO;
    hex::decode_to_slice(text, word.as_mut_slice()).ok()?;
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_form() {
        for text in [
            "255",
            "\"255\"",
            "\"0xff\"",
            "\"0xFF\"",
            "\"0x00ff\"",
            "\"0XfF\"",
        ] {
            assert_eq!(parse_u256(text), Ok(U256::from(255)), "{text}");
        }
        let big = "58750000000000000000000";
        assert_eq!(parse_u256(big).unwrap().to_string(), big);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "\"\"", "-1", "1.5", "1e3", "\"0xzz\"", "\"12a\"", "true", "[]",
        ] {
            assert!(parse_u256(text).is_err(), "{text}");
        }
        assert!(parse_u256(&"9".repeat(80)).is_err());
        assert!(parse_u256(&format!("\"0x{}\"", "f".repeat(65))).is_err());
    }

    #[test]
    fn keys_are_found_in_any_letter_case_and_named_as_written_in_errors() {
        let object = Object::parse("config", r#"{"LondonBLOCK": "abc", "x": null}"#).unwrap();
        assert!(object.has("londonBlock"));
        assert!(!object.has("x"));
        let error = object.u64("londonBlock").unwrap_err().to_string();
        assert!(error.contains("config.LondonBLOCK"), "{error}");
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let text = r#"{"mixHash": 1, "MIXHASH": 3, "mixhash": 2, "a": 1, "a": 2}"#;
        let object = Object::parse("", text).unwrap();
        assert_eq!(object.u64("mixHash"), Ok(Some(2)));
        assert_eq!(object.u64("a"), Ok(Some(2)));
    }

    #[test]
    fn hex_without_its_mark_is_read_where_nothing_else_can_be_meant() {
        for (text, number) in [
            ("\"ff\"", 255),
            ("\"00FF\"", 255),
            ("\"42\"", 42),
            ("\"0x42\"", 66),
        ] {
            assert_eq!(parse_hex_u256(text), Ok(U256::from(number)), "{text}");
        }
        assert!(parse_hex_u256("\"fg\"").is_err() && parse_hex_u256("true").is_err());
        let address = "00000000000000000000000000000000000000Aa";
        let marked = format!("0X{address}");
        assert_eq!(parse_address(address), parse_address(&marked));
        for (short, last) in [("0x1", 1), ("0xaa", 0xaa), ("00aa", 0xaa)] {
            assert_eq!(parse_address(short).unwrap()[19], last, "{short}");
        }
        for bad in ["", "0x", "0xg", &"0".repeat(41), &"1".repeat(65)] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("\"0XaB\"").unwrap()[..], [0xab]);
        assert!(parse_bytes("\"0x123\"").is_err());
        assert_eq!(parse_code("\"0x123\"").unwrap()[..], [1, 0x23]);
        assert_eq!(parse_code("\"6001\"").unwrap()[..], [0x60, 1]);
        assert!(parse_code("\"0xg\"").is_err());
        assert_eq!(parse_b256("0Xf").unwrap()[31], 15);
    }
}
