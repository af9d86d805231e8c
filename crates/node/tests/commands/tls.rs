//! TLS over HTTP and WebSocket, with certificates of each kind.

use crate::running::Node;
use crate::support::{TestDir, wait_until};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: certificate.der().clone(),
            key,
        }
    }

    fn client(&self) -> Identity {
        self.sign(&client_params())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

fn client_params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}

impl Identity {
    /// Self-signed.
    fn of(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: certificate.der().clone(),
            key,
        }
    }

    fn fingerprint(&self) -> String {
        let hash = ring::digest::digest(&ring::digest::SHA256, &self.certificate);
        let bytes = hash.as_ref().iter().map(|byte| format!("{byte:02X}"));
        bytes.collect::<Vec<_>>().join(":")
    }

    fn pem(&self) -> String {
        rcgen_pem("CERTIFICATE", &self.certificate)
    }
}

fn rcgen_pem(label: &str, der: &[u8]) -> String {
    let text = crate::access::base64_padded(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Maps HTTP flags to those of WebSocket, where both exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Http,
    WebSocket,
}

/// A server certificate for this machine, and its authority.
struct Server {
    dir: TestDir,
    authority: Authority,
    flags: String,
}

impl Server {
    fn new(way: Way) -> Self {
        let dir = TestDir::new();
        let authority = Authority::new("authority of the server");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = authority.sign(&params);
        let key = own.key.serialize_pem();
        let flags = match way {
            Way::Http => {
                let all = [key, own.pem(), authority.pem()].concat();
                let file = dir.file("server.pem", all.as_bytes());
                format!(
                    "--rpc-http-tls-enabled --rpc-http-tls-keystore-file={}",
                    file.display()
                )
            }
            Way::WebSocket => {
                let key = dir.file("server.key", key.as_bytes());
                let certificate = dir.file("server.pem", own.pem().as_bytes());
                format!(
                    "--rpc-ws-ssl-enabled --rpc-ws-ssl-keystore-type=PEM --rpc-ws-ssl-key-file={} \
                     --rpc-ws-ssl-cert-file={}",
                    key.display(),
                    certificate.display()
                )
            }
        };
        Self {
            dir,
            authority,
            flags,
        }
    }

    /// Adds a flag with the path of a file with this text.
    fn with_file(mut self, flag: &str, text: &str) -> Self {
        let name = flag.trim_start_matches('-');
        let file = self.dir.file(name, text.as_bytes());
        self.flags += &format!(" {flag}={}", file.display());
        self
    }

    fn with(mut self, flags: &str) -> Self {
        self.flags = format!("{} {flags}", self.flags);
        self
    }

    fn start(self) -> (Node, Client) {
        let client = Client::new(&self.authority.0.der().clone());
        (Node::start(self.dir, &self.flags), client)
    }
}

/// A client's trusted authority, certificate and TLS versions.
struct Client {
    roots: Arc<RootCertStore>,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
}

impl Client {
    fn new(authority: &CertificateDer<'static>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        Self {
            roots: Arc::new(roots),
            versions: vec![&rustls::version::TLS13, &rustls::version::TLS12],
        }
    }

    /// Connects, with a client certificate if the server requests one and there is one.
    fn connect(&self, address: SocketAddr, own: Option<&Identity>) -> Stream {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots));
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                let chain = vec![own.certificate.clone()];
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        StreamOwned::new(connection, stream)
    }

    /// A call over HTTP; `None` if the server rejects the connection.
    fn call(&self, address: SocketAddr, own: Option<&Identity>) -> Option<Value> {
        let mut stream = self.connect(address, own);
        let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_chainId\"}";
        let request = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        let (head, body) = response.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200"), "{response}");
        serde_json::from_str(body).ok()
    }

    fn is_answered(&self, node: &Node, own: Option<&Identity>) -> bool {
        match self.call(node.http, own) {
            None => false,
            Some(response) => {
                assert!(response["result"].is_string(), "{response}");
                true
            }
        }
    }

    /// Whether a call over a WebSocket succeeds.
    fn opens_socket(&self, node: &Node, own: Option<&Identity>) -> bool {
        let stream = self.connect(node.ws, own);
        let Ok((mut socket, _)) = tungstenite::client("ws://localhost/", stream) else {
            return false;
        };
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"});
        socket
            .send(tungstenite::Message::text(request.to_string()))
            .unwrap();
        let response = socket.read().unwrap().into_text().unwrap();
        response.contains("\"result\"")
    }
}

