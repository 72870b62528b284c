//! The facts for a pass over a job, read from caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use roadstead_api::config::FeatureGate;
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::{CheckState, Workload};
use roadstead_core::job::{
    ADOPTION_PAUSE, AtDeletion, Claim, Control, Drift, Ended, Fit, JobObserved, News, OwnedWorkload, Parent,
    Pods, Presence, Quota, Run, Scope, Site, Stage,
};
use roadstead_core::lifecycle::{self, Outcome};
use roadstead_core::name::{FlavorName, Key};
use roadstead_core::note::{Note, Severity};
use roadstead_core::queue::Flavor;
use roadstead_jobs::JobPodSet;
use roadstead_jobs::equivalence::{Tolerations, same_pod_sets};
use roadstead_jobs::kind::{self, Look, Members, Stand, Tending};
use roadstead_jobs::labels::{Identifiers, controller};
use roadstead_jobs::podset::{InjectError, PodSetInfo, Provenance, StartFacts, running_form};
use roadstead_kinds::Idle;

use super::Jobs;
use crate::ancestors::Top;
use crate::caches::{CachedJob, Caches, JobKey, JobRef, KindCache, is_of_group, member};
use crate::control;
use crate::parents;

/// Everything that a pass reads, owned.
pub(super) struct Scene {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) job: CachedJob,
    pub(super) pod_sets: Vec<JobPodSet>,
    /// Why no Workload can be created for the job as it is.
    pub(super) unfit: Option<Note>,
    /// Set while the job's pods are not known yet: the time after which this is reported.
    pub(super) awaited: Option<Duration>,
    /// What is to be done about the members of a group.
    pub(super) group: Option<Tending>,
    pub(super) prebuilt: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) stored: BTreeMap<Key, Arc<Workload>>,
    /// The annotations that the Workload gets from the maker, which is the object that makes the members of the job.
    pub(super) maker_notes: BTreeMap<String, String>,
    workload_name: Key,
    workloads: Vec<OwnedWorkload>,
    presence: Presence,
    scope: Scope,
    parent: Parent,
    run: Run,
    pods: Pods,
    at_deletion: AtDeletion,
    ended: Ended,
}

impl Scene {
    /// The facts for the plan.
    pub(super) fn observed(&self) -> JobObserved<'_> {
        JobObserved {
            key: self.key.clone(),
            presence: self.presence,
            scope: self.scope,
            queue: self.queue.as_deref(),
            parent: self.parent,
            run: self.run,
            pods: self.pods,
            at_deletion: self.at_deletion,
            ended: self.ended,
            prebuilt: self.prebuilt.as_deref(),
            workload_name: self.workload_name.clone(),
            workloads: &self.workloads,
        }
    }

    /// The job without the members that its Workload does not count; `None` when it counts none.
    pub(super) fn counted(&self) -> Option<CachedJob> {
        let Some(group) = &self.group else {
            return Some(self.job.clone());
        };
        let kept: BTreeSet<&str> = group.kept.iter().map(|id| id.uid.as_str()).collect();
        let is_kept =
            |object: &DynamicObject| kept.contains(object.metadata.uid.as_deref().unwrap_or_default());
        self.job.only(is_kept)
    }

    /// The Workload that describes the job, as stored.
    ///
    /// A single Workload counts even if it does not fit: a job that was started with fewer pods differs from it until the stop is
    /// over.
    pub(super) fn current_workload(&self) -> Option<&Workload> {
        let is_ours = |w: &&OwnedWorkload| matches!(w.control, Control::This | Control::Claimed(_));
        let own = || self.workloads.iter().filter(is_ours);
        let only = || own().next().filter(|_| own().count() == 1);
        let current = own().find(|w| w.fit == Fit::Equivalent).or_else(only)?;
        self.stored.get(&current.key).map(|workload| &**workload)
    }
}

