//! To which worker cluster a Workload goes, and what to do there now.
//!
//! Invariant: `status.clusterName` is the one place that says where a Workload may run. It is written before a job is
//! created, and it is taken out only when that cluster has shown that nothing runs there and nothing can start there,
//! or when the policy gives the cluster up. So a crash, a restart or a lost worker never leads to a second run.
//!
//! *Source*: `spec/multikueue.md 3.2, 3.3`, `spec/safety.md 1`. Not here: elastic jobs (R1, 3.14), preemption gates
//! (R7), delayed topology (3.12).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::condition::Truth;
use crate::kind::KindState;
use crate::moment::later;
use crate::name::{CheckName, ClusterName};
use crate::note::{Note, Severity};
use crate::status::{CheckPhase, Status};
use crate::words::{MESSAGE_MAX, cut};

#[cfg(feature = "bugbank")]
mod bug;
pub mod capacity;
pub mod ceiling;
mod concern;
mod elsewhere;
mod epoch;
pub mod farewell;
mod hold;
mod holder;
mod mirror;
mod observed;
mod offer;
pub mod record;
mod seek;
pub mod together;
mod waiting;

#[cfg(feature = "bugbank")]
pub use bug::Bug;
pub use concern::is_followed;
pub use elsewhere::Elsewhere;
pub use hold::{hold, keep_check};
use holder::{Closed, Holder};
pub use observed::{
    Answer, Behind, Cause, Copies, Cordon, Dispatcher, Drift, Failure, Fence, Life, Local, LocalJob,
    LostPolicy, Observed, Order, Origin, Owner, PodsThere, Policy, Remote, RemoteJob, RemoteWorkload, Said,
    Site, Stop, Twins,
};
pub use offer::{ROUND, WIDEN};
pub use waiting::{Missing, Waiting, ways_out};

/// Reason of the Events about dispatch. *Source*: `spec/multikueue.md 8`.
const EVENT: &str = "MultiKueue";
/// How long the manager waits for the end of the remote job after its Workload has finished. The watch of jobs may lag behind the watch of
/// Workloads. Why a limit: a job that could not be started never ends by itself.
pub const LAST_STATUS_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How the message begins when the job's own field names another controller as its manager. *Source*: `spec/multikueue.md 3.2`.
pub const NOT_MANAGED: &str = "The owner is not managed by Kueue";
const OUT_OF_SYNC: &str = "OutOfSync";
const OWNER_NOT_FOUND: &str = "OwnerNotFound";
const REMOTE_GONE: &str = "Admitting remote no longer exists, Previously: \"Ready\"";
const REMOTE_LOST: &str = "Admitting remote lost, Previously: \"Ready\"";
const NO_CLUSTER_RECORDED: &str = "Admission check is Ready but no admitting cluster is recorded; this is unexpected, \
                                   please report it, Previously: \"Ready\"";

/// One idempotent action on a worker cluster. Actions are carried out in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAction {
    /// Create the copy of the Workload (`spec/multikueue.md 3.4`).
    CreateWorkload,
    /// Delete the copy, with its UID as precondition.
    DeleteWorkload,
    /// Take `kueue.x-k8s.io/resource-in-use` off the copy.
    StripFinalizer,
    /// Create the job. Of a group: create the missing copies, and delete the copies whose member is gone.
    CreateJob,
    /// Update the copies with what the objects of the local job got after the copies were sent.
    UpdateJob,
    /// Delete the job, with its UID as precondition, and then remove our finalizer. A job that may have pods stays until they are gone.
    DeleteJob,
    /// Copy priority class and priority onto the copy.
    SetPriority,
    /// Look whether the cluster has by now the objects that the job names and that the cluster lacked.
    LookForNeeds,
    /// Set condition `DeactivationTarget` on the copy, reason `EvictedOnManagerCluster`.
    RequestStop {
        /// Its message.
        message: String,
    },
}

