//! The table of metrics: names, kinds, labels and conditions, exactly as on the wire.
//!
//! *Source*: `spec/admission-engine.md 8`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its value only grows.
    Counter,
    Gauge,
    /// Collects observations in these buckets.
    Histogram(Buckets),
}

/// Upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buckets {
    /// Seconds: 1, 2.5, 5, 10, 20 and so on doubling, this many.
    Waits(usize),
    /// Seconds: eleven from 0.01, doubling.
    Creation,
    /// The default buckets of Prometheus' client libraries.
    Usual,
}

impl Buckets {
    /// The bounds, without the infinite one.
    pub(super) fn bounds(self) -> Vec<f64> {
        let doubling =
            |first: f64, count| std::iter::successors(Some(first), |bound| Some(bound * 2.0)).take(count);
        match self {
            Self::Waits(count) => std::iter::once(1.0)
                .chain(doubling(2.5, count.saturating_sub(1)))
                .collect(),
            Self::Creation => doubling(0.01, 11).collect(),
            Self::Usual => vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
        }
    }
}

/// What must be enabled for a metric to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Needs nothing to be enabled.
    Always,
    /// Gate `LocalQueueMetrics` and `metrics.localQueueMetrics`.
    LocalQueues,
    /// The same, and gate `UnadmittedWorkloadsObservability`.
    UnadmittedOfLocalQueues,
    /// The same as [`Condition::LocalQueues`], and `admissionFairSharing`.
    UsageOfLocalQueues,
    /// Gate `UnadmittedWorkloadsObservability`.
    Unadmitted,
    /// Gate `MetricForWorkloadCreationLatency`.
    Creation,
    /// `metrics.enableClusterQueueResources`.
    Resources,
    /// The same, and `fairSharing`.
    ResourcesAndShares,
    Shares,
    /// Gate `MetricsForCohorts`.
    Cohorts,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    /// The name on the wire, with `_total` for counters.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    /// Its labels in order, without `replica_role`.
    pub(super) labels: &'static [&'static str],
    pub(super) when: Condition,
}

macro_rules! table {
    ($($metric:ident $name:literal, $kind:expr, [$($label:literal),*], $when:ident: $help:literal;)*) => {
        /// A metric of the engine. Its name, labels and meaning are those of `spec/admission-engine.md 8`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric {
            $(#[doc = $help] $metric,)*
        }

        impl Metric {
            /// All of them in the order of the table.
            pub(super) const ALL: &'static [Self] = &[$(Self::$metric),*];

            pub(super) const fn definition(self) -> Definition {
                match self {
                    $(Self::$metric => Definition {
                        name: $name, help: $help, kind: $kind, labels: &[$($label),*], when: Condition::$when,
                    },)*
                }
            }
        }
    };
}

use Buckets::{Creation, Usual, Waits};
use Kind::{Counter, Gauge, Histogram};

