//! The injection into pod templates at the start of a job, and its removal at the stop.
//!
//! *Source*: `spec/jobs.md 5.8, 5.9`.

use std::collections::BTreeMap;
use std::fmt;

use roadstead_api::constants::labels::is_label_value;
use roadstead_api::constants::{annotations, labels};
use roadstead_core::name::{CheckName, FlavorName};
use roadstead_core::queue::Flavor;
use roadstead_core::status::{Admission, CheckState};
use roadstead_core::taint::Toleration;
use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::json;
use crate::problem::is_label;

/// One homogeneous group of pods of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct JobPodSet {
    /// Its name, lower case.
    pub name: String,
    /// The number of pods.
    pub count: u32,
    /// The least number of pods with which it could start.
    pub min_count: Option<u32>,
    /// The pod template, as the job has it.
    pub template: Value,
}

impl fmt::Debug for JobPodSet {
    /// Leaves the template out: environment variables of its containers may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobPodSet")
            .field("name", &self.name)
            .field("count", &self.count)
            .field("min_count", &self.min_count)
            .finish_non_exhaustive()
    }
}

/// What to add to the pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetInfo {
    /// The pod set.
    pub name: String,
    /// The number of admitted pods.
    pub count: u32,
    /// Labels to add.
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    pub annotations: BTreeMap<String, String>,
    /// Node selector entries to add.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations, as in a pod spec.
    pub tolerations: Vec<Value>,
}

/// Why a job cannot be started with its assignment.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum InjectError {
    /// Two sources want different values for one key. Permanent: the Workload ends with reason `FailedToStart`.
    // Wire: the text of the reference up to the last colon.
    #[error(
        "invalid admission check PodSetUpdate: conflict for {part}: key \"{key}\" is \"{old}\", cannot become \"{new}\""
    )]
    Conflict {
        /// `labels`, `annotations` or `nodeSelector`.
        part: &'static str,
        /// The key.
        key: String,
        /// The value before the injection.
        old: String,
        /// The value to inject.
        new: String,
    },
    /// The admission does not have as many pod sets as the job. Permanent.
    #[error("invalid podset infos: expecting {expected} podset, got {got}")]
    Count {
        /// Pod sets of the job.
        expected: usize,
        /// Pod sets of the admission.
        got: usize,
    },
    /// An assigned `ResourceFlavor` does not exist. It may come back.
    #[error("resource flavor \"{0}\" that was assigned does not exist: create it, or evict the workload")]
    MissingFlavor(FlavorName),
}

impl InjectError {
    /// Whether trying again later is pointless, so that the Workload must end with reason `FailedToStart`.
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::Count { .. } => true,
            Self::MissingFlavor(_) => false,
        }
    }
}

/// Whether a Workload was created in this cluster or copied here by a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// It was created here.
    Local,
    /// It carries the origin label of a manager.
    Remote,
}

/// The facts about an admitted Workload that its start needs.
#[derive(Clone, Copy, Debug)]
pub struct StartFacts<'a> {
    /// The Workload's name.
    pub workload: &'a str,
    /// The `LocalQueue` it was submitted to.
    pub local_queue: &'a str,
    /// Whether it is a remote copy.
    pub provenance: Provenance,
    /// Its quota reservation.
    pub admission: &'a Admission,
    /// Its checks.
    pub checks: &'a BTreeMap<CheckName, CheckState>,
    /// All existing flavors.
    pub flavors: &'a BTreeMap<FlavorName, Flavor>,
}

/// The info for each pod set, in the order of the admission.
///
/// *Errors*: a flavor is missing, or two sources disagree.
pub fn infos(facts: &StartFacts<'_>) -> Result<Vec<PodSetInfo>, InjectError> {
    facts
        .admission
        .pod_sets
        .iter()
        .map(|assignment| {
            let mut info = PodSetInfo {
                name: assignment.name.to_string(),
                count: assignment.count,
                ..PodSetInfo::default()
            };
            let label = |info: &mut PodSetInfo, key: &str, value: &str| {
                info.labels.insert(key.to_owned(), value.to_owned());
            };
            label(&mut info, labels::PODSET, assignment.name.as_str());
            // Why: label values have limits that queue names do not have.
            if !facts.local_queue.is_empty() && is_label_value(facts.local_queue) {
                label(&mut info, labels::LOCAL_QUEUE_NAME, facts.local_queue);
            }
            // Wire: the name of a ClusterQueue with a dot is left out, although it could be the value of a label.
            if is_label(facts.admission.cluster_queue.as_str()) {
                label(
                    &mut info,
                    labels::CLUSTER_QUEUE_NAME,
                    facts.admission.cluster_queue.as_str(),
                );
            }
            if facts.provenance == Provenance::Remote {
                label(&mut info, labels::MULTIKUEUE_WORKER_WORKLOAD_POD, labels::TRUE);
            }
            info.annotations
                .insert(annotations::WORKLOAD.to_owned(), facts.workload.to_owned());
            let mut names: Vec<&FlavorName> = assignment.flavors.values().collect();
            names.sort();
            names.dedup();
            for name in names {
                let flavor = facts
                    .flavors
                    .get(name)
                    .ok_or_else(|| InjectError::MissingFlavor(name.clone()))?;
                add(&mut info.node_selector, &flavor.node_labels, "nodeSelector")?;
                add_tolerations(&mut info.tolerations, flavor.tolerations.iter().map(toleration));
            }
            for check in facts.checks.values() {
                for update in check
                    .updates
                    .iter()
                    .filter(|update| update.name == assignment.name)
                {
                    add(&mut info.labels, &update.labels, "labels")?;
                    add(&mut info.annotations, &update.annotations, "annotations")?;
                    add(&mut info.node_selector, &update.node_selector, "nodeSelector")?;
                    add_tolerations(&mut info.tolerations, update.tolerations.iter().map(toleration));
                }
            }
            Ok(info)
        })
        .collect()
}

