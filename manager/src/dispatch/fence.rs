//! When a worker that does not answer has certainly stopped its jobs, and the policy for those that it may still run.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{PodSet, Workload as ApiWorkload};
use roadstead_core::dispatch::{Fence, LostPolicy};
use roadstead_core::lease::Closing;
use roadstead_core::moment::later;
use roadstead_core::name::Key;
use roadstead_core::workload::Workload;
use roadstead_jobs::JobKind;

use super::Dispatch;
use crate::remote::Remote;

/// How long a pod without `terminationGracePeriodSeconds` may take to end. *Source*: the Pod API.
const POD_GRACE_SECS: u64 = 30;
/// How many pods a second the controllers of a cluster delete. *Source*: default of `--kube-api-qps` of kube-controller-manager.
const POD_DELETIONS_PER_SEC: u64 = 20;

/// When a worker that does not answer has certainly stopped this Workload; `Open` if that is not certain.
pub(super) fn fence(d: &Dispatch, remote: &Remote, key: &Key, stored: Option<&ApiWorkload>) -> Fence {
    let told = |copy: &ApiWorkload| {
        roadstead_convert::lost_policy(copy.metadata.annotations.as_ref()) == Some(LostPolicy::Fence)
    };
    if remote.workloads.get(key).is_some_and(|copy| !told(&copy)) {
        return Fence::Open;
    }
    let (closing, left) = d.lessor.closing(remote, drain(stored, remote.held.pods()));
    // Why `MIN` if no time is left: the clock has gone on since this pass read it, so the time of the clock would be in the
    // future of this pass.
    let at = if left.is_zero() {
        Timestamp::MIN
    } else {
        let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
        later((d.clock)(), left)
    };
    match closing {
        Closing::At(_) => Fence::Closes { at },
        Closing::Recorded(_) => Fence::Recorded { at },
        Closing::Never => Fence::Open,
    }
}

/// The policy for the loss of a worker: that of the ClusterQueue of the Workload, else that of the configuration. It is changed
/// where it does not fit the kind of the job.
pub(super) fn lost_policy(
    d: &Dispatch,
    workload: &Workload,
    stored: Option<&ApiWorkload>,
    kind: Option<&dyn JobKind>,
) -> LostPolicy {
    let admission = workload.status.admission.as_ref();
    let queue = admission.map(|a| a.cluster_queue.to_string()).or_else(|| {
        let namespace = stored?.namespace()?;
        let local = d
            .caches
            .local_queues
            .get(&Key::new(namespace, workload.queue.as_str()))?;
        Some(local.spec.cluster_queue.clone())
    });
    let queue = queue.and_then(|name| d.caches.cluster_queues.named(&name));
    let said = queue.and_then(|queue| roadstead_convert::lost_policy(queue.metadata.annotations.as_ref()));
    fitting(said.unwrap_or(d.policy.lost), kind)
}

/// The policy for a job of this kind: Wait instead of Fence if a stop leaves pods of it.
///
/// Invariant: a job does not start on another worker beside pods that a stop of its earlier run leaves. The fence of a worker is
/// a stop.
fn fitting(policy: LostPolicy, kind: Option<&dyn JobKind>) -> LostPolicy {
    match policy {
        LostPolicy::Fence if kind.is_some_and(JobKind::stop_leaves_pods) => LostPolicy::Wait,
        LostPolicy::Fence | LostPolicy::Wait | LostPolicy::RetryAnyway => policy,
    }
}

/// How long the pods of a Workload may take to end on a worker that stops `pods` pods of ours at once, if its own pods are
/// deleted last.
///
/// Limit: other deletions by that cluster's controllers in the same minutes, and a lower `--kube-api-qps` there, are not counted.
fn drain(stored: Option<&ApiWorkload>, pods: u64) -> Duration {
    let sets = stored.map(|w| w.spec.pod_sets.as_slice()).unwrap_or_default();
    let grace = |set: &PodSet| {
        set.template
            .0
            .get("spec")?
            .get("terminationGracePeriodSeconds")?
            .as_u64()
    };
    let longest = sets.iter().map(|set| grace(set).unwrap_or(POD_GRACE_SECS)).max();
    let told_after = pods / POD_DELETIONS_PER_SEC;
    Duration::from_secs(longest.unwrap_or(POD_GRACE_SECS).saturating_add(told_after))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// Spec: safety 3.4
    #[test]
    fn many_pods_take_longer_to_end_and_as_long_as_they_ask_for() {
        let sets = |grace: &[Option<u64>]| -> ApiWorkload {
            let set = |secs: &Option<u64>| {
                json!({
                    "name": "s", "count": 1, "template": {"spec": {"terminationGracePeriodSeconds": secs, "containers": []}},
                })
            };
            let sets: Vec<_> = grace.iter().map(set).collect();
            from_value(json!({"metadata": {}, "spec": {"podSets": sets}})).unwrap()
        };
        let secs = Duration::from_secs;
        assert_eq!(drain(None, 0), secs(30));
        assert_eq!(drain(Some(&sets(&[None, Some(90)])), 19), secs(90));
        assert_eq!(drain(Some(&sets(&[Some(10)])), 5_000), secs(260));
        assert_eq!(drain(Some(&sets(&[Some(u64::MAX)])), 5_000), secs(u64::MAX));
    }

    /// Spec: jobs 9.15; safety 1 I1
    #[test]
    fn a_workflow_does_not_begin_anew_beside_the_steps_that_a_fence_leaves() {
        let lost = |policy, framework: &str| fitting(policy, roadstead_jobs::kind_named(framework));
        assert_eq!(lost(LostPolicy::Fence, "argoproj.io/workflow"), LostPolicy::Wait);
        assert_eq!(lost(LostPolicy::Fence, "batch/job"), LostPolicy::Fence);
        let named = roadstead_jobs::external::kind("example.com", "v1", "Foo", "foos");
        let kept = fitting(LostPolicy::Fence, Some(named));
        assert_eq!(kept, LostPolicy::Wait, "only its own controller could stop it");
        let asked = LostPolicy::RetryAnyway;
        let same = lost(asked, "argoproj.io/workflow");
        assert_eq!(same, asked, "the administrator accepts it");
    }
}
