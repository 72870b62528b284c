//! The network between one process and one API server, with all its faults.
//!
//! Invariant: each wire rolls dice of its own, so that trouble on one does not change the dice of another.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_apiserver::{Server, User};
use roadstead_kubeio::connect::ANSWER_TIMEOUT;
use serde_json::Value;
use tokio::sync::Notify;
use tower::{BoxError, Service, ServiceBuilder};

use super::clock::TrueTime;
use super::fault::{Fault, Right, Way};
use super::kind::{self, JobKind};
use super::process::Life;
use super::trace::Trace;

/// The longest time of one way without trouble.
const HOP_MICROS_MAX: u64 = 3_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Lost {
    /// Before or after the request arrived: the client cannot know.
    #[error("connection reset by peer")]
    Reset,
}

type Answer = Response<UnsyncBoxBody<Bytes, Lost>>;

pub(super) struct Wire {
    /// The process and the cluster, for the trace.
    name: String,
    server: Server,
    time: TrueTime,
    trace: Arc<Mutex<Trace>>,
    state: Mutex<State>,
    /// Notified when the faults change. Why no `watch`: tokio wakes its waiters in a random order.
    changed: Notify,
}

struct State {
    dice: ChaCha8Rng,
    /// How often all open connections broke.
    breaks: u64,
    /// How many times each kind was removed from the server.
    removals: BTreeMap<JobKind, u64>,
    troubles: BTreeMap<usize, Fault>,
    /// By fault: the paused server that answers reads that accept old data.
    paused: BTreeMap<usize, Server>,
    /// The number of events since events began to get lost.
    events: u64,
}

/// Two counters when a watch was opened. If one of them has changed, the watch ends.
#[derive(Clone, Copy, Debug)]
struct Opened {
    breaks: u64,
    /// `None` unless the watch is for a kind of jobs.
    removals: Option<(JobKind, u64)>,
}

/// The faults that one request meets.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    out: Duration,
    back: Duration,
    refuse: Option<u16>,
    lose_request: Option<Manner>,
    lose_answer: Option<Manner>,
    twice: bool,
}

/// What the client sees of a lost request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Reset,
    Silence,
}

impl State {
    fn cuts(&self, requests: bool) -> bool {
        self.troubles.values().any(|fault| {
            if let Fault::Cut { way, .. } = fault {
                match way {
                    Way::Both => true,
                    Way::Requests => requests,
                    Way::Answers => !requests,
                }
            } else {
                matches!(fault, Fault::ServerDown { .. })
            }
        })
    }

    fn silences(&self) -> bool {
        let silent = |fault: &Fault| matches!(fault, Fault::Silence { .. });
        self.troubles.values().any(silent) || self.cuts(false)
    }

    /// How far watches lag behind; `None` if they do not.
    fn lag(&self) -> Option<Duration> {
        let lags = self.troubles.values().filter_map(|fault| {
            if let Fault::Stale { lag_secs, .. } = fault {
                Some(Duration::from_secs(*lag_secs))
            } else {
                None
            }
        });
        lags.max()
    }

    /// Watches leave out one event in this many; `None` if they leave out none.
    fn loses_events(&self) -> Option<u64> {
        let losses = self.troubles.values().filter_map(|fault| {
            if let Fault::LoseEvents { every, .. } = fault {
                Some(*every)
            } else {
                None
            }
        });
        losses.min()
    }

    /// Counts an event; returns whether it is left out.
    fn loses_next(&mut self) -> bool {
        let Some(every) = self.loses_events() else {
            return false;
        };
        self.events += 1;
        self.events.is_multiple_of(every.max(1))
    }

    /// Whether nothing is at this path because its kind is not served: neither objects nor the group in discovery.
    fn lacks(&self, path: &str) -> bool {
        let of = JobKind::at(path);
        let is_away = |fault: &Fault| matches!(fault, Fault::NoKind { kind, .. } if of == Some(*kind));
        self.troubles.values().any(is_away)
    }

    fn removals_of(&self, kind: JobKind) -> u64 {
        self.removals.get(&kind).copied().unwrap_or_default()
    }

