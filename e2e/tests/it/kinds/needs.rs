//! A job that names objects which its worker lacks.

use kube::api::ListParams;
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, MANAGER, Room, is_true, play, pods, resource};
use super::served::{EXPLANATION, explained};

/// Lets the manager's account read Secrets, and no other kind that a pod can name.
async fn may_look_for_secrets(room: Room) {
    let name = "roadstead-needs";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "roadstead-multikueue", "namespace": "kueue-system"}],
    });
    for object in [role, binding] {
        room.apply(EAST, object).await;
    }
}

/// A Job whose pods name a Secret `token` and settings.
fn job(room: Room) -> Value {
    let mut template = pods(1);
    template["spec"]["containers"][0]["envFrom"] =
        json!([{"secretRef": {"name": "token"}}, {"configMapRef": {"name": "settings"}}]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        },
        "spec": {"template": template},
    })
}

/// The settings are missing too, but the account may not read them, so the manager does not know and does not wait for them.
///
/// Spec: experience 5
#[test]
fn a_job_that_names_a_secret_which_no_worker_has_says_so_and_runs_when_it_is_there() {
    play("needs", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        may_look_for_secrets(room).await;
        room.apply(MANAGER, job(room)).await;
        let says = |w: &Value| {
            let record = w["metadata"]["annotations"][EXPLANATION].as_str();
            record.is_some_and(|record| record.contains("DependencyMissing"))
        };
        room.workload(MANAGER, "train", says).await;
        let said = explained(room, "job/train").await;
        for part in ["DependencyMissing", EAST, "Secret \"token\""] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("settings"), "{said}");
        let there = room.api(EAST, &resource(KUEUE, "Workload"));
        assert!(there.list(&ListParams::default()).await.unwrap().items.is_empty());

        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": room.name},
            "stringData": {"TOKEN": "none"},
        });
        room.apply(EAST, secret).await;
        let jobs = resource("batch/v1", "Job");
        room.until(MANAGER, &jobs, "train", |j| is_true(j, "Complete"))
            .await;
        room.delete(MANAGER, &jobs, "train").await;
        room.is_empty(EAST, &[jobs.clone(), resource(KUEUE, "Workload")])
            .await;
        room.is_empty(MANAGER, &[jobs, resource(KUEUE, "Workload")]).await;
    });
}
