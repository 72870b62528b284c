//! What is known: the last state of every object, and for each Workload of the manager what happened to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write as _};
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::config::WorkerLostPolicy;
use roadstead_apiserver::{Change, Stored};
use serde_json::Value;

use super::Rules;
use super::object::{
    PODS, WORKLOADS, controller, copy_of, group, list, origin, owners, prebuilt, queue, text, uid, winner,
    words,
};

/// The resource of the manager's workers.
pub(super) const CLUSTERS: &str = "multikueueclusters.kueue.x-k8s.io";
/// The resource of admission checks, which queues require beside quota.
pub(super) const CHECKS: &str = "admissionchecks.kueue.x-k8s.io";
/// The controller of the admission check of a dispatched Workload.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

const CLUSTER_QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
const LOCAL_QUEUES: &str = "localqueues.kueue.x-k8s.io";
/// The annotation of a queue with its policy for lost workers.
const LOST_POLICY: &str = "roadstead.dev/worker-lost-policy";

/// How many changes of one Workload a story tells.
const STORY: usize = 14;

/// Namespace and name of a Workload of the manager: all its objects on all clusters are one case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The cluster, resource, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) cluster: Arc<str>,
    pub(super) resource: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cluster, self.resource)?;
        if self.namespace.is_empty() {
            write!(f, " {}", self.name)
        } else {
            write!(f, " {}/{}", self.namespace, self.name)
        }
    }
}

/// The author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    Manager,
    Worker,
    /// A person, a controller of the cluster, a script.
    Other,
}

/// One run of a job: a Workload of the manager by its UID. A Workload that is deleted and created again is another run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) case: Name,
    pub(super) uid: Arc<str>,
}

/// What is known about a Workload of the manager. If it was deleted, this is about its last UID.
#[derive(Default)]
pub(super) struct Case {
    pub(super) uid: Arc<str>,
    /// The clusters that were its `clusterName` at some time.
    pub(super) named: BTreeSet<Arc<str>>,
    /// As `named`, also for earlier UIDs of a Workload of this name.
    pub(super) named_ever: BTreeSet<Arc<str>>,
    /// The policy of its queue for lost workers, if it names one.
    policy: Option<WorkerLostPolicy>,
    recent: VecDeque<(Timestamp, Arc<str>, Change)>,
}

/// The last state of every object, and the history of every Workload of the manager.
pub(super) struct Book {
    pub(super) rules: Rules,
    pub(super) left: BTreeSet<Arc<str>>,
    names: BTreeSet<Arc<str>>,
    objects: BTreeMap<Place, Arc<Stored>>,
    pub(super) cases: BTreeMap<Name, Case>,
    /// Jobs by cluster and UID, also after they are gone: their pods may still be there.
    jobs: BTreeMap<(Arc<str>, Arc<str>), Run>,
}

/// One change, with what the book knows about it; the book is already up to date.
pub(super) struct Seen<'a> {
    pub(super) place: Place,
    pub(super) change: &'a Change,
    pub(super) now: Timestamp,
    pub(super) by: Actor,
    pub(super) on_manager: bool,
    pub(super) run: Option<Run>,
    /// Whether a job of that run created this object. For example, a JobSet creates Jobs, and these create the pods.
    pub(super) is_child: bool,
}

