use serde_json::{Value, json};

use super::super::tests::compare;
use super::*;

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn check(spec: Value, expect: &[&str]) {
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "c"}, "spec": spec});
    compare(
        &cohort(&serde_json::from_value(object.clone()).unwrap()),
        expect,
        &object,
    );
}

fn groups(nominal: &str, borrowing: Option<&str>, lending: Option<&str>) -> Value {
    let quota =
        json!({"name": "cpu", "nominalQuota": nominal, "borrowingLimit": borrowing, "lendingLimit": lending});
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}])
}

/// Spec: api API-4; admission-engine B006.
#[test]
fn a_cohort_may_lend_more_than_its_own_but_only_below_a_parent() {
    let limits = groups("10", Some("1"), Some("11"));
    check(json!({"parentName": "root", "resourceGroups": limits}), &[]);
    check(
        json!({"resourceGroups": limits}),
        &[
            "borrowingLimit: Invalid value: \"1\": must be nil when parent is empty",
            "lendingLimit: Invalid value: \"11\": must be nil when parent is empty",
        ],
    );
    check(
        json!({"parentName": "", "resourceGroups": groups("1", Some("1"), None)}),
        &["must be nil when parent is empty"],
    );
    check(
        json!({"resourceGroups": groups("-1", None, None)}),
        &["must be greater than or equal to 0"],
    );
    check(
        json!({"fairSharing": {"weight": "1n"}}),
        &["When not 0, weight must be > 10e-9"],
    );
    check(json!({"parentName": "c"}), &[]);
}
