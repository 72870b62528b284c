//! `config.kueue.x-k8s.io/v1beta1`, as written. Differences from v1beta2: spec/api.md API-13, last paragraph.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;

use super::model::{
    Config, CustomLabel, DeviceClassMapping, FairSharing, Integrations, LabelSourceKind, PodOptions,
    PreemptionStrategy, Resources, WaitForPodsReady,
};
use super::scalar::{DurationText, IntegrationKind, bind_or_unset};
use super::sections::{
    self, Federation, RequeuingSection, TransformationSection, frameworks, integration_kinds,
};
use super::v1beta2::VisibilitySection;
use super::{BindAddress, FeatureGates, LabelSelector, Roadstead};

sections::configuration! {
    _file => VisibilitySection::default();
    #[serde(rename = "queueVisibility")]
    _queue_visibility: Option<QueueVisibilitySection>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CustomLabelSection {
    name: String,
    source_label_key: Option<String>,
    source_annotation_key: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WaitSection {
    enable: Option<bool>,
    timeout: Option<DurationText>,
    block_admission: Option<bool>,
    recovery_timeout: Option<DurationText>,
    requeuing_strategy: Option<RequeuingSection>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IntegrationsSection {
    frameworks: Option<Vec<String>>,
    external_frameworks: Option<Vec<IntegrationKind>>,
    label_keys_to_copy: Option<Vec<String>>,
    pod_options: Option<PodOptions>,
}

type MultiKueueSection = Federation;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FairSharingSection {
    enable: Option<bool>,
    preemption_strategies: Option<Vec<PreemptionStrategy>>,
}

/// Accepted because old files have it; the reference ignores it too.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueueVisibilitySection {
    #[serde(rename = "updateIntervalSeconds")]
    _update_interval_seconds: Option<i32>,
    #[serde(rename = "clusterQueues")]
    _cluster_queues: Option<ClusterQueueVisibilitySection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterQueueVisibilitySection {
    #[serde(rename = "maxCount")]
    _max_count: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourcesSection {
    exclude_resource_prefixes: Option<Vec<String>>,
    transformations: Option<Vec<TransformationSection>>,
    device_class_mappings: Option<Vec<DeviceClassMapping>>,
}

impl CustomLabelSection {
    fn fill(self) -> CustomLabel {
        CustomLabel {
            name: self.name,
            source_label_key: self.source_label_key.unwrap_or_default(),
            source_annotation_key: self.source_annotation_key.unwrap_or_default(),
            source_kind: LabelSourceKind::default(),
            tracked_values: Vec::new(),
        }
    }
}

impl WaitSection {
    fn fill(self) -> Option<WaitForPodsReady> {
        let section = sections::WaitSection {
            timeout: self.timeout.or(Some(DurationText(SignedDuration::from_mins(5)))),
            block_admission: self.block_admission.or(Some(true)),
            recovery_timeout: self.recovery_timeout,
            requeuing_strategy: self.requeuing_strategy,
        };
        self.enable.unwrap_or(false).then(|| section.fill())
    }
}

impl IntegrationsSection {
    fn fill(self) -> Integrations {
        Integrations {
            frameworks: frameworks(self.frameworks),
            external_frameworks: integration_kinds(self.external_frameworks),
            label_keys_to_copy: self.label_keys_to_copy.unwrap_or_default(),
            pod_options: self.pod_options,
        }
    }
}

impl FairSharingSection {
    fn fill(self) -> Option<FairSharing> {
        let strategies = self
            .preemption_strategies
            .filter(|list| !list.is_empty())
            .unwrap_or_else(|| {
                vec![
                    PreemptionStrategy::LessThanOrEqualToFinalShare,
                    PreemptionStrategy::LessThanInitialShare,
                ]
            });
        self.enable.unwrap_or(false).then_some(FairSharing {
            preemption_strategies: strategies,
        })
    }
}

impl ResourcesSection {
    fn fill(self) -> Resources {
        let section = sections::ResourcesSection {
            exclude_resource_prefixes: self.exclude_resource_prefixes,
            quota_check_strategy: None,
            transformations: self.transformations,
            device_class_mappings: self.device_class_mappings,
        };
        section.fill()
    }
}
