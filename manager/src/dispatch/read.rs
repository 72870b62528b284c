//! What is known about one Workload on all clusters, from caches alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use roadstead_api::constants::{annotations, controllers, finalizers};
use roadstead_api::kueue::v1beta2::{CheckState, Workload as ApiWorkload};
use roadstead_core::dispatch::{
    self, Answer, Behind, Copies, Elsewhere as Tries, Failure, Fence, Life, Local, LocalJob, LostPolicy,
    Observed, Origin, Owner, Plan, PodsThere, Policy, RemoteJob, RemoteWorkload, Said, Site, Stop, Twins,
};
use roadstead_core::kind::KindState;
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::{CheckName, ClusterName, Key};
use roadstead_core::status::{CheckPhase, Status};
use roadstead_core::workload::Workload;
use roadstead_engine::caches::{CachedJob, JobKey, KindCache, member, named};
use roadstead_engine::checks::{Elsewhere, Fate, There};
use roadstead_jobs::JobKind;
use roadstead_jobs::kind::{Look, Pods, Unmatched};
use roadstead_jobs::labels::controller;
use roadstead_kinds::{Ability, Idle};

use super::fence::{fence, lost_policy};
use super::kind::{jobs_like, note_kind, state_on, unreadable};
use super::owning::{Owning, group_of, later, local_job, owner_of, unmatched};
use super::{Dispatch, candidates, external, together};
use crate::remote::Remote;

/// How often a Workload looks whether another Workload of its job is gone.
const BEHIND_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Everything that [`dispatch::plan`] reads, owned.
pub(super) struct Scene {
    /// The Workload to decide about; empty when it is gone.
    workload: Workload,
    stored: Status,
    check: Option<CheckName>,
    owner: Owner,
    clusters: Vec<ClusterName>,
    behind: Option<Behind>,
    remotes: BTreeMap<ClusterName, dispatch::Remote>,
    failures: BTreeMap<ClusterName, Failure>,
    refusals: BTreeMap<ClusterName, String>,
    round: Option<Timestamp>,
    highest: u64,
    kind: Option<&'static str>,
    sites: BTreeMap<ClusterName, Site>,
    job: LocalJob,
    epoch: u64,
    tries: Tries,
    policy: Policy,
    /// The kind and the objects of the local job, to create its copies from.
    pub(super) local_job: Option<(&'static dyn JobKind, CachedJob)>,
    pub(super) job_key: Option<JobKey>,
}

impl Scene {
    pub(super) fn plan(&self, local: Local, now: Timestamp) -> Plan {
        let observed = Observed {
            workload: &self.workload,
            stored: &self.stored,
            local,
            check: self.check.as_ref(),
            owner: &self.owner,
            clusters: &self.clusters,
            behind: self.behind.as_ref(),
            remotes: &self.remotes,
            failures: &self.failures,
            refusals: &self.refusals,
            round: self.round,
            sites: &self.sites,
            job: self.job,
            epoch: self.epoch,
            highest: self.highest,
            kind: self.kind,
            elsewhere: &self.tries,
            policy: &self.policy,
        };
        dispatch::plan(&observed, now)
    }

    /// When the worker was chosen, by the stored state of the check; `None` if none is chosen.
    pub(super) fn chosen(&self) -> Option<Timestamp> {
        let check = self.stored.checks.get(self.check.as_ref()?)?;
        (check.phase == CheckPhase::Ready).then_some(check.since)
    }

    /// When to look again whether the other Workload of its job is gone.
    pub(super) fn again(&self, now: Timestamp) -> Option<Timestamp> {
        // Why only that: nothing makes this Workload due when the other one of its job is gone.
        let polls = matches!(self.behind, Some(Behind::SameJob(_)));
        polls.then(|| roadstead_core::moment::later(now, BEHIND_PAUSE))
    }

    /// The number of the present dispatch.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) const fn lost(&self) -> LostPolicy {
        self.policy.lost
    }

