//! The played world handles Jobs as kube-controller-manager, the scheduler and kwok do.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{join, try_join_all};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use roadstead_e2e::options::{EXIT_CODE, Kind, RUN_SECONDS};
use roadstead_e2e::{ControlPlane, Node, Options};
use serde_json::{Value, from_value, json, to_value};
use tokio::time::sleep;

use crate::shared::{eventually, plane, within};

const NAMESPACE: &str = "played";
/// Longer than any watch of this test.
const WATCH_SECONDS: u32 = 120;
/// Stands for any time.
const SOME_TIME: &str = "a time";
/// How long the test watches a Job that no controller may change.
const QUIET: Duration = Duration::from_secs(1);

/// The history of one Job: its conditions, its last status, and its remaining pods.
#[derive(Debug, PartialEq)]
struct Story {
    /// Type, status, reason and message of all conditions, each time that they changed.
    words: Vec<Value>,
    /// Times are replaced; `None` if the Job is gone.
    status: Option<Value>,
    /// Phase, finalizers and index.
    pods: Vec<Value>,
}

fn job(name: &str, annotations: &Value, spec: &Value) -> Job {
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {"parallelism": 2, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
        }},
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    from_value(job).unwrap()
}

/// All Jobs of the scene; those whose name ends in `-by-hand` are played with below.
fn jobs() -> Vec<Job> {
    let (short, long) = (json!({RUN_SECONDS: "1"}), json!({RUN_SECONDS: "600"}));
    let bad = json!({RUN_SECONDS: "0.5", EXIT_CODE: "3"});
    vec![
        job("completes", &short, &json!({"completions": 3})),
        job(
            "completes-by-index",
            &short,
            &json!({"completions": 3, "completionMode": "Indexed"}),
        ),
        job("completes-with-one", &short, &json!({})),
        job("has-nothing-to-do", &short, &json!({"completions": 0})),
        // Why one at a time: whether a second pod still runs when the first has failed, and so is removed, is chance.
        job(
            "fails-at-once",
            &bad,
            &json!({"completions": 2, "parallelism": 1, "backoffLimit": 0}),
        ),
        job(
            "fails-twice",
            &bad,
            &json!({"completions": 2, "parallelism": 1, "backoffLimit": 1}),
        ),
        job(
            "runs-too-long",
            &long,
            &json!({"completions": 2, "activeDeadlineSeconds": 2}),
        ),
        job(
            "vanishes",
            &short,
            &json!({"completions": 2, "ttlSecondsAfterFinished": 1}),
        ),
        job(
            "is-somebody-elses",
            &short,
            &json!({"managedBy": "roadstead.dev/nobody"}),
        ),
        job(
            "stops-by-hand",
            &json!({RUN_SECONDS: "3"}),
            &json!({"completions": 2, "suspend": true}),
        ),
        job("goes-by-hand", &long, &json!({"completions": 2})),
    ]
}

struct Stage {
    jobs: Api<Job>,
    pods: Api<Pod>,
}

impl Stage {
    async fn until(&self, name: &str, holds: impl Fn(&JobStatus) -> bool) {
        let status = |job: Job| job.status.unwrap_or_default();
        eventually(|| async { self.jobs.get(name).await.ok().map(status).filter(&holds) }).await;
    }

    async fn suspend(&self, name: &str, suspend: bool) {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        self.jobs
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn left(&self, name: &str) -> Vec<Pod> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        self.pods.list(&of_job).await.unwrap().items
    }

    async fn until_bare(&self, name: &str) {
        eventually(|| async { self.left(name).await.is_empty().then_some(()) }).await;
    }

    /// Suspended from the start, started, stopped while it runs, started again.
    async fn stop_by_hand(&self) {
        let name = "stops-by-hand";
        self.until(name, |status| is_true(status, "Suspended")).await;
        for suspend in [false, true] {
            self.suspend(name, suspend).await;
            self.until(name, |status| {
                is_true(status, "Suspended") == suspend && status.ready == Some(if suspend { 0 } else { 2 })
            })
            .await;
        }
        self.until_bare(name).await;
        self.suspend(name, false).await;
    }

    async fn go_by_hand(&self) {
        let name = "goes-by-hand";
        self.until(name, |status| status.ready == Some(2)).await;
        self.jobs.delete(name, &DeleteParams::background()).await.unwrap();
        self.until_bare(name).await;
    }

