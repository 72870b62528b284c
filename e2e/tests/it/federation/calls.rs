//! A manager that dies at each of its API calls in turn, before it arrives or after it was carried out, and is started again.
//!
//! Its calls are counted on cables, also on the one to its own API server, and it is killed by whoever counts. What dies with it
//! is what it knew; what it has stored stays.
//!
//! Why by kind (`PATCH jobs/status`) in the life of a job: calls of different kinds do not come in the same order each time, so
//! the fifth of all would be one kind now and another one then, and a third never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use roadstead_e2e::Link;
use roadstead_e2e::link::{Fuse, Side};
use tokio::time::sleep;

use super::fixture::{EAST, EVEN, MANAGER, Room, WEST, alone, has, was_sent_once};

/// More calls than any start needs: whoever counts as far turns in circles.
const CALLS_MAX: u32 = 400;
/// How often it is looked whether the manager has died, and after how many looks each time whether all is over.
const LOOK: Duration = Duration::from_millis(20);
const ASK_EVERY: u32 = 15;
/// A manager that has only renewed leases so many times in a row has done all that a start asks for.
const IDLE: u32 = 5;
/// Some of what every job takes.
const CALLS_FOR_A_JOB: [&str; 6] = [
    "POST workloads",
    "PATCH workloads/status",
    "POST jobs",
    "PATCH jobs/status",
    "DELETE jobs",
    "DELETE workloads",
];
/// Longer than a test.
const LONG_SECS: u32 = 600;

/// The cables on which the manager's calls are counted.
struct Cables {
    room: Room,
    own: Arc<Link>,
}

impl Cables {
    /// Starts the manager again with cables to all its API servers.
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

    /// The manager dies on that side of its `call`-th call from now on, of those that count.
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

/// Waits until the manager has died, or something is so.
async fn dies_before<F: Future<Output = bool>>(fuse: &Fuse, over: impl Fn() -> F) -> bool {
    for look in 0_u32.. {
        if fuse.burnt_by().is_some() {
            return true;
        }
        // Why seldom: that is asked of API servers which others share.
        if look % ASK_EVERY == 0 && over().await {
            // Why: it may burn until then.
            fuse.put_out();
            break;
        }
        sleep(LOOK).await;
    }
    fuse.burnt_by().is_some()
}

/// One job that is submitted to a manager which dies at one of its calls: it ends once, and nothing of it stays in the workers.
/// Tells whether it came to that call.
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

/// How many calls of each kind a manager that lives makes for a job.
async fn calls_for_a_job(cables: &Cables) -> BTreeMap<String, u32> {
    let counted: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
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
    cables.count(&never);
    assert!(!one_job(cables, "lives", &never).await);
    let counted = counted.lock().unwrap();
    counted.clone()
}

/// Whether this is one of the calls that come again and again for as long as the manager lives.
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
            for (call, side) in (1..=*count).flat_map(|call| [(call, Side::Before), (call, Side::After)]) {
                let name = format!("job-{index}-{call}-{side:?}").to_lowercase();
                let of_kind = kind.clone();
                let fuse = cables.kill_at(call, side, move |call| !renews(call) && kind_of(call) == of_kind);
                let died = one_job(&cables, &name, &fuse).await;
                *died_at.entry(kind.as_str()).or_insert(0) += u32::from(died);
                // Of what comes later there may be more in one life and less in another.
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
        for call in 1..CALLS_MAX {
            // Why in turn: what only looks leaves the same behind on either side.
            let side = if call % 2 == 0 { Side::Before } else { Side::After };
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
        room.shared.say(&format!(
            "the manager died at {} calls of its start",
            died_at.len()
        ));
        assert!(died_at.iter().any(|at| at.starts_with("GET")), "{died_at:?}");
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
