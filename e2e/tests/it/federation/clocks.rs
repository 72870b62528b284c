//! Clocks of machines that are an hour off, or jump: our processes do nothing early, late or twice because of that.
//!
//! The API servers have the right time, as always here. A process's wrong time shows in its leader Lease, whose times are
//! for users and come from its machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::labels::{MAX_EXEC_TIME_SECONDS, MULTIKUEUE_ORIGIN};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_e2e::link::{Cut, Failing};
use roadstead_e2e::stage::{Queue, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, EVEN, GPU, MANAGER, Room, WEST, alone, cluster_name, condition};
use super::once::{guarded, lost_policy, obedient, starts_again, stops};
use super::watched::Watched;
use crate::shared::eventually;

/// The Lease of the replica that leads.
const LEADS: &str = "c1f6bfd2.kueue.x-k8s.io";
const CERTIFICATE: &str = "kueue-webhook-server-cert";
const ISSUED_AT: &str = "roadstead.dev/issued-at";
const EXPIRES_AT: &str = "roadstead.dev/expires-at";

const AHEAD: SignedDuration = SignedDuration::from_hours(1);
const BEHIND: SignedDuration = SignedDuration::from_hours(-1);
const RIGHT: SignedDuration = SignedDuration::ZERO;
/// All are off, and no two that talk about a job agree.
const OFF: Clocks = [(MANAGER, AHEAD), (EAST, BEHIND), (WEST, AHEAD)];
/// By how many millionths clocks run fast or slowly: together almost a tenth, which a lease allows for.
#[cfg(feature = "nightly")]
const DRIFT_PPM: i32 = 45_000;
/// What a date may be off by: dates are whole seconds, and what is dated is seen later.
const EXACT: SignedDuration = SignedDuration::from_secs(20);
/// Longer than a lease of ten seconds, and than the manager waits for a fence.
const LONG: u32 = 25;
/// How long nothing may happen to a credential that is not due.
const QUIET: Duration = Duration::from_secs(4);

