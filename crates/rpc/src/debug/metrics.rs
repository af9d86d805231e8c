//! `debug_metrics`: every metric in the tree that Besu returns: category, name, then the values of its labels.

use crate::params::Params;
use crate::{Backend, RpcError};
use serde_json::{Map, Value};

/// Besu's categories of more than one word, by the names of its metrics.
const LONG_CATEGORIES: [&str; 1] = ["transaction_pool"];

/// Empty if no metrics are recorded.
pub(super) fn metrics(
    backend: &Backend,
    _: &Params<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RpcError> {
    let text = backend.operator().metrics().unwrap_or_default();
    serde_json::to_writer(out, &tree(&text))
        .map_err(|error| RpcError::internal(format!("can't write the metrics: {error}")))
}

/// The tree of metrics in Prometheus' text form; other lines are skipped.
fn tree(text: &str) -> Value {
    let mut root = Map::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let (name, labels) = match name.split_once('{') {
            Some((name, labels)) => (name, label_values(labels)),
            None => (name, Vec::new()),
        };
        let (category, name) = split(name);
        let mut path = vec![category, name];
        path.extend(labels.iter().map(String::as_str));
        put(&mut root, &path, number(value));
    }
    Value::Object(root)
}

/// The values of labels such as `method="eth_call",quantile="0.5"}`, in their order.
fn label_values(labels: &str) -> Vec<String> {
    let (mut values, mut rest) = (Vec::new(), labels);
    while let Some((_, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next() {
                Some((at, '"')) => break at + 1,
                Some((_, '\\')) => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, letter)) => value.push(letter),
                    None => break after.len(),
                },
                Some((_, letter)) => value.push(letter),
                None => break after.len(),
            }
        };
        values.push(value);
        rest = &after[end..];
    }
    values
}

/// Category and name of a metric within it.
fn split(name: &str) -> (&str, &str) {
    let Some(rest) = name.strip_prefix("besu_") else {
        return name.split_once('_').unwrap_or(("default", name));
    };
    let long = LONG_CATEGORIES.iter().find_map(|category| {
        let name = rest.strip_prefix(category)?.strip_prefix('_')?;
        Some((*category, name))
    });
    long.or_else(|| rest.split_once('_'))
        .unwrap_or(("default", rest))
}

/// An integer or a float; a value that JSON can't express as a number becomes a string.
fn number(text: &str) -> Value {
    if let Ok(whole) = text.parse::<u64>() {
        return Value::from(whole);
    }
    let float = text.parse().ok().and_then(serde_json::Number::from_f64);
    float.map_or_else(|| Value::from(text), Value::Number)
}

/// Inserts a value. If there are values below its path, it goes under the empty name.
fn put(map: &mut Map<String, Value>, path: &[&str], value: Value) {
    let [first, rest @ ..] = path else {
        map.insert(String::new(), value);
        return;
    };
    if rest.is_empty() && !map.get(*first).is_some_and(Value::is_object) {
        map.insert((*first).to_owned(), value);
        return;
    }
    let inner = map
        .entry(*first)
        .or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        let value = inner.take();
        *inner = Value::Object(Map::from_iter([(String::new(), value)]));
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_are_nested_by_category_name_and_labels() {
        let text = "# HELP besu_rpc_request_time x\n# TYPE besu_rpc_request_time summary\n\
            besu_rpc_request_time{methodName=\"eth_call\",quantile=\"0.5\"} 0.25\n\
            besu_rpc_request_time_sum{methodName=\"eth_call\"} 3\n\n\
            besu_transaction_pool_transactions 7\n\
            besu_blockchain_difficulty +Inf\n\
            ethereum_blockchain_height 12\n\
            niwaki_cache_hits_total{cache=\"a \\\"b\\\", c\"} 1\n\
            niwaki_odd 1\nniwaki_odd{a=\"b\"} 2\nlonely 4\n";
        assert_eq!(
            tree(text),
            json!({
                "rpc": {
                    "request_time": {"eth_call": {"0.5": 0.25}},
                    "request_time_sum": {"eth_call": 3},
                },
                "transaction_pool": {"transactions": 7},
                "blockchain": {"difficulty": "+Inf"},
                "ethereum": {"blockchain_height": 12},
                "niwaki": {
                    "cache_hits_total": {"a \"b\", c": 1},
                    "odd": {"": 1, "b": 2},
                },
                "default": {"lonely": 4},
            })
        );
        assert_eq!(tree(""), json!({}));
        assert_eq!(
            tree("{{{ \n=\" 1\n} 2\nx{a=\"\\ 3"),
            tree("{{{ \n=\" 1\n} 2\nx{a=\"\\ 3")
        );
    }
}
