//! Changes in a worker that no watch reports, because all watches stay open and silent, or because they lose events.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_api::constants::labels::MULTIKUEUE_ORIGIN;
use roadstead_e2e::link::Failing;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::capacity::shows_one;
use super::fixture::{EAST, MANAGER, Room, WEST, alone, cluster_name, has, was_sent_once};
use super::stale::is_held_in_east;
use super::unsure::active;
use super::watched::Watched;
use crate::shared::eventually;

/// A job of 6 CPU fits only into east, one of 3 beside it only into west, and then one of 1 into both, with more room in east.
const EAST_IS_LARGER: &[(&str, &str)] = &[(MANAGER, "16"), (EAST, "8"), (WEST, "4")];
/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// Longer than a test: such a job ends only when it is stopped.
const LONG_SECS: u32 = 600;

/// The manager considers a watch dead after this much silence.
const SILENCE: Duration = Duration::from_secs(150);
/// How much later at most the manager knows the missed changes.
const LATE: Duration = Duration::from_secs(15);
/// Precision of the time at which the silence began.
const OPENED: Duration = Duration::from_secs(5);
/// Kinds that the manager watches in a worker.
const KINDS: u32 = 4;
/// Seconds of silence that an administrator would notice: API servers send something about every minute.
const LAG_SEEN: f64 = 120.0;
/// Longest wait of a job for its place beside a silent worker.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Longest wait if the job is offered to that worker first: after ten seconds the manager asks others too.
const ASKED_MAX: Duration = Duration::from_secs(20);
/// How often the test reads the manager's state.
const LOOK: Duration = Duration::from_millis(500);

/// Lets the pod of a job end well, so that nothing depends on how long something takes.
pub(super) async fn end(room: Room, cluster: &str, job: &str) {
    room.runs_in(cluster, job).await;
    let pods: Api<Pod> = room.api(cluster);
    let of_job = ListParams::default().labels(&format!("job-name={job}"));
    let pod = pods.list(&of_job).await.unwrap().items.remove(0).name_any();
    let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let params = PatchParams::default();
    pods.patch_status(&pod, &params, &done).await.unwrap();
}

/// Ends a job in east and waits until all there know.
async fn end_in_east(room: Room, job: &str) {
    end(room, EAST, job).await;
    room.job_is(EAST, job, "Complete").await;
    let name = room.workload(job).await.unwrap().name_any();
    let finished = async || Some(room.workloads(EAST).get(&name).await.ok()?.is_true("Finished"));
    eventually(|| async { finished().await.filter(|finished| *finished) }).await;
}

/// A job that the manager knows to run in east.
async fn runs_in_east(room: Room, job: &str, cpu: &str) {
    room.submit(room.job(job, cpu, LONG_SECS)).await;
    assert_eq!(room.started(job).await, EAST);
    room.workload_where(job, is_held_in_east).await;
    room.runs_in(MANAGER, job).await;
}

/// For the manager it runs in east, as before and for the first time.
async fn is_believed_to_run(room: Room, job: &str) {
    let workload = room.workload(job).await.unwrap();
    let as_before = is_held_in_east(&workload) && was_sent_once(&workload);
    assert!(as_before, "{:?}", workload.status);
    let status = room.jobs(MANAGER).get(job).await.unwrap().status.unwrap();
    assert_eq!(status.ready, Some(1), "{status:?}");
}

/// The longest of the silences that the manager shows of the watches of jobs and Workloads in east, in seconds.
async fn watch_lag(room: Room) -> f64 {
    let mut longest: f64 = 0.0;
    for kind in ["Job", "Workload"] {
        let start = format!("roadstead_cluster_watch_lag_seconds{{cluster=\"{EAST}\",kind=\"{kind}\"}} ");
        let lines = room.shared.metrics(MANAGER, &start).await;
        for secs in lines.iter().filter_map(|line| line.strip_prefix(&start)) {
            longest = longest.max(secs.parse().unwrap());
        }
    }
    longest
}

