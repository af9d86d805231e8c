//! Tokens and what they permit, until when.

use super::*;
use ring::hmac;
use serde_json::{Value, json};

const NOW: f64 = 1_790_000_000.0;
const SECRET: [u8; 32] = [0x5a; 32];

fn tokens(open: &[&str]) -> Arc<Tokens> {
    let key = TokenKey::parse(&"5a".repeat(32), TokenAlgorithm::Hs256).unwrap();
    let open = open.iter().map(|name| (*name).to_owned()).collect();
    Arc::new(Tokens::of_others(key, open))
}

fn signed(head: &str, claims: &Value) -> String {
    let text = format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(head.as_bytes()),
        BASE64URL_NOPAD.encode(claims.to_string().as_bytes())
    );
    let secret = hmac::Key::new(hmac::HMAC_SHA256, &SECRET);
    let signature = BASE64URL_NOPAD.encode(hmac::sign(&secret, text.as_bytes()).as_ref());
    format!("Bearer {text}.{signature}")
}

fn token(claims: &Value) -> String {
    signed("{\"alg\":\"HS256\",\"typ\":\"JWT\"}", claims)
}

fn judged(header: &str) -> Result<Vec<String>, TokenError> {
    let token = tokens(&[]).token(Some(header), NOW)?;
    Ok(token.permissions)
}

#[test]
fn a_permission_is_for_all_for_a_namespace_or_for_a_method() {
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (
            &["*:*"],
            &["eth_call", "net_version", "rpc_modules", "rpc.discover"],
            &[],
        ),
        (
            &["eth:*"],
            &["eth_call", "eth_subscribe"],
            &["net_version", "ethx_call"],
        ),
        (
            &["eth:call"],
            &["eth_call"],
            &["eth_callMany", "eth_Call", "eth_"],
        ),
        (
            &["net:*", "eth:call"],
            &["net_version", "eth_call"],
            &["eth_gasPrice"],
        ),
        (
            &["*:call", "*", "eth", "eth_call", ":"],
            &[],
            &["eth_call", "net_version"],
        ),
        (&[], &[], &["eth_call"]),
    ];
    for (permissions, may, may_not) in cases {
        let permissions = permissions.iter().map(|text| (*text).to_owned()).collect();
        let token = Token {
            expires: NOW,
            permissions,
        };
        for method in may {
            assert!(token.permits(method), "{token:?} {method}");
        }
        for method in may_not {
            assert!(!token.permits(method), "{token:?} {method}");
        }
    }
}

#[test]
fn a_token_is_valid_from_nbf_to_exp() {
    let good = json!({"exp": NOW + 1.0, "iat": NOW, "permissions": ["eth:*"]});
    assert_eq!(judged(&token(&good)), Ok(vec!["eth:*".to_owned()]));
    let without = json!({"exp": NOW + 0.5});
    assert_eq!(judged(&token(&without)), Ok(Vec::new()));
    let cases = [
        (json!({"exp": NOW}), TokenError::Expired),
        (json!({"exp": 0}), TokenError::Expired),
        (
            json!({"exp": NOW + 60.0, "iat": NOW + 6.0}),
            TokenError::Early,
        ),
        (
            json!({"exp": NOW + 60.0, "nbf": NOW + 6.0}),
            TokenError::Early,
        ),
        (json!({"iat": NOW}), TokenError::Malformed),
        (json!({"exp": "never"}), TokenError::Malformed),
        (
            json!({"exp": NOW + 60.0, "permissions": "*:*"}),
            TokenError::Malformed,
        ),
        (
            json!({"exp": NOW + 60.0, "permissions": [["*:*"]]}),
            TokenError::Malformed,
        ),
        (json!([]), TokenError::Malformed),
    ];
    for (claims, error) in cases {
        assert_eq!(judged(&token(&claims)), Err(error), "{claims}");
    }
}

#[test]
fn other_algorithms_conditions_and_damage_are_refused() {
    let claims = json!({"exp": NOW + 60.0, "permissions": ["*:*"]});
    let heads = [
        "{\"alg\":\"none\"}",
        "{\"alg\":\"RS256\"}",
        "{\"alg\":\"hs256\"}",
        "{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}",
    ];
    for head in heads {
        let error = judged(&signed(head, &claims)).unwrap_err();
        assert_eq!(error, TokenError::Algorithm("HS256"), "{head}");
    }
    let good = token(&claims);
    for end in 0..good.len() {
        assert!(judged(&good[..end]).is_err(), "{end} characters");
    }
    for at in 0..good.len() {
        let mut bad = good.clone().into_bytes();
        bad[at] = if bad[at] == b'A' { b'Q' } else { b'A' };
        let bad = String::from_utf8(bad).unwrap();
        assert!(judged(&bad).is_err() || bad == good, "character {at}");
    }
    assert_eq!(judged("Basic dXNlcjpwYXNz"), Err(TokenError::Missing));
    assert_eq!(
        tokens(&[]).token(None, NOW).unwrap_err(),
        TokenError::Missing
    );
}

#[test]
fn an_expired_token_permits_nothing() {
    let tokens = tokens(&["net_version"]);
    let header = token(&json!({"exp": NOW + 10.0, "permissions": ["eth:*"]}));
    let caller = Caller {
        token: Some(Arc::new(tokens.token(Some(&header), NOW).unwrap())),
        tokens,
    };
    assert!(caller.may_at("eth_call", NOW + 9.0));
    assert!(!caller.may_at("eth_call", NOW + 10.0));
    assert!(caller.may_at("net_version", NOW + 10.0));
}

#[test]
fn only_methods_without_authentication_are_open_without_token() {
    let open = tokens(&["net_version"]);
    for header in [None, Some("Bearer nonsense")] {
        let caller = open.caller(header).unwrap();
        assert!(
            caller.may("net_version") && !caller.may("eth_call"),
            "{header:?}"
        );
        assert!(tokens(&[]).caller(header).is_err(), "{header:?}");
    }
}
