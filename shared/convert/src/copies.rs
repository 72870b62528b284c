//! Workloads that Roadstead creates: for a job, and as a copy on a worker cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use roadstead_api::constants::{annotations, finalizers, labels};
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::dispatch::{Drift, LostPolicy};
use roadstead_jobs::JobPodSet;
use roadstead_jobs::equivalence::sanitised;
use roadstead_jobs::kind::MemberId;
use serde_json::Value;

use crate::topology::topology_request;

/// The parts from which a Workload is made. *Source*: `spec/jobs.md 5.6`.
#[derive(Clone, Debug)]
pub struct Made<'a> {
    /// Its name (`spec/jobs.md 5.7`).
    pub name: String,
    /// The job's metadata.
    pub job: &'a ObjectMeta,
    /// The job's `apiVersion`.
    pub api_version: &'a str,
    /// The job's `kind`.
    pub kind: &'a str,
    /// For a group: the members that own it together.
    pub group: Option<&'a [MemberId]>,
    /// Keys of labels to copy from the job (`integrations.labelKeysToCopy`).
    pub labels_to_copy: &'a [String],
    /// Keys of annotations to copy from the job: those that metrics read from Workloads.
    pub annotations_to_copy: &'a [String],
    /// The LocalQueue.
    pub queue: Option<String>,
    /// The pod sets.
    pub pod_sets: Vec<JobPodSet>,
    /// Its priority.
    pub priority: Priority,
    /// The maximum execution time, in seconds.
    pub max_execution_secs: Option<i32>,
    /// Whether the topology annotations of the templates count (gate `TopologyAwareScheduling`).
    pub topology: bool,
}

/// A resolved priority. *Source*: `spec/jobs.md 5.13`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// The class that it comes from.
    pub class: Option<api::PriorityClassRef>,
    /// Its value.
    pub value: i32,
}

/// The Workload of a job.
pub fn workload_for_job(made: Made<'_>) -> api::Workload {
    let job = made.job;
    let uid = job.uid.clone().unwrap_or_default();
    let mut copied: BTreeMap<String, String> = BTreeMap::new();
    for key in made.labels_to_copy {
        if let Some(value) = job.labels.as_ref().and_then(|all| all.get(key)) {
            copied.insert(key.clone(), value.clone());
        }
    }
    let owners: Vec<OwnerReference> = match made.group {
        None => {
            copied.insert(labels::JOB_UID.to_owned(), uid.clone());
            let name = job.name.clone().unwrap_or_default();
            let id = MemberId { name, uid };
            vec![OwnerReference {
                controller: Some(true),
                block_owner_deletion: Some(true),
                ..member_reference(made.api_version, made.kind, &id)
            }]
        }
        Some(members) => { members.iter() }
            .map(|id| member_reference(made.api_version, made.kind, id))
            .collect(),
    };
    let travels = |key: &str| {
        key.starts_with(annotations::PROVISIONING_PARAMETER_PREFIX)
            || key == annotations::ADMISSION_GATED_BY
            || made.annotations_to_copy.iter().any(|wanted| wanted == key)
    };
    let notes = job.annotations.iter().flatten().filter(|(key, _)| travels(key));
    let mut notes: BTreeMap<String, String> =
        notes.map(|(key, value)| (key.clone(), value.clone())).collect();
    if made.group.is_some() {
        notes.insert(annotations::IS_GROUP_WORKLOAD.to_owned(), labels::TRUE.to_owned());
    }
    let pod_sets = made.pod_sets.into_iter().map(|set| {
        let template = match sanitised(set.template) {
            Value::Object(template) => template.into(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                api::RawTemplate::default()
            }
        };
        api::PodSet {
            name: set.name,
            count: i32::try_from(set.count).unwrap_or(i32::MAX),
            min_count: set
                .min_count
                .map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
            topology_request: made.topology.then(|| topology_request(&template)).flatten(),
            template,
        }
    });
    api::Workload {
        metadata: ObjectMeta {
            name: Some(made.name),
            namespace: job.namespace.clone(),
            labels: Some(copied),
            annotations: (!notes.is_empty()).then_some(notes),
            finalizers: Some(vec![finalizers::RESOURCE_IN_USE.to_owned()]),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        },
        spec: api::WorkloadSpec {
            pod_sets: pod_sets.collect(),
            queue_name: made.queue,
            priority: Some(made.priority.value),
            priority_class_ref: made.priority.class,
            maximum_execution_time_seconds: made.max_execution_secs,
            ..api::WorkloadSpec::default()
        },
        status: None,
    }
}