    fn opened(&self, path: &str) -> Opened {
        Opened {
            breaks: self.breaks,
            removals: JobKind::at(path).map(|kind| (kind, self.removals_of(kind))),
        }
    }

    fn is_broken(&self, opened: Opened) -> bool {
        let goes = |(kind, removals)| self.removals_of(kind) != removals;
        self.breaks != opened.breaks || opened.removals.is_some_and(goes)
    }

    /// The status code for a request whose account has no right to it.
    fn denies(&self, method: &Method, path: &str) -> Option<u16> {
        let about = |plural: &str| path.split('/').any(|part| part == plural);
        self.troubles.values().find_map(|fault| {
            let Fault::Deny { right, .. } = fault else {
                return None;
            };
            let denied = match right {
                Right::Anything => return Some(401),
                Right::Changes => method != Method::GET,
                Right::Leases => about("leases"),
                Right::Jobs => JobKind::ALL.into_iter().any(|kind| about(kind.plural())),
                Right::Workloads => about("workloads"),
            };
            denied.then_some(403)
        })
    }

    fn hop(&mut self) -> Duration {
        let mut micros = self.dice.random_range(0..=HOP_MICROS_MAX);
        for fault in self.troubles.values() {
            if let Fault::Delay { most_ms, .. } = fault {
                micros += self.dice.random_range(0..=most_ms * 1_000);
            }
        }
        Duration::from_micros(micros)
    }

    fn fate(&mut self) -> Fate {
        let mut fate = Fate {
            out: self.hop(),
            back: self.hop(),
            ..Fate::default()
        };
        for fault in self.troubles.values() {
            let mut hit = |permille: u32| self.dice.random_ratio(permille.min(1_000), 1_000);
            if let Fault::LoseRequests { permille, .. } = *fault
                && hit(permille)
            {
                fate.lose_request = Some(manner(&mut self.dice));
            } else if let Fault::LoseAnswers { permille, .. } = *fault
                && hit(permille)
            {
                fate.lose_answer = Some(manner(&mut self.dice));
            } else if let Fault::Duplicate { permille, .. } = *fault {
                fate.twice |= hit(permille);
            } else if let Fault::Refuse { permille, code, .. } = *fault
                && hit(permille)
            {
                fate.refuse = Some(code);
            }
        }
        fate
    }
}

fn manner(dice: &mut ChaCha8Rng) -> Manner {
    if dice.random_ratio(2, 3) {
        Manner::Reset
    } else {
        Manner::Silence
    }
}

