//! What serves on the manager while its pods run on a worker: the manager's own controllers make the pods, and see them ready.

use std::collections::BTreeSet;

use roadstead_e2e::link::Cut;

use super::super::ground::{MANAGER, WEST, WEST_CHANGES, play_shown};
use super::*;

const LWS: &str = "leaderworkerset.x-k8s.io/v1";
const ALL: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "8")];
const ONE: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8")];

fn deployment(room: Room, replicas: u32) -> Value {
    let mut deployment = set(room, "Deployment", replicas);
    deployment["spec"].as_object_mut().unwrap().remove("serviceName");
    deployment
}

/// Waits until so many of its replicas are ready, by its status on the manager, and no others are there.
async fn serves(room: Room, kind: &ApiResource, replicas: u32) {
    room.until(MANAGER, kind, NAME, |set| {
        let status = &set["status"];
        let number = |field: &str| status[field].as_u64().unwrap_or(0);
        number("readyReplicas") == u64::from(replicas) && number("replicas") == u64::from(replicas)
    })
    .await;
}

/// The nodes of the pods of the manager.
async fn nodes(room: Room) -> BTreeSet<String> {
    let pods = all_on(room, MANAGER, &all_pods()).await;
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or("none").to_owned();
    pods.iter().map(node).collect()
}

/// Waits until the pods that run on the workers are those of the manager, and so many; all on one worker, which is returned.
async fn twins(room: Room, many: usize) -> &'static str {
    let names = async |cluster: &str| -> BTreeSet<String> {
        let pods = all_on(room, cluster, &all_pods()).await;
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
        running
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    eventually(|| async {
        let (here, east, west) = (names(MANAGER).await, names(EAST).await, names(WEST).await);
        let (there, other, cluster) = if east.is_empty() {
            (west, east, WEST)
        } else {
            (east, west, EAST)
        };
        (here.len() == many && here == there && other.is_empty()).then_some(cluster)
    })
    .await
}

async fn nothing_is_left(room: Room, kind: ApiResource) {
    room.is_empty(MANAGER, &[kind, all_pods(), workloads()]).await;
    for worker in [EAST, WEST] {
        room.is_empty(worker, &[all_pods(), workloads()]).await;
    }
}

