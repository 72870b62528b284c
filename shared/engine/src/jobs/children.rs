//! Child jobs: jobs that the controller of another job makes for it, such as the `RayCluster` of a `RayService`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_kubeio::cache::Change;
use roadstead_kubeio::queue::Lane;

use super::Jobs;
use crate::caches::{JobKey, JobRef, KindCache};

/// The jobs of one kind by the UIDs of their owners. Why: a search of all of them for each change of a parent would cost the square of
/// their number.
#[derive(Debug, Default)]
struct ChildIndex(Mutex<BTreeMap<String, BTreeSet<JobKey>>>);

impl ChildIndex {
    fn of(&self, uid: &str) -> BTreeSet<JobKey> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.get(uid).cloned().unwrap_or_default()
    }

    fn note(&self, children: &KindCache, change: &Change<'_, DynamicObject>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = change.old {
            for owner in child.owner_references() {
                let Some(keys) = index.get_mut(&owner.uid) else {
                    continue;
                };
                keys.remove(&children.key_of(child));
                if keys.is_empty() {
                    index.remove(&owner.uid);
                }
            }
        }
        if let Some(child) = change.new {
            for owner in child.owner_references() {
                let keys = index.entry(owner.uid.clone()).or_default();
                keys.insert(children.key_of(child));
            }
        }
    }
}

impl Jobs {
    /// Makes child jobs due whenever their parent job or its Workload changes. Children follow their parent, and nothing on them
    /// shows that the parent was started or stopped.
    pub(super) fn listen_for_children(&self) {
        let position = |framework: &str| {
            let mut kinds = self.caches.jobs.iter();
            kinds.position(|jobs| jobs.kind.kind().framework == framework && !jobs.has_groups())
        };
        for parents in self.caches.jobs.iter() {
            let Some(kind) = parents.kind.kind().implies.and_then(position) else {
                continue;
            };
            let Some(children) = self.caches.jobs.get(kind) else {
                continue;
            };
            let index = Arc::<ChildIndex>::default();
            let (noted, of_kind) = (index.clone(), children.clone());
            children
                .objects
                .listen(move |change| noted.note(&of_kind, change));
            let due = self.due.clone();
            let wake = Arc::new(move |uid: &str| {
                for key in index.of(uid) {
                    due.add(JobRef { kind, key }, Lane::Placed);
                }
            });
            let of_parent = wake.clone();
            parents.objects.listen(move |change| {
                if let Some(uid) = change.new.and_then(|parent| parent.metadata.uid.as_deref()) {
                    of_parent(uid);
                }
            });
            // Why the Workloads of the parents too: they decide whether the children run, and they change after the parent.
            let of_kind = parents.kind.kind().kind;
            self.caches.workloads.listen(move |change| {
                let owners = change
                    .new
                    .into_iter()
                    .flat_map(|workload| workload.owner_references());
                for owner in owners.filter(|owner| owner.kind == of_kind) {
                    wake(&owner.uid);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::name::Key;
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn children_are_found_by_the_uid_of_their_owner_until_they_are_gone() {
        let children = KindCache::new(roadstead_jobs::kind_named("ray.io/raycluster").unwrap());
        let index = Arc::<ChildIndex>::default();
        let (noted, of_kind) = (index.clone(), children.clone());
        children
            .objects
            .listen(move |change| noted.note(&of_kind, change));
        let put = |name: &str, version: u32, owner: &str| {
            let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": owner, "uid": owner});
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(), "ownerReferences": [owner],
            });
            let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata});
            children.objects.observe(from_value(cluster).unwrap());
        };
        let of = |uid: &str| -> Vec<String> {
            index
                .of(uid)
                .iter()
                .map(|job| job.key().name.to_string())
                .collect()
        };
        put("a", 1, "x");
        put("b", 2, "x");
        put("c", 3, "y");
        assert_eq!(
            (of("x"), of("y")),
            (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()])
        );
        put("b", 4, "y");
        children.objects.forget(&Key::new("ns", "a"), None);
        assert_eq!(
            (of("x"), of("y")),
            (Vec::new(), vec!["b".to_owned(), "c".to_owned()])
        );
        assert_eq!(index.0.lock().unwrap().len(), 1);
    }
}
