//! A trigger on one chosen request of all that several links carry, for example to kill the process that sent it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::ACCEPT;
use http::{Method, Request};

use super::events;

/// Whether the fuse acts before or after the request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The request does not reach the server.
    Before,
    /// The request is carried out, and its answer is lost.
    After,
}

#[derive(Debug)]
enum State {
    Lit,
    /// The fuse has acted on this request (verb and path).
    Burnt(String),
    Out,
}

/// Counts the requests of all links that contain it, and acts once.
pub struct Fuse {
    call: u32,
    side: Side,
    /// Whether a request counts, by its verb and path.
    counts: Box<dyn Fn(&str) -> bool + Send + Sync>,
    counted: AtomicU32,
    state: Mutex<State>,
    act: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuse")
            .field("call", &self.call)
            .field("side", &self.side)
            .field("state", &*self.state())
            .finish_non_exhaustive()
    }
}

impl Fuse {
    /// Calls `act` before or after the `call`-th request from now on, counted from 1 among those for which `counts` is true. `counts`
    /// gets the verb and path (`PATCH /apis/…`); for reads the verb is `LIST`, `OUTLINES` (a list of names and versions), `WATCH`
    /// (from a known version) or `GET`. `act` must be quick: the link waits for it.
    pub fn new(
        call: u32,
        side: Side,
        counts: impl Fn(&str) -> bool + Send + Sync + 'static,
        act: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            call,
            side,
            counts: Box::new(counts),
            counted: AtomicU32::new(0),
            state: Mutex::new(State::Lit),
            act: Box::new(act),
        })
    }

    /// A fuse that never burns.
    pub fn unlit() -> Arc<Self> {
        Self::new(0, Side::Before, |_| false, || {})
    }

    /// Verb and path of the request that burnt it.
    pub fn burnt_by(&self) -> Option<String> {
        match &*self.state() {
            State::Burnt(request) => Some(request.clone()),
            State::Lit | State::Out => None,
        }
    }

    /// Disarms the fuse: it never acts after this.
    pub fn put_out(&self) {
        let mut state = self.state();
        if matches!(*state, State::Lit) {
            *state = State::Out;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request. Returns its verb and path if it is the chosen one.
    pub(super) fn count<B>(&self, request: &Request<B>) -> Option<String> {
        let request = format!("{} {}", verb_of(request), request.uri().path());
        if !(self.counts)(&request) {
            return None;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed) + 1;
        (number == self.call).then_some(request)
    }

    /// Acts if the chosen request has come to the fuse's side. Returns whether it acted.
    pub(super) fn burns(&self, chosen: Option<&str>, side: Side) -> bool {
        let Some(chosen) = chosen.filter(|_| side == self.side) else {
            return false;
        };
        // Why the lock is held: after `burnt_by` or `put_out` a test relies on the action being complete or not done.
        let mut state = self.state();
        if !matches!(*state, State::Lit) {
            return false;
        }
        (self.act)();
        *state = State::Burnt(chosen.to_owned());
        true
    }
}

/// The verb of a request.
fn verb_of<B>(request: &Request<B>) -> &str {
    if request.method() != Method::GET {
        return request.method().as_str();
    }
    if events::is_asked_for(request) {
        let query = request.uri().query().unwrap_or_default();
        let version = { query.split('&') }.find_map(|pair| pair.strip_prefix("resourceVersion="));
        // Why: a watch without a version starts with all objects, like a list.
        let goes_on = version.is_some_and(|version| !["", "0"].contains(&version));
        return if goes_on { "WATCH" } else { "LIST" };
    }
    if !is_of_many(request.uri().path()) {
        return "GET";
    }
    let accepted = request
        .headers()
        .get(ACCEPT)
        .and_then(|accepted| accepted.to_str().ok());
    match accepted {
        Some(accepted) if accepted.contains("as=PartialObjectMetadataList") => "OUTLINES",
        Some(_) | None => "LIST",
    }
}

/// Whether a path is that of all objects of a kind, or of all in a namespace.
fn is_of_many(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (["api", _, resource @ ..] | ["apis", _, _, resource @ ..]) = parts.as_slice() else {
        return false;
    };
    matches!(resource, [_] | ["namespaces", _, _])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(uri: &str, accepted: &str) -> String {
        let request = Request::get(uri).header(ACCEPT, accepted).body(()).unwrap();
        verb_of(&request).to_owned()
    }

    #[test]
    fn it_is_told_what_a_request_asks_for() {
        let jobs = "/apis/batch/v1/jobs";
        let outlines = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(asks(&format!("{jobs}?limit=500"), "application/json"), "LIST");
        assert_eq!(
            asks("/apis/batch/v1/namespaces/a/jobs", "application/json"),
            "LIST"
        );
        assert_eq!(asks(jobs, outlines), "OUTLINES");
        let watch = format!("{jobs}?watch=true&resourceVersion=");
        assert_eq!(asks(&format!("{watch}17"), "application/json"), "WATCH");
        assert_eq!(asks(&format!("{watch}0"), "application/json"), "LIST");
        for one in [
            "/apis/batch/v1/namespaces/a/jobs/b",
            "/api/v1/namespaces/a",
            "/version",
        ] {
            assert_eq!(asks(one, "application/json"), "GET");
        }
        let delete = Request::delete(jobs).body(()).unwrap();
        assert_eq!(verb_of(&delete), "DELETE");
    }
}