/// By how much the clock is off that each process has.
type Clocks = [(&'static str, SignedDuration); 3];

/// Lets the clocks of running processes jump.
async fn jump(room: Room, clocks: Clocks) {
    for (cluster, off) in clocks {
        room.shared.stage.set_clock(cluster, off).await.unwrap();
    }
}

/// Starts all processes anew with these clocks, and waits until they were seen to have them.
async fn restart(room: Room, clocks: Clocks) {
    jump(room, clocks).await;
    for (cluster, _) in clocks {
        room.shared.stage.restart(cluster).await.unwrap();
    }
    are_off(room, clocks).await;
    for (cluster, off) in clocks {
        let log = fs::read_to_string(room.shared.stage.log(cluster).unwrap()).unwrap();
        let says = log.contains("the clock of this machine is off by");
        assert!(says || off == RIGHT, "{cluster} says nothing of its clock");
    }
}

/// Waits until each process was seen to have its clock.
async fn are_off(room: Room, clocks: Clocks) {
    for (cluster, off) in clocks {
        let leases: Api<Lease> = Api::namespaced(room.shared.client(cluster), SYSTEM_NAMESPACE);
        eventually(|| async {
            let lease = leases.get(LEADS).await.ok()?;
            let believes = lease.spec?.renew_time?.0.duration_since(Timestamp::now());
            ((believes - off).abs() < EXACT).then_some(())
        })
        .await;
    }
}

/// What the manager says of each worker, and since when: condition, status, time.
async fn standing(room: Room) -> Vec<(String, String, String, Value)> {
    let clusters: Api<MultiKueueCluster> = Api::all(room.shared.client(MANAGER));
    let mut standing = Vec::new();
    for worker in [EAST, WEST] {
        let conditions = clusters.get(worker).await.unwrap().status.unwrap().conditions;
        standing.extend(conditions.into_iter().map(|each| {
            let since = json!(each.last_transition_time);
            (worker.to_owned(), each.type_, each.status, since)
        }));
    }
    standing
}

/// The Secrets by which the manager comes to its workers.
async fn credentials(room: Room) -> BTreeMap<String, Secret> {
    let secrets: Api<Secret> = Api::namespaced(room.shared.client(MANAGER), SYSTEM_NAMESPACE);
    let all = secrets.list(&ListParams::default()).await.unwrap().items;
    let of = |worker: &'static str| {
        let found = all.iter().find(|secret| secret.name_any().ends_with(worker));
        (worker.to_owned(), found.unwrap().clone())
    };
    [EAST, WEST].map(of).into()
}

/// No credential was renewed in the first half of its life. A manager with a wrong time would renew it again and again.
async fn none_was_due(room: Room, before: &BTreeMap<String, Secret>) {
    let time = |secret: &Secret, key: &str| -> Timestamp { secret.annotations()[key].parse().unwrap() };
    for (worker, now) in credentials(room).await {
        let before = &before[&worker];
        let life = time(before, EXPIRES_AT).duration_since(time(before, ISSUED_AT));
        let age = time(&now, ISSUED_AT).duration_since(time(before, ISSUED_AT));
        assert!(
            now.data == before.data || age > life / 2,
            "that of {worker} was renewed after {age}"
        );
    }
}

/// Its conditions have times of the right clock, whichever process wrote them.
fn is_dated_right(workload: &Workload, begun: Timestamp) {
    for each in &workload.status.as_ref().unwrap().conditions {
        let since = each.last_transition_time.0;
        let (first, last) = (begun - EXACT, Timestamp::now() + EXACT);
        assert!(first <= since && since <= last, "{} since {since}", each.type_);
    }
}

fn limited(mut job: Value, seconds: u32) -> Value {
    job["metadata"]["labels"][MAX_EXEC_TIME_SECONDS] = json!(seconds.to_string());
    job
}

/// Waits until a job was stopped because its time is up. Returns for how long it ran as far as was seen.
async fn time_is_up(room: Room, job: &str) -> Duration {
    room.workload_where(job, |workload| {
        let evicted = condition(workload, "Evicted").filter(|(status, ..)| status == "True");
        evicted.is_some_and(|(_, reason, _)| reason == "DeactivatedDueToMaximumExecutionTimeExceeded")
    })
    .await;
    room.shared.started(room.name, job).unwrap().0.elapsed()
}

/// A federation in which all is well, and what must not change in it.
struct Calm {
    standing: Vec<(String, String, String, Value)>,
    credentials: BTreeMap<String, Secret>,
    /// They see every job that is started.
    sent: [Watched<Job>; 2],
}

impl Calm {
    /// Both workers look at their leases, and run one job of which each is almost full.
    async fn begin(room: Room) -> Self {
        for worker in [EAST, WEST] {
            guarded(room, worker).await;
        }
        room.submit(room.job("first", "1", 1)).await;
        room.ran_once("first").await;
        let (standing, credentials) = (standing(room).await, credentials(room).await);
        let in_east = Watched::start(&room.jobs(EAST), MULTIKUEUE_ORIGIN).await;
        let in_west = Watched::start(&room.jobs(WEST), MULTIKUEUE_ORIGIN).await;
        let mut places = Vec::new();
        for name in ["wide-0", "wide-1"] {
            room.submit(obedient(room.job(name, "6", LONG))).await;
            places.push(room.started(name).await);
        }
        places.sort();
        assert_eq!(places, [EAST, WEST]);
        Self {
            standing,
            credentials,
            sent: [in_east, in_west],
        }
    }

    /// Those two and these jobs were sent once each, and the manager considered no worker lost and no credential due.
    async fn was_kept(self, room: Room, jobs: &[&str]) {
        room.is_swept().await;
        let mut sent = Vec::new();
        for jobs in self.sent {
            sent.extend(jobs.created().await);
        }
        sent.sort();
        let mut wanted = [jobs, &["wide-0", "wide-1"]].concat();
        wanted.sort_unstable();
        assert_eq!(sent, wanted);
        assert_eq!(standing(room).await, self.standing, "no worker was thought lost");
        none_was_due(room, &self.credentials).await;
    }
}

/// Spec: safety F18, I1, I3, I11; multikueue 10.F41
#[test]
fn with_clocks_an_hour_off_jobs_run_once_on_either_worker_and_limits_count_as_they_should() {
    alone("clocks-off", EVEN, |room| async move {
        let stage = &room.shared.stage;
        lost_policy(room, "Fence").await;
        // Those whose clock is ahead make their certificates by it, and API servers must take them all the same.
        for cluster in [MANAGER, WEST] {
            stage.kill(cluster).unwrap();
            let secrets: Api<Secret> = Api::namespaced(room.shared.client(cluster), SYSTEM_NAMESPACE);
            let params = DeleteParams::default();
            secrets.delete(CERTIFICATE, &params).await.unwrap();
        }
        restart(room, OFF).await;
        let begun = Timestamp::now();
        let calm = Calm::begin(room).await;
        room.submit(limited(room.job("within", "1", 3), 60)).await;
        room.submit(limited(room.job("overruns", "1", 600), 6)).await;
        let mut fleeting = room.job("fleeting", "1", 1);
        fleeting["spec"]["ttlSecondsAfterFinished"] = json!(0);
        room.submit(fleeting).await;
        let took = time_is_up(room, "overruns").await;
        room.shared
            .say(&format!("clocks-off: a limit of 6 s ended a job after {took:?}"));
        assert!((4..20).contains(&took.as_secs()), "{took:?}");
        for job in ["within", "fleeting", "wide-0", "wide-1"] {
            room.ran_once(job).await;
        }
        for job in ["overruns", "within", "fleeting", "wide-0", "wide-1"] {
            is_dated_right(&room.workload(job).await.unwrap(), begun);
        }
        calm.was_kept(room, &["fleeting", "overruns", "within"]).await;
    });
}

/// Spec: safety F18, I1; multikueue 3.15
#[test]
fn with_clocks_an_hour_off_the_worker_whose_nodes_have_room_gets_the_job() {
    alone("clocks-nodes", EVEN, |room| async move {
        restart(room, OFF).await;
        let begun = Timestamp::now();
        let quota = [("cpu", "8"), (GPU, "2")];
        let queue = [MANAGER, EAST, WEST]
            .into_iter()
            .fold(Queue::new("clocks-asks"), |queue, cluster| {
                queue.with_quota(cluster, &quota)
            });
        let room = Room::open(room.shared, "clocks-asks", queue.asking_capacity()).await;
        let mut job = room.job("needs-gpu", "1", 4);
        let resources = &mut job["spec"]["template"]["spec"]["containers"][0]["resources"];
        *resources = json!({"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}});
        room.submit(job).await;
        // East is asked first and has the quota, but none of its nodes has a GPU.
        assert_eq!(room.started("needs-gpu").await, WEST);
        room.ran_once("needs-gpu").await;
        is_dated_right(&room.workload("needs-gpu").await.unwrap(), begun);
        room.is_swept().await;
        room.stays_clean();
    });
}

/// Spec: safety F18, I1, I3, I11
#[test]
fn clocks_that_jump_while_jobs_run_change_nothing() {
    const HOURS: SignedDuration = SignedDuration::from_hours(2);
    alone("clocks-jump", EVEN, |room| async move {
        lost_policy(room, "Fence").await;
        let right = [MANAGER, EAST, WEST].map(|cluster| (cluster, RIGHT));
        restart(room, right).await;
        let begun = Timestamp::now();
        let calm = Calm::begin(room).await;
        let mut names = Vec::new();
        let jumps = [
            [(MANAGER, -HOURS), (EAST, HOURS), (WEST, BEHIND)],
            right,
            [(MANAGER, HOURS), (EAST, -HOURS), (WEST, AHEAD)],
            right,
        ];
        for (round, clocks) in jumps.into_iter().enumerate() {
            let (early, late) = (format!("early-{round}"), format!("late-{round}"));
            room.submit(limited(room.job(&early, "1", 2), 60)).await;
            room.started(&early).await;
            jump(room, clocks).await;
            room.submit(limited(room.job(&late, "1", 1), 60)).await;
            are_off(room, clocks).await;
            for job in [early, late] {
                room.ran_once(&job).await;
                names.push(job);
            }
        }
        for job in names.iter().map(String::as_str).chain(["wide-0", "wide-1"]) {
            room.ran_once(job).await;
            is_dated_right(&room.workload(job).await.unwrap(), begun);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        calm.was_kept(room, &names).await;
    });
}

/// A job whose worker is cut off since then stops there before it starts elsewhere. Returns how long each took.
async fn stops_and_moves(room: Room, first: &str, cut: Instant) -> (Duration, Duration) {
    let second = if first == EAST { WEST } else { EAST };
    stops(room, "moves", first, second).await;
    let stopped = cut.elapsed();
    starts_again(room, "moves", first, second).await;
    let next = cut.elapsed();
    room.shared.say(&format!(
        "{}: it stopped after {stopped:?} and ran elsewhere after {next:?}",
        room.name
    ));
    room.workload_where("moves", |w| cluster_name(w).as_deref() == Some(second))
        .await;
    room.shared.stage.link(first).unwrap().heal();
    room.is_swept_in(first).await;
    let params = DeleteParams::background();
    room.jobs(MANAGER).delete("moves", &params).await.unwrap();
    room.is_swept().await;
    (stopped, next)
}

/// Spec: safety F18, 3.2 to 3.5, I1
#[test]
fn with_clocks_off_and_jumping_a_worker_cut_off_past_its_lease_stops_its_job_before_the_next_copy_starts() {
    alone("clocks-fence", EVEN, |room| async move {
        let stage = &room.shared.stage;
        lost_policy(room, "Fence").await;
        restart(room, OFF).await;
        room.submit(obedient(room.job("moves", "1", 600))).await;
        let first = room.started("moves").await;
        guarded(room, &first).await;
        stage.link(&first).unwrap().cut(Cut::Swallow);
        let cut = Instant::now();
        // By these the lease was over long ago, or lasts for hours.
        jump(
            room,
            [(MANAGER, AHEAD * 2), (EAST, AHEAD * 2), (WEST, BEHIND * 2)],
        )
        .await;
        let (stopped, next) = stops_and_moves(room, &first, cut).await;
        // A lease of ten seconds; at most one renewal was under way.
        assert!((8..25).contains(&stopped.as_secs()), "{stopped:?}");
        assert!(stopped < next && next < Duration::from_mins(1), "{next:?}");
    });
}

/// The manager's clocks run fast and those of the workers slowly, so that it believes too early that a fence has fallen.
///
/// Spec: safety F18, 3.2 to 3.5, I1
#[cfg(feature = "nightly")]
#[test]
fn with_clocks_that_drift_apart_a_lost_job_stops_before_its_next_copy_starts_and_the_others_stay() {
    alone("clocks-drift", EVEN, |room| async move {
        let stage = &room.shared.stage;
        lost_policy(room, "Fence").await;
        for (cluster, ppm) in [(MANAGER, DRIFT_PPM), (EAST, -DRIFT_PPM), (WEST, -DRIFT_PPM)] {
            stage.set_drift(cluster, ppm).await.unwrap();
            stage.restart(cluster).await.unwrap();
        }
        let begun = Timestamp::now();
        let calm = Calm::begin(room).await;
        calm.was_kept(room, &[]).await;
        for job in ["wide-0", "wide-1"] {
            room.ran_once(job).await;
            is_dated_right(&room.workload(job).await.unwrap(), begun);
        }
        room.submit(obedient(room.job("moves", "1", 600))).await;
        let first = room.started("moves").await;
        stage.link(&first).unwrap().cut(Cut::Swallow);
        let cut = Instant::now();
        let (stopped, next) = stops_and_moves(room, &first, cut).await;
        assert!(stopped < next, "{stopped:?}, {next:?}");
    });
}

/// All that the manager reads of its workers is dated wrongly, by an hour and in opposite directions.
///
/// Spec: safety F18, W1, I1, I3, I11
#[test]
fn workers_that_date_everything_wrongly_get_and_keep_their_jobs_as_others_do() {
    alone("clocks-misdated", EVEN, |room| async move {
        let stage = &room.shared.stage;
        lost_policy(room, "Fence").await;
        let begun = Timestamp::now();
        let calm = Calm::begin(room).await;
        for (worker, off) in [(EAST, AHEAD), (WEST, BEHIND)] {
            stage.link(worker).unwrap().fail(Failing::Misdated(off.as_secs()));
        }
        room.submit(limited(room.job("within", "1", 3), 60)).await;
        room.submit(limited(room.job("overruns", "1", 600), 6)).await;
        let took = time_is_up(room, "overruns").await;
        room.shared.say(&format!(
            "clocks-misdated: a limit of 6 s ended a job after {took:?}"
        ));
        assert!((4..20).contains(&took.as_secs()), "{took:?}");
        room.ran_once("within").await;
        let mut ends = Vec::new();
        for job in ["wide-0", "wide-1"] {
            let job = room.job_is(MANAGER, job, "Complete").await;
            ends.push(job.status.unwrap().completion_time.unwrap().0);
        }
        // Of an end that is dated before its start the manager says that it was then.
        let is_off = |end: &Timestamp| end.duration_since(Timestamp::now()) > AHEAD / 2;
        assert!(ends.iter().any(is_off), "{ends:?}: nothing was dated wrongly");
        calm.was_kept(room, &["overruns", "within"]).await;
        for job in ["overruns", "within", "wide-0", "wide-1"] {
            is_dated_right(&room.workload(job).await.unwrap(), begun);
        }
    });
}

/// What one process has dated, the next one counts from, on a machine with another clock.
///
/// Spec: safety F18, I1, I13
#[cfg(feature = "nightly")]
#[test]
fn processes_that_come_back_with_another_clock_end_no_job_early_and_none_late() {
    alone("clocks-restart", EVEN, |room| async move {
        restart(room, [(MANAGER, AHEAD), (EAST, AHEAD), (WEST, AHEAD)]).await;
        room.submit(limited(room.job("overruns", "1", 600), 20)).await;
        room.started("overruns").await;
        restart(room, [(MANAGER, BEHIND), (EAST, BEHIND), (WEST, BEHIND)]).await;
        let took = time_is_up(room, "overruns").await;
        room.shared.say(&format!(
            "clocks-restart: a limit of 20 s ended a job after {took:?}"
        ));
        assert!((18..40).contains(&took.as_secs()), "{took:?}");
        for name in ["within-0", "within-1"] {
            room.submit(limited(room.job(name, "6", LONG), 300)).await;
        }
        for name in ["within-0", "within-1"] {
            room.started(name).await;
        }
        restart(room, [(MANAGER, AHEAD), (EAST, AHEAD), (WEST, AHEAD)]).await;
        for name in ["within-0", "within-1"] {
            room.ran_once(name).await;
        }
        room.is_swept().await;
    });
}

/// Spec: safety F18, F19, safety 6
#[test]
fn a_credential_is_renewed_when_it_is_due_by_the_servers_clock_and_only_then() {
    alone("clocks-token", EVEN, |room| async move {
        let secrets: Api<Secret> = Api::namespaced(room.shared.client(MANAGER), SYSTEM_NAMESPACE);
        let only = |off| [(MANAGER, off), (EAST, RIGHT), (WEST, RIGHT)];
        let first = credentials(room).await;
        restart(room, only(BEHIND)).await;
        let minutes = |count: i64| (Timestamp::now() + SignedDuration::from_mins(count)).to_string();
        let due = json!({"metadata": {"annotations": {ISSUED_AT: minutes(-50), EXPIRES_AT: minutes(10)}}});
        let (name, params) = (first[EAST].name_any(), PatchParams::default());
        secrets.patch(&name, &params, &Patch::Merge(&due)).await.unwrap();
        eventually(|| async {
            let renewed = secrets.get(&name).await.ok()?;
            (renewed.data != first[EAST].data).then_some(())
        })
        .await;
        restart(room, only(AHEAD)).await;
        let tokens = credentials(room).await;
        let until = Instant::now() + QUIET;
        while Instant::now() < until {
            none_was_due(room, &tokens).await;
            sleep(Duration::from_millis(250)).await;
        }
        room.submit(room.job("afterwards", "1", 1)).await;
        room.ran_once("afterwards").await;
        room.is_swept().await;
    });
}
