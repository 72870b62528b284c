//! The life of a job in one worker on its own: waiting for pods, time limits, retention, priorities, limit ranges, fewer
//! pods than asked for, switching off and on.
//!
//! The tests share one worker that is registered nowhere; each has a namespace and a queue of its own.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::LimitRange;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use roadstead_api::constants::labels::{MAX_EXEC_TIME_SECONDS, PRIORITY_CLASS, QUEUE_NAME};
use roadstead_api::kueue::v1beta2::{Workload, WorkloadPriorityClass};
use roadstead_e2e::options::RUN_SECONDS;
use roadstead_e2e::stage::{Solo, apply};
use roadstead_e2e::{Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::runtime::Runtime;
use tokio::sync::RwLock;
use tokio::time::timeout;

use crate::commons::Common;
use crate::shared::{chain, eventually};

const DEADLINE: Duration = Duration::from_mins(5);
/// Limit of the start, a first build included.
const START_DEADLINE: Duration = Duration::from_mins(30);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const FLAVOR: &str = "default";

// Why one runtime for all: background tasks of the worker must outlive the test that started it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// A test that restarts the worker holds this lock alone: while the worker is away, its webhooks refuse the writes of others.
static SOLO: Common<RwLock<Solo>> = Common::new(|solo| {
    // Why the lock is free: a test that uses the cluster is over.
    solo.try_read().expect("no test uses it").end();
});

async fn start(options: Options, configuration: Value) -> Solo {
    let starting = Solo::start(options, &configuration, Progress::stderr());
    let started = Box::pin(timeout(START_DEADLINE, starting)).await;
    let solo = started.expect("the start must end");
    solo.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

async fn solo() -> &'static RwLock<Solo> {
    let start = async {
        let options = Options::complete("solo").with_node(Node::new("solo-1", "64", "256Gi"));
        // Why so long: a busy machine may take its time to start a pod, and to look at a workload that has finished.
        let solo = start(
            options,
            json!({
                "waitForPodsReady": {"timeout": "10m"},
                "objectRetentionPolicies": {"workloads": {"afterFinished": "20s"}},
            }),
        );
        RwLock::new(solo.await)
    };
    SOLO.get(|| start).await
}

/// A namespace and a queue of the same name.
#[derive(Clone)]
struct Room {
    client: Client,
    name: &'static str,
}

fn run<F: Future<Output = ()>>(name: &'static str, cpu: &str, body: impl FnOnce(Room) -> F) {
    RUNTIME.block_on(async {
        let _used = SOLO.peace().read().await;
        let solo = solo().await;
        let client = solo.read().await.client().unwrap();
        let room = Room { client, name };
        let play = async {
            let present = solo.read().await;
            room.furnish(cpu).await;
            drop(present);
            body(room.clone()).await;
        };
        if timeout(DEADLINE, play).await.is_err() {
            let log = solo.read().await.log_tail();
            panic!("{name} does not come to its end; the worker's last lines:\n{log}");
        }
    });
}

impl Room {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.name)
    }

    /// A job of one pod that asks for so much and runs for so many seconds.
    fn job(&self, name: &str, cpu: &str, seconds: u32) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": self.name, "labels": {QUEUE_NAME: self.name}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": {RUN_SECONDS: seconds.to_string()}},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}},
                }]},
            }},
        })
    }

    /// The namespace, and a queue with so many cores.
    async fn furnish(&self, cpu: &str) {
        let quota = json!({"name": "cpu", "nominalQuota": cpu});
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}),
            json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}),
            json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": self.name}, "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}],
            }}),
            json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": self.name, "namespace": self.name},
                "spec": {"clusterQueue": self.name}}),
        ] {
            apply(&self.client, object).await.unwrap();
        }
    }

    async fn submit(&self, job: Value) -> Job {
        let _present = solo().await.read().await;
        self.create(job).await
    }

    async fn create(&self, job: Value) -> Job {
        let job: Job = from_value(job).unwrap();
        self.api().create(&PostParams::default(), &job).await.unwrap()
    }

    async fn workload(&self, job: &str) -> Option<Workload> {
        let all: Api<Workload> = self.api();
        let found = all.list(&ListParams::default()).await.ok()?.items;
        { found.into_iter() }.find(|w| w.owner_references().iter().any(|owner| owner.name == job))
    }

    async fn workload_where(&self, job: &str, wanted: impl Fn(&Workload) -> bool) -> Workload {
        eventually(|| async { self.workload(job).await.filter(&wanted) }).await
    }

    /// Waits until the Workload of a job says so.
    async fn says(&self, job: &str, kind: &str, status: &str, reason: &str) -> Workload {
        self.workload_where(job, |w| says(w, kind, status, reason)).await
    }

    async fn job_where(&self, name: &str, wanted: impl Fn(&Job) -> bool) -> Job {
        let jobs: Api<Job> = self.api();
        eventually(|| async { jobs.get(name).await.ok().filter(&wanted) }).await
    }

    async fn runs(&self, name: &str) -> Job {
        self.job_where(name, |job| {
            job.status.as_ref().is_some_and(|s| s.ready.unwrap_or(0) > 0)
        })
        .await
    }

    async fn merge<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let _present = solo().await.read().await;
        let patched = self
            .api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap()
    }

    async fn told(&self, reason: &str, words: &str) {
        let events: Api<Event> = self.api();
        let told = |event: &Event| {
            event.reason.as_deref() == Some(reason) && event.note.as_ref().is_some_and(|n| n.contains(words))
        };
        eventually(|| async {
            let all = events.list(&ListParams::default()).await.ok()?;
            all.items.iter().find(|event| told(event)).map(drop)
        })
        .await;
    }
}