/// What to do about one Workload now.
///
/// Invariant: `status` is written first, with the resourceVersion of the status that was read. When that fails, nothing else of the
/// plan is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The number of this dispatch, or of the next one. When it differs from the number that was read, it is written before the status. So
    /// a copy of an earlier dispatch is never taken for one of the next, even after a crash between the two writes.
    pub epoch: u64,
    /// The cluster on which the job was found in this pass to have failed for good; it is written with the number of the next dispatch.
    pub failed_on: Option<ClusterName>,
    /// The highest dispatch number ever seen on a copy of this Workload; the caller remembers it.
    pub highest: u64,
    /// The status to be.
    pub status: Status,
    /// What to do on each reachable cluster, in order.
    pub remote: BTreeMap<ClusterName, Vec<RemoteAction>>,
    /// Copy the job status of this cluster onto the local job.
    pub mirror: Option<ClusterName>,
    /// The Workload is Finished, and no cluster has the job any more: the local job gets a terminal status made from
    /// condition `Finished`, because there is none to copy.
    pub conclude: bool,
    /// The Workload is evicted, and no cluster can be running it. If the local job still counts active pods, that count is stale, so quota
    /// can be released without another mirrored status.
    pub stopped: bool,
    /// Clusters that failed this Workload in this pass; the caller remembers them, with a back-off.
    pub failed: Vec<(ClusterName, Cause)>,
    /// The error or message of each cluster in `failed`, if there is one.
    pub words: BTreeMap<ClusterName, String>,
    /// Events for the Workload, to be emitted when the status is written.
    pub notes: Vec<Note>,
    /// When to look again even if nothing changes.
    pub wake_at: Option<Timestamp>,
    /// When the present round of the dispatcher began; the caller remembers it once `status` is written.
    pub round: Option<Timestamp>,
    /// The answer of each cluster, when the Workload waits.
    pub seen: Vec<record::Seen>,
    /// Why the Workload waits; `None` when it does not wait, or when dispatch does not know the reason.
    pub waiting: Option<Waiting>,
}

impl Plan {
    /// The clusters that the plan names. Other clusters need nothing, unless they hold an object of the Workload.
    pub fn concerned(&self) -> impl Iterator<Item = &ClusterName> {
        let named = self.status.nominated.iter().chain(&self.status.cluster);
        named.chain(self.remote.keys())
    }
}

/// Decides what to do about one Workload. *Source*: `spec/multikueue.md 3.2, 3.3`.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let mut pass = Pass {
        o: *observed,
        now,
        plan: Plan {
            epoch: observed.epoch,
            highest: observed.highest,
            status: observed.workload.status.clone(),
            ..Plan::default()
        },
    };
    pass.run();
    if pass.plan.waiting.is_some() {
        pass.plan.seen = pass.look_round();
    }
    pass.plan
}

struct Pass<'a> {
    o: Observed<'a>,
    now: Timestamp,
    plan: Plan,
}

