use serde_json::{Value, json};

use super::*;

const REQUIRED: &str = PODSET_REQUIRED_TOPOLOGY;
const PREFERRED: &str = PODSET_PREFERRED_TOPOLOGY;
const SLICE: &str = PODSET_SLICE_REQUIRED_TOPOLOGY;
const SIZE: &str = PODSET_SLICE_SIZE;
const LAYERS: &str = PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
const GROUP: &str = PODSET_GROUP_NAME;
const RACK: &str = "example.com/rack";

fn found(sets: &[(u32, Value)], gates: &FeatureGates) -> Vec<String> {
    let templates: Vec<Value> = sets
        .iter()
        .map(|(_, annotations)| json!({"metadata": {"annotations": annotations}}))
        .collect();
    let templates: Vec<Template<'_>> = templates
        .iter()
        .zip(sets)
        .map(|(template, (count, _))| Template {
            path: "spec.template".to_owned(),
            content: template,
            count: *count,
        })
        .collect();
    problems(&templates, gates)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn check(annotations: Value, expect: &[&str]) {
    let texts = found(&[(4, annotations.clone())], &FeatureGates::default());
    assert_eq!(texts.len(), expect.len(), "{annotations} {texts:?}");
    for (text, part) in texts.iter().zip(expect) {
        assert!(text.contains(part), "{text:?} should contain {part:?}");
    }
}

/// Spec: jobs 8, 15.60.
#[test]
fn one_request_of_the_right_form_is_allowed() {
    check(json!({REQUIRED: RACK}), &[]);
    check(json!({PREFERRED: RACK}), &[]);
    check(json!({PODSET_UNCONSTRAINED_TOPOLOGY: "true"}), &[]);
    check(json!({REQUIRED: "-"}), &["must be a name of at most 63"]);
    check(
        json!({PODSET_UNCONSTRAINED_TOPOLOGY: "maybe"}),
        &["Invalid value: \"maybe\": must be a boolean"],
    );
    check(
        json!({REQUIRED: RACK, PREFERRED: RACK}),
        &[
            "spec.template.metadata.annotations: Invalid value: must not contain more than one topology annotation: \
             [kueue.x-k8s.io/podset-required-topology, kueue.x-k8s.io/podset-preferred-topology]",
        ],
    );
}

/// Spec: jobs 8, 15.60.
#[test]
fn slices_have_a_topology_and_a_size_that_fits() {
    check(json!({SLICE: RACK, SIZE: "2"}), &[]);
    check(json!({SLICE: RACK}), &["podset-slice-size]: Required value"]);
    check(json!({SIZE: "2"}), &["podset-slice-size]: Forbidden"]);
    check(json!({SLICE: RACK, SIZE: "x"}), &["must be a 32-bit integer"]);
    check(json!({SLICE: RACK, SIZE: "0"}), &["greater than or equal to 1"]);
    check(
        json!({SLICE: RACK, SIZE: "5"}),
        &["must not be greater than the pod set count 4"],
    );
}

/// Spec: jobs 8.
#[test]
fn layers_are_few_distinct_and_divide_each_other() {
    let layers = |layers: Value| json!({LAYERS: layers.to_string()});
    let layer = |topology: &str, size: i64| json!({"topology": topology, "size": size});
    check(layers(json!([layer("a", 4), layer("b", 2)])), &[]);
    check(json!({LAYERS: "{"}), &["must be a JSON list"]);
    check(
        layers(json!([{"topology": "a", "size": "4"}])),
        &["must be a JSON list"],
    );
    check(layers(json!([])), &["must have 1 to 3 layers, has 0"]);
    let four = json!([layer("a", 4), layer("b", 4), layer("c", 2), layer("d", 1)]);
    check(layers(four), &["must have 1 to 3 layers, has 4"]);
    check(
        layers(json!([layer("a", 4), layer("a", 2)])),
        &["[1].topology: Duplicate value: \"a\""],
    );
    check(
        layers(json!([layer("a", 4), layer("b", 3)])),
        &["must divide the size 4"],
    );
    check(
        layers(json!([layer("a", 5)])),
        &["greater than the pod set count 4"],
    );
    check(layers(json!([layer("a", 0)])), &["greater than or equal to 1"]);
    let mut mixed = layers(json!([layer("a", 4)]));
    mixed[SLICE] = json!(RACK);
    mixed[SIZE] = json!("2");
    check(mixed.clone(), &["Forbidden", "Forbidden"]);
    let off = FeatureGates::resolve([("TASMultiLayerTopology", false)]).unwrap();
    assert_eq!(found(&[(4, mixed)], &off), Vec::<String>::new());
}

/// Spec: jobs 8.
#[test]
fn a_group_is_a_leader_and_its_workers_in_one_place() {
    let gates = FeatureGates::default();
    let member = |count, topology: &str| (count, json!({GROUP: "g", REQUIRED: topology}));
    assert_eq!(
        found(&[member(1, RACK), member(4, RACK)], &gates),
        Vec::<String>::new()
    );
    for (sets, part) in [
        (vec![member(1, RACK)], "exactly 2 pod sets, has 1"),
        (vec![member(2, RACK), member(4, RACK)], "exactly 1 pod"),
        (
            vec![member(1, RACK), member(4, "other")],
            "the same required or preferred",
        ),
        (
            vec![
                (1, json!({GROUP: "7", REQUIRED: RACK})),
                (4, json!({GROUP: "7", REQUIRED: RACK})),
            ],
            "Invalid value: \"7\": must not be a number",
        ),
        (
            vec![(1, json!({GROUP: "g"})), (4, json!({GROUP: "g"}))],
            "may only be set together with",
        ),
        (
            vec![
                (1, json!({GROUP: "g", REQUIRED: RACK})),
                (4, json!({GROUP: "g", REQUIRED: RACK, SLICE: RACK, SIZE: "2"})),
            ],
            "may not be set together with kueue.x-k8s.io/podset-group-name",
        ),
    ] {
        let texts = found(&sets, &gates);
        assert!(
            texts.iter().any(|text| text.contains(part)),
            "{texts:?} should contain {part:?}"
        );
    }
}
