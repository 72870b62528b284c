//! A worker that is nearly too slow to be used, and connections that do not last: only latency grows.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roadstead_e2e::link::Cut;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone};

/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// An API server or its storage gets a tenth of the time: how long it is stopped, and how long it then runs.
const STARVED: (Duration, Duration) = (Duration::from_millis(450), Duration::from_millis(50));
/// Connections live for less than this.
const LIFE_MILLIS: u64 = 2_500;
/// How long connections are refused at each cut.
const CUT: Duration = Duration::from_millis(50);
/// The seed of the random moments.
const SEED: u64 = 24;
/// Pause between two jobs, so that there are new ones all the time.
const PAUSE: Duration = Duration::from_millis(500);

/// Jobs that come one after the other; each of them is sent once, to where it ends well.
async fn jobs_end_once(room: Room, count: usize) {
    let names: Vec<String> = (0..count).map(|index| format!("job-{index}")).collect();
    for name in &names {
        room.submit(room.job(name, "1", 1)).await;
        sleep(PAUSE).await;
    }
    for name in &names {
        room.ran_once(name).await;
    }
}

/// Pauses a process most of the time, for ever.
async fn starve(pause: impl Fn(), resume: impl Fn()) {
    loop {
        pause();
        sleep(STARVED.0).await;
        resume();
        sleep(STARVED.1).await;
    }
}

/// Spec: safety F22
#[test]
fn jobs_on_a_worker_whose_api_server_gets_a_tenth_of_the_time_end_once() {
    alone("starved", EAST_ONLY, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let mut throttle = JoinSet::new();
        throttle.spawn(starve(|| east.pause().unwrap(), || east.resume().unwrap()));
        jobs_end_once(room, 3).await;
        assert!(throttle.try_join_next().is_none(), "it was slow all the time");
        throttle.shutdown().await;
        east.resume().unwrap();
        room.is_swept().await;
    });
}

/// What an API server sees of a slow disk: each thing that etcd stores or reads comes almost half a second late.
///
/// Spec: safety F22
#[cfg(feature = "nightly")]
#[test]
fn jobs_on_a_worker_whose_storage_gets_a_tenth_of_the_time_end_once() {
    alone("slow-storage", EAST_ONLY, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let mut throttle = JoinSet::new();
        throttle.spawn(starve(
            || east.pause_storage().unwrap(),
            || east.resume_storage().unwrap(),
        ));
        jobs_end_once(room, 3).await;
        assert!(throttle.try_join_next().is_none(), "it was slow all the time");
        throttle.shutdown().await;
        east.resume_storage().unwrap();
        room.is_swept().await;
    });
}

/// Breaks every connection to a worker again and again, for ever.
async fn cut_often(room: Room, worker: &str, seed: u64) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let link = room.shared.stage.link(worker).unwrap();
    loop {
        sleep(Duration::from_millis(dice.random_range(0..LIFE_MILLIS))).await;
        link.cut(Cut::Refuse);
        sleep(CUT).await;
        link.heal();
    }
}

/// Every watch is opened again and again, and now and then a request is lost or its answer.
///
/// Spec: safety F24
#[test]
fn jobs_end_once_over_connections_that_last_two_seconds_at_most() {
    alone("churn", EVEN, |room| async move {
        let mut churn = JoinSet::new();
        for (seed, worker) in (SEED..).zip([EAST, WEST]) {
            churn.spawn(cut_often(room, worker, seed));
        }
        jobs_end_once(room, 12).await;
        assert!(churn.try_join_next().is_none(), "they were cut all the time");
        churn.shutdown().await;
        for worker in [EAST, WEST] {
            room.shared.stage.link(worker).unwrap().heal();
        }
        room.is_swept().await;
    });
}
