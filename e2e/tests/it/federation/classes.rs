//! Provisioning classes whose autoscaler takes its time: the test answers in its place.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_api::constants::annotations::{
    CONSUME_PROVISIONING_REQUEST, PROVISIONING_CLASS_NAME, PROVISIONING_PARAMETER_PREFIX,
};
use roadstead_api::constants::conditions::provisioning_request::{
    ACCEPTED, BOOKING_EXPIRED, CAPACITY_REVOKED, FAILED, PROVISIONED,
};
use roadstead_api::constants::controllers::{
    CLASS_ATOMIC_SCALE_UP, CLASS_QUEUED_PROVISIONING, PROVISIONING_REQUEST,
};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::{CheckState, ClusterQueue, Workload};
use roadstead_e2e::stage::apply;
use serde_json::{Value, json};

use super::fixture::{EAST, MANAGER, Room, beside_others, condition};
use super::once::copy;
use super::watched::Watched;
use crate::shared::eventually;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// When every answer was given; nothing depends on it.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
/// A parameter of queued provisioning.
const RUN_DURATION: &str = "maxRunDurationSeconds";

/// The room's queue in a worker starts a job only when this has been answered with yes.
pub(super) async fn asks(room: Room, worker: &str, config: Value) {
    let client = room.shared.client(worker);
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": room.name});
    for object in [
        json!({"apiVersion": KUEUE, "kind": "ProvisioningRequestConfig", "metadata": {"name": room.name}, "spec": config}),
        json!({"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": room.name},
            "spec": {"controllerName": PROVISIONING_REQUEST, "parameters": parameters}}),
    ] {
        apply(&client, object).await.unwrap();
    }
    let queues: Api<ClusterQueue> = Api::all(client);
    let checks = json!({"admissionChecks": [{"name": room.name}]});
    let patch = Patch::Merge(json!({"spec": {"admissionChecksStrategy": checks}}));
    let params = PatchParams::default();
    let generation = queues
        .patch(room.name, &params, &patch)
        .await
        .unwrap()
        .metadata
        .generation;
    eventually(|| async {
        let conditions = queues.get(room.name).await.ok()?.status?.conditions;
        let active = conditions.iter().find(|each| each.type_ == "Active")?;
        (active.status == "True" && active.observed_generation == generation).then_some(())
    })
    .await;
}

/// Waits until the only request in a worker is of this attempt.
pub(super) async fn asked(room: Room, worker: &str, attempt: &str) -> ProvisioningRequest {
    let requests = room.api::<ProvisioningRequest>(worker);
    eventually(|| async {
        let mut all = requests.list(&ListParams::default()).await.ok()?.items;
        let request = all.pop().filter(|_| all.is_empty())?;
        request.name_any().ends_with(attempt).then_some(request)
    })
    .await
}

/// All that the autoscaler of a worker has to say about a request: type, status, message.
pub(super) async fn answer(
    room: Room,
    worker: &str,
    request: &ProvisioningRequest,
    said: &[(&str, &str, &str)],
) {
    answer_with(room, worker, request, said, json!({})).await;
}

/// The same, and details.
async fn answer_with(
    room: Room,
    worker: &str,
    request: &ProvisioningRequest,
    said: &[(&str, &str, &str)],
    details: Value,
) {
    let conditions: Vec<Value> = { said.iter() }
        .map(|(type_, status, message)| {
            json!({"type": type_, "status": status, "reason": "Answered", "message": message,
                "lastTransitionTime": LONG_AGO})
        })
        .collect();
    let status = json!({"status": {"conditions": conditions, "provisioningClassDetails": details}});
    let requests = room.api::<ProvisioningRequest>(worker);
    let params = PatchParams::default();
    let answered = requests
        .patch_status(&request.name_any(), &params, &Patch::Merge(status))
        .await;
    answered.unwrap();
}

/// Waits until the check in a worker says so.
pub(super) async fn check_says(
    room: Room,
    worker: &str,
    job: &str,
    state: CheckState,
    message: &str,
) -> Workload {
    eventually(|| async {
        let copy = copy(room, worker, job).await?;
        let check = copy.status.as_ref()?.admission_checks.first()?;
        (check.state == state && check.message == message).then_some(copy)
    })
    .await
}

