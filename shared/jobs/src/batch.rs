//! `batch/v1 Job`. *Source*: `spec/jobs.md 9.1, 10.3`, `spec/multikueue.md 5, 5.1`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, controllers, labels, names};
use roadstead_core::lifecycle::Outcome;
use roadstead_core::name::PodSetName;
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use crate::json;
use crate::kind::{
    Error, JobKind, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target, Why,
    Write,
};
use crate::labels::annotation;
use crate::podset::{InjectError, JobPodSet, PodSetInfo, inject, restore, same_number};
use crate::problem::Problem;
use crate::remote::skeleton;

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
/// Those labels that the pod sets of a Workload do not have. Wire: `batch.kubernetes.io/job-name` stays.
const NOT_IN_POD_SETS: [&str; 3] = ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid"];
const SUSPEND: [&str; 2] = ["spec", "suspend"];
const TEMPLATE: [&str; 2] = ["spec", "template"];
const SELECTOR: [&str; 2] = ["spec", "selector"];
const TTL: [&str; 2] = ["spec", "ttlSecondsAfterFinished"];
const STOPPING: [&str; 3] = ["metadata", "annotations", annotations::STOPPING];

fn is_suspended(job: Member<'_>) -> bool {
    spec_suspend(job.data) && !job.is_stopping()
}

