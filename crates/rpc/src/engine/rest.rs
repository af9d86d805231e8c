//! The Engine API by REST, with bodies in SSZ: nothing is written in hexadecimal or parsed as JSON on the way of a block.
//!
//! Spec: EIP-8178; execution-apis `engine/refactor.md` and `engine/refactor-ssz.md` (pull request 793). The methods are
//! those of JSON-RPC: the same checks in the same order, on the same workers. The header `Eth-Execution-Version` names
//! the fork, and so the shape of a body; a block of another fork is refused.
//!
//! | file | what it is |
//! |---|---|
//! | `payloads` | blocks to validate, and blocks that were built |
//! | `forkchoice` | the head, and the block to build on it |
//! | `bodies`, `blobs` | bodies of blocks, blobs of the pool |
//! | `large` | containers with blobs |
//! | `fork` | names of forks |
//! | `error` | errors as HTTP has them (RFC 7807) |

mod blobs;
mod bodies;
mod error;
mod fork;
mod forkchoice;
mod large;
mod payloads;

use super::identity;
use crate::json::Object;
use crate::methods::Lane;
use crate::{Backend, RpcError, metrics};
use bytes::Bytes;
pub(crate) use error::{PROBLEM, RestError};
use fork::EngineFork;
use ssz::{Decode, Encode};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// What every path begins with.
pub(crate) const BASE: &str = "/engine/v1/";
/// Most bytes of a body.
pub(crate) const MAX_BODY_BYTES: usize = 64 << 20;
/// The type of bodies in SSZ.
pub(crate) const SSZ: &str = "application/octet-stream";

/// A request whose endpoint is known.
#[derive(Debug, Default)]
pub(crate) struct RestRequest {
    /// The part of the path after the endpoint's own.
    pub(crate) tail: String,
    /// The query string.
    pub(crate) query: String,
    /// The header `Eth-Execution-Version`.
    pub(crate) fork: Option<String>,
    /// The header `X-Engine-Client-Version`.
    pub(crate) client: Option<String>,
    /// The body.
    pub(crate) body: Bytes,
    /// When the caller stops waiting.
    pub(crate) deadline: Option<Instant>,
}

impl RestRequest {
    /// The fork of its bodies.
    fn fork(&self) -> Result<EngineFork, RestError> {
        let name = self.fork.as_deref();
        let fork = name.and_then(EngineFork::named);
        fork.ok_or_else(|| RestError::unsupported_fork(name))
    }

    /// Its body as a container.
    fn read<T: Decode>(&self) -> Result<T, RestError> {
        T::from_ssz_bytes(&self.body).map_err(|error| {
            tracing::debug!(?error, "a body is not the container that it must be");
            RestError::ssz()
        })
    }

    /// Refuses a body with more than `most` hashes after its first `fixed` bytes: a container that is too long would only be
    /// none.
    fn check_hashes(&self, fixed: usize, most: usize) -> Result<(), RestError> {
        let count = self.body.len().saturating_sub(fixed) / 32;
        if count > most {
            let words = format!("{count} hashes, at most {most} are served");
            return Err(RestError::too_large(words));
        }
        Ok(())
    }

    fn check_deadline(&self) -> Result<(), RestError> {
        match self
            .deadline
            .is_some_and(|deadline| Instant::now() > deadline)
        {
            true => Err(RpcError::server("request timed out").into()),
            false => Ok(()),
        }
    }
}

/// An answer that is no error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RestReply {
    /// A container in SSZ.
    Ssz(Vec<u8>),
    /// JSON.
    Json(Vec<u8>),
    /// Nothing: it can't be served at present.
    NoContent,
}

impl RestReply {
    fn of(container: &impl Encode) -> Self {
        Self::Ssz(container.as_ssz_bytes())
    }
}

type Answer = Result<RestReply, RestError>;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Whether it takes a body in SSZ by POST, else it is a GET.
    pub(crate) is_post: bool,
    /// Its path after [`BASE`]; one that ends with `/` takes a tail.
    path: &'static str,
    /// Who runs it.
    pub(crate) lane: Lane,
    /// The JSON-RPC method that it stands for, in metrics and the log.
    method: &'static str,
    run: fn(&Backend, &RestRequest) -> Answer,
}

