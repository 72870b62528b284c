//! Where a cluster's API server is: the part of a cluster's stored identity that tells one address or authority from another.
//!
//! *Source*: `spec/safety.md` 3.8.

use roadstead_kubeio::connect::Endpoint;
use sha1::{Digest as _, Sha1};

/// An API server: its address, and the certificate authority that proves its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address, as in a kubeconfig.
    pub server: String,
    /// The certificate authority, PEM.
    pub authority: String,
}

impl Place {
    /// The place of an endpoint, whatever its credential.
    pub fn of(endpoint: &Endpoint) -> Self {
        Self {
            server: endpoint.server.clone(),
            authority: endpoint.authority.clone(),
        }
    }

    /// A short hash that differs for each place. The manager stores it, and `roadstead cluster move` compares it.
    pub fn print(&self) -> String {
        let both = [self.server.as_str(), self.authority.as_str()].join("\n");
        format!("{:x}", Sha1::digest(both))
    }
}
