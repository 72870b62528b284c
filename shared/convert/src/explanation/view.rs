//! What is shown of one Workload: a state, one top reason, one next step, and the answer of each cluster. The command line, and every
//! other place that explains a Workload, renders this and finds out nothing by itself.
//!
//! Invariant: a pure function of the object and the time; every Workload has exactly one state and, unless it runs or has
//! ended, exactly one reason with a next step (`spec/experience.md 5`).

use jiff::Timestamp;
use kube::ResourceExt as _;
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::{CheckState, Workload};
use roadstead_core::dispatch::NOT_MANAGED;
use roadstead_core::dispatch::record::{Answered, Record};
use roadstead_core::reason::PendingReason;
use roadstead_jobs::labels::controller;
use serde::Serialize;

use super::line::Line;
use super::parse;

/// The state of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// It has ended.
    Finished,
    /// Its `spec.active` is false.
    Deactivated,
    /// It is being stopped, and still holds quota.
    Stopping,
    /// Its job runs, or may run.
    Running,
    /// Its worker does not answer.
    WorkerLost,
    /// It holds quota and waits for the admission check that places it on a worker.
    WaitingForPlacement,
    /// It holds quota and waits for other admission checks, such as a provisioning check.
    WaitingForChecks,
    /// It waits for quota.
    WaitingForQuota,
}

impl State {
    /// The state in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Deactivated => "deactivated",
            Self::Stopping => "stopping",
            Self::Running => "running",
            Self::WorkerLost => "running on a worker that does not answer",
            Self::WaitingForPlacement => "waiting for a worker",
            Self::WaitingForChecks => "waiting for admission checks",
            Self::WaitingForQuota => "waiting for quota",
        }
    }
}

/// What is shown of one Workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Namespace and name of the Workload.
    pub workload: String,
    /// Kind and name of the job.
    pub job: Option<String>,
    /// The state.
    pub state: State,
    /// The cluster that holds it.
    pub cluster: Option<String>,
    /// The top reason: a CamelCase token.
    pub reason: String,
    /// The message.
    pub message: String,
    /// What to do; empty when there is nothing to do.
    pub next: String,
    /// Since when it has this reason, RFC 3339.
    pub since: Option<Timestamp>,
    /// The last answer of each cluster.
    pub clusters: Vec<Row>,
}

/// The answer of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The name of the cluster.
    pub cluster: String,
    /// The token of its answer.
    pub answer: String,
    /// Its message; may be empty.
    pub detail: String,
    /// Since when it gives this answer, RFC 3339.
    pub since: Option<Timestamp>,
    /// How long it has given this answer, in seconds.
    pub age_seconds: Option<i64>,
}

struct Top {
    reason: String,
    message: String,
    next: String,
    since: Option<Timestamp>,
}

/// The reason of a Workload that its queue has not tried.
pub const PENDING_EVALUATION: &str = PendingReason::PendingEvaluation.as_str();

impl View {
    /// Sets the reason: another Workload of the queue is tried first.
    pub fn stands_in(&mut self, line: &Line) {
        let Line {
            head,
            namespace,
            queue,
            position,
        } = line;
        self.message = format!("waits behind {head} in StrictFIFO queue {queue}, position {position}");
        let name = head.rsplit(' ').next().unwrap_or(head);
        self.next = format!("roadstead explain {name} -n {namespace}");
    }
}

/// What is shown of this Workload at the time `now`.
pub fn view(workload: &Workload, now: Timestamp) -> View {
    let text = workload.annotations().get(EXPLANATION);
    let record = text.and_then(|text| parse(text));
    let (state, top) = top(workload, record.as_ref());
    let owner = controller(&workload.metadata).or_else(|| workload.owner_references().first());
    let clusters = match state {
        State::WaitingForPlacement | State::WorkerLost => rows(workload, record.as_ref(), now),
        State::Finished
        | State::Deactivated
        | State::Stopping
        | State::Running
        | State::WaitingForChecks
        | State::WaitingForQuota => Vec::new(),
    };
    View {
        workload: format!(
            "{}/{}",
            workload.namespace().unwrap_or_default(),
            workload.name_any()
        ),
        job: owner.map(|owner| format!("{} {}", owner.kind, owner.name)),
        state,
        cluster: workload.cluster_name().map(str::to_owned),
        reason: top.reason,
        message: top.message,
        next: top.next,
        since: top.since,
        clusters,
    }
}

