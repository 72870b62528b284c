//! The webhook configurations by which the API server finds us.
//!
//! Invariant: one set of configurations, under the names that people know, is all that is written.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::ObjectMeta;
use roadstead_jobs::JobKind;
use roadstead_serve::webhook::{mutate_path, validate_path};

/// Name of the mutating configuration, as the reference has it.
const MUTATING: &str = "kueue-mutating-webhook-configuration";
/// Name of the validating configuration, as the reference has it.
const VALIDATING: &str = "kueue-validating-webhook-configuration";
/// How long the API server waits for an answer.
const TIMEOUT_SECS: i32 = 10;

/// Where the API server reaches our webhooks.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// Under this base URL.
    Url(String),
    /// Through a Service.
    Service {
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
}

/// What goes into the configurations.
pub(super) struct Registration<'a> {
    /// Kinds whose integration is enabled.
    pub(super) kinds: &'a [&'static dyn JobKind],
    /// Where we are.
    pub(super) reach: &'a Reach,
    /// The authorities to trust, PEM.
    pub(super) ca_bundle: &'a str,
    /// Our own namespace, whose jobs are left alone.
    pub(super) namespace: &'a str,
    /// The account whose writes need no check, ours.
    pub(super) own_user: Option<&'a str>,
}

impl Registration<'_> {
    fn client(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = Some(ByteString(self.ca_bundle.as_bytes().to_vec()));
        match self.reach {
            Reach::Url(base) => WebhookClientConfig {
                ca_bundle,
                url: Some(format!("{}{path}", base.trim_end_matches('/'))),
                service: None,
            },
            Reach::Service { name, namespace } => WebhookClientConfig {
                ca_bundle,
                url: None,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                }),
            },
        }
    }

    fn elsewhere(&self) -> LabelSelector {
        LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "kubernetes.io/metadata.name".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(vec!["kube-system".to_owned(), self.namespace.to_owned()]),
            }]),
            match_labels: None,
        }
    }

    fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> Vec<RuleWithOperations> {
        let owned = |all: &[&str]| Some(all.iter().map(|text| (*text).to_owned()).collect());
        vec![RuleWithOperations {
            api_groups: owned(&[group]),
            api_versions: owned(&[version]),
            operations: owned(operations),
            resources: owned(resources),
            scope: None,
        }]
    }

    /// Webhooks that change objects.
    pub(super) fn mutating(&self) -> MutatingWebhookConfiguration {
        let webhooks = self.kinds.iter().map(|kind| {
            let gvk = kind.gvk();
            MutatingWebhook {
                name: format!("m{}.kb.io", gvk.kind.to_lowercase()),
                client_config: self.client(&mutate_path(gvk.group, gvk.version, gvk.kind)),
                rules: Some(Self::rule(gvk.group, gvk.version, &[kind.plural()], &["CREATE"])),
                namespace_selector: Some(self.elsewhere()),
                failure_policy: Some("Fail".to_owned()),
                side_effects: "None".to_owned(),
                admission_review_versions: vec!["v1".to_owned()],
                timeout_seconds: Some(TIMEOUT_SECS),
                ..MutatingWebhook::default()
            }
        });
        MutatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(MUTATING.to_owned()),
                ..ObjectMeta::default()
            },
            webhooks: Some(webhooks.collect()),
        }
    }

    /// Webhooks that refuse objects.
    pub(super) fn validating(&self) -> ValidatingWebhookConfiguration {
        let base = |name: String, path: &str| ValidatingWebhook {
            name,
            client_config: self.client(path),
            failure_policy: Some("Fail".to_owned()),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            timeout_seconds: Some(TIMEOUT_SECS),
            ..ValidatingWebhook::default()
        };
        let jobs = self.kinds.iter().map(|kind| {
            let gvk = kind.gvk();
            ValidatingWebhook {
                rules: Some(Self::rule(
                    gvk.group,
                    gvk.version,
                    &[kind.plural()],
                    &["CREATE", "UPDATE"],
                )),
                namespace_selector: Some(self.elsewhere()),
                ..base(
                    format!("v{}.kb.io", gvk.kind.to_lowercase()),
                    &validate_path(gvk.group, gvk.version, gvk.kind),
                )
            }
        });
        let resources = ["workloads", "workloads/status"];
        let workloads = ValidatingWebhook {
            rules: Some(Self::rule(
                "kueue.x-k8s.io",
                "v1beta2",
                &resources,
                &["CREATE", "UPDATE"],
            )),
            // Why: each of our own status writes would come back to us for a check that cannot fail.
            match_conditions: self.own_user.map(|user| {
                vec![MatchCondition {
                    name: "not-our-own-writes".to_owned(),
                    expression: format!(
                        "request.userInfo.username != '{}'",
                        user.replace(['\\', '\''], "")
                    ),
                }]
            }),
            ..base(
                "vworkload.kb.io".to_owned(),
                &validate_path("kueue.x-k8s.io", "v1beta2", "Workload"),
            )
        };
        ValidatingWebhookConfiguration {
            metadata: ObjectMeta {
                name: Some(VALIDATING.to_owned()),
                ..ObjectMeta::default()
            },
            webhooks: Some(jobs.chain([workloads]).collect()),
        }
    }
}
