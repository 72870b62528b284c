//! What the generic job reconciler does: one job, its Workloads, a list of actions.
//!
//! This machine writes jobs, and creates, adopts, changes the spec of and deletes Workloads. It never writes a Workload's
//! status: what it wants there it asks for ([`Action::AskOutOfSync`]), and finishing, evicting, releasing and dropping the
//! finalizer belong to [`crate::lifecycle`].
//!
//! Invariant: at most one Workload per job survives, and a job without an admitted Workload is stopped.
//!
//! *Source*: `spec/jobs.md 5.1` to `5.4`, `5.9`, `5.10`, `5.15`, `5.17`.

use std::time::Duration;

use crate::name::Key;
use crate::note::Note;

/// Reason of the Event that tells of a start.
pub const STARTED: &str = "Started";

/// How old a job is before it becomes the controller of the Workload that was put there with it. Until then nothing is missing:
/// the manager that put both there looks after both.
pub const ADOPTION_PAUSE: Duration = Duration::from_secs(30);

/// Everything that is known about one job.
#[derive(Clone, Debug)]
pub struct JobObserved<'a> {
    /// The job's namespace and name.
    pub key: Key,
    /// Whether it exists.
    pub presence: Presence,
    /// Whether the queueing system may touch it at all.
    pub scope: Scope,
    /// Its queue label; `None` or empty when there is none.
    pub queue: Option<&'a str>,
    /// Whether a managed object owns it.
    pub parent: Parent,
    /// Whether it is held back.
    pub run: Run,
    /// Whether it still has pods.
    pub pods: Pods,
    /// What becomes of it when its Workload is deleted.
    pub at_deletion: AtDeletion,
    /// Whether it is over.
    pub ended: Ended,
    /// Name of the Workload it wants to adopt.
    pub prebuilt: Option<&'a str>,
    /// The name a Workload made for it has. *Source*: `spec/jobs.md 5.7`.
    pub workload_name: Key,
    /// With a prebuilt name: that Workload, if it exists. Else: the Workloads this job controls, sorted by name.
    pub workloads: &'a [OwnedWorkload],
}

/// Whether a job exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does.
    Live,
    /// It does not, or not for long.
    Going,
}

/// Whether a job is the queueing system's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Its namespace does not match `managedJobsNamespaceSelector`.
    Outside,
    /// Only if it names a queue.
    WithQueue,
    /// In any case (`manageJobsWithoutQueueName`).
    Always,
}

/// The top-most managed owner of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// There is none.
    None,
    /// There is one, and its newest unfinished Workload is admitted.
    Admitted,
    /// There is one, and nothing of it is admitted.
    NotAdmitted,
}

/// Whether a job is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It is held back.
    Suspended,
    /// It may have pods, or a stop is under way.
    Running,
    /// Of a group: some members are held back, others may run.
    Partly,
}

/// What becomes of a job whose Workload is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDeletion {
    /// It is held back.
    Held,
    /// It is deleted, also when it is held back already. Our finalizer keeps its objects until their end has been counted.
    Deleted,
}

/// Whether a job has pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// It has.
    Some,
    /// It has none.
    None,
}

/// Whether a job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// A Workload that belongs to a job, or could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedWorkload {
    /// Namespace and name.
    pub key: Key,
    /// Who controls it.
    pub control: Control,
    /// Whether it describes the job. *Source*: `spec/jobs.md 5.5`.
    pub fit: Fit,
    /// How far it got.
    pub stage: Stage,
    /// Whether `metadata.deletionTimestamp` is set.
    pub presence: Presence,
    /// Where its job may run.
    pub site: Site,
    /// `spec.queueName`.
    pub queue: String,
    /// What else of the job changed since it was made.
    pub drift: Drift,
    /// Pending checks that say something, as `<check>: <message>`, sorted.
    pub waiting_for: Vec<String>,
}

/// Who controls a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The job at hand.
    This,
    /// Nobody yet, but a manager put both there for each other: the job need not be its controller before it starts.
    Claimed(Claim),
    /// Somebody else.
    Other,
    /// Nobody.
    Nobody,
}

/// Whether it is time that a job becomes the controller of the Workload that was put there with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Not yet: the job is younger than [`ADOPTION_PAUSE`].
    Fresh,
    /// It is.
    Ripe,
}

