//! The facts for a pass over a Workload, read from caches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::{controllers, labels};
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::kind::KindState;
use roadstead_core::lifecycle::{JobFacts, Observed, Policy, Proposal, Request};
use roadstead_core::name::Key;
use roadstead_core::queue::{ClusterQueue, StopPolicy};
use roadstead_core::workload::Workload;
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::{Pods, Stand};

use crate::caches::{CachedJob, Caches, JobKey, member};
use crate::checks::There;
use crate::control;

/// The facts around one Workload.
pub(super) struct Facts {
    cluster_queue: Option<Arc<ClusterQueue>>,
    local_stop: Option<StopPolicy>,
    job: JobFacts,
    /// The latest end of the job's terminating pods; `None` when the pass does not wait for it.
    pods_end_by: Option<Timestamp>,
    policy: Policy,
}

impl Facts {
    /// The input of [`roadstead_core::lifecycle::step`].
    pub(super) fn observed<'a>(
        &'a self,
        workload: &'a Workload,
        request: Option<&'a Request>,
        proposal: Option<&'a Proposal>,
    ) -> Observed<'a> {
        Observed {
            workload,
            cluster_queue: self.cluster_queue.as_deref(),
            local_stop: self.local_stop,
            job: &self.job,
            request,
            proposal,
            policy: &self.policy,
        }
    }
}

impl Facts {
    pub(super) const fn job(&self) -> &JobFacts {
        &self.job
    }

