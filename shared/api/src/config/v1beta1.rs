//! `config.kueue.x-k8s.io/v1beta1`, as written. Differences from v1beta2: spec/api.md API-13, last paragraph.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;

use super::model::{
    Config, CustomLabel, DeviceClassMapping, FairSharing, Integrations, LabelSourceKind, Metrics, PodOptions,
    PreemptionStrategy, QuotaCheckStrategy, Resources, WaitForPodsReady,
};
use super::scalar::{DurationText, IntegrationKind, bind_or_unset};
use super::sections::{
    AdmissionFairSharingSection, CertManagementSection, ClientConnectionSection, ControllerSection,
    Federation, HealthSection, LeaderElectionSection, LocalQueueMetricsSection, RemoteFramework,
    RequeuingSection, RetentionSection, TlsSection, TransformationSection, WaitDefaults, WebhookSection,
    frameworks, integration_kinds, metrics_bind, resources, text_or, wait_for_pods_ready,
};
use super::v1beta2::visibility_default;
use super::{BindAddress, FeatureGates, LabelSelector, MultiKueue, Roadstead};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    namespace: Option<String>,
    manage_jobs_without_queue_name: Option<bool>,
    managed_jobs_namespace_selector: Option<LabelSelector>,
    webhook: Option<WebhookSection>,
    health: Option<HealthSection>,
    metrics: Option<MetricsSection>,
    #[serde(default, deserialize_with = "bind_or_unset")]
    pprof_bind_address: Option<BindAddress>,
    leader_election: Option<LeaderElectionSection>,
    controller: Option<ControllerSection>,
    client_connection: Option<ClientConnectionSection>,
    tls: Option<TlsSection>,
    internal_cert_management: Option<CertManagementSection>,
    wait_for_pods_ready: Option<WaitSection>,
    integrations: Option<IntegrationsSection>,
    multi_kueue: Option<MultiKueueSection>,
    fair_sharing: Option<FairSharingSection>,
    admission_fair_sharing: Option<AdmissionFairSharingSection>,
    #[serde(rename = "queueVisibility")]
    _queue_visibility: Option<QueueVisibilitySection>,
    resources: Option<ResourcesSection>,
    object_retention_policies: Option<RetentionSection>,
    feature_gates: Option<BTreeMap<String, bool>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetricsSection {
    #[serde(default, deserialize_with = "bind_or_unset")]
    bind_address: Option<BindAddress>,
    enable_cluster_queue_resources: Option<bool>,
    custom_labels: Option<Vec<CustomLabelSection>>,
    local_queue_metrics: Option<LocalQueueMetricsSection>,
}