impl Seen<'_> {
    /// The object before.
    pub(super) fn before(&self) -> Option<&Value> {
        self.change.old.as_deref().map(Deref::deref)
    }

    pub(super) fn after(&self) -> Option<&Value> {
        self.change.new.as_deref().map(Deref::deref)
    }

    /// The object before and after the change; `None` unless both exist and have the same UID.
    pub(super) fn both(&self) -> Option<(&Value, &Value)> {
        let (old, new) = (self.before()?, self.after()?);
        (uid(old) == uid(new)).then_some((old, new))
    }

    pub(super) fn is_workload(&self) -> bool {
        *self.place.resource == *WORKLOADS
    }

    pub(super) fn is_pod(&self) -> bool {
        *self.place.resource == *PODS
    }

    fn object(&self) -> Option<&Value> {
        self.after().or_else(|| self.before())
    }

    /// Whether the changed object is a pod without a controller.
    pub(super) fn is_plain_pod(&self) -> bool {
        self.is_pod() && self.object().is_some_and(|pod| controller(pod).is_empty())
    }

    /// Whether the changed object is the job of a run: not its Workload, not one of its pods, not a job that it created.
    pub(super) fn is_job(&self) -> bool {
        let is_one = || {
            !self.is_pod() || (self.is_plain_pod() && self.object().is_some_and(|pod| group(pod).is_empty()))
        };
        self.run.is_some() && !self.is_workload() && !self.is_child && is_one()
    }

    /// Whether the changed object is the job of a run, or one pod of a group that is the job.
    pub(super) fn is_part_of_job(&self) -> bool {
        self.is_job() || (self.run.is_some() && self.is_plain_pod())
    }

    pub(super) fn case(&self) -> Option<&Name> {
        self.run.as_ref().map(|run| &run.case)
    }
}

