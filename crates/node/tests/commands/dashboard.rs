//! The dashboard: its page, its data, and who may see them.

use crate::access::{token_of, with_alice};
use crate::engine::{build, send_payload};
use crate::running::{Node, post, request};
use crate::support::{HEAD, TestDir};
use serde_json::{Value, json};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"niwaki_dashboard","params":[0,0]}"#;

#[test]
fn the_page_and_its_data_are_there_if_enabled() {
    let node = Node::with_chain_and("--dashboard-enabled --rpc-http-api=ETH,NET");
    for path in ["/dashboard", "/dashboard/app.js", "/dashboard/uPlot.css"] {
        let (status, body) = request(node.http, "GET", path, "", &[]);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.len() > 1_000, "{path}");
    }
    assert_eq!(
        request(node.http, "GET", "/dashboard/other.js", "", &[]).0,
        404
    );
    let built = build(&node, HEAD, 600);
    assert_eq!(send_payload(&node, &built)["status"], "VALID");
    let data = node.result("niwaki_dashboard", json!([]));
    assert_eq!(data["head"]["number"], 54);
    assert_eq!(data["blocks"].as_array().unwrap().len(), 1);
    assert_eq!(data["blocks"][0][2], 55, "the number of the imported block");
    assert_eq!(data["slow"].as_array().unwrap().len(), 1);
    assert_eq!(data["validator"], Value::Null);
    assert!(data["machine"]["residentBytes"].as_u64() > Some(1 << 20));
    let lines = data["machine"]["lines"].as_array().unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line["text"].as_str().unwrap().starts_with("Imported block"))
    );
    // Nothing is sent twice.
    let (block, line) = (&data["blocks"][0][0], &lines[lines.len() - 1]["number"]);
    let again = node.result("niwaki_dashboard", json!([block, line]));
    assert_eq!(again["blocks"], json!([]));
    assert!(again["machine"]["lines"].as_array().unwrap().len() < lines.len());
    let wrong = node.call("niwaki_dashboard", json!(["one"]));
    assert_eq!(wrong["error"]["code"], -32602);
}

#[test]
fn the_page_may_call_its_own_server_and_no_other_page_may() {
    let node = Node::with_chain_and("--dashboard-enabled");
    let from = |origin: &str| {
        post(
            node.http,
            CALL,
            &[("host", "localhost:8545"), ("origin", origin)],
        )
        .0
    };
    assert_eq!(from("http://localhost:8545"), 200);
    assert_eq!(from("http://localhost:3000"), 403);
    assert_eq!(from("http://evil.example"), 403);
}

#[test]
fn without_the_flag_there_is_neither_page_nor_data() {
    let node = Node::with_chain_and("--rpc-http-api=ETH,NIWAKI");
    assert_eq!(request(node.http, "GET", "/dashboard", "", &[]).0, 404);
    let refused = node.call("niwaki_dashboard", json!([]));
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("--dashboard-enabled"), "{words}");
}

#[test]
fn it_needs_json_rpc_over_http() {
    let dir = TestDir::new();
    let run = dir.run("--rpc-http-enabled=false --dashboard-enabled", &[]);
    run.failed(&["--dashboard-enabled needs --rpc-http-enabled"]);
}

#[test]
fn with_users_the_page_opens_and_the_data_asks_for_a_token_with_the_permission() {
    let flags = "--dashboard-enabled --rpc-http-authentication-enabled --rpc-http-authentication-credentials-file=FILE";
    let node = with_alice(flags);
    assert_eq!(request(node.http, "GET", "/dashboard", "", &[]).0, 200);
    assert_eq!(post(node.http, CALL, &[]).0, 401);
    let token = format!("Bearer {}", token_of(node.http, "alice", "secret"));
    let (status, body) = post(node.http, CALL, &[("authorization", &token)]);
    assert_eq!(status, 401, "she may call eth: {body}");
}
