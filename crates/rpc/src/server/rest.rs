//! The Engine API by REST: from a request to a response.

use super::http::{Connection, HttpResponse, header_text, json, plain, with_header};
use super::request_body::BodyError;
use crate::RpcError;
use crate::dispatch::Dispatcher;
use crate::engine::rest::{
    Endpoint, MAX_BODY_BYTES, PROBLEM, RestError, RestReply, RestRequest, SSZ,
};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use hyper::{Method, Request, StatusCode};
use std::sync::Arc;

const FORK: HeaderName = HeaderName::from_static("eth-execution-version");
const CLIENT: HeaderName = HeaderName::from_static("x-engine-client-version");

impl Connection {
    pub(super) async fn answer_rest(&self, request: Request<Incoming>) -> HttpResponse {
        let (endpoint, mut read) = match read_head(&request) {
            Ok(read) => read,
            Err(error) => return refusal(&error),
        };
        if endpoint.is_post {
            match self.body(request, MAX_BODY_BYTES).await {
                Ok(body) => read.body = body,
                Err(error @ BodyError::TooLong(_)) => {
                    return refusal(&RestError::too_large(error.to_string()));
                }
                Err(error) => return refusal(&RestError::invalid_request(error.to_string())),
            }
        }
        respond(&self.dispatcher, endpoint, read).await
    }
}

/// The endpoint of a request, and what its path and headers say.
///
/// # Errors
/// There is no such endpoint, or the body will not be in SSZ.
fn read_head<B>(request: &Request<B>) -> Result<(&'static Endpoint, RestRequest), RestError> {
    let (uri, headers) = (request.uri(), request.headers());
    let is_post = match *request.method() {
        Method::POST => true,
        Method::GET => false,
        _ => return Err(RestError::unknown_endpoint(uri.path())),
    };
    let found = Endpoint::find(is_post, uri.path());
    let (endpoint, tail) = found.ok_or_else(|| RestError::unknown_endpoint(uri.path()))?;
    let content_type = header_text(headers, CONTENT_TYPE).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    if is_post && !content_type.eq_ignore_ascii_case(SSZ) {
        return Err(RestError::media_type());
    }
    let text = |name| header_text(headers, name).map(str::to_owned);
    let read = RestRequest {
        tail,
        query: uri.query().unwrap_or_default().to_owned(),
        fork: text(FORK),
        client: text(CLIENT),
        ..RestRequest::default()
    };
    Ok((endpoint, read))
}

/// Runs a request on a worker of its lane.
async fn respond(
    dispatcher: &Dispatcher,
    endpoint: &'static Endpoint,
    mut request: RestRequest,
) -> HttpResponse {
    let backend = Arc::clone(dispatcher.backend());
    let run = move |deadline| {
        request.deadline = Some(deadline);
        endpoint.run(&backend, &request)
    };
    let answer = dispatcher.run(endpoint.lane, run).await;
    let busy = || {
        Err(RpcError::limit("too many calls are waiting, or the time is over; try again").into())
    };
    match answer.unwrap_or_else(busy) {
        Ok(RestReply::Ssz(bytes)) => {
            let response = with_header(json(StatusCode::OK, bytes), CONTENT_TYPE, SSZ);
            with_header(response, CACHE_CONTROL, "no-store")
        }
        Ok(RestReply::Json(text)) => json(StatusCode::OK, text),
        Ok(RestReply::NoContent) => plain(StatusCode::NO_CONTENT, ""),
        Err(error) => refusal(&error),
    }
}

/// The response with an error.
fn refusal(error: &RestError) -> HttpResponse {
    let status = StatusCode::from_u16(error.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_header(json(status, error.to_json()), CONTENT_TYPE, PROBLEM)
}
