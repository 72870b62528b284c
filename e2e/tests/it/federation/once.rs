//! One run, one outcome: the lease, the fence, the number of the dispatch, the finalizer.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::{
    DISPATCH_EPOCH, FENCED, LEASE_RENEWAL, LEASE_SECONDS, LEASE_WATCHED, WORKER_LOST_POLICY, WORKLOAD_UID,
};
use roadstead_api::constants::finalizers::OUTCOME;
use roadstead_api::kueue::v1beta2::{ClusterQueue, MultiKueueCluster, Workload};
use roadstead_e2e::link::Cut;
use roadstead_e2e::stage::SYSTEM_NAMESPACE;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone, cluster_name, condition, has};
use crate::shared::eventually;

const WORKER_NAMESPACE: &str = SYSTEM_NAMESPACE;
/// The name that every origin of the default has.
const LEASE: &str = "roadstead-multikueue";
const EVEN: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "16")];
const WEST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "4"), (WEST, "8")];
/// Longer than the manager would wait for a fence, which is one and a half leases of ten seconds.
const PAST_EVERYTHING: Duration = Duration::from_secs(22);

fn other(worker: &str) -> &'static str {
    if worker == EAST { WEST } else { EAST }
}

fn leases(room: Room, cluster: &str) -> Api<Lease> {
    Api::namespaced(room.shared.client(cluster), WORKER_NAMESPACE)
}

pub(super) async fn lost_policy(room: Room, policy: &str) {
    let queues: Api<ClusterQueue> = Api::all(room.shared.client(MANAGER));
    let patch = json!({"metadata": {"annotations": {WORKER_LOST_POLICY: policy}}});
    let params = PatchParams::default();
    queues
        .patch(room.name, &params, &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// Its pods end at once when they are told to.
pub(super) fn obedient(mut job: Value) -> Value {
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    job
}

pub(super) fn annotation(object: &impl kube::ResourceExt, key: &str) -> Option<String> {
    object.annotations().get(key).cloned()
}

pub(super) async fn copy(room: Room, worker: &str, job: &str) -> Option<Workload> {
    let name = room.workload(job).await?.name_any();
    room.workloads(worker).get_opt(&name).await.unwrap()
}

pub(super) fn runs(job: &Job) -> bool {
    let active = job
        .status
        .as_ref()
        .and_then(|status| status.active)
        .unwrap_or_default();
    job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true)) || active > 0
}

/// Waits until a job was stopped in the first worker; until then it runs in no other.
pub(super) async fn stops(room: Room, job: &str, first: &str, second: &str) -> Job {
    eventually(|| async {
        let old = room.jobs(first).get(job).await.unwrap();
        let next = room.jobs(second).get_opt(job).await.unwrap();
        assert!(
            next.is_none() || !runs(&old),
            "it runs in {second} and still in {first}"
        );
        (!runs(&old)).then_some(old)
    })
    .await
}

/// Waits until a job runs in the second worker; until then it stays as it is in the first.
pub(super) async fn starts_again(room: Room, job: &str, first: &str, second: &str) {
    eventually(|| async {
        let next = room.jobs(second).get_opt(job).await.unwrap()?;
        let old = room.jobs(first).get(job).await.unwrap();
        assert!(!runs(&old), "it runs in {second} and again in {first}");
        runs(&next).then_some(())
    })
    .await;
}

/// Waits until the manager has seen that the worker looks at the lease: the renewal after a mark shows it.
pub(super) async fn guarded(room: Room, worker: &str) {
    let number = eventually(|| async {
        let lease = leases(room, worker).get_opt(LEASE).await.ok()??;
        annotation(&lease, LEASE_WATCHED).and_then(|_| annotation(&lease, LEASE_RENEWAL))
    })
    .await;
    eventually(|| async {
        let lease = leases(room, worker).get(LEASE).await.ok()?;
        (annotation(&lease, LEASE_RENEWAL).as_ref() != Some(&number)).then_some(())
    })
    .await;
}

