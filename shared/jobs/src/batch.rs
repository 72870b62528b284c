//! `batch/v1 Job`. *Source*: `spec/jobs.md 9.1, 10.3`, `spec/multikueue.md 5, 5.1`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::constants::{annotations, labels, names};
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use crate::json;
use crate::kind::{Error, JobKind, JobPodSet, Mirror, StopStep, Target};
use crate::labels::annotation;
use crate::podset::{InjectError, PodSetInfo, inject, restore, same_number};
use crate::problem::Problem;
use crate::remote::{RemoteIdentity, skeleton};

mod indexes;
mod shown;

/// The kind `batch/v1 Job`.
#[derive(Clone, Copy, Debug)]
pub struct BatchJob;

/// Labels the API server puts on the template, which are part of the selector.
const CONTROLLER_LABELS: [&str; 4] = [
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
];
/// Those of them that say nothing about the pods. Wire: `batch.kubernetes.io/job-name` stays.
const NOT_IN_POD_SETS: [&str; 3] = ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid"];
const TEMPLATE: [&str; 2] = ["spec", "template"];
const SELECTOR: [&str; 2] = ["spec", "selector"];
const STOPPING: [&str; 3] = ["metadata", "annotations", annotations::STOPPING];

/// Whether annotation `kueue.x-k8s.io/stopping` says that a stop is under way.
fn says_stop(stopping: Option<&str>) -> bool {
    stopping == Some(labels::TRUE)
}

impl JobKind for BatchJob {
    fn kind(&self) -> &'static Kind {
        &rows::JOB
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<JobPodSet>, Error> {
        let malformed = |field, found: Option<&Value>, expected| Error::Malformed {
            field,
            found: found.map_or_else(|| "missing".to_owned(), type_of),
            expected,
        };
        let count = count(job);
        let count = u32::try_from(count).map_err(|_negative| Error::Malformed {
            field: "spec.parallelism",
            found: count.to_string(),
            expected: "a number from 0 to 2147483647",
        })?;
        let template = json::at(job, &TEMPLATE).filter(|template| template.is_object());
        let template =
            template.ok_or_else(|| malformed("spec.template", json::at(job, &TEMPLATE), "a pod template"))?;
        let mut template = template.clone();
        for label in NOT_IN_POD_SETS {
            json::remove(&mut template, &["metadata", "labels", label]);
        }
        Ok(vec![JobPodSet {
            name: names::MAIN_POD_SET.to_owned(),
            count,
            min_count: min_parallelism(job).and_then(|min| u32::try_from(min).ok()),
            template,
        }])
    }

    fn template_paths(&self, _job: &Value) -> Vec<String> {
        vec![TEMPLATE.join(".")]
    }

    fn is_suspended(&self, job: &Value) -> bool {
        spec_suspend(job) && !says_stop(annotation(job, annotations::STOPPING))
    }

    fn is_stopping(&self, said: &BTreeMap<String, String>) -> bool {
        says_stop(said.get(annotations::STOPPING).map(String::as_str))
    }

    fn suspend(&self, job: &mut Value) {
        json::set(job, &["spec", "suspend"], json!(true));
    }

    fn finished(&self, job: &Value) -> Option<Outcome> {
        let holds = |kind: &str| condition(job, kind).filter(|c| json::text(c, &["status"]) == Some("True"));
        let (success, condition) = match (holds("Failed"), holds("Complete")) {
            (Some(failed), _) => (false, failed),
            (None, Some(complete)) => (true, complete),
            (None, None) => return None,
        };
        let message = json::text(condition, &["message"]).unwrap_or_default().to_owned();
        Some(Outcome { success, message })
    }

    fn is_active(&self, job: &Value) -> bool {
        status_count(job, "active") != 0
    }

    fn may_have_pods(&self, job: &Value) -> bool {
        self.is_active(job) || status_count(job, "terminating") != 0
    }

    fn pods_ready(&self, job: &Value) -> bool {
        let uncounted = json::list(job, &["status", "uncountedTerminatedPods", "succeeded"]).len();
        let done = status_count(job, "succeeded")
            .saturating_add(status_count(job, "ready"))
            .saturating_add(i64::try_from(uncounted).unwrap_or(i64::MAX));
        done >= count(job)
    }

