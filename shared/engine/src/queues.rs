//! Finalizer `kueue.x-k8s.io/resource-in-use` of ClusterQueues, ResourceFlavors, AdmissionChecks and Topologies.
//!
//! Each is kept while something refers to it: a ClusterQueue while a workload holds its quota, a flavor and a check while a
//! ClusterQueue names them, a Topology while a flavor names it.
//!
//! Invariant: the finalizer is removed only from an object that is being deleted.
//! *Source*: `spec/admission-engine.md 7, 9.3 B060, B061`, `spec/api.md API-2.4, API-5, API-6, API-7`.

use std::fmt::{self, Debug};
use std::sync::Arc;

use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::constants::finalizers::RESOURCE_IN_USE;
use roadstead_api::kueue::v1beta2::{ClusterQueue, ResourceFlavor};
use roadstead_core::name::{ClusterQueueName, Key};
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::Outcome;
use roadstead_kubeio::write;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::caches::Caches;
use crate::queue_status::{self, Reports};

/// Concurrent passes.
pub(crate) const WORKERS: usize = 2;

/// An object whose finalizer may have to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    ClusterQueue(Arc<str>),
    Flavor(Arc<str>),
    Check(Arc<str>),
    Topology(Arc<str>),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterQueue(name) => write!(f, "clusterqueue {name}"),
            Self::Flavor(name) => write!(f, "resourceflavor {name}"),
            Self::Check(name) => write!(f, "admissioncheck {name}"),
            Self::Topology(name) => write!(f, "topology {name}"),
        }
    }
}

/// Whether something refers to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    InUse,
    Free,
}

impl From<bool> for Use {
    fn from(used: bool) -> Self {
        if used { Self::InUse } else { Self::Free }
    }
}

#[derive(Clone)]
pub(crate) struct Finalizers {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) reports: Arc<Reports>,
    pub(crate) due: Arc<Queue<Object>>,
}

impl Finalizers {
    /// Makes an object due whenever it, or an object that refers to it, changes.
    pub(crate) fn listen(&self) {
        let due = self.due.clone();
        self.caches.cluster_queues.listen(move |change| {
            due.add(Object::ClusterQueue(change.key.name.clone()), Lane::New);
            let named = |queue: Option<&Arc<ClusterQueue>>| queue.map(|q| names(q)).unwrap_or_default();
            let (old, new) = (named(change.old), named(change.new));
            for object in old.into_iter().filter(|object| !new.contains(object)) {
                due.add(object, Lane::New);
            }
        });
        let due = self.due.clone();
        self.caches.flavors.listen(move |change| {
            due.add(Object::Flavor(change.key.name.clone()), Lane::New);
            let gone = change.old.filter(|_| change.new.is_none());
            due_topology(&due, gone.map(|flavor| &**flavor));
        });
        let due = self.due.clone();
        self.caches
            .checks
            .listen(move |change| due.add(Object::Check(change.key.name.clone()), Lane::New));
        let due = self.due.clone();
        self.caches
            .topologies
            .listen(move |change| due.add(Object::Topology(change.key.name.clone()), Lane::New));
    }

    pub(crate) async fn reconcile(self, object: Object) -> Outcome {
        match &object {
            Object::ClusterQueue(name) => {
                let report = self.reports.cluster_queue(&ClusterQueueName::new(name.clone()));
                // Why in use without a report: a queue that the brain has not evaluated may hold quota.
                let over = report.is_some_and(|report| queue_status::is_over(&report));
                self.settle(&self.caches.cluster_queues, name, Use::from(!over))
                    .await
            }
            Object::Flavor(name) => {
                let used = self.named_by_queues(&object);
                self.settle(&self.caches.flavors, name, used).await
            }
            Object::Check(name) => {
                let used = self.named_by_queues(&object);
                self.settle(&self.caches.checks, name, used).await
            }
            Object::Topology(name) => {
                let flavors = self.caches.flavors.all();
                let used = flavors
                    .iter()
                    .any(|flavor| topology(flavor) == Some(name.as_ref()));
                self.settle(&self.caches.topologies, name, Use::from(used)).await
            }
        }
    }

    fn named_by_queues(&self, object: &Object) -> Use {
        let queues = self.caches.cluster_queues.all();
        Use::from(queues.iter().any(|queue| names(queue).contains(object)))
    }

    async fn settle<K>(&self, cache: &Cache<K>, name: &Arc<str>, used: Use) -> Outcome
    where
        K: Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let Some(stored) = cache.named(name) else {
            return Outcome::Done;
        };
        let Some(wanted) = wanted(&*stored, used) else {
            return Outcome::Done;
        };
        // Why the version: a merge patch replaces the whole list, and another client may have added to it.
        let patch = json!({ "metadata": {
            "finalizers": wanted, "resourceVersion": stored.resource_version(), "uid": stored.uid(),
        }});
        let api: Api<K> = Api::all(self.client.clone());
        let answer = write::patch(&api, name, &patch).await;
        match answer.or_end("changing the finalizers failed") {
            Ok(Some(object)) => {
                let last = object.finalizers().is_empty() && object.meta().deletion_timestamp.is_some();
                if last {
                    cache.forget(&Key::new("", name.clone()), object.uid().as_deref());
                } else {
                    cache.observe(*object);
                }
                Outcome::Done
            }
            Ok(None) => Outcome::Done,
            Err(end) => end,
        }
    }
}

/// The finalizers that an object must have; `None` when it has them.
fn wanted<K: Resource>(stored: &K, used: Use) -> Option<Vec<String>> {
    let has = stored.finalizers().iter().any(|f| f == RESOURCE_IN_USE);
    let mut wanted = stored.finalizers().to_vec();
    match (stored.meta().deletion_timestamp.is_some(), used) {
        (false, Use::InUse | Use::Free) if !has => wanted.push(RESOURCE_IN_USE.to_owned()),
        (true, Use::Free) if has => wanted.retain(|f| f != RESOURCE_IN_USE),
        (true | false, Use::InUse | Use::Free) => return None,
    }
    Some(wanted)
}

/// The flavors and checks that a ClusterQueue names.
fn names(queue: &ClusterQueue) -> Vec<Object> {
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    let checks = queue.spec.admission_checks_strategy.iter();
    let checks = checks.flat_map(|strategy| &strategy.admission_checks);
    flavors
        .map(|flavor| Object::Flavor(flavor.name.as_str().into()))
        .chain(checks.map(|check| Object::Check(check.name.as_str().into())))
        .collect()
}

fn topology(flavor: &ResourceFlavor) -> Option<&str> {
    flavor
        .spec
        .topology_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn due_topology(due: &Queue<Object>, flavor: Option<&ResourceFlavor>) {
    if let Some(name) = flavor.and_then(topology) {
        due.add(Object::Topology(name.into()), Lane::New);
    }
}

#[cfg(test)]
mod tests;