fn says(workload: &Workload, kind: &str, status: &str, reason: &str) -> bool {
    let found = workload.condition(kind);
    found.is_some_and(|c| c.status == status && c.reason == reason)
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

fn parallelism(job: &Job) -> Option<i32> {
    job.spec.as_ref()?.parallelism
}

/// No kubelet runs in this cluster, so no pod is ever ready, however busy the machine is.
///
/// Spec: admission-engine B180, B182, B188, B042.
#[test]
fn a_job_whose_pods_do_not_start_comes_back_once_is_then_switched_off_and_in_the_end_deleted() {
    let configuration = json!({
        "waitForPodsReady": {
            "timeout": "5s",
            "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffLimitCount": 1},
        },
        "objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "10s"}},
    });
    RUNTIME.block_on(async {
        let solo = start(Options::bare("never-ready"), configuration).await;
        let (client, name) = (solo.client().unwrap(), "never-ready");
        let room = Room { client, name };
        let ended = timeout(DEADLINE, never_ready(room)).await;
        assert!(
            ended.is_ok(),
            "it does not come to its end; the worker's last lines:\n{}",
            solo.log_tail()
        );
    });
}

async fn never_ready(room: Room) {
    room.furnish("4").await;
    room.create(room.job("stuck", "1", 1)).await;
    room.says("stuck", "PodsReady", "False", "WaitForStart").await;
    let evicted = room
        .workload_where("stuck", |w| {
            let status = w.status.as_ref();
            status.is_some_and(|status| status.scheduling_stats.is_some())
        })
        .await;
    let status = evicted.status.unwrap();
    let stats = status.scheduling_stats.unwrap().evictions;
    assert_eq!(
        (
            stats[0].reason.as_str(),
            stats[0].underlying_cause.as_str(),
            stats[0].count
        ),
        ("PodsReadyTimeout", "WaitForStart", 1)
    );
    assert_eq!(status.requeue_state.unwrap().count, Some(1));
    room.told(
        "EvictedDueToPodsReadyTimeout",
        "Exceeded the PodsReady timeout never-ready/job-stuck-",
    )
    .await;
    room.says("stuck", "Requeued", "True", "BackoffFinished").await;
    let reason = "DeactivatedDueToRequeuingLimitExceeded";
    let off = room.says("stuck", "Evicted", "True", reason).await;
    assert_eq!(off.spec.active, Some(false));
    let jobs: Api<Job> = room.api();
    eventually(|| async { jobs.get_opt("stuck").await.ok()?.is_none().then_some(()) }).await;
    room.told("Deleted", "Deleted job: deactivation retention period expired")
        .await;
}

