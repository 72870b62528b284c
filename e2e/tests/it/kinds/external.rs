//! A kind that the administrator names: the tests play the user's controller on both sides, as far as its jobs need one.
//!
//! Why a name in discovery alone: its definition comes after the manager has started, as with a controller that is installed later.

use kube::api::{ApiResource, ListParams, Patch, PatchParams, PostParams};
use roadstead_e2e::stage;
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, MANAGER, Room, is_true, play, pods, resource};
use crate::shared::eventually;

/// As the configuration of the federation names it.
pub(super) const NAME: &str = "Pipeline.v1.example.com";
const API_VERSION: &str = "example.com/v1";
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

fn pipelines() -> ApiResource {
    resource(API_VERSION, "Pipeline")
}

fn workloads() -> ApiResource {
    resource(KUEUE, "Workload")
}

/// What an administrator does: the definition, and rights for the accounts of the processes and of the manager on the worker.
async fn define(room: Room, cluster: &str) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": any, "status": any}});
    let role = "rbac.authorization.k8s.io";
    let verbs = json!(["create", "delete", "get", "list", "patch", "watch"]);
    for object in [
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pipelines.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Pipeline", "plural": "pipelines"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRole", "metadata": {"name": "pipelines"},
            "rules": [{"apiGroups": ["example.com"], "resources": ["pipelines", "pipelines/status"], "verbs": verbs}],
        }),
        json!({
            "apiVersion": format!("{role}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "pipelines"},
            "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "pipelines"},
            "subjects": [{"apiGroup": role, "kind": "Group", "name": "system:serviceaccounts"}],
        }),
    ] {
        stage::apply(&room.client(cluster), object).await.unwrap();
    }
}

/// Submits a job with this spec to the manager.
async fn submit(room: Room, name: &str, spec: Value) -> Value {
    let job = json!({
        "apiVersion": API_VERSION, "kind": "Pipeline",
        "metadata": {"name": name, "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name}},
        "spec": spec,
    });
    let object = serde_json::from_value(job).unwrap();
    let api = room.api(MANAGER, &pipelines());
    // Why again: the definition may not be served yet.
    let served = async || match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        created => Some(created),
    };
    serde_json::to_value(eventually(served).await.unwrap()).unwrap()
}

