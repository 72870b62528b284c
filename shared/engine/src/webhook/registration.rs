//! The webhook configurations by which the API server finds us.
//!
//! Invariant: only one set of configurations is written, under the documented names.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::ObjectMeta;
use roadstead_api::constants::groups::KUEUE;
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use roadstead_jobs::JobKind;
use roadstead_kinds::{Kind, Members, Review, rows};
use roadstead_serve::webhook::{mutate_path, validate_path};

/// The version in which the API server sends objects, whatever version they were written in.
pub(super) const VERSION: &str = "v1beta2";
/// The prefix of the user names of service accounts, which no human user has.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The prefix of the accounts that `roadstead cluster join` creates for managers.
const ACCOUNTS: &str = "roadstead-";

/// The prefix of the user names of all managers, whose accounts are in this namespace.
pub(super) fn managers(namespace: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{ACCOUNTS}")
}

/// How long the API server waits for an answer.
const TIMEOUT_SECS: i32 = 10;

/// Where the API server reaches our webhooks.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    Url(String),
    Service { name: String, namespace: String },
}

impl Reach {
    /// The settings by which the API server calls us under `path`, trusting these authorities (PEM). Without any, it trusts those
    /// that another tool injects or the machine knows.
    pub(super) fn client(&self, path: &str, ca_bundle: Option<&str>) -> WebhookClientConfig {
        let ca_bundle = ca_bundle.map(|pem| ByteString(pem.as_bytes().to_vec()));
        match self {
            Self::Url(base) => WebhookClientConfig {
                ca_bundle,
                url: Some(format!("{}{path}", base.trim_end_matches('/'))),
                service: None,
            },
            Self::Service { name, namespace } => WebhookClientConfig {
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
}

/// Which jobs are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    Named,
    /// All (`manageJobsWithoutQueueName`).
    Any,
}

/// The inputs of the configurations.
pub(super) struct Registration<'a> {
    /// Kinds whose integration is enabled.
    pub(super) kinds: &'a [&'static dyn JobKind],
    /// The address of our webhooks.
    pub(super) reach: &'a Reach,
    pub(super) queues: Queues,
    /// The authorities to trust, PEM; `None` when another tool injects them.
    pub(super) ca_bundle: Option<&'a str>,
    /// Our own namespace, whose jobs are left alone.
    pub(super) namespace: &'a str,
    /// Our own user, whose writes of Workloads need no check.
    pub(super) own_user: Option<&'a str>,
    /// The namespace of the managers' accounts here; the manager's own webhooks have checked what they write.
    pub(super) accounts: &'a str,
}

