//! TLS of HTTP, WebSocket and GraphQL, from flags and files.

use crate::options::{GraphQlTlsFlags, HttpTlsFlags, SocketTlsFlags};
use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::{Clients, KeyStore, Tls, TlsOptions};
use std::path::Path;
use tracing::warn;

/// The TLS flags of a server.
pub(crate) enum TlsFlags {
    Off,
    Http(HttpTlsFlags),
    WebSocket(SocketTlsFlags),
    GraphQl(GraphQlTlsFlags),
}

impl TlsFlags {
    /// Reads key stores and certificates; `None` if the flags do not enable TLS.
    pub(super) fn load(&self) -> Result<Option<Tls>> {
        match self {
            Self::Off => Ok(None),
            Self::Http(flags) => http_tls(flags),
            Self::WebSocket(flags) => websocket_tls(flags),
            Self::GraphQl(flags) => graphql_tls(flags),
        }
    }
}

fn http_tls(flags: &HttpTlsFlags) -> Result<Option<Tls>> {
    if flags.rpc_http_tls_enabled != Some(true) {
        if flags.rpc_http_tls_client_auth_enabled == Some(true) {
            return Err(eyre!(
                "--rpc-http-tls-client-auth-enabled needs --rpc-http-tls-enabled"
            ));
        }
        if flags.rpc_http_tls_keystore_file.is_some() {
            warn!("--rpc-http-tls-enabled is missing: nothing is encrypted");
        }
        return Ok(None);
    }
    let path = flags.rpc_http_tls_keystore_file.as_deref();
    let path = path.ok_or_else(|| {
        eyre!("--rpc-http-tls-enabled needs --rpc-http-tls-keystore-file, PKCS #12 or PEM")
    })?;
    let password = flags.rpc_http_tls_keystore_password_file.as_deref();
    let options = TlsOptions {
        store: read_store(path, password.map(read_password).transpose()?.as_deref())?,
        clients: http_clients(flags)?,
        protocols: flags.rpc_http_tls_protocols.clone(),
        cipher_suites: flags.rpc_http_tls_cipher_suites.clone(),
    };
    let tls = Tls::new(options);
    tls.map(Some).map_err(|error| {
        eyre!(
            "TLS for JSON-RPC over HTTP, with {}: {error}",
            path.display()
        )
    })
}

fn http_clients(flags: &HttpTlsFlags) -> Result<Option<Clients>> {
    let known = flags.rpc_http_tls_known_clients_file.as_deref();
    let trusted = flags.rpc_http_tls_truststore_file.as_deref();
    let by_authorities = flags.rpc_http_tls_ca_clients_enabled == Some(true);
    let is_configured = known.is_some() || trusted.is_some() || by_authorities;
    if flags.rpc_http_tls_client_auth_enabled != Some(true) {
        if is_configured {
            warn!("--rpc-http-tls-client-auth-enabled is missing: no client is asked who it is");
        }
        return Ok(None);
    }
    if !is_configured {
        return Err(eyre!(
            "--rpc-http-tls-client-auth-enabled needs --rpc-http-tls-known-clients-file, \
             --rpc-http-tls-truststore-file or --rpc-http-tls-ca-clients-enabled"
        ));
    }
    if trusted.is_some() && (known.is_some() || by_authorities) {
        return Err(eyre!(
            "--rpc-http-tls-truststore-file goes with neither --rpc-http-tls-known-clients-file nor \
             --rpc-http-tls-ca-clients-enabled: choose"
        ));
    }
    let mut clients = Clients::default();
    if let Some(path) = known {
        let text = std::fs::read_to_string(path)
            .wrap_err_with(|| format!("can't read the known clients {}", path.display()))?;
        let added = clients.add_known(&text);
        added.map_err(|error| eyre!("the known clients {}: {error}", path.display()))?;
    }
    if let Some(path) = trusted {
        let password = flags.rpc_http_tls_truststore_password_file.as_deref();
        let password = password.map(read_password).transpose()?;
        trust(&mut clients, path, password.as_deref())?;
    }
    if by_authorities {
        let added = clients.add_authorities_of_system();
        added.map_err(|error| eyre!("--rpc-http-tls-ca-clients-enabled: {error}"))?;
    }
    Ok(Some(clients))
}

