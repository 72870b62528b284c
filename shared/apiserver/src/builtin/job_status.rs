//! Rules for changes of a Job's status. A rule is checked only if one of its fields changes, so a status that was already
//! wrong can still be written.

use jiff::Timestamp;
use serde_json::Value;

use crate::failure::Cause;
use crate::json;
use crate::kinds::condition;

#[expect(clippy::struct_excessive_bools, reason = "each is one condition")]
struct Seen<'a> {
    status: &'a Value,
    complete: bool,
    failed: bool,
    failing: bool,
    succeeding: bool,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl<'a> Seen<'a> {
    fn of(job: &'a Value) -> Self {
        let status = &job["status"];
        let is = |name: &str| condition(job, name) == "True";
        let time = |field: &str| json::text(status, &[field]).parse().ok();
        Self {
            status,
            complete: is("Complete"),
            failed: is("Failed"),
            failing: is("FailureTarget"),
            succeeding: is("SuccessCriteriaMet"),
            start: time("startTime"),
            end: time("completionTime"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }

    fn count(&self, field: &str) -> i64 {
        self.status[field].as_i64().unwrap_or(0)
    }
}

/// Complains about a status that contradicts itself or the one before.
pub(super) fn validate(job: &Value, old: &Value) -> Vec<Cause> {
    let (now, before) = (Seen::of(job), Seen::of(old));
    let mut causes = Vec::new();
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        if now.count(field) < 0 {
            let says = "must be greater than or equal to 0";
            causes.push(invalid(&now, field, says));
        }
    }
    conditions(job, old, &now, &before, &mut causes);
    times(job, old, &now, &before, &mut causes);
    counters(job, &now, &before, &mut causes);
    causes
}

fn invalid(now: &Seen<'_>, field: &str, says: &str) -> Cause {
    Cause::invalid(format!("status.{field}"), &now.status[field], says)
}

fn conditions(job: &Value, old: &Value, now: &Seen<'_>, before: &Seen<'_>, causes: &mut Vec<Cause>) {
    let complete = now.complete != before.complete;
    let failed = now.failed != before.failed;
    let failing = now.failing != before.failing;
    let succeeding = now.succeeding != before.succeeding;
    for (wrong, says) in [
        (
            now.complete && now.failed && (complete || failed),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            now.complete && now.failing && (complete || failing),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            now.failed && !now.failing && failed,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            now.complete && !now.succeeding && (complete || succeeding),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            now.succeeding && now.failed,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            now.succeeding && now.failing,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
    ] {
        if wrong {
            causes.push(invalid(now, "conditions", says));
        }
    }
    for kept in ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"] {
        if condition(old, kept) == "True" && condition(job, kept) != "True" {
            let says = format!("cannot disable the terminal {kept}=True condition");
            causes.push(invalid(now, "conditions", &says));
        }
    }
}

fn times(job: &Value, old: &Value, now: &Seen<'_>, before: &Seen<'_>, causes: &mut Vec<Cause>) {
    let finished = now.finished() != before.finished();
    let complete = now.complete != before.complete;
    let (start, end) = (now.start != before.start, now.end != before.end);
    let nothing_to_do = job["spec"]["suspend"] == true && job["spec"]["completions"] == 0;
    if now.finished() && now.start.is_none() && (finished || start) && !nothing_to_do {
        let says = "startTime is required for finished job";
        causes.push(Cause::required("status.startTime", says));
    }
    if now.complete && now.end.is_none() && (complete || end) {
        let says = "completionTime is required for Complete jobs";
        causes.push(Cause::required("status.completionTime", says));
    }
    if now.end.is_some() && !now.complete && (complete || end) {
        let says = "cannot set completionTime when there is no Complete=True condition";
        causes.push(invalid(now, "completionTime", says));
    }
    if let (Some(began), Some(ended)) = (now.start, now.end)
        && began > ended
        && (start || end)
    {
        let says = "must be equal to or after `startTime`";
        causes.push(invalid(now, "completionTime", says));
    }
    if before.end.is_some() && end {
        causes.push(invalid(now, "completionTime", "field is immutable"));
    }
    let resuming = condition(old, "Suspended") == "True" && condition(job, "Suspended") == "False";
    if before.start.is_some() && start && job["spec"]["suspend"] != true && !resuming {
        let says = "field is immutable for unsuspended job once set";
        causes.push(invalid(now, "startTime", says));
    }
}

fn counters(job: &Value, now: &Seen<'_>, before: &Seen<'_>, causes: &mut Vec<Cause>) {
    let finished = now.finished() != before.finished();
    let changed = |field: &str| now.status[field] != before.status[field];
    for field in ["active", "terminating"] {
        if now.count(field) > 0 && now.finished() && (finished || changed(field)) {
            causes.push(invalid(
                now,
                field,
                &format!("{field}>0 is invalid for finished job"),
            ));
        }
    }
    if now.count("ready") > now.count("active") && (changed("ready") || changed("active")) {
        causes.push(invalid(now, "ready", "cannot set more ready pods than active"));
    }
    // Why: a job of equal parallelism and completions may be scaled down.
    let spec = &job["spec"];
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    for field in ["succeeded", "failed"] {
        let may = field == "succeeded" && elastic;
        if now.count(field) < before.count(field) && !may {
            causes.push(invalid(
                now,
                field,
                &format!("cannot decrease the {field} counter"),
            ));
        }
    }
}
