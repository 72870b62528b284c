//! What one cluster holds of one kind, kept by list and watch, and read without asking the API server.
//!
//! Invariant: an object is only ever replaced by a newer one. Answers to our own writes are put in as well, so a
//! decision never starts from a state older than our last write ("read your writes"). The one exception: when the storage
//! of the API server has gone back, as after a restore from a backup, everything is listed again and replaces what is here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_core::name::Key;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::latest::{Follower, Latest};
use crate::raw::{self, Raw, Told, Watch};
use crate::retry::Backoff;

/// How long one watch request lives.
const WATCH_SECS: u32 = 290;
/// A watch that is silent for longer is taken for dead; the API server sends a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// HTTP status of a resource version that the API server no longer knows.
const GONE: u16 = 410;
/// HTTP status and words for a resource version that the API server does not know yet: one of a past that never happened,
/// when its storage was restored from a backup.
const AHEAD: (u16, &str) = (504, "Too large resource version");
/// First and longest pause between attempts to list or watch again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// The connection behind a cache, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not listed yet.
    Starting,
    /// Listed and watching.
    Live,
    /// The last list or watch failed, with what the other side said.
    Failing(String),
}

/// One object changed. `old` and `new` are both there for a modification.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Namespace (empty for cluster-scoped kinds) and name.
    pub key: &'a Key,
    /// What was cached before.
    pub old: Option<&'a Arc<K>>,
    /// What is cached now; `None` when it is gone.
    pub new: Option<&'a Arc<K>>,
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type Slim<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// A cache of one kind of one cluster.
pub struct Cache<K> {
    objects: RwLock<BTreeMap<Key, Arc<K>>>,
    listeners: Mutex<Vec<Arc<Listener<K>>>>,
    health: Latest<Health>,
    /// The highest version that was ever seen; what is lower and comes later is of a storage that was restored.
    newest: AtomicU64,
    /// Where to go on watching; kept between runs, so that a short loss costs no new list.
    version: Mutex<Option<String>>,
    /// What is here may be newer than what is stored: the next list replaces it.
    rewound: AtomicBool,
    /// When the API server last said something: a list, an event, a bookmark.
    heard: Mutex<Option<Instant>>,
    /// What makes an object smaller before it is kept.
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
            version: Mutex::new(None),
            rewound: AtomicBool::new(false),
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

