//! Observation of requests, as for an audit log.

use bytes::Bytes;
use http::{Request, StatusCode, header};

use super::{Server, verb};
use crate::request::Path;

/// Called for every request.
pub(super) type Observer = Box<dyn Fn(&Asked) + Send + Sync>;

/// One request that was answered, as [`Server::observe_requests`] tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The client's `User-Agent`, empty if it sent none.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, ... as authorization calls it; the HTTP method in lower case for what is no resource.
    pub verb: String,
    /// The resource's plural; the path for requests that are not for a resource.
    pub resource: String,
    /// `status`, `token`, ...; empty if none.
    pub subresource: String,
    /// The HTTP status.
    pub code: u16,
}

impl Server {
    /// Calls `observer` for every request when it is answered, and for a watch when it begins. Requests with an unknown
    /// credential are left out. Only the first observer counts; a second one is never called.
    pub fn observe_requests(&self, observer: impl Fn(&Asked) + Send + Sync + 'static) {
        // Why ignored: it fails only if there is an observer already.
        let _ = self.0.asked.set(Box::new(observer));
    }

    pub(super) fn tell(&self, request: &Request<Bytes>, code: StatusCode) {
        let Some(observer) = self.0.asked.get() else {
            return;
        };
        let path = Path::parse(request.uri().path());
        let verb = path.as_ref().map_or_else(
            || request.method().as_str().to_ascii_lowercase(),
            |path| verb(request.method(), path, request).to_owned(),
        );
        let agent = request.headers().get(header::USER_AGENT);
        let (resource, subresource) = path.map_or_else(
            || (request.uri().path().to_owned(), String::new()),
            |path| (path.plural, path.subresource),
        );
        observer(&Asked {
            user_agent: agent
                .and_then(|agent| agent.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            verb,
            resource,
            subresource,
            code: code.as_u16(),
        });
    }
}
