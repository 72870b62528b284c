//! Rules of `metrics`. Source: spec/api.md API-13.

use std::collections::BTreeMap;

use roadstead_api::config::{Config, FeatureGate, LabelSourceKind};

use super::super::Findings;
use super::{repeated, selector};

const LABELS_MAX: usize = 20;
const LABELS_PER_KIND_MAX: usize = 6;
const LABELS_FOR_WORKLOAD_MAX: usize = 2;
const TRACKED_FOR_WORKLOAD_MAX: usize = 12;
const TRACKED_MAX: usize = 16;

pub(super) fn check(config: &Config, findings: &mut Findings) {
    if let Some(queues) = &config.metrics.local_queue_selector {
        selector("metrics.localQueueMetrics.localQueueSelector", queues, findings);
    }
    let labels = &config.metrics.custom_labels;
    let all = "metrics.customLabels";
    let gate = FeatureGate::CustomMetricLabels;
    if !labels.is_empty() && !config.feature_gates.enabled(gate) {
        findings.add(all, format!("needs the feature gate {}", gate.name()));
    }
    if labels.len() > LABELS_MAX {
        findings.add(all, format!("must have at most {LABELS_MAX} items"));
    }
    let mut per_kind: BTreeMap<LabelSourceKind, usize> = BTreeMap::new();
    for label in labels {
        *per_kind.entry(label.source_kind).or_default() += 1;
    }
    for (kind, count) in per_kind {
        let max = match kind {
            LabelSourceKind::Workload => LABELS_FOR_WORKLOAD_MAX,
            LabelSourceKind::ClusterQueue | LabelSourceKind::LocalQueue | LabelSourceKind::Cohort => {
                LABELS_PER_KIND_MAX
            }
        };
        if count > max {
            findings.add(
                all,
                format!("must have at most {max} items with sourceKind {kind:?}"),
            );
        }
    }
    for index in repeated(labels.iter().map(|label| &label.name)) {
        findings.add(format!("{all}[{index}].name"), "is listed twice");
    }
    for (index, label) in labels.iter().enumerate() {
        let path = format!("{all}[{index}]");
        if !is_metric_name(&label.name) {
            findings.add(
                format!("{path}.name"),
                "must consist of letters, digits and _, and not begin with a digit",
            );
        }
        if !label.source_label_key.is_empty() && !label.source_annotation_key.is_empty() {
            findings.add(
                format!("{path}.sourceAnnotationKey"),
                "excludes sourceLabelKey; keep one of the two",
            );
        }
        let tracked = label.tracked_values.len();
        let path = format!("{path}.trackedValues");
        match label.source_kind {
            LabelSourceKind::Workload if tracked == 0 || tracked > TRACKED_FOR_WORKLOAD_MAX => {
                findings.add(
                    path,
                    format!("must have 1 to {TRACKED_FOR_WORKLOAD_MAX} items for a Workload"),
                );
            }
            LabelSourceKind::ClusterQueue | LabelSourceKind::LocalQueue | LabelSourceKind::Cohort
                if tracked > TRACKED_MAX =>
            {
                findings.add(path, format!("must have at most {TRACKED_MAX} items"));
            }
            LabelSourceKind::Workload
            | LabelSourceKind::ClusterQueue
            | LabelSourceKind::LocalQueue
            | LabelSourceKind::Cohort => {}
        }
    }
}

fn is_metric_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}
