//! The process's view of its own cluster: one cache per kind.
//!
//! Invariant: decisions read only from here. The decision path asks the API server only for the result of a write that was not
//! answered.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::{LimitRange, Namespace};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::DynamicObject;
use kube::{Api, Client, Resource, ResourceExt as _};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, Workload,
    WorkloadPriorityClass,
};
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::labels::Identifiers;
use roadstead_kubeio::cache::{Cache, Health};
use roadstead_kubeio::index::Index;
use roadstead_kubeio::latest::Follower;
use roadstead_serve::shutdown::{Name, Tasks};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

mod counting;
mod distant;
mod kinds;
mod queues;
mod templates;
pub(crate) mod unlisted;
mod unsure;

pub use counting::{Beyond, Counting, LimitIndex};
pub(crate) use distant::{Ancestors, Distant};
pub(crate) use kinds::resource_of;
pub use kinds::{
    CachedJob, JobKey, JobRef, KindCache, api_resource, is_of_group, look_at, member, member_mut,
};
pub use queues::QueueIndex;
pub use templates::Templates;
use unsure::Unsure;

/// The name of the task that lists and watches a kind of objects.
pub fn watch_of(kind: &str) -> Name {
    format!("watch of {kind}").into()
}

fn watch<K>(kind: &str, cache: &Arc<Cache<K>>, client: &Client, tasks: &mut Tasks, stop: &CancellationToken)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let watching = cache.clone().run(Api::all(client.clone()), None, stop.clone());
    tasks.spawn(watch_of(kind), watching);
}

/// All caches of the local cluster.
#[derive(Clone)]
pub struct Caches {
    /// All ClusterQueues.
    pub cluster_queues: Arc<Cache<ClusterQueue>>,
    /// ClusterQueues as decisions see them.
    pub queues: Arc<QueueIndex>,
    /// All Cohorts.
    pub cohorts: Arc<Cache<Cohort>>,
    /// All LocalQueues.
    pub local_queues: Arc<Cache<LocalQueue>>,
    /// All ResourceFlavors.
    pub flavors: Arc<Cache<ResourceFlavor>>,
    /// All AdmissionChecks.
    pub checks: Arc<Cache<AdmissionCheck>>,
    /// All Topologies.
    pub topologies: Arc<Cache<Topology>>,
    /// All Workloads.
    pub workloads: Arc<Cache<Workload>>,
    /// Workloads whose stored state may differ from the cached one.
    pub(crate) unsure: Arc<Unsure>,
    /// The parts of pod templates that these Workloads share with caches of other clusters.
    pub templates: Arc<Templates>,
    /// Workloads by the UID of their controller. The Workload of a group has none ([`Self::workloads_of`]).
    pub(crate) owners: Arc<Index<String, Key>>,
    /// Jobs by the Workload that they want to adopt.
    pub prebuilt: Arc<PrebuiltIndex>,
    /// All WorkloadPriorityClasses.
    pub workload_classes: Arc<Cache<WorkloadPriorityClass>>,
    /// All PriorityClasses.
    pub pod_classes: Arc<Cache<PriorityClass>>,
    /// All namespaces.
    pub namespaces: Arc<Cache<Namespace>>,
    /// Limit ranges.
    pub limit_ranges: Arc<Cache<LimitRange>>,
    /// Limit ranges as they count.
    pub limits: Arc<LimitIndex>,
    /// Runtime classes.
    pub runtime_classes: Arc<Cache<RuntimeClass>>,
    /// How the administrator's configuration says that requests are counted.
    pub counting: Arc<Counting>,
    /// What the process around the engine knows of pending Workloads.
    pub beyond: Arc<Beyond>,
    /// Jobs, one entry per enabled kind.
    pub jobs: Arc<[KindCache]>,
    /// Owners of jobs that are in no other cache.
    pub(crate) ancestors: Arc<Ancestors>,
}

