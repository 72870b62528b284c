//! Jobs of kinds that the administrator names: what is known of them beside their status, which nothing here can read.
//!
//! Invariant: the end of such a job is what its Workload on the worker says, and it counts as shown on the manager once the local job has the
//! whole status of its copy.
//!
//! *Source*: `spec/multikueue.md 5.4`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, WORKLOAD_UID};
use roadstead_api::kueue::v1beta2::Workload as ApiWorkload;
use roadstead_core::dispatch::{Owner, Said};
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::Key;
use roadstead_engine::caches::{CachedJob, JobKey};
use roadstead_engine::checks::There;
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::Remote as Known;

use super::Dispatch;
use crate::remote::Remote;

/// Reason of `Finished` of a job that succeeded. *Source*: `spec/jobs.md 5.6`.
const SUCCEEDED: &str = "Succeeded";

/// The owner of a kind that is named in the configuration while the feature gate for such kinds is off.
pub(super) fn switched_off(kind: &dyn JobKind) -> Owner {
    Owner::SwitchedOff {
        gate: kind.kind().gate.unwrap_or_default(),
    }
}

/// Whether a copy on a worker has ended, by the Workload that was sent there with it.
pub(super) fn has_ended_there(remote: &Remote, key: &Key, kind: &dyn JobKind, job: &DynamicObject) -> bool {
    kind.is_external() && { remote.workloads.get(key) }.is_some_and(|copy| ends(&copy, job))
}

/// Whether a Workload says that this job ended; both must be of one dispatch.
fn ends(copy: &ApiWorkload, job: &DynamicObject) -> bool {
    let same = |stamp: &str| {
        let of_job = job.annotations().get(stamp);
        of_job.is_some() && of_job == copy.annotations().get(stamp)
    };
    same(WORKLOAD_UID) && same(DISPATCH_EPOCH) && end_of(copy).is_some()
}

/// What condition `Finished` says, if that is the end of a job.
fn end_of(workload: &ApiWorkload) -> Option<Said> {
    let finished = workload.condition("Finished").filter(|c| c.status == "True")?;
    let said = Said {
        reason: finished.reason.clone(),
        message: finished.message.clone(),
    };
    said.is_end().then_some(said)
}

/// How the local job ended, once its Workload says so and it shows the whole status of its copy, if it has one. `None` for other kinds, which
/// show their end themselves.
pub(super) fn ended(
    kind: &dyn JobKind,
    workload: &ApiWorkload,
    (local, copy): (&CachedJob, Option<&CachedJob>),
    now: Timestamp,
) -> Option<Outcome> {
    if !kind.is_external() {
        return None;
    }
    let said = end_of(workload)?;
    let shown = |copy: &CachedJob| local.with(|l| copy.with(|c| kind.mirror(l, Known::Copies(c), now)));
    let lags = copy.is_some_and(|copy| !shown(copy).writes.is_empty());
    (!lags).then(|| Outcome {
        success: said.reason == SUCCEEDED,
        message: said.message,
    })
}

/// What the worker knows of the present run, by its Workload. Pods that the worker does not watch count as ready once that is admitted:
/// otherwise the manager would take back a job whose pods no controller reports.
pub(super) fn there(run: Option<&Remote>, key: &Key, ended: Option<Outcome>) -> There {
    let copy = run.and_then(|remote| remote.workloads.get(key));
    There {
        reclaimable: BTreeMap::new(),
        ready: Some(copy.is_some_and(|copy| is_ready(&copy))),
        ended,
    }
}

/// The Workload of the same job that goes before this one. Why only one at a time: each of them would send the job to a worker, and only the
/// engine itself makes sure that a job has no two.
pub(super) fn ahead(
    d: &Dispatch,
    kind: &dyn JobKind,
    (key, workload): (&Key, &ApiWorkload),
    (job, local): (&JobKey, &CachedJob),
) -> Option<String> {
    if !kind.is_external() {
        return None;
    }
    let uid = local.first().uid().unwrap_or_default();
    let all = d.caches.workloads_of(job, &uid).into_iter();
    let mut others = all
        .filter(|other| other != key)
        .filter_map(|other| d.caches.workloads.get(&other));
    let first = others.find(|other| goes_before(other, workload));
    first.map(|other| other.name_any())
}

