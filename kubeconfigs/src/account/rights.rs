//! The rights of the account, as objects to apply on the worker.
//!
//! Least privilege, cluster-wide because the manager watches cluster-wide (`spec/multikueue.md 9`). The account has:
//! - Workloads in full;
//! - the kinds of jobs that are sent there, without `update`;
//! - read-only access to queues, flavors and provisioning requests;
//! - a new token for itself;
//! - reading and changing one lease of its own name (creating cannot be restricted to a name);
//! - reading the one namespace whose UID identifies the cluster;
//! - nothing on Secrets, and pods only if a kind needs them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ObjectMeta;
use roadstead_api::config::DEFAULT_NAMESPACE;
use roadstead_api::constants::labels::{VALUE_LEN_MAX, is_label_value};
use roadstead_kinds::Kind;
use serde_json::{Value, json};

/// Default namespace of the account on the worker: that of the worker's own engine, where the manager's lease is too.
pub const NAMESPACE: &str = DEFAULT_NAMESPACE;
/// Label with the origin of the manager that an object belongs to.
pub const ORIGIN_LABEL: &str = "roadstead.dev/origin";
/// Label with the owner of an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "roadstead";
/// Longest origin that is part of a name as it is, so that the name stays a DNS label.
const PLAIN_BYTES_MAX: usize = 53;
/// The namespace whose UID names a cluster: it lives as long as its cluster.
pub const IDENTITY: &str = "kube-system";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const LEASE_GROUP: &str = "coordination.k8s.io";

/// Name of the lease that the manager with this origin keeps on each of its workers (`spec/safety.md 3.2`). It equals the account's name,
/// so that reading and changing can be restricted to this lease (creating cannot be restricted to a name). An origin of at most
/// 53 lower-case letters, digits and dashes is part of the name as it is; any other gets a name made of its bytes.
pub fn lease_name(origin: &str) -> String {
    if is_plain(origin) {
        return format!("roadstead-{origin}");
    }
    origin.bytes().fold("roadstead-x".to_owned(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

fn is_plain(origin: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = origin.as_bytes();
    bytes.len() <= PLAIN_BYTES_MAX
        && bytes.first().copied().is_some_and(good)
        && bytes.last().copied().is_some_and(good)
        && bytes.iter().all(|b| good(*b) || *b == b'-')
}

/// The origin cannot be the value of a label.
#[derive(Debug, thiserror::Error)]
#[error(
    "the origin {origin:?} must be 1 to {VALUE_LEN_MAX} letters, digits, \"-\", \"_\" and \".\", beginning and ending with a letter or digit"
)]
pub struct BadOrigin {
    /// The origin that was given.
    pub origin: String,
}

/// An account on a worker. Each manager has its own: the name is made of the manager's origin, so that two managers of one worker do
/// not share an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    namespace: String,
    origin: String,
}

/// All objects of an account, in the order in which they are applied. All have the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// The service account itself.
    pub service_account: ServiceAccount,
    /// Rights in all namespaces.
    pub cluster_role: ClusterRole,
    /// Binds the cluster role to the service account.
    pub cluster_role_binding: ClusterRoleBinding,
    /// Rights in the account's own namespace: renew its own token, and the manager's lease.
    pub role: Role,
    /// Binds the role to the service account.
    pub role_binding: RoleBinding,
}

impl Objects {
    /// The objects as JSON.
    pub fn in_order(&self) -> [Value; 5] {
        [
            json!(self.service_account),
            json!(self.cluster_role),
            json!(self.cluster_role_binding),
            json!(self.role),
            json!(self.role_binding),
        ]
    }
}

