//! A small random world around the plan: workers act as they like, links break, and every pass may die between any two of its
//! writes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use site::Site;

mod histories;
mod site;

const SITES: [&str; 3] = ["a", "b", "c"];
const FAILURE_MINS: i64 = 5;
const LEASE: SignedDuration = SignedDuration::from_mins(10);
const CLOSED_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// After this many rounds without faults everything must be over.
const PATIENCE: usize = 60;
/// A world in which only the manager acts must be still after this many passes.
const SETTLES_WITHIN: usize = 20;
const NO_CRASH: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// One pass that dies after so many writes.
    Pass(usize),
    Admit(usize),
    Evict(usize),
    Reject(usize),
    Finish(usize),
    OutOfSync(usize),
    Work(usize),
    DropWorkload(usize),
    DropJob(usize),
    PutForeign(usize),
    /// The storage of the worker is saved.
    Save(usize),
    /// The worker's storage is restored from what was saved.
    Rewind(usize),
    Cut(usize),
    Heal(usize),
    Wait(i64),
    EvictHere,
    ReleaseQuota,
    Reserve,
    Unlist(usize),
    DeleteHere,
    /// The user deletes the Workload, not its job: a new Workload is created once the old one is gone.
    DeleteWorkloadHere,
}

fn op() -> impl Strategy<Value = Op> {
    let site = 0..SITES.len();
    prop_oneof![
        12 => (0..8_usize).prop_map(Op::Pass),
        6 => Just(Op::Pass(NO_CRASH)),
        6 => site.clone().prop_map(Op::Admit),
        2 => site.clone().prop_map(Op::Evict),
        1 => site.clone().prop_map(Op::Reject),
        1 => site.clone().prop_map(Op::Finish),
        1 => site.clone().prop_map(Op::OutOfSync),
        8 => site.clone().prop_map(Op::Work),
        1 => site.clone().prop_map(Op::DropWorkload),
        1 => site.clone().prop_map(Op::DropJob),
        1 => site.clone().prop_map(Op::PutForeign),
        1 => site.clone().prop_map(Op::Save),
        1 => site.clone().prop_map(Op::Rewind),
        2 => site.clone().prop_map(Op::Cut),
        3 => site.clone().prop_map(Op::Heal),
        3 => (1..20_i64).prop_map(Op::Wait),
        2 => Just(Op::EvictHere),
        2 => Just(Op::ReleaseQuota),
        4 => Just(Op::Reserve),
        1 => site.prop_map(Op::Unlist),
        1 => Just(Op::DeleteHere),
        1 => Just(Op::DeleteWorkloadHere),
    ]
}

struct World {
    stored: Status,
    local: Local,
    listed: Vec<ClusterName>,
    sites: BTreeMap<ClusterName, Site>,
    failures: BTreeMap<ClusterName, Failure>,
    job: LocalJob,
    local_runs: bool,
    epoch: u64,
    lost: LostPolicy,
    minute: i64,
    decisions: usize,
    jobs_of: BTreeMap<usize, Vec<ClusterName>>,
    evict_here: bool,
    deleting: bool,
    dispatcher: Dispatcher,
}

impl World {
    fn new(lost: LostPolicy, dispatcher: Dispatcher) -> Self {
        Self {
            stored: Case::new().status,
            local: Local::Present,
            listed: SITES.iter().map(|s| (*s).into()).collect(),
            sites: SITES.iter().map(|s| ((*s).into(), Site::default())).collect(),
            failures: BTreeMap::new(),
            job: LocalJob {
                present: true,
                finished: false,
            },
            local_runs: false,
            epoch: 1,
            lost,
            minute: 0,
            decisions: 0,
            jobs_of: BTreeMap::new(),
            evict_here: false,
            deleting: false,
            dispatcher,
        }
    }

    fn now(&self) -> Timestamp {
        at(self.minute)
    }

    fn has(&self, condition: &str) -> bool {
        self.stored.conditions.is_true(condition)
    }

    /// The part of the lifecycle that matters here.
    fn compose(&self) -> Status {
        let (mut status, now) = (self.stored.clone(), self.now());
        let evicted = status.conditions.is_true("Evicted");
        let wanted = self.evict_here
            || status
                .checks
                .values()
                .any(|c| matches!(c.phase, CheckPhase::Retry | CheckPhase::Rejected));
        if wanted && !evicted && status.conditions.is_true("QuotaReserved") && !self.has("Finished") {
            status
                .conditions
                .set("Evicted", Truth::True, "AdmissionCheck", "x", now);
            status.checks.insert(CHECK.into(), CheckState::pending(now));
            status.cluster = None;
            status.nominated.clear();
        } else if evicted && !self.local_runs && self.stored.cluster.is_none() {
            status
                .conditions
                .set("QuotaReserved", Truth::False, "Pending", "", now);
        }
        if self.job.finished {
            status
                .conditions
                .set("Finished", Truth::True, "Succeeded", "", now);
        }
        status
    }

