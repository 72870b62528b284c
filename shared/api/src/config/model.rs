//! The configuration with every default filled in.
//!
//! Durations may still be negative and lists too long here: `roadstead_serve::config` refuses those, all at once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde::Deserialize;

use super::{BindAddress, FeatureGate, FeatureGates, GroupVersionKindName, LabelSelector, Roadstead};

/// The whole configuration, with defaults. Source: spec/api.md API-13.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Namespace of the process, with its Secrets, `ClusterProfile`s and leader lease.
    pub namespace: String,
    /// Manage jobs that carry no queue label.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces whose jobs may be managed.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// Webhook listener.
    pub webhook: WebhookServer,
    /// Liveness and readiness listener.
    pub health: Health,
    /// Metrics listener and content.
    pub metrics: Metrics,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Parallel reconciliations by `Kind.group`; kinds not named use 1.
    pub group_kind_concurrency: BTreeMap<String, u32>,
    /// Longest wait for caches to fill at start.
    pub cache_sync_timeout: SignedDuration,
    /// TLS settings of every listener.
    pub tls: Tls,
    /// Certificates made by the process itself.
    pub cert_management: CertManagement,
    /// Eviction of workloads whose pods do not become ready; `None` when off.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Whether the file sets it. If not, the default depends on the version of the file.
    pub names_pods_ready: bool,
    /// Job integrations.
    pub integrations: Integrations,
    /// The federation with worker clusters.
    pub multi_kueue: MultiKueue,
    /// Fair-sharing preemption; `None` is classical preemption.
    pub fair_sharing: Option<FairSharing>,
    /// Ordering of local queues by usage; `None` when off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Resource arithmetic.
    pub resources: Resources,
    /// Deletion of old Workloads.
    pub retention: Retention,
    /// Visibility API listener.
    pub visibility: VisibilityServer,
    /// Feature gates written in the file, as written. The effective ones are in `feature_gates`.
    pub feature_gate_settings: BTreeMap<String, bool>,
    /// Effective feature gates; defaults until the loader has resolved file and flag.
    pub feature_gates: FeatureGates,
    /// The second document.
    pub roadstead: Roadstead,
    /// Keys that were accepted but do nothing here, one sentence each, for the log.
    pub warnings: Vec<String>,
}

/// `webhook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookServer {
    /// TCP port.
    pub port: u16,
    /// Host to bind; empty means all.
    pub host: String,
    /// Folder with `tls.crt` and `tls.key` when another tool makes the certificates.
    pub cert_dir: PathBuf,
}

impl WebhookServer {
    /// Where the server listens.
    pub fn bind(&self) -> BindAddress {
        BindAddress::Listen {
            host: self.host.clone(),
            port: self.port,
        }
    }
}

/// `health`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Listener of both probes.
    pub bind: BindAddress,
    /// Path of the readiness probe, without slash.
    pub readiness_endpoint: String,
    /// Path of the liveness probe, without slash.
    pub liveness_endpoint: String,
}

/// `metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Where the server listens.
    pub bind: BindAddress,
    /// Report quotas and usage of `ClusterQueues`.
    pub enable_cluster_queue_resources: bool,
    /// Labels or annotations promoted to metric labels.
    pub custom_labels: Vec<CustomLabel>,
    /// Report per `LocalQueue`.
    pub local_queue_enable: bool,
    /// `LocalQueues` to report; `None` is all.
    pub local_queue_selector: Option<LabelSelector>,
}

/// One entry of `metrics.customLabels`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomLabel {
    /// The metric label is `custom_` and this.
    pub name: String,
    /// Label to read; empty when an annotation is read. Neither given means the label called `name`.
    pub source_label_key: String,
    /// Annotation to read; excludes `source_label_key`.
    pub source_annotation_key: String,
    /// Kind whose label or annotation is read.
    pub source_kind: LabelSourceKind,
    /// Values reported as they are; all others become one placeholder.
    pub tracked_values: Vec<String>,
}

impl Config {
    /// Keys of the labels and of the annotations that custom metric labels read from objects of a kind; none while gate
    /// `CustomMetricLabels` is off.
    pub fn metrics_sources(&self, kind: LabelSourceKind) -> (Vec<String>, Vec<String>) {
        let on = self.feature_gates.enabled(FeatureGate::CustomMetricLabels);
        let labels = self.metrics.custom_labels.iter();
        let of_kind = labels.filter(|label| on && label.source_kind == kind);
        let (notes, labels): (Vec<_>, Vec<_>) =
            of_kind.partition(|label| !label.source_annotation_key.is_empty());
        let key = |label: &CustomLabel| match label.source_label_key.as_str() {
            "" => label.name.clone(),
            key => key.to_owned(),
        };
        let notes = notes.iter().map(|label| label.source_annotation_key.clone());
        (labels.into_iter().map(key).collect(), notes.collect())
    }
}

