//! The server: its state, and the routing of requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tokio::sync::Notify;

use crate::caller::{Caller, Nobody};
use crate::clock::Clock;
use crate::failure::Failure;
use crate::kinds::Registry;
use crate::list::List;
use crate::request::{Call, Path, User};
use crate::store::{Change, Key, Store};
use crate::stored::Stored;
use crate::tokens::Tokens;
use crate::{bootstrap, builtin, clock, json};

mod asked;
mod fork;
mod snapshot;

pub use asked::Asked;
pub use snapshot::{RESTORER, Snapshot};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Changes that are remembered for watches and old pages unless said otherwise.
const HISTORY_MAX: usize = 20_000;

/// How requests are authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    /// Every user may do everything.
    AllowAll,
    /// Roles and their bindings decide; `system:masters` may do everything.
    Rbac,
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The source of time.
    pub clock: Clock,
    /// The seed of all random values: UIDs, generated names, tokens.
    pub seed: u64,
    /// How requests are authorized.
    pub authorization: Authorization,
    /// Changes that are kept; a watch that starts before them gets 410.
    pub history_max: usize,
    /// How webhooks are called.
    pub caller: Arc<dyn Caller>,
}

impl Options {
    /// A server with roles, an ordinary history and webhooks that cannot be called.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            seed,
            authorization: Authorization::Rbac,
            history_max: HISTORY_MAX,
            caller: Arc::new(Nobody),
        }
    }
}

/// An API server in memory. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

struct Inner {
    state: Mutex<State>,
    /// By resource: wakes the watches when an object changed. Why one per resource: an idle watch costs nothing. Why no `watch`
    /// channel: tokio wakes its waiters in a random order, and runs must be repeatable.
    bells: Mutex<BTreeMap<Arc<str>, Arc<Notify>>>,
    asked: OnceLock<asked::Observer>,
    options: Options,
}

/// Everything that a request may change.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) tokens: Tokens,
    random: ChaCha8Rng,
    /// The [`Store::bonds`] at which a pass found nothing to collect and nothing that waits for a time.
    pub(crate) collected: Option<u64>,
}

/// Letters of generated names. No vowels, so that they form no words.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

impl State {
    /// Stores the objects that every new cluster has.
    fn fill(&mut self, now: jiff::Timestamp) {
        let now = clock::seconds(now);
        for (resource, mut object) in bootstrap::objects() {
            let name = json::text(&object, &["metadata", "name"]).to_owned();
            json::set(&mut object, &["metadata", "uid"], self.uid());
            json::set(&mut object, &["metadata", "creationTimestamp"], now.as_str());
            let key = Key {
                resource: resource.into(),
                namespace: String::new(),
                name,
            };
            self.store.put(key, object, "system:apiserver");
        }
    }

