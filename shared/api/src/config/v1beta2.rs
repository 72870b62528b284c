//! `config.kueue.x-k8s.io/v1beta2`, as written.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;

use super::model::{
    Config, CustomLabel, DEFAULT_STEP_SIZE, DeviceClassMapping, ExecProvider, FairSharing,
    IncrementalDispatcher, Integrations, LabelSourceKind, Metrics, MultiKueue, PreemptionStrategy,
    QuotaCheckStrategy, Resources, VisibilityServer, WaitForPodsReady,
};
use super::scalar::{DurationText, IntegrationKind, bind_or_unset};
use super::sections::{
    AdmissionFairSharingSection, CertManagementSection, ClientConnectionSection, ControllerSection,
    Federation, HealthSection, LeaderElectionSection, LocalQueueMetricsSection, RemoteFramework,
    RequeuingSection, RetentionSection, TlsSection, TransformationSection, WaitDefaults, WebhookSection,
    frameworks, integration_kinds, metrics_bind, resources, wait_for_pods_ready,
};
use super::{BindAddress, FeatureGates, LabelSelector, Roadstead};

const VISIBILITY_PORT: u16 = 8082;

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
    resources: Option<ResourcesSection>,
    object_retention_policies: Option<RetentionSection>,
    visibility_server: Option<VisibilitySection>,
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
    source_kind: Option<LabelSourceKind>,
    tracked_values: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WaitSection {
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
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MultiKueueSection {
    gc_interval: Option<DurationText>,
    origin: Option<String>,
    worker_lost_timeout: Option<DurationText>,
    dispatcher_name: Option<String>,
    external_frameworks: Option<Vec<RemoteFramework>>,
    cluster_profile: Option<ClusterProfileSection>,
    incremental_dispatcher_config: Option<IncrementalSection>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterProfileSection {
    access_providers: Option<Vec<ExecProvider>>,
    credentials_providers: Option<Vec<ExecProvider>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IncrementalSection {
    step_size: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FairSharingSection {
    preemption_strategies: Option<Vec<PreemptionStrategy>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourcesSection {
    exclude_resource_prefixes: Option<Vec<String>>,
    quota_check_strategy: Option<QuotaCheckStrategy>,
    transformations: Option<Vec<TransformationSection>>,
    device_class_mappings: Option<Vec<DeviceClassMapping>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VisibilitySection {
    bind_address: Option<String>,
    bind_port: Option<u16>,
}

impl VisibilitySection {
    fn fill(self) -> VisibilityServer {
        VisibilityServer {
            bind_address: self.bind_address.unwrap_or_default(),
            bind_port: self.bind_port.unwrap_or(VISIBILITY_PORT),
        }
    }
}

/// The visibility listener of a file that cannot name one.
pub(super) fn visibility_default() -> VisibilityServer {
    VisibilitySection::default().fill()
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
        Metrics {
            bind: metrics_bind(bind_address),
            enable_cluster_queue_resources: enable_cluster_queue_resources.unwrap_or(false),
            custom_labels: custom_labels
                .unwrap_or_default()
                .into_iter()
                .map(CustomLabelSection::fill)
                .collect(),
            local_queue_enable: local.enable.unwrap_or(true),
            local_queue_selector: local.local_queue_selector,
        }
    }
}

impl CustomLabelSection {
    fn fill(self) -> CustomLabel {
        let Self {
            name,
            source_label_key,
            source_annotation_key,
            source_kind,
            tracked_values,
        } = self;
        CustomLabel {
            name,
            source_label_key: source_label_key.unwrap_or_default(),
            source_annotation_key: source_annotation_key.unwrap_or_default(),
            source_kind: source_kind.unwrap_or_default(),
            tracked_values: tracked_values.unwrap_or_default(),
        }
    }
}

impl WaitSection {
    fn fill(self) -> WaitForPodsReady {
        let Self {
            timeout,
            block_admission,
            recovery_timeout,
            requeuing_strategy,
        } = self;
        let defaults = WaitDefaults {
            timeout: SignedDuration::from_mins(30),
            block_admission: false,
        };
        wait_for_pods_ready(
            &defaults,
            timeout,
            block_admission,
            recovery_timeout,
            requeuing_strategy,
        )
    }
}

impl IntegrationsSection {
    fn fill(self) -> Integrations {
        Integrations {
            frameworks: frameworks(self.frameworks),
            external_frameworks: integration_kinds(self.external_frameworks),
            label_keys_to_copy: self.label_keys_to_copy.unwrap_or_default(),
            pod_options: None,
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
            cluster_profile,
            incremental_dispatcher_config,
        } = self;
        let profile = cluster_profile.unwrap_or_default();
        let shared = Federation {
            gc_interval,
            origin,
            worker_lost_timeout,
            dispatcher_name,
            external_frameworks,
        };
        MultiKueue {
            access_providers: profile.access_providers.unwrap_or_default(),
            credentials_providers: profile.credentials_providers.unwrap_or_default(),
            incremental: incremental_dispatcher_config.map(|section| IncrementalDispatcher {
                step_size: section.step_size.unwrap_or(DEFAULT_STEP_SIZE),
            }),
            ..shared.fill()
        }
    }
}

impl ResourcesSection {
    fn fill(self) -> Resources {
        let Self {
            exclude_resource_prefixes,
            quota_check_strategy,
            transformations,
            device_class_mappings,
        } = self;
        resources(
            exclude_resource_prefixes,
            quota_check_strategy,
            transformations,
            device_class_mappings,
        )
    }
}

impl Configuration {
    /// Fills in every default. `own_namespace` is the namespace of the process, for files that name none.
    pub(super) fn fill(self, own_namespace: &str) -> Config {
        let namespace = super::sections::text_or(self.namespace, own_namespace);
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
            // Why: v1beta2 has it on by default; only the gate DisableWaitForPodsReady takes it away.
            names_pods_ready: self.wait_for_pods_ready.is_some(),
            wait_for_pods_ready: Some(self.wait_for_pods_ready.unwrap_or_default().fill()),
            integrations: self.integrations.unwrap_or_default().fill(),
            multi_kueue: self.multi_kueue.unwrap_or_default().fill(),
            fair_sharing: self.fair_sharing.map(|section| FairSharing {
                preemption_strategies: section.preemption_strategies.unwrap_or_default(),
            }),
            admission_fair_sharing: self.admission_fair_sharing.map(AdmissionFairSharingSection::fill),
            resources: self.resources.unwrap_or_default().fill(),
            retention: self.object_retention_policies.unwrap_or_default().fill(),
            visibility: self.visibility_server.unwrap_or_default().fill(),
            feature_gate_settings: self.feature_gates.unwrap_or_default(),
            feature_gates: FeatureGates::default(),
            roadstead: Roadstead::default(),
            warnings: Vec::new(),
        }
    }
}