    fn plan(&self) -> (Status, Plan) {
        let status = self.compose();
        let remotes = self.sites.iter().map(|(name, site)| {
            let remote = match site.cut_since {
                Some(since) => Remote::Unreachable {
                    since,
                    fence: Fence::Closes {
                        at: later(since, CLOSED_AFTER),
                    },
                },
                None => Remote::Reachable(site.copies.clone()),
            };
            (name.clone(), remote)
        });
        let case = Case {
            status: status.clone(),
            stored: Some(self.stored.clone()),
            local: self.local,
            clusters: self.listed.clone(),
            remotes: remotes.collect(),
            failures: self.failures.clone(),
            deleting: self.deleting,
            job: self.job,
            epoch: self.epoch,
            lost: self.lost,
            dispatcher: self.dispatcher,
            now: self.minute,
            ..Case::new()
        };
        let plan = case.plan();
        self.judge(&status, &plan);
        (status, plan)
    }

    fn judge(&self, composed: &Status, plan: &Plan) {
        let is = |kind| composed.conditions.is_true(kind);
        let pending = composed.checks[&CheckName::from(CHECK)].phase == CheckPhase::Pending;
        let seeks = self.local == Local::Present
            && !self.deleting
            && pending
            && is("QuotaReserved")
            && !is("Evicted");
        let over = is("Finished") || plan.status.conditions.is_true("Finished");
        if seeks && !over && plan.check().0 == CheckPhase::Pending {
            assert!(plan.waiting.is_some(), "it waits, so it says why");
        }
        assert!(plan.status.cluster.is_none() || plan.status.nominated.is_empty());
        for (cluster, actions) in &plan.remote {
            assert!(self.sites[cluster].cut_since.is_none() && !actions.is_empty());
        }
    }

    /// One pass of the reconciler that dies after `budget` writes. Returns whether it found anything to write.
    fn pass(&mut self, mut budget: usize) -> bool {
        let (_, plan) = self.plan();
        let mut spend = || {
            let left = budget > 0;
            budget = budget.saturating_sub(1);
            left
        };
        let mut wrote = false;
        let sent_with = self.epoch;
        if plan.epoch != self.epoch && self.local == Local::Present {
            if !spend() {
                return true;
            }
            assert!(plan.epoch > self.epoch, "it only grows");
            self.epoch = plan.epoch;
            wrote = true;
        }
        self.local_runs &= !plan.stopped;
        if plan.status != self.stored && self.local == Local::Present {
            if !spend() {
                return true;
            }
            self.write_status(plan.status);
            wrote = true;
        }
        for (cluster, cause) in plan.failed {
            let until = at(self.minute + FAILURE_MINS);
            let detail = String::new();
            self.failures.insert(cluster, Failure { until, cause, detail });
        }
        if plan.conclude {
            if !spend() {
                return true;
            }
            self.job.finished = true;
        }
        if let Some(cluster) = plan.mirror {
            if !spend() {
                return true;
            }
            let job = self.sites[&cluster].copies.job.unwrap();
            assert_eq!(job.epoch, sent_with, "only the present dispatch is believed");
            self.local_runs = job.runs();
            self.job.finished |= job.finished;
        }
        for (cluster, action) in plan
            .remote
            .into_iter()
            .flat_map(|(c, a)| a.into_iter().map(move |a| (c.clone(), a)))
        {
            if !spend() {
                return true;
            }
            self.apply(&cluster, &action);
            wrote = true;
        }
        if self.deleting && !self.local_runs && self.stored.cluster.is_none() {
            self.make_anew();
            wrote = true;
        }
        wrote
    }

    /// The deleted Workload is gone, and its job has a new one. Copies of the old one belong to no dispatch of the new one.
    fn make_anew(&mut self) {
        (self.deleting, self.epoch) = (false, 1);
        if !self.has("Finished") {
            self.stored = Case::new().status;
        }
        for site in self.sites.values_mut() {
            for copies in [Some(&mut site.copies), site.saved.as_mut()]
                .into_iter()
                .flatten()
            {
                copies.workload.iter_mut().for_each(|w| w.epoch = 0);
                let ours = copies.job.iter_mut().filter(|job| job.origin == Origin::Ours);
                ours.for_each(|job| job.epoch = 0);
            }
        }
    }

