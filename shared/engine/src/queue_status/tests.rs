use std::collections::BTreeMap;
use std::io::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use roadstead_convert::Shares;
use roadstead_core::name::{CohortName, Key};
use roadstead_core::queue::{Cohort, QueueRef};
use roadstead_core::state::{Event, Settings, State};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PACE, REST_MAX, Reports, Writer, described, rest};
use crate::caches::Caches;

#[test]
fn reports_follow_the_state_and_go_with_their_queue() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let mut state = State::new(Settings::default());
    let reports = Reports::default();
    let queue = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" },
        "spec": { "cohortName": "team", "resourceGroups": [] },
    }))
    .unwrap();
    let queue = roadstead_convert::cluster_queue(&queue);
    state.apply(Event::ClusterQueue(Box::new(queue)), now);
    let cohort = Cohort {
        name: "team".into(),
        parent: Some("all".into()),
        ..Cohort::default()
    };
    state.apply(Event::Cohort(cohort), now);
    reports.take_in(&mut state);
    let cohorts = [CohortName::from("team"), CohortName::from("all")];
    assert_eq!(reports.cohorts_above("q"), cohorts);
    let changed = reports.changed.take_now();
    assert!(
        changed.contains(&QueueRef::Cluster("q".into())) && changed.contains(&QueueRef::Cohort("all".into()))
    );
    state.apply(Event::ClusterQueueGone("q".into()), now);
    reports.take_in(&mut state);
    assert!(reports.cluster_queue(&"q".into()).is_none());
    assert_eq!(reports.cohorts_above("q"), []);
}

/// Spec: admission-engine B227.
#[test]
fn statuses_are_written_once_a_second_and_less_often_when_writing_is_slow() {
    assert_eq!(rest().after(Duration::from_millis(10), 2), PACE);
    assert_eq!(rest().after(Duration::from_secs(1), 2), Duration::from_secs(4));
    assert_eq!(rest().after(Duration::from_mins(1), 2), REST_MAX);
}

const CLUSTER_QUEUE: &str = "clusterqueues/cq";
const LOCAL_QUEUE: &str = "namespaces/ns/localqueues/lq";
const COHORT: &str = "cohorts/team";

/// An API server that holds three objects, and the writer of their statuses.
struct World {
    stored: Arc<Mutex<BTreeMap<String, Value>>>,
    writes: Arc<Mutex<Vec<String>>>,
    caches: Caches,
    reports: Arc<Reports>,
    state: State,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl World {
    /// Everything is listed, and the brain has not looked yet.
    fn new() -> Self {
        let caches = Caches::new(&[]);
        let reports = Arc::<Reports>::default();
        let stored: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let writes: Arc<Mutex<Vec<String>>> = Arc::default();
        let (there, noted) = (stored.clone(), writes.clone());
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (there, noted) = (there.clone(), noted.clone());
            async move {
                let path = request.uri().path().to_owned();
                let path = path.strip_prefix("/apis/kueue.x-k8s.io/v1beta2/").unwrap();
                let path = path.strip_suffix("/status").unwrap().to_owned();
                let patch = request.into_body().collect_bytes().await.unwrap();
                let patch = serde_json::from_slice(&patch).unwrap();
                let object = change(&mut there.lock().unwrap(), &path, &patch);
                noted.lock().unwrap().push(path);
                Ok::<_, Error>(http::Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        let writer = Writer {
            client: Client::new(server, "ns"),
            caches: caches.clone(),
            reports: reports.clone(),
            shares: Shares::Shown,
            clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        };
        writer.listen();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(|_| {}, stop.clone()));
        let state = State::new(Settings::default());
        let mut world = Self {
            stored,
            writes,
            caches,
            reports,
            state,
            stop,
            tasks,
        };
        let meta = |name: &str| json!({ "name": name, "uid": name, "resourceVersion": "1", "generation": 1 });
        world.store(
            CLUSTER_QUEUE,
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": meta("cq"),
                "spec": { "cohortName": "team", "namespaceSelector": {}, "resourceGroups": [] },
            }),
        );
        let mut local = meta("lq");
        local["namespace"] = json!("ns");
        world.store(
            LOCAL_QUEUE,
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": local,
                "spec": { "clusterQueue": "cq" },
            }),
        );
        world.store(
            COHORT,
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": meta("team"),
                "spec": { "parentName": "all" },
            }),
        );
        world
    }

    fn store(&mut self, path: &str, object: Value) {
        self.stored.lock().unwrap().insert(path.to_owned(), object);
        self.tell(path);
    }

    /// Another client changes an object, and the watch tells of it.
    fn edit(&mut self, path: &str, patch: &Value) {
        change(&mut self.stored.lock().unwrap(), path, patch);
        self.tell(path);
    }

    fn tell(&self, path: &str) {
        let object = self.stored.lock().unwrap()[path].clone();
        let caches = &self.caches;
        match path {
            CLUSTER_QUEUE => caches
                .cluster_queues
                .observe(serde_json::from_value(object).unwrap()),
            LOCAL_QUEUE => caches
                .local_queues
                .observe(serde_json::from_value(object).unwrap()),
            COHORT => caches.cohorts.observe(serde_json::from_value(object).unwrap()),
            other => panic!("{other} is not kept"),
        }
    }

    /// The brain takes in what is cached.
    fn look(&mut self) {
        let now = jiff::Timestamp::UNIX_EPOCH;
        for queue in self.caches.cluster_queues.all() {
            let queue = roadstead_convert::cluster_queue(&queue);
            self.state.apply(Event::ClusterQueue(Box::new(queue)), now);
        }
        for queue in self.caches.local_queues.all() {
            self.state
                .apply(Event::LocalQueue(roadstead_convert::local_queue(&queue)), now);
        }
        for cohort in self.caches.cohorts.all() {
            self.state
                .apply(Event::Cohort(roadstead_convert::cohort(&cohort)), now);
        }
        self.reports.take_in(&mut self.state);
    }

    fn status(&self, path: &str) -> Value {
        self.stored.lock().unwrap()[path]["status"].clone()
    }

    /// The writes until nothing is left to write.
    async fn writes(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let mut writes = std::mem::take(&mut *self.writes.lock().unwrap());
        writes.sort();
        writes
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Merges a patch into a stored object and gives it a new version.
fn change(stored: &mut BTreeMap<String, Value>, path: &str, patch: &Value) -> Value {
    let object = stored.get_mut(path).unwrap();
    json_patch::merge(object, patch);
    let version: u64 = { object["metadata"]["resourceVersion"].as_str() }
        .unwrap()
        .parse()
        .unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    object.clone()
}

/// A user, an older replica, or a restored backup.
///
/// Spec: admission-engine 7, safety F15.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_says_in_a_status_is_put_right_with_no_job_coming_or_going() {
    let all = [CLUSTER_QUEUE, COHORT, LOCAL_QUEUE];
    let mut world = World::new();
    assert!(world.writes().await.is_empty(), "nothing is known of them yet");
    world.look();
    assert_eq!(world.writes().await, all);
    let right = all.map(|path| world.status(path));
    assert_eq!(right[0]["reservingWorkloads"], 0);

    let forged = json!({ "status": { "reservingWorkloads": 7, "fairSharing": { "weightedShare": 9 } } });
    world.edit(CLUSTER_QUEUE, &forged);
    world.edit(
        LOCAL_QUEUE,
        &json!({ "status": { "admittedWorkloads": 7, "conditions": [] } }),
    );
    world.edit(COHORT, &json!({ "status": { "fairSharing": null } }));
    assert_eq!(
        world.writes().await,
        all,
        "once each: nothing follows from an own write"
    );
    assert_eq!(all.map(|path| world.status(path)), right);
    assert!(world.writes().await.is_empty());
    world.end().await;
}