/// Spec: safety 3.1 to 3.5, safety 1 I1, I6, F7; multikueue 10.F9
#[test]
fn a_worker_cut_off_past_its_lease_stops_its_job_before_the_next_copy_starts() {
    alone("once-fence", EVEN, |room| async move {
        lost_policy(room, "Fence").await;
        let submitted = room.submit(obedient(room.job("moves", "1", 600))).await;
        let first = room.started("moves").await;
        let second = other(&first);
        guarded(room, &first).await;
        let sent = copy(room, &first, "moves").await.unwrap();
        assert_eq!(annotation(&sent, DISPATCH_EPOCH).as_deref(), Some("1"));
        assert_eq!(annotation(&sent, WORKER_LOST_POLICY).as_deref(), Some("Fence"));
        let local = room.workload("moves").await.unwrap();
        assert_eq!(annotation(&sent, WORKLOAD_UID), local.uid());
        assert_eq!(
            annotation(&local, DISPATCH_EPOCH),
            None,
            "the first costs no write"
        );

        let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
        let fenced = eventually(|| async {
            let conditions = clusters.get(&first).await.unwrap().status?.conditions;
            conditions
                .into_iter()
                .find(|each| each.type_ == "WorkerFence" && each.status == "True")
        })
        .await;
        assert!(fenced.message.contains("for 10 s"), "{}", fenced.message);

        room.shared.stage.link(&first).unwrap().cut(Cut::Refuse);
        let stopped = stops(room, "moves", &first, second).await;
        let fenced = copy(room, &first, "moves").await.unwrap();
        assert_eq!(annotation(&fenced, FENCED).as_deref(), Some("1"));
        starts_again(room, "moves", &first, second).await;
        let moved = room
            .workload_where("moves", |w| cluster_name(w).as_deref() == Some(second))
            .await;
        assert_eq!(annotation(&moved, DISPATCH_EPOCH).as_deref(), Some("2"));
        assert_eq!(moved.uid(), local.uid());
        let running = room.jobs(second).get("moves").await.unwrap();
        assert_eq!(annotation(&running, DISPATCH_EPOCH).as_deref(), Some("2"));

        room.shared.stage.link(&first).unwrap().heal();
        room.is_swept_in(&first).await;
        let after = room.jobs(second).get("moves").await.unwrap();
        assert!(
            runs(&after) && after.uid() == running.uid(),
            "what returned changed nothing"
        );
        let held = room.workload("moves").await.unwrap();
        assert_eq!(cluster_name(&held).as_deref(), Some(second));
        assert!(stopped.uid() != after.uid());
        let job = room.jobs(MANAGER).get("moves").await.unwrap();
        assert_eq!(job.uid(), submitted.uid());
        room.jobs(MANAGER)
            .delete("moves", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}

/// Spec: safety 3.3
#[test]
fn a_lease_that_was_deleted_while_its_worker_was_away_is_no_way_around_the_fence() {
    alone("once-lease-deleted", EVEN, |room| async move {
        lost_policy(room, "Fence").await;
        room.submit(obedient(room.job("fenced", "1", 600))).await;
        let first = room.started("fenced").await;
        guarded(room, &first).await;
        let sent = copy(room, &first, "fenced").await.unwrap();
        assert_eq!(annotation(&sent, LEASE_SECONDS).as_deref(), Some("10"));

        let stage = &room.shared.stage;
        stage.link(&first).unwrap().cut(Cut::Refuse);
        stage.kill(&first).unwrap();
        let kept = leases(room, &first);
        kept.delete(LEASE, &DeleteParams::default()).await.unwrap();
        stage.restart(&first).await.unwrap();
        eventually(|| async {
            let job = room.jobs(&first).get("fenced").await.unwrap();
            let next = { room.jobs(other(&first)) }.get_opt("fenced").await.unwrap();
            assert!(
                next.is_none_or(|next| !runs(&next)) || !runs(&job),
                "it runs twice"
            );
            (!runs(&job)).then_some(())
        })
        .await;
        let fenced = copy(room, &first, "fenced").await.unwrap();
        assert_eq!(annotation(&fenced, FENCED).as_deref(), Some("1"));
        stage.link(&first).unwrap().heal();
        room.jobs(MANAGER)
            .delete("fenced", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}

/// Spec: safety 3.3
#[test]
fn under_fence_a_worker_on_which_the_lease_cannot_be_renewed_gets_no_jobs_until_it_can() {
    alone("once-lapsed", EVEN, |room| async move {
        lost_policy(room, "Fence").await;
        room.submit(obedient(room.job("moves", "10", 600))).await;
        let first = room.started("moves").await;
        let second = other(&first);
        guarded(room, &first).await;

        let roles: Api<Role> = Api::namespaced(room.shared.client(&first), WORKER_NAMESPACE);
        let before = roles.get(LEASE).await.unwrap();
        let others: Vec<PolicyRule> = { before.rules.iter().flatten() }
            .filter(|rule| !rule.resources.iter().flatten().any(|one| one == "leases"))
            .cloned()
            .collect();
        let with = async |rules: &[PolicyRule]| {
            let patch = json!({ "rules": rules });
            let params = PatchParams::default();
            roles.patch(LEASE, &params, &Patch::Merge(&patch)).await.unwrap();
        };
        with(&others).await;
        room.workload_where("moves", |w| cluster_name(w).as_deref() == Some(second))
            .await;
        let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
        let fence = async |reason: &str| {
            eventually(|| async {
                let conditions = clusters.get(&first).await.unwrap().status?.conditions;
                let mut fences = conditions.into_iter().filter(|each| each.type_ == "WorkerFence");
                fences.find(|each| each.reason == reason)
            })
            .await
        };
        let lapsed = fence("LeaseLapsed").await;
        assert!(
            lapsed.message.contains("write Leases in namespace") && lapsed.message.contains("is forbidden"),
            "{}",
            lapsed.message
        );

        room.is_swept_in(&first).await;
        // It fits only there.
        room.submit(obedient(room.job("waits", "10", 600))).await;
        let until = Instant::now() + PAST_EVERYTHING;
        while Instant::now() < until {
            let ours = room.ours_in(&first).await;
            assert!(ours.is_empty(), "it is sent where it would be stopped: {ours:?}");
            sleep(Duration::from_millis(100)).await;
        }
        with(before.rules.as_deref().unwrap_or_default()).await;
        assert_eq!(room.started("waits").await, first);
        fence("Fencing").await;
        for job in ["moves", "waits"] {
            let params = DeleteParams::background();
            room.jobs(MANAGER).delete(job, &params).await.unwrap();
        }
        room.is_swept().await;
    });
}

/// Spec: safety 3.5, F7
#[test]
fn under_wait_a_worker_cut_off_past_its_lease_keeps_its_job() {
    alone("once-wait", EVEN, |room| async move {
        room.submit(obedient(room.job("stays", "1", 600))).await;
        let first = room.started("stays").await;
        guarded(room, &first).await;
        let before = room.jobs(&first).get("stays").await.unwrap();
        room.shared.stage.link(&first).unwrap().cut(Cut::Swallow);
        let until = Instant::now() + PAST_EVERYTHING;
        while Instant::now() < until {
            let job = room.jobs(&first).get("stays").await.unwrap();
            assert!(runs(&job), "nobody stops it");
            assert!(room.jobs(other(&first)).get_opt("stays").await.unwrap().is_none());
            let now = room.workload("stays").await.unwrap();
            assert_eq!(cluster_name(&now).as_deref(), Some(&*first));
            assert!(condition(&now, "Evicted").is_none());
            sleep(Duration::from_millis(500)).await;
        }
        room.shared.stage.link(&first).unwrap().heal();
        sleep(Duration::from_secs(3)).await;
        let after = room.jobs(&first).get("stays").await.unwrap();
        assert!(runs(&after) && after.uid() == before.uid());
        room.jobs(MANAGER)
            .delete("stays", &DeleteParams::background())
            .await
            .unwrap();
        room.is_swept().await;
    });
}

/// Spec: safety 3.7, W9, F30; multikueue 13.B3
#[test]
fn a_job_that_asks_to_be_removed_at_once_runs_once_even_if_its_worker_is_cut_off_when_it_ends() {
    alone("once-ttl", WEST_IS_LARGER, |room| async move {
        let mut job = room.job("fleeting", "6", 4);
        job["spec"]["ttlSecondsAfterFinished"] = json!(0);
        room.submit(job).await;
        assert_eq!(room.started("fleeting").await, WEST);
        let running = room.jobs(WEST).get("fleeting").await.unwrap();
        assert_eq!(running.finalizers().iter().filter(|f| *f == OUTCOME).count(), 1);
        room.shared.stage.link(WEST).unwrap().cut(Cut::Refuse);
        room.job_is(WEST, "fleeting", "Complete").await;
        // The worker's administrator deletes the job before the manager has heard of it.
        room.jobs(WEST)
            .delete("fleeting", &DeleteParams::background())
            .await
            .unwrap();
        sleep(Duration::from_secs(3)).await;
        let kept = room.jobs(WEST).get("fleeting").await.unwrap();
        assert!(kept.metadata.deletion_timestamp.is_some() && has(&kept, "Complete"));
        room.shared.stage.link(WEST).unwrap().heal();
        let ended = room.job_is(MANAGER, "fleeting", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        let workload = room
            .workload_where("fleeting", |w| condition(w, "Finished").is_some())
            .await;
        assert_eq!(
            annotation(&workload, DISPATCH_EPOCH),
            None,
            "there was one dispatch"
        );
        assert_eq!(condition(&workload, "Finished").unwrap().1, "Succeeded");
        room.is_swept().await;
    });
}
