//! Calls of the node that runs on a data path, by its operator's socket.

use crate::open::data_path;
use crate::options::Options;
use crate::run::OPERATOR_SOCKET;
use eyre::{Result, WrapErr, eyre};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// A connection to the node; `None` if none runs.
pub(crate) fn connect(options: &Options) -> Result<Option<UnixStream>> {
    let socket = data_path(options)?.join(OPERATOR_SOCKET);
    Ok(UnixStream::connect(socket).ok())
}

/// The result of a call.
///
/// # Errors
/// What the node says, or that it went away.
pub(crate) fn call(mut node: UnixStream, method: &str, params: &Value) -> Result<Value> {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    node.write_all(request.to_string().as_bytes())?;
    let mut response = String::new();
    BufReader::new(node).read_line(&mut response)?;
    let mut response: Value = serde_json::from_str(&response)
        .wrap_err("the node went away before it was done; run the command again")?;
    if let Some(error) = response.get("error") {
        let message = error["message"].as_str();
        return Err(eyre!("{}", message.unwrap_or("no reason given")));
    }
    Ok(response["result"].take())
}
