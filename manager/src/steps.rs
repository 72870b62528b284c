//! The manager's own pods that are steps of Argo Workflows: by the name of their result, and by their Workflow.
//!
//! *Source*: `spec/jobs.md 13.2`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_core::name::Key;
use roadstead_engine::caches::{Caches, KindCache};
use roadstead_kinds::rows;

/// Annotation of a pod: the name of its result.
const NODE_ID: &str = "workflows.argoproj.io/node-id";

/// The steps. Empty where pods are not queued.
#[derive(Debug, Default)]
pub(crate) struct Steps(Mutex<Index>);

#[derive(Debug, Default)]
struct Index {
    /// Pods by the namespace and name of their result.
    by_result: BTreeMap<Key, Key>,
    /// UIDs of pods by the UID of their Workflow.
    by_workflow: BTreeMap<String, BTreeSet<String>>,
}

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
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = old.and_then(result_of) {
            index.by_result.remove(&result);
        }
        if let Some(result) = new.and_then(result_of) {
            index.by_result.insert(result, key.clone());
        }
        if let Some((workflow, pod)) = old.and_then(place_of)
            && let Some(pods) = index.by_workflow.get_mut(&workflow)
        {
            pods.remove(&pod);
            if pods.is_empty() {
                index.by_workflow.remove(&workflow);
            }
        }
        if let Some((workflow, pod)) = new.and_then(place_of) {
            index.by_workflow.entry(workflow).or_default().insert(pod);
        }
    }

    /// The pod whose result has this name.
    pub(crate) fn pod_of(&self, result: &Key) -> Option<Key> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.by_result.get(result).cloned()
    }

    /// The first answer for another pod of the same Workflow, by their UIDs.
    pub(crate) fn among_others<T>(
        &self,
        pod: &DynamicObject,
        mut answer: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let (workflow, own) = place_of(pod)?;
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = index.by_workflow.get(&workflow)?.iter();
        others.find_map(|other| (*other != own).then(|| answer(other))?)
    }
}

/// The manager's own pods.
pub(crate) fn pods_of(caches: &Caches) -> Option<&KindCache> {
    { caches.jobs.iter() }.find(|jobs| jobs.kind.kind() == &rows::POD)
}

/// The Workflow of a pod.
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

/// The UIDs of the Workflow of a pod, and of the pod.
fn place_of(pod: &DynamicObject) -> Option<(String, String)> {
    Some((workflow_of(pod)?.uid.clone(), pod.uid()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    const API_VERSION: &str = "argoproj.io/v1alpha1";

    fn pod(name: &str, workflow: &str) -> DynamicObject {
        let owner = json!({"apiVersion": API_VERSION, "kind": "Workflow", "name": "etl", "uid": workflow});
        from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "ownerReferences": [owner],
                "annotations": {NODE_ID: format!("node-{name}")},
            },
        }))
        .unwrap()
    }

    /// Spec: jobs 13.2
    #[test]
    fn a_step_is_found_by_its_result_and_beside_the_other_steps_of_its_workflow() {
        let steps = Steps::default();
        let key = |name: &str| Key::new("ns", name);
        let (first, second, foreign) = (pod("a", "w"), pod("b", "w"), pod("c", "v"));
        for (name, pod) in [("a", &first), ("b", &second), ("c", &foreign)] {
            steps.note(&key(name), None, Some(pod));
        }
        assert_eq!(steps.pod_of(&key("node-a")), Some(key("a")));
        let others = |pod: &DynamicObject| {
            let mut seen = Vec::new();
            steps.among_others(pod, |uid| {
                seen.push(uid.to_owned());
                None::<()>
            });
            seen
        };
        assert_eq!(others(&second), ["uid-a"]);
        assert_eq!(others(&foreign), [""; 0]);
        steps.note(&key("a"), Some(&first), None);
        assert_eq!(steps.pod_of(&key("node-a")), None);
        assert_eq!(others(&second), [""; 0]);
    }
}
