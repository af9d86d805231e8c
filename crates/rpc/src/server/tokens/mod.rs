//! Authorization by tokens that carry permissions, as in Besu.
//!
//! A token is issued by this node to a user who logs in with a password, or by a third party whose public key this node
//! knows. It has an expiry and a list of permissions: `*:*`, `eth:*` or `eth:blockNumber`. Each request is checked
//! against it, so that a token that expires during a connection permits nothing more.

mod key;
mod users;

pub use key::{TokenAlgorithm, TokenKey};
pub use users::{Login, PasswordError, User, Users, hash_password};

use data_encoding::BASE64URL_NOPAD;
use key::Head;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How far the clock of a token's issuer may be ahead of this machine's, seconds.
const LEEWAY_SECONDS: f64 = 5.0;

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No `Authorization: Bearer` header.
    #[error("missing token")]
    Missing,
    /// Not three parts of base64url with the expected JSON inside.
    #[error("malformed token")]
    Malformed,
    /// Not the configured algorithm, or with critical extensions.
    #[error("the token's algorithm must be {0}")]
    Algorithm(&'static str),
    /// Not signed by the expected key.
    #[error("the token's signature is wrong")]
    Signature,
    /// Past its `exp`.
    #[error("the token has expired")]
    Expired,
    /// Before its `nbf` or `iat`.
    #[error("the token is of the future; compare the two machines' clocks")]
    Early,
}

/// The tokens that a server accepts.
#[derive(Debug)]
pub struct Tokens {
    key: TokenKey,
    open_methods: BTreeSet<String>,
    login: Option<Login>,
}

/// A caller whose token was checked.
#[derive(Clone, Debug)]
pub struct Caller {
    tokens: Arc<Tokens>,
    token: Option<Arc<Token>>,
}

#[derive(Debug)]
struct Token {
    expires: f64,
    permissions: Vec<String>,
}

/// The claims that matter. Times are seconds since 1970, which may have a fraction (RFC 7519).
#[derive(Deserialize)]
struct Claims {
    exp: f64,
    iat: Option<f64>,
    nbf: Option<f64>,
    #[serde(default)]
    permissions: Vec<String>,
}

impl Tokens {
    /// Tokens that a third party issues, checked with its public key.
    pub fn of_others(key: TokenKey, open_methods: BTreeSet<String>) -> Self {
        Self {
            key,
            open_methods,
            login: None,
        }
    }

    /// Tokens that this node issues to users who log in.
    pub fn of_users(login: Login, open_methods: BTreeSet<String>) -> Self {
        Self {
            key: login.key().clone(),
            open_methods,
            login: Some(login),
        }
    }

    /// The login of users, if there is one.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// The caller by the header `Authorization`. If some methods need no token, a caller without a valid one may call
    /// those.
    ///
    /// # Errors
    /// [`TokenError`], if every method needs a token.
    pub(crate) fn caller(self: &Arc<Self>, header: Option<&str>) -> Result<Caller, TokenError> {
        let token = match self.token(header, now()) {
            Ok(token) => Some(Arc::new(token)),
            Err(error) if self.open_methods.is_empty() => return Err(error),
            Err(_) => None,
        };
        Ok(Caller {
            tokens: Arc::clone(self),
            token,
        })
    }

    fn token(&self, header: Option<&str>, now: f64) -> Result<Token, TokenError> {
        let token = header
            .and_then(|header| header.strip_prefix("Bearer "))
            .ok_or(TokenError::Missing)?
            .trim();
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;

        let head: Head = part(head)?;
        let algorithm = self.key.algorithm().name();
        if head.alg != algorithm || head.crit.is_some() {
            return Err(TokenError::Algorithm(algorithm));
        }
        let signature = decode(signature)?;
        if !self.key.has_signed(signed.as_bytes(), &signature) {
            return Err(TokenError::Signature);
        }

        let claims: Claims = part(claims)?;
        if claims.exp <= now {
            return Err(TokenError::Expired);
        }
        let begins = claims.iat.unwrap_or(0.0).max(claims.nbf.unwrap_or(0.0));
        if begins > now + LEEWAY_SECONDS {
            return Err(TokenError::Early);
        }
        Ok(Token {
            expires: claims.exp,
            permissions: claims.permissions,
        })
    }
}

impl Caller {
    /// Whether the method may be called, now.
    pub(crate) fn may(&self, method: &str) -> bool {
        self.may_at(method, now())
    }

    fn may_at(&self, method: &str, now: f64) -> bool {
        let by_token = |token: &Arc<Token>| token.expires > now && token.permits(method);
        self.tokens.open_methods.contains(method) || self.token.as_ref().is_some_and(by_token)
    }
}

impl Token {
    fn permits(&self, method: &str) -> bool {
        let (namespace, name) = method.split_once(['_', '.']).unwrap_or((method, ""));
        self.permissions
            .iter()
            .filter_map(|permission| permission.split_once(':'))
            .any(|(of, what)| match (of, what) {
                ("*", "*") => true,
                (of, "*") => of == namespace,
                (of, what) => of == namespace && what == name,
            })
    }
}

fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, TokenError> {
    let bytes = decode(text)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64())
}

fn decode(text: &str) -> Result<Vec<u8>, TokenError> {
    let decoded = BASE64URL_NOPAD.decode(text.as_bytes());
    decoded.map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests;