    fn write_status(&mut self, new: Status) {
        let old = &self.stored;
        if let Some(winner) = &new.cluster {
            match &old.cluster {
                None => {
                    assert!(old.nominated.contains(winner), "the webhook refuses it");
                    self.decisions += 1;
                }
                Some(before) => assert_eq!(before, winner, "immutable once set"),
            }
        }
        self.evict_here = false;
        self.stored = new;
    }

    /// The worker's API server: strict about what exists and which manager made it.
    fn apply(&mut self, cluster: &ClusterName, action: &RemoteAction) {
        let copies = &mut self.sites.get_mut(cluster).unwrap().copies;
        let ours = |w: &Option<RemoteWorkload>| w.as_ref().is_some_and(|w| w.origin == Origin::Ours);
        match action {
            RemoteAction::CreateWorkload => {
                assert!(copies.workload.is_none() && copies.job.is_none());
                copies.workload = Some(RemoteWorkload {
                    epoch: self.epoch,
                    ..remote()
                });
            }
            RemoteAction::DeleteWorkload => {
                assert!(ours(&copies.workload));
                match &mut copies.workload {
                    Some(w) if w.has_finalizer => w.life = Life::Deleting,
                    _ => copies.workload = None,
                }
            }
            RemoteAction::StripFinalizer => {
                assert!(ours(&copies.workload));
                let w = copies.workload.as_mut().unwrap();
                w.has_finalizer = false;
                if w.life == Life::Deleting {
                    copies.workload = None;
                }
            }
            RemoteAction::CreateJob => {
                assert_eq!(
                    self.stored.cluster.as_ref(),
                    Some(cluster),
                    "decided before it is created"
                );
                assert!(copies.job.is_none() && ours(&copies.workload));
                copies.job = Some(RemoteJob {
                    pods: PodsThere::None,
                    epoch: self.epoch,
                    ..RUNNING
                });
                self.jobs_of
                    .entry(self.decisions)
                    .or_default()
                    .push(cluster.clone());
            }
            RemoteAction::UpdateJob => unreachable!("no job changes here"),
            RemoteAction::DeleteJob => {
                let job = copies.job.as_mut().unwrap();
                assert_eq!(job.origin, Origin::Ours);
                (job.life, job.kept) = (Life::Deleting, false);
            }
            RemoteAction::SetPriority => unreachable!("nobody changes priorities here"),
            RemoteAction::LookForNeeds => unreachable!("no cluster lacks an object here"),
            RemoteAction::RequestStop { .. } => {
                assert!(ours(&copies.workload));
                copies.workload.as_mut().unwrap().stop = Stop::Requested;
            }
        }
    }

    fn site(&mut self, site: usize) -> &mut Site {
        self.sites.get_mut(&ClusterName::from(SITES[site])).unwrap()
    }

    fn ours(&mut self, site: usize) -> Option<&mut RemoteWorkload> {
        let copies = &mut self.site(site).copies;
        copies
            .workload
            .as_mut()
            .filter(|w| w.origin == Origin::Ours && w.finished.is_none())
    }

    fn admit(&mut self, site: usize) {
        let now = self.now();
        if let Some(w) = self.ours(site)
            && w.active
            && w.life == Life::Present
        {
            (w.answer, w.admitted, w.evicted) = (Answer::Reserved, Some(now), None);
        }
    }

    fn evict(&mut self, site: usize, active: bool) {
        if let Some(w) = self.ours(site) {
            (w.answer, w.admitted, w.active) = (Answer::None, None, active);
            w.evicted = Some(said("Preempted", "x"));
        }
    }

    /// The worker's own engine takes one turn.
    fn work(&mut self, site: usize) {
        let stop = self
            .ours(site)
            .is_some_and(|w| w.stop == Stop::Requested && w.active);
        if stop {
            self.evict(site, false);
        }
        let copies = &mut self.site(site).copies;
        let dying = copies
            .job
            .filter(|job| job.origin == Origin::Ours && job.life == Life::Deleting);
        match dying {
            Some(job) if !job.kept => copies.job = None,
            Some(job) => {
                // Why: no process stops or ends a job that is being deleted, and its Workload has lost its owner.
                if let Some(w) = self.ours(site).filter(|_| !job.finished) {
                    w.finished = Some(said("OwnerNotFound", "x"));
                }
                return;
            }
            None => {}
        }
        let starts = copies
            .our_workload()
            .is_some_and(|w| w.admitted.is_some() && w.finished.is_none());
        if let Some(job) = copies.job.as_mut().filter(|job| job.origin == Origin::Ours) {
            job.pods = if starts { PodsThere::Some } else { PodsThere::None };
        }
    }

    fn finish(&mut self, site: usize) {
        let copies = &mut self.site(site).copies;
        if copies.runs()
            && let (Some(job), Some(w)) = (&mut copies.job, &mut copies.workload)
            && w.origin == Origin::Ours
        {
            job.finished = true;
            w.finished = Some(said("Succeeded", "done"));
        }
    }

