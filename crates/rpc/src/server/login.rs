//! `POST /login`: exchanges a user's name and password for a token.

use super::http::{HttpResponse, json, plain, with_header};
use super::tokens::Login;
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use serde::Deserialize;

/// Its path.
pub(super) const PATH: &str = "/login";

/// Most bytes of a request; names and passwords are short.
pub(super) const MAX_BYTES: usize = 16 << 10;

#[derive(Deserialize)]
struct Request {
    username: String,
    password: String,
}

/// The response: a token, or why there is none.
pub(super) async fn respond(login: &Login, body: &[u8]) -> HttpResponse {
    let Ok(Request { username, password }) = serde_json::from_slice(body) else {
        let message = "Authentication failed: username and password are required.";
        return plain(StatusCode::BAD_REQUEST, message);
    };
    match login.token(username, password).await {
        // A token is base64url with dots: nothing in it needs an escape.
        Ok(Some(token)) => json(StatusCode::OK, format!("{{\"token\":\"{token}\"}}")),
        Ok(None) => {
            let message = "Authentication failed: the username or password is incorrect.";
            plain(StatusCode::UNAUTHORIZED, message)
        }
        Err(_) => {
            let message = "too many logins at once; try again";
            let response = plain(StatusCode::SERVICE_UNAVAILABLE, message);
            with_header(response, RETRY_AFTER, "1")
        }
    }
}