impl<'a> Pass<'a> {
    fn run(&mut self) {
        let (finished, quota) = (self.is("Finished"), self.is("QuotaReserved"));
        // Why deletion too: a user who deletes a Workload wants its run to end, and the Workload goes only when the run is over
        // (`spec/multikueue.md 3.9`).
        let evicted = self.is("Evicted") || self.o.workload.deleting;
        if self.o.local == Local::Gone {
            return self.remove_everywhere();
        }
        let Some(check) = self.o.check else {
            return self.run_without_check();
        };
        if finished {
            return self.clean_up_finished();
        }
        if self.runs_here(self.phase(check)) {
            return self.remove_everywhere();
        }
        // Why not always: the lifecycle resets the verdict on a Workload that is deactivated or stopping, so the two would write without
        // end.
        if self.o.workload.active && !(quota && evicted) {
            self.refuse_wrong_owner(check);
        }
        self.keep_ahead();
        if bug!(self.o.policy, AnyEndCounts) && quota {
            let end = |(cluster, copies): (&'a ClusterName, &'a Copies)| {
                let end = copies.our_workload()?.finished.as_ref();
                end.filter(|end| false_end(&end.reason).is_none())
                    .map(|end| (cluster, end))
            };
            if let Some((cluster, end)) = self.reachable().find_map(end) {
                return self.finish(check, cluster, end);
            }
        }
        let phase = self.phase(check);
        let follows = phase == CheckPhase::Ready || self.is_renamed(phase);
        if let (Some(winner), true, true, false) = (self.plan.status.cluster.clone(), follows, quota, evicted)
        {
            return self.follow(check, &winner);
        }
        if let Some((cluster, end)) = self.late_end() {
            self.plan.status.cluster = Some(cluster.clone());
            return self.finish(check, cluster, end);
        }
        self.hold_on();
        if bug!(self.o.policy, RejectedLeavesRemains) && !quota && !self.o.workload.active {
            return;
        }
        if bug!(self.o.policy, StaleClusterName)
            && let (Some(stale), CheckPhase::Pending, true, false) =
                (self.plan.status.cluster.clone(), phase, quota, evicted)
        {
            return self.choose(check, &stale);
        }
        match (quota, evicted, phase) {
            (false, _, _) => self.clear_up(),
            (true, true, _) => self.stop_everywhere(),
            // The lifecycle evicts the Workload next; until then the local job shows its run.
            (true, false, CheckPhase::Retry | CheckPhase::Rejected) => self.mirror_holder(),
            (true, false, CheckPhase::Ready) => self.retry(check, NO_CLUSTER_RECORDED.to_owned(), None),
            // A new dispatch: first the copies of the previous one are removed, and the new number is stored before any copy is sent with
            // it.
            (true, false, CheckPhase::Pending)
                if self.plan.status.cluster.is_some() || self.plan.epoch != self.o.epoch =>
            {
                self.wait_for_new_dispatch();
                self.clear_up();
            }
            (true, false, CheckPhase::Pending) => self.seek(check),
        }
    }

    fn wait_for_new_dispatch(&mut self) {
        let newest = || self.reachable().max_by_key(|(_, copies)| copies.highest_epoch());
        let last = self
            .o
            .stored
            .cluster
            .clone()
            .or_else(|| newest().map(|(cluster, _)| cluster.clone()));
        if let Some(cluster) = last {
            let waiting = self.stopping(&cluster);
            self.plan.waiting.get_or_insert(waiting);
        }
    }

