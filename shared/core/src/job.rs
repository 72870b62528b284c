//! The decisions of the generic job reconciler: from one job and its Workloads to a list of actions.
//!
//! This machine writes jobs, and creates, adopts, changes the spec of and deletes Workloads. It never writes a Workload's status: it asks
//! for that ([`Action::AskOutOfSync`]). Finishing, evicting, releasing and dropping the finalizer belong to [`crate::lifecycle`].
//!
//! Invariant: at most one Workload per job survives, and a job without an admitted Workload is stopped.
//!
//! *Source*: `spec/jobs.md 5.1` to `5.4`, `5.9`, `5.10`, `5.15`, `5.17`.

use std::time::Duration;

use crate::name::Key;
use crate::note::Note;

/// Reason of the Event that reports a start.
pub const STARTED: &str = "Started";
/// Reason of the Event that reports a stop.
pub const STOPPED: &str = "Stopped";
/// Reason of the Event that reports what admission checks wait for.
pub const UPDATED_CHECK: &str = "UpdatedAdmissionCheck";

/// How old a job must be before it becomes the controller of the Workload that was created with it. Until then the manager that created
/// both looks after both.
pub const ADOPTION_PAUSE: Duration = Duration::from_secs(30);

/// Everything that the decision about one job depends on.
#[derive(Clone, Debug)]
pub struct JobObserved<'a> {
    /// The job's namespace and name.
    pub key: Key,
    /// Whether it exists.
    pub presence: Presence,
    /// Whether Roadstead may change it at all.
    pub scope: Scope,
    /// Its queue label; `None` or empty when there is none.
    pub queue: Option<&'a str>,
    /// Whether a managed object owns it.
    pub parent: Parent,
    /// Whether it is suspended.
    pub run: Run,
    /// Whether it still has pods.
    pub pods: Pods,
    /// What happens to it when its Workload is deleted.
    pub at_deletion: AtDeletion,
    /// Whether it has ended.
    pub ended: Ended,
    /// Name of the Workload that it wants to adopt.
    pub prebuilt: Option<&'a str>,
    /// The name of a Workload that is created for it. *Source*: `spec/jobs.md 5.7`.
    pub workload_name: Key,
    /// With a prebuilt name: that Workload, if it exists. Otherwise: the Workloads that this job controls, sorted by name.
    pub workloads: &'a [OwnedWorkload],
}

/// Whether a job or a Workload exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists and is not being deleted.
    Live,
    /// It is deleted or is being deleted.
    Going,
}

/// Whether Roadstead manages a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Its namespace does not match `managedJobsNamespaceSelector`.
    Outside,
    /// Roadstead manages it only if it names a queue.
    WithQueue,
    /// Roadstead manages it in any case (`manageJobsWithoutQueueName`).
    Always,
}

/// The top-most managed owner of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The job has no managed owner.
    None,
    /// It has a managed owner, whose newest unfinished Workload is admitted.
    Admitted,
    /// It has a managed owner, and no Workload of that owner is admitted.
    NotAdmitted,
}

/// Whether a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It is suspended.
    Suspended,
    /// It may have pods, or a stop is under way.
    Running,
    /// It is a group: some members are held back, others may run.
    Partly,
}

/// What happens to a job whose Workload is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDeletion {
    /// It is suspended.
    Held,
    /// It is deleted, even if it is already suspended. Our finalizer keeps its objects until their end has been counted.
    Deleted,
}

/// Whether a job has pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// It has pods.
    Some,
    /// It has no pods.
    None,
}

/// Whether a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has ended.
    Yes,
    /// It has not ended.
    No,
}

/// A Workload that belongs to a job, or could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedWorkload {
    /// Namespace and name.
    pub key: Key,
    /// Its controller.
    pub control: Control,
    /// Whether it describes the job. *Source*: `spec/jobs.md 5.5`.
    pub fit: Fit,
    /// Its stage.
    pub stage: Stage,
    /// Whether `metadata.deletionTimestamp` is set.
    pub presence: Presence,
    /// The clusters in which its job may run.
    pub site: Site,
    /// Its `spec.queueName`.
    pub queue: String,
    /// Other changes of the job since the Workload was created.
    pub drift: Drift,
    /// Pending checks with a message, as `<check>: <message>`, sorted.
    pub waiting_for: Vec<String>,
}

