//! Keeps the priority of a copy on a worker equal to that of the Workload on the manager.

use roadstead_api::kueue::v1beta2::Workload;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write;
use serde_json::{Value, json};

use super::{Site, Tells};

impl Site<'_> {
    pub(super) async fn set_priority(&self) -> Result<(), Failure> {
        let local = self.d.caches.workloads.get(self.key);
        let Some((local, copy)) = local.zip(self.remote.workloads.get(self.key)) else {
            return Ok(());
        };
        let patch = priority_patch(&local, &copy);
        self.patched(
            write::patch(&self.workloads(), &self.key.name, &patch).await,
            "setting the priority",
            Tells::TheLog,
        )
    }
}

/// Why with the UID and the version of the copy: another client may have created an object of this name since.
fn priority_patch(local: &Workload, copy: &Workload) -> Value {
    json!({
        "metadata": { "uid": copy.metadata.uid, "resourceVersion": copy.metadata.resource_version },
        "spec": { "priority": local.spec.priority, "priorityClassRef": local.spec.priority_class_ref },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    /// Spec: safety I7
    #[test]
    fn a_priority_is_set_on_the_copy_that_was_looked_at_and_on_no_other() {
        let workload = |uid: &str, version: &str, priority: i32| -> Workload {
            from_value(json!({
                "metadata": { "name": "w", "namespace": "ns", "uid": uid, "resourceVersion": version },
                "spec": { "podSets": [], "priority": priority },
            }))
            .unwrap()
        };
        let patch = priority_patch(&workload("here", "9", 7), &workload("there", "4", 0));
        assert_eq!(
            patch["metadata"],
            json!({ "uid": "there", "resourceVersion": "4" })
        );
        assert_eq!(patch["spec"]["priority"], 7);
    }
}