#[derive(Deserialize)]
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
    pod_options: Option<PodOptionsSection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodOptionsSection {
    namespace_selector: Option<LabelSelector>,
    pod_selector: Option<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MultiKueueSection {
    gc_interval: Option<DurationText>,
    origin: Option<String>,
    worker_lost_timeout: Option<DurationText>,
    dispatcher_name: Option<String>,
    external_frameworks: Option<Vec<RemoteFramework>>,
}

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

impl MetricsSection {
    fn fill(self) -> Metrics {
        let Self {
            bind_address,
            enable_cluster_queue_resources,
            custom_labels,
            local_queue_metrics,
        } = self;
        let local = local_queue_metrics.unwrap_or_default();
        let labels = custom_labels
            .unwrap_or_default()
            .into_iter()
            .map(|section| CustomLabel {
                name: section.name,
                source_label_key: section.source_label_key.unwrap_or_default(),
                source_annotation_key: section.source_annotation_key.unwrap_or_default(),
                source_kind: LabelSourceKind::default(),
                tracked_values: Vec::new(),
            });
        Metrics {
            bind: metrics_bind(bind_address),
            enable_cluster_queue_resources: enable_cluster_queue_resources.unwrap_or(false),
            custom_labels: labels.collect(),
            local_queue_enable: local.enable.unwrap_or(true),
            local_queue_selector: local.local_queue_selector,
        }
    }
}

impl WaitSection {
    fn fill(self) -> Option<WaitForPodsReady> {
        let Self {
            enable,
            timeout,
            block_admission,
            recovery_timeout,
            requeuing_strategy,
        } = self;
        let defaults = WaitDefaults {
            timeout: SignedDuration::from_mins(5),
            block_admission: true,
        };
        enable.unwrap_or(false).then(|| {
            wait_for_pods_ready(
                &defaults,
                timeout,
                block_admission,
                recovery_timeout,
                requeuing_strategy,
            )
        })
    }
}

impl IntegrationsSection {
    fn fill(self) -> Integrations {
        Integrations {
            frameworks: frameworks(self.frameworks),
            external_frameworks: integration_kinds(self.external_frameworks),
            label_keys_to_copy: self.label_keys_to_copy.unwrap_or_default(),
            pod_options: self.pod_options.map(|options| PodOptions {
                namespace_selector: options.namespace_selector,
                pod_selector: options.pod_selector,
            }),
        }
    }
}

impl MultiKueueSection {
    fn fill(self) -> MultiKueue {
        let Self {
            gc_interval,
            origin,
            worker_lost_timeout,
            dispatcher_name,
            external_frameworks,
        } = self;
        Federation {
            gc_interval,
            origin,
            worker_lost_timeout,
            dispatcher_name,
            external_frameworks,
        }
        .fill()
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
        let Self {
            exclude_resource_prefixes,
            transformations,
            device_class_mappings,
        } = self;
        let strategy = Some(QuotaCheckStrategy::default());
        resources(
            exclude_resource_prefixes,
            strategy,
            transformations,
            device_class_mappings,
        )
    }
}

impl Configuration {
    /// Fills in every default. `own_namespace` is the namespace of the process, for files that name none.
    pub(super) fn fill(self, own_namespace: &str) -> Config {
        let namespace = text_or(self.namespace, own_namespace);
        let (group_kind_concurrency, cache_sync_timeout) = self.controller.unwrap_or_default().fill();
        let (client_qps, client_burst) = self.client_connection.unwrap_or_default().fill();
        Config {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name.unwrap_or(false),
            managed_jobs_namespace_selector: self
                .managed_jobs_namespace_selector
                .unwrap_or_else(|| LabelSelector::namespaces_except(&["kube-system", &namespace])),
            namespace,
            webhook: self.webhook.unwrap_or_default().fill(),
            health: self.health.unwrap_or_default().fill(),
            metrics: self.metrics.unwrap_or_default().fill(),
            pprof: self.pprof_bind_address.unwrap_or(BindAddress::Disabled),
            leader_election: self.leader_election.unwrap_or_default().fill(),
            group_kind_concurrency,
            cache_sync_timeout,
            client_qps,
            client_burst,
            tls: self.tls.unwrap_or_default().fill(),
            cert_management: self.internal_cert_management.unwrap_or_default().fill(),
            names_pods_ready: self.wait_for_pods_ready.is_some(),
            wait_for_pods_ready: self.wait_for_pods_ready.unwrap_or_default().fill(),
            integrations: self.integrations.unwrap_or_default().fill(),
            multi_kueue: self.multi_kueue.unwrap_or_default().fill(),
            fair_sharing: self.fair_sharing.and_then(FairSharingSection::fill),
            admission_fair_sharing: self.admission_fair_sharing.map(AdmissionFairSharingSection::fill),
            resources: self.resources.unwrap_or_default().fill(),
            retention: self.object_retention_policies.unwrap_or_default().fill(),
            visibility: visibility_default(),
            feature_gate_settings: self.feature_gates.unwrap_or_default(),
            feature_gates: FeatureGates::default(),
            roadstead: Roadstead::default(),
            warnings: Vec::new(),
        }
    }
}
