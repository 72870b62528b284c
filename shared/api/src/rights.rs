//! The rights that our processes need in their own clusters, as objects to apply there.
//!
//! Least privilege: no wildcard, no impersonation; Secrets only in the process's own namespace; of jobs only the kinds whose
//! integration is on, and pods only if one of these needs them. `roadstead cluster join` creates the rights that a process has in
//! other clusters; those for the visibility API are in [`crate::install`].
//!
//! *Source*: `spec/safety.md 6`.

use std::collections::BTreeSet;

use roadstead_kinds::{Kind, TABLE, rows};
use serde_json::{Value, json};

use crate::constants::{groups, names};
use crate::crd;

/// Name of the service account of the process, as in the reference's installations.
pub const ACCOUNT: &str = "kueue-controller-manager";

const RBAC: &str = "rbac.authorization.k8s.io";
/// The namespace in which a job is created in dry-run, to see whether webhooks are called already.
const PROBED_NAMESPACE: &str = "default";
/// The kinds whose integration is on when the configuration names none. *Source*: `spec/jobs.md 3`.
pub const BY_DEFAULT: &[&Kind] = &[&rows::JOB];
const READ: [&str; 3] = ["get", "list", "watch"];

/// One of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// `roadstead-manager`, on the management cluster.
    Manager,
    /// `roadstead-worker`, on a worker cluster.
    Worker,
}

impl Process {
    /// Both processes.
    pub const ALL: [Self; 2] = [Self::Manager, Self::Worker];

    /// Name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manager => "roadstead-manager",
            Self::Worker => "roadstead-worker",
        }
    }

    /// Name of the roles. Why a colon: no name that `roadstead cluster join` gives to the roles of a manager has one.
    const fn role(self) -> &'static str {
        match self {
            Self::Manager => "roadstead:manager",
            Self::Worker => "roadstead:worker",
        }
    }
}

/// The namespace, the service account, its roles and their bindings, in the order in which they are applied; `namespace` is
/// that of the process, `kinds` are those whose integration is on.
pub fn manifests(process: Process, namespace: &str, kinds: &[&Kind]) -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
        }),
    ];
    let (mut cluster, mut own) = (engine_rules(), own_rules());
    cluster.extend(kinds.iter().flat_map(|kind| kind_rules(process, kind)));
    match process {
        Process::Manager => {
            cluster.extend(manager_rules());
            own.push(rule("", &["secrets"], &["list", "watch", "patch"]));
        }
        Process::Worker => {
            cluster.extend(worker_rules());
            // The leases of managers lie in the same namespace.
            own.push(rule("coordination.k8s.io", &["leases"], &["list"]));
        }
    }
    let mut role = Roles {
        objects: &mut objects,
        name: process.role(),
        namespace,
    };
    role.add(None, &cluster);
    role.add(Some(namespace), &own);
    if kinds.contains(&&rows::JOB) {
        let jobs = rule(rows::JOB.group, &[rows::JOB.plural], &["create"]);
        role.add(Some(PROBED_NAMESPACE), &[jobs]);
    }
    objects
}

/// Name of the role of the `AppWrapper` controller, and the part of the labels by which roles are added to it.
const WRAPPER_ROLE: &str = "roadstead:appwrapper";
/// Label of a cluster role whose rules the `AppWrapper` controller gets as well: for kinds that administrators want wrapped.
pub const WRAPPED_LABEL: &str = "roadstead.dev/aggregate-to-appwrapper";

