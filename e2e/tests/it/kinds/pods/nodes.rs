//! Pods of the manager that are shown on the virtual node of the worker on which they run.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use super::super::ground::{MANAGER, WEST, WEST_CHANGES, play_shown};
use super::*;
use crate::shared::chain;

const NODE: &str = "roadstead-east";

async fn nothing_is_left(room: Room) {
    for cluster in [MANAGER, EAST] {
        room.is_empty(cluster, &[pods(), workloads()]).await;
    }
}

/// The node of a worker once it is Ready, and its Lease is held.
async fn node_of(room: Room, cluster: &str) -> Value {
    let name = format!("roadstead-{cluster}");
    let nodes: Api<Node> = Api::all(room.client(MANAGER));
    let leases: Api<Lease> = Api::namespaced(room.client(MANAGER), "kube-node-lease");
    eventually(|| async {
        let lease = leases.get_opt(&name).await.ok()??;
        lease.spec?.renew_time?;
        let node = serde_json::to_value(nodes.get_opt(&name).await.ok()??).unwrap();
        is_true(&node, "Ready").then_some(node)
    })
    .await
}

/// Whether a pod of the manager is shown running on the node of its worker.
fn runs_on_node(pod: &Value) -> bool {
    pod["spec"]["nodeName"] == NODE && pod["status"]["phase"] == "Running"
}

/// Spec: jobs 12.9
#[test]
fn each_worker_has_a_node_on_the_manager_that_is_ready_and_goes_with_it() {
    play_shown("nodes", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let _alone = WEST_CHANGES.lock().await;
        for cluster in [EAST, WEST] {
            let node = node_of(room, cluster).await;
            let taint = &node["spec"]["taints"][0];
            assert_eq!(
                (&taint["key"], &taint["effect"]),
                (&json!("roadstead.dev/virtual-node"), &json!("NoSchedule"))
            );
            assert_eq!(node["metadata"]["labels"]["type"], "virtual-kubelet");
            assert_eq!(node["metadata"]["labels"]["roadstead.dev/cluster"], cluster);
        }
        let path = |cluster: &str| room.stage().kubeconfig(cluster).display().to_string();
        let (of_worker, of_manager) = (path(WEST), path(MANAGER));
        let leave = ["cluster", "leave", WEST, "--yes"];
        let with = ["--kubeconfig", &of_worker, "--manager-kubeconfig", &of_manager];
        let left = room.stage().command(&[leave, with].concat()).await;
        left.unwrap_or_else(|error| panic!("{}", chain(&error)));
        let nodes: Api<Node> = Api::all(room.client(MANAGER));
        let leases: Api<Lease> = Api::namespaced(room.client(MANAGER), "kube-node-lease");
        eventually(|| async {
            nodes
                .get_opt("roadstead-west")
                .await
                .ok()?
                .is_none()
                .then_some(())
        })
        .await;
        eventually(|| async {
            leases
                .get_opt("roadstead-west")
                .await
                .ok()?
                .is_none()
                .then_some(())
        })
        .await;
        node_of(room, EAST).await;
        let again = room
            .stage()
            .join_to(MANAGER, WEST, &["--integrations", "batch/job,pod"])
            .await;
        again.unwrap_or_else(|error| panic!("{}", chain(&error)));
        node_of(room, WEST).await;
    });
}

/// The columns of `kubectl get pods -o wide` for this pod, as the API server makes them.
async fn wide(room: Room, pod: &str) -> Vec<(String, Value)> {
    let request = http::Request::get(format!("/api/v1/namespaces/{}/pods/{pod}", room.name))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = room.client(MANAGER).request(request).await.unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter();
    let names = names.map(|column| column["name"].as_str().unwrap().to_owned());
    names
        .zip(table["rows"][0]["cells"].as_array().unwrap().clone())
        .collect()
}

