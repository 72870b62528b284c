//! The numbers of dispatches: each is above all that were sent before it, so that copies of an earlier dispatch are recognised.
//!
//! *Source*: `spec/safety.md 3.1`.

use super::Pass;
use super::holder::Holder;

/// The highest dispatch number that is believed when a copy shows it. Counting never reaches it. Why a limit: if a worker wrote a larger
/// number, no room would be left for the next ones.
pub(super) const EPOCH_BELIEVED_MAX: u64 = 1 << 53;

impl Pass<'_> {
    /// Takes note of a copy whose number this manager does not remember to have sent: the manager's storage was restored from a backup.
    ///
    /// Why the number is not raised while the present dispatch may run: its copies would count as outdated. Any worker could then end a run
    /// on another worker by writing a high number (`spec/safety.md` I9). The number is raised when that dispatch ends.
    pub(super) fn keep_ahead(&mut self) {
        let highest = self.reachable().map(|(_, copies)| copies.highest_epoch()).max();
        self.plan.highest = self.plan.highest.max(highest.unwrap_or_default());
        if self.plan.highest > self.o.epoch && !self.may_hold_present() {
            self.plan.epoch = self.plan.epoch.max(self.next_epoch());
        }
    }

    /// Ends the present dispatch: every copy that was sent for it counts as outdated from now on.
    ///
    /// *Source*: `spec/safety.md 3.1`.
    pub(super) fn end_dispatch(&mut self) {
        self.plan.epoch = self.plan.epoch.max(self.next_epoch());
    }

    /// A number above every number known to have been sent.
    fn next_epoch(&self) -> u64 {
        self.o.epoch.max(self.plan.highest).saturating_add(1)
    }

    /// Whether the cluster that the Workload names holds a copy of the present dispatch, or may hold one and does not answer.
    fn may_hold_present(&self) -> bool {
        match self.named().map(|cluster| self.holder(cluster)) {
            Some(Holder::Answers(copies)) => {
                let epoch = self.o.epoch;
                copies.current_workload(epoch).is_some() || copies.current_job(epoch).is_some()
            }
            Some(Holder::Silent { .. } | Holder::Unreadable(_)) => true,
            Some(Holder::GivenUp(_)) | None => false,
        }
    }
}
