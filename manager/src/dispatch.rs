//! The manager's admission check: offers Workloads to worker clusters and follows the one that wins.
//!
//! `read` gathers the state, [`roadstead_core::dispatch::plan`] decides, `write` carries out the actions on one worker.
//!
//! Invariant: the same decision is computed for the local status (in the workload reconciler) and for each worker (in that worker's
//! own queue), always from caches. A worker that hangs delays no other worker.

pub(crate) mod candidates;
mod carry;
mod external;
mod fence;
mod kind;
mod memory;
mod owning;
mod read;
pub(crate) mod results;
mod together;
mod unknown;
pub(crate) mod virtual_nodes;
mod words;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use roadstead_api::config::{
    DEFAULT_STEP_SIZE, DISPATCHER_ALL_AT_ONCE, DISPATCHER_CAPACITY, DISPATCHER_INCREMENTAL, FeatureGate,
    FeatureGates, MultiKueue,
};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_core::bug;
use roadstead_core::dispatch::{self, Dispatcher, Local, Plan, Policy};
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_core::status::Status;
use roadstead_engine::caches::{Caches, JobKey, JobRef, KindCache, named};
use roadstead_engine::checks::{Checks, Elsewhere, Fate, Follow, Pass, Rest, There};
use roadstead_engine::clock::Clock;
use roadstead_engine::jobs::job_of;
use roadstead_kubeio::queue::{Lane, Queue};

use crate::capacity::Ledger;
use crate::checks::Federation;
use crate::explain::{Journal, Saying};
use crate::families::Families;
use crate::fresh::Fresh;
use crate::metrics::{Anew, Hop, Metrics};
use crate::remote::Remote;
use crate::remote::lease::Lessor;
use crate::remote::registry::Registry;
use crate::steps::Steps;

pub(crate) use memory::Memory;
pub(crate) use unknown::Unknown;
pub(crate) use write::run;

/// Everything that a decision about a Workload needs.
#[derive(Clone)]
pub(crate) struct Dispatch {
    /// The manager's own cluster.
    pub(crate) caches: Caches,
    /// Checks, configs and clusters.
    pub(crate) federation: Federation,
    /// The caches that are listed again when this replica begins to lead.
    pub(crate) fresh: Arc<Fresh>,
    /// The workers.
    pub(crate) registry: Arc<Registry>,
    /// Client of the manager's own cluster.
    pub(crate) client: Client,
    /// The reasons that users see for Workloads that wait.
    pub(crate) journal: Arc<Journal>,
    /// The amounts that were sent to workers lately.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Metrics,
    /// Whether the configuration names no dispatcher, so that the manager chooses one by the programs that run on the workers.
    pub(crate) may_choose: bool,
    /// Whether running copies follow changes of their jobs, where their kind allows that.
    pub(crate) may_forward: bool,
    /// Whether jobs of the kinds that the administrator names are sent to workers.
    pub(crate) may_adapt: bool,
    /// The workers that failed lately.
    pub(crate) memory: Arc<Memory>,
    /// Workloads to look at once the federation is known.
    pub(crate) unknown: Arc<Unknown>,
    /// Local Workloads to look at.
    pub(crate) due: Arc<Queue<Key>>,
    /// Local jobs to look at.
    pub(crate) jobs_due: Arc<Queue<JobRef>>,
    /// The origin of this manager: the label value of its objects on workers.
    pub(crate) origin: Arc<str>,
    /// The settings of the administrator.
    pub(crate) policy: Policy,
    /// Our leases on the workers.
    pub(crate) lessor: Arc<Lessor>,
    /// For the planted bug `HungBlocksAll`: lets only one pass run at a time, on all workers together.
    #[cfg(feature = "bugbank")]
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The nodes on which pods show in which cluster they run.
    pub(crate) virtual_nodes: Arc<virtual_nodes::Kept>,
    /// The manager's pods that are steps of Argo Workflows.
    pub(crate) steps: Arc<Steps>,
    /// The manager's pods that stay in one cluster together.
    pub(crate) families: Arc<Families>,
    /// Since when this process runs: a worker that it has not reached yet counts as lost since then.
    pub(crate) started: Timestamp,
    pub(crate) clock: Clock,
}

