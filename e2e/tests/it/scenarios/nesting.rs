//! Jobs that belong to other jobs, where every job is managed, with a queue's name or without.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::{Value, from_value, json};

use super::ground::{Ground, alone};
use crate::shared::eventually;

/// Owners that are walked up.
const OWNERS_MAX: usize = 10;

/// A Job without a queue's name that belongs to another one.
async fn create(ground: &Ground, name: &str, owner: Option<&Job>) -> Result<Job, kube::Error> {
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}},
    });
    if let Some(owner) = owner {
        job["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": owner.name_any(), "uid": owner.metadata.uid, "controller": true,
        }]);
    }
    let job: Job = from_value::<Job>(job).unwrap();
    ground.jobs().create(&PostParams::default(), &job).await
}

/// Spec: jobs 4.3
#[test]
fn a_child_of_a_managed_job_without_a_queue_gets_no_workload_of_its_own() {
    let every: Value = json!({"manageJobsWithoutQueueName": true});
    alone("nested", every, async |solo| {
        let ground = Ground::new(solo.client().unwrap(), "nested").await;
        let parent = create(&ground, "parent", None).await.unwrap();
        eventually(|| ground.workload("parent")).await;
        let mut above = parent;
        for depth in 1..=OWNERS_MAX {
            let name = format!("child-{depth}");
            above = eventually(|| async { create(&ground, &name, Some(&above)).await.ok() }).await;
        }
        // One more is more than is walked up.
        let refused = create(&ground, "too-deep", Some(&above)).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("ancestor depth exceeded limit of 10"),
            "{refused}"
        );
        // What comes later has one, so what came before has been looked at.
        create(&ground, "later", None).await.unwrap();
        eventually(|| ground.workload("later")).await;
        ground.tick("tick").await;
        let mut with = Vec::new();
        for name in (1..=OWNERS_MAX).map(|depth| format!("child-{depth}")) {
            with.extend(ground.workload(&name).await.map(|_| name));
        }
        assert_eq!(with, [""; 0], "children with a Workload of their own");
    });
}