/// The controller of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The job at hand controls it.
    This,
    /// It has no controller yet, but a manager created it together with the job. The job need not become its controller before it starts.
    Claimed(Claim),
    /// Another object controls it.
    Other,
    /// It has no controller.
    Nobody,
}

/// Whether a job is to become the controller of the Workload that was created with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Not yet: the job is younger than [`ADOPTION_PAUSE`].
    Fresh,
    /// The job is old enough.
    Ripe,
}

/// Whether a Workload describes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The Workload describes the job.
    Equivalent,
    /// The Workload does not describe the job.
    Different,
}

/// The clusters in which a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Only in this cluster.
    Here,
    /// In a worker cluster, whatever the job here shows.
    Elsewhere,
    /// In a worker cluster, and the job here must stay suspended: otherwise its controller would run it here too.
    ElsewhereOnly,
    /// In a worker cluster. What is not held back of the job here is only shown, on a virtual node that stands for that cluster, so it may
    /// stay.
    ElsewhereShown,
}

/// The stage of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It holds no quota.
    Pending,
    /// It holds quota, but is not admitted.
    Reserved,
    /// It is admitted, in the `ClusterQueue` named.
    Admitted(String),
    /// It must stop, whether or not it still holds quota.
    Evicted {
        /// The message of the eviction.
        message: String,
        /// Whether quota is still held.
        quota: Quota,
    },
    /// It has finished.
    Finished {
        /// Whether its finalizer is still there, so that the end is new.
        news: News,
    },
}

/// Whether quota is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Quota is held.
    Held,
    /// Quota is released.
    Released,
}

/// Whether an end was reported already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The end was not reported yet.
    Fresh,
    /// The end was reported.
    Told,
}

/// Changes of a job that an existing Workload follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// The job names another priority class, which the Workload may follow. *Source*: `spec/jobs.md 5.13`.
    pub priority: bool,
    /// The job's new value of `admission-gated-by`, when it differs.
    pub gated_by: Option<String>,
}

/// One action; actions are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a Workload for the job. If it exists already, read it and plan again.
    CreateWorkload(Key),
    /// Make the job the controller of a prebuilt Workload, and label it with the job's UID.
    AdoptPrebuilt(Key),
    /// Make the spec of a Workload match the job; keep `spec.active`.
    UpdateWorkloadSpec(Key),
    /// Remove the finalizer of a Workload and delete it.
    DeleteWorkload(Key),
    /// Delete a Workload whose job may run in another cluster. It keeps its finalizer, so it stays until nothing runs there any more.
    WithdrawWorkload(Key),
    /// Change the queue that a Workload names.
    SetQueueName {
        /// The Workload.
        workload: Key,
        /// The queue.
        queue: String,
    },
    /// Copy the job's priority class to a Workload.
    SetPriority(Key),
    /// Copy the job's admission gates to a Workload.
    SetGates {
        /// The Workload.
        workload: Key,
        /// The new value of the annotation.
        gated_by: String,
    },
    /// Inject the assignment into the job, and let it run.
    Start(Key),
    /// Suspend the job, and restore its templates from a Workload.
    Stop {
        /// Why it is stopped.
        reason: StopReason,
        /// The Workload to restore from; `None` leaves the templates alone.
        restore: Option<Key>,
    },
    /// Suspend a child of a managed job; nothing is restored.
    SuspendChild,
    /// Ask the lifecycle of the Workload to finish it with reason `OutOfSync`.
    AskOutOfSync(Key),
    /// Remove our finalizer from the job's objects: their end has been counted, or does not count.
    Release,
}

/// Why a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its Workload is being deleted.
    WorkloadDeleted,
    /// Its Workload was evicted.
    WorkloadEvicted,
    /// It has no Workload that describes it.
    NoMatchingWorkload,
    /// It runs without admission.
    NotAdmitted,
}

impl StopReason {
    /// The reason as the reference writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkloadDeleted => "WorkloadDeleted",
            Self::WorkloadEvicted => "WorkloadEvicted",
            Self::NoMatchingWorkload => "NoMatchingWorkload",
            Self::NotAdmitted => "NotAdmitted",
        }
    }
}

/// What to do about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Events to emit on the job after that. `UpdatedAdmissionCheck` is repeated on every pass, as the reference does;
    /// the border drops repetitions.
    pub notes: Vec<Note>,
    /// When to plan again.
    pub follow_up: FollowUp,
}

