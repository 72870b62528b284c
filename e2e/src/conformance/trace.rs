//! The steps of traces, and the tools to make them.

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// One request. `{ns}` in the path stands for the trace's namespace. `$rv:PATH` and `$uid:PATH` in the body or query stand for
/// the `resourceVersion` and UID of the same server's last answer for that path, `$continue` for the last page's token, and
/// `$token` for the last token of a service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The HTTP method, such as `POST`.
    pub method: &'static str,
    /// The path with its query.
    pub path: String,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body, if there is one.
    pub body: Option<Value>,
    /// The `Accept` header.
    pub accept: &'static str,
    /// For a watch, how many events are awaited.
    pub events: usize,
    /// Whether a review is repeated until it allows: a real server applies roles a moment after it has stored them.
    pub until_allowed: bool,
}

/// Media type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// Media type of a JSON patch.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Media type of a server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

impl Step {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            body: None,
            accept: "application/json",
            events: 0,
            until_allowed: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new("POST", path).body(body)
    }

    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        Self::new("PUT", path).body(body)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, body: Value) -> Self {
        let mut step = Self::new("PATCH", path).body(body);
        step.content_type = content_type;
        step
    }

    pub(crate) fn watch(path: impl Into<String>, events: usize) -> Self {
        let mut step = Self::get(path);
        step.events = events;
        step
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn until_allowed(mut self) -> Self {
        self.until_allowed = true;
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }
}

/// The tools of a scene: random numbers, and a stem for names that no other trace uses.
pub(crate) struct Dice {
    random: ChaCha8Rng,
    /// Unique to the trace.
    pub(crate) stem: String,
}

impl Dice {
    /// The tools for the trace of a number.
    pub(crate) fn of(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            stem: format!("t{seed}"),
        }
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        from.choose(&mut self.random).unwrap_or(&from[0])
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }
}
