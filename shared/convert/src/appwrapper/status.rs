//! The status of an `AppWrapper`: parsed, and printed as a patch.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as ApiCondition;
use roadstead_api::appwrapper::v1beta2::{
    AppWrapper, AppWrapperComponentStatus, AppWrapperPodSet, AppWrapperStatus,
};
use roadstead_core::appwrapper::status::{ComponentStatus, Identity, Phase, PodSet, Status};
use roadstead_core::condition::Conditions;
use roadstead_jobs::json;
use serde_json::{Value, json};

use super::spec::pod_set;
use crate::inward::conditions;
use crate::outward::api_condition;

/// The status of an `AppWrapper`; `None` when this version does not know its phase.
pub fn status(wrapper: &AppWrapper) -> Option<Status> {
    let Some(stored) = &wrapper.status else {
        return Some(Status::default());
    };
    let components = stored.component_status.iter().map(|component| ComponentStatus {
        identity: Identity {
            api_version: component.api_version.clone(),
            kind: component.kind.clone(),
            name: component.name.clone(),
        },
        pod_sets: component.pod_sets.iter().map(pod_set).collect(),
        conditions: conditions(&component.conditions),
    });
    Some(Status {
        phase: Phase::parse(&stored.phase)?,
        retries: stored.resetting_count,
        conditions: conditions(&stored.conditions),
        components: components.collect(),
    })
}

/// The merge patch that gives an `AppWrapper` this status; `None` when it has it already.
///
/// The patch contains the resource version, so that the API server answers a stale view with a conflict.
pub fn status_patch(wrapper: &AppWrapper, status: &Status) -> Option<Value> {
    let components = status
        .components
        .iter()
        .map(|component| AppWrapperComponentStatus {
            name: component.identity.name.clone(),
            kind: component.identity.kind.clone(),
            api_version: component.identity.api_version.clone(),
            pod_sets: component.pod_sets.iter().map(api_pod_set).collect(),
            conditions: api_conditions(&component.conditions),
        });
    let after = AppWrapperStatus {
        phase: status.phase.as_str().to_owned(),
        resetting_count: status.retries,
        conditions: api_conditions(&status.conditions),
        component_status: components.collect(),
    };
    let before = wrapper.status.clone().unwrap_or_default();
    let (before, after) = (
        serde_json::to_value(before).ok()?,
        serde_json::to_value(after).ok()?,
    );
    let difference = json::difference(&before, &after)?;
    let version = wrapper.metadata.resource_version.as_deref();
    Some(json!({"metadata": {"resourceVersion": version}, "status": difference}))
}

fn api_pod_set(set: &PodSet) -> AppWrapperPodSet {
    AppWrapperPodSet {
        replicas: set.replicas,
        path: set.path.clone(),
        annotations: set.annotations.clone(),
    }
}

fn api_conditions(conditions: &Conditions) -> Vec<ApiCondition> {
    let all = conditions.iter();
    all.map(|(kind, condition)| api_condition(kind, condition, condition.observed_generation))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapper(status: &Value) -> AppWrapper {
        serde_json::from_value(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"name": "aw", "resourceVersion": "7"}, "spec": {"components": []}, "status": status,
        }))
        .unwrap()
    }

    /// Spec: appwrapper 1.3, 2.5.
    #[test]
    fn a_status_comes_back_as_it_was() {
        let said = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let stored = json!({
            "phase": "Running", "resettingCount": 1,
            "conditions": [said("QuotaReserved", "True", "Resuming"), said("Unhealthy", "False", "Resuming")],
            "componentStatus": [{
                "name": "a", "kind": "Job", "apiVersion": "batch/v1",
                "podSets": [{"path": "template.spec.template", "replicas": 2}],
                "conditions": [said("ResourcesDeployed", "Unknown", "ComponentCreationInitiated")],
            }],
        });
        let stored = wrapper(&stored);
        let read = status(&stored).unwrap();
        assert_eq!(status_patch(&stored, &read), None);
        assert_eq!((read.phase, read.retries), (Phase::Running, 1));
        assert!(status(&wrapper(&json!({"phase": "Dancing"}))).is_none());
    }

    /// Spec: appwrapper B5.
    #[test]
    fn empty_names_of_components_are_written() {
        let status = Status {
            phase: Phase::Suspended,
            components: vec![ComponentStatus::default()],
            ..Status::default()
        };
        let patch = status_patch(&wrapper(&Value::Null), &status).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7"}, "status": {
                "phase": "Suspended",
                "componentStatus": [{"name": "", "kind": "", "apiVersion": "", "podSets": []}],
            }})
        );
    }
}
