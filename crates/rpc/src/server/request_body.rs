//! The body of a request, bounded in bytes and time.

use super::http::{HttpResponse, plain};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use std::time::Duration;

/// The most memory that is reserved for a body at once, whatever its announced length. A payload with 60 Mgas of
/// transfers, swaps and mints has 0.4 MiB.
const MAX_INITIAL_CAPACITY: usize = 1 << 20;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the request is longer than {0} bytes")]
    TooLong(usize),
    #[error("the request did not come whole")]
    Incomplete,
    #[error("the request came too slowly")]
    TooSlow,
}

impl BodyError {
    /// The response, as plain text.
    pub(super) fn response(self) -> HttpResponse {
        let status = match self {
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Incomplete => StatusCode::BAD_REQUEST,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        };
        plain(status, &self.to_string())
    }
}

/// The whole body, of at most `most` bytes, within `timeout`. One that is announced to be longer is not read.
pub(super) async fn read(
    body: Incoming,
    most: usize,
    timeout: Duration,
) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > most as u64 {
        return Err(BodyError::TooLong(most));
    }
    match tokio::time::timeout(timeout, whole(Limited::new(body, most))).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLong(most)),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::TooSlow),
    }
}

/// Collects a body in one buffer, whose capacity is reserved up front; its frames are freed as they arrive.
async fn whole(
    mut body: Limited<Incoming>,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut whole = Vec::with_capacity(announced.min(MAX_INITIAL_CAPACITY));
    while let Some(part) = body.frame().await {
        if let Ok(data) = part?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}
