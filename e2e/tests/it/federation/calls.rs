//! A manager that dies at each of its API calls in turn, before the call arrives or after it was carried out, and is started again.
//!
//! A fuse in its links counts its calls, also those to its own API server, and kills it. The manager then loses its memory and
//! keeps what it has stored.
//!
//! Why calls are counted by kind (`PATCH jobs/status`): calls of different kinds do not come in the same order each time, so
//! the fifth call would be of one kind in one run and of another in the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_e2e::Link;
use roadstead_e2e::link::{Cut, Failing, Fuse, Side};
use tokio::time::sleep;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone, has, was_sent_once};
use super::unsure::active;
use crate::nightly::or_nightly;
use crate::shared::eventually;

/// More calls than any start needs: a manager that makes so many is in an endless loop.
const CALLS_MAX: u32 = 400;
/// How often the test checks whether the manager has died.
const LOOK: Duration = Duration::from_millis(20);
const ASK_EVERY: u32 = 15;
/// After so many calls in a row that only renew leases, the manager's start is complete.
const IDLE: u32 = or_nightly(2, 5);
/// Some of what every job takes.
const CALLS_FOR_A_JOB: [&str; 6] = [
    "POST workloads",
    "PATCH workloads/status",
    "POST jobs",
    "PATCH jobs/status",
    "DELETE jobs",
    "DELETE workloads",
];
/// Steps from one call of its start at which the manager dies to the next.
const START_STEP: usize = or_nightly(8, 1);
/// Jobs whose calls are counted.
const JOBS: u32 = 4;
/// Most changes to a job and its two Workloads, on both sides, from their creation to their end.
const PATCHES_MAX: u32 = 14;
/// Reads that the manager repeats whatever runs.
const LOOKED_AT_REGULARLY: [&str; 2] = ["configmaps", "/version"];
/// Longer than a test.
const LONG_SECS: u32 = 600;

/// The links on which the manager's calls are counted.
struct Cables {
    room: Room,
    own: Arc<Link>,
}

impl Cables {
    /// Starts the manager again with links to all its API servers.
    async fn lay(room: Room) -> Self {
        let stage = &room.shared.stage;
        let cables = Self {
            room,
            own: stage.detour(MANAGER).await.unwrap(),
        };
        cables.count(&Fuse::unlit());
        stage.restart(MANAGER).await.unwrap();
        cables
    }

    fn count(&self, fuse: &Arc<Fuse>) {
        let stage = &self.room.shared.stage;
        for link in [&*self.own, stage.link(EAST).unwrap(), stage.link(WEST).unwrap()] {
            link.put_in(fuse.clone());
        }
    }

