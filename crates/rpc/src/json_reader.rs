//! Reads the JSON of parameters by the rules that all clients share.
//!
//! - Keys of objects match in any letter case, as in geth (Go's `encoding/json`): `blockhash` is `blockHash`, and both
//!   in one object are a duplicate, which is refused. The structs need no annotation for this.
//! - Unknown keys are ignored, as in geth, except in objects that choose blocks: there a typo would silently mean
//!   another block. Those structs are marked `deny_unknown_fields`.
//! - In types of other crates, the fields that must be QUANTITYs are given by name ([`Reader::of`]).
//!
//! [`Reader`] wraps a deserializer; [`read`] is the entry point.

use crate::quantity;
use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use std::borrow::Cow;
use std::fmt;

/// Deserializes all of `json`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    read_with(json, &[])
}

/// As [`read`]; values of the keys `quantities`, at any depth, must be QUANTITYs or null.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_with<'a, T: Deserialize<'a>>(
    json: &'a str,
    quantities: &'static [&'static str],
) -> Result<T, serde_json::Error> {
    let mut inner = serde_json::Deserializer::from_str(json);
    let value = T::deserialize(Reader::of(&mut inner, quantities))?;
    inner.end()?;
    Ok(value)
}

/// The requirements on a value.
#[derive(Clone, Copy)]
struct Rules {
    /// Keys whose values must be QUANTITYs.
    quantities: &'static [&'static str],
    /// Whether the value itself must be one.
    is_quantity: bool,
}

impl Rules {
    /// The requirements on an inner value.
    const fn inner(self, is_quantity: bool) -> Self {
        Self {
            is_quantity,
            ..self
        }
    }
}

/// A deserializer that applies the rules above.
pub(crate) struct Reader<D> {
    inner: D,
    rules: Rules,
}

impl<D> Reader<D> {
    /// Wraps `inner`.
    pub(crate) const fn new(inner: D) -> Self {
        Self::of(inner, &[])
    }

    /// As [`Reader::new`]; values of the keys `quantities` must be QUANTITYs or null.
    pub(crate) const fn of(inner: D, quantities: &'static [&'static str]) -> Self {
        let rules = Rules {
            quantities,
            is_quantity: false,
        };
        Self { inner, rules }
    }
}

/// The name by which `serde_json` requests raw JSON.
const RAW: &str = "$serde_json::private::RawValue";

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reader<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let checked = CheckedVisitor::new(visitor, None, self.rules);
        self.inner.deserialize_any(checked)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let checked = CheckedVisitor::new(visitor, Some(fields), self.rules);
        self.inner.deserialize_any(checked)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let checked = CheckedVisitor::new(visitor, None, self.rules);
        self.inner.deserialize_option(checked)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if name == RAW {
            return self.inner.deserialize_newtype_struct(name, visitor);
        }
        let checked = CheckedVisitor::new(visitor, None, self.rules);
        self.inner.deserialize_newtype_struct(name, checked)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

/// Wraps a visitor to check its values; `fields` are the keys of the struct that it builds.
struct CheckedVisitor<V> {
    visitor: V,
    fields: Option<&'static [&'static str]>,
    rules: Rules,
}

impl<V> CheckedVisitor<V> {
    const fn new(visitor: V, fields: Option<&'static [&'static str]>, rules: Rules) -> Self {
        Self {
            visitor,
            fields,
            rules,
        }
    }

    fn check<E: de::Error>(&self, text: &str) -> Result<(), E> {
        match self.rules.is_quantity {
            true => quantity::digits(text).map(drop).map_err(E::custom),
            false => Ok(()),
        }
    }
}

/// Scalars are forwarded, unless the value must be a string.
macro_rules! forward {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            match self.rules.is_quantity {
                true => Err(E::invalid_type(Unexpected::Other("number"), &"a string")),
                false => self.visitor.$method(value),
            }
        }
    )*};
}

