//! Whether certificates must be renewed, as a pure function of the time.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, PublicKeyData};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::Bundle;

/// A certificate is renewed when less than one part in this many of its lifetime is left.
const RENEW_BEFORE_PART: i32 = 3;

/// What to do about a [`Bundle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// Nothing is due.
    Keep,
    /// A new serving certificate from the same authority.
    RenewServing,
    /// A new authority and a new serving certificate.
    RenewAll,
}

/// Decides from the time, the bundle and the names that clients use.
///
/// A certificate is due when less than a third of its lifetime is left, so that there is time to retry. The serving certificate
/// is also due when it lacks one of the names, is not from the current authority, or does not match its key. The authority is
/// also due when it does not match its key.
pub fn plan_rotation(now: Timestamp, bundle: &Bundle, names: &[String]) -> Rotation {
    let Some(authority) = bundle.authorities.first() else {
        return Rotation::RenewAll;
    };
    if is_due(now, authority) || !key_fits(authority, &bundle.authority_key) {
        return Rotation::RenewAll;
    }
    let Some(serving) = bundle.chain.first() else {
        return Rotation::RenewServing;
    };
    if is_due(now, serving) || bundle.certified_key().is_err() || !is_accepted(now, authority, bundle, names)
    {
        return Rotation::RenewServing;
    }
    Rotation::Keep
}

/// First and last moment of a certificate; `None` when it cannot be parsed.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_rest, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let validity = parsed.validity();
    let moment = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some((
        moment(validity.not_before.timestamp())?,
        moment(validity.not_after.timestamp())?,
    ))
}

fn is_due(now: Timestamp, certificate: &CertificateDer<'_>) -> bool {
    let Some((begin, end)) = validity(certificate) else {
        return true;
    };
    let left: SignedDuration = now.duration_until(end);
    now < begin || left < begin.duration_until(end) / RENEW_BEFORE_PART
}

fn key_fits(authority: &CertificateDer<'_>, key: &str) -> bool {
    let Ok((_rest, parsed)) = x509_parser::parse_x509_certificate(authority) else {
        return false;
    };
    KeyPair::from_pem(key).is_ok_and(|key| key.der_bytes() == &*parsed.public_key().subject_public_key.data)
}

fn is_accepted(now: Timestamp, authority: &CertificateDer<'_>, bundle: &Bundle, names: &[String]) -> bool {
    let Some((serving, rest)) = bundle.chain.split_first() else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    if roots.add(authority.clone().into_owned()).is_err() {
        return false;
    }
    let provider = Arc::new(ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
        return false;
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let moment = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    names.iter().all(|name| {
        ServerName::try_from(name.as_str()).is_ok_and(|name| {
            verifier
                .verify_server_cert(serving, rest, &name, &[], moment)
                .is_ok()
        })
    })
}
