//! JWT of the Engine API: tokens that prove that a consensus client holds the shared secret.
//!
//! HS256 only, with an issue time within a minute of now. Spec: execution-apis
//! `engine/authentication.md`, RFC 7519.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, Mac};
use niwaki_primitives::hex;
use serde::Deserialize;
use sha2::Sha256;
use std::fmt;

/// How far the issue time of a token may be from now, seconds.
const WINDOW_SECONDS: u64 = 60;

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// No `Authorization: Bearer` header.
    #[error("missing token")]
    Missing,
    /// Not three parts of base64url with JSON inside.
    #[error("malformed token: {0}")]
    Malformed(&'static str),
    /// The algorithm is not HS256.
    #[error("the token's algorithm must be HS256")]
    Algorithm,
    /// Signed with another secret.
    #[error("the token's signature is not made with this node's secret")]
    Signature,
    /// Issued too long ago, or in the future.
    #[error("stale token: issued at {issued}, it is {now}; compare the two machines' clocks")]
    Stale {
        /// Issue time of the token, seconds since 1970.
        issued: u64,
        /// This machine's time, seconds since 1970.
        now: u64,
    },
}

/// The secret of 32 bytes that both clients hold.
#[derive(Clone, PartialEq, Eq)]
pub struct JwtSecret([u8; 32]);

impl fmt::Debug for JwtSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwtSecret(..)")
    }
}

#[derive(Deserialize)]
struct Head {
    alg: String,
}

#[derive(Deserialize)]
struct Claims {
    iat: u64,
}

