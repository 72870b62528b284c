use std::time::Duration;

use roadstead_core::name::CohortName;
use roadstead_core::queue::{Cohort, Weight};
use roadstead_core::report::QueueRef;
use roadstead_core::state::{Event, Settings, State};
use serde_json::json;

use super::{PACE, REST_MAX, Reports, rest};

#[test]
fn reports_follow_the_state_and_go_with_their_queue() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let mut state = State::new(Settings::default());
    let reports = Reports::default();
    let queue = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" },
        "spec": { "cohortName": "team", "resourceGroups": [] },
    }))
    .unwrap();
    let queue = roadstead_convert::cluster_queue(&queue);
    state.apply(Event::ClusterQueue(Box::new(queue)), now);
    let cohort = Cohort {
        name: "team".into(),
        parent: Some("all".into()),
        groups: Vec::new(),
        weight: Weight::ONE,
    };
    state.apply(Event::Cohort(cohort), now);
    reports.take_in(&mut state);
    let cohorts = [CohortName::from("team"), CohortName::from("all")];
    assert_eq!(reports.cohorts_above("q"), cohorts);
    let changed = reports.changed.take_now();
    assert!(
        changed.contains(&QueueRef::Cluster("q".into())) && changed.contains(&QueueRef::Cohort("all".into()))
    );
    state.apply(Event::ClusterQueueGone("q".into()), now);
    reports.take_in(&mut state);
    assert!(reports.cluster_queue(&"q".into()).is_none());
    assert_eq!(reports.cohorts_above("q"), []);
}

/// Spec: admission-engine B227.
#[test]
fn statuses_are_written_once_a_second_and_less_often_when_writing_is_slow() {
    assert_eq!(rest(Duration::from_millis(10)), PACE);
    assert_eq!(rest(Duration::from_secs(1)), Duration::from_secs(4));
    assert_eq!(rest(Duration::from_mins(1)), REST_MAX);
}
