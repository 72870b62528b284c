//! Quota is not capacity: the worker whose nodes have room gets the job.

use kube::ResourceExt as _;
use kube::api::ListParams;
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::conditions::provisioning_request::{
    ACCEPTED, CAPACITY_REVOKED, FAILED, PROVISIONED,
};
use roadstead_api::constants::controllers::CLASS_ATOMIC_SCALE_UP;
use roadstead_api::kueue::v1beta2::CheckState;
use roadstead_e2e::stage::Queue;
use serde_json::json;

use super::classes::{answer, asked, asks, check_says, no_request_is_left};
use super::fixture::{EAST, EVEN, GPU, MANAGER, Room, WEST, beside_others, has, was_sent_once};
use super::once::{annotation, runs};
use super::unheard::end;
use super::watched::Watched;
use crate::shared::eventually;

/// Longer than a test: such a job ends only when it is stopped.
const LONG_SECS: u32 = 600;
/// Conditions of an autoscaler for an accepted request, and for provisioned nodes.
const TAKEN_UP: (&str, &str, &str) = (ACCEPTED, "True", "queued");
const HERE: (&str, &str, &str) = (PROVISIONED, "True", "here they are");

/// Both workers ask for nodes before they start a job of the room, and a refused request is not retried.
async fn both_ask(room: Room) {
    for worker in [EAST, WEST] {
        let config = json!({
            "provisioningClassName": CLASS_ATOMIC_SCALE_UP,
            "retryStrategy": {"backoffLimitCount": 0},
        });
        asks(room, worker, config).await;
    }
}

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

        // East is asked first and has the quota, but none of its nodes has a GPU.
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
            no_request_is_left(room, worker).await;
        }
        room.stays_clean();
    });
}

/// The autoscaler revokes the nodes later, and the other worker has room.
///
/// Spec: multikueue 3.15, 11.86; provisioning 15.38, 15.53, 15.55; safety F29, I1
#[test]
fn both_requests_stay_until_one_has_its_nodes_and_the_other_is_withdrawn_then_and_not_at_the_end() {
    beside_others("both-ask", EVEN, |room| async move {
        both_ask(room).await;
        room.submit(room.job("gang", "1", LONG_SECS)).await;
        let mut waiting = Vec::new();
        for worker in [EAST, WEST] {
            let request = asked(room, worker, "-1").await;
            let later = [TAKEN_UP, (PROVISIONED, "False", "later")];
            answer(room, worker, &request, &later).await;
            check_says(room, worker, "gang", CheckState::Pending, "later").await;
            waiting.push(request);
        }
        let [in_east, in_west] = &waiting[..] else {
            panic!("{waiting:?}")
        };
        assert_eq!(asked(room, EAST, "-1").await.uid(), in_east.uid(), "it stays");
        for worker in [EAST, WEST] {
            let job = room.jobs(worker).get_opt("gang").await.unwrap();
            assert!(job.is_none(), "nothing was decided: {job:?}");
        }

        answer(room, WEST, in_west, &[TAKEN_UP, HERE]).await;
        assert_eq!(room.started("gang").await, WEST);
        room.is_swept_in(EAST).await;
        no_request_is_left(room, EAST).await;
        room.runs_in(WEST, "gang").await;
        let local = room.jobs(MANAGER).get("gang").await.unwrap();
        assert!(!has(&local, "Complete"), "it runs on");

        let revoked = (CAPACITY_REVOKED, "True", "time is over");
        answer(room, WEST, in_west, &[TAKEN_UP, HERE, revoked]).await;
        let again = asked(room, EAST, "-1").await;
        assert_ne!(again.uid(), in_east.uid());
        answer(room, EAST, &again, &[TAKEN_UP, HERE]).await;
        eventually(|| async {
            let next = room.jobs(EAST).get_opt("gang").await.unwrap()?;
            let old = room.jobs(WEST).get_opt("gang").await.unwrap();
            assert!(old.is_none_or(|old| !runs(&old)), "it runs twice");
            runs(&next).then_some(())
        })
        .await;
        end(room, EAST, "gang").await;
        let ended = room.job_is(MANAGER, "gang", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        let workload = room.workload("gang").await.unwrap();
        assert_eq!(annotation(&workload, DISPATCH_EPOCH).as_deref(), Some("2"));
        room.is_swept().await;
        for worker in [EAST, WEST] {
            no_request_is_left(room, worker).await;
        }
    });
}

/// Spec: provisioning 4.3, 15.33, 15.54; multikueue 10.F40, 13.B18; safety F29
#[test]
fn a_job_whose_request_one_worker_refuses_runs_in_the_other_and_is_not_asked_for_there_again() {
    beside_others("one-refuses", EVEN, |room| async move {
        both_ask(room).await;
        let seen = Watched::start(&room.api::<ProvisioningRequest>(EAST), "").await;
        room.submit(room.job("gang", "1", 1)).await;
        let refused = asked(room, EAST, "-1").await;
        let name = refused.name_any();
        answer(room, EAST, &refused, &[(FAILED, "True", "out of stock")]).await;
        no_request_is_left(room, EAST).await;

        let request = asked(room, WEST, "-1").await;
        answer(room, WEST, &request, &[TAKEN_UP, HERE]).await;
        assert_eq!(room.started("gang").await, WEST);
        room.job_is(MANAGER, "gang", "Complete").await;
        let workload = room.workload("gang").await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
        room.is_swept().await;
        no_request_is_left(room, WEST).await;
        assert_eq!(seen.created().await, [name], "east was asked once");
    });
}