/// Merges an info into a pod template.
///
/// *Errors*: the template has another value for a key.
pub fn inject(template: &mut Value, info: &PodSetInfo) -> Result<(), InjectError> {
    for (path, part, added) in [
        (["metadata", "labels"], "labels", &info.labels),
        (["metadata", "annotations"], "annotations", &info.annotations),
        (["spec", "nodeSelector"], "nodeSelector", &info.node_selector),
    ] {
        let mut have = texts(json::at(template, &path));
        add(&mut have, added, part)?;
        if !added.is_empty() {
            json::set(template, &path, json!(have));
        }
    }
    if !info.tolerations.is_empty() {
        let mut have = json::list(template, &["spec", "tolerations"]).to_vec();
        add_tolerations(&mut have, info.tolerations.iter().cloned());
        json::set(template, &["spec", "tolerations"], Value::Array(have));
    }
    Ok(())
}

/// The fields of a template that a start may change and a stop restores.
const RESTORED: [[&str; 2]; 5] = [
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec", "nodeSelector"],
    ["spec", "tolerations"],
    ["spec", "schedulingGates"],
];

/// Restores the fields that a start may have changed, except labels whose keys are in `kept`.
pub fn restore(template: &mut Value, original: &Value, kept: &[&str]) {
    let mut own: BTreeMap<String, String> = texts(json::at(template, &["metadata", "labels"]));
    own.retain(|key, _| kept.contains(&key.as_str()));
    for path in RESTORED {
        match json::at(original, &path) {
            Some(value) => json::set(template, &path, value.clone()),
            None => json::remove(template, &path),
        }
    }
    for (key, value) in own {
        json::set(
            template,
            &["metadata", "labels", key.as_str()],
            Value::String(value),
        );
    }
}

/// The pod sets as they look while they run with these infos. *Source*: `spec/jobs.md 5.5`.
///
/// *Errors*: as [`inject`], and the numbers differ.
pub fn running_form(pod_sets: &[JobPodSet], infos: &[PodSetInfo]) -> Result<Vec<JobPodSet>, InjectError> {
    same_number(pod_sets.len(), infos.len())?;
    pod_sets
        .iter()
        .zip(infos)
        .map(|(pod_set, info)| {
            let mut running = pod_set.clone();
            inject(&mut running.template, info)?;
            if running.min_count.is_some() {
                running.count = info.count;
            }
            Ok(running)
        })
        .collect()
}

/// Refuses infos that are not one for each pod set.
///
/// *Errors*: the numbers differ.
pub fn same_number(expected: usize, got: usize) -> Result<(), InjectError> {
    if expected == got {
        Ok(())
    } else {
        Err(InjectError::Count { expected, got })
    }
}

fn texts(map: Option<&Value>) -> BTreeMap<String, String> {
    let fields = map.and_then(Value::as_object).into_iter().flatten();
    fields
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn add(
    have: &mut BTreeMap<String, String>,
    added: &BTreeMap<String, String>,
    part: &'static str,
) -> Result<(), InjectError> {
    for (key, new) in added {
        match have.get(key) {
            Some(old) if old != new => {
                return Err(InjectError::Conflict {
                    part,
                    key: key.clone(),
                    old: old.clone(),
                    new: new.clone(),
                });
            }
            Some(_) => {}
            None => {
                have.insert(key.clone(), new.clone());
            }
        }
    }
    Ok(())
}

fn add_tolerations(have: &mut Vec<Value>, added: impl Iterator<Item = Value>) {
    for toleration in added {
        if !have.contains(&toleration) {
            have.push(toleration);
        }
    }
}

/// A toleration in the form of a pod spec.
pub fn toleration(toleration: &Toleration) -> Value {
    let mut value = json!({});
    for (key, text) in [
        ("key", &toleration.key),
        ("operator", &toleration.operator),
        ("value", &toleration.value),
        ("effect", &toleration.effect),
    ] {
        if let Some(text) = text {
            json::set(&mut value, &[key], json!(text));
        }
    }
    if let Some(seconds) = toleration.seconds {
        json::set(&mut value, &["tolerationSeconds"], json!(seconds));
    }
    value
}

#[cfg(test)]
mod tests;
