//! Which job a Workload belongs to.
//!
//! A Workload belongs to its controller. A Workload copy from a manager belongs to the job copy that the manager sent with it,
//! even before that job is its controller: both name the same Workload of the manager and the same dispatch. So the job starts
//! without waiting for one more write, and a short job needs no such write (unlike the anchor).
//!
//! *Source*: `spec/jobs.md 5.3 A`, `spec/safety.md 3.1`.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::name::Key;

use crate::caches::{Caches, JobKey, JobRef, KindCache, is_of_group, named};

/// The annotations that must be equal on both copies: the manager's Workload, and the dispatch.
const STAMPS: [&str; 2] = [annotations::WORKLOAD_UID, annotations::DISPATCH_EPOCH];

/// The job to which a Workload belongs, if its kind is enabled, and that job's UID if it is one object. The job need not exist.
pub(crate) fn of(caches: &Caches, workload: &Workload) -> Option<(JobRef, Option<String>)> {
    if is_of_group(workload) {
        let kind = caches.jobs.iter().position(KindCache::has_groups)?;
        let key = JobKey::Group(roadstead_kubeio::cache::key_of(workload));
        return Some((JobRef { kind, key }, None));
    }
    let owners = workload.owner_references();
    let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else {
        return claimant(caches, workload);
    };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_kind = |jobs: &KindCache| jobs.resource.group == group && jobs.resource.kind == owner.kind;
    let kind = caches.jobs.iter().position(is_kind)?;
    let key = Key::new(workload.namespace().unwrap_or_default(), owner.name.as_str());
    let key = JobKey::Object(key);
    Some((JobRef { kind, key }, Some(owner.uid.clone())))
}

/// The Workloads that belong to the job of an object.
pub(crate) fn workloads_of(caches: &Caches, of_kind: &KindCache, job: &DynamicObject) -> Vec<Key> {
    let at = of_kind.key_of(job);
    let mut all = caches.workloads_of(&at, job.metadata.uid.as_deref().unwrap_or_default());
    if matches!(at, JobKey::Group(_)) {
        return all;
    }
    let claimed = named(job).filter(|key| caches.workloads.get(key).is_some_and(|one| belongs(job, &one)));
    all.extend(claimed);
    all
}

/// Whether one manager sent the job and the Workload for each other, in one dispatch, and the Workload has no controller.
pub(crate) fn belongs(job: &DynamicObject, workload: &Workload) -> bool {
    let is_controlled = workload
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true));
    !is_controlled
        && named(job) == Some(roadstead_kubeio::cache::key_of(workload))
        && is_same(job.labels(), workload.labels(), labels::MULTIKUEUE_ORIGIN)
        && STAMPS
            .iter()
            .all(|stamp| is_same(job.annotations(), workload.annotations(), stamp))
}

/// Whether a manager sent this Workload. Then it is only for the job that [`belongs`] to it.
pub(crate) fn is_stamped(workload: &Workload) -> bool {
    let said =
        |all: &BTreeMap<String, String>, key: &str| all.get(key).is_some_and(|value| !value.is_empty());
    said(workload.labels(), labels::MULTIKUEUE_ORIGIN)
        && said(workload.annotations(), annotations::WORKLOAD_UID)
}

fn is_same(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>, key: &str) -> bool {
    let said = one.get(key).filter(|value| !value.is_empty());
    said.is_some() && said == other.get(key)
}

fn claimant(caches: &Caches, workload: &Workload) -> Option<(JobRef, Option<String>)> {
    let key = roadstead_kubeio::cache::key_of(workload);
    caches.prebuilt.of(&key).into_iter().find_map(|at| {
        let job = caches.jobs.get(at.kind)?.job(&at.key)?;
        let job = job.first();
        belongs(job, workload).then(|| (at, job.meta().uid.clone()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(change: impl FnOnce(&mut Value)) -> DynamicObject {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "namespace": "team", "name": "train", "uid": "job",
                "labels": { labels::MULTIKUEUE_ORIGIN: "hub", labels::PREBUILT_WORKLOAD_NAME: "job-train" },
                "annotations": { annotations::WORKLOAD_UID: "w", annotations::DISPATCH_EPOCH: "2" },
            },
        });
        change(&mut job);
        serde_json::from_value(job).unwrap()
    }

    fn workload(change: impl FnOnce(&mut Value)) -> Workload {
        let mut workload = json!({
            "metadata": {
                "namespace": "team", "name": "job-train",
                "labels": { labels::MULTIKUEUE_ORIGIN: "hub" },
                "annotations": { annotations::WORKLOAD_UID: "w", annotations::DISPATCH_EPOCH: "2" },
            },
            "spec": { "podSets": [] },
        });
        change(&mut workload);
        serde_json::from_value(workload).unwrap()
    }

    /// Spec: jobs 5.3 A (deviation), safety 3.1.
    #[test]
    fn a_copy_belongs_to_the_job_of_the_same_manager_workload_and_dispatch() {
        let plain = |_: &mut Value| {};
        assert!(belongs(&job(plain), &workload(plain)));
        for (pointer, value) in [
            ("/metadata/annotations/roadstead.dev~1dispatch-epoch", json!("1")),
            (
                "/metadata/annotations/roadstead.dev~1workload-uid",
                json!("other"),
            ),
            ("/metadata/annotations/roadstead.dev~1workload-uid", json!("")),
            (
                "/metadata/labels/kueue.x-k8s.io~1multikueue-origin",
                json!("other"),
            ),
            (
                "/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name",
                json!("other"),
            ),
            ("/metadata/namespace", json!("other")),
        ] {
            let other = job(|job| *job.pointer_mut(pointer).unwrap() = value.clone());
            assert!(!belongs(&other, &workload(plain)), "{pointer}");
        }
        let unstamped = workload(|w| w["metadata"]["annotations"] = json!({}));
        let unstamped_job = job(|job| job["metadata"]["annotations"] = json!({}));
        assert!(
            !belongs(&unstamped_job, &unstamped),
            "a Kueue manager's copies are adopted first"
        );
        assert!(is_stamped(&workload(plain)) && !is_stamped(&unstamped));
        let controlled = workload(|w| {
            w["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true,
            }]);
        });
        assert!(!belongs(&job(plain), &controlled));
    }

    /// Its pods own it together, so none of them is its controller.
    ///
    /// Spec: jobs 9.13, 12.5
    #[test]
    fn the_workload_of_a_group_is_found_from_each_of_its_pods() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name});
        let group = workload(|w| {
            w["metadata"] = json!({
                "namespace": "team", "name": "llm-0", "annotations": { annotations::IS_GROUP_WORKLOAD: "true" },
                "ownerReferences": [owner("leader"), owner("worker")],
            });
        });
        let of_pod = workload(|w| {
            let mut owner = owner("leader");
            owner["controller"] = json!(true);
            w["metadata"] = json!({"namespace": "team", "name": "alone", "ownerReferences": [owner]});
        });
        for one in [group, of_pod] {
            caches.workloads.observe(one);
        }
        let key = |name: &str| Key::new("team", name);
        for pod in ["leader", "worker", "new"] {
            let found = caches.workloads_of(&JobKey::Group(key("llm-0")), pod);
            assert_eq!(found, [key("llm-0")], "{pod}");
        }
        let alone = JobKey::Group(key("alone"));
        assert_eq!(caches.workloads_of(&alone, "leader"), [], "it is of one pod");
        let single = JobKey::Object(key("leader"));
        assert_eq!(caches.workloads_of(&single, "leader"), [key("alone")]);
        assert_eq!(caches.workloads_of(&single, "worker"), []);
    }
}
