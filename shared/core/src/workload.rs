//! A Workload and its requests.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::amount::Amount;
use crate::condition::{Condition, Truth};
use crate::name::{Key, PodSetName, ResourceName, Uid};
use crate::status::Status;
use crate::taint::Toleration;

/// A Workload as core sees it, parsed by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Namespace and name.
    pub key: Key,
    /// Its `metadata.uid`.
    pub uid: Uid,
    /// Label `kueue.x-k8s.io/job-uid`: the job it was created for.
    pub job_uid: Option<Uid>,
    /// Its `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Name of the LocalQueue in the same namespace; empty when none was given.
    pub queue: String,
    /// `spec.priority`; absent counts as 0. Decisions use [`Workload::effective_priority`].
    pub priority: i32,
    /// Annotation `kueue.x-k8s.io/priority-boost`; 0 while gate `PriorityBoost` is off.
    pub boost: i32,
    /// `spec.active`; absent counts as true.
    pub active: bool,
    /// Its `spec.maximumExecutionTimeSeconds`.
    pub max_execution_secs: Option<u32>,
    /// Annotation `kueue.x-k8s.io/admission-gated-by`: the gates of other controllers; empty when absent.
    pub gated_by: String,
    /// Its pod sets, in order.
    pub pod_sets: Vec<PodSet>,
    /// Problems of the request itself (requests above limits, an amount that does not parse): shown as `Misconfigured`. Empty when it is
    /// valid.
    pub problems: Vec<String>,
    /// On a manager: why no worker cluster can ever hold it, in a sentence for people. `None` if a worker may hold it, or where that is not
    /// known. Shown as `ExceedsEveryWorker`.
    pub beyond: Option<String>,
    /// The status as last read.
    pub status: Status,
}

impl Workload {
    /// Whether gates of other controllers keep it out of the queue.
    pub fn is_gated(&self) -> bool {
        !self.gated_by.is_empty()
    }

    /// Whether condition `QuotaReserved` is True.
    pub fn has_quota(&self) -> bool {
        self.status.conditions.is_true("QuotaReserved")
    }

    /// Whether condition `Admitted` is True.
    pub fn is_admitted(&self) -> bool {
        self.status.conditions.is_true("Admitted")
    }

    /// Whether condition `Evicted` is True.
    pub fn is_evicted(&self) -> bool {
        self.status.conditions.is_true("Evicted")
    }

    /// Whether condition `Finished` is True.
    pub fn is_finished(&self) -> bool {
        self.status.conditions.is_true("Finished")
    }

    /// Whether condition `PodsReady` is True.
    pub fn pods_ready(&self) -> bool {
        self.status.conditions.is_true("PodsReady")
    }

    /// The priority by which it is queued and preempted. *Source*: `spec/admission-engine.md 4.4`.
    pub fn effective_priority(&self) -> i64 {
        i64::from(self.priority) + i64::from(self.boost)
    }

    /// Whether it may stand in a queue at all, as far as that depends on itself. *Source*: `spec/admission-engine.md 1.1`.
    pub fn may_queue(&self) -> bool {
        let conditions = &self.status.conditions;
        let on_hold = |c: &Condition| c.truth == Truth::False && c.reason == "OnHold";
        !self.deleting
            && self.active
            && !self.is_gated()
            && !conditions.get("QuotaReserved").is_some_and(on_hold)
            && !conditions.is_true("WaitingForReplacementPods")
    }

    /// Whether it must not be queued yet: `Requeued` is False, or `requeueState.requeueAt` lies ahead.
    /// *Source*: `spec/admission-engine.md 1.7`.
    pub fn in_backoff(&self, now: Timestamp) -> bool {
        self.status
            .conditions
            .get("Requeued")
            .is_some_and(|c| c.truth == Truth::False)
            || self.status.requeue.and_then(|r| r.at).is_some_and(|at| at > now)
    }
}

/// One homogeneous group of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSet {
    /// Its name, unique in the Workload.
    pub name: PodSetName,
    /// The number of pods.
    pub count: u32,
    /// The least number of pods with which it could start (partial admission).
    pub min_count: Option<u32>,
    /// The request of **one** pod, by resource (containers, init containers and overhead already added up).
    pub requests: BTreeMap<ResourceName, Amount>,
    /// `spec.nodeSelector` of the template.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: any of the terms suffices; empty means no constraint.
    pub affinity: Vec<AffinityTerm>,
    /// `spec.tolerations` of the template.
    pub tolerations: Vec<Toleration>,
    /// `topologyRequest.podSetGroupName`: pod sets of one group get the same flavors.
    pub group: Option<String>,
    /// Whether `topologyRequest` asks for places by topology.
    pub asks_topology: bool,
}

impl PodSet {
    /// The request of `count` of its pods.
    pub fn total(&self, count: u32) -> BTreeMap<ResourceName, Amount> {
        let times = |(name, amount): (&ResourceName, &Amount)| (name.clone(), amount.times(i64::from(count)));
        self.requests.iter().map(times).collect()
    }
}

/// One term of a required node affinity: all of its expressions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffinityTerm {
    /// Its `matchExpressions`.
    pub expressions: Vec<Requirement>,
}

/// A label requirement (of a node affinity term or of a label selector).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label key.
    pub key: String,
    /// How to compare.
    pub operator: Operator,
    /// The values to compare with; empty for `Exists` and `DoesNotExist`, one number for `Gt` and `Lt`.
    pub values: Vec<String>,
}

impl Requirement {
    /// Whether a set of labels satisfies the requirement. A missing label satisfies `NotIn` and `DoesNotExist`.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = |text: &String| text.parse::<i64>().ok();
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => value.and_then(number) > self.values.first().and_then(number) && value.is_some(),
            Operator::Lt => match (value.and_then(number), self.values.first().and_then(number)) {
                (Some(have), Some(limit)) => have < limit,
                (None, _) | (_, None) => false,
            },
        }
    }
}

/// Operator of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label's value is one of the values.
    In,
    /// The label is absent or its value is none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label's value is an integer greater than the one given.
    Gt,
    /// The label's value is an integer less than the one given.
    Lt,
}
