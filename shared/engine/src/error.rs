//! Why the engine does not start.

/// Why the engine could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Two webhooks have the same path.
    #[error("putting the webhooks together")]
    Webhooks {
        /// The path.
        #[source]
        source: roadstead_serve::webhook::Error,
    },
    /// The TLS settings of the configuration file leave nothing to use.
    #[error("setting up TLS")]
    Tls {
        /// What is wrong with the settings.
        #[source]
        source: roadstead_serve::tls::Error,
    },
    /// A port cannot be opened.
    #[error("opening a port")]
    Listen {
        /// The system's error.
        #[source]
        source: roadstead_serve::listen::Error,
    },
}
