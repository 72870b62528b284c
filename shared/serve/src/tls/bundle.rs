//! An authority and a serving certificate together, as a Secret stores them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::Error;

/// Secret entry with the authorities' certificates, the current one first.
pub const CA_CERT_KEY: &str = "ca.crt";
/// Secret entry with the current authority's private key.
pub const CA_KEY_KEY: &str = "ca.key";
/// Secret entry with the serving certificate.
pub const CERT_KEY: &str = "tls.crt";
/// Secret entry with the serving certificate's private key.
pub const KEY_KEY: &str = "tls.key";

/// Limit: authorities that are trusted at the same time, including the current one.
pub const CAS_MAX: usize = 3;

const PEM_LINE: usize = 64;

/// A certificate authority, the ones before it that are still valid, and a serving certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle {
    pub(super) authorities: Vec<CertificateDer<'static>>,
    pub(super) authority_key: String,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: String,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("authorities", &self.authorities.len())
            .field("chain", &self.chain.len())
            .finish_non_exhaustive()
    }
}

impl Bundle {
    /// Reads the entries of a Secret. [`super::plan_rotation`] decides whether they are still good.
    ///
    /// # Errors
    /// The first entry that is missing or wrong.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        Ok(Self {
            authorities: certificates(CA_CERT_KEY, entry(data, CA_CERT_KEY)?)?,
            authority_key: private_key(CA_KEY_KEY, entry(data, CA_KEY_KEY)?)?,
            chain: certificates(CERT_KEY, entry(data, CERT_KEY)?)?,
            key: private_key(KEY_KEY, entry(data, KEY_KEY)?)?,
        })
    }

    /// The entries to store in a Secret.
    pub fn to_secret(&self) -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([
            (CA_CERT_KEY.to_owned(), self.ca_bundle().into_bytes()),
            (CA_KEY_KEY.to_owned(), self.authority_key.clone().into_bytes()),
            (CERT_KEY.to_owned(), pem(&self.chain).into_bytes()),
            (KEY_KEY.to_owned(), self.key.clone().into_bytes()),
        ])
    }

    /// The authorities in PEM, for the `caBundle` of webhook configurations. After a change of authority it holds both until the old one
    /// expires.
    pub fn ca_bundle(&self) -> String {
        pem(&self.authorities)
    }

    /// The serving certificate for a [`super::CertSlot`].
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn certified_key(&self) -> Result<CertifiedKey, Error> {
        certified_key(&self.chain, KEY_KEY, self.key.as_bytes())
    }
}

pub(super) fn certified_key(
    chain: &[CertificateDer<'static>],
    entry: &'static str,
    key: &[u8],
) -> Result<CertifiedKey, Error> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_secret| Error::Malformed {
        key: entry,
        wanted: "a private key in PEM",
    })?;
    CertifiedKey::from_der(chain.to_vec(), key, &ring::default_provider())
        .map_err(|source| Error::Unusable { source })
}

fn entry<'d>(data: &'d BTreeMap<String, Vec<u8>>, key: &'static str) -> Result<&'d [u8], Error> {
    data.get(key).map(Vec::as_slice).ok_or(Error::Missing { key })
}

pub(super) fn certificates(key: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let malformed = Error::Malformed {
        key,
        wanted: "certificates in PEM",
    };
    match CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(malformed),
    }
}

fn private_key(key: &'static str, text: &[u8]) -> Result<String, Error> {
    let malformed = || Error::Malformed {
        key,
        wanted: "a private key in PEM",
    };
    let text = str::from_utf8(text).map_err(|_secret| malformed())?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_secret| malformed())?;
    Ok(text.to_owned())
}

fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for (index, character) in encoded.chars().enumerate() {
            if index > 0 && index % PEM_LINE == 0 {
                text.push('\n');
            }
            text.push(character);
        }
        text.push_str("\n-----END CERTIFICATE-----\n");
    }
    text
}
