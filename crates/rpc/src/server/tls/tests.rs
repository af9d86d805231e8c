//! Key stores as other programs write them; versions, suites and chains of certificates.

use super::*;

macro_rules! file {
    ($name:literal) => {
        &include_bytes!(concat!("../../../../../testdata/tls/", $name))[..]
    };
}

fn options(store: KeyStore) -> TlsOptions {
    TlsOptions {
        store,
        protocols: vec!["TLSv1.3".to_owned(), "TLSv1.2".to_owned()],
        ..TlsOptions::default()
    }
}

#[test]
fn stores_of_openssl_and_keytool_are_read() {
    let pem = KeyStore::read(file!("server.pem"), None).unwrap();
    let key = KeyStore::read(file!("server.key"), None).unwrap();
    let ca = KeyStore::read(file!("ca.pem"), None).unwrap();
    // AES-256, triple DES, a single key encrypted with AES-128, and no encryption.
    let stores = [
        (file!("modern.p12"), "changeit", true),
        (file!("old.p12"), "changeit", true),
        (file!("mixed.p12"), "changeit", false),
        (file!("plain.p12"), "changeit", false),
        (file!("empty.p12"), "", false),
    ];
    for (index, (bytes, password, with_authority)) in stores.into_iter().enumerate() {
        let store = KeyStore::read(bytes, Some(password)).unwrap();
        assert_eq!(store.keys, key.keys, "{index}");
        assert_eq!(store.certificates[0], pem.certificates[0], "{index}");
        let more = if with_authority {
            &ca.certificates[..]
        } else {
            &[]
        };
        assert_eq!(&store.certificates[1..], more, "{index}");
    }
    let java = KeyStore::read(file!("java.p12"), Some("changeit")).unwrap();
    assert_eq!((java.certificates.len(), java.keys.len()), (1, 1));
    let trusted = KeyStore::read(file!("trust.p12"), Some("changeit")).unwrap();
    assert_eq!(trusted.certificates, ca.certificates);
    let encrypted = KeyStore::read(file!("server.enc.key"), Some("changeit")).unwrap();
    assert_eq!(encrypted.keys, key.keys);
}

#[test]
fn unreadable_stores_are_refused_with_the_reason() {
    let refused = |bytes: &[u8], password: Option<&str>, error: StoreError| {
        assert_eq!(KeyStore::read(bytes, password).unwrap_err(), error);
    };
    for bytes in [
        file!("modern.p12"),
        file!("old.p12"),
        file!("java.p12"),
        file!("plain.p12"),
    ] {
        refused(bytes, None, StoreError::NoPassword);
        for wrong in ["", "Changeit", "changeit "] {
            refused(bytes, Some(wrong), StoreError::Password);
        }
    }
    refused(file!("server.enc.key"), None, StoreError::NoPassword);
    refused(file!("server.enc.key"), Some("wrong"), StoreError::Password);
    refused(file!("java.jks"), Some("changeit"), StoreError::Jks);
    let rc2 = StoreError::Unknown("an encryption other than AES or triple DES");
    refused(file!("rc2.p12"), Some("changeit"), rc2);
    for bytes in [
        &b""[..],
        b"text",
        b"\x30",
        b"\x30\x03\x02\x01\x03",
        b"\xff\xfe",
    ] {
        refused(bytes, Some(""), StoreError::Damaged);
    }
}

#[test]
fn a_store_damaged_at_any_byte_is_refused() {
    let good = file!("modern.p12");
    for end in (0..good.len()).step_by(7) {
        assert!(
            KeyStore::read(&good[..end], Some("changeit")).is_err(),
            "{end} bytes"
        );
    }
    // Every change under the MAC is detected, and none panics. The derivation is slow, so only some positions are
    // tried.
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.to_vec();
        bad[at] ^= 0x55;
        assert!(KeyStore::read(&bad, Some("changeit")).is_err(), "byte {at}");
    }
}

#[test]
fn an_identity_is_a_key_and_its_certificate_chain() {
    let provider = provider(&[]).unwrap();
    let of = |bytes: &[u8]| KeyStore::read(bytes, Some("changeit")).unwrap();
    let certificate = |bytes: &[u8]| of(bytes).certificates[0].clone();
    let want = [
        certificate(file!("server.pem")),
        certificate(file!("ca.pem")),
    ];
    // In any order of the file, and with other certificates in it.
    let orders = [
        of(file!("ca.pem")).and(of(file!("server.pem"))),
        of(file!("server.pem")).and(of(file!("ca.pem"))),
        of(file!("server.pem"))
            .and(of(file!("ca.pem")))
            .and(of(file!("trust.p12"))),
    ];
    for store in orders {
        let identity = identity(store.and(of(file!("server.key"))), &provider).unwrap();
        let chain: Vec<_> = identity.cert.iter().map(|der| der.to_vec()).collect();
        assert_eq!(chain, want);
    }
    assert!(Tls::new(options(of(file!("java.p12")))).is_ok());

    let refused = |store: KeyStore, word: &str| {
        let error = Tls::new(options(store)).unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    refused(of(file!("server.pem")), "0 private keys");
    refused(
        of(file!("modern.p12")).and(of(file!("java.p12"))),
        "2 private keys",
    );
    refused(of(file!("server.key")), "no certificate that belongs");
    refused(
        of(file!("server.key")).and(of(file!("ca.pem"))),
        "no certificate that belongs",
    );
    let odd = KeyStore {
        keys: vec![vec![0x30, 0]],
        ..KeyStore::default()
    };
    refused(odd, "private key");
}

#[test]
fn versions_and_suites_are_chosen_by_name() {
    let with = |protocols: &[&str], suites: &[&str]| {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Tls::new(TlsOptions {
            protocols: list(protocols),
            cipher_suites: list(suites),
            ..options(KeyStore::read(file!("modern.p12"), Some("changeit")).unwrap())
        })
    };
    assert!(with(&["TLSv1.2"], &[]).is_ok());
    assert!(with(&["TLSv1.3", "TLSv1.1"], &["TLS_AES_256_GCM_SHA384"]).is_ok());
    let error = with(&["TLSv1.1", "SSLv3"], &[]).unwrap_err();
    assert!(error.contains("TLSv1.3,TLSv1.2"), "{error}");
    let error = with(&["TLSv1.3"], &["TLS_RSA_WITH_AES_128_CBC_SHA"]).unwrap_err();
    assert!(error.contains("TLS_AES_128_GCM_SHA256"), "{error}");
    let error = with(&["TLSv1.2"], &["TLS_AES_256_GCM_SHA384"]).unwrap_err();
    assert!(error.contains("do not fit"), "{error}");
}
