//! A replica's part in the election: one Lease on its own API server, claimed, renewed and given back.
//!
//! Invariant: each write carries the version that was read. The permit is extended only by an answer that the write is stored,
//! counted from when the write was sent. No request here is under the permit itself.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client};
use roadstead_api::config::Config;
use roadstead_core::leader::{Election, Loss, Replica, Step, Stored, Terms};
use roadstead_core::lease::Moment;
use roadstead_kubeio::permit::Permit;
use roadstead_kubeio::trouble::Trouble;
use roadstead_kubeio::write::{self, Written};
use roadstead_serve::health::Condition;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::Leadership;
use crate::clock::Clock;

/// How long the first attempt may delay the start.
const FIRST_MAX: Duration = Duration::from_secs(2);
/// How long giving the Lease back may delay the end.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// Requests to give the Lease back: a second one in case another client has written the Lease meanwhile.
const RELEASE_TRIES: u32 = 2;
/// Duration of a released Lease, in seconds: the smallest that the API allows. *Source*: as the reference's.
const RELEASED_SECS: u64 = 1;

/// Why this process must end.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another replica holds the Lease.
    #[error(
        "this replica leads no more: Lease {lease} is held by \"{holder}\"; this process exits, and its Deployment must start it again"
    )]
    Taken {
        /// Namespace and name.
        lease: String,
        /// The holder's identity; empty for none.
        holder: String,
    },
    /// The Lease was deleted after its time was over, so another replica may have held it meanwhile.
    #[error(
        "this replica leads no more: Lease {lease} was deleted when its time was over; this process exits, and its Deployment must start it again"
    )]
    Deleted {
        /// Namespace and name.
        lease: String,
    },
}

pub(crate) struct Candidate {
    api: Api<Lease>,
    lease: String,
    name: String,
    election: Election,
    started: Instant,
    /// The Lease as last read or written.
    stored: Option<Lease>,
    clock: Clock,
    permit: Permit,
    leadership: Leadership,
    ready: Condition,
    /// Whether the Lease was ever read or written.
    known: bool,
    trouble: Trouble,
}

impl Candidate {
    /// Takes part as `replica`, with a client that is under no permit.
    pub(crate) fn new(
        client: Client,
        config: &Config,
        replica: Replica,
        clock: Clock,
        (permit, leadership, ready): (Permit, Leadership, Condition),
    ) -> Self {
        let settings = &config.leader_election;
        let length = |span| Duration::try_from(span).unwrap_or_default();
        let terms = Terms {
            lease: length(settings.lease_duration),
            renew_deadline: length(settings.renew_deadline),
            retry: length(settings.retry_period),
        };
        let namespace = settings.resource_namespace.as_ref().unwrap_or(&config.namespace);
        let name = settings.resource_name.clone();
        Self {
            api: Api::namespaced(client, namespace),
            lease: format!("{namespace}/{name}"),
            name,
            election: Election::new(replica, terms),
            started: Instant::now(),
            stored: None,
            clock,
            permit,
            leadership,
            ready,
            known: false,
            trouble: Trouble::default(),
        }
    }

    /// Tries until this replica leads or must wait, for at most [`FIRST_MAX`]. *Why* before anything else starts: a replica that
    /// leads from the start lists everything afterwards, and need not list it again.
    pub(crate) async fn try_at_once(&mut self) {
        let work = async {
            while !self.leadership.leads() {
                match self.election.next(self.now()) {
                    Step::Pause(_) | Step::Lost(_) => return,
                    step @ (Step::Look | Step::Create | Step::Claim | Step::Renew) => self.take(&step).await,
                }
            }
        };
        if timeout(FIRST_MAX, work).await.is_err() {
            self.election.failed(self.now());
        }
        if !self.leadership.leads() {
            tracing::info!(
                lease = self.lease,
                replica = self.election.replica().name(),
                "another replica leads, or the Lease cannot be read; waiting"
            );
        }
    }

    /// Takes part until this replica has lost the leadership, which may never happen.
    pub(crate) async fn run(&mut self) -> Lost {
        loop {
            match self.election.next(self.now()) {
                Step::Pause(until) => sleep_until(self.at(until)).await,
                Step::Lost(loss) => {
                    self.permit.end();
                    return self.lost(loss);
                }
                step @ (Step::Look | Step::Create | Step::Claim | Step::Renew) => self.take(&step).await,
            }
        }
    }

    fn lost(&self, loss: Loss) -> Lost {
        let lease = self.lease.clone();
        match loss {
            Loss::Deleted => Lost::Deleted { lease },
            Loss::Taken(holder) => Lost::Taken { lease, holder },
        }
    }

