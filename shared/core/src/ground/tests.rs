//! What fits, what is lacking, and that taking and giving undo each other.

use super::Ground;
use crate::state::fixtures::{cluster_queue, group};

/// Spec: admission-engine 2.4.
#[test]
fn what_is_taken_no_longer_fits_until_it_is_given_back() {
    let mut ground = Ground::default();
    let flavors: [(&str, &[(&str, i64)]); 1] = [("default", &[("cpu", 4), ("memory", 8)])];
    let node = ground
        .forest
        .put_queue(&cluster_queue("q", vec![group(&flavors)]));
    let pair = |resource: &str| {
        ground
            .forest
            .known_pair(&"default".into(), &resource.into())
            .unwrap()
    };
    let (cpu, memory) = (pair("cpu"), pair("memory"));
    let usage = [(cpu, 3), (memory, 4)];
    assert!(ground.fits(node, &usage));
    let empty = format!("{ground:?}");
    ground.take(node, &usage);
    assert!(!ground.fits(node, &usage));
    assert_eq!(ground.contested(node, &usage), [cpu]);
    assert!(ground.fits(node, &[(cpu, 1), (memory, 4)]));
    ground.give(node, &usage);
    assert_eq!(format!("{ground:?}"), empty);
}
