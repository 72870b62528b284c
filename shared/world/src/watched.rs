//! All objects of one kind of a cluster, kept by list and watch and by the answers to the world's own writes.
//!
//! Invariant: an object is only replaced by a newer one, and an object that the world deleted does not come back. While a list
//! is under way no part decides ([`Watched::is_live`]), so an object that was just created never counts as missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

/// Pause before a failed list or watch is tried again. Definitions may come later than the world starts.
const RETRY: Duration = Duration::from_millis(500);

/// Namespace (empty for cluster-scoped kinds) and name.
pub(crate) type Key = (String, String);

pub(crate) struct Watched<K> {
    client: Client,
    events: BoxStream<'static, Result<Event<K>, watcher::Error>>,
    /// The next list or watch is not started before this time.
    not_before: Option<Instant>,
    objects: BTreeMap<Key, Arc<K>>,
    /// The objects that the list under way has brought so far.
    listed: BTreeMap<Key, Arc<K>>,
    live: bool,
    /// UIDs of objects that the world removed before the watch reported their deletion. Later events about them are ignored.
    gone: BTreeSet<String>,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            events: follow(client),
            not_before: None,
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
            live: false,
            gone: BTreeSet::new(),
        }
    }

    /// Takes in the next change. Cancel-safe.
    pub(crate) async fn turn(&mut self) {
        if let Some(until) = self.not_before {
            sleep_until(until).await;
            self.not_before = None;
        }
        match self.events.next().await {
            Some(Ok(event)) => self.take(event),
            Some(Err(error)) => {
                tracing::debug!(kind = %K::kind(&()), %error, "everything is listed again");
                // Why list again: the API server's storage may have been restored from a backup. If its versions have caught up, a
                // watch from the old version would not show the restored objects.
                self.list_again();
                self.not_before = Some(Instant::now() + RETRY);
            }
            None => self.list_again(),
        }
    }

    /// Starts with a new list, as needed after a write with an unknown outcome.
    pub(crate) fn list_again(&mut self) {
        self.events = follow(&self.client);
        self.live = false;
    }

    /// Whether the held objects are those of a complete list and of the watch after it.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    /// Stores the object that a write's answer shows.
    pub(crate) fn observe(&mut self, object: K) {
        let (key, object) = keyed(object);
        put(&mut self.objects, key, object);
    }

    /// Removes an object that was deleted according to a write's answer.
    pub(crate) fn forget(&mut self, key: &Key) {
        if let Some(object) = self.objects.remove(key) {
            self.gone.extend(object.uid());
        }
    }

    fn take(&mut self, event: Event<K>) {
        match event {
            Event::Init => {
                self.live = false;
                self.listed.clear();
            }
            Event::InitApply(object) => {
                let (key, object) = keyed(object);
                self.listed.insert(key, object);
            }
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                self.gone.clear();
                self.live = true;
            }
            Event::Apply(object) => {
                let (key, object) = keyed(object);
                if object.uid().is_none_or(|uid| !self.gone.contains(&uid)) {
                    put(&mut self.objects, key, object);
                }
            }
            Event::Delete(object) => {
                let (key, object) = keyed(object);
                let uid = object.uid();
                if self.objects.get(&key).is_some_and(|held| held.uid() == uid) {
                    self.objects.remove(&key);
                }
                if let Some(uid) = uid {
                    self.gone.remove(&uid);
                }
            }
        }
    }
}

fn follow<K>(client: &Client) -> BoxStream<'static, Result<Event<K>, watcher::Error>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(Api::all(client.clone()), watcher::Config::default()).boxed()
}

fn keyed<K: Resource>(mut object: K) -> (Key, Arc<K>) {
    object.meta_mut().managed_fields = None;
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    (key, Arc::new(object))
}

fn put<K: Resource>(objects: &mut BTreeMap<Key, Arc<K>>, key: Key, object: Arc<K>) {
    let newer = objects
        .get(&key)
        .is_none_or(|held| version(held.as_ref()) < version(object.as_ref()));
    if newer {
        objects.insert(key, object);
    }
}

/// Versions are numbers that grow, which Kubernetes promises since 1.35.
fn version<K: Resource>(object: &K) -> u64 {
    object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