fn owner(job: &Value) -> Value {
    json!([{
        "apiVersion": API_VERSION, "kind": "Pipeline", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// The Workload of a job, as the user's controller makes it. Without our finalizer, as a careless one does.
async fn queue(room: Room, job: &Value) {
    let mut template = pods(1);
    template["metadata"] = json!({});
    room.apply(
        MANAGER,
        json!({
            "apiVersion": KUEUE, "kind": "Workload",
            "metadata": {
                "name": workload_of(job), "namespace": room.name, "ownerReferences": owner(job),
                "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]},
            },
            "spec": {"queueName": room.name, "podSets": [{"name": "main", "count": 1, "template": template}]},
        }),
    )
    .await;
}

fn workload_of(job: &Value) -> String {
    format!("pipeline-{}", job["metadata"]["name"].as_str().unwrap())
}

/// Takes over the copy on the worker, as the user's controller there does once its Workload is admitted. Returns the copy.
async fn adopt(room: Room, name: &str) -> Value {
    let copy = room.until(EAST, &pipelines(), name, |_| true).await;
    let patch = json!({"metadata": {"ownerReferences": owner(&copy)}});
    room.merge(EAST, &workloads(), &workload_of(&copy), patch).await;
    copy
}

async fn say(room: Room, name: &str, status: Value) {
    let api = room.api(EAST, &pipelines());
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Sets condition `Finished` of the Workload on the worker.
async fn finish(room: Room, workload: &str) {
    let api = room.api(EAST, &workloads());
    let mut conditions =
        serde_json::to_value(api.get(workload).await.unwrap()).unwrap()["status"]["conditions"].take();
    conditions.as_array_mut().unwrap().push(json!({
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "all steps are done",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(workload, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Spec: multikueue 5.4, 11.68; jobs 10.3, 15.130
#[test]
fn a_job_of_a_kind_that_the_administrator_names_runs_on_a_worker_and_shows_its_status() {
    play("external", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        for cluster in [MANAGER, EAST] {
            define(room, cluster).await;
        }
        let spec = json!({"managedBy": MULTIKUEUE, "steps": [{"image": "build"}], "suspend": true});
        let job = submit(room, "build", spec.clone()).await;
        queue(room, &job).await;
        let copy = adopt(room, "build").await;
        assert_eq!(copy["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(copy["metadata"]["labels"][ORIGIN], "multikueue");
        assert_eq!(copy["metadata"]["annotations"][PREBUILT], workload_of(&job));
        assert_eq!(
            copy["spec"],
            json!({"steps": [{"image": "build"}], "suspend": true})
        );

        say(room, "build", json!({"phase": "Running", "active": 2})).await;
        let shown = room
            .until(MANAGER, &pipelines(), "build", |j| j["status"]["active"] == 2)
            .await;
        assert_eq!(
            (&shown["spec"], &shown["status"]["phase"]),
            (&spec, &json!("Running"))
        );
        let held = room.workload(MANAGER, "build", |w| is_true(w, "Admitted")).await;
        assert_eq!(
            held["metadata"]["finalizers"],
            json!(["kueue.x-k8s.io/resource-in-use"])
        );

        say(room, "build", json!({"phase": "Succeeded", "active": null})).await;
        finish(room, &workload_of(&job)).await;
        let done = room.workload(MANAGER, "build", |w| is_true(w, "Finished")).await;
        assert_eq!(done["status"]["clusterName"], EAST);
        room.is_empty(EAST, &[pipelines(), workloads()]).await;
        let shown = room.until(MANAGER, &pipelines(), "build", |_| true).await;
        assert_eq!(shown["status"], json!({"phase": "Succeeded"}));
        assert_eq!(
            (&shown["spec"], &shown["metadata"]["labels"]),
            (&spec, &job["metadata"]["labels"])
        );
        assert_eq!(shown["metadata"]["annotations"], Value::Null);
        let all = room
            .api(MANAGER, &workloads())
            .list(&ListParams::default())
            .await
            .unwrap();
        assert_eq!(all.items.len(), 1, "only the user's controller makes Workloads");
        room.stage().check().unwrap();
        room.delete(MANAGER, &pipelines(), "build").await;
        room.is_empty(MANAGER, &[pipelines(), workloads()]).await;
    });
}

/// Spec: multikueue 5.4, 3.8; safety 1 I1
#[test]
fn a_job_of_a_named_kind_without_the_field_is_refused_and_one_that_is_switched_off_is_removed() {
    play("external-off", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        for cluster in [MANAGER, EAST] {
            define(room, cluster).await;
        }
        let job = submit(room, "plain", json!({"steps": []})).await;
        queue(room, &job).await;
        let said = "Expecting .spec.managedBy to be";
        room.workload(MANAGER, "plain", |w| {
            w["spec"]["active"] == false && w["status"].to_string().contains(said)
        })
        .await;

        let job = submit(room, "long", json!({"managedBy": MULTIKUEUE, "steps": []})).await;
        queue(room, &job).await;
        adopt(room, "long").await;
        say(room, "long", json!({"phase": "Running"})).await;
        room.workload(MANAGER, "long", |w| is_true(w, "Admitted")).await;
        let off = json!({"spec": {"active": false}});
        room.merge(MANAGER, &workloads(), &workload_of(&job), off).await;
        room.is_empty(EAST, &[pipelines(), workloads()]).await;
        room.workload(MANAGER, "long", |w| {
            !is_true(w, "QuotaReserved") && w["status"]["clusterName"] == Value::Null
        })
        .await;

        // A Workload that its user deletes stays until nothing runs any more; then the job may run again.
        let job = submit(room, "again", json!({"managedBy": MULTIKUEUE, "steps": []})).await;
        queue(room, &job).await;
        adopt(room, "again").await;
        room.workload(MANAGER, "again", |w| is_true(w, "Admitted")).await;
        room.delete(MANAGER, &workloads(), &workload_of(&job)).await;
        room.is_empty(EAST, &[pipelines(), workloads()]).await;
        let stored = room.api(MANAGER, &workloads());
        eventually(|| async {
            let left = stored.get_opt(&workload_of(&job)).await.ok()?;
            left.is_none().then_some(())
        })
        .await;
        queue(room, &job).await;
        adopt(room, "again").await;
        finish(room, &workload_of(&job)).await;
        room.workload(MANAGER, "again", |w| is_true(w, "Finished")).await;
        room.is_empty(EAST, &[pipelines(), workloads()]).await;
        room.stage().check().unwrap();
        for name in ["plain", "long", "again"] {
            room.delete(MANAGER, &pipelines(), name).await;
        }
        room.is_empty(MANAGER, &[pipelines(), workloads()]).await;
    });
}
