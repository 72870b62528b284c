use super::*;

/// Renewed so many times, for half a minute each.
fn renewed(times: u64) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.uid = Some("lease".into());
    let number = (annotations::LEASE_RENEWAL.to_owned(), times.to_string());
    lease.metadata.annotations = Some([number].into());
    lease.spec.get_or_insert_default().lease_duration_seconds = Some(30);
    lease
}

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

/// Who asks while the answer to a look is under way may be refused, and must hear that it may start after all.
///
/// Spec: safety 3.3; found by seed 8724
#[test]
fn a_lease_that_lapsed_between_two_looks_relieves_those_who_asked_meanwhile() {
    let mut manager = Manager::default();
    for second in 1..=3 {
        let now = at(second * 1000);
        manager.looked(now, now, Some(renewed(second)));
    }
    assert_eq!(manager.settle(at(3000)).1, Standing::Held);
    assert_eq!(manager.settle(at(20_900)), (Some(Standing::Held), Standing::Held));
    let lapsed = at(22_100);
    assert_eq!(manager.watch.standing(lapsed), Standing::Doubtful);
    manager.looked(lapsed, at(22_105), Some(renewed(9)));
    assert_eq!(
        manager.settle(at(22_105)),
        (Some(Standing::Doubtful), Standing::Held)
    );
}

/// Spec: safety 3.3
#[test]
fn no_answer_is_waited_for_beyond_the_moment_at_which_something_is_to_be_done() {
    let now = at(1000);
    assert_eq!(patience(None, now), LOOK_MAX);
    assert_eq!(patience(Some(at(60_000)), now), LOOK_MAX);
    assert_eq!(patience(Some(at(1900)), now), Duration::from_millis(900));
    assert_eq!(patience(Some(at(1000)), now), PAUSE_MIN);
}
