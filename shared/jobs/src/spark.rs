//! `SparkApplication`: a driver and its executors. *Source*: `spec/jobs.md 9.10`.
//!
//! It holds no pod templates: the operator makes its pods from fields. So the templates are made here in the same way, as far as they cost
//! quota or decide where a pod may run. The changes of a start are written back into those fields.

mod needs;
mod pods;

use roadstead_kinds::rows;
use serde_json::Value;

use crate::by_path::places::{At, PodSets, Pods};
use crate::by_path::signs::{Ends, Sign, Words};
use crate::by_path::{ByPath, Path, Rules, queued};
use crate::json;
use crate::kind::Member;
use crate::problem::Problem;

const STATE: Path = &["status", "applicationState", "state"];
const SUSPENDED: &str = "SUSPENDED";
/// The setting with which Spark itself changes the number of executors.
const DYNAMIC: &str = "spark.dynamicAllocation.enabled";

/// The pod set of a role; [`pods::filled`] adds its template and its number.
const fn role(field: Path, name: &'static str, number: Pods) -> PodSets {
    PodSets {
        at: At::One { field, name },
        template: &[pods::TEMPLATE],
        pods: number,
    }
}

/// The kind `sparkoperator.k8s.io/v1beta2 SparkApplication`.
///
/// Unlike the anchor: it is sent to workers, and may name the Workload that describes it. It has no `managedBy`, so it stays suspended on a
/// manager.
pub static SPARK_APPLICATION: ByPath = ByPath {
    row: &rows::SPARK_APPLICATION,
    suspend: &["spec", "suspend"],
    pod_sets: &[
        role(&["spec", pods::DRIVER], pods::DRIVER, Pods::One),
        role(
            &["spec", pods::EXECUTOR],
            pods::EXECUTOR,
            Pods::Replicas(&[pods::NUMBER]),
        ),
    ],
    // Unlike the anchor, which looks for RUNNING only: the application also has pods before and after that.
    active: Sign::Other {
        field: STATE,
        than: &[SUSPENDED, "COMPLETED", "FAILED", "SUBMISSION_FAILED"],
        without: SUSPENDED,
    },
    ready: Sign::Words {
        field: STATE,
        is: "RUNNING",
        of: &["status", "executorState"],
        are: &["RUNNING", "COMPLETED"],
    },
    ends: Some(Ends::Words(Words {
        field: STATE,
        succeeded: "COMPLETED",
        failed: &["FAILED", "SUBMISSION_FAILED"],
        result: None,
        message: &["status", "applicationState", "errorMessage"],
    })),
    spare: None,
    time_to_live: Some(&["spec", "timeToLiveSeconds"]),
    priority_class: Some(&["spec", "batchSchedulerOptions", "priorityClassName"]),
    followed: &[],
    rules: Rules {
        filled: pods::filled,
        emptied: pods::emptied,
        needs: needs::of,
        wants: needs::wanted,
        create: |app| queued::create(app, problems),
        update: |old, new| queued::update(old, new, problems),
        ..Rules::NONE
    },
};

/// The problems of settings that make pods without quota.
fn problems(app: Member<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mode = json::text(app.data, &["spec", "mode"]).unwrap_or("cluster");
    if mode != "cluster" {
        let text = "only Cluster mode is supported for a kueue managed job";
        problems.push(Problem::invalid("spec.mode", text).of(mode));
    }
    let text = "a kueue managed job cannot change the number of its executors: set it to false, and spec.executor.instances to \
                their number";
    if json::is_true(app.data, &["spec", "dynamicAllocation", "enabled"]) {
        problems.push(Problem::invalid("spec.dynamicAllocation.enabled", text).of("true"));
    }
    let conf = json::at(app.data, &["spec", "sparkConf", DYNAMIC]).and_then(Value::as_str);
    if conf == Some("true") {
        problems.push(Problem::invalid(format!("spec.sparkConf[{DYNAMIC}]"), text).of("true"));
    }
    problems
}

#[cfg(test)]
mod tests;