impl Caches {
    /// Empty caches for these job kinds.
    pub fn new(kinds: &[&'static dyn JobKind]) -> Self {
        let templates = Arc::<Templates>::default();
        let mut jobs: Vec<KindCache> = kinds.iter().map(|kind| KindCache::new(*kind)).collect();
        let all = jobs.clone();
        for one in &mut jobs {
            one.with_companions(&all);
        }
        let caches = Self {
            cluster_queues: Cache::new(),
            queues: Arc::default(),
            cohorts: Cache::new(),
            local_queues: Cache::new(),
            flavors: Cache::new(),
            checks: Cache::new(),
            topologies: Cache::new(),
            workloads: templates.workloads(),
            unsure: Arc::default(),
            templates,
            owners: Arc::default(),
            prebuilt: Arc::default(),
            workload_classes: Cache::new(),
            pod_classes: Cache::new(),
            namespaces: Cache::new(),
            limit_ranges: Cache::new(),
            limits: Arc::default(),
            runtime_classes: Cache::new(),
            counting: Arc::default(),
            beyond: Arc::default(),
            jobs: jobs.into(),
            ancestors: Arc::default(),
        };
        let limits = caches.limits.clone();
        caches
            .limit_ranges
            .listen(move |change| limits.note(change.key, change.new.map(|range| &**range)));
        let queues = caches.queues.clone();
        caches
            .cluster_queues
            .listen(move |change| queues.note(change.key, change.new.map(|queue| &**queue)));
        let owners = caches.owners.clone();
        caches.workloads.listen(move |change| {
            let (old, new) = (
                change.old.and_then(controller_uid),
                change.new.and_then(controller_uid),
            );
            if old != new {
                let entry = |uid: &str| (uid.to_owned(), change.key.clone());
                owners.note(old.map(entry), new.map(entry));
            }
        });
        for (kind, jobs) in caches.jobs.iter().enumerate() {
            let (prebuilt, of_kind) = (caches.prebuilt.clone(), jobs.clone());
            jobs.objects.listen(move |change| {
                let identifiers = prebuilt.identifiers();
                let claim = |object: Option<&Arc<DynamicObject>>| {
                    let job = JobRef {
                        kind,
                        key: of_kind.key_of(object?),
                    };
                    Some((wanted(object?, identifiers)?, (job, change.key.clone())))
                };
                let (old, new) = (claim(change.old), claim(change.new));
                if old != new {
                    prebuilt.0.note(old, new);
                }
            });
        }
        caches
    }

    /// The same caches, with the administrator's rules for counting.
    #[must_use]
    pub fn counting(mut self, counting: Counting) -> Self {
        self.prebuilt.read_from(counting.identifiers());
        self.counting = Arc::new(counting);
        self
    }

    /// The same caches, with the owners that count by the configuration.
    #[must_use]
    pub(crate) fn owned(mut self, ancestors: Ancestors) -> Self {
        self.ancestors = Arc::new(ancestors);
        self
    }

    /// Whether a Workload's stored state may differ from the cached one, because a write of its status or of its dispatch
    /// number is under way, was not answered, or met a newer version. Until the stored state is known, nothing that depends on
    /// it is done on other clusters.
    ///
    /// Limit: a write that is stored only after its Workload was read again is noticed only when the watch tells of it.
    pub fn is_unsure(&self, workload: &Key) -> bool {
        self.unsure.is(workload, || self.workloads.get(workload))
    }

    /// The Workloads of a job: that of the group, or those whose controller is the object with this UID.
    pub fn workloads_of(&self, job: &JobKey, uid: &str) -> Vec<Key> {
        match job {
            JobKey::Group(group) => {
                let own = self.workloads.get(group).filter(|workload| is_of_group(workload));
                own.map(|_| group.clone()).into_iter().collect()
            }
            JobKey::Object(_) => self.owners.of(uid),
        }
    }

    /// Starts one list-and-watch per kind.
    pub fn spawn(&self, client: &Client, tasks: &mut Tasks, stop: &CancellationToken) {
        watch("clusterqueues", &self.cluster_queues, client, tasks, stop);
        watch("cohorts", &self.cohorts, client, tasks, stop);
        watch("topologies", &self.topologies, client, tasks, stop);
        watch("localqueues", &self.local_queues, client, tasks, stop);
        watch("resourceflavors", &self.flavors, client, tasks, stop);
        watch("admissionchecks", &self.checks, client, tasks, stop);
        watch("workloads", &self.workloads, client, tasks, stop);
        let classes = &self.workload_classes;
        watch("workloadpriorityclasses", classes, client, tasks, stop);
        watch("priorityclasses", &self.pod_classes, client, tasks, stop);
        watch("namespaces", &self.namespaces, client, tasks, stop);
        watch("limitranges", &self.limit_ranges, client, tasks, stop);
        watch("runtimeclasses", &self.runtime_classes, client, tasks, stop);
        for jobs in self.jobs.iter() {
            let api = Api::all_with(client.clone(), &jobs.resource);
            let watching = jobs.objects.clone().run_where_served(
                api,
                jobs.kind.selector().map(str::to_owned),
                jobs.resource.clone(),
                stop.clone(),
            );
            tasks.spawn(watch_of(&jobs.resource.plural), watching);
        }
    }

    /// The name and health of each cache on which everything depends: to wait for the first list, and to report what is
    /// missing.
    pub fn healths(&self) -> Vec<(String, Follower<Health>)> {
        vec![
            ("clusterqueues".into(), self.cluster_queues.health()),
            ("cohorts".into(), self.cohorts.health()),
            ("localqueues".into(), self.local_queues.health()),
            ("resourceflavors".into(), self.flavors.health()),
            ("admissionchecks".into(), self.checks.health()),
            ("topologies".into(), self.topologies.health()),
            ("workloads".into(), self.workloads.health()),
            ("workloadpriorityclasses".into(), self.workload_classes.health()),
            ("priorityclasses".into(), self.pod_classes.health()),
            ("namespaces".into(), self.namespaces.health()),
            ("limitranges".into(), self.limit_ranges.health()),
            ("runtimeclasses".into(), self.runtime_classes.health()),
        ]
    }

    /// The name and health of the cache of each kind of job. Only jobs of that kind depend on it.
    pub fn kind_healths(&self) -> Vec<(String, Follower<Health>)> {
        let of = |jobs: &KindCache| (jobs.resource.plural.clone(), jobs.objects.health());
        self.jobs.iter().map(of).collect()
    }

    /// Lists everything again now ([`Cache::refresh`]).
    pub(crate) fn refresh(&self) {
        self.cluster_queues.refresh();
        self.cohorts.refresh();
        self.local_queues.refresh();
        self.flavors.refresh();
        self.checks.refresh();
        self.topologies.refresh();
        self.workloads.refresh();
        self.workload_classes.refresh();
        self.pod_classes.refresh();
        self.namespaces.refresh();
        self.limit_ranges.refresh();
        self.runtime_classes.refresh();
        for jobs in self.jobs.iter() {
            jobs.objects.refresh();
        }
    }

    /// The kind with this group and kind name, if its integration is enabled.
    pub fn kind(&self, group: &str, kind: &str) -> Option<&KindCache> {
        self.jobs
            .iter()
            .find(|jobs| jobs.resource.group == group && jobs.resource.kind == kind)
    }
}

/// Jobs by the Workload that they want to adopt, each with the name of the member that names the Workload.
#[derive(Debug, Default)]
pub struct PrebuiltIndex(Index<Key, (JobRef, Key)>, OnceLock<Identifiers>);

impl PrebuiltIndex {
    fn read_from(&self, identifiers: Identifiers) {
        // Why a second call is ignored: a process has one configuration.
        let _ = self.1.set(identifiers);
    }

