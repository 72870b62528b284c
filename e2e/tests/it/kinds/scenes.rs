//! Scenes for every kind of job, for several kinds at a time in one queue: on one cluster, and from the manager to a worker.

use futures::future::join_all;
use kube::api::{ApiResource, PostParams};
use serde_json::{Value, json};

use super::ground::{EAST, KUEUE, LONG_SECS, MANAGER, Room, condition, is_true, pods, resource, tight_queue};
use crate::shared::chain;

/// How long the pods of a job run when the test waits for its end.
pub(super) const SHORT_SECS: u32 = 2;

/// The controller of a job that runs on a worker.
const ELSEWHERE: &str = "kueue.x-k8s.io/multikueue";

/// A kind, and how one of its jobs is made and read.
pub(super) struct Subject {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// A job whose pods run so long, without its queue.
    pub(super) spec: fn(u32) -> Value,
    /// How many pods it has, of one core each.
    pub(super) pods: usize,
    /// The boolean that holds it back, as JSON pointer.
    pub(super) suspend: &'static str,
    /// The field that names the manager of the job, as JSON pointer.
    pub(super) managed_by: &'static str,
    /// One of its pod templates, as JSON pointer.
    pub(super) template: &'static str,
    /// Whether its status says that all its pods run.
    pub(super) runs: fn(&Value) -> bool,
    /// Whether its status says that it has succeeded.
    pub(super) succeeded: fn(&Value) -> bool,
    /// Whether a job that runs on a worker stays held on the manager, and shows only its end there.
    pub(super) stays_held: bool,
    /// What else its controller makes, as API version and kind.
    pub(super) makes: &'static [(&'static str, &'static str)],
}

impl Subject {
    pub(super) fn resource(&self) -> ApiResource {
        resource(self.api_version, self.kind)
    }

    pub(super) fn name(&self) -> String {
        self.kind.to_lowercase()
    }

    /// The kinds of all objects that one of its jobs creates, and Workloads.
    pub(super) fn all_of_it(&self) -> Vec<ApiResource> {
        let usual = [(self.api_version, self.kind), (KUEUE, "Workload"), ("v1", "Pod")];
        let all = usual.iter().chain(self.makes);
        all.map(|(version, kind)| resource(version, kind)).collect()
    }

    pub(super) fn is_held(&self, job: &Value) -> bool {
        job.pointer(self.suspend) == Some(&json!(true))
    }

    pub(super) async fn submit(&self, room: Room, cluster: &str, secs: u32, priority: Option<&str>) -> Value {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": room.name});
        if let Some(priority) = priority {
            labels["kueue.x-k8s.io/priority-class"] = json!(format!("{}-{priority}", room.name));
        }
        let job = json!({
            "apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": self.name(), "namespace": room.name, "labels": labels},
            "spec": (self.spec)(secs),
        });
        let object = serde_json::from_value(job).unwrap();
        let created = { room.api(cluster, &self.resource()) }
            .create(&PostParams::default(), &object)
            .await;
        serde_json::to_value(created.unwrap_or_else(|error| panic!("{}: {}", self.kind, chain(&error))))
            .unwrap()
    }

    async fn until(&self, room: Room, cluster: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        room.until(cluster, &self.resource(), &self.name(), wanted).await
    }

    pub(super) async fn running(&self, room: Room, cluster: &str) -> Value {
        self.until(room, cluster, self.runs).await
    }

    pub(super) async fn delete(&self, room: Room, cluster: &str) {
        room.delete(cluster, &self.resource(), &self.name()).await;
    }

    fn labels(&self, job: &Value) -> Value {
        let template = job.pointer(self.template);
        template.map_or(Value::Null, |template| template["metadata"]["labels"].clone())
    }
}

/// Waits until nothing of these kinds is left on a cluster.
async fn nothing_left(room: Room, cluster: &str, subjects: &[Subject]) {
    for subject in subjects {
        room.is_empty(cluster, &subject.all_of_it()).await;
    }
}

/// Cores for one job of each kind.
fn cores(subjects: &[Subject]) -> usize {
    subjects.iter().map(|subject| subject.pods).sum()
}

