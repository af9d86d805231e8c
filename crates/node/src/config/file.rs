//! A configuration file in TOML: keys with their values as text, and their lines.
//!
//! Headings (`[TxPool]`, `[rpc.ws]`, dotted keys) have no meaning, as in Besu. This file does not know what
//! a key means.

use eyre::{Result, eyre};
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key, without its headings.
    pub(super) key: String,
    /// Its values; one, unless it is a list.
    pub(super) values: Vec<String>,
    pub(super) location: Location,
}

/// Line and heading of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) line: usize,
    heading: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match self.heading.as_str() {
            "" => Ok(()),
            heading => write!(f, " under [{heading}]"),
        }
    }
}

/// The entries of a file with this text, in the order of its lines. `file` names it in errors.
pub(super) fn entries(text: &str, file: &str) -> Result<Vec<Entry>> {
    let table = DeTable::parse(text).map_err(|error| {
        let before = text.get(..error.span().map_or(0, |span| span.start));
        let line = line_of(before.unwrap_or_default());
        eyre!("{file} is not TOML: {}, in line {line}", error.message())
    })?;
    let mut found = Vec::new();
    flatten(text, file, "", table.get_ref(), &mut found)?;
    found.sort_by_key(|entry: &Entry| entry.location.line);
    Ok(found)
}

fn flatten(
    text: &str,
    file: &str,
    heading: &str,
    table: &DeTable<'_>,
    found: &mut Vec<Entry>,
) -> Result<()> {
    for (key, value) in table {
        let name: &str = key.get_ref();
        if let DeValue::Table(below) = value.get_ref() {
            let heading = match heading {
                "" => name.to_owned(),
                above => format!("{above}.{name}"),
            };
            flatten(text, file, &heading, below, found)?;
            continue;
        }
        let location = Location {
            line: line_of(text.get(..key.span().start).unwrap_or_default()),
            heading: heading.to_owned(),
        };
        let values = values_of(value).ok_or_else(|| {
            eyre!(
                "{file} gives {name} a value of the type {} in {location}; give it a string, a number, \
                 true or false, or a list of them",
                value.get_ref().type_str()
            )
        })?;
        found.push(Entry {
            key: name.to_owned(),
            values,
            location,
        });
    }
    Ok(())
}

/// The number of the line that `before` ends in.
fn line_of(before: &str) -> usize {
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}

fn values_of(value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    match value.get_ref() {
        DeValue::Array(items) => {
            let items = items.iter().map(|item| text_of(item.get_ref()));
            items.collect()
        }
        value => text_of(value).map(|text| vec![text]),
    }
}

/// A value as the command line writes it. Numbers may be larger than TOML's 64 bits.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => match number.radix() {
            10 => number.as_str().replace(['_', '+'], ""),
            radix => u128::from_str_radix(&number.as_str().replace('_', ""), radix)
                .ok()?
                .to_string(),
        },
        DeValue::Float(number) => number.as_str().replace('_', ""),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Entry>> {
        entries(text, "the file x")
    }

    #[test]
    fn headings_and_dotted_keys_are_ignored_and_lines_reported() {
        let text = "a = 1\n[Node]\nb = true\n\n[rpc.ws]\nc = ['x', 'y']\nd.e = 2\n";
        let found = read(text).unwrap();
        let read: Vec<_> = found
            .iter()
            .map(|entry| {
                (
                    entry.key.as_str(),
                    entry.values.join("|"),
                    entry.location.to_string(),
                )
            })
            .collect();
        assert_eq!(
            read,
            [
                ("a", "1".to_owned(), "line 1".to_owned()),
                ("b", "true".to_owned(), "line 3 under [Node]".to_owned()),
                ("c", "x|y".to_owned(), "line 6 under [rpc.ws]".to_owned()),
                ("e", "2".to_owned(), "line 7 under [rpc.ws.d]".to_owned()),
            ]
        );
    }

    #[test]
    fn numbers_may_have_underscores_a_radix_and_more_than_64_bits() {
        let text = "a = 100_000\nb = 0xff\nc = 20000000000000000000000\nd = 0.5\ne = +7\nf = -128";
        let values: Vec<_> = read(text)
            .unwrap()
            .into_iter()
            .map(|entry| entry.values.join(","))
            .collect();
        let right = [
            "100000",
            "255",
            "20000000000000000000000",
            "0.5",
            "7",
            "-128",
        ];
        assert_eq!(values, right);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        let date = error("\n[a]\nb = 1979-05-27\n");
        assert!(
            date.contains("gives b a value of the type datetime in line 3 under [a]"),
            "{date}"
        );
        let broken = error("a = 1\nb = \n");
        assert!(
            broken.contains("is not TOML") && broken.contains("line 2"),
            "{broken}"
        );
        let twice = error("a = 1\na = 2\n");
        assert!(
            twice.contains("duplicate key") && twice.contains("line 2"),
            "{twice}"
        );
    }
}
