//! The command line: who may ask over HTTP and WebSocket, and TLS.

use clap::Args;
use niwaki_rpc::TokenAlgorithm;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP: who may ask")]
pub(crate) struct HttpTokenFlags {
    /// Ask every caller for a token [default: false].
    #[arg(long = "rpc-http-authentication-enabled", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enabled: Option<bool>,
    /// Users who get a token by POST /login: TOML, for each [Users.NAME] a password (`niwaki password
    /// hash`) and permissions as in ["eth:*", "net:version"].
    #[arg(long = "rpc-http-authentication-credentials-file", value_name = "FILE")]
    pub(crate) credentials_file: Option<PathBuf>,
    /// The public key (PEM) of whoever makes the tokens; then nobody logs in here.
    #[arg(
        long = "rpc-http-authentication-jwt-public-key-file",
        value_name = "FILE"
    )]
    pub(crate) public_key_file: Option<PathBuf>,
    /// How those tokens are signed: RS256, RS384, RS512, ES256, ES384, ES512, or HS256 with a secret in
    /// the place of the public key.
    #[arg(long = "rpc-http-authentication-jwt-algorithm", value_name = "NAME", value_parser = algorithm, default_value = "RS256")]
    pub(crate) algorithm: TokenAlgorithm,
    /// Methods that need no token.
    #[arg(
        long = "rpc-http-api-methods-no-auth",
        alias = "rpc-http-api-method-no-auth",
        value_name = "METHOD",
        value_delimiter = ','
    )]
    pub(crate) open_methods: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket: who may ask")]
pub(crate) struct SocketTokenFlags {
    /// Ask every caller for a token, at the handshake [default: false].
    #[arg(id = "ws_enabled", long = "rpc-ws-authentication-enabled", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enabled: Option<bool>,
    /// Users who get a token by POST /login at this port; as that of HTTP.
    #[arg(
        id = "ws_credentials_file",
        long = "rpc-ws-authentication-credentials-file",
        value_name = "FILE"
    )]
    pub(crate) credentials_file: Option<PathBuf>,
    /// The public key (PEM) of whoever makes the tokens; then nobody logs in here.
    #[arg(
        id = "ws_public_key_file",
        long = "rpc-ws-authentication-jwt-public-key-file",
        value_name = "FILE"
    )]
    pub(crate) public_key_file: Option<PathBuf>,
    /// How those tokens are signed; as that of HTTP.
    #[arg(id = "ws_algorithm", long = "rpc-ws-authentication-jwt-algorithm", value_name = "NAME", value_parser = algorithm, default_value = "RS256")]
    pub(crate) algorithm: TokenAlgorithm,
    /// Methods that need no token.
    #[arg(
        id = "ws_open_methods",
        long = "rpc-ws-api-methods-no-auth",
        alias = "rpc-ws-api-method-no-auth",
        value_name = "METHOD",
        value_delimiter = ','
    )]
    pub(crate) open_methods: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP: TLS")]
pub(crate) struct HttpTlsFlags {
    /// Speak TLS, and nothing else [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_http_tls_enabled: Option<bool>,
    /// This node's key and certificates: PKCS #12, or PEM with all of them in one file.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_keystore_file: Option<PathBuf>,
    /// The file with the password of the key store; its first line counts.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_keystore_password_file: Option<PathBuf>,
    /// Ask every client for a certificate [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_http_tls_client_auth_enabled: Option<bool>,
    /// Clients that are let in by the SHA-256 of their certificates: a name, a blank and the fingerprint
    /// in each line.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_known_clients_file: Option<PathBuf>,
    /// Let in whoever is signed by an authority that this machine trusts [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_http_tls_ca_clients_enabled: Option<bool>,
    /// Certificates that are trusted, and whoever they have signed: PKCS #12 or PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_truststore_file: Option<PathBuf>,
    /// The file with its password.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_http_tls_truststore_password_file: Option<PathBuf>,
    /// Versions that are spoken.
    #[arg(
        long,
        alias = "rpc-http-tls-protocol",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "TLSv1.3,TLSv1.2"
    )]
    pub(crate) rpc_http_tls_protocols: Vec<String>,
    /// Cipher suites by IANA's names [default: all that there are].
    #[arg(
        long,
        alias = "rpc-http-tls-cipher-suite",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) rpc_http_tls_cipher_suites: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket: TLS")]
pub(crate) struct SocketTlsFlags {
    /// Speak TLS, and nothing else [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_ws_ssl_enabled: Option<bool>,
    /// This node's key and certificates: PKCS #12, or PEM with all of them in one file.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_keystore_file: Option<PathBuf>,
    /// Taken for Besu's sake: what a file is, is read from it. JKS is refused when it is read.
    #[arg(long, value_name = "TYPE")]
    pub(crate) rpc_ws_ssl_keystore_type: Option<String>,
    /// The password of the key store; other users of the machine may see it here.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) rpc_ws_ssl_keystore_password: Option<String>,
    /// The file with the password of the key store.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_keystore_password_file: Option<PathBuf>,
    /// This node's key, PEM; in the place of a key store.
    #[arg(long, value_name = "FILE", requires = "rpc_ws_ssl_cert_file")]
    pub(crate) rpc_ws_ssl_key_file: Option<PathBuf>,
    /// Its certificate, and those of who signed it, PEM.
    #[arg(long, value_name = "FILE", requires = "rpc_ws_ssl_key_file")]
    pub(crate) rpc_ws_ssl_cert_file: Option<PathBuf>,
    /// Ask every client for a certificate [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_ws_ssl_client_auth_enabled: Option<bool>,
    /// Certificates that are trusted, and whoever they have signed: PKCS #12 or PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_truststore_file: Option<PathBuf>,
    /// Taken for Besu's sake, as that of the key store.
    #[arg(long, value_name = "TYPE")]
    pub(crate) rpc_ws_ssl_truststore_type: Option<String>,
    /// The password of the trusted certificates' file.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) rpc_ws_ssl_truststore_password: Option<String>,
    /// The file with that password.
    #[arg(long, value_name = "FILE")]
    pub(crate) rpc_ws_ssl_truststore_password_file: Option<PathBuf>,
    /// Certificates that are trusted, PEM; in the place of such a store.
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
