//! TLS 1.3 and 1.2, by `rustls` with the cryptography of `ring`.
//!
//! Turns keys and certificates into an acceptor of connections; [`Clients`] decides which clients may connect.

mod clients;
mod pkcs12;
mod store;
#[cfg(test)]
mod tests;

pub use clients::Clients;
pub use store::{KeyStore, StoreError};

use super::x509::Certificate;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The response to a client that does not start with TLS.
const PLAIN_REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Connection: close\r\nContent-Length: 43\r\n\r\nthis port speaks TLS: ask with https or wss";

/// TLS options of a server.
#[derive(Debug, Default)]
pub struct TlsOptions {
    /// This server's key and certificate chain.
    pub store: KeyStore,
    /// The clients that may connect; if `None`, all, without certificates.
    pub clients: Option<Clients>,
    /// Versions: `TLSv1.3`, `TLSv1.2`.
    pub protocols: Vec<String>,
    /// Cipher suites by their IANA names; all of them if the list is empty.
    pub cipher_suites: Vec<String>,
}

/// The acceptor of TLS connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// An acceptor with these options.
    ///
    /// # Errors
    /// Which option is wrong, and why.
    pub fn new(options: TlsOptions) -> Result<Self, String> {
        let provider = Arc::new(provider(&options.cipher_suites)?);
        let versions = versions(&options.protocols)?;
        let identity = identity(options.store, &provider)?;
        let verifier = match options.clients {
            Some(clients) => clients.verifier(&provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| format!("the versions and cipher suites do not fit: {error}"))?;
        let resolver = rustls::sign::SingleCertAndKey::from(identity);
        let mut config = config
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Does the handshake with a client, within a time limit; a plain HTTP request gets an error page.
    pub(super) async fn accept(&self, mut stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let accepting = async {
            let mut first = [0];
            stream.peek(&mut first).await.ok()?;
            if first.iter().all(u8::is_ascii_alphabetic) {
                let _ = stream.write_all(PLAIN_REFUSED).await;
                let _ = stream.shutdown().await;
                // Unread bytes would reset the connection before the client has read the response.
                let mut rest = stream.take(64 << 10);
                let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
                return None;
            }
            match self.0.accept(stream).await {
                Ok(stream) => Some(stream),
                Err(error) => {
                    tracing::debug!(%error, "no TLS with a client");
                    None
                }
            }
        };
        tokio::time::timeout(HANDSHAKE, accepting).await.ok()?
    }
}

/// The provider `ring` with the cipher suites of these names.
fn provider(names: &[String]) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let known: Vec<String> = provider.cipher_suites.iter().map(name_of).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "there is no cipher suite {unknown}; choose of {}",
            known.join(",")
        ));
    }
    provider
        .cipher_suites
        .retain(|suite| names.contains(&name_of(suite)));
    Ok(provider)
}

/// The IANA name of a suite.
fn name_of(suite: &rustls::SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.replacen("TLS13_", "TLS_", 1)
}

fn versions(names: &[String]) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for name in names {
        match name.as_str() {
            "TLSv1.3" => versions.push(&rustls::version::TLS13),
            "TLSv1.2" => versions.push(&rustls::version::TLS12),
            _ => tracing::warn!("{name} is not offered; TLSv1.3 and TLSv1.2 are"),
        }
    }
    match versions.is_empty() {
        true => Err("no version is left: choose of TLSv1.3,TLSv1.2".to_owned()),
        false => Ok(versions),
    }
}

/// The key of a store with its certificate chain, its own certificate first.
fn identity(store: KeyStore, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let [key] = store.keys.as_slice() else {
        return Err(format!(
            "{} private keys where one is needed",
            store.keys.len()
        ));
    };
    let key = PrivateKeyDer::try_from(key.clone())
        .map_err(|error| format!("the private key is of no known form: {error}"))?;
    let key = provider.key_provider.load_private_key(key).map_err(|_| {
        "the private key can't be used: RSA from 2048 bits, P-256, P-384 and Ed25519 can".to_owned()
    })?;
    let public = key.public_key();
    let public = public.as_ref().map(|public| public.as_ref());
    let read: Vec<_> = store
        .certificates
        .iter()
        .filter_map(|der| Some((der, Certificate::read(der)?)))
        .collect();
    let own = read.iter().find(|(_, own)| Some(own.public_key) == public);
    let Some((der, own)) = own else {
        return Err("no certificate that belongs to the private key".to_owned());
    };
    let mut chain: Vec<CertificateDer<'static>> = vec![(*der).clone().into()];
    let mut last = *own;
    // Each name once, so that two certificates that issued each other end the chain.
    while last.issuer != last.subject && chain.len() < read.len() {
        let Some((der, issuer)) = read.iter().find(|(_, other)| other.subject == last.issuer)
        else {
            break;
        };
        chain.push((*der).clone().into());
        last = *issuer;
    }
    Ok(CertifiedKey::new(chain, key))
}
