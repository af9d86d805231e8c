//! Numbers, hashes, addresses and bytes as text.

use crate::params::Count;
use crate::quantity;
use async_graphql::{InputValueError, InputValueResult, Scalar, ScalarType, Value, from_value};
use niwaki_primitives::{Address as RawAddress, B256, Bytes as RawBytes, U256, hex};

/// A number of 64 bits: a QUANTITY in answers; in requests also a JSON number, or decimal digits in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Long(pub(super) u64);

impl From<usize> for Long {
    fn from(count: usize) -> Self {
        Self(count as u64)
    }
}

#[Scalar]
impl ScalarType for Long {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Count(number) = from_value(value)?;
        Ok(Self(number))
    }

    fn to_value(&self) -> Value {
        Value::String(format!("{:#x}", self.0))
    }
}

/// A number of 256 bits, written as a Long is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BigInt(pub(super) U256);

impl From<u64> for BigInt {
    fn from(value: u64) -> Self {
        Self(U256::from(value))
    }
}

impl From<u128> for BigInt {
    fn from(value: u128) -> Self {
        Self(U256::from(value))
    }
}

#[Scalar]
impl ScalarType for BigInt {
    fn parse(value: Value) -> InputValueResult<Self> {
        let number = match &value {
            Value::Number(number) => number.as_u64().map(U256::from).ok_or("not a whole number"),
            Value::String(text) => number(text),
            _ => Err("a number, hexadecimal after 0x or decimal, is wanted"),
        };
        number.map(Self).map_err(InputValueError::custom)
    }

    fn to_value(&self) -> Value {
        Value::String(format!("{:#x}", self.0))
    }
}

fn number(text: &str) -> Result<U256, &'static str> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match is_decimal {
        true => U256::from_str_radix(text, 10).map_err(|_| "a number of more than 256 bits"),
        false => quantity::word(text),
    }
}

/// Bytes in hexadecimal after 0x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) RawBytes);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

#[Scalar]
impl ScalarType for Bytes {
    fn parse(value: Value) -> InputValueResult<Self> {
        let bytes = hex::decode(digits(&value)?);
        Ok(Self(bytes.map_err(InputValueError::custom)?.into()))
    }

    fn to_value(&self) -> Value {
        Value::String(hex::encode_prefixed(&self.0))
    }
}

/// 32 bytes in hexadecimal after 0x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes32(pub(super) B256);

#[Scalar]
impl ScalarType for Bytes32 {
    fn parse(value: Value) -> InputValueResult<Self> {
        let hash = digits(&value)?.parse();
        Ok(Self(hash.map_err(InputValueError::custom)?))
    }

    fn to_value(&self) -> Value {
        Value::String(hex::encode_prefixed(self.0))
    }
}

/// The 20 bytes of an address in hexadecimal after 0x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(pub(super) RawAddress);

#[Scalar]
impl ScalarType for Address {
    fn parse(value: Value) -> InputValueResult<Self> {
        let address = digits(&value)?.parse();
        Ok(Self(address.map_err(InputValueError::custom)?))
    }

    fn to_value(&self) -> Value {
        Value::String(hex::encode_prefixed(self.0))
    }
}

/// The digits of a string after its 0x.
fn digits<T: ScalarType + async_graphql::InputType>(
    value: &Value,
) -> Result<&str, InputValueError<T>> {
    match value {
        Value::String(text) => text
            .strip_prefix("0x")
            .ok_or_else(|| InputValueError::custom("hex string without 0x prefix")),
        _ => Err(InputValueError::custom("a string is wanted")),
    }
}
