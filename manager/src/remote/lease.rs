//! The lease of this manager on each of its workers: claimed before anything is done there, renewed as long as the worker is
//! connected.
//!
//! The lease tells the worker that its manager lives. It tells another manager of the same origin that the objects on the worker
//! are not its own. [`roadstead_core::lease`] decides what follows.
//!
//! All replicas of a manager share one identity here. That is safe because only the leader renews, under the permit of its
//! process. The next leader need not wait: it reads the lease, treats it as sent in that moment, and continues from its number
//! and version. After its first renewal, no write of its predecessor that is still under way can be stored.
//!
//! Invariant: each renewal carries the version of the one before it and a number one higher, and is noted as sent before it is
//! sent. Where our account may not keep a lease there is none, and the worker is treated like one that does not watch leases.
//!
//! *Source*: `spec/safety.md 3.2, 3.4, 3.8`.

pub(crate) mod report;
pub(crate) mod rights;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::cluster::link::Event;
use roadstead_core::lease::{Closing, Grant, Tenure, Terms, next_renewal};
use roadstead_core::name::ClusterName;
use roadstead_engine::clock::{Clock, Uptime};
use roadstead_kubeconfigs::account::rights::{
    IDENTITY, MANAGED_BY, MANAGED_BY_LABEL, ORIGIN_LABEL, lease_name,
};
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write::{self, Written};
use serde_json::{Value, json};

use super::Remote;

/// How long one request about a lease may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often one renewal is tried if the stored lease has a newer version.
const TRIES: u32 = 4;
/// Longest pause before a forbidden renewal is tried again.
const FORBIDDEN_PAUSE: Duration = Duration::from_mins(1);
/// How often the own cluster's identity is read at the start.
const IDENTITY_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Lessor {
    pub(crate) origin: Arc<str>,
    pub(crate) namespace: String,
    pub(crate) terms: Terms,
    pub(crate) namespaces: Arc<Cache<Namespace>>,
    /// The monotonic clock, by which leases lapse.
    pub(crate) uptime: Uptime,
    /// Why the last renewal failed, by worker.
    pub(crate) troubles: Troubles<ClusterName>,
    /// The wall clock, for texts.
    pub(crate) clock: Clock,
}

/// How one renewal ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Kept,
    /// It is unknown whether the renewal is stored.
    Unclear(String),
    /// Our account may not keep a lease on the worker, or the worker lacks the namespace or the API for it.
    Forbidden(String),
    /// Another manager keeps it; the sentence for the user.
    Taken(String),
}

impl Lessor {
    /// A grant for a worker to which this process has sent nothing, with what an earlier process has recorded of it.
    pub(crate) fn grant(&self, cluster: Option<&MultiKueueCluster>) -> Grant {
        let grant = Grant::new(self.uptime.now(), self.terms);
        if cluster.is_some_and(|cluster| report::is_fence_recorded(cluster, self.terms)) {
            grant.with_record()
        } else {
            grant
        }
    }

    /// From when on nothing of ours runs on a worker that does not answer, and how long it is until then.
    pub(crate) fn closing(&self, remote: &Remote, drain: Duration) -> (Closing, Duration) {
        let closing = remote.link(|link| link.grant().closing(drain));
        let left = match closing {
            Closing::At(at) | Closing::Recorded(at) => at.since(self.uptime.now()),
            Closing::Never => Duration::ZERO,
        };
        (closing, left)
    }

    /// Whether our lease on a worker is kept.
    pub(crate) fn tenure(&self, remote: &Remote) -> Tenure {
        remote.link(|link| link.grant().tenure(self.uptime.now()))
    }

    /// The name of this manager at its workers: the UID of a namespace that lives as long as its cluster. Waits until it is known.
    pub(super) async fn identity(&self) -> String {
        loop {
            let found = self
                .namespaces
                .named(IDENTITY)
                .and_then(|one| one.metadata.uid.clone());
            if let Some(uid) = found {
                return uid;
            }
            tokio::time::sleep(IDENTITY_PAUSE).await;
        }
    }

    /// Renews once. `lease` is the stored lease after the previous renewal; if it is `None`, the stored lease is read first.
    pub(crate) async fn renew(&self, client: &Client, remote: &Remote, lease: &mut Option<Lease>) -> Renewed {
        let identity = self.identity().await;
        let mut last = String::new();
        for _ in 0..TRIES {
            let stored = match lease.take() {
                Some(stored) => Some(stored),
                None => match self.read(client, remote).await {
                    Ok(stored) => stored,
                    Err(why) => return why,
                },
            };
            if let Some(sentence) = { stored.as_ref() }.and_then(|stored| self.taken(stored, &identity)) {
                return Renewed::Taken(sentence);
            }
            remote.step(Event::LeaseSent(self.uptime.now(), self.terms));
            match self.send(client, stored.as_ref(), &identity).await {
                Written::Done(now) => {
                    self.note(remote, &now);
                    remote.step(Event::LeaseRenewed(self.uptime.now()));
                    *lease = Some(*now);
                    self.troubles.ends(&remote.name);
                    return Renewed::Kept;
                }
                Written::Conflict | Written::AlreadyExists => {
                    "others changed it meanwhile".clone_into(&mut last);
                }
                // Why not a refusal: only the lease that was known is gone, and the next try creates it again.
                Written::Gone if stored.is_some() => "it was deleted meanwhile".clone_into(&mut last),
                Written::Gone => {
                    let why = format!(
                        "there is no namespace \"{}\" there, or no API for leases",
                        self.namespace
                    );
                    return Renewed::Forbidden(why);
                }
                Written::Refused(why) => return Renewed::Forbidden(why),
                Written::Unclear(why) => return Renewed::Unclear(why),
            }
        }
        Renewed::Unclear(last)
    }