    /// Kills the manager before or after its `call`-th call from now on, of those that count.
    fn kill_at(
        &self,
        call: u32,
        side: Side,
        counts: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Arc<Fuse> {
        let stage = &self.room.shared.stage;
        let fuse = Fuse::new(call, side, counts, || stage.kill(MANAGER).unwrap());
        self.count(&fuse);
        fuse
    }

    async fn start_anew(&self) {
        self.count(&Fuse::unlit());
        self.room.shared.stage.restart(MANAGER).await.unwrap();
    }
}

/// Waits until the manager has died, or `over` is true.
async fn dies_before<F: Future<Output = bool>>(fuse: &Fuse, over: impl Fn() -> F) -> bool {
    for look in 0_u32.. {
        if fuse.burnt_by().is_some() {
            return true;
        }
        // Why rarely: other tests share these API servers.
        if look % ASK_EVERY == 0 && over().await {
            // Why: the fuse might burn later.
            fuse.put_out();
            break;
        }
        sleep(LOOK).await;
    }
    fuse.burnt_by().is_some()
}

/// Submits one job to a manager that dies at one of its calls. The job ends once, and nothing of it stays in the workers.
/// Returns whether the manager made that call.
async fn one_job(cables: &Cables, name: &str, fuse: &Fuse) -> bool {
    let room = cables.room;
    let is_over = || async {
        let job = room.jobs(MANAGER).get_opt(name).await.unwrap();
        let is_swept = room.ours_in(EAST).await.is_empty() && room.ours_in(WEST).await.is_empty();
        job.is_some_and(|job| has(&job, "Complete")) && is_swept
    };
    let dies = async {
        if dies_before(fuse, is_over).await {
            cables.start_anew().await;
        }
    };
    tokio::join!(room.insist(room.job(name, "100m", 0)), dies);
    let job = room.job_is(MANAGER, name, "Complete").await;
    assert_eq!(job.status.unwrap().succeeded, Some(1), "{name}");
    room.is_swept().await;
    fuse.burnt_by().is_some()
}

/// How many calls of each kind a manager makes for a job without a kill.
async fn calls_for_a_job(cables: &Cables) -> Calls {
    let stage = &cables.room.shared.stage;
    let calls = counted(&[&cables.own, stage.link(EAST).unwrap(), stage.link(WEST).unwrap()]);
    run_one(cables.room, "lives").await;
    let calls = calls.lock().unwrap();
    calls.clone()
}

/// The calls of a kind at which the manager dies, and the side: each call on both sides in a nightly run, else the first call
/// of the kinds that every job needs, on alternating sides.
fn deaths(index: usize, kind: &str, count: u32) -> Vec<(u32, Side)> {
    let sides = [Side::Before, Side::After];
    if cfg!(feature = "nightly") {
        return (1..=count)
            .flat_map(|call| sides.map(|side| (call, side)))
            .collect();
    }
    let comes_always = CALLS_FOR_A_JOB.contains(&kind);
    comes_always
        .then_some((1, sides[index % sides.len()]))
        .into_iter()
        .collect()
}

/// Whether a call is repeated as long as the manager lives.
fn renews(call: &str) -> bool {
    call.contains("/leases/")
}

/// Method, resource and subresource of a call: `PATCH jobs/status`.
fn kind_of(call: &str) -> String {
    let (method, path) = call.split_once(' ').unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let at = parts.iter().position(|part| *part == "namespaces");
    let within = at.and_then(|at| parts.get(at + 2..));
    let resource = within.or_else(|| parts.get(4..)).unwrap_or_default();
    match resource {
        [resource, _name, part] => format!("{method} {resource}/{part}"),
        [resource, ..] => format!("{method} {resource}"),
        [] => call.to_owned(),
    }
}

/// The number of calls of each kind, without the repeated ones.
type Calls = BTreeMap<String, u32>;

/// Counts all calls through these links from now on.
fn counted(cables: &[&Link]) -> Arc<Mutex<Calls>> {
    let counted: Arc<Mutex<Calls>> = Arc::default();
    let counts = counted.clone();
    let never = Fuse::new(
        0,
        Side::Before,
        move |call| {
            if !renews(call) {
                *counts.lock().unwrap().entry(kind_of(call)).or_default() += 1;
            }
            false
        },
        || {},
    );
    for cable in cables {
        cable.put_in(never.clone());
    }
    counted
}

/// The reads among them with this verb: kind of object and count.
fn looks(calls: &Calls, verb: &str) -> Vec<(String, u32)> {
    let of_verb = |(call, count): (&String, &u32)| Some((call.strip_prefix(verb)?.to_owned(), *count));
    calls.iter().filter_map(of_verb).collect()
}

/// The manager decides from its watches, and watches continue where they were cut off.
///
/// Spec: multikueue 13.A2, 13.A3; safety I3
#[test]
fn everything_is_listed_once_and_no_job_and_no_cut_makes_the_manager_read_it_again() {
    alone("counted", EVEN, |room| async move {
        let cables = Cables::lay(room).await;
        let stage = &room.shared.stage;
        let (east, west) = (stage.link(EAST).unwrap(), stage.link(WEST).unwrap());
        let calls = counted(&[east]);
        stage.restart(MANAGER).await.unwrap();
        run_one(room, "first").await;
        let once = looks(&calls.lock().unwrap(), "LIST ");
        let kinds: Vec<&str> = once.iter().map(|(kind, _)| kind.as_str()).collect();
        assert!(
            kinds.contains(&"jobs") && kinds.contains(&"workloads"),
            "{once:?}"
        );
        assert!(once.iter().all(|(_, count)| *count == 1), "{once:?}");

        let calls = counted(&[&cables.own, east, west]);
        for index in 0..JOBS {
            run_one(room, &format!("job-{index}")).await;
        }
        let calls = calls.lock().unwrap().clone();
        let reads = ["GET ", "LIST ", "OUTLINES ", "WATCH "].map(|verb| looks(&calls, verb));
        let of_ours = |(kind, _): &(String, u32)| !LOOKED_AT_REGULARLY.contains(&kind.as_str());
        assert!(!reads.iter().flatten().any(of_ours), "{calls:?}");
        let count = |call: &str| calls.get(call).copied().unwrap_or_default();
        // Its Workload and that of one worker, and its job there.
        assert_eq!(count("POST workloads"), 2 * JOBS, "{calls:?}");
        for call in ["POST jobs", "DELETE jobs", "DELETE workloads"] {
            assert_eq!(count(call), JOBS, "{call}: {calls:?}");
        }
        let patches = ["jobs", "jobs/status", "workloads", "workloads/status"];
        let patches: u32 = patches.map(|kind| count(&format!("PATCH {kind}"))).iter().sum();
        assert!(patches <= PATCHES_MAX * JOBS, "{calls:?}");

        let calls = counted(&[east]);
        east.cut(Cut::Refuse);
        eventually(|| async { active(room).await.filter(|(status, _)| status == "False") }).await;
        east.fail(Failing::Counted);
        eventually(|| async { active(room).await.filter(|(status, _)| status == "True") }).await;
        run_one(room, "last").await;
        let calls = calls.lock().unwrap().clone();
        assert_eq!(looks(&calls, "LIST "), [], "{calls:?}");
        assert_eq!(looks(&calls, "WATCH "), once, "each goes on from its version");
        // At each connect the manager reads which cluster it is.
        let is_expected =
            |kind: &str| kind.ends_with("/namespaces/kube-system") || LOOKED_AT_REGULARLY.contains(&kind);
        for (kind, _) in looks(&calls, "GET ") {
            assert!(is_expected(&kind), "{calls:?}");
        }
    });
}

/// One job from its submission until nothing of it is left in the workers.
async fn run_one(room: Room, name: &str) {
    room.submit(room.job(name, "1", 1)).await;
    room.job_is(MANAGER, name, "Complete").await;
    room.is_swept().await;
}

/// Spec: safety F1, I1, I2, I5, I11, I13
#[test]
fn a_manager_that_dies_before_or_after_any_call_for_a_job_runs_it_once() {
    alone("dies-at-call", EVEN, |room| async move {
        let cables = Cables::lay(room).await;
        let calls = calls_for_a_job(&cables).await;
        for call in CALLS_FOR_A_JOB {
            assert!(calls.contains_key(call), "{call} is not among {calls:?}");
        }
        let mut died_at = BTreeMap::new();
        for (index, (kind, count)) in calls.iter().enumerate() {
            for (call, side) in deaths(index, kind, *count) {
                let name = format!("job-{index}-{call}-{side:?}").to_lowercase();
                let of_kind = kind.clone();
                let fuse = cables.kill_at(call, side, move |call| !renews(call) && kind_of(call) == of_kind);
                let died = one_job(&cables, &name, &fuse).await;
                *died_at.entry(kind.as_str()).or_insert(0) += u32::from(died);
                // Later calls of a kind may be more in one run and fewer in another.
                let comes_always = call == 1 && CALLS_FOR_A_JOB.contains(&kind.as_str());
                assert!(died || !comes_always, "it never died at {kind}, {side:?}");
            }
        }
        let deaths: u32 = died_at.values().sum();
        room.shared
            .say(&format!("the manager died {deaths} times, at {died_at:?}"));
    });
}

/// Spec: safety F1, I1, I2, I3, I11, I13
#[test]
fn a_manager_that_dies_at_any_call_of_its_start_moves_no_job_and_forgets_none() {
    alone("dies-at-start", EVEN, |room| async move {
        room.submit(room.job("kept", "6", LONG_SECS)).await;
        let place = room.started("kept").await;
        room.submit(room.job("ends", "6", 5)).await;
        room.started("ends").await;
        let kept = room.jobs(&place).get("kept").await.unwrap().uid();
        let cables = Cables::lay(room).await;
        let stage = &room.shared.stage;
        let (mut died_at, mut idle) = (BTreeSet::new(), 0);
        for (turn, call) in (1..CALLS_MAX).step_by(START_STEP).enumerate() {
            // Why in turn: a read leaves the same state on either side.
            let side = if turn % 2 == 0 { Side::After } else { Side::Before };
            stage.kill(MANAGER).unwrap();
            let fuse = cables.kill_at(call, side, |_| true);
            stage.replace(MANAGER).unwrap();
            assert!(dies_before(&fuse, || async { false }).await);
            let at = fuse.burnt_by().unwrap();
            idle = if renews(&at) { idle + 1 } else { 0 };
            if idle == IDLE {
                break;
            }
            died_at.insert(at);
        }
        // Why once more: an ordinary run plays only some calls, which may all be reads.
        stage.kill(MANAGER).unwrap();
        let fuse = cables.kill_at(1, Side::After, |call| call.starts_with("PATCH"));
        stage.replace(MANAGER).unwrap();
        assert!(dies_before(&fuse, || async { false }).await);
        died_at.insert(fuse.burnt_by().unwrap());
        room.shared.say(&format!(
            "the manager died at {} calls of its start",
            died_at.len()
        ));
        assert!(died_at.iter().any(|at| at.starts_with("LIST")), "{died_at:?}");
        assert!(died_at.iter().any(|at| at.starts_with("PATCH")), "{died_at:?}");
        cables.start_anew().await;
        room.ran_once("ends").await;
        let workload = room.workload("kept").await.unwrap();
        assert!(was_sent_once(&workload), "{:?}", workload.status);
        assert_eq!(room.jobs(&place).get("kept").await.unwrap().uid(), kept);
        let params = DeleteParams::background();
        room.jobs(MANAGER).delete("kept", &params).await.unwrap();
        room.is_swept().await;
    });
}