    /// The annotations that must be stored before the status of the plan: the next dispatch number, and the clusters on which the
    /// job has failed.
    pub(super) fn new_epoch(&self, plan: &Plan) -> Vec<(&'static str, String)> {
        let changed = plan.epoch != self.epoch;
        let number = (annotations::DISPATCH_EPOCH, plan.epoch.to_string());
        let failed_on = plan.failed_on.as_ref().map(|cluster| {
            let all = self
                .tries
                .failed_on
                .iter()
                .chain([cluster])
                .map(ClusterName::as_str);
            (annotations::FAILED_ON, all.collect::<Vec<_>>().join(","))
        });
        changed.then_some(number).into_iter().chain(failed_on).collect()
    }

    /// What is known of a job that has no copy to read its status from.
    fn fate(&self, plan: &Plan) -> Fate {
        let conditions = &self.stored.conditions;
        // Why this proves that nothing runs: quota is released only after the last run has stopped, and no run starts without
        // quota.
        let released = !conditions.is_true("QuotaReserved") && self.stored.cluster.is_none();
        if self.owner != Owner::Managed {
            // Invariant: the status of a job that another controller runs is never written.
            Fate::Unknown
        } else if plan.conclude {
            Fate::Ended
        } else if plan.stopped || (released && !conditions.is_true("Finished") && !self.has_jobs()) {
            Fate::AtRest
        } else {
            Fate::Unknown
        }
    }

    /// Whether a cluster that answers still has a copy of the job.
    fn has_jobs(&self) -> bool {
        let mut answers = self.remotes.values().filter_map(|remote| match remote {
            dispatch::Remote::Reachable(copies) => Some(copies),
            dispatch::Remote::Unreachable { .. } | dispatch::Remote::Unreadable { .. } => None,
        });
        answers.any(|copies| copies.job.is_some_and(|job| job.origin == Origin::Ours))
    }
}