    /// The stored lease on the worker, of any manager.
    ///
    /// *Errors*: it cannot be read: `Forbidden`, or `Unclear`.
    async fn stored(&self, client: &Client) -> Result<Option<Lease>, Renewed> {
        let (api, name) = (self.leases(client), lease_name(&self.origin));
        match tokio::time::timeout(ANSWER_MAX, api.get_opt(&name)).await {
            Ok(Ok(stored)) => Ok(stored),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404) => {
                Err(Renewed::Forbidden(status.message.clone()))
            }
            Ok(Err(error)) => Err(Renewed::Unclear(write::describe(&error))),
            Err(_elapsed) => Err(Renewed::Unclear("no answer".to_owned())),
        }
    }

    async fn read(&self, client: &Client, remote: &Remote) -> Result<Option<Lease>, Renewed> {
        let stored = self.stored(client).await?;
        if let Some(stored) = &stored {
            // Why as if sent at this moment: a predecessor of this process may still be ending.
            remote.step(Event::LeaseSent(self.uptime.now(), terms(stored)));
            self.note(remote, stored);
        } else {
            remote.step(Event::LeaseMissing);
        }
        Ok(stored)
    }

    async fn send(&self, client: &Client, stored: Option<&Lease>, identity: &str) -> Written<Lease> {
        let api = self.leases(client);
        let body = |number, version| self.body(identity, number, version);
        let work = async {
            let Some(stored) = stored else {
                return match serde_json::from_value(body(1, None)) {
                    Ok(lease) => write::create(&api, &lease).await,
                    Err(error) => Written::Refused(error.to_string()),
                };
            };
            let number = next_renewal(number(stored));
            let version = stored.metadata.resource_version.as_deref();
            write::patch(&api, &stored.name_any(), &body(number, version)).await
        };
        let answer = tokio::time::timeout(ANSWER_MAX, work).await;
        answer.unwrap_or_else(|_elapsed| Written::Unclear("no answer".to_owned()))
    }

    fn body(&self, identity: &str, number: u64, version: Option<&str>) -> Value {
        let mut body = json!({
            "metadata": {
                "name": lease_name(&self.origin),
                "labels": {
                    labels::MULTIKUEUE_ORIGIN: &*self.origin,
                    MANAGED_BY_LABEL: MANAGED_BY,
                    ORIGIN_LABEL: &*self.origin,
                },
                "annotations": {
                    annotations::LEASE_RENEWAL: number.to_string(),
                },
            },
            "spec": {
                "holderIdentity": identity,
                "leaseDurationSeconds": self.terms.length().as_secs(),
                "renewTime": MicroTime((self.clock)()),
            },
        });
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        body
    }

    fn leases(&self, client: &Client) -> Api<Lease> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// The sentence for the user if another manager holds the lease. Why an old lease is not taken over: the objects of the other
    /// manager carry our origin, and all of them would be removed as orphans.
    fn taken(&self, stored: &Lease, identity: &str) -> Option<String> {
        let holder = stored.spec.as_ref()?.holder_identity.as_deref()?;
        (holder != identity && !holder.is_empty()).then(|| {
            format!(
                "another manager ({holder}) uses this worker with the same origin \"{}\" (in brackets: the UID of its namespace \
                 kube-system); give each manager its own multiKueue.origin; if that manager is gone for good, run on the worker: \
                 kubectl -n {} delete lease {}",
                self.origin,
                self.namespace,
                stored.name_any()
            )
        })
    }

    fn note(&self, remote: &Remote, stored: &Lease) {
        let mark = stored.annotations().get(annotations::LEASE_WATCHED);
        remote.step(Event::LeaseSeen {
            number: number(stored),
            mark: mark.map(String::as_str),
            now: self.uptime.now(),
        });
    }

    /// Renews until another manager keeps the lease; returns the sentence for the user.
    pub(crate) async fn keep(&self, client: &Client, remote: &Remote, mut lease: Option<Lease>) -> String {
        loop {
            let pause = match self.renew(client, remote, &mut lease).await {
                Renewed::Kept => self.terms.beat(),
                Renewed::Unclear(why) => {
                    // Why no warning: most failures are short. If the lease lapses, that is logged with this text.
                    tracing::debug!(cluster = %remote.name, "renewing the lease: {why}");
                    let _ = self.troubles.is_news(remote.name.clone(), &why);
                    self.terms.beat()
                }
                Renewed::Forbidden(why) => {
                    remote.step(Event::LeaseRefused);
                    if self.troubles.is_news(remote.name.clone(), &why) {
                        tracing::warn!(
                            cluster = %remote.name,
                            "cannot write this manager's Lease on this worker: {why}; a worker that had the Lease stops jobs of \
                             policy Fence; a worker that never had it does not, so this manager waits for it when it is lost; another \
                             manager with the same origin stays unnoticed; tried again until it succeeds; {}",
                            report::remedy(&self.namespace)
                        );
                    }
                    FORBIDDEN_PAUSE.min(self.terms.starts_for() / 4)
                }
                Renewed::Taken(sentence) => return sentence,
            };
            tokio::time::sleep(pause).await;
        }
    }
}

fn terms(lease: &Lease) -> Terms {
    let secs = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    // Why the duration is limited as a worker limits it: no worker relies on a longer one, whichever manager wrote it.
    Terms::written(secs.and_then(|secs| u64::try_from(secs).ok()).unwrap_or_default())
}

fn number(lease: &Lease) -> u64 {
    let text = lease.annotations().get(annotations::LEASE_RENEWAL);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