/// Looks on until the manager knows of the end of a job in east, without a connection that is lost and without another run. Gives
/// the longest silence that it has shown meanwhile.
async fn learns_of_its_end(room: Room, job: &str, silent: Instant) -> f64 {
    let connected = active(room).await.unwrap();
    assert_eq!(connected.0, "True");
    let mut lag: f64 = 0.0;
    loop {
        let knows = has(&room.jobs(MANAGER).get(job).await.unwrap(), "Complete");
        let workload = room.workload(job).await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
        assert_eq!(cluster_name(&workload).as_deref(), Some(EAST));
        assert!(room.jobs(WEST).get_opt(job).await.unwrap().is_none());
        let now = active(room).await.unwrap();
        assert_eq!(now, connected, "requests are answered all the time");
        if knows {
            return lag;
        }
        let waited = silent.elapsed();
        assert!(waited < SILENCE + LATE, "after {waited:?} it is not known");
        lag = lag.max(watch_lag(room).await);
        sleep(LOOK).await;
    }
}

/// Spec: safety F11, I1, I2, I12
#[test]
fn what_ends_while_watches_say_nothing_is_known_after_one_limit_and_holds_up_nobody() {
    alone("silent-watches", EAST_IS_LARGER, |room| async move {
        let in_east = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let in_west = Watched::start(&room.jobs(WEST), MULTIKUEUE_ORIGIN).await;
        runs_in_east(room, "survivor", "6").await;
        let link = room.shared.stage.link(EAST).unwrap();
        let before = link.failed();
        link.fail(Failing::SilentWatches);
        eventually(|| async { (link.failed() >= before + KINDS).then_some(()) }).await;
        let silent = Instant::now();
        eventually(|| async { active(room).await.filter(|(status, _)| status == "True") }).await;
        end_in_east(room, "survivor").await;

        let submitted = Instant::now();
        room.submit(room.job("elsewhere", "3", LONG_SECS)).await;
        assert_eq!(room.started("elsewhere").await, WEST);
        let elsewhere = submitted.elapsed();
        assert!(elsewhere <= WAIT_MAX, "{elsewhere:?}");
        // Why: until the queue of west shows this job, the manager believes that it has more room than east.
        shows_one(room, WEST).await;
        // East is asked first and takes the job, and the manager does not hear of it.
        let submitted = Instant::now();
        room.submit(room.job("asked", "1", 1)).await;
        eventually(|| async {
            let name = room.workload("asked").await?.name_any();
            let copy = room.workloads(EAST).get_opt(&name).await.unwrap()?;
            copy.is_true("QuotaReserved").then_some(())
        })
        .await;
        assert_eq!(room.started("asked").await, WEST);
        let asked = submitted.elapsed();
        assert!(asked <= ASKED_MAX, "{asked:?}");
        room.job_is(MANAGER, "asked", "Complete").await;
        is_believed_to_run(room, "survivor").await;

        let lag = learns_of_its_end(room, "survivor", silent).await;
        let known = silent.elapsed();
        room.shared.say(&format!(
            "jobs were placed beside silent watches in {elsewhere:?} and {asked:?}; an end was known after {known:?}, the longest lag \
             shown was {lag} s"
        ));
        assert!(known + OPENED > SILENCE, "a watch has told it after {known:?}");
        assert!(lag > LAG_SEEN, "{lag} s");
        // What was listed is a sign of life; the watches that are opened then are silent as well.
        eventually(|| async { (watch_lag(room).await < LAG_SEEN / 2.0).then_some(()) }).await;
        eventually(|| async { (link.failed() >= before + 2 * KINDS).then_some(()) }).await;

        link.heal();
        end(room, WEST, "elsewhere").await;
        room.job_is(MANAGER, "elsewhere", "Complete").await;
        room.submit(room.job("afterwards", "6", 1)).await;
        assert_eq!(room.started("afterwards").await, EAST);
        for job in ["survivor", "afterwards"] {
            let ended = room.job_is(MANAGER, job, "Complete").await;
            assert_eq!(ended.status.unwrap().succeeded, Some(1), "{job}");
        }
        room.is_swept().await;
        assert_eq!(in_east.created().await, ["survivor", "afterwards"]);
        assert_eq!(in_west.created().await, ["elsewhere", "asked"]);
    });
}

