//! JSON-RPC as clients use it: every execution-apis case over each transport, limits, rejections.

use crate::engine::send_fork_choice;
use crate::running::{Ipc, Node, Socket, post, request};
use crate::support::HEAD;
use niwaki_crypto::keccak256;
use niwaki_primitives::hex;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// One case: requests and expected responses, in order.
struct Case {
    name: &'static str,
    /// Whether only the types of the response are compared.
    types_only: bool,
    exchanges: Vec<(&'static str, Value)>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../../../testdata/rpc/execution-apis.txt");
    let mut cases: Vec<Case> = Vec::new();
    let mut sent = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(Case {
                name,
                types_only: false,
                exchanges: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match line.get(..3) {
            Some("// ") => case.types_only |= line.contains("speconly"),
            Some(">> ") => sent = &line[3..],
            Some("<< ") => case
                .exchanges
                .push((sent, serde_json::from_str(&line[3..]).unwrap())),
            _ => {}
        }
    }
    cases
}

/// The first difference, if any.
fn difference(want: &Value, got: &Value, types_only: bool, at: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            // Maps by address, hash or nonce have the keys of the recorded pool.
            let is_map = want
                .keys()
                .chain(got.keys())
                .all(|key| key.starts_with("0x") || key.bytes().all(|byte| byte.is_ascii_digit()));
            if types_only && is_map {
                return None;
            }
            for name in want.keys().filter(|name| *name != "deleteStrategy") {
                let at = format!("{at}.{name}");
                let Some(got) = got.get(name) else {
                    return Some(format!("{at} is missing"));
                };
                if let Some(found) = difference(&want[name], got, types_only, &at) {
                    return Some(found);
                }
            }
            let is_more = |name: &&String| !want.contains_key(*name) && *name != "deleteStrategy";
            let more = got.keys().find(is_more);
            more.map(|name| format!("{at}.{name} is too much"))
        }
        (Value::Array(want), Value::Array(got)) if types_only => {
            let both = want.first().zip(got.first());
            both.and_then(|(want, got)| difference(want, got, true, &format!("{at}[0]")))
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            let both = want.iter().zip(got).enumerate();
            both.into_iter().find_map(|(index, (want, got))| {
                difference(want, got, false, &format!("{at}[{index}]"))
            })
        }
        _ if types_only && std::mem::discriminant(want) == std::mem::discriminant(got) => None,
        _ if want == got => None,
        _ => Some(format!("{at}: want {want}, got {got}")),
    }
}

fn check(case: &Case, want: &Value, got: &Value) -> Result<(), String> {
    let found = match (want.get("error"), got.get("error")) {
        // Of an error only the code must match.
        (Some(want), Some(got)) => difference(&want["code"], &got["code"], false, ".error.code")
            .or_else(|| difference(&want["data"], &got["data"], false, ".error.data")),
        _ => difference(want, got, case.types_only, ""),
    };
    found.map_or(Ok(()), |found| Err(format!("{}: {found}", case.name)))
}

/// Plays every case through `exchange` and returns the failures.
fn play(mut exchange: impl FnMut(&str) -> Value) {
    let (mut passed, mut failed) = (0, Vec::new());
    for case in cases() {
        for (sent, want) in &case.exchanges {
            match check(&case, want, &exchange(sent)) {
                Ok(()) => passed += 1,
                Err(failure) => failed.push(failure),
            }
        }
    }
    assert!(failed.is_empty(), "{passed} passed, failed: {failed:#?}");
    assert!(passed >= 190, "{passed}");
}

/// A node with the chain, after a fork choice to its head.
fn node() -> Node {
    let node = Node::with_chain();
    let told = include_str!("../../../../testdata/rpc/headfcu.json");
    let told: Value = serde_json::from_str(told).unwrap();
    let response = node.engine_call(told["method"].as_str().unwrap(), told["params"].clone());
    assert_eq!(response["result"]["payloadStatus"]["status"], "VALID");
    node
}