impl Checks for Dispatch {
    fn plan(&self, pass: &Pass<'_>, status: &mut Status, now: Timestamp) -> Follow {
        let knows_everything = self.knows_everything();
        if !knows_everything {
            self.wait_until_known(&pass.workload.key, pass.stored);
        }
        // Why no wake-up for an unknown kind of jobs: once its jobs are listed, their Workloads become due.
        if !knows_everything || !self.knows_jobs_like(pass.stored) {
            dispatch::hold(&roadstead_convert::workload(pass.stored).status, status);
            return Follow::default();
        }
        // Why in this pass: when the last object of this Workload leaves a worker, for whatever reason, the Workload becomes due.
        self.memory.forget_refusals(&pass.workload.key, |cluster| {
            self.is_rid(cluster, &pass.workload.key)
        });
        let stored_status = roadstead_convert::workload_status(pass.stored);
        dispatch::keep_check(&stored_status, status, |name| self.federation.is_ours(name), now);
        let mut composed = pass.workload.clone();
        composed.status = status.clone();
        let known = (composed, stored_status);
        let scene = read::scene(self, &pass.workload.key, Some(pass.stored), known);
        let plan = scene.plan(Local::Present, now);
        let annotate = scene.new_epoch(&plan);
        self.remember(&pass.workload.key, &plan, now);
        candidates::note_sent(self, pass.workload, &plan, now);
        let before = pass.workload.status.cluster.as_ref();
        let anew = (plan.epoch > scene.epoch()).then(|| self.anew(pass.stored, &plan, scene.epoch()));
        let placed = placed(pass.stored, before, plan.status.cluster.as_ref());
        let mut notes = plan.notes.clone();
        let saying = self.journal.note(pass.stored, &pass.workload.key, &plan, now);
        let (told, later) = match saying {
            Saying::Nothing => (None, None),
            Saying::Later(at) => (None, Some(at)),
            Saying::Now { value, note } => {
                if let Some(note) = &note {
                    self.metrics.told(&note.reason);
                }
                notes.extend(note);
                (Some((pass.workload.uid.clone(), value)), None)
            }
        };
        let concerned = plan.concerned().cloned().collect();
        *status = plan.status.clone();
        // Why the job too: when no copy is left, no watch of a worker makes the job due. After a restart the copy may have been
        // listed before the Workload, and then it made no job due.
        if (plan.stopped || plan.conclude || plan.mirror.is_some())
            && let Some(job) = job_of(&self.caches, pass.stored)
        {
            self.jobs_due.add(job, Lane::Placed);
        }
        let (this, key) = (self.clone(), pass.workload.key.clone());
        Follow {
            notes,
            wake_at: [plan.wake_at, later, scene.again(now)]
                .into_iter()
                .flatten()
                .min(),
            annotate,
            rest: if plan.stopped {
                Rest::Certain
            } else {
                Rest::AskTheJob
            },
            // Why the queues of the workers do not use this plan: they plan again from the stored status, once it is stored.
            work: Some(Box::pin(async move {
                this.memory.remember_round(&key, plan.round);
                this.wake_workers(&key, &concerned);
                if let Some((holder, why)) = anew {
                    this.metrics.begun_anew(holder.as_ref(), why);
                }
                if let Some((cluster, queue, since)) = placed {
                    this.metrics.admitted(&queue, &cluster);
                    this.metrics.hop(Hop::Place, &cluster, since, now);
                }
                let Some((uid, value)) = told else { return Ok(()) };
                let written = this
                    .journal
                    .write(&this.client, (&key, uid.as_str()), &value, now);
                if let Some(object) = written.await? {
                    this.caches.workloads.observe(*object);
                }
                Ok(())
            })),
        }
    }

    fn gone(&self, key: &Key) {
        self.memory.forget(key);
        self.journal.forget(key);
        self.wake_workers(key, &BTreeSet::new());
    }

    fn catch_up(&self) {
        self.fresh.catch_up();
    }

    fn may_run_elsewhere(&self, workload: &Workload) -> bool {
        // Why whatever its checks are: an administrator may replace or delete the check while the job runs.
        workload.cluster_name().is_some()
    }

    fn there(&self, workload: &Workload) -> Option<There> {
        read::there(self, workload)
    }

    fn runs_elsewhere(&self, workload: &Workload, job: &JobKey) -> Option<Elsewhere> {
        if !self.knows_everything() || !self.knows_jobs_like(workload) {
            // Why any check counts: while the AdmissionChecks are not listed, it is unknown which of them are ours.
            let is_dispatched = { workload.status.as_ref() }
                .is_some_and(|s| s.cluster_name.is_some() || !s.admission_checks.is_empty());
            return is_dispatched.then_some(Elsewhere {
                job: None,
                fate: Fate::NotYet,
                node: None,
            });
        }
        read::elsewhere(self, workload, job)
    }
}

