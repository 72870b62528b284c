use serde_json::{Value, json};

use super::super::tests::compare;
use super::*;

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn check(spec: Value, expect: &[&str]) {
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec});
    compare(
        &resource_flavor(&serde_json::from_value(object.clone()).unwrap()),
        expect,
        &object,
    );
}

/// Spec: api API-5.
#[test]
fn labels_and_taints_are_well_formed_and_taints_unique() {
    check(
        json!({"nodeLabels": {"example.com/kind": "A.b_c-9", "x": ""}}),
        &[],
    );
    check(
        json!({"nodeLabels": {"bad key": "x"}}),
        &["spec.nodeLabels: Invalid value: \"bad key\""],
    );
    check(
        json!({"nodeLabels": {"a": "not ok"}}),
        &["spec.nodeLabels[a]: Invalid value: \"not ok\""],
    );
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    check(
        json!({"nodeTaints": [taint("a", "x", "NoSchedule"), taint("a", "y", "NoExecute")]}),
        &[],
    );
    check(
        json!({"nodeTaints": [taint("a", "x", "NoSchedule"), taint("a", "y", "NoSchedule")]}),
        &["spec.nodeTaints[1]: Duplicate value: \"a:NoSchedule\""],
    );
    check(
        json!({"nodeTaints": [taint("", "b c", "Never")]}),
        &[
            "nodeTaints[0].key",
            "nodeTaints[0].value",
            "effect: Unsupported value: \"Never\"",
        ],
    );
}

/// Spec: api API-5.
#[test]
fn tolerations_are_well_formed() {
    let check = |toleration: Value, expect: &[&str]| check(json!({"tolerations": [toleration]}), expect);
    check(json!({"operator": "Exists"}), &[]);
    check(
        json!({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3}),
        &[],
    );
    check(
        json!({"key": "bad key", "operator": "Exists"}),
        &["tolerations[0].key"],
    );
    check(
        json!({"operator": "Equal"}),
        &["operator: Invalid value: \"Equal\": must be Exists when key is empty"],
    );
    check(
        json!({"key": "a", "tolerationSeconds": 3}),
        &["must be NoExecute when tolerationSeconds"],
    );
    check(
        json!({"key": "a", "operator": "Exists", "value": "b"}),
        &["value: Invalid value: \"b\": must be empty"],
    );
    check(
        json!({"key": "a", "value": "b c"}),
        &["value: Invalid value: \"b c\""],
    );
    check(
        json!({"key": "a", "operator": "Lt"}),
        &["operator: Unsupported value: \"Lt\""],
    );
    check(
        json!({"key": "a", "effect": "Never"}),
        &["effect: Unsupported value: \"Never\""],
    );
}