    fn reclaimable(&self, job: &Value) -> BTreeMap<PodSetName, u32> {
        let parallelism = parallelism(job);
        let completions = json::int(job, &["spec", "completions"]).unwrap_or(parallelism);
        let terminal = if is_indexed(job) {
            let texts =
                ["completedIndexes", "failedIndexes"].map(|field| json::text(job, &["status", field]));
            indexes::count_below(texts.into_iter().flatten(), completions)
        } else {
            status_count(job, "succeeded")
        };
        if parallelism <= 1 || terminal <= 0 {
            return BTreeMap::new();
        }
        let remaining = completions.saturating_sub(terminal);
        let spare = u32::try_from(parallelism.saturating_sub(remaining)).unwrap_or(0);
        let main = PodSetName::from(names::MAIN_POD_SET);
        (spare > 0).then_some((main, spare)).into_iter().collect()
    }

    fn start_patch(&self, job: &Value, infos: &[PodSetInfo]) -> Result<Value, InjectError> {
        same_number(1, infos.len())?;
        let mut after = job.clone();
        json::set(&mut after, &["spec", "suspend"], json!(false));
        for info in infos {
            if min_parallelism(job).is_some() {
                set_parallelism(&mut after, info.count);
            }
            let mut template = json::at(job, &TEMPLATE).cloned().unwrap_or_default();
            inject(&mut template, info)?;
            json::set(&mut after, &TEMPLATE, template);
        }
        Ok(json::difference(job, &after).unwrap_or_else(|| json!({})))
    }

    fn stop_steps(&self, job: &Value, original: &[JobPodSet]) -> Vec<StopStep> {
        if self.is_suspended(job) {
            return Vec::new();
        }
        let mut held = job.clone();
        json::set(&mut held, &["spec", "suspend"], json!(true));
        let mut restored = held.clone();
        if let [main] = original {
            let mut template = json::at(job, &TEMPLATE).cloned().unwrap_or_default();
            restore(&mut template, &main.template, &CONTROLLER_LABELS);
            json::set(&mut restored, &TEMPLATE, template);
            if min_parallelism(job).is_some() {
                set_parallelism(&mut restored, main.count);
            }
        }
        let started = json::at(job, &["status", "startTime"]).is_some();
        // Why: only templates of suspended jobs that look as if they had never started may be changed. Without a change
        // one write is enough, and there is no stop under way to be marked.
        if restored != held || started {
            json::set(&mut held, &STOPPING, json!(labels::TRUE));
            json::set(&mut restored, &STOPPING, json!(labels::TRUE));
        }
        // Only this key, so that annotations others add meanwhile stay.
        json::remove(&mut restored, &STOPPING);
        let step = |target, before: &Value, after: &Value| {
            json::difference(before, after).map(|patch| StopStep { target, patch })
        };
        let cleared = started.then(|| StopStep {
            target: Target::Status,
            patch: json!({"status": {"startTime": null}}),
        });
        // Why: the API server refuses a change of the template as long as the status counts active pods. Until then the job
        // stays marked as stopping, and the change of its status is what brings it back here.
        let restore = if status_count(job, "active") == 0 {
            step(Target::Main, &held, &restored)
        } else {
            None
        };
        [step(Target::Main, job, &held), cleared, restore]
            .into_iter()
            .flatten()
            .collect()
    }

    fn remote_object(&self, local: &Value, identity: &RemoteIdentity<'_>, original: &[JobPodSet]) -> Value {
        let mut copy = skeleton(self, local, identity);
        if let [main] = original {
            let mut template = json::at(local, &TEMPLATE).cloned().unwrap_or_default();
            restore(&mut template, &main.template, &[]);
            json::set(&mut copy, &TEMPLATE, template);
            // Why: what was cut down here says nothing about how much room there is.
            if min_parallelism(local).is_some() {
                set_parallelism(&mut copy, main.count);
            }
        }
        // Why: with `manualSelector` the selector and its labels are the user's own.
        if !json::is_true(local, &["spec", "manualSelector"]) {
            json::remove(&mut copy, &["spec", "selector"]);
            for label in CONTROLLER_LABELS {
                json::remove(&mut copy, &["spec", "template", "metadata", "labels", label]);
            }
        }
        json::remove(&mut copy, &STOPPING);
        // Unlike the anchor: always held back at first, even when the local job has been let go already; the worker starts
        // it. And it never removes itself before its end was seen here (later versions of the reference do that too).
        self.suspend(&mut copy);
        self.outlast_its_end(&mut copy);
        copy
    }

