//! `rpc.discover`: an OpenRPC document of the methods that are offered.
//!
//! Spec: https://spec.open-rpc.org, version 1.3.2.

use crate::json::{Array, Object};
use crate::methods::{CONNECTION_METHODS, Method};

/// The version of the specification that the document follows.
const OPENRPC: &str = "1.3.2";

/// Writes the document of `methods`, ascending by name, as served by `title`.
pub(crate) fn write(out: &mut Vec<u8>, methods: &[&Method], title: &str, version: &str) {
    let mut document = Object::new(out);
    document.string("openrpc", OPENRPC);
    let mut info = document.object("info");
    info.string("title", title);
    info.string("version", version);
    drop(info);
    let mut list = document.array("methods");
    let has_subscriptions = methods
        .iter()
        .any(|method| method.name == "eth_blockNumber");
    for method in methods {
        write_method(&mut list, method.name, method.params);
    }
    for (name, params) in CONNECTION_METHODS {
        if has_subscriptions || !name.starts_with("eth_") {
            write_method(&mut list, name, params);
        }
    }
}

fn write_method(methods: &mut Array<'_>, name: &str, params: &str) {
    let mut method = methods.object();
    method.string("name", name);
    method.string("paramStructure", "by-position");
    let mut list = method.array("params");
    for param in params.split_whitespace() {
        let name = param.trim_end_matches(['?', '*']);
        let mut object = list.object();
        object.string("name", name);
        object.boolean("required", name == param);
        drop(object.object("schema"));
    }
    drop(list);
    let mut result = method.object("result");
    result.string("name", "result");
    drop(result.object("schema"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods;
    use serde_json::Value;

    #[test]
    fn required_parameters_precede_optional_ones() {
        let rows = methods::all().map(|method| (method.name, method.params));
        for (name, params) in rows.chain(CONNECTION_METHODS) {
            let optional = params.split_whitespace().map(|param| param.ends_with('?'));
            assert!(optional.is_sorted(), "{name}: {params}");
        }
    }

    #[test]
    fn the_document_lists_the_offered_methods_only() {
        let mut out = Vec::new();
        let offered = ["net_version", "web3_sha3"];
        let offered: Vec<&Method> = methods::all()
            .filter(|method| offered.contains(&method.name))
            .collect();
        write(&mut out, &offered, "niwaki", "v1");
        let document: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["info"]["title"], "niwaki");
        let listed = document["methods"].as_array().unwrap();
        let names: Vec<&str> = listed.iter().map(|m| m["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["net_version", "web3_sha3", "rpc.discover", "rpc_modules"]
        );
        assert_eq!(listed[1]["params"][0]["name"], "data");
        assert_eq!(listed[1]["params"][0]["required"], true);
    }
}
