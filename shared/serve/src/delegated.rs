//! Authentication and authorization of requests, both by the API server, as every aggregated server does it.
//!
//! A request comes from a user if the API server's front proxy says so: its client certificate is checked against the authorities
//! and names that the cluster publishes. A request with a token that the API server knows comes from the token's user. The rights
//! of the user are checked as well. Answers are kept for a moment ([`KEPT_MAX_AGE`]). There are no anonymous users: without proxy
//! or token, the answer is 401.
//!
//! The caller passes in how to ask the API server ([`Reviews`]), because this crate has no client.

mod kept;
mod peer;
mod proxy;
mod reply;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use kept::Kept;
pub(crate) use peer::{AnyClient, PeerCertificates};
pub use proxy::{Error, FrontProxy};
pub use reply::{Answer, Asked, Reply, answering, health};

/// How long an answer of the API server counts.
pub const KEPT_MAX_AGE: Duration = Duration::from_secs(10);
/// Limit: answers that are kept, of each kind.
pub const KEPT_MAX: usize = 4096;
/// Limit: concurrent reviews by the API server.
pub const REVIEWS_MAX: usize = 32;
/// Limit: time for one review, including the wait for its turn.
pub const REVIEW_WAIT: Duration = Duration::from_secs(10);
/// Limit: length of an accepted bearer token, in bytes; a longer one is unknown.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Group of every authenticated user; the API server's own user for aggregation comes without it.
const AUTHENTICATED: &str = "system:authenticated";

/// A user that the API server has authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The user's name.
    pub user: String,
    /// Unique identifier; empty when there is none.
    pub uid: String,
    /// Groups, without repetition.
    pub groups: BTreeSet<String>,
    /// Further attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(String);

impl Token {
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// The action that a user asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Use of a path that is not a resource.
    Path {
        /// `get`, `post`, ...
        verb: String,
        /// Such as `/metrics`.
        path: String,
    },
    /// Use of a subresource of an object.
    Resource {
        /// `get`, `create`, ...
        verb: String,
        /// API group.
        group: &'static str,
        /// API version.
        version: String,
        /// Plural of the kind.
        resource: &'static str,
        /// Subresource; empty for the object itself.
        subresource: &'static str,
        /// Namespace; `None` for the whole cluster.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
    },
}

impl Question {
    /// The question whether a user may use the path of a request, for requests that name no resource.
    pub fn of_path(method: &Method, uri: &Uri) -> Self {
        Self::Path {
            verb: method.as_str().to_ascii_lowercase(),
            path: uri.path().to_owned(),
        }
    }

    /// The refusal, in the API server's words.
    fn refusal(&self, user: &str) -> String {
        match self {
            Self::Path { verb, path } => format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\""),
            Self::Resource {
                verb,
                group,
                version: _,
                resource,
                subresource,
                namespace,
                name,
            } => {
                let whole = match *subresource {
                    "" => (*resource).to_owned(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let place = match namespace {
                    Some(namespace) => format!("in the namespace \"{namespace}\""),
                    None => "at the cluster scope".to_owned(),
                };
                format!(
                    "{resource}.{group} \"{name}\" is forbidden: User \"{user}\" cannot {verb} resource \"{whole}\" in API \
                     group \"{group}\" {place}"
                )
            }
        }
    }
}

/// The API server's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The user may do it.
    Allowed,
    /// The user may not; the reason may be empty.
    Denied(String),
}

/// The API server could not be asked; why is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the API server could not be asked")]
pub struct NotAsked;

/// A pending answer.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, NotAsked>> + Send>>;

/// Asks for the user of a token; `None` when there is none.
pub type AskWho = Box<dyn Fn(Token) -> Pending<Option<Caller>> + Send + Sync>;
/// Asks whether a user may do something.
pub type AskWhether = Box<dyn Fn(Caller, Question) -> Pending<Verdict> + Send + Sync>;

/// Gives the question for a request.
pub type Wish = fn(&Method, &Uri) -> Question;

/// The reviews by the API server.
pub struct Reviews {
    /// A `TokenReview`.
    pub token: AskWho,
    /// A `SubjectAccessReview`.
    pub access: AskWhether,
}