#[test]
fn every_execution_apis_case_passes_over_http() {
    let node = node();
    play(|sent| {
        let (status, body) = post(node.http, sent, &[]);
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    });
}

#[test]
fn every_execution_apis_case_passes_over_a_websocket() {
    let node = node();
    let mut socket: Socket = node.socket();
    play(|sent| {
        socket.send(sent);
        socket.receive()
    });
}

#[test]
fn every_execution_apis_case_passes_over_ipc() {
    let node = node();
    let mut ipc: Ipc = node.ipc();
    play(|sent| {
        ipc.send(sent);
        ipc.receive()
    });
}

#[test]
fn malformed_requests_are_refused_with_the_codes_of_json_rpc() {
    let node = Node::with_chain();
    let deep = "[".repeat(100_000);
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        (deep.as_str(), -32700),
        ("[]", -32600),
        ("{}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1}", -32600),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"eth_chainId\"}",
            -32600,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"eth_chainId\"}",
            -32600,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_nothing\"}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"engine_getPayloadV1\"}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_subscribe\",\"params\":[\"newHeads\"]}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getBalance\",\"params\":{}}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getBalance\",\"params\":[\"0x1\"]}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getBalance\"}",
            -32602,
        ),
    ] {
        let (status, response) = post(node.http, body, &[]);
        assert_eq!(status, 200);
        let response: Value = serde_json::from_str(&response).unwrap();
        let shown: String = body.chars().take(80).collect();
        assert_eq!(response["error"]["code"], code, "{shown}: {response}");
    }
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x36");
}

#[test]
fn rpc_modules_names_the_namespaces_of_each_server() {
    let node = Node::start(crate::support::TestDir::new(), "");
    let modules = node.result("rpc_modules", json!([]));
    let names: Vec<&String> = modules.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "admin", "debug", "eth", "miner", "net", "niwaki", "perm", "testing", "trace",
            "txpool", "web3"
        ]
    );
    let engine = node.engine_call("rpc_modules", json!([]));
    let engine = engine["result"].as_object().unwrap();
    assert!(
        engine.contains_key("engine") && !engine.contains_key("debug"),
        "{engine:?}"
    );
}

#[test]
fn a_batch_is_answered_in_order_without_notifications_within_limits() {
    let node = Node::with_chain();
    let call = |id: Value, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": []});
    let mut notification = call(json!(0), "eth_blockNumber");
    notification.as_object_mut().unwrap().remove("id");
    let batch = json!([
        call(json!("a"), "eth_gasPrice"),
        notification,
        call(json!(7), "eth_blockNumber"),
        3,
        call(json!(null), "eth_chainId"),
    ]);
    let (_, response) = post(node.http, &batch.to_string(), &[]);
    let answers: Vec<Value> = serde_json::from_str(&response).unwrap();
    let ids: Vec<&Value> = answers.iter().map(|response| &response["id"]).collect();
    assert_eq!(ids, [&json!("a"), &json!(7), &json!(null), &json!(null)]);
    assert_eq!(answers[1]["result"], "0x36");
    assert_eq!(answers[2]["error"]["code"], -32600);

    let only = json!([notification]);
    assert_eq!(post(node.http, &only.to_string(), &[]).1, "");
    let many: Vec<Value> = (0..1025).map(|id| call(json!(id), "eth_chainId")).collect();
    let (_, response) = post(node.http, &json!(many).to_string(), &[]);
    assert!(response.contains("at most 1024"), "{response}");
}

