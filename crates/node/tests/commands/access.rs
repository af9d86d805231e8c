//! Authentication: users with passwords, external tokens, permissions.

use crate::running::{Node, post, request};
use crate::support::{CommandResult, TestDir};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 without padding.
fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for index in 0..=chunk.len() {
            text.push(char::from(
                alphabet[(bits >> (18 - 6 * index)) as usize & 63],
            ));
        }
    }
    text
}

/// Base64 with padding, as in PEM.
pub(crate) fn base64_padded(bytes: &[u8]) -> String {
    let mut text = base64(bytes, STANDARD);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// An external issuer of tokens (ES256).
struct Issuer(EcdsaKeyPair);

impl Issuer {
    fn new() -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pair = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(kind, pair.as_ref(), &random).unwrap())
    }

    fn public_pem(&self) -> String {
        let mut info = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
                         \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00"
            .to_vec();
        info.extend_from_slice(self.0.public_key().as_ref());
        let base64 = base64_padded(&info);
        format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")
    }

    fn token(&self, seconds: i64, permissions: &[&str]) -> String {
        let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
        let claims = json!({"exp": now + seconds, "permissions": permissions}).to_string();
        let head = base64(b"{\"alg\":\"ES256\",\"typ\":\"JWT\"}", FOR_URLS);
        let text = format!("{head}.{}", base64(claims.as_bytes(), FOR_URLS));
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("Bearer {text}.{}", base64(signature.as_ref(), FOR_URLS))
    }
}

