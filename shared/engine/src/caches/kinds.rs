//! The cached jobs, by kind, and by the objects that make one job.
//!
//! Invariant: only this file decides what a job is, one object or a group of them, from the objects alone. So all parts of the
//! program agree on it.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::kind::KindState;
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::{Look, Member, MemberMut, Members};
use roadstead_kinds::Kind;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::index::Index;

/// The key of a job within its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// The object with this namespace and name.
    Object(Key),
    /// The objects of this namespace that name this group.
    Group(Key),
}

impl JobKey {
    /// Its namespace and name.
    pub const fn key(&self) -> &Key {
        match self {
            Self::Object(key) | Self::Group(key) => key,
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

/// A reference to a cached job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobRef {
    /// Its kind, as position in [`super::Caches::jobs`].
    pub kind: usize,
    /// The job of that kind.
    pub key: JobKey,
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// An object as a member of its job.
pub const fn member(object: &DynamicObject) -> Member<'_> {
    Member {
        meta: &object.metadata,
        data: &object.data,
    }
}

/// An object as a member of its job, to be changed.
pub const fn member_mut(object: &mut DynamicObject) -> MemberMut<'_> {
    MemberMut {
        meta: &mut object.metadata,
        data: &mut object.data,
    }
}

/// The state of a job that is this one object.
pub fn look_at(kind: &dyn JobKind, object: &DynamicObject) -> Look {
    kind.look(Members::one(&member(object)))
}

/// All objects of one job, sorted by name. Invariant: there is at least one.
#[derive(Clone, Debug)]
pub struct CachedJob {
    first: Arc<DynamicObject>,
    rest: Vec<Arc<DynamicObject>>,
}

impl CachedJob {
    /// The job that is this object.
    pub const fn one(object: Arc<DynamicObject>) -> Self {
        Self {
            first: object,
            rest: Vec::new(),
        }
    }

    /// These objects, in this order; `None` when there are none.
    pub fn of(objects: impl IntoIterator<Item = Arc<DynamicObject>>) -> Option<Self> {
        let mut objects = objects.into_iter();
        let first = objects.next()?;
        let rest = objects.collect();
        Some(Self { first, rest })
    }

    /// The one object of most kinds; of a group, the member that represents it.
    pub const fn first(&self) -> &Arc<DynamicObject> {
        &self.first
    }

    /// All objects of the job, in order.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<DynamicObject>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The members for which this is true, if any.
    pub fn only(&self, is: impl Fn(&DynamicObject) -> bool) -> Option<Self> {
        Self::of(self.objects().filter(|object| is(object)).cloned())
    }

    /// Passes the objects as members to `look`.
    pub fn with<T>(&self, look: impl FnOnce(Members<'_>) -> T) -> T {
        let first = member(&self.first);
        if self.rest.is_empty() {
            return look(Members::one(&first));
        }
        let all: Vec<Member<'_>> = self.objects().map(|object| member(object)).collect();
        look(Members::new(&all).unwrap_or_else(|| Members::one(&first)))
    }

    /// The state of the job.
    pub fn look(&self, kind: &dyn JobKind) -> Look {
        self.with(|members| kind.look(members))
    }
}

/// Whether a Workload was made for a group. *Source*: `spec/jobs.md 2.2`.
pub fn is_of_group(workload: &Workload) -> bool {
    let said = workload.annotations().get(annotations::IS_GROUP_WORKLOAD);
    said.map(String::as_str) == Some(labels::TRUE)
}

/// A job kind with the cache of its objects.
#[derive(Clone)]
pub struct KindCache {
    /// How to read and change such jobs.
    pub kind: &'static dyn JobKind,
    /// Its API resource.
    pub resource: ApiResource,
    /// The objects.
    pub objects: Arc<Cache<DynamicObject>>,
    /// The members of groups. Kinds without groups cost nothing here.
    groups: Arc<Index<Key, Key>>,
    /// Objects that the controller of the kind makes for its jobs, and that are members of them.
    companions: Option<Arc<Cache<DynamicObject>>>,
}

impl KindCache {
    /// Whether this cluster serves the kind.
    pub fn state(&self) -> KindState {
        self.objects.health().get().state()
    }

    /// The kind with an empty cache.
    pub fn new(kind: &'static dyn JobKind) -> Self {
        let pack = move |job: &mut DynamicObject| kind.pack(&mut member_mut(job));
        Self::over(kind, Cache::slimmed(pack))
    }

    /// A cache for copies on a worker, which are kept without their details.
    pub fn of_copies(kind: &'static dyn JobKind) -> Self {
        let slim = move |copy: &mut DynamicObject| kind.forget_details(&mut member_mut(copy));
        Self::over(kind, Cache::slimmed(slim))
    }

    fn over(kind: &'static dyn JobKind, objects: Arc<Cache<DynamicObject>>) -> Self {
        let groups = Arc::<Index<Key, Key>>::default();
        let index = groups.clone();
        objects.listen(move |change| {
            let group = |object: Option<&Arc<DynamicObject>>| {
                let name = kind.group_of(&object?.metadata)?;
                Some((Key::new(change.key.namespace.clone(), name), change.key.clone()))
            };
            let (old, new) = (group(change.old), group(change.new));
            if old != new {
                index.note(old, new);
            }
        });
        Self {
            kind,
            resource: api_resource(kind),
            objects,
            groups,
            companions: None,
        }
    }

    /// Connects the caches of objects made for its jobs: `all` are the kinds whose objects are cached.
    pub(crate) fn with_companions(&mut self, all: &[Self]) {
        let of = |row: &Kind| all.iter().find(|jobs| jobs.kind.kind() == row);
        let companions = self.kind.companion().and_then(of);
        self.companions = companions.map(|jobs| jobs.objects.clone());
    }

    /// The cache of the objects made for its jobs.
    pub(crate) const fn companions(&self) -> Option<&Arc<Cache<DynamicObject>>> {
        self.companions.as_ref()
    }

    fn companion_of(&self, key: &Key, job: &DynamicObject) -> Option<Arc<DynamicObject>> {
        let made = self.companions.as_ref()?.get(key)?;
        let owners = made.owner_references();
        { owners.iter() }
            .any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
            .then_some(made)
    }

    /// The job to which an object belongs.
    pub fn key_of(&self, object: &DynamicObject) -> JobKey {
        let key = roadstead_kubeio::cache::key_of(object);
        match self.kind.group_of(&object.metadata) {
            Some(group) => JobKey::Group(Key::new(key.namespace, group)),
            None => JobKey::Object(key),
        }
    }

    /// Whether objects of this kind may be jobs together.
    pub fn has_groups(&self) -> bool {
        self.kind.kind().members == roadstead_kinds::Members::Group
    }

    /// The objects of a job; `None` when there are none.
    pub fn job(&self, job: &JobKey) -> Option<CachedJob> {
        match job {
            JobKey::Object(key) => {
                let job = self.objects.get(key)?;
                let companion = self.companion_of(key, &job);
                CachedJob::of([job].into_iter().chain(companion))
            }
            JobKey::Group(group) => {
                let members = self.groups.of(group);
                CachedJob::of(members.iter().filter_map(|key| self.objects.get(key)))
            }
        }
    }
}

/// The API resource of a job kind.
pub fn api_resource(kind: &dyn JobKind) -> ApiResource {
    resource_of(kind.kind())
}

pub(crate) fn resource_of(row: &Kind) -> ApiResource {
    let gvk = GroupVersionKind::gvk(row.group, row.version, row.kind);
    ApiResource::from_gvk_with_plural(&gvk, row.plural)
}
