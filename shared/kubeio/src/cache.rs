//! What one cluster holds of one kind, kept by list and watch, and read without asking the API server.
//!
//! Invariant: an object is only ever replaced by a newer one. The answers to our own writes are cached too, so a decision never
//! starts from a state older than our last write ("read your writes"). The one exception: when the API server's storage has gone
//! back, as after a restore from a backup, everything is listed again and replaces the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Api, Resource};
use roadstead_core::name::Key;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::ends::{Ended, Last};
pub use self::health::Health;
use self::listed::Listed;
use self::past::{Missing, Past};
use crate::latest::{Follower, Latest};
use crate::raw::{self, Print, Raw, Told, Watch};
use crate::retry::Backoff;

mod ends;
mod health;
mod listed;
mod past;
mod run;

/// How long one watch request lives.
const WATCH_SECS: u32 = 290;
/// A watch that is silent for longer counts as dead; the API server sends a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// HTTP status of a resource version that the API server no longer knows.
const GONE: u16 = 410;
/// HTTP status and text of an API server for a resource version that it has not reached yet. The version is from before a
/// restore of its storage from a backup.
const AHEAD: (u16, &str) = (504, "Too large resource version");

/// One object changed. `old` and `new` are both there for a modification.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Namespace (empty for cluster-scoped kinds) and name.
    pub key: &'a Key,
    /// The cached object before the change.
    pub old: Option<&'a Arc<K>>,
    /// The cached object now; `None` when it is gone.
    pub new: Option<&'a Arc<K>>,
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type Slim<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// A cache of one kind of one cluster.
pub struct Cache<K> {
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
    /// The lock is held from before a change until every listener was called. Why: a watch event and the answer to an own write
    /// may come at the same moment, and the listeners must hear changes in the order of the cache.
    listeners: Mutex<Vec<Listener<K>>>,
    health: Latest<Health>,
    /// The highest version ever seen. A lower one that comes later is from a restored storage.
    newest: AtomicU64,
    /// The highest version that a list or watch has reported, or is about to report. An object up to this version that is not
    /// cached was deleted.
    told: AtomicU64,
    /// Where to resume the watch. Kept between runs, so that a short loss of connection costs no new list.
    version: Mutex<Option<String>>,
    /// The cache may be newer than the storage, so the next list replaces it.
    rewound: AtomicBool,
    /// Everything was listed once, or the kind is known not to be served.
    settled: AtomicBool,
    /// The storage may hold a change that the watch has not reported yet, so everything must be listed again.
    behind: AtomicBool,
    refreshed: Notify,
    /// When the API server last said something: a list, an event, a bookmark.
    heard: Mutex<Option<Instant>>,
    /// Makes an object smaller before it is cached.
    slim: Option<Slim<K>>,
}

impl<K> Debug for Cache<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("health", &self.health.get())
            .finish_non_exhaustive()
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::new(BTreeMap::new()),
            listeners: Mutex::new(Vec::new()),
            health: Latest::new(Health::Starting),
            newest: AtomicU64::new(0),
            told: AtomicU64::new(0),
            version: Mutex::new(None),
            rewound: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            refreshed: Notify::new(),
            heard: Mutex::new(None),
            slim: None,
        }
    }
}

