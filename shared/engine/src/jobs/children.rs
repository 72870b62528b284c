//! Child jobs: jobs that the controller of another job makes for it, such as the `RayCluster` of a `RayService`.

use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::labels::gated_by;
use roadstead_kinds::Members;
use roadstead_kubeio::index::Index;
use roadstead_kubeio::queue::Lane;

use super::Jobs;
use crate::caches::{Caches, JobKey, JobRef, KindCache};

/// The jobs of one kind by the UIDs of their owners.
fn by_owner(children: &KindCache) -> Arc<Index<String, JobKey>> {
    let index = Arc::<Index<_, _>>::default();
    let (noted, of_kind) = (index.clone(), children.clone());
    children.objects.listen(move |change| {
        let entries = |child: Option<&Arc<DynamicObject>>| {
            let owned = child.into_iter().flat_map(|child| {
                let key = of_kind.key_of(child);
                let owners = child.owner_references().iter();
                owners.map(move |owner| (owner.uid.clone(), key.clone()))
            });
            owned.collect::<Vec<_>>()
        };
        noted.note(entries(change.old), entries(change.new));
    });
    index
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
            let index = by_owner(children);
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

impl Jobs {
    /// Makes pods due whenever the admission gates of the object that made them change: only that object carries them.
    pub(super) fn listen_for_gates(&self) {
        for makers in self.caches.jobs.iter() {
            if makers.kind.kind().members != Members::WithPods {
                continue;
            }
            let (due, caches, kind) = (self.due.clone(), self.caches.clone(), makers.kind);
            makers.objects.listen(move |change| {
                let gates = |object: &Arc<DynamicObject>| gated_by(&object.metadata).map(str::to_owned);
                if change.old.and_then(gates) == change.new.and_then(gates) {
                    return;
                }
                for at in pods_of(&caches, kind, change.key) {
                    due.add(at, Lane::New);
                }
            });
        }
    }
}

/// The jobs whose pods this object has made.
fn pods_of(caches: &Caches, kind: &dyn JobKind, maker: &Key) -> Vec<JobRef> {
    let mut found = Vec::new();
    for (kind_of_pods, jobs) in caches
        .jobs
        .iter()
        .enumerate()
        .filter(|(_, jobs)| jobs.has_groups())
    {
        for pod in jobs.objects.all() {
            let is_here = pod.metadata.namespace.as_deref() == Some(&*maker.namespace);
            if is_here && kind.parent_of(&pod.metadata) == Some(&*maker.name) {
                let key = jobs.key_of(&pod);
                found.push(JobRef {
                    kind: kind_of_pods,
                    key,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_pods_of_a_set_are_found_by_its_name() {
        let caches = Caches::new(&roadstead_jobs::registry());
        let pods = { caches.jobs.iter() }.find(|jobs| jobs.has_groups()).unwrap();
        for (name, namespace, set) in [("a-0", "ns", "a"), ("b-0", "ns", "b"), ("a-0", "other", "a")] {
            let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": set, "controller": true});
            let metadata = json!({
                "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "ownerReferences": [owner],
            });
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
            pods.objects.observe(from_value(pod).unwrap());
        }
        let set = roadstead_jobs::kind_named("statefulset").unwrap();
        let found = pods_of(&caches, set, &Key::new("ns", "a"));
        assert_eq!(
            found.iter().map(|at| &*at.key.key().name).collect::<Vec<_>>(),
            ["a-0"]
        );
    }

    #[test]
    fn children_are_found_by_the_uid_of_their_owner_until_they_are_gone() {
        let children = KindCache::new(roadstead_jobs::kind_named("ray.io/raycluster").unwrap());
        let index = by_owner(&children);
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
    }
}
