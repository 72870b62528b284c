//! What is known of a kind of jobs in a cluster.

/// Whether a cluster serves a kind. Belongs to one kind on one cluster: nothing follows from it for others.
///
/// Invariant: only [`Self::NotServed`] counts as empty. While it is [`Self::Unknown`], no job of the kind is taken for gone.
/// *Source*: `spec/safety.md` F26.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KindState {
    /// Its jobs are listed and watched.
    #[default]
    Serving,
    /// The API server has said that it does not serve the kind, so there are no jobs of it.
    NotServed,
    /// Nothing is known: there was no answer yet, or none from which anything follows.
    Unknown,
}
