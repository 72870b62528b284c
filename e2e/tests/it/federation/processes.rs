//! Our own processes: engines that die again and again, a manager that is stopped, a log that cannot be written.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_api::constants::annotations::{DISPATCH_EPOCH, FENCED};
use roadstead_e2e::link::Cut;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, EVEN, MANAGER, WEST, alone};
use super::once::{annotation, copy, guarded, lost_policy, obedient, runs};
use crate::nightly::or_nightly;
use crate::shared::eventually;

const ROOMY: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "16")];
const WORKERS: [&str; 2] = [EAST, WEST];
/// How often the workers are killed.
const KILLS: usize = or_nightly(6, 30);
/// How long each of them lives.
const LIFE: Duration = Duration::from_secs(1);
/// Jobs that come meanwhile.
const JOBS: usize = or_nightly(3, 10);
/// How long the dead are watched.
const DARK: Duration = Duration::from_secs(3);
/// A device on which every write fails because no space is left.
const FULL: &str = "/dev/full";

/// What the job is in its worker while it runs: the same one, with the same pods.
fn active(job: &Job) -> Option<(Option<String>, i32)> {
    let active = job.status.as_ref()?.active?;
    runs(job).then(|| (job.uid(), active))
}

/// Spec: safety F2, I1, I2, I5, I13
#[test]
fn while_their_workers_are_dead_jobs_run_on_and_none_starts_and_all_end_when_they_live() {
    alone("workers-dead", ROOMY, |room| async move {
        let stage = &room.shared.stage;
        room.submit(obedient(room.job("runs-on", "1", 600))).await;
        let place = room.started("runs-on").await;
        let here = room.jobs(&place);
        let before = eventually(|| async { active(&here.get("runs-on").await.ok()?) }).await;
        for worker in WORKERS {
            stage.kill(worker).unwrap();
        }
        room.submit(room.job("waits", "1", 1)).await;
        let until = Instant::now() + DARK;
        while Instant::now() < until {
            for worker in WORKERS {
                let waits = room.jobs(worker).get_opt("waits").await.unwrap();
                assert!(waits.is_none_or(|job| !runs(&job)), "nobody can have admitted it");
            }
            let now = here.get("runs-on").await.unwrap();
            assert_eq!(active(&now), Some(before.clone()));
            sleep(Duration::from_millis(250)).await;
        }

        let names: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
        let submits = async {
            for name in &names {
                room.submit(room.job(name, "1", 2)).await;
                sleep(LIFE * 2).await;
            }
        };
        let kills = async {
            for _ in 0..KILLS {
                for worker in WORKERS {
                    stage.replace(worker).unwrap();
                }
                sleep(LIFE).await;
            }
            for worker in WORKERS {
                stage.restart(worker).await.unwrap();
            }
        };
        tokio::join!(submits, kills);
        for name in names.iter().map(String::as_str).chain(["waits"]) {
            let job = room.job_is(MANAGER, name, "Complete").await;
            assert_eq!(job.status.unwrap().succeeded, Some(1), "{name}");
        }
        let now = here.get("runs-on").await.unwrap();
        assert_eq!(active(&now), Some(before), "it ran on all the time");
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("runs-on", &params).await.unwrap();
        room.is_swept().await;
    });
}

/// It wakes up with an old view, and with a job of which it believes that it runs.
///
/// Spec: safety F6, 3.3, 3.4, I1
#[test]
fn a_manager_that_stood_still_past_its_lease_sends_its_job_again_after_the_fence_and_once() {
    alone("stood-still", EVEN, |room| async move {
        let stage = &room.shared.stage;
        lost_policy(room, "Fence").await;
        room.submit(obedient(room.job("moves", "1", 600))).await;
        let first = room.started("moves").await;
        guarded(room, &first).await;
        let old = room.jobs(&first).get("moves").await.unwrap();
        let sent = copy(room, &first, "moves").await.unwrap();
        stage.pause(MANAGER).unwrap();
        eventually(|| async {
            let job = room.jobs(&first).get("moves").await.unwrap();
            (!runs(&job)).then_some(())
        })
        .await;
        let fenced = room.workloads(&first).get(&sent.name_any()).await.unwrap();
        assert_eq!(annotation(&fenced, FENCED).as_deref(), Some("1"));

        stage.resume(MANAGER).unwrap();
        let next = eventually(|| async {
            let mut running = Vec::new();
            for worker in WORKERS {
                let job = room.jobs(worker).get_opt("moves").await.unwrap();
                running.extend(job.filter(runs));
            }
            assert!(running.len() < 2, "it runs twice: {running:?}");
            running.pop()
        })
        .await;
        assert_ne!(next.uid(), old.uid());
        assert_eq!(annotation(&next, DISPATCH_EPOCH).as_deref(), Some("2"));
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("moves", &params).await.unwrap();
        room.is_swept().await;
    });
}

/// What they would say while they start, work, and lose each other is lost.
///
/// Spec: safety F33
#[test]
fn processes_that_cannot_write_their_log_go_on() {
    alone("log-full", EVEN, |room| async move {
        let stage = &room.shared.stage;
        let processes = [MANAGER, EAST, WEST];
        let logs = processes.map(|cluster| stage.log(cluster).unwrap());
        for cluster in processes {
            stage.restart_logging_to(cluster, Path::new(FULL)).await.unwrap();
        }
        room.submit(room.job("before", "1", 1)).await;
        room.job_is(MANAGER, "before", "Complete").await;
        let link = stage.link(EAST).unwrap();
        link.cut(Cut::Refuse);
        room.submit(room.job("meanwhile", "1", 1)).await;
        room.job_is(MANAGER, "meanwhile", "Complete").await;
        link.heal();
        room.is_swept().await;
        stage.check().unwrap();
        for (cluster, log) in processes.into_iter().zip(&logs) {
            stage.restart_logging_to(cluster, log).await.unwrap();
        }
    });
}
