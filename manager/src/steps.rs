//! The manager's own pods that are steps of Argo Workflows, by the name of their result.
//!
//! *Source*: `spec/jobs.md 13.2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use roadstead_core::name::Key;
use roadstead_engine::caches::{Caches, KindCache};
use roadstead_kinds::rows;

/// Label of pods and results: the name of the Workflow. Every listed result has it.
pub(crate) const WORKFLOW_LABEL: &str = "workflows.argoproj.io/workflow";
/// Annotation of a pod: the name of its result.
const NODE_ID: &str = "workflows.argoproj.io/node-id";

/// The steps by the namespace and name of their result. Empty where pods are not queued.
#[derive(Debug, Default)]
pub(crate) struct Steps(Mutex<BTreeMap<Key, Key>>);

impl Steps {
    /// Follows the pods of the manager.
    pub(crate) fn follow(caches: &Caches) -> Arc<Self> {
        let steps = Arc::<Self>::default();
        if let Some(pods) = pods_of(caches) {
            let index = steps.clone();
            pods.objects.listen(move |change| {
                index.note(
                    change.key,
                    change.old.map(|pod| &**pod),
                    change.new.map(|pod| &**pod),
                );
            });
        }
        steps
    }

    fn note(&self, key: &Key, old: Option<&DynamicObject>, new: Option<&DynamicObject>) {
        let mut by_result = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = old.and_then(result_of) {
            by_result.remove(&result);
        }
        if let Some(result) = new.and_then(result_of) {
            by_result.insert(result, key.clone());
        }
    }

    pub(crate) fn pod_of(&self, result: &Key) -> Option<Key> {
        let by_result = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_result.get(result).cloned()
    }
}

pub(crate) fn result_kind() -> ApiResource {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "WorkflowTaskResult");
    ApiResource::from_gvk_with_plural(&kind, "workflowtaskresults")
}

pub(crate) fn pods_of(caches: &Caches) -> Option<&KindCache> {
    { caches.jobs.iter() }.find(|jobs| jobs.kind.kind() == &rows::POD)
}

pub(crate) fn workflow_of(pod: &DynamicObject) -> Option<&OwnerReference> {
    let row = &rows::WORKFLOW;
    let mut owners = pod.owner_references().iter();
    owners.find(|owner| {
        owner.kind == row.kind && owner.api_version.split_once('/') == Some((row.group, row.version))
    })
}

fn result_of(pod: &DynamicObject) -> Option<Key> {
    let name = pod.annotations().get(NODE_ID)?;
    Some(Key::new(pod.namespace()?, name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// Spec: jobs 13.2
    #[test]
    fn a_step_is_found_by_its_result() {
        let steps = Steps::default();
        let key = |name: &str| Key::new("ns", name);
        let step: DynamicObject = from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "ns", "annotations": {NODE_ID: "node-a"}},
        }))
        .unwrap();
        steps.note(&key("a"), None, Some(&step));
        assert_eq!(steps.pod_of(&key("node-a")), Some(key("a")));
        steps.note(&key("a"), Some(&step), None);
        assert_eq!(steps.pod_of(&key("node-a")), None);
    }
}
