//! From the caches to the brain: changes are marked, read when the brain gets to them, parsed once, and handed over.
//!
//! Invariant: the brain sees the latest state of every object that changed, but not every state in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use roadstead_core::name::{CheckName, ClusterQueueName, CohortName, FlavorName, Key, Uid};
use roadstead_core::state::Event;
use roadstead_kubeio::cache::{Cache, Change};
use roadstead_kubeio::dirty::Dirty;

use crate::caches::Caches;

/// An object that changed. The order is that in which the brain takes a batch: configuration before workloads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Namespace(Key),
    Flavor(Key),
    Check(Key),
    Cohort(Key),
    ClusterQueue(Key),
    LocalQueue(Key),
    /// A Workload; the UID tells it from a successor of the same name.
    Workload(Key, String),
}

/// Marks every change in `caches` from now on.
pub(crate) fn connect(caches: &Caches) -> Arc<Dirty<Subject>> {
    let dirty = Arc::new(Dirty::default());
    mark(&caches.namespaces, &dirty, Subject::Namespace);
    mark(&caches.flavors, &dirty, Subject::Flavor);
    mark(&caches.checks, &dirty, Subject::Check);
    mark(&caches.cohorts, &dirty, Subject::Cohort);
    mark(&caches.cluster_queues, &dirty, Subject::ClusterQueue);
    mark(&caches.local_queues, &dirty, Subject::LocalQueue);
    let set = dirty.clone();
    caches.workloads.listen(move |change| {
        for workload in [change.old, change.new].into_iter().flatten() {
            let uid = workload.metadata.uid.clone().unwrap_or_default();
            set.mark(Subject::Workload(change.key.clone(), uid));
        }
    });
    let set = dirty.clone();
    caches.on_recount(move |workload| {
        let key = roadstead_kubeio::cache::key_of(&**workload);
        set.mark(Subject::Workload(
            key,
            workload.metadata.uid.clone().unwrap_or_default(),
        ));
    });
    dirty
}

fn mark<K: kube::Resource + Send + Sync + 'static>(
    cache: &Arc<Cache<K>>,
    dirty: &Arc<Dirty<Subject>>,
    subject: fn(Key) -> Subject,
) {
    let dirty = dirty.clone();
    cache.listen(move |change: &Change<'_, K>| dirty.mark(subject(change.key.clone())));
}

/// Reads the present state of a subject, as events for the brain.
pub(crate) fn events(caches: &Caches, subject: Subject) -> impl Iterator<Item = Event> {
    let past = match &subject {
        Subject::LocalQueue(key) => caches.local_queues.get(key).and_then(|queue| {
            Some(Event::PastUsage {
                local: key.clone(),
                past: roadstead_convert::past_usage(&queue)?,
            })
        }),
        Subject::Namespace(_)
        | Subject::Flavor(_)
        | Subject::Check(_)
        | Subject::Cohort(_)
        | Subject::ClusterQueue(_)
        | Subject::Workload(..) => None,
    };
    std::iter::once(event(caches, subject)).chain(past)
}

fn event(caches: &Caches, subject: Subject) -> Event {
    match subject {
        Subject::Namespace(key) => match caches.namespaces.get(&key) {
            Some(namespace) => Event::Namespace {
                name: key.name,
                labels: namespace.metadata.labels.clone().unwrap_or_default(),
            },
            None => Event::NamespaceGone(key.name),
        },
        Subject::Flavor(key) => match caches.flavors.get(&key) {
            Some(flavor) => Event::Flavor(roadstead_convert::flavor(&flavor)),
            None => Event::FlavorGone(FlavorName::new(key.name)),
        },
        Subject::Check(key) => match caches.checks.get(&key) {
            Some(check) => Event::Check(roadstead_convert::check(&check)),
            None => Event::CheckGone(CheckName::new(key.name)),
        },
        Subject::Cohort(key) => match caches.cohorts.get(&key) {
            Some(cohort) => Event::Cohort(roadstead_convert::cohort(&cohort)),
            None => Event::CohortGone(CohortName::new(key.name)),
        },
        Subject::ClusterQueue(key) => match caches.cluster_queues.get(&key) {
            Some(queue) => Event::ClusterQueue(Box::new(roadstead_convert::cluster_queue(&queue))),
            None => Event::ClusterQueueGone(ClusterQueueName::new(key.name)),
        },
        Subject::LocalQueue(key) => match caches.local_queues.get(&key) {
            Some(queue) => Event::LocalQueue(roadstead_convert::local_queue(&queue)),
            None => Event::LocalQueueGone(key),
        },
        Subject::Workload(key, uid) => match caches.workloads.get(&key) {
            Some(workload) if workload.metadata.uid.as_deref() == Some(uid.as_str()) => {
                Event::Workload(Box::new(caches.counted(&workload)))
            }
            Some(_) | None => Event::WorkloadGone {
                key,
                uid: Uid::new(uid),
            },
        },
    }
}

pub(crate) fn namespace_labels(caches: &Caches, name: &str) -> Option<BTreeMap<String, String>> {
    caches
        .namespaces
        .named(name)
        .map(|n| n.metadata.labels.clone().unwrap_or_default())
}
