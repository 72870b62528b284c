//! Why the engine does not start.

/// Why the engine could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Two webhooks for one path.
    #[error("putting the webhooks together")]
    Webhooks {
        /// Which.
        #[source]
        source: roadstead_serve::webhook::Error,
    },
    /// The TLS settings of the configuration file leave nothing to use.
    #[error("setting up TLS")]
    Tls {
        /// What is wrong with them.
        #[source]
        source: roadstead_serve::tls::Error,
    },
    /// Settings that contradict each other.
    #[error("configuration key {key}: {why}")]
    Settings {
        /// Where it stands.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// A port cannot be had.
    #[error("opening a port")]
    Listen {
        /// What the system says.
        #[source]
        source: roadstead_serve::listen::Error,
    },
}