/// The additional rights of the `AppWrapper` controller in a worker, besides [`manifests`]; applied only where the controller is
/// enabled.
///
/// It needs the right to create and delete the wrapped objects, including pods. Further kinds are added by cluster roles with
/// [`WRAPPED_LABEL`]. *Source*: `spec/appwrapper.md` Appendix B.
pub fn appwrapper(namespace: &str) -> Vec<Value> {
    let child = ["create", "delete", "get", "list", "watch"];
    let group = "workload.codeflare.dev";
    let rules = [
        rule(group, &["appwrappers"], &["get", "list", "watch", "patch"]),
        rule(group, &["appwrappers/status"], &["patch"]),
        // For clusters that check the right to block an owner's deletion.
        rule(group, &["appwrappers/finalizers"], &["update"]),
        rule("", &["pods", "services"], &child),
        rule("", &["nodes"], &READ),
        rule("apps", &["deployments", "statefulsets"], &child),
        rule("apps", &["replicasets"], &["get"]),
        rule("batch", &["jobs"], &child),
        rule("jobset.x-k8s.io", &["jobsets"], &child),
        rule("leaderworkerset.x-k8s.io", &["leaderworkersets"], &child),
        rule("kubeflow.org", &["pytorchjobs"], &child),
        rule("ray.io", &["rayclusters", "rayjobs"], &child),
        rule("scheduling.sigs.k8s.io", &["podgroups"], &child),
        rule("scheduling.x-k8s.io", &["podgroups"], &child),
    ];
    let version = format!("{RBAC}/v1");
    vec![
        json!({
            "apiVersion": version, "kind": "ClusterRole",
            "metadata": {"name": format!("{WRAPPER_ROLE}:kinds"), "labels": {WRAPPED_LABEL: "true"}},
            "rules": rules,
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": WRAPPER_ROLE},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {WRAPPED_LABEL: "true"}}]},
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": WRAPPER_ROLE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": WRAPPER_ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        }),
    ]
}

const NODE_LEASES: &str = "kube-node-lease";

/// What a manager with `virtualNodes.enable` must be allowed besides [`manifests`]: to keep a node for each worker cluster, and to put
/// pods on it.
pub fn virtual_nodes(namespace: &str) -> Vec<Value> {
    let rules = [
        rule("", &["nodes"], &["create", "delete", "get", "list", "patch"]),
        rule("", &["nodes/status"], &["patch"]),
        rule("", &["pods/binding"], &["create"]),
    ];
    let mut objects = Vec::new();
    let name = format!("{}:virtual-nodes", Process::Manager.role());
    let mut role = Roles {
        objects: &mut objects,
        name: &name,
        namespace,
    };
    role.add(None, &rules);
    let leases = rule("coordination.k8s.io", &["leases"], &["create", "patch"]);
    role.add(Some(NODE_LEASES), &[leases]);
    objects
}

/// What a manager must be allowed in a namespace whose jobs may have what they name carried to their worker. *Source*: `spec/safety.md
/// 5.1`.
pub fn carrying(namespace: &str, carried_from: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    let name = format!("{}:carrying", Process::Manager.role());
    let mut role = Roles {
        objects: &mut objects,
        name: &name,
        namespace,
    };
    role.add(
        Some(carried_from),
        &[rule("", &["configmaps", "secrets", "services"], &["get"])],
    );
    objects
}

/// What the account of a manager on a worker must be allowed in a namespace there that accepts such objects; `account` and `namespace` are
/// those of the account. *Source*: `spec/safety.md 5.1`.
pub fn accepting(account: &str, namespace: &str, accepted_in: &str) -> Vec<Value> {
    let mut consent = rule("", &["namespaces"], &["get"]);
    // Why: an annotation of the namespace is the consent.
    consent["resourceNames"] = json!([accepted_in]);
    let rules = [
        rule(
            "",
            &["configmaps", "secrets", "services"],
            &["create", "get", "patch"],
        ),
        consent,
    ];
    let (version, name) = (format!("{RBAC}/v1"), format!("{account}-carrying"));
    let metadata = json!({"name": name, "namespace": accepted_in});
    vec![
        json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }),
    ]
}

/// The additional rights of a running process in its namespace when this integration is switched on.
pub fn of_integration(process: Process, namespace: &str, kind: &Kind) -> Vec<Value> {
    let rules = kind_rules(process, kind);
    let name = format!("{}:{}", process.role(), kind.framework.replace('/', ":"));
    let mut objects = Vec::new();
    let mut role = Roles {
        objects: &mut objects,
        name: &name,
        namespace,
    };
    role.add(None, &rules);
    objects
}

struct Roles<'a> {
    objects: &'a mut Vec<Value>,
    name: &'a str,
    namespace: &'a str,
}

impl Roles<'_> {
    /// A role and its binding: in all namespaces, or in one.
    fn add(&mut self, place: Option<&str>, rules: &[Value]) {
        let (role, binding) = match place {
            None => ("ClusterRole", "ClusterRoleBinding"),
            Some(_) => ("Role", "RoleBinding"),
        };
        let name = self.name;
        let mut metadata = json!({"name": name});
        if let Some(place) = place {
            metadata["namespace"] = place.into();
        }
        self.objects.push(json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": role, "metadata": metadata, "rules": rules,
        }));
        self.objects.push(json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": binding, "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self.namespace}],
        }));
    }
}

