//! To which clusters a Workload is offered: the four dispatchers.
//!
//! *Source*: `spec/multikueue.md 4`.

use jiff::SignedDuration;

use super::Pass;
use super::capacity::{self, Room};
use super::observed::{Answer, Cordon, Dispatcher, Order};
use super::record::Reply;
use super::seek::Standing;
use super::waiting::Waiting;
use crate::moment::later;
use crate::name::ClusterName;

/// How long a round of the incremental dispatcher lasts before more clusters are asked.
pub const ROUND: SignedDuration = SignedDuration::from_mins(5);

/// How long [`Dispatcher::Capacity`] waits for the first cluster before it asks another one; for `n` asked clusters it waits `n` times as
/// long. *Why*: a worker with room answers within a second, and each further copy costs a worker six writes.
pub const WIDEN: SignedDuration = SignedDuration::from_secs(10);

type Listed<'a, 'b> = &'b [(&'a ClusterName, Standing<'a>)];

impl<'a> Pass<'a> {
    /// The clusters that the Workload is offered to now, in the order in which they are to be written.
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
                let asked = self.still_asked(listed);
                self.next_round(asked, &candidates, step)
            }
            Dispatcher::Capacity => self.by_room(listed),
            Dispatcher::External => self.plan.status.nominated.clone(),
        }
    }

    /// Asks the cluster with the most room. Doubles the number of asked clusters when none of them admits the Workload in time. It does so
    /// at once when another cluster has room and each asked one has refused, or is slow and has no copy yet.
    ///
    /// Unlike the anchor: there every cluster is asked, and all but one work in vain (`spec/multikueue.md` 13.A5).
    fn by_room(&mut self, listed: Listed<'a, '_>) -> Vec<ClusterName> {
        let asked = self.still_asked(listed);
        let mut waiting: Vec<(capacity::Order, &ClusterName)> = { listed.iter() }
            .filter(|(cluster, standing)| standing.is_open() && !asked.contains(cluster))
            .filter_map(|(cluster, _)| Some((capacity::order(&self.site(cluster).room)?, *cluster)))
            .collect();
        // Why stable: among equals the order of the config decides. Why room first: a quick answer without room is of no use.
        waiting.sort_by_key(|(order, cluster)| (!order.has_room(), self.site(cluster).late, *order));
        let Some((best, first)) = waiting.first().copied() else {
            self.plan.round = self.o.round;
            return asked;
        };
        let begun = self.o.round.unwrap_or(self.now);
        let ends = later(begun, patience(asked.len()));
        let none_will = asked.iter().all(|name| {
            let mut listed = listed.iter();
            listed.any(|(cluster, standing)| {
                *cluster == name
                    && (standing.is_refusal() || (standing.is_empty() && self.site(cluster).late))
            })
        });
        let another_would = best.has_room() && !self.site(first).late;
        if !asked.is_empty() && ends > self.now && !(none_will && another_would) {
            self.plan.round = Some(begun);
            self.wake(ends);
            return asked;
        }
        // Why every cluster of unknown room: nothing tells them apart, so all are asked, as in the reference.
        let more: Vec<ClusterName> = if best.is_unknown() {
            let unknown = waiting.iter().filter(|(order, _)| order.is_unknown());
            unknown.map(|(_, cluster)| (*cluster).clone()).collect()
        } else {
            let step = asked.len().max(1);
            waiting
                .iter()
                .take(step)
                .map(|(_, cluster)| (*cluster).clone())
                .collect()
        };
        self.plan.round = Some(self.now);
        if more.len() < waiting.len() {
            self.wake(later(self.now, patience(asked.len() + more.len())));
        }
        asked.into_iter().chain(more).collect()
    }

    /// The clusters asked already, and up to `step` more when their round is over.
    ///
    /// Unlike the anchor: clusters that do not answer when their turn comes, or that have failed, take no place in a round. A round
    /// does not begin before the Workload can be sent. After a restart the round that was under way counts as begun now
    /// (`spec/multikueue.md` 4.1).
    fn next_round(
        &mut self,
        asked: Vec<ClusterName>,
        candidates: &[&(&'a ClusterName, Standing<'a>)],
        step: u32,
    ) -> Vec<ClusterName> {
        let waiting: Vec<ClusterName> = candidates
            .iter()
            .filter(|(cluster, standing)| standing.is_open() && !asked.contains(cluster))
            .map(|(cluster, _)| (*cluster).clone())
            .collect();
        if waiting.is_empty() {
            // Why the begin is kept: if the round is long over, a cluster that comes back is asked at once.
            self.plan.round = self.o.round;
            return asked;
        }
        let begun = self.o.round.unwrap_or(self.now);
        let ends = later(begun, ROUND);
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        if !asked.is_empty() && ends > self.now {
            self.plan.round = Some(begun);
            self.wake(ends);
            // Why: a cluster that failed leaves its place free. Another cluster, or the same one after it recovered, takes that place
            // without waiting for the next round.
            let left = step.saturating_sub(asked.len());
            return asked.into_iter().chain(waiting.into_iter().take(left)).collect();
        }
        self.plan.round = Some(self.now);
        self.wake(later(self.now, ROUND));
        asked.into_iter().chain(waiting.into_iter().take(step)).collect()
    }

    /// The clusters asked before that have not failed. A lost cluster stays asked, because it may hold a copy.
    fn still_asked(&self, listed: Listed<'a, '_>) -> Vec<ClusterName> {
        let nominated = self.plan.status.nominated.iter();
        let stays = |name: &&ClusterName| {
            let mut listed = listed.iter();
            listed.any(|(cluster, standing)| cluster == name && standing.stays_asked())
        };
        nominated.filter(stays).cloned().collect()
    }

    /// The reply that users see for a cluster that was not asked.
    pub(super) fn unasked(&self, cluster: &ClusterName) -> (Reply, String) {
        let site = self.site(cluster);
        match (site.cordon, &site.room) {
            (Cordon::Closed | Cordon::Drained, _) => (Reply::Cordoned, String::new()),
            (Cordon::Leaving, _) => (Reply::Cordoned, "it is leaving".to_owned()),
            (Cordon::Open, Room::Closed(why)) => (Reply::NotSuitable, why.to_string()),
            (Cordon::Open, Room::TooLarge) => (Reply::NotAsked, "larger than its quota".to_owned()),
            (Cordon::Open, Room::Full { pending }) => (
                Reply::NotAsked,
                format!("its quota is in use, {pending} waiting there"),
            ),
            (Cordon::Open, Room::Unknown | Room::Fits { .. }) => (Reply::NotAsked, String::new()),
        }
    }

    /// Why no cluster is asked, if the dispatcher is the reason.
    pub(super) fn not_offered(&self, offered: &[ClusterName]) -> Option<Waiting> {
        match self.o.policy.dispatcher {
            Dispatcher::External if offered.is_empty() => {
                Some(Waiting::NotNominated { unlisted: Vec::new() })
            }
            Dispatcher::External
            | Dispatcher::AllAtOnce
            | Dispatcher::Incremental { .. }
            | Dispatcher::Capacity => None,
        }
    }
}

impl Standing<'_> {
    /// Whether the cluster can take a copy, at once or after its old copies are removed.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Clearing)
    }

    const fn is_empty(&self) -> bool {
        matches!(self, Self::Open(None))
    }

    const fn stays_asked(&self) -> bool {
        matches!(
            self,
            Self::Open(_) | Self::Clearing | Self::Silent | Self::Unreadable(_)
        )
    }

    /// Whether the worker's queue has looked at the copy and has no room.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Open(Some(copy)) if copy.answer == Answer::TurnedDown)
    }
}

fn patience(asked: usize) -> SignedDuration {
    WIDEN.saturating_mul(i32::try_from(asked.max(1)).unwrap_or(i32::MAX))
}
