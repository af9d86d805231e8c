//! A running node, and clients of its servers.

use crate::support::{TestDir, chain_file};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::{HandshakeError, Message};

/// Longer than any step of these tests, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node on ports of the system's choice; killed when it is dropped.
pub(crate) struct Node {
    child: Child,
    lines: Receiver<String>,
    pub(crate) dir: TestDir,
    /// The log lines until the node was ready.
    pub(crate) start_log: Vec<Value>,
    pub(crate) http: SocketAddr,
    pub(crate) ws: SocketAddr,
    pub(crate) engine: SocketAddr,
}

const FLAGS: &str = "--rpc-http-enabled --rpc-http-port=0 --rpc-ws-enabled --rpc-ws-port=0 \
                     --engine-rpc-port=0 --Xrpc-ipc-enabled --logging-format=JSON \
                     --rpc-http-api=ETH,NET,WEB3,DEBUG,TRACE,TXPOOL,TESTING,ADMIN,MINER,NIWAKI,PERM \
                     --rpc-ws-api=ETH,NET,WEB3,DEBUG,TRACE,TXPOOL,TESTING,ADMIN,MINER,NIWAKI \
                     --Xrpc-ipc-apis=ETH,NET,WEB3,DEBUG,TRACE,TXPOOL,TESTING,ADMIN,MINER,NIWAKI";

impl Node {
    /// Starts a node on the data path of `dir`, with `flags` in addition to those of every test.
    pub(crate) fn start(dir: TestDir, flags: &str) -> Self {
        let command = dir.command(&format!("{FLAGS} {flags}"), &[]);
        Self::spawn(dir, command)
    }

    /// Starts a node on a new chain of `--network=dev`, with `flags`.
    pub(crate) fn dev(flags: &str) -> Self {
        let dir = TestDir::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
        command.args(["--network", "dev", "--data-path"]);
        command.arg(dir.data_path());
        command.args(format!("{FLAGS} {flags}").split_whitespace());
        Self::spawn(dir, command)
    }

    fn spawn(dir: TestDir, mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut node = Self {
            child,
            lines,
            dir,
            start_log: Vec::new(),
            http: ([127, 0, 0, 1], 0).into(),
            ws: ([127, 0, 0, 1], 0).into(),
            engine: ([127, 0, 0, 1], 0).into(),
        };
        node.wait_until_ready();
        node
    }

    /// The process id.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Starts a node with the 54 blocks of the execution-apis chain.
    pub(crate) fn with_chain() -> Self {
        Self::with_chain_and("")
    }

    /// As [`Self::with_chain`], with `flags`.
    pub(crate) fn with_chain_and(flags: &str) -> Self {
        let dir = TestDir::new();
        dir.import(&chain_file()).succeeded();
        Self::start(dir, flags)
    }

    fn wait_until_ready(&mut self) {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("not ready: {:#?}", self.start_log));
            let value: Value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            let fields = &value["fields"];
            let address = || fields["address"].as_str().unwrap().parse().unwrap();
            match fields["message"].as_str() {
                Some("JSON-RPC over HTTP") => self.http = address(),
                Some("JSON-RPC over WebSocket") => self.ws = address(),
                Some("Engine API") => self.engine = address(),
                Some("Ready") => return,
                _ => {}
            }
            self.start_log.push(value);
        }
    }

    /// Waits for the next log line with this message and returns its fields.
    pub(crate) fn fields(&self, message: &str) -> Value {
        self.line(message)["fields"].clone()
    }

    /// Waits for the next log line.
    pub(crate) fn next_line(&self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT);
        serde_json::from_str(&line.expect("a line")).unwrap()
    }

    /// Waits for the next log line with this message.
    pub(crate) fn line(&self, message: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|_| panic!("no line says {message}"));
            let value: Value = serde_json::from_str(&line).unwrap_or_default();
            if value["fields"]["message"] == message {
                return value;
            }
        }
    }

    /// The response to a call over HTTP.
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, body) = post(self.http, &request.to_string(), &[]);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The result of a call over HTTP, which must succeed.
    #[track_caller]
    pub(crate) fn result(&self, method: &str, params: Value) -> Value {
        let response = self.call(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// What Prometheus gets.
    pub(crate) fn metrics(&self) -> String {
        let services = self.result("net_services", json!([]));
        let port = services["metrics"]["port"].as_str().unwrap();
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        request(address, "GET", "/metrics", "", &[]).1
    }

    /// The response to an Engine API call with a token.
    pub(crate) fn engine_call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let token = format!("Bearer {}", self.token());
        let headers = [("authorization", token.as_str())];
        let (status, body) = post(self.engine, &request.to_string(), &headers);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// A token signed with the node's generated secret.
    pub(crate) fn token(&self) -> String {
        let secret = std::fs::read_to_string(self.dir.data_path().join("jwt.hex")).unwrap();
        let secret = niwaki_rpc::JwtSecret::parse(&secret).unwrap();
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        secret.token(now)
    }

    /// Opens a WebSocket.
    pub(crate) fn socket(&self) -> Socket {
        self.socket_of(None)
    }

    /// Opens a WebSocket with this `Authorization` header.
    pub(crate) fn socket_of(&self, token: Option<&str>) -> Socket {
        self.handshake(token).expect("a WebSocket")
    }

    /// The HTTP status with which the node rejects a WebSocket.
    pub(crate) fn refused_socket(&self, token: Option<&str>) -> u16 {
        self.handshake(token).map(drop).unwrap_err()
    }

    fn handshake(&self, token: Option<&str>) -> Result<Socket, u16> {
        let stream = TcpStream::connect(self.ws).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let url = format!("ws://{}/", self.ws);
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = token {
            let headers = request.headers_mut();
            headers.insert("authorization", token.parse().unwrap());
        }
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Socket(socket)),
            Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens the IPC socket.
    pub(crate) fn ipc(&self) -> Ipc {
        let stream = UnixStream::connect(self.dir.data_path().join("niwaki.ipc")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Ipc(BufReader::new(stream))
    }

    /// Sends SIGTERM and waits for the exit. Returns the folder and the exit code.
    pub(crate) fn stop(mut self) -> (TestDir, Option<i32>) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        let dir = std::mem::replace(&mut self.dir, TestDir::new());
        (dir, code)
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) -> TestDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, TestDir::new())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A WebSocket to a node.
pub(crate) struct Socket(tungstenite::WebSocket<TcpStream>);

impl Socket {
    pub(crate) fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.0.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }
}

/// An IPC connection to a node.
pub(crate) struct Ipc(BufReader<UnixStream>);

impl Ipc {
    pub(crate) fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// Sends one request and returns the status and body of the response.
pub(crate) fn post(address: SocketAddr, body: &str, headers: &[(&str, &str)]) -> (u16, String) {
    request(address, "POST", "/", body, headers)
}

/// Sends one request and returns the status and body of the response.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    // The response may arrive before the server has read the whole body.
    let _ = stream.write_all(body.as_bytes());
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => joined(body),
        false => body.to_owned(),
    };
    (status.unwrap_or(0), body)
}

/// The data of all complete chunks.
fn joined(mut chunks: &str) -> String {
    let mut data = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        let Some((chunk, rest)) = rest.split_at_checked(length) else {
            break;
        };
        data += chunk;
        chunks = rest.trim_start_matches("\r\n");
    }
    data
}
