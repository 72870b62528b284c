//! Feeds the changes of all clusters into the ledger, with kube's own watcher, which the product does not use.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::ledger::{Ledger, Place, Presence, Sight};
use super::{Book, Cluster};

/// Starts all watches; they end with the set.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    book: &Arc<Book>,
    (manager, workers): (&Cluster, &[Cluster]),
    kinds: &[ApiResource],
) {
    let jobs = |tasks: &mut JoinSet<()>, cluster: &Cluster, place: Place| {
        for kind in kinds {
            let api = Api::<DynamicObject>::all_with(cluster.client.clone(), kind);
            follow(tasks, book, api, place, Ledger::job);
        }
    };
    jobs(tasks, manager, Place::Manager);
    follow(tasks, book, all(manager), Place::Manager, Ledger::workload);
    follow(
        tasks,
        book,
        all(manager),
        Place::Manager,
        |ledger, sight, cluster: &MultiKueueCluster, _| {
            ledger.cluster(sight.at, cluster);
        },
    );
    for (index, worker) in workers.iter().enumerate() {
        let place = Place::Worker(index);
        jobs(tasks, worker, place);
        follow(tasks, book, all(worker), place, Ledger::pod);
        follow(tasks, book, all(worker), place, Ledger::workload);
        follow(
            tasks,
            book,
            all(worker),
            place,
            move |ledger, sight, request: &ProvisioningRequest, _| {
                let conditions = request.status.iter().flat_map(|status| &status.conditions);
                for condition in { conditions }.filter(|condition| condition.type_ != "Accepted") {
                    ledger.capacity(index, sight.at, &request.name_any(), &condition.reason);
                }
            },
        );
    }
}

fn all<K: Resource<DynamicType = ()>>(cluster: &Cluster) -> Api<K> {
    Api::all(cluster.client.clone())
}

fn follow<K>(
    tasks: &mut JoinSet<()>,
    book: &Arc<Book>,
    api: Api<K>,
    place: Place,
    note: impl Fn(&mut Ledger, Sight, &K, Presence) + Send + 'static,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let book = Arc::clone(book);
    tasks.spawn(async move {
        let mut known: BTreeMap<String, K> = BTreeMap::new();
        let mut listed: BTreeMap<String, K> = BTreeMap::new();
        let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let see = |object: &K, presence| {
                let sight = Sight {
                    place,
                    at: Instant::now(),
                };
                note(&mut book.ledger(), sight, object, presence);
                book.doubt.notify_one();
            };
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    see(&object, Presence::There);
                    listed.insert(object.uid().unwrap_or_default(), object);
                }
                Ok(Event::InitDone) => {
                    let gone = known.iter().filter(|(uid, _)| !listed.contains_key(*uid));
                    gone.for_each(|(_, object)| see(object, Presence::Gone));
                    known = std::mem::take(&mut listed);
                }
                Ok(Event::Apply(object)) => {
                    see(&object, Presence::There);
                    known.insert(object.uid().unwrap_or_default(), object);
                }
                Ok(Event::Delete(object)) => {
                    see(&object, Presence::Gone);
                    known.remove(&object.uid().unwrap_or_default());
                }
                Err(error) => tracing::debug!(%error, "the observer's watch failed; it goes on"),
            }
        }
    });
}
