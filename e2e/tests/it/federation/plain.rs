//! Workers that were registered without `cluster join`: a Secret made by hand, with or without a fence on the other side.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::{CORDON, GIVEN_UP, LEASE_WATCHED};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_e2e::link::Cut;
use roadstead_e2e::stage::{Part, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{
    EAST, EAST_IS_LARGER, LONG_SECS, MANAGER, Room, WEST, alone, and_then, cluster_name, condition,
};
use super::kubeconfigs::put;
use super::once::{lost_policy, obedient, runs, starts_again, stops};
use super::unsure::active;
use crate::shared::{chain, eventually};

/// The Secret that is made by hand.
const SECRET: &str = "plain-east";
/// The name that every origin of the default has.
const LEASE: &str = "roadstead-multikueue";
/// The namespace that `cluster join` of earlier versions made, and a plain registration does not make.
const NOT_THERE: &str = "roadstead-system";
/// Longer than the manager would wait for a fence, which is one and a half leases of ten seconds.
const PAST_EVERYTHING: Duration = Duration::from_secs(25);

/// Registers east as the reference's documentation does: a Secret with an administrator's kubeconfig, and no object on the worker.
async fn register_plainly(room: Room) {
    let (stage, manager) = (&room.shared.stage, room.shared.client(MANAGER));
    let kubeconfig = fs::read_to_string(stage.kubeconfig(EAST)).unwrap();
    let server = kubeconfig
        .lines()
        .find(|line| line.trim().starts_with("server: "))
        .unwrap();
    let through_link = format!("    server: {}", stage.link(EAST).unwrap().server_url());
    put(&manager, SECRET, &kubeconfig.replace(server, &through_link)).await;
    let namespaces: Api<Namespace> = Api::all(room.shared.client(EAST));
    let _absent = namespaces.delete(NOT_THERE, &DeleteParams::default()).await;
    eventually(|| async { namespaces.get_opt(NOT_THERE).await.ok()?.is_none().then_some(()) }).await;
    lead_east_by(room, SECRET).await;
}

/// As the command has registered it.
async fn register_properly(room: Room) {
    lead_east_by(room, "roadstead-east").await;
    let joined = room.shared.stage.join(EAST).await;
    joined.unwrap_or_else(|error| panic!("{}", chain(&error)));
}

async fn lead_east_by(room: Room, secret: &str) {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    let kube_config = json!({"location": secret, "locationType": "Secret"});
    let patch = json!({"spec": {"clusterSource": {"kubeConfig": kube_config}}});
    let params = PatchParams::default();
    clusters.patch(EAST, &params, &Patch::Merge(patch)).await.unwrap();
}

/// Waits until condition `WorkerFence` of east has this reason.
async fn fence(room: Room, reason: &str) -> Condition {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    eventually(|| async {
        let conditions = clusters.get(EAST).await.unwrap().status?.conditions;
        let mut fences = conditions.into_iter().filter(|each| each.type_ == "WorkerFence");
        fences.find(|each| each.reason == reason)
    })
    .await
}

async fn runs_in_east(room: Room, job: &str) {
    eventually(|| async { active(room).await.filter(|(status, _)| status == "True") }).await;
    lost_policy(room, "Fence").await;
    // Why: a newly registered cluster is not the first choice until the manager knows its queues.
    cordon_west(room, json!("true")).await;
    room.submit(obedient(room.job(job, "1", LONG_SECS))).await;
    assert_eq!(room.started(job).await, EAST);
    room.runs_in(EAST, job).await;
    cordon_west(room, Value::Null).await;
}

async fn cordon_west(room: Room, value: Value) {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CORDON: value}}}));
    clusters
        .patch(WEST, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Watches for longer than the manager would wait for a fence: the job runs on in east and in no other worker.
pub(super) async fn stays_in_east(room: Room, job: &str) {
    let until = Instant::now() + PAST_EVERYTHING;
    while Instant::now() < until {
        assert!(
            runs(&room.jobs(EAST).get(job).await.unwrap()),
            "the job is stopped"
        );
        let next = room.jobs(WEST).get_opt(job).await.unwrap();
        assert!(next.is_none(), "the job is sent to west while it runs in east");
        sleep(Duration::from_millis(250)).await;
    }
    let now = room.workload(job).await.unwrap();
    assert_eq!(cluster_name(&now).as_deref(), Some(EAST));
    assert!(condition(&now, "Evicted").is_none(), "{:?}", now.status);
}

async fn roadstead(room: Room, args: &[&str]) -> Result<String, String> {
    let said = room.shared.stage.command(args).await;
    said.map_err(|error| chain(&error))
}

pub(super) async fn give_up(room: Room) -> Result<String, String> {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    roadstead(
        room,
        &[
            "cluster",
            "give-up",
            EAST,
            "--manager-kubeconfig",
            &manager,
            "--yes",
        ],
    )
    .await
}

/// What `roadstead explain` says about a job, once it names this reason.
pub(super) async fn explained(room: Room, job: &str, reason: &str) -> String {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let args = [
        "explain",
        job,
        "-n",
        room.name,
        "--kubeconfig",
        &manager,
        "-o",
        "json",
    ];
    eventually(|| async {
        let said = roadstead(room, &args).await.unwrap();
        said.contains(reason).then_some(said)
    })
    .await
}

/// Ends a run in east as an administrator of that cluster does.
async fn is_ended_in_east(room: Room, job: &str) {
    let copy = room.workload(job).await.unwrap().name_any();
    room.merge::<Workload>(EAST, &copy, json!({"spec": {"active": false}}))
        .await;
    eventually(|| async { (!runs(&room.jobs(EAST).get(job).await.ok()?)).then_some(()) }).await;
}

/// The lease is in the namespace of the worker's engine, where both sides can access it.
///
/// Spec: safety 3.2, 3.3, 3.4, F7, I1
#[test]
fn a_worker_that_was_registered_by_a_plain_secret_fences_its_job_before_the_next_copy_starts() {
    alone("plain-fence", EAST_IS_LARGER, |room| async move {
        let test = async move {
            register_plainly(room).await;
            let leases: Api<Lease> = Api::namespaced(room.shared.client(EAST), SYSTEM_NAMESPACE);
            eventually(|| async {
                let lease = leases.get_opt(LEASE).await.ok()??;
                lease.annotations().contains_key(LEASE_WATCHED).then_some(())
            })
            .await;
            fence(room, "Fencing").await;
            runs_in_east(room, "moves").await;
            let link = room.shared.stage.link(EAST).unwrap();
            link.cut(Cut::Refuse);
            stops(room, "moves", EAST, WEST).await;
            starts_again(room, "moves", EAST, WEST).await;
            link.heal();
            room.is_swept_in(EAST).await;
            let background = DeleteParams::background();
            room.jobs(MANAGER).delete("moves", &background).await.unwrap();
            room.is_swept().await;
        };
        and_then(test, register_properly(room)).await;
    });
}

/// The worker reads leases in a namespace where the manager keeps none, like a worker of another engine.
///
/// Spec: safety 3.5, 3.6, F7, I1; experience 5
#[test]
fn under_fence_a_worker_without_a_fence_keeps_its_job_until_an_administrator_gives_it_up() {
    alone("plain-wait", EAST_IS_LARGER, |room| async move {
        let stage = &room.shared.stage;
        let test = async move {
            let stage = &room.shared.stage;
            register_plainly(room).await;
            let elsewhere = json!({"roadstead": {"multiKueue": {"leaseNamespace": "elsewhere"}}});
            stage.recast(EAST, Part::Worker, &elsewhere).await.unwrap();
            // The manager forgets an earlier fence when its process ends and the lease is deleted.
            stage.kill(MANAGER).unwrap();
            let leases: Api<Lease> = Api::namespaced(room.shared.client(EAST), SYSTEM_NAMESPACE);
            let _absent = leases.delete(LEASE, &DeleteParams::default()).await;
            stage.restart(MANAGER).await.unwrap();
            let said = fence(room, "NoFence").await.message;
            assert!(
                said.contains("roadstead cluster give-up east") && said.contains("RetryAnyway"),
                "{said}"
            );

            runs_in_east(room, "first").await;
            runs_in_east(room, "second").await;
            let why = give_up(room).await.unwrap_err();
            assert!(why.contains("is not lost"), "{why}");
            let link = stage.link(EAST).unwrap();
            link.cut(Cut::Refuse);
            stays_in_east(room, "first").await;
            stays_in_east(room, "second").await;
            let said = explained(room, "first", "WorkerLost").await;
            assert!(
                said.contains("roadstead cluster give-up east") && said.contains("RetryAnyway"),
                "{said}"
            );

            // The administrator gives the worker up: no job runs there any more.
            is_ended_in_east(room, "first").await;
            is_ended_in_east(room, "second").await;
            give_up(room).await.unwrap();
            let given_up = active(room).await.unwrap().1;
            for job in ["first", "second"] {
                eventually(|| async { runs(&room.jobs(WEST).get_opt(job).await.ok()??).then_some(()) }).await;
            }
            link.heal();
            room.is_swept_in(EAST).await;

            // The word counts for that loss and not for the next one.
            let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
            let word = clusters.get(EAST).await.unwrap().metadata.annotations.unwrap();
            assert_eq!(word.get(GIVEN_UP).map(|text| json!(text)), Some(given_up));
            runs_in_east(room, "third").await;
            link.cut(Cut::Refuse);
            stays_in_east(room, "third").await;

            // The other way out: another policy.
            is_ended_in_east(room, "third").await;
            lost_policy(room, "RetryAnyway").await;
            eventually(|| async { runs(&room.jobs(WEST).get_opt("third").await.ok()??).then_some(()) }).await;
            link.heal();
            for job in ["first", "second", "third"] {
                let background = DeleteParams::background();
                room.jobs(MANAGER).delete(job, &background).await.unwrap();
            }
            room.is_swept().await;
        };
        and_then(test, async {
            stage.recast(EAST, Part::Worker, &json!({})).await.unwrap();
            stage.link(EAST).unwrap().heal();
            register_properly(room).await;
        })
        .await;
    });
}