    /// The Workload is admitted on `winner`: only the state of that cluster counts.
    ///
    /// Unlike the anchor: the winner is not chosen anew on each pass, so no other cluster can take, end or evict the run
    /// (`spec/safety.md` W1, W2, W4, W5).
    fn follow(&mut self, check: &CheckName, winner: &ClusterName) {
        if bug!(self.o.policy, WinnerNotSticky) {
            let admitted = |(cluster, copies): (&'a ClusterName, &'a Copies)| {
                Some((copies.our_workload()?.admitted?, cluster))
            };
            if let Some((_, first)) = self.reachable().filter_map(admitted).min()
                && first != winner
            {
                self.remove_elsewhere(first);
                return self.act(first, RemoteAction::CreateJob);
            }
        }
        self.remove_elsewhere(winner);
        let copies = match self.holder(winner) {
            Holder::Answers(copies) => copies,
            Holder::Silent { since, until } => {
                let waiting = self.lost(winner, since, until);
                self.plan.waiting = Some(waiting);
                return;
            }
            Holder::Unreadable(why) => {
                self.plan.waiting = Some(self.unreadable(winner, why));
                return;
            }
            Holder::GivenUp(closed) => {
                if closed == Closed::Perhaps {
                    self.note(Severity::Warning, waiting::may_run_twice(winner));
                }
                return self.retry(check, REMOTE_LOST.to_owned(), None);
            }
        };
        let epoch = self.o.epoch;
        // Unlike the anchor: a job that ended is not run again if its remote Workload was cleaned up, or ended with `OwnerNotFound` because
        // another client deleted the job first (W9). The mirrored status ends the local job, and the local job ends the Workload.
        let vanished = |w: &RemoteWorkload| {
            w.finished
                .as_ref()
                .is_some_and(|end| end.reason == OWNER_NOT_FOUND)
        };
        if copies.current_job(epoch).is_some_and(|job| job.finished)
            && copies.current_workload(epoch).is_none_or(vanished)
        {
            return self.mirror_from(winner);
        }
        let Some(remote) = copies.current_workload(epoch) else {
            if copies.is_outdated(epoch) {
                self.plan.failed.push((winner.clone(), Cause::Outdated));
            }
            if copies.has_foreign_workload() {
                self.plan.failed.push((winner.clone(), Cause::NameConflict));
            }
            return self.retry(check, REMOTE_GONE.to_owned(), None);
        };
        if copies.has_foreign_job() {
            // Unlike the anchor: there the manager retries for ever (`spec/multikueue.md` 10.F21).
            self.plan.failed.push((winner.clone(), Cause::NameConflict));
            let message = format!(
                "Remote job on worker cluster \"{winner}\" is not owned by MultiKueue, resetting for re-dispatch, \
                 Previously: \"Ready\""
            );
            return self.retry(check, message, Some(Severity::Warning));
        }
        if let Some(end) = &remote.finished {
            if self.is_tried_elsewhere(winner, end) {
                return self.try_elsewhere(check, winner, end);
            }
            return self.finish(check, winner, end);
        }
        if let Some(eviction) = &remote.evicted {
            self.mirror_if_job(winner, copies);
            return self.taken_off(check, winner, remote, eviction);
        }
        if self.site(winner).cordon == Cordon::Drained {
            let message = format!(
                "Worker cluster \"{winner}\" is being drained, resetting for re-dispatch, Previously: \"Ready\""
            );
            return self.retry(check, message, Some(Severity::Normal));
        }
        if remote.drift == Drift::Spec {
            self.plan.failed.push((winner.clone(), Cause::SpecDrift));
            return self.retry(check, REMOTE_GONE.to_owned(), None);
        }
        // Why the job too: a job that is being deleted before it ended has no outcome to wait for.
        let dying = copies
            .our_job()
            .is_some_and(|job| job.life == Life::Deleting && !job.finished);
        if remote.life == Life::Deleting || remote.admitted.is_none() || dying {
            return self.retry(check, REMOTE_GONE.to_owned(), None);
        }
        if remote.drift == Drift::Priority {
            self.act(winner, RemoteAction::SetPriority);
        }
        let message = admitted_on(winner);
        self.set_check(check, CheckPhase::Ready, message);
        self.run_on(check, winner, copies);
    }

