//! The health of a cache's connection to its API server.

use kube::Client;
use kube::discovery::ApiResource;
use roadstead_core::kind::KindState;

use crate::served::{Served, served};
use crate::write;

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

    /// The health of a cache after a failed list or watch. With a `kind`, discovery is asked after 404 and after 403 whether the API
    /// server serves the kind. Why after 403: an API server refuses an account without rights before it looks for the kind, so the refusal
    /// would ask for rights on a kind that is not there.
    pub(super) async fn after(error: &kube::Error, client: &Client, kind: Option<&ApiResource>) -> Self {
        let failing = |error: &kube::Error| Self::Failing(write::describe(error));
        let (Some(kind), kube::Error::Api(status)) = (kind, error) else {
            return failing(error);
        };
        if !matches!(status.code, 403 | 404) {
            return failing(error);
        }
        match served(client, kind).await {
            Ok(Served::No) => Self::NotServed,
            Ok(Served::Yes) => failing(error),
            Ok(Served::Otherwise(versions)) => Self::Failing(format!(
                "{} of group \"{}\" are served in version {} only, and this release speaks version {}: install a release of the kind \
                 that serves it",
                kind.plural,
                kind.group,
                versions.join(", "),
                kind.version
            )),
            Err(_) if status.code == 403 => failing(error),
            Err(error) => failing(&error),
        }
    }
}
