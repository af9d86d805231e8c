//! GraphQL over HTTP: one request names the fields that it wants of blocks, transactions, accounts and logs.
//!
//! Spec: EIP-1767, with the fields that geth and Besu have added since. Numbers are QUANTITYs in answers; in requests
//! they may also be JSON numbers or decimal digits.
//!
//! A request runs as a whole on a worker of the lane `Heavy`. What one may cost is bounded by its deadline, by the
//! nesting and the number of its fields, by the bytes of its answer, and by blocks of `blocks(from, to)`.
//!
//! | file | what it is |
//! |---|---|
//! | `query` | where a request begins: `Query` and `Mutation`, and the pending block |
//! | `block`, `transaction`, `account` | what it may ask of each |
//! | `call` | messages to simulate, and filters of logs |
//! | `scalars` | numbers, hashes, addresses and bytes as text |
//! | `text` | how long a request is besides its strings |
//! | `bounds` | refuses and ends requests that are too large |

mod account;
mod block;
mod bounds;
mod call;
mod query;
mod scalars;
mod text;
mod transaction;

use crate::{Backend, RpcError, metrics};
use async_graphql::http::parse_query_string;
use async_graphql::parser::types::OperationType;
use async_graphql::{EmptySubscription, Request, Response, Schema, ServerError};
use bounds::{BoundsFactory, Deadline};
use query::{Mutation, Query};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use text::{bytes_outside_strings, json_outside_strings};

/// Where it is served.
pub(crate) const PATH: &str = "/graphql";

/// Most levels of a request; the request for the whole schema that clients send has 14.
const MAX_DEPTH: usize = 24;
/// Most fields of a request, each counted once however often it comes in the answer.
const MAX_FIELDS: usize = 1_000;

/// Most bytes of a query besides its strings: what it takes to be parsed follows from them.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// Most bytes of a body besides its strings, of which the query is one: so of its variables.
const MAX_VARIABLE_BYTES: usize = 16 << 10;

/// The name of a request in the metrics of calls.
const METHOD: &str = "graphql";

/// The schema, and the backend that answers.
pub(crate) struct GraphQl {
    schema: Schema<Query, Mutation, EmptySubscription>,
}

impl std::fmt::Debug for GraphQl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphQl").finish_non_exhaustive()
    }
}

/// Why a request is no GraphQL, or not one that may come this way.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Not JSON, or without a query.
    Malformed(String),
    /// A GET that changes something.
    MutationByGet,
}

impl GraphQl {
    /// Answers from `backend`, at most `max_blocks` blocks at a time, 0 for no bound, in at most `max_bytes` bytes.
    pub(crate) fn new(backend: Arc<Backend>, max_blocks: u64, max_bytes: usize) -> Self {
        let schema = Schema::build(Query { max_blocks }, Mutation, EmptySubscription)
            .data(backend)
            .extension(BoundsFactory { max_bytes })
            .limit_depth(MAX_DEPTH)
            .limit_complexity(MAX_FIELDS)
            .finish();
        Self { schema }
    }

    /// Runs a request on the calling thread, which must not be one of `runtime`, and returns whether it succeeded and
    /// the answer as JSON.
    pub(crate) fn run(
        &self,
        request: Request,
        deadline: Instant,
        runtime: &tokio::runtime::Handle,
    ) -> (bool, Vec<u8>) {
        let began = Instant::now();
        let mut request = request.data(Deadline(deadline));
        let execute = || match is_bounded_request(&mut request) {
            true => runtime.block_on(self.schema.execute(request)),
            false => Response::from_errors(vec![ServerError::new("Query is too complex.", None)]),
        };
        let response = catch_unwind(AssertUnwindSafe(execute)).unwrap_or_else(|_| {
            tracing::error!("A GraphQL request panicked");
            let error = ServerError::new("the request's handler crashed", None);
            Response::from_errors(vec![error])
        });
        let response = with_codes(response);
        let result = match response.errors.first() {
            Some(error) => Err(rpc_error(error)),
            None => Ok(()),
        };
        metrics::record_call(METHOD, began.elapsed(), &result);
        (result.is_ok(), to_json(&response))
    }
}