    /// Gives the Lease back if this replica holds it, so that another replica can take it at once. This process sends no
    /// changes after that.
    pub(crate) async fn release(&mut self) {
        self.permit.end();
        let work = async {
            for _ in 0..RELEASE_TRIES {
                let name = self.election.replica().name();
                // Why read when the known Lease is not ours: a claim may have been under way when the election was cancelled.
                let ours = self.stored.take().filter(|stored| holder(stored) == name);
                let found = match ours {
                    Some(stored) => Some(stored),
                    None => self.api.get_opt(&self.name).await.ok().flatten(),
                };
                let Some(stored) = found.filter(|stored| holder(stored) == name) else {
                    return;
                };
                let now = MicroTime((self.clock)());
                let spec = json!({
                    "holderIdentity": "",
                    "leaseDurationSeconds": RELEASED_SECS,
                    "acquireTime": now,
                    "renewTime": now,
                });
                if let Written::Done(_) = self.patch(&stored, spec).await {
                    tracing::info!(lease = self.lease, "gave the Lease back");
                    return;
                }
            }
        };
        // Why the result is ignored: without a release, another replica takes over when the Lease expires.
        let _ = timeout(RELEASE_MAX, work).await;
    }

    fn now(&self) -> Moment {
        Moment::after_start(self.started.elapsed())
    }

    fn at(&self, moment: Moment) -> Instant {
        self.started + moment.since(Moment::default())
    }

    async fn take(&mut self, step: &Step) {
        if *step == Step::Look {
            return self.look().await;
        }
        let sent = self.now();
        let patience = self.election.terms().request_max();
        let answer = match &self.stored {
            Some(stored) if *step != Step::Create => {
                let spec = self.spec(Some(stored));
                timeout(patience, self.patch(stored, spec)).await
            }
            Some(_) | None => timeout(patience, self.create()).await,
        };
        let answer = answer.unwrap_or_else(|_elapsed| Written::Unclear("no answer".to_owned()));
        match answer {
            Written::Done(lease) => {
                self.election.kept(sent, stored(&lease));
                self.stored = Some(*lease);
                self.lead();
            }
            Written::Gone if *step == Step::Create => self.fail("there is no such namespace"),
            Written::Gone | Written::Conflict | Written::AlreadyExists => {
                self.stored = None;
                self.election.conflicted(self.now());
            }
            Written::Refused(why) | Written::Unclear(why) => self.fail(&why),
        }
    }

    async fn look(&mut self) {
        match timeout(self.election.terms().request_max(), self.api.get_opt(&self.name)).await {
            Ok(Ok(found)) => {
                self.election.looked(self.now(), found.as_ref().map(stored));
                self.stored = found;
                if !matches!(self.election.next(self.now()), Step::Create | Step::Claim) {
                    self.is_known();
                }
            }
            Ok(Err(error)) => self.fail(&write::describe(&error)),
            Err(_elapsed) => self.fail("no answer"),
        }
    }

    fn lead(&mut self) {
        if self.trouble.ends() {
            tracing::info!(lease = self.lease, "the Lease can be read and written again");
        }
        if let Some(until) = self.election.acts_until() {
            self.permit.extend(self.at(until));
        }
        if !self.leadership.leads() {
            let replica = self.election.replica().name();
            tracing::info!(lease = self.lease, replica, "this replica leads");
            self.leadership.win();
            self.is_known();
        }
    }

    fn is_known(&mut self) {
        self.known = true;
        self.ready.ready();
    }

    fn fail(&mut self, why: &str) {
        self.stored = None;
        self.election.failed(self.now());
        // Why logged once: the failure may last for long.
        if self.trouble.is_news(why) {
            tracing::warn!(
                lease = self.lease,
                "the Lease by which replicas elect their leader cannot be read or written, so this replica changes nothing: {why}; \
                 check that its namespace exists and that this process may get, create and patch Leases there, or set \
                 leaderElection.leaderElect to false and run one replica"
            );
        }
        if !self.known {
            self.ready.not_ready(format!("Lease {}: {why}", self.lease));
        }
    }

    async fn create(&self) -> Written<Lease> {
        let body = json!({"metadata": {"name": self.name}, "spec": self.spec(None)});
        match serde_json::from_value(body) {
            Ok(lease) => write::create(&self.api, &lease).await,
            Err(error) => Written::Refused(error.to_string()),
        }
    }

    async fn patch(&self, stored: &Lease, spec: Value) -> Written<Lease> {
        let version = stored.metadata.resource_version.as_deref();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        write::patch(&self.api, &self.name, &patch).await
    }

    /// The Lease spec that makes this replica the holder, after the stored one.
    fn spec(&self, stored: Option<&Lease>) -> Value {
        let name = self.election.replica().name();
        let now: Timestamp = (self.clock)();
        let mut spec = json!({
            "holderIdentity": name,
            "leaseDurationSeconds": self.election.terms().lease_secs(),
            "renewTime": MicroTime(now),
        });
        if stored.is_none_or(|stored| holder(stored) != name) {
            let before = stored.and_then(|stored| stored.spec.as_ref()?.lease_transitions);
            spec["acquireTime"] = json!(MicroTime(now));
            let transitions = stored.map_or(0, |_| before.unwrap_or_default().saturating_add(1));
            spec["leaseTransitions"] = json!(transitions);
        }
        spec
    }
}

fn holder(lease: &Lease) -> &str {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

fn stored(lease: &Lease) -> Stored {
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let secs = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    Stored {
        holder: holder(lease).to_owned(),
        renewed: renewed.map(|time| time.0.to_string()).unwrap_or_default(),
        length: secs.map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests;
