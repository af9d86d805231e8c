//! Typed access to the fields of a JSON object; errors name the path of the field.

use eyre::{Result, bail, ensure, eyre};
use niwaki_primitives::{Address, B256, Bytes, U256, hex};
use serde_json::Value;
use std::collections::HashMap;

/// The keys that a kind of object may have.
pub(crate) struct ObjectKeys {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

/// An object with case-insensitive keys.
pub(crate) struct Fields<'a> {
    path: &'a str,
    values: HashMap<String, &'a Value>,
}

impl<'a> Fields<'a> {
    /// Fails unless `json` is an object whose keys are among `allowed`, each once.
    pub(crate) fn new(json: &'a Value, path: &'a str, allowed: &ObjectKeys) -> Result<Self> {
        let at = if path.is_empty() { allowed.name } else { path };
        let Value::Object(object) = json else {
            bail!("{at} is not a JSON object");
        };
        let mut values = HashMap::new();
        for (key, value) in object {
            let known = allowed.keys.iter().find(|k| k.eq_ignore_ascii_case(key));
            let Some(known) = known else {
                let keys = allowed.keys.join(", ");
                bail!("{at} has the key {key}; {} has {keys}", allowed.name);
            };
            let before = values.insert((*known).to_owned(), value);
            ensure!(before.is_none(), "{at} has the key {known} twice");
        }
        Ok(Self { path, values })
    }

    /// A list; `parse` gets each item and its path. An absent list is empty.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        parse: impl Fn(&Value, &str) -> Result<T>,
    ) -> Result<Vec<T>> {
        let path = self.path_of(key);
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| parse(item, &format!("{path}[{index}]")))
                    .collect()
            }
            Some(_) => bail!("{path} is not a list"),
        }
    }

    pub(crate) fn u64(&self, key: &str) -> Result<Option<u64>> {
        let number = self.u256(key)?;
        number
            .map(|number| {
                u64::try_from(number)
                    .map_err(|_| eyre!("{} = {number} does not fit in 64 bits", self.path_of(key)))
            })
            .transpose()
    }

    /// A number: `12`, `"12"` or `"0x0c"`.
    pub(crate) fn u256(&self, key: &str) -> Result<Option<U256>> {
        self.text(key, |text| match text.strip_prefix("0x") {
            Some(digits) => U256::from_str_radix(digits, 16).ok(),
            None => U256::from_str_radix(text, 10).ok(),
        })
        .map_err(|text| eyre!("{} = {text} is not a number of 256 bits", self.path_of(key)))
    }

    /// 32 bytes in hex; fewer are padded with zeros on the left.
    pub(crate) fn b256(&self, key: &str) -> Result<Option<B256>> {
        self.text(key, |text| {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let value = U256::from_str_radix(digits, 16).ok()?;
            Some(B256::from(value))
        })
        .map_err(|text| eyre!("{} = {text} is not 32 bytes in hex", self.path_of(key)))
    }

    pub(crate) fn address(&self, key: &str) -> Result<Option<Address>> {
        self.text(key, |text| {
            let bytes: [u8; 20] = hex::decode_to_array(text).ok()?;
            Some(Address::from(bytes))
        })
        .map_err(|text| eyre!("{} = {text} is not 20 bytes in hex", self.path_of(key)))
    }

    pub(crate) fn bytes(&self, key: &str) -> Result<Option<Bytes>> {
        self.text(key, |text| hex::decode(text).ok().map(Bytes::from))
            .map_err(|text| eyre!("{} = {text} is not hex", self.path_of(key)))
    }

    /// Parses a string, or a number as it is written; `Err` is the value that `parse` refused.
    fn text<T>(&self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
        let text = match self.values.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(shortened(&other.to_string())),
        };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(shortened(&text)),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
