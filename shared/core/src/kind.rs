//! Whether a cluster serves a kind of jobs.

/// Whether a cluster serves a kind. It holds for one kind on one cluster: nothing follows for others.
///
/// Invariant: only [`Self::NotServed`] counts as empty. While it is [`Self::Unknown`], no job of the kind counts as deleted. *Source*:
/// `spec/safety.md` F26.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KindState {
    /// Its jobs are listed and watched.
    #[default]
    Serving,
    /// The API server has answered that it does not serve the kind, so there are no jobs of it.
    NotServed,
    /// Nothing is known: the API server has not answered yet, or not clearly.
    Unknown,
}
