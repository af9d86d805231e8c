//! A node's JSON-RPC.

use eyre::{Result, WrapErr, bail, ensure, eyre};
use niwaki_primitives::{Bytes, hex};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a response: a block of 100,000 transactions' hashes is below.
const MAX_BYTES: u64 = 64 << 20;

/// A node.
#[derive(Debug)]
pub(super) struct Client {
    url: String,
    agent: ureq::Agent,
}

impl Client {
    pub(super) fn new(url: &str) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT));
        Self {
            url: url.to_owned(),
            agent: config.build().into(),
        }
    }

    /// The same node, by connections of its own.
    pub(super) fn with_new_connections(&self) -> Self {
        Self::new(&self.url)
    }

    fn post(&self, body: String) -> Result<Value> {
        let at = || self.url.clone();
        let request = self.agent.post(&self.url);
        let request = request.header("content-type", "application/json");
        let mut response = request.send(body).wrap_err_with(at)?;
        let body = response.body_mut().with_config().limit(MAX_BYTES);
        let text = body.read_to_string().wrap_err_with(at)?;
        serde_json::from_str(&text).wrap_err_with(|| format!("{}: not JSON: {text}", self.url))
    }

    /// The result of a call.
    pub(super) fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut response = self.post(body.to_string())?;
        match response.get("error") {
            Some(error) => bail!("{} {method}: {error}", self.url),
            None => Ok(response["result"].take()),
        }
    }

    /// The number that a call returns.
    pub(super) fn number(&self, method: &str) -> Result<u64> {
        number(&self.call(method, &json!([]))?)
    }

    /// What the node says it is.
    pub(super) fn version(&self) -> Result<String> {
        let version = self.call("web3_clientVersion", &json!([]))?;
        Ok(version.as_str().unwrap_or_default().to_owned())
    }

    /// Sends transactions in one batch. Returns the error of each, in order.
    pub(super) fn send(&self, raw: &[&Bytes]) -> Result<Vec<Option<String>>> {
        let mut body = String::with_capacity(raw.iter().map(|tx| 2 * tx.len() + 100).sum());
        for (index, tx) in raw.iter().enumerate() {
            body.push(if index == 0 { '[' } else { ',' });
            let _ = write!(
                body,
                r#"{{"jsonrpc":"2.0","id":{index},"method":"eth_sendRawTransaction","params":["0x{}"]}}"#,
                hex::encode(tx)
            );
        }
        body.push(']');
        let responses = self.post(body)?;
        let Some(responses) = responses.as_array() else {
            bail!("{}: a batch was answered with {responses}", self.url);
        };
        ensure!(
            responses.len() == raw.len(),
            "{}: {} responses to {} transactions",
            self.url,
            responses.len(),
            raw.len()
        );
        let mut errors = vec![None; raw.len()];
        for response in responses {
            let index = response["id"]
                .as_u64()
                .and_then(|id| usize::try_from(id).ok());
            let place = index.and_then(|index| errors.get_mut(index));
            let place = place.ok_or_else(|| eyre!("{}: a response to nothing", self.url))?;
            let error = response.get("error");
            *place = error.map(|error| error["message"].as_str().unwrap_or("?").to_owned());
        }
        Ok(errors)
    }
}

/// A number in hex.
pub(super) fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or_else(|| eyre!("{value} is no number in hex"))
}
