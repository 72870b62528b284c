//! `config.kueue.x-k8s.io/v1beta2`, as written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::model::{
    Config, CustomLabel, DEFAULT_STEP_SIZE, ExecProvider, FairSharing, IncrementalDispatcher, Integrations,
    LabelSourceKind, MultiKueue, PreemptionStrategy, VisibilityServer,
};
use super::scalar::{DurationText, IntegrationKind, bind_or_unset};
use super::sections::{
    self, Federation, RemoteFramework, ResourcesSection, WaitSection, frameworks, integration_kinds,
};
use super::{BindAddress, FeatureGates, LabelSelector, Roadstead};

const VISIBILITY_PORT: u16 = 8082;

sections::configuration! {
    file => file.visibility_server.take().unwrap_or_default();
    visibility_server: Option<VisibilitySection>,
}

#[derive(Default, Deserialize)]
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
pub(super) struct VisibilitySection {
    bind_address: Option<String>,
    bind_port: Option<u16>,
}

impl VisibilitySection {
    pub(super) fn fill(self) -> VisibilityServer {
        VisibilityServer {
            bind_address: self.bind_address.unwrap_or_default(),
            bind_port: self.bind_port.unwrap_or(VISIBILITY_PORT),
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

impl FairSharingSection {
    fn fill(self) -> FairSharing {
        FairSharing {
            preemption_strategies: self.preemption_strategies.unwrap_or_default(),
        }
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