    fn outlast_its_end(&self, job: &mut Value) {
        json::remove(job, &["spec", "ttlSecondsAfterFinished"]);
    }

    fn forget_details(&self, copy: &mut Value) {
        for detail in [TEMPLATE, SELECTOR] {
            json::remove(copy, &detail);
        }
    }

    fn is_killed(&self, job: &Value) -> bool {
        let time = |at: &Value, path: &[&str]| json::text(at, path)?.parse::<Timestamp>().ok();
        let holds = |kind: &str| condition(job, kind).filter(|c| json::text(c, &["status"]) == Some("True"));
        // Why the verdict first: it may be older than the deletion, and `Failed` only waits for the last pod.
        let failed = holds("FailureTarget").or_else(|| holds("Failed"));
        let deleted = time(job, &["metadata", "deletionTimestamp"]);
        let since = failed.and_then(|failed| time(failed, &["lastTransitionTime"]));
        deleted.is_some() && since >= deleted
    }

    fn mirror(&self, local: &Value, remote: &Value, now: Timestamp) -> Mirror {
        let (local_held, remote_held) = (spec_suspend(local), spec_suspend(remote));
        let remote_ended = self.finished(remote).is_some() && !self.is_killed(remote);
        if local_held && !remote_held && !remote_ended {
            return Mirror::Deferred(mark_suspended(local, now));
        }
        let after = shown::shown(local, remote, remote_ended);
        Mirror::from(json::difference(&status_of(local), &status_of(&after)))
    }

    fn without_pods(&self, local: &Value) -> Option<Value> {
        let mut after = local.clone();
        clear_pods(&mut after);
        json::difference(&status_of(local), &status_of(&after))
    }

    fn conclusion(&self, local: &Value, outcome: &Outcome, now: Timestamp) -> Option<Value> {
        if self.finished(local).is_some() {
            return None;
        }
        // Why: the worker's clock may be ahead, and the API server refuses an end before a beginning.
        let start =
            json::text(local, &["status", "startTime"]).and_then(|start| start.parse::<Timestamp>().ok());
        let now = start.map_or(now, |start| start.max(now));
        let at = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let mut after = local.clone();
        clear_pods(&mut after);
        // Why: the API server refuses an end without a beginning, and an end with pods that are not counted.
        json::remove(&mut after, &["status", "uncountedTerminatedPods"]);
        if json::at(local, &["status", "startTime"]).is_none() {
            json::set(&mut after, &["status", "startTime"], at.clone());
        }
        let (first, last) = if outcome.success {
            json::set(&mut after, &["status", "completionTime"], at.clone());
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        };
        let mut conditions = json::list(local, &["status", "conditions"]).to_vec();
        for kind in [first, last] {
            conditions.retain(|c| json::text(c, &["type"]) != Some(kind));
            conditions.push(json!({
                "type": kind,
                "status": "True",
                "reason": "WorkloadFinished",
                "message": outcome.message,
                "lastProbeTime": at,
                "lastTransitionTime": at,
            }));
        }
        json::set(&mut after, &["status", "conditions"], Value::Array(conditions));
        json::difference(&status_of(local), &status_of(&after))
    }

    fn own_problems(&self, job: &Value) -> Vec<Problem> {
        partial_admission_problems(job)
    }

    fn own_update_problems(&self, old: &Value, new: &Value) -> Vec<Problem> {
        // Why not always: a job that was started with fewer pods may run with as few as it allows.
        let keys = [
            annotations::JOB_MIN_PARALLELISM,
            annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM,
        ];
        let edited = keys
            .iter()
            .any(|key| annotation(old, key) != annotation(new, key));
        let mut problems = if edited || (self.is_suspended(old) && self.is_suspended(new)) {
            partial_admission_problems(new)
        } else {
            Vec::new()
        };
        // Why both: a start lowers it while it lets the job run, and a stop that is under way brings it back.
        let runs = !spec_suspend(old) && !spec_suspend(new);
        if runs && min_parallelism(new).is_some() && parallelism(old) != parallelism(new) {
            let text = "cannot change when partial admission is enabled and the job is not suspended";
            problems.push(Problem::forbidden("spec.parallelism", text));
        }
        problems
    }
}