/// The rights of an admission engine in its cluster.
fn engine_rules() -> Vec<Value> {
    let read = [
        "admissionchecks",
        "clusterqueues",
        "cohorts",
        "localqueues",
        "resourceflavors",
        "topologies",
        "workloadpriorityclasses",
        "workloads",
    ];
    let statuses = [
        "admissionchecks/status",
        "clusterqueues/status",
        "cohorts/status",
        "localqueues/status",
        "workloads/status",
    ];
    // Their finalizers.
    let kept = [
        "admissionchecks",
        "clusterqueues",
        "resourceflavors",
        "topologies",
    ];
    let definitions = crd::all();
    let converted: Vec<String> = { definitions.iter() }
        .filter(|definition| definition.spec.versions.len() > 1)
        .map(|definition| format!("{}.{}", definition.spec.names.plural, definition.spec.group))
        .collect();
    vec![
        rule(groups::KUEUE, &read, &READ),
        rule(groups::KUEUE, &statuses, &["patch"]),
        rule(groups::KUEUE, &kept, &["patch"]),
        rule(groups::KUEUE, &["workloads"], &["create", "delete", "patch"]),
        rule("", &["limitranges", "namespaces"], &READ),
        rule("scheduling.k8s.io", &["priorityclasses"], &READ),
        rule("node.k8s.io", &["runtimeclasses"], &READ),
        rule("events.k8s.io", &["events"], &["create"]),
        // To check whether users may create what they have wrapped.
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        only(
            rule(
                "admissionregistration.k8s.io",
                &["mutatingwebhookconfigurations"],
                &["create", "patch"],
            ),
            &[names::MUTATING_WEBHOOKS.to_owned()],
        ),
        only(
            rule(
                "admissionregistration.k8s.io",
                &["validatingwebhookconfigurations"],
                &["create", "patch"],
            ),
            &[names::VALIDATING_WEBHOOKS.to_owned()],
        ),
        only(
            rule(
                "apiextensions.k8s.io",
                &["customresourcedefinitions"],
                &["get", "patch"],
            ),
            &converted,
        ),
    ]
}

/// The rights of an admission engine for jobs of a kind in its cluster.
fn kind_rules(process: Process, kind: &Kind) -> Vec<Value> {
    let own = kind.rights.engine.iter().map(|right| {
        let (group, resource) = right.resource(kind);
        rule(group, &[&resource], right.verbs)
    });
    // What steps of Argo Workflows have reported on workers is stored in the manager's cluster.
    let results = || rule("argoproj.io", &["workflowtaskresults"], &["create", "patch"]);
    let brings_results = kind == &rows::POD && process == Process::Manager;
    own.chain((kind == &rows::APP_WRAPPER).then(owner_rule))
        .chain(brings_results.then(results))
        .collect()
}

/// The right to read the possible owners between a job and its `AppWrapper`, whether or not their integration is on. Pods own no
/// jobs.
fn owner_rule() -> Value {
    let kinds = || TABLE.iter().filter(|kind| !kind.group.is_empty());
    let groups: BTreeSet<&str> = kinds().map(|kind| kind.group).collect();
    let resources: BTreeSet<&str> = kinds().map(|kind| kind.plural).chain(["replicasets"]).collect();
    json!({"apiGroups": groups, "resources": resources, "verbs": ["get"]})
}

/// The rights in its own namespace: for the certificate of its webhooks, and for its election Lease.
fn own_rules() -> Vec<Value> {
    vec![
        rule("", &["secrets"], &["create", "get", "update"]),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "patch"]),
    ]
}

fn manager_rules() -> Vec<Value> {
    vec![
        rule(groups::KUEUE, &["multikueueclusters", "multikueueconfigs"], &READ),
        rule(
            groups::KUEUE,
            &["multikueueclusters", "multikueueclusters/status"],
            &["patch"],
        ),
    ]
}