/// Spec: jobs 12.9
#[test]
fn a_pod_is_shown_on_the_node_of_its_worker_and_shows_its_end() {
    play_shown("shown-pod", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", 4)).await;
        let here = room.until(MANAGER, &pods(), "one", is_in("Running")).await;
        assert_eq!(here["spec"]["nodeName"], NODE);
        assert!(!is_gated(&here));
        let there = room.until(EAST, &pods(), "one", |_| true).await;
        assert_eq!(there["spec"]["nodeName"], "east-1");
        assert_eq!(here["status"]["podIP"], there["status"]["podIP"]);
        let shown = wide(room, "one").await;
        for (column, value) in [("Node", NODE), ("Status", "Running"), ("Ready", "1/1")] {
            assert!(shown.contains(&(column.to_owned(), json!(value))), "{shown:?}");
        }
        let workload = room.workload(MANAGER, "one", |w| is_true(w, "Finished")).await;
        assert_eq!(condition(&workload, "Finished").unwrap(), "True Succeeded");
        let done = |pod: &Value| pod["status"]["phase"] == "Succeeded" && !is_held(pod);
        room.until(MANAGER, &pods(), "one", done).await;
        room.is_empty(EAST, &[pods(), workloads()]).await;
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: jobs 12.9
#[test]
fn logs_of_a_pod_on_a_virtual_node_answer_where_they_can_be_read() {
    play_shown("shown-logs", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", LONG_SECS)).await;
        room.until(MANAGER, &pods(), "one", runs_on_node).await;
        let api: Api<Pod> = Api::namespaced(room.client(MANAGER), room.name);
        let said = eventually(|| async {
            let error = api.logs("one", &kube::api::LogParams::default()).await.err()?;
            Some(error.to_string()).filter(|said| said.contains("worker cluster east"))
        })
        .await;
        let command = "kubectl --kubeconfig east.kubeconfig -n shown-logs logs one";
        assert!(said.contains(command), "{said}");
        room.delete(MANAGER, &pods(), "one").await;
        nothing_is_left(room).await;
    });
}

/// Spec: jobs 12.9
#[test]
fn a_pod_on_a_virtual_node_that_is_deleted_goes_with_its_copy() {
    play_shown("shown-gone", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", LONG_SECS)).await;
        for name in ["a", "b"] {
            create_on(room, MANAGER, member(room, "g", 2, name, LONG_SECS)).await;
        }
        for name in ["one", "a", "b"] {
            room.until(MANAGER, &pods(), name, runs_on_node).await;
        }
        for name in ["one", "a", "b"] {
            room.delete(MANAGER, &pods(), name).await;
        }
        nothing_is_left(room).await;
    });
}

/// As where a pod of one cluster makes room: the tool that created it creates it again.
///
/// Spec: jobs 12.8, 12.9
#[test]
fn a_pod_on_a_virtual_node_that_the_manager_stops_is_deleted_there_and_on_the_worker() {
    play_shown("shown-stopped", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        create_on(room, MANAGER, pod(room, "one", LONG_SECS)).await;
        room.until(MANAGER, &pods(), "one", runs_on_node).await;
        let workload = room.workload(MANAGER, "one", |w| is_true(w, "Admitted")).await;
        let name = workload["metadata"]["name"].as_str().unwrap();
        room.merge(MANAGER, &workloads(), name, json!({"spec": {"active": false}}))
            .await;
        nothing_is_left(room).await;
    });
}

/// Spec: jobs 12.5, 12.9
#[test]
fn the_pods_of_a_group_are_shown_on_one_node_and_end_together() {
    play_shown("shown-group", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let names = ["a", "b"];
        for name in names {
            create_on(room, MANAGER, member(room, "g", 2, name, 4)).await;
        }
        for name in names {
            room.until(MANAGER, &pods(), name, runs_on_node).await;
        }
        let ended = room
            .until(MANAGER, &workloads(), "g", |w| is_true(w, "Finished"))
            .await;
        assert_eq!(condition(&ended, "Finished").unwrap(), "True Succeeded");
        for name in names {
            let done = |pod: &Value| pod["status"]["phase"] == "Succeeded" && !is_held(pod);
            room.until(MANAGER, &pods(), name, done).await;
            room.delete(MANAGER, &pods(), name).await;
        }
        nothing_is_left(room).await;
    });
}