/// Kinds a custom metric label can be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
pub enum LabelSourceKind {
    /// Read from the `ClusterQueue`.
    #[default]
    ClusterQueue,
    /// Read from the `LocalQueue`.
    LocalQueue,
    /// Read from the Cohort.
    Cohort,
    /// Read from the Workload.
    Workload,
}

/// `leaderElection`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether replicas elect a leader at all.
    pub leader_elect: bool,
    /// Name of the lease.
    pub resource_name: String,
    /// Namespace of the lease; `None` is the process's own.
    pub resource_namespace: Option<String>,
    /// Kind of lock; only `leases`.
    pub resource_lock: String,
    /// How long a lease counts without renewal.
    pub lease_duration: SignedDuration,
    /// How long the leader acts after the last renewal.
    pub renew_deadline: SignedDuration,
    /// Pause between tries.
    pub retry_period: SignedDuration,
}

/// `tls`. Empty lists and `None` leave the choice to the TLS library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Lowest protocol version.
    pub min_version: Option<TlsVersion>,
    /// IANA names of TLS 1.2 suites.
    pub cipher_suites: Vec<String>,
    /// Go names or numbers of key-exchange groups.
    pub curve_preferences: Vec<String>,
}

/// Protocol versions, in Go's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "VersionTLS13")]
    Tls13,
}

/// `internalCertManagement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertManagement {
    /// Whether the process makes and renews its own certificates.
    pub enable: bool,
    /// Service whose DNS names the certificate carries.
    pub webhook_service_name: String,
    /// Secret that keeps CA and certificate.
    pub webhook_secret_name: String,
}

/// `waitForPodsReady`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// Time from admission to all pods ready.
    pub timeout: SignedDuration,
    /// Hold back other admissions meanwhile.
    pub block_admission: bool,
    /// Time to recover after a pod was lost; zero does not track that.
    pub recovery_timeout: SignedDuration,
    /// How evicted workloads come back.
    pub requeuing: Requeuing,
}

/// `waitForPodsReady.requeuingStrategy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeuing {
    /// Which time orders the queue.
    pub timestamp: RequeueTimestamp,
    /// Returns before the workload is deactivated; `None` is without end.
    pub backoff_limit_count: Option<i32>,
    /// First pause, seconds.
    pub backoff_base_seconds: i32,
    /// Longest pause, seconds.
    pub backoff_max_seconds: i32,
}

/// Times that can order requeued workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum RequeueTimestamp {
    /// Time of the eviction.
    #[default]
    Eviction,
    /// Time of creation.
    Creation,
}

/// `integrations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integrations {
    /// Enabled integrations, names of [`roadstead_kinds::Kind::framework`].
    pub frameworks: Vec<String>,
    /// Kinds whose controller lives elsewhere.
    pub external_frameworks: Vec<GroupVersionKindName>,
    /// Job labels copied to the Workload.
    pub label_keys_to_copy: Vec<String>,
    /// v1beta1 only: which pods the pod webhook reviews.
    pub pod_options: Option<PodOptions>,
}

/// `integrations.podOptions` of v1beta1; a selector that is absent selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodOptions {
    /// Selects namespaces.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects pods.
    pub pod_selector: Option<LabelSelector>,
}

/// `multiKueue`. Source: spec/multikueue.md 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiKueue {
    /// Pause between collections on workers; zero switches collection off.
    pub gc_interval: SignedDuration,
    /// Label value that marks what this manager created.
    pub origin: String,
    /// How long a lost worker keeps its workloads.
    pub worker_lost_timeout: SignedDuration,
    /// Dispatcher; a name that is not ours selects external dispatching.
    pub dispatcher_name: String,
    /// Whether the file names the dispatcher. If not, and all workers are Roadstead's, the dispatcher by capacity is used.
    pub names_dispatcher: bool,
    /// Kinds handled by the generic adapter.
    pub external_frameworks: Vec<GroupVersionKindName>,
    /// `clusterProfile.accessProviders`.
    pub access_providers: Vec<ExecProvider>,
    /// `clusterProfile.credentialsProviders`, the older name; excludes the former.
    pub credentials_providers: Vec<ExecProvider>,
    /// Written only for the incremental dispatcher.
    pub incremental: Option<IncrementalDispatcher>,
}

impl MultiKueue {
    /// Workers the incremental dispatcher adds per round.
    pub fn step_size(&self) -> i32 {
        self.incremental
            .map_or(DEFAULT_STEP_SIZE, |incremental| incremental.step_size)
    }
}

/// `multiKueue.incrementalDispatcherConfig`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncrementalDispatcher {
    /// Workers added per round, at least 1.
    pub step_size: i32,
}

