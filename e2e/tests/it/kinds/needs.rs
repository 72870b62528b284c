//! A job that names objects which its worker lacks.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, ListParams, Patch, PatchParams};
use roadstead_api::rights;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, LONG_SECS, MANAGER, Room, is_true, play, pods, resource};
use super::served::{EXPLANATION, explained};
use crate::shared::eventually;

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

/// The consent of a namespace of a cluster.
async fn say(room: Room, cluster: &str, annotation: &str, value: &str) {
    let namespaces: Api<Namespace> = Api::all(room.client(cluster));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    namespaces
        .patch(room.name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Rights for what is carried, on both clusters.
async fn may_carry(room: Room) {
    for object in rights::carrying(SYSTEM_NAMESPACE, room.name) {
        room.apply(MANAGER, object).await;
    }
    for object in rights::accepting("roadstead-multikueue", SYSTEM_NAMESPACE, room.name) {
        room.apply(EAST, object).await;
    }
}

/// Spec: safety 5.1
#[test]
fn what_a_job_names_is_carried_with_the_consent_of_both_namespaces_and_goes_with_the_job() {
    play("carried", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        may_carry(room).await;
        let named = |kind: &str, name: &str, content: Value| {
            let mut object = content;
            object["apiVersion"] = "v1".into();
            object["kind"] = kind.into();
            object["metadata"] = json!({"name": name, "namespace": room.name});
            object
        };
        let registry = json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"}});
        for object in [
            named("Secret", "token", json!({"stringData": {"TOKEN": "t0p"}})),
            named("ConfigMap", "settings", json!({"data": {"A": "1"}})),
            named("ConfigMap", "own", json!({"data": {"A": "manager"}})),
            named("Secret", "pull", registry),
        ] {
            room.apply(MANAGER, object).await;
        }
        room.apply(EAST, named("ConfigMap", "own", json!({"data": {"A": "worker"}})))
            .await;
        say(room, MANAGER, "roadstead.dev/carries-needs", "true").await;
        let mut job = job(room);
        let template = &mut job["spec"]["template"];
        *template = pods(LONG_SECS);
        template["spec"]["containers"][0]["envFrom"] = json!([
            {"secretRef": {"name": "token"}}, {"configMapRef": {"name": "settings"}}, {"configMapRef": {"name": "own"}},
        ]);
        template["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
        room.apply(MANAGER, job).await;
        let says = |w: &Value| {
            let record = w["metadata"]["annotations"][EXPLANATION].as_str();
            record.is_some_and(|record| record.contains("DependencyMissing"))
        };
        room.workload(MANAGER, "train", says).await;
        let said = explained(room, "job/train").await;
        assert!(
            said.contains("ConfigMap \"settings\", Secret \"token\""),
            "{said}"
        );

        say(room, EAST, "roadstead.dev/accepts-from", "another, multikueue").await;
        room.running(EAST, 1).await;
        let (secrets, maps) = (resource("v1", "Secret"), resource("v1", "ConfigMap"));
        let there = async |kind: &ApiResource, name: &str| room.until(EAST, kind, name, |_| true).await;
        let token = there(&secrets, "token").await;
        assert_eq!(token["data"]["TOKEN"], "dDBw");
        assert_eq!(
            token["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"],
            "multikueue"
        );
        assert_eq!(token["metadata"]["ownerReferences"][0]["kind"], "Workload");
        assert_eq!(
            there(&secrets, "pull").await["type"],
            "kubernetes.io/dockerconfigjson"
        );
        assert_eq!(there(&maps, "settings").await["data"], json!({"A": "1"}));
        assert_eq!(
            there(&maps, "own").await["data"],
            json!({"A": "worker"}),
            "it is not ours"
        );

        let jobs = resource("batch/v1", "Job");
        room.delete(MANAGER, &jobs, "train").await;
        room.is_empty(EAST, &[jobs, resource(KUEUE, "Workload"), secrets])
            .await;
        eventually(|| async {
            let left = room.api(EAST, &maps).get_opt("settings").await.ok()?;
            left.is_none().then_some(())
        })
        .await;
        there(&maps, "own").await;
        let log = std::fs::read_to_string(room.stage().log(MANAGER).unwrap()).unwrap();
        assert!(
            !log.contains("t0p") && !log.contains("dDBw"),
            "no content is logged"
        );
    });
}