impl JobKind for BatchJob {
    fn kind(&self) -> &'static Kind {
        &rows::JOB
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let job = members.first();
        let count = count(job.data);
        let count = u32::try_from(count).map_err(|_negative| Error::Malformed {
            field: "spec.parallelism".to_owned(),
            found: count.to_string(),
            expected: "a number from 0 to 2147483647",
        })?;
        let found = json::at(job.data, &TEMPLATE);
        let template = found.filter(|template| template.is_object());
        let template =
            template.ok_or_else(|| Error::malformed(TEMPLATE.join("."), found, "a pod template"))?;
        let mut template = template.clone();
        for label in NOT_IN_POD_SETS {
            json::remove(&mut template, &["metadata", "labels", label]);
        }
        Ok(vec![JobPodSet {
            name: names::MAIN_POD_SET.to_owned(),
            count,
            min_count: min_parallelism(job.meta).and_then(|min| u32::try_from(min).ok()),
            template,
        }])
    }

    fn look(&self, members: Members<'_>) -> Look {
        let job = members.first();
        Look {
            suspended: is_suspended(job),
            pods: pods(job.data),
            ready: pods_ready(job.data),
            ended: finished(job.data),
            killed: is_killed(job),
            reclaimable: reclaimable(job.data),
        }
    }

    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let job = members.first();
        same_number(1, infos.len())?;
        let mut after = job.data.clone();
        json::set(&mut after, &SUSPEND, json!(false));
        for info in infos {
            if min_parallelism(job.meta).is_some() {
                set_parallelism(job.meta, &mut after, info.count);
            }
            let mut template = json::at(job.data, &TEMPLATE).cloned().unwrap_or_default();
            inject(&mut template, info)?;
            json::set(&mut after, &TEMPLATE, template);
        }
        let patch = json::difference(job.data, &after);
        Ok(patch
            .map(|patch| job.patched(Target::Main, patch))
            .into_iter()
            .collect())
    }

    fn stop(&self, members: Members<'_>, original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        let job = members.first();
        if is_suspended(job) {
            return Vec::new();
        }
        let mut held = job.data.clone();
        json::set(&mut held, &SUSPEND, json!(true));
        let mut restored = held.clone();
        if let [main] = original {
            let mut template = json::at(job.data, &TEMPLATE).cloned().unwrap_or_default();
            restore(&mut template, &main.template, &CONTROLLER_LABELS);
            json::set(&mut restored, &TEMPLATE, template);
            if min_parallelism(job.meta).is_some() {
                set_parallelism(job.meta, &mut restored, main.count);
            }
        }
        let started = json::at(job.data, &["status", "startTime"]).is_some();
        // Why: the API server accepts a changed template only in a suspended job that looks as if it had never started. Without a change
        // one write is enough, and no stop needs to be marked.
        let takes_time = restored != held || started;
        let difference =
            |before: &Value, after: &Value| json::difference(before, after).unwrap_or_else(|| json!({}));
        // The patch changes only this key, so that annotations that other clients add meanwhile stay.
        let mut hold = difference(job.data, &held);
        if takes_time && !job.is_stopping() {
            json::set(&mut hold, &STOPPING, json!(labels::TRUE));
        }
        let mut restore = difference(&held, &restored);
        if takes_time || annotation(job.meta, annotations::STOPPING).is_some() {
            json::set(&mut restore, &STOPPING, Value::Null);
        }
        // Why: the API server refuses a change of the template as long as the status counts active pods. Until then the job stays marked as
        // stopping, and a change of its status triggers the next pass.
        let waits = pods(job.data) == Pods::Alive;
        let cleared = json!({"status": {"startTime": null}});
        [
            (Target::Main, Some(hold)),
            (Target::Status, started.then_some(cleared)),
            (Target::Main, (!waits).then_some(restore)),
        ]
        .into_iter()
        .filter_map(|(target, patch)| Some((target, patch.filter(|patch| *patch != json!({}))?)))
        .map(|(target, patch)| job.patched(target, patch))
        .collect()
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        original: &[JobPodSet],
    ) -> Vec<Value> {
        let local = members.first();
        let mut copy = skeleton(self, local, identity);
        if let [main] = original {
            let mut template = json::at(local.data, &TEMPLATE).cloned().unwrap_or_default();
            restore(&mut template, &main.template, &[]);
            json::set(&mut copy, &TEMPLATE, template);
            // Why: parallelism that was reduced on the manager says nothing about the room on the worker.
            if min_parallelism(local.meta).is_some() {
                set_parallelism(local.meta, &mut copy, main.count);
            }
        }
        // Why: with `manualSelector` the selector and its labels are the user's own.
        if !json::is_true(local.data, &["spec", "manualSelector"]) {
            json::remove(&mut copy, &SELECTOR);
            for label in CONTROLLER_LABELS {
                json::remove(&mut copy, &["spec", "template", "metadata", "labels", label]);
            }
        }
        json::remove(&mut copy, &STOPPING);
        // Unlike the anchor: a copy is always suspended at first, even when the local job runs already; the worker starts it. A copy never
        // removes itself before the manager has seen its end (later versions of the reference do the same).
        json::set(&mut copy, &SUSPEND, json!(true));
        json::remove(&mut copy, &TTL);
        vec![copy]
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        let job = local.first();
        let mut mirror = Mirror::default();
        let patch = match remote {
            Remote::Copies(copies) => {
                let copy = copies.first();
                let (local_held, remote_held) = (spec_suspend(job.data), spec_suspend(copy.data));
                let remote_ended = finished(copy.data).is_some() && !is_killed(copy);
                if local_held && !remote_held && !remote_ended {
                    mirror.is_deferred = true;
                    mark_suspended(job.data, now)
                } else {
                    let after = shown::shown(job.data, copy.data, remote_ended);
                    json::difference(&json::status_of(job.data), &json::status_of(&after))
                }
            }
            Remote::AtRest => without_pods(job.data),
            Remote::Ended(outcome) => conclusion(job.data, outcome, now),
        };
        mirror
            .writes
            .extend(patch.map(|patch| job.patched(Target::Status, patch)));
        mirror
    }

    // Why: `kubectl get jobs` shows a job without this condition as Running. The Job controller writes it, but not for a job that Roadstead
    // manages.
    fn show_wait(&self, local: Members<'_>, now: Timestamp) -> Option<Write> {
        let job = local.first();
        let is_ours = self.manager_of(job) == Some(controllers::MULTIKUEUE);
        let waits = is_ours && is_suspended(job) && finished(job.data).is_none();
        let patch = waits.then(|| mark_suspended(job.data, now)).flatten()?;
        Some(job.patched(Target::Status, patch))
    }

    fn suspend(&self, job: &mut MemberMut<'_>) {
        json::set(job.data, &SUSPEND, json!(true));
    }

    fn outlast_its_end(&self, job: &mut MemberMut<'_>) {
        json::remove(job.data, &TTL);
    }

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        for detail in [TEMPLATE, SELECTOR] {
            json::remove(copy.data, &detail);
        }
    }

    fn template_paths(&self, _members: Members<'_>) -> Vec<String> {
        vec![TEMPLATE.join(".")]
    }

    fn own_problems(&self, job: Member<'_>) -> Vec<Problem> {
        partial_admission_problems(job)
    }

    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
        // Why not always: a job that was started with fewer pods may run with as few as it allows.
        let keys = [
            annotations::JOB_MIN_PARALLELISM,
            annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM,
        ];
        let edited = keys
            .iter()
            .any(|key| annotation(old.meta, key) != annotation(new.meta, key));
        let mut problems = if edited || (is_suspended(old) && is_suspended(new)) {
            partial_admission_problems(new)
        } else {
            Vec::new()
        };
        // Why both must run: a start reduces the parallelism in the write that resumes the job, and a stop restores it in a suspended job.
        let runs = !spec_suspend(old.data) && !spec_suspend(new.data);
        if runs && min_parallelism(new.meta).is_some() && parallelism(old.data) != parallelism(new.data) {
            let text = "cannot change when partial admission is enabled and the job is not suspended";
            problems.push(Problem::forbidden("spec.parallelism", text));
        }
        problems
    }
}

fn pods(job: &Value) -> Pods {
    if status_count(job, "active") != 0 {
        Pods::Alive
    } else if status_count(job, "terminating") != 0 {
        Pods::Ending
    } else {
        Pods::None
    }
}

fn pods_ready(job: &Value) -> bool {
    let uncounted = json::list(job, &["status", "uncountedTerminatedPods", "succeeded"]).len();
    let done = status_count(job, "succeeded")
        .saturating_add(status_count(job, "ready"))
        .saturating_add(i64::try_from(uncounted).unwrap_or(i64::MAX));
    done >= count(job)
}

