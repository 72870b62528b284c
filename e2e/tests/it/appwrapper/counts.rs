//! What the life of an `AppWrapper` costs the API server.

use roadstead_e2e::perf::wrappers::{Sizes, measure};

/// Suspended, Resuming, Running, Succeeded.
const PHASES: f64 = 4.0;
/// A Service and two pods.
const CHILDREN: f64 = 3.0;

/// Spec: appwrapper 2.1
#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_wrapper_costs_two_writes_for_each_phase_and_one_for_each_child() {
    let sizes = Sizes {
        json: false,
        wrappers: 20,
        reference: false,
    };
    let report = Box::pin(measure(&sizes)).await.unwrap();
    assert_eq!((report.succeeded, report.failed), (20, 0));
    assert!(report.writes_to_one <= 2.0 * PHASES, "{report:#?}");
    assert!(
        (report.children_created - CHILDREN).abs() < f64::EPSILON,
        "{report:#?}"
    );
}
