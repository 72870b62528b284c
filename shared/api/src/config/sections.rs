//! Sections of the file that both versions share, as written: everything optional, unknown keys refused.
//!
//! Each section turns itself into its part of the [`Config`](super::Config); the defaults live in these conversions.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::rights::BY_DEFAULT;

use super::model::{
    AdmissionFairSharing, CertManagement, CustomLabel, DeviceClassMapping, Health, LeaderElection, Metrics,
    QuotaCheckStrategy, RequeueTimestamp, Requeuing, ResourceTransformation, Resources, Retention, Tls,
    TlsVersion, TransformationStrategy, WaitForPodsReady, WebhookServer,
};
use super::scalar::{DurationText, IntegrationKind, NanosOrText, QuantityText, RemoteKind, bind_or_unset};
use super::{BindAddress, GroupVersionKindName, LabelSelector};

const WEBHOOK_PORT: u16 = 9443;
const WEBHOOK_CERT_DIR: &str = "/tmp/k8s-webhook-server/serving-certs";
const HEALTH_PORT: u16 = 8081;
const METRICS_PORT: u16 = 8443;
const LEASE_NAME: &str = "c1f6bfd2.kueue.x-k8s.io";
const CONCURRENCY: &[(&str, u32)] = &[
    ("ClusterQueue.kueue.x-k8s.io", 5),
    ("Cohort.kueue.x-k8s.io", 1),
    ("Job.batch", 5),
    ("LocalQueue.kueue.x-k8s.io", 5),
    ("Pod", 5),
    ("ResourceFlavor.kueue.x-k8s.io", 1),
    ("Workload.kueue.x-k8s.io", 10),
];

/// The file of one version: its section of the visibility listener, and its own keys. The sections of which each version has a form of
/// its own are those that stand where this is used.
macro_rules! configuration {
    ($file:ident => $visibility:expr; $($own:tt)*) => {
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
            webhook: Option<sections::WebhookSection>,
            health: Option<sections::HealthSection>,
            metrics: Option<sections::MetricsSection<CustomLabelSection>>,
            #[serde(default, rename = "pprofBindAddress", deserialize_with = "bind_or_unset")]
            _pprof_bind_address: Option<BindAddress>,
            leader_election: Option<sections::LeaderElectionSection>,
            controller: Option<sections::ControllerSection>,
            #[serde(rename = "clientConnection")]
            _client_connection: Option<sections::ClientConnectionSection>,
            tls: Option<sections::TlsSection>,
            internal_cert_management: Option<sections::CertManagementSection>,
            wait_for_pods_ready: Option<WaitSection>,
            integrations: Option<IntegrationsSection>,
            multi_kueue: Option<MultiKueueSection>,
            fair_sharing: Option<FairSharingSection>,
            admission_fair_sharing: Option<sections::AdmissionFairSharingSection>,
            resources: Option<ResourcesSection>,
            object_retention_policies: Option<sections::RetentionSection>,
            feature_gates: Option<BTreeMap<String, bool>>,
            $($own)*
        }

        impl Configuration {
            /// Fills in every default. `own_namespace` is the namespace of the process, for files that name none.
            pub(super) fn fill(mut self, own_namespace: &str) -> Config {
                let $file = &mut self;
                let visibility = $visibility.fill();
                let namespace = sections::text_or(self.namespace, own_namespace);
                let (group_kind_concurrency, cache_sync_timeout) = self.controller.unwrap_or_default().fill();
                let metrics = self.metrics.unwrap_or_default();
                Config {
                    manage_jobs_without_queue_name: self.manage_jobs_without_queue_name.unwrap_or(false),
                    managed_jobs_namespace_selector: self
                        .managed_jobs_namespace_selector
                        .unwrap_or_else(|| LabelSelector::namespaces_except(&["kube-system", &namespace])),
                    namespace,
                    webhook: self.webhook.unwrap_or_default().fill(),
                    health: self.health.unwrap_or_default().fill(),
                    metrics: metrics.fill(CustomLabelSection::fill),
                    leader_election: self.leader_election.unwrap_or_default().fill(),
                    group_kind_concurrency,
                    cache_sync_timeout,
                    tls: self.tls.unwrap_or_default().fill(),
                    cert_management: self.internal_cert_management.unwrap_or_default().fill(),
                    names_pods_ready: self.wait_for_pods_ready.is_some(),
                    wait_for_pods_ready: self.wait_for_pods_ready.unwrap_or_default().fill().into(),
                    integrations: self.integrations.unwrap_or_default().fill(),
                    multi_kueue: self.multi_kueue.unwrap_or_default().fill(),
                    fair_sharing: self.fair_sharing.and_then(|section| section.fill().into()),
                    admission_fair_sharing: self
                        .admission_fair_sharing
                        .map(sections::AdmissionFairSharingSection::fill),
                    resources: self.resources.unwrap_or_default().fill(),
                    retention: self.object_retention_policies.unwrap_or_default().fill(),
                    visibility,
                    feature_gate_settings: self.feature_gates.unwrap_or_default(),
                    feature_gates: FeatureGates::default(),
                    roadstead: Roadstead::default(),
                    warnings: Vec::new(),
                }
            }
        }
    };
}

