//! Keys of every kind, and malformed ones.

use super::*;
use rsa::pkcs1::EncodeRsaPublicKey;

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[tag, 0x82][..], &length, &content].concat()
}

/// The PEM of a public key of these identifiers.
fn public_pem(kind: &[u8], curve: Option<&[u8]>, key: &[u8]) -> String {
    let curve = curve.map_or(der(0x05, &[]), |curve| der(0x06, &[curve]));
    let algorithm = der(0x30, &[&der(0x06, &[kind]), &curve]);
    let info = der(0x30, &[&algorithm, &der(0x03, &[&[0], key])]);
    pem::write("PUBLIC KEY", &info)
}

fn rsa_pem(bits: usize) -> String {
    let key = RsaPrivateKey::new(&mut OsRng, bits).unwrap();
    let public = key.to_public_key().to_pkcs1_der().unwrap();
    public_pem(RSA, None, public.as_bytes())
}

/// A key accepts signatures of its pair, and no others.
fn check(key: &TokenKey, sign: impl Fn(&[u8]) -> Vec<u8>) {
    let good = sign(b"head.claims");
    assert!(key.has_signed(b"head.claims", &good), "{key:?}");
    assert!(!key.has_signed(b"head.claimt", &good), "{key:?}");
    assert!(!key.has_signed(b"head.claims", &[]), "{key:?}");
    assert!(!key.has_signed(b"head.claims", &good[1..]), "{key:?}");
    let mut bad = good;
    bad[9] ^= 1;
    assert!(!key.has_signed(b"head.claims", &bad), "{key:?}");
}

#[test]
fn rsa_signatures_are_checked_by_the_hash_of_the_algorithm() {
    let pair = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let public = pair.to_public_key().to_pkcs1_der().unwrap();
    let text = public_pem(RSA, None, public.as_bytes());
    let pair = KeyPair::from_der(pair.to_pkcs1_der().unwrap().as_bytes()).unwrap();
    let encodings: [(_, &'static dyn signature::RsaEncoding); 3] = [
        (TokenAlgorithm::Rs256, &signature::RSA_PKCS1_SHA256),
        (TokenAlgorithm::Rs384, &signature::RSA_PKCS1_SHA384),
        (TokenAlgorithm::Rs512, &signature::RSA_PKCS1_SHA512),
    ];
    for (algorithm, encoding) in encodings {
        let key = TokenKey::parse(&text, algorithm).unwrap();
        check(&key, |message| {
            let mut signed = vec![0; 256];
            let random = SystemRandom::new();
            pair.sign(encoding, &random, message, &mut signed).unwrap();
            signed
        });
    }
}

#[test]
fn signatures_on_each_curve_are_checked() {
    let random = SystemRandom::new();
    let curves = [
        (
            TokenAlgorithm::Es256,
            P256,
            &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        ),
        (
            TokenAlgorithm::Es384,
            P384,
            &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        ),
    ];
    for (algorithm, curve, signing) in curves {
        let pair = signature::EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
        let pair = signature::EcdsaKeyPair::from_pkcs8(signing, pair.as_ref(), &random).unwrap();
        let public = signature::KeyPair::public_key(&pair).as_ref();
        let text = public_pem(EC, Some(curve), public);
        let key = TokenKey::parse(&text, algorithm).unwrap();
        check(&key, |message| {
            pair.sign(&random, message).unwrap().as_ref().to_vec()
        });
    }
}

#[test]
fn signatures_on_p521_are_checked() {
    use p521::ecdsa::signature::RandomizedSigner;
    let mut secret = [7; 66];
    secret[0] = 0;
    let pair = p521::ecdsa::SigningKey::from_slice(&secret).unwrap();
    let public = p521::ecdsa::VerifyingKey::from(&pair).to_encoded_point(false);
    let text = public_pem(EC, Some(P521), public.as_bytes());
    let key = TokenKey::parse(&text, TokenAlgorithm::Es512).unwrap();
    check(&key, |message| {
        let signed: p521::ecdsa::Signature = pair.sign_with_rng(&mut OsRng, message);
        signed.to_bytes().to_vec()
    });
}

#[test]
fn the_secret_of_hs256_is_hexadecimal_or_the_text_of_a_pem_block() {
    let digits = "5a".repeat(32);
    let block = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        "Wlpa".repeat(11)
    );
    let as_besu_has_it = block.replace('\n', "\r\n");
    let forms = [
        (&*digits, vec![0x5a; 32]),
        (&block, as_besu_has_it.into_bytes()),
    ];
    for (text, secret) in forms {
        let key = TokenKey::parse(text, TokenAlgorithm::Hs256).unwrap();
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        check(&key, |message| {
            hmac::sign(&secret, message).as_ref().to_vec()
        });
    }
    for text in [
        "",
        "5a",
        "no digits at all, though it is long enough to be a secret of sixty-four",
    ] {
        let error = TokenKey::parse(text, TokenAlgorithm::Hs256).unwrap_err();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}

#[test]
fn keys_of_another_kind_weak_keys_and_damaged_ones_are_refused_with_the_reason() {
    let refused = |text: &str, algorithm: TokenAlgorithm, word: &str| {
        let error = TokenKey::parse(text, algorithm).unwrap_err();
        assert!(error.contains(word), "{algorithm:?}: {error}");
    };
    let good = rsa_pem(2048);
    refused(&good, TokenAlgorithm::Hs256, "a public key is no secret");
    refused(
        &good,
        TokenAlgorithm::Es256,
        "needs an elliptic-curve key on P-256",
    );
    refused(
        &rsa_pem(1024),
        TokenAlgorithm::Rs256,
        "an RSA key of 1024 bits",
    );
    let curve = public_pem(EC, Some(P256), &[4; 65]);
    refused(&curve, TokenAlgorithm::Rs512, "needs an RSA key");
    refused(
        &curve,
        TokenAlgorithm::Es384,
        "needs an elliptic-curve key on P-384",
    );
    refused("", TokenAlgorithm::Rs256, "no PEM public key");
    let private = good.replace("PUBLIC", "PRIVATE");
    refused(&private, TokenAlgorithm::Rs256, "openssl pkey");
    let torn = pem::write("PUBLIC KEY", &pem::blocks(&good)[0].der[..100]);
    refused(&torn, TokenAlgorithm::Rs256, "damaged");
    refused(
        &public_pem(EC, Some(P521), &[4; 133]),
        TokenAlgorithm::Es512,
        "damaged",
    );
}
