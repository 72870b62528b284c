//! Plain pods, single and in groups. *Source*: `spec/jobs.md 12`.
//!
//! A pod is held by a scheduling gate, and stopped by deletion: its controller makes another one. Our finalizer keeps it until its end has
//! been counted.
//!
//! Reading order: this file (one pod, and the contract), [`group`] (which members count), `role` (which pods are alike), `remote` (pods in
//! another cluster), `later` (what they get after they were sent), `node` (the node that stands for their cluster), [`rules`] (the webhooks).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::constants::{annotations, finalizers, gates, labels, names};
use roadstead_core::lifecycle::Outcome;
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use crate::json;
use crate::kind::{
    AsksForMore, Defaulting, Error, JobKind, Later, Look, Member, MemberMut, Members, Mirror, Pods, Remote,
    RemoteIdentity, Target, Tending, Unmatched, Why, Write,
};
use crate::labels::{annotation, label};
use crate::needs::{self, Need};
use crate::podset::{InjectError, JobPodSet, PodSetInfo, inject};
use crate::problem::Problem;

pub(crate) mod group;
mod later;
mod node;
mod remote;
pub(crate) mod role;
mod rules;

/// The kind `v1 Pod`.
#[derive(Clone, Copy, Debug)]
pub struct PlainPod;

const GATES: [&str; 2] = ["spec", "schedulingGates"];
/// Condition of a pod that has a node. *Source*: the Pod API.
const SCHEDULED: &str = "PodScheduled";
/// Condition of a pod that is being stopped. *Source*: `spec/jobs.md 2.3`.
const TERMINATION_TARGET: &str = "TerminationTarget";