/// Another job comes and goes in east, and the manager hears of it: watches have gone past all that was before, which nothing that
/// they tell later will bring.
async fn goes_on(room: Room, job: &str) {
    room.submit(room.job(job, "1", 1)).await;
    assert_eq!(room.started(job).await, EAST);
    room.job_is(MANAGER, job, "Complete").await;
}

/// From now on watches leave out all that is about this job. Gives how often something went wrong before.
async fn leave_out(room: Room, job: &'static str) -> u32 {
    let link = room.shared.stage.link(EAST).unwrap();
    let before = link.failed();
    link.fail(Failing::LostEvents(job));
    // Why: the connection was lost for that, and what happens before the watches are open again is found by comparing.
    goes_on(room, "before-it").await;
    before
}

/// Spec: safety F12, I2, I11
#[test]
fn an_end_that_watches_have_left_out_is_found_once_a_connection_was_lost() {
    alone("missed-end", EAST_ONLY, |room| async move {
        runs_in_east(room, "hidden", "1").await;
        let before = leave_out(room, "hidden").await;
        end_in_east(room, "hidden").await;
        goes_on(room, "next").await;
        let link = room.shared.stage.link(EAST).unwrap();
        let lost = link.failed() - before;
        assert!(lost >= 2, "of its job and of its Workload: {lost} events");
        is_believed_to_run(room, "hidden").await;

        link.heal();
        let healed = Instant::now();
        let ended = room.job_is(MANAGER, "hidden", "Complete").await;
        room.shared.say(&format!(
            "{lost} events were left out; found {:?} after the connection was lost",
            healed.elapsed()
        ));
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        let workload = room.workload("hidden").await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
        room.is_swept().await;
    });
}

/// Takes an object away by force, so that no finalizer keeps it.
async fn take_away<K>(of: Api<K>, name: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    of.delete(name, &DeleteParams::background()).await.unwrap();
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // Why ignored: the object may be gone by now.
    let _ = of.patch(name, &PatchParams::default(), &bare).await;
    eventually(|| async { of.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
}

/// Spec: safety F12, I2; multikueue 13.B2
#[test]
fn a_copy_whose_deletion_watches_have_left_out_is_missed_once_a_connection_was_lost_and_runs_again() {
    alone("missed-deletion", EAST_ONLY, |room| async move {
        runs_in_east(room, "vanished", "1").await;
        let name = room.workload("vanished").await.unwrap().name_any();
        let first = room.jobs(EAST).get("vanished").await.unwrap().uid();
        let before = leave_out(room, "vanished").await;
        take_away(room.jobs(EAST), "vanished").await;
        take_away(room.workloads(EAST), &name).await;
        goes_on(room, "next").await;
        let link = room.shared.stage.link(EAST).unwrap();
        let lost = link.failed() - before;
        assert!(lost >= 2, "of its job and of its Workload: {lost} events");
        is_believed_to_run(room, "vanished").await;

        link.heal();
        // Why: a deletion may still come until a watch has gone past the moment at which it was looked what is there. It does
        // that with its next event, or with a bookmark within about a minute.
        goes_on(room, "after-it").await;
        let healed = Instant::now();
        let again = eventually(|| async {
            let copy = room.jobs(EAST).get_opt("vanished").await.unwrap()?;
            (copy.uid() != first).then_some(copy)
        })
        .await;
        room.shared.say(&format!(
            "{lost} events were left out; it was made again {:?} after watches had gone on",
            healed.elapsed()
        ));
        assert_eq!(
            again.annotations().get(DISPATCH_EPOCH).map(String::as_str),
            Some("2")
        );
        end(room, EAST, "vanished").await;
        let ended = room.job_is(MANAGER, "vanished", "Complete").await;
        assert_eq!(ended.status.unwrap().succeeded, Some(1));
        room.is_swept().await;
    });
}
