//! QUANTITY, the number format of the execution APIs: a string of `0x` and hexadecimal digits without leading zeros,
//! `0x0` for zero. Anything else is refused.
//!
//! This is the only parser of numbers in this crate: others (`from_str_radix`, the integers of `alloy`) accept signs,
//! underscores, decimals and other radixes. Digits may be upper case and the prefix `0X`, as in geth. Error messages
//! are geth's, since clients match on them.

use niwaki_primitives::U256;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

/// The checked digits of a QUANTITY.
///
/// # Errors
/// What is wrong with `text`.
pub(crate) fn digits(text: &str) -> Result<&str, &'static str> {
    if text.is_empty() {
        return Err("empty hex string");
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.ok_or("hex string without 0x prefix")?;
    if digits.is_empty() {
        return Err("hex string \"0x\"");
    }
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("invalid hex string");
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err("hex number with leading zero digits");
    }
    Ok(digits)
}

/// A QUANTITY of up to 64 bits.
///
/// # Errors
/// What is wrong with `text`.
pub(crate) fn number(text: &str) -> Result<u64, &'static str> {
    u64::from_str_radix(digits(text)?, 16).map_err(|_| "hex number > 64 bits")
}

/// A QUANTITY of up to 256 bits.
///
/// # Errors
/// What is wrong with `text`.
pub(crate) fn word(text: &str) -> Result<U256, &'static str> {
    U256::from_str_radix(digits(text)?, 16).map_err(|_| "hex number > 256 bits")
}

/// A QUANTITY of up to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        number(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A QUANTITY of up to 256 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity(pub(crate) U256);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        word(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Reads a field that is a QUANTITY of up to 256 bits.
pub(crate) fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<U256, D::Error> {
    Quantity::deserialize(deserializer).map(|Quantity(value)| value)
}

/// Reads a field that is a QUANTITY of up to 256 bits, or null.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<U256>, D::Error> {
    let read = Option::<Quantity>::deserialize(deserializer)?;
    Ok(read.map(|Quantity(value)| value))
}

/// A QUANTITY of up to 64 bits or a JSON number, which Besu's own requests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Integer(pub(crate) u64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let takes_digits = false;
        let read = deserializer.deserialize_any(CountVisitor { takes_digits })?;
        Ok(Self(read))
    }
}

/// A count, for which geth, Besu or Parity accept more than a QUANTITY: also a JSON number, or decimal digits in a
/// string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let takes_digits = true;
        let read = deserializer.deserialize_any(CountVisitor { takes_digits })?;
        Ok(Self(read))
    }
}

/// Accepts a QUANTITY or a JSON number, and with `takes_digits` decimal digits in a string.
struct CountVisitor {
    takes_digits: bool,
}

impl Visitor<'_> for CountVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, hexadecimal after 0x or decimal")
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<u64, E> {
        Ok(count)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !(self.takes_digits && is_decimal) {
            return number(text).map_err(E::custom);
        }
        let count = text.parse();
        count.map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_a_prefix_hexadecimal_digits_and_no_leading_zero() {
        for (text, want) in [
            ("0x0", 0),
            ("0x1", 1),
            ("0xff", 255),
            ("0xFf", 255),
            ("0X10", 16),
            ("0xffffffffffffffff", u64::MAX),
        ] {
            assert_eq!(number(text), Ok(want), "{text}");
            assert_eq!(word(text), Ok(U256::from(want)), "{text}");
        }
        assert_eq!(word(&format!("{:#x}", U256::MAX)), Ok(U256::MAX));
        for (text, words) in [
            ("", "empty hex string"),
            ("16", "hex string without 0x prefix"),
            ("1_6", "hex string without 0x prefix"),
            ("0o20", "hex string without 0x prefix"),
            ("0b1", "hex string without 0x prefix"),
            ("+1", "hex string without 0x prefix"),
            (" 0x1", "hex string without 0x prefix"),
            ("0x", "hex string \"0x\""),
            ("0x1_0", "invalid hex string"),
            ("0x+1", "invalid hex string"),
            ("0x-1", "invalid hex string"),
            ("0x1 ", "invalid hex string"),
            ("0xg", "invalid hex string"),
            ("0x00", "hex number with leading zero digits"),
            ("0x0a", "hex number with leading zero digits"),
        ] {
            assert_eq!(number(text), Err(words), "{text}");
            assert_eq!(word(text), Err(words), "{text}");
        }
        assert_eq!(number("0x10000000000000000"), Err("hex number > 64 bits"));
        let beyond = format!("0x1{}", "0".repeat(64));
        assert_eq!(word(&beyond), Err("hex number > 256 bits"));
    }

    #[test]
    fn a_json_number_is_a_count_and_no_quantity() {
        assert!(serde_json::from_str::<Number>("16").is_err());
        assert!(serde_json::from_str::<Quantity>("16").is_err());
        for json in ["16", "\"16\"", "\"0x10\""] {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(16));
        }
        for json in [
            "\"1_6\"", "\"\"", "\"+1\"", "\"0x+1\"", "-1", "1.5", "\"0o20\"",
        ] {
            assert!(serde_json::from_str::<Count>(json).is_err(), "{json}");
            assert!(serde_json::from_str::<Integer>(json).is_err(), "{json}");
        }
        for json in ["16", "\"0x10\""] {
            assert_eq!(serde_json::from_str::<Integer>(json).unwrap(), Integer(16));
        }
        assert!(serde_json::from_str::<Integer>("\"16\"").is_err());
    }
}