/// Whether a Workload goes before another one of its job: one that has a cluster, else the older one. One that ended without a cluster never
/// ran the job.
fn goes_before(one: &ApiWorkload, other: &ApiWorkload) -> bool {
    let place = |workload: &ApiWorkload| {
        let created = workload.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (workload.cluster_name().is_none(), created, workload.name_any())
    };
    let never_ran = one.is_true("Finished") && one.cluster_name().is_none();
    !never_ran && place(one) < place(other)
}

fn is_ready(copy: &ApiWorkload) -> bool {
    match copy.condition("PodsReady") {
        Some(ready) => ready.status == "True",
        None => copy.is_true("Admitted"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn workload(epoch: &str, conditions: &Value) -> ApiWorkload {
        from_value(json!({
            "metadata": {"name": "w", "annotations": {WORKLOAD_UID: "u", DISPATCH_EPOCH: epoch}},
            "spec": {"podSets": []}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "1970-01-01T00:00:09Z",
        })
    }

    /// Spec: multikueue 5.4; safety 1 I11
    #[test]
    fn a_copy_has_ended_when_the_workload_of_its_dispatch_says_so() {
        let job: DynamicObject = from_value(json!({
            "apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {"name": "f", "annotations": {WORKLOAD_UID: "u", DISPATCH_EPOCH: "2"}},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        let finished = |reason| json!([condition("Finished", "True", reason)]);
        assert!(ends(&workload("2", &finished("Succeeded")), &job));
        assert!(ends(&workload("2", &finished("Failed")), &job));
        assert!(
            !ends(&workload("1", &finished("Succeeded")), &job),
            "of an earlier dispatch"
        );
        for reason in ["OutOfSync", "OwnerNotFound"] {
            assert!(
                !ends(&workload("2", &finished(reason)), &job),
                "{reason} is no end of the job"
            );
        }
        let open = json!([condition("Finished", "False", "Succeeded")]);
        assert!(!ends(&workload("2", &open), &job));
        let bare: DynamicObject =
            from_value(json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}}))
                .unwrap();
        assert!(!ends(&workload("2", &finished("Succeeded")), &bare));
    }

    /// Spec: safety 1 I1
    #[test]
    fn of_two_workloads_of_a_job_only_one_is_offered_at_a_time() {
        let workload = |name: &str, created: &str, status: Value| -> ApiWorkload {
            from_value(json!({
                "metadata": {"name": name, "creationTimestamp": created}, "spec": {"podSets": []}, "status": status,
            }))
            .unwrap()
        };
        let (early, late) = ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z");
        let (old, new) = (workload("b", early, json!({})), workload("a", late, json!({})));
        assert!(goes_before(&old, &new) && !goes_before(&new, &old));
        let twin = workload("a", early, json!({}));
        assert!(goes_before(&twin, &old) && !goes_before(&old, &twin));
        let placed = workload("z", late, json!({"clusterName": "east"}));
        assert!(goes_before(&placed, &old) && !goes_before(&old, &placed));
        let finished = json!([condition("Finished", "True", "Failed")]);
        let ended = workload("b", early, json!({"clusterName": "east", "conditions": finished}));
        assert!(goes_before(&ended, &new), "a job that ended is not run again");
        let refused = workload("b", early, json!({"conditions": finished}));
        assert!(!goes_before(&refused, &new), "it never ran");
    }

    /// Spec: multikueue 5.4
    #[test]
    fn pods_that_no_controller_reports_count_as_ready_once_the_copy_is_admitted() {
        let admitted = condition("Admitted", "True", "Admitted");
        let ready = |status| condition("PodsReady", status, "r");
        assert!(!is_ready(&workload("1", &json!([]))));
        assert!(is_ready(&workload("1", &json!([admitted]))));
        assert!(!is_ready(&workload("1", &json!([admitted, ready("False")]))));
        assert!(is_ready(&workload("1", &json!([admitted, ready("True")]))));
    }
}