impl Account {
    /// The account of the manager with this origin, in this namespace of the worker.
    ///
    /// *Errors*: the origin is empty or no value of a label, so the manager's configuration cannot have it.
    pub fn new(origin: &str, namespace: &str) -> Result<Self, BadOrigin> {
        if origin.is_empty() || !is_label_value(origin) {
            return Err(BadOrigin {
                origin: origin.to_owned(),
            });
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            origin: origin.to_owned(),
        })
    }

    /// Name of the service account and of its roles and bindings: that of the lease, [`lease_name`].
    pub fn name(&self) -> String {
        lease_name(&self.origin)
    }

    /// The origin of the manager.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Namespace of the service account on the worker.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name by which the worker's API server knows the account.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name())
    }

    /// Label selector that finds everything of [`Self::objects`] on a worker.
    pub fn selector(&self) -> String {
        format!("{MANAGED_BY_LABEL}={MANAGED_BY},{ORIGIN_LABEL}={}", self.origin)
    }

    /// The objects to apply on the worker so that jobs of these kinds can be sent there. The namespace is not included, because it may
    /// belong to another user.
    pub fn objects(&self, kinds: &[&Kind]) -> Objects {
        let name = self.name();
        let subjects = Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.clone(),
            namespace: Some(self.namespace.clone()),
            api_group: None,
        }]);
        let role_ref = |kind: &str| RoleRef {
            api_group: Some(RBAC_GROUP.to_owned()),
            kind: kind.to_owned(),
            name: name.clone(),
        };
        Objects {
            service_account: ServiceAccount {
                metadata: self.meta(Some(&self.namespace)),
                // Why: no pod runs as this account; its tokens are requested by name.
                automount_service_account_token: Some(false),
                ..ServiceAccount::default()
            },
            cluster_role: ClusterRole {
                metadata: self.meta(None),
                rules: Some(cluster_rules(kinds)),
                ..ClusterRole::default()
            },
            cluster_role_binding: ClusterRoleBinding {
                metadata: self.meta(None),
                role_ref: role_ref("ClusterRole"),
                subjects: subjects.clone(),
            },
            role: Role {
                metadata: self.meta(Some(&self.namespace)),
                rules: Some(vec![
                    PolicyRule {
                        resource_names: Some(vec![name.clone()]),
                        ..rule("", &["serviceaccounts/token"], &["create"])
                    },
                    // Why a rule of its own: RBAC cannot restrict `create` to a name.
                    rule(LEASE_GROUP, &["leases"], &["create"]),
                    PolicyRule {
                        resource_names: Some(vec![name.clone()]),
                        ..rule(LEASE_GROUP, &["leases"], &["get", "patch"])
                    },
                ]),
            },
            role_binding: RoleBinding {
                metadata: self.meta(Some(&self.namespace)),
                role_ref: role_ref("Role"),
                subjects,
            },
        }
    }

    fn meta(&self, namespace: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name()),
            namespace: namespace.map(str::to_owned),
            labels: Some(BTreeMap::from([
                (MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned()),
                (ORIGIN_LABEL.to_owned(), self.origin.clone()),
            ])),
            ..ObjectMeta::default()
        }
    }
}