/// Gathers what is known of one Workload. Its status may be one that this pass is still composing. `stored` is `None` if the
/// Workload was deleted.
pub(super) fn scene(
    d: &Dispatch,
    key: &Key,
    stored: Option<&ApiWorkload>,
    (workload, stored_status): (Workload, Status),
) -> Scene {
    let check = workload
        .status
        .checks
        .keys()
        .find(|name| d.federation.is_ours(name))
        .cloned();
    let clusters = check
        .as_ref()
        .map(|check| d.federation.clusters_of_name(check))
        .unwrap_or_default();
    let job_ref = stored.and_then(|w| owner_of(d, w));
    let local_job = { stored.zip(job_ref.as_ref()) }
        .and_then(|(stored, owner)| Some((owner.jobs.kind, local_job(owner, stored)?)));
    let is_placed = workload.status.cluster.is_some() || stored_status.cluster.is_some();
    let owner = owner_now(d, (stored, job_ref.as_ref()), local_job.as_ref(), is_placed);
    let job = local_state(d, (stored, job_ref.as_ref()), local_job.is_some());
    let seeking = { local_job.as_ref() }.filter(|_| !is_placed).map(|(_, job)| job);
    let choice = together::choice(d, key, seeking, clusters.clone());
    let ahead = { stored.zip(job_ref.as_ref()).zip(local_job.as_ref()) }
        .filter(|_| !is_placed)
        .and_then(|((stored, owner), (kind, job))| {
            external::ahead(d, *kind, (key, stored), (&owner.key, job))
        });
    let behind = ahead
        .map(Behind::SameJob)
        .or_else(|| choice.behind.map(Behind::Placed));
    // These clusters count even if they cannot be reached or hold no object of the Workload: the one that it is placed on, and
    // those of the config unless the Workload is only followed.
    let holders = [&workload.status.cluster, &stored_status.cluster]
        .into_iter()
        .flatten();
    let job_kind = job_ref.as_ref().map(|owner| owner.jobs.kind);
    let kind = job_kind.map(JobKind::kind);
    let reads = |r: Arc<Remote>| r.lost_since().is_none() && state_on(&r, kind) != KindState::Unknown;
    let holds_on = |name: &ClusterName| d.registry.get(name).is_some_and(reads);
    let is_followed = { check.as_ref() }.is_some_and(|check| dispatch::is_followed(&workload, check, &owner))
        && holders.clone().all(holds_on);
    let asked = if is_followed {
        &[]
    } else {
        choice.clusters.as_slice()
    };
    let concerned: BTreeSet<ClusterName> = asked.iter().chain(holders).cloned().collect();
    let policy = Policy {
        lost: lost_policy(d, &workload, stored, job_kind),
        ..d.policy
    };
    let all = d.registry.all();
    let job_there = job_ref.as_ref();
    let remotes = all.iter().filter_map(|remote| {
        let shown = shown(d, remote, (key, stored), job_there, &concerned);
        Some((remote.name.clone(), shown?))
    });
    let mut remotes: BTreeMap<ClusterName, dispatch::Remote> = remotes.collect();
    for name in &concerned {
        // Why unreachable: the supervisor of this cluster has not started yet. A cluster that has a MultiKueueCluster never
        // counts as deleted.
        if d.federation.clusters.named(name.as_str()).is_some() {
            remotes
                .entry(name.clone())
                .or_insert(dispatch::Remote::Unreachable {
                    since: d.started,
                    fence: Fence::Open,
                });
        }
    }
    // Why the configured one is enough: a Workload that is only followed is not offered to a worker.
    let dispatcher = if is_followed {
        d.policy.dispatcher
    } else {
        candidates::dispatcher(d, &clusters)
    };
    let known = remotes.keys().cloned();
    let mut sites = candidates::sites(d, &workload, known, dispatcher, (d.clock)());
    note_kind(d, &mut sites, kind);
    Scene {
        sites,
        stored: stored_status,
        check,
        owner,
        clusters: choice.clusters,
        behind,
        remotes,
        failures: d.memory.of(key),
        refusals: d.memory.refusals(key),
        round: d.memory.round(key),
        highest: d.memory.highest(key),
        job,
        kind: kind.map(|kind| kind.kind),
        // Why 0 for an invalid number: every number that was ever sent is above it, so the next dispatch gets a number above them
        // all.
        epoch: stored.map_or(1, |w| {
            roadstead_convert::epoch(w.metadata.annotations.as_ref()).unwrap_or(0)
        }),
        tries: tries(stored, local_job.as_ref()),
        policy: Policy { dispatcher, ..policy },
        job_key: job_ref.map(|owner| owner.key),
        local_job,
        workload,
    }
}