/// Reads everything about one job; `top` is the managed object above it.
///
/// *Errors*: the job does not match its API; a sentence for its user.
pub(super) fn scene(
    jobs: &Jobs,
    of_kind: &KindCache,
    job: CachedJob,
    top: Option<&Top>,
) -> Result<Scene, Note> {
    let object = job.first().clone();
    let meta = &object.metadata;
    let at = of_kind.key_of(&object);
    let key = at.key().clone();
    let uid = object.uid().unwrap_or_default();
    let Described {
        pod_sets,
        unfit,
        awaited,
        maker_notes,
        gated_by,
    } = described(jobs, of_kind, &job)?;
    let identifiers = Identifiers::of(&jobs.config.feature_gates);
    let prebuilt = roadstead_jobs::labels::prebuilt(meta, identifiers).map(str::to_owned);
    let stored = stored(jobs, &at, &uid, prebuilt.as_deref());
    let own = stored.first().filter(|_| matches!(at, JobKey::Group(_)));
    if let Some(foreign) = own.filter(|workload| !is_of_group(workload)) {
        let name = foreign.name_any();
        let text = format!(
            "A Workload named \"{name}\" already exists but is not a pod group workload; this pod group cannot be admitted"
        );
        return Err(Note::warning("WorkloadNameConflict", text));
    }
    let sets = own.map(|workload| roadstead_convert::pod_sets(workload));
    let group = tended(of_kind, &job, sets.as_deref());
    // Why checked as if a Workload existed: no Workload is created if one of its members would be refused at once.
    let would = group.as_ref().filter(|_| own.is_none() && unfit.is_none());
    let would = would.and_then(|_| tended(of_kind, &job, Some(&pod_sets)));
    let told = would.into_iter().flat_map(|would| would.told);
    let unfit = unfit.or_else(|| {
        told.map(|told| told.note)
            .find(|note| note.severity == Severity::Warning)
    });
    let facts = Facts {
        jobs,
        object: &object,
        uid: &uid,
        pod_sets: &pod_sets,
        awaited,
        idle: of_kind.kind.kind().idle,
        shown: job.with(|members| of_kind.kind.is_shown_on_nodes(members)),
        group: group.as_ref(),
        gated_by: gated_by.as_deref(),
    };
    let workloads: Vec<OwnedWorkload> = stored.iter().map(|workload| facts.owned(workload)).collect();
    let row = of_kind.kind.kind();
    let name = roadstead_jobs::naming::workload_name(row.kind, row.group, &key.name, &uid, "");
    let look = job.look(of_kind.kind);
    let is_going = match &group {
        Some(group) => group.stand == Stand::Gone,
        None => meta.deletion_timestamp.is_some(),
    };
    let run = run(&look, group.as_ref(), &workloads);
    Ok(Scene {
        workload_name: match &at {
            JobKey::Group(group) => group.clone(),
            JobKey::Object(_) => Key::new(key.namespace.clone(), name),
        },
        stored: stored
            .into_iter()
            .map(|w| (roadstead_kubeio::cache::key_of(&*w), w))
            .collect(),
        workloads,
        presence: if is_going { Presence::Going } else { Presence::Live },
        scope: scope(jobs, &key),
        parent: if of_kind.has_groups() {
            Parent::None
        } else {
            top.map_or(Parent::None, |top| parent(&jobs.caches, top))
        },
        run,
        pods: match look.pods {
            kind::Pods::Alive => Pods::Some,
            kind::Pods::None | kind::Pods::Ending | kind::Pods::Untold | kind::Pods::AliveUntil(_) => {
                Pods::None
            }
        },
        at_deletion: if of_kind.kind.ends_with_workload() {
            AtDeletion::Deleted
        } else {
            AtDeletion::Held
        },
        prebuilt,
        unfit,
        awaited,
        group,
        ended: if look.ended.is_some() {
            Ended::Yes
        } else {
            Ended::No
        },
        queue: roadstead_jobs::labels::queue(meta).map(str::to_owned),
        maker_notes,
        pod_sets,
        job,
        uid,
        key,
    })
}

/// The pods of a job.
struct Described {
    pod_sets: Vec<JobPodSet>,
    unfit: Option<Note>,
    awaited: Option<Duration>,
    maker_notes: BTreeMap<String, String>,
    /// The admission gates that its user has set; `None` while the object that carries them is not known.
    gated_by: Option<String>,
}

/// *Errors*: the job does not match its schema.
fn described(jobs: &Jobs, of_kind: &KindCache, job: &CachedJob) -> Result<Described, Note> {
    let object = job.first();
    let gated_by = gates(&jobs.caches, object);
    let maker = parents::of(&jobs.caches, object).ok().flatten();
    let said = maker.as_ref().and_then(|(kind, maker)| {
        let sets = kind.kind.pod_sets(Members::one(&member(maker))).ok()?;
        sets.iter().any(|set| set.count > 0).then_some(sets)
    });
    let described = job.with(|members| match said {
        Some(sets) => Ok(of_kind.kind.pod_sets_within(members, sets)),
        None => of_kind.kind.pod_sets(members),
    });
    let told = |message: String| Some(Note::warning("ErrWorkloadCompose", message));
    let (mut pod_sets, unfit, awaited) = match described {
        Ok(pod_sets) => (pod_sets, None, None),
        Err(kind::Error::Unfit { message }) => (Vec::new(), told(message), None),
        Err(kind::Error::Awaited { message }) => (Vec::new(), told(message), Some(told_in(jobs, object))),
        Err(error @ kind::Error::Malformed { .. }) => {
            return Err(Note::warning("InvalidJob", error.to_string()));
        }
    };
    if !jobs.config.feature_gates.enabled(FeatureGate::PartialAdmission) {
        // *Source*: `spec/jobs.md 5.4`.
        for set in &mut pod_sets {
            set.min_count = None;
        }
    }
    let notes = |(kind, maker): (&KindCache, Arc<DynamicObject>)| maker_notes(kind, &maker, &object.metadata);
    Ok(Described {
        pod_sets,
        unfit,
        awaited,
        maker_notes: maker.map(notes).unwrap_or_default(),
        gated_by,
    })
}

