//! The objects that every new server has: namespaces, roles and priority classes.

use serde_json::{Value, json};

use crate::json;
use crate::kinds::VERBS;

const RBAC: &str = "rbac.authorization.k8s.io";

fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "rules": rules,
    })
}

fn binding(name: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"kind": "Group", "apiGroup": RBAC, "name": group}))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": subjects,
    })
}

/// Reading and writing what lives in namespaces, for the roles that people get.
fn people(verbs: &Value) -> Value {
    json!([
        {"apiGroups": [""], "resources": ["configmaps", "events", "pods", "pods/log", "pods/status", "podtemplates", "services", "serviceaccounts", "limitranges", "namespaces"], "verbs": verbs},
        {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status", "cronjobs"], "verbs": verbs},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets", "statefulsets", "daemonsets"], "verbs": verbs},
    ])
}

/// The objects of a new cluster, each with its resource.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let mut objects: Vec<(&'static str, Value)> =
        ["default", "kube-node-lease", "kube-public", "kube-system"]
            .iter()
            .map(|name| {
                let object = json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
                });
                ("namespaces", object)
            })
            .collect();
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    ] {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
            "value": value, "preemptionPolicy": "PreemptLowerPriority",
        });
        objects.push(("priorityclasses.scheduling.k8s.io", object));
    }
    let read = json!(["get", "list", "watch"]);
    let write = json!(VERBS);
    let discovery = json!([{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let public = json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    let basic = json!([
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]);
    let all = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let delegator = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    let mut admin = people(&write);
    if let Some(rules) = admin.as_array_mut() {
        rules.push(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": write}));
        rules.push(json!({"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": write}));
    }
    for (name, rules) in [
        ("cluster-admin", &all),
        ("system:discovery", &discovery),
        ("system:public-info-viewer", &public),
        ("system:basic-user", &basic),
        ("system:auth-delegator", &delegator),
    ] {
        objects.push(("clusterroles.rbac.authorization.k8s.io", role(name, rules)));
    }
    for (name, rules) in [
        ("view", people(&read)),
        ("edit", people(&write)),
        ("admin", admin),
    ] {
        let mut object = role(name, &rules);
        json::set(
            &mut object,
            &["aggregationRule", "clusterRoleSelectors"],
            json!([{"matchLabels": {format!("{RBAC}/aggregate-to-{name}"): "true"}}]),
        );
        objects.push(("clusterroles.rbac.authorization.k8s.io", object));
    }
    for (name, groups) in [
        ("cluster-admin", &["system:masters"][..]),
        ("system:discovery", &["system:authenticated"]),
        ("system:basic-user", &["system:authenticated"]),
        (
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
    ] {
        objects.push((
            "clusterrolebindings.rbac.authorization.k8s.io",
            binding(name, groups),
        ));
    }
    objects
}