/// Spec: jobs 9.11, 12.9
#[test]
fn a_deployment_of_the_manager_serves_from_one_worker_through_scaling_and_a_rollout() {
    play_shown("far-deployment", ALL, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        let kind = resource("apps/v1", "Deployment");
        create_on(room, MANAGER, deployment(room, 4)).await;
        serves(room, &kind, 4).await;
        let cluster = twins(room, 4).await;
        assert_eq!(nodes(room).await, [format!("roadstead-{cluster}")].into());
        let scale = async |replicas: u32| {
            room.merge(MANAGER, &kind, NAME, json!({"spec": {"replicas": replicas}}))
                .await;
            serves(room, &kind, replicas).await;
            assert_eq!(twins(room, usize::try_from(replicas).unwrap()).await, cluster);
        };
        scale(1).await;
        scale(3).await;
        let before = nodes(room).await;
        let changed = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
        room.merge(MANAGER, &kind, NAME, changed).await;
        room.until(MANAGER, &kind, NAME, |d| {
            d["status"]["updatedReplicas"] == 3
                && d["status"]["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
        serves(room, &kind, 3).await;
        assert_eq!((twins(room, 3).await, nodes(room).await), (cluster, before));
        room.delete(MANAGER, &kind, NAME).await;
        nothing_is_left(room, kind).await;
    });
}

/// Its pods come one after the other, each when the one before is ready, and come back under their names.
///
/// Spec: jobs 9.12, 12.9; multikueue 11.97
#[test]
fn a_statefulset_of_the_manager_serves_from_a_worker_and_its_pods_come_back_under_their_names() {
    play_shown("far-stateful", ONE, async |room| {
        let kind = resource("apps/v1", "StatefulSet");
        create_on(room, MANAGER, set(room, "StatefulSet", 2)).await;
        serves(room, &kind, 2).await;
        twins(room, 2).await;
        let [only] = all_on(room, MANAGER, &workloads()).await.try_into().unwrap();
        assert_eq!(sets(&only), [("main".to_owned(), 2)]);
        let uid = async |cluster: &str| {
            let pod = room
                .until(cluster, &all_pods(), "web-0", |pod| {
                    pod["status"]["phase"] == "Running"
                })
                .await;
            pod["metadata"]["uid"].clone()
        };
        let [here, there] = [uid(MANAGER).await, uid(EAST).await];
        room.delete(MANAGER, &all_pods(), "web-0").await;
        let is_new = |old: Value| {
            move |pod: &Value| pod["metadata"]["uid"] != old && pod["status"]["phase"] == "Running"
        };
        room.until(MANAGER, &all_pods(), "web-0", is_new(here)).await;
        room.until(EAST, &all_pods(), "web-0", is_new(there)).await;
        serves(room, &kind, 2).await;

        room.merge(MANAGER, &kind, NAME, json!({"spec": {"replicas": 0}}))
            .await;
        for cluster in [MANAGER, EAST] {
            room.is_empty(cluster, &[all_pods(), workloads()]).await;
        }
        serves(room, &kind, 0).await;
        room.merge(MANAGER, &kind, NAME, json!({"spec": {"replicas": 3}}))
            .await;
        serves(room, &kind, 3).await;
        twins(room, 3).await;
        room.delete(MANAGER, &kind, NAME).await;
        nothing_is_left(room, kind).await;
    });
}

/// Its replicas are created at the same moment.
///
/// Spec: jobs 9.13, 12.9; multikueue 3.13, 11.93, 11.94
#[test]
fn all_replicas_of_a_leaderworkerset_of_the_manager_serve_from_one_worker_through_scaling_and_a_rollout() {
    play_shown("far-leaders", ALL, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        let kind = resource(LWS, "LeaderWorkerSet");
        create_on(room, MANAGER, leaders(room, 2, 2)).await;
        serves(room, &kind, 2).await;
        let cluster = twins(room, 4).await;
        let all = all_on(room, MANAGER, &workloads()).await;
        assert_eq!(all.len(), 2);
        for workload in &all {
            assert_eq!(workload["status"]["clusterName"], cluster);
            assert_eq!(
                sets(workload),
                [("leader".to_owned(), 1), ("worker".to_owned(), 1)]
            );
        }
        for replicas in [3, 1, 2] {
            room.merge(MANAGER, &kind, NAME, json!({"spec": {"replicas": replicas}}))
                .await;
            serves(room, &kind, replicas).await;
            let pods = 2 * usize::try_from(replicas).unwrap();
            assert_eq!(twins(room, pods).await, cluster);
        }
        let leader = json!({"metadata": {"annotations": {"version": "2"}}});
        let changed = json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": leader}}});
        room.merge(MANAGER, &kind, NAME, changed).await;
        for leader in ["web-0", "web-1"] {
            let is_new = |pod: &Value| pod["metadata"]["annotations"]["version"] == "2";
            room.until(MANAGER, &all_pods(), leader, is_new).await;
        }
        serves(room, &kind, 2).await;
        assert_eq!(twins(room, 4).await, cluster);
        assert_eq!(nodes(room).await, [format!("roadstead-{cluster}")].into());
        room.delete(MANAGER, &kind, NAME).await;
        nothing_is_left(room, kind).await;
    });
}

/// Spec: jobs 9.12, 12.9; safety 3.5
#[test]
fn a_statefulset_of_a_lost_worker_serves_from_another_once_that_is_given_up() {
    play_shown("far-lost", ALL, async |room| {
        let _alone = WEST_CHANGES.lock().await;
        // Why: the set must be in west.
        let closed = json!({"spec": {"stopPolicy": "Hold"}});
        let queue = resource(KUEUE, "LocalQueue");
        room.merge(EAST, &queue, room.name, closed).await;
        let kind = resource("apps/v1", "StatefulSet");
        create_on(room, MANAGER, set(room, "StatefulSet", 2)).await;
        serves(room, &kind, 2).await;
        assert_eq!(twins(room, 2).await, WEST);
        room.merge(EAST, &queue, room.name, json!({"spec": {"stopPolicy": "None"}}))
            .await;
        let link = room.stage().link(WEST).unwrap();
        link.cut(Cut::Refuse);
        let clusters =
            Api::<DynamicObject>::all_with(room.client(MANAGER), &resource(KUEUE, "MultiKueueCluster"));
        let is_active = async || {
            is_true(
                &serde_json::to_value(clusters.get(WEST).await.unwrap()).unwrap(),
                "Active",
            )
        };
        eventually(|| async { (!is_active().await).then_some(()) }).await;
        let manager = room.stage().kubeconfig(MANAGER).display().to_string();
        let said = [
            "cluster",
            "give-up",
            WEST,
            "--yes",
            "--manager-kubeconfig",
            &manager,
        ];
        room.stage()
            .command(&said)
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        room.running(EAST, 2).await;
        serves(room, &kind, 2).await;
        assert_eq!(nodes(room).await, ["roadstead-east".to_owned()].into());
        link.heal();
        assert_eq!(twins(room, 2).await, EAST, "what was left in west is gone");
        room.delete(MANAGER, &kind, NAME).await;
        nothing_is_left(room, kind).await;
        eventually(|| async { is_active().await.then_some(()) }).await;
    });
}
