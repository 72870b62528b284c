//! A worker that answers with errors, late, or not at all: the others get its work, about as fast as on a calm day, and it
//! gets work again once it is well.

use std::time::Duration;

use roadstead_e2e::link::Failing;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone};
use crate::shared::eventually;

/// East has the most room, so that nearly everything is sent there as long as it is well.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "64"), (EAST, "48"), (WEST, "16")];
/// No job may wait so much longer for its place than the last one on a calm day: not until an unanswered request is given up (5 s).
const WAIT_MAX: Duration = Duration::from_secs(4);
/// How often the median of a calm phase the median beside a sick worker may be.
const SLOWER_MAX: u32 = 3;
/// A median below this counts as this: a busy machine makes more difference than a sick worker then.
const CALM_MIN: Duration = Duration::from_secs(1);
/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// Two rounds of collection.
const COLLECTED: Duration = Duration::from_secs(7);
/// Jobs of a calm phase.
const CALM: usize = 9;

/// One job after the other. Returns how long each took from its creation to its start, and where that was.
async fn place(room: Room, prefix: &str, count: usize, pause: Duration) -> Vec<(Duration, String)> {
    let mut made = Vec::new();
    for index in 0..count {
        let name = format!("{prefix}-{index}");
        let created = Instant::now();
        room.submit(room.job(&name, "100m", 1)).await;
        made.push((name, created));
        sleep(pause).await;
    }
    let mut placed = Vec::new();
    for (name, created) in made {
        let started = eventually(|| async { room.shared.started(room.name, &name) });
        let (at, worker) = started.await;
        placed.push((Instant::from_std(at).duration_since(created), worker));
    }
    placed
}

fn median_and_max(placed: &[(Duration, String)]) -> (Duration, Duration) {
    let mut took: Vec<Duration> = placed.iter().map(|(took, _)| *took).collect();
    took.sort();
    (took[took.len() / 2], took[took.len() - 1])
}

/// A calm phase, then `count` jobs while east is sick, then it is well again.
async fn beside_a_sick_worker(
    room: Room,
    (count, pause): (usize, Duration),
    falls_ill: impl FnOnce(),
    recovers: impl FnOnce(),
) {
    let calm = place(room, "calm", CALM, pause).await;
    let in_east = calm.iter().filter(|(_, worker)| worker == EAST).count();
    assert!(in_east > CALM / 2, "{calm:?}");
    for index in 0..CALM {
        room.job_is(MANAGER, &format!("calm-{index}"), "Complete").await;
    }
    falls_ill();
    let sick = place(room, "sick", count, pause).await;
    assert!(sick.iter().all(|(_, worker)| worker == WEST), "{sick:?}");
    recovers();
    let well = Instant::now();
    for index in 0.. {
        let name = format!("after-{index}");
        room.submit(room.job(&name, "100m", 1)).await;
        if room.started(&name).await == EAST {
            break;
        }
    }
    let (calm, calm_max) = median_and_max(&calm);
    let (sick, sick_max) = median_and_max(&sick);
    room.shared.say(&format!(
        "{}: placed in {calm:?} (at most {calm_max:?}) on a calm day, in {sick:?} (at most {sick_max:?}) beside a sick \
         worker, which was used again after {:?}",
        room.name,
        well.elapsed()
    ));
    assert!(
        sick <= calm.max(CALM_MIN) * SLOWER_MAX,
        "{sick:?} instead of {calm:?}"
    );
    assert!(
        sick_max <= calm_max + WAIT_MAX,
        "{sick_max:?} instead of {calm_max:?}"
    );
    for index in 0..count {
        room.job_is(MANAGER, &format!("sick-{index}"), "Complete").await;
    }
    room.is_swept().await;
}

async fn beside_a_failing_worker(room: Room, failing: Failing) {
    let link = room.shared.stage.link(EAST).unwrap();
    let jobs = (14, Duration::from_millis(500));
    beside_a_sick_worker(room, jobs, || link.fail(failing), || link.heal()).await;
}

/// Spec: safety W6, I12; multikueue 10.F14, 11.34
#[test]
fn a_worker_that_answers_500_to_every_read_holds_up_nobody() {
    alone("no-reads", EAST_IS_LARGER, |room| {
        beside_a_failing_worker(room, Failing::Reads)
    });
}

/// So it looks to its manager when its etcd has no space left.
///
/// Spec: safety I12, F21; multikueue 10.F13, 11.33
#[test]
fn a_worker_that_answers_500_to_every_write_holds_up_nobody() {
    alone("no-writes", EAST_IS_LARGER, |room| {
        beside_a_failing_worker(room, Failing::Writes)
    });
}

/// Its API server is stopped for 45 s.
///
/// Spec: safety F5, W7, I12; multikueue 10.F5, 11.26
#[test]
fn a_worker_whose_api_server_is_stopped_holds_up_nobody() {
    alone("stopped", EAST_IS_LARGER, |room| async move {
        let east = room.shared.stage.planes().worker(EAST).unwrap();
        let jobs = (60, Duration::from_millis(750));
        beside_a_sick_worker(room, jobs, || east.pause().unwrap(), || east.resume().unwrap()).await;
    });
}

/// The answers come later than the watch events of the write and of the deletion. They must not bring a deleted object back.
///
/// Spec: safety I4, F10
#[test]
fn late_answers_make_no_second_run_and_leave_nothing_behind() {
    alone("late-answers", EAST_ONLY, |room| async move {
        let found = || room.shared.metrics(MANAGER, "roadstead_orphans_found_total");
        let before = found().await;
        let link = room.shared.stage.link(EAST).unwrap();
        link.fail(Failing::LateWrites(Duration::from_millis(1500)));
        for index in 0..3 {
            room.submit(room.job(&format!("late-{index}"), "1", 1)).await;
        }
        for index in 0..3 {
            let job = format!("late-{index}");
            assert_eq!(room.started(&job).await, EAST);
            room.job_is(MANAGER, &job, "Complete").await;
        }
        room.is_swept().await;
        link.heal();
        // All of its quota: nothing that came late holds any.
        room.submit(room.job("whole", "8", 1)).await;
        room.job_is(MANAGER, "whole", "Complete").await;
        room.is_swept().await;
        // Collection would find what is only believed to be there again and again.
        let rounds = async {
            sleep(COLLECTED).await;
            found().await
        };
        assert_eq!(rounds.await, before);
    });
}
