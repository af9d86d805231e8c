//! What is sent: made by chance from exchanges that are right, the same for the same seed.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// By which way something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Http,
    WebSocket,
    Ipc,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A few bytes changed, left out, put in or said twice.
    Bytes,
    /// JSON still, with values that do not belong.
    Values,
    /// Very many requests in one.
    Batch,
    /// Lists in lists, or objects in objects.
    Nested,
    /// Bytes that are no UTF-8 inside of strings.
    Encoding,
    /// Megabytes where a word belongs.
    Long,
    /// Cut off, and nothing more comes.
    Half,
    /// Right, but a few bytes at a time.
    Slow,
    /// Headers, lengths and frames that do not fit.
    Wire,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Bytes,
        Self::Values,
        Self::Batch,
        Self::Nested,
        Self::Encoding,
        Self::Long,
        Self::Half,
        Self::Slow,
        Self::Wire,
    ];

    /// Out of a hundred cases; those that take long are few.
    const fn weight(self) -> u32 {
        match self {
            Self::Bytes => 30,
            Self::Values => 30,
            Self::Encoding | Self::Half | Self::Wire => 10,
            Self::Nested => 4,
            Self::Batch | Self::Long | Self::Slow => 2,
        }
    }
}

/// One thing to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) way: Way,
    pub(super) kind: Kind,
    /// A request, or what was made of one.
    pub(super) body: Vec<u8>,
    /// For what the way itself decides by chance.
    pub(super) seed: u64,
}

impl Case {
    /// The case of this number; `requests` are right.
    pub(super) fn new(seed: u64, number: u64, requests: &[String]) -> Self {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
        let mut chance = SmallRng::seed_from_u64(seed);
        let ways = [Way::Http, Way::Http, Way::WebSocket, Way::Ipc];
        let way = *ways.choose(&mut chance).unwrap_or(&Way::Http);
        let kind = kind(&mut chance);
        let good = requests.choose(&mut chance).map_or("{}", String::as_str);
        Self {
            way,
            kind,
            body: body(kind, good, requests, &mut chance),
            seed: chance.random(),
        }
    }
}

fn kind(chance: &mut SmallRng) -> Kind {
    let total: u32 = Kind::ALL.iter().map(|kind| kind.weight()).sum();
    let mut left = chance.random_range(0..total);
    for kind in Kind::ALL {
        if left < kind.weight() {
            return kind;
        }
        left -= kind.weight();
    }
    Kind::Bytes
}

fn body(kind: Kind, good: &str, requests: &[String], chance: &mut SmallRng) -> Vec<u8> {
    match kind {
        Kind::Bytes => bytes(good, requests, chance),
        Kind::Values => values(good, chance),
        Kind::Batch => {
            let count = *[2, 100, 1_024, 1_025, 20_000].choose(chance).unwrap_or(&2);
            let items: Vec<&str> = (0..count)
                .map(|_| requests.choose(chance).map_or("{}", String::as_str))
                .collect();
            // Those of one request are as good, and take less of the node's time.
            let few: Vec<&str> = items.iter().copied().take(16).cycle().take(count).collect();
            format!("[{}]", few.join(",")).into_bytes()
        }
        Kind::Nested => nested(chance),
        Kind::Encoding => {
            let mut body = good.as_bytes().to_vec();
            for _ in 0..chance.random_range(1..8) {
                let at = chance.random_range(0..=body.len());
                body.insert(at, chance.random_range(0x80..=0xff));
            }
            body
        }
        Kind::Long => {
            let length = chance.random_range(1 << 16..8 << 20);
            let digit = *["0", "f", "\\u0000", " ", "9"]
                .choose(chance)
                .unwrap_or(&"0");
            let word = digit.repeat(length / digit.len());
            let method = if chance.random() { "eth_call" } else { &word };
            let id = if chance.random() {
                "1"
            } else {
                &format!("\"{word}\"")
            };
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":[\"0x{word}\"]}}"
            )
            .into_bytes()
        }
        Kind::Half | Kind::Slow | Kind::Wire => good.as_bytes().to_vec(),
    }
}

