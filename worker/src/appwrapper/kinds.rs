//! Children of any kind: found by discovery, watched while this process lives, and read again where a cache may be behind.
//!
//! Invariant: a child counts as missing only when the API server has just said so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Api, Client, ResourceExt as _};
use roadstead_core::appwrapper::observed::Nature;
use roadstead_core::appwrapper::status::{Identity, LABEL};
use roadstead_core::name::Key;
use roadstead_jobs::appwrapper::ROW;
use roadstead_jobs::appwrapper::probe::nature;
use roadstead_jobs::labels::controller;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::write::{self, Written};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Limit: kinds that are remembered and watched. Further kinds are discovered, and their objects read, each time.
const KINDS_MAX: usize = 100;

/// `apiVersion` and kind.
type Name = (String, String);

/// All kinds that were needed so far.
pub(super) struct Kinds {
    client: Client,
    due: Arc<Queue<Key>>,
    known: Memory<Arc<Kind>>,
    owners: Memory<ApiResource>,
    fresh: Dirty<Name>,
}

/// The kinds that were discovered.
struct Memory<T>(Mutex<BTreeMap<Name, T>>);

impl<T: Clone> Memory<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &Name) -> Option<T> {
        self.all().get(name).cloned()
    }

    fn forget(&self, name: &Name) {
        self.all().remove(name);
    }

    /// Keeps this entry, if there is room; returns the entry that was kept before, else this one.
    fn keep(&self, name: &Name, found: T) -> T {
        let mut all = self.all();
        if let Some(known) = all.get(name) {
            return known.clone();
        }
        if all.len() < KINDS_MAX {
            all.insert(name.clone(), found.clone());
        }
        found
    }
}

/// A kind that the API server serves.
pub(super) struct Kind {
    client: Client,
    resource: ApiResource,
    pub(super) namespaced: bool,
    objects: Arc<Cache<DynamicObject>>,
}

/// A kind whose objects own pods.
pub(super) struct Owners {
    client: Client,
    resource: ApiResource,
}

impl Owners {
    /// The metadata of an object; `None` when it cannot be read.
    pub(super) async fn get_metadata(&self, namespace: &str, name: &str) -> Option<ObjectMeta> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &self.resource);
        Some(api.get_metadata(name).await.ok()?.metadata)
    }
}

/// The API server's answer about an object.
pub(super) enum Found {
    There(Arc<DynamicObject>),
    /// It certainly does not exist.
    NotThere,
    /// The API server gave no clear answer, and why.
    Unclear(Failure),
}

impl Kinds {
    pub(super) fn new(client: Client, due: Arc<Queue<Key>>) -> Self {
        Self {
            client,
            due,
            known: Memory::new(),
            owners: Memory::new(),
            fresh: Dirty::default(),
        }
    }

    /// The kind of this name; `None` when the API server does not serve it.
    ///
    /// *Errors*: the API server did not answer.
    pub(super) async fn find(&self, api_version: &str, kind: &str) -> Result<Option<Arc<Kind>>, Failure> {
        let name = (api_version.to_owned(), kind.to_owned());
        match self.known.get(&name) {
            Some(known) => Ok(Some(known)),
            None => self.discover(name).await,
        }
    }

    /// The kind of an owner of pods, which is not watched; `None` when it cannot be found.
    pub(super) async fn kind_only(&self, api_version: &str, kind: &str) -> Option<Owners> {
        let name = (api_version.to_owned(), kind.to_owned());
        let resource = match self.owners.get(&name) {
            Some(known) => known,
            None => self.owners.keep(&name, self.ask_for_kind(&name).await.ok()??.0),
        };
        let client = self.client.clone();
        Some(Owners { client, resource })
    }