impl Wire {
    pub(super) fn new(
        name: String,
        server: Server,
        time: TrueTime,
        trace: Arc<Mutex<Trace>>,
        seed: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            server,
            time,
            trace,
            state: Mutex::new(State {
                dice: ChaCha8Rng::seed_from_u64(seed),
                breaks: 0,
                removals: BTreeMap::new(),
                troubles: BTreeMap::new(),
                paused: BTreeMap::new(),
                events: 0,
            }),
            changed: Notify::new(),
        })
    }

    /// A client over this wire for a living process, with the deadline of the product's own clients.
    pub(super) fn client(self: &Arc<Self>, life: &Life, user: &str) -> Client {
        let via = Via {
            wire: self.clone(),
            life: life.clone(),
            user: User::new(user, &["system:masters"]),
        };
        let service = ServiceBuilder::new()
            .map_err(BoxError::from)
            .timeout(ANSWER_TIMEOUT)
            .service(via);
        Client::new(service, "default")
    }

    pub(super) fn begin(&self, number: usize, fault: Fault) {
        let mut state = self.lock();
        state.troubles.insert(number, fault);
        if matches!(fault, Fault::Stale { .. }) {
            state.paused.insert(number, self.server.snapshot().paused());
        }
        if matches!(fault, Fault::DropWatches { .. } | Fault::ServerDown { .. }) {
            state.breaks += 1;
        }
        if matches!(fault, Fault::LoseEvents { .. }) {
            state.events = 0;
        }
        if let Fault::NoKind { kind, .. } = fault {
            *state.removals.entry(kind).or_default() += 1;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn end(&self, number: usize) {
        let mut state = self.lock();
        state.troubles.remove(&number);
        state.paused.remove(&number);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Breaks all open connections: the server was restarted.
    pub(super) fn break_off(&self) {
        self.lock().breaks += 1;
        self.changed.notify_waiters();
    }

    /// The server that answers: a paused one if there is one and the request accepts old data (`resourceVersion=0`).
    fn answers(&self, parts: &http::request::Parts) -> Server {
        let query = parts.uri.query().unwrap_or_default();
        let may_be_old =
            parts.method == Method::GET && query.split('&').any(|one| one == "resourceVersion=0");
        let state = self.lock();
        let paused = state.paused.values().next().filter(|_| may_be_old);
        paused.unwrap_or(&self.server).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.add(self.time.elapsed(), format_args!("{} {what}", self.name));
    }

    fn is_full(&self) -> bool {
        self.trace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_full()
    }

    /// Waits until `over` holds for the troubles.
    async fn until(&self, over: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if over(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    async fn carry(self: Arc<Self>, life: Life, user: User, request: Request<Body>) -> Result<Answer, Lost> {
        let (parts, body) = request.into_parts();
        let mut body = body.collect_bytes().await.map_err(|_broken| Lost::Reset)?;
        let (method, target) = (parts.method.clone(), parts.uri.clone());
        if method == Method::POST && target.path().ends_with("/pods") {
            body = kind::admitted(&body).unwrap_or(body);
        }
        let name = target.path_and_query().map_or("", |target| target.as_str());
        let watches = method == Method::GET && target.query().is_some_and(|query| query.contains("watch="));
        // Why read the counters here: a connection that breaks while the request is under way must end the watch too.
        let (fate, opened) = {
            let mut state = self.lock();
            (state.fate(), state.opened(target.path()))
        };
        // Why: a process that loops without a pause would keep the paused time from advancing, so the run would never end.
        if self.is_full() {
            return pending().await;
        }
        if life.counts_down_before() {
            self.note(format_args!("{method} {name} dies before"));
            return pending().await;
        }
        tokio::time::sleep(fate.out).await;
        if let Some(code) = fate.refuse {
            self.note(format_args!("{method} {name} refused {code}"));
            tokio::time::sleep(fate.back).await;
            return Ok(refusal(code));
        }
        let denied = self.lock().denies(&method, target.path());
        if let Some(code) = denied {
            self.note(format_args!("{method} {name} denied {code}"));
            tokio::time::sleep(fate.back).await;
            return Ok(refusal(code));
        }
        if self.lock().cuts(true) {
            self.note(format_args!("{method} {name} cut off"));
            return pending().await;
        }
        if let Some(manner) = fate.lose_request {
            self.note(format_args!("{method} {name} lost {manner:?}"));
            return lost(manner).await;
        }
        if self.lock().lacks(target.path()) {
            self.note(format_args!("{method} {name} not served"));
            tokio::time::sleep(fate.back).await;
            return Ok(refusal(404));
        }
        let make = || Request::from_parts(parts.clone(), body.clone());
        let server = if watches {
            self.server.clone()
        } else {
            self.answers(&parts)
        };
        let mut answer = server.handle(make(), user.clone()).await;
        if fate.twice && !watches {
            answer = server.handle(make(), user).await;
        }
        let (code, version) = (answer.status().as_u16(), self.server.version());
        self.note(format_args!("{method} {name} {code} at {version}"));
        if life.counts_down_after() {
            self.note(format_args!("{method} {name} dies after"));
            return pending().await;
        }
        if let Some(manner) = fate.lose_answer {
            self.note(format_args!("{method} {name} unanswered {manner:?}"));
            return lost(manner).await;
        }
        tokio::time::sleep(fate.back).await;
        if self.lock().cuts(false) {
            return pending().await;
        }
        Ok(if watches {
            answer.map(|body| self.events(life, opened, body))
        } else {
            answer.map(|body| body.map_err(|never| match never {}).boxed_unsync())
        })
    }

    /// The events of a watch on their way back.
    fn events(
        self: Arc<Self>,
        life: Life,
        opened: Opened,
        body: roadstead_apiserver::Body,
    ) -> UnsyncBoxBody<Bytes, Lost> {
        let frames = stream::unfold(Some(body), move |open| {
            let (wire, life) = (self.clone(), life.clone());
            async move {
                let mut body = open?;
                let broken = |state: &State| state.is_broken(opened);
                let came = tokio::select! {
                    biased;
                    () = wire.until(broken) => None,
                    frame = body.frame() => Some(frame),
                };
                let hop = wire.lock().hop();
                tokio::time::sleep(hop).await;
                let lag = wire.lock().lag();
                if let Some(lag) = lag {
                    // Why in steps: the watch catches up at each multiple of the lag. A pause for each event would add up without limit.
                    let past = wire.time.elapsed().as_secs() % lag.as_secs().max(1);
                    tokio::select! {
                        biased;
                        () = wire.until(|state| broken(state) || state.lag().is_none()) => {}
                        () = tokio::time::sleep(lag.saturating_sub(Duration::from_secs(past))) => {}
                    }
                }
                wire.until(|state| broken(state) || !state.silences()).await;
                if life.is_over() {
                    return pending().await;
                }
                let intact = !broken(&wire.lock());
                match came.filter(|_| intact) {
                    Some(Some(frame)) => {
                        let frame = frame.map_err(|never| match never {});
                        let frame = frame.map(|frame| frame.map_data(|data| wire.leave_out(data)));
                        Some((frame, Some(body)))
                    }
                    Some(None) => None,
                    None => Some((Err(Lost::Reset), None)),
                }
            }
        });
        // Why: a frame whose events were all left out must not reach the client.
        let frames = frames.filter(|frame| {
            let data = frame.as_ref().ok().and_then(|frame| frame.data_ref());
            std::future::ready(data.is_none_or(|data| !data.is_empty()))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// The events of a frame without those that get lost.
    ///
    /// Limit: a frame holds whole lines, as the server in memory writes them.
    fn leave_out(&self, data: Bytes) -> Bytes {
        if self.lock().loses_events().is_none() {
            return data;
        }
        let mut left = Vec::with_capacity(data.len());
        for line in data.split_inclusive(|byte| *byte == b'\n') {
            match told(line) {
                Some(what) if self.lock().loses_next() => {
                    self.note(format_args!("event left out: {what}"));
                }
                Some(_) | None => left.extend_from_slice(line),
            }
        }
        left.into()
    }
}

/// The object of an event, in words; `None` for a bookmark or an error, which no watch leaves out.
fn told(line: &[u8]) -> Option<String> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let kind = event["type"].as_str()?;
    if !["ADDED", "MODIFIED", "DELETED"].contains(&kind) {
        return None;
    }
    let (object, meta) = (&event["object"], &event["object"]["metadata"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = [&meta["namespace"], &meta["name"]].map(text).join("/");
    let (of, version) = (text(&object["kind"]), text(&meta["resourceVersion"]));
    Some(format!("{kind} {of} {name} at {version}"))
}

async fn lost(manner: Manner) -> Result<Answer, Lost> {
    match manner {
        Manner::Reset => Err(Lost::Reset),
        Manner::Silence => pending().await,
    }
}

/// The answer of a server that is overloaded.
fn refusal(code: u16) -> Answer {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let said = match code {
        401 => "Unauthorized",
        403 => "the simulated account has no right to do that",
        404 => "the server could not find the requested resource",
        _ => "the simulated server has no time",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": said, "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// One process's end of a wire.
#[derive(Clone)]
struct Via {
    wire: Arc<Wire>,
    life: Life,
    user: User,
}

impl Service<Request<Body>> for Via {
    type Response = Answer;
    type Error = Lost;
    type Future = BoxFuture<'static, Result<Answer, Lost>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { wire, life, user } = self.clone();
        Box::pin(async move {
            if life.is_over() {
                return pending().await;
            }
            let carried = wire.carry(life.clone(), user, request).await;
            // Why: a dead process gets no answer.
            if life.is_over() { pending().await } else { carried }
        })
    }
}

#[cfg(test)]
mod tests;