/// The pod template of a job in east says what its pods use up.
fn consumes(job: &Job, request: &ProvisioningRequest) -> bool {
    let template = &job.spec.as_ref().unwrap().template;
    let annotations = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.annotations.as_ref());
    let says = |key: &str, value: &str| {
        annotations
            .and_then(|all| all.get(key))
            .is_some_and(|got| got == value)
    };
    let class = &request.spec.provisioning_class_name;
    says(CONSUME_PROVISIONING_REQUEST, &request.name_any()) && says(PROVISIONING_CLASS_NAME, class)
}

pub(super) async fn no_request_is_left(room: Room, worker: &str) {
    let requests = room.api::<ProvisioningRequest>(worker);
    eventually(|| async {
        let left = requests.list(&ListParams::default()).await.ok()?;
        left.items.is_empty().then_some(())
    })
    .await;
}

fn parameters(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    all.iter().map(owned).collect()
}

/// Spec: provisioning 4.3, 13.2, 15.11, 15.21, 15.22, 15.23, 15.49
#[test]
fn a_request_for_an_atomic_scale_up_waits_under_the_same_name_until_there_is_room() {
    beside_others("atomic-scale-up", EAST_ONLY, |room| async move {
        let config = json!({"provisioningClassName": CLASS_ATOMIC_SCALE_UP, "parameters": {"zone": "a"}});
        asks(room, EAST, config).await;
        room.submit(room.job("gang", "1", 1)).await;
        let request = asked(room, EAST, "-1").await;
        assert_eq!(request.spec.provisioning_class_name, CLASS_ATOMIC_SCALE_UP);
        assert_eq!(request.spec.parameters, parameters(&[("zone", "a")]));

        let taken_up = (
            ACCEPTED,
            "True",
            "ProvisioningRequest is accepted by ClusterAutoscaler",
        );
        let later = "Capacity is not found, CA will try to find it later.";
        answer(room, EAST, &request, &[taken_up]).await;
        answer(room, EAST, &request, &[taken_up, (PROVISIONED, "False", later)]).await;
        let waiting = check_says(room, EAST, "gang", CheckState::Pending, later).await;
        assert!(condition(&waiting, "Evicted").is_none(), "{:?}", waiting.status);
        assert_eq!(asked(room, EAST, "-1").await.uid(), request.uid());
        assert!(room.jobs(EAST).get_opt("gang").await.unwrap().is_none());

        let found = "Capacity is found in the cluster";
        answer(room, EAST, &request, &[taken_up, (PROVISIONED, "True", found)]).await;
        check_says(room, EAST, "gang", CheckState::Ready, found).await;
        assert_eq!(room.started("gang").await, EAST);
        assert!(consumes(&room.jobs(EAST).get("gang").await.unwrap(), &request));
        room.job_is(MANAGER, "gang", "Complete").await;
        room.is_swept().await;
        no_request_is_left(room, EAST).await;
    });
}