impl<K: Resource> Cache<K> {
    /// An empty cache; fill it with [`Cache::run`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty cache that runs `slim` over every object before caching it, to share or drop the parts that repeat.
    pub fn slimmed(slim: impl Fn(&mut K) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            slim: Some(Box::new(slim)),
            ..Self::default()
        })
    }

    /// Calls `listener` after every change from this call on, one change at a time. The listener must be quick, must not block,
    /// and must not change this cache.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.turn().push(Box::new(listener));
    }

    fn turn(&self) -> MutexGuard<'_, Vec<Listener<K>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if it is cached.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// The cluster-scoped object of this name, if it is cached.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&Key::new(Arc::default(), name))
    }

    /// All objects in the order of their keys.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().values().cloned().collect()
    }

    /// How many objects are cached.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// The health of the connection, to read or to wait on.
    pub fn health(&self) -> Follower<Health> {
        self.health.follow()
    }

    /// Whether the cache was ever complete.
    pub fn was_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Whether everything has been listed at least once and the watch is up.
    pub fn is_live(&self) -> bool {
        self.health.get() == Health::Live
    }

    /// How long ago the API server last said something about this kind: a list, an event, a bookmark. `None` before the first.
    pub fn silent_for(&self) -> Option<Duration> {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map(|at| at.elapsed())
    }

    /// Notes that the API server's storage has gone back. Everything is listed again as soon as possible, and the list counts
    /// even if it looks older. *Source*: `spec/safety.md` F15.
    pub fn distrust(&self) {
        self.rewound.store(true, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Lists everything again now, not only when the watch ends: [`Health`] is `Starting` until everything stored at this moment
    /// is cached. *Why*: a watch may be behind by any time, and a process that takes over must know what its predecessor wrote
    /// last.
    pub fn refresh(&self) {
        self.health.modify(|health| {
            // Invariant: `behind` and the health change under one lock. Otherwise a watch that is just being opened could set
            // `Live` afterwards.
            self.behind.store(true, Ordering::Relaxed);
            set(health, Health::Starting)
        });
        self.refreshed.notify_one();
    }

    /// Caches the API server's answer to a request of ours, unless the cache has a newer object or the watch has already told of
    /// its deletion. *Why*: the watch may be faster than the answer, and a deleted object cached then would stay for ever and
    /// hold quota.
    pub fn observe(&self, object: K) {
        self.note_newest(&object);
        self.put(object, |new, old| match (old, version_of(new)) {
            (Some(old), _) => is_newer(new, old),
            (None, Some(answered)) => answered > self.told.load(Ordering::Relaxed),
            (None, None) => true,
        });
    }

    /// Caches an object that the watch tells of, unless a newer one is cached.
    fn observe_told(&self, object: K) {
        self.note_newest(&object);
        self.put(object, |new, old| old.is_none_or(|old| is_newer(new, old)));
    }

    fn note_newest(&self, object: &K) {
        let version = version_of(object).unwrap_or_default();
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Caches an object from a list of this version. Why the list's version decides: if the cached object is not newer than the
    /// list, but newer than the listed object, its state was lost when the storage was restored from a backup
    /// (`spec/safety.md F15`).
    fn observe_listed(&self, object: K, listed: Listed) {
        self.put(object, |new, old| {
            old.is_none_or(|old| {
                // Why not after a restore: the restored storage may give a known version to another state of the object.
                let same = !listed.went_back() && Print::of(old) == Print::of(new);
                !same && listed.covers(old)
            })
        });
    }

    /// Caches the object if `belongs` accepts it beside the cached one.
    fn put(&self, mut object: K, belongs: impl Fn(&K, Option<&K>) -> bool) {
        object.meta_mut().managed_fields = None;
        if let Some(slim) = &self.slim {
            slim(&mut object);
        }
        let key = key_of(&object);
        let new = Arc::new(object);
        let listeners = self.turn();
        let old = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let old = objects.get(&key).cloned();
            if !belongs(new.as_ref(), old.as_deref()) {
                return;
            }
            objects.insert(key.clone(), new.clone());
            old
        };
        tell(
            &listeners,
            &Change {
                key: &key,
                old: old.as_ref(),
                new: Some(&new),
            },
        );
    }

    /// Takes an object out because the API server says that it is gone. With `uid`, a successor of the same name stays.
    pub fn forget(&self, key: &Key, uid: Option<&str>) {
        self.take_out(key, |held| uid.is_none() || held.meta().uid.as_deref() == uid);
    }

    /// Takes out an object whose deletion the watch reports. An earlier object of the same name is taken out too, because no
    /// object has the name now.
    fn forget_told(&self, gone: &Raw<'_>) {
        let at: Option<u64> = gone.version().parse().ok();
        self.take_out(&gone.key(), |held| {
            let is_older = matches!((version_of(held), at), (Some(held), Some(at)) if held < at);
            is_older || gone.uid().is_none() || held.meta().uid.as_deref() == gone.uid()
        });
    }

    fn take_out(&self, key: &Key, is_it: impl Fn(&K) -> bool) {
        let listeners = self.turn();
        let old = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let is_it = objects.get(key).is_some_and(|held| is_it(held.as_ref()));
            if is_it { objects.remove(key) } else { None }
        };
        if old.is_some() {
            tell(
                &listeners,
                &Change {
                    key,
                    old: old.as_ref(),
                    new: None,
                },
            );
        }
    }

    /// Whether this object or a newer one is cached already: most watch events are our own writes.
    fn knows(&self, object: &Raw<'_>) -> bool {
        let objects = self.read();
        let known = objects
            .get(&object.key())
            .and_then(|known| version_of(known.as_ref()));
        match (object.version().parse().ok(), known) {
            (Some::<u64>(told), Some(known)) => told <= known,
            (None, _) | (_, None) => false,
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Key, Arc<K>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_only(&self, seen: &BTreeSet<Key>, listed: Listed) {
        let gone: Vec<Key> = self
            .read()
            .iter()
            .filter(|(key, object)| !seen.contains(*key) && listed.covers(object.as_ref()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.forget(&key, None);
        }
    }
}

impl<K> Cache<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Asks the API server for an object that is not cached, because the watch may be a moment behind, and caches it if it
    /// exists. `api` is of the namespace of the key.
    ///
    /// # Errors
    /// What the API server answered, unless it is "not found".
    pub async fn look_up(&self, api: &Api<K>, key: &Key) -> Result<(), kube::Error> {
        if self.get(key).is_some() {
            return Ok(());
        }
        if let Some(found) = api.get_opt(&key.name).await? {
            self.observe(found);
        }
        Ok(())
    }

    async fn list(&self, api: &Api<K>, labels: Option<&str>) -> Result<String, kube::Error> {
        self.behind.store(false, Ordering::Relaxed);
        let mut params = selecting(labels).limit(PAGE);
        let (client, request) = (api.clone().into_client(), Request::new(api.resource_url()));
        let mut seen = BTreeSet::new();
        // Why read before the request is sent: a list shows the stored state, so a list with a lower version proves that the
        // storage went back.
        let newest = self.newest.load(Ordering::Relaxed);
        let distrusted = self.rewound.load(Ordering::Relaxed);
        loop {
            let (objects, metadata) = raw::list::<K>(&client, request.list(&params)).await?;
            self.hear();
            let version = metadata.resource_version.unwrap_or_default();
            let listed = Listed {
                version: version.parse().ok(),
                newest,
                distrusted,
            };
            if listed.went_back() {
                tracing::warn!(
                    objects = api.resource_url(),
                    version,
                    newest,
                    "this cluster's API server stores another state than it has shown: its storage was restored from a backup, or a \
                     watch has left something out; the new list replaces the cached state; if there was no restore, check its \
                     etcd"
                );
                self.newest
                    .store(listed.version.unwrap_or_default(), Ordering::Relaxed);
            }
            for object in objects {
                seen.insert(key_of(&object));
                self.observe_listed(object, listed);
            }
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    self.newest
                        .fetch_max(listed.version.unwrap_or_default(), Ordering::Relaxed);
                    // Why not the highest version ever seen: the storage may have gone back.
                    self.told
                        .store(listed.version.unwrap_or_default(), Ordering::Relaxed);
                    self.keep_only(&seen, listed);
                    self.rewound.store(false, Ordering::Relaxed);
                    self.settled.store(true, Ordering::Relaxed);
                    return Ok(version);
                }
            }
        }
    }

    /// Resumes the watch from where the last watch or list ended.
    async fn resume(
        &self,
        api: &Api<K>,
        labels: Option<&str>,
        version: String,
        last: Last,
        backoff: &mut Backoff,
    ) -> Result<Ended, kube::Error> {
        let compared = match last {
            Last::Listed => Some(Missing::default()),
            Last::Silent => match self.compare(api, labels, &version).await? {
                // Why listed again: the comparison found no restore, but a new watch from this version may be silent again.
                Some(_) => return Ok(Ended::Lost),
                None => None,
            },
            Last::Full => self.compare_version(api, labels, &version).await,
            // Why compared even while the connection holds: only this shows events that a watch has left out (F12).
            Last::Unchecked | Last::Cut => self.compare(api, labels, &version).await?,
        };
        match compared {
            Some(missing) => self.watch(api, labels, version, missing, backoff).await,
            None => {
                self.distrust();
                Ok(Ended::Lost)
            }
        }
    }

    /// Compares the API server's present version with the one that it has shown before; `None` when the storage has gone back. It
    /// asks with the smallest possible list. An error counts as no answer: the watch will meet it too.
    ///
    /// Why at all: a watch from a version in the future tells nothing until the storage reaches it, and gives no error.
    async fn compare_version(&self, api: &Api<K>, labels: Option<&str>, shown: &str) -> Option<Missing> {
        let params = selecting(labels).limit(1);
        let number = |version: &str| version.parse::<u64>().ok();
        let listed = api.list_metadata(&params).await.ok();
        let now = listed.and_then(|page| number(&page.metadata.resource_version?));
        let went_back = matches!((now, number(shown)), (Some(now), Some(shown)) if now < shown);
        (!went_back).then(Missing::default)
    }

    /// Compares the cache with the names, UIDs and versions of everything stored now; `None` when both cannot be of one history.
    ///
    /// Why after every loss of the connection: a restore takes the API server down, and its versions may have caught up before we
    /// reconnect. Then the version number alone shows nothing. *Source*: `spec/safety.md` F15.
    async fn compare(
        &self,
        api: &Api<K>,
        labels: Option<&str>,
        shown: &str,
    ) -> Result<Option<Missing>, kube::Error> {
        let Ok(shown) = shown.parse() else {
            return Ok(Some(Missing::default()));
        };
        let past = Past::new(
            shown,
            self.read()
                .values()
                .map(|object| (key_of(object.as_ref()), Print::of(object.as_ref()))),
        );
        let (client, request) = (api.clone().into_client(), Request::new(api.resource_url()));
        let mut params = selecting(labels).limit(PAGE);
        let mut stored = Vec::new();
        loop {
            let (page, metadata) = raw::outlines(&client, request.list_metadata(&params)).await?;
            stored.extend(page);
            match metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    return Ok(past.compare(
                        &stored,
                        metadata.resource_version.and_then(|version| version.parse().ok()),
                    ));
                }
            }
        }
    }

    async fn watch(
        &self,
        api: &Api<K>,
        labels: Option<&str>,
        mut version: String,
        mut missing: Missing,
        backoff: &mut Backoff,
    ) -> Result<Ended, kube::Error> {
        let params = WatchParams {
            label_selector: labels.map(Into::into),
            ..WatchParams::default()
        };
        let request = Request::new(api.resource_url()).watch(&params.timeout(WATCH_SECS), &version);
        let mut watch = match Watch::open(&api.clone().into_client(), request).await {
            Ok(watch) => watch,
            Err(kube::Error::Api(status)) if status.code == GONE || is_ahead(&status) => {
                return Ok(Ended::Lost);
            }
            Err(error) => return Err(error),
        };
        self.health
            .modify(|health| !self.behind.load(Ordering::Relaxed) && set(health, Health::Live));
        self.hear();
        backoff.reset();
        loop {
            let told = tokio::select! {
                biased;
                () = self.refreshed.notified() => return Ok(Ended::Lost),
                told = tokio::time::timeout(SILENCE, watch.next()) => told,
            };
            let Ok(told) = told else {
                return Ok(Ended::Silent(version));
            };
            let Some(told) = told? else {
                return Ok(Ended::At(version));
            };
            self.hear();
            if let Some(now) = told.version().and_then(|version| version.parse().ok()) {
                self.told.fetch_max(now, Ordering::Relaxed);
            }
            match &told {
                Told::Changed(object) => {
                    if !self.knows(object) {
                        self.observe_told(object.decode().map_err(kube::Error::SerdeError)?);
                    }
                }
                Told::Deleted(object) => self.forget_told(object),
                Told::Bookmark(_) => {}
                Told::Failed(status) if status.code == GONE || is_ahead(status) => return Ok(Ended::Lost),
                Told::Failed(status) => return Err(kube::Error::Api(status.clone())),
            }
            if let Some(now) = told.version() {
                now.clone_into(&mut version);
            }
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.clone());
            if missing.is_never_told(&version, |key| {
                self.get(key).and_then(|object| version_of(object.as_ref()))
            }) {
                self.distrust();
                return Ok(Ended::Lost);
            }
        }
    }
}

fn tell<K>(listeners: &[Listener<K>], change: &Change<'_, K>) {
    for listener in listeners {
        listener(change);
    }
}

fn selecting(labels: Option<&str>) -> ListParams {
    ListParams {
        label_selector: labels.map(Into::into),
        ..ListParams::default()
    }
}

fn set(health: &mut Health, to: Health) -> bool {
    let differs = *health != to;
    *health = to;
    differs
}

/// Whether the status says that our version is ahead of the API server's.
fn is_ahead(status: &Status) -> bool {
    status.code == AHEAD.0 && status.message.contains(AHEAD.1)
}

/// Namespace (empty for cluster-scoped objects) and name of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    let name = meta.name.as_deref().or(meta.generate_name.as_deref());
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        name.unwrap_or_default(),
    )
}

/// Resource versions are comparable numbers (guaranteed since Kubernetes 1.35, true for etcd before). A version that is no number
/// counts as newer, so that nothing is missed.
fn is_newer<K: Resource>(new: &K, old: &K) -> bool {
    match (version_of(new), version_of(old)) {
        (Some(new), Some(old)) => new > old,
        (None, _) | (_, None) => true,
    }
}

fn version_of<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests;