/// Every endpoint.
#[rustfmt::skip]
const ENDPOINTS: &[Endpoint] = &[
    post("payloads", Lane::Engine, "engine_newPayload", payloads::submit),
    get("payloads/", "engine_getPayload", payloads::built),
    post("forkchoice", Lane::Engine, "engine_forkchoiceUpdated", forkchoice::update),
    post("bodies/hash", Lane::Payload, "engine_getPayloadBodiesByHash", bodies::by_hash),
    get("bodies", "engine_getPayloadBodiesByRange", bodies::by_range),
    post("blobs/v1", Lane::Payload, "engine_getBlobsV1", blobs::v1),
    post("blobs/v2", Lane::Payload, "engine_getBlobsV2", blobs::v2),
    post("blobs/v3", Lane::Payload, "engine_getBlobsV3", blobs::v3),
    post("blobs/v4", Lane::Payload, "engine_getBlobsV4", blobs::v4),
    get("capabilities", "engine_exchangeCapabilities", capabilities),
    get("identity", "engine_getClientVersionV1", identity),
];

const fn post(
    path: &'static str,
    lane: Lane,
    method: &'static str,
    run: fn(&Backend, &RestRequest) -> Answer,
) -> Endpoint {
    Endpoint {
        is_post: true,
        path,
        lane,
        method,
        run,
    }
}

const fn get(
    path: &'static str,
    method: &'static str,
    run: fn(&Backend, &RestRequest) -> Answer,
) -> Endpoint {
    Endpoint {
        is_post: false,
        path,
        lane: Lane::Payload,
        method,
        run,
    }
}

impl Endpoint {
    /// The endpoint at `path`, which begins with [`BASE`], and the tail of the path.
    pub(crate) fn find(is_post: bool, path: &str) -> Option<(&'static Self, String)> {
        let path = path.strip_prefix(BASE)?;
        ENDPOINTS.iter().find_map(|endpoint| {
            let tail = match endpoint.path.ends_with('/') {
                true => path.strip_prefix(endpoint.path)?,
                false => (path == endpoint.path).then_some("")?,
            };
            (endpoint.is_post == is_post).then(|| (endpoint, tail.to_owned()))
        })
    }

    /// Runs a request, as [`crate::dispatch`] runs a call.
    pub(crate) fn run(&self, backend: &Backend, request: &RestRequest) -> Answer {
        let began = Instant::now();
        backend.record_consensus_call();
        let run = || (self.run)(backend, request);
        let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            tracing::error!(method = self.method, "A method panicked");
            Err(RpcError::internal("method handler crashed").into())
        });
        let result = answer.as_ref().map(|_| ()).map_err(RestError::rpc);
        metrics::record_call(self.method, began.elapsed(), &result);
        if let Err(error) = &result {
            backend.engine_log.failed(self.method, error);
        }
        answer
    }
}

/// What this node serves by REST.
fn capabilities(backend: &Backend, _: &RestRequest) -> Answer {
    let mut out = Vec::new();
    let mut object = Object::new(&mut out);
    strings(&mut object, "supported_forks", &EngineFork::NAMES);
    strings(
        &mut object,
        "fork_scoped_endpoints",
        &["payloads", "forkchoice", "bodies"],
    );
    let mut versioned = object.object("independently_versioned");
    let revisions = &["v1", "v2", "v3", "v4"];
    let from = usize::from(!blobs::serves_v1(backend));
    strings(&mut versioned, "blobs", &revisions[from..]);
    drop(versioned);
    strings(
        &mut object,
        "unscoped_endpoints",
        &["capabilities", "identity"],
    );
    let mut limits = object.object("limits");
    limits.decimal("bodies.max_count", bodies::MAX_BODIES as u64);
    limits.decimal("blobs.max_versioned_hashes", blobs::MAX_BLOBS as u64);
    limits.decimal("payload.max_bytes", MAX_BODY_BYTES as u64);
    drop(limits);
    drop(object);
    Ok(RestReply::Json(out))
}

fn strings(object: &mut Object<'_>, name: &str, texts: &[&str]) {
    let mut list = object.array(name);
    for text in texts {
        crate::json::string(list.item(), text);
    }
}

fn identity(backend: &Backend, request: &RestRequest) -> Answer {
    if let Some(client) = &request.client {
        tracing::info!(%client, "Consensus client, by REST");
    }
    let mut out = Vec::new();
    identity::write_client_version(backend, &mut out);
    Ok(RestReply::Json(out))
}
