//! The API server's front proxy: its certificate, and the headers in which it names the user.
//!
//! The cluster publishes both in `ConfigMap` `kube-system/extension-apiserver-authentication`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{Caller, PeerCertificates};

const CA: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";
const USER: &str = "requestheader-username-headers";
const UID: &str = "requestheader-uid-headers";
const GROUP: &str = "requestheader-group-headers";
const EXTRA: &str = "requestheader-extra-headers-prefix";

/// Why the published entries cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry} of ConfigMap kube-system/extension-apiserver-authentication does not hold {wanted}")]
pub struct Error {
    /// Name of the entry.
    pub entry: &'static str,
    /// What it should hold.
    pub wanted: &'static str,
}

/// The front proxy of a cluster.
pub struct FrontProxy {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The allowed names of its certificate; empty allows every name.
    allowed: Vec<String>,
    user: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    extra: Vec<String>,
}

impl fmt::Debug for FrontProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontProxy")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl FrontProxy {
    /// Reads the entries of the `ConfigMap`; `None` when the cluster has no front proxy.
    ///
    /// # Errors
    /// The first entry with a wrong value.
    pub fn from_config_map(data: &BTreeMap<String, String>) -> Result<Option<Self>, Error> {
        let Some(authorities) = data.get(CA) else {
            return Ok(None);
        };
        let malformed = Error {
            entry: CA,
            wanted: "certificates in PEM",
        };
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
            let added = der.map(|der| roots.add(der));
            if !matches!(added, Ok(Ok(()))) {
                return Err(malformed);
            }
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_no_roots| malformed)?;
        Ok(Some(Self {
            verifier,
            allowed: list(data, NAMES)?,
            user: list(data, USER)?,
            uid: list(data, UID)?,
            group: list(data, GROUP)?,
            extra: list(data, EXTRA)?
                .iter()
                .map(|prefix| prefix.to_ascii_lowercase())
                .collect(),
        }))
    }

    /// The user whom the proxy names, if the peer is the proxy and names one.
    pub(super) fn caller(&self, peer: &PeerCertificates, headers: &HeaderMap) -> Option<Caller> {
        let (own, others) = peer.0.split_first()?;
        self.verifier
            .verify_client_cert(own, others, UnixTime::now())
            .ok()?;
        if !self.allowed.is_empty() {
            let (_rest, parsed) = x509_parser::parse_x509_certificate(own).ok()?;
            let mut names = parsed.subject().iter_common_name();
            let name = names.next()?.as_str().ok()?;
            if !self.allowed.iter().any(|allowed| allowed == name) {
                return None;
            }
        }
        let user = first(headers, &self.user)?;
        let groups = self.group.iter().flat_map(|name| values(headers, name));
        Some(Caller {
            user,
            uid: first(headers, &self.uid).unwrap_or_default(),
            groups: groups.collect(),
            extra: self.extra_of(headers),
        })
    }

    fn extra_of(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            let key = self
                .extra
                .iter()
                .find_map(|prefix| name.as_str().strip_prefix(prefix));
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
        extra
    }
}

fn list(data: &BTreeMap<String, String>, entry: &'static str) -> Result<Vec<String>, Error> {
    let Some(text) = data.get(entry) else {
        return Ok(Vec::new());
    };
    let wanted = "a list of text in JSON";
    serde_json::from_str(text).map_err(|_other| Error { entry, wanted })
}

fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let all = headers.get_all(name).into_iter();
    let texts = all.filter_map(|value| value.to_str().ok());
    texts
        .filter(|text| !text.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names
        .iter()
        .find_map(|name| values(headers, name).into_iter().next())
}