impl JwtSecret {
    /// A secret of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hexadecimal digits with or without 0x, surrounded by blanks or not. The first line that is not blank
    /// counts, as in Besu.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let digits = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let digits = ["0x", "0X"]
            .iter()
            .find_map(|mark| digits.strip_prefix(mark))
            .unwrap_or(digits);
        let bytes = hex::decode_to_array::<_, 32>(digits);
        bytes.map(Self).map_err(|_| {
            format!(
                "not 64 hexadecimal digits but {} characters; `openssl rand -hex 32` makes a secret",
                digits.len()
            )
        })
    }

    /// The secret in hexadecimal, as its file holds it.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// A token issued `now`, seconds since 1970.
    pub fn token(&self, now: u64) -> String {
        let head = BASE64URL_NOPAD.encode(b"{\"alg\":\"HS256\",\"typ\":\"JWT\"}");
        let claims = BASE64URL_NOPAD.encode(format!("{{\"iat\":{now}}}").as_bytes());
        let signed = format!("{head}.{claims}");
        let signature = BASE64URL_NOPAD.encode(&self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// Checks the value of an `Authorization` header.
    ///
    /// # Errors
    /// [`JwtError`].
    pub fn check(&self, header: Option<&str>) -> Result<(), JwtError> {
        self.check_at(header, crate::node::now())
    }

    fn check_at(&self, header: Option<&str>, now: u64) -> Result<(), JwtError> {
        let token = header
            .and_then(|header| header.strip_prefix("Bearer "))
            .ok_or(JwtError::Missing)?
            .trim();
        let (signed, signature) = token
            .rsplit_once('.')
            .ok_or(JwtError::Malformed("it has no three parts"))?;
        let (head, claims) = signed
            .split_once('.')
            .ok_or(JwtError::Malformed("it has no three parts"))?;

        let head: Head = parse(head)?;
        if head.alg != "HS256" {
            return Err(JwtError::Algorithm);
        }
        let signature = decode(signature)?;
        // Compared in constant time.
        self.mac(signed)
            .verify_slice(&signature)
            .map_err(|_| JwtError::Signature)?;
        let Claims { iat: issued } = parse(claims)?;
        if issued.abs_diff(now) > WINDOW_SECONDS {
            return Err(JwtError::Stale { issued, now });
        }
        Ok(())
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key length");
        mac.update(text.as_bytes());
        mac
    }
}

fn decode(part: &str) -> Result<Vec<u8>, JwtError> {
    let decoded = BASE64URL_NOPAD.decode(part.as_bytes());
    decoded.map_err(|_| JwtError::Malformed("no base64url"))
}

fn parse<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, JwtError> {
    let bytes = decode(part)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed("a field is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000;

    fn check(secret: &JwtSecret, token: &str) -> Result<(), JwtError> {
        secret.check_at(Some(&format!("Bearer {token}")), NOW)
    }

    #[test]
    fn a_token_of_the_secret_passes_for_a_minute_either_way() {
        let secret = JwtSecret::new([7; 32]);
        for issued in [NOW - 60, NOW, NOW + 60] {
            assert_eq!(check(&secret, &secret.token(issued)), Ok(()));
        }
        for issued in [0, NOW - 61, NOW + 61, u64::MAX] {
            let stale = check(&secret, &secret.token(issued));
            assert_eq!(stale, Err(JwtError::Stale { issued, now: NOW }));
        }
    }

    #[test]
    fn other_secrets_algorithms_and_truncated_tokens_are_refused() {
        let secret = JwtSecret::new([7; 32]);
        let other = JwtSecret::new([8; 32]).token(NOW);
        assert_eq!(check(&secret, &other), Err(JwtError::Signature));
        let claims = BASE64URL_NOPAD.encode(format!("{{\"iat\":{NOW}}}").as_bytes());
        for head in [
            "{\"alg\":\"none\"}",
            "{\"alg\":\"RS256\"}",
            "{\"alg\":\"hs256\"}",
        ] {
            let signed = format!("{}.{claims}", BASE64URL_NOPAD.encode(head.as_bytes()));
            let signature = BASE64URL_NOPAD.encode(&secret.mac(&signed).finalize().into_bytes());
            let token = format!("{signed}.{signature}");
            assert_eq!(check(&secret, &token), Err(JwtError::Algorithm), "{head}");
        }
        let good = secret.token(NOW);
        for end in 0..good.len() {
            assert!(check(&secret, &good[..end]).is_err(), "{end} characters");
        }
        for at in 0..good.len() {
            let mut bad = good.clone().into_bytes();
            bad[at] = if bad[at] == b'A' { b'Q' } else { b'A' };
            let bad = String::from_utf8(bad).unwrap();
            assert!(
                check(&secret, &bad).is_err() || bad == good,
                "character {at}"
            );
        }
        assert_eq!(secret.check_at(None, NOW), Err(JwtError::Missing));
        assert_eq!(
            secret.check_at(Some("Basic x"), NOW),
            Err(JwtError::Missing)
        );
    }

    #[test]
    fn non_canonical_base64_signatures_are_refused() {
        let secret = JwtSecret::new([7; 32]);
        let good = secret.token(NOW);
        assert_eq!(check(&secret, &good), Ok(()));
        // 32 bytes end in two bits of the last letter; the other four must be zero.
        let (body, last) = good.split_at(good.len() - 1);
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let others = alphabet.chars().filter(|letter| !last.starts_with(*letter));
        for letter in others {
            let forged = format!("{body}{letter}");
            assert!(check(&secret, &forged).is_err(), "{forged}");
        }
        for forged in [format!("{good}="), format!("{body}+")] {
            assert!(check(&secret, &forged).is_err(), "{forged}");
        }
    }

    #[test]
    fn a_secret_is_read_with_blanks_and_prefix_and_refused_by_its_length() {
        let text = "ab".repeat(32);
        for form in [text.clone(), format!("0x{text}\n"), format!("  {text}")] {
            assert_eq!(JwtSecret::parse(&form), Ok(JwtSecret::new([0xab; 32])));
        }
        let error = JwtSecret::parse("abcd").unwrap_err();
        assert!(error.contains("4 characters"), "{error}");
        assert!(JwtSecret::parse(&"zz".repeat(32)).is_err());
    }
}