pub(super) use configuration;

fn given_or(written: Option<DurationText>, default: SignedDuration) -> SignedDuration {
    written.map_or(default, |text| text.0)
}

/// Text, or the default when absent or empty (Go cannot tell the two apart).
pub(super) fn text_or(written: Option<String>, default: &str) -> String {
    written
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| default.into())
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WebhookSection {
    port: Option<u16>,
    host: Option<String>,
    cert_dir: Option<String>,
}

impl WebhookSection {
    pub(super) fn fill(self) -> WebhookServer {
        let Self { port, host, cert_dir } = self;
        WebhookServer {
            port: port.unwrap_or(WEBHOOK_PORT),
            host: host.unwrap_or_default(),
            cert_dir: text_or(cert_dir, WEBHOOK_CERT_DIR).into(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HealthSection {
    #[serde(default, deserialize_with = "bind_or_unset")]
    health_probe_bind_address: Option<BindAddress>,
    readiness_endpoint_name: Option<String>,
    liveness_endpoint_name: Option<String>,
}

impl HealthSection {
    pub(super) fn fill(self) -> Health {
        let Self {
            health_probe_bind_address,
            readiness_endpoint_name,
            liveness_endpoint_name,
        } = self;
        let endpoint =
            |name: Option<String>, default| text_or(name, default).trim_start_matches('/').to_owned();
        Health {
            bind: health_probe_bind_address.unwrap_or_else(|| BindAddress::all(HEALTH_PORT)),
            readiness_endpoint: endpoint(readiness_endpoint_name, "readyz"),
            liveness_endpoint: endpoint(liveness_endpoint_name, "healthz"),
        }
    }
}

/// `L` is a custom label as the version writes it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MetricsSection<L> {
    #[serde(default, deserialize_with = "bind_or_unset")]
    bind_address: Option<BindAddress>,
    enable_cluster_queue_resources: Option<bool>,
    custom_labels: Option<Vec<L>>,
    local_queue_metrics: Option<LocalQueueMetricsSection>,
}

impl<L> MetricsSection<L> {
    pub(super) fn fill(self, label: impl Fn(L) -> CustomLabel) -> Metrics {
        let local = self.local_queue_metrics.unwrap_or_default();
        Metrics {
            bind: { self.bind_address }.unwrap_or_else(|| BindAddress::all(METRICS_PORT)),
            enable_cluster_queue_resources: self.enable_cluster_queue_resources.unwrap_or(false),
            custom_labels: { self.custom_labels.into_iter().flatten() }.map(label).collect(),
            local_queue_enable: local.enable.unwrap_or(true),
            local_queue_selector: local.local_queue_selector,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LocalQueueMetricsSection {
    enable: Option<bool>,
    local_queue_selector: Option<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LeaderElectionSection {
    leader_elect: Option<bool>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
    resource_lock: Option<String>,
    lease_duration: Option<DurationText>,
    renew_deadline: Option<DurationText>,
    retry_period: Option<DurationText>,
}

impl LeaderElectionSection {
    pub(super) fn fill(self) -> LeaderElection {
        let Self {
            leader_elect,
            resource_name,
            resource_namespace,
            resource_lock,
            lease_duration,
            renew_deadline,
            retry_period,
        } = self;
        LeaderElection {
            leader_elect: leader_elect.unwrap_or(true),
            resource_name: text_or(resource_name, LEASE_NAME),
            resource_namespace: resource_namespace.filter(|name| !name.is_empty()),
            resource_lock: text_or(resource_lock, "leases"),
            lease_duration: given_or(lease_duration, SignedDuration::from_secs(15)),
            renew_deadline: given_or(renew_deadline, SignedDuration::from_secs(10)),
            retry_period: given_or(retry_period, SignedDuration::from_secs(2)),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ControllerSection {
    group_kind_concurrency: Option<BTreeMap<String, u32>>,
    cache_sync_timeout: Option<NanosOrText>,
}

impl ControllerSection {
    /// Parallelism per kind, and the time limit for filling caches.
    pub(super) fn fill(self) -> (BTreeMap<String, u32>, SignedDuration) {
        let Self {
            group_kind_concurrency,
            cache_sync_timeout,
        } = self;
        let mut concurrency: BTreeMap<String, u32> = CONCURRENCY
            .iter()
            .map(|(kind, count)| ((*kind).into(), *count))
            .collect();
        concurrency.extend(group_kind_concurrency.unwrap_or_default());
        (
            concurrency,
            cache_sync_timeout.map_or(SignedDuration::from_mins(2), |nanos| nanos.0),
        )
    }
}

/// Accepted because files have it; requests are not throttled here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientConnectionSection {
    #[serde(rename = "qps")]
    _qps: Option<f32>,
    #[serde(rename = "burst")]
    _burst: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TlsSection {
    min_version: Option<TlsVersion>,
    cipher_suites: Option<Vec<String>>,
    curve_preferences: Option<Vec<CurveName>>,
}

/// A key-exchange group by Go name, or by its number.
#[derive(Deserialize)]
#[serde(untagged)]
enum CurveName {
    Name(String),
    Number(u16),
}

impl TlsSection {
    pub(super) fn fill(self) -> Tls {
        let Self {
            min_version,
            cipher_suites,
            curve_preferences,
        } = self;
        let curves = curve_preferences
            .unwrap_or_default()
            .into_iter()
            .map(|curve| match curve {
                CurveName::Name(name) => name,
                CurveName::Number(number) => number.to_string(),
            });
        Tls {
            min_version,
            cipher_suites: cipher_suites.unwrap_or_default(),
            curve_preferences: curves.collect(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CertManagementSection {
    enable: Option<bool>,
    webhook_service_name: Option<String>,
    webhook_secret_name: Option<String>,
}

impl CertManagementSection {
    pub(super) fn fill(self) -> CertManagement {
        let Self {
            enable,
            webhook_service_name,
            webhook_secret_name,
        } = self;
        CertManagement {
            enable: enable.unwrap_or(true),
            webhook_service_name: text_or(webhook_service_name, "kueue-webhook-service"),
            webhook_secret_name: text_or(webhook_secret_name, "kueue-webhook-server-cert"),
        }
    }
}

/// `waitForPodsReady` as v1beta2 writes it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WaitSection {
    pub(super) timeout: Option<DurationText>,
    pub(super) block_admission: Option<bool>,
    pub(super) recovery_timeout: Option<DurationText>,
    pub(super) requeuing_strategy: Option<RequeuingSection>,
}

impl WaitSection {
    // Why always: v1beta2 has it on by default; only the gate DisableWaitForPodsReady takes it away.
    pub(super) fn fill(self) -> WaitForPodsReady {
        let timeout = given_or(self.timeout, SignedDuration::from_mins(30));
        let requeuing = self.requeuing_strategy.unwrap_or_default();
        WaitForPodsReady {
            timeout,
            block_admission: self.block_admission.unwrap_or(false),
            recovery_timeout: given_or(self.recovery_timeout, timeout),
            requeuing: Requeuing {
                timestamp: requeuing.timestamp.unwrap_or_default(),
                backoff_limit_count: requeuing.backoff_limit_count,
                backoff_base_seconds: requeuing.backoff_base_seconds.unwrap_or(60),
                backoff_max_seconds: requeuing.backoff_max_seconds.unwrap_or(3600),
            },
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RequeuingSection {
    timestamp: Option<RequeueTimestamp>,
    backoff_limit_count: Option<i32>,
    backoff_base_seconds: Option<i32>,
    backoff_max_seconds: Option<i32>,
}

/// The names in `integrations.frameworks`, with the default.
pub(super) fn frameworks(written: Option<Vec<String>>) -> Vec<String> {
    written.unwrap_or_else(|| {
        { BY_DEFAULT.iter() }
            .map(|kind| kind.framework.to_owned())
            .collect()
    })
}

pub(super) fn integration_kinds(written: Option<Vec<IntegrationKind>>) -> Vec<GroupVersionKindName> {
    written
        .unwrap_or_default()
        .into_iter()
        .map(|kind| kind.0)
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RemoteFramework {
    name: RemoteKind,
}

/// The part of `multiKueue` that both versions have; v1beta1 has no more.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Federation {
    pub(super) gc_interval: Option<DurationText>,
    pub(super) origin: Option<String>,
    pub(super) worker_lost_timeout: Option<DurationText>,
    pub(super) dispatcher_name: Option<String>,
    pub(super) external_frameworks: Option<Vec<RemoteFramework>>,
}

impl Federation {
    pub(super) fn fill(self) -> super::MultiKueue {
        let Self {
            gc_interval,
            origin,
            worker_lost_timeout,
            dispatcher_name,
            external_frameworks,
        } = self;
        super::MultiKueue {
            gc_interval: given_or(gc_interval, SignedDuration::from_mins(1)),
            origin: text_or(origin, "multikueue"),
            worker_lost_timeout: given_or(worker_lost_timeout, SignedDuration::from_mins(15)),
            names_dispatcher: dispatcher_name.as_ref().is_some_and(|name| !name.is_empty()),
            dispatcher_name: text_or(dispatcher_name, super::DISPATCHER_ALL_AT_ONCE),
            external_frameworks: external_frameworks
                .unwrap_or_default()
                .into_iter()
                .map(|framework| framework.name.0)
                .collect(),
            access_providers: Vec::new(),
            credentials_providers: Vec::new(),
            incremental: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AdmissionFairSharingSection {
    usage_half_life_time: Option<DurationText>,
    usage_sampling_interval: Option<DurationText>,
    resource_weights: Option<BTreeMap<String, f64>>,
}

impl AdmissionFairSharingSection {
    pub(super) fn fill(self) -> AdmissionFairSharing {
        let Self {
            usage_half_life_time,
            usage_sampling_interval,
            resource_weights,
        } = self;
        AdmissionFairSharing {
            usage_half_life_time: given_or(usage_half_life_time, SignedDuration::ZERO),
            usage_sampling_interval: given_or(usage_sampling_interval, SignedDuration::from_mins(5)),
            resource_weights: resource_weights.unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TransformationSection {
    input: String,
    strategy: Option<TransformationStrategy>,
    multiply_by: Option<String>,
    outputs: Option<BTreeMap<String, QuantityText>>,
}

/// `resources` as v1beta2 writes it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResourcesSection {
    pub(super) exclude_resource_prefixes: Option<Vec<String>>,
    pub(super) quota_check_strategy: Option<QuotaCheckStrategy>,
    pub(super) transformations: Option<Vec<TransformationSection>>,
    pub(super) device_class_mappings: Option<Vec<DeviceClassMapping>>,
}

impl ResourcesSection {
    pub(super) fn fill(self) -> Resources {
        let transformation = |section: TransformationSection| ResourceTransformation {
            input: section.input,
            strategy: section.strategy.unwrap_or_default(),
            multiply_by: section.multiply_by.unwrap_or_default(),
            outputs: { section.outputs.into_iter().flatten() }
                .map(|(name, text)| (name, text.0))
                .collect(),
        };
        Resources {
            exclude_resource_prefixes: self.exclude_resource_prefixes.unwrap_or_default(),
            quota_check_strategy: self.quota_check_strategy.unwrap_or_default(),
            transformations: { self.transformations.into_iter().flatten() }
                .map(transformation)
                .collect(),
            device_class_mappings: self.device_class_mappings.unwrap_or_default(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RetentionSection {
    workloads: Option<WorkloadRetentionSection>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkloadRetentionSection {
    after_finished: Option<DurationText>,
    after_deactivated_by_kueue: Option<DurationText>,
}

impl RetentionSection {
    pub(super) fn fill(self) -> Retention {
        let WorkloadRetentionSection {
            after_finished,
            after_deactivated_by_kueue,
        } = self.workloads.unwrap_or_default();
        Retention {
            after_finished: after_finished.map(|text| text.0),
            after_deactivated_by_kueue: after_deactivated_by_kueue.map(|text| text.0),
        }
    }
}
