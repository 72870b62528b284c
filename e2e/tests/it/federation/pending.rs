//! Jobs that cannot run show one reason each, and run when the cause is gone.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_api::kueue::v1beta2::{ClusterQueue, Workload};
use roadstead_e2e::stage::{Part, apply};
use serde_json::{Value, from_value, json};

use super::capacity::fill_with;
use super::fixture::{
    EAST, EVEN, LONG_SECS, MANAGER, Room, WEST, alone, and_then, beside_others, cluster_name, condition,
};
use crate::shared::eventually;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

fn cluster_queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
}

fn local_queue(room: Room, name: &str, of: &str) -> Value {
    json!({
        "apiVersion": KUEUE, "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": room.name}, "spec": {"clusterQueue": of},
    })
}

/// A `ClusterQueue` of the manager and a `LocalQueue` for it in the room, both known.
async fn queue(room: Room, name: &str, spec: Value) {
    let client = room.shared.client(MANAGER);
    apply(&client, cluster_queue(name, &spec)).await.unwrap();
    apply(&client, local_queue(room, name, name)).await.unwrap();
    room.queue_is_known(name).await;
}

fn groups(flavor: &str) -> Value {
    json!([{"coveredResources": ["cpu"], "flavors": [{
        "name": flavor, "resources": [{"name": "cpu", "nominalQuota": "8"}],
    }]}])
}

fn is_inactive(condition: &Condition) -> bool {
    condition.type_ == "Active" && condition.status == "False"
}

/// Submits a job into that queue.
async fn submit_into(room: Room, queue: &str, name: &str) {
    let mut job = room.job(name, "1", 1);
    job["metadata"]["labels"][QUEUE_NAME] = queue.into();
    room.submit(job).await;
}

/// Waits until the manager shows this reason why the job has no quota.
async fn has_no_quota(room: Room, job: &str, reason: &str, words: &str) {
    let told = |workload: &Workload| {
        condition(workload, "QuotaReserved").is_some_and(|(status, why, message)| {
            status == "False" && why == reason && message.contains(words)
        })
    };
    let workload = room.workload_where(job, told).await;
    assert!(workload.status.unwrap().nominated_cluster_names.is_empty());
    assert!(
        room.jobs(MANAGER)
            .get(job)
            .await
            .unwrap()
            .spec
            .unwrap()
            .suspend
            .unwrap()
    );
    for worker in [EAST, WEST] {
        assert!(room.jobs(worker).get_opt(job).await.unwrap().is_none());
    }
}

/// If only some queues dispatch, a queue that is created later does not help. The webhook could not know that the job would be
/// dispatched, and its `managedBy` cannot be changed any more.
///
/// Spec: api API-9.6, API-3; multikueue 1.8, 10.F27
#[test]
fn a_job_of_a_queue_that_does_not_exist_waits_for_that_queue_and_is_then_told_to_come_again() {
    beside_others("no-queue", EVEN, |room| async move {
        let spec = json!({"namespaceSelector": {}, "resourceGroups": groups("default")});
        queue(room, "runs-here", spec).await;
        submit_into(room, "nowhere", "lost").await;
        has_no_quota(room, "lost", "Misconfigured", "LocalQueue nowhere doesn't exist").await;
        for cluster in [MANAGER, EAST, WEST] {
            let local = local_queue(room, "nowhere", room.name);
            apply(&room.shared.client(cluster), local).await.unwrap();
        }
        let words =
            "The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\"";
        let told = |w: &Workload| {
            condition(w, "Evicted").is_some_and(|(status, reason, message)| {
                status == "True" && reason == "DeactivatedDueToAdmissionCheck" && message.contains(words)
            })
        };
        room.workload_where("lost", told).await;
        submit_into(room, "nowhere", "found").await;
        room.job_is(MANAGER, "found", "Complete").await;
    });
}

/// Tools that apply a whole folder create a job before its queue.
///
/// Spec: multikueue 1.8 (deviation)
#[test]
fn a_job_that_comes_before_its_queue_waits_for_it_and_runs_where_every_queued_job_is_managed() {
    alone("queue-later", EVEN, |room| async move {
        let stage = &room.shared.stage;
        let over = json!({"roadstead": {"multiKueue": {"managesEveryQueuedJob": true}}});
        stage.recast(MANAGER, Part::Manager, &over).await.unwrap();
        let body = async move {
            submit_into(room, "nowhere", "early").await;
            has_no_quota(room, "early", "Misconfigured", "LocalQueue nowhere doesn't exist").await;
            for cluster in [EAST, WEST, MANAGER] {
                let local = local_queue(room, "nowhere", room.name);
                apply(&room.shared.client(cluster), local).await.unwrap();
            }
            room.job_is(MANAGER, "early", "Complete").await;
            room.is_swept().await;
        };
        and_then(body, async {
            stage.recast(MANAGER, Part::Manager, &json!({})).await.unwrap();
        })
        .await;
    });
}

