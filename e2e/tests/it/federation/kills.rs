//! A manager that is killed again and again while jobs come and go, and one that starts when no worker can be reached.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_e2e::link::Cut;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, WEST, alone, cluster_name, condition};
use crate::nightly::or_nightly;

const ROOMY: &[(&str, &str)] = &[(MANAGER, "32"), (EAST, "16"), (WEST, "16")];
/// One place in each worker.
const TIGHT: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "1"), (WEST, "1")];
const JOBS: usize = or_nightly(10, 50);
const KILLS: u32 = or_nightly(10, 50);
/// The manager lives for less than this from its start: sometimes it is not even ready.
const LIFE_MILLIS: u64 = 2_500;
/// Between two submissions, so that they go on while the manager is killed.
const PAUSE: Duration = Duration::from_millis(500);
/// The seed of the random moments.
const SEED: u64 = 7;
/// How long a manager without workers is watched.
const DARK: Duration = Duration::from_secs(3);

/// Spec: safety I1, I2, I5, I11, I13, F1; multikueue 10.F11
#[test]
fn jobs_end_once_each_while_their_manager_is_killed_at_random_moments() {
    alone("random-kills", ROOMY, |room| async move {
        let names: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
        let submits = async {
            for name in &names {
                room.insist(room.job(name, "100m", 2)).await;
                sleep(PAUSE).await;
            }
        };
        let kills = async {
            let mut dice = ChaCha8Rng::seed_from_u64(SEED);
            for _ in 0..KILLS {
                sleep(Duration::from_millis(dice.random_range(0..LIFE_MILLIS))).await;
                room.shared.stage.replace(MANAGER).unwrap();
            }
            room.shared.stage.restart(MANAGER).await.unwrap();
        };
        room.shared
            .say(&format!("killing the manager {KILLS} times, seed {SEED}"));
        tokio::join!(submits, kills);
        for name in &names {
            let job = room.job_is(MANAGER, name, "Complete").await;
            assert_eq!(job.status.unwrap().succeeded, Some(1), "{name}");
        }
        room.is_swept().await;
    });
}

/// Spec: multikueue 10.F11, 13.B7; safety I2, I13
#[test]
fn a_manager_that_starts_while_no_worker_can_be_reached_forgets_no_waiting_workload() {
    alone("starts-blind", TIGHT, |room| async move {
        let runs = ["fills-0", "fills-1"];
        for job in runs {
            room.submit(room.job(job, "1", 4)).await;
        }
        for job in runs {
            room.started(job).await;
        }
        let waits: Vec<String> = (0..4).map(|index| format!("waits-{index}")).collect();
        for job in &waits {
            room.submit(room.job(job, "1", 1)).await;
            room.workload_where(job, |w| w.is_true("QuotaReserved")).await;
        }
        for worker in [EAST, WEST] {
            room.shared.stage.link(worker).unwrap().cut(Cut::Refuse);
        }
        room.shared.stage.kill(MANAGER).unwrap();
        room.shared.stage.restart(MANAGER).await.unwrap();
        room.submit(room.job("comes-late", "1", 1)).await;
        let until = Instant::now() + DARK;
        while Instant::now() < until {
            for job in &waits {
                let workload = room.workload(job).await.unwrap();
                assert_eq!(cluster_name(&workload), None, "nobody can have admitted it");
                assert!(condition(&workload, "Finished").is_none());
                assert!(workload.is_true("QuotaReserved"), "{:?}", workload.status);
            }
            sleep(Duration::from_millis(250)).await;
        }
        for worker in [EAST, WEST] {
            room.shared.stage.link(worker).unwrap().heal();
        }
        for job in runs.into_iter().chain(["comes-late"]) {
            room.job_is(MANAGER, job, "Complete").await;
        }
        for job in &waits {
            room.job_is(MANAGER, job, "Complete").await;
        }
        room.is_swept().await;
    });
}
