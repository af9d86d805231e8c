//! GraphQL by GET and POST: from a request that was read to a response.

use super::http::{HttpResponse, json};
use crate::dispatch::Dispatcher;
use crate::graphql::{GraphQl, Refused, refusal};
use crate::methods::Lane;
use async_graphql::Request;
use hyper::StatusCode;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Runs a request, or says why it is refused. As geth and Besu have it, an answer with an error has status 400.
pub(super) async fn respond(
    graphql: &Arc<GraphQl>,
    dispatcher: &Dispatcher,
    request: Result<Request, Refused>,
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
