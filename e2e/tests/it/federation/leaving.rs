//! Clusters that are cordoned, drained, taken out or deleted while jobs run there: each job ends once, the manager sees its end,
//! and nothing stays behind.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, MultiKueueConfig, Workload};
use roadstead_e2e::link::Cut;
use roadstead_e2e::stage::{Error, FEDERATION, SYSTEM_NAMESPACE};
use serde_json::json;

use super::fixture::{EAST, EAST_IS_LARGER, MANAGER, Room, WEST, alone, and_then, cluster_name, condition};
use super::once::{obedient, runs};
use super::plain::{explained, give_up, stays_in_east};
use super::policies::room_under;
use super::unheard::end;
use super::unsure::active;
use crate::shared::{chain, eventually};

/// A job of 6 CPU fits only into west; smaller ones fit into both.
const WEST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "4"), (WEST, "8")];
/// Long enough for the changes to its cluster.
const RUNS_SECONDS: u32 = 15;
/// Longer than the test.
const LONG_SECONDS: u32 = 600;

async fn run(room: Room, verb: &str, more: &[&str]) -> Result<String, Error> {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let mut args = vec!["cluster", verb, WEST, "--manager-kubeconfig", &manager];
    args.extend(more);
    room.shared.stage.command(&args).await
}

async fn command(room: Room, verb: &str, more: &[&str]) -> String {
    let said = run(room, verb, more).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

fn clusters(room: Room) -> Api<MultiKueueCluster> {
    Api::all(room.shared.client(MANAGER))
}

/// A job that only west can run, running there.
async fn settle_in_west(room: Room, job: &str, seconds: u32) {
    room.submit(room.job(job, "6", seconds)).await;
    assert_eq!(room.started(job).await, WEST);
}

/// A job that fits everywhere goes to east now.
async fn goes_east(room: Room, job: &str) {
    room.submit(room.job(job, "1", 1)).await;
    assert_eq!(room.started(job).await, EAST);
    room.job_is(MANAGER, job, "Complete").await;
}

/// The job has ended, and was never taken from where it ran.
async fn ended_in_west(room: Room, job: &str) {
    room.job_is(MANAGER, job, "Complete").await;
    let workload = room.workload(job).await.unwrap();
    assert!(condition(&workload, "Evicted").is_none(), "{:?}", workload.status);
    assert_eq!(cluster_name(&workload).as_deref(), Some(WEST));
    room.is_swept().await;
}

async fn config(room: Room, names: &[&str]) {
    let configs: Api<MultiKueueConfig> = Api::all(room.shared.client(MANAGER));
    let patch = Patch::Merge(json!({"spec": {"clusters": names}}));
    configs
        .patch(FEDERATION, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn is_active(room: Room, status: &str) {
    eventually(|| async {
        let conditions = clusters(room).get(WEST).await.ok()?.status?.conditions;
        conditions
            .iter()
            .any(|c| c.type_ == "Active" && c.status == status)
            .then_some(())
    })
    .await;
}

/// Spec: experience 3
#[test]
fn a_cordoned_cluster_gets_nothing_new_and_a_drained_one_gives_its_jobs_away() {
    alone(
        "cordoned",
        &[(MANAGER, "32"), (EAST, "8"), (WEST, "8")],
        |room| async move {
            room.submit(room.job("filler", "6", 600)).await;
            let first = room.started("filler").await;
            room.submit(room.job("mover", "6", 600)).await;
            let second = room.started("mover").await;
            assert_ne!(first, second);
            let in_west = if first == WEST { "filler" } else { "mover" };
            let said = command(room, "cordon", &[]).await;
            assert!(
                said.contains("cluster west takes nothing new; 1 workload"),
                "{said}"
            );
            room.submit(room.job("small", "1", 1)).await;
            assert_eq!(room.started("small").await, EAST);
            room.job_is(MANAGER, "small", "Complete").await;

            let in_east = if in_west == "filler" { "mover" } else { "filler" };
            room.jobs(MANAGER)
                .delete(in_east, &DeleteParams::background())
                .await
                .unwrap();
            let said = command(room, "drain", &["--evict", "--yes", "--timeout", "50s"]).await;
            assert!(
                said.contains("takes nothing new; no workload is placed there"),
                "{said}"
            );
            room.workload_where(in_west, |w| cluster_name(w).as_deref() == Some(EAST))
                .await;
            room.is_swept_in(WEST).await;
            let said = command(room, "uncordon", &[]).await;
            assert!(said.contains("cluster west takes new work"), "{said}");
            room.jobs(MANAGER)
                .delete(in_west, &DeleteParams::background())
                .await
                .unwrap();
            room.is_swept().await;
            room.submit(room.job("wide", "8", 1)).await;
            room.job_is(MANAGER, "wide", "Complete").await;
        },
    );
}

/// Spec: experience 3
#[test]
fn a_cluster_that_is_drained_without_eviction_ends_what_it_has_and_gets_nothing_new() {
    alone("drained", WEST_IS_LARGER, |room| async move {
        // Why so small: with it there, west still has more room than east. Why alone: a west that is slow would not get it.
        config(room, &[WEST]).await;
        room.submit(room.job("stays", "1", 600)).await;
        assert_eq!(room.started("stays").await, WEST);
        config(room, &[EAST, WEST]).await;
        let said = command(room, "drain", &["--timeout", "0s"]).await;
        assert!(
            said.contains("takes nothing new; 1 workload placed there goes on"),
            "{said}"
        );
        goes_east(room, "meanwhile").await;
        let late = run(room, "drain", &["--timeout", "1s"]).await.unwrap_err();
        let late = chain(&late);
        assert!(late.contains("is not empty yet; it stays cordoned"), "{late}");

        let drained = command(room, "drain", &["--timeout", "50s"]);
        let (said, ()) = tokio::join!(drained, end(room, WEST, "stays"));
        assert!(
            said.contains("takes nothing new; no workload is placed there"),
            "{said}"
        );
        ended_in_west(room, "stays").await;
        goes_east(room, "afterwards").await;
        let said = command(room, "uncordon", &[]).await;
        assert!(said.contains("cluster west takes new work"), "{said}");
        settle_in_west(room, "again", 1).await;
        room.job_is(MANAGER, "again", "Complete").await;
    });
}

/// Spec: multikueue 10.F32, 13.B8; safety I1, F28
#[test]
fn a_cluster_taken_out_of_the_config_ends_its_job_there_once() {
    alone("unlisted", WEST_IS_LARGER, |room| async move {
        settle_in_west(room, "stays", RUNS_SECONDS).await;
        config(room, &[EAST]).await;
        goes_east(room, "after").await;
        ended_in_west(room, "stays").await;
        config(room, &[EAST, WEST]).await;
        settle_in_west(room, "again", 1).await;
        room.job_is(MANAGER, "again", "Complete").await;
    });
}

/// Under `Wait` only `roadstead cluster give-up` gives a run up, and it works for a cluster that is leaving.
///
/// Spec: multikueue 4.5; safety 3.5
#[test]
fn a_lost_cluster_that_is_taken_out_and_deleted_keeps_its_job_until_it_is_given_up_and_then_goes() {
    alone("given-up", EAST_IS_LARGER, |other| async move {
        // Why another room: the administrator's word accepts that this run goes on, so it must not count as a violation.
        let room = room_under(other, "Wait", "given-up-runs").await;
        and_then(leaves_and_is_given_up(room), async {
            room.shared.stage.link(EAST).unwrap().heal();
            room.shared.stage.join(EAST).await.unwrap();
            config(room, &[EAST, WEST]).await;
        })
        .await;
    });
}

async fn leaves_and_is_given_up(room: Room) {
    room.submit(obedient(room.job("train", "1", LONG_SECONDS))).await;
    assert_eq!(room.started("train").await, EAST);
    let link = room.shared.stage.link(EAST).unwrap();
    link.cut(Cut::Refuse);
    eventually(|| async { active(room).await.filter(|(status, _)| status == "False") }).await;
    config(room, &[WEST]).await;
    clusters(room)
        .delete(EAST, &DeleteParams::default())
        .await
        .unwrap();
    stays_in_east(room, "train").await;

    let conditions = clusters(room).get(EAST).await.unwrap().status.unwrap().conditions;
    let leaving = conditions.iter().find(|said| said.type_ == "Leaving").unwrap();
    for said in [&leaving.message, &explained(room, "train", "WorkerLost").await] {
        assert!(said.contains("roadstead cluster give-up east"), "{said}");
    }
    give_up(room).await.unwrap();
    eventually(|| async { runs(&room.jobs(WEST).get_opt("train").await.ok()??).then_some(()) }).await;
    let workload = room.workload("train").await.unwrap();
    assert_eq!(cluster_name(&workload).as_deref(), Some(WEST));
    eventually(|| async { clusters(room).get_opt(EAST).await.ok()?.is_none().then_some(()) }).await;

    link.heal();
    room.shared.stage.join(EAST).await.unwrap();
    config(room, &[EAST, WEST]).await;
    room.is_swept_in(EAST).await;
    let jobs = room.jobs(MANAGER);
    jobs.delete("train", &DeleteParams::background()).await.unwrap();
    room.is_swept().await;
}

/// Spec: multikueue 10.F34, 13.B8; safety I1, F28
#[test]
fn a_deleted_cluster_stays_until_its_job_has_ended_and_then_goes() {
    alone("deleted", WEST_IS_LARGER, |room| async move {
        settle_in_west(room, "stays", RUNS_SECONDS).await;
        clusters(room)
            .delete(WEST, &DeleteParams::default())
            .await
            .unwrap();
        goes_east(room, "after").await;
        let leaving = clusters(room).get(WEST).await.unwrap();
        assert!(leaving.metadata.deletion_timestamp.is_some());
        // A manager that is restarted meanwhile must know it too.
        room.shared.stage.restart(MANAGER).await.unwrap();
        ended_in_west(room, "stays").await;
        eventually(|| async { clusters(room).get_opt(WEST).await.ok()?.is_none().then_some(()) }).await;
        room.shared.stage.join(WEST).await.unwrap();
        settle_in_west(room, "again", 1).await;
        room.job_is(MANAGER, "again", "Complete").await;
    });
}

/// Spec: multikueue 10.F3, 11.7; safety F28
#[test]
fn a_cluster_whose_secret_is_deleted_is_inactive_and_still_ends_its_job() {
    alone("secretless", WEST_IS_LARGER, |room| async move {
        settle_in_west(room, "stays", RUNS_SECONDS).await;
        let secrets: Api<Secret> = Api::namespaced(room.shared.client(MANAGER), SYSTEM_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.unwrap();
        let name = all
            .iter()
            .map(ResourceExt::name_any)
            .find(|name| name.ends_with(WEST))
            .unwrap();
        secrets.delete(&name, &DeleteParams::default()).await.unwrap();
        is_active(room, "False").await;
        goes_east(room, "after").await;
        ended_in_west(room, "stays").await;
        // Nothing keeps the connection now.
        let waits = |w: &Workload| {
            let checks = w.status.iter().flat_map(|status| &status.admission_checks);
            { checks }.any(|check| !check.message.is_empty())
        };
        room.submit(room.job("wide", "6", 1)).await;
        room.workload_where("wide", waits).await;
        room.shared.stage.join(WEST).await.unwrap();
        is_active(room, "True").await;
        room.job_is(MANAGER, "wide", "Complete").await;
        assert_eq!(room.started("wide").await, WEST);
    });
}
