//! Whether the cluster that holds a Workload answers, is silent, or is given up, and how its dispatch comes to an end.
//!
//! *Source*: `spec/safety.md 3.4, 3.5`.

use jiff::Timestamp;

use super::{
    Cause, Copies, Cordon, Fence, LostPolicy, Owner, Pass, Remote, RemoteWorkload, Said, Waiting, false_end,
};
use crate::lifecycle::{DEACTIVATION_TARGET, TIME_IS_UP, time_is_up};
use crate::moment::later;
use crate::name::{CheckName, ClusterName};
use crate::note::Severity;

/// What is known of the cluster that holds the Workload.
pub(super) enum Holder<'a> {
    Answers(&'a Copies),
    Silent {
        /// The time of the loss; `None` when this process knows nothing of the cluster yet.
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    },
    /// It answers, but its jobs of this kind cannot be read; the text says why.
    Unreadable(&'a str),
    /// The manager does not wait for the cluster any more.
    GivenUp(Closed),
}

/// Whether a cluster that is given up is known to run nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It has stopped everything, or an administrator said that its runs are lost.
    Certainly,
    /// It may still run something.
    Perhaps,
}

impl<'a> Pass<'a> {
    /// What is known of a cluster, under the policy.
    pub(super) fn holder(&self, cluster: &ClusterName) -> Holder<'a> {
        match self.o.remotes.get(cluster) {
            Some(Remote::Reachable(copies)) => Holder::Answers(copies),
            Some(Remote::Unreadable { why }) => Holder::Unreadable(why),
            Some(Remote::Unreachable { .. }) if bug!(self.o.policy, EvictionOnBlip) => {
                Holder::GivenUp(Closed::Perhaps)
            }
            Some(Remote::Unreachable { since, fence }) => {
                let timeout = later(*since, self.o.policy.worker_lost_timeout);
                let given_up = match (self.o.policy.lost, fence) {
                    _ if self.site(cluster).given_up => Some((*since, Closed::Certainly)),
                    (LostPolicy::RetryAnyway, _) => Some((timeout, Closed::Perhaps)),
                    (LostPolicy::Fence, Fence::Closes { at }) => Some((*at, Closed::Certainly)),
                    // Why perhaps: the worker's engine may have ended while no process of this manager watched it.
                    (LostPolicy::Fence, Fence::Recorded { at }) => Some((timeout.max(*at), Closed::Perhaps)),
                    (LostPolicy::Fence, Fence::Open) | (LostPolicy::Wait, _) => None,
                };
                match given_up {
                    Some((until, closed)) if until <= self.now => Holder::GivenUp(closed),
                    until => Holder::Silent {
                        since: Some(*since),
                        until: until.map(|(at, _)| at),
                    },
                }
            }
            None if self.belongs(cluster) => Holder::Silent {
                since: None,
                until: None,
            },
            None => Holder::GivenUp(Closed::Certainly),
        }
    }

    pub(super) fn lost(
        &mut self,
        cluster: &ClusterName,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Waiting {
        if let Some(until) = until {
            self.wake(until);
        }
        Waiting::WorkerLost {
            cluster: cluster.clone(),
            since,
            until,
        }
    }

    /// The reason for waiting on a cluster whose jobs of this kind cannot be read.
    pub(super) fn unreadable(&self, cluster: &ClusterName, why: &str) -> Waiting {
        Waiting::KindNotReadable {
            cluster: cluster.clone(),
            kind: self.kind(),
            why: why.to_owned(),
        }
    }

    /// The kind of the job, for texts.
    pub(super) fn kind(&self) -> String {
        self.o.kind.unwrap_or("the kind of its job").to_owned()
    }

    /// Whether a cluster belongs to the federation: the config lists it, and it is not being deleted.
    fn belongs(&self, cluster: &ClusterName) -> bool {
        self.o.clusters.contains(cluster) && self.site(cluster).cordon != Cordon::Leaving
    }

    /// The cluster that holds the Workload. Why also the stored status: an eviction takes the name out of the composed status only.
    pub(super) fn named(&self) -> Option<&ClusterName> {
        let composed = self.plan.status.cluster.as_ref();
        composed.or(self.o.stored.cluster.as_ref())
    }

    /// The end of a run that ended before it could be stopped, for example on a worker that was cut off. It is the outcome: a job that
    /// ended is not run again (`spec/safety.md` I11).
    pub(super) fn late_end(&self) -> Option<(&'a ClusterName, &'a Said)> {
        let named = self.named()?;
        let (cluster, copies) = self.reachable().find(|(cluster, _)| *cluster == named)?;
        let end = copies.current_workload(self.o.epoch)?.finished.as_ref()?;
        false_end(&end.reason).is_none().then_some((cluster, end))
    }

    /// Keeps the name of the holding cluster after an eviction, until that cluster has stopped the run or is given up.
    ///
    /// Unlike the anchor: there an eviction clears the name at once. A worker that is cut off then keeps running a job that is also sent
    /// elsewhere (`spec/safety.md` I1, W1, W3).
    pub(super) fn hold_on(&mut self) {
        let named = self.named().cloned();
        self.plan.status.cluster = None;
        let Some(cluster) = named else { return };
        // Why not one condition with `or`: without the bugs both sides are the same constant.
        let planted = [
            bug!(self.o.policy, StuckToOneCluster),
            bug!(self.o.policy, StaleClusterName),
        ];
        if planted.contains(&true) {
            self.plan.status.cluster = Some(cluster);
            return;
        }
        let waiting = match self.holder(&cluster) {
            Holder::GivenUp(_) => return self.end_dispatch(),
            // Why not before the local job shows the end: the job would be run again.
            Holder::Answers(copies) if copies.is_settled() && !self.is_unseen(copies) => {
                return self.end_dispatch();
            }
            Holder::Answers(_) => self.stopping(&cluster),
            Holder::Silent { since, until } => self.lost(&cluster, since, until),
            Holder::Unreadable(why) => self.unreadable(&cluster, why),
        };
        self.plan.waiting = Some(waiting);
        self.plan.status.nominated.clear();
        self.plan.status.cluster = Some(cluster);
    }

    /// Whether only this cluster knows that the job ended. If its copy were removed now, the job would be run again (`spec/safety.md` I11,
    /// W9).
    pub(super) fn keeps_outcome(&self, cluster: &ClusterName, copies: &Copies) -> bool {
        self.plan.status.cluster.as_ref() == Some(cluster) && self.is_unseen(copies)
    }

    /// Whether the remote job ended, and a local job is still to show that end.
    fn is_unseen(&self, copies: &Copies) -> bool {
        let ended = copies.current_job(self.o.epoch).is_some_and(|job| job.finished);
        let shown = !self.o.job.present || self.o.job.finished || *self.o.owner != Owner::Managed;
        ended && !shown
    }

    /// The winner evicted the Workload.
    pub(super) fn taken_off(
        &mut self,
        check: &CheckName,
        winner: &ClusterName,
        copy: &RemoteWorkload,
        eviction: &Said,
    ) {
        if let Some(limit) = self.o.workload.max_execution_secs
            && eviction.reason == TIME_IS_UP
        {
            // Unlike the anchor: there the job is sent elsewhere, and the manager's own timer stops that run a moment later
            // (`spec/multikueue.md` 13.B19).
            if !self.is(DEACTIVATION_TARGET) {
                let note = time_is_up(&mut self.plan.status, limit, self.now);
                self.plan.notes.push(note);
            }
            return;
        }
        // Why a fenced copy is no failure: a worker that was only cut off has no fault.
        if copy.fenced {
            if self.was_never_leased(winner) {
                self.plan.failed.push((winner.clone(), Cause::LeaseLapsed));
            }
        } else {
            let rejected = eviction.reason.starts_with("Deactivated");
            let cause = if rejected { Cause::Rejected } else { Cause::Evicted };
            // Unlike the anchor: there the Workload is offered again at once to the worker that has just preempted it (`spec/multikueue.md`
            // 13.B6).
            self.fail(winner, cause, &eviction.message);
        }
        let message = format!(
            "Workload evicted on worker cluster: \"{winner}\", resetting for re-admission. Previously: \"Ready\""
        );
        self.retry(check, message, Some(Severity::Normal));
    }
}