    fn step(&mut self, op: Op) {
        let name = |site: usize| ClusterName::from(SITES[site]);
        match op {
            Op::Pass(budget) => {
                self.pass(budget);
            }
            Op::Admit(site) => self.admit(site),
            Op::Evict(site) => self.evict(site, true),
            Op::Reject(site) => self.evict(site, false),
            Op::Finish(site) => self.finish(site),
            Op::OutOfSync(site) => {
                if let Some(w) = self.ours(site) {
                    w.finished = Some(said("OutOfSync", "x"));
                }
            }
            Op::Work(site) => self.work(site),
            Op::DropWorkload(site) => {
                if self.ours(site).is_some() {
                    self.site(site).copies.workload = None;
                }
            }
            Op::DropJob(site) => {
                let copies = &mut self.site(site).copies;
                match copies.job.as_mut().filter(|job| job.origin == Origin::Ours) {
                    Some(job) if job.kept => job.life = Life::Deleting,
                    Some(_) => copies.job = None,
                    None => {}
                }
            }
            Op::PutForeign(site) => {
                let copies = &mut self.site(site).copies;
                // One worker stays clean, so that the job can run somewhere in the end.
                if site > 0 && copies.job.is_none() {
                    copies.job = Some(RemoteJob {
                        origin: Origin::Foreign,
                        ..RUNNING
                    });
                }
            }
            Op::Save(site) => self.site(site).saved = Some(self.site(site).copies.clone()),
            Op::Rewind(site) => {
                let site = self.site(site);
                if let Some(saved) = site.saved.take() {
                    site.copies = saved;
                }
            }
            Op::Cut(site) => {
                let now = self.now();
                self.site(site).cut_since.get_or_insert(now);
            }
            Op::Heal(site) => self.site(site).cut_since = None,
            Op::Wait(minutes) => {
                self.minute += minutes;
                let now = self.now();
                let alone = |site: &&mut Site| site.cut_since.is_some_and(|since| later(since, LEASE) <= now);
                if self.lost == LostPolicy::Fence {
                    self.sites.values_mut().filter(alone).for_each(Site::fence);
                }
            }
            Op::EvictHere => self.evict_here = self.has("QuotaReserved") && !self.has("Evicted"),
            Op::ReleaseQuota => {
                if self.has("Evicted") {
                    let now = self.now();
                    self.stored
                        .conditions
                        .set("QuotaReserved", Truth::False, "Pending", "", now);
                }
            }
            Op::Reserve => self.reserve(),
            Op::Unlist(site) => self.listed.retain(|c| *c != name(site)),
            Op::DeleteWorkloadHere => self.deleting = self.local == Local::Present,
            Op::DeleteHere => {
                (self.local, self.job.present) = (Local::Gone, false);
            }
        }
        for (decision, clusters) in &self.jobs_of {
            assert!(
                clusters.iter().all(|c| *c == clusters[0]),
                "decision {decision} ran on {clusters:?}"
            );
        }
    }

    fn reserve(&mut self) {
        let now = self.now();
        if !self.has("QuotaReserved") && !self.has("Finished") {
            self.stored
                .conditions
                .set("QuotaReserved", Truth::True, "QuotaReserved", "", now);
            self.stored
                .conditions
                .set("Evicted", Truth::False, "QuotaReserved", "", now);
        }
    }

    fn running(&self) -> Vec<&ClusterName> {
        let running = self.sites.iter().filter(|(_, site)| site.copies.runs());
        running.map(|(name, _)| name).collect()
    }

    fn foreign(&self) -> Vec<(ClusterName, RemoteJob)> {
        let jobs = self
            .sites
            .iter()
            .filter_map(|(name, site)| Some((name.clone(), site.copies.job?)));
        jobs.filter(|(_, job)| job.origin == Origin::Foreign).collect()
    }

    /// Faults stop: the job must end, and no object of ours may stay.
    fn make_peace(&mut self) {
        self.listed = SITES.iter().map(|s| (*s).into()).collect();
        for site in self.sites.values_mut() {
            site.cut_since = None;
        }
        for _ in 0..PATIENCE {
            self.minute += 1;
            self.pass(NO_CRASH);
            self.reserve();
            for site in 0..SITES.len() {
                self.finish(site);
                if !self.has("Evicted") {
                    self.admit(site);
                }
                self.work(site);
            }
        }
    }

    /// Only the manager acts: after some passes there is nothing left to write.
    fn settle(&mut self) {
        for _ in 0..SETTLES_WITHIN {
            if !self.pass(NO_CRASH) {
                return;
            }
        }
        panic!("it never settles: {:?}", self.plan());
    }
}