fn bytes(good: &str, requests: &[String], chance: &mut SmallRng) -> Vec<u8> {
    let mut body = good.as_bytes().to_vec();
    for _ in 0..chance.random_range(1..6) {
        let at = chance.random_range(0..=body.len());
        let end = body.len().min(at + chance.random_range(0..24));
        match chance.random_range(0..5) {
            0 => drop(body.drain(at..end)),
            1 => body.insert(at, chance.random()),
            2 => {
                let part = body[at..end].to_vec();
                body.splice(at..at, part);
            }
            3 => {
                let odd = *ODD_TEXTS.choose(chance).unwrap_or(&"");
                body.splice(at..at, odd.bytes());
            }
            _ => {
                let other = requests
                    .choose(chance)
                    .map_or("", String::as_str)
                    .as_bytes();
                let from = chance.random_range(0..=other.len());
                body.truncate(at);
                body.extend_from_slice(&other[from..]);
            }
        }
    }
    body
}

const ODD_TEXTS: [&str; 14] = [
    "\"", "\\", "{", "}", "[", "]", ",", ":", "null", "1e999", "-0", "\\ud800", "0x", "\u{feff}",
];

fn values(good: &str, chance: &mut SmallRng) -> Vec<u8> {
    let mut value: Value = serde_json::from_str(good).unwrap_or_default();
    for _ in 0..chance.random_range(1..4) {
        let depth = chance.random_range(1..6);
        // The name of the method stays, most of the time.
        let place = match value.get_mut("params") {
            Some(params) if chance.random_ratio(9, 10) => params,
            _ => &mut value,
        };
        replace(place, depth, chance);
    }
    value.to_string().into_bytes()
}

/// Goes down by chance, and puts something odd there.
fn replace(value: &mut Value, depth: u32, chance: &mut SmallRng) {
    let below = match value {
        Value::Array(items) if depth > 0 && !items.is_empty() => {
            let index = chance.random_range(0..items.len());
            items.get_mut(index)
        }
        Value::Object(fields) if depth > 0 && !fields.is_empty() => {
            let index = chance.random_range(0..fields.len());
            fields.values_mut().nth(index)
        }
        _ => None,
    };
    match below {
        Some(below) => replace(below, depth - 1, chance),
        None => *value = odd(value, chance),
    }
}

fn odd(old: &Value, chance: &mut SmallRng) -> Value {
    match chance.random_range(0..12) {
        0 => Value::Null,
        1 => json!(chance.random::<bool>()),
        2 => json!(chance.random::<u64>()),
        3 => json!(-1),
        4 => json!(format!(
            "{:#x}",
            chance.random::<u64>() >> chance.random_range(0..64)
        )),
        5 => json!(format!("0x{}", "f".repeat(chance.random_range(0..140)))),
        6 => json!("latest"),
        7 => json!(["", "0x", "0X1", "0x0g", "\u{0}", "earliest"].choose(chance)),
        8 => json!([]),
        9 => json!({}),
        10 => json!([old, old, old]),
        _ => json!({ "from": old, "to": old, "fromBlock": "0x0", "toBlock": old }),
    }
}

fn nested(chance: &mut SmallRng) -> Vec<u8> {
    let depth = *[10, 127, 128, 1_000, 300_000].choose(chance).unwrap_or(&10);
    let (open, close) = if chance.random() {
        ("[", "]")
    } else {
        ("{\"a\":", "}")
    };
    let inside = if open == "[" { "" } else { "1" };
    // Half of them end as they should.
    let ends = if chance.random() { depth } else { depth / 2 };
    let deep = [&open.repeat(depth), inside, &close.repeat(ends)].concat();
    match chance.random_range(0..3) {
        0 => deep.into_bytes(),
        1 => {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{deep},\"method\":\"eth_chainId\"}}").into_bytes()
        }
        _ => {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_call\",\"params\":[{deep}]}}")
                .into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_cases_and_every_kind_comes() {
        let requests: Vec<String> = ["eth_call", "eth_getLogs"]
            .map(|method| json!({"id": 1, "method": method, "params": [{"to": "0x1"}]}).to_string())
            .into();
        let case = |seed, number| Case::new(seed, number, &requests);
        let mut seen = Vec::new();
        for number in 0..600 {
            let made = case(7, number);
            assert_eq!(made, case(7, number));
            if !seen.contains(&made.kind) {
                seen.push(made.kind);
            }
        }
        assert_eq!(seen.len(), Kind::ALL.len());
        assert_ne!(case(7, 1), case(8, 1));
    }
}