    /// When to run again, because the job's terminating pods must have ended by then.
    pub(super) const fn pods_end_by(&self) -> Option<Timestamp> {
        self.pods_end_by
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the job has stopped, by its own status.
    pub(super) const fn at_rest(&self) -> bool {
        match &self.job {
            JobFacts::Awaited | JobFacts::Unknown | JobFacts::OwnerGone => true,
            JobFacts::Present {
                active, suspended, ..
            } => !*active && *suspended,
        }
    }

    /// The same facts, with those of the job in another cluster.
    pub(super) fn there(mut self, there: There) -> Self {
        if let JobFacts::Present {
            reclaimable,
            ready,
            finished,
            ..
        } = &mut self.job
        {
            *reclaimable = there.reclaimable;
            *ready = there.ready.unwrap_or(*ready);
            *finished = there.ended.or_else(|| finished.take());
        }
        self
    }

    /// The same facts, with a job that may have pods.
    pub(super) const fn running(mut self) -> Self {
        if let JobFacts::Present { active, .. } = &mut self.job {
            *active = true;
        }
        self
    }

    /// The same facts, with a job that has stopped.
    pub(super) fn rested(mut self) -> Self {
        if let JobFacts::Present {
            active, suspended, ..
        } = &mut self.job
        {
            *active = false;
            *suspended = true;
        }
        self
    }
}

/// Reads the facts; `None` while it is not known whether the job exists.
pub(super) fn facts(
    caches: &Caches,
    policy: Policy,
    (stored, workload): (&ApiWorkload, &Workload),
    now: Timestamp,
) -> Option<Facts> {
    let (job, pods_end_by) = job(caches, stored, now)?;
    let local = caches
        .local_queues
        .get(&Key::new(workload.key.namespace.clone(), workload.queue.as_str()));
    let local = local.filter(|queue| queue.metadata.deletion_timestamp.is_none());
    let queue = match &workload.status.admission {
        Some(admission) => Some(Cow::Borrowed(admission.cluster_queue.as_str())),
        None => local
            .as_ref()
            .map(|queue| queue.spec.cluster_queue.as_str())
            .map(Cow::Borrowed),
    };
    Some(Facts {
        cluster_queue: queue.and_then(|name| caches.queues.named(&name)),
        local_stop: local
            .as_ref()
            .map(|queue| roadstead_convert::local_queue(queue).stop),
        job,
        pods_end_by,
        policy,
    })
}

/// The facts about the job, and until when its terminating pods use quota at the latest. `None` while the state of its kind is
/// [`KindState::Unknown`] and the job has not been seen.
fn job(caches: &Caches, stored: &ApiWorkload, now: Timestamp) -> Option<(JobFacts, Option<Timestamp>)> {
    let Some((at, uid)) = control::of(caches, stored) else {
        return Some((without_job(stored), None));
    };
    let Some(jobs) = caches.jobs.get(at.kind) else {
        return Some((JobFacts::Unknown, None));
    };
    // Why the state of the kind is read first: an object that is listed between the two reads must count.
    let state = jobs.state();
    let is_it = |object: &DynamicObject| uid.is_none() || object.metadata.uid == uid;
    if jobs.kind.is_external() {
        let job = jobs.job(&at.key).filter(|job| is_it(job.first()));
        return external(stored, jobs.kind, job.as_ref(), state).map(|facts| (facts, None));
    }
    let Some(job) = jobs.job(&at.key).filter(|job| is_it(job.first())) else {
        // Why not gone: a manager sends the members of a group after the group's Workload.
        if matches!(at.key, JobKey::Group(_))
            && control::is_stamped(stored)
            && stored.owner_references().is_empty()
        {
            return Some((JobFacts::Awaited, None));
        }
        return (state != KindState::Unknown).then_some((JobFacts::OwnerGone, None));
    };
    let sets = roadstead_convert::pod_sets(stored);
    let tending = job.with(|members| {
        jobs.kind
            .tend(members, Some(&sets), roadstead_convert::asks_for_more)
    });
    let is_gone = match &tending {
        Some(group) => group.stand == Stand::Gone,
        None => job.first().metadata.deletion_timestamp.is_some(),
    };
    if is_gone {
        return Some((JobFacts::OwnerGone, None));
    }
    let look = job.look(jobs.kind);
    let ends_by = match look.pods {
        Pods::AliveUntil(at) => Some(at).filter(|at| now < *at),
        Pods::None | Pods::Ending | Pods::Untold | Pods::Alive => None,
    };
    // Why: the objects of such a job are deleted with its Workload. Until then the ones that are left would look like a new
    // job.
    let goes = stored.metadata.deletion_timestamp.is_some() && jobs.kind.ends_with_workload();
    let is_left = |object: &Arc<DynamicObject>| object.metadata.deletion_timestamp.is_none();
    let facts = JobFacts::Present {
        active: look.pods == Pods::Alive || ends_by.is_some() || (goes && job.objects().any(is_left)),
        finished: look.ended,
        suspended: look.suspended || goes,
        ready: look.ready,
        reclaimable: look.reclaimable,
        missing: tending.and_then(|group| group.missing),
    };
    Some((facts, ends_by))
}

/// The facts about a job of a kind that is not known here. While it is dispatched it may have pods only in another cluster; otherwise only
/// its own controller knows what runs for it. `None` while it is not known whether it exists.
///
/// Why it never counts as gone: its controller makes the Workload, so the Workload may be seen before the job. A Workload whose job is
/// deleted is deleted by the garbage collector.
fn external(
    stored: &ApiWorkload,
    kind: &dyn JobKind,
    job: Option<&CachedJob>,
    state: KindState,
) -> Option<JobFacts> {
    let is_placed = stored.cluster_name().is_some();
    let is_dispatched = match job.map(CachedJob::first) {
        None if state == KindState::Unknown => return None,
        // Why only if the kind can be listed: otherwise the run may go on with a job that is not seen.
        None => is_placed && state != KindState::Serving,
        Some(job) if job.metadata.deletion_timestamp.is_some() => false,
        Some(job) => is_placed || kind.manager_of(member(job)) == Some(controllers::MULTIKUEUE),
    };
    Some(if is_dispatched {
        JobFacts::Present {
            finished: None,
            active: false,
            suspended: true,
            ready: false,
            reclaimable: BTreeMap::new(),
            missing: None,
        }
    } else {
        JobFacts::Unknown
    })
}

/// The facts about a Workload that belongs to no job here. *Source*: `spec/jobs.md 5.10`, `spec/admission-engine.md 3.3`.
fn without_job(stored: &ApiWorkload) -> JobFacts {
    let (is_owned, said) = (!stored.owner_references().is_empty(), stored.labels());
    if !is_owned && said.contains_key(labels::JOB_UID) {
        // This Workload was created for a job that does not exist any more.
        JobFacts::OwnerGone
    } else if !is_owned && said.contains_key(labels::MULTIKUEUE_ORIGIN) {
        JobFacts::Awaited
    } else {
        JobFacts::Unknown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// Spec: multikueue 5.4; safety 1 I1
    #[test]
    fn a_job_of_a_named_kind_is_followed_while_it_is_dispatched_and_otherwise_its_own_controller_knows() {
        let kind = roadstead_jobs::external::kind("example.com", "v1", "Foo", "foos");
        let stored = |cluster: Option<&str>| -> ApiWorkload {
            from_value(json!({
                "metadata": {"name": "w"}, "spec": {"podSets": []}, "status": {"clusterName": cluster},
            }))
            .unwrap()
        };
        let job = |managed_by: &str, deleted: Option<&str>| {
            let object = json!({
                "apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f", "deletionTimestamp": deleted},
                "spec": {"managedBy": managed_by}, "status": {"phase": "Succeeded"},
            });
            CachedJob::one(Arc::new(from_value(object).unwrap()))
        };
        let facts = |cluster, job: Option<&CachedJob>, state| external(&stored(cluster), kind, job, state);
        let followed = JobFacts::Present {
            finished: None,
            active: false,
            suspended: true,
            ready: false,
            reclaimable: BTreeMap::new(),
            missing: None,
        };
        let (ours, other) = (job("kueue.x-k8s.io/multikueue", None), job("", None));
        let serving = KindState::Serving;
        assert_eq!(facts(None, Some(&ours), serving), Some(followed.clone()));
        assert_eq!(facts(None, Some(&other), serving), Some(JobFacts::Unknown));
        assert_eq!(facts(Some("east"), Some(&other), serving), Some(followed.clone()));
        // A job that is not seen yet, or not any more, never counts as gone: its Workload may come first.
        assert_eq!(facts(None, None, serving), Some(JobFacts::Unknown));
        assert_eq!(facts(Some("east"), None, serving), Some(JobFacts::Unknown));
        let going = job("kueue.x-k8s.io/multikueue", Some("1970-01-01T00:00:09Z"));
        assert_eq!(
            facts(Some("east"), Some(&going), serving),
            Some(JobFacts::Unknown)
        );
        assert_eq!(facts(Some("east"), None, KindState::Unknown), None);
        assert_eq!(facts(Some("east"), None, KindState::NotServed), Some(followed));
    }

    /// Spec: admission-engine 3.3; jobs 5.10.
    #[test]
    fn a_workload_without_a_job_here_is_awaited_left_behind_or_unknown() {
        let owner = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u", "controller": true}]);
        for (labels, owners, wanted) in [
            (json!({}), json!([]), JobFacts::Unknown),
            (json!({}), owner.clone(), JobFacts::Unknown),
            (json!({labels::JOB_UID: "j"}), json!([]), JobFacts::OwnerGone),
            (json!({labels::JOB_UID: "j"}), owner.clone(), JobFacts::Unknown),
            (
                json!({labels::MULTIKUEUE_ORIGIN: "hub"}),
                json!([]),
                JobFacts::Awaited,
            ),
            (
                json!({labels::MULTIKUEUE_ORIGIN: "hub"}),
                owner,
                JobFacts::Unknown,
            ),
        ] {
            let stored: ApiWorkload = from_value(json!({
                "metadata": {"name": "w", "labels": labels, "ownerReferences": owners},
                "spec": {"podSets": []},
            }))
            .unwrap();
            assert_eq!(without_job(&stored), wanted, "{labels}");
        }
    }

    /// Spec: safety F26
    #[test]
    fn a_job_of_a_kind_that_is_not_listed_is_not_taken_for_deleted() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let kind = caches.jobs[0].kind.kind();
        let owned = |api_version: &str| -> ApiWorkload {
            let owner = json!({
                "apiVersion": api_version, "kind": kind.kind, "name": "j", "uid": "1", "controller": true,
            });
            let metadata = json!({"name": "w", "namespace": "ns", "ownerReferences": [owner]});
            from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
        };
        let stored = owned(&kind.api_version());
        let look = |stored: &ApiWorkload| job(&caches, stored, Timestamp::UNIX_EPOCH).map(|(facts, _)| facts);
        assert!(look(&stored).is_none(), "it may only not be listed yet");
        assert!(matches!(look(&owned("example.com/v1")), Some(JobFacts::Unknown)));
        let seen: DynamicObject = from_value(json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": {"name": "j", "namespace": "ns", "uid": "1", "resourceVersion": "1"}, "spec": {},
        }))
        .unwrap();
        caches.jobs[0].objects.observe(seen);
        assert!(matches!(look(&stored), Some(JobFacts::Present { .. })));
    }
}