    fn identifiers(&self) -> Identifiers {
        self.1.get().copied().unwrap_or_default()
    }

    /// The jobs that name this Workload.
    pub fn of(&self, workload: &Key) -> Vec<JobRef> {
        let claims = self.0.of(workload).into_iter();
        let mut jobs: Vec<JobRef> = claims.map(|(job, _)| job).collect();
        jobs.dedup();
        jobs
    }
}

/// The Workload that a copy of ours names, in the annotation or in the label.
///
/// Why not of an object with a controller: some controllers (such as Ray's, for the cluster of a job) pass a job's labels and
/// annotations on to the objects that they make, and no controller makes our copies.
pub fn named(job: &DynamicObject) -> Option<Key> {
    let is_made = { job.owner_references().iter() }.any(|owner| owner.controller == Some(true));
    wanted(job, Identifiers::Annotations).filter(|_| !is_made)
}

/// The Workload that a job wants to adopt.
fn wanted(job: &DynamicObject, identifiers: Identifiers) -> Option<Key> {
    let annotation = job.annotations().get(annotations::PREBUILT_WORKLOAD_NAME);
    let label = job.labels().get(labels::PREBUILT_WORKLOAD_NAME);
    let name = identifiers.choose(annotation.map(String::as_str), label.map(String::as_str))?;
    Some(Key::new(job.namespace().unwrap_or_default(), name))
}

fn controller_uid(workload: &Arc<Workload>) -> Option<&str> {
    let owners = workload.metadata.owner_references.as_deref()?;
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
}
