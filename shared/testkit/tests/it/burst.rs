//! Many jobs at once over slow links: more than the manager can decide about at the same time.

use std::time::Duration;

use roadstead_core::dispatch::Bug;
use roadstead_testkit::sim::fault::{Entry, Fault, Link};
use roadstead_testkit::sim::kind::JobKind;
use roadstead_testkit::sim::script::{Act, JobPlan, Script, Spread};
use roadstead_testkit::sim::{Keep, Player};

use crate::plain_worker;

/// More jobs than all queues of the manager handle at once.
const JOBS: u64 = 60;
/// The first of them shows it now; when the dice change, another one will.
const SEEDS: std::ops::Range<u64> = 0..20;

/// All jobs come at once, and each fits everywhere.
fn burst(seed: u64) -> Script {
    let calm = Script::from_seed(seed);
    let start = Duration::from_secs(6);
    let job = |number| JobPlan::plain(&format!("job-{number}"), 1);
    let worker = plain_worker(100);
    Script {
        workers: vec![worker; calm.workers.len()],
        spread: Spread::AllAtOnce,
        kinds: vec![JobKind::Job],
        cpus: 400,
        acts: (0..JOBS)
            .map(|number| (start, Act::Submit(job(number))))
            .collect(),
        faults: (0..=calm.workers.len()).map(slow).enumerate().collect(),
        compares: false,
        ..calm
    }
}

/// The manager's calls to a cluster take up to this long each way.
fn slow(cluster: usize) -> Entry {
    Entry {
        at: Duration::from_secs(6),
        lasts: Duration::from_mins(2),
        fault: Fault::Delay {
            link: Link { from: 0, to: cluster },
            most_ms: 1_500,
        },
    }
}

/// A copy that is withdrawn too early costs a whole new dispatch. It was first seen on real clusters, in a burst that overloaded
/// the machine; single seeds do not show it.
///
/// Spec: safety 1 I15
#[test]
fn in_a_burst_no_copy_is_taken_away_before_the_choice_is_stored() {
    let player = Player::new().unwrap();
    let broken = |script: &Script| player.play(script, Keep::Hash).unwrap().violations;
    let shows_it = |seed: &u64| {
        let plain = burst(*seed);
        assert_eq!(broken(&plain), [""; 0], "seed {seed}");
        let planted = Script {
            bug: Some(Bug::LosersGoEarly),
            ..plain
        };
        broken(&planted)
            .iter()
            .any(|violation| violation.starts_with("I15"))
    };
    assert!(
        SEEDS.into_iter().find(shows_it).is_some(),
        "planted, and not found"
    );
}