/// Default number of workers that the incremental dispatcher adds per round.
pub const DEFAULT_STEP_SIZE: i32 = 3;

/// A program that obtains credentials for a `ClusterProfile`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecProvider {
    /// Name the `ClusterProfile` refers to.
    pub name: String,
    /// The program.
    pub exec_config: ExecConfig,
}

/// `execConfig` of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecConfig {
    /// The program to run.
    pub command: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Additional environment.
    #[serde(default)]
    pub env: Vec<ExecEnv>,
    /// Version of the exec protocol.
    #[serde(default)]
    pub api_version: String,
    /// `Never`, `IfAvailable` or `Always`; required.
    #[serde(default)]
    pub interactive_mode: Option<String>,
    /// Text shown when the program is missing.
    #[serde(default)]
    pub install_hint: String,
    /// Whether the program is told about the cluster.
    #[serde(default)]
    pub provide_cluster_info: bool,
}

/// One environment variable; its value may be a secret and is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecEnv {
    /// Name of the variable.
    pub name: String,
    /// Value of the variable.
    pub value: String,
}

impl fmt::Debug for ExecEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecEnv")
            .field("name", &self.name)
            .field("value", &"<hidden>")
            .finish()
    }
}

/// `fairSharing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairSharing {
    /// Strategies in the order they are tried.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// Strategies of fair-sharing preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PreemptionStrategy {
    /// The preemptor's share afterwards is at most the victim's without its workload.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share afterwards is below the victim's share now.
    LessThanInitialShare,
}

/// `admissionFairSharing`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionFairSharing {
    /// Half-life of past usage; zero forgets at once.
    pub usage_half_life_time: SignedDuration,
    /// Pause between two samples of usage.
    pub usage_sampling_interval: SignedDuration,
    /// Weight per resource; 1 where absent.
    pub resource_weights: BTreeMap<String, f64>,
}

/// `resources`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Requests whose name starts so are ignored.
    pub exclude_resource_prefixes: Vec<String>,
    /// What happens with resources a queue does not declare.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Rewrites of requests.
    pub transformations: Vec<ResourceTransformation>,
    /// Device classes counted as resources.
    pub device_class_mappings: Vec<DeviceClassMapping>,
}

/// Treatment of resources that a queue's quota does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum QuotaCheckStrategy {
    /// The workload cannot be admitted.
    #[default]
    BlockUndeclared,
    /// The resource is not counted.
    IgnoreUndeclared,
}

/// One entry of `resources.transformations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTransformation {
    /// Resource that is rewritten.
    pub input: String,
    /// Whether the input stays.
    pub strategy: TransformationStrategy,
    /// Resource whose amount multiplies the input's; empty for none.
    pub multiply_by: String,
    /// Quantities per unit of input, as text.
    pub outputs: BTreeMap<String, String>,
}

/// Whether a transformed resource stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum TransformationStrategy {
    /// The input stays beside the outputs.
    #[default]
    Retain,
    /// The outputs take the input's place.
    Replace,
}

/// One entry of `resources.deviceClassMappings`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceClassMapping {
    /// Resource name used in quotas.
    pub name: String,
    /// Device classes it stands for.
    pub device_class_names: Vec<String>,
    /// Where the amount is read from; empty counts devices.
    #[serde(default)]
    pub sources: Vec<DeviceSource>,
}

/// Source of a device's amount: exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSource {
    /// A shared counter.
    pub counter: Option<DeviceMeter>,
    /// A consumable capacity.
    pub capacity: Option<DeviceMeter>,
}

/// A counter or capacity of devices.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceMeter {
    /// Name of the counter or capacity.
    pub name: String,
    /// Driver that publishes the devices.
    pub driver: String,
    /// What picks devices; `None` takes all of the driver.
    pub device_selector: Option<DeviceSelector>,
}

/// What picks devices, as in a `DeviceClass`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSelector {
    /// An expression about one device.
    pub cel: Option<DeviceExpression>,
}

/// A CEL expression about a device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceExpression {
    /// Its text; it is not evaluated, because dynamic resource allocation is not built.
    pub expression: String,
}

/// `objectRetentionPolicies.workloads`; `None` keeps for ever, zero removes at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    /// Time after the end.
    pub after_finished: Option<SignedDuration>,
    /// Time after a deactivation that the engine decided; deletes the job too.
    pub after_deactivated_by_kueue: Option<SignedDuration>,
}

/// `visibilityServer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibilityServer {
    /// Host to bind; empty means all.
    pub bind_address: String,
    /// TCP port.
    pub bind_port: u16,
}

impl VisibilityServer {
    /// Where the server listens.
    pub fn bind(&self) -> BindAddress {
        BindAddress::Listen {
            host: self.bind_address.clone(),
            port: self.bind_port,
        }
    }
}