impl JobKind for PlainPod {
    fn kind(&self) -> &'static Kind {
        &rows::POD
    }

    /// The name of the pod's group, if it is in one. *Source*: `spec/jobs.md 2.4`.
    fn group_of<'a>(&self, meta: &'a ObjectMeta) -> Option<&'a str> {
        let named = |name: &&str| !name.is_empty();
        annotation(meta, annotations::POD_GROUP_NAME)
            .filter(named)
            .or_else(|| label(meta, labels::POD_GROUP_NAME).filter(named))
    }

    fn selector(&self) -> Option<&'static str> {
        Some("kueue.x-k8s.io/managed=true")
    }

    fn pod_sets(&self, members: Members<'_>) -> Result<Vec<JobPodSet>, Error> {
        let pod = members.first();
        if let Some(name) = self.group_of(pod.meta) {
            return group::pod_sets(name, members);
        }
        Ok(vec![JobPodSet {
            name: names::MAIN_POD_SET.to_owned(),
            count: 1,
            min_count: None,
            template: template(pod),
        }])
    }

    fn look(&self, members: Members<'_>) -> Look {
        if self.group_of(members.first().meta).is_some() {
            return group::look(members);
        }
        let pod = members.first();
        Look {
            suspended: !may_run(pod),
            pods: Pods::None,
            ready: is_ready(pod),
            ended: end(pod),
            killed: is_killed(pod),
            ..Look::default()
        }
    }

    fn tend(
        &self,
        members: Members<'_>,
        workload: Option<&[JobPodSet]>,
        asks_for_more: AsksForMore,
    ) -> Option<Tending> {
        let is_group = self.group_of(members.first().meta).is_some();
        is_group.then(|| group::tend(members, workload, asks_for_more))
    }

    fn pod_sets_within(&self, members: Members<'_>, of_parent: Vec<JobPodSet>) -> Vec<JobPodSet> {
        group::pod_sets_within(members, of_parent)
    }

    fn ends_with_workload(&self) -> bool {
        true
    }

    fn start(&self, members: Members<'_>, infos: &[PodSetInfo]) -> Result<Vec<Write>, InjectError> {
        let is_group = self.group_of(members.first().meta).is_some();
        let mut writes = Vec::new();
        for pod in members
            .all()
            .iter()
            .filter(|pod| has_gate(**pod, gates::ADMISSION))
        {
            let info = if is_group {
                let role = role::of(*pod);
                infos.iter().find(|info| info.name == role)
            } else {
                infos.first()
            };
            // Why left out: a member of a role without quota stays held. *Source*: `spec/jobs.md 12.6`.
            if let Some(info) = info {
                writes.extend(let_go(*pod, info)?);
            }
        }
        Ok(writes)
    }

    fn stop(&self, members: Members<'_>, _original: &[JobPodSet], why: &Why<'_>) -> Vec<Write> {
        let is_group = self.group_of(members.first().meta).is_some();
        let mut writes = Vec::new();
        for pod in members.all() {
            let stays = is_held(*pod) && !why.for_good;
            if pod.meta.deletion_timestamp.is_none() && !stays {
                if !is_over(*pod) {
                    writes.push(mark_stopping(*pod, why));
                }
                writes.push(Write::Delete { of: pod.id() });
            }
            if is_group && why.for_good {
                writes.extend(release(*pod));
            }
        }
        writes
    }

    fn release(&self, members: Members<'_>) -> Vec<Write> {
        members.all().iter().filter_map(|pod| release(*pod)).collect()
    }

    fn copies(&self, members: Members<'_>, identity: &RemoteIdentity<'_>, _: &[JobPodSet]) -> Vec<Value> {
        remote::copies(members, identity)
    }

    fn unmatched(&self, local: Members<'_>, copies: Members<'_>) -> Unmatched {
        remote::unmatched(local, copies)
    }

    fn later(&self, local: Members<'_>, copies: Members<'_>) -> Vec<Later> {
        later::later(local, copies)
    }

    fn settle(&self, local: Members<'_>, copies: Members<'_>, node: &str) -> Vec<Write> {
        node::settle(local, copies, node)
    }

    fn is_shown_on_nodes(&self, local: Members<'_>) -> bool {
        let mut loose = local.all().iter().filter(|pod| !is_held(**pod)).peekable();
        loose.peek().is_some() && loose.all(|pod| node::is_shown(*pod))
    }

    fn mirror(&self, local: Members<'_>, remote: Remote<'_>, now: Timestamp) -> Mirror {
        remote::mirror(local, remote, now)
    }

    /// Why of the members: an incomplete group has no pod sets, and its first pods may run before the others exist.
    fn needs(&self, members: Members<'_>) -> BTreeSet<Need> {
        let templates: Vec<Value> = members.all().iter().map(|pod| template(*pod)).collect();
        needs::of(&templates)
    }

    fn wants(&self, members: Members<'_>) -> BTreeSet<Need> {
        let templates: Vec<Value> = members.all().iter().map(|pod| template(*pod)).collect();
        needs::wanted(&templates)
    }

    fn suspend(&self, pod: &mut MemberMut<'_>) {
        rules::hold(pod);
    }

    fn outlast_its_end(&self, _pod: &mut MemberMut<'_>) {}

    fn forget_details(&self, copy: &mut MemberMut<'_>) {
        if let Some(spec) = copy.data.get_mut("spec") {
            remote::forget_details(spec);
        }
    }

    fn template_paths(&self, _members: Members<'_>) -> Vec<String> {
        Vec::new()
    }

    fn defaulting(&self) -> Option<Defaulting> {
        Some(Defaulting(rules::default))
    }

    fn own_problems(&self, pod: Member<'_>) -> Vec<Problem> {
        rules::problems(pod)
    }

    fn own_update_problems(&self, old: Member<'_>, new: Member<'_>) -> Vec<Problem> {
        rules::update_problems(old, new)
    }
}

fn phase(pod: Member<'_>) -> &str {
    json::text(pod.data, &["status", "phase"]).unwrap_or("Pending")
}

fn by_name(members: Members<'_>) -> BTreeMap<&str, Member<'_>> {
    let all = members.all().iter();
    all.map(|pod| (pod.meta.name.as_deref().unwrap_or_default(), *pod))
        .collect()
}

fn is_over(pod: Member<'_>) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn has_gate(pod: Member<'_>, gate: &str) -> bool {
    let gates = json::list(pod.data, &GATES);
    gates.iter().any(|one| json::text(one, &["name"]) == Some(gate))
}

fn is_held(pod: Member<'_>) -> bool {
    has_gate(pod, gates::ADMISSION) || is_over(pod)
}

/// Whether containers of the pod run, or may start.
fn may_run(pod: Member<'_>) -> bool {
    !is_held(pod) && !has_left_node(pod)
}

/// Whether its node has reported that a deleted pod is gone, so that only finalizers keep it.
fn has_left_node(pod: Member<'_>) -> bool {
    pod.meta.deletion_timestamp.is_some() && pod.meta.deletion_grace_period_seconds == Some(0)
}

/// Whether the pod failed while it was being deleted, which says nothing about its work.
fn is_killed(pod: Member<'_>) -> bool {
    phase(pod) == "Failed" && pod.meta.deletion_timestamp.is_some()
}

fn is_ready(pod: Member<'_>) -> bool {
    is_true(pod, "Ready")
}

fn is_true(pod: Member<'_>, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|said| json::text(said, &["status"]) == Some("True"))
}

fn condition<'a>(pod: Member<'a>, kind: &str) -> Option<&'a Value> {
    let conditions = json::list(pod.data, &["status", "conditions"]);
    conditions.iter().find(|c| json::text(c, &["type"]) == Some(kind))
}