/// The owner reference that makes a member of a group an owner of its Workload.
pub fn member_reference(api_version: &str, kind: &str, member: &MemberId) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: member.name.clone(),
        uid: member.uid.clone(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// The pod sets of a Workload, in the form of a job's pod sets.
pub fn pod_sets(workload: &api::Workload) -> Vec<JobPodSet> {
    let set = |set: &api::PodSet| JobPodSet {
        name: set.name.clone(),
        count: u32::try_from(set.count).unwrap_or_default(),
        min_count: set.min_count.and_then(|count| u32::try_from(count).ok()),
        template: set.template.to_value(),
    };
    workload.spec.pod_sets.iter().map(set).collect()
}

/// The marks on every object that is sent to a worker cluster. *Source*: `spec/safety.md 3.1`.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The origin of the manager.
    pub origin: &'a str,
    /// The number of the dispatch.
    pub epoch: u64,
    /// What happens when the worker is lost.
    pub lost: LostPolicy,
    /// The length of the lease that the manager keeps on the worker, in seconds; `None` when it keeps none.
    pub lease_secs: Option<u64>,
}

/// The number of the dispatch from the annotations; 1 without the annotation, `None` when it is no number.
pub fn epoch(annotations: Option<&BTreeMap<String, String>>) -> Option<u64> {
    let said = annotations.and_then(|all| all.get(annotations::DISPATCH_EPOCH));
    // Why `u64::MAX` is refused: the next dispatch could have no higher number.
    said.map_or(Some(1), |text| {
        text.parse().ok().filter(|number| *number < u64::MAX)
    })
}

/// What happens to jobs of a queue whose worker is lost, from its annotation; `None` when it is missing or unknown.
pub fn lost_policy(annotations: Option<&BTreeMap<String, String>>) -> Option<LostPolicy> {
    match annotations?.get(annotations::WORKER_LOST_POLICY)?.as_str() {
        "Wait" => Some(LostPolicy::Wait),
        "Fence" => Some(LostPolicy::Fence),
        "RetryAnyway" => Some(LostPolicy::RetryAnyway),
        _ => None,
    }
}

/// The length of the lease that the manager kept when it sent the copy, in seconds.
pub fn lease_secs(annotations: Option<&BTreeMap<String, String>>) -> Option<u64> {
    annotations?.get(annotations::LEASE_SECONDS)?.parse().ok()
}

