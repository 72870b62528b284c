//! Bugs of other projects, and one of ours, planted on purpose: the tests must find every one of them (`spec/safety.md 7`).
//!
//! Compiled only with feature `bugbank`, which none of our programs enables. Even then nothing is planted unless
//! [`Policy::bug`](super::Policy::bug) says so. Each bug was rebuilt from its description alone.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A job of another client that is in the way on a worker is deleted.
    ForeignJobDeleted,
    /// The copy of a job vanishes on its worker as soon as it has ended, so the manager misses its end and it runs again.
    TtlRerun,
    /// A worker was cut off when the owner of its copies was deleted: nothing ever looks for the copies that stay there.
    OrphanOnUnreachable,
    /// A worker that does not answer is given up at once.
    EvictionOnBlip,
    /// A worker whose credentials are refused is reported, and used all the same.
    InactiveStillUsed,
    /// A worker wins when it has reserved quota, before its own checks are ready, and the others lose.
    WinnerTooEarly,
    /// The name of a cluster that gave a Workload back is kept for ever.
    StuckToOneCluster,
    /// The copies stay on the workers when a Workload is deactivated or rejected.
    RejectedLeavesRemains,
    /// A Workload that is admitted again follows the cluster of its last round.
    StaleClusterName,
    /// When a connection comes back, no Workload is looked at again.
    NoLookAfterBreak,
    /// A worker counts as connected before its watches are open.
    ConnectedTooEarly,
    /// A call that hangs on one worker blocks the calls to all others.
    HungBlocksAll,
    /// The events of a new connection are handled while the worker still counts as lost, and not again.
    EarlyEventLost,
    /// W1: the copy that was admitted first gets the job, whatever was decided.
    WinnerNotSticky,
    /// W4: a copy that ended ends the Workload, on whichever worker.
    AnyEndCounts,
    /// The pods of an `AppWrapper` do not count once their owner is gone, so its quota is free while they run.
    PodsUncounted,
    /// An `AppWrapper` begins its next attempt without a pause, and before the objects and pods of the last one are gone.
    ResetsAtOnce,
    /// The retries of an `AppWrapper` are not counted, so one that always fails never ends.
    RetriesUncounted,
    /// The copies that did not win are deleted before the choice is stored, and actions on workers are carried out while it is unknown what
    /// is stored. A bug of ours; it is not in the bank, because only a burst of Workloads shows it.
    LosersGoEarly,
}

impl Bug {
    /// The bugs of the bank.
    pub const ALL: [Self; 18] = [
        Self::ForeignJobDeleted,
        Self::TtlRerun,
        Self::OrphanOnUnreachable,
        Self::EvictionOnBlip,
        Self::InactiveStillUsed,
        Self::WinnerTooEarly,
        Self::StuckToOneCluster,
        Self::RejectedLeavesRemains,
        Self::StaleClusterName,
        Self::NoLookAfterBreak,
        Self::ConnectedTooEarly,
        Self::HungBlocksAll,
        Self::EarlyEventLost,
        Self::WinnerNotSticky,
        Self::AnyEndCounts,
        Self::PodsUncounted,
        Self::ResetsAtOnce,
        Self::RetriesUncounted,
    ];

    /// Where it comes from: the number of the report, of the weak spot in `spec/safety.md 2` or (with a dash) in
    /// `spec/appwrapper.md 8.1`, of the transition in `spec/appwrapper.md 2.3` that it breaks, or of the invariant that found it.
    pub const fn source(self) -> &'static str {
        match self {
            Self::ForeignJobDeleted => "#11849",
            Self::TtlRerun => "#14734",
            Self::OrphanOnUnreachable => "#11515",
            Self::EvictionOnBlip => "#12999",
            Self::InactiveStillUsed => "#13188",
            Self::WinnerTooEarly => "#8585",
            Self::StuckToOneCluster => "#8143",
            Self::RejectedLeavesRemains => "#3841",
            Self::StaleClusterName => "#11378",
            Self::NoLookAfterBreak => "#10428",
            Self::ConnectedTooEarly => "#12612",
            Self::HungBlocksAll => "#14550",
            Self::EarlyEventLost => "#12824",
            Self::WinnerNotSticky => "W1",
            Self::AnyEndCounts => "W4",
            Self::PodsUncounted => "W-13",
            Self::ResetsAtOnce => "T23",
            Self::RetriesUncounted => "W-20",
            Self::LosersGoEarly => "I15",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Bug;

    #[test]
    fn the_bank_lists_every_bug_once_with_a_source_of_its_own() {
        let bugs: BTreeSet<Bug> = Bug::ALL.into_iter().collect();
        let sources: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.source()).collect();
        assert_eq!((bugs.len(), sources.len()), (Bug::ALL.len(), Bug::ALL.len()));
    }
}
