use roadstead_api::config::FeatureGates;
use serde_json::{Value, json};

use super::super::tests::{compare, gates};
use super::*;

fn queue(patch: &Value) -> api::ClusterQueue {
    let mut base = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"cohortName": "c", "namespaceSelector": {}},
    });
    json_patch::merge(&mut base, &json!({"spec": patch}));
    serde_json::from_value(base).unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn check(spec: Value, expect: &[&str]) {
    compare(
        &cluster_queue(None, &queue(&spec), &FeatureGates::default()),
        expect,
        &spec,
    );
}

fn quota(name: &str, nominal: &str) -> Value {
    json!({"name": name, "nominalQuota": nominal})
}

fn group(covered: &[&str], flavors: &[(&str, Vec<Value>)]) -> Value {
    let flavors: Vec<Value> = flavors
        .iter()
        .map(|(name, resources)| json!({"name": name, "resources": resources}))
        .collect();
    json!({"coveredResources": covered, "flavors": flavors})
}

/// Spec: api API-2.4 rules 1 and 2; admission-engine B007, B008.
#[test]
fn a_resource_and_a_flavor_stand_in_one_group_only_in_the_covered_order() {
    let (cpu, memory) = (quota("cpu", "1"), quota("memory", "1"));
    let both = || vec![cpu.clone(), memory.clone()];
    check(
        json!({"resourceGroups": [group(&["cpu", "memory"], &[("f", both())])]}),
        &[],
    );
    check(
        json!({"resourceGroups": [group(&["cpu", "memory"], &[("f", vec![memory.clone(), cpu.clone()])])]}),
        &[
            "spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: \"memory\": must match the name in \
             coveredResources",
            "resources[1].name: Invalid value: \"cpu\"",
        ],
    );
    check(
        json!({"resourceGroups": [group(&["cpu", "memory"], &[("f", vec![cpu.clone()])])]}),
        &["flavors must have the same number of resources as the coveredResources"],
    );
    check(
        json!({"resourceGroups": [
            group(&["cpu"], &[("spot", vec![cpu.clone()])]), group(&["memory"], &[("spot", vec![memory.clone()])])]}),
        &["spec.resourceGroups[1].flavors[0].name: Duplicate value: \"spot\""],
    );
    check(
        json!({"resourceGroups": [
            group(&["cpu"], &[("a", vec![cpu.clone()])]), group(&["cpu"], &[("b", vec![cpu.clone()])])]}),
        &["spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\""],
    );
    check(
        json!({"resourceGroups": [group(&["@cpu"], &[("a", vec![quota("@cpu", "1")])])]}),
        &["spec.resourceGroups[0].coveredResources[0]: Invalid value: \"@cpu\""],
    );
}

/// Spec: api API-2.4 rules 3 to 5; admission-engine B005, B006.
#[test]
fn quotas_are_amounts_and_limits_need_a_cohort() {
    let with = |nominal: &str, borrowing: Value, lending: Value| {
        let quota = json!({"name": "cpu", "nominalQuota": nominal, "borrowingLimit": borrowing, "lendingLimit": lending});
        json!({"resourceGroups": [group(&["cpu"], &[("f", vec![quota])])]})
    };
    check(with("10", json!("1"), json!("10")), &[]);
    check(
        with("-1", json!("-2"), json!("-3")),
        &[
            "nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0",
            "borrowingLimit",
            "lendingLimit",
        ],
    );
    check(
        with("10", Value::Null, json!("11")),
        &["lendingLimit: Invalid value: \"11\": must be less than or equal to the nominalQuota"],
    );
    check(
        with("1500m", Value::Null, json!("1501m")),
        &["must be less than or equal to"],
    );
    let mut lone = with("10", json!("1"), json!("1"));
    lone["cohortName"] = Value::Null;
    check(
        lone,
        &[
            "borrowingLimit: Invalid value: \"1\": must be nil when cohort is empty",
            "lendingLimit",
        ],
    );
}

