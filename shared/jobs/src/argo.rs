//! Argo's `Workflow` as one unit: held by `spec.suspend`, and admitted with the pods that it runs at the same time.
//!
//! Opt-in: the queue label is on the Workflow itself. Its pods follow it and are not queued again. When a Workflow is suspended, the
//! workflow controller lets running steps go on and starts no further ones. So a stop takes no work away, and quota is held until the last
//! running step has ended.
//!
//! The workflow controller has no field that keeps it away from a Workflow. So a Workflow that runs on a worker stays suspended on the
//! manager, and shows its end there.
//!
//! Invariant: the pod sets are those of the Workflow before its start. An annotation keeps the fields that the start has changed.
//!
//! Reading order: this file (the contract), `places` (the fields that a start changes), `levels` (which pods run at the same time), `pods`
//! (the pod of a template), `declared` (pod sets that the user declares), `needs` (what must exist where it runs), `remote` (its copy on a
//! worker).
//!
//! *Source*: `spec/jobs.md 9.15`.

mod declared;
mod levels;
mod needs;
mod places;
mod pods;
mod remote;

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Timestamp;
use roadstead_api::constants::annotations;
use roadstead_core::lifecycle::Outcome;
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use crate::by_path::versioned;
use crate::json;
use crate::kind::{
    Error, JobKind, Later, Look, Member, MemberMut, Members, Mirror, Pods, Remote, RemoteIdentity, Target,
    Why, Write,
};
use crate::labels::{annotation, queue};
use crate::needs::Need;
use crate::podset::{InjectError, JobPodSet, PodSetInfo};
use crate::problem::Problem;
use crate::webhook::{IMMUTABLE, annotation_field};

/// The kind `argoproj.io/v1alpha1 Workflow`.
#[derive(Clone, Copy, Debug)]
pub struct Workflow;

const SUSPEND: [&str; 2] = ["spec", "suspend"];
const PHASE: [&str; 2] = ["status", "phase"];
/// The field by which it is deleted some time after its end.
const TIME_TO_LIVE: [&str; 2] = ["spec", "ttlStrategy"];

impl JobKind for Workflow {
    fn kind(&self) -> &'static Kind {
        &rows::WORKFLOW
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let workflow = members.first();
        let unfit = |message: String| Error::Unfit { message };
        let own = before_start(workflow);
        match annotation(workflow.meta, annotations::POD_SETS) {
            Some(text) => declared::pod_sets(text, &own).map_err(|why| {
                unfit(format!(
                    "annotation {} cannot be read: {why}",
                    annotations::POD_SETS
                ))
            }),
            None => levels::pod_sets(&own).map_err(|why| {
                unfit(format!(
                    "the pods of this Workflow are not known: {why}; declare them in annotation {}, such as {}",
                    annotations::POD_SETS,
                    declared::EXAMPLE
                ))
            }),
        }
    }

    fn look(&self, members: Members<'_>) -> Look {
        let workflow = members.first().data;
        let (suspended, ended) = (json::is_true(workflow, &SUSPEND), end(workflow));
        Look {
            suspended,
            pods: if ended.is_none() && has_pods(workflow) {
                Pods::Alive
            } else if json::at(workflow, &["status"]).is_some_and(|status| *status != json!({})) {
                // Why not `None`: the controller creates a pod before it notes the step in the status, and does not count terminating pods.
                Pods::Untold
            } else {
                Pods::None
            },
            ready: !suspended && json::text(workflow, &PHASE) == Some("Running"),
            ended,
            killed: remote::is_killed(members.first()),
            ..Look::default()
        }
    }

    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let workflow = members.first();
        let mut after = before_start(workflow).into_owned();
        let before = places::inject(&mut after, infos)?;
        // Why not false: the controller compares the field by its address, and would store the Workflow again on each of its passes.
        json::remove(&mut after, &SUSPEND);
        Ok(write(workflow, &after, json!(before.to_string()))
            .into_iter()
            .collect())
    }

    fn stop(&self, members: Members<'_>, _original: &[JobPodSet], _why: &Why<'_>) -> Vec<Write> {
        let workflow = members.first();
        if json::is_true(workflow.data, &SUSPEND) {
            return Vec::new();
        }
        let mut after = before_start(workflow).into_owned();
        json::set(&mut after, &SUSPEND, json!(true));
        write(workflow, &after, Value::Null).into_iter().collect()
    }

    fn stop_leaves_pods(&self) -> bool {
        true
    }

    fn copies(
        &self,
        members: Members<'_>,
        identity: &RemoteIdentity<'_>,
        _original: &[JobPodSet],
    ) -> Vec<Value> {
        vec![remote::copy(self, members.first(), identity)]
    }

    fn later(&self, local: Members<'_>, copies: Members<'_>) -> Vec<Later> {
        remote::later(local.first(), copies.first()).into_iter().collect()
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        Mirror {
            writes: remote::shown(local.first(), remote, now).into_iter().collect(),
            is_deferred: false,
        }
    }

    fn suspend(&self, workflow: &mut MemberMut<'_>) {
        json::set(workflow.data, &SUSPEND, json!(true));
    }

    fn outlast_its_end(&self, workflow: &mut MemberMut<'_>) {
        json::remove(workflow.data, &TIME_TO_LIVE);
    }

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        json::remove(copy.data, &["spec", "templates"]);
    }

    fn template_paths(&self, _: Members<'_>) -> Vec<String> {
        Vec::new()
    }

    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        needs::of(members.first().data)
    }

    fn wants(&self, members: Members<'_>) -> BTreeSet<Need> {
        needs::wanted(members.first().data)
    }

    fn own_problems(&self, workflow: Member<'_>) -> Vec<Problem> {
        let text =
            annotation(workflow.meta, annotations::POD_SETS).filter(|_| queue(workflow.meta).is_some());
        let why = text.and_then(|text| declared::pod_sets(text, workflow.data).err());
        why.map(|why| Problem::invalid(annotation_field(annotations::POD_SETS), why))
            .into_iter()
            .collect()
    }

    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
        let said = |workflow: Member<'_>| annotation(workflow.meta, annotations::POD_SETS).map(str::to_owned);
        let is_changed = queue(old.meta).is_some() && said(old) != said(new);
        if is_changed && !json::is_true(new.data, &SUSPEND) {
            return vec![Problem::invalid(
                annotation_field(annotations::POD_SETS),
                IMMUTABLE,
            )];
        }
        if is_changed {
            self.own_problems(new)
        } else {
            Vec::new()
        }
    }
}

