//! The manager's own pods that stay in one cluster together: the steps of an Argo Workflow, the pods of a Deployment, the replicas of a
//! `LeaderWorkerSet`.
//!
//! *Source*: `spec/jobs.md 9.11, 9.13, 13.2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::constants::annotations;
use roadstead_core::dispatch::together::Course;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::{Caches, JobKey, KindCache};

use crate::steps::{pods_of, workflow_of};

/// The object to which pods belong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    /// A Workflow, by its UID.
    Workflow(String),
    /// An object of the kind of this integration. Why by its name: the owners of its pods are objects between them and it, so the
    /// pods do not show its UID.
    Made { framework: &'static str, key: Key },
}

/// The place of a pod in its family.
struct Place {
    family: Family,
    uid: String,
    kin: Kin,
}

/// A pod of a family.
#[derive(Debug)]
struct Kin {
    /// Its job: the pod itself, or its group.
    job: JobKey,
    template: Template,
}

/// The template that a pod was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Template {
    /// Each pod may have a template of its own.
    Own,
    /// The pods share the template of the family; this is its revision.
    Shared(String),
}

/// Another pod of the same family.
pub(crate) struct Relative<'a> {
    /// Its UID.
    pub(crate) uid: &'a str,
    /// Its job: the pod itself, or its group.
    pub(crate) job: &'a JobKey,
    /// Whether it was made from the same revision of the template, so that it has the same needs.
    pub(crate) is_alike: bool,
}

/// Where each Workload that seeks a cluster and has relatives may go, by its last pass. A Workload is missing while a pass decides that.
///
/// Why kept: without it, each of the `n` pods of an object that gets a cluster would make all pods that still seek one due, which are
/// about `n`² passes.
#[derive(Debug, Default)]
pub(crate) struct Courses(Mutex<BTreeMap<Key, Course>>);

impl Courses {
    /// Notes where a Workload may go.
    pub(crate) fn note(&self, key: Key, course: Course) {
        self.all().insert(key, course);
    }