    /// Creates the job on the winner; if the winner has it already, updates and mirrors it.
    fn run_on(&mut self, check: &CheckName, winner: &ClusterName, copies: &Copies) {
        let current = copies.current_job(self.o.epoch);
        if current.is_some() && !self.awaits_verdict(winner, copies) {
            self.mirror_from(winner);
        }
        match current {
            Some(job) if job.finished || job.twins == Twins::All => return,
            Some(job) if job.twins == Twins::Outdated => return self.act(winner, RemoteAction::UpdateJob),
            Some(_) | None => {}
        }
        if let Some(job) = copies.our_job().filter(|_| current.is_none()) {
            // A job of an earlier dispatch has the name of the job that this dispatch would create.
            return self.remove_job(winner, *job);
        }
        if self.site(winner).kind == KindState::NotServed {
            let message = format!(
                "Worker cluster \"{winner}\" does not serve the kind of the job, resetting for re-dispatch, Previously: \"Ready\""
            );
            return self.retry(check, message, Some(Severity::Warning));
        }
        if copies.has_former_job() {
            // Why the earlier job is not waited for: its pods may take long to end, and other workers may have room.
            let message = format!(
                "An earlier job of this name still ends on worker cluster \"{winner}\", resetting for re-dispatch, \
                 Previously: \"Ready\""
            );
            return self.retry(check, message, Some(Severity::Normal));
        }
        // Invariant: a job is created only on the cluster that the stored status names. Unlike the anchor: there it is
        // created before the decision is written (`spec/multikueue.md` 3.3 R6b).
        let stored = self.o.stored;
        let decided = stored.cluster.as_ref() == Some(winner)
            && self.plan.epoch == self.o.epoch
            && stored
                .checks
                .get(check)
                .is_some_and(|c| c.phase == CheckPhase::Ready);
        // Why also without a local job: the last members of a group may be going, and stay on the manager until their copies are gone.
        let has_any = self.o.job.present || current.is_some();
        if !decided || !has_any || self.o.job.finished {
            return;
        }
        match self
            .o
            .failures
            .get(winner)
            .filter(|failure| !failure.is_over(self.now))
        {
            // Unlike the anchor: there a refused creation is retried on the same worker for ever (`spec/multikueue.md` 10.F21).
            Some(failure) => {
                let message = format!(
                    "Remote job cannot be created on worker cluster \"{winner}\", resetting for re-dispatch \
                     ({}), Previously: \"Ready\"",
                    failure.detail
                );
                self.retry(check, message, Some(Severity::Warning));
            }
            None => self.act(winner, RemoteAction::CreateJob),
        }
    }

    /// The winner shows that the Workload ended.
    fn finish(&mut self, check: &CheckName, winner: &ClusterName, end: &Said) {
        if let Some(cause) = false_end(&end.reason) {
            self.fail(winner, cause, &end.message);
            let message = format!(
                "Remote workload on worker cluster \"{winner}\" is out of sync with its user job, resetting for \
                 re-dispatch, Previously: \"Ready\""
            );
            return self.retry(check, message, Some(Severity::Warning));
        }
        let conditions = &mut self.plan.status.conditions;
        let (reason, message) = (end.reason.clone(), end.message.clone());
        conditions.set("Finished", Truth::True, reason, message, self.now);
        if let Holder::Answers(copies) = self.holder(winner) {
            self.mirror_if_job(winner, copies);
        }
    }

    /// Removes all remote objects of a finished Workload, but the winner's job only after its end was mirrored.
    ///
    /// Unlike the anchor: if the winner's job was cleaned up before its end was mirrored, it is not run again to learn that end
    /// (`spec/safety.md` W9).
    fn clean_up_finished(&mut self) {
        let unmirrored = self.o.job.present && !self.o.job.finished;
        let Some(winner) = self.plan.status.cluster.clone().filter(|_| unmirrored) else {
            return self.remove_everywhere();
        };
        let job = match self.holder(&winner) {
            Holder::Answers(copies) => copies.current_job(self.o.epoch),
            Holder::Silent { .. } | Holder::Unreadable(_) => return self.remove_elsewhere(&winner),
            Holder::GivenUp(_) => None,
        };
        let ended = self
            .plan
            .status
            .conditions
            .get("Finished")
            .map_or(self.now, |c| c.since);
        let patience = later(ended, LAST_STATUS_WAIT);
        if let Some(job) = job
            && (job.finished || self.now < patience)
        {
            if !job.finished {
                self.wake(patience);
            }
            self.remove_elsewhere(&winner);
            return self.mirror_from(&winner);
        }
        self.plan.conclude = true;
        self.remove_everywhere();
    }

