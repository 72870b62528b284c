//! A way to the worker on which answers get lost: what was done there and not answered is looked for, and never done twice.

use std::time::Duration;

use kube::{Api, ResourceExt as _};
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_e2e::link::{Cut, Failing};
use serde_json::{Value, json};

use super::fixture::{EAST, MANAGER, Room, alone};
use super::watched::Watched;
use crate::shared::eventually;

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// On the slow way, there and back.
const SLOW: Duration = Duration::from_millis(600);
const JOBS: usize = 4;

fn names(prefix: &str) -> Vec<String> {
    (0..JOBS).map(|index| format!("{prefix}-{index}")).collect()
}

/// They end well, each after one run in east.
async fn end_once(room: Room, names: &[String]) {
    for name in names {
        assert_eq!(room.started(name).await, EAST);
        let ended = room.job_is(MANAGER, name, "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1), "{name}");
    }
    room.is_swept().await;
}

/// A job of the whole quota: no forgotten job may hold any of it.
async fn quota_is_free(room: Room) {
    room.submit(room.job("whole", "8", 1)).await;
    room.job_is(MANAGER, "whole", "Complete").await;
    room.is_swept().await;
}

/// Condition `Active` of east: its status, and since when.
pub(super) async fn active(room: Room) -> Option<(String, Value)> {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    let conditions = clusters.get(EAST).await.ok()?.status?.conditions;
    let active = conditions.into_iter().find(|each| each.type_ == "Active")?;
    Some((active.status, json!(active.last_transition_time)))
}

/// Spec: safety F9, I2, I4; multikueue 10.F13
#[test]
fn writes_whose_answers_are_lost_are_done_once_and_leave_nothing_behind() {
    alone("lost-answers", EAST_ONLY, |room| async move {
        let seen = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let link = room.shared.stage.link(EAST).unwrap();
        let before = link.failed();
        link.fail(Failing::LostAnswers);
        let names = names("unsure");
        for name in &names {
            room.submit(room.job(name, "1", 1)).await;
        }
        end_once(room, &names).await;
        let met = link.failed() - before;
        assert!(met >= 2, "answers were lost: {met} writes");
        link.heal();
        let mut created = seen.created().await;
        created.sort();
        assert_eq!(created, names, "each job was created once");
        quota_is_free(room).await;
    });
}

/// Spec: safety F8, I1, I2; multikueue 10.F5
#[test]
fn a_copy_that_is_made_while_only_requests_get_through_runs_once() {
    alone("one-way", EAST_ONLY, |room| async move {
        // Several at once, so that there are open connections over which requests still arrive.
        let names = names("opens");
        for name in &names {
            room.submit(room.job(name, "1", 1)).await;
        }
        end_once(room, &names).await;
        let seen = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let link = room.shared.stage.link(EAST).unwrap();
        link.cut(Cut::Answers);
        room.submit(room.job("unheard", "1", 1)).await;
        // It was carried out, and the manager cannot know.
        eventually(|| async {
            let name = room.workload("unheard").await?.name_any();
            room.workloads(EAST).get_opt(&name).await.unwrap()
        })
        .await;
        eventually(|| async { active(room).await.filter(|(status, _)| status == "False") }).await;
        link.heal();
        end_once(room, &["unheard".to_owned()]).await;
        assert_eq!(seen.created().await, ["unheard"]);
        quota_is_free(room).await;
    });
}

/// Spec: safety F10
#[test]
fn a_worker_that_is_far_away_only_takes_longer() {
    alone("far-away", EAST_ONLY, |room| async move {
        let link = room.shared.stage.link(EAST).unwrap();
        link.fail(Failing::Slow(SLOW));
        // Open connections were reset; from here on it is only slow.
        room.submit(room.job("first", "1", 1)).await;
        room.job_is(MANAGER, "first", "Complete").await;
        let before = active(room).await.unwrap();
        assert_eq!(before.0, "True");
        let lost = || room.shared.metrics(MANAGER, "roadstead_candidates_removed_total");
        let removed = lost().await;
        let names = names("far");
        for name in &names {
            room.submit(room.job(name, "1", 1)).await;
        }
        end_once(room, &names).await;
        assert_eq!(
            active(room).await.unwrap(),
            before,
            "it was connected all the time"
        );
        assert_eq!(lost().await, removed, "and was a candidate all the time");
        link.heal();
    });
}