/// When to plan again for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// When an object changes.
    OnChange,
    /// After [`ADOPTION_PAUSE`]: then the job becomes the controller of its Workload.
    Adoption,
    /// With back-off: a change that is under way must finish first.
    Retry,
    /// With back-off: the prebuilt Workload is missing (`prebuilt workload not found`).
    PrebuiltMissing,
}

/// Decides what to do about one job.
pub fn plan(seen: &JobObserved<'_>) -> JobPlan {
    let mut plan = Draft {
        seen,
        actions: Vec::new(),
        notes: Vec::new(),
        follow_up: FollowUp::OnChange,
    };
    plan.decide();
    JobPlan {
        actions: plan.actions,
        notes: plan.notes,
        follow_up: plan.follow_up,
    }
}

/// Result of the search for the job's Workload.
enum Search<'a> {
    Found(&'a OwnedWorkload),
    Missing,
    /// Another action comes first; the pass ends.
    Busy,
}

struct Draft<'a> {
    seen: &'a JobObserved<'a>,
    actions: Vec<Action>,
    notes: Vec<Note>,
    follow_up: FollowUp,
}

impl<'a> Draft<'a> {
    fn decide(&mut self) {
        let seen = self.seen;
        let named = seen.queue.is_some_and(|queue| !queue.is_empty());
        if seen.presence == Presence::Going {
            self.release();
            return;
        }
        if seen.scope == Scope::Outside {
            return;
        }
        if seen.parent != Parent::None {
            self.hold_child();
            return;
        }
        if !named && seen.scope == Scope::WithQueue {
            return;
        }
        let found = match seen.prebuilt {
            Some(_) => self.find_prebuilt(),
            None => self.find_own(),
        };
        match found {
            Search::Busy => {}
            Search::Missing => self.without_workload(),
            Search::Found(workload) => self.with_workload(workload),
        }
    }

    fn release(&mut self) {
        if self.seen.at_deletion == AtDeletion::Deleted {
            self.actions.push(Action::Release);
        }
    }

    fn runs(&self) -> bool {
        self.seen.run != Run::Suspended
    }

    /// *Source*: `spec/jobs.md 5.2`.
    fn hold_child(&mut self) {
        let seen = self.seen;
        if seen.parent == Parent::NotAdmitted && self.runs() && seen.ended == Ended::No {
            self.actions.push(Action::SuspendChild);
            self.notes
                .push(Note::normal("Suspended", "Kueue managed child job suspended"));
        }
    }

