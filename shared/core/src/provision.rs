//! The ProvisioningRequest check: which requests to create, which to delete, and what the check says.
//!
//! Invariant: the name of a request tells its check and attempt. At most one request per check is current, and only that one decides.
//!
//! *Source*: `spec/provisioning.md 4, 5, 6, 8`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::condition::Conditions;
use crate::name::{CheckName, PodSetName};
use crate::note::{Note, Severity};
use crate::retry::RetryPolicy;
use crate::status::{CheckPhase, Status};
use crate::workload::Workload;

mod merge;
pub mod names;
mod state;

pub use names::Suffix;

/// Pod annotation: the request whose capacity the pod consumes. *Source*: `spec/provisioning.md 2.5`.
pub const CONSUME_ANNOTATION: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// The class of that request. *Source*: `spec/provisioning.md 2.5`.
pub const CLASS_ANNOTATION: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// The part by which jitter may lengthen a retry delay. *Source*: `spec/provisioning.md 8`.
pub const RETRY_JITTER: f64 = 0.0001;

/// The facts that [`plan`] needs about one Workload.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The Workload; its `status` is the one being composed in this pass, after the lifecycle step.
    pub workload: &'a Workload,
    /// The AdmissionChecks of our controller. Checks that the status does not list are ignored.
    pub checks: &'a BTreeMap<CheckName, Check>,
    /// Equality classes of the pod templates. A pod set without an entry is equal to none.
    pub classes: &'a BTreeMap<PodSetName, Classes>,
    /// Parameters from annotations `provreq.kueue.x-k8s.io/<key>` of the Workload, by key.
    pub overrides: &'a BTreeMap<String, String>,
    /// The `ProvisioningRequests` whose owner reference has the Workload's UID.
    pub requests: &'a [Request],
    /// The owner of each `PodTemplate` of this Workload or of its requests, by name. Templates that only have a name this Workload needs
    /// are included.
    pub templates: &'a BTreeMap<String, TemplateOwner>,
    /// The last failed creation for each check. It is forgotten when the creation succeeds.
    pub create_failures: &'a BTreeMap<CheckName, CreateFailure>,
    /// What happens to the requests of an evicted Workload.
    pub on_eviction: OnEviction,
    /// First five hex digits of the SHA-1 of a text.
    pub suffix: Suffix,
    /// A random value in `0.0..1.0`.
    pub jitter: f64,
}

/// One AdmissionCheck of our controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its configuration; `None` when it does not exist.
    pub config: Option<Config>,
    /// The pod sets that use one of the resources the configuration manages.
    pub managed: BTreeSet<PodSetName>,
}

/// A `ProvisioningRequestConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Field `provisioningClassName`.
    pub class: String,
    /// Field `parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `retryStrategy.backoffLimitCount`: how many retries.
    pub retry_limit: u32,
    /// `backoffBaseSeconds` and `backoffMaxSeconds`.
    pub backoff: Backoff,
    /// `podSetUpdates.nodeSelector`: label key and the class detail its value comes from.
    pub node_selector: Vec<(String, String)>,
    /// Field `podSetMergePolicy`.
    pub merge: Option<MergePolicy>,
}

/// Delay between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay, in seconds.
    pub base_secs: u32,
    /// The longest delay, in seconds; the first may be longer.
    pub max_secs: u32,
}

/// Which pod sets are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePolicy {
    /// Pod sets with equal templates.
    IdenticalPodTemplates,
    /// Pod sets that a scheduler cannot tell apart.
    IdenticalWorkloadSchedulingRequirements,
}

/// Equality classes of a pod template: two pod sets are equal in a respect when they have the same number. *Source*: `spec/provisioning.md
/// 6.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The class of the whole template.
    pub template: u32,
    /// The class of requests, node selector, tolerations, affinity and resource claims.
    pub scheduling: u32,
}

