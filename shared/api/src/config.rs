//! The configuration file, as every crate of a process sees it.
//!
//! Two file formats (`config.kueue.x-k8s.io/v1beta2` and `/v1beta1`, kind `Configuration`) and the second document
//! `config.roadstead.dev/v1alpha1` kind `RoadsteadConfiguration` are read into [`Document`]s and then into one
//! [`Config`] with every default filled in. Invariant: nothing outside this module knows which version a file had.
//!
//! Reading is strict: an unknown key at any depth is an error. Rules that need more than one key are checked by
//! `roadstead_serve::config`. Source: spec/api.md API-13.

mod appwrapper;
mod document;
mod gates;
mod model;
mod roadstead;
mod scalar;
mod sections;
mod selector;
mod v1beta1;
mod v1beta2;

pub use appwrapper::{
    AppWrapperConfig, AutopilotConfig, FaultTolerance, NodeMark, NodeMarkEffect, PodSetsMax, WrappedKind,
};
pub use document::{Document, DocumentKind};
pub use gates::{FeatureGate, FeatureGates, GateProblem, RetiredGate};
pub use model::{
    AdmissionFairSharing, CertManagement, Config, CustomLabel, DEFAULT_STEP_SIZE, DeviceClassMapping,
    DeviceExpression, DeviceMeter, DeviceSelector, DeviceSource, ExecConfig, ExecEnv, ExecProvider,
    FairSharing, Health, IncrementalDispatcher, Integrations, LabelSourceKind, LeaderElection, Metrics,
    MultiKueue, PodOptions, PreemptionStrategy, QuotaCheckStrategy, RequeueTimestamp, Requeuing,
    ResourceTransformation, Resources, Retention, Tls, TlsVersion, TransformationStrategy, VisibilityServer,
    WaitForPodsReady, WebhookServer,
};
pub use roadstead::{Roadstead, RoadsteadMultiKueue, RoadsteadWebhook, WorkerLostPolicy};
pub use scalar::{BindAddress, GroupVersionKindName, parse_go_duration};
pub use selector::{LabelSelector, Requirement, SelectorOperator};

/// Dispatcher that offers a workload to every worker at once; the default. Source: spec/multikueue.md 7.
pub const DISPATCHER_ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
/// Dispatcher that offers a workload to a few more workers per round. Source: spec/multikueue.md 7.
pub const DISPATCHER_INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";

/// Dispatcher that offers a workload to the worker with the most room first. Source: spec/multikueue.md 4.3.
pub const DISPATCHER_CAPACITY: &str = "roadstead.dev/capacity";

/// Namespace assumed when neither the file nor a service-account mount names one. Source: spec/api.md API-13.
pub const DEFAULT_NAMESPACE: &str = "kueue-system";

#[cfg(test)]
mod tests;
