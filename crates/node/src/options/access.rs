//! The command line: who may ask over HTTP and WebSocket.

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

fn algorithm(name: &str) -> Result<TokenAlgorithm, String> {
    let mut all = TokenAlgorithm::ALL.into_iter();
    let found = all.find(|algorithm| algorithm.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names = TokenAlgorithm::ALL.map(TokenAlgorithm::name);
        format!("choose of {}", names.join(", "))
    })
}
