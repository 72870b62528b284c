//! The demo as the README starts it: embedded control planes, our real processes, the accident.

use std::time::Duration;

use clap::Parser;
use roadstead_e2e::demo::{self, Args};
use tokio::time::timeout;

use crate::shared::chain;

/// Limit of the test, the build of the programs included. The demo itself gives up earlier.
const DEADLINE: Duration = Duration::from_mins(10);
/// Enough for each part, and for a job of each kind.
const JOBS: usize = 11;

/// Spec: experience 2, steps 2, 3, 5 and 6; appwrapper B115; jobs 12.9.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_ends_well_without_a_real_control_plane() {
    let args = Args::parse_from(["demo", "--json", "--jobs", &JOBS.to_string()]);
    let card = timeout(DEADLINE, demo::run(&args)).await.unwrap();
    let card = card.unwrap_or_else(|error| panic!("{}", chain(error.as_ref())));
    assert_eq!(card.control_plane, "embedded");
    assert!(card.violations.is_empty() && card.is_good(), "{card}");
    assert_eq!(
        (card.submitted, card.finished, card.never_fit),
        (JOBS, JOBS - 1, 1),
        "{card}"
    );
    assert!(card.accident.is_some_and(|accident| accident.ended_unseen));
    let moved = card.evacuation.and_then(|evacuation| evacuation.moved).unwrap();
    assert_ne!(moved.from, moved.to);
    let group = card.pod_group.unwrap();
    assert!(group.pods == 3 && group.ran_together(), "{group}");
}
