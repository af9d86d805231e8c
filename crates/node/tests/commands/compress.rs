//! gzip responses for clients that accept them.

use crate::running::Node;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Head, body without chunk framing, and whether the body is complete.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn is_compressed(&self) -> bool {
        self.head.to_lowercase().contains("content-encoding: gzip")
    }

    fn value(&self) -> Value {
        let mut text = Vec::new();
        match self.is_compressed() {
            true => drop(
                GzDecoder::new(&self.body[..])
                    .read_to_end(&mut text)
                    .unwrap(),
            ),
            false => text.clone_from(&self.body),
        }
        serde_json::from_slice(&text).unwrap()
    }
}

fn ask(address: SocketAddr, body: &Value, more: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let end = response
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let body = &response[end + 4..];
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => joined(body),
        false => body.to_vec(),
    };
    Answer { head, body }
}

fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let end = chunks
            .windows(2)
            .position(|bytes| bytes == b"\r\n")
            .unwrap();
        let length = std::str::from_utf8(&chunks[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return data;
        }
        data.extend_from_slice(&chunks[end + 2..end + 2 + length]);
        chunks = &chunks[end + 4 + length..];
    }
}

const GZIP: &str = "accept-encoding: deflate, gzip;q=0.8\r\n";

fn call(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[test]
fn gzip_responses_equal_plain_ones() {
    let node = Node::with_chain();
    let blocks: Vec<Value> = (0..54)
        .map(|number| {
            call(
                "eth_getBlockByNumber",
                json!([format!("{number:#x}"), true]),
            )
        })
        .collect();
    // The trace of a loop that runs out of gas: some megabytes, streamed.
    let contract = "0x00000000000000000000000000000000000c0de0";
    let traced = call(
        "debug_traceCall",
        json!([
            {"to": contract, "gas": "0x493e0"},
            "latest",
            {"stateOverrides": {contract: {"code": "0x5b600056"}}},
        ]),
    );
    for request in [json!(blocks), traced] {
        let plain = ask(node.http, &request, "");
        assert!(!plain.is_compressed());
        assert!(plain.body.len() > 30_000, "{}", plain.body.len());
        let short = ask(node.http, &request, GZIP);
        assert!(short.is_compressed(), "{}", short.head);
        assert!(
            short.body.len() * 2 < plain.body.len(),
            "{}",
            short.body.len()
        );
        assert_eq!(short.value(), plain.value());
    }
    let again = ask(node.http, &call("eth_blockNumber", json!([])), GZIP);
    assert!(!again.is_compressed() && again.value()["result"].is_string());
}

#[test]
fn clients_that_refuse_gzip_get_plain_responses() {
    let node = Node::with_chain();
    let blocks: Vec<Value> = (0..54)
        .map(|number| {
            call(
                "eth_getBlockByNumber",
                json!([format!("{number:#x}"), true]),
            )
        })
        .collect();
    for header in ["accept-encoding: gzip;q=0\r\n", "accept-encoding: br\r\n"] {
        let response = ask(node.http, &json!(blocks), header);
        assert!(!response.is_compressed(), "{header}");
        assert_eq!(response.value().as_array().unwrap().len(), 54);
    }
}