/// How it ended, if it ended.
fn end(workflow: &Value) -> Option<Outcome> {
    let success = match json::text(workflow, &PHASE)? {
        "Succeeded" => true,
        "Failed" | "Error" => false,
        _ => return None,
    };
    let message = json::text(workflow, &["status", "message"]).unwrap_or_default();
    Some(Outcome {
        success,
        message: message.to_owned(),
    })
}

/// Whether a step of it has a pod that has not ended.
fn has_pods(workflow: &Value) -> bool {
    let status = |field: &str| json::at(workflow, &["status", field]);
    let nodes = status("nodes").and_then(Value::as_object);
    let is_listed = |node: &Value| {
        let is_pod = json::text(node, &["type"]) == Some("Pod");
        // Why waiting steps do not count: a step that waits for a lock has no pod yet.
        let waits = json::at(node, &["synchronizationStatus", "waiting"]).is_some();
        is_pod && !waits && matches!(json::text(node, &["phase"]), Some("Pending" | "Running"))
    };
    if nodes.is_some_and(|nodes| nodes.values().any(is_listed)) {
        return true;
    }
    // Why the progress too: it counts the pods of a large Workflow whose nodes the controller compresses or keeps in a database.
    let is_out_of_sight = status("compressedNodes").is_some() || status("offloadNodeStatusVersion").is_some();
    let counted = json::text(workflow, &["status", "progress"]).and_then(|text| text.split_once('/'));
    is_out_of_sight && counted.is_some_and(|(ended, all)| ended != all)
}

/// The Workflow without what a start has added.
fn before_start(workflow: Member<'_>) -> Cow<'_, Value> {
    let kept = annotation(workflow.meta, annotations::BEFORE_START);
    match kept.and_then(|text| text.parse::<Value>().ok()) {
        Some(kept) => {
            let mut before = workflow.data.clone();
            places::restore(&mut before, &kept);
            Cow::Owned(before)
        }
        None => Cow::Borrowed(workflow.data),
    }
}

/// The write that makes a Workflow look like `after`. The API server refuses it when another client has changed the Workflow, because it
/// replaces lists as a whole.
fn write(workflow: Member<'_>, after: &Value, kept: Value) -> Option<Write> {
    let mut patch = json::difference(workflow.data, after)?;
    json::set(
        &mut patch,
        &["metadata", "annotations", annotations::BEFORE_START],
        kept,
    );
    Some(Write::Patch {
        of: workflow.id(),
        target: Target::Main,
        patch: versioned(workflow, patch),
    })
}

#[cfg(test)]
mod tests;
