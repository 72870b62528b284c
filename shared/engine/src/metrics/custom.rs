//! Labels that the administrator adds to metrics, read from labels and annotations of queues, cohorts and Workloads.
//!
//! Labels of a queue or cohort are read when the page is made; those of a Workload, at the moment in which it is counted.
//! Invariant: all series of one metric have the same labels; a missing value is empty. *Source*: `spec/api.md API-13`
//! (`metrics.customLabels`), `spec/admission-engine.md 8`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use roadstead_api::config::{Config, CustomLabel, FeatureGate, LabelSourceKind};
use roadstead_api::constants::labels::UNTRACKED_VALUE;
use roadstead_core::name::Key;

use super::board::Labels;
use super::table::{Definition, Metric};
use crate::caches::Caches;

/// The configured labels; none while their gate is off.
#[derive(Clone, Debug, Default)]
pub(super) struct Custom(Vec<(String, CustomLabel)>);

impl Custom {
    pub(super) fn of(config: &Config) -> Self {
        if !config.feature_gates.enabled(FeatureGate::CustomMetricLabels) {
            return Self::default();
        }
        let named = |label: &CustomLabel| (format!("custom_{}", label.name), label.clone());
        Self(config.metrics.custom_labels.iter().map(named).collect())
    }

    /// The label values of a Workload, for a metric that counts single Workloads; appended to its other label values.
    pub(super) fn of_workload(&self, definition: &Definition, meta: &ObjectMeta) -> Vec<Arc<str>> {
        let from_workload = |label: &CustomLabel| label.source_kind == LabelSourceKind::Workload;
        { self.0.iter() }
            .filter(|(_, label)| from_workload(label) && has(definition, label.source_kind))
            .map(|(_, label)| value(label, Some(meta)).into())
            .collect()
    }

    pub(super) fn reads_workloads(&self) -> bool {
        self.0
            .iter()
            .any(|(_, label)| label.source_kind == LabelSourceKind::Workload)
    }

    /// Names and values of the labels of one series, in the order of the configuration.
    pub(super) fn of_series(
        &self,
        definition: &Definition,
        values: &Labels,
        caches: &Caches,
    ) -> Vec<(&str, String)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let of = |name: &str| {
            let at = definition.labels.iter().position(|label| *label == name)?;
            values.get(at)
        };
        let cluster_queue = || of("cluster_queue").or_else(|| of("preempting_cluster_queue"));
        let mut seen = values.iter().skip(definition.labels.len());
        let mut series = Vec::new();
        for (name, label) in &self.0 {
            if !has(definition, label.source_kind) {
                continue;
            }
            let value = match label.source_kind {
                LabelSourceKind::Workload => {
                    seen.next().map(|value| (**value).to_owned()).unwrap_or_default()
                }
                LabelSourceKind::ClusterQueue => {
                    let queue = cluster_queue().and_then(|name| caches.cluster_queues.named(name));
                    value(label, queue.as_ref().map(|queue| &queue.metadata))
                }
                LabelSourceKind::LocalQueue => {
                    let key = of("namespace").zip(of("name"));
                    let key = key.map(|(namespace, name)| Key::new(namespace.clone(), name.clone()));
                    let queue = key.and_then(|key| caches.local_queues.get(&key));
                    value(label, queue.as_ref().map(|queue| &queue.metadata))
                }
                LabelSourceKind::Cohort => {
                    let cohort = of("cohort").and_then(|name| caches.cohorts.named(name));
                    value(label, cohort.as_ref().map(|cohort| &cohort.metadata))
                }
            };
            series.push((name.as_str(), value));
        }
        series
    }
}

/// Whether each series of a metric is about one object of this kind: its queue or cohort is its first label, and single Workloads
/// have their priority class. Of the gauges, only that of admitted Workloads counts them one by one, as in the reference.
fn has(definition: &Definition, kind: LabelSourceKind) -> bool {
    let of_local = definition.labels.starts_with(&["name", "namespace"]);
    let of_cohort = definition.name.starts_with("kueue_cohort_");
    let any = |names: &[&str]| definition.labels.iter().any(|label| names.contains(label));
    match kind {
        LabelSourceKind::LocalQueue => of_local,
        LabelSourceKind::Cohort => of_cohort,
        LabelSourceKind::ClusterQueue => !of_local && any(&["cluster_queue", "preempting_cluster_queue"]),
        LabelSourceKind::Workload => {
            any(&["priority_class"]) || definition.name == Metric::AdmittedActiveWorkloads.definition().name
        }
    }
}

fn value(label: &CustomLabel, meta: Option<&ObjectMeta>) -> String {
    let read = |all: Option<&BTreeMap<String, String>>, key: &str| all.and_then(|all| all.get(key)).cloned();
    let value = meta.and_then(|meta| {
        if label.source_annotation_key.is_empty() {
            let key = match label.source_label_key.as_str() {
                "" => &label.name,
                key => key,
            };
            read(meta.labels.as_ref(), key)
        } else {
            read(meta.annotations.as_ref(), &label.source_annotation_key)
        }
    });
    let value = value.unwrap_or_default();
    let tracked =
        value.is_empty() || label.tracked_values.is_empty() || label.tracked_values.contains(&value);
    if tracked {
        value
    } else {
        UNTRACKED_VALUE.to_owned()
    }
}
