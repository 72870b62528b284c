//! The workloads that wait in a ClusterQueue, in order, as users can list them.

use jiff::Timestamp;

use super::{Place, Record, State};
use crate::afs::Score;
use crate::name::{ClusterQueueName, Key, Uid};
use crate::pending::Rank;
use crate::table::WorkloadId;

/// A workload that waits. *Source*: `spec/api.md API-15`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The workload.
    pub key: Key,
    /// Its UID.
    pub uid: Uid,
    /// Its priority, without any boost.
    pub priority: i32,
    /// Name of the LocalQueue through which it came, in the workload's namespace.
    pub local_queue: String,
    /// When it was created.
    pub created: Timestamp,
}

/// Past usage where it counts, then whether it waits for victims, then rank.
type Order<'a> = (Option<Score>, bool, &'a Rank);

impl State {
    /// The first `limit` workloads that wait in a queue, in the order of its heap, those put aside included; `None` when there is no such
    /// queue.
    ///
    /// *Limits*: takes time for each pending workload of the queue, whatever the limit.
    pub fn pending_in_order(&self, queue: &ClusterQueueName, limit: usize) -> Option<Vec<PendingEntry>> {
        let pending = &self.queue_named(queue)?.pending;
        let order = |id: WorkloadId| -> Option<(Order<'_>, &Record)> {
            let record = self.records.at(id)?;
            let Place::Queued { ticket, .. } = &record.place else {
                return None;
            };
            let score = ticket.line.and_then(|local| {
                let book = self.book.as_ref()?;
                Some(book.score(&self.locals.at(local)?.key))
            });
            Some(((score, !pending.is_sticky(id), &ticket.rank), record))
        };
        let mut ranked: Vec<_> = pending.ids().filter_map(order).collect();
        // Why: a short list of a long queue must not cost a sort of the whole queue.
        if limit < ranked.len() {
            ranked.select_nth_unstable_by_key(limit, |(order, _)| *order);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by_key(|(order, _)| *order);
        let entry = |record: &Record| {
            let workload = &record.workload;
            PendingEntry {
                key: workload.key.clone(),
                uid: workload.uid.clone(),
                priority: workload.priority,
                local_queue: workload.queue.clone(),
                created: workload.created,
            }
        };
        Some(ranked.into_iter().map(|(_, record)| entry(record)).collect())
    }
}

#[cfg(test)]
mod tests;
