//! Test cases: valid requests mutated at random, the same for the same seed.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// How a case reaches the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Http,
    WebSocket,
    Ipc,
}

/// What is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A few bytes changed, removed, inserted or repeated.
    Bytes,
    /// Valid JSON with wrong values.
    Values,
    /// A batch of very many requests.
    Batch,
    /// Deeply nested arrays or objects.
    Nested,
    /// Bytes that are not UTF-8.
    Encoding,
    /// Megabytes in a string that is normally short.
    Long,
    /// Truncated; the rest is never sent.
    Half,
    /// Valid, but sent a few bytes at a time.
    Slow,
    /// Wrong HTTP headers, lengths or WebSocket frames.
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

    /// Cases per hundred; slow ones are rare.
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

/// One test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) transport: Transport,
    pub(super) kind: Kind,
    /// A request, valid or mutated.
    pub(super) body: Vec<u8>,
    /// Seed of the random choices of the transport.
    pub(super) seed: u64,
}

impl Case {
    /// The case of this number, made from the valid `requests`.
    pub(super) fn new(seed: u64, number: u64, requests: &[String]) -> Self {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
        let mut rng = SmallRng::seed_from_u64(seed);
        let transports = [
            Transport::Http,
            Transport::Http,
            Transport::WebSocket,
            Transport::Ipc,
        ];
        let transport = *transports.choose(&mut rng).unwrap_or(&Transport::Http);
        let kind = kind(&mut rng);
        let valid = requests.choose(&mut rng).map_or("{}", String::as_str);
        Self {
            transport,
            kind,
            body: body(kind, valid, requests, &mut rng),
            seed: rng.random(),
        }
    }
}

fn kind(rng: &mut SmallRng) -> Kind {
    let total: u32 = Kind::ALL.iter().map(|kind| kind.weight()).sum();
    let mut left = rng.random_range(0..total);
    for kind in Kind::ALL {
        if left < kind.weight() {
            return kind;
        }
        left -= kind.weight();
    }
    Kind::Bytes
}

fn body(kind: Kind, valid: &str, requests: &[String], rng: &mut SmallRng) -> Vec<u8> {
    match kind {
        Kind::Bytes => bytes(valid, requests, rng),
        Kind::Values => values(valid, rng),
        Kind::Batch => {
            let count = *[2, 100, 1_024, 1_025, 20_000].choose(rng).unwrap_or(&2);
            let items: Vec<&str> = (0..count)
                .map(|_| requests.choose(rng).map_or("{}", String::as_str))
                .collect();
            // Repeating 16 different requests is as good a test and costs the node less time.
            let repeated: Vec<&str> = items.iter().copied().take(16).cycle().take(count).collect();
            format!("[{}]", repeated.join(",")).into_bytes()
        }
        Kind::Nested => nested(rng),
        Kind::Encoding => {
            let mut body = valid.as_bytes().to_vec();
            for _ in 0..rng.random_range(1..8) {
                let at = rng.random_range(0..=body.len());
                body.insert(at, rng.random_range(0x80..=0xff));
            }
            body
        }
        Kind::Long => {
            let length = rng.random_range(1 << 16..8 << 20);
            let digit = *["0", "f", "\\u0000", " ", "9"].choose(rng).unwrap_or(&"0");
            let word = digit.repeat(length / digit.len());
            let method = if rng.random() { "eth_call" } else { &word };
            let id = if rng.random() {
                "1"
            } else {
                &format!("\"{word}\"")
            };
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":[\"0x{word}\"]}}"
            )
            .into_bytes()
        }
        Kind::Half | Kind::Slow | Kind::Wire => valid.as_bytes().to_vec(),
    }
}

fn bytes(valid: &str, requests: &[String], rng: &mut SmallRng) -> Vec<u8> {
    let mut body = valid.as_bytes().to_vec();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=body.len());
        let end = body.len().min(at + rng.random_range(0..24));
        match rng.random_range(0..5) {
            0 => drop(body.drain(at..end)),
            1 => body.insert(at, rng.random()),
            2 => {
                let part = body[at..end].to_vec();
                body.splice(at..at, part);
            }
            3 => {
                let token = *ODD_TOKENS.choose(rng).unwrap_or(&"");
                body.splice(at..at, token.bytes());
            }
            _ => {
                let other = requests.choose(rng).map_or("", String::as_str).as_bytes();
                let from = rng.random_range(0..=other.len());
                body.truncate(at);
                body.extend_from_slice(&other[from..]);
            }
        }
    }
    body
}

const ODD_TOKENS: [&str; 14] = [
    "\"", "\\", "{", "}", "[", "]", ",", ":", "null", "1e999", "-0", "\\ud800", "0x", "\u{feff}",
];

fn values(valid: &str, rng: &mut SmallRng) -> Vec<u8> {
    let mut value: Value = serde_json::from_str(valid).unwrap_or_default();
    for _ in 0..rng.random_range(1..4) {
        let depth = rng.random_range(1..6);
        // Nine times of ten the method name stays valid.
        let target = match value.get_mut("params") {
            Some(params) if rng.random_ratio(9, 10) => params,
            _ => &mut value,
        };
        replace(target, depth, rng);
    }
    value.to_string().into_bytes()
}

/// Walks down a random path of at most `depth` steps and replaces the value there.
fn replace(value: &mut Value, depth: u32, rng: &mut SmallRng) {
    let below = match value {
        Value::Array(items) if depth > 0 && !items.is_empty() => {
            let index = rng.random_range(0..items.len());
            items.get_mut(index)
        }
        Value::Object(fields) if depth > 0 && !fields.is_empty() => {
            let index = rng.random_range(0..fields.len());
            fields.values_mut().nth(index)
        }
        _ => None,
    };
    match below {
        Some(below) => replace(below, depth - 1, rng),
        None => *value = unusual_value(value, rng),
    }
}

fn unusual_value(old: &Value, rng: &mut SmallRng) -> Value {
    match rng.random_range(0..12) {
        0 => Value::Null,
        1 => json!(rng.random::<bool>()),
        2 => json!(rng.random::<u64>()),
        3 => json!(-1),
        4 => json!(format!(
            "{:#x}",
            rng.random::<u64>() >> rng.random_range(0..64)
        )),
        5 => json!(format!("0x{}", "f".repeat(rng.random_range(0..140)))),
        6 => json!("latest"),
        7 => json!(["", "0x", "0X1", "0x0g", "\u{0}", "earliest"].choose(rng)),
        8 => json!([]),
        9 => json!({}),
        10 => json!([old, old, old]),
        _ => json!({ "from": old, "to": old, "fromBlock": "0x0", "toBlock": old }),
    }
}

fn nested(rng: &mut SmallRng) -> Vec<u8> {
    let depth = *[10, 127, 128, 1_000, 300_000].choose(rng).unwrap_or(&10);
    let (open, close) = if rng.random() {
        ("[", "]")
    } else {
        ("{\"a\":", "}")
    };
    let inside = if open == "[" { "" } else { "1" };
    // Half of the cases close every bracket.
    let ends = if rng.random() { depth } else { depth / 2 };
    let deep = [&open.repeat(depth), inside, &close.repeat(ends)].concat();
    match rng.random_range(0..3) {
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
    fn case_depends_on_seed_and_number_only_and_600_cases_cover_every_kind() {
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