fn top(workload: &Workload, record: Option<&Record>) -> (State, Top) {
    let said = |kind: &str| workload.condition(kind).filter(|c| c.status == "True");
    let of = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition, next: &str| Top {
        reason: c.reason.clone(),
        message: c.message.clone(),
        next: next.to_owned(),
        since: Some(c.last_transition_time.0),
    };
    if let Some(end) = said("Finished") {
        return (State::Finished, of(end, ""));
    }
    if !workload.is_active() {
        let evicted = said("Evicted").filter(|c| c.reason.starts_with("Deactivated"));
        let next = match evicted {
            // Why not the advice to activate it again: `managedBy` of an existing job cannot be changed.
            Some(evicted) if evicted.message.contains(NOT_MANAGED) => {
                "delete the job and create it again: the field is filled in when the job is created, if its queue exists by then and \
                 leads to workers"
            }
            Some(_) | None => "correct what the message names, then set spec.active of the workload to true",
        };
        let top = evicted.map_or_else(
            || plain("Deactivated", "spec.active of the workload is false", next),
            |evicted| of(evicted, next),
        );
        return (State::Deactivated, top);
    }
    let quota = workload.is_true("QuotaReserved");
    if let Some(evicted) = said("Evicted").filter(|_| quota) {
        return (
            State::Stopping,
            of(evicted, "nothing: it is queued again when it has stopped"),
        );
    }
    let placed = workload.cluster_name().is_some();
    if let Some(record) = record.filter(|record| quota && placed && record.reason == "WorkerLost") {
        return (State::WorkerLost, of_record(record));
    }
    if let Some(admitted) = said("Admitted") {
        return (State::Running, running(workload, of(admitted, "")));
    }
    if quota {
        let state = if seeks_worker(workload, record) {
            State::WaitingForPlacement
        } else {
            State::WaitingForChecks
        };
        return (state, placement(workload, record));
    }
    (State::WaitingForQuota, waiting_for_quota(workload))
}

/// Whether a worker is sought for a Workload with quota. A cluster without workers nominates none and writes no record; a manager seeks
/// none while other checks are not ready.
fn seeks_worker(workload: &Workload, record: Option<&Record>) -> bool {
    record.map_or_else(
        || { workload.status.iter() }.any(|status| !status.nominated_cluster_names.is_empty()),
        |record| record.reason != "OtherChecksNotReady",
    )
}

fn plain(reason: &str, message: &str, next: &str) -> Top {
    Top {
        reason: reason.to_owned(),
        message: message.to_owned(),
        next: next.to_owned(),
        since: None,
    }
}

fn of_record(record: &Record) -> Top {
    Top {
        reason: record.reason.clone(),
        message: record.message.clone(),
        next: record.next.clone(),
        since: Some(record.since),
    }
}

fn running(workload: &Workload, admitted: Top) -> Top {
    let place = workload
        .cluster_name()
        .map_or_else(|| "this cluster".to_owned(), |name| format!("cluster \"{name}\""));
    match workload.condition("PodsReady") {
        Some(ready) if ready.status != "True" => Top {
            reason: "WaitingForPodsReady".to_owned(),
            message: format!("its pods on {place} are not ready"),
            next: "look at the pods there".to_owned(),
            since: Some(ready.last_transition_time.0),
        },
        Some(_) | None => Top {
            message: format!("it runs on {place}"),
            ..admitted
        },
    }
}

/// For a Workload with quota: the record tells why it is not placed, else the first check that is not ready.
fn placement(workload: &Workload, record: Option<&Record>) -> Top {
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    let open = checks.filter(|check| check.state != CheckState::Ready);
    let Some(check) = open.into_iter().next() else {
        let message = "everything is ready; it is being admitted";
        return plain("BeingAdmitted", message, "look again in a few seconds");
    };
    // Why only while Pending: the record explains the search for a worker, not a check that asks for a retry or rejects.
    if let Some(record) = record.filter(|_| check.state == CheckState::Pending) {
        return of_record(record);
    }
    let message = if check.message.is_empty() {
        format!("admission check \"{}\" has not answered yet", check.name)
    } else {
        format!("admission check \"{}\": {}", check.name, check.message)
    };
    Top {
        reason: "WaitingForChecks".to_owned(),
        message,
        next: format!(
            "look again in a few seconds, or at admission check \"{}\"",
            check.name
        ),
        since: Some(check.last_transition_time.0),
    }
}