/// Strings are checked and forwarded.
macro_rules! forward_strings {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: de::Error>(self, text: $type) -> Result<V::Value, E> {
            self.check(&text)?;
            self.visitor.$method(text)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for CheckedVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    forward! {
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128)
        visit_f64(f64) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    forward_strings! { visit_str(&str) visit_borrowed_str(&'de str) visit_string(String) }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let rules = self.rules;
        self.visitor.visit_some(Reader { inner, rules })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let rules = self.rules;
        self.visitor.visit_newtype_struct(Reader { inner, rules })
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let rules = self.rules.inner(false);
        self.visitor.visit_seq(Items { inner, rules })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Entries {
            inner,
            fields: self.fields,
            rules: self.rules.inner(false),
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(inner)
    }
}

/// Wraps a seed, to read an inner value by the rules.
struct Seed<S> {
    seed: S,
    rules: Rules,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let rules = self.rules;
        self.seed.deserialize(Reader { inner, rules })
    }
}

struct Items<A> {
    inner: A,
    rules: Rules,
}

impl<'de, A: de::SeqAccess<'de>> de::SeqAccess<'de> for Items<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let rules = self.rules;
        self.inner.next_element_seed(Seed { seed, rules })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

struct Entries<A> {
    inner: A,
    fields: Option<&'static [&'static str]>,
    /// The rules of the next value.
    rules: Rules,
}

impl<'de, A: de::MapAccess<'de>> de::MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        if self.fields.is_none() && self.rules.quantities.is_empty() {
            return self.inner.next_key_seed(seed);
        }
        let Some(Text(key)) = self.inner.next_key()? else {
            return Ok(None);
        };
        let known = self.fields.and_then(|fields| find(fields, &key));
        let key = known.map_or(key, Cow::Borrowed);
        let is_quantity = self.rules.quantities.contains(&key.as_ref());
        self.rules = self.rules.inner(is_quantity);
        match key {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            Cow::Owned(key) => seed.deserialize(StringDeserializer::new(key)),
        }
        .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let rules = self.rules;
        self.inner.next_value_seed(Seed { seed, rules })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The field that a key matches.
fn find(fields: &'static [&'static str], key: &str) -> Option<&'static str> {
    let exact = fields.iter().find(|field| **field == key);
    let found = exact.or_else(|| fields.iter().find(|field| field.eq_ignore_ascii_case(key)));
    found.copied()
}

/// A string that is borrowed where that is possible.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase", default)]
    struct Inner {
        block_hash: Option<u64>,
        flags: Vec<bool>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Outer<'a> {
        inner_one: Inner,
        by_name: Option<BTreeMap<String, Inner>>,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
        ratio: Option<f64>,
        #[serde(alias = "other")]
        name: Option<Cow<'a, str>>,
    }

    #[test]
    fn keys_match_in_any_letter_case_at_any_depth() {
        let json = r#"{"INNERONE": {"blockhash": 7, "Flags": [true]}, "Raw": {"A": [1, "x"]},
                       "byName": {"a": {"BlockHash": 8}}, "ratio": 1, "OTHER": "n"}"#;
        let outer: Outer<'_> = read(json).unwrap();
        assert_eq!(outer.inner_one.block_hash, Some(7));
        assert_eq!(outer.inner_one.flags, [true]);
        assert_eq!(outer.by_name.unwrap()["a"].block_hash, Some(8));
        assert_eq!(outer.raw.unwrap().get(), r#"{"A": [1, "x"]}"#);
        assert_eq!(outer.ratio, Some(1.0));
        assert_eq!(outer.name.unwrap(), "n");
    }

    #[test]
    fn a_key_in_two_letter_cases_is_a_duplicate() {
        let twice = read::<Inner>(r#"{"blockhash": 7, "blockHash": 8}"#).unwrap_err();
        assert!(twice.to_string().contains("duplicate field `blockHash`"));
        let unknown = read::<Outer<'_>>(r#"{"innerOne": {}, "innerTwo": {}}"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `innerTwo`"));
        let ignored = read::<Inner>(r#"{"blockHsh": 7}"#).unwrap();
        assert_eq!(ignored, Inner::default());
        assert!(read::<Inner>("{} {}").is_err(), "all of it is read");
    }

    #[test]
    fn named_fields_must_be_quantities_at_any_depth() {
        type Fields = BTreeMap<String, Option<String>>;
        let read = |json| read_with::<Vec<Fields>>(json, &["gas"]);
        let fields = read(r#"[{"gas": "0x10", "name": "16"}, {"gas": null}]"#).unwrap();
        assert_eq!(fields[0]["gas"].as_deref(), Some("0x10"));
        assert_eq!(fields[1]["gas"], None);
        for json in [
            r#"[{"gas": "16"}]"#,
            r#"[{"gas": "0x01"}]"#,
            r#"[{"gas": 16}]"#,
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
