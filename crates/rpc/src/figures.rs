//! What is counted of calls and connections, under Besu's names where Besu has them.

use crate::RpcError;
use metrics::{counter, gauge, histogram};
use std::time::Duration;

/// Counts calls and connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures;

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub struct Counted(&'static str);

impl Drop for Counted {
    fn drop(&mut self) {
        gauge!(self.0).decrement(1);
    }
}

impl Figures {
    /// A call was answered.
    pub fn call(&self, method: &'static str, took: Duration, result: &Result<(), RpcError>) {
        histogram!("besu_rpc_request_time", "methodName" => method).record(took);
        if let Err(error) = result {
            let code = error.code.to_string();
            counter!("besu_rpc_errors_count_total", "rpcMethod" => method, "errorType" => code)
                .increment(1);
        }
    }

    /// A connection over HTTP was opened.
    pub fn http_connection(&self) -> Counted {
        Self::connection("besu_rpc_active_http_connection_count")
    }

    /// A connection became a WebSocket.
    pub fn ws_connection(&self) -> Counted {
        Self::connection("besu_rpc_active_ws_connection_count")
    }

    fn connection(name: &'static str) -> Counted {
        gauge!(name).increment(1);
        Counted(name)
    }

    /// A connection was closed because there were too many.
    pub fn connection_refused(&self) {
        counter!("niwaki_rpc_connections_refused_total").increment(1);
    }

    /// A request came without a good token.
    pub fn token_refused(&self) {
        counter!("niwaki_rpc_tokens_refused_total").increment(1);
    }
}
