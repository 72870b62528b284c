//! One worker of the world.

use super::*;

#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    pub(super) copies: Copies,
    pub(super) saved: Option<Copies>,
    pub(super) cut_since: Option<Timestamp>,
}

impl Site {
    /// The worker was cut off for too long: it stops its jobs, as `spec/safety.md 3.3` says.
    pub(super) fn fence(&mut self) {
        if let Some(w) = self.copies.workload.as_mut().filter(|w| w.origin == Origin::Ours)
            && w.finished.is_none()
            && w.active
        {
            (w.answer, w.admitted, w.active, w.fenced) = (Answer::None, None, false, true);
            w.evicted = Some(said("Deactivated", "x"));
        }
        match self.copies.job.as_mut().filter(|job| job.origin == Origin::Ours) {
            Some(job) if job.life == Life::Deleting && !job.finished => self.copies.job = None,
            Some(job) if !job.finished => job.pods = PodsThere::None,
            Some(_) | None => {}
        }
    }
}