/// Rights in all namespaces. Spec: multikueue 9, safety 6.
fn cluster_rules(kinds: &[&Kind]) -> Vec<PolicyRule> {
    let read = ["get", "list", "watch"];
    let mut rules = vec![
        rule(
            "kueue.x-k8s.io",
            &["workloads"],
            &["create", "delete", "get", "list", "patch", "update", "watch"],
        ),
        rule(
            "kueue.x-k8s.io",
            &["workloads/status"],
            &["get", "patch", "update"],
        ),
        rule(
            "kueue.x-k8s.io",
            &["clusterqueues", "localqueues", "resourceflavors"],
            &read,
        ),
        rule("autoscaling.x-k8s.io", &["provisioningrequests"], &read),
        // Why: the UID of this namespace identifies the worker cluster (`spec/safety.md` 3.8).
        PolicyRule {
            resource_names: Some(vec![IDENTITY.to_owned()]),
            ..rule("", &["namespaces"], &["get"])
        },
    ];
    for kind in kinds {
        rules.extend(kind.rights.account.iter().map(|right| {
            let (group, resource) = right.resource(kind);
            rule(group, &[&resource], right.verbs)
        }));
    }
    rules
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// One line per rule, for people: `batch: jobs: create, delete, get`. An empty group prints as `core`.
pub fn describe(rules: &[PolicyRule]) -> Vec<String> {
    let group = |rule: &PolicyRule| {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        groups
            .iter()
            .map(|group| if group.is_empty() { "core" } else { group })
            .collect::<Vec<_>>()
            .join(", ")
    };
    rules
        .iter()
        .map(|rule| {
            let only = rule
                .resource_names
                .as_ref()
                .map_or_else(String::new, |names| format!(" (only {})", names.join(", ")));
            format!(
                "{}: {}{only}: {}",
                group(rule),
                rule.resources.as_deref().unwrap_or_default().join(", "),
                rule.verbs.join(", ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use roadstead_kinds::{Ability, Kind, On, Right, TABLE, rows};

    use super::{Account, NAMESPACE, describe, lease_name};

    fn account() -> Account {
        Account::new("multikueue", NAMESPACE).unwrap()
    }

    /// Spec: safety 6, safety 5 S11, multikueue 9
    #[test]
    fn account_has_exactly_these_rights() {
        let objects = account().objects(&[&rows::JOB]);
        let everywhere = describe(objects.cluster_role.rules.as_deref().unwrap());
        assert_eq!(
            everywhere,
            [
                "kueue.x-k8s.io: workloads: create, delete, get, list, patch, update, watch",
                "kueue.x-k8s.io: workloads/status: get, patch, update",
                "kueue.x-k8s.io: clusterqueues, localqueues, resourceflavors: get, list, watch",
                "autoscaling.x-k8s.io: provisioningrequests: get, list, watch",
                "core: namespaces (only kube-system): get",
                "batch: jobs: create, delete, get, list, patch, watch",
                "batch: jobs/status: get",
            ]
        );
        let at_home = describe(objects.role.rules.as_deref().unwrap());
        assert_eq!(
            at_home,
            [
                "core: serviceaccounts/token (only roadstead-multikueue): create",
                "coordination.k8s.io: leases: create",
                "coordination.k8s.io: leases (only roadstead-multikueue): get, patch",
            ]
        );
    }

    /// Spec: safety 3.2
    #[test]
    fn each_origin_has_a_lease_of_its_own_and_the_account_a_right_to_it() {
        assert_eq!(lease_name("multikueue"), account().name());
        assert_eq!(lease_name("My_1"), "roadstead-x4d795f31");
    }

    /// Spec: safety 6, multikueue 9
    #[test]
    fn a_kind_is_reached_only_if_it_is_sent_there_and_an_invented_one_like_any_other() {
        let kinds: Vec<&Kind> = TABLE.iter().chain([&rows::INVENTED]).collect();
        let rules = |on: &[&Kind]| describe(&account().objects(on).cluster_role.rules.unwrap());
        let none = rules(&[]);
        for kind in &kinds {
            let more = rules(&[kind]);
            let more: Vec<&String> = more.iter().filter(|rule| !none.contains(rule)).collect();
            let group = if kind.group.is_empty() { "core" } else { kind.group };
            let named = |right: &Right| match right.on {
                On::Objects | On::Part(_) => format!("{group}: {}", kind.plural),
                On::Other { group, resource } => format!("{group}: {resource}"),
            };
            let named: Vec<String> = kind.rights.account.iter().map(named).collect();
            let of_it = |rule: &&String| named.iter().any(|start| rule.starts_with(start));
            assert_eq!(more.is_empty(), !kind.can(Ability::Dispatched), "{kind}");
            assert_eq!(more.len(), kind.rights.account.len(), "{more:?}");
            assert!(more.iter().all(of_it), "{more:?}");
        }
    }

    /// Spec: safety 5 S11
    #[test]
    fn account_reaches_no_secrets_no_pods_and_nothing_by_wildcard() {
        let objects = account().objects(&[&rows::JOB]);
        let text = serde_json::to_string(&(&objects.cluster_role, &objects.role)).unwrap();
        for word in ["secrets", "pods", "\"*\"", "impersonate", "bind", "escalate"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn bindings_give_the_roles_to_the_account_and_to_nobody_else() {
        let objects = account().objects(&[&rows::JOB]);
        let binding = serde_json::to_value(&objects.cluster_role_binding).unwrap();
        assert_eq!(
            binding,
            serde_json::json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {
                    "name": "roadstead-multikueue",
                    "labels": {"app.kubernetes.io/managed-by": "roadstead", "roadstead.dev/origin": "multikueue"},
                },
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "roadstead-multikueue"},
                "subjects": [{"kind": "ServiceAccount", "name": "roadstead-multikueue", "namespace": "kueue-system"}],
            })
        );
        assert_eq!(
            objects.role_binding.subjects,
            objects.cluster_role_binding.subjects
        );
        assert_eq!(objects.role_binding.role_ref.kind, "Role");
        assert_eq!(
            objects.role_binding.metadata.namespace.as_deref(),
            Some("kueue-system")
        );
    }

    #[test]
    fn origins_that_are_no_value_of_a_label_are_refused() {
        for bad in ["", "-a", "a-", "a b", "a/b", &"a".repeat(64)] {
            let refused = Account::new(bad, NAMESPACE).unwrap_err().to_string();
            assert!(refused.contains("1 to 63 letters"), "{refused}");
        }
    }

    /// Spec: safety 3.2, safety 6
    #[test]
    fn every_origin_of_a_configuration_makes_an_account_with_the_name_of_its_lease() {
        let (plain, long) = ("a".repeat(53), "a".repeat(63));
        for (origin, name) in [
            ("multikueue", "roadstead-multikueue"),
            ("0c7e9f3e-6a55", "roadstead-0c7e9f3e-6a55"),
            (&plain, &format!("roadstead-{plain}")),
            ("My_1.x", "roadstead-x4d795f312e78"),
            (&long, &format!("roadstead-x{}", "61".repeat(63))),
        ] {
            let account = Account::new(origin, NAMESPACE).unwrap();
            assert_eq!(account.name(), name);
            assert_eq!(lease_name(origin), name);
            let objects = account.objects(&[&rows::JOB]);
            let meta = &objects.service_account.metadata;
            assert_eq!(meta.name.as_deref(), Some(name));
            assert_eq!(meta.labels.as_ref().unwrap()[super::ORIGIN_LABEL], origin);
            let lease = describe(objects.role.rules.as_deref().unwrap()).pop().unwrap();
            assert!(lease.contains(&format!("(only {name})")), "{lease}");
        }
    }
}