/// Spec: admission-engine B186; jobs 5.14, 5.12.
#[test]
fn a_job_whose_time_is_up_is_switched_off() {
    run("time-is-up", "4", |room| async move {
        let mut job = room.job("long", "1", 600);
        job["metadata"]["labels"][MAX_EXEC_TIME_SECONDS] = "4".into();
        room.submit(job).await;
        room.says("long", "PodsReady", "True", "Started").await;
        room.told(
            "MaximumExecutionTimeExceeded",
            "The maximum execution time (4s) exceeded",
        )
        .await;
        let reason = "DeactivatedDueToMaximumExecutionTimeExceeded";
        room.says("long", "Evicted", "True", reason).await;
        room.job_where("long", is_suspended).await;
    });
}

/// Spec: admission-engine B187, B175.
#[test]
fn a_finished_workload_is_deleted_and_its_job_stays() {
    run("retention", "4", |room| async move {
        let made = room.submit(room.job("short", "1", 1)).await;
        room.says("short", "Finished", "True", "Succeeded").await;
        eventually(|| async { room.workload("short").await.is_none().then_some(()) }).await;
        room.told("Deleted", "Deleted finished workload due to elapsed retention")
            .await;
        // Another job runs to its end meanwhile, and the first one still gets no new Workload.
        room.submit(room.job("other", "1", 1)).await;
        room.says("other", "Finished", "True", "Succeeded").await;
        assert!(room.workload("short").await.is_none());
        let jobs: Api<Job> = room.api();
        let kept = jobs.get("short").await.unwrap();
        assert_eq!(kept.metadata.uid, made.metadata.uid);
        assert_eq!(kept.status.unwrap().succeeded, Some(1));
    });
}

/// Spec: admission-engine B178, 4.4; jobs 5.13.
#[test]
fn a_workload_follows_its_class_and_waits_for_one_that_does_not_exist() {
    run("priority", "1", |room| async move {
        let class = |value: i32| json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "gold"}, "value": value});
        for name in ["first", "second"] {
            let mut job = room.job(name, "1", 600);
            job["metadata"]["labels"][PRIORITY_CLASS] = "gold".into();
            room.submit(job).await;
        }
        let words = "WorkloadPriorityClass \"gold\" not found";
        room.told("WorkloadPriorityClassNotFound", words).await;
        assert!(room.workload("first").await.is_none());
        apply(&room.client, class(10)).await.unwrap();
        for name in ["first", "second"] {
            room.workload_where(name, |w| w.spec.priority == Some(10)).await;
        }
        apply(&room.client, class(20)).await.unwrap();
        for name in ["first", "second"] {
            room.workload_where(name, |w| w.spec.priority == Some(20)).await;
        }
        let classes: Api<WorkloadPriorityClass> = Api::all(room.client.clone());
        classes.delete("gold", &DeleteParams::default()).await.unwrap();
    });
}

/// Spec: admission-engine B064, B190, 2.15.
#[test]
fn limit_ranges_count_and_are_looked_at_again_when_they_change() {
    run("limits", "8", |room| async move {
        let range = |max: &str| {
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds", "namespace": "limits"},
                "spec": {"limits": [{"type": "Container", "max": {"cpu": max}, "defaultRequest": {"cpu": "500m"}}]}})
        };
        apply(&room.client, range("2")).await.unwrap();
        room.submit(room.job("large", "4", 1)).await;
        let refused = room
            .says("large", "QuotaReserved", "False", "Misconfigured")
            .await;
        let message = &refused.condition("QuotaReserved").unwrap().message;
        let words = "resources didn't satisfy LimitRange constraints: spec.podSets[main].template.spec.containers[0]\
                     .resources.requests[cpu]: requests must not be above the limitRange max";
        assert!(message.contains(words), "{message}");
        let asked = &refused.status.as_ref().unwrap().resource_requests[0].resources;
        assert_eq!(asked["cpu"].0, "4");

        let mut plain = room.job("plain", "1", 1);
        plain["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
        room.submit(plain).await;
        let admitted = room.says("plain", "Admitted", "True", "Admitted").await;
        let assigned = &admitted
            .status
            .as_ref()
            .unwrap()
            .admission
            .as_ref()
            .unwrap()
            .pod_set_assignments;
        assert_eq!(assigned[0].resource_usage["cpu"].0, "500m");
        let template = admitted.spec.pod_sets[0].template.to_value();
        let resources = template
            .pointer("/spec/containers/0/resources")
            .cloned()
            .unwrap_or_default();
        assert!(resources.get("requests").is_none(), "{resources}");

        let ranges: Api<LimitRange> = room.api();
        let wider = Patch::Merge(range("6"));
        ranges
            .patch("bounds", &PatchParams::default(), &wider)
            .await
            .unwrap();
        room.says("large", "Finished", "True", "Succeeded").await;
    });
}

