//! GraphQL from the command line: its port, its path, its limits.

use crate::running::{Node, request};
use crate::support::TestDir;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A node on a chain of 54 blocks, and where it serves GraphQL.
fn node(flags: &str) -> (Node, SocketAddr) {
    let flags = format!("--graphql-http-enabled --graphql-http-port=0 {flags}");
    let node = Node::with_chain_and(&flags);
    let mut lines = node.start_log.iter().map(|line| &line["fields"]);
    let line = lines.find(|fields| fields["message"] == "GraphQL over HTTP");
    let address = line.expect("a line")["address"].as_str().unwrap();
    let address = address.parse().expect("an address");
    (node, address)
}

fn ask(address: SocketAddr, query: &str) -> (u16, Value) {
    let body = json!({ "query": query }).to_string();
    let json = [("content-type", "application/json")];
    let (status, body) = request(address, "POST", "/graphql", &body, &json);
    (status, serde_json::from_str(&body).expect("JSON"))
}

#[test]
fn graphql_answers_at_its_own_port_and_path() {
    let (node, address) = node("--graphql-max-blocks-range=5");
    let (status, answer) = ask(address, "{ block { number } chainID }");
    assert_eq!(
        (status, &answer["data"]["block"]["number"]),
        (200, &json!("0x36"))
    );
    let (status, answer) = ask(address, "{ blocks(from: 50) { number } }");
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = ask(address, "{ blocks(from: 49) { number } }");
    assert_eq!(status, 400);
    assert!(
        answer.to_string().contains("--graphql-max-blocks-range"),
        "{answer}"
    );
    let get = "/graphql?query=%7Bblock(number%3A3)%7Bnumber%7D%7D";
    let (status, body) = request(address, "GET", get, "", &[]);
    assert_eq!(
        (status, body.as_str()),
        (200, r#"{"data":{"block":{"number":"0x3"}}}"#)
    );
    let change = "/graphql?query=mutation%7BsendRawTransaction(data%3A%220x00%22)%7D";
    assert_eq!(request(address, "GET", change, "", &[]).0, 405);
    assert_eq!(request(address, "PUT", "/graphql", "", &[]).0, 405);
    assert_eq!(request(address, "POST", "/graphql", "{", &[]).0, 400);
    // Nothing else is served there, and no GraphQL elsewhere.
    assert_eq!(request(address, "POST", "/", "{}", &[]).0, 405);
    assert_eq!(request(node.http, "GET", get, "", &[]).0, 404);
}

#[test]
fn hosts_and_origins_are_checked() {
    let (_node, address) = node("--graphql-http-cors-origins=http://a.example");
    let get = "/graphql?query=%7BchainID%7D";
    let from = |headers: &[(&str, &str)]| request(address, "GET", get, "", headers).0;
    assert_eq!(from(&[("host", "evil.example")]), 403);
    assert_eq!(from(&[("origin", "http://a.example")]), 200);
    assert_eq!(from(&[("origin", "http://b.example")]), 403);
}

#[test]
fn flags_of_tls_that_contradict_each_other_stop_the_start() {
    for (flags, words) in [
        (
            "--graphql-tls-enabled",
            "--graphql-tls-enabled needs --graphql-tls-keystore-file",
        ),
        (
            "--graphql-mtls-enabled",
            "--graphql-mtls-enabled needs --graphql-tls-enabled",
        ),
    ] {
        let dir = TestDir::new();
        let flags = format!("--graphql-http-enabled --graphql-http-port=0 {flags}");
        dir.run(&flags, &[]).failed(&[words]);
    }
}
