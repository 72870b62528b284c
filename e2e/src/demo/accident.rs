//! The planned accident: the link to west is cut while a job runs there, and healed after the job has ended.

use std::time::{Duration, Instant};

use crate::observer::ledger::{Event, Step, Subject};

/// How long the job runs before the link is cut, so that the manager and the observer have seen it run.
const BEFORE: Duration = Duration::from_secs(3);
/// How long the link stays cut at least after the job has ended unseen.
const DARK: Duration = Duration::from_secs(4);
/// How long the link stays cut at most.
const DARK_MAX: Duration = Duration::from_secs(40);

/// An action on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Cut,
    Mend,
}

/// Follows one job through the accident.
#[derive(Debug)]
pub(super) struct Script {
    job: Subject,
    started: Option<Instant>,
    cut: Option<Instant>,
    mended: Option<Instant>,
    ended: Option<Instant>,
    known: Option<Instant>,
}

impl Script {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            job: Subject::Job(namespace.to_owned(), name.to_owned()),
            started: None,
            cut: None,
            mended: None,
            ended: None,
            known: None,
        }
    }

    pub(super) fn note(&mut self, step: &Step) {
        if step.subject != self.job {
            return;
        }
        match step.event {
            Event::Started(_) => self.started = self.started.or(Some(step.at)),
            Event::Ended(..) => self.ended = self.ended.or(Some(step.at)),
            Event::Finished(_) => self.known = self.known.or(Some(step.at)),
            Event::Submitted
            | Event::Waiting(_)
            | Event::Reserved
            | Event::Stopped(_)
            | Event::Gone
            | Event::Active(..)
            | Event::Capacity(..) => {}
        }
    }

    /// The action that is due. Each action is returned once.
    pub(super) fn due(&mut self, now: Instant) -> Option<Order> {
        match (self.started, self.cut, self.mended) {
            (Some(started), None, _) if now.duration_since(started) >= BEFORE => {
                self.cut = Some(now);
                Some(Order::Cut)
            }
            (_, Some(cut), None) => {
                let dark = self.ended.is_some_and(|ended| now.duration_since(ended) >= DARK);
                (dark || now.duration_since(cut) >= DARK_MAX).then(|| {
                    self.mended = Some(now);
                    Order::Mend
                })
            }
            _ => None,
        }
    }

    /// Whether the link was cut and healed, and the manager knows the end of the job.
    pub(super) fn is_over(&self) -> bool {
        self.mended.is_some() && self.known.is_some()
    }

    /// How long the link was cut.
    pub(super) fn dark(&self, now: Instant) -> Duration {
        self.cut.map_or(Duration::ZERO, |cut| {
            self.mended.unwrap_or(now).duration_since(cut)
        })
    }

    /// Whether the job ended in its cluster while the link was cut, and the manager did not show that before the link was healed.
    pub(super) fn ended_unseen(&self) -> bool {
        let (Some(cut), Some(mended), Some(ended)) = (self.cut, self.mended, self.ended) else {
            return false;
        };
        ended >= cut && ended <= mended && self.known.is_none_or(|known| known >= mended)
    }

    /// The time from healing until the manager showed the end of the job.
    pub(super) fn seen_after(&self) -> Option<Duration> {
        Some(self.known?.saturating_duration_since(self.mended?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::ledger::Outcome;

    #[test]
    fn the_cable_is_mended_only_after_the_job_ended_in_the_dark() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut script = Script::new("ns", "j");
        let step = |second, event| Step {
            at: at(second),
            subject: Subject::Job("ns".to_owned(), "j".to_owned()),
            event,
        };
        assert_eq!(script.due(at(0)), None);
        script.note(&step(0, Event::Started("west".to_owned())));
        assert_eq!(script.due(at(2)), None);
        assert_eq!(script.due(at(3)), Some(Order::Cut));
        assert_eq!(script.due(at(7)), None);
        script.note(&step(8, Event::Ended("west".to_owned(), Outcome::Succeeded)));
        assert_eq!(script.due(at(9)), None);
        assert_eq!(script.due(at(12)), Some(Order::Mend));
        assert_eq!(script.due(at(13)), None);
        assert!(!script.is_over() && script.ended_unseen());
        script.note(&step(13, Event::Finished(Outcome::Succeeded)));
        assert!(script.is_over());
        assert_eq!(script.dark(at(99)), Duration::from_secs(9));
        assert_eq!(script.seen_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_end_that_was_known_in_the_dark_was_not_unseen() {
        let start = Instant::now();
        let mut script = Script::new("ns", "j");
        script.cut = Some(start);
        script.ended = Some(start + Duration::from_secs(1));
        script.known = Some(start + Duration::from_secs(2));
        script.mended = Some(start + Duration::from_secs(3));
        assert!(!script.ended_unseen());
    }
}
