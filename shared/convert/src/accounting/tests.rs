use roadstead_api::config::{FeatureGates, ResourceTransformation};
use roadstead_api::kueue::v1beta2 as api;
use serde_json::{Value, json};

use super::*;
use crate::counted_workload;

fn workload(annotations: &Value, spec: &Value) -> api::Workload {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "w", "namespace": "ns", "annotations": annotations },
        "spec": { "priority": i32::MAX, "podSets": [{ "name": "main", "count": 2, "template": { "spec": spec } }] },
    }))
    .unwrap()
}

fn limits(items: &Value) -> Limits {
    let range = json!({ "metadata": {}, "spec": { "limits": items } });
    limit_range(&serde_json::from_value::<LimitRange>(range).unwrap())
}

/// Spec: admission-engine B190, B192, B064.
#[test]
fn limit_ranges_and_runtime_classes_count_and_the_stored_workload_stays() {
    let stored = workload(
        &json!({}),
        &json!({ "runtimeClassName": "gvisor", "containers": [{ "name": "a" }] }),
    );
    let before = stored.clone();
    let class: RuntimeClass = serde_json::from_value(json!({
        "metadata": { "name": "gvisor" }, "handler": "runsc", "overhead": { "podFixed": { "cpu": "250m" } },
    }))
    .unwrap();
    let asks = |limits: &Limits| {
        let parsed = counted_workload(
            &stored,
            &Accounting {
                limits,
                overhead: &|name| (name == "gvisor").then(|| overhead(&class)),
                ..Accounting::plain()
            },
        );
        let cpu = parsed.pod_sets[0]
            .requests
            .get(&ResourceName::from("cpu"))
            .copied();
        (cpu, parsed.problems)
    };
    let default = json!({ "type": "Container", "defaultRequest": { "cpu": "500m" } });
    assert_eq!(
        asks(&limits(&json!([default]))),
        (Some(Amount::new(750)), Vec::new())
    );
    let tight = json!([default, { "type": "Container", "max": { "cpu": "100m" } }, { "type": "Node" }]);
    let (_, problems) = asks(&limits(&tight));
    assert_eq!(
        problems,
        ["resources didn't satisfy LimitRange constraints: \
          spec.podSets[main].template.spec.containers[0].resources.requests[cpu]: \
          requests must not be above the limitRange max"]
    );
    assert_eq!(stored, before);
}

/// Spec: admission-engine B063.
#[test]
fn everything_that_makes_no_sense_is_told_in_one_sentence() {
    let stored = workload(
        &json!({}),
        &json!({ "containers": [
            { "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } },
            { "resources": { "requests": { "memory": "lots" } } },
        ] }),
    );
    let problems = crate::workload(&stored).problems;
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("resources validation failed: "),
        "{problems:?}"
    );
    assert!(
        problems[0].contains("containers[0].resources.requests[cpu]: requests must not exceed its limits")
    );
    assert!(problems[0].contains("containers[1].resources.requests[memory]: "));
}

/// Spec: admission-engine B193, B194; api API-13.
#[test]
fn the_rules_are_those_of_the_configuration() {
    let mut config = Config::without_file("ns");
    config.resources.exclude_resource_prefixes = vec!["example.com/".to_owned()];
    config.resources.transformations = vec![ResourceTransformation {
        input: "a".to_owned(),
        strategy: TransformationStrategy::Replace,
        multiply_by: "b".to_owned(),
        outputs: [
            ("c".to_owned(), "500m".to_owned()),
            ("cpu".to_owned(), "2".to_owned()),
        ]
        .into(),
    }];
    let rules = request_rules(&config);
    assert_eq!(rules.excluded_prefixes, ["example.com/"]);
    assert_eq!(
        rules.transformations,
        [Transformation {
            input: "a".into(),
            strategy: Input::Replace,
            multiply_by: Some("b".into()),
            outputs: [("c".into(), 500), ("cpu".into(), 2000)].into(),
        }]
    );
    assert_eq!(rules.claims, Claims::Refuse);
    assert_eq!(Boost::of(&config), Boost::Ignore);
    let gates = [
        ("KueueDRARejectWorkloadsWhenDRADisabled", false),
        ("PriorityBoost", true),
    ];
    config.feature_gates = FeatureGates::resolve(gates).unwrap();
    assert_eq!(request_rules(&config).claims, Claims::Ignore);
    assert_eq!(Boost::of(&config), Boost::Count);
}

/// Spec: admission-engine 4.4.
#[test]
fn a_boost_is_added_in_64_bits_when_its_gate_is_on() {
    let priority = |text: &str, boost| {
        let stored = workload(&json!({ "kueue.x-k8s.io/priority-boost": text }), &json!({}));
        let parsed = counted_workload(
            &stored,
            &Accounting {
                boost,
                ..Accounting::plain()
            },
        );
        parsed.effective_priority() - i64::from(i32::MAX)
    };
    assert_eq!(priority("7", Boost::Count), 7);
    assert_eq!(priority("-7", Boost::Count), -7);
    assert_eq!(priority("7", Boost::Ignore), 0);
    assert_eq!(priority("much", Boost::Count), 0);
}

/// Spec: admission-engine 4.6; api API-14. With gate `ReclaimablePods` off, stored counts free nothing either.
#[test]
fn reclaimable_pods_that_do_not_count_are_not_seen() {
    let mut stored = workload(&json!({}), &json!({}));
    stored.status =
        serde_json::from_value(json!({"reclaimablePods": [{"name": "main", "count": 1}]})).unwrap();
    let seen = |reclaim| {
        let accounting = Accounting {
            reclaim,
            ..Accounting::plain()
        };
        counted_workload(&stored, &accounting).status.reclaimable.len()
    };
    assert_eq!((seen(Reclaim::Count), seen(Reclaim::Ignore)), (1, 0));
    let mut config = Config::without_file("ns");
    assert_eq!(reclaim(&config), Reclaim::Count);
    config.feature_gates = FeatureGates::resolve([("ReclaimablePods", false)]).unwrap();
    assert_eq!(reclaim(&config), Reclaim::Ignore);
}
