//! JSON-RPC errors.

use niwaki_primitives::Fault;
use std::fmt::Write;

/// What a method returns: nothing, since it writes its result to a buffer, or an error.
pub(crate) type RpcResult = Result<(), RpcError>;

/// A JSON-RPC error object: code, message and, for a revert, the data returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The code: from -32000 down JSON-RPC's, from -38000 down the Engine API's, 3 for a revert.
    pub code: i64,
    /// One sentence. Clients match on many of them, so they are worded as geth words them.
    pub message: String,
    /// The `data` member, already JSON.
    pub data: Option<String>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// -32700: not JSON.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(-32700, message)
    }

    /// -32600: JSON, but no request.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    /// -32601: the method is not offered.
    pub fn method_not_found(method: &str) -> Self {
        let method: String = method.chars().take(100).collect();
        Self::new(
            -32601,
            format!("the method {method} does not exist/is not available"),
        )
    }

    /// -32602: the method does not take these parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// -32603: a failure of this node.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    /// -32000: any other error.
    pub fn server(message: impl Into<String>) -> Self {
        Self::new(-32000, message)
    }

    /// -32005: more than this node serves at once.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(-32005, message)
    }

    /// -40100, Besu's: the caller may not call this.
    pub fn unauthorized() -> Self {
        Self::new(-40100, "Unauthorized")
    }

    /// 3: the call was reverted with these bytes.
    pub fn reverted(reason: Option<&str>, output: &[u8]) -> Self {
        let mut message = String::from("execution reverted");
        if let Some(reason) = reason {
            let _ = write!(message, ": {reason}");
        }
        Self {
            code: 3,
            message,
            data: Some(format!("\"0x{}\"", niwaki_primitives::hex::encode(output))),
        }
    }
}

impl From<Fault> for RpcError {
    /// A fault says nothing about the request, only that this node can't answer it.
    fn from(fault: Fault) -> Self {
        tracing::error!(%fault, "A request met a fault of the machine");
        Self::internal(format!("this node can't read its data: {fault}"))
    }
}