    /// A random UID (version 4).
    pub(crate) fn uid(&mut self) -> String {
        let mut bytes: [u8; 16] = self.random.random();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let hex = hex.concat();
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// The random end of a generated name.
    pub(crate) fn suffix(&mut self) -> String {
        (0..SUFFIX_LENGTH)
            .map(|_| char::from(NAME_LETTERS[self.random.random_range(0..NAME_LETTERS.len())]))
            .collect()
    }

    /// Random bytes for a token.
    pub(crate) fn secret(&mut self) -> [u8; 32] {
        self.random.random()
    }

    pub(crate) fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.store.get(&Key {
            resource: resource.into(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

pub(crate) enum Answer {
    Json(StatusCode, Value),
    /// An object just as it is stored.
    Stored(StatusCode, Arc<Stored>),
    /// Objects just as they are stored.
    List(List),
    Typed(&'static str, Value),
    /// Bytes of a media type of their own.
    Bytes(&'static str, Bytes),
    Text(StatusCode, String),
    Stream(Body),
}

impl Server {
    /// A server with the namespaces, roles and priority classes that every cluster has.
    pub fn new(options: Options) -> Self {
        let mut state = State {
            store: Store::new(options.history_max),
            registry: Registry::new(),
            tokens: Tokens::default(),
            random: ChaCha8Rng::seed_from_u64(options.seed),
            collected: None,
        };
        state.fill(options.clock.now());
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            bells: Mutex::default(),
            asked: OnceLock::new(),
            options,
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.0.options.clock.now()
    }

    /// Notified when an object of this resource changes.
    pub(crate) fn bell(&self, resource: &Arc<str>) -> Arc<Notify> {
        let mut bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.entry(Arc::clone(resource)).or_default().clone()
    }

    /// Wakes the watches of resources that changed.
    pub(crate) fn publish(&self) {
        let touched = self.state().store.take_touched();
        let bells = self.0.bells.lock().unwrap_or_else(PoisonError::into_inner);
        for bell in touched.iter().filter_map(|resource| bells.get(resource)) {
            bell.notify_waiters();
        }
    }

    /// Writes an object and lets the registry take note of definitions.
    pub(crate) fn commit(&self, state: &mut State, key: Key, object: Value, user: &str) -> Arc<Stored> {
        let defines = &*key.resource == crate::DEFINITIONS;
        let name = key.name.clone();
        let stored = state.store.put(key.clone(), object, user);
        if defines {
            let mut next = Value::clone(&stored);
            let taken = |word: &str| {
                !word.is_empty()
                    && state.registry.all().any(|kind| {
                        let own = format!("{}.{}", kind.plural, kind.group) == name;
                        !own && format!(".{}", kind.group) == name[name.find('.').unwrap_or(0)..]
                            && [&kind.plural, &kind.kind, &kind.list_kind, &kind.singular]
                                .contains(&&word.to_owned())
                    })
            };
            let deleting = !next["metadata"]["deletionTimestamp"].is_null();
            if !deleting && builtin::accept_definition(&mut next, self.now(), &taken) {
                state.store.put(key, next.clone(), user);
            }
            let version = state.store.version();
            state.registry.define(&name, Some(&next), version);
        }
        stored
    }

    /// Removes an object for good.
    pub(crate) fn erase(state: &mut State, key: &Key, user: &str) -> Option<Arc<Stored>> {
        let last = state.store.delete(key, user)?;
        if &*key.resource == crate::DEFINITIONS {
            let version = state.store.version();
            state.registry.define(&key.name, None, version);
        }
        Some(last)
    }

    /// Calls `observer` for every change from now on, in the order of versions: writes of objects and their status,
    /// deletions, garbage collection. It is called while the store is locked, so it must be quick and must not call the
    /// server. A write that changes nothing is no change.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.state().store.observe(Box::new(observer));
    }

    /// Forgets the history, so that every older version answers 410.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.state().store.version()
    }

    /// Answers one request of a user who has been recognized.
    pub async fn handle(&self, request: Request<Bytes>, user: User) -> Response<Body> {
        let mut warnings = Vec::new();
        let answer = self.route(&request, user, &mut warnings).await;
        self.publish();
        let response = render(answer, &warnings);
        self.tell(&request, response.status());
        response
    }

    async fn route(
        &self,
        request: &Request<Bytes>,
        user: User,
        warnings: &mut Vec<String>,
    ) -> Result<Answer, Failure> {
        let path = request.uri().path();
        let user = self.acting_as(request, user)?;
        let Some(target) = Path::parse(path) else {
            return self.page(request, &user);
        };
        let method = request.method();
        let known = self
            .state()
            .registry
            .find(&target.group, &target.version, &target.plural)
            .cloned();
        self.authorize(&user, || verb(method, &target, request), &target)?;
        if let Some(answer) = self.review(request, &target, &user, warnings)? {
            return Ok(answer);
        }
        let Some(kind) = known else {
            let serves = self.state().registry.serves(&target.group, &target.version);
            let reviews = ["authentication.k8s.io", "authorization.k8s.io"].contains(&target.group.as_str());
            if self.is_registered(&target) {
                return Err(Failure::not_forwarded(&target.group, &target.version));
            }
            if let Some(what) = unbuilt(&target) {
                return Err(Failure::not_implemented(what));
            }
            return Err(if serves || reviews {
                Failure::no_such_resource()
            } else {
                Failure::no_such_page()
            });
        };
        let in_namespace = !target.namespace.is_empty();
        if in_namespace != kind.is_namespaced() && (in_namespace || !target.name.is_empty()) {
            return Err(Failure::no_such_resource());
        }
        if let Some(warning) = &kind.deprecation {
            warnings.push(warning.clone());
        }
        let call = Call::of(request, target, kind, user);
        self.dispatch(&call, warnings).await
    }

    /// Whether an `APIService` names another process for this group and version.
    fn is_registered(&self, target: &Path) -> bool {
        let name = format!("{}.{}", target.version, target.group);
        let resource = format!("apiservices.{}", crate::kinds::REGISTRATION);
        self.state().find(&resource, "", &name).is_some()
    }

    async fn dispatch(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        let Call {
            kind, path, method, ..
        } = call;
        let (named, below) = (!path.name.is_empty(), path.subresource.as_str());
        match below {
            "" => {}
            "status" if kind.status => {}
            "scale" if kind.scale.is_some() => return self.scale(call, warnings).await,
            "finalize" if kind.plural == "namespaces" => return self.finalize(call),
            "token" if kind.plural == "serviceaccounts" => return self.mint_token(call),
            "binding" if kind.plural == "pods" && *method == Method::POST => return self.bind(call),
            "log"
            | "exec"
            | "attach"
            | "portforward"
            | "proxy"
            | "eviction"
            | "ephemeralcontainers"
            | "resize"
            | "approval" => return Err(Failure::not_implemented(&format!("the subresource {below}"))),
            _ => return Err(Failure::no_such_resource()),
        }
        match (method, named) {
            (&Method::GET | &Method::HEAD, true) if !call.query.flag("watch") => self.get(call).await,
            (&Method::GET | &Method::HEAD, false) => {
                if call.query.flag("watch") {
                    self.watch(call)
                } else {
                    self.list(call).await
                }
            }
            (&Method::POST, false) if !kind.is_namespaced() || !path.namespace.is_empty() => {
                self.create(call, warnings).await
            }
            (&Method::PUT, true) => self.update(call, warnings).await,
            (&Method::PATCH, true) => self.patch(call, warnings).await,
            (&Method::DELETE, true) if below.is_empty() => self.delete(call, warnings).await,
            (&Method::DELETE, false)
                if kind.plural != "namespaces" && (!kind.is_namespaced() || !path.namespace.is_empty()) =>
            {
                self.delete_collection(call, warnings).await
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }
}

/// The name of a feature that a real server has and this one does not, for the 501 answer.
fn unbuilt(target: &Path) -> Option<&'static str> {
    match target.group.as_str() {
        "apps" => Some("the group apps"),
        "autoscaling" => Some("the group autoscaling"),
        "networking.k8s.io" => Some("the group networking.k8s.io"),
        "policy" => Some("the group policy"),
        "storage.k8s.io" => Some("the group storage.k8s.io"),
        "certificates.k8s.io" => Some("the group certificates.k8s.io"),
        "resource.k8s.io" => Some("the group resource.k8s.io"),
        "discovery.k8s.io" => Some("the group discovery.k8s.io"),
        "flowcontrol.apiserver.k8s.io" => Some("the group flowcontrol.apiserver.k8s.io"),
        "batch" if target.plural == "cronjobs" => Some("the resource cronjobs"),
        "" => match target.plural.as_str() {
            "persistentvolumes" | "persistentvolumeclaims" => Some("storage in the core group"),
            "replicationcontrollers" => Some("the resource replicationcontrollers"),
            "resourcequotas" => Some("the resource resourcequotas"),
            "endpoints" => Some("the resource endpoints"),
            "componentstatuses" => Some("the resource componentstatuses"),
            _ => None,
        },
        _ => None,
    }
}

/// The verb of a request, as authorization calls it.
fn verb(method: &Method, path: &Path, request: &Request<Bytes>) -> &'static str {
    let watch = crate::request::Query::parse(request.uri().query()).flag("watch");
    let named = !path.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

fn full(bytes: impl Into<Bytes>) -> Body {
    http_body_util::Full::new(bytes.into()).boxed_unsync()
}

const WARNINGS_MAX: usize = 20;

pub(crate) fn render(answer: Result<Answer, Failure>, warnings: &[String]) -> Response<Body> {
    let json = "application/json";
    let (code, kind, body) = match answer {
        Ok(Answer::Json(code, value)) => (code, json, full(json::bytes(&value))),
        Ok(Answer::Stored(code, value)) => (code, json, full(value.text())),
        Ok(Answer::List(list)) => (StatusCode::OK, json, full(json::bytes(&list))),
        Ok(Answer::Typed(kind, value)) => (StatusCode::OK, kind, full(json::bytes(&value))),
        Ok(Answer::Bytes(kind, bytes)) => (StatusCode::OK, kind, full(bytes)),
        Ok(Answer::Text(code, text)) => (code, "text/plain; charset=utf-8", full(text)),
        Ok(Answer::Stream(body)) => (StatusCode::OK, json, body),
        Err(failure) => match failure.plain() {
            Some(text) => (failure.code(), "text/plain; charset=utf-8", full(text.to_owned())),
            None => (failure.code(), json, full(failure.status().to_string())),
        },
    };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-cache, private"),
    );
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

#[cfg(test)]
pub(crate) mod tests;