fn waiting_for_quota(workload: &Workload) -> Top {
    let again = workload
        .status
        .as_ref()
        .and_then(|status| status.requeue_state.as_ref());
    if let Some(requeued) = workload.condition("Requeued").filter(|c| c.status == "False") {
        let at = again.and_then(|state| state.requeue_at.as_ref());
        let mut next = at.map_or_else(
            || "nothing: it is queued again by itself".to_owned(),
            |at| format!("nothing: it is queued again at {:.0}", at.0),
        );
        if requeued.reason == "AdmissionCheck" {
            let namespace = workload.namespace().unwrap_or_default();
            next.push_str("; what a provisioning check said: kubectl get provisioningrequests -n ");
            next.push_str(&namespace);
        }
        return Top {
            reason: requeued.reason.clone(),
            message: requeued.message.clone(),
            next,
            since: Some(requeued.last_transition_time.0),
        };
    }
    let Some(quota) = workload.condition("QuotaReserved") else {
        return plain(
            PENDING_EVALUATION,
            "its queue has not tried it yet",
            "look again in a few seconds; if that does not help, check that the manager runs",
        );
    };
    let queue = workload.spec.queue_name.as_deref().unwrap_or_default();
    let next = match quota.reason.as_str() {
        "ExceedsMaxQuota" => "ask for less, or give the queue more quota".to_owned(),
        "ExceedsEveryWorker" => {
            format!(
                "ask for less, or give the ClusterQueue behind LocalQueue \"{queue}\" more quota on a worker"
            )
        }
        "Misconfigured" | "NoMatchingFlavor" | "Suspended" | "OnHold" | "Inadmissible" => {
            look(&quota.message, queue, &workload.namespace().unwrap_or_default())
        }
        "AdmissionPaused" => {
            "nothing for the user; the administrator sets admission.paused to false in the configuration file and restarts Roadstead"
                .to_owned()
        }
        "AdmissionGated" => "the user or controller who set the gate must remove it".to_owned(),
        _ => format!("wait, or see which workloads use the quota behind LocalQueue \"{queue}\""),
    };
    Top {
        reason: quota.reason.clone(),
        message: quota.message.clone(),
        next,
        since: Some(quota.last_transition_time.0),
    }
}

/// The command that shows what the message is about. Wire: it compares the first words of the engine's messages
/// (`spec/admission-engine.md 1.1, 2.3`).
fn look(message: &str, queue: &str, namespace: &str) -> String {
    let mut words = message.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("LocalQueue"), Some(_), Some("doesn't")) => {
            format!("name an existing one: kubectl get localqueues -n {namespace}")
        }
        (Some("LocalQueue"), Some(name), _) => format!(
            "it is stopped: kubectl get localqueue {name} -n {namespace} -o jsonpath='{{.spec.stopPolicy}}'"
        ),
        (Some("ClusterQueue"), Some(_), Some("doesn't")) => {
            format!(
                "create it, or let the LocalQueue name another: kubectl get localqueue {queue} -n {namespace} -o yaml"
            )
        }
        (Some("ClusterQueue"), Some(name), _) => {
            format!("its condition Active says why: kubectl describe clusterqueue {name}")
        }
        _ if message.contains("LimitRange") => {
            format!("ask for what it allows: kubectl describe limitrange -n {namespace}")
        }
        _ => format!(
            "correct what the message names; the queue: kubectl get localqueue {queue} -n {namespace} -o yaml"
        ),
    }
}

/// The answers of the clusters in the record; without a record, one row `Asked` for each nominated cluster.
fn rows(workload: &Workload, record: Option<&Record>, now: Timestamp) -> Vec<Row> {
    let Some(record) = record else {
        let asked = workload
            .status
            .iter()
            .flat_map(|status| &status.nominated_cluster_names);
        let row = |cluster: &String| Row {
            cluster: cluster.clone(),
            answer: "Asked".to_owned(),
            detail: String::new(),
            since: None,
            age_seconds: None,
        };
        return asked.map(row).collect();
    };
    let row = |answered: &Answered| Row {
        cluster: answered.cluster.clone(),
        answer: answered.reply.clone(),
        detail: answered.detail.clone(),
        since: Some(answered.since),
        age_seconds: Some(now.duration_since(answered.since).as_secs().max(0)),
    };
    record.answers.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