    /// Forgets where a Workload might go.
    pub(crate) fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Whether the Workload may have to go elsewhere because a relative got this cluster, or with `None` stopped seeking one.
    pub(crate) fn changes(&self, key: &Key, cluster: Option<&ClusterName>) -> bool {
        self.all().get(key).is_none_or(|course| course.changes(cluster))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Course>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The families. Empty where pods are not queued.
#[derive(Debug, Default)]
pub(crate) struct Families {
    /// The pods of each family, by UID.
    pods: Mutex<BTreeMap<Family, BTreeMap<String, Kin>>>,
    /// Where their Workloads may go.
    pub(crate) courses: Courses,
}

impl Families {
    /// Follows the pods of the manager.
    pub(crate) fn follow(caches: &Caches) -> Arc<Self> {
        let families = Arc::<Self>::default();
        if let Some(pods) = pods_of(caches) {
            let (index, of_kind) = (families.clone(), pods.clone());
            pods.objects.listen(move |change| {
                index.note(
                    &of_kind,
                    change.old.map(|pod| &**pod),
                    change.new.map(|pod| &**pod),
                );
            });
        }
        families
    }

    fn note(&self, pods: &KindCache, old: Option<&DynamicObject>, new: Option<&DynamicObject>) {
        let mut families = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Place { family, uid, .. }) = old.and_then(|pod| place_of(pods, pod))
            && let Some(kin) = families.get_mut(&family)
        {
            kin.remove(&uid);
            if kin.is_empty() {
                families.remove(&family);
            }
        }
        if let Some(place) = new.and_then(|pod| place_of(pods, pod)) {
            let kin = families.entry(place.family).or_default();
            kin.insert(place.uid, place.kin);
        }
    }

    /// The first answer for a pod of the same family that belongs to another job.
    pub(crate) fn among_others<T>(
        &self,
        pods: &KindCache,
        pod: &DynamicObject,
        mut answer: impl FnMut(Relative<'_>) -> Option<T>,
    ) -> Option<T> {
        let Place { family, kin: own, .. } = place_of(pods, pod)?;
        let families = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = { families.get(&family)?.iter() }.filter(|(_, one)| one.job != own.job);
        others.find_map(|(uid, Kin { job, template })| {
            answer(Relative {
                uid,
                job,
                is_alike: *template == own.template && *template != Template::Own,
            })
        })
    }
}

fn place_of(pods: &KindCache, pod: &DynamicObject) -> Option<Place> {
    let uid = pod.uid()?;
    let (family, template) = family_of(pod)?;
    let job = pods.key_of(pod);
    let kin = Kin { job, template };
    Some(Place { family, uid, kin })
}

fn family_of(pod: &DynamicObject) -> Option<(Family, Template)> {
    if let Some(workflow) = workflow_of(pod) {
        return Some((Family::Workflow(workflow.uid.clone()), Template::Own));
    }
    let kind = roadstead_jobs::kind_named(pod.annotations().get(annotations::POD_SUSPENDING_PARENT)?)?;
    let maker = kind.maker_of(&pod.metadata)?;
    let family = Family::Made {
        framework: kind.kind().framework,
        key: Key::new(pod.namespace()?, maker.name),
    };
    Some((family, Template::Shared(maker.revision.to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(name: &str, owner: &Value, labels: &Value, framework: &str) -> DynamicObject {
        from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "ownerReferences": [owner], "labels": labels,
                "annotations": {annotations::POD_SUSPENDING_PARENT: framework},
            },
        }))
        .unwrap()
    }

    fn step(name: &str, workflow: &str) -> DynamicObject {
        let owner =
            json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "etl", "uid": workflow});
        pod(name, &owner, &json!({}), "")
    }

    fn replica(name: &str, deployment: &str, hash: &str) -> DynamicObject {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-{hash}"), "uid": hash, "controller": true,
        });
        pod(name, &owner, &json!({"pod-template-hash": hash}), "deployment")
    }

    fn rank(name: &str, set: &str, revision: &str) -> DynamicObject {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": set, "controller": true});
        let labels = json!({
            "leaderworkerset.sigs.k8s.io/name": set, "leaderworkerset.sigs.k8s.io/template-revision-hash": revision,
        });
        pod(name, &owner, &labels, "leaderworkerset.x-k8s.io/leaderworkerset")
    }

    /// A pod of a group, which is one job.
    fn in_group(mut pod: DynamicObject, group: &str) -> DynamicObject {
        let notes = pod.annotations_mut();
        notes.insert(annotations::POD_GROUP_NAME.to_owned(), group.to_owned());
        pod
    }

    fn pods() -> KindCache {
        KindCache::new(roadstead_jobs::kind_named("pod").unwrap())
    }

    fn others(families: &Families, pod: &DynamicObject) -> Vec<(String, bool)> {
        let mut seen = Vec::new();
        families.among_others(&pods(), pod, |other| {
            seen.push((other.uid.to_owned(), other.is_alike));
            None::<()>
        });
        seen
    }

    /// Spec: jobs 9.11, 9.13, 13.2
    #[test]
    fn pods_are_related_by_their_workflow_deployment_or_leaderworkerset() {
        let families = Families::default();
        let all = [
            step("a", "w"),
            step("b", "w"),
            step("c", "v"),
            replica("d", "web", "1"),
            replica("e", "web", "1"),
            replica("f", "web", "2"),
            replica("g", "web-1", "1"),
            rank("h", "llm", "x"),
            rank("i", "llm", "x"),
            rank("j", "web", "1"),
        ];
        for pod in &all {
            families.note(&pods(), None, Some(pod));
        }
        let of = |name: usize| -> Vec<(String, bool)> { others(&families, &all[name]) };
        let named = |all: &[(&str, bool)]| -> Vec<(String, bool)> {
            all.iter()
                .map(|(name, is_alike)| ((*name).to_owned(), *is_alike))
                .collect()
        };
        assert_eq!(of(0), named(&[("b", false)]), "steps differ");
        assert_eq!(of(3), named(&[("e", true), ("f", false)]));
        assert_eq!(of(7), named(&[("i", true)]));
        assert_eq!(of(9), named(&[]));
        families.note(&pods(), Some(&all[4]), None);
        assert_eq!(others(&families, &all[3]), named(&[("f", false)]));
    }

    /// Spec: jobs 9.13
    #[test]
    fn the_pods_of_one_replica_are_one_job_and_the_others_are_its_relatives() {
        let families = Families::default();
        let all = [
            in_group(rank("llm-0", "llm", "x"), "a"),
            in_group(rank("llm-0-1", "llm", "x"), "a"),
            in_group(rank("llm-1", "llm", "x"), "b"),
            in_group(rank("llm-1-1", "llm", "y"), "b"),
        ];
        for pod in &all {
            families.note(&pods(), None, Some(pod));
        }
        let mut seen = Vec::new();
        families.among_others(&pods(), &all[1], |other| {
            seen.push((other.uid.to_owned(), other.job.clone(), other.is_alike));
            None::<()>
        });
        let group = || JobKey::Group(Key::new("ns", "b"));
        let expected = [
            ("llm-1".to_owned(), group(), true),
            ("llm-1-1".to_owned(), group(), false),
        ];
        assert_eq!(seen, expected);
    }

    /// Spec: jobs 9.11, 9.13
    #[test]
    fn a_relative_in_a_cluster_changes_nothing_for_those_that_were_told_to_go_there() {
        let courses = Courses::default();
        let (key, [east, west]) = (Key::new("ns", "a"), ["east", "west"].map(ClusterName::from));
        assert!(courses.changes(&key, Some(&east)), "a pass is under way");
        courses.note(key.clone(), Course::To(east.clone()));
        assert!(!courses.changes(&key, Some(&east)));
        assert!(courses.changes(&key, Some(&west)));
        courses.forget(&key);
        assert!(courses.changes(&key, Some(&east)));
    }

    #[test]
    fn a_pod_of_no_such_object_has_no_family() {
        let families = Families::default();
        let none = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
        for (labels, framework) in [
            (json!({}), "deployment"),
            (json!({"pod-template-hash": "1"}), "deployment"),
            (json!({}), "no.such/kind"),
            (json!({}), ""),
        ] {
            let both = ["a", "b"].map(|name| pod(name, &none, &labels, framework));
            for pod in &both {
                families.note(&pods(), None, Some(pod));
            }
            assert!(others(&families, &both[0]).is_empty(), "{framework}");
        }
    }
}
