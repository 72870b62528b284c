//! Certificates of the process: made here or read from files, renewed in time, swapped without a restart.
//!
//! Reading order: `bundle` (the content of a Secret), `plan` (whether to renew), `authority` (make new ones), `server` (serve
//! them), `files` (certificates from another tool).
//!
//! The order in which the caller must use a new bundle, so that no request fails: store the Secret, put [`Bundle::ca_bundle`]
//! (old and new authority) into the webhook configurations, then fill the [`CertSlot`].

mod authority;
mod bundle;
mod files;
mod plan;
mod server;

pub use authority::{Lifetimes, issue, renew, service_names};
pub use bundle::{Bundle, CA_CERT_KEY, CA_KEY_KEY, CAS_MAX, CERT_KEY, KEY_KEY};
pub use files::{FILES_POLL_WAIT, Follower};
pub use plan::{Rotation, plan_rotation};
pub use rustls::ServerConfig;
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
    /// An entry has a wrong value.
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
        /// The TLS library's error.
        #[source]
        source: rustls::Error,
    },
    /// A certificate could not be made.
    #[error("a certificate for {} cannot be made", names.join(", "))]
    Issue {
        /// The names that it was to have.
        names: Vec<String>,
        /// The library's error.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS settings leave no usable suite or curve.
    #[error("the settings under tls in the configuration file cannot be used; loosen {key}")]
    Settings {
        /// The faulty key.
        key: &'static str,
        /// The TLS library's error, if it gave one.
        #[source]
        source: Option<rustls::Error>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
