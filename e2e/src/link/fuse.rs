//! One chosen request of all that several links carry: when it comes, something happens, such as the death of who sent it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Request;

/// On which side of the request it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It never gets to the server.
    Before,
    /// It is carried out, and its answer gets lost.
    After,
}

#[derive(Debug)]
enum State {
    Lit,
    /// By this request.
    Burnt(String),
    Out,
}

/// Counts the requests of all links that it was put into, and burns once.
pub struct Fuse {
    call: u32,
    side: Side,
    /// Whether this request counts, by method and path.
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
    /// Does this before or after the `call`-th request from now on, counted from 1 among those that count by their method and
    /// path (`PATCH /apis/…`). It must be quick: the link waits for it.
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

    /// One that never burns.
    pub fn unlit() -> Arc<Self> {
        Self::new(0, Side::Before, |_| false, || {})
    }

    /// Method and path of the request by which it burnt.
    pub fn burnt_by(&self) -> Option<String> {
        match &*self.state() {
            State::Burnt(request) => Some(request.clone()),
            State::Lit | State::Out => None,
        }
    }

    /// From now on it does not burn any more.
    pub fn put_out(&self) {
        let mut state = self.state();
        if matches!(*state, State::Lit) {
            *state = State::Out;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request; gives what it is if it is the chosen one.
    pub(super) fn count<B>(&self, request: &Request<B>) -> Option<String> {
        let request = format!("{} {}", request.method(), request.uri().path());
        if !(self.counts)(&request) {
            return None;
        }
        let number = self.counted.fetch_add(1, Ordering::Relaxed) + 1;
        (number == self.call).then_some(request)
    }

    /// The chosen request has come to this side; gives whether that was all.
    pub(super) fn burns(&self, chosen: Option<&str>, side: Side) -> bool {
        let Some(chosen) = chosen.filter(|_| side == self.side) else {
            return false;
        };
        // Why held: who sees that it has burnt, or has put it out, relies on what was done or was not.
        let mut state = self.state();
        if !matches!(*state, State::Lit) {
            return false;
        }
        (self.act)();
        *state = State::Burnt(chosen.to_owned());
        true
    }
}
