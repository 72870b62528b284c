//! The certificates and keys of one control plane. They are made at each start, kept in memory and in the plane's private
//! directory, and removed with it.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// The first address of the service network, under which pods know the API server.
const SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The service network of every plane; nothing routes it.
pub(crate) const SERVICE_NETWORK: &str = "10.96.0.0/16";
/// The group whose members may do everything.
const ADMINS: &str = "system:masters";

/// Why the certificates of a plane could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate library refused.
    #[error("making the certificate of {subject}")]
    Make {
        /// The subject of the certificate.
        subject: String,
        /// The library's reason.
        #[source]
        source: rcgen::Error,
    },
    /// A file could not be written.
    #[error("writing {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// The certificate authority of one plane.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(plane: &str) -> Result<Self, Error> {
        let subject = format!("roadstead-{plane}-ca");
        let make = || {
            let mut params = named(&subject, None)?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)
        };
        let issuer = make().map_err(|source| Error::Make { subject, source })?;
        Ok(Self { issuer })
    }

    /// The certificate of a kube-apiserver on loopback.
    pub(crate) fn apiserver(&self) -> Result<Identity, Error> {
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        self.server("kube-apiserver", &names, &[Ipv4Addr::LOCALHOST, SERVICE_IP])
    }

    /// The authority's own certificate, PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The certificate of the webhooks of a Service.
    pub(crate) fn webhook(&self, service: &str, namespace: &str) -> Result<Identity, Error> {
        self.server("webhook", &[&format!("{service}.{namespace}.svc")], &[])
    }

    /// The certificate of a client with all rights, named `user` in the audit log.
    pub(crate) fn admin(&self, user: &str) -> Result<Identity, Error> {
        self.client(user, Some(ADMINS))
    }

    fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        self.sign(user, || {
            let mut params = named(user, group)?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            Ok(params)
        })
    }

    fn server(&self, name: &str, names: &[&str], addresses: &[Ipv4Addr]) -> Result<Identity, Error> {
        self.sign(name, || {
            let mut params = named(name, None)?;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            for dns in names {
                params
                    .subject_alt_names
                    .push(SanType::DnsName((*dns).try_into()?));
            }
            for ip in addresses {
                params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(*ip)));
            }
            Ok(params)
        })
    }

    fn sign(
        &self,
        subject: &str,
        params: impl FnOnce() -> Result<CertificateParams, rcgen::Error>,
    ) -> Result<Identity, Error> {
        let make = || {
            let mut params = params()?;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            let key = KeyPair::generate()?;
            let cert = params.signed_by(&key, &self.issuer)?;
            Ok(Identity {
                cert: cert.pem(),
                key: key.serialize_pem(),
            })
        };
        make().map_err(|source| Error::Make {
            subject: subject.to_owned(),
            source,
        })
    }
}

fn named(name: &str, organization: Option<&str>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    Ok(params)
}

/// The files that the processes of a plane read.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) ca: PathBuf,
    pub(crate) server_cert: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) token_key: PathBuf,
    pub(crate) token_public_key: PathBuf,
    /// Authority of the front proxy. Why not the users' authority: every user could then act as the proxy.
    pub(crate) proxy_ca: PathBuf,
    pub(crate) proxy_cert: PathBuf,
    pub(crate) proxy_key: PathBuf,
}

/// The name under which the API server passes requests on.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Makes the service accounts' key pair, and writes it and the server's certificate below `dir`, which only this user may enter.
pub(crate) fn write(authority: &Authority, server: &Identity, dir: &Path) -> Result<Files, Error> {
    let proxies = Authority::new("front-proxy")?;
    let proxy = proxies.client(FRONT_PROXY, None)?;
    let token = KeyPair::generate().map_err(|source| Error::Make {
        subject: "service account tokens".to_owned(),
        source,
    })?;
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text)
            .map(|()| path.clone())
            .map_err(|source| Error::Write { path, source })
    };
    Ok(Files {
        ca: put("ca.crt", &authority.pem())?,
        server_cert: put("apiserver.crt", &server.cert)?,
        server_key: put("apiserver.key", &server.key)?,
        token_key: put("tokens.key", &token.serialize_pem())?,
        token_public_key: put("tokens.pub", &token.public_key_pem())?,
        proxy_ca: put("front-proxy-ca.crt", &proxies.pem())?,
        proxy_cert: put("front-proxy.crt", &proxy.cert)?,
        proxy_key: put("front-proxy.key", &proxy.key)?,
    })
}