/// Spec: jobs 15.67; admission-engine 2.9.
#[test]
fn a_job_runs_with_fewer_pods_when_fewer_were_admitted_and_has_all_of_them_back_when_it_stops() {
    run("fewer", "3", |room| async move {
        let mut job = room.job("elastic", "1", 600);
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        job["spec"]["parallelism"] = 5.into();
        room.submit(job).await;
        let workload = room
            .workload_where("elastic", |w| w.condition("QuotaReserved").is_some())
            .await;
        assert_eq!(workload.spec.pod_sets[0].min_count, Some(2));
        if !workload.is_true("QuotaReserved") {
            admit_three(&room, &workload).await;
        }
        room.job_where("elastic", |job| {
            parallelism(job) == Some(3) && job.status.as_ref().is_some_and(|s| s.ready == Some(3))
        })
        .await;
        room.merge::<Workload>(&workload.name_any(), json!({"spec": {"active": false}}))
            .await;
        room.job_where("elastic", |job| is_suspended(job) && parallelism(job) == Some(5))
            .await;
        let still = room.workload("elastic").await.unwrap();
        assert_eq!(
            still.metadata.uid, workload.metadata.uid,
            "it still describes the job"
        );
    });
}

/// Plays the scheduler, where it does not try smaller sizes itself.
async fn admit_three(room: &Room, workload: &Workload) {
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let holds = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at});
    let status = json!({"status": {
        "conditions": [holds("QuotaReserved"), holds("Admitted")],
        "resourceRequests": null,
        "admission": {"clusterQueue": room.name, "podSetAssignments": [{
            "name": "main", "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"},
        }]},
    }});
    let workloads: Api<Workload> = room.api();
    let patched = workloads
        .patch_status(
            &workload.name_any(),
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await;
    patched.unwrap();
}

/// Spec: admission-engine B174, B173.
#[test]
fn a_job_is_switched_off_and_on_again() {
    run("off-and-on", "1", |room| async move {
        room.submit(room.job("switched", "1", 600)).await;
        room.runs("switched").await;
        room.submit(room.job("waiting", "1", 1)).await;
        room.says("waiting", "QuotaReserved", "False", "WaitingForQuota")
            .await;
        let name = room.workload("switched").await.unwrap().name_any();
        room.merge::<Workload>(&name, json!({"spec": {"active": false}}))
            .await;
        let off = room.says("switched", "Requeued", "False", "Deactivated").await;
        assert!(says(&off, "Evicted", "True", "Deactivated"));
        assert_eq!(
            off.condition("Evicted").unwrap().message,
            "The workload is deactivated"
        );
        room.job_where("switched", |job| {
            is_suspended(job) && job.status.as_ref().is_none_or(|s| s.active.unwrap_or(0) == 0)
        })
        .await;
        room.says("waiting", "Finished", "True", "Succeeded").await;
        room.merge::<Workload>(&name, json!({"spec": {"active": true}}))
            .await;
        room.runs("switched").await;
        let on = room.says("switched", "Requeued", "True", "Reactivated").await;
        assert!(says(&on, "Evicted", "False", "QuotaReserved"));
    });
}