/// Lets requests through, or answers them with 401, 403 or 503.
pub struct Guard {
    proxy: ArcSwapOption<FrontProxy>,
    reviews: Reviews,
    tokens: Kept<Token, Option<Caller>>,
    verdicts: Kept<(Caller, Question), Verdict>,
    turns: Semaphore,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that trusts no front proxy yet.
    pub fn new(reviews: Reviews) -> Arc<Self> {
        Arc::new(Self {
            proxy: ArcSwapOption::empty(),
            reviews,
            tokens: Kept::default(),
            verdicts: Kept::default(),
            turns: Semaphore::new(REVIEWS_MAX),
        })
    }

    /// Trusts this front proxy from now on; `None` trusts none.
    pub fn trust(&self, proxy: Option<FrontProxy>) {
        self.proxy.store(proxy.map(Arc::new));
    }

    /// Puts the guard before every route of a router. `question` gives the question for a request.
    pub fn protect(self: &Arc<Self>, router: Router, question: Wish) -> Router {
        let state = (self.clone(), question);
        router.layer(from_fn_with_state(state, admit))
    }

    async fn caller(&self, headers: &HeaderMap, peer: Option<&PeerCertificates>) -> Result<Caller, Refusal> {
        let proxied = self
            .proxy
            .load()
            .as_ref()
            .and_then(|proxy| proxy.caller(peer?, headers));
        if let Some(caller) = proxied {
            return Ok(known(caller));
        }
        let Some(token) = bearer(headers) else {
            return Err(Refusal::Unauthorized);
        };
        let found = match self.tokens.get(&token) {
            Some(found) => found,
            None => {
                let found = self.ask(|| (self.reviews.token)(token.clone())).await?;
                self.tokens.put(token, found.clone());
                found
            }
        };
        found.map(known).ok_or(Refusal::Unauthorized)
    }

    async fn allow(&self, caller: Caller, question: Question) -> Result<(), Refusal> {
        let about = (caller, question);
        let verdict = match self.verdicts.get(&about) {
            Some(verdict) => verdict,
            None => {
                let verdict = self
                    .ask(|| (self.reviews.access)(about.0.clone(), about.1.clone()))
                    .await?;
                self.verdicts.put(about.clone(), verdict.clone());
                verdict
            }
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Denied(reason) => {
                let mut message = about.1.refusal(&about.0.user);
                if !reason.is_empty() {
                    message.push_str(": ");
                    message.push_str(&reason);
                }
                Err(Refusal::Forbidden(message))
            }
        }
    }

    async fn ask<T>(&self, ask: impl FnOnce() -> Pending<T>) -> Result<T, Refusal> {
        let asked = async {
            let _turn = self.turns.acquire().await.map_err(|_closed| NotAsked)?;
            ask().await
        };
        match timeout(REVIEW_WAIT, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(NotAsked)) | Err(_) => Err(Refusal::Unavailable),
        }
    }
}

/// Why a request is refused.
#[derive(Debug)]
enum Refusal {
    /// The user is unknown.
    Unauthorized,
    /// The user is known, but lacks the right; holds the message.
    Forbidden(String),
    /// The API server could not be asked.
    Unavailable,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let refuse = |code, reason, message: &str| Reply::failure(code, reason, message).into_response();
        match self {
            Self::Unauthorized => refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            Self::Forbidden(message) => refuse(StatusCode::FORBIDDEN, "Forbidden", &message),
            Self::Unavailable => {
                let message = "the API server could not be asked for your name and rights; try again";
                refuse(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
            }
        }
    }
}

/// The middleware of [`Guard::protect`].
async fn admit(
    State((guard, question)): State<(Arc<Guard>, Wish)>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let admitted = async {
        let peer = parts.extensions.get::<PeerCertificates>();
        let caller = guard.caller(&parts.headers, peer).await?;
        guard.allow(caller, question(&parts.method, &parts.uri)).await
    };
    match admitted.await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn known(mut caller: Caller) -> Caller {
    caller.groups.insert(AUTHENTICATED.to_owned());
    caller
}

fn bearer(headers: &HeaderMap) -> Option<Token> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    let good = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES_MAX;
    good.then(|| Token(token.to_owned()))
}

#[cfg(test)]
mod tests;
