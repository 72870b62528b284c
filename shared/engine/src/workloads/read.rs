//! What a pass over a Workload needs to know, read from caches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::labels;
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::lifecycle::{JobFacts, Observed, Policy, Proposal, Request};
use roadstead_core::name::{Key, PodSetName};
use roadstead_core::queue::{ClusterQueue, StopPolicy};
use roadstead_core::workload::Workload;
use roadstead_jobs::kind::{Pods, Stand};

use crate::caches::Caches;
use crate::control;

/// The facts around one Workload.
pub(super) struct Facts {
    cluster_queue: Option<Arc<ClusterQueue>>,
    local_stop: Option<StopPolicy>,
    job: JobFacts,
    /// When the last pods of the job that are being ended are over at the latest; `None` when that is not waited for.
    pods_end_by: Option<Timestamp>,
    policy: Policy,
}

impl Facts {
    /// What [`roadstead_core::lifecycle::step`] wants to see.
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
    /// What the owner is doing.
    pub(super) const fn job(&self) -> &JobFacts {
        &self.job
    }

    /// When to look again because pods of the job must be over by then.
    pub(super) const fn pods_end_by(&self) -> Option<Timestamp> {
        self.pods_end_by
    }

    /// How the process is set up.
    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the job has stopped, as far as it says itself.
    pub(super) const fn at_rest(&self) -> bool {
        match &self.job {
            JobFacts::NoOwner | JobFacts::OwnerGone => true,
            JobFacts::Present {
                active, suspended, ..
            } => !*active && *suspended,
        }
    }

    /// The same with other pods that are no longer needed.
    pub(super) fn reclaiming(mut self, pods: BTreeMap<PodSetName, u32>) -> Self {
        if let JobFacts::Present { reclaimable, .. } = &mut self.job {
            *reclaimable = pods;
        }
        self
    }

    /// The same with a job that may have pods.
    pub(super) const fn running(mut self) -> Self {
        if let JobFacts::Present { active, .. } = &mut self.job {
            *active = true;
        }
        self
    }

    /// The same with a job that has stopped.
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

/// Reads them.
pub(super) fn facts(
    caches: &Caches,
    policy: Policy,
    (stored, workload): (&ApiWorkload, &Workload),
    now: Timestamp,
) -> Facts {
    let (job, pods_end_by) = job(caches, stored, now);
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
    Facts {
        cluster_queue: queue.and_then(|name| caches.queues.named(&name)),
        local_stop: local
            .as_ref()
            .map(|queue| roadstead_convert::local_queue(queue).stop),
        job,
        pods_end_by,
        policy,
    }
}

/// What the job is doing, and until when at the latest pods of it that are being ended use quota.
fn job(caches: &Caches, stored: &ApiWorkload, now: Timestamp) -> (JobFacts, Option<Timestamp>) {
    let Some((at, uid)) = control::of(caches, stored) else {
        // Why: it was made for a job that is gone and left it behind. *Source*: `spec/jobs.md 5.10`. An owner of a kind we do not
        // know looks after its Workload itself.
        let facts = if stored.owner_references().is_empty() && stored.labels().contains_key(labels::JOB_UID) {
            JobFacts::OwnerGone
        } else {
            JobFacts::NoOwner
        };
        return (facts, None);
    };
    let Some(jobs) = caches.jobs.get(at.kind) else {
        return (JobFacts::NoOwner, None);
    };
    let is_it = |object: &DynamicObject| {
        let is_live = object.metadata.deletion_timestamp.is_none();
        uid.is_none() || (object.metadata.uid == uid && is_live)
    };
    let Some(job) = jobs.job(&at.key).filter(|job| is_it(job.first())) else {
        return (JobFacts::OwnerGone, None);
    };
    let sets = roadstead_convert::pod_sets(stored);
    let tending = job.with(|members| jobs.kind.tend(members, Some(&sets)));
    if tending.as_ref().is_some_and(|group| group.stand == Stand::Gone) {
        return (JobFacts::OwnerGone, None);
    }
    let look = job.look(jobs.kind);
    let ends_by = match look.pods {
        Pods::AliveUntil(at) => Some(at).filter(|at| now < *at),
        Pods::None | Pods::Ending | Pods::Untold | Pods::Alive => None,
    };
    // Why: its objects go with it, and what is left of them would be taken for a new job.
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
    (facts, ends_by)
}
