//! Copies with statuses that must not count: of clusters that were not chosen, or of an earlier dispatch.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::JOB_UID;
use roadstead_api::kueue::v1beta2::{CheckState, ClusterQueue, Workload};
use roadstead_e2e::link::Cut;
use serde_json::{Value, json};

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone, cluster_name, condition};
use crate::shared::eventually;

/// Before anything that the chosen cluster can say.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn said(type_: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": "by hand", "lastTransitionTime": LONG_AGO,
    })
}

fn epoch(object: &impl kube::ResourceExt) -> Option<&str> {
    object.annotations().get(DISPATCH_EPOCH).map(String::as_str)
}

/// Whether the manager's Workload of a job is unchanged: dispatched to east and not evicted.
pub(super) fn is_held_in_east(workload: &Workload) -> bool {
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    cluster_name(workload).as_deref() == Some(EAST)
        && { checks }.all(|check| check.state == CheckState::Ready)
        && condition(workload, "Finished").is_none()
        && !workload.is_true("Evicted")
}

/// Creates a copy in west as the manager could have sent it with that number, and sets these conditions.
async fn plant(room: Room, job: &str, number: &str, says: &[Value]) {
    let name = room.workload(job).await.unwrap().name_any();
    let real = room.workloads(EAST).get(&name).await.unwrap();
    let mut annotations = json!(real.annotations());
    annotations[DISPATCH_EPOCH] = json!(number);
    let mut labels = real.labels().clone();
    // Why: the worker added this label when the job came, and it ends a copy whose job is gone.
    labels.remove(JOB_UID);
    let planted = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": room.name, "labels": labels, "annotations": annotations,
        },
        "spec": real.spec,
    }))
    .unwrap();
    let workloads = room.workloads(WEST);
    workloads.create(&PostParams::default(), &planted).await.unwrap();
    let mut status = json!({"conditions": says});
    if says.iter().any(|each| each["type"] == "Admitted") {
        status["admission"] = json!(real.status.unwrap().admission);
    }
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    workloads.patch_status(&name, &params, &patch).await.unwrap();
}

/// Takes it from where it runs and lets it run again: its second dispatch.
async fn dispatch_again(room: Room, job: &str) {
    let name = room.workload(job).await.unwrap().name_any();
    let active = async |is_active: bool| {
        room.merge::<Workload>(MANAGER, &name, json!({"spec": {"active": is_active}}))
            .await;
    };
    active(false).await;
    room.workload_where(job, |w| !w.is_true("QuotaReserved") && cluster_name(w).is_none())
        .await;
    active(true).await;
    room.workload_where(job, |w| epoch(w) == Some("2") && is_held_in_east(w))
        .await;
}

/// Spec: safety W1, W2, W4, W5, 3.1; multikueue 10.F42, 13.B12
#[test]
fn a_stale_copy_that_is_marked_ended_evicted_or_admitted_earlier_changes_nothing() {
    alone("stale", EVEN, |room| async move {
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        // So the engine there does not change the planted status.
        let queues: kube::Api<ClusterQueue> = kube::Api::all(room.shared.client(WEST));
        let hold = Patch::Merge(json!({"spec": {"stopPolicy": "Hold"}}));
        queues
            .patch(room.name, &PatchParams::default(), &hold)
            .await
            .unwrap();
        let jobs = ["ended", "evicted", "admitted", "ended-before", "evicted-before"];
        for job in jobs {
            room.submit(room.job(job, "1", 600)).await;
        }
        for job in jobs {
            assert_eq!(room.started(job).await, EAST);
            room.workload_where(job, is_held_in_east).await;
        }
        for job in ["ended-before", "evicted-before"] {
            dispatch_again(room, job).await;
        }
        let running = async |job: &'static str| {
            let running = eventually(|| async {
                let job = room.jobs(EAST).get(job).await.ok()?;
                let runs = job.spec.as_ref()?.suspend != Some(true);
                (runs && job.metadata.deletion_timestamp.is_none()).then_some(job)
            });
            running.await.uid()
        };
        let mut before = Vec::new();
        for job in jobs {
            before.push(running(job).await);
        }

        let ended = [said("Finished", "True", "Succeeded")];
        let evicted = [
            said("QuotaReserved", "False", "Pending"),
            said("Evicted", "True", "Preempted"),
        ];
        let admitted = [
            said("QuotaReserved", "True", "QuotaReserved"),
            said("Admitted", "True", "Admitted"),
        ];
        plant(room, "ended", "1", &ended).await;
        plant(room, "evicted", "1", &evicted).await;
        plant(room, "admitted", "1", &admitted).await;
        plant(room, "ended-before", "1", &ended).await;
        plant(room, "evicted-before", "1", &evicted).await;
        assert_eq!(room.ours_in(WEST).await.len(), jobs.len());
        room.shared.stage.link(WEST).unwrap().heal();
        // The manager removes them, so it has seen them.
        room.is_swept_in(WEST).await;
        for (job, before) in jobs.into_iter().zip(before) {
            let workload = room.workload(job).await.unwrap();
            assert!(is_held_in_east(&workload), "{job}: {:?}", workload.status);
            assert_eq!(running(job).await, before, "{job}");
            assert_eq!(room.started(job).await, EAST);
            let background = DeleteParams::background();
            room.jobs(MANAGER).delete(job, &background).await.unwrap();
        }
        room.is_swept().await;
    });
}
