//! The `PodTemplates` that a request points at. *Source*: `spec/provisioning.md 6.2`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplate;
use kube::discovery::ApiResource;
use roadstead_api::kueue::v1beta2::PodSet;
use roadstead_core::name::{FlavorName, PodSetName};
use roadstead_core::queue::Flavor;
use roadstead_core::status::Admission;
use roadstead_core::workload::Workload;
use roadstead_jobs::podset::{InjectError, PodSetInfo, Provenance, StartFacts, infos, inject};
use serde_json::Value;

pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<PodTemplate>(&())
}

/// The pods of a pod set as they will be placed: with the node labels and tolerations of their flavors, and with requests where
/// there are only limits. `None`: no flavor is assigned to the pod set.
///
/// *Errors*: a flavor is missing, or two flavors contradict each other or the template.
pub(super) fn content(
    workload: &Workload,
    pod_set: &PodSet,
    flavors: &BTreeMap<FlavorName, Flavor>,
) -> Result<Option<Value>, InjectError> {
    let name = PodSetName::from(pod_set.name.as_str());
    let Some(info) = info(workload, &name, flavors)? else {
        return Ok(None);
    };
    let mut template = pod_set.template.to_value();
    inject(&mut template, &info)?;
    for field in ["containers", "initContainers"] {
        let containers = template.get_mut("spec").and_then(|spec| spec.get_mut(field));
        let containers = containers.and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(copy_limits);
    }
    Ok(Some(template))
}

/// Only the additions of flavors: the labels and annotations of a start are not known yet.
fn info(
    workload: &Workload,
    pod_set: &PodSetName,
    flavors: &BTreeMap<FlavorName, Flavor>,
) -> Result<Option<PodSetInfo>, InjectError> {
    let Some(admission) = &workload.status.admission else {
        return Ok(None);
    };
    let assignments = admission.pod_sets.iter().filter(|set| set.name == *pod_set);
    let facts = StartFacts {
        workload: &workload.key.name,
        local_queue: &workload.queue,
        provenance: Provenance::Local,
        admission: &Admission {
            cluster_queue: admission.cluster_queue.clone(),
            pod_sets: assignments.cloned().collect(),
        },
        checks: &BTreeMap::new(),
        flavors,
    };
    let info = infos(&facts)?.into_iter().next();
    Ok(info.map(|info| PodSetInfo {
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ..info
    }))
}

fn copy_limits(container: &mut Value) {
    let Some(limits) = container
        .pointer("/resources/limits")
        .and_then(Value::as_object)
        .cloned()
    else {
        return;
    };
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
        return;
    };
    let requests = resources.entry("requests").or_insert(Value::Null);
    if requests.is_null() {
        *requests = Value::Object(serde_json::Map::new());
    }
    if let Some(requests) = requests.as_object_mut() {
        for (resource, amount) in limits {
            requests.entry(resource).or_insert(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use roadstead_api::kueue::v1beta2 as api;
    use roadstead_core::name::FlavorName;
    use roadstead_core::queue::Flavor;
    use serde_json::json;

    use super::{InjectError, content};

    fn workload() -> api::Workload {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": { "name": "w", "namespace": "ns", "uid": "u" },
            "spec": { "queueName": "q", "podSets": [{ "name": "main", "count": 2, "template": {
                "metadata": { "labels": { "app": "a" } },
                "spec": {
                    "nodeSelector": { "zone": "z" },
                    "containers": [
                        { "name": "a", "resources": { "limits": { "cpu": "2", "gpu": "1" }, "requests": { "cpu": "1" } } },
                        { "name": "b", "resources": { "limits": { "cpu": "3" } } },
                        { "name": "c" },
                    ],
                    "initContainers": [{ "name": "i", "resources": { "limits": { "cpu": "4" } } }],
                    "futureField": { "kept": true },
                },
            } }] },
            "status": { "admission": { "clusterQueue": "cq", "podSetAssignments": [
                { "name": "main", "count": 2, "flavors": { "cpu": "spot", "gpu": "spot" } },
            ] } },
        }))
        .unwrap()
    }

    fn spot() -> BTreeMap<FlavorName, Flavor> {
        let flavor: api::ResourceFlavor = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": "spot" },
            "spec": {
                "nodeLabels": { "pool": "spot" },
                "tolerations": [{ "key": "spot", "operator": "Exists", "effect": "NoSchedule" }],
            },
        }))
        .unwrap();
        BTreeMap::from([(FlavorName::from("spot"), roadstead_convert::flavor(&flavor))])
    }

    /// Spec: provisioning 6.2, 15.10.
    #[test]
    fn the_template_has_flavor_labels_tolerations_and_requests_from_limits_and_nothing_of_a_start() {
        let workload = workload();
        let got = content(
            &roadstead_convert::workload(&workload),
            &workload.spec.pod_sets[0],
            &spot(),
        )
        .unwrap();
        assert_eq!(
            got.unwrap(),
            json!({
                "metadata": { "labels": { "app": "a" } },
                "spec": {
                    "nodeSelector": { "zone": "z", "pool": "spot" },
                    "tolerations": [{ "key": "spot", "operator": "Exists", "effect": "NoSchedule" }],
                    "containers": [
                        { "name": "a", "resources": {
                            "limits": { "cpu": "2", "gpu": "1" }, "requests": { "cpu": "1", "gpu": "1" } } },
                        { "name": "b", "resources": { "limits": { "cpu": "3" }, "requests": { "cpu": "3" } } },
                        { "name": "c" },
                    ],
                    "initContainers": [
                        { "name": "i", "resources": { "limits": { "cpu": "4" }, "requests": { "cpu": "4" } } },
                    ],
                    "futureField": { "kept": true },
                },
            })
        );
    }

    #[test]
    fn a_missing_flavor_is_named_and_without_admission_there_is_no_template() {
        let mut workload = workload();
        let parsed = roadstead_convert::workload(&workload);
        let got = content(&parsed, &workload.spec.pod_sets[0], &BTreeMap::new());
        assert_eq!(got, Err(InjectError::MissingFlavor(FlavorName::from("spot"))));
        workload.status = None;
        let parsed = roadstead_convert::workload(&workload);
        assert_eq!(content(&parsed, &workload.spec.pod_sets[0], &spot()), Ok(None));
    }
}
