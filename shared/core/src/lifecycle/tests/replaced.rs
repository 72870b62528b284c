//! Groups of pods with missing members.

use std::collections::BTreeMap;

use super::*;

/// Spec: jobs 12.10, 15.104
#[test]
fn a_group_that_lacks_pods_says_so_until_it_has_them_and_then_once_more() {
    let mut world = World::admitted();
    let told = |world: &World| {
        let condition = world.workload.status.conditions.get("WaitingForReplacementPods");
        condition.map(|c| (c.truth, c.reason.to_string(), c.message.clone()))
    };
    let lacks = |missing| JobFacts::Present {
        finished: None,
        active: true,
        suspended: false,
        ready: false,
        reclaimable: BTreeMap::new(),
        missing,
    };
    for complete in [None, Some(0)] {
        world.job = lacks(complete);
        world.pass();
        assert_eq!(told(&world), None, "it is never made as false");
    }
    world.job = lacks(Some(1));
    world.pass();
    let failed = (
        Truth::True,
        "PodsFailed".to_owned(),
        "Some Failed pods need replacement".to_owned(),
    );
    assert_eq!(told(&world), Some(failed));
    world.job = lacks(Some(0));
    world.pass();
    let whole = (
        Truth::False,
        "PodsReady".to_owned(),
        "No pods need replacement".to_owned(),
    );
    assert_eq!(told(&world), Some(whole));
    world.set("Evicted", Truth::True, "Preempted", "make room");
    world.job = lacks(Some(2));
    world.pass();
    let evicted = (Truth::True, "Preempted".to_owned(), "make room".to_owned());
    assert_eq!(told(&world), Some(evicted));
}
