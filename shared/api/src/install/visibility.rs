//! The objects that register the visibility API in a cluster.
//!
//! *Source*: `spec/api.md API-15`.

use serde_json::{Value, json};

use super::people::{Gathers, ROLE, SEE, TENANTS, role};
use super::place::Place;
use crate::visibility::{GROUP, PENDING_WORKLOADS, SERVICE, SERVICE_PORT, VERSIONS};

const PRIORITY: u16 = 100;
const RBAC: &str = "rbac.authorization.k8s.io";

/// The objects that an installation applies: the Service, one `APIService` per version, the rights of the process for it, and
/// roles for its users.
///
/// The authority in the `APIService`s is filled in by the process itself.
pub fn manifests(place: &Place) -> Vec<Value> {
    let namespace = &place.namespace;
    let mut objects = vec![service(place)];
    objects.extend(VERSIONS.map(|version| api_service(version, namespace)));
    objects.extend([
        // To read the certificate authority of the API server's front proxy.
        binding(
            "RoleBinding",
            Some("kube-system"),
            "kueue-visibility-server-auth-reader",
            ("Role", "extension-apiserver-authentication-reader"),
            place,
        ),
        // To authenticate users and check their rights.
        binding(
            "ClusterRoleBinding",
            None,
            "kueue-visibility-server-auth-delegator",
            ("ClusterRole", "system:auth-delegator"),
            place,
        ),
        registrar(),
        binding(
            "ClusterRoleBinding",
            None,
            "kueue-visibility-server-registrar",
            ("ClusterRole", "kueue-visibility-server-registrar"),
            place,
        ),
        viewer(
            "cq",
            "clusterqueues",
            &[Gathers::BatchAdmin, Gathers::View, Gathers::Admin, Gathers::Edit],
        ),
        viewer("lq", "localqueues", &TENANTS),
    ]);
    objects
}

fn service(place: &Place) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": place.namespace },
        "spec": {
            "selector": { "control-plane": "controller-manager" },
            "ports": [{ "name": "https", "port": SERVICE_PORT, "protocol": "TCP", "targetPort": place.ports.visibility }],
        },
    })
}

fn api_service(version: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": format!("{version}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "version": version,
            "groupPriorityMinimum": PRIORITY,
            "versionPriority": PRIORITY,
            "service": { "name": SERVICE, "namespace": namespace, "port": SERVICE_PORT },
        },
    })
}

/// The right to put its own authority into its own registrations.
fn registrar() -> Value {
    let names = VERSIONS.map(|version| format!("{version}.{GROUP}"));
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": "ClusterRole",
        "metadata": { "name": "kueue-visibility-server-registrar" },
        "rules": [{
            "apiGroups": ["apiregistration.k8s.io"],
            "resources": ["apiservices"],
            "resourceNames": names,
            "verbs": ["get", "patch"],
        }],
    })
}

fn viewer(short: &str, resource: &str, into: &[Gathers]) -> Value {
    let rules = json!([{
        "apiGroups": [GROUP], "resources": [format!("{resource}/{PENDING_WORKLOADS}")], "verbs": SEE,
    }]);
    let short = format!("pending-workloads-{short}-viewer");
    let mut role = role(&format!("kueue-{short}-role"), into, &rules);
    role["metadata"]["labels"][ROLE] = short.into();
    role
}

fn binding(kind: &str, within: Option<&str>, name: &str, role: (&str, &str), place: &Place) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(within) = within {
        metadata["namespace"] = within.into();
    }
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": kind,
        "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": role.0, "name": role.1 },
        "subjects": [{ "kind": "ServiceAccount", "name": place.account, "namespace": place.namespace }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An administrator gathers these roles by that label, as the reference's documentation shows.
    #[test]
    fn roles_for_pending_workloads_say_which_role_they_are() {
        for resource in ["cq", "lq"] {
            let role = viewer(resource, "clusterqueues", &TENANTS);
            let short = format!("pending-workloads-{resource}-viewer");
            assert_eq!(role["metadata"]["name"], format!("kueue-{short}-role"));
            assert_eq!(role["metadata"]["labels"]["rbac.kueue.x-k8s.io/role"], short);
        }
    }
}
