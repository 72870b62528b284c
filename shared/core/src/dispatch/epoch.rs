//! The numbers of dispatches: each is above all that were sent before it, so that copies of an earlier dispatch are recognised.
//!
//! *Source*: `spec/safety.md 3.1`.

use super::Pass;
use super::holder::Holder;

/// The highest number of a dispatch that a copy is believed. Counting never gets there, and a number that a worker writes must
/// leave room for the numbers to come.
pub(super) const EPOCH_BELIEVED_MAX: u64 = 1 << 53;

impl Pass<'_> {
    /// Handles a copy with a number that we do not remember to have sent: our own storage was restored from a backup.
    ///
    /// Why not while the present dispatch may run: its number would no longer be the present one. Any worker could then end a run
    /// on another worker by a number that it writes (`spec/safety.md` I9). The number is taken when that dispatch ends.
    pub(super) fn keep_ahead(&mut self) {
        let highest = self.reachable().map(|(_, copies)| copies.highest_epoch()).max();
        self.plan.highest = self.plan.highest.max(highest.unwrap_or_default());
        if self.plan.highest > self.o.epoch && !self.may_hold_present() {
            self.plan.epoch = self.plan.epoch.max(self.next_epoch());
        }
    }

    /// Ends the dispatch that this cluster held: every copy that was sent for it is of the past from now on.
    ///
    /// *Source*: `spec/safety.md 3.1`.
    pub(super) fn end_dispatch(&mut self) {
        self.plan.epoch = self.plan.epoch.max(self.next_epoch());
    }

    /// A number above every number that was ever sent, as far as is known.
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
