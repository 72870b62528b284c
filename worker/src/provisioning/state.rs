//! Condition `Active` of our `AdmissionChecks`, and whether this cluster serves the kinds that they need.
//!
//! Invariant: the condition is computed from caches and their health alone, so it can be computed again at every change.

use std::future::Future;
use std::pin::Pin;

use roadstead_api::kueue::v1beta2::AdmissionCheck;
use roadstead_core::check;
use roadstead_core::cluster::Active;
use roadstead_core::condition::Truth;
use roadstead_engine::active::Reporter;
use roadstead_kubeio::cache::Health;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::latest::Follower;
use tokio_util::sync::CancellationToken;

use super::{Provisioning, is_ours};

/// Reason of a check that cannot work because the API server does not serve a kind that it needs.
const API_UNAVAILABLE: &str = "APIUnavailable";

/// Whether the kinds that the check reads are available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Not everything has been listed.
    NotYet,
    /// Everything has been listed, and nothing shows that a kind is not served any more.
    Yes,
    /// A kind cannot be read: which, why, and what to do about it.
    No(String),
}

/// The health of one cache, over time.
struct Watched {
    kind: &'static str,
    remedy: &'static str,
    health: Follower<Health>,
    listed: bool,
}

impl Watched {
    fn look(&mut self) -> Served {
        let health = self.health.see();
        match health {
            Health::Live => {
                self.listed = true;
                Served::Yes
            }
            Health::Starting | Health::NotServed => Served::NotYet,
            // Why: a listed kind is still known while its connection is opened again.
            Health::Failing(why) if self.listed && !is_unknown_api(&why) => Served::Yes,
            Health::Failing(why) => {
                let Self { kind, remedy, .. } = self;
                let remedy = if is_unknown_api(&why) {
                    remedy
                } else {
                    "check the connection and the rights of the worker"
                };
                Served::No(format!(
                    "{kind} cannot be read ({why}): {remedy}; the check becomes active by itself"
                ))
            }
        }
    }
}

/// Whether this is the API server's text for a kind that it does not serve.
fn is_unknown_api(why: &str) -> bool {
    why == "404 page not found" || why.contains("could not find the requested resource")
}

/// The first missing kind; else whether all are available.
fn all(watched: &mut [Watched]) -> Served {
    let looks: Vec<Served> = watched.iter_mut().map(Watched::look).collect();
    let missing = looks.iter().find(|look| matches!(look, Served::No(_)));
    let waiting = looks.iter().find(|look| **look == Served::NotYet);
    missing.or(waiting).cloned().unwrap_or(Served::Yes)
}

/// Keeps condition `Active` of our checks up to date until `stop`.
pub(super) async fn run(p: Provisioning, stop: CancellationToken) {
    let watched = |kind, remedy, health| Watched {
        kind,
        remedy,
        health,
        listed: false,
    };
    let mut watched = [
        watched(
            "ProvisioningRequest.autoscaling.x-k8s.io/v1",
            "install its CustomResourceDefinition, which comes with cluster-autoscaler",
            p.requests.health(),
        ),
        watched(
            "ProvisioningRequestConfig.kueue.x-k8s.io/v1beta2",
            "install the CustomResourceDefinitions that come with Roadstead",
            p.configs.health(),
        ),
        watched(
            "PodTemplate",
            "every Kubernetes serves it: check the address of the API server",
            p.templates.health(),
        ),
    ];
    let reporter = Reporter::new(p.client.clone(), p.clock.clone(), &p.caches.checks, &p.touched);
    loop {
        let served = all(&mut watched);
        let news = p.served.modify(|old| {
            let differs = *old != served;
            old.clone_from(&served);
            differs
        });
        if news {
            if let Served::No(why) = &served {
                tracing::warn!("ProvisioningRequest checks cannot be used: {why}");
            }
            p.wake(|_| true);
        }
        if served != Served::NotYet {
            for check in p.caches.checks.all() {
                if is_ours(&check) {
                    reporter.report(&check, &condition(&p, &check, &served)).await;
                }
            }
        }
        let mut changes: Vec<Pin<Box<dyn Future<Output = _> + Send + '_>>> = Vec::new();
        for one in &mut watched {
            changes.push(Box::pin(one.health.changed()));
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = p.touched.take() => {}
            _ = futures::future::select_all(changes) => {}
        }
    }
}

pub(super) fn condition(p: &Provisioning, check: &AdmissionCheck, served: &Served) -> Active {
    match served {
        Served::No(why) => Active {
            truth: Truth::False,
            reason: API_UNAVAILABLE,
            message: why.clone().into(),
        },
        Served::Yes | Served::NotYet => {
            let config = p.config(check);
            check::provisioning(config.as_ref().map(|_| ()).map_err(Failure::text))
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_kubeio::cache::Health;
    use roadstead_kubeio::latest::Latest;

    use super::{Served, Watched, all};

    fn failing(why: &str) -> Health {
        Health::Failing(why.to_owned())
    }

    /// Spec: provisioning 1, 15.1; safety F26.
    #[test]
    fn a_kind_that_is_not_served_is_told_from_a_connection_that_is_being_opened_again() {
        let sender = Latest::new(Health::Starting);
        let other = Latest::new(Health::Live);
        let watched = |kind, sender: &Latest<Health>| Watched {
            kind,
            remedy: "install it",
            health: sender.follow(),
            listed: false,
        };
        let mut both = [watched("Other", &other), watched("Thing", &sender)];
        assert_eq!(all(&mut both), Served::NotYet);
        sender.set(failing("404 page not found"));
        let text =
            "Thing cannot be read (404 page not found): install it; the check becomes active by itself";
        assert_eq!(all(&mut both), Served::No(text.to_owned()));
        sender.set(failing("things is forbidden"));
        let Served::No(text) = all(&mut both) else {
            panic!("a kind that may not be read is not there")
        };
        assert!(text.contains("forbidden") && text.contains("rights"), "{text}");
        sender.set(Health::Live);
        assert_eq!(all(&mut both), Served::Yes);
        sender.set(failing("connection refused"));
        assert_eq!(all(&mut both), Served::Yes, "what was listed is still known");
        sender.set(failing("404 page not found"));
        assert!(
            matches!(all(&mut both), Served::No(_)),
            "the definition was removed"
        );
    }
}
