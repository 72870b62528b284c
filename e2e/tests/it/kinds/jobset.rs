//! JobSets, with the JobSet controller.

use kube::api::{ApiResource, ListParams, Patch, PatchParams, PostParams};
use roadstead_e2e::options::EXIT_CODE;
use serde_json::{Value, json};

use super::ground::{
    EAST, KUEUE, LONG_SECS, MANAGER, Room, WEST, WEST_CHANGES, condition, is_true, join, play, play_embedded,
    pods, resource, tight_queue,
};
use crate::shared::chain;

pub(super) fn jobsets() -> ApiResource {
    resource("jobset.x-k8s.io/v1alpha2", "JobSet")
}

/// Everything that a JobSet makes, and what stands for it in a queue.
pub(super) fn all_of_it() -> [ApiResource; 4] {
    [
        jobsets(),
        resource("batch/v1", "Job"),
        resource("v1", "Pod"),
        resource(KUEUE, "Workload"),
    ]
}

/// One leader and two workers, in the queue of the test; four pods of one core.
pub(super) fn jobset(room: Room, name: &str, secs: u32) -> Value {
    let job = |parallelism: u32| {
        let spec = json!({
            "parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": pods(secs),
        });
        json!({"spec": spec})
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {
            "name": name, "namespace": room.name, "labels": {"kueue.x-k8s.io/queue-name": room.name},
        },
        "spec": {"replicatedJobs": [
            {"name": "leader", "replicas": 1, "template": job(2)},
            {"name": "workers", "replicas": 2, "template": job(1)},
        ]},
    })
}

pub(super) async fn submit(room: Room, cluster: &str, jobset: Value) -> Value {
    let object = serde_json::from_value(jobset).unwrap();
    let created = room
        .api(cluster, &jobsets())
        .create(&PostParams::default(), &object)
        .await;
    serde_json::to_value(created.unwrap_or_else(|error| panic!("{}", chain(&error)))).unwrap()
}

fn active(jobset: &Value) -> i64 {
    sum(jobset, "active")
}

/// A number of the status, over all replicated jobs.
fn sum(jobset: &Value, number: &str) -> i64 {
    let statuses = jobset["status"]["replicatedJobsStatus"].as_array();
    statuses
        .into_iter()
        .flatten()
        .map(|each| each[number].as_i64().unwrap())
        .sum()
}

