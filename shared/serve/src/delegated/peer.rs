//! Client certificates: asked for in the handshake, judged per request.
//!
//! Why so late: who has no certificate, or one of another authority, must get an answer that says 401 and not a broken
//! handshake; and the authority that counts may change while connections live. The handshake proves that the peer has the
//! key of what it shows.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The certificates that the peer of a connection showed, its own first. Nobody has judged them yet.
#[derive(Debug, Clone)]
pub(crate) struct PeerCertificates(pub(crate) Arc<[CertificateDer<'static>]>);

/// Asks for a certificate and takes any, or none.
#[derive(Debug)]
pub(crate) struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyClient {
    pub(crate) fn new() -> Self {
        Self {
            algorithms: ring::default_provider().signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
