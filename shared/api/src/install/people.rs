//! Roles for users, under the names and with the aggregation labels of the reference's installations. Bindings to the reference's
//! roles work here, and a tenant with the cluster's `edit` sees its queues and Workloads.

use roadstead_kinds::{Kind, TABLE};
use serde_json::{Map, Value, json};

use crate::constants::groups;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Verbs of a viewer.
pub(crate) const SEE: [&str; 3] = ["get", "list", "watch"];
/// Verbs of an editor.
const EDIT: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// A role that aggregates others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathers {
    /// Administrators of queues: `kueue-batch-admin-role`.
    BatchAdmin,
    /// Users who submit jobs: `kueue-batch-user-role`.
    BatchUser,
    /// The cluster's own `admin`, of a namespace.
    Admin,
    /// The cluster's own `edit`.
    Edit,
    /// The cluster's own `view`.
    View,
}

use Gathers::{Admin, BatchAdmin, BatchUser, Edit, View};

/// The roles of users of a namespace, and of administrators.
pub(crate) const TENANTS: [Gathers; 5] = [BatchAdmin, BatchUser, View, Admin, Edit];

impl Gathers {
    /// The label by which a role is aggregated.
    const fn label(self) -> &'static str {
        match self {
            Self::BatchAdmin => "rbac.kueue.x-k8s.io/batch-admin",
            Self::BatchUser => "rbac.kueue.x-k8s.io/batch-user",
            Self::Admin => "rbac.authorization.k8s.io/aggregate-to-admin",
            Self::Edit => "rbac.authorization.k8s.io/aggregate-to-edit",
            Self::View => "rbac.authorization.k8s.io/aggregate-to-view",
        }
    }
}

/// The label that says which role it is: administrators gather roles of their own by it.
pub(crate) const ROLE: &str = "rbac.kueue.x-k8s.io/role";

/// A role that is aggregated into others.
pub(crate) fn role(name: &str, into: &[Gathers], rules: &Value) -> Value {
    let gathered = { into.iter() }.map(|into| (into.label().to_owned(), Value::from("true")));
    let labels: Map<String, Value> = gathered.collect();
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels}, "rules": rules,
    })
}

/// Editor and viewer of a resource of a group.
fn pair(short: &str, (group, plural): (&str, &str), edits: &[Gathers], sees: &[Gathers]) -> [Value; 2] {
    let made = |role_of: &str, verbs: &[&str], into: &[Gathers]| {
        let short = format!("{short}-{role_of}");
        let rules = json!([
            {"apiGroups": [group], "resources": [plural], "verbs": verbs},
            {"apiGroups": [group], "resources": [format!("{plural}/status")], "verbs": ["get"]},
        ]);
        let mut role = role(&format!("kueue-{short}-role"), into, &rules);
        role["metadata"]["labels"][ROLE] = short.into();
        role
    };
    [made("editor", &EDIT, edits), made("viewer", &SEE, sees)]
}

/// Whether a kind has roles of its own. Why not Kubernetes' pods and sets: the cluster's own `edit` and `view` include them.
fn has_roles(kind: &Kind) -> bool {
    !matches!(kind.group, "" | "apps")
}

/// Every role for users.
pub(super) fn people() -> Vec<Value> {
    let gathers = |name: &str, into: Gathers| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {into.label(): "true"}}]},
        })
    };
    let mut roles = vec![
        gathers("kueue-batch-admin-role", BatchAdmin),
        gathers("kueue-batch-user-role", BatchUser),
    ];
    for (short, plural) in [
        ("clusterqueue", "clusterqueues"),
        ("cohort", "cohorts"),
        ("resourceflavor", "resourceflavors"),
        ("topology", "topologies"),
    ] {
        roles.extend(pair(
            short,
            (groups::KUEUE, plural),
            &[BatchAdmin],
            &[BatchAdmin, Admin],
        ));
    }
    for (short, plural) in [("localqueue", "localqueues"), ("workload", "workloads")] {
        roles.extend(pair(short, (groups::KUEUE, plural), &[BatchAdmin], &TENANTS));
    }
    for kind in TABLE.iter().filter(|kind| has_roles(kind)) {
        let short = kind.kind.to_lowercase();
        roles.extend(pair(
            &short,
            (kind.group, kind.plural),
            &[BatchAdmin, BatchUser],
            &TENANTS,
        ));
    }
    // The reference has no roles for these.
    let others = [
        "admissionchecks",
        "multikueueclusters",
        "multikueueconfigs",
        "provisioningrequestconfigs",
        "workloadpriorityclasses",
    ];
    let seen = ["clusterqueues", "workloadpriorityclasses"];
    let rules = |resources: &[&str], verbs: &[&str]| json!([{"apiGroups": [groups::KUEUE], "resources": resources, "verbs": verbs}]);
    roles.extend([
        role("roadstead:edits-queues", &[BatchAdmin], &rules(&others, &EDIT)),
        role("roadstead:sees-queues", &[BatchUser], &rules(&seen, &SEE)),
    ]);
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(roles: &'a [Value], name: &str) -> &'a Value {
        let found = roles.iter().find(|role| role["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn roles_have_the_names_and_the_labels_of_the_reference() {
        let roles = people();
        let labels = |name: &str| {
            let labels = named(&roles, name)["metadata"]["labels"].as_object().unwrap();
            let set = labels.iter().filter(|(_, value)| *value == "true");
            set.map(|(label, _)| label.rsplit_once('/').unwrap().1.to_owned())
                .collect::<Vec<_>>()
        };
        let tenants = [
            "aggregate-to-admin",
            "aggregate-to-edit",
            "aggregate-to-view",
            "batch-admin",
            "batch-user",
        ];
        for name in ["localqueue", "workload", "job", "jobset", "rayjob", "pytorchjob"] {
            let mut found = labels(&format!("kueue-{name}-viewer-role"));
            found.sort();
            assert_eq!(found, tenants, "{name}");
        }
        assert_eq!(labels("kueue-localqueue-editor-role"), ["batch-admin"]);
        let mut of_job = labels("kueue-job-editor-role");
        of_job.sort();
        assert_eq!(of_job, ["batch-admin", "batch-user"]);
        let mut of_queue = labels("kueue-clusterqueue-viewer-role");
        of_queue.sort();
        assert_eq!(of_queue, ["aggregate-to-admin", "batch-admin"]);
        assert_eq!(
            named(&roles, "kueue-job-editor-role")["metadata"]["labels"]["rbac.kueue.x-k8s.io/role"],
            "job-editor"
        );
    }

    #[test]
    fn a_tenant_is_given_no_right_to_write_by_the_roles_of_the_cluster() {
        for role in people() {
            let labels = role["metadata"]["labels"].as_object();
            let is_tenants = labels.is_some_and(|labels| labels.contains_key(Edit.label()));
            let verbs = role["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|rule| rule["verbs"].as_array().unwrap());
            for verb in verbs {
                assert!(!is_tenants || SEE.iter().any(|see| verb == see), "{role}");
            }
        }
    }
}