/// Spec: admission-engine B179.
#[test]
fn a_restart_gives_no_quota_twice() {
    run("restarted", "1", |room| async move {
        room.submit(room.job("holder", "1", 600)).await;
        room.runs("holder").await;
        room.submit(room.job("next", "1", 1)).await;
        room.says("next", "QuotaReserved", "False", "WaitingForQuota")
            .await;
        let before = room.workload("holder").await.unwrap();
        // The jobs of other tests go on over the restart too.
        solo().await.write().await.restart().await.unwrap();
        // Why less: equals of one that waits are not looked at.
        room.submit(room.job("last", "500m", 1)).await;
        room.says("last", "QuotaReserved", "False", "WaitingForQuota")
            .await;
        for waiting in ["next", "last"] {
            assert!(!room.workload(waiting).await.unwrap().is_true("QuotaReserved"));
        }
        let after = room.workload("holder").await.unwrap();
        assert_eq!(after.condition("Admitted"), before.condition("Admitted"));
        let jobs: Api<Job> = room.api();
        jobs.delete("holder", &DeleteParams::background()).await.unwrap();
        room.says("next", "Finished", "True", "Succeeded").await;
        room.says("last", "Finished", "True", "Succeeded").await;
    });
}

/// Waits until the Workload of this name is as wanted.
async fn named(room: &Room, name: &str, wanted: impl Fn(&Workload) -> bool) -> Workload {
    let all: Api<Workload> = room.api();
    eventually(|| async { all.get(name).await.ok().filter(&wanted) }).await
}

/// Only its own controller knows whether its pods still run.
///
/// Spec: admission-engine 3.3, 3.4.
#[test]
fn a_workload_without_a_known_job_keeps_its_quota_after_an_eviction_until_its_controller_gives_it_back() {
    run("unknown-jobs", "1", |room| async move {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": room.name}});
        let owner = apply(&room.client, owner).await.unwrap();
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid, "controller": true,
        }]);
        for (name, owners) in [("by-hand", json!([])), ("of-a-framework", reference)] {
            let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}},
            }]}});
            let workload = json!({
                "apiVersion": KUEUE, "kind": "Workload",
                "metadata": {"name": name, "namespace": room.name, "ownerReferences": owners},
                "spec": {"queueName": room.name, "podSets": [{"name": "main", "count": 1, "template": pod}]},
            });
            let present = solo().await.read().await;
            apply(&room.client, workload).await.unwrap();
            drop(present);
            named(&room, name, |w| says(w, "Admitted", "True", "Admitted")).await;
            let next = format!("after-{name}");
            room.submit(room.job(&next, "1", 1)).await;
            room.says(&next, "QuotaReserved", "False", "WaitingForQuota")
                .await;
            room.merge::<Workload>(name, json!({"spec": {"active": false}}))
                .await;
            named(&room, name, |w| says(w, "Evicted", "True", "Deactivated")).await;
            // The engine looks at both again, and at the whole queue.
            room.submit(room.job(&format!("looks-{name}"), "500m", 1)).await;
            let looks = format!("looks-{name}");
            room.says(&looks, "QuotaReserved", "False", "WaitingForQuota")
                .await;
            let held = named(&room, name, |_| true).await;
            assert!(
                held.is_true("QuotaReserved") && held.is_true("Evicted"),
                "{:?}",
                held.status
            );
            assert!(
                held.status
                    .as_ref()
                    .is_some_and(|status| status.admission.is_some())
            );
            assert!(!room.workload(&next).await.unwrap().is_true("QuotaReserved"));

            let now = held.condition("Evicted").unwrap().last_transition_time.clone();
            let mut conditions: Vec<Value> = Vec::new();
            for condition in &held.status.as_ref().unwrap().conditions {
                if !["QuotaReserved", "Admitted"].contains(&condition.type_.as_str()) {
                    conditions.push(serde_json::to_value(condition).unwrap());
                }
            }
            for (kind, reason) in [("QuotaReserved", "Pending"), ("Admitted", "NoReservation")] {
                conditions.push(json!({
                    "type": kind, "status": "False", "reason": reason, "message": "its pods are gone", "lastTransitionTime": now,
                }));
            }
            let released = json!({"status": {"conditions": conditions, "admission": null}});
            let all: Api<Workload> = room.api();
            all.patch_status(name, &PatchParams::default(), &Patch::Merge(released))
                .await
                .unwrap();
            room.says(&next, "Finished", "True", "Succeeded").await;
            room.says(&looks, "Finished", "True", "Succeeded").await;
            all.delete(name, &DeleteParams::default()).await.unwrap();
            eventually(|| async { all.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
        }
    });
}
