use serde_json::{Value, json};

use super::*;
use crate::fixture::{Tested, apply, outcome};
use crate::kind::Pods;

/// A kind with a list of pod sets, a word for its pods, and nothing else.
static WIDGETS: ByPath = ByPath {
    pod_sets: &[
        PodSets {
            at: places::At::One {
                field: &["spec", "head"],
                name: "head",
            },
            template: &["template"],
            pods: places::Pods::One,
        },
        PodSets {
            at: places::At::Each {
                list: &["spec", "groups"],
                name: "name",
            },
            template: &["template"],
            pods: places::Pods::ReplicasOf {
                replicas: &["replicas"],
                pods: &["hosts"],
            },
        },
    ],
    active: Sign::Word {
        field: &["status", "state"],
        is: "up",
        without: "down",
    },
    ready: Sign::Condition("Ready"),
    ends: None,
    spare: None,
    time_to_live: None,
    ..crate::jobset::JOBSET
};

const KIND: Tested = Tested(&WIDGETS);

fn widget(groups: &Value) -> Value {
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    let mut widget = json!({"spec": {"head": {"template": template}, "groups": groups}});
    for group in widget["spec"]["groups"].as_array_mut().into_iter().flatten() {
        if group.get("template").is_none() {
            group["template"] = template.clone();
        }
    }
    widget
}

fn counts(job: &Value) -> Vec<(String, u32)> {
    let sets = KIND.pod_sets(job).unwrap();
    sets.into_iter().map(|set| (set.name, set.count)).collect()
}

/// Spec: jobs 9.6, 15.77
#[test]
fn pod_sets_stand_in_the_order_of_the_kind_and_are_counted() {
    let groups = json!([{"name": "Small"}, {"name": "big", "replicas": 2, "hosts": 4}, {"name": "none", "replicas": 0, "hosts": 0}]);
    let expected = [("head", 1), ("small", 1), ("big", 8), ("none", 0)];
    assert_eq!(
        counts(&widget(&groups)),
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    let paths = KIND.template_paths(&widget(&groups));
    assert_eq!(paths[..2], ["spec.head.template", "spec.groups[0].template"]);
}

/// Spec: jobs 2.3
#[test]
fn what_is_wrong_with_pod_sets_is_said_with_the_field() {
    let problem = |job: &Value| KIND.pod_sets(job).unwrap_err().to_string();
    let of = |groups: Value| problem(&widget(&groups));
    let many: Vec<Value> = (0..18).map(|at| json!({"name": format!("g{at}")})).collect();
    for (said, expected) in [
        (
            problem(&json!({"spec": {}})),
            "field spec.head of the job is without pods, expected at least one pod set",
        ),
        (
            of(json!([{"replicas": 1}])),
            "field spec.groups[0].name of the job is missing, expected a name",
        ),
        (
            of(json!([{"name": 7}])),
            "field spec.groups[0].name of the job is a number, expected a name",
        ),
        (
            of(json!([{"name": "a", "replicas": -1}])),
            "field spec.groups[0].replicas of the job is -1, expected a number from 0 to 2147483647",
        ),
        (
            of(json!([{"name": "a", "replicas": "two"}])),
            "field spec.groups[0].replicas of the job is a text, expected a number from 0 to 2147483647",
        ),
        (
            of(json!([{"name": "a", "replicas": 100_000, "hosts": 100_000}])),
            "field spec.groups[0].template of the job is of 100000 times 100000 pods, expected at most 2147483647 pods",
        ),
        (
            of(json!([{"name": "a", "template": 3}])),
            "field spec.groups[0].template of the job is a number, expected a pod template",
        ),
        (
            of(json!([{"name": "Head"}])),
            "field spec.groups[0].template of the job is the second one named head, expected a pod set with a name of its own \
             (names are compared in lower case)",
        ),
        (
            of(Value::Array(many)),
            "field spec.head of the job is of 19 pod sets, expected at most 18 pod sets",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn nonsense_is_no_panic() {
    for job in [
        json!(null),
        json!("x"),
        json!({"spec": [], "status": "up"}),
        json!({"spec": {"groups": {"a": 1}, "head": null}, "status": {"conditions": 3, "state": []}}),
        json!({"spec": {"groups": [null, 3], "suspend": "yes"}, "status": {"conditions": [null, {"type": "Ready"}]}}),
    ] {
        assert!(KIND.pod_sets(&job).is_err());
        assert!(KIND.look(&job).pods != Pods::Alive && !KIND.look(&job).ready && !KIND.look(&job).suspended);
        assert_eq!(KIND.look(&job).ended, None);
        assert!(KIND.look(&job).reclaimable.is_empty() && KIND.template_paths(&job).is_empty());
        assert!(KIND.stop(&job, &[]).is_some());
        assert_eq!(KIND.without_pods(&job), None);
        KIND.mirror(&job, &json!({"status": {"state": "up"}}));
        KIND.slimmed(&job);
    }
}

/// Spec: jobs 16 (index alignment)
#[test]
fn what_is_injected_and_put_back_goes_by_name() {
    let info = |name: &str| PodSetInfo {
        name: name.to_owned(),
        node_selector: [("tier".to_owned(), name.to_owned())].into(),
        ..PodSetInfo::default()
    };
    let mut held = widget(&json!([{"name": "a"}, {"name": "b"}]));
    held["spec"]["suspend"] = json!(true);
    let mut original = KIND.pod_sets(&held).unwrap();
    let running = apply(
        &held,
        &KIND.start(&held, &[info("b"), info("head"), info("a")]).unwrap(),
    );
    let tiers = |job: &Value| {
        let sets = KIND.pod_sets(job).unwrap().into_iter();
        sets.map(|set| set.template["spec"]["nodeSelector"]["tier"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(tiers(&running), ["head", "a", "b"]);
    original.reverse();
    let steps = KIND.stop(&running, &original);
    assert_eq!(apply(&running, &steps.unwrap()), held);
    let error = KIND.start(&held, &[info("a")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid podset infos: expecting 3 podset, got 1"
    );
}

/// A merge patch replaces a list as a whole, so it would overwrite what another client wrote meanwhile.
///
/// Spec: jobs 14
#[test]
fn a_start_and_a_stop_name_the_version_that_was_read() {
    let mut job = widget(&json!([{"name": "a"}]));
    job["metadata"] = json!({"resourceVersion": "7"});
    let infos = [PodSetInfo::default(), PodSetInfo::default()];
    let start = KIND.start(&job, &infos).unwrap();
    assert_eq!(start["metadata"]["resourceVersion"], "7");
    let stop = KIND.stop(&job, &[]).unwrap();
    assert_eq!(
        stop,
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"suspend": true}})
    );
}

/// Spec: safety 1 I1
#[test]
fn only_a_job_without_a_status_is_known_to_have_no_pods() {
    let with = |status: Value| json!({"spec": {"suspend": true}, "status": status});
    assert!(KIND.look(&json!({"spec": {"suspend": true}})).pods == Pods::None);
    assert!(KIND.look(&with(json!({}))).pods == Pods::None);
    assert!(KIND.look(&with(json!({"state": "down"}))).pods != Pods::None);
}

#[test]
fn a_job_whose_pods_are_gone_counts_none_and_a_kind_without_end_has_none() {
    let up = json!({"status": {"state": "up", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert!(KIND.look(&up).pods == Pods::Alive);
    let down = apply(&up, &KIND.without_pods(&up).unwrap());
    assert_eq!(down["status"]["state"], "down");
    assert_eq!(KIND.without_pods(&down), None);
    let outcome = outcome(true, "");
    assert_eq!(KIND.conclusion(&up, &outcome), None);
}