/// Whether the job can be dispatched now. A job that has a cluster goes on whatever the settings say: a setting must not end a run.
fn owner_now(
    d: &Dispatch,
    (stored, job_ref): (Option<&ApiWorkload>, Option<&Owning<'_>>),
    job: Option<&(&'static dyn JobKind, CachedJob)>,
    is_placed: bool,
) -> Owner {
    let of_caches = |group: &str, kind: &str| d.caches.kind(group, kind).map(|jobs| jobs.kind.kind());
    let is_known = |group: &str, kind: &str| match of_caches(group, kind) {
        Some(row) => is_placed || row.can(Ability::Dispatched),
        None => is_placed && roadstead_jobs::kind_of(group, kind).is_some(),
    };
    match job_ref.map(|owner| owner.jobs.kind) {
        Some(kind) if kind.is_external() && !is_placed && !d.may_adapt => external::switched_off(kind),
        Some(_) | None => owner(stored, job, is_known),
    }
}

/// The state of the local job. Why all members of a group: a member that is being deleted may have ended.
fn local_state(
    d: &Dispatch,
    (stored, job_ref): (Option<&ApiWorkload>, Option<&Owning<'_>>),
    present: bool,
) -> LocalJob {
    let whole = job_ref.and_then(|owner| Some((owner, owner.job()?)));
    let has_ended = |(owner, job): (&Owning<'_>, CachedJob)| {
        job.look(owner.jobs.kind).ended.is_some()
            || stored.is_some_and(|stored| end_said(d, stored, owner, &job).is_some())
    };
    LocalJob {
        present,
        finished: present && whole.is_some_and(has_ended),
    }
}

/// How often a job that fails on a cluster is tried on another one, and on which clusters it has failed. Why never a group of
/// pods: a local pod that shows its end cannot start again.
fn tries(stored: Option<&ApiWorkload>, job: Option<&(&'static dyn JobKind, CachedJob)>) -> Tries {
    let asked = job.filter(|(kind, _)| kind.kind().members != roadstead_kinds::Members::Group);
    let asked = asked.and_then(|(_, job)| job.first().annotations().get(annotations::RETRY_ELSEWHERE));
    let failed_on = stored.and_then(|workload| workload.annotations().get(annotations::FAILED_ON));
    let names = failed_on.into_iter().flat_map(|names| names.split(','));
    Tries {
        limit: asked.and_then(|limit| limit.parse().ok()).unwrap_or(0),
        failed_on: names
            .filter(|name| !name.is_empty())
            .map(ClusterName::from)
            .collect(),
    }
}

/// What a worker shows of a Workload. `None` if the worker is not `concerned`, and is lost or holds nothing of the Workload.
fn shown(
    d: &Dispatch,
    remote: &Remote,
    (key, stored): (&Key, Option<&ApiWorkload>),
    job: Option<&Owning<'_>>,
    concerned: &BTreeSet<ClusterName>,
) -> Option<dispatch::Remote> {
    let listed = concerned.contains(&remote.name);
    match remote.lost_since() {
        Some(since) => listed.then(|| dispatch::Remote::Unreachable {
            since,
            fence: fence(d, remote, key, stored),
        }),
        None if listed || remote.holds(key) => {
            let jobs = jobs_like(remote, key, job.map(|owner| owner.jobs.kind.kind()));
            Some(match jobs.and_then(unreadable) {
                Some(why) => dispatch::Remote::Unreadable { why },
                None => dispatch::Remote::Reachable(copies(d, remote, (key, stored), job)),
            })
        }
        None => None,
    }
}

/// A Workload as it is stored, or an empty one when it is gone, and its status.
pub(super) fn as_stored(key: &Key, stored: Option<&ApiWorkload>) -> (Workload, Status) {
    let workload = stored.map_or_else(
        || roadstead_convert::workload(&placeholder(key)),
        roadstead_convert::workload,
    );
    let status = workload.status.clone();
    (workload, status)
}

fn placeholder(key: &Key) -> ApiWorkload {
    let mut workload = ApiWorkload::default();
    workload.metadata.namespace = Some(key.namespace.to_string());
    workload.metadata.name = Some(key.name.to_string());
    workload
}

fn owner(
    stored: Option<&ApiWorkload>,
    job: Option<&(&'static dyn JobKind, CachedJob)>,
    is_known: impl Fn(&str, &str) -> bool,
) -> Owner {
    if let Some((kind, job)) = job {
        if !kind.kind().can(Ability::Dispatched) {
            let kind = Some(kind.kind().to_string());
            return Owner::NoAdapter { kind };
        }
        let Some(managed_by) = kind.kind().managed_by else {
            return Owner::Managed;
        };
        let value = kind.manager_of(member(job.first())).unwrap_or_default();
        if value == controllers::MULTIKUEUE {
            return Owner::Managed;
        }
        return Owner::NotManaged {
            field: managed_by.said.to_owned(),
            value: value.to_owned(),
        };
    }
    let owner =
        stored.and_then(|stored| controller(&stored.metadata).or_else(|| stored.owner_references().first()));
    match owner {
        // Why managed: a job of a known kind is missing here only while it is being deleted, and its Workload is deleted after
        // it.
        Some(owner) if is_known(group_of(&owner.api_version), &owner.kind) => Owner::Managed,
        Some(owner) => Owner::NoAdapter {
            kind: Some(format!("{}, Kind={}", owner.api_version, owner.kind)),
        },
        None => Owner::NoAdapter { kind: None },
    }
}

fn copies(
    d: &Dispatch,
    remote: &Remote,
    (key, stored): (&Key, Option<&ApiWorkload>),
    owner: Option<&Owning<'_>>,
) -> Copies {
    let former = owner.and_then(|owner| former_job(remote, key, (owner.jobs.kind, &owner.key)));
    if former.is_none() && !remote.holds(key) {
        return Copies::default();
    }
    let workload = remote.workloads.get(key).map(|copy| {
        let uid = copy.metadata.uid.as_deref().unwrap_or_default();
        remote_workload(stored, &copy, d.memory.was_asked_to_go(key, uid))
    });
    let epoch = |object: &ObjectMeta| epoch_of(stored, object);
    let (found, origin) = match former {
        Some(former) => (Some(former), Origin::Former),
        None => (find_job(remote, key, owner.map(|owner| &owner.key)), Origin::Ours),
    };
    let is_going = |object: &Arc<DynamicObject>| object.metadata.deletion_timestamp.is_some();
    let is_kept = |object: &Arc<DynamicObject>| object.finalizers().iter().any(|f| f == finalizers::OUTCOME);
    let job = found.map(|(jobs, job)| {
        let look = job.look(jobs.kind);
        let epochs = job.objects().map(|object| epoch(&object.metadata));
        RemoteJob {
            origin,
            life: life(job.objects().all(is_going)),
            pods: pods_there(jobs.kind, &look),
            finished: look.ended.is_some() && !look.killed
                || external::has_ended_there(remote, key, jobs.kind, job.first()),
            epoch: epochs.min().unwrap_or_default(),
            kept: job.objects().any(is_kept),
            twins: { stored.zip(owner) }.map_or(Twins::All, |(stored, owner)| twins(d, owner, stored, &job)),
        }
    });
    Copies { workload, job }
}

fn twins(d: &Dispatch, owner: &Owning<'_>, stored: &ApiWorkload, copies: &CachedJob) -> Twins {
    if unmatched(owner, stored, copies) != Unmatched::default() {
        Twins::Some
    } else if !later(d, owner, copies).is_empty() {
        Twins::Outdated
    } else {
        Twins::All
    }
}

/// Whether a job on a worker may have pods. Why its status of pods counts too: a suspended job may still have some.
fn pods_there(kind: &dyn JobKind, look: &Look) -> PodsThere {
    match look.pods {
        Pods::None if look.suspended => PodsThere::None,
        Pods::Untold if look.suspended => PodsThere::Untold,
        // Why these pods are not waited for: they may run for days, and the next run starts from the beginning whatever they do.
        Pods::Alive if look.suspended && kind.stop_leaves_pods() => PodsThere::Untold,
        Pods::None | Pods::Untold | Pods::Ending | Pods::Alive | Pods::AliveUntil(_) => PodsThere::Some,
    }
}

/// The number of the dispatch that a copy was sent for; 0 when it was sent for another Workload of that name.
fn epoch_of(stored: Option<&ApiWorkload>, copy: &ObjectMeta) -> u64 {
    let of_uid = copy
        .annotations
        .as_ref()
        .and_then(|all| all.get(annotations::WORKLOAD_UID));
    let ours = stored.and_then(|w| w.metadata.uid.as_ref());
    let number = roadstead_convert::epoch(copy.annotations.as_ref()).unwrap_or(0);
    let present = stored.and_then(|w| roadstead_convert::epoch(w.metadata.annotations.as_ref()));
    match (of_uid, ours) {
        (Some(uid), Some(ours)) if ours != uid => 0,
        // Why a copy without the UID counts: a manager of an earlier version sent it. Why not with a higher number: all copies of
        // that version have the same number, and only a copy that names our Workload may raise it.
        (None, Some(_)) if number > present.unwrap_or(0) => 0,
        (Some(_) | None, Some(_) | None) => number,
    }
}

/// The job on a worker that belongs to this Workload: by its name, else by the Workload it names.
pub(super) fn find_job<'a>(
    remote: &'a Remote,
    key: &Key,
    job_key: Option<&JobKey>,
) -> Option<(&'a KindCache, CachedJob)> {
    let of_workload = |jobs: &'a KindCache, job_key: &JobKey| {
        let job = jobs
            .job(job_key)?
            .only(|object| named(object).as_ref() == Some(key))?;
        Some((jobs, job))
    };
    if let Some(job_key) = job_key {
        return remote.jobs.iter().find_map(|jobs| of_workload(jobs, job_key));
    }
    // Reached only if the name of the job is unknown, because its Workload was deleted on the manager.
    remote.held.jobs_of(key).into_iter().find_map(|(kind, object)| {
        let jobs = remote.jobs.get(kind)?;
        of_workload(jobs, &jobs.key_of(&*jobs.objects.get(&object)?))
    })
}

/// A job on the worker that has the name of this Workload's job and belongs to another Workload: an earlier job of that name,
/// whose pods may still be ending.
fn former_job<'a>(
    remote: &'a Remote,
    key: &Key,
    (kind, job_key): (&'static dyn JobKind, &JobKey),
) -> Option<(&'a KindCache, CachedJob)> {
    let jobs = remote.jobs.iter().find(|jobs| jobs.kind.kind() == kind.kind())?;
    let job = jobs
        .job(job_key)?
        .only(|object| named(object).as_ref() != Some(key))?;
    Some((jobs, job))
}

fn remote_workload(stored: Option<&ApiWorkload>, copy: &ApiWorkload, withdrawn: bool) -> RemoteWorkload {
    let said = |kind: &str| {
        let condition = copy.condition(kind).filter(|c| c.status == "True")?;
        Some(Said {
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        })
    };
    let admitted = copy.condition("Admitted").filter(|c| c.status == "True");
    let asked = copy.is_true("DeactivationTarget");
    RemoteWorkload {
        origin: Origin::Ours,
        life: if withdrawn && copy.metadata.deletion_timestamp.is_none() {
            Life::Withdrawn
        } else {
            life(copy.metadata.deletion_timestamp.is_some())
        },
        has_finalizer: copy.finalizers().iter().any(|f| f == finalizers::RESOURCE_IN_USE),
        drift: stored.map_or(dispatch::Drift::None, |local| {
            roadstead_convert::spec_drift(local, copy)
        }),
        active: copy.is_active(),
        answer: match copy.condition("QuotaReserved").map(|c| c.status.as_str()) {
            Some("True") => Answer::Reserved,
            Some(_) => Answer::TurnedDown,
            None => Answer::None,
        },
        words: words(copy),
        admitted: admitted.map(|c| c.last_transition_time.0),
        finished: said("Finished"),
        evicted: said("Evicted"),
        stop: if asked {
            Stop::Requested
        } else {
            Stop::NotRequested
        },
        epoch: epoch_of(stored, &copy.metadata),
        fenced: copy.annotations().contains_key(annotations::FENCED),
    }
}

/// The worker's text about the copy: for which checks the copy waits if it holds quota, else why it holds none.
fn words(copy: &ApiWorkload) -> String {
    let checks = copy.status.iter().flat_map(|status| &status.admission_checks);
    let open: Vec<String> = checks
        .filter(|check| check.state != CheckState::Ready)
        .map(|check| format!("{}: {}", check.name, check.message))
        .collect();
    match copy.condition("QuotaReserved") {
        Some(reserved) if reserved.status == "True" => open.join("; "),
        Some(reserved) => reserved.message.clone(),
        None => String::new(),
    }
}

const fn life(deleting: bool) -> Life {
    if deleting { Life::Deleting } else { Life::Present }
}

/// The progress of the present run of a job on the workers.
///
/// Why not the counters of the local job for pods that are not needed any more: they never fall, so they include an earlier run.
/// Why not its readiness if it stays suspended or gated here: such a job shows none.
pub(super) fn there(d: &Dispatch, workload: &ApiWorkload) -> Option<There> {
    let owning = owner_of(d, workload)?;
    let job = owning.job()?;
    let (jobs, job_key) = (owning.jobs, owning.key.clone());
    if owner(Some(workload), Some(&(jobs.kind, job.clone())), |_, _| true) != Owner::Managed {
        return None;
    }
    // Why: a job of a kind without a managed-by field may run on the manager itself.
    if jobs.kind.kind().managed_by.is_none() && workload.cluster_name().is_none() {
        return None;
    }
    if jobs.kind.is_external() {
        let run = present_run(d, workload, &job_key).map(|(remote, _)| remote);
        let key = roadstead_kubeio::cache::key_of(workload);
        let ended = end_said(d, workload, &owning, &job);
        return Some(external::there(run.as_deref(), &key, ended));
    }
    let run = present_run(d, workload, &job_key);
    let look = run.map(|(_, copy)| copy.look(jobs.kind)).unwrap_or_default();
    Some(There {
        reclaimable: look.reclaimable,
        ready: match jobs.kind.kind().idle {
            Idle::ManagedBy => None,
            Idle::Held | Idle::Gate => Some(look.ready),
        },
        ended: None,
    })
}

/// How the job of a named kind ended, once the local job shows it.
fn end_said(d: &Dispatch, workload: &ApiWorkload, owning: &Owning<'_>, local: &CachedJob) -> Option<Outcome> {
    let copy = present_run(d, workload, &owning.key).map(|(_, copy)| copy);
    external::ended(owning.jobs.kind, workload, (local, copy.as_ref()), (d.clock)())
}

/// The copy of a job on the cluster that its Workload names, if it is of the present dispatch.
fn present_run(d: &Dispatch, workload: &ApiWorkload, job: &JobKey) -> Option<(Arc<Remote>, CachedJob)> {
    let remote = d.registry.get(&ClusterName::from(workload.cluster_name()?))?;
    let key = roadstead_kubeio::cache::key_of(workload);
    let (_, copy) = find_job(&remote, &key, Some(job))?;
    let present = roadstead_convert::epoch(workload.metadata.annotations.as_ref())?;
    let is_present = epoch_of(Some(workload), &copy.first().metadata) == present;
    is_present.then_some((remote, copy))
}

/// Where the job of a local Workload runs, if it is dispatched.
pub(super) fn elsewhere(d: &Dispatch, workload: &ApiWorkload, job: &JobKey) -> Option<Elsewhere> {
    let status = workload.status.as_ref()?;
    let ours = |name: &String| d.federation.is_ours(&CheckName::from(name.as_str()));
    // Why also when it is placed: the check may have been deleted while the job runs.
    if workload.cluster_name().is_none() && !status.admission_checks.iter().any(|check| ours(&check.name)) {
        return None;
    }
    let key = roadstead_kubeio::cache::key_of(workload);
    let (scene, plan) = d.plan_stored(&key, (d.clock)());
    let fate = scene.fate(&plan);
    let node = { plan.mirror.as_ref() }.and_then(|cluster| d.virtual_nodes.node_of(cluster));
    let remote = plan.mirror.and_then(|cluster| d.registry.get(&cluster));
    let copy = |remote: Arc<Remote>| find_job(&remote, &key, Some(job)).map(|(_, copy)| copy);
    Some(Elsewhere {
        job: remote.and_then(copy),
        fate,
        node,
    })
}

#[cfg(test)]
mod tests;
