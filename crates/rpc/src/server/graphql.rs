//! GraphQL by GET and POST: from a request to a response.

use super::http::{Connection, HttpResponse, header_text, json, plain};
use crate::dispatch::Dispatcher;
use crate::graphql::{GraphQl, Refused, by_get, by_post, refusal};
use crate::methods::Lane;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode, header};
use std::sync::Arc;
use tokio::runtime::Handle;

impl Connection {
    pub(super) async fn answer_graphql(
        &self,
        graphql: &Arc<GraphQl>,
        request: Request<Incoming>,
    ) -> HttpResponse {
        if let Err(refused) = self.authorize(request.headers()) {
            return *refused;
        }
        let read = match *request.method() {
            Method::GET => by_get(request.uri().query().unwrap_or_default()),
            Method::POST => {
                let content_type = header_text(request.headers(), header::CONTENT_TYPE);
                let content_type = content_type.map(str::to_owned);
                match self.body(request, self.options.max_body_bytes).await {
                    Ok(body) => by_post(content_type.as_deref(), &body),
                    Err(error) => return error.response(),
                }
            }
            _ => return plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        };
        respond(graphql, &self.dispatcher, read).await
    }
}

/// Runs a request, or says why it is refused. As geth and Besu have it, an answer with an error has status 400.
async fn respond(
    graphql: &Arc<GraphQl>,
    dispatcher: &Dispatcher,
    request: Result<async_graphql::Request, Refused>,
) -> HttpResponse {
    let request = match request {
        Ok(request) => request,
        Err(Refused::Malformed(reason)) => {
            return json(StatusCode::BAD_REQUEST, refusal(&reason));
        }
        Err(Refused::MutationByGet) => {
            let reason = "a mutation must come by POST";
            return json(StatusCode::METHOD_NOT_ALLOWED, refusal(reason));
        }
    };
    let (graphql, runtime) = (Arc::clone(graphql), Handle::current());
    let run = move |deadline| graphql.run(request, deadline, &runtime);
    match dispatcher.run(Lane::Heavy, run).await {
        Some((true, answer)) => json(StatusCode::OK, answer),
        Some((false, answer)) => json(StatusCode::BAD_REQUEST, answer),
        None => {
            let reason = "too many calls are waiting, or the time is over; try again";
            json(StatusCode::SERVICE_UNAVAILABLE, refusal(reason))
        }
    }
}
