//! Errors as HTTP has them: a status, and a body of RFC 7807 with the members `type` and `detail`.

use crate::RpcError;
use crate::json::Object;

/// The type of error bodies.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestError {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// The last part of `type`.
    kind: &'static str,
    detail: String,
    /// The code that JSON-RPC has for it.
    code: i64,
}

impl RestError {
    fn new(status: u16, kind: &'static str, code: i64, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            code,
        }
    }

    /// No endpoint has this path and method.
    pub(crate) fn unknown_endpoint(path: &str) -> Self {
        let path: String = path.chars().take(100).collect();
        Self::new(
            404,
            "method-not-found",
            -32601,
            format!("there is no {path}"),
        )
    }

    /// A body that is not in SSZ.
    pub(crate) fn media_type() -> Self {
        let detail = "the body must be application/octet-stream";
        Self::new(415, "unsupported-media-type", -32600, detail)
    }

    /// More than is served at once.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(413, "request-too-large", -38004, detail)
    }

    /// A path or a query that says nothing.
    pub(crate) fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(400, "invalid-request", -32600, detail)
    }

    /// The body is not the container of its fork. The specification wants no words.
    pub(super) fn ssz() -> Self {
        Self::new(400, "ssz-decode-error", -32700, "")
    }

    /// The header names no fork that is known.
    pub(super) fn unsupported_fork(name: Option<&str>) -> Self {
        let detail = match name {
            Some(name) => format!("Eth-Execution-Version: {name:.40} is not known here"),
            None => "the header Eth-Execution-Version is missing".to_owned(),
        };
        Self::new(400, "unsupported-fork", -38005, detail)
    }

    /// The same error by JSON-RPC.
    pub(super) fn rpc(&self) -> RpcError {
        let words = match self.detail.is_empty() {
            true => self.kind,
            false => &self.detail,
        };
        RpcError::new(self.code, words)
    }

    /// Its body.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = Object::new(&mut out);
        object.string("type", &format!("/engine-api/errors/{}", self.kind));
        if !self.detail.is_empty() {
            object.string("detail", &self.detail);
        }
        drop(object);
        out
    }
}

impl From<RpcError> for RestError {
    fn from(error: RpcError) -> Self {
        let (status, kind) = match error.code {
            -32005 => (503, "internal"),
            -32700 => (400, "parse-error"),
            -32600 => (400, "invalid-request"),
            -32601 => (404, "method-not-found"),
            -32602 => (422, "invalid-body"),
            -38001 => (404, "unknown-payload"),
            -38002 => (409, "invalid-forkchoice"),
            -38003 => (422, "invalid-attributes"),
            -38004 => (413, "request-too-large"),
            -38005 => (400, "unsupported-fork"),
            -38006 => (409, "reorg-too-deep"),
            _ => (500, "internal"),
        };
        Self::new(status, kind, error.code, error.message)
    }
}