/// The admission gates of a job, which the object that made its pods carries if there is one; `None` while that object is not known.
///
/// *Source*: `spec/jobs.md 9.12, 9.13`.
fn gates(caches: &Caches, object: &DynamicObject) -> Option<String> {
    let maker = parents::of(caches, object).ok()?;
    let by = maker.as_ref().map_or(object, |(_, maker)| &**maker);
    let gates = roadstead_jobs::labels::gated_by(&by.metadata);
    Some(gates.unwrap_or_default().to_owned())
}

/// How long nothing is reported while the pods of a new job are not known yet, because the job's controller still makes them.
const UNTOLD: SignedDuration = SignedDuration::from_secs(10);

fn told_in(jobs: &Jobs, object: &DynamicObject) -> Duration {
    let created = object.metadata.creation_timestamp.as_ref();
    let age = created.map_or(UNTOLD, |time| (jobs.clock)().duration_since(time.0));
    Duration::try_from(UNTOLD.saturating_sub(age)).unwrap_or_default()
}

/// *Source*: `spec/jobs.md 2.2, 9.12, 9.13`.
fn maker_notes(kind: &KindCache, maker: &DynamicObject, pod: &ObjectMeta) -> BTreeMap<String, String> {
    let index = { kind.kind }
        .mark(member(maker), pod)
        .and_then(|mark| mark.index)
        .map(|index| (annotations::COMPONENT_WORKLOAD_INDEX, index.to_string()));
    let own = [
        (annotations::JOB_OWNER_GVK, kind.kind.kind().to_string()),
        (annotations::JOB_OWNER_NAME, maker.name_any()),
    ];
    let gates = roadstead_jobs::labels::gated_by(&maker.metadata);
    let gates = gates.map(|gates| (annotations::ADMISSION_GATED_BY, gates.to_owned()));
    let all = own.into_iter().chain(index).chain(gates);
    all.map(|(key, value)| (key.to_owned(), value)).collect()
}

fn tended(of_kind: &KindCache, job: &CachedJob, sets: Option<&[JobPodSet]>) -> Option<Tending> {
    job.with(|members| { of_kind.kind }.tend(members, sets, roadstead_convert::asks_for_more))
}

/// The Workloads that may belong to a job: the one with the name of its group, the one it wants to adopt, or those it controls.
fn stored(jobs: &Jobs, at: &JobKey, uid: &str, prebuilt: Option<&str>) -> Vec<Arc<Workload>> {
    let caches = &jobs.caches;
    let keys = match (at, prebuilt) {
        (JobKey::Group(group), _) => vec![group.clone()],
        (JobKey::Object(key), Some(name)) => vec![Key::new(key.namespace.clone(), name)],
        (JobKey::Object(_), None) => caches.owners.of(uid),
    };
    keys.iter().filter_map(|key| caches.workloads.get(key)).collect()
}

fn run(look: &Look, group: Option<&Tending>, workloads: &[OwnedWorkload]) -> Run {
    let admitted = || workloads.iter().any(|w| matches!(w.stage, Stage::Admitted(_)));
    match group.map(|group| group.stand) {
        None if look.suspended => Run::Suspended,
        None | Some(Stand::Running) => Run::Running,
        Some(Stand::Partly) => Run::Partly,
        // Why running: all members have ended, so nothing is left to start.
        Some(Stand::Over) if admitted() => Run::Running,
        Some(Stand::Held | Stand::Over | Stand::Gone) => Run::Suspended,
    }
}

struct Facts<'a> {
    jobs: &'a Jobs,
    object: &'a DynamicObject,
    uid: &'a str,
    pod_sets: &'a [JobPodSet],
    awaited: Option<Duration>,
    idle: Idle,
    /// Whether all members that are not held are on the virtual node of a worker cluster.
    shown: bool,
    group: Option<&'a Tending>,
    gated_by: Option<&'a str>,
}

