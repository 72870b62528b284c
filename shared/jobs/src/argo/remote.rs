//! A Workflow of a manager that runs on a worker: its copy there, and its end as the manager shows it.
//!
//! Seen with the workflow controller 3.7: it sets phase `Running` on a new Workflow that is suspended, and then leaves its status alone. It
//! treats a Workflow with label `workflows.argoproj.io/completed: "true"` as over. The API of Workflows has no status subresource.

use jiff::Timestamp;
use roadstead_api::constants::annotations;
use roadstead_core::lifecycle::Outcome;
use serde_json::{Value, json};

use super::{PHASE, SUSPEND, TIME_TO_LIVE, before_start, end};
use crate::by_path::versioned;
use crate::json;
use crate::kind::{JobKind, Later, Member, Remote, RemoteIdentity, Target, Write};
use crate::remote::skeleton;

/// The labels that the controller keeps on a Workflow.
const PHASE_LABEL: &str = "workflows.argoproj.io/phase";
const COMPLETED_LABEL: &str = "workflows.argoproj.io/completed";
const ARCHIVING_LABEL: &str = "workflows.argoproj.io/workflow-archiving-status";
const FINISHED_AT: [&str; 2] = ["status", "finishedAt"];
/// The field by which a user ends a Workflow (`argo stop`, `argo terminate`).
const SHUTDOWN: [&str; 2] = ["spec", "shutdown"];
/// Where the controller notes which artifacts it has deleted.
const ARTIFACTS: [&str; 2] = ["status", "artifactGCStatus"];

/// The copy of a Workflow for a worker.
pub(super) fn copy(kind: &dyn JobKind, local: Member<'_>, identity: &RemoteIdentity<'_>) -> Value {
    let data = &*before_start(local);
    let mut copy = skeleton(kind, Member { data, ..local }, identity);
    json::set(&mut copy, &SUSPEND, json!(true));
    json::remove(&mut copy, &TIME_TO_LIVE);
    for label in [PHASE_LABEL, COMPLETED_LABEL, ARCHIVING_LABEL] {
        json::remove(&mut copy, &["metadata", "labels", label]);
    }
    json::remove(&mut copy, &["metadata", "annotations", annotations::BEFORE_START]);
    if let Some(spec) = copy.get_mut("spec") {
        keep_artifacts(spec);
    }
    copy
}

/// Lets the artifacts outlive the copy. Why: the manager deletes the copy as soon as it has ended. The Workflow on the manager still says
/// that its artifacts are deleted with it.
fn keep_artifacts(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                if field == "artifactGC" && json::text(value, &["strategy"]) == Some("OnWorkflowDeletion") {
                    json::set(value, &["strategy"], json!("Never"));
                }
                keep_artifacts(value);
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(keep_artifacts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The shutdown that a copy lacks because it was sent before the user ended the Workflow.
pub(super) fn later(local: Member<'_>, copy: Member<'_>) -> Option<Later> {
    let asked = json::at(local.data, &SHUTDOWN)?;
    let is_over = copy.meta.deletion_timestamp.is_some() || end(copy.data).is_some();
    if is_over || json::at(copy.data, &SHUTDOWN) == Some(asked) {
        return None;
    }
    let mut patch = json!({});
    json::set(&mut patch, &SHUTDOWN, asked.clone());
    Some(Later {
        copy: copy.id(),
        patch: versioned(copy, patch),
    })
}

/// Whether a Workflow failed at or after its deletion. Then its pods were deleted first, so the failure says nothing about their work.
pub(super) fn is_killed(workflow: Member<'_>) -> bool {
    let failed = end(workflow.data).is_some_and(|end| !end.success);
    let at = json::text(workflow.data, &FINISHED_AT).and_then(|text| text.parse::<Timestamp>().ok());
    let deleted = workflow.meta.deletion_timestamp.as_ref();
    failed && at.zip(deleted).is_some_and(|(at, deleted)| at >= deleted.0)
}

/// The write that shows the end of the copy on the Workflow; `None` while there is no end, or when an end is shown already.
pub(super) fn shown(local: Member<'_>, remote: Remote<'_>, now: Timestamp) -> Option<Write> {
    if end(local.data).is_some() {
        return None;
    }
    let after = match remote {
        Remote::Copies(copies) if !is_killed(copies.first()) => ended_as(local.data, copies.first().data),
        Remote::Ended(outcome) => concluded(local.data, outcome, now),
        Remote::Copies(_) | Remote::AtRest => return None,
    };
    end(&after)?;
    let mut patch = json::difference(local.data, &after)?;
    let phase = json::text(&after, &PHASE).unwrap_or_default();
    for (label, value) in [(PHASE_LABEL, phase), (COMPLETED_LABEL, "true")] {
        json::set(&mut patch, &["metadata", "labels", label], json!(value));
    }
    Some(Write::Patch {
        of: local.id(),
        target: Target::Main,
        patch: versioned(local, patch),
    })
}

/// The Workflow with the status of its copy.
fn ended_as(local: &Value, copy: &Value) -> Value {
    let mut after = local.clone();
    let status = json::at(copy, &["status"]).cloned();
    json::set(&mut after, &["status"], status.unwrap_or_else(|| json!({})));
    // Why: this version names a row of the worker's database.
    json::remove(&mut after, &["status", "offloadNodeStatusVersion"]);
    // Why not the notes of the copy: artifacts that are deleted with the Workflow still exist, and those that were deleted at its end are
    // gone.
    match json::at(local, &ARTIFACTS) {
        Some(artifacts) => {
            json::set(&mut after, &ARTIFACTS, artifacts.clone());
            if !json::is_true(artifacts, &["notSpecified"]) {
                let processed = [
                    "status",
                    "artifactGCStatus",
                    "strategiesProcessed",
                    "OnWorkflowCompletion",
                ];
                json::set(&mut after, &processed, json!(true));
            }
        }
        None => json::remove(&mut after, &ARTIFACTS),
    }
    after
}

/// The Workflow with this end.
fn concluded(local: &Value, outcome: &Outcome, now: Timestamp) -> Value {
    let mut after = local.clone();
    let phase = if outcome.success { "Succeeded" } else { "Failed" };
    json::set(&mut after, &PHASE, json!(phase));
    json::set(&mut after, &["status", "message"], json!(outcome.message));
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json::set(&mut after, &FINISHED_AT, json!(now));
    after
}