/// The annotations that tie a copy to one dispatch of one Workload.
pub fn dispatch_annotations(local: &api::Workload, epoch: u64) -> [(&'static str, String); 2] {
    [
        (annotations::DISPATCH_EPOCH, epoch.to_string()),
        (
            annotations::WORKLOAD_UID,
            local.metadata.uid.clone().unwrap_or_default(),
        ),
    ]
}

/// The copy of a Workload on a worker cluster. *Source*: `spec/multikueue.md 3.4`.
pub fn remote_workload(local: &api::Workload, stamp: Stamp<'_>) -> api::Workload {
    let mut copied = local.metadata.labels.clone().unwrap_or_default();
    copied.remove(labels::JOB_UID);
    copied.insert(labels::MULTIKUEUE_ORIGIN.to_owned(), stamp.origin.to_owned());
    let mut notes = local.metadata.annotations.clone().unwrap_or_default();
    // Why the explanation: it describes the manager's view, and would be outdated on the worker at once.
    for ours in [
        annotations::FENCED,
        annotations::WORKER_LOST_POLICY,
        annotations::LEASE_SECONDS,
        annotations::EXPLANATION,
        annotations::FAILED_ON,
    ] {
        notes.remove(ours);
    }
    for (key, value) in dispatch_annotations(local, stamp.epoch) {
        notes.insert(key.to_owned(), value);
    }
    // Why only `Fence` is written: it is the only policy on which a worker acts.
    if stamp.lost == LostPolicy::Fence {
        notes.insert(annotations::WORKER_LOST_POLICY.to_owned(), "Fence".to_owned());
        if let Some(secs) = stamp.lease_secs {
            notes.insert(annotations::LEASE_SECONDS.to_owned(), secs.to_string());
        }
    }
    api::Workload {
        metadata: ObjectMeta {
            name: local.metadata.name.clone(),
            namespace: local.metadata.namespace.clone(),
            labels: Some(copied),
            annotations: Some(notes),
            ..ObjectMeta::default()
        },
        spec: local.spec.clone(),
        status: None,
    }
}

/// The difference between the spec of a copy and the local one. *Source*: `spec/multikueue.md 3.3 R5`.
///
/// Unlike the anchor: `spec.active` is not compared. A worker that deactivates its copy stops being a candidate. If the field were
/// compared, the manager would delete and create the copy again without end (`spec/multikueue.md 3.15`).
pub fn spec_drift(local: &api::Workload, remote: &api::Workload) -> Drift {
    if compared(&local.spec) != compared(&remote.spec) {
        return Drift::Spec;
    }
    let priority = |spec: &api::WorkloadSpec| spec.priority.unwrap_or_default();
    let same = priority(&local.spec) == priority(&remote.spec)
        && local.spec.priority_class_ref == remote.spec.priority_class_ref;
    if same { Drift::None } else { Drift::Priority }
}

/// The fields that must be equal in a copy. Why every field is named: a new field of the spec must not compile until it is decided here
/// whether it must be equal.
fn compared(spec: &api::WorkloadSpec) -> impl PartialEq + '_ {
    let api::WorkloadSpec {
        pod_sets,
        queue_name,
        maximum_execution_time_seconds,
        priority: _,
        priority_class_ref: _,
        active: _,
        preemption_gates: _,
    } = spec;
    (pod_sets, queue_name, maximum_execution_time_seconds)
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use roadstead_api::constants::annotations;
    use roadstead_api::kueue::v1beta2 as api;
    use roadstead_core::dispatch::{Drift, LostPolicy};
    use roadstead_jobs::JobPodSet;
    use serde_json::json;

    use super::{
        Made, Priority, Stamp, epoch, lease_secs, lost_policy, remote_workload, spec_drift, workload_for_job,
    };

    const STAMP: Stamp<'static> = Stamp {
        origin: "mine",
        epoch: 3,
        lost: LostPolicy::Fence,
        lease_secs: Some(600),
    };

    fn local() -> api::Workload {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1",
                "labels": { "kueue.x-k8s.io/job-uid": "j", "team": "a" },
                "annotations": { "provreq.kueue.x-k8s.io/x": "1", "roadstead.dev/explanation": "{}" },
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j" }],
            },
            "spec": { "queueName": "q", "priority": 3, "podSets": [{ "name": "main", "count": 1, "template": {} }] },
            "status": { "clusterName": "x" },
        }))
        .unwrap()
    }

    /// Spec: multikueue 3.4; provisioning 15.56.
    #[test]
    fn the_copy_has_labels_annotations_and_spec_and_nothing_else() {
        let copy = serde_json::to_value(remote_workload(&local(), STAMP)).unwrap();
        assert_eq!(
            copy["metadata"],
            json!({
                "name": "w", "namespace": "ns",
                "labels": { "kueue.x-k8s.io/multikueue-origin": "mine", "team": "a" },
                "annotations": {
                    "provreq.kueue.x-k8s.io/x": "1",
                    "roadstead.dev/dispatch-epoch": "3",
                    "roadstead.dev/lease-seconds": "600",
                    "roadstead.dev/workload-uid": "u",
                    "roadstead.dev/worker-lost-policy": "Fence",
                },
            })
        );
        assert_eq!(copy.get("status"), None);
        assert_eq!(copy["spec"], serde_json::to_value(&local().spec).unwrap());
    }

    /// Spec: provisioning 6.1, 15.56.
    #[test]
    fn the_workload_of_a_job_has_the_parameters_for_the_autoscaler_and_no_other_annotation() {
        let parameter = "provreq.kueue.x-k8s.io/maxRunDurationSeconds";
        let notes = [
            (parameter.to_owned(), "60".to_owned()),
            ("other".to_owned(), "x".to_owned()),
            ("noted".to_owned(), "y".to_owned()),
        ];
        let job = ObjectMeta {
            annotations: Some(notes.into()),
            ..ObjectMeta::default()
        };
        let workload = workload_for_job(Made {
            name: "w".to_owned(),
            job: &job,
            api_version: "batch/v1",
            kind: "Job",
            group: None,
            labels_to_copy: &[],
            annotations_to_copy: &["noted".to_owned()],
            queue: None,
            pod_sets: Vec::new(),
            priority: Priority::default(),
            max_execution_secs: None,
            topology: false,
        });
        let kept = workload.metadata.annotations.unwrap();
        let noted = ("noted".to_owned(), "y".to_owned());
        assert_eq!(kept, [(parameter.to_owned(), "60".to_owned()), noted].into());
    }

    /// Spec: jobs 8.
    #[test]
    fn topology_annotations_count_only_while_the_gate_is_on() {
        let request = |topology: bool| {
            let set = JobPodSet {
                name: "main".to_owned(),
                count: 1,
                min_count: None,
                template: json!({"metadata": {"annotations": {annotations::PODSET_REQUIRED_TOPOLOGY: "rack"}}}),
            };
            let workload = workload_for_job(Made {
                name: "w".to_owned(),
                job: &ObjectMeta::default(),
                api_version: "batch/v1",
                kind: "Job",
                group: None,
                labels_to_copy: &[],
                annotations_to_copy: &[],
                queue: None,
                pod_sets: vec![set],
                priority: Priority::default(),
                max_execution_secs: None,
                topology,
            });
            let [set] = workload.spec.pod_sets.try_into().unwrap();
            let api::PodSet { topology_request, .. } = set;
            topology_request.and_then(|request| request.required)
        };
        assert_eq!(request(true).as_deref(), Some("rack"));
        assert_eq!(request(false), None);
    }

    /// Spec: safety 3.1, 3.5.
    #[test]
    fn what_says_no_number_is_the_first_dispatch_and_what_says_nonsense_is_none() {
        let says = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        assert_eq!(epoch(None), Some(1));
        assert_eq!(epoch(Some(&says("roadstead.dev/dispatch-epoch", "7"))), Some(7));
        assert_eq!(epoch(Some(&says("roadstead.dev/dispatch-epoch", "-7"))), None);
        let policy = |word| lost_policy(Some(&says("roadstead.dev/worker-lost-policy", word)));
        assert_eq!(policy("Fence"), Some(LostPolicy::Fence));
        assert_eq!((policy("fence"), lost_policy(None)), (None, None));
        let quiet = Stamp {
            lost: LostPolicy::Wait,
            ..STAMP
        };
        let copy = remote_workload(&local(), quiet);
        assert_eq!(lost_policy(copy.metadata.annotations.as_ref()), None);
        assert_eq!(lease_secs(copy.metadata.annotations.as_ref()), None);
        assert_eq!(
            lease_secs(Some(&says("roadstead.dev/lease-seconds", "600"))),
            Some(600)
        );
        assert_eq!(lease_secs(Some(&says("roadstead.dev/lease-seconds", "-1"))), None);
    }

    /// Spec: multikueue 3.3 R5, 11.84, 11.98.
    #[test]
    fn drift_tells_priority_from_anything_else_and_ignores_active_and_gates() {
        let (local, mut copy) = (local(), remote_workload(&local(), STAMP));
        copy.spec.active = Some(false);
        copy.spec.preemption_gates = serde_json::from_value(json!([{ "name": "g" }])).unwrap();
        assert_eq!(spec_drift(&local, &copy), Drift::None);
        copy.spec.priority = Some(4);
        assert_eq!(spec_drift(&local, &copy), Drift::Priority);
        copy.spec.pod_sets[0].count = 2;
        assert_eq!(spec_drift(&local, &copy), Drift::Spec);
    }
}