impl Facts<'_> {
    fn owned(&self, workload: &Workload) -> OwnedWorkload {
        let owner = controller(&workload.metadata);
        let control = match owner {
            // Why not the Workload of another dispatch: it would start these pods instead of its own.
            _ if self.group.is_some()
                && control::is_stamped(workload)
                && !control::belongs(self.object, workload) =>
            {
                Control::Other
            }
            _ if self.group.is_some() => Control::This,
            Some(owner) if owner.uid == self.uid => Control::This,
            Some(_) => Control::Other,
            None if control::belongs(self.object, workload) => Control::Claimed(self.claim()),
            // Why: the manager sent this Workload for another job, or for an earlier copy of this job. It must not start this
            // job.
            None if control::is_stamped(workload) => Control::Other,
            None => Control::Nobody,
        };
        let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
        let waiting = checks.filter(|check| check.state == CheckState::Pending && !check.message.is_empty());
        OwnedWorkload {
            key: roadstead_kubeio::cache::key_of(workload),
            control,
            // Why equivalent while the pods are not known: a Workload is not given up before it can be compared.
            fit: if self.awaited.is_some() || self.fits(workload) {
                Fit::Equivalent
            } else {
                Fit::Different
            },
            stage: stage(workload),
            presence: match workload.metadata.deletion_timestamp {
                Some(_) => Presence::Going,
                None => Presence::Live,
            },
            site: match self.idle {
                _ if !self.jobs.checks.may_run_elsewhere(workload) => Site::Here,
                Idle::ManagedBy => Site::Elsewhere,
                Idle::Gate if self.shown => Site::ElsewhereShown,
                Idle::Held | Idle::Gate => Site::ElsewhereOnly,
            },
            queue: workload.spec.queue_name.clone().unwrap_or_default(),
            drift: self.drift(workload),
            waiting_for: waiting
                .map(|check| format!("{}: {}", check.name, check.message))
                .collect(),
        }
    }

    /// Whether the job is old enough to become the controller of the Workload, by the cluster's clock. A wrong clock only makes
    /// that write earlier or later.
    fn claim(&self) -> Claim {
        let created = self.object.metadata.creation_timestamp.as_ref();
        let age = created.map(|time| (self.jobs.clock)().duration_since(time.0));
        match age {
            Some(age) if age < SignedDuration::try_from(ADOPTION_PAUSE).unwrap_or(SignedDuration::MAX) => {
                Claim::Fresh
            }
            Some(_) | None => Claim::Ripe,
        }
    }

    /// *Source*: `spec/jobs.md 5.5`.
    fn fits(&self, workload: &Workload) -> bool {
        if workload.spec.maximum_execution_time_seconds
            != roadstead_jobs::labels::max_execution_secs(&self.object.metadata)
        {
            return false;
        }
        if let Some(group) = self.group {
            return group.fits || workload.is_true(lifecycle::FINISHED);
        }
        let plain = roadstead_convert::pod_sets(workload);
        // Why skipped for shown members too: a pod gets tolerations when it is put on a virtual node.
        let tolerations = if self.shown || workload.is_true(lifecycle::ADMITTED) {
            Tolerations::Skip
        } else {
            Tolerations::Compare
        };
        let same = |sets: &[JobPodSet]| same_pod_sets(self.pod_sets, sets, tolerations);
        if same(&plain) {
            return true;
        }
        if !workload.is_true(lifecycle::QUOTA_RESERVED) {
            return false;
        }
        let infos = infos(&self.jobs.caches, workload);
        let running = infos.ok().and_then(|infos| running_form(&plain, &infos).ok());
        running.is_some_and(|running| same(&running))
    }

    /// *Source*: `spec/jobs.md 5.13`; only Workloads without a class or with a WorkloadPriorityClass follow the label.
    fn drift(&self, workload: &Workload) -> Drift {
        use roadstead_api::kueue::v1beta2::PriorityClassGroup;
        let class = workload.spec.priority_class_ref.as_ref();
        let follows = match class {
            Some(class) => class.group == PriorityClassGroup::Kueue,
            None => !workload.is_true(lifecycle::QUOTA_RESERVED),
        };
        let named = roadstead_jobs::labels::priority_class(&self.object.metadata);
        let changed = named.is_some() && named != class.map(|class| class.name.as_str());
        let key = annotations::ADMISSION_GATED_BY;
        let held = workload
            .annotations()
            .get(key)
            .map(String::as_str)
            .unwrap_or_default();
        let origin = workload.labels().contains_key(labels::MULTIKUEUE_ORIGIN);
        Drift {
            priority: follows && changed && !origin,
            gated_by: { self.gated_by }
                .filter(|gates| *gates != held && !origin)
                .map(str::to_owned),
        }
    }
}