impl Dispatch {
    /// Whether the federation and the Workloads are listed, from which each decision is made; jobs are known by kind
    /// ([`Self::knows_jobs_like`]).
    ///
    /// Invariant: until then the manager decides nothing and removes nothing. Otherwise, after a restart, a Workload that is not
    /// listed yet would look deleted, and its running copy would be collected.
    pub(crate) fn knows_everything(&self) -> bool {
        let caches = &self.caches;
        self.federation.is_known() && caches.workloads.is_live()
    }

    /// Whether the local jobs of the kind of this Workload's job are known. An unknown kind delays no other kind.
    pub(crate) fn knows_jobs_like(&self, workload: &Workload) -> bool {
        let jobs = job_of(&self.caches, workload).and_then(|job| self.caches.jobs.get(job.kind));
        jobs.is_none_or(|jobs| jobs.state() != KindState::Unknown)
    }

    /// For a plan that raises the dispatch number: the cluster that held the dispatch before, and why that dispatch is over.
    fn anew(&self, stored: &Workload, plan: &Plan, present: u64) -> (Option<ClusterName>, Anew) {
        let holder = stored.cluster_name().map(ClusterName::from);
        let lost = |cluster: &ClusterName| {
            let remote = self.registry.get(cluster);
            remote.is_none_or(|remote| remote.lost_since().is_some())
        };
        let why = match &holder {
            _ if plan.highest > present => Anew::HigherSeen,
            Some(cluster) if lost(cluster) => Anew::WorkerLost,
            Some(_) | None => Anew::Stopped,
        };
        (holder, why)
    }

    /// Whether a worker is connected and has no object of this Workload left.
    fn is_rid(&self, cluster: &ClusterName, key: &Key) -> bool {
        let remote = self.registry.get(cluster);
        remote.is_some_and(|remote| remote.lost_since().is_none() && !remote.holds(key))
    }

    /// The plan for a Workload from what is stored now.
    fn plan_stored(&self, key: &Key, now: Timestamp) -> (read::Scene, Plan) {
        let stored = self.caches.workloads.get(key);
        let known = read::as_stored(key, stored.as_deref());
        let scene = read::scene(self, key, stored.as_deref(), known);
        let local = if stored.is_some() {
            Local::Present
        } else {
            Local::Gone
        };
        let plan = scene.plan(local, now);
        (scene, plan)
    }

    fn remember(&self, key: &Key, plan: &Plan, now: Timestamp) {
        if plan.highest > plan.epoch {
            self.memory.remember_highest(key, plan.highest);
        }
        for (cluster, cause) in &plan.failed {
            let words = plan.words.get(cluster).cloned().unwrap_or_default();
            if self.memory.failed(key, cluster, *cause, words, now) {
                self.metrics.removed(cluster, *cause);
            }
        }
        if let Some(waiting) = &plan.waiting {
            tracing::debug!(workload = %key, reason = waiting.reason(), "{waiting}; {}", waiting.next_step());
        }
    }

    /// Makes a Workload due on every worker that may have an action for it: the workers in the plan, and those that hold an
    /// object of it. Why not on all workers: each would make a plan of its own, and each plan reads the state of all workers.
    fn wake_workers(&self, key: &Key, concerned: &BTreeSet<ClusterName>) {
        let lane = self.lane(key);
        for remote in self.registry.all().iter() {
            if remote.holds(key) || concerned.contains(&remote.name) {
                remote.due.add(key.clone(), lane);
            }
        }
    }

    /// The lane of a Workload: one that is placed or deleted goes before one that has no cluster yet.
    fn lane(&self, key: &Key) -> Lane {
        match self.caches.workloads.get(key) {
            Some(workload) if workload.cluster_name().is_none() => Lane::New,
            Some(_) | None => Lane::Placed,
        }
    }

