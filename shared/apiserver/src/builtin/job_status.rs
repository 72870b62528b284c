//! What the status of a Job may become.

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::Cause;
use crate::json;
use crate::kinds::condition;

/// Complains about a status that no Job controller could have meant.
#[expect(clippy::too_many_lines, reason = "one rule after the other, each a few lines")]
pub(super) fn validate(job: &Value, old: &Value) -> Vec<Cause> {
    let (status, before) = (&job["status"], &old["status"]);
    let mut causes = Vec::new();
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        if let Some(n) = status[field].as_i64()
            && n < 0
        {
            let says = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("status.{field}"), &n.into(), says));
        }
    }
    let is = |object: &Value, name: &str| condition(object, name) == "True";
    let finished = is(job, "Complete") || is(job, "Failed");
    let was_finished = is(old, "Complete") || is(old, "Failed");
    let conditions = &status["conditions"];
    let mut refuse = |field: &str, value: &Value, says: &str| {
        causes.push(Cause::invalid(format!("status.{field}"), value, says));
    };
    let time =
        |status: &Value, field: &str| -> Option<Timestamp> { json::text(status, &[field]).parse().ok() };
    let (start, end) = (time(status, "startTime"), time(status, "completionTime"));
    if finished && !was_finished {
        if status["active"].as_i64().unwrap_or(0) > 0 {
            refuse(
                "active",
                &status["active"],
                "active>0 is invalid for finished job",
            );
        }
        if status["terminating"].as_i64().unwrap_or(0) > 0 {
            refuse(
                "terminating",
                &status["terminating"],
                "terminating>0 is invalid for finished job",
            );
        }
        if start.is_none() {
            causes.push(Cause::required(
                "status.startTime",
                "startTime is required for finished job",
            ));
        }
    }
    let mut refuse = |field: &str, value: &Value, says: &str| {
        causes.push(Cause::invalid(format!("status.{field}"), value, says));
    };
    if is(job, "Complete") && !is(old, "Complete") {
        if !is(job, "SuccessCriteriaMet") {
            let says = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            refuse("conditions", conditions, says);
        }
        if end.is_none() {
            causes.push(Cause::required(
                "status.completionTime",
                "completionTime is required for Complete jobs",
            ));
        }
    }
    let mut refuse = |field: &str, value: &Value, says: &str| {
        causes.push(Cause::invalid(format!("status.{field}"), value, says));
    };
    if is(job, "Failed") && !is(old, "Failed") && !is(job, "FailureTarget") {
        let says = "cannot set Failed=True condition without the FailureTarget=true condition";
        refuse("conditions", conditions, says);
    }
    if is(job, "Complete") && is(job, "Failed") {
        refuse(
            "conditions",
            conditions,
            "cannot set Complete=True and Failed=true conditions",
        );
    }
    if is(job, "Complete") && is(job, "FailureTarget") {
        refuse(
            "conditions",
            conditions,
            "cannot set Complete=True and FailureTarget=true conditions",
        );
    }
    if is(job, "SuccessCriteriaMet") && (is(job, "Failed") || is(job, "FailureTarget")) && !was_finished {
        refuse(
            "conditions",
            conditions,
            "cannot set Failed=True and SuccessCriteriaMet=true conditions",
        );
    }
    for kept in ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"] {
        if is(old, kept) && !is(job, kept) {
            let says = format!("cannot disable the terminal {kept}=True condition");
            refuse("conditions", conditions, &says);
        }
    }
    if end.is_some() && !is(job, "Complete") {
        refuse(
            "completionTime",
            &status["completionTime"],
            "cannot set completionTime when there is no Complete=True condition",
        );
    }
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        refuse(
            "completionTime",
            &status["completionTime"],
            "completionTime cannot be set before startTime",
        );
    }
    if time(before, "completionTime").is_some() && end != time(before, "completionTime") {
        refuse("completionTime", &status["completionTime"], "field is immutable");
    }
    let suspended = job["spec"]["suspend"] == true;
    if let Some(was) = time(before, "startTime")
        && start != Some(was)
        && !suspended
    {
        let says = "field is immutable for unsuspended job once set";
        refuse("startTime", &status["startTime"], says);
    }
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let mut refuse = |field: &str, value: &Value, says: &str| {
        causes.push(Cause::invalid(format!("status.{field}"), value, says));
    };
    if count("ready") > count("active").max(0) {
        refuse(
            "ready",
            &status["ready"],
            "cannot set more ready pods than active",
        );
    }
    for field in ["succeeded", "failed"] {
        if count(field) < before[field].as_i64().unwrap_or(0) {
            let says = format!("cannot decrease the {field} counter");
            refuse(field, &status[field], &says);
        }
    }
    causes
}
