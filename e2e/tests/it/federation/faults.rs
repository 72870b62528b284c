//! A worker that answers with errors, late, or not at all: the others get its work, about as fast as on a calm day, and it
//! gets work again once it is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_e2e::link::Failing;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, MANAGER, Room, WEST, alone};
use crate::shared::eventually;

/// East has the most room, so that nearly everything is sent there as long as it is well.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "64"), (EAST, "48"), (WEST, "16")];
/// No job may wait longer for its place: not until an unanswered request is given up (5 s).
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

/// One job after the other; gives how long each took from its creation to its start, and where that was.
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
    assert!(sick_max <= WAIT_MAX, "{sick_max:?}");
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

/// Spec: safety I12; multikueue 10.F13, 11.33
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

/// It asks for a second each time.
///
/// Spec: safety F23, I12
#[test]
fn a_worker_that_has_no_time_holds_up_nobody() {
    alone("no-time", EAST_IS_LARGER, |room| {
        beside_a_failing_worker(room, Failing::Busy)
    });
}

/// Jobs while nothing but the answers of the only worker goes wrong: each runs once, and nothing is left behind.
async fn beside_wrong_answers(room: Room, failing: Failing) {
    let found = || room.shared.metrics(MANAGER, "roadstead_orphans_found_total");
    let before = found().await;
    let link = room.shared.stage.link(EAST).unwrap();
    link.fail(failing);
    for index in 0..3 {
        room.submit(room.job(&format!("job-{index}"), "1", 1)).await;
    }
    for index in 0..3 {
        let job = format!("job-{index}");
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
}

/// Later than the watch tells of what was done, and of its end: what comes so late must not bring back what is gone.
///
/// Spec: safety I4, F10; found by seed 24087
#[test]
fn late_answers_make_no_second_run_and_leave_nothing_behind() {
    alone("late-answers", EAST_ONLY, |room| {
        beside_wrong_answers(room, Failing::LateWrites(Duration::from_millis(1500)))
    });
}

/// Whoever wrote cannot know whether it was done.
///
/// Spec: safety I4, F8, F9
#[test]
fn lost_answers_make_no_second_run_and_leave_nothing_behind() {
    alone("lost-answers", EAST_ONLY, |room| {
        beside_wrong_answers(room, Failing::LostAnswers)
    });
}

/// Writes into each of our objects on east, again and again; gives how often.
async fn edit_all_the_time(room: Room, edits: Arc<AtomicUsize>) {
    loop {
        let count = edits.load(Ordering::Relaxed).to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/edit": count}}}));
        let params = PatchParams::default();
        let (jobs, copies) = (room.jobs(EAST), room.workloads(EAST));
        for job in jobs.list(&ListParams::default()).await.into_iter().flatten() {
            // Why the results do not matter: it may be gone by now.
            let done = jobs.patch(&job.name_any(), &params, &patch).await;
            edits.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
        }
        for copy in copies.list(&ListParams::default()).await.into_iter().flatten() {
            let done = copies.patch(&copy.name_any(), &params, &patch).await;
            edits.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Every write of ours may meet a newer object.
///
/// Spec: safety F16, I1, I4
#[test]
fn jobs_end_once_beside_somebody_who_edits_their_copies_all_the_time() {
    alone("edited", EAST_ONLY, |room| async move {
        let edits = Arc::new(AtomicUsize::new(0));
        let mut editor = JoinSet::new();
        editor.spawn(edit_all_the_time(room, edits.clone()));
        for index in 0..6 {
            room.submit(room.job(&format!("job-{index}"), "1", 2)).await;
        }
        for index in 0..6 {
            let job = format!("job-{index}");
            assert_eq!(room.started(&job).await, EAST);
            room.job_is(MANAGER, &job, "Complete").await;
            let workload = room.workload(&job).await.unwrap();
            let sent = workload.annotations().get(DISPATCH_EPOCH).map(String::as_str);
            assert!(matches!(sent, None | Some("1")), "{job} was sent again: {sent:?}");
        }
        room.is_swept().await;
        assert!(edits.load(Ordering::Relaxed) > 50, "somebody was there");
    });
}
