//! The workers that the incremental dispatcher and an external one ask, with the spare cluster as a manager of its own.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use roadstead_api::config::DISPATCHER_INCREMENTAL;
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::{LocalQueue, Workload};
use roadstead_e2e::stage::apply;
use serde_json::{Value, json};

use super::fixture::{EAST, Room, SPARE, WEST, cluster_name};
use super::second::{SECOND, enlist, of_its_own, with_second};
use super::watched::Watched;

/// Each of the workers can hold one job of 4 CPU.
const NARROW: &[(&str, &str)] = &[(SPARE, "16"), (EAST, "4"), (WEST, "4")];
/// A dispatcher that this project does not know.
const ELSEWHERE: &str = "example.com/mine";

/// The second manager's copies in east.
async fn copies_in_east(room: Room) -> Watched<Workload> {
    let ours = format!("{MULTIKUEUE_ORIGIN}={SECOND}");
    Watched::start(&room.workloads(EAST), &ours).await
}

fn nominated(workload: &Workload) -> &[String] {
    let status = workload.status.as_ref();
    status.map_or(&[], |status| &status.nominated_cluster_names)
}

fn says(workload: &Workload, words: &str) -> bool {
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    { checks }.any(|check| check.message == words)
}

/// A namespace that only these clusters have, with the room's queue in it.
async fn namespace(room: Room, name: &'static str, clusters: &[&str]) -> Room {
    for cluster in clusters {
        let client = room.shared.client(cluster);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply(&client, namespace).await.unwrap();
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": room.name},
        });
        apply(&client, queue).await.unwrap();
    }
    Room { name, ..room }
}

/// Spec: multikueue 4.1, 10.F20
#[test]
fn the_incremental_dispatcher_asks_in_the_order_of_the_config_and_goes_on_when_one_refuses() {
    let one_each = of_its_own(json!({
        "dispatcherName": DISPATCHER_INCREMENTAL,
        "incrementalDispatcherConfig": {"stepSize": 1},
    }));
    with_second("one-each", NARROW, one_each, |_, room| async move {
        // Not the order of their names.
        enlist(room, &[WEST, EAST]).await;
        let seen = copies_in_east(room).await;
        room.submit(room.job("first", "4", 3)).await;
        assert_eq!(room.started("first").await, WEST);
        room.submit(room.job("waits", "4", 1)).await;
        room.workload_where("waits", |w| nominated(w) == [WEST]).await;
        for job in ["first", "waits"] {
            room.job_is(SPARE, job, "Complete").await;
        }
        // East had room for it all the time, but its round had not come.
        assert_eq!(room.started("waits").await, WEST);
        let asked = seen.created().await;
        assert!(asked.is_empty(), "east was asked for {asked:?}");

        let elsewhere = namespace(room, "not-in-west", &[SPARE, EAST]).await;
        elsewhere.submit(elsewhere.job("refused", "1", 1)).await;
        assert_eq!(elsewhere.started("refused").await, EAST);
        elsewhere.job_is(SPARE, "refused", "Complete").await;
        elsewhere.is_swept_in(EAST).await;
        room.is_swept().await;
        for cluster in [SPARE, EAST] {
            let queues = elsewhere.api::<LocalQueue>(cluster);
            queues
                .delete(elsewhere.name, &DeleteParams::default())
                .await
                .unwrap();
        }
    });
}

/// Nominates clusters as an external dispatcher does.
async fn nominate(room: Room, job: &str, clusters: &[&str]) {
    let name = room.workload(job).await.unwrap().name_any();
    let patch: Value = json!({"status": {"nominatedClusterNames": clusters}});
    let params = PatchParams {
        field_manager: Some(ELSEWHERE.to_owned()),
        ..PatchParams::default()
    };
    let patched = { room.workloads(SPARE) }
        .patch_status(&name, &params, &Patch::Merge(patch))
        .await;
    patched.unwrap();
}

/// Spec: multikueue 4.2, 11.53, 11.55
#[test]
fn what_an_external_dispatcher_nominates_gets_the_job_and_nobody_else() {
    let external = of_its_own(json!({ "dispatcherName": ELSEWHERE }));
    with_second("external", NARROW, external, |_, room| async move {
        enlist(room, &[EAST, WEST]).await;
        let seen = copies_in_east(room).await;
        let waits = |w: &Workload| says(w, "the external dispatcher has nominated no cluster yet");
        for job in ["choosy", "strayed"] {
            room.submit(room.job(job, "1", 1)).await;
            room.workload_where(job, waits).await;
        }
        // No cluster of the config has that name.
        nominate(room, "strayed", &["atlantis"]).await;
        nominate(room, "choosy", &[WEST]).await;
        assert_eq!(room.started("choosy").await, WEST);
        let placed = |w: &Workload| cluster_name(w).as_deref() == Some(WEST) && nominated(w).is_empty();
        room.workload_where("choosy", placed).await;
        room.job_is(SPARE, "choosy", "Complete").await;

        let says_which =
            "the external dispatcher has nominated \"atlantis\", which the MultiKueueConfig does not list";
        let strays = |w: &Workload| says(w, says_which) && cluster_name(w).is_none();
        room.workload_where("strayed", strays).await;
        nominate(room, "strayed", &["atlantis", WEST]).await;
        room.job_is(SPARE, "strayed", "Complete").await;
        assert_eq!(room.started("strayed").await, WEST);
        room.is_swept().await;
        let asked = seen.created().await;
        assert!(asked.is_empty(), "east was asked for {asked:?}");
    });
}
