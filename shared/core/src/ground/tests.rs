//! Spec: admission-engine 2.4.

use super::{Footprint, Ground};
use crate::hierarchy::{Exact, FlavorResource, NodeId};
use crate::nominate::scene::{cpu_group, own, queue};

/// A ClusterQueue with ten of each flavor.
fn ground() -> (Ground, NodeId, [FlavorResource; 2]) {
    let mut ground = Ground::default();
    let mut queue = queue("q", "", own(10));
    queue.groups = vec![cpu_group(&[("small", own(10)), ("large", own(10))])];
    let node = ground.put_queue(&queue);
    let pairs = ["small", "large"].map(|flavor| ground.pair(&flavor.into(), &"cpu".into()));
    (ground, node, pairs)
}

#[test]
fn a_workload_fits_when_each_part_of_it_does_and_what_it_lacks_is_named() {
    let (mut ground, node, [small, large]) = ground();
    let asks = |small_value: Exact, large_value: Exact| [(small, small_value), (large, large_value)];
    let ten = asks(10, 10);
    assert!(ground.fits(Footprint::of(node, &ten)));
    assert_eq!(ground.contested(Footprint::of(node, &ten)), []);
    let (too_large, too_much) = (asks(10, 11), asks(11, 11));
    assert!(!ground.fits(Footprint::of(node, &too_large)));
    assert_eq!(ground.contested(Footprint::of(node, &too_large)), [large]);
    assert_eq!(ground.contested(Footprint::of(node, &too_much)), [small, large]);
    ground.take(Footprint::of(node, &asks(4, 0)));
    assert_eq!((ground.free(node, small), ground.most(node, small)), (6, 10));
    assert!(!ground.fits(Footprint::of(node, &ten)));
    assert_eq!(ground.contested(Footprint::of(node, &ten)), [small]);
}

#[test]
fn what_was_taken_is_given_back_without_a_trace() {
    let (mut ground, node, [small, large]) = ground();
    let before = format!("{ground:?}");
    let more_than_there_is = [(small, 7), (large, 12)];
    let footprint = Footprint::of(node, &more_than_there_is);
    ground.take(footprint);
    assert_eq!((ground.free(node, small), ground.free(node, large)), (3, -2));
    ground.give(footprint);
    assert_eq!(format!("{ground:?}"), before);
}

#[test]
fn a_question_without_some_workloads_leaves_them_as_they_were() {
    let (mut ground, node, [small, large]) = ground();
    let (one, two, asked) = ([(small, 6)], [(small, 4), (large, 10)], [(small, 5), (large, 1)]);
    let held = [Footprint::of(node, &one), Footprint::of(node, &two)];
    for footprint in held {
        ground.take(footprint);
    }
    let before = format!("{ground:?}");
    let asked = Footprint::of(node, &asked);
    let mut fits_without =
        |gone: &[Footprint<'_>]| ground.without(gone.iter().copied(), |ground| ground.fits(asked));
    assert!(!fits_without(&[]));
    assert!(!fits_without(&held[..1]));
    assert!(fits_without(&held));
    assert_eq!(format!("{ground:?}"), before);
}

#[test]
fn one_part_of_a_footprint_is_found_by_its_pair() {
    let (_, node, [small, large]) = ground();
    let usage = [(small, 6)];
    let footprint = Footprint::of(node, &usage);
    assert_eq!(footprint.only(small), Some(footprint));
    assert_eq!(footprint.only(large), None);
}
