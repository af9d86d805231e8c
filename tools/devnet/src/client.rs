//! An execution client seen from outside: its Engine API and its JSON-RPC.

use crate::load::number;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::{B256, Bytes};
use niwaki_rpc::JwtSecret;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The ports of one client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    agent: ureq::Agent,
    rpc: String,
    engine: String,
    secret: JwtSecret,
}

impl Client {
    /// A client with its ports on 127.0.0.1.
    pub(crate) fn new(name: &'static str, rpc: u16, engine: u16, secret: JwtSecret) -> Self {
        let at = |port| (Ipv4Addr::LOCALHOST, port).into();
        Self::at(name, at(rpc), at(engine), secret)
    }

    /// A client whose JSON-RPC and Engine API have these addresses.
    pub(crate) fn at(
        name: &'static str,
        rpc: SocketAddr,
        engine: SocketAddr,
        secret: JwtSecret,
    ) -> Self {
        Self {
            name,
            agent: agent(),
            rpc: format!("http://{rpc}"),
            engine: format!("http://{engine}"),
            secret,
        }
    }

    /// A client of the same ports that shares no connection with this one.
    pub(crate) fn with_new_connections(&self) -> Self {
        Self {
            name: self.name,
            agent: agent(),
            rpc: self.rpc.clone(),
            engine: self.engine.clone(),
            secret: self.secret.clone(),
        }
    }

    /// The result of a call to the public JSON-RPC port.
    pub(crate) fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.result(&self.rpc, None, method, params)
    }

    /// The result of an Engine API call, and how long the call took.
    pub(crate) fn call_engine(&self, method: &str, params: Value) -> Result<(Value, Duration)> {
        let token = self.token()?;
        let began = Instant::now();
        let result = self.result(&self.engine, Some(&token), method, params)?;
        Ok((result, began.elapsed()))
    }

    /// The whole JSON-RPC response of an Engine API call, which may be an error.
    pub(crate) fn engine_response(&self, method: &str, params: Value) -> Result<Value> {
        self.exchange(&self.engine, Some(&self.token()?), method, params)
    }

    /// The number of the head.
    pub(crate) fn block_number(&self) -> Result<u64> {
        number(&self.call("eth_blockNumber", json!([]))?)
    }

    /// The block at `tag`, with the hashes of its transactions.
    pub(crate) fn block(&self, tag: &str) -> Result<Value> {
        self.call("eth_getBlockByNumber", json!([tag, false]))
    }

    /// The node as peers name it.
    pub(crate) fn enode(&self) -> Result<String> {
        let info = self.call("admin_nodeInfo", json!([]))?;
        let enode = info["enode"].as_str().map(str::to_owned);
        enode.ok_or_else(|| eyre!("{}: admin_nodeInfo has no enode: {info}", self.name))
    }

    /// Has the node dial a peer for as long as it runs.
    pub(crate) fn add_peer(&self, enode: &str) -> Result<()> {
        self.call("admin_addPeer", json!([enode]))?;
        Ok(())
    }

    /// Has the node leave a peer.
    pub(crate) fn remove_peer(&self, enode: &str) -> Result<()> {
        self.call("admin_removePeer", json!([enode]))?;
        Ok(())
    }

    /// How many peers it has.
    pub(crate) fn peer_count(&self) -> Result<u64> {
        number(&self.call("net_peerCount", json!([]))?)
    }

    /// Checks that the block at `tag` has the hash `expected`.
    pub(crate) fn check_hash(&self, tag: &str, expected: &Value) -> Result<()> {
        let hash = &self.block(tag)?["hash"];
        ensure!(
            hash == expected,
            "the {tag} block is {hash}, expected {expected}"
        );
        Ok(())
    }

    /// Makes the block `hash` the head, with `method`; the response must be VALID.
    pub(crate) fn make_head(&self, method: &str, hash: &Value) -> Result<()> {
        let state = json!({
            "headBlockHash": hash, "safeBlockHash": B256::ZERO, "finalizedBlockHash": B256::ZERO,
        });
        let response = self.engine_response(method, json!([state, null]))?;
        let status = &response["result"]["payloadStatus"]["status"];
        ensure!(status == "VALID", "{method}: {response}");
        Ok(())
    }

    fn token(&self) -> Result<String> {
        let now = UNIX_EPOCH.elapsed()?.as_secs();
        Ok(format!("Bearer {}", self.secret.token(now)))
    }

    fn result(&self, url: &str, token: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let mut response = self.exchange(url, token, method, params)?;
        if let Some(error) = response.get("error") {
            return Err(eyre!("{} {method}: {error}", self.name));
        }
        let result = response.get_mut("result").map(Value::take);
        result.ok_or_else(|| eyre!("{} {method}: no result in {response}", self.name))
    }

    fn exchange(
        &self,
        url: &str,
        token: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.post(url, token, method, &body)
    }

    fn post(&self, url: &str, token: Option<&str>, what: &str, body: &Value) -> Result<Value> {
        let at = || format!("{} {what}", self.name);
        let mut request = self
            .agent
            .post(url)
            .header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let mut response = request.send(body.to_string()).wrap_err_with(at)?;
        let limit = 256 << 20;
        let text = response
            .body_mut()
            .with_config()
            .limit(limit)
            .read_to_string();
        let text = text.wrap_err_with(at)?;
        serde_json::from_str(&text).wrap_err_with(|| format!("{}: not JSON: {text}", at()))
    }

    /// Sends transactions to the public port in one JSON-RPC batch. Returns each one's error, in order.
    pub(crate) fn send_batch(&self, raw: &[Bytes]) -> Result<Vec<Option<String>>> {
        let request = |raw: &Bytes| json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw] });
        let body = Value::from(raw.iter().map(request).collect::<Vec<_>>());
        let responses = self.post(&self.rpc, None, "a batch of transactions", &body)?;
        let responses = responses.as_array();
        let responses =
            responses.ok_or_else(|| eyre!("{}: a batch response is not a list", self.name))?;
        ensure!(
            responses.len() == raw.len(),
            "{} responses",
            responses.len()
        );
        let error = |response: &Value| {
            let error = response.get("error")?;
            Some(error["message"].as_str().unwrap_or_default().to_owned())
        };
        Ok(responses.iter().map(error).collect())
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(30)))
        .http_status_as_error(false)
        .build()
        .into()
}