/// A queue of sixteen cores on a cluster that has none yet.
async fn lone_queue(room: Room) {
    let named = |kind: &str, spec: Value| json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": room.name, "namespace": room.name}, "spec": spec});
    let mut flavor = named("ResourceFlavor", json!({}));
    let resources = json!([{"name": "cpu", "nominalQuota": "16"}]);
    let group =
        json!({"coveredResources": ["cpu"], "flavors": [{"name": room.name, "resources": resources}]});
    let mut queue = named(
        "ClusterQueue",
        json!({"namespaceSelector": {}, "resourceGroups": [group]}),
    );
    for object in [&mut flavor, &mut queue] {
        object["metadata"].as_object_mut().unwrap().remove("namespace");
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": room.name}});
    let local = named("LocalQueue", json!({"clusterQueue": room.name}));
    for object in [namespace, flavor, queue, local] {
        room.apply(EAST, object).await;
    }
}

/// Spec: jobs 9.2, 5.8, 5.9, 15.26, 15.71
#[test]
fn a_jobset_is_admitted_preempted_resumed_and_ends_on_one_cluster() {
    play("jobset-alone", &[(EAST, "4")], async |room| {
        tight_queue(room).await;
        let with_priority = |name: &str, secs: u32| {
            let mut jobset = jobset(room, name, secs);
            jobset["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] =
                json!(format!("{}-{name}", room.name));
            jobset
        };
        let created = submit(room, EAST, with_priority("low", LONG_SECS)).await;
        assert_eq!(created["spec"]["suspend"], true, "the webhook holds it");
        assert_eq!(
            created["spec"].get("managedBy"),
            None,
            "no check of the queue leads elsewhere"
        );
        let workload = room.workload(EAST, "low", |w| is_true(w, "Admitted")).await;
        let sets: Vec<_> = { workload["spec"]["podSets"].as_array().unwrap().iter() }
            .map(|set| (set["name"].as_str().unwrap(), set["count"].as_i64().unwrap()))
            .collect();
        assert_eq!(sets, [("leader", 2), ("workers", 2)]);
        room.running(EAST, 4).await;
        let running = room.until(EAST, &jobsets(), "low", |j| active(j) == 3).await;
        let labels = |jobset: &Value| {
            jobset["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["metadata"]["labels"].clone()
        };
        assert_eq!(labels(&running)["kueue.x-k8s.io/podset"], "workers");

        submit(room, EAST, with_priority("high", 2)).await;
        let evicted = |w: &Value| condition(w, "Evicted").is_some_and(|said| said == "True Preempted");
        room.workload(EAST, "low", evicted).await;
        let stopped = room
            .until(EAST, &jobsets(), "low", |j| {
                j["spec"]["suspend"] == true && active(j) == 0
            })
            .await;
        assert_eq!(labels(&stopped), Value::Null, "its template is as it was");
        let ended = room
            .until(EAST, &jobsets(), "high", |j| is_true(j, "Completed"))
            .await;
        let finished = room.workload(EAST, "high", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&finished, "Finished").unwrap(), "True Succeeded");
        let message = |object: &Value, kind: &str| {
            let conditions = object["status"]["conditions"].as_array().unwrap();
            conditions.iter().find(|c| c["type"] == kind).unwrap()["message"].clone()
        };
        assert_eq!(message(&finished, "Finished"), message(&ended, "Completed"));

        room.workload(EAST, "low", |w| is_true(w, "Admitted") && !is_true(w, "Evicted"))
            .await;
        room.until(EAST, &jobsets(), "low", |j| {
            j["spec"]["suspend"] == false && active(j) == 3
        })
        .await;
        room.running(EAST, 4).await;
        for name in ["low", "high"] {
            room.delete(EAST, &jobsets(), name).await;
        }
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Server and controllers of the simulation and of the demo.
#[test]
fn a_jobset_ends_where_the_server_and_the_controllers_are_played() {
    play_embedded("jobset-played", async |room| {
        lone_queue(room).await;
        let mut failing = jobset(room, "fails", 1);
        let template = &mut failing["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        template["metadata"]["annotations"][EXIT_CODE] = json!("3");
        for (jobset, end, said) in [
            (failing, "Failed", "True Failed"),
            (jobset(room, "works", 1), "Completed", "True Succeeded"),
        ] {
            let name = jobset["metadata"]["name"].as_str().unwrap().to_owned();
            let created = submit(room, EAST, jobset).await;
            assert_eq!(created["spec"]["suspend"], true);
            let ended = room.until(EAST, &jobsets(), &name, |j| is_true(j, end)).await;
            assert_eq!(ended["status"]["terminalState"], end);
            let finished = room.workload(EAST, &name, |w| is_true(w, "Finished")).await;
            assert_eq!(condition(&finished, "Finished").unwrap(), said);
            room.delete(EAST, &jobsets(), &name).await;
        }
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: jobs 7.2, 7.3, 8, 15.59, 15.60; multikueue 11.88 (deviation)
#[test]
fn a_jobset_is_defaulted_and_checked_by_our_webhooks() {
    play("jobset-checked", &[(EAST, "4")], async |room| {
        let api = room.api(EAST, &jobsets());
        let refused = async |change: fn(&mut Value)| {
            let mut jobset = jobset(room, "wrong", 1);
            change(&mut jobset);
            let object = serde_json::from_value(jobset).unwrap();
            api.create(&PostParams::default(), &object)
                .await
                .unwrap_err()
                .to_string()
        };
        let elastic =
            refused(|j| j["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"})).await;
        let text = "elastic job is not supported for \"jobset.x-k8s.io/v1alpha2, Kind=JobSet\"";
        assert!(
            elastic.contains("vjobset.kb.io") && elastic.contains(text),
            "{elastic}"
        );
        let place = refused(|j| {
            let template = &mut j["spec"]["replicatedJobs"][1]["template"]["spec"]["template"];
            template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = json!("a b");
        })
        .await;
        assert!(
            place.contains("spec.replicatedJobs[1].template.spec.template.metadata.annotations"),
            "{place}"
        );
        let mut placed = jobset(room, "placed", 600);
        let template = &mut placed["spec"]["replicatedJobs"][1]["template"]["spec"]["template"];
        template["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = json!("rack");
        submit(room, EAST, placed).await;
        let waits = |w: &Value| condition(w, "QuotaReserved").as_deref() == Some("False NoMatchingFlavor");
        let waiting = room.workload(EAST, "placed", waits).await;
        let asked = &waiting["spec"]["podSets"][1]["topologyRequest"];
        assert_eq!(*asked, json!({"required": "rack"}));
        room.delete(EAST, &jobsets(), "placed").await;
        submit(room, EAST, jobset(room, "right", 600)).await;
        room.workload(EAST, "right", |w| is_true(w, "Admitted")).await;
        room.until(EAST, &jobsets(), "right", |j| j["spec"]["suspend"] == false)
            .await;
        let patch = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "another"}}});
        let params = PatchParams::default();
        let moved = api
            .patch("right", &params, &Patch::Merge(patch))
            .await
            .unwrap_err();
        assert!(moved.to_string().contains("field is immutable"), "{moved}");
        room.delete(EAST, &jobsets(), "right").await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: multikueue 5, 11.57, 11.60; jobs 10.1, 15.53
#[test]
fn a_jobset_of_the_manager_runs_on_a_worker_and_shows_its_end() {
    play("jobset-far", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        let created = submit(room, MANAGER, jobset(room, "train", 20)).await;
        assert_eq!(created["spec"]["managedBy"], "kueue.x-k8s.io/multikueue");
        let ready = |j: &Value| sum(j, "ready") == 3 && active(j) == 3;
        let there = room.until(EAST, &jobsets(), "train", ready).await;
        assert_eq!(there["spec"].get("managedBy"), None);
        assert!(there["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"].is_string());
        let here = room.until(MANAGER, &jobsets(), "train", ready).await;
        assert_eq!(
            here["status"]["replicatedJobsStatus"],
            there["status"]["replicatedJobsStatus"]
        );
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        assert_eq!(workload["status"]["clusterName"], EAST);
        let ended = room
            .until(MANAGER, &jobsets(), "train", |j| is_true(j, "Completed"))
            .await;
        assert_eq!(ended["status"]["terminalState"], "Completed");
        room.is_empty(EAST, &all_of_it()).await;
        assert!(
            room.phases(MANAGER).await.is_empty(),
            "nothing of it has ever run here"
        );
        room.delete(MANAGER, &jobsets(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
    });
}

/// Spec: multikueue 3.9, 11.80
#[test]
fn of_a_jobset_that_is_deleted_while_it_runs_elsewhere_nothing_stays() {
    play("jobset-gone", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        submit(room, MANAGER, jobset(room, "train", LONG_SECS)).await;
        room.running(EAST, 4).await;
        room.delete(MANAGER, &jobsets(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Its status does not count the pods that are being ended, so only the end of its object says that they are gone.
///
/// Spec: multikueue 3.8; safety 1 I1
#[test]
fn a_jobset_that_is_stopped_by_the_manager_goes_with_its_pods_and_runs_anew() {
    play("jobset-anew", &[(MANAGER, "16"), (EAST, "8")], async |room| {
        submit(room, MANAGER, jobset(room, "train", LONG_SECS)).await;
        room.running(EAST, 4).await;
        let first = room.until(EAST, &jobsets(), "train", |_| true).await;
        let workload = room.workload(MANAGER, "train", |w| is_true(w, "Admitted")).await;
        let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let workloads = resource(KUEUE, "Workload");
        room.merge(MANAGER, &workloads, &name, json!({"spec": {"active": false}}))
            .await;
        room.is_empty(EAST, &all_of_it()).await;
        let released = |w: &Value| !is_true(w, "QuotaReserved") && w["status"].get("clusterName").is_none();
        room.workload(MANAGER, "train", released).await;
        room.until(MANAGER, &jobsets(), "train", |j| {
            j["spec"]["suspend"] == true && active(j) == 0
        })
        .await;
        room.merge(MANAGER, &workloads, &name, json!({"spec": {"active": true}}))
            .await;
        room.running(EAST, 4).await;
        let second = room.until(EAST, &jobsets(), "train", |_| true).await;
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        room.delete(MANAGER, &jobsets(), "train").await;
        room.is_empty(MANAGER, &all_of_it()).await;
        room.is_empty(EAST, &all_of_it()).await;
    });
}

/// Spec: multikueue 4.5
#[test]
fn a_worker_with_a_jobset_of_ours_is_not_called_clean() {
    play("jobset-left", &[(MANAGER, "16"), (WEST, "8")], async |room| {
        let _alone = WEST_CHANGES.lock().await;
        join(room.stage(), WEST).await;
        submit(room, MANAGER, jobset(room, "train", LONG_SECS)).await;
        room.running(WEST, 4).await;
        // What only the JobSet is left of: a Workload would be found by itself.
        let workloads = room.api(WEST, &resource(KUEUE, "Workload"));
        let all = workloads.list(&ListParams::default()).await.unwrap();
        assert_eq!(all.items.len(), 1);
        let path = |cluster: &str| room.stage().kubeconfig(cluster).display().to_string();
        let (of_worker, of_manager) = (path(WEST), path(MANAGER));
        let leave = async |more: &[&str]| {
            let args = [
                "cluster",
                "leave",
                WEST,
                "--kubeconfig",
                &of_worker,
                "--manager-kubeconfig",
                &of_manager,
                "--yes",
            ];
            room.stage().command(&[&args, more].concat()).await
        };
        let refused = leave(&["--timeout", "2s"]).await.unwrap_err();
        let refused = chain(&refused);
        let kept = format!("jobset {}/train", room.name);
        assert!(
            refused.contains("cluster west is not empty after 2 s") && refused.contains(&kept),
            "{refused}"
        );
        room.delete(MANAGER, &jobsets(), "train").await;
        room.is_empty(WEST, &all_of_it()).await;
        let left = leave(&[])
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert!(left.contains("cluster west has left"), "{left}");
        room.is_empty(MANAGER, &all_of_it()).await;
    });
}