/// Spec: api API-2.4 rule 6.
#[test]
fn the_number_of_flavors_and_resources_is_limited() {
    let name = |prefix: &str, index: usize| format!("{prefix}{index}");
    let flavors = |prefix: &str, count: usize| -> Vec<Value> {
        let flavor = |index| json!({"name": name(prefix, index), "resources": [quota(prefix, "1")]});
        (0..count).map(flavor).collect()
    };
    let groups = |sizes: &[usize]| -> Vec<Value> {
        let group = |(index, size): (usize, &usize)| {
            let resource = name("r", index);
            json!({"coveredResources": [resource], "flavors": flavors(&resource, *size)})
        };
        sizes.iter().enumerate().map(group).collect()
    };
    check(json!({"resourceGroups": groups(&[64, 64, 64, 64])}), &[]);
    check(
        json!({"resourceGroups": groups(&[64, 64, 64, 64, 1])}),
        &["spec.resourceGroups[*].flavors: Too many: 257: must have at most 256 items"],
    );
    let covered = |group: usize, count: usize| -> Value {
        let names: Vec<String> = (0..count).map(|index| format!("g{group}-{index}")).collect();
        let quotas: Vec<Value> = names.iter().map(|name| quota(name, "1")).collect();
        json!({"coveredResources": names, "flavors": [{"name": format!("f{group}"), "resources": quotas}]})
    };
    let many: Vec<Value> = (0..5).map(|group| covered(group, 52)).collect();
    check(
        json!({"resourceGroups": many}),
        &["spec.resourceGroups[*].coveredResources: Too many: 260: must have at most 256 items"],
    );
    let mut wide = covered(0, 9);
    wide["flavors"] = (0..57)
        .map(|index| json!({"name": name("f", index), "resources": wide["flavors"][0]["resources"]}))
        .collect();
    check(
        json!({"resourceGroups": [wide]}),
        &["spec.resourceGroups[0].flavors[*].resources: Too many: 513: must have at most 512 items"],
    );
}

/// Spec: api API-2.4 rule 7.
#[test]
fn the_namespace_selector_must_parse() {
    let expression = |operator: &str, values: Value| json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": operator, "values": values}]}});
    check(expression("In", json!(["a"])), &[]);
    check(expression("Exists", Value::Null), &[]);
    check(expression("In", json!([])), &["values: Required value"]);
    check(expression("DoesNotExist", json!(["a"])), &["values: Forbidden"]);
    check(
        expression("Like", json!(["a"])),
        &[
            "operator: Unsupported value: \"Like\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
        ],
    );
    check(
        json!({"namespaceSelector": {"matchLabels": {"-": "ok", "b": "not ok"}}}),
        &["Invalid value: \"-\"", "Invalid value: \"not ok\""],
    );
}

/// Spec: api API-2.4 rule 8; admission-engine B011.
#[test]
fn a_weight_is_nothing_or_more_than_a_billionth() {
    for fine in ["0", "0.5", "1", "2n", "1u", "1e-8", "3k", "1Ki", "0n"] {
        check(json!({"fairSharing": {"weight": fine}}), &[]);
    }
    for small in ["1n", "0.5n", "1e-9", "0.000000001", "0.001u", "0.000001m"] {
        check(
            json!({"fairSharing": {"weight": small}}),
            &["When not 0, weight must be > 10e-9"],
        );
    }
    check(
        json!({"fairSharing": {"weight": "-1"}}),
        &["spec.fairSharing.weight: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
}

/// Spec: api API-2.4 rule 9.
#[test]
fn a_check_applies_to_flavors_of_the_queue() {
    let with = |flavors: &[&str], on: &[&str]| {
        let flavors: Vec<(&str, Vec<Value>)> = flavors
            .iter()
            .map(|name| (*name, vec![quota("cpu", "1")]))
            .collect();
        json!({
            "resourceGroups": [group(&["cpu"], &flavors)],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "x", "onFlavors": on}]},
        })
    };
    check(with(&["a", "b"], &["b"]), &[]);
    let wrong = with(&["a", "b"], &["c"]);
    check(
        wrong.clone(),
        &["admissionChecks[0].onFlavors[0]: Unsupported value: \"c\": supported values: \"a\", \"b\""],
    );
    let update = |old: &Value, new: &Value, gates: &FeatureGates, expect: &[&str]| {
        compare(&cluster_queue(Some(&queue(old)), &queue(new), gates), expect, new);
    };
    let (lenient, strict) = (
        FeatureGates::default(),
        gates("RejectUpdatesToCQWithInvalidOnFlavors", true),
    );
    update(&wrong, &wrong, &lenient, &[]);
    update(&wrong, &wrong, &strict, &["\"c\""]);
    update(&wrong, &with(&["a", "b"], &["d"]), &lenient, &["\"d\""]);
    update(
        &with(&["a", "c"], &["c"]),
        &with(&["a"], &["c"]),
        &lenient,
        &["\"c\""],
    );
}

