//! `config.roadstead.dev/v1alpha1`, kind `RoadsteadConfiguration`: settings that the reference's file does not have.

use std::path::PathBuf;

use serde::Deserialize;

use super::DEFAULT_NAMESPACE;
use super::appwrapper::AppWrapperConfig;

/// The second document. Every key is optional; an unknown one is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roadstead {
    /// `admission.paused`: everything runs except the reservation of quota for pending workloads.
    pub admission_paused: bool,
    /// `webhook`.
    pub webhook: RoadsteadWebhook,
    /// `multiKueue`.
    pub multi_kueue: RoadsteadMultiKueue,
    /// `virtualNodes.enable`: whether pods that run on a worker are shown on a node that stands for it. Off by default, because it
    /// needs rights on nodes.
    pub virtual_nodes: bool,
    /// `metrics.certDir`: folder of `tls.crt` and `tls.key`, with which `/metrics` is served over TLS. `None` serves it over plain
    /// HTTP.
    pub metrics_cert_dir: Option<PathBuf>,
    /// `appwrapper`; `None` when the section is absent.
    pub app_wrapper: Option<AppWrapperConfig>,
}

/// `webhook` of the second document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoadsteadWebhook {
    /// Base https address under which the API server reaches this process when it runs outside the cluster; `None`
    /// uses the Service of `internalCertManagement`.
    pub url: Option<String>,
    /// Whether the process writes the webhook configurations itself.
    pub manage_configurations: bool,
}

impl Default for RoadsteadWebhook {
    fn default() -> Self {
        Self {
            url: None,
            manage_configurations: true,
        }
    }
}

/// `multiKueue` of the second document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoadsteadMultiKueue {
    /// What happens to a workload whose worker is lost.
    pub worker_lost_policy: WorkerLostPolicy,
    /// Whether a worker's address may be this machine; for tests and laptops.
    pub allow_loopback_workers: bool,
    /// Requested lifetime of worker credentials, seconds; at least 600.
    pub token_lifetime_seconds: i64,
    /// Namespace on the worker for the manager's lease, where the worker reads it, and for the account that `roadstead cluster
    /// join` creates. Default: the namespace of the process, `kueue-system` in an unchanged installation, so that the lease is
    /// beside the worker's own engine. Both sides must agree, and no tenant may write there.
    pub lease_namespace: String,
    /// Whether a job gets its `spec.managedBy` even when its queue is not known yet. Without it that happens only where every
    /// ClusterQueue of the cluster dispatches to workers.
    pub manages_every_queued_job: bool,
}

/// Default requested lifetime of worker credentials, seconds.
pub(super) const TOKEN_LIFETIME_SECONDS: i64 = 3600;

impl Default for RoadsteadMultiKueue {
    fn default() -> Self {
        Self {
            worker_lost_policy: WorkerLostPolicy::default(),
            allow_loopback_workers: false,
            token_lifetime_seconds: TOKEN_LIFETIME_SECONDS,
            lease_namespace: DEFAULT_NAMESPACE.to_owned(),
            manages_every_queued_job: false,
        }
    }
}

/// What happens to a workload whose worker stays lost. Annotation `roadstead.dev/worker-lost-policy` of a ClusterQueue overrides
/// it. Source: spec/safety.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum WorkerLostPolicy {
    /// Wait until the worker is back, or until an administrator gives up the runs there (`roadstead cluster give-up`).
    Wait,
    /// Dispatch again after `workerLostTimeout`, at the risk that the job runs twice.
    RetryAnyway,
    /// Dispatch again after the worker has certainly stopped its jobs: it stops them by itself when it has not heard of the
    /// manager for two thirds of `workerLostTimeout`. Without a fence (a Kueue worker, or an account without the right to keep a
    /// lease there) the manager waits as with `Wait`. If the worker's API server or engine is dead while its nodes live, pods go
    /// on; if the engine is known to be dead, nothing is dispatched again.
    #[default]
    Fence,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RoadsteadConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    admission: Option<AdmissionSection>,
    webhook: Option<WebhookSection>,
    multi_kueue: Option<MultiKueueSection>,
    virtual_nodes: Option<VirtualNodesSection>,
    metrics: Option<MetricsSection>,
    #[serde(rename = "appwrapper")]
    app_wrapper: Option<Box<AppWrapperConfig>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdmissionSection {
    paused: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VirtualNodesSection {
    enable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetricsSection {
    cert_dir: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookSection {
    url: Option<String>,
    manage_configurations: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MultiKueueSection {
    worker_lost_policy: Option<WorkerLostPolicy>,
    allow_loopback_workers: Option<bool>,
    token_lifetime_seconds: Option<i64>,
    lease_namespace: Option<String>,
    manages_every_queued_job: Option<bool>,
}

impl RoadsteadConfiguration {
    pub(super) fn fill(self, own_namespace: &str) -> Roadstead {
        let webhook = self.webhook.unwrap_or_default();
        let multi_kueue = self.multi_kueue.unwrap_or_default();
        Roadstead {
            admission_paused: self.admission.unwrap_or_default().paused.unwrap_or(false),
            app_wrapper: self.app_wrapper.map(|section| *section),
            virtual_nodes: self.virtual_nodes.unwrap_or_default().enable.unwrap_or(false),
            metrics_cert_dir: { self.metrics.unwrap_or_default().cert_dir }
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from),
            webhook: RoadsteadWebhook {
                url: webhook.url.filter(|url| !url.is_empty()),
                manage_configurations: webhook.manage_configurations.unwrap_or(true),
            },
            multi_kueue: RoadsteadMultiKueue {
                worker_lost_policy: multi_kueue.worker_lost_policy.unwrap_or_default(),
                allow_loopback_workers: multi_kueue.allow_loopback_workers.unwrap_or(false),
                token_lifetime_seconds: multi_kueue
                    .token_lifetime_seconds
                    .unwrap_or(TOKEN_LIFETIME_SECONDS),
                lease_namespace: multi_kueue
                    .lease_namespace
                    .filter(|name| !name.is_empty())
                    .unwrap_or_else(|| own_namespace.to_owned()),
                manages_every_queued_job: multi_kueue.manages_every_queued_job.unwrap_or(false),
            },
        }
    }
}
