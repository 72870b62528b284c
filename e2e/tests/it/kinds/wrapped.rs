//! Jobs of every kind that may stand in an `AppWrapper`, with their own controllers on one cluster: the wrapper alone is queued,
//! although its child names the queue too.

use futures::future::join_all;
use kube::api::{ApiResource, ListParams};
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, LONG_SECS, Room, condition, is_true, play, resource};
use super::jobset::jobset;
use super::kubeflow::{MASTER_AND_WORKER, replicas};
use super::ray::{CLUSTER, RAY_JOB};
use super::scenes::SHORT_SECS;
use super::serving::set;
use super::wrapper::wrappers;

/// A component, and how many pods of one core it has.
struct Component {
    child: Value,
    /// Where its pod templates are, for a kind whose pod sets cannot be inferred.
    declared: &'static [&'static str],
    pods: usize,
    /// Whether it ends by itself.
    ends: bool,
}

impl Component {
    fn job(child: Value, pods: usize) -> Self {
        Self {
            child,
            declared: &[],
            pods,
            ends: true,
        }
    }

    fn server(child: Value, pods: usize) -> Self {
        Self {
            ends: false,
            ..Self::job(child, pods)
        }
    }

    fn name(&self) -> String {
        self.child["kind"].as_str().unwrap().to_lowercase()
    }

    fn resource(&self) -> ApiResource {
        let text = |field: &str| self.child[field].as_str().unwrap();
        resource(text("apiVersion"), text("kind"))
    }

    /// The wrapper, with the queue of the test. Its child has the same name, and the same queue.
    fn wrapper(&self, room: Room) -> Value {
        let metadata = json!({
            "name": self.name(), "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        });
        let mut child = self.child.clone();
        child["metadata"] = metadata.clone();
        let mut component = json!({"template": child});
        if !self.declared.is_empty() {
            component["podSets"] = self.declared.iter().map(|path| json!({"path": path})).collect();
        }
        json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": metadata, "spec": {"components": [component]},
        })
    }
}

fn components(room: Room, secs: u32) -> Vec<Component> {
    let job = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "spec": spec});
    let torch = json!({"pytorchReplicaSpecs": replicas("pytorch", &MASTER_AND_WORKER, secs)});
    let mpi = json!({"mpiReplicaSpecs": replicas("mpi", &["Launcher", "Worker"], secs)});
    let ray = &RAY_JOB[0];
    vec![
        Component::job(jobset(room, "", secs), 4),
        Component::job(job("kubeflow.org/v1", "PyTorchJob", torch), 2),
        Component {
            declared: &[
                "template.spec.mpiReplicaSpecs.Launcher.template",
                "template.spec.mpiReplicaSpecs.Worker.template",
            ],
            ..Component::job(job("kubeflow.org/v2beta1", "MPIJob", mpi), 2)
        },
        Component::job(job(ray.api_version, ray.kind, (ray.spec)(secs)), ray.pods),
        Component::server(CLUSTER.object(room), 3),
        Component::server(set(room, "Deployment", 1), 1),
        Component::server(set(room, "StatefulSet", 1), 1),
    ]
}

async fn submit(room: Room, components: &[Component]) {
    join_all({ components.iter() }.map(|component| room.apply(EAST, component.wrapper(room)))).await;
}

async fn delete(room: Room, components: &[Component]) {
    join_all({ components.iter() }.map(async |component| {
        room.delete(EAST, &wrappers(), &component.name()).await;
    }))
    .await;
    let mut kinds: Vec<ApiResource> = components.iter().map(Component::resource).collect();
    kinds.extend([wrappers(), resource(KUEUE, "Workload"), resource("v1", "Pod")]);
    room.is_empty(EAST, &kinds).await;
}

/// Spec: jobs 4.3; appwrapper 1.5, 5.5, B136, B137, B139
#[test]
fn jobs_of_every_kind_that_can_be_wrapped_are_queued_with_their_wrapper_only() {
    play("wrap-each", &[(EAST, "16")], async |room| {
        room.apply(EAST, json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "wrap-each", "labels": {"roadstead.dev/aggregate-to-appwrapper": "true"}},
            "rules": [{"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["create", "delete", "get", "list", "watch"]}],
        }))
        .await;
        let all = components(room, LONG_SECS);
        submit(room, &all).await;
        join_all({ all.iter() }.map(async |component| {
            let runs = |w: &Value| w["status"]["phase"] == "Running" && is_true(w, "PodsReady");
            room.until(EAST, &wrappers(), &component.name(), runs).await;
        }))
        .await;
        room.running(EAST, all.iter().map(|component| component.pods).sum())
            .await;
        let workloads = room.api(EAST, &resource(KUEUE, "Workload"));
        let workloads = workloads.list(&ListParams::default()).await.unwrap();
        let owners = { workloads.items.iter() }
            .map(|workload| json!(workload.metadata.owner_references)[0]["kind"].clone())
            .collect::<Vec<_>>();
        assert_eq!(owners, vec![json!("AppWrapper"); all.len()]);
        delete(room, &all).await;

        let mut all = components(room, SHORT_SECS);
        all.retain(|component| component.ends);
        submit(room, &all).await;
        join_all({ all.iter() }.map(async |component| {
            let ended = |w: &Value| is_true(w, "Finished");
            let finished = room.workload(EAST, &component.name(), ended).await;
            assert_eq!(condition(&finished, "Finished").unwrap(), "True Succeeded");
        }))
        .await;
        delete(room, &all).await;
    });
}
