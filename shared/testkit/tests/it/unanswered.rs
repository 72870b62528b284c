//! Two troubles at once: a state is stored on the manager and does not show there.

use std::time::Duration;

use roadstead_api::config::WorkerLostPolicy;
use roadstead_core::dispatch::Bug;
use roadstead_testkit::sim::fault::{Entry, Fault, Link, Right, Way};
use roadstead_testkit::sim::kind::JobKind;
use roadstead_testkit::sim::script::{Act, JobPlan, Script, Skew, Spread};
use roadstead_testkit::sim::{Keep, Player};

use crate::plain_worker;

/// Index of the manager's process, and of its cluster.
const MANAGER: usize = 0;
/// Index of the worker's process, and of its cluster.
const WORKER: usize = 1;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One worker, one job, and these troubles.
fn script(lost: WorkerLostPolicy, run_secs: i64, faults: &[(Duration, Duration, Fault)]) -> Script {
    let job = JobPlan::plain("once", run_secs);
    let worker = plain_worker(4);
    let entry = |&(at, lasts, fault): &_| Entry { at, lasts, fault };
    Script {
        workers: vec![worker],
        spread: Spread::Capacity,
        lost,
        by_queue: false,
        kinds: vec![JobKind::Job],
        cpus: 8,
        preempts: false,
        processes: vec![Skew::default(); 2],
        servers: vec![Skew::default(); 2],
        acts: vec![(secs(9), Act::Submit(job))],
        lost_after: secs(30),
        faults: (0..).zip(faults.iter().map(entry)).collect(),
        compares: false,
        ..Script::from_seed(1)
    }
}

/// The manager may not write jobs until its worker has ended this one and has then lost it: no end is left to show. The manager
/// learns of that while the worker counts as lost, so the worker's return must make the job due once more.
///
/// Spec: multikueue 3.3, safety I3, F15, F19
#[test]
fn a_job_whose_end_could_not_be_shown_has_ended_after_its_worker_has_lost_it() {
    let denied = Fault::Deny {
        link: Link {
            from: MANAGER,
            to: MANAGER,
        },
        right: Right::Jobs,
    };
    let rewound = Fault::Rewind { cluster: WORKER };
    // Each length shifts the retries that happen meanwhile.
    let scripts = [60, 70, 80, 90].map(|lasts| {
        let faults = [
            (secs(10), secs(lasts - 5), denied),
            (secs(8), secs(lasts), rewound),
        ];
        script(WorkerLostPolicy::RetryAnyway, 5, &faults)
    });
    are_only_broken_by(Bug::NoLookAfterBreak, "I3", scripts);
}

/// Why the bug: if none of the scripts shows it, none would show that the fix is missing.
fn are_only_broken_by<const N: usize>(bug: Bug, invariant: &str, scripts: [Script; N]) {
    let player = Player::new().unwrap();
    let broken = |script: &Script| player.play(script, Keep::Hash).unwrap().violations;
    for script in &scripts {
        assert_eq!(broken(script), [""; 0]);
    }
    let shows_it = |script: Script| {
        let planted = Script {
            bug: Some(bug),
            ..script
        };
        broken(&planted).iter().any(|words| words.starts_with(invariant))
    };
    assert!(scripts.into_iter().any(shows_it), "planted, and not found");
}

/// The worker takes the copy while the manager can only write: neither its answers nor its watches come back. Then the worker is
/// cut off and stops the copy. The stored status names that copy, so it stays until the manager knows the status.
///
/// Spec: safety F9, I15
#[test]
fn a_copy_that_was_perhaps_chosen_stays_until_what_is_stored_is_known() {
    let cut = |from, to, way| Fault::Cut {
        link: Link { from, to },
        way,
    };
    let faults = [
        (secs(8), secs(20), cut(WORKER, WORKER, Way::Both)),
        (secs(12), secs(150), cut(MANAGER, MANAGER, Way::Answers)),
        (secs(40), secs(40), cut(MANAGER, WORKER, Way::Both)),
    ];
    let script = script(WorkerLostPolicy::Fence, 60, &faults);
    are_only_broken_by(Bug::LosersGoEarly, "I15", [script]);
}