/// All jobs run, are preempted by a job that needs the whole queue, run again after it, and are deleted; others run to their end.
///
/// The queue of the test has room for one job of each kind.
pub(super) async fn alone(room: Room, subjects: &[Subject]) {
    tight_queue(room).await;
    let start = async |subject: &Subject| {
        let created = subject.submit(room, EAST, LONG_SECS, Some("low")).await;
        assert!(
            subject.is_held(&created),
            "{}: the webhook holds it",
            subject.kind
        );
        assert_ne!(
            created.pointer(subject.managed_by),
            Some(&json!(ELSEWHERE)),
            "no check of the queue leads elsewhere"
        );
        let running = subject.running(room, EAST).await;
        let labels = subject.labels(&running);
        assert!(
            labels["kueue.x-k8s.io/podset"].is_string(),
            "{}: {labels}",
            subject.kind
        );
        subject.labels(&created)
    };
    let own_labels = join_all(subjects.iter().map(start)).await;
    room.running(EAST, cores(subjects)).await;

    let job = resource("batch/v1", "Job");
    room.apply(EAST, large_job(room, cores(subjects))).await;
    let stopped = async |(subject, own): (&Subject, &Value)| {
        let evicted = |w: &Value| condition(w, "Evicted").is_some_and(|said| said == "True Preempted");
        room.workload(EAST, &subject.name(), evicted).await;
        // Why not at once: some kinds take a template back only when all pods are gone.
        let as_it_was = |job: &Value| subject.is_held(job) && subject.labels(job) == *own;
        subject.until(room, EAST, as_it_was).await;
    };
    join_all(subjects.iter().zip(&own_labels).map(stopped)).await;
    room.until(EAST, &job, "large", |j| is_true(j, "Complete")).await;

    let resumed = async |subject: &Subject| {
        room.workload(EAST, &subject.name(), |w| {
            is_true(w, "Admitted") && !is_true(w, "Evicted")
        })
        .await;
        subject
            .until(room, EAST, |job| !subject.is_held(job) && (subject.runs)(job))
            .await;
    };
    join_all(subjects.iter().map(resumed)).await;
    room.running(EAST, cores(subjects)).await;
    room.delete(EAST, &job, "large").await;
    join_all(subjects.iter().map(|subject| subject.delete(room, EAST))).await;
    nothing_left(room, EAST, subjects).await;

    let ended = async |subject: &Subject| {
        subject.submit(room, EAST, SHORT_SECS, None).await;
        subject.until(room, EAST, subject.succeeded).await;
        let finished = room
            .workload(EAST, &subject.name(), |w| is_true(w, "Finished"))
            .await;
        assert_eq!(condition(&finished, "Finished").unwrap(), "True Succeeded");
        subject.delete(room, EAST).await;
    };
    join_all(subjects.iter().map(ended)).await;
    nothing_left(room, EAST, subjects).await;
}

/// A job of higher priority with so many pods.
fn large_job(room: Room, pods_of_it: usize) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "large", "namespace": room.name,
            "labels": {
                "kueue.x-k8s.io/queue-name": room.name,
                "kueue.x-k8s.io/priority-class": format!("{}-high", room.name),
            },
        },
        "spec": {"parallelism": pods_of_it, "completions": pods_of_it, "template": pods(1)},
    })
}

/// All jobs run on a worker, show their state and end on the manager, and leave nothing when they are deleted.
pub(super) async fn far(room: Room, subjects: &[Subject]) {
    let ended = async |subject: &Subject| {
        let created = subject.submit(room, MANAGER, SHORT_SECS, None).await;
        let elsewhere = created.pointer(subject.managed_by);
        assert_eq!(elsewhere, Some(&json!(ELSEWHERE)), "{}", subject.kind);
        let there = subject.until(room, EAST, |_| true).await;
        let here = there.pointer(subject.managed_by);
        assert_ne!(here, Some(&json!(ELSEWHERE)), "{}", subject.kind);
        assert!(there["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"].is_string());
        subject.until(room, MANAGER, subject.succeeded).await;
        let workload = room
            .workload(MANAGER, &subject.name(), |w| is_true(w, "Finished"))
            .await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        assert_eq!(workload["status"]["clusterName"], EAST);
    };
    join_all(subjects.iter().map(ended)).await;
    nothing_left(room, EAST, subjects).await;
    assert!(
        room.phases(MANAGER).await.is_empty(),
        "nothing of them has ever run here"
    );
    join_all(subjects.iter().map(|subject| subject.delete(room, MANAGER))).await;
    nothing_left(room, MANAGER, subjects).await;
}

/// All jobs run on a worker with the same statuses on the manager. A job that is stopped on the manager is removed there with its
/// pods and runs anew. A deleted job leaves nothing.
pub(super) async fn stopped_from_far(room: Room, subjects: &[Subject]) {
    let workloads = resource(KUEUE, "Workload");
    let again = async |subject: &Subject| {
        subject.submit(room, MANAGER, LONG_SECS, None).await;
        let first = subject.running(room, EAST).await;
        let same = |job: &Value| {
            subject.is_held(job) == subject.stays_held
                && (subject.stays_held || job["status"] == first["status"])
        };
        subject.until(room, MANAGER, same).await;
        let workload = room
            .workload(MANAGER, &subject.name(), |w| is_true(w, "Admitted"))
            .await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let active = |active: bool| json!({"spec": {"active": active}});
        room.merge(MANAGER, &workloads, &name, active(false)).await;
        let released = |w: &Value| !is_true(w, "QuotaReserved") && w["status"].get("clusterName").is_none();
        room.workload(MANAGER, &subject.name(), released).await;
        subject
            .until(room, MANAGER, |job| subject.is_held(job) && !(subject.runs)(job))
            .await;
        room.merge(MANAGER, &workloads, &name, active(true)).await;
        let second = subject.running(room, EAST).await;
        assert_ne!(
            first["metadata"]["uid"], second["metadata"]["uid"],
            "{}",
            subject.kind
        );
    };
    join_all(subjects.iter().map(again)).await;
    room.running(EAST, cores(subjects)).await;
    join_all(subjects.iter().map(|subject| subject.delete(room, MANAGER))).await;
    nothing_left(room, MANAGER, subjects).await;
    nothing_left(room, EAST, subjects).await;
}