    async fn ask_for_kind(&self, name: &Name) -> Result<Option<(ApiResource, ApiCapabilities)>, Failure> {
        let types = TypeMeta {
            api_version: name.0.clone(),
            kind: name.1.clone(),
        };
        let Ok(gvk) = GroupVersionKind::try_from(types) else {
            return Ok(None);
        };
        match pinned_kind(&self.client, &gvk).await {
            Ok(found) => Ok(Some(found)),
            // Why both: an unknown group is refused with a status; an unknown kind of a known group is only missing in its list.
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let (version, kind) = name;
                Err(Failure::of(&error).in_doing(format_args!("asking for kind {kind} of {version}")))
            }
        }
    }

    async fn discover(&self, name: Name) -> Result<Option<Arc<Kind>>, Failure> {
        let Some(found) = self.ask_for_kind(&name).await? else {
            self.known.forget(&name);
            return Ok(None);
        };
        let (resource, capabilities) = found;
        let reports = nature(&name.0, &name.1) == Nature::Reports;
        let kind = Arc::new(Kind {
            client: self.client.clone(),
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
            objects: Cache::slimmed(move |object: &mut DynamicObject| slim(object, reports)),
        });
        let due = self.due.clone();
        kind.objects.listen(move |change| {
            for object in [change.old, change.new].into_iter().flatten() {
                if let Some(owner) = controller(&object.metadata).filter(|owner| owner.kind == ROW.kind) {
                    due.add(
                        Key::new(change.key.namespace.clone(), owner.name.as_str()),
                        Lane::Placed,
                    );
                }
            }
        });
        let kept = self.known.keep(&name, kind.clone());
        if Arc::ptr_eq(&kept, &kind) && kind.namespaced {
            self.fresh.mark(name);
        }
        Ok(Some(kept))
    }

    /// Forgets a kind whose definition may be gone, and discovers it again.
    async fn again(&self, identity: &Identity) -> Result<Option<Arc<Kind>>, Failure> {
        self.discover((identity.api_version.clone(), identity.kind.clone()))
            .await
    }

    /// Reads an object from its cache, or from the API server if it is not there.
    pub(super) async fn read(&self, namespace: &str, identity: &Identity) -> Found {
        match self.find(&identity.api_version, &identity.kind).await {
            Err(failure) => Found::Unclear(failure),
            Ok(Some(kind)) if kind.namespaced => {
                match kind.objects.get(&Key::new(namespace, identity.name.as_str())) {
                    Some(object) => Found::There(object),
                    None => self.ask(&kind, namespace, identity).await,
                }
            }
            Ok(None | Some(_)) => Found::NotThere,
        }
    }

    /// Whether the cache of this kind is live and has no such object: enough to try to create it.
    pub(super) async fn seems_missing(&self, namespace: &str, identity: &Identity) -> bool {
        let kind = self.find(&identity.api_version, &identity.kind).await;
        let Ok(Some(kind)) = kind else {
            return false;
        };
        let key = Key::new(namespace, identity.name.as_str());
        kind.namespaced && kind.objects.is_live() && kind.objects.get(&key).is_none()
    }

    /// Reads an object from the API server.
    pub(super) async fn ask(&self, kind: &Kind, namespace: &str, identity: &Identity) -> Found {
        match kind.api(namespace).get(&identity.name).await {
            Ok(object) => {
                kind.observe(object.clone());
                Found::There(Arc::new(object))
            }
            Err(error) if write::says_gone(&error, &identity.name) => Found::NotThere,
            Err(kube::Error::Api(status)) if status.code == 404 => match self.again(identity).await {
                // Nothing of a kind that is not served exists (`spec/appwrapper.md` N-26).
                Ok(None) => Found::NotThere,
                Ok(Some(_)) => Found::Unclear(Failure::lasting(status.message).in_doing(&identity.name)),
                Err(failure) => Found::Unclear(failure),
            },
            Err(error) => {
                let what = format!("reading {} {}", identity.kind, identity.name);
                Found::Unclear(Failure::of(&error).in_doing(what))
            }
        }
    }

    /// Watches the discovered kinds, and those discovered later, until `stop`.
    pub(super) async fn run(&self, stop: CancellationToken) {
        let mut watches = JoinSet::new();
        while let Some(fresh) = stop.run_until_cancelled(self.fresh.take()).await {
            for name in fresh {
                // Why: for a kind beyond the limit, a watch would fill a cache that is never read.
                if let Some(kind) = self.known.get(&name) {
                    let api = Api::all_with(kind.client.clone(), &kind.resource);
                    let watch = kind
                        .objects
                        .clone()
                        .run(api, Some(LABEL.to_owned()), stop.clone());
                    watches.spawn(watch);
                }
            }
        }
        while watches.join_next().await.is_some() {}
    }
}

/// Drops what no pass reads of a child, so that a crowd of children needs little memory. The `AppWrapper` holds the specification, and
/// only some kinds report their end by their status.
fn slim(child: &mut DynamicObject, reports: bool) {
    slim_metadata(&mut child.metadata);
    child.metadata.labels = None;
    if let Some(fields) = child.data.as_object_mut() {
        fields.retain(|field, _| reports && field == "status");
    }
}

/// Drops the metadata of a pod that no pass reads. The label with the name of its `AppWrapper` stays.
pub(super) fn slim_metadata(metadata: &mut ObjectMeta) {
    metadata.annotations = None;
    metadata.finalizers = None;
    if let Some(owners) = &mut metadata.owner_references {
        // Why: a decoded list has room for at least four entries.
        owners.shrink_to_fit();
    }
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|name, _| name == LABEL);
    }
}

impl Kind {
    pub(super) fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource)
    }

    /// Caches an object that the API server returned, if it has our label. Why not others: the watch selects by that label, so
    /// it would never report their deletion.
    pub(super) fn observe(&self, object: DynamicObject) {
        if object.labels().contains_key(LABEL) {
            self.objects.observe(object);
        }
    }

    /// Deletes an object of this kind if it has this UID.
    ///
    /// *Errors*: why it was not deleted.
    pub(super) async fn delete(&self, key: &Key, uid: &str, grace: Grace) -> Result<(), Failure> {
        let api = self.api(&key.namespace);
        let answer = match grace {
            Grace::AsItIs => write::delete(&api, &key.name, Some(uid)).await,
            Grace::None => write::delete_at_once(&api, &key.name, Some(uid)).await,
        };
        match answer {
            Written::Done(object) => self.observe(*object),
            Written::Gone => self.objects.forget(key, Some(uid)),
            Written::Conflict | Written::AlreadyExists => {
                return Err(Failure::passing("it was changed meanwhile"));
            }
            answer @ (Written::Refused(_) | Written::Unclear(_)) => return answer.stored().map(drop),
        }
        Ok(())
    }
}

/// The grace period of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grace {
    AsItIs,
    /// None: it is deleted at once.
    None,
}

#[cfg(test)]
mod tests;
