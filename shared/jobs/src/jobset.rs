//! `JobSet`. *Source*: `spec/jobs.md 9.2`, `spec/multikueue.md 5`.

use roadstead_kinds::rows;

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::{Conditions, Ends, Sign, Spare};
use crate::by_path::{ByPath, Path, Rules};

/// The counters of each replicated job. They count its Jobs, not their pods.
const STATUSES: Path = &["status", "replicatedJobsStatus"];

/// The kind `jobset.x-k8s.io/v1alpha2 JobSet`.
pub static JOBSET: ByPath = ByPath {
    row: &rows::JOB_SET,
    suspend: &["spec", "suspend"],
    pod_sets: &[PodSets {
        at: At::Each {
            list: &["spec", "replicatedJobs"],
            name: "name",
        },
        template: &["template", "spec", "template"],
        pods: Pods::Jobs {
            replicas: &["replicas"],
            spec: &["template", "spec"],
        },
    }],
    active: Sign::Any {
        of: STATUSES,
        count: "active",
    },
    ready: Sign::All {
        of: STATUSES,
        counts: &["ready", "succeeded"],
    },
    ends: Some(Ends::Conditions(Conditions {
        succeeded: "Completed",
        failed: "Failed",
        repeated: Some(&["status", "terminalState"]),
    })),
    spare: Some(Spare {
        of: STATUSES,
        name: "name",
        succeeded: "succeeded",
    }),
    time_to_live: Some(&["spec", "ttlSecondsAfterFinished"]),
    priority_class: None,
    followed: &[],
    rules: Rules::NONE,
};

#[cfg(test)]
mod tests;