/// Whether a Workload describes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Equivalent,
    /// It does not.
    Different,
}

/// Where a job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// In this cluster, if anywhere.
    Here,
    /// In a worker cluster, whatever the job here shows.
    Elsewhere,
    /// The same, and the job here must stay held back: its controller would run it here too.
    ElsewhereOnly,
    /// The same, and what is not held of it here is only shown, on a node that stands for that cluster.
    ElsewhereShown,
}

/// How far a Workload got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No quota.
    Pending,
    /// Quota, but not admitted.
    Reserved,
    /// Admitted, in the `ClusterQueue` named.
    Admitted(String),
    /// Told to stop, whether or not it still holds quota.
    Evicted {
        /// The message of the eviction.
        message: String,
        /// Whether quota is still held.
        quota: Quota,
    },
    /// Over.
    Finished {
        /// Whether its finalizer is still there, that is, whether this is news.
        news: News,
    },
}

/// Whether quota is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// It is.
    Held,
    /// It is not.
    Released,
}

/// Whether an end was told already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Not yet.
    Fresh,
    /// It was.
    Told,
}

/// What of a job changed that an existing Workload follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// The job names another priority class, which the Workload may follow. *Source*: `spec/jobs.md 5.13`.
    pub priority: bool,
    /// The job's new value of `admission-gated-by`, when it differs.
    pub gated_by: Option<String>,
}

/// One thing to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a Workload for the job. One that exists already is looked at again.
    CreateWorkload(Key),
    /// Make the job the controller of a prebuilt Workload, and label it with the job's UID.
    AdoptPrebuilt(Key),
    /// Make the spec of a Workload match the job; keep `spec.active`.
    UpdateWorkloadSpec(Key),
    /// Take the finalizer off a Workload and delete it.
    DeleteWorkload(Key),
    /// Delete a Workload whose job may run elsewhere. It keeps its finalizer, so it goes once nothing runs there any more.
    WithdrawWorkload(Key),
    /// Let a Workload name another queue.
    SetQueueName {
        /// The Workload.
        workload: Key,
        /// The queue.
        queue: String,
    },
    /// Let a Workload follow the job's priority class.
    SetPriority(Key),
    /// Let a Workload follow the job's admission gates.
    SetGates {
        /// The Workload.
        workload: Key,
        /// The annotation's value.
        gated_by: String,
    },
    /// Inject what was assigned, and let the job run.
    Start(Key),
    /// Hold the job back, and restore its templates from a Workload.
    Stop {
        /// Why.
        reason: StopReason,
        /// The Workload to restore from; `None` leaves the templates alone.
        restore: Option<Key>,
    },
    /// Hold a child of a managed job back; nothing is restored.
    SuspendChild,
    /// Ask the Workload's reconciler to finish it with reason `OutOfSync`.
    AskOutOfSync(Key),
    /// Let its objects go: their end has been counted, or does not count.
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
    /// The word of the reference.
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
    /// When to look again.
    pub follow_up: FollowUp,
}

/// When to look at a job again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// When something changes.
    OnChange,
    /// After [`ADOPTION_PAUSE`]: the job is to become the controller of its Workload then.
    Adoption,
    /// With back-off: something must settle first.
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

/// What the search for the job's Workload gave.
enum Search<'a> {
    /// This one.
    Found(&'a OwnedWorkload),
    /// None.
    Missing,
    /// Something must be done first; the pass ends.
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

    /// Whether anything of it may run.
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
            // Why not when it is over: whoever put both there removes both.
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

    /// Whether a Workload that no longer describes the job says what nothing else does: where the job may run, that it has ended
    /// before it shows that, or that pods are counted which are being taken away.
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

    /// A Workload that no longer describes the job and is needed still.
    ///
    /// Unlike the anchor: a run in a worker cluster is ended first, as where somebody deletes the Workload; a stop of the job here
    /// ends nothing, and a Workload that is gone would leave nobody who ends it before the next run begins.
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

    /// `all`: none is left then. Why it matters: pods that are counted would be nobody's.
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
                    self.notes.push(Note::routine("UpdatedAdmissionCheck", text));
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
        self.notes.push(Note::normal("Stopped", message));
    }
}

#[cfg(test)]
mod tests;
