//! Makes certificate authorities and serving certificates. The time is an argument.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::plan::validity;
use super::{Bundle, CAS_MAX, Error, Rotation};

/// How far the start of validity is set back, for clocks that are behind.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// How long new certificates last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of an authority.
    pub authority: SignedDuration,
    /// Of a serving certificate; cut to the authority's end.
    pub serving: SignedDuration,
}

impl Default for Lifetimes {
    /// Ten years and one year.
    fn default() -> Self {
        let days = |count: i64| SignedDuration::from_hours(24 * count);
        Self {
            authority: days(3650),
            serving: days(365),
        }
    }
}

/// The names under which a Service is reached inside its cluster.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    let short = format!("{service}.{namespace}");
    vec![
        format!("{short}.svc"),
        format!("{short}.svc.cluster.local"),
        short,
        service.to_owned(),
    ]
}

/// A new authority with a serving certificate for these DNS names and IP addresses.
///
/// # Errors
/// When a name is neither a DNS name nor an IP address.
pub fn issue(now: Timestamp, names: &[String], lifetimes: &Lifetimes) -> Result<Bundle, Error> {
    let failed = |source| Error::Issue {
        names: names.to_vec(),
        source,
    };
    let authority_key = KeyPair::generate().map_err(failed)?;
    let end = now.saturating_add(lifetimes.authority).unwrap_or(Timestamp::MAX);
    let certificate = authority_params(now, end)
        .self_signed(&authority_key)
        .map_err(failed)?;
    let authority_pem = authority_key.serialize_pem();
    let issuer = Issuer::from_ca_cert_der(certificate.der(), authority_key).map_err(failed)?;
    let (serving, key) = serving(now, end, names, lifetimes, &issuer).map_err(failed)?;
    Ok(Bundle {
        authorities: vec![certificate.der().clone()],
        authority_key: authority_pem,
        chain: vec![serving.der().clone()],
        key: key.serialize_pem(),
    })
}

/// Carries out a plan. A new authority keeps the earlier valid ones beside it, at most [`CAS_MAX`] in all.
///
/// # Errors
/// When a name is neither a DNS name nor an IP address.
pub fn renew(
    rotation: Rotation,
    now: Timestamp,
    bundle: &Bundle,
    names: &[String],
    lifetimes: &Lifetimes,
) -> Result<Bundle, Error> {
    match rotation {
        Rotation::Keep => Ok(bundle.clone()),
        Rotation::RenewServing => renew_serving(now, bundle, names, lifetimes),
        Rotation::RenewAll => {
            let mut fresh = issue(now, names, lifetimes)?;
            let valid = |der: &&rustls::pki_types::CertificateDer<'static>| {
                validity(der).is_some_and(|(_begin, end)| now < end)
            };
            fresh
                .authorities
                .extend(bundle.authorities.iter().filter(valid).cloned());
            fresh.authorities.truncate(CAS_MAX);
            Ok(fresh)
        }
    }
}

fn renew_serving(
    now: Timestamp,
    bundle: &Bundle,
    names: &[String],
    lifetimes: &Lifetimes,
) -> Result<Bundle, Error> {
    let failed = |source| Error::Issue {
        names: names.to_vec(),
        source,
    };
    let Some(authority) = bundle.authorities.first() else {
        return Err(Error::Missing {
            key: super::CA_CERT_KEY,
        });
    };
    let authority_key = KeyPair::from_pem(&bundle.authority_key).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_der(authority, authority_key).map_err(failed)?;
    let end = validity(authority).map_or(Timestamp::MAX, |(_begin, end)| end);
    let (serving, key) = serving(now, end, names, lifetimes, &issuer).map_err(failed)?;
    let expired = |der: &rustls::pki_types::CertificateDer<'static>| {
        validity(der).is_none_or(|(_begin, end)| end <= now)
    };
    let mut renewed = bundle.clone();
    renewed.authorities.retain(|der| !expired(der));
    renewed.chain = vec![serving.der().clone()];
    renewed.key = key.serialize_pem();
    Ok(renewed)
}

fn authority_params(now: Timestamp, end: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Why: the time in the name tells two authorities in one bundle apart.
    params.distinguished_name = common_name(&format!("roadstead-ca {}", now.as_second()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, end);
    params
}

fn serving(
    now: Timestamp,
    authority_end: Timestamp,
    names: &[String],
    lifetimes: &Lifetimes,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = common_name("roadstead");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let end = now.saturating_add(lifetimes.serving).unwrap_or(Timestamp::MAX);
    set_validity(&mut params, now, end.min(authority_end));
    Ok((params.signed_by(&key, issuer)?, key))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, end: Timestamp) {
    let epoch = date_time_ymd(1970, 1, 1);
    let after_epoch = |moment: Timestamp| {
        // Limit: certificates write years with four digits.
        let seconds = u64::try_from(moment.as_second()).unwrap_or(0);
        epoch + Duration::from_secs(seconds)
    };
    params.not_before = after_epoch(now.saturating_sub(CLOCK_SKEW).unwrap_or(now));
    params.not_after = after_epoch(end);
}