impl Registration<'_> {
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

    /// Unlike the anchor: of some kinds only the objects that name a queue are reviewed, unless all are to be held. So no other pod of
    /// the cluster waits for our answer.
    fn of_ours(&self, api: &Api) -> Option<LabelSelector> {
        let is_asked = api.review == Review::Queued && self.queues == Queues::Named;
        is_asked.then(|| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: QUEUE_NAME.to_owned(),
                operator: "Exists".to_owned(),
                values: None,
            }]),
            match_labels: None,
        })
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

    /// Unlike the anchor: copies that a manager puts on its worker are not reviewed again, which saves four calls for each job.
    /// `AppWrappers` are reviewed: wrapped resources are checked against the rights of the user who creates them.
    fn not_by_managers(&self, api: &Api) -> Option<MatchCondition> {
        (api.kind != rows::APP_WRAPPER.kind).then(|| MatchCondition {
            name: "not-copies-of-managers".to_owned(),
            expression: format!(
                "!request.userInfo.username.startsWith('{}')",
                managers(&unquoted(self.accounts))
            ),
        })
    }

    /// A review of our own writes cannot fail, so it is skipped.
    fn not_by_us(&self) -> Option<MatchCondition> {
        self.own_user.map(|user| MatchCondition {
            name: "not-our-own-writes".to_owned(),
            expression: format!("request.userInfo.username != '{}'", unquoted(user)),
        })
    }

    /// Writes of jobs that are not reviewed: our own, if no human user writes as our user, and copies of managers. `AppWrappers`
    /// have no such exceptions, see [`Self::not_by_managers`].
    fn known_writers(&self, api: &Api) -> Option<Vec<MatchCondition>> {
        let managers = self.not_by_managers(api)?;
        let is_account = self
            .own_user
            .is_some_and(|user| user.starts_with(SERVICE_ACCOUNT));
        let us = self.not_by_us().filter(|_| is_account);
        Some(us.into_iter().chain([managers]).collect())
    }

    fn mutator(&self, api: &Api, operations: &[&str]) -> MutatingWebhook {
        MutatingWebhook {
            name: format!("m{}.kb.io", api.kind.to_lowercase()),
            client_config: self
                .reach
                .client(&mutate_path(api.group, api.version, api.kind), self.ca_bundle),
            rules: Some(Self::rule(api.group, api.version, &[api.plural], operations)),
            failure_policy: Some("Fail".to_owned()),
            // Why: the API server converts an object of an older version to the one we know.
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            timeout_seconds: Some(TIMEOUT_SECS),
            ..MutatingWebhook::default()
        }
    }

    fn validator(&self, api: &Api, resources: &[&str]) -> ValidatingWebhook {
        ValidatingWebhook {
            name: format!("v{}.kb.io", api.kind.to_lowercase()),
            client_config: self
                .reach
                .client(&validate_path(api.group, api.version, api.kind), self.ca_bundle),
            rules: Some(Self::rule(
                api.group,
                api.version,
                resources,
                &["CREATE", "UPDATE"],
            )),
            failure_policy: Some("Fail".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            timeout_seconds: Some(TIMEOUT_SECS),
            ..ValidatingWebhook::default()
        }
    }

    /// The job kinds that are reviewed.
    fn jobs(&self) -> impl Iterator<Item = Api> {
        self.kinds.iter().map(|kind| Api::of(kind.kind()))
    }

    /// Webhooks that change objects.
    pub(super) fn mutating(&self) -> MutatingWebhookConfiguration {
        let jobs = self.jobs().map(|api| MutatingWebhook {
            namespace_selector: Some(self.elsewhere()),
            object_selector: self.of_ours(&api),
            match_conditions: self.not_by_managers(&api).map(|one| vec![one]),
            ..self.mutator(&api, api.operations)
        });
        let in_use = [CLUSTER_QUEUE, RESOURCE_FLAVOR].map(|api| self.mutator(&api, &["CREATE"]));
        let workload = MutatingWebhook {
            // Why: only the minimum counts of pod sets need defaults, and few Workloads have any.
            match_conditions: Some(vec![MatchCondition {
                name: "has-minimum-counts".to_owned(),
                expression: "has(object.spec) && has(object.spec.podSets) && object.spec.podSets.exists(s, has(s.minCount))"
                    .to_owned(),
            }]),
            ..self.mutator(&WORKLOAD, &["CREATE", "UPDATE"])
        };
        MutatingWebhookConfiguration {
            metadata: named(MUTATING_WEBHOOKS),
            webhooks: Some(jobs.chain(in_use).chain([workload]).collect()),
        }
    }

    /// Webhooks that refuse objects.
    pub(super) fn validating(&self) -> ValidatingWebhookConfiguration {
        let jobs = self.jobs().map(|api| ValidatingWebhook {
            namespace_selector: Some(self.elsewhere()),
            object_selector: self.of_ours(&api),
            match_conditions: self.known_writers(&api),
            ..self.validator(&api, &[api.plural])
        });
        let queues = [CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR].map(|api| self.validator(&api, &[api.plural]));
        let conditions = self
            .not_by_us()
            .into_iter()
            .chain(self.not_by_managers(&WORKLOAD));
        let workloads = ValidatingWebhook {
            match_conditions: Some(conditions.collect()),
            ..self.validator(&WORKLOAD, &["workloads", "workloads/status"])
        };
        ValidatingWebhookConfiguration {
            metadata: named(VALIDATING_WEBHOOKS),
            webhooks: Some(jobs.chain(queues).chain([workloads]).collect()),
        }
    }
}

/// A name that is safe between the quotes of an expression.
fn unquoted(name: &str) -> String {
    name.replace(['\\', '\''], "")
}

/// A reviewed kind, with the names of its API.
struct Api {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    review: Review,
    operations: &'static [&'static str],
}

impl Api {
    const fn of(row: &Kind) -> Self {
        Self {
            group: row.group,
            version: row.version,
            kind: row.kind,
            plural: row.plural,
            review: row.review,
            operations: match row.members {
                Members::One | Members::Group => &["CREATE"],
                // Why updates too: a change of its queue goes to the templates of its pods.
                Members::WithPods => &["CREATE", "UPDATE"],
            },
        }
    }
}

const fn ours(kind: &'static str, plural: &'static str) -> Api {
    Api {
        group: KUEUE,
        version: VERSION,
        kind,
        plural,
        review: Review::Every,
        operations: &["CREATE"],
    }
}