    /// Follows the changes in a worker's caches.
    pub(crate) fn greet(&self, remote: &Arc<Remote>) {
        let (due, here, caches) = (self.due.clone(), remote.due.clone(), self.caches.clone());
        let forgets = bug!(self.policy, OrphanOnUnreachable);
        let memory = self.memory.clone();
        remote.workloads.listen(move |change| {
            memory.note_gone(Some(change.key), change);
            if caches.workloads.get(change.key).is_some() {
                due.add(change.key.clone(), Lane::Placed);
            } else if !forgets {
                here.add(change.key.clone(), Lane::New);
            }
        });
        for jobs in &remote.jobs {
            let here_too = |own: &KindCache| own.kind.kind() == jobs.kind.kind();
            let Some(kind) = self.caches.jobs.iter().position(here_too) else {
                continue;
            };
            let (due, here, caches) = (self.due.clone(), remote.due.clone(), self.caches.clone());
            let (jobs_due, memory) = (self.jobs_due.clone(), self.memory.clone());
            let of_kind = jobs.clone();
            jobs.objects.listen(move |change| {
                let objects = || [change.old, change.new].into_iter().flatten();
                let workloads: BTreeSet<Key> = objects().filter_map(|object| named(object)).collect();
                let jobs: BTreeSet<JobKey> = objects().map(|object| of_kind.key_of(object)).collect();
                // Why: a job that was created again on the manager waits until the worker has no object of the earlier job of its
                // name.
                for key in jobs.iter().flat_map(|job| namesakes(&caches, kind, job)) {
                    if !workloads.contains(&key) {
                        due.add(key, Lane::Placed);
                    }
                }
                memory.note_gone(change.old.and_then(|job| named(job)).as_ref(), change);
                for key in workloads {
                    if caches.workloads.get(&key).is_none() {
                        if !forgets {
                            here.add(key, Lane::New);
                        }
                        continue;
                    }
                    // Why both: the job shows the status, the Workload decides what it means.
                    for job in &jobs {
                        let key = job.clone();
                        jobs_due.add(JobRef { kind, key }, Lane::Placed);
                    }
                    due.add(key, Lane::Placed);
                }
            });
        }
    }

    /// Makes due the other Workloads that are nominated for a worker and have no copy there, because the worker answers a
    /// creation late.
    fn worker_is_late(&self, remote: &Remote) {
        tracing::debug!(cluster = %remote.name, "late with the receipt of a copy; others are asked too");
        for workload in self.caches.workloads.all() {
            let asked = workload.status.iter().flat_map(|s| &s.nominated_cluster_names);
            let key = roadstead_kubeio::cache::key_of(&*workload);
            if { asked }.any(|name| name == remote.name.as_str()) && remote.workloads.get(&key).is_none() {
                self.due.add(key, Lane::New);
            }
        }
    }

    /// Makes due every Workload that concerns a worker that came or went.
    pub(crate) fn cluster_changed(&self, name: &ClusterName) {
        if bug!(self.policy, NoLookAfterBreak) {
            return;
        }
        // Why every Workload with a check while the federation is not listed: it is unknown which checks name this worker.
        if !self.federation.is_known() {
            return self.look_again(name, has_check);
        }
        let checks = self.federation.checks_with(name);
        self.look_again(name, |workload| {
            let status = workload.status.as_ref();
            let mut asked = status.into_iter().flat_map(|status| &status.admission_checks);
            let nominated = status
                .into_iter()
                .flat_map(|status| &status.nominated_cluster_names);
            let mut named = nominated.map(String::as_str).chain(workload.cluster_name());
            asked.any(|check| checks.contains(check.name.as_str())) || named.any(|one| one == name.as_str())
        });
    }

    /// Makes due every Workload with a check, because its check may have gained or lost a worker.
    ///
    /// Why not as in `cluster_changed`: once the config has removed the worker, nothing shows which Workloads were offered to it.
    pub(crate) fn membership_changed(&self, name: &ClusterName) {
        self.look_again(name, has_check);
    }

    /// Makes due every Workload with objects on a worker, and the Workloads of the manager that may be `concerned` and have not
    /// ended. Why not all ended ones: there may be many. An ended Workload matters in two cases: an object of it is left on the
    /// worker, or its local job does not show the end yet. In the second case no other event makes it due if the worker has lost
    /// its copy.
    fn look_again(&self, name: &ClusterName, concerned: impl Fn(&Workload) -> bool) {
        let remote = self.registry.get(name);
        for workload in self.caches.workloads.all() {
            let key = roadstead_kubeio::cache::key_of(&*workload);
            let is_left = || remote.as_ref().is_some_and(|remote| remote.holds(&key));
            let is_open = || !workload.is_true("Finished") || self.owes_end(&workload, name);
            if (concerned(&workload) && is_open()) || is_left() {
                self.due.add(key, Lane::New);
            }
        }
        if bug!(self.policy, OrphanOnUnreachable) {
            return;
        }
        if let Some(remote) = remote {
            for key in remote.held.all() {
                remote.due.add(key, Lane::New);
            }
        }
    }

    /// Whether a Workload is placed on this worker and its local job does not show an end yet.
    fn owes_end(&self, workload: &Workload, name: &ClusterName) -> bool {
        let here = workload.cluster_name() == Some(name.as_str());
        let Some(at) = here.then(|| job_of(&self.caches, workload)).flatten() else {
            return false;
        };
        let jobs = self.caches.jobs.get(at.kind);
        jobs.and_then(|jobs| Some(jobs.job(&at.key)?.look(jobs.kind).ended.is_none()))
            .unwrap_or(false)
    }
}