    /// An empty cache that runs `slim` over every object before it keeps it: for what many of them have in common.
    pub fn slimmed(slim: impl Fn(&mut K) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            slim: Some(Box::new(slim)),
            ..Self::default()
        })
    }

    /// Calls `listener` after every change from now on. It must be quick and must not block.
    pub fn listen(&self, listener: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        let listener: Listener<K> = Box::new(listener);
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::new(listener));
    }

    /// The object, if it is cached.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// The cluster-scoped object of this name, if it is cached.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&Key::new("", name))
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

    /// The connection behind it, to look at or to wait on.
    pub fn health(&self) -> Follower<Health> {
        self.health.follow()
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

    /// Notes that the storage of the API server has gone back: everything is listed again at the next chance, and what is
    /// listed counts, however old it looks. *Source*: `spec/safety.md` F15.
    pub fn distrust(&self) {
        self.rewound.store(true, Ordering::Relaxed);
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Puts in an object that an API server just gave us, unless a newer one is there.
    pub fn observe(&self, object: K) {
        self.newest
            .fetch_max(version_of(&object).unwrap_or_default(), Ordering::Relaxed);
        self.put(object, |new, old| is_newer(new, old));
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Puts in an object that a list of this version shows. Why not by its own version: what was there before the list and is
    /// newer than what the list shows never happened, because the storage was restored from a backup (`spec/safety.md F15`).
    fn observe_listed(&self, object: K, listed: Listed) {
        self.put(object, |new, old| {
            let same = old.meta().uid == new.meta().uid && version_of(old) == version_of(new);
            !same && listed.covers(old)
        });
    }

    fn put(&self, mut object: K, replaces: impl Fn(&K, &K) -> bool) {
        object.meta_mut().managed_fields = None;
        if let Some(slim) = &self.slim {
            slim(&mut object);
        }
        let key = key_of(&object);
        let new = Arc::new(object);
        let old = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let old = objects.get(&key).cloned();
            if old
                .as_ref()
                .is_some_and(|old| !replaces(new.as_ref(), old.as_ref()))
            {
                return;
            }
            objects.insert(key.clone(), new.clone());
            old
        };
        self.tell(&Change {
            key: &key,
            old: old.as_ref(),
            new: Some(&new),
        });
    }

    /// Takes an object out because the API server says that it is gone. `uid` guards against forgetting a successor.
    pub fn forget(&self, key: &Key, uid: Option<&str>) {
        let old = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let is_it = objects
                .get(key)
                .is_some_and(|o| uid.is_none() || o.meta().uid.as_deref() == uid);
            if is_it { objects.remove(key) } else { None }
        };
        if old.is_some() {
            self.tell(&Change {
                key,
                old: old.as_ref(),
                new: None,
            });
        }
    }

    /// Whether this object is cached already, or a newer one: most of what a watch tells are our own writes.
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

    fn tell(&self, change: &Change<'_, K>) {
        let listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for listener in listeners {
            listener(change);
        }
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
    /// Lists and watches until `stop`; resumes by resource version and lists again only when the API server has
    /// forgotten it (410). `labels` restricts what is held.
    ///
    /// Why an own loop instead of kube's watcher: it tells when the watch is open again, which is the moment from
    /// which a worker counts as connected, and it uses bookmarks as heartbeats.
    pub fn run(
        self: Arc<Self>,
        api: Api<K>,
        labels: Option<String>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send {
        // Why before anything is polled: who waits for it to be live must not see how its last run ended.
        self.health.modify(|health| set(health, Health::Starting));
        async move { self.keep_up(api, labels, stop).await }
    }

    async fn keep_up(&self, api: Api<K>, labels: Option<String>, stop: CancellationToken) {
        let forever = async {
            let mut backoff = Backoff::new(RETRY.0, RETRY.1);
            let mut just_listed = false;
            loop {
                // Why asked again: a watch that was under way meanwhile has put its version back.
                let version = { self.version.lock() }
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
                    .filter(|_| !self.rewound.load(Ordering::Relaxed));
                let is_list = version.is_none();
                let result = match version {
                    None => self.list(&api, labels.as_deref()).await.map(Some),
                    // Why: a watch from a version that is still to come shows nothing until then, and says no word of it.
                    Some(version)
                        if !just_listed && self.is_rewound(&api, labels.as_deref(), &version).await =>
                    {
                        self.distrust();
                        Ok(None)
                    }
                    Some(version) => self.watch(&api, labels.as_deref(), version, &mut backoff).await,
                };
                just_listed = is_list;
                let error = match result {
                    Ok(version) => {
                        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
                        continue;
                    }
                    Err(error) => error,
                };
                let text = crate::write::describe(&error);
                tracing::debug!(error = text, "listing or watching failed; trying again");
                self.health.modify(|health| set(health, Health::Failing(text)));
                tokio::time::sleep(backoff.pause()).await;
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = forever => {}
        }
    }

    async fn list(&self, api: &Api<K>, labels: Option<&str>) -> Result<String, kube::Error> {
        let mut params = ListParams {
            label_selector: labels.map(Into::into),
            ..ListParams::default()
        }
        .limit(PAGE);
        let (client, request) = (api.clone().into_client(), Request::new(api.resource_url()));
        let mut seen = BTreeSet::new();
        // Why before it is sent: a list shows what is stored, so it can only be older when the storage went back.
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
                    "the storage of this cluster's API server went back in time, as after a restore from a backup: what it \
                     lists now replaces what was known; if nobody restored it, look at its etcd"
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
                    self.keep_only(&seen, listed);
                    self.rewound.store(false, Ordering::Relaxed);
                    return Ok(version);
                }
            }
        }
    }

    /// Whether the API server is now at an earlier version than the one that it has shown before. Asked with the smallest list
    /// that there is, before each watch that does not follow a list. An error says nothing: the watch will meet it too.
    async fn is_rewound(&self, api: &Api<K>, labels: Option<&str>, shown: &str) -> bool {
        let params = ListParams {
            label_selector: labels.map(Into::into),
            ..ListParams::default()
        };
        let number = |version: &str| version.parse::<u64>().ok();
        let listed = api.list(&params.limit(1)).await.ok();
        let now = listed.and_then(|page| number(&page.metadata.resource_version?));
        matches!((now, number(shown)), (Some(now), Some(shown)) if now < shown)
    }

    /// One watch request. Ends with the version to go on from; `None` means that everything must be listed again.
    async fn watch(
        &self,
        api: &Api<K>,
        labels: Option<&str>,
        mut version: String,
        backoff: &mut Backoff,
    ) -> Result<Option<String>, kube::Error> {
        let params = WatchParams {
            label_selector: labels.map(Into::into),
            ..WatchParams::default()
        };
        let request = Request::new(api.resource_url()).watch(&params.timeout(WATCH_SECS), &version);
        let mut watch = match Watch::open(&api.clone().into_client(), request).await {
            Ok(watch) => watch,
            Err(kube::Error::Api(status)) if status.code == GONE || is_ahead(&status) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.health.modify(|health| set(health, Health::Live));
        self.hear();
        backoff.reset();
        while let Ok(told) = tokio::time::timeout(SILENCE, watch.next()).await {
            let Some(told) = told? else { break };
            self.hear();
            match &told {
                Told::Changed(object) => {
                    if !self.knows(object) {
                        self.observe(object.decode().map_err(kube::Error::SerdeError)?);
                    }
                }
                Told::Deleted(object) => self.forget(&object.key(), object.uid()),
                Told::Bookmark(_) => {}
                Told::Failed(status) if status.code == GONE || is_ahead(status) => return Ok(None),
                Told::Failed(status) => return Err(kube::Error::Api(status.clone())),
            }
            if let Told::Changed(object) | Told::Deleted(object) | Told::Bookmark(object) = &told
                && !object.version().is_empty()
            {
                object.version().clone_into(&mut version);
            }
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.clone());
        }
        Ok(Some(version))
    }
}