const CLUSTER_QUEUE: Api = ours("ClusterQueue", "clusterqueues");
const COHORT: Api = ours("Cohort", "cohorts");
const RESOURCE_FLAVOR: Api = ours("ResourceFlavor", "resourceflavors");
const WORKLOAD: Api = ours("Workload", "workloads");

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Spec: jobs 7.1.
    #[test]
    fn our_own_writes_of_jobs_are_looked_at_only_if_a_person_could_write_as_our_user() {
        let kinds = roadstead_jobs::registry();
        let conditions = |own_user: Option<&'static str>, hook: &str| -> Vec<String> {
            let registration = Registration {
                kinds: &kinds,
                queues: Queues::Named,
                reach: &Reach::Url("https://127.0.0.1:9443".to_owned()),
                ca_bundle: Some("pem"),
                namespace: "kueue-system",
                own_user,
                accounts: "roadstead-system",
            };
            let hooks = registration.validating().webhooks.unwrap_or_default();
            let found = hooks.into_iter().find(|one| one.name == hook).unwrap();
            let conditions = found.match_conditions.unwrap_or_default();
            conditions.into_iter().map(|one| one.name).collect()
        };
        let account = Some("system:serviceaccount:roadstead-system:manager");
        let both = ["not-our-own-writes", "not-copies-of-managers"];
        assert_eq!(conditions(account, "vjob.kb.io"), both);
        assert_eq!(conditions(Some("admin"), "vjob.kb.io"), both[1..]);
        assert_eq!(conditions(None, "vjob.kb.io"), both[1..]);
        assert_eq!(conditions(Some("admin"), "vworkload.kb.io"), both);
        assert!(conditions(account, "vappwrapper.kb.io").is_empty());
    }

    fn registered(kinds: &[&'static dyn JobKind]) -> (Vec<String>, Vec<String>) {
        let registration = Registration {
            kinds,
            queues: Queues::Named,
            reach: &Reach::Url("https://127.0.0.1:9443".to_owned()),
            ca_bundle: Some("pem"),
            namespace: "kueue-system",
            own_user: Some("me"),
            accounts: "roadstead-system",
        };
        let (mutating, validating) = (registration.mutating(), registration.validating());
        let mutating = mutating.webhooks.unwrap_or_default();
        let validating = validating.webhooks.unwrap_or_default();
        let spares = |hook: &Option<Vec<MatchCondition>>| {
            let conditions = hook.iter().flatten();
            { conditions.filter(|one| one.name == "not-copies-of-managers") }
                .inspect(|one| {
                    assert_eq!(
                        one.expression,
                        "!request.userInfo.username.startsWith('system:serviceaccount:roadstead-system:roadstead-')"
                    );
                })
                .count()
        };
        let spares_managers = |name: &str| {
            let mut rows = kinds.iter().map(|kind| kind.kind());
            rows.any(|row| {
                row != &rows::APP_WRAPPER && name[1..] == format!("{}.kb.io", row.kind.to_lowercase())
            })
        };
        for hook in &mutating {
            let of_jobs = spares_managers(&hook.name);
            assert_eq!(
                spares(&hook.match_conditions),
                usize::from(of_jobs),
                "{}",
                hook.name
            );
            assert_eq!(hook.failure_policy.as_deref(), Some("Fail"));
            assert_eq!(hook.match_policy.as_deref(), Some("Equivalent"));
        }
        for hook in &validating {
            let of_copies = spares_managers(&hook.name) || hook.name == "vworkload.kb.io";
            assert_eq!(
                spares(&hook.match_conditions),
                usize::from(of_copies),
                "{}",
                hook.name
            );
            assert_eq!(hook.failure_policy.as_deref(), Some("Fail"));
            assert_eq!(hook.match_policy.as_deref(), Some("Equivalent"));
        }
        (
            mutating.into_iter().map(|hook| hook.name).collect(),
            validating.into_iter().map(|hook| hook.name).collect(),
        )
    }

    /// Spec: api API-2.4, API-4, API-5, API-9.5; jobs 7.1; appwrapper B110.
    #[test]
    fn only_enabled_integrations_are_registered_beside_our_own_kinds() {
        let (mutating, validating) = registered(&[]);
        assert_eq!(
            mutating,
            ["mclusterqueue.kb.io", "mresourceflavor.kb.io", "mworkload.kb.io"]
        );
        assert_eq!(
            validating,
            [
                "vclusterqueue.kb.io",
                "vcohort.kb.io",
                "vresourceflavor.kb.io",
                "vworkload.kb.io"
            ]
        );
        let (mutating, validating) = registered(&roadstead_jobs::registry());
        for name in ["mjob.kb.io", "mappwrapper.kb.io"] {
            assert!(mutating.contains(&name.to_owned()), "{mutating:?}");
        }
        let unique: BTreeSet<&String> = validating.iter().collect();
        assert_eq!(unique.len(), validating.len(), "{validating:?}");
    }
}
