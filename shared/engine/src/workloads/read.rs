//! What a pass over a Workload needs to know, read from caches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::labels;
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::lifecycle::{JobFacts, Observed, Policy, Proposal, Request};
use roadstead_core::name::{Key, PodSetName};
use roadstead_core::queue::{ClusterQueue, StopPolicy};
use roadstead_core::workload::Workload;
use roadstead_jobs::kind::Pods;

use crate::caches::Caches;
use crate::control;

/// The facts around one Workload.
pub(super) struct Facts {
    cluster_queue: Option<Arc<ClusterQueue>>,
    local_stop: Option<StopPolicy>,
    job: JobFacts,
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

    /// How the process is set up.
    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the job has stopped, as far as it says itself.
    pub(super) const fn at_rest(&self) -> bool {
        match &self.job {
            JobFacts::Awaited | JobFacts::Unknown | JobFacts::OwnerGone => true,
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
pub(super) fn facts(caches: &Caches, policy: Policy, stored: &ApiWorkload, workload: &Workload) -> Facts {
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
        job: job(caches, stored),
        policy,
    }
}

fn job(caches: &Caches, stored: &ApiWorkload) -> JobFacts {
    let Some((at, uid)) = control::of(caches, stored) else {
        return without_job(stored);
    };
    let Some(jobs) = caches.jobs.get(at.kind) else {
        return JobFacts::Unknown;
    };
    let is_it = |object: &DynamicObject| {
        object.metadata.uid.as_deref() == Some(uid.as_str()) && object.metadata.deletion_timestamp.is_none()
    };
    let Some(job) = jobs.job(&at.key).filter(|job| is_it(job.first())) else {
        return JobFacts::OwnerGone;
    };
    let look = job.look(jobs.kind);
    JobFacts::Present {
        active: look.pods == Pods::Alive,
        finished: look.ended,
        suspended: look.suspended,
        ready: look.ready,
        reclaimable: look.reclaimable,
    }
}

/// What is known of a Workload that belongs to no job here. *Source*: `spec/jobs.md 5.10`, `spec/admission-engine.md 3.3`.
fn without_job(stored: &ApiWorkload) -> JobFacts {
    let (is_owned, said) = (!stored.owner_references().is_empty(), stored.labels());
    if !is_owned && said.contains_key(labels::JOB_UID) {
        // It was made for a job that is gone and left it behind.
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
}
