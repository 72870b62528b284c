//! How a cache stands with its API server.

use roadstead_core::kind::KindState;

/// The connection behind a cache, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not listed yet.
    Starting,
    /// Listed and watching.
    Live,
    /// The last list or watch failed, with what the other side said.
    Failing(String),
    /// The API server does not serve the kind, so there are no objects of it. Only of a cache that is run by
    /// [`Cache::run_where_served`].
    NotServed,
}

impl Health {
    /// What is known of the kind.
    pub const fn state(&self) -> KindState {
        match self {
            Self::Live => KindState::Serving,
            Self::NotServed => KindState::NotServed,
            Self::Starting | Self::Failing(_) => KindState::Unknown,
        }
    }

    /// Whether what is cached is all there is.
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Live | Self::NotServed)
    }
}