/// The condition of this type, if it is True.
fn holds<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    condition(job, kind).filter(|c| json::text(c, &["status"]) == Some("True"))
}

fn finished(job: &Value) -> Option<Outcome> {
    let (success, condition) = match (holds(job, "Failed"), holds(job, "Complete")) {
        (Some(failed), _) => (false, failed),
        (None, Some(complete)) => (true, complete),
        (None, None) => return None,
    };
    let message = json::text(condition, &["message"]).unwrap_or_default().to_owned();
    Some(Outcome { success, message })
}

fn is_killed(job: Member<'_>) -> bool {
    let Some(deleted) = &job.meta.deletion_timestamp else {
        return false;
    };
    // Why `FailureTarget` first: it may be older than the deletion, and `Failed` only waits for the last pod.
    let failed = holds(job.data, "FailureTarget").or_else(|| holds(job.data, "Failed"));
    let since = failed.and_then(|failed| time(failed, &["lastTransitionTime"]));
    since.is_some_and(|since| since >= deleted.0)
}

fn reclaimable(job: &Value) -> BTreeMap<PodSetName, u32> {
    let parallelism = parallelism(job);
    let completions = json::int(job, &["spec", "completions"]).unwrap_or(parallelism);
    let terminal = if is_indexed(job) {
        let texts = ["completedIndexes", "failedIndexes"].map(|field| json::text(job, &["status", field]));
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

/// The status patch for a job that still counts pods although they are certainly gone.
fn without_pods(job: &Value) -> Option<Value> {
    let mut after = job.clone();
    clear_pods(&mut after);
    json::difference(&json::status_of(job), &json::status_of(&after))
}

/// The status patch for a job whose end is known although no copy is left to mirror; `None` when the job has ended already.
fn conclusion(job: &Value, outcome: &Outcome, now: Timestamp) -> Option<Value> {
    if finished(job).is_some() {
        return None;
    }
    // Why: the worker's clock may be ahead, and the API server refuses an end before a beginning.
    let now = time(job, &["status", "startTime"]).map_or(now, |start| start.max(now));
    let at = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut after = job.clone();
    clear_pods(&mut after);
    // Why: the API server refuses an end without a start, and an end with pods that are not counted.
    json::remove(&mut after, &["status", "uncountedTerminatedPods"]);
    if json::at(job, &["status", "startTime"]).is_none() {
        json::set(&mut after, &["status", "startTime"], at.clone());
    }
    let (first, last) = if outcome.success {
        json::set(&mut after, &["status", "completionTime"], at.clone());
        ("SuccessCriteriaMet", "Complete")
    } else {
        ("FailureTarget", "Failed")
    };
    let mut conditions = json::list(job, &["status", "conditions"]).to_vec();
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
    json::difference(&json::status_of(job), &json::status_of(&after))
}

fn time(at: &Value, path: &[&str]) -> Option<Timestamp> {
    json::text(at, path)?.parse().ok()
}

/// Sets the counters of unfinished pods of a job to zero.
fn clear_pods(job: &mut Value) {
    for field in ["active", "ready", "terminating"] {
        if status_count(job, field) != 0 {
            json::set(job, &["status", field], json!(0));
        }
    }
}

fn spec_suspend(job: &Value) -> bool {
    json::is_true(job, &SUSPEND)
}

fn parallelism(job: &Value) -> i64 {
    json::int(job, &["spec", "parallelism"]).unwrap_or(1)
}

/// The number of pods that run at the same time.
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

/// The least number of pods with which the job can start, if set. It is not compared with the present parallelism, which a start may
/// reduce.
fn min_parallelism(meta: &ObjectMeta) -> Option<i64> {
    let min = annotation(meta, annotations::JOB_MIN_PARALLELISM)?.parse::<i64>();
    min.ok().filter(|min| *min > 0)
}

fn set_parallelism(meta: &ObjectMeta, job: &mut Value, count: u32) {
    let together = annotation(meta, annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM) == Some(labels::TRUE);
    json::set(job, &["spec", "parallelism"], json!(count));
    if together {
        json::set(job, &["spec", "completions"], json!(count));
    }
}

/// The patch that makes the local job show that it is suspended; `None` when it shows that already. Kubernetes 1.36 requires it of a
/// suspended job with pods elsewhere.
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
fn partial_admission_problems(job: Member<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let count = count(job.data);
    if let Some(text) = annotation(job.meta, annotations::JOB_MIN_PARALLELISM) {
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
    if let Some(text) = annotation(job.meta, annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM) {
        let field = format!(
            "metadata.annotations[{}]",
            annotations::JOB_COMPLETIONS_EQUAL_PARALLELISM
        );
        match text {
            "true" if !is_indexed(job.data) => {
                problems.push(Problem::invalid(
                    field,
                    "should not be enabled for NonIndexed jobs",
                ));
            }
            "true" => {
                let completions = json::int(job.data, &["spec", "completions"]);
                if completions.is_some_and(|completions| completions != parallelism(job.data)) {
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

#[cfg(test)]
mod tests;
