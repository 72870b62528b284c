//! The health of a cache's connection to its API server.

use roadstead_core::kind::KindState;

/// The connection behind a cache, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not listed yet.
    Starting,
    /// Listed and watching.
    Live,
    /// The last list or watch failed, with the API server's words.
    Failing(String),
    /// The API server does not serve the kind, so no objects of it exist. Only a cache run by [`Cache::run_where_served`] has it.
    NotServed,
}

impl Health {
    /// What is known of the kind: unknown, served or absent.
    pub const fn state(&self) -> KindState {
        match self {
            Self::Live => KindState::Serving,
            Self::NotServed => KindState::NotServed,
            Self::Starting | Self::Failing(_) => KindState::Unknown,
        }
    }

    /// Whether the cache is complete.
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Live | Self::NotServed)
    }
}
