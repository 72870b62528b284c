//! The kubelets: a pod on a played node starts, runs for its time and ends with its exit code. A deleted pod ends before it
//! is removed.
//!
//! A pod runs for the seconds of its annotation [`RUN_SECONDS`](crate::RUN_SECONDS). A pod without it runs for one second, or
//! for ever if its `restartPolicy` is `Always`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use kube::ResourceExt as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::action::{Action, Plan};
use crate::{EXIT_CODE, RUN_SECONDS, sooner, stamp};

/// How long a pod without the annotation runs.
const RUN: SignedDuration = SignedDuration::from_secs(1);
/// The exit code of a container that was stopped.
const KILLED: i32 = 137;

#[derive(Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) nodes: &'a BTreeSet<String>,
    pub(crate) seed: u64,
    pub(crate) start_max: SignedDuration,
    /// When pods started, by UID. Why: the API keeps whole seconds only.
    pub(crate) started: &'a BTreeMap<String, Timestamp>,
}

pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or("Pending")
}

/// The writes that are due for pods on played nodes.
pub(crate) fn decide(pods: &[Arc<Pod>], rules: &Rules<'_>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if node.is_some_and(|node| rules.nodes.contains(node)) {
            match decide_pod(pod, rules, now) {
                Next::Now(action) => plan.actions.push(action),
                Next::At(due) => plan.due = sooner(plan.due, Some(due)),
                Next::Never => {}
            }
        }
    }
    plan
}

enum Next {
    Now(Action),
    At(Timestamp),
    Never,
}

fn decide_pod(pod: &Arc<Pod>, rules: &Rules<'_>, now: Timestamp) -> Next {
    let status = |status: PodStatus| Next::Now(Action::PodStatus(Arc::clone(pod), Box::new(status)));
    let ended = has_ended(pod);
    if pod.metadata.deletion_timestamp.is_some() {
        return match (ended, pod.metadata.deletion_grace_period_seconds) {
            (false, _) => status(end(pod, KILLED, now)),
            (true, Some(0)) => Next::Never,
            (true, _) => Next::Now(Action::RemovePod(Arc::clone(pod))),
        };
    }
    if ended {
        return Next::Never;
    }
    let (due, next) = if phase(pod) == "Running" {
        let Some(due) = ends_at(pod, rules) else {
            return Next::Never;
        };
        (due, end(pod, exit_code(pod), now))
    } else {
        (starts_at(pod, rules), start(pod, now))
    };
    if due <= now { status(next) } else { Next::At(due) }
}

fn starts_at(pod: &Pod, rules: &Rules<'_>) -> Timestamp {
    let bound = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let bound = { bound }
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map_or(Timestamp::MIN, |time| time.0);
    let longest = u64::try_from(rules.start_max.as_millis()).unwrap_or(0);
    if longest == 0 {
        return bound;
    }
    // Why from the UID: the result must not depend on the order of the pods.
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mixed = { uid }.bytes().fold(rules.seed, |mixed, byte| {
        mixed.rotate_left(7).wrapping_add(u64::from(byte))
    });
    let delay = ChaCha8Rng::seed_from_u64(mixed).random_range(0..=longest);
    let delay = SignedDuration::from_millis(i64::try_from(delay).unwrap_or(0));
    bound.saturating_add(delay).unwrap_or(bound)
}

/// When a running pod ends by itself; `None` if never.
fn ends_at(pod: &Pod, rules: &Rules<'_>) -> Option<Timestamp> {
    let asked = pod.annotations().get(RUN_SECONDS);
    let always = pod.spec.as_ref()?.restart_policy.as_deref() == Some("Always");
    if asked.is_none() && always {
        return None;
    }
    let run = asked
        .and_then(|text| SignedDuration::try_from_secs_f64(text.parse().ok()?).ok())
        .unwrap_or(RUN);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let started = rules.started.get(uid).copied();
    let started = started.or_else(|| Some(pod.status.as_ref()?.start_time.as_ref()?.0))?;
    started.saturating_add(run).ok()
}

fn exit_code(pod: &Pod) -> i32 {
    let code = pod.annotations().get(EXIT_CODE);
    code.and_then(|code| code.parse().ok()).unwrap_or(0)
}

fn start(pod: &Pod, now: Timestamp) -> PodStatus {
    let running = |container: &Container, started: bool| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready: true,
        started: Some(started),
        state: Some(if started {
            ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: Some(stamp(now)),
                }),
                ..ContainerState::default()
            }
        } else {
            terminated(0, Some(now), now)
        }),
        ..ContainerStatus::default()
    };
    let mut status = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.clone().unwrap_or_default();
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    status.phase = Some("Running".to_owned());
    status.start_time = Some(stamp(now));
    for type_ in ["Initialized", "ContainersReady", "Ready"] {
        set(&mut status, type_, "True", None, now);
    }
    for gate in spec.readiness_gates.iter().flatten() {
        set(&mut status, &gate.condition_type, "True", None, now);
    }
    let initial = spec.init_containers.iter().flatten();
    let initial: Vec<_> = initial.map(|each| running(each, is_sidecar(each))).collect();
    status.init_container_statuses = (!initial.is_empty()).then_some(initial);
    status.container_statuses = Some(spec.containers.iter().map(|each| running(each, true)).collect());
    status
}

fn end(pod: &Pod, code: i32, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let (phase, reason) = if code == 0 {
        ("Succeeded", "PodCompleted")
    } else {
        ("Failed", "PodFailed")
    };
    let started = status.start_time.as_ref().map(|time| time.0);
    status.phase = Some(phase.to_owned());
    for type_ in ["ContainersReady", "Ready"] {
        set(&mut status, type_, "False", Some(reason), now);
    }
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    status.container_statuses = Some(
        containers
            .map(|container| ContainerStatus {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                started: Some(false),
                state: Some(terminated(code, started, now)),
                ..ContainerStatus::default()
            })
            .collect(),
    );
    status
}

fn terminated(code: i32, started: Option<Timestamp>, now: Timestamp) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: code,
            reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
            started_at: Some(stamp(started.unwrap_or(now))),
            finished_at: Some(stamp(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

fn set(status: &mut PodStatus, type_: &str, value: &str, reason: Option<&str>, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.push(PodCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.map(str::to_owned),
        last_transition_time: Some(stamp(now)),
        ..PodCondition::default()
    });
}

#[cfg(test)]
mod tests;