/// The hash that `password hash` prints for its input.
fn hash(password: &str) -> String {
    let mut child = TestDir::new()
        .command("password hash", &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(format!("{password}\n").as_bytes()).unwrap();
    drop(stdin);
    let result = CommandResult::of(&child.wait_with_output().unwrap()).succeeded();
    result.out.trim().to_owned()
}

fn call(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": []})
}

/// Status and response of a request with this header.
fn ask(address: SocketAddr, body: &Value, token: Option<&str>) -> (u16, Value) {
    let header = token.map(|token| ("authorization", token));
    let (status, response) = post(address, &body.to_string(), header.as_slice());
    (status, serde_json::from_str(&response).unwrap_or_default())
}

fn login(address: SocketAddr, name: &str, password: &str) -> (u16, String) {
    let body = json!({"username": name, "password": password}).to_string();
    request(address, "POST", "/login", &body, &[])
}

pub(crate) fn token_of(address: SocketAddr, name: &str, password: &str) -> String {
    let (status, body) = login(address, name, password);
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    format!("Bearer {}", body["token"].as_str().unwrap())
}

/// A node with the user `alice`, whose password is `secret`, and `flags`.
pub(crate) fn with_alice(flags: &str) -> Node {
    let dir = TestDir::new();
    let text = format!(
        "[Users.alice]\npassword = \"{}\"\npermissions = [\"eth:*\", \"net:version\"]\n\
         groups = [\"admin\"]\n[Groups.admin]\nroles = [\"all\"]\n",
        hash("secret")
    );
    let file = dir.file("auth.toml", text.as_bytes());
    let file = file.display().to_string();
    Node::start(dir, &flags.replace("FILE", &file))
}

fn with_key(issuer: &Issuer, flags: &str) -> Node {
    let dir = TestDir::new();
    let file = dir.file("key.pem", issuer.public_pem().as_bytes());
    let file = file.display().to_string();
    Node::start(dir, &flags.replace("FILE", &file))
}

fn is_unauthorized(response: &Value, id: &Value) -> bool {
    response["error"]["code"] == -40100
        && response["error"]["message"] == "Unauthorized"
        && response["id"] == *id
}

#[test]
fn users_log_in_and_call_permitted_methods_only() {
    let node = with_alice(
        "--rpc-http-authentication-enabled --rpc-http-authentication-credentials-file=FILE",
    );
    let http = node.http;
    let token = token_of(http, "alice", "secret");
    for method in ["eth_blockNumber", "net_version", "eth_chainId"] {
        let (status, response) = ask(http, &call(method), Some(&token));
        assert_eq!(status, 200, "{response}");
        assert!(response["result"].is_string(), "{method}: {response}");
    }
    for method in [
        "net_listening",
        "debug_getRawHeader",
        "net_unheardOf",
        "rpc_modules",
        "rpc.discover",
    ] {
        let (status, response) = ask(http, &call(method), Some(&token));
        assert_eq!(status, 401, "{method}: {response}");
        assert!(
            is_unauthorized(&response, &json!(7)),
            "{method}: {response}"
        );
    }
    let (status, response) = ask(http, &call("eth_unheardOf"), Some(&token));
    assert_eq!((status, &response["error"]["code"]), (200, &json!(-32601)));

    // Notifications get no response.
    let notification = json!({"jsonrpc": "2.0", "method": "net_listening"});
    let (status, response) = ask(http, &notification, Some(&token));
    assert_eq!((status, response), (200, Value::Null));
    let batch = json!([
        call("eth_chainId"),
        call("net_listening"),
        call("net_version"),
        notification
    ]);
    let (status, response) = ask(http, &batch, Some(&token));
    assert_eq!((status, response.as_array().map(Vec::len)), (200, Some(3)));
    assert!(response[0]["result"].is_string() && response[2]["result"].is_string());
    assert!(is_unauthorized(&response[1], &json!(7)), "{response}");
}

#[test]
fn calls_need_a_valid_token_and_health_needs_none() {
    let node = with_alice(
        "--rpc-http-authentication-enabled --rpc-http-authentication-credentials-file=FILE",
    );
    let http = node.http;
    let good = token_of(http, "alice", "secret");
    let other = Issuer::new().token(60, &["*:*"]);
    let torn = &good[..good.len() - 4];
    let basic = "Basic YWxpY2U6c2VjcmV0";
    for token in [
        None,
        Some(&*other),
        Some(torn),
        Some(basic),
        Some("Bearer "),
        Some("Bearer a.b.c"),
    ] {
        for body in [call("eth_blockNumber"), json!([call("eth_blockNumber")])] {
            let (status, response) = ask(http, &body, token);
            assert_eq!(status, 401, "{token:?}: {response}");
            assert!(
                is_unauthorized(&response, &Value::Null),
                "{token:?}: {response}"
            );
        }
    }
    for path in [
        "/liveness",
        "/readiness?minPeers=0&maxBlocksBehind=2000000000",
    ] {
        let (status, body) = request(http, "GET", path, "", &[]);
        assert!(status == 200 || status == 503, "{path}: {status} {body}");
        assert!(body.contains("status"), "{path}: {body}");
    }
    // These flags do not affect the other servers.
    let mut socket = node.socket();
    socket.send(&call("eth_chainId").to_string());
    assert!(socket.receive()["result"].is_string());
}

#[test]
fn wrong_logins_get_the_same_error_and_malformed_ones_another() {
    let node = with_alice(
        "--rpc-http-authentication-enabled --rpc-http-authentication-credentials-file=FILE",
    );
    let wrong = login(node.http, "alice", "Secret");
    assert_eq!(wrong.0, 401, "{wrong:?}");
    for (name, password) in [
        ("bob", "secret"),
        ("", ""),
        ("alice", ""),
        ("Users.alice", "secret"),
    ] {
        assert_eq!(login(node.http, name, password), wrong, "{name} {password}");
    }
    for body in [
        "",
        "{}",
        "{\"username\":\"alice\"}",
        "[]",
        "{\"username\":1,\"password\":2}",
    ] {
        let (status, text) = request(node.http, "POST", "/login", body, &[]);
        assert_eq!(status, 400, "{body}: {text}");
    }
    let long = "x".repeat(1 << 20);
    let (status, _) = request(node.http, "POST", "/login", &long, &[]);
    assert_eq!(status, 413);
    // Users apply neither to a separate WebSocket port nor to a node without authentication.
    assert_eq!(login(node.ws, "alice", "secret").0, 400);
    assert_eq!(
        login(Node::start(TestDir::new(), "").http, "alice", "secret").0,
        400
    );
}

#[test]
fn the_credentials_file_is_read_at_every_login() {
    let node = with_alice(
        "--rpc-http-authentication-enabled --rpc-http-authentication-credentials-file=FILE",
    );
    assert_eq!(login(node.http, "bob", "other").0, 401);
    let text = format!(
        "[Users.bob]\npassword = \"{}\"\npermissions = [\"*:*\"]\n",
        hash("other")
    );
    node.dir.file("auth.toml", text.as_bytes());
    let bob = token_of(node.http, "bob", "other");
    assert_eq!(
        ask(node.http, &call("debug_chaindbProperty"), Some(&bob)).0,
        200
    );
    assert_eq!(login(node.http, "alice", "secret").0, 401);
    node.dir.file("auth.toml", b"not TOML [");
    assert_eq!(login(node.http, "bob", "other").0, 401);
}

#[test]
fn external_tokens_are_verified_by_public_key() {
    let issuer = Issuer::new();
    let node = with_key(
        &issuer,
        "--rpc-http-authentication-enabled --rpc-http-authentication-jwt-public-key-file=FILE \
         --rpc-http-authentication-jwt-algorithm=ES256 --rpc-http-api-methods-no-auth=eth_chainId,rpc_modules",
    );
    let http = node.http;
    let status_of = |method: &str, token: Option<&str>| ask(http, &call(method), token).0;
    assert_eq!(
        status_of(
            "eth_blockNumber",
            Some(&issuer.token(60, &["eth:blockNumber"]))
        ),
        200
    );
    assert_eq!(
        status_of(
            "eth_gasPrice",
            Some(&issuer.token(60, &["eth:blockNumber"]))
        ),
        401
    );
    assert_eq!(
        status_of("eth_gasPrice", Some(&issuer.token(-1, &["*:*"]))),
        401
    );
    assert_eq!(
        status_of("eth_gasPrice", Some(&Issuer::new().token(60, &["*:*"]))),
        401
    );
    assert_eq!(status_of("eth_gasPrice", None), 401);
    // Methods in --rpc-http-api-methods-no-auth need no token.
    for token in [None, Some("Bearer nonsense")] {
        assert_eq!(status_of("eth_chainId", token), 200);
        assert_eq!(status_of("rpc_modules", token), 200);
        assert_eq!(status_of("rpc.discover", token), 401);
    }
    assert_eq!(login(http, "alice", "secret").0, 400);
}

#[test]
fn a_websocket_serves_until_its_token_expires() {
    let issuer = Issuer::new();
    let node = with_key(
        &issuer,
        "--rpc-ws-authentication-enabled --rpc-ws-authentication-jwt-public-key-file=FILE \
         --rpc-ws-authentication-jwt-algorithm=es256",
    );
    assert_eq!(node.refused_socket(None), 401);
    assert_eq!(node.refused_socket(Some(&issuer.token(-1, &["*:*"]))), 401);
    let mut socket = node.socket_of(Some(&issuer.token(60, &["eth:*"])));
    for (method, is_permitted) in [
        ("eth_chainId", true),
        ("net_version", false),
        ("eth_chainId", true),
    ] {
        socket.send(&call(method).to_string());
        let response = socket.receive();
        assert_eq!(
            is_unauthorized(&response, &json!(7)),
            !is_permitted,
            "{method}: {response}"
        );
    }
    let mut socket = node.socket_of(Some(&issuer.token(3, &["eth:*"])));
    let mut answers = 0;
    loop {
        socket.send(&call("eth_chainId").to_string());
        let response = socket.receive();
        if is_unauthorized(&response, &json!(7)) {
            break;
        }
        assert!(response["result"].is_string(), "{response}");
        answers += 1;
    }
    assert!(answers > 0);
    socket.send(&json!([call("eth_subscribe")]).to_string());
    assert!(is_unauthorized(&socket.receive()[0], &json!(7)));
}

#[test]
fn users_log_in_on_the_websocket_port_too() {
    let node = with_alice(
        "--rpc-ws-authentication-enabled --rpc-ws-authentication-credentials-file=FILE \
         --rpc-ws-api-methods-no-auth=net_version",
    );
    let mut socket = node.socket_of(None);
    socket.send(&call("net_version").to_string());
    assert!(socket.receive()["result"].is_string());
    socket.send(&call("eth_chainId").to_string());
    assert!(is_unauthorized(&socket.receive(), &json!(7)));
    let mut socket = node.socket_of(Some(&token_of(node.ws, "alice", "secret")));
    socket.send(&call("eth_chainId").to_string());
    assert!(socket.receive()["result"].is_string());
    // The HTTP server is separate.
    assert_eq!(ask(node.http, &call("eth_chainId"), None).0, 200);
}

#[test]
fn wrong_token_flags_and_files_are_refused_by_name() {
    let dir = TestDir::new();
    let refused = |flags: &str, file: &Path, words: &[&str]| {
        let all = format!(
            "--rpc-http-enabled --rpc-http-port=0 --engine-rpc-port=0 --rpc-http-authentication-enabled {flags}"
        );
        dir.run(&all, &[file]).failed(words);
    };
    let users = "--rpc-http-authentication-credentials-file";
    let key = "--rpc-http-authentication-jwt-public-key-file";
    let file = |text: &str| dir.file("file", text.as_bytes());
    let missing = dir.path("missing");
    refused(users, &missing, &["credentials file", "missing"]);
    refused(users, &file("\nx = ["), &["is not TOML: line 2: "]);
    refused(users, &file(""), &["has no user", "[Users.NAME]"]);
    refused(users, &file("[Users.bob]"), &["bob", "has no password"]);
    refused(
        users,
        &file("[Users.bob]\npassword='x'"),
        &["bob", "niwaki password hash"],
    );
    let hash = hash("x");
    let with = |line: &str| file(&format!("[Users.bob]\npassword='{hash}'\n{line}"));
    refused(users, &with("permissions='eth:*'"), &["bob", "no list"]);
    refused(
        users,
        &with("permissions=['eth_call']"),
        &["eth_call", "namespace:method"],
    );
    refused(users, &with("permision=['eth:call']"), &["permision"]);
    refused(key, &missing, &["public key", "missing"]);
    refused(key, &file("x"), &["no PEM public key", "openssl pkey"]);
    let pem = file(&Issuer::new().public_pem());
    refused(key, &pem, &["RS256 needs an RSA key"]);
    let unknown =
        "--rpc-http-api-methods-no-auth=eth_cal --rpc-http-authentication-jwt-public-key-file";
    refused(unknown, &pem, &["eth_cal"]);
    let result = dir.run(
        "--rpc-http-enabled --rpc-http-port=0 --engine-rpc-port=0 --rpc-http-authentication-enabled",
        &[],
    );
    result.failed(&[
        "needs --rpc-http-authentication-credentials-file",
        "public-key-file",
    ]);
}

#[test]
fn password_hashes_have_besus_format() {
    let hash = hash("secret");
    assert!(hash.starts_with("$2a$10$") && hash.len() == 60, "{hash}");
    let dir = TestDir::new();
    let given = dir.run("password hash --password=secret", &[]).succeeded();
    assert_ne!(given.out.trim(), hash);
    dir.run("password hash --password=", &[]).failed(&["empty"]);
    let long = format!("password hash --password={}", "x".repeat(73));
    dir.run(&long, &[]).failed(&["73 bytes"]);
}