    /// The Workload is evicted: its remote runs are asked to stop, and are mirrored until quota is released.
    ///
    /// Unlike the anchor: there quota is held until a mirrored status arrives, which may never come (`spec/multikueue.md` 13.B2).
    fn stop_everywhere(&mut self) {
        let why = self
            .plan
            .status
            .conditions
            .get("Evicted")
            .filter(|c| c.truth == Truth::True)
            .map(|c| c.message.clone());
        let why = why.unwrap_or_else(|| "The workload is being deleted".to_owned());
        let message = format!("Evicted on manager: {why}");
        self.mirror_holder();
        let runs = self.reachable().any(|(_, copies)| copies.runs());
        self.plan.stopped = !runs && self.plan.status.cluster.is_none();
        for (cluster, copies) in self.reachable() {
            if self.keeps_outcome(cluster, copies) {
                continue;
            }
            let Some(job) = copies.our_job() else {
                self.remove(cluster, copies);
                continue;
            };
            if job.life == Life::Deleting {
                if job.pods == PodsThere::None {
                    // Why the Workload too: the pods of a group keep the finalizer of the worker's engine until their Workload is gone.
                    self.remove(cluster, copies);
                    continue;
                }
                // Why: the job stops only when it is removed.
                self.remove_job(cluster, *job);
            }
            match copies.our_workload() {
                Some(w) if w.finished.is_none() && w.life != Life::Deleting && copies.runs() => {
                    if w.active && w.evicted.is_none() && w.stop == Stop::NotRequested {
                        let message = message.clone();
                        self.act(cluster, RemoteAction::RequestStop { message });
                    } else if job.pods == PodsThere::Untold {
                        // Why: the status of this job never shows that its last pods are gone. A deletion does: the job goes only after its
                        // pods.
                        self.remove(cluster, copies);
                    }
                }
                // Why remove a copy that does not run: while it is active, its worker may start the job, even a second time.
                Some(w) if w.finished.is_none() && w.active && !job.finished => self.remove(cluster, copies),
                // This job runs without a live Workload, so the worker's engine does not stop it.
                Some(_) | None if copies.runs() => self.remove(cluster, copies),
                Some(_) | None => {}
            }
        }
    }

    /// Sets the check to `Rejected` when the owner cannot be dispatched. *Source*: `spec/multikueue.md 3.2`.
    fn refuse_wrong_owner(&mut self, check: &CheckName) {
        let problem = match self.o.owner {
            Owner::Managed => return,
            Owner::NotManaged { field, value } => format!(
                "{NOT_MANAGED}: Expecting {field} to be \"kueue.x-k8s.io/multikueue\" not \"{value}\""
            ),
            Owner::SwitchedOff { gate } => format!("{NOT_MANAGED}: {gate} feature gate is disabled"),
            Owner::NoAdapter { kind: Some(kind) } => {
                format!("No multikueue adapter found for owner kind \"{kind}\"")
            }
            Owner::NoAdapter { kind: None } => "No multikueue adapter found".to_owned(),
        };
        let phase = self.phase(check);
        if phase != CheckPhase::Rejected {
            let message = format!("{problem}, Previously: \"{}\"", phase.as_str());
            self.set_check(check, CheckPhase::Rejected, message);
        }
    }

    fn stopping(&self, cluster: &ClusterName) -> Waiting {
        Waiting::StoppingOnWorker {
            cluster: cluster.clone(),
            refusal: self.refusal(cluster).to_owned(),
        }
    }

    /// The error of a cluster that refused a deletion; empty if it did not.
    fn refusal(&self, cluster: &ClusterName) -> &str {
        self.o.refusals.get(cluster).map_or("", String::as_str)
    }

