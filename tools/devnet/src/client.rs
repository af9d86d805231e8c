//! An execution client seen from outside: its Engine API and its JSON-RPC.

use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::Bytes;
use niwaki_rpc::JwtSecret;
use serde_json::{Value, json};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// A client with a large genesis file reads it first.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// How to ask a client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: &'static str,
    agent: ureq::Agent,
    rpc: String,
    engine: String,
    secret: JwtSecret,
}

impl Client {
    pub(crate) fn new(name: &'static str, rpc: u16, engine: u16, secret: JwtSecret) -> Self {
        Self {
            name,
            agent: agent(),
            rpc: format!("http://127.0.0.1:{rpc}"),
            engine: format!("http://127.0.0.1:{engine}"),
            secret,
        }
    }

    /// The same without the connections of this one.
    pub(crate) fn anew(&self) -> Self {
        Self {
            name: self.name,
            agent: agent(),
            rpc: self.rpc.clone(),
            engine: self.engine.clone(),
            secret: self.secret.clone(),
        }
    }

    /// Asks the public port.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Result<Value> {
        self.call(&self.rpc, None, method, params)
    }

    /// Asks the Engine API, and says how long that took.
    pub(crate) fn drive(&self, method: &str, params: Value) -> Result<(Value, Duration)> {
        let token = self.token()?;
        let began = Instant::now();
        let result = self.call(&self.engine, Some(&token), method, params)?;
        Ok((result, began.elapsed()))
    }

    /// Asks the Engine API, for an answer that may be an error.
    pub(crate) fn drive_raw(&self, method: &str, params: Value) -> Result<Value> {
        self.exchange(&self.engine, Some(&self.token()?), method, params)
    }

    fn token(&self) -> Result<String> {
        let now = UNIX_EPOCH.elapsed()?.as_secs();
        Ok(format!("Bearer {}", self.secret.token(now)))
    }

    fn call(&self, url: &str, token: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let mut answer = self.exchange(url, token, method, params)?;
        if let Some(error) = answer.get("error") {
            return Err(eyre!("{} {method}: {error}", self.name));
        }
        let result = answer.get_mut("result").map(Value::take);
        result.ok_or_else(|| eyre!("{} {method}: no answer but {answer}", self.name))
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
        let mut answer = request.send(body.to_string()).wrap_err_with(at)?;
        let limit = 256 << 20;
        let text = answer
            .body_mut()
            .with_config()
            .limit(limit)
            .read_to_string();
        let text = text.wrap_err_with(at)?;
        serde_json::from_str(&text).wrap_err_with(|| format!("{}: not JSON: {text}", at()))
    }

    /// Sends transactions in one batch to the public port; for each, in order, its error, if any.
    pub(crate) fn send_all(&self, raw: &[Bytes]) -> Result<Vec<Option<String>>> {
        let one = |raw: &Bytes| json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [raw] });
        let body = Value::from(raw.iter().map(one).collect::<Vec<_>>());
        let answers = self.post(&self.rpc, None, "a batch of transactions", &body)?;
        let answers = answers.as_array();
        let answers = answers.ok_or_else(|| eyre!("{}: a batch is no list", self.name))?;
        ensure!(answers.len() == raw.len(), "{} answers", answers.len());
        let error = |answer: &Value| {
            let error = answer.get("error")?;
            Some(error["message"].as_str().unwrap_or_default().to_owned())
        };
        Ok(answers.iter().map(error).collect())
    }

    /// Waits until the public port answers.
    pub(crate) fn wait_until_ready(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.ask("eth_blockNumber", json!([])) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > READY_WITHIN => {
                    return Err(error.wrap_err("it does not begin to answer"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(30)))
        .http_status_as_error(false)
        .build()
        .into()
}
