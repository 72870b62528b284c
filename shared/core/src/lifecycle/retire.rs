//! Deletion of objects whose retention is over. *Source*: `spec/admission-engine.md 4.3`, `spec/jobs.md 5.16`.
//!
//! Invariant: the times are computed from conditions alone, so a restart changes nothing.

use jiff::{SignedDuration, Timestamp};

use super::evict::DEACTIVATED_DUE_TO;
use super::ready::after;
use super::{Draft, EVICTED, FINISHED, JobFacts};
use crate::note::Note;

/// What is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nothing is deleted.
    Nothing,
    /// The Workload: it finished long ago.
    Workload,
    /// The job, and with it the Workload: it was deactivated long ago.
    Job,
}

impl Removal {
    /// The Event to emit on the deleted object after the deletion.
    pub fn note(self) -> Option<Note> {
        let text = match self {
            Self::Nothing => return None,
            Self::Workload => "Deleted finished workload due to elapsed retention",
            Self::Job => "Deleted job: deactivation retention period expired",
        };
        Some(Note::normal("Deleted", text))
    }
}

impl Draft<'_> {
    /// Deletes a finished Workload when its retention is over.
    ///
    /// Unlike the anchor: a Workload is kept until its job has ended, however it finished. Otherwise a new Workload would be created for
    /// the same job, and a manager would delete the remote job before its end was copied.
    pub(super) fn retire_finished(&mut self) {
        let unended = matches!(self.seen.job, JobFacts::Present { finished: None, .. });
        if self.seen.workload.deleting || unended {
            return;
        }
        let finished = self.status.conditions.when_true(FINISHED).map(|c| c.since);
        self.retire(
            finished,
            self.seen.policy.retention.after_finished,
            Removal::Workload,
        );
    }

    /// Deletes a job when the retention of its deactivation is over. A Workload that a user deactivated is kept.
    pub(super) fn retire_deactivated(&mut self) {
        if self.seen.workload.active || !matches!(self.seen.job, JobFacts::Present { .. }) {
            return;
        }
        let evicted = self.status.conditions.when_true(EVICTED);
        let evicted = evicted.filter(|c| c.reason.starts_with(DEACTIVATED_DUE_TO));
        let since = evicted.map(|c| c.since);
        self.retire(since, self.seen.policy.retention.after_deactivated, Removal::Job);
    }

    fn retire(&mut self, since: Option<Timestamp>, keep: Option<SignedDuration>, what: Removal) {
        let (Some(since), Some(keep)) = (since, keep) else {
            return;
        };
        let end = after(since, keep);
        if end > self.now {
            self.wake(end);
        } else {
            self.removal = what;
        }
    }
}