/// The Workloads of the manager's own job of this name.
fn namesakes(caches: &Caches, kind: usize, job: &JobKey) -> Vec<Key> {
    let local = caches.jobs.get(kind).and_then(|jobs| jobs.job(job));
    let uid = local.and_then(|job| job.first().metadata.uid.clone());
    uid.map(|uid| caches.workloads_of(job, &uid)).unwrap_or_default()
}

/// Whether the Workload has an AdmissionCheck.
fn has_check(workload: &Workload) -> bool {
    let checks = workload.status.as_ref().map(|status| &status.admission_checks);
    checks.is_some_and(|checks| !checks.is_empty())
}

/// For the metrics: the cluster that this pass has chosen, the ClusterQueue, and since when quota is reserved. `None` if none is
/// chosen, or if one was chosen `before`.
fn placed(
    stored: &Workload,
    before: Option<&ClusterName>,
    now: Option<&ClusterName>,
) -> Option<(ClusterName, String, Timestamp)> {
    let cluster = now.filter(|_| before.is_none())?;
    let reserved = stored.condition("QuotaReserved")?;
    let queue = stored.admission()?.cluster_queue.clone();
    Some((cluster.clone(), queue, reserved.last_transition_time.0))
}

/// The dispatcher's settings from the configuration file.
pub(crate) fn policy(config: &MultiKueue, gates: &FeatureGates, lost: dispatch::LostPolicy) -> Policy {
    Policy {
        worker_lost_timeout: config.worker_lost_timeout,
        lost,
        dispatcher: match config.dispatcher_name.as_str() {
            DISPATCHER_ALL_AT_ONCE => Dispatcher::AllAtOnce,
            DISPATCHER_INCREMENTAL => Dispatcher::Incremental {
                step: step_size(config, gates),
                order: if gates.enabled(FeatureGate::MultiKueueIncrementalDispatcherRespectConfigOrder) {
                    dispatch::Order::OfConfig
                } else {
                    dispatch::Order::OfName
                },
            },
            DISPATCHER_CAPACITY => Dispatcher::Capacity,
            _ => Dispatcher::External,
        },
        #[cfg(feature = "bugbank")]
        bug: None,
    }
}

/// Clusters asked per round. *Source*: `spec/multikueue.md 4.1`.
fn step_size(config: &MultiKueue, gates: &FeatureGates) -> u32 {
    let is_read = gates.enabled(FeatureGate::MultiKueueIncrementalDispatcherConfig);
    let size = if is_read {
        config.step_size()
    } else {
        DEFAULT_STEP_SIZE
    };
    u32::try_from(size).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use roadstead_api::config::{Config, IncrementalDispatcher};
    use roadstead_core::dispatch::{LostPolicy, Order};
    use serde_json::{from_value, json};

    use super::*;

    /// Spec: multikueue 8, 11.85
    #[test]
    fn an_admission_is_counted_when_it_is_decided_and_not_again() {
        let stored = json!({ "metadata": {}, "spec": { "podSets": [] }, "status": {
            "admission": { "clusterQueue": "team", "podSetAssignments": [] },
            "conditions": [{
                "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:09Z",
            }],
        } });
        let stored: Workload = from_value(stored).unwrap();
        let (east, since) = (ClusterName::from("east"), Timestamp::from_second(9).unwrap());
        let counted = Some((east.clone(), "team".to_owned(), since));
        assert_eq!(placed(&stored, None, Some(&east)), counted);
        assert_eq!(placed(&stored, Some(&east), Some(&east)), None);
        assert_eq!(placed(&stored, Some(&east), None), None);
        assert_eq!(placed(&stored, None, None), None);
    }

    /// Spec: multikueue 4.1, 11.49, 11.50
    #[test]
    fn gates_decide_about_the_steps_of_the_incremental_dispatcher() {
        let mut config = Config::without_file("ns").multi_kueue;
        config.dispatcher_name = DISPATCHER_INCREMENTAL.to_owned();
        config.incremental = Some(IncrementalDispatcher { step_size: 1 });
        let check = |settings: &[(&str, bool)], step, order| {
            let gates = FeatureGates::resolve(settings.iter().copied()).unwrap();
            let wanted = Dispatcher::Incremental { step, order };
            assert_eq!(policy(&config, &gates, LostPolicy::Wait).dispatcher, wanted);
        };
        check(&[], 1, Order::OfConfig);
        check(
            &[("MultiKueueIncrementalDispatcherConfig", false)],
            3,
            Order::OfConfig,
        );
        check(
            &[("MultiKueueIncrementalDispatcherRespectConfigOrder", false)],
            1,
            Order::OfName,
        );
    }
}