fn set(health: &mut Health, to: Health) -> bool {
    let differs = *health != to;
    *health = to;
    differs
}

/// Whether we are ahead of the API server.
fn is_ahead(status: &Status) -> bool {
    status.code == AHEAD.0 && status.message.contains(AHEAD.1)
}

/// One answer to a list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    /// Of what is stored; `None` when it is no number.
    version: Option<u64>,
    /// The highest that was seen before it was asked for.
    newest: u64,
    /// Whether the storage is known to have gone back, though its versions may have caught up since.
    distrusted: bool,
}

impl Listed {
    fn went_back(self) -> bool {
        self.distrusted || self.version.is_some_and(|version| version < self.newest)
    }

    /// Whether it was made after this object was stored, so that it shows it if it is still there.
    fn covers<K: Resource>(self, object: &K) -> bool {
        match (self.version, version_of(object)) {
            (Some(listed), Some(stored)) => stored <= listed || self.went_back(),
            (None, _) | (_, None) => true,
        }
    }
}

/// Namespace (empty for cluster-scoped objects) and name of an object.
pub fn key_of<K: Resource>(object: &K) -> Key {
    Key::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Resource versions are comparable numbers (guaranteed since Kubernetes 1.35, true for etcd before); what does not
/// parse is taken as newer, so that nothing is missed.
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;
    use kube::client::Body;
    use kube::{Api, Client};
    use roadstead_core::name::Key;
    use tokio_util::sync::CancellationToken;

    use super::{Cache, Health, Listed};
    use crate::raw::Raw;

    fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("ns".into()),
                uid: Some(uid.into()),
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn version(cache: &Cache<ConfigMap>, name: &str) -> Option<String> {
        cache
            .get(&Key::new("ns", name))
            .and_then(|o| o.metadata.resource_version.clone())
    }

    /// A list that nothing newer was seen before.
    fn listed(version: u64) -> Listed {
        Listed {
            version: Some(version),
            newest: 0,
            distrusted: false,
        }
    }

    /// Spec: safety F15.
    #[test]
    fn a_list_of_a_restored_storage_replaces_what_never_happened() {
        let cache = Cache::new();
        cache.observe(object("changed", "1", "50"));
        cache.observe(object("created", "2", "60"));
        let restored = Listed {
            version: Some(40),
            newest: 60,
            distrusted: false,
        };
        assert!(restored.went_back());
        cache.observe_listed(object("changed", "1", "30"), restored);
        cache.keep_only(&[Key::new("ns", "changed")].into(), restored);
        assert_eq!(version(&cache, "changed").as_deref(), Some("30"));
        assert_eq!(version(&cache, "created"), None);
        // It has gone on meanwhile, further than we had been.
        cache.observe(object("changed", "1", "70"));
        cache.observe_listed(object("changed", "1", "35"), listed(80));
        assert_eq!(version(&cache, "changed").as_deref(), Some("35"));
    }

    #[test]
    fn a_list_takes_nothing_back_that_was_written_while_it_was_under_way() {
        let cache = Cache::new();
        cache.observe(object("changed", "1", "12"));
        cache.observe(object("created", "2", "11"));
        cache.observe_listed(object("changed", "1", "9"), listed(10));
        cache.keep_only(&[Key::new("ns", "changed")].into(), listed(10));
        assert_eq!(version(&cache, "changed").as_deref(), Some("12"));
        assert!(version(&cache, "created").is_some());
    }

    #[test]
    fn an_older_object_never_replaces_a_newer_one() {
        let cache = Cache::new();
        cache.observe(object("a", "1", "10"));
        cache.observe(object("a", "1", "9"));
        assert_eq!(version(&cache, "a").as_deref(), Some("10"));
    }

    fn page(version: &str, items: &[ConfigMap]) -> http::Response<Body> {
        let list = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version}, "items": items,
        });
        http::Response::new(Body::from(list.to_string().into_bytes()))
    }

    /// Spec: safety F15
    #[tokio::test]
    async fn after_the_storage_went_back_what_is_listed_counts_however_old_it_looks() {
        let cache: Arc<Cache<ConfigMap>> = Cache::new();
        cache.observe(object("gone", "1", "20"));
        cache.observe(object("old", "2", "30"));
        *cache.version.lock().unwrap() = Some("30".to_owned());
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            if request.uri().query().is_some_and(|query| query.contains("watch")) {
                return std::future::pending().await;
            }
            Ok::<_, std::io::Error>(page("25", &[object("old", "2", "12")]))
        });
        let api = Api::all(Client::new(server, "ns"));
        let stop = CancellationToken::new();
        let run = tokio::spawn(cache.clone().run(api, None, stop.clone()));
        while version(&cache, "old").as_deref() != Some("12") || cache.len() > 1 {
            tokio::task::yield_now().await;
        }
        cache.observe(object("old", "2", "11"));
        assert_eq!(
            version(&cache, "old").as_deref(),
            Some("12"),
            "from then on newer counts again"
        );
        assert!(cache.silent_for().is_some());
        stop.cancel();
        run.await.unwrap();
    }

    #[test]
    fn what_is_known_already_is_recognised_by_its_version_alone() {
        let cache: Arc<Cache<ConfigMap>> = Cache::new();
        cache.observe(object("a", "1", "10"));
        let told = |name: &str, version: &str| {
            let text = serde_json::to_string(&object(name, "1", version)).unwrap();
            cache.knows(&Raw::read(&text).unwrap())
        };
        assert!(told("a", "9") && told("a", "10"));
        assert!(!told("a", "11") && !told("a", "no number") && !told("b", "9"));
    }

    #[test]
    fn a_late_deletion_does_not_take_the_successor() {
        let cache = Cache::new();
        cache.observe(object("a", "2", "20"));
        cache.forget(&Key::new("ns", "a"), Some("1"));
        assert!(version(&cache, "a").is_some());
    }

    /// Found by the simulation: who connected anew took the end of the last connection for the beginning of this one.
    #[tokio::test]
    async fn a_new_run_does_not_show_how_the_last_one_ended() {
        let cache: Arc<Cache<ConfigMap>> = Cache::new();
        cache.health.set(Health::Failing("cut".into()));
        let unreachable = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
        });
        let api = Api::all(Client::new(unreachable, "ns"));
        let run = cache.clone().run(api, None, CancellationToken::new());
        assert_eq!(cache.health().get(), Health::Starting);
        drop(run);
    }

    #[test]
    fn a_new_list_removes_what_is_gone_and_tells_the_listener() {
        let cache: Arc<Cache<ConfigMap>> = Cache::new();
        let (count, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counter, list) = (count.clone(), gone.clone());
        cache.listen(move |change| {
            counter.fetch_add(1, Ordering::Relaxed);
            if change.new.is_none() {
                list.lock().unwrap().push(change.key.to_string());
            }
        });
        cache.observe(object("a", "1", "1"));
        cache.observe(object("b", "2", "2"));
        cache.observe(object("b", "2", "2"));
        cache.keep_only(&[Key::new("ns", "b")].into(), listed(9));
        assert_eq!(*gone.lock().unwrap(), ["ns/a"]);
        assert_eq!(
            count.load(Ordering::Relaxed),
            3,
            "an unchanged object is not a change"
        );
    }
}
