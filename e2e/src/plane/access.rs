//! Access to a plane: its address, its authority, an administrator's credential.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use super::{CONNECT_TIMEOUT, Error, HARNESS_USER_AGENT};
use crate::kubeconfig::{self, Credential};
use crate::pki::Identity;

/// The administrator's credential.
pub(super) enum Admin {
    Certificate(Identity),
    Token(String),
}

impl Admin {
    fn credential(&self) -> Credential<'_> {
        match self {
            Self::Certificate(identity) => Credential::Certificate(identity),
            Self::Token(token) => Credential::Token(token),
        }
    }
}

pub(super) struct Access {
    pub(super) name: String,
    pub(super) port: u16,
    /// The certificates of all trusted authorities, one after the other.
    pub(super) ca_pem: String,
    pub(super) admin: Admin,
}

// Why by hand: a debug output must not show the credential.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("name", &self.name)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Access {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn server_url(&self) -> String {
        format!("https://{}", self.address())
    }

    pub(super) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub(super) fn kubeconfig_via(&self, server_url: &str) -> String {
        self.kubeconfig_trusting(server_url, &self.ca_pem)
    }

    pub(super) fn kubeconfig_trusting(&self, server_url: &str, ca_pem: &str) -> String {
        kubeconfig::render(&self.name, server_url, ca_pem, &self.admin.credential())
    }

    pub(super) fn kubeconfig_for_token_via(&self, server_url: &str, token: &str) -> String {
        kubeconfig::render(&self.name, server_url, &self.ca_pem, &Credential::Token(token))
    }

    pub(super) fn client_via(&self, server_url: &str) -> Result<kube::Client, Error> {
        let failed = |source| Error::Client {
            plane: self.name.clone(),
            source,
        };
        let url = server_url
            .parse()
            .map_err(|source: http::uri::InvalidUri| failed(source.into()))?;
        let mut config = kube::Config::new(url);
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.ca_pem.as_bytes())
            .map(|der| der.map(|der| der.to_vec()))
            .collect();
        config.root_cert = Some(authorities.map_err(|source| failed(source.into()))?);
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        config.default_retry = false;
        config.headers = vec![(USER_AGENT, HeaderValue::from_static(HARNESS_USER_AGENT))];
        let info = match &self.admin {
            Admin::Certificate(Identity { cert, key }) => json!({
                "client-certificate-data": STANDARD.encode(cert),
                "client-key-data": STANDARD.encode(key),
            }),
            Admin::Token(token) => json!({"token": token}),
        };
        config.auth_info =
            serde_json::from_value::<AuthInfo>(info).map_err(|source| failed(source.into()))?;
        kube::Client::try_from(config).map_err(|source| failed(source.into()))
    }
}