/// Queues and job at once, as `kubectl apply` sends them: faster than any watch.
///
/// Spec: multikueue 1.8
#[test]
fn a_job_that_comes_together_with_its_queues_runs() {
    beside_others("one-breath", EVEN, |room| async move {
        for round in 0..5 {
            let name = format!("one-breath-{round}");
            // Of the workers' queues only the namespaced one is new.
            for worker in [EAST, WEST] {
                apply(&room.shared.client(worker), local_queue(room, &name, room.name))
                    .await
                    .unwrap();
            }
            let client = room.shared.client(MANAGER);
            let federation = json!({"admissionChecks": [{"name": "federation"}]});
            let spec = json!({"namespaceSelector": {}, "resourceGroups": groups("default"),
                "admissionChecksStrategy": federation});
            apply(&client, cluster_queue(&name, &spec)).await.unwrap();
            apply(&client, local_queue(room, &name, &name)).await.unwrap();
            submit_into(room, &name, &name).await;
            room.job_is(MANAGER, &name, "Complete").await;
        }
        room.is_swept().await;
    });
}

/// Spec: api API-2.3, API-9.6
#[test]
fn a_job_of_an_inactive_queue_waits_with_the_queues_reason() {
    beside_others("inactive-queue", EVEN, |room| async move {
        let federation = json!({"admissionChecks": [{"name": "federation"}]});
        queue(
            room,
            "no-flavor",
            json!({"namespaceSelector": {}, "resourceGroups": groups("imaginary"),
            "admissionChecksStrategy": federation}),
        )
        .await;
        submit_into(room, "no-flavor", "flavorless").await;
        let words = "ClusterQueue no-flavor is inactive";
        has_no_quota(room, "flavorless", "Suspended", words).await;

        let queues: Api<ClusterQueue> = Api::all(room.shared.client(MANAGER));
        let stop = |policy: &str| Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
        queues
            .patch(room.name, &PatchParams::default(), &stop("Hold"))
            .await
            .unwrap();
        eventually(|| async {
            let conditions = queues.get(room.name).await.ok()?.status?.conditions;
            conditions.iter().any(is_inactive).then_some(())
        })
        .await;
        submit_into(room, room.name, "stopped").await;
        has_no_quota(room, "stopped", "Suspended", "is inactive").await;
        queues
            .patch(room.name, &PatchParams::default(), &stop("None"))
            .await
            .unwrap();
        room.job_is(MANAGER, "stopped", "Complete").await;
        room.is_swept().await;
    });
}

/// Spec: api API-9.6; admission-engine 2.5
#[test]
fn a_job_larger_than_every_quota_is_told_so() {
    beside_others("too-large", EVEN, |room| async move {
        room.submit(room.job("huge", "64", 1)).await;
        has_no_quota(room, "huge", "ExceedsMaxQuota", "maximum capacity").await;
    });
}

/// Spec: experience P4; multikueue 11.29
#[test]
fn a_job_that_no_worker_can_take_now_says_which_workers_it_waits_for() {
    beside_others("no-worker-fits", EVEN, |room| async move {
        for worker in [EAST, WEST] {
            fill_with(room, worker, ("8", LONG_SECS)).await;
        }
        room.submit(room.job("wide", "6", 1)).await;
        let told = |w: &Workload| {
            let checks = w.status.iter().flat_map(|status| &status.admission_checks);
            checks.into_iter().any(|check| {
                check.message.contains("waiting for quota on \"east\"") && check.message.contains("\"west\"")
            })
        };
        let workload = room.workload_where("wide", told).await;
        assert_eq!(cluster_name(&workload), None);
        assert!(condition(&workload, "Evicted").is_none());
        let local = room.jobs(MANAGER).get("wide").await.unwrap();
        assert_eq!(local.spec.unwrap().suspend, Some(true));
        for worker in [EAST, WEST] {
            assert!(room.jobs(worker).get_opt("wide").await.unwrap().is_none());
        }
    });
}

