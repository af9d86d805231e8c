//! The command line: authentication and TLS of HTTP and WebSocket.

use clap::Args;
use niwaki_rpc::TokenAlgorithm;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP: authentication")]
pub(crate) struct HttpTokenFlags {
    /// Require a JWT with every request [default: false].
    #[arg(long = "rpc-http-authentication-enabled", value_name = "BOOL")]
    pub(crate) enabled: Option<bool>,
    /// Users that get a token by POST /login: a TOML file that gives each [Users.NAME] a password (from
    /// `niwaki password hash`) and permissions, such as ["eth:*", "net:version"].
    #[arg(long = "rpc-http-authentication-credentials-file", value_name = "FILE")]
    pub(crate) credentials_file: Option<PathBuf>,
    /// Public key (PEM) of an external token issuer; replaces POST /login.
    #[arg(
        long = "rpc-http-authentication-jwt-public-key-file",
        value_name = "FILE"
    )]
    pub(crate) public_key_file: Option<PathBuf>,
    /// Signature algorithm of the external tokens: RS256, RS384, RS512, ES256, ES384, ES512, or HS256 with a
    /// secret instead of the public key.
    #[arg(long = "rpc-http-authentication-jwt-algorithm", value_name = "NAME", value_parser = algorithm, default_value = "RS256")]
    pub(crate) algorithm: TokenAlgorithm,
    /// Methods that can be called without a token.
    #[arg(
        long = "rpc-http-api-methods-no-auth",
        alias = "rpc-http-api-method-no-auth",
        value_name = "METHOD",
        value_delimiter = ','
    )]
    pub(crate) open_methods: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket: authentication")]
pub(crate) struct SocketTokenFlags {
    /// Require a JWT at the handshake [default: false].
    #[arg(
        id = "ws_enabled",
        long = "rpc-ws-authentication-enabled",
        value_name = "BOOL"
    )]
    pub(crate) enabled: Option<bool>,
    /// Users that get a token by POST /login on the WebSocket port; same file format as for HTTP.
    #[arg(
        id = "ws_credentials_file",
        long = "rpc-ws-authentication-credentials-file",
        value_name = "FILE"
    )]
    pub(crate) credentials_file: Option<PathBuf>,
    /// Public key (PEM) of an external token issuer; replaces POST /login.
    #[arg(
        id = "ws_public_key_file",
        long = "rpc-ws-authentication-jwt-public-key-file",
        value_name = "FILE"
    )]
    pub(crate) public_key_file: Option<PathBuf>,
    /// Signature algorithm of the external tokens; same choices as for HTTP.
    #[arg(id = "ws_algorithm", long = "rpc-ws-authentication-jwt-algorithm", value_name = "NAME", value_parser = algorithm, default_value = "RS256")]
    pub(crate) algorithm: TokenAlgorithm,
    /// Methods that can be called without a token.
    #[arg(
        id = "ws_open_methods",
        long = "rpc-ws-api-methods-no-auth",
        alias = "rpc-ws-api-method-no-auth",
        value_name = "METHOD",
        value_delimiter = ','
    )]
    pub(crate) open_methods: Vec<String>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP: TLS")]
pub(crate) struct HttpTlsFlags {
    /// Accept TLS connections only [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_http_tls_enabled: Option<bool>,
    /// Private key and certificates of this node: PKCS #12, or one PEM file with all of them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_keystore_file: Option<PathBuf>,
    /// File whose first line is the password of the key store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_keystore_password_file: Option<PathBuf>,
    /// Require a certificate from every client [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_http_tls_client_auth_enabled: Option<bool>,
    /// Clients accepted by certificate fingerprint: each line is a name, a space and the SHA-256
    /// fingerprint.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_known_clients_file: Option<PathBuf>,
    /// Accept clients whose certificate is signed by an authority that this machine trusts [default:
    /// false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_http_tls_ca_clients_enabled: Option<bool>,
    /// Trusted certificates and authorities of clients: PKCS #12 or PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_truststore_file: Option<PathBuf>,
    /// File whose first line is the password of the trust store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_truststore_password_file: Option<PathBuf>,
    /// TLS versions to accept.
    #[arg(
        long,
        alias = "rpc-http-tls-protocol",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "TLSv1.3,TLSv1.2"
    )]
    pub(crate) rpc_http_tls_protocols: Vec<String>,
    /// Cipher suites to accept, by IANA name [default: all].
    #[arg(
        long,
        alias = "rpc-http-tls-cipher-suite",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) rpc_http_tls_cipher_suites: Vec<String>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket: TLS")]
pub(crate) struct SocketTlsFlags {
    /// Accept TLS connections only [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_ws_ssl_enabled: Option<bool>,
    /// Private key and certificates of this node: PKCS #12, or one PEM file with all of them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_keystore_file: Option<PathBuf>,
    /// Accepted for compatibility with Besu; no effect: the type is detected. JKS is not supported.
    #[arg(long, value_name = "TYPE")]
    pub(crate) rpc_ws_ssl_keystore_type: Option<String>,
    /// Password of the key store; other users of the machine can see it on the command line.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) rpc_ws_ssl_keystore_password: Option<String>,
    /// File whose first line is the password of the key store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_keystore_password_file: Option<PathBuf>,
    /// Private key of this node (PEM), instead of a key store.
    #[arg(long, value_name = "FILE", requires = "rpc_ws_ssl_cert_file")]
    pub(crate) rpc_ws_ssl_key_file: Option<PathBuf>,
    /// Certificate chain of this node (PEM).
    #[arg(long, value_name = "FILE", requires = "rpc_ws_ssl_key_file")]
    pub(crate) rpc_ws_ssl_cert_file: Option<PathBuf>,
    /// Require a certificate from every client [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_ws_ssl_client_auth_enabled: Option<bool>,
    /// Trusted certificates and authorities of clients: PKCS #12 or PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_truststore_file: Option<PathBuf>,
    /// Accepted for compatibility with Besu; no effect: the type is detected.
    #[arg(long, value_name = "TYPE")]
    pub(crate) rpc_ws_ssl_truststore_type: Option<String>,
    /// Password of the trust store; other users of the machine can see it on the command line.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) rpc_ws_ssl_truststore_password: Option<String>,
    /// File whose first line is the password of the trust store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_truststore_password_file: Option<PathBuf>,
    /// Trusted certificates and authorities of clients (PEM), instead of a trust store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_trustcert_file: Option<PathBuf>,
}

fn algorithm(name: &str) -> Result<TokenAlgorithm, String> {
    let mut all = TokenAlgorithm::ALL.into_iter();
    let found = all.find(|algorithm| algorithm.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names = TokenAlgorithm::ALL.map(TokenAlgorithm::name);
        format!("choose of {}", names.join(", "))
    })
}
