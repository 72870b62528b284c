//! Queues with a policy of their own for lost workers, whatever the configuration says.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use roadstead_api::constants::annotations::WORKER_LOST_POLICY;
use roadstead_e2e::link::Cut;
use roadstead_e2e::stage::Part;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::fixture::{
    EAST, EAST_IS_LARGER, LONG_SECS, MANAGER, Room, WEST, alone, and_then, cluster_name, condition, cpu_queue,
};
use super::once::{annotation, copy, guarded, lost_policy, obedient, runs, starts_again, stops};
use super::unsure::active;
use crate::shared::eventually;

/// `workerLostTimeout`.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Longer than the manager would wait for a fence, which is one and a half leases of ten seconds.
const PAST_EVERYTHING: Duration = Duration::from_secs(22);
/// Text of the Warning Event about a job that is given up without proof.
const TWICE: &str = "it may run twice";

/// One more room in the same federation, whose ClusterQueue has this policy.
pub(super) async fn room_under(room: Room, policy: &str, name: &'static str) -> Room {
    let room = Room::open(room.shared, name, cpu_queue(name, EAST_IS_LARGER)).await;
    lost_policy(room, policy).await;
    room
}

/// Runs a test whose manager has this policy in its configuration.
fn configured<F: Future<Output = ()> + Send + 'static>(
    policy: &'static str,
    name: &'static str,
    body: impl FnOnce(Room) -> F + Send + 'static,
) {
    alone(name, EAST_IS_LARGER, move |room| async move {
        let stage = &room.shared.stage;
        let over = json!({"roadstead": {"multiKueue": {"workerLostPolicy": policy}}});
        stage.recast(MANAGER, Part::Manager, &over).await.unwrap();
        and_then(body(room), async {
            stage.recast(MANAGER, Part::Manager, &json!({})).await.unwrap();
        })
        .await;
    });
}

async fn runs_in_east(room: Room, job: &str, seconds: u32) {
    eventually(|| async { active(room).await.filter(|(status, _)| status == "True") }).await;
    room.submit(obedient(room.job(job, "1", seconds))).await;
    assert_eq!(room.started(job).await, EAST);
}

/// Checks that the job runs on in east undisturbed.
async fn stays_in_east(room: Room, job: &str) {
    assert!(
        runs(&room.jobs(EAST).get(job).await.unwrap()),
        "{job}: nobody stops it"
    );
    assert!(room.jobs(WEST).get_opt(job).await.unwrap().is_none(), "{job}");
    let now = room.workload(job).await.unwrap();
    assert_eq!(cluster_name(&now).as_deref(), Some(EAST), "{job}");
    assert!(condition(&now, "Evicted").is_none(), "{job}: {:?}", now.status);
}

/// Messages of the room's Warning Events about a job that may run twice.
async fn warnings(room: Room) -> Vec<String> {
    let all = room.api::<Event>(MANAGER).list(&ListParams::default()).await;
    let warnings = all.unwrap().items.into_iter();
    warnings
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .filter_map(|event| event.note)
        .filter(|note| note.contains(TWICE))
        .collect()
}

/// Spec: safety 3.5, F7; multikueue 10.F9, 11.73, 11.78
#[test]
fn each_queue_has_the_policy_of_its_own_and_the_others_that_of_the_configuration() {
    configured("Fence", "policy-config", |room| async move {
        let waiting = room_under(room, "Wait", "policy-wait").await;
        let anyway = room_under(room, "RetryAnyway", "policy-anyway").await;
        for room in [room, waiting, anyway] {
            runs_in_east(room, "job", LONG_SECS).await;
        }
        let stays = waiting.jobs(EAST).get("job").await.unwrap().uid();
        for (room, policy) in [(room, Some("Fence")), (waiting, None), (anyway, None)] {
            let sent = copy(room, EAST, "job").await.unwrap();
            assert_eq!(annotation(&sent, WORKER_LOST_POLICY).as_deref(), policy);
        }
        guarded(room, EAST).await;
        let link = room.shared.stage.link(EAST).unwrap();
        let cut = Instant::now();
        link.cut(Cut::Refuse);

        // Its copy in east goes on. This policy accepts that and warns of it.
        let next = eventually(|| async {
            let next = anyway.jobs(WEST).get_opt("job").await.unwrap()?;
            runs(&next).then_some(next)
        });
        let (next, ()) = tokio::join!(next, async {
            stops(room, "job", EAST, WEST).await;
            starts_again(room, "job", EAST, WEST).await;
        });
        assert!(cut.elapsed() >= TIMEOUT, "{:?}", cut.elapsed());
        assert!(runs(&anyway.jobs(EAST).get("job").await.unwrap()));
        let told =
            eventually(|| async { Some(warnings(anyway).await).filter(|told| !told.is_empty()) }).await;
        assert!(told.len() == 1 && told[0].contains(EAST), "{told:?}");
        sleep_until(cut + PAST_EVERYTHING).await;
        stays_in_east(waiting, "job").await;
        for room in [room, waiting] {
            assert_eq!(warnings(room).await, [""; 0]);
        }

        link.heal();
        for room in [room, anyway] {
            room.is_swept_in(EAST).await;
        }
        let after = anyway.jobs(WEST).get("job").await.unwrap();
        assert!(runs(&after) && after.uid() == next.uid(), "one of them goes on");
        stays_in_east(waiting, "job").await;
        assert_eq!(waiting.jobs(EAST).get("job").await.unwrap().uid(), stays);
        waiting.stays_clean();
        for room in [room, waiting, anyway] {
            let params = DeleteParams::background();
            room.jobs(MANAGER).delete("job", &params).await.unwrap();
            room.is_swept().await;
        }
    });
}

/// Without pods the manager cannot see whether the jobs run or have stopped.
///
/// Spec: safety 3.3, 3.4, 3.5, F7, I1; multikueue 13.B2
#[test]
fn a_job_without_pods_is_fenced_or_waited_for_as_one_with_pods() {
    alone("podless", EAST_IS_LARGER, |room| async move {
        lost_policy(room, "Fence").await;
        let waiting = room_under(room, "Wait", "podless-wait").await;
        for room in [room, waiting] {
            room.refuse_pods(EAST).await;
            runs_in_east(room, "bare", 3).await;
        }
        guarded(room, EAST).await;
        let link = room.shared.stage.link(EAST).unwrap();
        let cut = Instant::now();
        link.cut(Cut::Refuse);
        stops(room, "bare", EAST, WEST).await;
        starts_again(room, "bare", EAST, WEST).await;
        let ended = room.job_is(MANAGER, "bare", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        sleep_until(cut + PAST_EVERYTHING).await;
        stays_in_east(waiting, "bare").await;
        for room in [room, waiting] {
            let pods = room.api::<Pod>(EAST).list(&ListParams::default()).await.unwrap();
            assert!(pods.items.is_empty(), "none can be made: {pods:?}");
        }

        link.heal();
        room.is_swept().await;
        waiting.allow_pods(EAST).await;
        // So the Job controller, whose requests were refused for long, tries again now.
        let touch = json!({"metadata": {"annotations": {"test.roadstead.dev/touched": "true"}}});
        waiting.merge::<Job>(EAST, "bare", touch).await;
        waiting.ran_once("bare").await;
        waiting.is_swept().await;
        waiting.stays_clean();
    });
}