fn end(pod: Member<'_>) -> Option<Outcome> {
    let message = json::text(pod.data, &["status", "message"]).unwrap_or_default();
    is_over(pod).then(|| Outcome {
        success: phase(pod) == "Succeeded",
        message: message.to_owned(),
    })
}

/// The part of a pod that its Workload counts: its spec, and what it asks about topology. *Source*: `spec/jobs.md 8, 12.5`.
fn template(pod: Member<'_>) -> Value {
    let mut template = json!({ "spec": json::at(pod.data, &["spec"]) });
    for key in annotations::TOPOLOGY_REQUEST {
        if let Some(text) = annotation(pod.meta, key) {
            json::set(&mut template, &["metadata", "annotations", key], json!(text));
        }
    }
    template
}

fn is_released(pod: Member<'_>) -> bool {
    let held = pod.meta.finalizers.iter().flatten();
    !held.into_iter().any(|one| one == finalizers::MANAGED)
}

/// A patch that is refused when the pod was changed meanwhile. Why: it replaces lists to which other clients add.
fn patch(pod: Member<'_>, target: Target, patch: Value) -> Write {
    pod.patched(target, versioned(pod, patch))
}

fn versioned(pod: Member<'_>, mut patch: Value) -> Value {
    json::set(
        &mut patch,
        &["metadata", "resourceVersion"],
        json!(pod.meta.resource_version),
    );
    patch
}

/// Removes our finalizer; `None` when it is not set.
fn release(pod: Member<'_>) -> Option<Write> {
    if is_released(pod) {
        return None;
    }
    let held = pod.meta.finalizers.iter().flatten();
    let kept: Vec<&String> = held.filter(|one| *one != finalizers::MANAGED).collect();
    Some(patch(
        pod,
        Target::Main,
        json!({ "metadata": { "finalizers": kept } }),
    ))
}

/// Injects the assignment and removes our gates; `None` when nothing changes.
///
/// *Errors*: the pod has another value for a key.
fn let_go(pod: Member<'_>, info: &PodSetInfo) -> Result<Option<Write>, InjectError> {
    let before = json!({
        "metadata": { "labels": pod.meta.labels, "annotations": pod.meta.annotations },
        "spec": json::at(pod.data, &["spec"]),
    });
    let mut after = before.clone();
    inject(&mut after, info)?;
    let kept: Vec<Value> = json::list(pod.data, &GATES)
        .iter()
        .filter(|gate| {
            !matches!(
                json::text(gate, &["name"]),
                Some(gates::ADMISSION | gates::TOPOLOGY)
            )
        })
        .cloned()
        .collect();
    json::set(&mut after, &GATES, Value::Array(kept));
    let difference = json::difference(&before, &after);
    Ok(difference.map(|difference| patch(pod, Target::Main, difference)))
}

/// Shows on the pod why it is stopped. *Source*: `spec/jobs.md 12.8`.
fn mark_stopping(pod: Member<'_>, why: &Why<'_>) -> Write {
    let mut conditions = json::list(pod.data, &["status", "conditions"]).to_vec();
    conditions.retain(|c| json::text(c, &["type"]) != Some(TERMINATION_TARGET));
    conditions.push(json!({
        "type": TERMINATION_TARGET, "status": "True", "reason": why.reason, "message": why.message,
        "lastTransitionTime": why.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }));
    patch(
        pod,
        Target::Status,
        json!({ "status": { "conditions": conditions } }),
    )
}

#[cfg(test)]
mod tests;
