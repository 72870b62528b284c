//! Liveness and readiness probes.
//!
//! Readiness is a set of named conditions. A condition starts out not ready, so a part that never reports keeps the
//! process out of service instead of being forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use roadstead_api::config::Health;

/// All readiness conditions of the process. Clones share the same conditions.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<BTreeMap<&'static str, State>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Ready,
    NotReady(String),
}

/// Reports one condition of a [`Readiness`].
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Condition {
    /// The part works.
    pub fn ready(&self) {
        self.readiness.lock().insert(self.name, State::Ready);
    }

    /// The part does not work, or not any more, for this reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.readiness
            .lock()
            .insert(self.name, State::NotReady(reason.into()));
    }
}

impl Readiness {
    /// Adds a condition, which is not ready until it reports. A second call with the same name shares the condition.
    pub fn condition(&self, name: &'static str) -> Condition {
        self.lock()
            .entry(name)
            .or_insert_with(|| State::NotReady("not started".into()));
        Condition {
            name,
            readiness: self.clone(),
        }
    }

    /// The conditions that are not ready, as `name: reason`, in order of name; empty when ready.
    pub fn missing(&self) -> Vec<String> {
        let missing = |(name, state): (&&'static str, &State)| match state {
            State::Ready => None,
            State::NotReady(reason) => Some(format!("{name}: {reason}")),
        };
        self.lock().iter().filter_map(missing).collect()
    }

    /// Whether every condition is ready.
    pub fn is_ready(&self) -> bool {
        self.missing().is_empty()
    }

    /// A router with both probes at the paths of the configuration. Liveness is 200 as long as the process answers;
    /// readiness is 200 when nothing is missing, else 503 with one line per missing condition.
    pub fn router(&self, health: &Health) -> Router {
        let readiness = self.clone();
        let ready = get(move || async move {
            match readiness.missing() {
                missing if missing.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
                missing => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("not ready\n{}\n", missing.join("\n")),
                ),
            }
        });
        // Why: the loader has refused paths that a route cannot have, and two equal ones.
        Router::new()
            .route(&format!("/{}", health.readiness_endpoint), ready)
            .route(
                &format!("/{}", health.liveness_endpoint),
                get(|| async { "ok\n" }),
            )
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        // Why: every change is one insert, so a panic elsewhere cannot leave the map half changed.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::config::Config;
    use tower::ServiceExt;

    use super::*;

    async fn probe(readiness: &Readiness, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let router = readiness.router(&Config::without_file("own").health);
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 12).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_only_when_every_condition_is() {
        let readiness = Readiness::default();
        let caches = readiness.condition("caches");
        let webhooks = readiness.condition("webhooks");
        webhooks.not_ready("no certificate yet");
        let (status, body) = probe(&readiness, "/readyz").await;
        assert_eq!(
            (status, body.as_str()),
            (
                503,
                "not ready\ncaches: not started\nwebhooks: no certificate yet\n"
            )
        );
        assert_eq!(probe(&readiness, "/healthz").await.0, 200);
        caches.ready();
        assert!(!readiness.is_ready());
        webhooks.ready();
        assert_eq!(probe(&readiness, "/readyz").await, (200, "ok\n".into()));
        caches.not_ready("watch of Workloads broke");
        assert_eq!(probe(&readiness, "/readyz").await.0, 503);
    }

    #[test]
    fn asking_for_a_condition_again_does_not_reset_it() {
        let readiness = Readiness::default();
        readiness.condition("caches").ready();
        let _again = readiness.condition("caches");
        assert!(readiness.is_ready());
    }
}