fn websocket_tls(flags: &SocketTlsFlags) -> Result<Option<Tls>> {
    let keystore = flags.rpc_ws_ssl_keystore_file.as_deref();
    let key = flags.rpc_ws_ssl_key_file.as_deref();
    if flags.rpc_ws_ssl_enabled != Some(true) {
        if flags.rpc_ws_ssl_client_auth_enabled == Some(true) {
            return Err(eyre!(
                "--rpc-ws-ssl-client-auth-enabled needs --rpc-ws-ssl-enabled"
            ));
        }
        if keystore.or(key).is_some() {
            warn!("--rpc-ws-ssl-enabled is missing: nothing is encrypted");
        }
        return Ok(None);
    }
    let file = flags.rpc_ws_ssl_keystore_password_file.as_deref();
    let password = password(flags.rpc_ws_ssl_keystore_password.as_deref(), file)?;
    let password = password.as_deref();
    let store = match (keystore, key, flags.rpc_ws_ssl_cert_file.as_deref()) {
        (Some(path), ..) => read_store(path, password)?,
        (None, Some(key), Some(certificate)) => {
            read_store(key, password)?.and(read_store(certificate, None)?)
        }
        _ => {
            return Err(eyre!(
                "--rpc-ws-ssl-enabled needs --rpc-ws-ssl-keystore-file, or --rpc-ws-ssl-key-file \
                 and --rpc-ws-ssl-cert-file"
            ));
        }
    };
    let tls = usual_tls(store, websocket_clients(flags)?);
    tls.map(Some)
        .map_err(|error| eyre!("TLS for JSON-RPC over WebSocket: {error}"))
}

/// TLS 1.2 and later, with all cipher suites.
fn usual_tls(store: KeyStore, clients: Option<Clients>) -> Result<Tls, String> {
    Tls::new(TlsOptions {
        store,
        clients,
        protocols: vec!["TLSv1.3".to_owned(), "TLSv1.2".to_owned()],
        cipher_suites: Vec::new(),
    })
}

fn graphql_tls(flags: &GraphQlTlsFlags) -> Result<Option<Tls>> {
    let path = flags.graphql_tls_keystore_file.as_deref();
    if flags.graphql_tls_enabled != Some(true) {
        if flags.graphql_mtls_enabled == Some(true) {
            return Err(eyre!("--graphql-mtls-enabled needs --graphql-tls-enabled"));
        }
        if path.is_some() {
            warn!("--graphql-tls-enabled is missing: nothing is encrypted");
        }
        return Ok(None);
    }
    let path =
        path.ok_or_else(|| eyre!("--graphql-tls-enabled needs --graphql-tls-keystore-file"))?;
    let password = password(None, flags.graphql_tls_keystore_password_file.as_deref())?;
    let store = read_store(path, password.as_deref())?;
    let tls = usual_tls(store, graphql_clients(flags)?);
    tls.map(Some)
        .map_err(|error| eyre!("TLS for GraphQL, with {}: {error}", path.display()))
}

fn graphql_clients(flags: &GraphQlTlsFlags) -> Result<Option<Clients>> {
    let trusted = flags.graphql_tls_truststore_file.as_deref();
    match (flags.graphql_mtls_enabled == Some(true), trusted) {
        (false, None) => Ok(None),
        (false, Some(_)) => {
            warn!("--graphql-mtls-enabled is missing: no client is asked who it is");
            Ok(None)
        }
        (true, None) => Err(eyre!(
            "--graphql-mtls-enabled needs --graphql-tls-truststore-file"
        )),
        (true, Some(path)) => {
            let password = password(None, flags.graphql_tls_truststore_password_file.as_deref())?;
            let mut clients = Clients::default();
            trust(&mut clients, path, password.as_deref())?;
            Ok(Some(clients))
        }
    }
}

fn websocket_clients(flags: &SocketTlsFlags) -> Result<Option<Clients>> {
    let store = flags.rpc_ws_ssl_truststore_file.as_deref();
    let trusted = store.or(flags.rpc_ws_ssl_trustcert_file.as_deref());
    match (flags.rpc_ws_ssl_client_auth_enabled == Some(true), trusted) {
        (false, None) => Ok(None),
        (false, Some(_)) => {
            warn!("--rpc-ws-ssl-client-auth-enabled is missing: no client is asked who it is");
            Ok(None)
        }
        (true, None) => Err(eyre!(
            "--rpc-ws-ssl-client-auth-enabled needs --rpc-ws-ssl-truststore-file or \
             --rpc-ws-ssl-trustcert-file"
        )),
        (true, Some(path)) => {
            let file = flags.rpc_ws_ssl_truststore_password_file.as_deref();
            let password = password(flags.rpc_ws_ssl_truststore_password.as_deref(), file)?;
            let mut clients = Clients::default();
            trust(&mut clients, path, password.as_deref())?;
            Ok(Some(clients))
        }
    }
}

fn trust(clients: &mut Clients, path: &Path, password: Option<&str>) -> Result<()> {
    let store = read_store(path, password)?;
    let added = clients.add_trusted(&store);
    added.map_err(|error| eyre!("the trusted certificates {}: {error}", path.display()))
}

fn read_store(path: &Path, password: Option<&str>) -> Result<KeyStore> {
    let bytes = std::fs::read(path)
        .wrap_err_with(|| format!("can't read the key store {}", path.display()))?;
    KeyStore::read(&bytes, password)
        .map_err(|error| eyre!("can't use the key store {}: {error}", path.display()))
}

fn password(given: Option<&str>, file: Option<&Path>) -> Result<Option<String>> {
    match given {
        Some(password) => Ok(Some(password.to_owned())),
        None => file.map(read_password).transpose(),
    }
}

/// The first line of a password file.
fn read_password(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the password file {}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