/// An existing ProvisioningRequest of the Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// Check and attempt from our own annotations, if they are set. Without them the name decides, which works for names of up to 247
    /// characters.
    pub identity: Option<(CheckName, u32)>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its `spec.provisioningClassName`.
    pub class: String,
    /// Its `spec.parameters`.
    pub parameters: BTreeMap<String, String>,
    /// The names of its `PodTemplates`, in order.
    pub templates: Vec<String>,
    /// Its conditions.
    pub conditions: Conditions,
    /// Its `status.provisioningClassDetails`.
    pub details: BTreeMap<String, String>,
}

/// The owner of a `PodTemplate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateOwner {
    /// The Workload owns it: the request does not own it yet.
    Workload,
    /// An existing request of this Workload owns it.
    Request,
    /// Its owner is deleted or is being deleted: garbage collection will delete it.
    Stale,
}

/// What happens to the requests of an evicted Workload: gate `CleanupProvisioningRequestsOnEviction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEviction {
    /// They are deleted (default).
    Delete,
    /// They stay.
    Keep,
}

/// A creation that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateFailure {
    /// `PodTemplate` or `ProvisioningRequest`.
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// The error of the API server.
    pub error: String,
}

/// One idempotent action; actions are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Delete the request.
    DeleteRequest {
        /// Name of the request.
        name: String,
    },
    /// Create the `PodTemplates` that are missing, controlled by the Workload.
    CreateTemplates {
        /// The check they belong to.
        check: CheckName,
        /// The templates.
        templates: Vec<RequestPodSet>,
    },
    /// Create the request, controlled by the Workload. When it is done, emit [`created_note`].
    CreateRequest(NewRequest),
    /// Make the request the controller of the template instead of the Workload.
    TransferOwner {
        /// The template.
        template: String,
        /// The request.
        request: String,
    },
}

/// A request to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// The check it belongs to.
    pub check: CheckName,
    /// Its name.
    pub name: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Its `spec.provisioningClassName`.
    pub class: String,
    /// `spec.parameters`: those of the configuration, then those of the annotations.
    pub parameters: BTreeMap<String, String>,
    /// Its `spec.podSets`.
    pub pod_sets: Vec<RequestPodSet>,
}

/// One pod set of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPodSet {
    /// The name of the `PodTemplate`.
    pub template: String,
    /// The pod set whose template it is.
    pub pod_set: PodSetName,
    /// The pod sets it stands for; `pod_set` is the first.
    pub members: Vec<PodSetName>,
    /// The total number of pods.
    pub count: u32,
}

/// The plan for one Workload.
///
/// Invariant: `status` is written first; when that fails nothing else of the plan is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The status to write.
    pub status: Status,
    /// What to do after the write, in order.
    pub actions: Vec<Action>,
    /// Events for the Workload, to be emitted once the status is written.
    pub notes: Vec<Note>,
    /// Problems that delay a check and that no status shows; the caller logs them and tries again.
    pub problems: Vec<Problem>,
}

/// Why nothing can be done for a check in this pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The status assigns nothing to a pod set that needs a request.
    #[error("inconsistent podSet assignments: pod set \"{pod_set}\" has none")]
    NoAssignment {
        /// The pod set.
        pod_set: PodSetName,
    },
    /// An object of that name is still being deleted.
    #[error("{kind} \"{name}\" of an earlier attempt is still being deleted")]
    NameTaken {
        /// `PodTemplate` or `ProvisioningRequest`.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
}

/// The Event for a created request. *Source*: `spec/provisioning.md 4.4`.
pub fn created_note(request: &str) -> Note {
    Note {
        severity: Severity::Normal,
        reason: "ProvisioningRequestCreated".into(),
        message: format!("Created ProvisioningRequest: \"{request}\""),
    }
}

/// Decides what to do about the ProvisioningRequest checks of one Workload. *Source*: `spec/provisioning.md 4.1`.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let mut pass = Pass {
        o: *observed,
        now,
        plan: Plan {
            status: observed.workload.status.clone(),
            ..Plan::default()
        },
    };
    pass.run();
    pass.plan
}

