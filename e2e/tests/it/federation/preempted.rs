//! A worker that takes a workload off again, for something more urgent of its own.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, EXPLANATION};
use roadstead_api::constants::labels::PRIORITY_CLASS;
use roadstead_api::kueue::v1beta2::ClusterQueue;
use roadstead_e2e::stage::apply;
use serde_json::json;

use super::fixture::{EAST, EVEN, MANAGER, WEST, alone, cluster_name, condition};
use crate::shared::eventually;

/// And not before its last pod is gone.
///
/// Spec: multikueue 3.7, 10.F22, 11.69, 13.B6; safety I1
#[test]
fn what_a_worker_preempts_goes_on_elsewhere_and_is_not_offered_there_again_at_once() {
    alone("preempted", EVEN, |room| async move {
        room.submit(room.job("victim", "6", 600)).await;
        let first = room.started("victim").await;
        let second = if first == EAST { WEST } else { EAST };
        let worker = room.shared.client(&first);
        let pod = room.hold_pod(&first, "victim").await;
        let class = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": {"name": "urgent"}, "value": 1000,
        });
        apply(&worker, class).await.unwrap();
        let queues: Api<ClusterQueue> = Api::all(worker);
        let lower = Patch::Merge(json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}));
        queues
            .patch(room.name, &PatchParams::default(), &lower)
            .await
            .unwrap();
        let mut urgent = room.job("urgent", "6", 600);
        urgent["metadata"]["labels"][PRIORITY_CLASS] = json!("urgent");
        let urgent: Job = serde_json::from_value(urgent).unwrap();
        let theirs = room.jobs(&first);
        theirs.create(&PostParams::default(), &urgent).await.unwrap();

        // Quota is held again, and yet nothing runs elsewhere: the old run has not stopped.
        room.workload_where("victim", |w| {
            let told = w
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(EXPLANATION));
            told.is_some_and(|told| told.contains("StoppingOnWorker"))
                && condition(w, "QuotaReserved").is_some_and(|c| c.0 == "True")
        })
        .await;
        eventually(|| async { theirs.get("victim").await.ok()?.metadata.deletion_timestamp }).await;
        // Why no word about a copy of the Workload: the Job controller first shows a held job without pods, and then that its pods are
        // being ended. Quota may be asked for elsewhere between the two; a Job is not made there.
        let jobs = room.jobs(second).list(&ListParams::default()).await.unwrap();
        assert_eq!(jobs.items, [], "its pod still lives on {first}");
        room.let_go(&first, &pod).await;

        let moved = room
            .workload_where("victim", |w| cluster_name(w).as_deref() == Some(second))
            .await;
        assert_eq!(moved.metadata.annotations.unwrap()[DISPATCH_EPOCH], "2");
        eventually(|| async {
            let job = room.jobs(second).get_opt("victim").await.unwrap()?;
            (job.spec?.suspend != Some(true)).then_some(())
        })
        .await;
        room.is_swept_in(&first).await;
        let start =
            format!("roadstead_candidates_removed_total{{cluster=\"{first}\",reason=\"EvictedByCluster\"}}");
        assert_eq!(room.shared.metrics(MANAGER, &start).await, [format!("{start} 1")]);
        let urgent = theirs.get("urgent").await.unwrap();
        assert_ne!(urgent.spec.unwrap().suspend, Some(true), "theirs is let alone");

        let background = DeleteParams::background();
        theirs.delete("urgent", &background).await.unwrap();
        room.jobs(MANAGER).delete("victim", &background).await.unwrap();
        room.is_swept().await;
    });
}
