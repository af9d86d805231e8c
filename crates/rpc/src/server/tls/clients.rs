//! Client certificates: which clients may connect.
//!
//! A listed certificate is trusted within its dates, regardless of its issuer; any other must be issued by a trusted
//! authority.

use crate::server::x509::{Certificate, is_authority};
use niwaki_primitives::hex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The SHA-256 of a certificate.
pub(super) type Fingerprint = [u8; 32];

/// The clients that may connect.
#[derive(Debug)]
pub struct Clients {
    known: BTreeSet<Fingerprint>,
    authorities: RootCertStore,
}

impl Default for Clients {
    /// No client yet.
    fn default() -> Self {
        Self {
            known: BTreeSet::new(),
            authorities: RootCertStore::empty(),
        }
    }
}

impl Clients {
    /// Allows clients with these certificates. Each line has a name, a blank and the SHA-256 in hexadecimal, with or
    /// without colons. The name is for readers only.
    ///
    /// # Errors
    /// Which line is wrong, and why.
    pub fn add_known(&mut self, text: &str) -> Result<(), String> {
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let digits = line.split_whitespace().next_back().unwrap_or_default();
            let digits = digits.replace(':', "");
            let fingerprint = hex::decode_to_array::<_, 32>(&digits).map_err(|_| {
                format!(
                    "line {} has no SHA-256 fingerprint: write a name and 32 bytes in hexadecimal, \
                     as `openssl x509 -noout -fingerprint -sha256` shows them",
                    index + 1
                )
            })?;
            self.known.insert(fingerprint);
        }
        Ok(())
    }

    /// Allows clients with a certificate of `store`, or with one issued by an authority of `store`. A certificate that
    /// is no authority's can't issue others.
    ///
    /// # Errors
    /// If `store` has no certificate, or a malformed one.
    pub fn add_trusted(&mut self, store: &super::KeyStore) -> Result<(), String> {
        if store.certificates.is_empty() {
            return Err("it holds no certificate to trust".to_owned());
        }
        for certificate in &store.certificates {
            self.known.insert(fingerprint(certificate));
            if !is_authority(certificate) {
                continue;
            }
            let added = self.authorities.add(certificate.clone().into());
            added.map_err(|error| format!("it holds a certificate that can't be used: {error}"))?;
        }
        Ok(())
    }

    /// Allows clients with a certificate issued by an authority that this machine trusts.
    ///
    /// # Errors
    /// If this machine trusts none.
    pub fn add_authorities_of_system(&mut self) -> Result<(), String> {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = self.authorities.add_parsable_certificates(found.certs);
        match (added, found.errors.first()) {
            (0, Some(error)) => Err(format!("can't read this machine's authorities: {error}")),
            (0, None) => Err("this machine trusts no authority".to_owned()),
            _ => Ok(()),
        }
    }

    /// The verifier, which requires a certificate of every client.
    pub(super) fn verifier(
        self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let authorities = match self.authorities.is_empty() {
            true => None,
            false => {
                let (roots, provider) = (Arc::new(self.authorities), Arc::clone(provider));
                let built = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                Some(built.map_err(|error| error.to_string())?)
            }
        };
        Ok(Arc::new(Verifier {
            known: self.known,
            authorities,
            provider: Arc::clone(provider),
        }))
    }
}

/// The fingerprint of a certificate.
pub(super) fn fingerprint(der: &[u8]) -> Fingerprint {
    let hash = ring::digest::digest(&ring::digest::SHA256, der);
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(hash.as_ref());
    fingerprint
}

#[derive(Debug)]
struct Verifier {
    known: BTreeSet<Fingerprint>,
    authorities: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Verifier {
    /// No hints, so that a client sends the certificate that it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.known.contains(&fingerprint(shown)) {
            let certificate = Certificate::read(shown).ok_or(CertificateError::BadEncoding)?;
            return match now.as_secs() {
                now if now < certificate.not_before => Err(CertificateError::NotValidYet.into()),
                now if now > certificate.not_after => Err(CertificateError::Expired.into()),
                _ => Ok(ClientCertVerified::assertion()),
            };
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_client_cert(shown, others, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, shown, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, shown, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_clients_are_read_with_names_colons_and_comments() {
        let mut clients = Clients::default();
        let digits = "ab".repeat(32);
        let colons = ["CD"; 32].join(":");
        let text = format!("# signers\nweb3signer {colons}\n\ncurl {digits} # by hand\n");
        clients.add_known(&text).unwrap();
        assert_eq!(clients.known, [[0xab; 32], [0xcd; 32]].into());
        for wrong in ["web3signer", "web3signer AB:CD", &format!("x {digits}ff")] {
            let error = clients.add_known(&format!("\n{wrong}")).unwrap_err();
            assert!(error.starts_with("line 2 "), "{error}");
        }
    }
}