    fn site(&self, cluster: &ClusterName) -> &'a Site {
        self.o.sites.get(cluster).unwrap_or(&observed::UNKNOWN)
    }

    /// Records that a cluster failed, with its error.
    fn fail(&mut self, cluster: &ClusterName, cause: Cause, words: &str) {
        self.plan.failed.push((cluster.clone(), cause));
        if !words.is_empty() {
            self.plan.words.insert(cluster.clone(), words.to_owned());
        }
    }

    fn retry(&mut self, check: &CheckName, message: String, note: Option<Severity>) {
        if let Some(severity) = note {
            self.note(severity, message.clone());
        }
        self.set_check(check, CheckPhase::Retry, message);
    }

    fn set_check(&mut self, check: &CheckName, phase: CheckPhase, message: String) {
        // Why cut here too: a longer text would differ from the stored one in each pass, and be written without end.
        let message = cut(message, MESSAGE_MAX);
        if let Some(state) = self.plan.status.checks.get_mut(check)
            && (state.phase != phase || state.message != message)
        {
            state.phase = phase;
            state.message = message;
            state.since = self.now;
        }
    }

    /// Removes the copies of the last dispatch, but keeps and mirrors a job whose end only its worker shows.
    fn clear_up(&mut self) {
        for (cluster, copies) in self.reachable() {
            if self.keeps_outcome(cluster, copies) {
                self.mirror_from(cluster);
            } else {
                self.remove(cluster, copies);
            }
        }
    }

    fn remove_everywhere(&mut self) {
        for (cluster, copies) in self.reachable() {
            self.remove(cluster, copies);
        }
    }

    fn remove_elsewhere(&mut self, keep: &ClusterName) {
        for (cluster, copies) in self.reachable().filter(|(cluster, _)| *cluster != keep) {
            self.remove(cluster, copies);
        }
    }

    /// Removes the job first, so that a crash in between leaves the Workload for the next pass. Foreign objects stay.
    fn remove(&mut self, cluster: &ClusterName, copies: &Copies) {
        if let Some(job) = copies.our_job() {
            self.remove_job(cluster, *job);
        }
        let Some(workload) = copies.our_workload() else {
            return;
        };
        if workload.has_finalizer {
            self.act(cluster, RemoteAction::StripFinalizer);
        }
        if workload.life != Life::Deleting {
            self.act(cluster, RemoteAction::DeleteWorkload);
        }
    }

    fn remove_job(&mut self, cluster: &ClusterName, job: RemoteJob) {
        if job.life != Life::Deleting || job.kept {
            self.act(cluster, RemoteAction::DeleteJob);
        }
    }

    fn reachable(&self) -> impl Iterator<Item = (&'a ClusterName, &'a Copies)> + use<'a> {
        self.o
            .remotes
            .iter()
            .filter_map(|(cluster, remote)| match remote {
                Remote::Reachable(copies) => Some((cluster, copies)),
                Remote::Unreachable { .. } | Remote::Unreadable { .. } => None,
            })
    }

    fn act(&mut self, cluster: &ClusterName, action: RemoteAction) {
        let actions = self.plan.remote.entry(cluster.clone()).or_default();
        // Why: two rules may want the same action.
        if !actions.contains(&action) {
            actions.push(action);
        }
    }

    fn note(&mut self, severity: Severity, message: String) {
        self.plan.notes.push(Note {
            severity,
            reason: EVENT.into(),
            message,
        });
    }

    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn is(&self, condition: &str) -> bool {
        self.o.workload.status.conditions.is_true(condition)
    }

    fn phase(&self, check: &CheckName) -> CheckPhase {
        let state = self.plan.status.checks.get(check);
        state.map_or(CheckPhase::Pending, |state| state.phase)
    }
}

fn admitted_on(cluster: &ClusterName) -> String {
    format!("The workload was admitted on \"{cluster}\"")
}

/// The failure behind a reason of `Finished` that is no real end of the job. *Source*: `spec/multikueue.md 1.1`.
fn false_end(reason: &str) -> Option<Cause> {
    match reason {
        OUT_OF_SYNC => Some(Cause::OutOfSync),
        OWNER_NOT_FOUND => Some(Cause::OwnerNotFound),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
