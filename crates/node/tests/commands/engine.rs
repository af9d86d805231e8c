//! The node driven by a consensus client through the Engine API port with tokens, as Prysm and Lodestar do.

use crate::running::{Node, request};
use crate::support::{HEAD, TestDir, amsterdam_genesis};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) const ZERO: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";

pub(crate) fn state(head: &str) -> Value {
    json!({ "headBlockHash": head, "safeBlockHash": ZERO, "finalizedBlockHash": ZERO })
}

pub(crate) fn attributes(timestamp: u64) -> Value {
    json!({
        "timestamp": format!("{timestamp:#x}"),
        "prevRandao": "0x0101010101010101010101010101010101010101010101010101010101010101",
        "suggestedFeeRecipient": "0xfefefefefefefefefefefefefefefefefefefefe",
        "withdrawals": [],
        "parentBeaconBlockRoot": ZERO,
    })
}

/// Has the node build a block on top of its head, and returns the payload.
pub(crate) fn build(node: &Node, head: &str, timestamp: u64) -> Value {
    let response = node.engine_call(
        "engine_forkchoiceUpdatedV3",
        json!([state(head), attributes(timestamp)]),
    );
    let id = &response["result"]["payloadId"];
    assert!(id.is_string(), "{response}");
    node.engine_call("engine_getPayloadV5", json!([id]))["result"].clone()
}

/// Sends a payload and returns its status.
pub(crate) fn send_payload(node: &Node, built: &Value) -> Value {
    let payload = &built["executionPayload"];
    let params = json!([payload, [], ZERO, built["executionRequests"]]);
    node.engine_call("engine_newPayloadV4", params)["result"].clone()
}

pub(crate) fn send_fork_choice(node: &Node, head: &str) -> Value {
    let response = node.engine_call("engine_forkchoiceUpdatedV3", json!([state(head), null]));
    response["result"]["payloadStatus"]["status"].clone()
}

