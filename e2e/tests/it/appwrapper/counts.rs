//! What the life of an `AppWrapper` costs the API server.

use roadstead_e2e::perf::wrappers::{Runner, Sizes, measure};

/// Spec: appwrapper 2.1
#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_wrapper_costs_two_writes_for_each_phase_and_one_for_each_child() {
    let sizes = Sizes {
        check: false,
        wrappers: vec![20],
        minutes: 1,
        controllers: vec![Runner::Ours],
    };
    let report = Box::pin(measure(&sizes)).await.unwrap().remove(0);
    assert_eq!(report.retries, 1, "{report:#?}");
    assert!(report.writes_per_change <= 2.0, "{report:#?}");
    assert!(
        (report.creations_per_child - 1.0).abs() < f64::EPSILON,
        "{report:#?}"
    );
}
