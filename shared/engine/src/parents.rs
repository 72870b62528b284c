//! Objects that make queued pods: a pod names the kind of its parent, and the parent may name the kind of its own parent.
//!
//! *Source*: `spec/jobs.md 9.11 to 9.13, 4.1`.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::config::Config;
use roadstead_api::constants::{annotations, labels};
use roadstead_core::name::Key;
use roadstead_jobs::kind::Mark;
use roadstead_jobs::labels::annotation;
use roadstead_kinds::Kind;
use roadstead_kubeio::failure::Failure;

use crate::caches::{Caches, KindCache, member};

/// Whether the configuration enables the integration of this kind, so that its objects are queued themselves.
pub(crate) fn is_listed(config: &Config, kind: &Kind) -> bool {
    { config.integrations.frameworks.iter() }.any(|name| name == kind.framework)
}

/// The kind of the object's maker, as the object names it.
pub(crate) fn said(object: &DynamicObject) -> Option<&str> {
    annotation(&object.metadata, annotations::POD_SUSPENDING_PARENT).filter(|framework| !framework.is_empty())
}

/// The object that made a pod and describes the pod's group; `None` when there is none.
///
/// *Errors*: the object is not known yet; a sentence for its user.
pub(crate) fn of<'a>(
    caches: &'a Caches,
    pod: &DynamicObject,
) -> Result<Option<(&'a KindCache, Arc<DynamicObject>)>, Failure> {
    if pod.labels().contains_key(labels::MULTIKUEUE_ORIGIN) {
        // Why: a manager sent this copy, and the object that made its pod is in the manager's cluster.
        return Ok(None);
    }
    let kind =
        said(pod).and_then(|said| { caches.jobs.iter() }.find(|jobs| jobs.kind.kind().framework == said));
    let Some((jobs, name)) = kind.and_then(|jobs| Some((jobs, jobs.kind.parent_of(&pod.metadata)?))) else {
        return Ok(None);
    };
    let key = Key::new(pod.namespace().unwrap_or_default(), name);
    match jobs.objects.get(&key) {
        Some(parent) => Ok(Some((jobs, parent))),
        None => Err(Failure::passing(format!(
            "the {} {key} of this pod is not known yet; try again in a moment",
            jobs.kind.kind().kind
        ))),
    }
}

/// The labels and annotations that a new pod gets from its parent.
///
/// *Errors*: as [`of`].
pub(crate) fn mark(caches: &Caches, pod: &DynamicObject) -> Result<Option<Mark>, Failure> {
    let Some((jobs, parent)) = of(caches, pod)? else {
        return Ok(None);
    };
    match jobs.kind.mark(member(&parent), &pod.metadata) {
        Some(mark) => Ok(Some(mark)),
        // Why refused: a pod without a mark would wait for ever, and the cached parent may be out of date.
        None => Err(Failure::passing(format!(
            "the {} {} has no place for this pod, as far as is known; try again in a moment",
            jobs.kind.kind().kind,
            parent.name_any()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    /// The manager has described its group already, and the object that made its pod is there.
    ///
    /// Spec: jobs 9.13, 12.9
    #[test]
    fn a_copy_that_a_manager_sent_does_not_wait_for_its_maker() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let pod = |labels: Value| -> DynamicObject {
            from_value(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "llm-0", "namespace": "ns", "labels": labels,
                    "annotations": {annotations::POD_SUSPENDING_PARENT: "leaderworkerset.x-k8s.io/leaderworkerset"},
                },
            }))
            .unwrap()
        };
        let named = json!({"leaderworkerset.sigs.k8s.io/name": "llm"});
        assert!(mark(&caches, &pod(named.clone())).is_err());
        let mut sent = named;
        sent[labels::MULTIKUEUE_ORIGIN] = json!("hub");
        assert_eq!(mark(&caches, &pod(sent)), Ok(None));
    }
}