    /// *Source*: `spec/jobs.md 5.3 A`.
    fn find_prebuilt(&mut self) -> Search<'a> {
        let Some(workload) = self.seen.workloads.first() else {
            return Search::Missing;
        };
        match (workload.control, workload.fit) {
            (Control::Other, _) => Search::Missing,
            (Control::Nobody, _) => {
                self.actions.push(Action::AdoptPrebuilt(workload.key.clone()));
                Search::Busy
            }
            // Why not once the Workload is over: the manager that created it and the job removes both.
            (Control::Claimed(Claim::Ripe), _) if !self.is_over(workload) => {
                self.actions.push(Action::AdoptPrebuilt(workload.key.clone()));
                Search::Busy
            }
            (Control::This, Fit::Equivalent) => Search::Found(workload),
            (Control::Claimed(claim), Fit::Equivalent) => {
                if claim == Claim::Fresh && !self.is_over(workload) {
                    self.follow_up = FollowUp::Adoption;
                }
                Search::Found(workload)
            }
            (Control::This | Control::Claimed(_), Fit::Different) => {
                if !matches!(workload.stage, Stage::Finished { .. }) {
                    self.actions.push(Action::AskOutOfSync(workload.key.clone()));
                }
                Search::Missing
            }
        }
    }

    fn is_over(&self, workload: &OwnedWorkload) -> bool {
        let finished = matches!(workload.stage, Stage::Finished { .. });
        finished || self.seen.ended == Ended::Yes || workload.presence == Presence::Going
    }

    /// *Source*: `spec/jobs.md 5.3 C`.
    fn find_own(&mut self) -> Search<'a> {
        let seen = self.seen;
        let found = seen.workloads.iter().find(|w| w.fit == Fit::Equivalent);
        if found.is_none()
            && let Some(last) = seen.workloads.iter().find(|w| self.is_needed(w))
        {
            return self.find_last(last);
        }
        let mut surplus: Vec<&OwnedWorkload> = seen
            .workloads
            .iter()
            .filter(|w| found.is_none_or(|found| found.key != w.key))
            .collect();
        if found.is_none() {
            let first = surplus.first().copied();
            let open = first.filter(|w| w.stage == Stage::Pending && w.presence == Presence::Live);
            if let (Run::Suspended, Some(kept)) = (seen.run, open) {
                surplus.remove(0);
                self.actions.push(Action::UpdateWorkloadSpec(kept.key.clone()));
                let text = format!("Updated not matching Workload for suspended job: {}", kept.key);
                self.notes.push(Note::normal("UpdatedWorkload", text));
                self.delete(&surplus, false);
                return Search::Busy;
            }
            if self.runs() && seen.ended == Ended::No && !seen.workloads.is_empty() {
                let (restore, message) = match surplus.as_slice() {
                    [only] => (
                        Some(&only.key),
                        "No matching Workload; restoring pod templates according to existent Workload",
                    ),
                    _ => (None, "Missing Workload; unable to restore pod templates"),
                };
                self.stop(StopReason::NoMatchingWorkload, restore, message);
                // Why: the stop may take several passes and needs the Workload to restore from.
                return Search::Busy;
            }
        }
        if surplus.is_empty() {
            return found.map_or(Search::Missing, Search::Found);
        }
        self.delete(&surplus, found.is_none());
        Search::Busy
    }

    /// Whether a Workload that does not describe the job any more is still the only record of one of these facts: the job may run in
    /// another cluster; it ended there and does not show that yet; or its counted pods are being removed.
    fn is_needed(&self, workload: &OwnedWorkload) -> bool {
        let goes = workload.presence == Presence::Going && self.counts_pods(workload);
        goes || self.may_run_elsewhere(workload)
    }

    fn counts_pods(&self, workload: &OwnedWorkload) -> bool {
        self.seen.pods == Pods::Some && !matches!(workload.stage, Stage::Finished { .. })
    }

    fn may_run_elsewhere(&self, workload: &OwnedWorkload) -> bool {
        let finished = matches!(workload.stage, Stage::Finished { .. });
        workload.site != Site::Here && !(finished && self.seen.ended == Ended::Yes)
    }

    /// Handles a Workload that no longer describes the job and is still needed.
    ///
    /// Unlike the anchor: a run in a worker cluster is ended first, as when a user deletes the Workload. Suspending the job here would not
    /// end that run, and without the Workload no controller would end it before the next run begins.
    fn find_last(&mut self, last: &'a OwnedWorkload) -> Search<'a> {
        if last.presence == Presence::Going || matches!(last.stage, Stage::Finished { .. }) {
            return Search::Found(last);
        }
        self.withdraw(last);
        Search::Busy
    }

    fn withdraw(&mut self, workload: &OwnedWorkload) {
        if workload.presence == Presence::Going {
            return;
        }
        let key = &workload.key;
        self.actions.push(Action::WithdrawWorkload(key.clone()));
        let text = format!("Deleted not matching Workload: {key}");
        self.notes.push(Note::normal("DeletedWorkload", text));
    }

    /// Deletes surplus Workloads. `all`: no Workload remains afterwards. Then a Workload whose pods are still counted is only withdrawn,
    /// because they would belong to no Workload.
    fn delete(&mut self, surplus: &[&OwnedWorkload], all: bool) {
        for workload in surplus {
            self.follow_up = FollowUp::Retry;
            if self.may_run_elsewhere(workload) || (all && self.counts_pods(workload)) {
                self.withdraw(workload);
                continue;
            }
            self.actions.push(Action::DeleteWorkload(workload.key.clone()));
            let text = format!("Deleted not matching Workload: {}", workload.key);
            self.notes.push(Note::normal("DeletedWorkload", text));
        }
    }

    /// *Source*: `spec/jobs.md 5.4`.
    fn without_workload(&mut self) {
        let seen = self.seen;
        if seen.ended == Ended::Yes {
            return;
        }
        if seen.prebuilt.is_some() {
            if self.runs() {
                self.stop(StopReason::NoMatchingWorkload, None, "missing workload");
            }
            self.follow_up = FollowUp::PrebuiltMissing;
            return;
        }
        if self.runs() {
            let message = "Missing Workload; unable to restore pod templates";
            self.stop(StopReason::NoMatchingWorkload, None, message);
            return;
        }
        if seen.pods == Pods::None {
            self.actions
                .push(Action::CreateWorkload(seen.workload_name.clone()));
            let text = format!("Created Workload: {}", seen.workload_name);
            self.notes.push(Note::routine("CreatedWorkload", text));
        }
    }

    /// *Source*: `spec/jobs.md 5.1 rows 10 to 21`.
    fn with_workload(&mut self, workload: &OwnedWorkload) {
        let seen = self.seen;
        let key = &workload.key;
        if let Stage::Finished { news } = workload.stage {
            if news == News::Fresh {
                let text = format!("Workload '{key}' is declared finished");
                self.notes.push(Note::routine("FinishedWorkload", text));
            }
            self.release();
            return;
        }
        if workload.presence == Presence::Going {
            let deleted = seen.at_deletion == AtDeletion::Deleted;
            if deleted || (self.runs() && seen.ended == Ended::No) {
                self.stop(StopReason::WorkloadDeleted, Some(key), "Workload is deleted");
            }
            return;
        }
        if seen.ended == Ended::Yes {
            return;
        }
        self.follow_job(workload);
        let is_shown = workload.site == Site::ElsewhereShown;
        let is_kept = workload.site == Site::ElsewhereOnly;
        match (&workload.stage, seen.run) {
            (Stage::Admitted(_), _) if is_shown => {}
            (Stage::Admitted(_), Run::Running | Run::Partly) if is_kept => {
                let message = "Held in this cluster, because it runs in a worker cluster";
                self.stop(StopReason::NotAdmitted, Some(key), message);
            }
            (Stage::Admitted(_), Run::Suspended) if is_kept => {}
            (Stage::Evicted { message, .. }, Run::Running | Run::Partly) => {
                self.stop(StopReason::WorkloadEvicted, Some(key), message);
            }
            (Stage::Admitted(queue), Run::Suspended | Run::Partly) => {
                self.actions.push(Action::Start(key.clone()));
                let text = format!("Admitted by clusterQueue {queue}");
                self.notes.push(Note::routine(STARTED, text));
            }
            (Stage::Pending | Stage::Reserved, Run::Running | Run::Partly) => {
                self.stop(
                    StopReason::NotAdmitted,
                    Some(key),
                    "Not admitted by cluster queue",
                );
            }
            (Stage::Reserved, Run::Suspended) => {
                if !workload.waiting_for.is_empty() {
                    let text = workload.waiting_for.join("; ");
                    self.notes.push(Note::routine(UPDATED_CHECK, text));
                }
            }
            (
                Stage::Pending
                | Stage::Evicted {
                    quota: Quota::Released,
                    ..
                },
                Run::Suspended,
            ) => {
                // Unlike the anchor: not while quota is held, where the API refuses the change (api API-9.4 rule 3).
                if let Some(queue) = seen.queue.filter(|queue| *queue != workload.queue) {
                    self.actions.push(Action::SetQueueName {
                        workload: key.clone(),
                        queue: queue.to_owned(),
                    });
                }
            }
            (Stage::Evicted { .. }, Run::Suspended)
            | (Stage::Admitted(_), Run::Running)
            | (Stage::Finished { .. }, _) => {}
        }
    }

    /// *Source*: `spec/jobs.md 5.3 C5`.
    fn follow_job(&mut self, workload: &OwnedWorkload) {
        let key = &workload.key;
        if let Some(gated_by) = &workload.drift.gated_by {
            self.actions.push(Action::SetGates {
                workload: key.clone(),
                gated_by: gated_by.clone(),
            });
            let text = format!("Updated workload AdmissionGatedBy to \"{gated_by}\"");
            self.notes.push(Note::normal("UpdatedWorkload", text));
        }
        if workload.drift.priority {
            self.actions.push(Action::SetPriority(key.clone()));
            let text = format!("Updated workload priority class: {key}");
            self.notes.push(Note::normal("UpdatedWorkload", text));
        }
    }

    fn stop(&mut self, reason: StopReason, restore: Option<&Key>, message: &str) {
        self.actions.push(Action::Stop {
            reason,
            restore: restore.cloned(),
        });
        self.notes.push(Note::normal(STOPPED, message));
    }
}

#[cfg(test)]
mod tests;