#[test]
fn hosts_origins_and_tokens_are_checked() {
    let node = Node::with_chain();
    let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_chainId\"}";
    for (headers, want) in [
        (vec![("host", "localhost:8545")], 200),
        (vec![("host", "evil.example")], 403),
        (vec![("origin", "https://evil.example")], 403),
    ] {
        assert_eq!(post(node.http, body, &headers).0, want, "{headers:?}");
    }
    let good = format!("Bearer {}", node.token());
    let other = niwaki_rpc::JwtSecret::new([1; 32]);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let stale = {
        let secret = std::fs::read_to_string(node.dir.data_path().join("jwt.hex")).unwrap();
        niwaki_rpc::JwtSecret::parse(&secret)
            .unwrap()
            .token(now - 100)
    };
    for (token, want) in [
        (good.as_str(), 200),
        ("", 401),
        ("Bearer nonsense", 401),
        (&format!("Bearer {}", other.token(now)), 401),
        (&format!("Bearer {stale}"), 401),
    ] {
        let headers = [("authorization", token)];
        assert_eq!(post(node.engine, body, &headers).0, want, "{token}");
    }
}

#[test]
fn get_serves_health() {
    let node = Node::with_chain();
    let (status, body) = request(node.http, "GET", "/readiness", "", &[]);
    assert_eq!(status, 503, "{body}");
    assert!(
        body.contains("no consensus client has chosen a head yet"),
        "{body}"
    );
    assert_eq!(send_fork_choice(&node, HEAD), "VALID");
    for (path, want) in [
        ("/liveness", 200),
        ("/readiness", 200),
        ("/readiness?minPeers=1&maxBlocksBehind=0", 200),
        ("/readiness?minPeers=x", 503),
        ("/", 404),
    ] {
        let (status, body) = request(node.http, "GET", path, "", &[]);
        assert_eq!(status, want, "{path}: {body}");
    }
    assert_eq!(request(node.http, "PUT", "/", "", &[]).0, 405);
}

#[test]
fn too_many_and_slow_connections_do_not_block_the_node() {
    let dir = crate::support::TestDir::new();
    let node = Node::start(
        dir,
        "--rpc-http-max-active-connections=20 --rpc-http-max-request-content-length=1000",
    );
    // Twenty connections that never finish their request.
    let slow: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(node.http).unwrap();
            stream
                .write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\n")
                .unwrap();
            stream
        })
        .collect();
    let mut refused = 0;
    for _ in 0..200 {
        let mut stream = TcpStream::connect(node.http).unwrap();
        let mut byte = [0];
        // Closed at once, by FIN or RST.
        refused += usize::from(!matches!(stream.read(&mut byte), Ok(1..)));
    }
    assert_eq!(refused, 200);
    drop(slow);
    let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_chainId\"}";
    let answered = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        post(node.http, body, &[]).0 == 200
    });
    assert!(answered, "places are free again");
    let long = format!("{body}{}", " ".repeat(1000));
    assert_eq!(post(node.http, &long, &[]).0, 413);
}

/// The response to a request that arrives in these pieces, with the connection cut at the end or not.
fn answer_to(address: SocketAddr, head: &str, pieces: &[&[u8]], is_torn: bool) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    for piece in pieces {
        stream.write_all(piece).unwrap();
    }
    if is_torn {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_body_may_arrive_in_any_chunks() {
    let node = Node::start(crate::support::TestDir::new(), "");
    // Longer than the initial buffer of a body.
    let data = "5a".repeat(1 << 20);
    let hash = hex::encode(keccak256(vec![0x5a; 1 << 20]));
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "web3_sha3", "params": [format!("0x{data}")]});
    let body = body.to_string();
    let length = format!("content-length: {}", body.len());
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(100_000).collect();
    let announced = answer_to(node.http, &length, &pieces, false);
    assert!(announced.contains(&hash), "{announced}");

    let chunk =
        |piece: &&[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let mut chunks: Vec<Vec<u8>> = pieces.iter().map(chunk).collect();
    chunks.push(b"0\r\n\r\n".to_vec());
    let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    let chunked = answer_to(node.http, "transfer-encoding: chunked", &chunks, false);
    assert!(chunked.contains(&hash), "{chunked}");

    let torn = answer_to(node.http, &length, &pieces[1..], true);
    assert!(!torn.contains("result"), "{torn}");
}