/// Spec: api API-2.4 rule 10.
#[test]
fn concurrent_admission_has_rules_of_its_own() {
    let policy = |mode: &str, constraints: Value| {
        json!({"concurrentAdmissionPolicy": {"migration": {"mode": mode, "constraints": constraints}},
            "resourceGroups": [group(&["cpu"], &[("f", vec![quota("cpu", "1")])])]})
    };
    let told = |spec: &Value| cluster_queue_warnings(&queue(spec));
    assert_eq!(
        told(&policy("TryPreferredFlavors", Value::Null)),
        ["spec.concurrentAdmissionPolicy has no effect: concurrent admission is not built yet"]
    );
    assert!(told(&json!({})).is_empty());
    let on = gates("ConcurrentAdmission", true);
    let check_on =
        |spec: Value, expect: &[&str]| compare(&cluster_queue(None, &queue(&spec), &on), expect, &spec);
    let last = |name: &str| json!({"lastAcceptableFlavorName": name});
    check_on(policy("TryPreferredFlavors", last("f")), &[]);
    check_on(
        policy("TryPreferredFlavors", last("g")),
        &["lastAcceptableFlavorName: Unsupported value: \"g\": supported values: \"f\""],
    );
    check_on(
        policy("RetainFirstAdmission", last("f")),
        &["constraints: Forbidden"],
    );
    let mut strict = policy("TryPreferredFlavors", Value::Null);
    strict["queueingStrategy"] = json!("StrictFIFO");
    check_on(
        strict.clone(),
        &["spec.queueingStrategy: Invalid value: \"StrictFIFO\""],
    );
    check(strict, &[]);
    let mut none = policy("TryPreferredFlavors", Value::Null);
    none["resourceGroups"] = json!([]);
    check_on(none, &["must have exactly one resource group"]);
    let mut many = policy("TryPreferredFlavors", Value::Null);
    many["resourceGroups"][0]["flavors"] = (0..17)
        .map(|index| json!({"name": format!("f{index}"), "resources": [quota("cpu", "1")]}))
        .collect();
    check_on(many, &["Too many: 17: must have at most 16 items"]);
    let old = queue(&json!({}));
    let new = policy("TryPreferredFlavors", Value::Null);
    let found = cluster_queue(Some(&old), &queue(&new), &FeatureGates::default());
    compare(
        &found,
        &["spec.concurrentAdmissionPolicy: Invalid value: field is immutable"],
        &new,
    );
}

#[test]
fn everything_else_of_a_queue_may_change() {
    let old = queue(&json!({"resourceGroups": [group(&["cpu"], &[("f", vec![quota("cpu", "1")])])]}));
    let new = json!({"cohortName": "d", "queueingStrategy": "StrictFIFO", "stopPolicy": "Hold",
        "resourceGroups": [group(&["memory"], &[("g", vec![quota("memory", "1Gi")])])]});
    compare(
        &cluster_queue(Some(&old), &queue(&new), &FeatureGates::default()),
        &[],
        &new,
    );
}

/// Spec: safety 3.5
#[test]
fn a_word_for_lost_workers_that_is_not_known_is_refused_unless_it_was_there_before() {
    let with = |word: &str| {
        let mut queue = queue(&json!({}));
        let annotation = (annotations::WORKER_LOST_POLICY.to_owned(), word.to_owned());
        queue.metadata.annotations = Some([annotation].into());
        queue
    };
    let gates = FeatureGates::default();
    for known in ["Wait", "Fence", "RetryAnyway"] {
        compare(&cluster_queue(None, &with(known), &gates), &[], &json!({}));
    }
    let wrong = "metadata.annotations[roadstead.dev/worker-lost-policy]: Unsupported value: \"wait\": supported values: \"Wait\", \
                 \"Fence\", \"RetryAnyway\"";
    compare(&cluster_queue(None, &with("wait"), &gates), &[wrong], &json!({}));
    compare(
        &cluster_queue(Some(&with("Fence")), &with("wait"), &gates),
        &[wrong],
        &json!({}),
    );
    compare(
        &cluster_queue(Some(&with("wait")), &with("wait"), &gates),
        &[],
        &json!({}),
    );
}
