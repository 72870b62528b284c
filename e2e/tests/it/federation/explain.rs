//! `roadstead explain` shows one reason and one next step for every job.

use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::EXPLANATION;
use roadstead_api::kueue::v1beta2::{ClusterQueue, Workload};
use serde_json::{Value, json};

use super::capacity::fill_with;
use super::fixture::{EAST, LONG_SECS, MANAGER, Room, WEST, beside_others};
use crate::shared::{chain, eventually};

/// Each of the workers can hold one job of 4 CPU.
const NARROW: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "4"), (WEST, "4")];

async fn explain(room: Room, name: &str, format: &str) -> String {
    let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
    let args = [
        "explain",
        name,
        "-n",
        room.name,
        "--kubeconfig",
        &manager,
        "-o",
        format,
    ];
    let said = room.shared.stage.command(&args).await;
    said.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

async fn answer(room: Room, name: &str) -> Value {
    let said: Value = serde_json::from_str(&explain(room, name, "json").await).unwrap();
    let answers = said.as_array().unwrap();
    assert_eq!(answers.len(), 1, "{said}");
    answers[0].clone()
}

/// Waits until a job is explained so.
async fn explained(room: Room, name: &str, state: &str, reason: &str) -> Value {
    eventually(|| async {
        let said = answer(room, name).await;
        (said["state"] == state && said["reason"] == reason).then_some(said)
    })
    .await
}

async fn events(room: Room, reason: &str) -> Vec<String> {
    let all = room
        .api::<Event>(MANAGER)
        .list(&ListParams::default())
        .await
        .unwrap();
    let found = all
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    found.filter_map(|event| event.note).collect()
}

/// Spec: experience 5, experience P4; multikueue 13.D1
#[test]
fn a_job_that_no_worker_takes_is_explained_by_what_each_of_them_said() {
    beside_others("explained", NARROW, |room| async move {
        for worker in [EAST, WEST] {
            fill_with(room, worker, ("4", LONG_SECS)).await;
        }
        room.submit(room.job("wide", "3", 1)).await;
        room.workload_where("wide", |_| true).await;
        let said = eventually(|| async {
            let said = answer(room, "wide").await;
            let clusters = said["clusters"].as_array()?;
            let all = clusters.len() == 2 && clusters.iter().all(|c| c["answer"] == "NoRoom");
            (said["reason"] == "WaitingForWorkers" && all).then_some(said)
        })
        .await;
        assert_eq!(said["state"], "WaitingForPlacement", "{said}");
        assert_eq!(said["job"], "Job wide", "{said}");
        for cluster in said["clusters"].as_array().unwrap() {
            assert!(cluster["detail"].as_str().unwrap().contains("cpu"), "{said}");
            assert!(cluster["ageSeconds"].is_u64(), "{said}");
        }
        assert!(!said["next"].as_str().unwrap().is_empty(), "{said}");
        let text = explain(room, "job/wide", "text").await;
        for words in [
            "State:  waiting for a worker",
            "Why:    WaitingForWorkers",
            "Next:   ",
            "CLUSTER",
            EAST,
            WEST,
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // One event, whatever the workers answered since. No copy has the record.
        let told = eventually(|| async {
            let told = events(room, "WaitingForWorkers").await;
            (!told.is_empty()).then_some(told)
        })
        .await;
        assert_eq!(told.len(), 1, "{told:?}");
        let ours = room.workloads(EAST).list(&ListParams::default()).await.unwrap();
        assert!(
            ours.iter()
                .all(|copy| !copy.annotations().contains_key(EXPLANATION))
        );

        let workload = room.workload("wide").await.unwrap().name_any();
        room.merge::<Workload>(MANAGER, &workload, json!({"spec": {"active": false}}))
            .await;
        explained(room, "wide", "Deactivated", "Deactivated").await;
        explained(
            room,
            &format!("workload/{workload}"),
            "Deactivated",
            "Deactivated",
        )
        .await;
    });
}

/// Spec: experience 5
#[test]
fn jobs_that_wait_for_quota_run_or_have_ended_are_explained_too() {
    beside_others("explained-else", NARROW, |room| async move {
        room.submit(room.job("huge", "64", 1)).await;
        room.workload_where("huge", |_| true).await;
        let huge = explained(room, "huge", "WaitingForQuota", "ExceedsMaxQuota").await;
        assert_eq!(huge["next"], "ask for less, or give the queue more quota");

        // Why so long: each question below starts the command, which takes a second on a busy machine.
        room.submit(room.job("quick", "1", 20)).await;
        let worker = room.started("quick").await;
        let running = eventually(|| async {
            let said = answer(room, "quick").await;
            (said["state"] == "Running").then_some(said)
        })
        .await;
        assert_eq!(running["cluster"], worker.as_str(), "{running}");
        room.job_is(MANAGER, "quick", "Complete").await;
        let ended = explained(room, "quick", "Finished", "Succeeded").await;
        assert_eq!(ended["next"], "", "{ended}");
        let manager = room.shared.stage.kubeconfig(MANAGER).display().to_string();
        let nobody = ["explain", "nobody", "-n", room.name, "--kubeconfig", &manager];
        let error = room.shared.stage.command(&nobody).await.unwrap_err();
        assert!(
            chain(&error).contains("nothing is known of nobody"),
            "{}",
            chain(&error)
        );
    });
}

/// Spec: experience 5
#[test]
fn what_stands_behind_a_strict_head_is_told_who_is_first_and_its_own_place() {
    let small = &[(MANAGER, "2"), (EAST, "4"), (WEST, "4")];
    beside_others("explained-line", small, |room| async move {
        let strict = Patch::Merge(json!({"spec": {"queueingStrategy": "StrictFIFO"}}));
        let queues = Api::<ClusterQueue>::all(room.shared.client(MANAGER));
        queues
            .patch(room.name, &PatchParams::default(), &strict)
            .await
            .unwrap();
        room.submit(room.job("runs", "2", 30)).await;
        room.started("runs").await;
        let waiting = ["one", "two", "three"];
        for name in waiting {
            room.submit(room.job(name, "1", 1)).await;
        }
        // Why not the name: Workloads created in the same second are ordered by UID.
        let behind = eventually(|| async {
            let mut behind = Vec::new();
            for name in waiting {
                let said = answer(room, name).await;
                let message = said["message"].as_str().unwrap().to_owned();
                if message.starts_with("waits behind job ") {
                    assert_eq!(said["reason"], "PendingEvaluation", "{said}");
                    let head = message.split(' ').nth(3).unwrap();
                    assert_eq!(said["next"], format!("roadstead explain {head} -n {}", room.name));
                    behind.push(message);
                }
            }
            (behind.len() == 2).then_some(behind)
        })
        .await;
        let queue = format!("in StrictFIFO queue {}, position ", room.name);
        let mut places: Vec<&str> = behind
            .iter()
            .map(|said| said.split(&queue).nth(1).unwrap())
            .collect();
        places.sort_unstable();
        assert_eq!(places, ["2", "3"], "{behind:?}");
    });
}