fn worker_rules() -> Vec<Value> {
    vec![
        rule(groups::KUEUE, &["provisioningrequestconfigs"], &READ),
        rule(
            "autoscaling.x-k8s.io",
            &["provisioningrequests"],
            &["create", "delete", "get", "list", "patch", "watch"],
        ),
        rule(
            "",
            &["podtemplates"],
            &["create", "delete", "get", "list", "patch", "watch"],
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The same rule, only for objects of these names.
fn only(mut rule: Value, names: &[String]) -> Value {
    rule["resourceNames"] = names.into();
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: safety 6
    #[test]
    fn no_process_has_anything_by_wildcard_and_secrets_only_in_its_own_namespace() {
        let every: Vec<&Kind> = TABLE.iter().collect();
        for process in Process::ALL {
            let objects = manifests(process, "ours", &every);
            for word in ["\"*\"", "impersonate", "\"bind\"", "escalate", "nodes"] {
                let text = Value::from(objects.clone()).to_string();
                assert!(!text.contains(word), "{process:?} has {word}");
            }
            for object in objects
                .iter()
                .filter(|object| object.to_string().contains("\"secrets\""))
            {
                assert_eq!(object["metadata"]["namespace"], "ours", "{process:?}");
            }
        }
    }

    /// Spec: appwrapper 8.1.
    #[test]
    fn the_controller_of_appwrappers_has_no_wildcard_and_no_secrets_and_gains_kinds_by_a_label() {
        let objects = appwrapper("ours");
        let text = Value::from(objects.clone()).to_string();
        for word in ["\"*\"", "secrets", "impersonate", "\"bind\"", "escalate"] {
            assert!(!text.contains(word), "{word}");
        }
        let selector = &objects[1]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        assert_eq!(selector, &objects[0]["metadata"]["labels"]);
        assert_eq!(objects[2]["subjects"][0]["namespace"], "ours");
    }

    /// Spec: safety 6
    #[test]
    fn a_kind_is_reached_only_where_its_integration_is_on_and_an_invented_one_like_any_other() {
        let kinds: Vec<&Kind> = TABLE.iter().chain([&rows::INVENTED]).collect();
        let reached = |on: &[&Kind]| {
            let objects = Process::ALL.map(|process| Value::from(manifests(process, "ours", on)).to_string());
            let is_in_all = |kind: &&&Kind| {
                let (group, resource) = (format!("[\"{}\"]", kind.group), format!("[\"{}\"]", kind.plural));
                let found = objects
                    .each_ref()
                    .map(|text| text.contains(&format!("\"apiGroups\":{group},\"resources\":{resource}")));
                assert_eq!(found[0], found[1], "{kind}");
                found[0]
            };
            kinds.iter().filter(is_in_all).copied().collect::<Vec<_>>()
        };
        assert!(reached(&[]).is_empty());
        for kind in &kinds {
            assert_eq!(reached(&[kind]), [*kind]);
        }
        assert_eq!(reached(&kinds), kinds);
        let added = of_integration(Process::Worker, "ours", &rows::INVENTED);
        assert_eq!(added[0]["metadata"]["name"], "roadstead:worker:example.com:train");
        assert_eq!(added[1]["roleRef"]["name"], added[0]["metadata"]["name"]);
        let whole = manifests(Process::Worker, "ours", &[&rows::INVENTED]);
        let in_whole = whole
            .iter()
            .filter_map(|object| object["rules"].as_array())
            .flatten();
        let in_whole: Vec<&Value> = in_whole.collect();
        let rules = added[0]["rules"].as_array().unwrap();
        assert!(!rules.is_empty() && rules.iter().all(|rule| in_whole.contains(&rule)));
    }

    #[test]
    fn every_role_is_bound_to_the_account_of_the_process() {
        for process in Process::ALL {
            let objects = manifests(process, "ours", &[&rows::JOB]);
            let of = |kind: &str| -> Vec<Value> {
                let found = objects.iter().filter(|object| object["kind"] == kind);
                found.map(|object| object["metadata"].clone()).collect()
            };
            assert_eq!(of("ClusterRole"), of("ClusterRoleBinding"));
            assert_eq!(of("Role"), of("RoleBinding"));
            let namespaces: Vec<Value> = of("Namespace");
            for place in of("Role").iter().map(|metadata| &metadata["namespace"]) {
                let is_made = namespaces.iter().any(|namespace| namespace["name"] == *place);
                assert!(is_made || place == PROBED_NAMESPACE, "{place}");
            }
        }
    }
}
