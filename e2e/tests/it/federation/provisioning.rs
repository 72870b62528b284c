//! Quota is not room: the worker whose nodes have room gets the job.

use kube::api::ListParams;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_e2e::stage::Queue;
use serde_json::json;

use super::fixture::{EAST, EVEN, GPU, MANAGER, Room, WEST, beside_others};
use crate::shared::eventually;

/// Spec: multikueue 3.15, 11.86; provisioning 14, 15.53, 15.54
#[test]
fn of_two_workers_with_quota_the_one_whose_request_is_provisioned_gets_the_job() {
    beside_others("room-in-nodes", EVEN, |room| async move {
        let quota = [("cpu", "8"), (GPU, "2")];
        let queue = [MANAGER, EAST, WEST]
            .into_iter()
            .fold(Queue::new("asks-nodes"), |queue, cluster| {
                queue.with_quota(cluster, &quota)
            })
            .asking_capacity();
        let room = Room::open(room.shared, "asks-nodes", queue).await;
        let mut job = room.job("needs-gpu", "1", 4);
        let resources = &mut job["spec"]["template"]["spec"]["containers"][0]["resources"];
        *resources = json!({"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}});
        room.submit(job).await;

        // East is asked first and has the quota, but no GPU in any node.
        assert_eq!(room.started("needs-gpu").await, WEST);
        let requests = room.api::<ProvisioningRequest>(WEST);
        let found = requests.list(&ListParams::default()).await.unwrap();
        let conditions = found.items.iter().filter_map(|request| request.status.as_ref());
        let provisioned = { conditions }
            .flat_map(|status| &status.conditions)
            .any(|each| each.type_ == "Provisioned" && each.status == "True");
        assert!(provisioned, "{found:?}");
        room.job_is(MANAGER, "needs-gpu", "Complete").await;
        room.is_swept().await;
        for worker in [EAST, WEST] {
            let requests = room.api::<ProvisioningRequest>(worker);
            let gone = || async {
                let left = requests.list(&ListParams::default()).await.ok()?;
                left.items.is_empty().then_some(())
            };
            eventually(gone).await;
        }
        room.stays_clean();
    });
}
