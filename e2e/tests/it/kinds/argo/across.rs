//! Workflows of the manager whose steps run on workers: the workflow controller runs only on the manager.

use super::super::ground::{MANAGER, play_shown};
use super::*;

fn results() -> ApiResource {
    resource("argoproj.io/v1alpha1", "WorkflowTaskResult")
}

/// The pod of a step on the manager, once it is known where it runs.
async fn placed(room: Room, step: &str) -> Value {
    eventually(|| async {
        let mut pods = all_on(room, MANAGER, &pods()).await.into_iter();
        pods.find(|pod| {
            let name = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].as_str();
            name.is_some_and(|name| name.ends_with(step)) && pod["spec"]["nodeName"].is_string()
        })
    })
    .await
}

/// Spec: jobs 12.9, 13.2
#[test]
fn steps_run_on_a_worker_and_one_uses_what_the_one_before_gave_there() {
    play_shown("far-argo", &[(MANAGER, "4"), (EAST, "4")], async |room| {
        let name = submit_on(room, MANAGER, produce_and_print(room.name)).await;
        let first = placed(room, "produce").await;
        assert_eq!(first["spec"]["nodeName"], "roadstead-east");
        room.apply(EAST, result_of(room, &first)).await;
        let ended = room.until(MANAGER, &workflows(), &name, has_succeeded).await;
        assert_prints(&placed(room, "print").await, "forty-two");
        let here = all_on(room, MANAGER, &results()).await;
        for result in &here {
            assert_eq!(
                result["metadata"]["ownerReferences"][0]["uid"],
                ended["metadata"]["uid"]
            );
        }
        for workload in all_on(room, MANAGER, &workloads()).await {
            assert_eq!(workload["status"]["clusterName"], EAST);
        }
        room.is_empty(EAST, &[results(), pods(), workloads()]).await;
        room.delete(MANAGER, &workflows(), &name).await;
        room.is_empty(MANAGER, &[results(), pods(), workloads()]).await;
    });
}