table! {
    AdmissionAttempts "kueue_admission_attempts_total", Counter, ["result"], Always:
        "Rounds of decisions, by whether any workload got quota";
    AdmissionAttemptDuration "kueue_admission_attempt_duration_seconds", Histogram(Usual), ["result"], Always:
        "How long rounds of decisions took";
    AdmissionCyclePreemptionSkips "kueue_admission_cycle_preemption_skips", Gauge, ["cluster_queue"], Always:
        "Workloads that were passed over in the last round because another one preempts the same victims";
    PreemptionTargetRecomputations "kueue_preemption_target_recomputations_total", Counter, ["cluster_queue", "result"], Always:
        "Searches for victims that were repeated because others had taken some of them";
    BuildInfo "kueue_build_info", Gauge,
        ["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"], Always:
        "Always 1; the labels tell the build";
    PendingWorkloads "kueue_pending_workloads", Gauge, ["cluster_queue", "status"], Always:
        "Pending workloads: active ones wait for their turn, inadmissible ones for a change";
    PendingSchedulingHashes "kueue_pending_scheduling_hashes", Gauge, ["cluster_queue", "status"], Always:
        "Different requests among the pending workloads";
    LocalQueuePendingWorkloads "kueue_local_queue_pending_workloads", Gauge, ["name", "namespace", "status"], LocalQueues:
        "Pending workloads of the local queue";
    FinishedWorkloads "kueue_finished_workloads", Gauge, ["cluster_queue"], Always:
        "Finished workloads that still exist";
    LocalQueueFinishedWorkloads "kueue_local_queue_finished_workloads", Gauge, ["name", "namespace"], LocalQueues:
        "Finished workloads of the local queue that still exist";
    QuotaReservedWorkloads "kueue_quota_reserved_workloads_total", Counter, ["cluster_queue", "priority_class"], Always:
        "Reservations of quota";
    LocalQueueQuotaReservedWorkloads "kueue_local_queue_quota_reserved_workloads_total", Counter,
        ["name", "namespace", "priority_class"], LocalQueues:
        "Reservations of quota through the local queue";
    FinishedWorkloadsTotal "kueue_finished_workloads_total", Counter, ["cluster_queue", "priority_class"], Always:
        "Workloads that finished";
    LocalQueueFinishedWorkloadsTotal "kueue_local_queue_finished_workloads_total", Counter,
        ["name", "namespace", "priority_class"], LocalQueues:
        "Workloads of the local queue that finished";
    AdmittedWorkloads "kueue_admitted_workloads_total", Counter, ["cluster_queue", "priority_class"], Always:
        "Admissions";
    LocalQueueAdmittedWorkloads "kueue_local_queue_admitted_workloads_total", Counter,
        ["name", "namespace", "priority_class"], LocalQueues:
        "Admissions through the local queue";
    QuotaReservedWaitTime "kueue_quota_reserved_wait_time_seconds", Histogram(Waits(14)),
        ["cluster_queue", "priority_class"], Always:
        "From creation, or the last requeuing, to the reservation of quota";
    LocalQueueQuotaReservedWaitTime "kueue_local_queue_quota_reserved_wait_time_seconds", Histogram(Waits(14)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "From creation, or the last requeuing, to the reservation of quota";
    AdmissionWaitTime "kueue_admission_wait_time_seconds", Histogram(Waits(16)),
        ["cluster_queue", "priority_class"], Always:
        "From creation, or the last requeuing, to admission";
    LocalQueueAdmissionWaitTime "kueue_local_queue_admission_wait_time_seconds", Histogram(Waits(14)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "From creation, or the last requeuing, to admission";
    AdmissionChecksWaitTime "kueue_admission_checks_wait_time_seconds", Histogram(Waits(14)),
        ["cluster_queue", "priority_class"], Always:
        "From the reservation of quota to admission, of workloads with admission checks";
    LocalQueueAdmissionChecksWaitTime "kueue_local_queue_admission_checks_wait_time_seconds", Histogram(Waits(14)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "From the reservation of quota to admission, of workloads with admission checks";
    ReadyWaitTime "kueue_ready_wait_time_seconds", Histogram(Waits(14)), ["cluster_queue", "priority_class"], Always:
        "From creation, or the last requeuing, until all pods were ready";
    LocalQueueReadyWaitTime "kueue_local_queue_ready_wait_time_seconds", Histogram(Waits(14)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "From creation, or the last requeuing, until all pods were ready";
    AdmittedUntilReadyWaitTime "kueue_admitted_until_ready_wait_time_seconds", Histogram(Waits(14)),
        ["cluster_queue", "priority_class"], Always:
        "From admission until all pods were ready";
    LocalQueueAdmittedUntilReadyWaitTime "kueue_local_queue_admitted_until_ready_wait_time_seconds", Histogram(Waits(14)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "From admission until all pods were ready";
    ExecutionTime "kueue_execution_time_seconds", Histogram(Waits(16)), ["cluster_queue", "priority_class"], Always:
        "How long finished workloads were admitted, over all their admissions";
    LocalQueueExecutionTime "kueue_local_queue_execution_time_seconds", Histogram(Waits(16)),
        ["name", "namespace", "priority_class"], LocalQueues:
        "How long finished workloads were admitted, over all their admissions";
    PodsReadyToEvictedTime "kueue_pods_ready_to_evicted_time_seconds", Histogram(Waits(14)),
        ["cluster_queue", "reason", "underlying_cause"], Always:
        "From the moment in which all pods were ready to the eviction";
    WorkloadCreationLatency "kueue_workload_creation_latency_seconds", Histogram(Creation), ["job_kind"], Creation:
        "From the creation of a job to the creation of its workload";
    PodSchedulingGateRemoval "kueue_pod_scheduling_gate_removal_seconds", Histogram(Usual),
        ["name", "cluster_queue", "is_group"], Always:
        "From the admission of a workload to the removal of the scheduling gate of a pod";
    EvictedWorkloads "kueue_evicted_workloads_total", Counter,
        ["cluster_queue", "reason", "underlying_cause", "priority_class"], Always:
        "Evictions";
    LocalQueueEvictedWorkloads "kueue_local_queue_evicted_workloads_total", Counter,
        ["name", "namespace", "reason", "underlying_cause", "priority_class"], LocalQueues:
        "Evictions from the local queue";
    EvictedWorkloadsOnce "kueue_evicted_workloads_once_total", Counter,
        ["cluster_queue", "reason", "underlying_cause", "priority_class"], Always:
        "Workloads that were evicted for this reason at least once";
    WorkloadEvictionLatency "kueue_workload_eviction_latency_seconds", Histogram(Waits(14)),
        ["cluster_queue", "reason"], Always:
        "From an eviction until quota was free again";
    PreemptedWorkloads "kueue_preempted_workloads_total", Counter, ["preempting_cluster_queue", "reason"], Always:
        "Preemptions in favour of workloads of the cluster queue";
    ReplacedWorkloadSlices "kueue_replaced_workload_slices_total", Counter, ["cluster_queue"], Always:
        "Slices of elastic jobs that were replaced by another one";
    ReservingActiveWorkloads "kueue_reserving_active_workloads", Gauge, ["cluster_queue"], Always:
        "Workloads that hold quota, admitted ones included";
    LocalQueueReservingActiveWorkloads "kueue_local_queue_reserving_active_workloads", Gauge, ["name", "namespace"], LocalQueues:
        "Workloads of the local queue that hold quota, admitted ones included";
    AdmittedActiveWorkloads "kueue_admitted_active_workloads", Gauge, ["cluster_queue"], Always:
        "Admitted workloads that have not finished";
    LocalQueueAdmittedActiveWorkloads "kueue_local_queue_admitted_active_workloads", Gauge, ["name", "namespace"], LocalQueues:
        "Admitted workloads of the local queue that have not finished";
    UnadmittedWorkloads "kueue_unadmitted_workloads", Gauge, ["cluster_queue", "reason", "underlying_cause"], Unadmitted:
        "Workloads that are not admitted, by why";
    LocalQueueUnadmittedWorkloads "kueue_local_queue_unadmitted_workloads", Gauge,
        ["name", "namespace", "cluster_queue", "reason", "underlying_cause"], UnadmittedOfLocalQueues:
        "Workloads of the local queue that are not admitted, by why";
    ClusterQueueStatus "kueue_cluster_queue_status", Gauge, ["cluster_queue", "status"], Always:
        "1 for the state that the cluster queue is in, 0 for the others";
    LocalQueueStatus "kueue_local_queue_status", Gauge, ["name", "namespace", "active"], LocalQueues:
        "1 for the truth value of condition Active, 0 for the others";
    ClusterQueueResourceReservation "kueue_cluster_queue_resource_reservation", Gauge,
        ["cohort", "cluster_queue", "flavor", "resource"], Resources:
        "Quota that is reserved";
    ClusterQueueResourceUsage "kueue_cluster_queue_resource_usage", Gauge,
        ["cohort", "cluster_queue", "flavor", "resource"], Resources:
        "Quota that admitted workloads hold";
    ClusterQueueNominalQuota "kueue_cluster_queue_nominal_quota", Gauge,
        ["cohort", "cluster_queue", "flavor", "resource"], Resources:
        "Quota of its own";
    ClusterQueueBorrowingLimit "kueue_cluster_queue_borrowing_limit", Gauge,
        ["cohort", "cluster_queue", "flavor", "resource"], Resources:
        "How much may be borrowed; infinite without limit";
    ClusterQueueLendingLimit "kueue_cluster_queue_lending_limit", Gauge,
        ["cohort", "cluster_queue", "flavor", "resource"], Resources:
        "How much may be lent; infinite without limit";
    ClusterQueueResourcePending "kueue_cluster_queue_resource_pending", Gauge, ["cluster_queue", "resource"], Resources:
        "What the pending workloads ask for";
    ClusterQueueWeightedShare "kueue_cluster_queue_weighted_share", Gauge, ["cluster_queue", "cohort"], ResourcesAndShares:
        "Largest ratio of borrowed to lendable over the resources, by weight, in thousandths";
    LocalQueueResourceReservation "kueue_local_queue_resource_reservation", Gauge,
        ["name", "namespace", "flavor", "resource"], LocalQueues:
        "Quota that is reserved through the local queue";
    LocalQueueResourceUsage "kueue_local_queue_resource_usage", Gauge,
        ["name", "namespace", "flavor", "resource"], LocalQueues:
        "Quota that admitted workloads of the local queue hold";
    LocalQueueAdmissionFairSharingUsage "kueue_local_queue_admission_fair_sharing_usage", Gauge,
        ["name", "namespace", "cluster_queue"], UsageOfLocalQueues:
        "Past usage by weight, which orders the workloads of the cluster queue";
    CohortWeightedShare "kueue_cohort_weighted_share", Gauge, ["cohort"], Shares:
        "Largest ratio of borrowed to lendable over the resources, by weight, in thousandths";
    CohortSubtreeQuota "kueue_cohort_subtree_quota", Gauge, ["cohort", "flavor", "resource"], Cohorts:
        "Quota of the cohort and of what is below it";
    CohortSubtreeResourceReservations "kueue_cohort_subtree_resource_reservations", Gauge,
        ["cohort", "flavor", "resource"], Cohorts:
        "Quota that is reserved below the cohort";
    CohortSubtreeAdmittedWorkloads "kueue_cohort_subtree_admitted_workloads_total", Counter,
        ["cohort", "priority_class"], Cohorts:
        "Admissions below the cohort";
    CohortSubtreeAdmittedActiveWorkloads "kueue_cohort_subtree_admitted_active_workloads", Gauge, ["cohort"], Cohorts:
        "Admitted workloads below the cohort that have not finished";
    CohortInfo "kueue_cohort_info", Gauge, ["cohort", "parent_cohort", "root_cohort"], Cohorts:
        "Always 1; the labels tell where the cohort is";
    ClusterQueueInfo "kueue_cluster_queue_info", Gauge, ["cluster_queue", "parent_cohort", "root_cohort"], Cohorts:
        "Always 1; the labels tell where the cluster queue is";
}