/// A job's status alone, as a patch has it.
fn status_of(job: &Value) -> Value {
    json!({"status": json::at(job, &["status"]).cloned().unwrap_or_else(|| json!({}))})
}

/// Lets a job count no pods that are not over.
fn clear_pods(job: &mut Value) {
    for field in ["active", "ready", "terminating"] {
        if status_count(job, field) != 0 {
            json::set(job, &["status", field], json!(0));
        }
    }
}

fn spec_suspend(job: &Value) -> bool {
    json::is_true(job, &["spec", "suspend"])
}

fn parallelism(job: &Value) -> i64 {
    json::int(job, &["spec", "parallelism"]).unwrap_or(1)
}

/// Pods that run at the same time.
fn count(job: &Value) -> i64 {
    let parallelism = parallelism(job);
    json::int(job, &["spec", "completions"]).map_or(parallelism, |completions| completions.min(parallelism))
}

fn status_count(job: &Value, field: &str) -> i64 {
    json::int(job, &["status", field]).unwrap_or(0)
}

fn is_indexed(job: &Value) -> bool {
    json::text(job, &["spec", "completionMode"]) == Some("Indexed")
}

fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = json::list(job, &["status", "conditions"]);
    conditions.iter().find(|c| json::text(c, &["type"]) == Some(kind))
}

/// With how few pods the job can start, if it says so. Not compared with the present parallelism, which a start may lower.
fn min_parallelism(job: &Value) -> Option<i64> {
    let min = annotation(job, annotations::JOB_MIN_PARALLELISM)?.parse::<i64>();
    min.ok().filter(|min| *min > 0)
}

fn set_parallelism(job: &mut Value, count: u32) {
    let together = annotation(job, annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM) == Some(labels::TRUE);
    json::set(job, &["spec", "parallelism"], json!(count));
    if together {
        json::set(job, &["spec", "completions"], json!(count));
    }
}

/// The patch that makes the local job say that it is suspended, which Kubernetes 1.36 wants of a held job with pods
/// elsewhere; `None` when it does already.
fn mark_suspended(local: &Value, now: Timestamp) -> Option<Value> {
    let said = condition(local, "Suspended").and_then(|c| json::text(c, &["status"]));
    if said == Some("True") {
        return None;
    }
    let now = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mark = json!({
        "type": "Suspended",
        "status": "True",
        "reason": "MultiKueueAdapter",
        "message": "Set by MultiKueue adapter",
        "lastProbeTime": now,
        "lastTransitionTime": now,
    });
    let mut conditions = json::list(local, &["status", "conditions"]).to_vec();
    conditions.retain(|c| json::text(c, &["type"]) != Some("Suspended"));
    conditions.push(mark);
    Some(json!({"status": {"conditions": conditions}}))
}

/// *Source*: `spec/jobs.md 9.1`.
fn partial_admission_problems(job: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let count = count(job);
    if let Some(text) = annotation(job, annotations::JOB_MIN_PARALLELISM) {
        let field = format!("metadata.annotations[{}]", annotations::JOB_MIN_PARALLELISM);
        match text.parse::<i64>() {
            Err(_) => problems.push(Problem::invalid(field, "must be an integer").of(text)),
            Ok(min) if min <= 0 || min >= count => {
                let limit = count.saturating_sub(1);
                problems.push(Problem::invalid(field, format!("should be between 0 and {limit}")).of(text));
            }
            Ok(_) => {}
        }
    }
    if let Some(text) = annotation(job, annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM) {
        let field = format!(
            "metadata.annotations[{}]",
            annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM
        );
        match text {
            "true" if !is_indexed(job) => {
                problems.push(Problem::invalid(
                    field,
                    "should not be enabled for NonIndexed jobs",
                ));
            }
            "true" => {
                let completions = json::int(job, &["spec", "completions"]);
                if completions.is_some_and(|completions| completions != parallelism(job)) {
                    problems.push(Problem::invalid(
                        "spec.completions",
                        "should be equal to spec.parallelism",
                    ));
                }
            }
            "false" => {}
            _ => problems.push(Problem::invalid(field, "must be true or false").of(text)),
        }
    }
    problems
}

fn type_of(value: &Value) -> String {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
