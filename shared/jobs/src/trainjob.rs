//! `TrainJob` of Kubeflow's Trainer, version 2. *Source*: `spec/jobs.md 9.5`.
//!
//! A `TrainJob` describes the training, and its runtime describes the pods. Trainer makes a suspended `JobSet` of both. The `JobSet` is the
//! second member of the job, and is read instead of the runtime. The assignment goes into an entry of `runtimePatches` that belongs to
//! Roadstead alone.
//!
//! Invariant: the pod sets are those of the JobSet without the additions of our entry, so they are the same before, during and after a run.

use jiff::Timestamp;
use roadstead_api::constants::{annotations, labels};
use roadstead_kinds::{Kind, rows};
use serde_json::{Map, Value, json};

use crate::by_path::signs::Conditions;
use crate::by_path::write;
use crate::jobset::JOBSET;
use crate::json;
use crate::kind::{
    Error, JobKind, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target, Why,
    Write,
};
use crate::podset::{InjectError, JobPodSet, PodSetInfo, inject};
use crate::problem::Problem;
use crate::remote::skeleton;

/// The kind `trainer.kubeflow.org/v1alpha1 TrainJob`.
#[derive(Clone, Copy, Debug)]
pub struct TrainJob;

/// The manager of our entry of the patches. Wire: as in the reference.
const MANAGER: &str = "kueue.x-k8s.io/manager";
const PATCHES: [&str; 2] = ["spec", "runtimePatches"];
const SUSPEND: [&str; 2] = ["spec", "suspend"];
/// The path of the changes in an entry.
const CHANGED: [&str; 4] = ["trainingRuntimeSpec", "template", "spec", "replicatedJobs"];
const STATUSES: [&str; 2] = ["status", "jobsStatus"];
const ENDS: Conditions = Conditions {
    succeeded: "Complete",
    failed: "Failed",
    repeated: None,
};
/// The maps of a template to which a start adds.
const MAPS: [[&str; 2]; 3] = [
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec", "nodeSelector"],
];
const TOLERATIONS: [&str; 2] = ["spec", "tolerations"];

impl JobKind for TrainJob {
    fn kind(&self) -> &'static Kind {
        &rows::TRAIN_JOB
    }

    fn companion(&self) -> Option<&'static Kind> {
        Some(&rows::JOB_SET)
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let Some(set) = job_set(members) else {
            let message = "the JobSet of this TrainJob, which Trainer makes of its runtime, is not there: is Trainer running in this \
                           cluster, and does spec.runtimeRef name a runtime?";
            return Err(Error::Awaited {
                message: message.to_owned(),
            });
        };
        let mut sets = JOBSET.pod_sets(Members::one(&set))?;
        for pods in &mut sets {
            if let Some(added) = added(members.first().data, &pods.name) {
                take_out(&mut pods.template, added);
            }
        }
        Ok(sets)
    }

    fn look(&self, members: Members<'_>) -> Look {
        let job = members.first();
        let statuses = || json::list(job.data, &STATUSES).iter();
        let number = |status: &Value, field: &str| json::int(status, &[field]).unwrap_or(0);
        let pods = if statuses().any(|status| number(status, "active") > 0) {
            Pods::Alive
        } else if json::at(job.data, &["status"]).is_some_and(|status| *status != json!({})) {
            Pods::Untold
        } else {
            Pods::None
        };
        let of_set = job_set(members).map(|set| JOBSET.look(Members::one(&set)));
        // Why one Job is enough when there is no JobSet: the status does not say how many Jobs each set must have, and Trainer makes one.
        let each_is_ready = || {
            let done = |status| number(status, "ready").saturating_add(number(status, "succeeded")) > 0;
            statuses().len() > 0 && statuses().all(done)
        };
        Look {
            suspended: json::is_true(job.data, &SUSPEND) && !job.is_stopping(),
            pods,
            ready: of_set.as_ref().map_or_else(each_is_ready, |look| look.ready),
            ended: ENDS.of(job.data),
            killed: ENDS.is_by_deletion(job),
            reclaimable: of_set.map(|look| look.reclaimable).unwrap_or_default(),
        }
    }

    /// Two writes: Trainer refuses a change of the patches of a job that is not suspended.
    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let job = members.first();
        let sets = self.pod_sets(members).unwrap_or_default();
        let mut changed = Vec::new();
        for set in &sets {
            let Some(info) = infos.iter().find(|info| info.name == set.name) else {
                continue;
            };
            let mut after = set.template.clone();
            inject(&mut after, info)?;
            let added = difference(&set.template, &after);
            changed.push(json!({"name": set.name, "template": {"spec": {"template": added}}}));
        }
        let patched = with_entry(job.data, changed);
        let mut free = job.data.clone();
        json::set(&mut free, &SUSPEND, json!(false));
        let let_go = json::difference(job.data, &free).map(|patch| job.patched(Target::Main, patch));
        Ok(write(job, job.data, &patched).into_iter().chain(let_go).collect())
    }

    /// Two writes: Trainer refuses a change of the patches before all pods are gone.
    fn stop(&self, members: Members<'_>, _original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        let job = members.first();
        let is_suspended = json::is_true(job.data, &SUSPEND);
        let (after, mark) = match (is_suspended, job.is_stopping()) {
            (false, _) => {
                let mut held = job.data.clone();
                json::set(&mut held, &SUSPEND, json!(true));
                (held, json!(labels::TRUE))
            }
            (true, true) if self.look(members).pods == Pods::Alive => return Vec::new(),
            (true, true) => (with_entry(job.data, Vec::new()), Value::Null),
            (true, false) => return Vec::new(),
        };
        let mut patch = json::difference(job.data, &after).unwrap_or_else(|| json!({}));
        patch["metadata"] = json!({
            "resourceVersion": job.meta.resource_version, "annotations": {annotations::STOPPING: mark},
        });
        vec![job.patched(Target::Main, patch)]
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        _original: &[JobPodSet],
    ) -> Vec<Value> {
        let mut copy = skeleton(self, members.first(), identity);
        let kept: Vec<Value> = { json::list(&copy, &PATCHES).iter() }
            .filter(|entry| !is_ours(entry))
            .cloned()
            .collect();
        if kept.is_empty() {
            json::remove(&mut copy, &PATCHES);
        } else {
            json::set(&mut copy, &PATCHES, Value::Array(kept));
        }
        json::set(&mut copy, &SUSPEND, json!(true));
        vec![copy]
    }

    /// Shows the success of the copy. Trainer keeps a failure in the status only if it has failed the job itself, so a failure of the copy
    /// is shown by the Workload alone.
    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        let job = local.first();
        let mut after = job.data.clone();
        match remote {
            Remote::Copies(copies) if self.has_succeeded(copies) => {
                json::set(
                    &mut after,
                    &["status"],
                    json::status_of(copies.first().data)["status"].clone(),
                );
            }
            Remote::Ended(outcome) if outcome.success && ENDS.of(job.data).is_none() => {
                ENDS.write(&mut after, outcome, now);
            }
            Remote::Copies(_) | Remote::Ended(_) | Remote::AtRest => {}
        }
        let shown = ENDS.of(job.data).is_some();
        let patch = json::difference(&json::status_of(job.data), &json::status_of(&after)).filter(|_| !shown);
        let write = |patch| job.patched(Target::Status, patch);
        Mirror {
            writes: patch.map(write).into_iter().collect(),
            is_deferred: false,
        }
    }

    fn suspend(&self, job: &mut MemberMut<'_>) {
        json::set(job.data, &SUSPEND, json!(true));
    }

    fn outlast_its_end(&self, _job: &mut MemberMut<'_>) {}

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        json::remove(copy.data, &PATCHES);
        json::remove(copy.data, &["spec", "trainer"]);
    }

    fn template_paths(&self, _members: Members<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Adds our entry, empty: the managers of the entries own the list.
    fn own_defaults(&self, job: &mut MemberMut<'_>) {
        if !json::list(job.data, &PATCHES).iter().any(is_ours) {
            let patched = with_entry(job.data, Vec::new());
            *job.data = patched;
        }
    }

    fn own_problems(&self, _job: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }

    fn own_update_problems(&self, _old: Member<'_>, _new: Member<'_>) -> Vec<Problem> {
        Vec::new()
    }
}

