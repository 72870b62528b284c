//! Whether the cluster that holds a Workload answers, is silent, or is given up. *Source*: `spec/safety.md 3.4, 3.5`.

use jiff::Timestamp;

use super::{Copies, Cordon, Fence, LostPolicy, Pass, Remote};
use crate::cluster::later;
use crate::name::ClusterName;

/// What is known of the cluster that holds the Workload.
pub(super) enum Holder<'a> {
    /// It answers: this is there.
    Answers(&'a Copies),
    /// It does not.
    Silent {
        /// Since when, if it was ever heard.
        since: Option<Timestamp>,
        /// When it is given up, if ever.
        until: Option<Timestamp>,
    },
    /// It is no longer waited for.
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
    /// What is known of a cluster, as the policy takes it.
    pub(super) fn holder(&self, cluster: &ClusterName) -> Holder<'a> {
        // Why leaving is like not listed: who deletes a cluster that does not answer says that its run is lost.
        let leaves = self.site(cluster).cordon == Cordon::Leaving;
        let listed = self.o.clusters.contains(cluster) && !leaves;
        match self.o.remotes.get(cluster) {
            Some(Remote::Reachable(copies)) => Holder::Answers(copies),
            Some(Remote::Unreachable { .. }) if bug!(self.o.policy, EvictionOnBlip) => {
                Holder::GivenUp(Closed::Perhaps)
            }
            Some(Remote::Unreachable { since, fence }) => {
                let timeout = later(*since, self.o.policy.worker_lost_timeout);
                let given_up = match (self.o.policy.lost, fence) {
                    // Why: taking a cluster that does not answer out of the config is the admin's word that its run is lost.
                    _ if !listed => Some((timeout, Closed::Certainly)),
                    (LostPolicy::RetryAnyway, _) => Some((timeout, Closed::Perhaps)),
                    (LostPolicy::Fence, Fence::Closes { at }) => Some((*at, Closed::Certainly)),
                    // Why both: it may yet fence itself.
                    (LostPolicy::Fence, Fence::Unknown { at }) => Some((timeout.max(*at), Closed::Perhaps)),
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
            None if listed => Holder::Silent {
                since: None,
                until: None,
            },
            None => Holder::GivenUp(Closed::Certainly),
        }
    }
}