#[test]
fn https_serves_tls_1_2_and_1_3_to_clients_that_trust_the_server() {
    let (node, mut client) = Server::new(Way::Http).start();
    assert!(client.is_answered(&node, None));
    client.versions = vec![&rustls::version::TLS12];
    assert!(client.is_answered(&node, None));
    let stranger = Client::new(&Authority::new("another").0.der().clone());
    assert!(!stranger.is_answered(&node, None));
}

#[test]
fn tls_versions_and_suites_not_listed_are_refused() {
    let server = Server::new(Way::Http).with(
        "--rpc-http-tls-protocols=TLSv1.3 --rpc-http-tls-cipher-suites=TLS_AES_128_GCM_SHA256",
    );
    let (node, mut client) = server.start();
    assert!(client.is_answered(&node, None));
    let mut stream = client.connect(node.http, None);
    let _ = stream.write_all(b"x");
    let suite = stream.conn.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    client.versions = vec![&rustls::version::TLS12];
    assert!(!client.is_answered(&node, None));
}

#[test]
fn plain_requests_to_a_tls_port_and_the_reverse_fail_cleanly() {
    let (node, client) = Server::new(Way::Http).start();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}).to_string();
    for _ in 0..3 {
        let (status, text) = crate::running::post(node.http, &body, &[]);
        assert_eq!(status, 400, "{text}");
        assert!(text.contains("speaks TLS"), "{text}");
    }
    // TLS to a plain port, random bytes, and nothing.
    let plain = Node::start(TestDir::new(), "");
    assert!(client.call(plain.http, None).is_none());
    assert!(client.call(node.ws, None).is_none());
    let idle = TcpStream::connect(node.http).unwrap();
    let mut noisy = TcpStream::connect(node.http).unwrap();
    noisy.write_all(&[0x16, 3, 1, 0xff, 0xff, 0, 1, 2]).unwrap();
    assert!(client.is_answered(&node, None));
    assert_eq!(crate::running::post(plain.http, &body, &[]).0, 200);
    drop((idle, noisy));
}

#[test]
fn tls_handshakes_count_as_connections() {
    let server = Server::new(Way::Http).with("--rpc-http-max-active-connections=2");
    let (node, client) = server.start();
    // A stalled handshake counts as a connection until it times out.
    let held: Vec<_> = (0..2)
        .map(|_| TcpStream::connect(node.http).unwrap())
        .collect();
    assert!(!client.is_answered(&node, None));
    drop(held);
    let state = || "the places were not given back".to_owned();
    wait_until(state, || client.is_answered(&node, None));
}

#[test]
fn a_stalled_tls_handshake_is_closed() {
    let (node, _) = Server::new(Way::Http).start();
    let mut slow = TcpStream::connect(node.http).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    slow.write_all(&[0x16, 3]).unwrap();
    assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn known_clients_are_accepted_by_fingerprint_while_valid() {
    let (known, unknown) = (
        Identity::of(&client_params()),
        Identity::of(&client_params()),
    );
    let old = Identity::of(&expired(client_params()));
    let text = format!("known {}\nold {}\n", known.fingerprint(), old.fingerprint());
    let (node, mut client) = Server::new(Way::Http)
        .with("--rpc-http-tls-client-auth-enabled")
        .with_file("--rpc-http-tls-known-clients-file", &text)
        .start();
    for versions in [vec![&rustls::version::TLS13], vec![&rustls::version::TLS12]] {
        client.versions = versions;
        assert!(client.is_answered(&node, Some(&known)));
        for (own, why) in [
            (Some(&unknown), "unknown"),
            (Some(&old), "expired"),
            (None, "none"),
        ] {
            assert!(!client.is_answered(&node, own), "{why}");
        }
    }
    // A known certificate without its key is rejected.
    let stolen = Identity {
        certificate: known.certificate.clone(),
        key: KeyPair::generate().unwrap(),
    };
    assert!(!client_with_stolen(&client, &node, &stolen));
    assert!(client.is_answered(&node, Some(&known)));
}

/// The client's library may itself reject a key that does not match the certificate, which is as good.
fn client_with_stolen(client: &Client, node: &Node, stolen: &Identity) -> bool {
    let is_accepted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.is_answered(node, Some(stolen))
    }));
    is_accepted.unwrap_or(false)
}