/// Spec: provisioning 13.3, 15.24, 15.27, 15.31, 15.38, 15.55, 15.56; safety F29
#[test]
fn queued_provisioning_is_retried_when_it_fails_and_stops_the_job_when_the_nodes_are_taken_away() {
    beside_others("queued-provisioning", EAST_ONLY, |room| async move {
        let node = json!({"key": "kubernetes.io/hostname", "valueFromProvisioningClassDetail": "Node"});
        let config = json!({
            "provisioningClassName": CLASS_QUEUED_PROVISIONING,
            "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
            "podSetUpdates": {"nodeSelector": [node]},
        });
        asks(room, EAST, config).await;
        let mut job = room.job("long", "1", 600);
        let duration = format!("{PROVISIONING_PARAMETER_PREFIX}{RUN_DURATION}");
        job["metadata"]["annotations"] = json!({ duration: "3600" });
        room.submit(job).await;

        let first = asked(room, EAST, "-1").await;
        assert_eq!(first.spec.provisioning_class_name, CLASS_QUEUED_PROVISIONING);
        assert_eq!(first.spec.parameters, parameters(&[(RUN_DURATION, "3600")]));
        let sent = copy(room, EAST, "long").await.unwrap();
        answer(room, EAST, &first, &[(FAILED, "True", "out of stock")]).await;
        let second = asked(room, EAST, "-2").await;
        let kept = copy(room, EAST, "long").await.unwrap();
        assert_eq!(kept.uid(), sent.uid(), "it is between east and its autoscaler");

        let taken_up = (ACCEPTED, "True", "queued");
        answer(
            room,
            EAST,
            &second,
            &[taken_up, (PROVISIONED, "False", "ETA 10 min")],
        )
        .await;
        check_says(room, EAST, "long", CheckState::Pending, "ETA 10 min").await;
        let ready = [taken_up, (PROVISIONED, "True", "here they are")];
        answer_with(room, EAST, &second, &ready, json!({"Node": "east-1"})).await;
        assert_eq!(room.started("long").await, EAST);
        let started = room.jobs(EAST).get("long").await.unwrap();
        assert!(consumes(&started, &second), "{started:?}");
        let pods = started.spec.unwrap().template.spec.unwrap();
        let selector = pods.node_selector.unwrap_or_default();
        assert_eq!(
            selector.get("kubernetes.io/hostname").map(String::as_str),
            Some("east-1")
        );

        let revoked = [taken_up, ready[1], (CAPACITY_REVOKED, "True", "time is over")];
        answer_with(room, EAST, &second, &revoked, json!({"Node": "east-1"})).await;
        let taken_off = |w: &Workload| {
            let evictions = &json!(w.status)["schedulingStats"]["evictions"];
            evictions
                .as_array()
                .is_some_and(|all| all.len() == 1 && all[0]["reason"] == "AdmissionCheck")
        };
        room.workload_where("long", taken_off).await;
        room.is_swept_in(EAST).await;
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("long", &params).await.unwrap();
        no_request_is_left(room, EAST).await;
        room.is_swept().await;
    });
}

/// Spec: provisioning 4.3, 15.36, 15.37; safety F29
#[test]
fn a_booking_that_ends_too_early_is_made_again_and_one_that_ends_while_the_job_runs_changes_nothing() {
    beside_others("bookings", EAST_ONLY, |room| async move {
        let config = json!({
            "provisioningClassName": CLASS_ATOMIC_SCALE_UP,
            "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1},
        });
        asks(room, EAST, config).await;
        let seen = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        room.submit(room.job("booked", "1", 4)).await;
        let first = asked(room, EAST, "-1").await;
        let sent = copy(room, EAST, "booked").await.unwrap();
        let here = [(ACCEPTED, "True", "yes"), (PROVISIONED, "True", "here they are")];
        let over = (BOOKING_EXPIRED, "True", "nobody came");
        answer(room, EAST, &first, &[here[0], here[1], over]).await;
        let second = asked(room, EAST, "-2").await;
        assert!(room.jobs(EAST).get_opt("booked").await.unwrap().is_none());
        let kept = copy(room, EAST, "booked").await.unwrap();
        assert_eq!(kept.uid(), sent.uid(), "it is between east and its autoscaler");

        // An answer that is taken back before the worker has acted on it.
        let waits = [here[0], (PROVISIONED, "False", "not yet")];
        answer(room, EAST, &second, &waits).await;
        check_says(room, EAST, "booked", CheckState::Pending, "not yet").await;
        answer(room, EAST, &second, &here).await;
        assert_eq!(room.started("booked").await, EAST);
        answer(room, EAST, &second, &[here[0], here[1], over]).await;
        let ended = room.job_is(MANAGER, "booked", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        let workload = room.workload("booked").await.unwrap();
        let evictions = &json!(workload.status)["schedulingStats"]["evictions"];
        assert!(evictions.is_null(), "{evictions}");
        assert_eq!(seen.created().await, ["booked"]);
        room.is_swept().await;
        no_request_is_left(room, EAST).await;
    });
}
