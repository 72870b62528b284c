//! The queue's MultiKueue check is replaced, removed and set again while jobs run: each run goes on where it is.

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::controllers::MULTIKUEUE;
use roadstead_api::kueue::v1beta2::{CheckState, ClusterQueue, Workload};
use roadstead_e2e::stage::{FEDERATION, apply};
use serde_json::{Value, json};

use super::fixture::{EVEN, MANAGER, Room, beside_others, cluster_name, condition};
use crate::shared::eventually;

/// Longer than the test.
const LONG_SECONDS: u32 = 600;
/// Ends at some time while the checks change.
const SHORT_SECONDS: u32 = 8;

/// Gives the room's queue on the manager these checks, and waits until the manager has seen that.
async fn asks_for(room: Room, checks: &[&str]) {
    let checks: Vec<Value> = checks.iter().map(|name| json!({"name": name})).collect();
    let strategy = match checks.as_slice() {
        [] => Value::Null,
        [_, ..] => json!({"admissionChecks": checks}),
    };
    let queues: Api<ClusterQueue> = Api::all(room.shared.client(MANAGER));
    let patch = Patch::Merge(json!({"spec": {"admissionChecksStrategy": strategy}}));
    let patched = queues.patch(room.name, &PatchParams::default(), &patch).await;
    let generation = patched.unwrap().metadata.generation;
    eventually(|| async {
        let conditions = queues.get(room.name).await.ok()?.status?.conditions;
        let active = conditions.iter().find(|each| each.type_ == "Active")?;
        (active.status == "True" && active.observed_generation == generation).then_some(())
    })
    .await;
}

fn checks_of(workload: &Workload) -> Vec<(&str, CheckState, &str)> {
    let checks = { workload.status.iter() }.flat_map(|status| &status.admission_checks);
    checks
        .map(|check| (check.name.as_str(), check.state, check.message.as_str()))
        .collect()
}

/// Spec: multikueue 3.3 R6b; safety I1
#[test]
fn a_run_goes_on_when_its_queue_names_another_check_or_none() {
    beside_others("check-changed", EVEN, |room| async move {
        room.submit(room.job("long", "1", LONG_SECONDS)).await;
        let winner = room.started("long").await;
        room.runs_in(&winner, "long").await;
        let first = room.jobs(&winner).get("long").await.unwrap().uid();
        room.submit(room.job("short", "1", SHORT_SECONDS)).await;
        room.started("short").await;

        let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck",
            "metadata": {"name": room.name},
            "spec": {"controllerName": MULTIKUEUE, "parameters":
                {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": FEDERATION}}});
        apply(&room.shared.client(MANAGER), check).await.unwrap();
        asks_for(room, &[room.name]).await;
        let message = format!("The workload was admitted on \"{winner}\"");
        let renamed = [(room.name, CheckState::Ready, message.as_str())];
        let workload = room.workload_where("long", |w| checks_of(w) == renamed).await;
        assert_eq!(cluster_name(&workload).as_deref(), Some(winner.as_str()));

        asks_for(room, &[]).await;
        room.ran_once("short").await;
        let workload = room.workload("long").await.unwrap();
        assert_eq!(
            checks_of(&workload),
            renamed,
            "the entry says who follows the run"
        );
        assert!(condition(&workload, "Evicted").is_none(), "{:?}", workload.status);
        assert_eq!(room.jobs(&winner).get("long").await.unwrap().uid(), first);

        // Without a check the queue runs jobs on the manager. One that runs there stays there when the queue has a check again.
        room.submit(room.job("here", "1", LONG_SECONDS)).await;
        let admitted = |w: &Workload| condition(w, "Admitted").is_some_and(|(status, ..)| status == "True");
        room.workload_where("here", admitted).await;
        asks_for(room, &[room.name]).await;
        let pending = [(room.name, CheckState::Pending, "")];
        let here = room.workload_where("here", |w| checks_of(w) == pending).await;
        assert!(
            admitted(&here) && cluster_name(&here).is_none(),
            "{:?}",
            here.status
        );
        room.submit(room.job("later", "1", 1)).await;
        room.ran_once("later").await;
        let here = room.workload("here").await.unwrap();
        assert!(
            admitted(&here) && condition(&here, "Evicted").is_none(),
            "{:?}",
            here.status
        );
        assert!(
            room.shared.started(room.name, "here").is_none(),
            "no worker has it"
        );
        room.jobs(MANAGER)
            .delete("here", &DeleteParams::background())
            .await
            .unwrap();
        asks_for(room, &[]).await;

        let off = json!({"spec": {"active": false}});
        room.merge::<Workload>(MANAGER, &workload.name_any(), off).await;
        room.is_swept().await;
        room.workload_where("long", |w| {
            let has_quota = condition(w, "QuotaReserved").is_some_and(|(status, ..)| status == "True");
            !has_quota && cluster_name(w).is_none() && checks_of(w).is_empty()
        })
        .await;
    });
}