/// Spec: multikueue 11.42
#[test]
fn a_job_of_a_queue_without_the_check_is_admitted_on_the_manager_itself() {
    beside_others("managers-own", EVEN, |room| async move {
        queue(
            room,
            "of-the-manager",
            json!({"namespaceSelector": {}, "resourceGroups": groups("default")}),
        )
        .await;
        submit_into(room, "of-the-manager", "local").await;
        let jobs = room.jobs(MANAGER);
        let started = || async {
            jobs.get("local")
                .await
                .ok()?
                .spec
                .filter(|spec| spec.suspend == Some(false))
        };
        let spec = eventually(started).await;
        assert_eq!(spec.managed_by, None);
        let workload = room.workload_where("local", |w| w.is_true("Admitted")).await;
        assert_eq!(cluster_name(&workload), None);
        assert!(room.ours_in(EAST).await.is_empty() && room.ours_in(WEST).await.is_empty());
        jobs.delete("local", &DeleteParams::background()).await.unwrap();
    });
}

/// Spec: jobs 1.1; safety I7
#[test]
fn a_job_without_a_queue_label_is_never_touched() {
    beside_others("without-label", EVEN, |room| async move {
        let mut job = room.job("private", "1", 600);
        job["metadata"]["labels"] = json!({});
        let made = room.submit(job).await;
        // A later job has run to its end meanwhile.
        room.submit(room.job("public", "1", 1)).await;
        room.job_is(MANAGER, "public", "Complete").await;
        let now = room.jobs(MANAGER).get("private").await.unwrap();
        assert_eq!(now.spec, made.spec);
        assert_eq!(now.spec.unwrap().managed_by, None);
        assert_eq!(now.metadata.labels, made.metadata.labels);
        assert_eq!(now.metadata.annotations, made.metadata.annotations);
        assert!(room.workload("private").await.is_none());
        let pods: Api<Pod> = room.api(MANAGER);
        let own = ListParams::default().labels("batch.kubernetes.io/job-name=private");
        assert_eq!(
            pods.list(&own).await.unwrap().items.len(),
            1,
            "Kubernetes runs it"
        );
        room.jobs(MANAGER)
            .delete("private", &DeleteParams::background())
            .await
            .unwrap();
    });
}

/// A job of another client in a worker.
async fn occupy(room: Room, worker: &str, name: &str) -> Job {
    let mut job = room.job(name, "1", 1);
    job["metadata"]["labels"] = json!({"team": "somebody"});
    job["spec"]["suspend"] = true.into();
    let job: Job = from_value(job).unwrap();
    room.jobs(worker)
        .create(&PostParams::default(), &job)
        .await
        .unwrap()
}

fn assert_same(before: &Job, now: &Job) {
    assert_eq!(before.uid(), now.uid());
    assert_eq!(before.spec, now.spec);
    assert_eq!(before.metadata.labels, now.metadata.labels);
    assert_eq!(before.metadata.owner_references, now.metadata.owner_references);
}

/// Spec: multikueue 10.F21; safety I7
#[test]
fn a_name_taken_in_one_worker_sends_the_job_to_the_other() {
    beside_others("name-taken", EVEN, |room| async move {
        let theirs = occupy(room, EAST, "train").await;
        room.submit(room.job("train", "1", 1)).await;
        assert_eq!(room.started("train").await, WEST);
        room.job_is(MANAGER, "train", "Complete").await;
        room.is_swept().await;
        assert_same(&theirs, &room.jobs(EAST).get("train").await.unwrap());
    });
}

/// Spec: multikueue 10.F21; safety I7; experience P4
#[test]
fn a_name_taken_everywhere_is_the_reason_why_the_job_waits() {
    beside_others("name-taken-twice", EVEN, |room| async move {
        let (east, west) = (
            occupy(room, EAST, "train").await,
            occupy(room, WEST, "train").await,
        );
        room.submit(room.job("train", "1", 1)).await;
        let told = |w: &Workload| {
            let checks = w.status.iter().flat_map(|status| &status.admission_checks);
            let words = "has an object of the same name that is not ours";
            { checks }.any(|check| check.message.contains(words))
        };
        room.workload_where("train", told).await;
        assert_same(&east, &room.jobs(EAST).get("train").await.unwrap());
        assert_same(&west, &room.jobs(WEST).get("train").await.unwrap());
        // The other client removes the job with that name in one worker.
        room.jobs(WEST)
            .delete("train", &DeleteParams::background())
            .await
            .unwrap();
        assert_eq!(room.started("train").await, WEST);
        room.job_is(MANAGER, "train", "Complete").await;
        assert_same(&east, &room.jobs(EAST).get("train").await.unwrap());
    });
}
