//! The part of a copy's status that the local job shows: all that an API server accepts.
//!
//! Why not simply all: a job may run more than once, each time as a new copy, and its status on the manager outlives these copies.
//! Kubernetes refuses a status that takes back what the previous one said. One such field makes it refuse the whole status, and the job
//! would never end here. *Source*: `validateJobStatusUpdate` of Kubernetes 1.32 and later, `spec/multikueue.md 5.1`.
//!
//! Unlike the anchor: there a job that has failed pods and then runs on another worker keeps its old status for ever.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{condition, is_indexed, spec_suspend, status_count};
use crate::json;

/// The verdicts that come shortly before the end, while pods still run; and the end of a copy that was killed.
const VERDICTS: [&str; 3] = ["FailureTarget", "SuccessCriteriaMet", "Failed"];

/// The local job with the status to show. `remote_ended` says that the copy has ended by itself.
pub(super) fn shown(local: &Value, remote: &Value, remote_ended: bool) -> Value {
    let mut after = local.clone();
    let status = json::at(remote, &["status"]).cloned();
    json::set(&mut after, &["status"], status.unwrap_or_else(|| json!({})));
    if !remote_ended {
        hold_verdicts_back(&mut after);
    }
    keep_counters(local, &mut after);
    keep_start(local, &mut after);
    after
}

/// Leaves out verdicts. Why: a verdict cannot be taken back, but this run may still be lost, and the next run may end differently.
fn hold_verdicts_back(after: &mut Value) {
    let conditions = json::list(after, &["status", "conditions"]);
    let is_verdict =
        |condition: &Value| json::text(condition, &["type"]).is_some_and(|kind| VERDICTS.contains(&kind));
    if conditions.iter().any(is_verdict) {
        let kept: Vec<Value> = conditions.iter().filter(|c| !is_verdict(c)).cloned().collect();
        json::set(after, &["status", "conditions"], Value::Array(kept));
    }
}

/// Keeps counters from falling: pods that ended in an earlier run stay counted.
fn keep_counters(local: &Value, after: &mut Value) {
    let of_spec = |field| json::int(local, &["spec", field]);
    // Why `succeeded` may fall in an elastic job: such a job may be made smaller, and the API server accepts the lower counter.
    let is_elastic = is_indexed(local) && of_spec("completions") == of_spec("parallelism");
    for field in ["failed", "succeeded"] {
        let had = status_count(local, field);
        if status_count(after, field) < had && !(is_elastic && field == "succeeded") {
            json::set(after, &["status", field], json!(had));
        }
    }
}

/// Keeps the start time of a running job, unless the status also says that the job goes on after a pause. The end is never before the
/// start, even if the clocks of two workers differ.
fn keep_start(local: &Value, after: &mut Value) {
    let is_paused = |job: &Value, truth| {
        condition(job, "Suspended").and_then(|c| json::text(c, &["status"])) == Some(truth)
    };
    let goes_on = is_paused(local, "True") && is_paused(after, "False");
    let start = json::at(local, &["status", "startTime"]).cloned();
    if let Some(start) = start
        && !spec_suspend(local)
        && !goes_on
    {
        json::set(after, &["status", "startTime"], start);
    }
    let time = |job: &Value, field| json::text(job, &["status", field])?.parse::<Timestamp>().ok();
    if let (Some(start), Some(end)) = (time(after, "startTime"), time(after, "completionTime"))
        && end < start
    {
        let start = json::at(after, &["status", "startTime"]).cloned();
        json::set(after, &["status", "completionTime"], json!(start));
    }
}