impl Book {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            left: BTreeSet::new(),
            names: BTreeSet::new(),
            objects: BTreeMap::new(),
            cases: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }

    /// Stores a change and finds its run.
    pub(super) fn take<'a>(&mut self, cluster: &str, change: &'a Change, now: Timestamp) -> Seen<'a> {
        let cluster = self.name(cluster);
        let place = Place {
            cluster,
            resource: change.resource.clone(),
            namespace: change.namespace.clone().unwrap_or_else(|| "".into()),
            name: change.name.clone(),
        };
        let on_manager = *place.cluster == *self.rules.manager;
        match &change.new {
            Some(new) => self.objects.insert(place.clone(), new.clone()),
            None => self.objects.remove(&place),
        };
        let object = change.new.as_deref().or(change.old.as_deref());
        let run = object.and_then(|object| self.run_of(&place, on_manager, object));
        if let Some(run) = &run {
            let is_local = on_manager && *place.resource == *WORKLOADS;
            let said = { change.new.as_deref() }.filter(|_| is_local);
            let said = said.map(|workload| self.said_by_queue(&place.namespace, workload));
            let case = self.cases.entry(run.case.clone()).or_default();
            case.policy = said.unwrap_or(case.policy);
            if is_local {
                if case.uid != run.uid {
                    case.uid = run.uid.clone();
                    case.named.clear();
                }
                let winner = change.new.as_deref().map_or("", |new| winner(new));
                if !winner.is_empty() && !case.named.contains(winner) {
                    case.named.insert(winner.into());
                    case.named_ever.insert(winner.into());
                }
            }
            if case.recent.len() == STORY {
                case.recent.pop_front();
            }
            case.recent
                .push_back((now, place.cluster.clone(), change.clone()));
        }
        let is_child = object.is_some_and(|object| self.is_child(&place, object));
        let is_one_of = |users: &[String]| users.iter().any(|user| **user == *change.user);
        let by = if is_one_of(&self.rules.manager_users) {
            Actor::Manager
        } else if is_one_of(&self.rules.worker_users) {
            Actor::Worker
        } else {
            Actor::Other
        };
        Seen {
            place,
            change,
            now,
            by,
            on_manager,
            run,
            is_child,
        }
    }

    /// Whether a job of a run created a stored job.
    pub(super) fn is_child(&self, place: &Place, object: &Value) -> bool {
        let is_made = || {
            self.jobs
                .contains_key(&(place.cluster.clone(), controller(object).into()))
        };
        *place.resource != *WORKLOADS && *place.resource != *PODS && is_made()
    }

    /// The run that an object belongs to: a Workload by its name, a job by the Workload that names or owns it, a pod by its job.
    fn run_of(&mut self, place: &Place, on_manager: bool, object: &Value) -> Option<Run> {
        let case = |name: &str| Name {
            namespace: place.namespace.clone(),
            name: name.into(),
        };
        if *place.resource == *WORKLOADS {
            if on_manager {
                let run = Run {
                    case: case(&place.name),
                    uid: uid(object).into(),
                };
                for job in owners(object) {
                    self.jobs.insert((place.cluster.clone(), job.into()), run.clone());
                }
                return Some(run);
            }
            // A copy, or another client's Workload of the same name.
            return (origin(object) == self.rules.origin).then(|| self.present(case(&place.name)));
        }
        let known = |this: &Self, uid: &str| this.jobs.get(&(place.cluster.clone(), uid.into())).cloned();
        if let Some(run) = known(self, uid(object)) {
            return Some(run);
        }
        if let Some(run) = known(self, controller(object)) {
            // Why also children: a job that a job created has pods, and these name only the child.
            if *place.resource != *PODS {
                self.jobs
                    .insert((place.cluster.clone(), uid(object).into()), run.clone());
            }
            return Some(run);
        }
        if on_manager {
            // Why by the name of the group: the Workload may not list this pod as an owner yet.
            let is_member =
                *place.resource == *PODS && !queue(object).is_empty() && !group(object).is_empty();
            return is_member.then(|| self.present(case(group(object))));
        }
        if origin(object) != self.rules.origin || prebuilt(object).is_empty() {
            return None;
        }
        let mut run = self.present(case(prebuilt(object)));
        // Why not the present UID: the manager may have sent this job for an earlier Workload of the same name.
        let of = copy_of(object);
        if !of.is_empty() {
            run.uid = of.into();
        }
        self.jobs
            .insert((place.cluster.clone(), uid(object).into()), run.clone());
        Some(run)
    }

    fn present(&self, case: Name) -> Run {
        Run {
            uid: self.cases.get(&case).map_or_else(|| "".into(), |c| c.uid.clone()),
            case,
        }
    }

    fn name(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name: Arc<str> = text.into();
        self.names.insert(name.clone());
        name
    }

    pub(super) fn object(
        &self,
        cluster: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&Arc<Stored>> {
        self.objects.get(&Place {
            cluster: cluster.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    pub(super) fn workload(&self, cluster: &str, case: &Name) -> Option<&Arc<Stored>> {
        self.object(cluster, WORKLOADS, &case.namespace, &case.name)
    }

    /// The Workload of a case on the manager.
    pub(super) fn local(&self, case: &Name) -> Option<&Arc<Stored>> {
        self.workload(&self.rules.manager, case)
    }

    /// Our copy of a Workload on a worker.
    pub(super) fn copy(&self, cluster: &str, case: &Name) -> Option<&Arc<Stored>> {
        self.workload(cluster, case)
            .filter(|copy| origin(copy) == self.rules.origin)
    }

    pub(super) fn all_on<'a>(&'a self, cluster: &str) -> impl Iterator<Item = (&'a Place, &'a Arc<Stored>)> {
        let first = Place {
            cluster: cluster.into(),
            resource: "".into(),
            namespace: "".into(),
            name: "".into(),
        };
        let cluster = first.cluster.clone();
        self.objects
            .range(first..)
            .take_while(move |(place, _)| place.cluster == cluster)
    }

    /// All objects of one resource of a cluster.
    pub(super) fn all_of<'a>(
        &'a self,
        cluster: &str,
        resource: &'a str,
    ) -> impl Iterator<Item = (&'a Place, &'a Arc<Stored>)> {
        self.all_on(cluster)
            .filter(move |(place, _)| *place.resource == *resource)
    }

    /// The run of a stored job or pod.
    pub(super) fn run_at(&self, place: &Place, object: &Value) -> Option<&Run> {
        let of = |uid: &str| self.jobs.get(&(place.cluster.clone(), uid.into()));
        of(uid(object)).or_else(|| of(controller(object)))
    }

    /// The policy for a job whose worker is lost: that of its queue, else that of the configuration.
    pub(super) fn policy(&self, case: &Name) -> WorkerLostPolicy {
        let said = self.cases.get(case).and_then(|case| case.policy);
        said.unwrap_or(self.rules.policy)
    }

    /// The policy for lost workers of the ClusterQueue of a Workload on the manager.
    fn said_by_queue(&self, namespace: &str, workload: &Value) -> Option<WorkerLostPolicy> {
        let manager = &self.rules.manager;
        let queue = text(workload, &["spec", "queueName"]);
        let local = self.object(manager, LOCAL_QUEUES, namespace, queue)?;
        let queue = text(local, &["spec", "clusterQueue"]);
        let queue = self.object(manager, CLUSTER_QUEUES, "", queue)?;
        match text(queue, &["metadata", "annotations", LOST_POLICY]) {
            "Wait" => Some(WorkerLostPolicy::Wait),
            "Fence" => Some(WorkerLostPolicy::Fence),
            "RetryAnyway" => Some(WorkerLostPolicy::RetryAnyway),
            _ => None,
        }
    }

    /// Whether an administrator drains this cluster (annotation `roadstead.dev/cordon: drain`).
    pub(super) fn is_drained(&self, cluster: &str) -> bool {
        let defined = self.object(&self.rules.manager, CLUSTERS, "", cluster);
        defined.is_some_and(|it| text(it, &["metadata", "annotations", "roadstead.dev/cordon"]) == "drain")
    }

    /// The entry of a Workload's admission check that is MultiKueue's.
    pub(super) fn dispatch_check<'a>(&self, workload: &'a Value) -> Option<&'a Value> {
        list(workload, &["status", "admissionChecks"])
            .iter()
            .find(|check| {
                let check = self.object(&self.rules.manager, CHECKS, "", text(check, &["name"]));
                check.is_some_and(|c| text(c, &["spec", "controllerName"]) == MULTIKUEUE)
            })
    }

    /// The jobs of the manager: all objects but Workloads that name a queue. A group of pods counts as several, one for each pod.
    pub(super) fn local_jobs(&self) -> impl Iterator<Item = (&Place, &Arc<Stored>)> {
        self.all_on(&self.rules.manager)
            .filter(|(place, object)| *place.resource != *WORKLOADS && !queue(object).is_empty())
    }

    /// The Workload on the manager that a job of the manager owns.
    pub(super) fn workload_of(&self, place: &Place, job: &Value) -> Option<(&Name, &Arc<Stored>)> {
        let case = &self.run_at(place, job)?.case;
        let workload = self.local(case)?;
        owners(workload)
            .any(|owner| owner == uid(job))
            .then_some((case, workload))
    }

    /// The case that an object belongs to: a Workload by its name, the rest by its job.
    pub(super) fn case_of(&self, place: &Place, object: &Value) -> Option<Name> {
        if *place.resource == *WORKLOADS {
            return Some(Name {
                namespace: place.namespace.clone(),
                name: place.name.clone(),
            });
        }
        self.run_at(place, object).map(|run| run.case.clone())
    }

    /// The last changes of a case.
    pub(super) fn story(&self, case: &Name) -> String {
        let mut story = String::new();
        let Some(case) = self.cases.get(case) else {
            return story;
        };
        for (at, cluster, change) in &case.recent {
            let (did, object) = match (&change.old, &change.new) {
                (None, Some(new)) => ("created", Some(new)),
                (Some(_), Some(new)) => ("changed", Some(new)),
                (_, None) => ("removed", None),
            };
            let said = object.map(|object| words(&change.resource, object));
            // Writing to a String cannot fail.
            let _ = write!(
                story,
                "\n  {at} {cluster}: {} {} {did} by {}{}{}",
                change.resource,
                change.name,
                change.user,
                if said.is_some() { ": " } else { "" },
                said.unwrap_or_default()
            );
        }
        story
    }
}