fn stage(workload: &Workload) -> Stage {
    let quota = workload.is_true(lifecycle::QUOTA_RESERVED);
    if workload.is_true(lifecycle::FINISHED) {
        let held = workload
            .finalizers()
            .iter()
            .any(|f| f == roadstead_api::constants::finalizers::RESOURCE_IN_USE);
        return Stage::Finished {
            news: if held { News::Fresh } else { News::Told },
        };
    }
    if let Some(evicted) = workload
        .condition(lifecycle::EVICTED)
        .filter(|c| c.status == "True")
    {
        return Stage::Evicted {
            message: evicted.message.clone(),
            quota: if quota { Quota::Held } else { Quota::Released },
        };
    }
    // Why quota too: without it no flavor is assigned, and the start would fail for good. Any client with the right to write the
    // status may have set `Admitted`.
    if quota && workload.is_true(lifecycle::ADMITTED) {
        return Stage::Admitted(
            workload
                .admission()
                .map(|a| a.cluster_queue.clone())
                .unwrap_or_default(),
        );
    }
    if quota { Stage::Reserved } else { Stage::Pending }
}

/// The settings to inject into the pods of an admitted Workload.
///
/// *Errors*: see [`InjectError`].
pub(super) fn infos(caches: &Caches, workload: &Workload) -> Result<Vec<PodSetInfo>, InjectError> {
    let status = roadstead_convert::workload_status(workload);
    let Some(admission) = &status.admission else {
        return Err(InjectError::Count {
            expected: workload.spec.pod_sets.len(),
            got: 0,
        });
    };
    let names = admission.pod_sets.iter().flat_map(|set| set.flavors.values());
    let flavors: BTreeMap<FlavorName, Flavor> = names
        .filter_map(|name| {
            Some((
                name.clone(),
                roadstead_convert::flavor(&*caches.flavors.named(name.as_str())?),
            ))
        })
        .collect();
    let remote = workload.labels().contains_key(labels::MULTIKUEUE_ORIGIN);
    roadstead_jobs::podset::infos(&StartFacts {
        workload: workload.metadata.name.as_deref().unwrap_or_default(),
        local_queue: workload.spec.queue_name.as_deref().unwrap_or_default(),
        provenance: if remote {
            Provenance::Remote
        } else {
            Provenance::Local
        },
        admission,
        checks: &status.checks,
        flavors: &flavors,
    })
}

/// How a job ended, by its Workload; `None` when the Workload has not ended, or when its end says nothing about the job.
pub(super) fn ended(workload: &Workload) -> Option<Outcome> {
    let finished = workload
        .condition(lifecycle::FINISHED)
        .filter(|c| c.status == "True")?;
    let success = match finished.reason.as_str() {
        "Succeeded" => true,
        "Failed" | "FailedToStart" => false,
        _ => return None,
    };
    let said = match finished.message.as_str() {
        "" => "no message",
        message => message,
    };
    Some(Outcome {
        success,
        message: format!(
            "The job ended in its worker cluster ({said}); its copy there was deleted before its last status was read"
        ),
    })
}

/// The job to which a Workload belongs, if its kind is enabled.
pub fn job_of(caches: &Caches, workload: &Workload) -> Option<JobRef> {
    control::of(caches, workload).map(|(job, _)| job)
}

/// *Source*: `spec/jobs.md 5.1` steps 4 to 6.
pub(super) fn scope(jobs: &Jobs, key: &Key) -> Scope {
    let labels = crate::feed::namespace_labels(&jobs.caches, &key.namespace);
    let selector = &jobs.config.managed_jobs_namespace_selector;
    match labels {
        Some(labels) if selector.matches(&labels) => {
            if jobs.config.manage_jobs_without_queue_name {
                Scope::Always
            } else {
                Scope::WithQueue
            }
        }
        Some(_) | None => Scope::Outside,
    }
}

/// Whether the object above a job may run. *Source*: `spec/jobs.md 5.2`.
fn parent(caches: &Caches, top: &Top) -> Parent {
    let workloads = top.workloads(caches);
    let admitted = workloads
        .iter()
        .filter_map(|key| caches.workloads.get(key))
        .filter(|workload| !workload.is_true(lifecycle::FINISHED))
        .max_by_key(|workload| workload.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .is_some_and(|workload| workload.is_true(lifecycle::ADMITTED));
    if admitted {
        Parent::Admitted
    } else {
        Parent::NotAdmitted
    }
}

#[cfg(test)]
mod tests;
