//! TLS settings of listeners, with a certificate that can be replaced while they run.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use roadstead_api::config::{Tls, TlsVersion};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{NamedGroup, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};

use super::Error;
use crate::delegated::AnyClient;

/// Holds the certificate for new connections. Earlier connections keep theirs.
pub struct CertSlot {
    current: ArcSwapOption<CertifiedKey>,
}

impl CertSlot {
    /// No certificate yet: handshakes fail until [`CertSlot::fill`].
    pub fn empty() -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwapOption::empty(),
        })
    }

    /// Serves this certificate from the next connection on.
    pub fn fill(&self, certificate: CertifiedKey) {
        self.current.store(Some(Arc::new(certificate)));
    }

    /// Whether there is a certificate.
    pub fn is_filled(&self) -> bool {
        self.current.load().is_some()
    }
}

impl fmt::Debug for CertSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertSlot")
            .field("filled", &self.is_filled())
            .finish()
    }
}

impl ResolvesServerCert for CertSlot {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// TLS settings of a listener whose certificate comes from `slot`.
///
/// # Errors
/// When the settings leave no suite or no curve to use.
pub fn server_config(tls: &Tls, slot: Arc<CertSlot>) -> Result<Arc<ServerConfig>, Error> {
    configure(tls, slot, Clients::Unknown)
}

/// As [`server_config`], for a listener behind a [`crate::delegated::Guard`]: clients may show a certificate.
///
/// # Errors
/// When the settings leave no suite or no curve to use.
pub fn server_config_asking_clients(tls: &Tls, slot: Arc<CertSlot>) -> Result<Arc<ServerConfig>, Error> {
    configure(tls, slot, Clients::Asked)
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy)]
enum Clients {
    Unknown,
    Asked,
}

fn configure(tls: &Tls, slot: Arc<CertSlot>, clients: Clients) -> Result<Arc<ServerConfig>, Error> {
    let mut provider = ring::default_provider();
    if !tls.cipher_suites.is_empty() {
        let wanted = |suite: &SupportedCipherSuite| {
            let name = suite_name(suite);
            // Why: as in Go, the suites of TLS 1.3 cannot be chosen.
            suite.tls13().is_some() || tls.cipher_suites.iter().any(|written| canonical(written) == name)
        };
        provider.cipher_suites.retain(wanted);
    }
    if !tls.curve_preferences.is_empty() {
        provider.kx_groups = preferred_groups(&provider, &tls.curve_preferences);
        if provider.kx_groups.is_empty() {
            return Err(Error::Settings {
                key: "tls.curvePreferences",
                source: None,
            });
        }
    }
    let versions: &[&SupportedProtocolVersion] = match tls.min_version {
        Some(TlsVersion::Tls13) => &[&TLS13],
        Some(TlsVersion::Tls12) | None => &[&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|source| Error::Settings {
            key: "tls.cipherSuites",
            source: Some(source),
        })?;
    let builder = match clients {
        Clients::Unknown => builder.with_no_client_auth(),
        Clients::Asked => builder.with_client_cert_verifier(Arc::new(AnyClient::new())),
    };
    let mut config = builder.with_cert_resolver(slot);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whether `tls.cipherSuites` may list this name.
pub fn cipher_suite_known(name: &str) -> bool {
    cipher_suite_names().iter().any(|known| *known == canonical(name))
}

/// Names that `tls.cipherSuites` may list: the suites of TLS 1.2 that are available here.
pub fn cipher_suite_names() -> Vec<&'static str> {
    let suites = ring::default_provider().cipher_suites;
    suites
        .iter()
        .filter(|suite| suite.tls13().is_none())
        .map(suite_name)
        .collect()
}

fn suite_name(suite: &SupportedCipherSuite) -> &'static str {
    suite.suite().as_str().unwrap_or("unnamed")
}

/// The full name of a suite. Why: for two suites, Go also has an older name without the hash.
fn canonical(name: &str) -> &str {
    match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        other => other,
    }
}

/// The curves that Go knows: name, number, and group of our TLS library; `None` if the library lacks it.
const CURVES: &[(&str, &str, Option<NamedGroup>)] = &[
    ("X25519", "29", Some(NamedGroup::X25519)),
    ("CurveP256", "23", Some(NamedGroup::secp256r1)),
    ("CurveP384", "24", Some(NamedGroup::secp384r1)),
    ("CurveP521", "25", None),
    ("X25519MLKEM768", "4588", None),
];

fn curve(written: &str) -> Option<&'static (&'static str, &'static str, Option<NamedGroup>)> {
    CURVES
        .iter()
        .find(|(name, number, _)| *name == written || *number == written)
}

/// Whether `tls.curvePreferences` may list this name or number.
pub fn curve_known(written: &str) -> bool {
    curve(written).is_some()
}

/// Whether our TLS library has this curve. A curve that Go knows but the library lacks is accepted and ignored.
pub fn curve_usable(written: &str) -> bool {
    curve(written).is_some_and(|(_, _, group)| group.is_some())
}

/// Names that `tls.curvePreferences` may list.
pub fn curve_names() -> Vec<&'static str> {
    CURVES.iter().map(|(name, _, _)| *name).collect()
}

fn preferred_groups(provider: &CryptoProvider, written: &[String]) -> Vec<&'static dyn SupportedKxGroup> {
    let groups = written.iter().filter_map(|written| curve(written)?.2);
    groups
        .filter_map(|group| {
            provider
                .kx_groups
                .iter()
                .copied()
                .find(|known| known.name() == group)
        })
        .collect()
}
