//! A job that has failed for good on one worker and is tried on another one, as its owner asks by annotation.
//!
//! Invariant: the failed run belongs to a dispatch that is over. The number of the next dispatch and the name of the cluster are
//! stored before the status, so no end of the failed run is believed afterwards (`spec/safety.md` I11).
//!
//! *Source*: `spec/multikueue.md 3.3 R4` (deviation), `spec/safety.md 3.1`.

use std::collections::BTreeSet;

use super::{Copies, Pass, Said};
use crate::name::{CheckName, ClusterName};
use crate::note::Severity;

/// Reason of `Finished` of a job that failed. *Source*: `spec/jobs.md 5.6`.
const FAILED: &str = "Failed";

/// Whether a job that has failed for good on a worker is tried on another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// How many times the job is tried again at most; 0 means that the first failure is final.
    pub limit: usize,
    /// The clusters on which it has failed.
    pub failed_on: BTreeSet<ClusterName>,
}

impl Pass<'_> {
    /// Whether the job of `winner` will be tried on another cluster if it fails there.
    fn has_try_left(&self, winner: &ClusterName) -> bool {
        let Elsewhere { limit, failed_on } = self.o.elsewhere;
        // Why a cordoned cluster counts: while the job runs, the manager reads nothing of clusters that hold none of its objects.
        let is_other = |cluster: &ClusterName| cluster != winner && !failed_on.contains(cluster);
        failed_on.len() < *limit && self.o.clusters.iter().any(is_other)
    }

    /// Whether the local job must not show yet that the job on `winner` ended. Why: the winner's Workload does not say yet whether the job
    /// failed, and a failed job may be tried elsewhere.
    pub(super) fn awaits_verdict(&self, winner: &ClusterName, copies: &Copies) -> bool {
        copies.current_job(self.o.epoch).is_some_and(|job| job.finished) && self.has_try_left(winner)
    }

    pub(super) fn is_tried_elsewhere(&self, winner: &ClusterName, end: &Said) -> bool {
        end.reason == FAILED && self.has_try_left(winner)
    }

    pub(super) fn try_elsewhere(&mut self, check: &CheckName, winner: &ClusterName, end: &Said) {
        let Elsewhere { limit, failed_on } = self.o.elsewhere;
        let message = format!(
            "The job failed on worker cluster \"{winner}\", resetting for re-dispatch to another one, {} of {limit} times ({}), \
             Previously: \"Ready\"",
            failed_on.len().saturating_add(1),
            end.message
        );
        self.plan.failed_on = Some(winner.clone());
        self.end_dispatch();
        self.retry(check, message, Some(Severity::Warning));
    }
}