/// Spec: admission-engine B227.
#[tokio::test(start_paused = true)]
async fn whoever_keeps_changing_a_status_is_answered_once_a_second() {
    let mut world = World::new();
    world.look();
    world.writes().await;
    for count in 0..50 {
        world.edit(
            CLUSTER_QUEUE,
            &json!({ "status": { "reservingWorkloads": count } }),
        );
        tokio::time::sleep(PACE / 10).await;
    }
    let writes = world.writes().await.len();
    assert!((5..=7).contains(&writes), "{writes} writes in five seconds");
    assert_eq!(world.status(CLUSTER_QUEUE)["reservingWorkloads"], 0);
    world.end().await;
}

/// The last report is of the old spec, and must not be written as if it were of the new one.
#[tokio::test(start_paused = true)]
async fn a_new_spec_is_reported_on_when_the_brain_has_looked() {
    let mut world = World::new();
    world.look();
    world.writes().await;
    let stopped = json!({ "metadata": { "generation": 2 }, "spec": { "stopPolicy": "Hold" } });
    world.edit(CLUSTER_QUEUE, &stopped);
    assert!(world.writes().await.is_empty());
    world.look();
    assert_eq!(world.writes().await, [CLUSTER_QUEUE, LOCAL_QUEUE]);
    let status = world.status(CLUSTER_QUEUE);
    assert_eq!(status["conditions"][0]["observedGeneration"], 2);
    assert_eq!(status["conditions"][0]["status"], "False");
    world.end().await;
}

/// An empty batch would make the next change wait for its pause.
#[tokio::test(start_paused = true)]
async fn an_own_write_makes_nothing_due() {
    let mut world = World::new();
    world.look();
    world.writes().await;
    world.edit(CLUSTER_QUEUE, &json!({ "status": { "reservingWorkloads": 7 } }));
    tokio::time::sleep(PACE + PACE / 10).await;
    assert_eq!(world.status(CLUSTER_QUEUE)["reservingWorkloads"], 0);
    world.edit(CLUSTER_QUEUE, &json!({ "status": { "reservingWorkloads": 8 } }));
    tokio::time::sleep(PACE / 10).await;
    assert_eq!(world.status(CLUSTER_QUEUE)["reservingWorkloads"], 0, "at once");
    world.end().await;
}

#[test]
fn a_queue_is_named_with_its_kind_and_namespace() {
    let local = QueueRef::Local(Key::new("team-a", "main"));
    let all = [
        QueueRef::Cluster("main".into()),
        local,
        QueueRef::Cohort("all".into()),
    ];
    let named: Vec<String> = all.iter().map(described).collect();
    assert_eq!(
        named,
        ["ClusterQueue main", "LocalQueue team-a/main", "Cohort all"]
    );
}
