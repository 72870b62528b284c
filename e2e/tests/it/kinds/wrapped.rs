//! Jobs of every kind that may stand in an `AppWrapper`, with their own controllers on one cluster: the wrapper alone is queued,
//! although its child names the queue too.

use futures::future::join_all;
use kube::api::{ApiResource, ListParams, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, LONG_SECS, Room, condition, is_true, play, play_servers, resource};
use super::jobset::jobset;
use super::kubeflow::{MASTER_AND_WORKER, replicas};
use super::ray::{CLUSTER, RAY_JOB};
use super::scenes::SHORT_SECS;
use super::serving::{leaders, set, template};
use super::spark;
use super::trainjob::{self, TRAINER};
use super::wrapper::wrappers;
use crate::shared::chain;

/// A component, and how many pods of one core it has.
struct Component {
    child: Value,
    /// What its pods are made from, if it has no pod templates itself: a component of its own, of the same name.
    runtime: Option<Value>,
    /// Where its pod templates, or those of its runtime, are and how many pods each makes, for a kind whose pod sets cannot be inferred.
    declared: &'static [(&'static str, u32)],
    pods: usize,
    /// Whether it ends by itself.
    ends: bool,
}

impl Component {
    fn job(child: Value, pods: usize) -> Self {
        Self {
            child,
            runtime: None,
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

    /// The wrapper, with the queue of the test. Its children have the same name, and the same queue.
    fn wrapper(&self, room: Room) -> Value {
        let metadata = json!({
            "name": self.name(), "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        });
        let children = self.runtime.iter().chain([&self.child]).cloned();
        let mut components: Vec<Value> = children
            .map(|mut child| {
                child["metadata"] = metadata.clone();
                json!({"template": child})
            })
            .collect();
        if !self.declared.is_empty() {
            components[0]["podSets"] = { self.declared.iter() }
                .map(|(path, replicas)| json!({"path": path, "replicas": replicas}))
                .collect();
        }
        json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": metadata, "spec": {"components": components},
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
                ("template.spec.mpiReplicaSpecs.Launcher.template", 1),
                ("template.spec.mpiReplicaSpecs.Worker.template", 1),
            ],
            ..Component::job(job("kubeflow.org/v2beta1", "MPIJob", mpi), 2)
        },
        Component::job(job(ray.api_version, ray.kind, (ray.spec)(secs)), ray.pods),
        Component {
            runtime: Some(trainjob::runtime("TrainingRuntime", 2, secs)),
            declared: &[(
                "template.spec.template.spec.replicatedJobs[0].template.spec.template",
                2,
            )],
            ..Component::job(train_job(), 2)
        },
        Component::server(CLUSTER.object(room), 3),
    ]
}

/// Its runtime is the one of its name.
fn train_job() -> Value {
    let runtime = json!({"name": "trainjob", "kind": "TrainingRuntime"});
    json!({"apiVersion": TRAINER, "kind": "TrainJob", "spec": {"runtimeRef": runtime}})
}

/// What serves, and the one kind whose template is no whole pod.
fn servers(room: Room) -> Vec<Component> {
    let mut spark = spark::application(room);
    for role in ["driver", "executor"] {
        spark["spec"][role]["template"] = template();
    }
    vec![
        Component::server(set(room, "Deployment", 1), 1),
        Component::server(set(room, "StatefulSet", 1), 1),
        Component {
            declared: &[
                ("template.spec.leaderWorkerTemplate.leaderTemplate", 2),
                ("template.spec.leaderWorkerTemplate.workerTemplate", 2),
            ],
            ..Component::server(leaders(room, 2, 2), 4)
        },
        Component {
            declared: &[
                ("template.spec.driver.template", 1),
                ("template.spec.executor.template", 2),
            ],
            ..Component::server(spark, 3)
        },
    ]
}

async fn submit(room: Room, components: &[Component]) {
    join_all({ components.iter() }.map(|component| room.apply(EAST, component.wrapper(room)))).await;
}

/// Waits until all of them run, and nothing but their wrappers is queued.
async fn run_as_one(room: Room, components: &[Component]) {
    join_all({ components.iter() }.map(async |component| {
        let runs = |w: &Value| w["status"]["phase"] == "Running" && is_true(w, "PodsReady");
        room.until(EAST, &wrappers(), &component.name(), runs).await;
    }))
    .await;
    let pods = components.iter().map(|component| component.pods).sum();
    room.running(EAST, pods).await;
    let workloads = room.api(EAST, &resource(KUEUE, "Workload"));
    let workloads = workloads.list(&ListParams::default()).await.unwrap();
    let owners = { workloads.items.iter() }
        .map(|workload| json!(workload.metadata.owner_references)[0]["kind"].clone())
        .collect::<Vec<_>>();
    assert_eq!(owners, vec![json!("AppWrapper"); components.len()]);
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

/// Lets the account of the controller create these kinds in wrappers.
async fn allow(room: Room, kinds: &[(&str, &str)]) {
    let rule = |(group, kinds): &(&str, &str)| json!({"apiGroups": [group], "resources": [kinds], "verbs": ["create", "delete", "get", "list", "watch"]});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": room.name, "labels": {"roadstead.dev/aggregate-to-appwrapper": "true"}},
        "rules": kinds.iter().map(rule).collect::<Vec<_>>(),
    });
    room.apply(EAST, role).await;
}

/// Spec: jobs 4.3; appwrapper 1.5, 5.5, B136, B137, B139, N-34, N-35
#[test]
fn jobs_of_every_kind_that_can_be_wrapped_are_queued_with_their_wrapper_only() {
    play("wrap-each", &[(EAST, "16")], async |room| {
        let kinds = [
            ("kubeflow.org", "mpijobs"),
            ("trainer.kubeflow.org", "trainjobs"),
            ("trainer.kubeflow.org", "trainingruntimes"),
        ];
        allow(room, &kinds).await;
        let all = components(room, LONG_SECS);
        submit(room, &all).await;
        run_as_one(room, &all).await;
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

/// Spec: appwrapper N-34
#[test]
fn a_trainjob_is_wrapped_with_its_runtime_only() {
    play("wrap-train", &[(EAST, "2")], async |room| {
        let alone = Component::job(train_job(), 2).wrapper(room);
        let alone = serde_json::from_value(alone).unwrap();
        let api = room.api(EAST, &wrappers());
        let refused = api.create(&PostParams::default(), &alone).await.unwrap_err();
        let refused = chain(&refused);
        assert!(refused.contains("components contains no podspecs"), "{refused}");
    });
}

/// The integrations of the wrapped kinds are on, so only the wrapper keeps their pods out of the queue.
///
/// Spec: jobs 4.3; appwrapper 1.5, 5.5, B136, B137
#[test]
fn what_serves_is_queued_with_its_wrapper_only() {
    play_servers("wrap-servers", 11, async |room| {
        spark::define(room, EAST).await;
        let kinds = [
            ("leaderworkerset.x-k8s.io", "leaderworkersets"),
            ("sparkoperator.k8s.io", "sparkapplications"),
        ];
        allow(room, &kinds).await;
        let all = servers(room);
        submit(room, &all).await;
        let apps = spark::apps();
        let app = room.until(EAST, &apps, "sparkapplication", |_| true).await;
        spark::start_pods(room, &app, LONG_SECS).await;
        run_as_one(room, &all).await;
        delete(room, &all).await;
    });
}