pub(crate) fn hash(built: &Value) -> String {
    built["executionPayload"]["blockHash"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_built_block_is_validated_made_head_and_survives_a_stop_and_a_kill() {
    let node = Node::with_chain();
    let first = build(&node, HEAD, 600);
    assert_eq!(
        send_payload(&node, &first),
        json!({
            "status": "VALID", "latestValidHash": hash(&first), "validationError": null
        })
    );
    assert_eq!(
        node.result("eth_blockNumber", json!([])),
        "0x36",
        "not the head yet"
    );
    // Still a side block, so by its hash.
    let figures = node.result("niwaki_getBlockFigures", json!([hash(&first)]));
    assert_eq!(figures["hash"], hash(&first));
    assert_eq!(figures["gasUsed"], first["executionPayload"]["gasUsed"]);
    let phases = figures["microseconds"].as_object().unwrap();
    assert!(phases["total"].as_u64() > phases["execute"].as_u64() && phases.len() == 7);
    assert_eq!(send_fork_choice(&node, &hash(&first)), "VALID");
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x37");
    let of = |block| node.result("niwaki_getBlockFigures", json!([block]));
    assert_eq!([of("latest"), of("0x36")], [figures, Value::Null]);

    let (dir, code) = node.stop();
    assert_eq!(code, Some(0));
    let node = Node::start(dir, "");
    let block = node.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(block["hash"], hash(&first));

    let second = build(&node, &hash(&first), 612);
    assert_eq!(send_payload(&node, &second)["status"], "VALID");
    assert_eq!(send_fork_choice(&node, &hash(&second)), "VALID");
    let dir = node.kill();
    let (number, _) = dir.checked_head();
    assert!((55..=56).contains(&number), "{number}");
    let node = Node::start(dir, "");
    assert_eq!(send_payload(&node, &second)["status"], "VALID");
    assert_eq!(send_fork_choice(&node, &hash(&second)), "VALID");
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x38");
}

#[test]
fn the_engine_port_answers_the_first_calls_of_a_consensus_client() {
    let node = Node::with_chain();
    let response = node.engine_call(
        "engine_exchangeCapabilities",
        json!([["engine_newPayloadV4"]]),
    );
    let names = response["result"].as_array().unwrap();
    assert!(names.contains(&json!("engine_getPayloadV5")), "{response}");
    assert!(
        !names.contains(&json!("engine_exchangeCapabilities")),
        "{response}"
    );
    let client =
        json!([{"code": "PM", "name": "Prysm", "version": "v7.1.0", "commit": "0x01020304"}]);
    let response = node.engine_call("engine_getClientVersionV1", client);
    assert_eq!(response["result"][0]["name"], "Niwaki");
    assert_eq!(
        response["result"][0]["commit"].as_str().map(str::len),
        Some(10)
    );
    for (method, params) in [
        ("eth_chainId", json!([])),
        ("eth_blockNumber", json!([])),
        ("eth_getBlockByNumber", json!(["latest", false])),
        (
            "eth_getCode",
            json!(["0x00000000219ab540356cbb839cbe05303d7705fa", "latest"]),
        ),
        ("eth_syncing", json!([])),
    ] {
        let response = node.engine_call(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
    }
    let refused = node.engine_call(
        "eth_getBalance",
        json!(["0x00000000219ab540356cbb839cbe05303d7705fa"]),
    );
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
}

#[test]
fn engine_api_errors_have_the_codes_of_the_specification() {
    let node = Node::with_chain();
    let built = build(&node, HEAD, 600);
    let payload = &built["executionPayload"];
    let with = |name: &str, value: Value| {
        let mut attributes = attributes(700);
        attributes[name] = value;
        json!([state(HEAD), attributes])
    };
    let mut v1_attributes = attributes(700);
    let fields = v1_attributes.as_object_mut().unwrap();
    fields.remove("withdrawals");
    fields.remove("parentBeaconBlockRoot");
    let unknown = json!({
        "headBlockHash": HEAD, "safeBlockHash": hash(&built), "finalizedBlockHash": ZERO
    });
    for (method, params, code) in [
        ("engine_newPayloadV4", json!([payload, [], ZERO]), -32602),
        (
            "engine_newPayloadV4",
            json!([payload, null, ZERO, []]),
            -32602,
        ),
        (
            "engine_newPayloadV4",
            json!([payload, [], null, []]),
            -32602,
        ),
        (
            "engine_newPayloadV4",
            json!([payload, [], ZERO, ["0x01"]]),
            -32602,
        ),
        ("engine_newPayloadV4", json!([{}, [], ZERO, []]), -32602),
        ("engine_newPayloadV3", json!([payload, [], ZERO]), -38005),
        ("engine_newPayloadV1", json!([payload]), -32602),
        ("engine_getPayloadV5", json!(["0x0000000000000001"]), -38001),
        ("engine_getPayloadV5", json!(["0x01"]), -32602),
        ("engine_forkchoiceUpdatedV3", json!([{}, null]), -32602),
        ("engine_forkchoiceUpdatedV3", json!([unknown, null]), -38002),
        (
            "engine_forkchoiceUpdatedV3",
            with("withdrawals", Value::Null),
            -38003,
        ),
        (
            "engine_forkchoiceUpdatedV3",
            with("parentBeaconBlockRoot", Value::Null),
            -38003,
        ),
        (
            "engine_forkchoiceUpdatedV3",
            with("timestamp", json!("0x21c")),
            -38003,
        ),
        (
            "engine_forkchoiceUpdatedV3",
            with("prevRandao", Value::Null),
            -38003,
        ),
        (
            "engine_forkchoiceUpdatedV1",
            json!([state(HEAD), v1_attributes]),
            -38005,
        ),
        ("engine_getBlobsV1", json!([[ZERO]]), -38005),
        ("engine_getBlobsV2", json!([vec![ZERO; 129]]), -38004),
        (
            "engine_getPayloadBodiesByRangeV1",
            json!(["0x0", "0x1"]),
            -32602,
        ),
        (
            "engine_getPayloadBodiesByRangeV1",
            json!(["0x1", "0x401"]),
            -38004,
        ),
    ] {
        let response = node.engine_call(method, params.clone());
        assert_eq!(
            response["error"]["code"], code,
            "{method} {params}: {response}"
        );
    }
    let head = node.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(head["hash"], HEAD, "nothing moved");
}

#[test]
fn an_invalid_payload_stays_invalid() {
    let node = Node::with_chain();
    let good = build(&node, HEAD, 600);
    let mut bad = good.clone();
    bad["executionPayload"]["stateRoot"] = json!(ZERO);
    let status = send_payload(&node, &bad);
    assert_eq!(
        (&status["status"], &status["latestValidHash"]),
        (&json!("INVALID"), &Value::Null)
    );
    let mut bad = good.clone();
    bad["executionPayload"]["transactions"] = json!(["0x"]);
    assert_eq!(send_payload(&node, &bad)["status"], "INVALID");
    let unknown = format!("0x{}", "ab".repeat(32));
    assert_eq!(send_fork_choice(&node, &unknown), "SYNCING");
    assert_ne!(node.result("eth_syncing", json!([])), json!(false));
    assert_eq!(send_fork_choice(&node, HEAD), "VALID");
    assert_eq!(node.result("eth_syncing", json!([])), json!(false));
}

#[test]
fn missing_bodies_and_blobs_are_null() {
    let node = Node::with_chain();
    let response = node.engine_call("engine_getPayloadBodiesByRangeV1", json!(["0x35", "0x10"]));
    let bodies = response["result"].as_array().unwrap();
    assert_eq!(bodies.len(), 2, "no more than there are blocks");
    assert!(
        bodies.iter().all(|body| body["transactions"].is_array()),
        "{response}"
    );
    let response = node.engine_call("engine_getPayloadBodiesByHashV2", json!([[HEAD, ZERO]]));
    assert!(
        response["result"][0]["withdrawals"].is_array(),
        "{response}"
    );
    assert_eq!(response["result"][1], Value::Null);
    assert_eq!(
        node.engine_call("engine_getBlobsV2", json!([[ZERO]]))["result"],
        Value::Null
    );
    assert_eq!(
        node.engine_call("engine_getBlobsV3", json!([[ZERO]]))["result"],
        json!([null])
    );
}

#[test]
fn subscriptions_and_filters_get_a_new_head() {
    let node = Node::with_chain();
    let mut socket = node.socket();
    socket.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#);
    let subscription = socket.receive()["result"].clone();
    let filter = node.result("eth_newBlockFilter", json!([]));
    let built = build(&node, HEAD, 600);
    send_payload(&node, &built);
    assert_eq!(send_fork_choice(&node, &hash(&built)), "VALID");
    let news = socket.receive();
    assert_eq!(news["method"], "eth_subscription");
    assert_eq!(news["params"]["subscription"], subscription);
    assert_eq!(news["params"]["result"]["hash"], hash(&built));
    assert_eq!(
        node.result("eth_getFilterChanges", json!([filter])),
        json!([hash(&built)])
    );
    assert_eq!(
        node.result("eth_getFilterChanges", json!([filter])),
        json!([])
    );
    assert_eq!(
        node.result("eth_uninstallFilter", json!([filter])),
        json!(true)
    );
    assert!(
        node.call("eth_getFilterChanges", json!([filter]))
            .get("error")
            .is_some()
    );
    socket.send(
        &json!({"jsonrpc": "2.0", "id": 2, "method": "eth_unsubscribe", "params": [subscription]})
            .to_string(),
    );
    assert_eq!(socket.receive()["result"], json!(true));
}

#[test]
fn a_second_node_and_a_port_in_use_are_refused_by_name() {
    let node = Node::start(TestDir::new(), "");
    let second = node.dir.run("--rpc-http-enabled", &[]);
    second.failed(&["in use"]);
    let other = TestDir::new();
    let port = node.http.port().to_string();
    let refused = other.run(&format!("--rpc-http-enabled --rpc-http-port={port}"), &[]);
    refused.failed(&["--rpc-http-port", &port]);
}

#[test]
fn a_backup_by_a_running_node_restores_its_head() {
    let node = Node::with_chain();
    let built = build(&node, HEAD, 600);
    send_payload(&node, &built);
    assert_eq!(send_fork_choice(&node, &hash(&built)), "VALID");
    let folder = node.dir.path("backups");
    let made = node
        .dir
        .run("storage backup --keep 2 --to", &[&folder])
        .succeeded();
    assert!(
        made.errors.contains("the node that has the data path"),
        "{made:?}"
    );
    assert_eq!(made.head(), (55, hash(&built)));
    let again = node.dir.run("storage backup --to", &[&folder]).succeeded();
    assert!(again.out.contains("the folder has 1, 2"), "{again:?}");
    assert_eq!(
        node.result("eth_blockNumber", json!([])),
        "0x37",
        "it goes on"
    );

    let other = TestDir::new();
    other.run("storage restore --from", &[&folder]).succeeded();
    assert_eq!(other.checked_head(), (55, hash(&built)));
    let relative = node.dir.file("no folder", b"");
    let refused = node.dir.run("storage backup --to", &[&relative]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

/// Payload attributes of Amsterdam.
fn later(timestamp: u64) -> Value {
    let mut attributes = attributes(timestamp);
    attributes["slotNumber"] = json!("0x9");
    attributes["targetGasLimit"] = json!("0x3938700");
    attributes
}

#[test]
fn an_amsterdam_block_is_built_validated_made_head_and_serves_its_access_list() {
    let mut dir = TestDir::new();
    dir.genesis = amsterdam_genesis();
    let node = Node::start(dir, "");
    let genesis = node.result("eth_getBlockByNumber", json!(["0x0", false]));
    let genesis = genesis["hash"].as_str().unwrap();
    let before = build(&node, genesis, 23);
    assert_eq!(send_payload(&node, &before)["status"], "VALID");
    let parent = hash(&before);
    assert_eq!(send_fork_choice(&node, &parent), "VALID");

    let begin = |attributes: Value| {
        let params = json!([state(&parent), attributes, format!("0x{}", "ff".repeat(16))]);
        node.engine_call("engine_forkchoiceUpdatedV4", params)
    };
    let without = |name: &str| {
        let mut attributes = later(24);
        attributes.as_object_mut().unwrap().remove(name);
        attributes
    };
    assert_eq!(begin(without("slotNumber"))["error"]["code"], -38003);
    assert_eq!(begin(later(23))["error"]["code"], -38005, "the fork before");
    // As geth does, contrary to the specification.
    assert!(begin(without("targetGasLimit"))["result"]["payloadId"].is_string());
    for wrong in [attributes(24), later(24)] {
        let response =
            node.engine_call("engine_forkchoiceUpdatedV3", json!([state(&parent), wrong]));
        let code = response["error"]["code"].as_i64().unwrap();
        let has_slot = wrong.get("slotNumber").is_some();
        let want = if has_slot { -38003 } else { -38005 };
        assert_eq!(code, want, "{response}");
    }
    let mask = json!([state(&parent), later(24), "0xff"]);
    let response = node.engine_call("engine_forkchoiceUpdatedV4", mask);
    assert_eq!(response["error"]["code"], -32602, "{response}");

    let id = begin(later(24))["result"]["payloadId"].clone();
    let response = node.engine_call("engine_getPayloadV5", json!([id]));
    assert_eq!(response["error"]["code"], -38005, "{response}");
    let built = node.engine_call("engine_getPayloadV6", json!([id]))["result"].clone();
    let payload = &built["executionPayload"];
    assert_eq!(payload["slotNumber"], "0x9");
    let list = payload["blockAccessList"].as_str().unwrap();
    let requests = &built["executionRequests"];
    let send = |method: &str, payload: &Value| {
        node.engine_call(method, json!([payload, [], ZERO, requests]))
    };
    assert_eq!(
        send("engine_newPayloadV4", payload)["error"]["code"],
        -32602
    );
    for name in ["blockAccessList", "slotNumber"] {
        let mut payload = payload.clone();
        payload.as_object_mut().unwrap().remove(name);
        let response = send("engine_newPayloadV5", &payload);
        assert_eq!(response["error"]["code"], -32602, "{name}: {response}");
    }
    for bad in ["0x", "0xc1", &format!("{list}00")] {
        let mut payload = payload.clone();
        payload["blockAccessList"] = json!(bad);
        let response = send("engine_newPayloadV5", &payload);
        assert_eq!(response["result"]["status"], "INVALID", "{response}");
    }
    let response = send("engine_newPayloadV5", payload);
    assert_eq!(response["result"]["status"], "VALID", "{response}");
    let head = hash(&built);
    let response = node.engine_call(
        "engine_forkchoiceUpdatedV4",
        json!([state(&head), null, null]),
    );
    assert_eq!(
        response["result"]["payloadStatus"]["status"], "VALID",
        "{response}"
    );
    let block = node.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(
        (&block["hash"], &block["slotNumber"]),
        (&json!(head), &json!("0x9"))
    );
    let activated = node.fields("Fork activated");
    assert_eq!(
        (&activated["fork"], &activated["number"]),
        (&json!("Amsterdam"), &json!(2))
    );
    let again = json!([state(&head), later(24), null]);
    let response = node.engine_call("engine_forkchoiceUpdatedV4", again);
    assert_eq!(response["error"]["code"], -38003, "not after the head");
    let bodies = node.engine_call("engine_getPayloadBodiesByRangeV2", json!(["0x1", "0x2"]));
    let lists = bodies["result"].as_array().unwrap().iter();
    let lists: Vec<_> = lists.map(|body| &body["blockAccessList"]).collect();
    assert_eq!(lists, [&Value::Null, &json!(list)]);
    let accounts = node.result("eth_getBlockAccessList", json!(["latest"]));
    assert_eq!(
        accounts.as_array().unwrap().len(),
        6,
        "the system contracts: {accounts}"
    );
}

/// A request by REST: its status, type and body.
fn rest(
    node: &Node,
    method: &str,
    path: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let token = format!("Bearer {}", node.token());
    let mut all = vec![("authorization", token.as_str())];
    all.extend_from_slice(headers);
    request(node.engine, method, path, body, &all)
}

#[test]
fn the_engine_api_is_there_by_rest_with_the_same_token() {
    let node = Node::with_chain();
    let capabilities = "/engine/v1/capabilities";
    assert_eq!(request(node.engine, "GET", capabilities, "", &[]).0, 401);
    let (status, body) = rest(&node, "GET", capabilities, "", &[]);
    assert_eq!(status, 200);
    assert!(body.contains("\"amsterdam\""), "{body}");
    let ssz = ("content-type", "application/octet-stream");
    let osaka = ("eth-execution-version", "osaka");
    for (path, headers, want) in [
        ("payloads", &[osaka, ssz][..], (400, "ssz-decode-error")),
        ("payloads", &[ssz], (400, "unsupported-fork")),
        ("payloads", &[osaka], (415, "unsupported-media-type")),
        (
            "payloads",
            &[osaka, ("content-type", "application/json")],
            (415, "unsupported-media-type"),
        ),
        ("payload", &[osaka, ssz], (404, "method-not-found")),
    ] {
        let (status, body) = rest(&node, "POST", &format!("/engine/v1/{path}"), "{}", headers);
        assert_eq!(status, want.0, "{path} {headers:?}: {body}");
        assert!(body.contains(want.1), "{body}");
    }
    // No other server offers it, and nor does this one without the flag.
    assert_eq!(request(node.http, "GET", capabilities, "", &[]).0, 404);
    let node = Node::with_chain_and("--engine-rest-enabled=false");
    assert_eq!(rest(&node, "GET", capabilities, "", &[]).0, 404);
}

#[test]
fn a_consensus_client_may_speak_http_2() {
    let node = Node::with_chain();
    let first_frame = |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let mut frame = [0; 9];
        let read = stream.read_exact(&mut frame);
        read.is_ok().then_some(frame[3])
    };
    assert_eq!(first_frame(node.engine), Some(4), "SETTINGS");
    assert_ne!(first_frame(node.http), Some(4));
}
