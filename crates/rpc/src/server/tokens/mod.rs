//! Who may call what: tokens that name permissions, as Besu has them.
//!
//! A token is made by this node for a user who shows a password, or by somebody else whose public
//! key this node knows. It says until when it holds and what its bearer may call: `*:*`, `eth:*` or
//! `eth:blockNumber`. It is judged again at every request, so that one that expires during a
//! connection opens nothing any more.

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

/// How far ahead of this machine's clock that of whoever made a token may be, seconds.
const LEEWAY_SECONDS: f64 = 5.0;

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No `Authorization: Bearer` header.
    #[error("missing token")]
    Missing,
    /// Not three parts of base64url, or not the JSON that belongs inside.
    #[error("malformed token")]
    Malformed,
    /// Not the algorithm that this node was told to expect, or with conditions it does not know.
    #[error("the token's algorithm must be {0}")]
    Algorithm(&'static str),
    /// Not made with the key that belongs to this node's.
    #[error("the token's signature is wrong")]
    Signature,
    /// Past its `exp`.
    #[error("the token has expired")]
    Expired,
    /// Before its `nbf` or `iat`.
    #[error("the token is of the future; compare the two machines' clocks")]
    Early,
}

/// What one way in asks of its callers.
#[derive(Debug)]
pub struct Tokens {
    key: TokenKey,
    open_methods: BTreeSet<String>,
    login: Option<Login>,
}

/// A caller whose token was looked at.
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
    /// Tokens that others make, with the private key of `key`.
    pub fn of_others(key: TokenKey, open_methods: BTreeSet<String>) -> Self {
        Self {
            key,
            open_methods,
            login: None,
        }
    }

    /// Tokens that this node makes for whoever logs in.
    pub fn of_users(login: Login, open_methods: BTreeSet<String>) -> Self {
        Self {
            key: login.key().clone(),
            open_methods,
            login: Some(login),
        }
    }

    /// Where users show their passwords, if they may.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Whoever sends the header `Authorization`. Where some methods need no token, everybody may
    /// ask for those.
    ///
    /// # Errors
    /// [`TokenError`], where every method needs a token.
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
