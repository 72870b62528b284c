//! Certificates of the process: made here or read from files, renewed in time, swapped without a restart.
//!
//! Reading order: `bundle` (what a Secret holds), `plan` (whether it is time), `authority` (make new ones),
//! `server` (serve them), `files` (certificates that somebody else makes).
//!
//! The order in which a caller must use a new bundle, so that no request fails: store the Secret, put
//! [`Bundle::ca_bundle`] (old and new authority) into the webhook configurations, then fill the [`CertSlot`].

mod authority;
mod bundle;
mod files;
mod plan;
mod server;

pub use authority::{Lifetimes, issue, renew, service_names};
pub use bundle::{Bundle, CA_CERT_KEY, CA_KEY_KEY, CAS_MAX, CERT_KEY, KEY_KEY};
pub use files::{FILES_POLL_WAIT, Follower};
pub use plan::{Rotation, plan_rotation};
pub use server::{
    CertSlot, cipher_suite_known, cipher_suite_names, curve_known, curve_names, curve_usable, server_config,
    server_config_asking_clients,
};

/// Why a certificate cannot be made, read or served. Never quotes a key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stored data lacks an entry.
    #[error("entry {key} is missing")]
    Missing {
        /// Name of the entry, such as `tls.crt`.
        key: &'static str,
    },
    /// An entry is not what it should be.
    #[error("entry {key} does not hold {wanted}")]
    Malformed {
        /// Name of the entry.
        key: &'static str,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The private key does not belong to the certificate, or its kind is not supported.
    #[error("certificate and private key cannot be used together")]
    Unusable {
        /// The TLS library's complaint.
        #[source]
        source: rustls::Error,
    },
    /// A certificate could not be made.
    #[error("a certificate for {} cannot be made", names.join(", "))]
    Issue {
        /// Names it was to carry.
        names: Vec<String>,
        /// The library's complaint.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS settings leave nothing to use.
    #[error("the settings under tls in the configuration file cannot be used; loosen {key}")]
    Settings {
        /// Key at fault.
        key: &'static str,
        /// The TLS library's complaint, if it made one.
        #[source]
        source: Option<rustls::Error>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The system's complaint.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