#[test]
fn clients_of_a_trusted_authority_are_accepted_while_valid() {
    let (authority, other) = (Authority::new("of clients"), Authority::new("of others"));
    for (way, client_auth, trust) in [
        (
            Way::Http,
            "--rpc-http-tls-client-auth-enabled",
            "--rpc-http-tls-truststore-file",
        ),
        (
            Way::WebSocket,
            "--rpc-ws-ssl-client-auth-enabled",
            "--rpc-ws-ssl-trustcert-file",
        ),
    ] {
        let (node, client) = Server::new(way)
            .with(client_auth)
            .with_file(trust, &authority.pem())
            .start();
        let answered = |own: Option<&Identity>| match way {
            Way::Http => client.is_answered(&node, own),
            Way::WebSocket => client.opens_socket(&node, own),
        };
        assert!(answered(Some(&authority.client())), "{way:?}");
        for own in [
            other.client(),
            authority.sign(&expired(client_params())),
            Identity::of(&client_params()),
        ] {
            assert!(!answered(Some(&own)), "{way:?}");
        }
        assert!(!answered(None), "{way:?}");
        assert!(answered(Some(&authority.client())), "{way:?}");
    }
}

#[test]
fn a_trusted_certificate_itself_is_accepted() {
    let own = Identity::of(&client_params());
    let (node, client) = Server::new(Way::Http)
        .with("--rpc-http-tls-client-auth-enabled")
        .with_file("--rpc-http-tls-truststore-file", &own.pem())
        .start();
    assert!(client.is_answered(&node, Some(&own)));
    assert!(!client.is_answered(&node, Some(&Identity::of(&client_params()))));
}

#[test]
fn a_trusted_client_cannot_vouch_for_others() {
    let mut params = client_params();
    let name = (rcgen::DnType::CommonName, "a client");
    params.distinguished_name.push(name.0, name.1);
    let own =
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap());
    let (node, client) = Server::new(Way::Http)
        .with("--rpc-http-tls-client-auth-enabled")
        .with_file("--rpc-http-tls-truststore-file", &own.pem())
        .start();
    assert!(!client.is_answered(&node, Some(&own.client())));
}

#[test]
fn client_certificates_without_tls_are_refused() {
    for (auth, tls) in [
        (
            "--rpc-http-tls-client-auth-enabled",
            "--rpc-http-tls-enabled",
        ),
        ("--rpc-ws-ssl-client-auth-enabled", "--rpc-ws-ssl-enabled"),
    ] {
        let flags = format!("--rpc-http-enabled --rpc-ws-enabled {auth}");
        let result = TestDir::new().run(&flags, &[]);
        result.failed(&[auth, "needs", tls]);
    }
}

#[test]
fn key_stores_of_openssl_and_keytool_work() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tls");
    let authority = std::fs::read_to_string(testdata.join("ca.pem")).unwrap();
    let authority = pem_to_der(&authority);
    let dir = TestDir::new();
    let password = dir.file("password", b"changeit\n");
    let store = testdata.join("modern.p12");
    let flags = format!(
        "--rpc-http-tls-enabled --rpc-http-tls-keystore-file={0} \
         --rpc-http-tls-keystore-password-file={1} --rpc-ws-ssl-enabled \
         --rpc-ws-ssl-keystore-file={0} --rpc-ws-ssl-keystore-password=changeit",
        store.display(),
        password.display()
    );
    let node = Node::start(dir, &flags);
    let client = Client::new(&authority);
    assert!(client.is_answered(&node, None));
    assert!(client.opens_socket(&node, None));
}