struct Pass<'a> {
    o: Observed<'a>,
    now: Timestamp,
    plan: Plan,
}

/// The request that decides for a check.
#[derive(Clone, Copy)]
struct Current<'a> {
    request: &'a Request,
    attempt: u32,
}

impl<'a> Pass<'a> {
    fn run(&mut self) {
        let workload = self.o.workload;
        if workload.is_finished() || (workload.is_evicted() && self.o.on_eviction == OnEviction::Delete) {
            return self.delete_but(&BTreeSet::new());
        }
        if workload.is_evicted() || !workload.has_quota() {
            return;
        }
        let mut current = BTreeSet::new();
        let mut wanted = Vec::new();
        let checks = self.o.checks.iter();
        let listed: Vec<_> = checks
            .filter(|(name, _)| workload.status.checks.contains_key(*name))
            .collect();
        for (name, check) in listed {
            if let Some(found) = self.decide(name, check, &mut wanted) {
                current.insert(found.name.as_str());
                self.hand_over(found);
            }
        }
        self.delete_but(&current);
        for request in wanted {
            self.create(request);
        }
    }

    /// Sets the state of one check. Returns its current request, and adds a request to create to `wanted`.
    ///
    /// Unlike the anchor: a check without a current request does not delay the others (`spec/provisioning.md` 16).
    fn decide(
        &mut self,
        name: &CheckName,
        check: &Check,
        wanted: &mut Vec<NewRequest>,
    ) -> Option<&'a Request> {
        let Some(config) = &check.config else {
            self.set(name, CheckPhase::Pending, "the check is not active");
            // Unlike the anchor: the request that an admitted Workload consumes is never deleted.
            return self
                .newest(name)
                .filter(|_| self.o.workload.is_admitted())
                .map(|c| c.request);
        };
        let pod_sets = match merge::pod_sets(&self.o, check, config.merge) {
            Ok(pod_sets) => pod_sets,
            Err(problem) => {
                self.plan.problems.push(problem);
                return self.newest(name).map(|c| c.request);
            }
        };
        if pod_sets.is_empty() {
            self.not_needed(name);
            return None;
        }
        let current = self.current(name, config);
        if let Some(current) = current {
            self.apply(name, config, current, &pod_sets);
        }
        if let Some(attempt) = self.next_attempt(name, current) {
            self.report_failure(name);
            let request = names::request(&self.o.workload.key.name, name.as_str(), attempt, self.o.suffix);
            let pod_sets = pod_sets.into_iter().map(|set| RequestPodSet {
                template: names::template(&request, set.first.as_str(), self.o.suffix),
                pod_set: set.first,
                members: set.members,
                count: set.count,
            });
            wanted.push(NewRequest {
                check: name.clone(),
                attempt,
                class: config.class.clone(),
                parameters: self.parameters(config),
                pod_sets: pod_sets.collect(),
                name: request,
            });
        }
        current.map(|c| c.request)
    }

    /// The attempt to create now. *Source*: `spec/provisioning.md 4.4`.
    ///
    /// Unlike the anchor: only a Pending check creates requests; with Retry or Rejected the Workload is about to be evicted.
    fn next_attempt(&self, name: &CheckName, current: Option<Current<'_>>) -> Option<u32> {
        let state = self.plan.status.checks.get(name)?;
        if state.phase != CheckPhase::Pending {
            return None;
        }
        let Some(Current { request, attempt }) = current else {
            return Some(state.retry_count.unwrap_or(0).saturating_add(1));
        };
        let expired = request.conditions.is_true("BookingExpired") && !self.o.workload.is_admitted();
        (request.conditions.is_true("Failed") || expired).then(|| attempt.saturating_add(1))
    }

    fn create(&mut self, request: NewRequest) {
        let taken = |kind, name: &str| Problem::NameTaken {
            kind,
            name: name.to_owned(),
        };
        // Unlike the anchor: names recur after a preemption, so an old object with the name is waited for.
        if self.o.requests.iter().any(|r| r.name == request.name) {
            self.plan
                .problems
                .push(taken("ProvisioningRequest", &request.name));
            return;
        }
        let owner = |set: &RequestPodSet| self.o.templates.get(&set.template).copied();
        if let Some(set) = request
            .pod_sets
            .iter()
            .find(|set| owner(set) == Some(TemplateOwner::Stale))
        {
            self.plan.problems.push(taken("PodTemplate", &set.template));
            return;
        }
        let missing = request.pod_sets.iter().filter(|set| owner(set).is_none());
        let templates: Vec<_> = missing.cloned().collect();
        if !templates.is_empty() {
            self.plan.actions.push(Action::CreateTemplates {
                check: request.check.clone(),
                templates,
            });
        }
        let name = request.name.clone();
        let handed_over = request.pod_sets.iter().map(|set| Action::TransferOwner {
            template: set.template.clone(),
            request: name.clone(),
        });
        let handed_over: Vec<_> = handed_over.collect();
        self.plan.actions.push(Action::CreateRequest(request));
        self.plan.actions.extend(handed_over);
    }

    /// Completes a creation that was interrupted.
    fn hand_over(&mut self, request: &Request) {
        for template in &request.templates {
            if self.o.templates.get(template) == Some(&TemplateOwner::Workload) {
                self.plan.actions.push(Action::TransferOwner {
                    template: template.clone(),
                    request: request.name.clone(),
                });
            }
        }
    }

    fn delete_but(&mut self, keep: &BTreeSet<&str>) {
        let requests = self.o.requests.iter();
        for request in requests.filter(|r| !r.deleting && !keep.contains(r.name.as_str())) {
            self.plan.actions.push(Action::DeleteRequest {
                name: request.name.clone(),
            });
        }
    }

    /// The newest request of the check that is in sync. *Source*: `spec/provisioning.md 4.1`.
    fn current(&self, name: &CheckName, config: &Config) -> Option<Current<'a>> {
        let mut found = self.of_check(name);
        // Unlike the anchor: the request that an admitted Workload consumes stays, however the configuration changes.
        if !self.o.workload.is_admitted() {
            found.retain(|c| self.in_sync(c.request, config));
        }
        found.into_iter().max_by_key(|c| c.attempt)
    }

    fn newest(&self, name: &CheckName) -> Option<Current<'a>> {
        self.of_check(name).into_iter().max_by_key(|c| c.attempt)
    }

    fn of_check(&self, name: &CheckName) -> Vec<Current<'a>> {
        let requests = self.o.requests.iter().filter(|r| !r.deleting);
        let of_check = requests.filter_map(|request| {
            let attempt = match &request.identity {
                Some((check, attempt)) => (check == name).then_some(*attempt),
                None => names::attempt(
                    &request.name,
                    &self.o.workload.key.name,
                    name.as_str(),
                    self.o.suffix,
                ),
            };
            attempt.map(|attempt| Current { request, attempt })
        });
        of_check.collect()
    }

    /// Whether class and parameters of a request equal those of a request that would be created now.
    ///
    /// Unlike the anchor: annotations are taken into account, so an override does not make a request out of sync for ever.
    fn in_sync(&self, request: &Request, config: &Config) -> bool {
        let effective = self.parameters(config);
        let mut keys = config.parameters.keys();
        request.class == config.class && keys.all(|key| request.parameters.get(key) == effective.get(key))
    }

    fn parameters(&self, config: &Config) -> BTreeMap<String, String> {
        let mut parameters = config.parameters.clone();
        parameters.extend(self.o.overrides.clone());
        parameters
    }
}

impl Backoff {
    /// *Source*: `spec/provisioning.md 8`.
    fn delay_secs(self, attempt: u32, jitter: f64) -> u32 {
        let policy = RetryPolicy {
            base: jiff::SignedDuration::from_secs(self.base_secs.into()),
            factor: 2,
            max: jiff::SignedDuration::from_secs(self.max_secs.into()),
            jitter: RETRY_JITTER,
        };
        u32::try_from(policy.delay(attempt, jitter).as_secs()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
