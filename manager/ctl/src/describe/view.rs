//! A job and what is known of it, for people and for scripts. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use roadstead_api::kueue::v1beta2::{AdmissionCheckState, Workload};
use roadstead_convert::explanation::view::View;
use roadstead_core::quantity;
use serde::Serialize;

use crate::event;
use crate::explain::Answer;
use crate::explain::text::render as explained;
use crate::table::{age, shown, table};

/// What is known of a job besides its Workload.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The ClusterQueue to which the LocalQueue of the job leads.
    pub cluster_queue: Option<String>,
    /// Events of the job and its Workload, the oldest first.
    pub events: Vec<Event>,
}

/// The description of one job.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// What `explain` says.
    #[serde(flatten)]
    pub view: View,
    /// Name of the Workload.
    #[serde(skip)]
    pub name: String,
    /// The LocalQueue.
    pub queue: Option<String>,
    /// The ClusterQueue: of the admission, else the one that the LocalQueue leads to.
    pub cluster_queue: Option<String>,
    /// Its priority; a larger number goes first.
    pub priority: Option<i32>,
    /// Where the priority comes from.
    pub priority_class: Option<String>,
    /// When the Workload was created, RFC 3339.
    pub created: Option<Timestamp>,
    /// Its pods.
    pub pod_sets: Vec<PodSet>,
    /// As in the status of the Workload.
    pub admission_checks: Vec<AdmissionCheckState>,
    /// As in the status of the Workload.
    pub conditions: Vec<Condition>,
    /// The oldest first.
    pub events: Vec<Event>,
}

/// Pods that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// How many pods: those that are admitted, else those that are asked for.
    pub count: u32,
    /// What one pod asks for.
    pub requests: BTreeMap<String, String>,
    /// The flavor of each resource, once quota is reserved.
    pub flavors: BTreeMap<String, String>,
}

/// Builds the description of a job.
pub fn describe(answer: Answer, facts: Facts) -> Description {
    let Answer { workload, view } = answer;
    let status = workload.status.clone().unwrap_or_default();
    let of_admission = status
        .admission
        .as_ref()
        .map(|admission| admission.cluster_queue.clone());
    Description {
        view,
        name: workload.name_any(),
        queue: workload.spec.queue_name.clone(),
        cluster_queue: of_admission.or(facts.cluster_queue),
        priority: workload.spec.priority,
        priority_class: workload
            .spec
            .priority_class_ref
            .as_ref()
            .map(|class| class.name.clone()),
        created: workload.creation_timestamp().map(|created| created.0),
        pod_sets: pod_sets(&workload),
        admission_checks: status.admission_checks,
        conditions: status.conditions,
        events: facts.events,
    }
}

fn pod_sets(workload: &Workload) -> Vec<PodSet> {
    let asked = roadstead_convert::workload(workload).pod_sets;
    let assigned = |name: &str| {
        let admission = workload.admission()?;
        admission
            .pod_set_assignments
            .iter()
            .find(|assigned| assigned.name == name)
    };
    let pod_set = |asked: &roadstead_core::workload::PodSet| {
        let assigned = assigned(asked.name.as_str());
        let count = assigned.and_then(|assigned| u32::try_from(assigned.count?).ok());
        let requests = asked
            .requests
            .iter()
            .map(|(resource, amount)| (resource.as_str().to_owned(), quantity::print(resource, *amount)));
        PodSet {
            name: asked.name.as_str().to_owned(),
            count: count.unwrap_or(asked.count),
            requests: requests.collect(),
            flavors: assigned.map_or_else(BTreeMap::new, |assigned| assigned.flavors.clone()),
        }
    };
    asked.iter().map(pod_set).collect()
}

/// The description as text, for people.
pub fn render(one: &Description, now: Timestamp) -> String {
    let mut text = explained(&one.view, now);
    let mut field = |name: &str, value: String| {
        let _infallible = write!(text, "\n{:<10}{}", format!("{name}:"), shown(&value));
    };
    let queue = one.queue.clone().unwrap_or_default();
    field(
        "Queue",
        match &one.cluster_queue {
            Some(cluster_queue) => format!("{queue} (ClusterQueue {cluster_queue})"),
            None => queue,
        },
    );
    field("Cluster", one.view.cluster.clone().unwrap_or_default());
    let priority = one
        .priority
        .map_or_else(String::new, |priority| priority.to_string());
    field(
        "Priority",
        match &one.priority_class {
            Some(class) => format!("{priority} ({class})"),
            None => priority,
        },
    );
    let created = one.created.map(|at| format!("{at:.0} ({} ago)", age(at, now)));
    field("Created", created.unwrap_or_default());
    let sections = [
        section(
            "Pod sets",
            &["NAME", "COUNT", "REQUESTS OF ONE POD", "FLAVORS"],
            pod_set_rows(&one.pod_sets),
        ),
        section(
            "Admission checks",
            &["NAME", "STATE", "AGE", "MESSAGE"],
            check_rows(&one.admission_checks, now),
        ),
        section(
            "Conditions",
            &["TYPE", "STATUS", "REASON", "AGE", "MESSAGE"],
            condition_rows(&one.conditions, now),
        ),
        section(
            "Events",
            event::COLUMNS,
            one.events.iter().map(|event| event::cells(event, now)).collect(),
        ),
    ];
    for section in sections {
        text.push('\n');
        text.push_str(&section);
    }
    text
}

fn section(name: &str, header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("{name}: none");
    }
    let table = table(header, rows);
    format!("{name}:\n  {}", table.replace('\n', "\n  "))
}

fn pod_set_rows(pod_sets: &[PodSet]) -> Vec<Vec<String>> {
    let pairs = |all: &BTreeMap<String, String>| {
        let pairs: Vec<String> = all
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        pairs.join(",")
    };
    let row = |pod_set: &PodSet| {
        vec![
            pod_set.name.clone(),
            pod_set.count.to_string(),
            pairs(&pod_set.requests),
            pairs(&pod_set.flavors),
        ]
    };
    pod_sets.iter().map(row).collect()
}

fn check_rows(checks: &[AdmissionCheckState], now: Timestamp) -> Vec<Vec<String>> {
    let row = |check: &AdmissionCheckState| {
        vec![
            check.name.clone(),
            format!("{:?}", check.state),
            age(check.last_transition_time.0, now),
            check.message.clone(),
        ]
    };
    checks.iter().map(row).collect()
}

fn condition_rows(conditions: &[Condition], now: Timestamp) -> Vec<Vec<String>> {
    let row = |condition: &Condition| {
        vec![
            condition.type_.clone(),
            condition.status.clone(),
            condition.reason.clone(),
            age(condition.last_transition_time.0, now),
            condition.message.clone(),
        ]
    };
    conditions.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
