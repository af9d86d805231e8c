//! The command line: GraphQL over HTTP.

use super::node::host;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(next_help_heading = "GraphQL over HTTP")]
pub(crate) struct GraphQlFlags {
    /// Serve GraphQL (EIP-1767) at /graphql, to the hosts of --host-allowlist [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) graphql_http_enabled: Option<bool>,
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) graphql_http_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 8547)]
    pub(crate) graphql_http_port: u16,
    /// Origins of web pages that may call (CORS), or * for all [default: none].
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) graphql_http_cors_origins: Vec<String>,
    /// Most blocks of one blocks(from, to); 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pub(crate) graphql_max_blocks_range: u64,
    #[command(flatten)]
    pub(crate) tls: GraphQlTlsFlags,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct GraphQlTlsFlags {
    /// Accept TLS connections only [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) graphql_tls_enabled: Option<bool>,
    /// Private key and certificates of this node: PKCS #12, or one PEM file with all of them.
    #[arg(long, value_name = "FILE")]
    pub(crate) graphql_tls_keystore_file: Option<PathBuf>,
    /// File whose first line is the password of the key store.
    #[arg(long, value_name = "FILE")]
    pub(crate) graphql_tls_keystore_password_file: Option<PathBuf>,
    /// Require a certificate from every client [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) graphql_mtls_enabled: Option<bool>,
    /// Trusted certificates and authorities of clients: PKCS #12 or PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) graphql_tls_truststore_file: Option<PathBuf>,
    /// File whose first line is the password of the trust store.
    #[arg(long, value_name = "FILE")]
    pub(crate) graphql_tls_truststore_password_file: Option<PathBuf>,
}