impl TrainJob {
    fn has_succeeded(self, copies: Members<'_>) -> bool {
        self.look(copies).ended.is_some_and(|outcome| outcome.success)
    }
}

/// The JobSet that Trainer has made of a job.
fn job_set(members: Members<'_>) -> Option<Member<'_>> {
    members.all().get(1).copied()
}

fn is_ours(entry: &Value) -> bool {
    json::text(entry, &["manager"]) == Some(MANAGER)
}

/// The additions of our entry to the pods of a set.
fn added<'a>(job: &'a Value, set: &str) -> Option<&'a Value> {
    let ours = json::list(job, &PATCHES).iter().find(|entry| is_ours(entry))?;
    let all = json::list(ours, &CHANGED).iter();
    let mut named = all.filter(|one| json::text(one, &["name"]) == Some(set));
    json::at(named.next()?, &["template", "spec", "template"])
}

/// The job with these changes in our entry; unchanged when it has them already.
fn with_entry(job: &Value, changed: Vec<Value>) -> Value {
    let mut after = job.clone();
    let mut entries = json::list(job, &PATCHES).to_vec();
    let mut ours = json!({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}});
    if !changed.is_empty() {
        json::set(&mut ours, &CHANGED, Value::Array(changed));
    }
    match entries.iter_mut().find(|entry| is_ours(entry)) {
        Some(entry) if json::list(entry, &CHANGED) == json::list(&ours, &CHANGED) => {}
        Some(entry) => *entry = ours,
        None => entries.push(ours),
    }
    json::set(&mut after, &PATCHES, Value::Array(entries));
    after
}

/// The additions of `after` to `before`, as a template.
fn difference(before: &Value, after: &Value) -> Value {
    let mut added = json!({});
    for path in MAPS {
        let known = json::at(before, &path);
        let more = json::at(after, &path)
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let more: Map<String, Value> = more
            .filter(|(key, _)| known.and_then(|known| known.get(key)).is_none())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !more.is_empty() {
            json::set(&mut added, &path, Value::Object(more));
        }
    }
    let known = json::list(before, &TOLERATIONS);
    let more: Vec<Value> = { json::list(after, &TOLERATIONS).iter() }
        .filter(|toleration| !known.contains(toleration))
        .cloned()
        .collect();
    if !more.is_empty() {
        json::set(&mut added, &TOLERATIONS, Value::Array(more));
    }
    added
}

fn take_out(template: &mut Value, added: &Value) {
    for path in MAPS {
        for (key, value) in json::at(added, &path)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let place = [path[0], path[1], key];
            if json::at(template, &place) == Some(value) {
                json::remove(template, &place);
            }
        }
        if json::at(template, &path)
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
        {
            json::remove(template, &path);
        }
    }
    let gone = json::list(added, &TOLERATIONS);
    if !gone.is_empty() {
        let kept: Vec<Value> = { json::list(template, &TOLERATIONS).iter() }
            .filter(|toleration| !gone.contains(toleration))
            .cloned()
            .collect();
        if kept.is_empty() {
            json::remove(template, &TOLERATIONS);
        } else {
            json::set(template, &TOLERATIONS, Value::Array(kept));
        }
    }
}

#[cfg(test)]
mod tests;