fn pem_to_der(text: &str) -> CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(text.as_bytes()).unwrap()
}

#[test]
fn tokens_are_required_behind_tls() {
    let server = Server::new(Way::Http).with("--rpc-http-authentication-enabled").with_file(
        "--rpc-http-authentication-credentials-file",
        "[Users.a]\npassword = \"$2a$10$l3GA7K8g6rJ/Yv.YFSygCuI9byngpEzxgWS9qEg5emYDZomQW7fGC\"",
    );
    let (node, client) = server.start();
    let mut stream = client.connect(node.http, None);
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        .unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    assert!(response.starts_with("HTTP/1.1 401"), "{response}");
}

#[test]
fn wrong_tls_flags_and_files_are_refused_by_name() {
    let dir = TestDir::new();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tls");
    let file = |name: &str| testdata.join(name).display().to_string();
    let refused = |flags: &str, words: &[&str]| {
        let base = "--rpc-http-enabled --rpc-http-port=0 --rpc-ws-enabled --rpc-ws-port=0 --engine-rpc-port=0";
        dir.run(&format!("{base} {flags}"), &[]).failed(words);
    };
    let password = dir.file("password", b"wrong").display().to_string();
    let with = |name: &str| {
        format!(
            "--rpc-http-tls-enabled --rpc-http-tls-keystore-file={}",
            file(name)
        )
    };
    refused("--rpc-http-tls-enabled", &["--rpc-http-tls-keystore-file"]);
    refused(&with("missing.p12"), &["key store", "missing.p12"]);
    refused(&with("java.jks"), &["java.jks", "keytool -importkeystore"]);
    refused(&with("modern.p12"), &["modern.p12", "password"]);
    let wrong = format!(
        "{} --rpc-http-tls-keystore-password-file={password}",
        with("modern.p12")
    );
    refused(&wrong, &["modern.p12", "does not open"]);
    refused(&with("server.pem"), &["0 private keys"]);
    refused(&with("server.key"), &["no certificate"]);
    let whole = std::fs::read(testdata.join("server.key")).unwrap();
    let whole = [whole, std::fs::read(testdata.join("server.pem")).unwrap()].concat();
    let whole = dir.file("whole.pem", &whole).display().to_string();
    let good = format!("--rpc-http-tls-enabled --rpc-http-tls-keystore-file={whole}");
    refused(
        &format!("{good} --rpc-http-tls-client-auth-enabled"),
        &["--rpc-http-tls-known-clients-file"],
    );
    refused(
        &format!(
            "{good} --rpc-http-tls-client-auth-enabled --rpc-http-tls-known-clients-file={password}"
        ),
        &["line 1", "fingerprint"],
    );
    refused(
        &format!(
            "{good} --rpc-http-tls-client-auth-enabled --rpc-http-tls-ca-clients-enabled \
             --rpc-http-tls-truststore-file={}",
            file("ca.pem")
        ),
        &["choose"],
    );
    refused(
        &format!("{good} --rpc-http-tls-cipher-suites=TLS_NULL"),
        &["TLS_NULL", "TLS_AES_128_GCM_SHA256"],
    );
    refused(
        &format!("{good} --rpc-http-tls-protocols=TLSv1"),
        &["TLSv1.3"],
    );
    refused(
        "--rpc-ws-ssl-enabled",
        &["--rpc-ws-ssl-keystore-file", "--rpc-ws-ssl-key-file"],
    );
    refused(
        &format!(
            "--rpc-ws-ssl-enabled --rpc-ws-ssl-keystore-file={whole} --rpc-ws-ssl-client-auth-enabled"
        ),
        &["--rpc-ws-ssl-truststore-file"],
    );
}
