//! A queue that a worker lacks, and that is created while a job waits for it.

use std::time::Duration;

use roadstead_testkit::sim::fault::{Entry, Fault, Space};
use roadstead_testkit::sim::kind::JobKind;
use roadstead_testkit::sim::script::{Act, JobPlan, Script, Skew, Spread};
use roadstead_testkit::sim::{Keep, Player};

use crate::plain_worker;

/// From when and for how long the worker has no namespace, and so no LocalQueue.
const MISSING: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(90));
/// By then the namespace is gone, and the manager knows.
const SUBMITTED: Duration = Duration::from_secs(30);
/// In seconds; shorter than every pause after which the manager looks again anyway.
const SOON: f64 = 3.0;

/// One worker, one job, and no other event that makes the job due.
fn script() -> Script {
    let job = JobPlan::plain("waits", 1);
    let worker = plain_worker(4);
    let queue_missing = Entry {
        at: MISSING.0,
        lasts: MISSING.1,
        fault: Fault::NoNamespace {
            cluster: 1,
            which: Space::Team,
        },
    };
    Script {
        workers: vec![worker],
        spread: Spread::Capacity,
        kinds: vec![JobKind::Job],
        cpus: 8,
        preempts: false,
        processes: vec![Skew::default(); 2],
        servers: vec![Skew::default(); 2],
        acts: vec![(SUBMITTED, Act::Submit(job))],
        faults: vec![(0, queue_missing)],
        compares: false,
        ..Script::from_seed(1)
    }
}

/// When a line of a trace was written, in seconds of the run.
fn at(line: &str) -> f64 {
    line.split(' ').next().unwrap().parse().unwrap()
}

/// On real clusters other events make the job due meanwhile, so a test there passes without the watch.
///
/// Spec: multikueue 4.3
#[test]
fn a_job_that_waits_for_a_workers_queue_goes_there_as_soon_as_it_comes() {
    let outcome = Player::new().unwrap().play(&script(), Keep::Lines).unwrap();
    assert_eq!(outcome.violations, [""; 0]);
    let back = outcome.trace.iter().find(|line| line.ends_with("has Team again"));
    let back = at(back.expect("the queue comes"));
    let is_offer = |line: &&String| line.contains("manager>worker-1 POST") && line.contains("workloads");
    let offer = outcome
        .trace
        .iter()
        .find(is_offer)
        .expect("the job is sent there");
    assert!(at(offer) >= back, "it waits: {offer}");
    assert!(
        at(offer) < back + SOON,
        "nobody looked when the queue came at {back}: {offer}"
    );
}