/// Whether its text, with fragments in their places, is within bounds; one that can't be read is refused later.
fn is_bounded_request(request: &mut Request) -> bool {
    match request.parsed_query() {
        Ok(document) => bounds::is_bounded(document, MAX_FIELDS),
        Err(_) => true,
    }
}

/// Reads a request from the query string of a GET.
///
/// # Errors
/// [`Refused`].
pub(crate) fn by_get(query: &str) -> Result<Request, Refused> {
    // In the words of the specification of GraphQL over HTTP.
    let parts = query
        .split('&')
        .map(|part| match part.strip_prefix("operationName=") {
            Some(name) => format!("operation_name={name}"),
            None => part.to_owned(),
        });
    let query = parts.collect::<Vec<_>>().join("&");
    let request = parse_query_string(&query);
    let request = request.map_err(|error| Refused::Malformed(error.to_string()))?;
    let mut request = with_query(request)?;
    // One that does not parse is refused when it runs.
    if let Ok(document) = request.parsed_query() {
        let mut operations = document.operations.iter();
        if operations.any(|(_, operation)| operation.node.ty == OperationType::Mutation) {
            return Err(Refused::MutationByGet);
        }
    }
    Ok(request)
}

/// Reads a request from the body of a POST: JSON, or with `application/graphql` the query itself.
///
/// # Errors
/// [`Refused::Malformed`].
pub(crate) fn by_post(content_type: Option<&str>, body: &[u8]) -> Result<Request, Refused> {
    let is_bare = content_type.is_some_and(|text| text.starts_with("application/graphql"))
        && !content_type.is_some_and(|text| text.contains("json"));
    if is_bare {
        let query = std::str::from_utf8(body);
        let query = query.map_err(|_| Refused::Malformed("the query is not UTF-8".to_owned()))?;
        return with_query(Request::new(query));
    }
    if json_outside_strings(body) > MAX_VARIABLE_BYTES {
        let most = MAX_VARIABLE_BYTES;
        let words = format!("the variables have more than {most} bytes besides their strings");
        return Err(Refused::Malformed(words));
    }
    let request = serde_json::from_slice(body);
    with_query(request.map_err(|error| Refused::Malformed(format!("not a request: {error}")))?)
}

fn with_query(request: Request) -> Result<Request, Refused> {
    if request.query.is_empty() {
        return Err(Refused::Malformed("the member query is missing".to_owned()));
    }
    if bytes_outside_strings(&request.query) > MAX_QUERY_BYTES {
        let words = format!("the query has more than {MAX_QUERY_BYTES} bytes besides its strings");
        return Err(Refused::Malformed(words));
    }
    Ok(request)
}

/// The answer to a request that did not run.
pub(crate) fn refusal(message: &str) -> Vec<u8> {
    to_json(&Response::from_errors(vec![ServerError::new(
        message, None,
    )]))
}

fn to_json(response: &Response) -> Vec<u8> {
    serde_json::to_vec(response).unwrap_or_default()
}

/// The error that a resolver gave, or one of the language itself.
fn rpc_error(error: &ServerError) -> RpcError {
    match error.source::<RpcError>() {
        Some(error) => error.clone(),
        None => RpcError::invalid_params(error.message.clone()),
    }
}

/// The response whose errors carry code and message as Besu writes them.
fn with_codes(mut response: Response) -> Response {
    for error in &mut response.errors {
        let Some(source) = error.source::<RpcError>().cloned() else {
            continue;
        };
        let extensions = error.extensions.get_or_insert_default();
        extensions.set("errorCode", source.code);
        extensions.set("errorMessage", source.message);
        extensions.set("classification", "DataFetchingException");
    }
    response
}