    /// Every Job is where it stays.
    async fn until_the_end(&self) {
        for job in jobs() {
            let name = job.name_any();
            match name.as_str() {
                "is-somebody-elses" => sleep(QUIET).await,
                "vanishes" | "goes-by-hand" => {
                    eventually(|| async { self.jobs.get_opt(&name).await.unwrap().is_none().then_some(()) })
                        .await;
                    self.until_bare(&name).await;
                }
                _ => {
                    self.until(&name, |status| {
                        is_true(status, "Complete") || is_true(status, "Failed")
                    })
                    .await;
                    // Released, and those that were ended gone.
                    eventually(|| async {
                        let left = self.left(&name).await;
                        left.iter().all(|pod| pod.finalizers().is_empty()).then_some(())
                    })
                    .await;
                }
            }
        }
    }
}

fn is_true(status: &JobStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

fn words(job: &Job) -> Value {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.into_iter().flatten();
    conditions
        .map(|each| json!([each.type_, each.status, each.reason, each.message]))
        .collect()
}

fn without_times(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let is_time = key.ends_with("Time") && field.is_string();
                *field = if is_time {
                    SOME_TIME.into()
                } else {
                    without_times(field.take())
                };
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| *item = without_times(item.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

/// Plays all Jobs in one cluster. Returns their histories.
async fn play(client: Client) -> BTreeMap<String, Story> {
    let stage = Stage {
        jobs: Api::namespaced(client.clone(), NAMESPACE),
        pods: Api::namespaced(client, NAMESPACE),
    };
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    let mut changes = stage.jobs.watch(&params, "0").await.unwrap().boxed();
    let mut spoken: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let all = async {
        let wanted = jobs();
        let (name, params) = (|job: &Job| job.name_any(), PostParams::default());
        try_join_all(wanted.iter().map(|job| stage.jobs.create(&params, job)))
            .await
            .unwrap_or_else(|error| panic!("{:?}: {error}", wanted.iter().map(name).collect::<Vec<_>>()));
        join(stage.stop_by_hand(), stage.go_by_hand()).await;
        stage.until_the_end().await;
    };
    let listen = async {
        while let Some(change) = changes.next().await {
            if let WatchEvent::Added(job) | WatchEvent::Modified(job) = change.unwrap() {
                let said = spoken.entry(job.name_any()).or_default();
                let now = words(&job);
                if said.last() != Some(&now) {
                    said.push(now);
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = listen => panic!("the watch ended early"),
        () = all => {}
    }
    let mut stories = BTreeMap::new();
    for wanted in jobs() {
        let name = wanted.name_any();
        let job = stage.jobs.get_opt(&name).await.unwrap();
        let mut pods: Vec<Value> = stage.left(&name).await.iter().map(pod).collect();
        pods.sort_by_key(Value::to_string);
        let status = job.map(|job| without_times(to_value(job.status.unwrap_or_default()).unwrap()));
        let words = spoken.remove(&name).unwrap_or_default();
        stories.insert(name, Story { words, status, pods });
    }
    stories
}

fn pod(pod: &Pod) -> Value {
    let status = pod.status.clone().unwrap_or_default();
    json!({
        "phase": status.phase,
        "finalizers": pod.finalizers(),
        "index": pod.labels().get("batch.kubernetes.io/job-completion-index"),
        "exitCode": status.container_statuses.unwrap_or_default()[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code,
        "owner": pod.owner_references()[0].name,
    })
}

async fn make_namespace(client: &Client) {
    let namespace: Namespace = from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    let api: Api<Namespace> = Api::all(client.clone());
    api.create(&PostParams::default(), &namespace).await.unwrap();
}

/// Why both in one test: the real cluster is the expectation for the played one.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_through_the_same_states_in_a_played_world_as_in_a_real_one() {
    let real = plane().await;
    let options = Options::complete("played").with_node(Node::new("node-1", "8", "32Gi"));
    let embedded = ControlPlane::start(options.of_kind(Kind::Embedded))
        .await
        .unwrap();
    within(Box::pin(async {
        let (real, embedded) = (real.client().unwrap(), embedded.client().unwrap());
        make_namespace(&real).await;
        make_namespace(&embedded).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(real.clone(), NAMESPACE);
        eventually(|| async { accounts.get_opt("default").await.unwrap() }).await;
        let (expected, found) = join(Box::pin(play(real)), Box::pin(play(embedded))).await;
        // The comparison is not empty.
        assert!(!expected["completes"].words.is_empty());
        assert_eq!(expected["fails-twice"].status.as_ref().unwrap()["failed"], 2);
        assert_eq!(
            (&expected["vanishes"].status, expected["fails-twice"].pods.len()),
            (&None, 2)
        );
        for (name, expected) in expected {
            // Why only the end: two immediate changes of conditions may be seen as one.
            let end = |story: &Story| {
                (
                    story.words.last().cloned(),
                    story.status.clone(),
                    story.pods.clone(),
                )
            };
            assert_eq!(
                end(&found[&name]),
                end(&expected),
                "{name}: played left, real right"
            );
        }
    }))
    .await;
}
