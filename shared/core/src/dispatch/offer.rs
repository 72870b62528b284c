//! To which clusters a Workload is offered: the three dispatchers.
//!
//! *Source*: `spec/multikueue.md 4`.

use jiff::SignedDuration;

use super::Pass;
use super::observed::{Dispatcher, Order};
use super::seek::Standing;
use super::waiting::Waiting;
use crate::cluster::later;
use crate::name::ClusterName;

/// How long a round of the incremental dispatcher lasts before more clusters are asked.
pub const ROUND: SignedDuration = SignedDuration::from_mins(5);

type Listed<'a, 'b> = &'b [(&'a ClusterName, Standing<'a>)];

impl<'a> Pass<'a> {
    /// The clusters that the Workload is offered to now, as they are to be written.
    pub(super) fn offer(&mut self, listed: Listed<'a, '_>) -> Vec<ClusterName> {
        match self.o.policy.dispatcher {
            Dispatcher::AllAtOnce => {
                let mut open: Vec<ClusterName> = listed
                    .iter()
                    .filter(|(_, standing)| standing.is_open())
                    .map(|(cluster, _)| (*cluster).clone())
                    .collect();
                open.sort();
                open.dedup();
                open
            }
            Dispatcher::Incremental { step, order } => {
                let mut candidates: Vec<_> = listed.iter().collect();
                match order {
                    Order::OfConfig => {}
                    Order::OfName => candidates.sort_by_key(|(cluster, _)| *cluster),
                }
                self.next_round(&candidates, step)
            }
            Dispatcher::External => self.plan.status.nominated.clone(),
        }
    }

    /// Those asked already, and a few more when their time is up.
    ///
    /// Unlike the anchor: clusters that do not answer or have failed take no place in a round, a round does not begin before the
    /// Workload can be sent, and after a restart the round that was under way counts as begun now (`spec/multikueue.md` 4.1).
    fn next_round(&mut self, candidates: &[&(&'a ClusterName, Standing<'a>)], step: u32) -> Vec<ClusterName> {
        let asked: Vec<ClusterName> = self
            .plan
            .status
            .nominated
            .iter()
            .filter(|name| {
                // One that went silent may hold a copy: it stays asked.
                candidates.iter().any(|(cluster, standing)| {
                    cluster == name && !matches!(standing, Standing::Failed { .. })
                })
            })
            .cloned()
            .collect();
        let waiting: Vec<ClusterName> = candidates
            .iter()
            .filter(|(cluster, standing)| standing.is_open() && !asked.contains(cluster))
            .map(|(cluster, _)| (*cluster).clone())
            .collect();
        if waiting.is_empty() {
            // Why kept: one that comes back later is asked at once when the round has long been over.
            self.plan.round = self.o.round;
            return asked;
        }
        let begun = self.o.round.unwrap_or(self.now);
        let ends = later(begun, ROUND);
        if !asked.is_empty() && ends > self.now {
            self.plan.round = Some(begun);
            self.wake(ends);
            return asked;
        }
        self.plan.round = Some(self.now);
        self.wake(later(self.now, ROUND));
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        asked.into_iter().chain(waiting.into_iter().take(step)).collect()
    }

    /// Why nobody is asked, if that is for the dispatcher to say.
    pub(super) fn not_offered(&self, offered: &[ClusterName]) -> Option<Waiting> {
        match self.o.policy.dispatcher {
            Dispatcher::External if offered.is_empty() => Some(Waiting::NotNominated),
            Dispatcher::External | Dispatcher::AllAtOnce | Dispatcher::Incremental { .. } => None,
        }
    }
}

impl Standing<'_> {
    /// Whether it can take a copy, at once or when it is cleared.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Clearing)
    }
}
