//! Workload: its spec, and the rules that compare spec and status.

use serde_json::{Value, json};

use super::super::fixture::{HUB, OLD};
use super::statuses::{admission, conditions, reserved};
use super::{
    AT_LEAST_ONE, Case, NOT_EMPTY, NOT_NEGATIVE, PATTERN, POSITIVE, REQUIRED, UNIQUE, in_versions, long,
    many, merged, no, ok,
};

const KIND: &str = "Workload";

/// A pod template with a field that no version of the API knows.
fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "fieldOfTheFuture": {"x": [1]}}]}})
}

fn pod_set(more: Value) -> Value {
    merged(json!({"count": 2, "template": template()}), more)
}

fn sets(sets: Value) -> Value {
    json!({"podSets": sets})
}

fn one(more: Value) -> Value {
    sets(json!([pod_set(more)]))
}

pub(super) fn spec(more: Value) -> Value {
    merged(merged(json!({"queueName": "q"}), one(json!({}))), more)
}

fn placed(request: Value) -> Value {
    one(json!({"topologyRequest": request}))
}

/// A change of the spec while the status is this.
fn change(status: &Value, old: Value, new: Value) -> Case {
    ok(KIND, new).after(json!({"spec": old, "status": status}))
}

/// Spec: api API-9.1; admission-engine B013, B014.
#[test]
fn a_workload_follows_the_rules_of_both_versions() {
    let named = |count: usize| sets(many(count, |n| pod_set(json!({"name": format!("p{n}")}))));
    in_versions(&[HUB, OLD], || {
        vec![
            ok(
                KIND,
                spec(json!({"active": false, "priority": -1, "maximumExecutionTimeSeconds": 1})),
            ),
            ok(KIND, named(18)),
            no(KIND, named(19), "at most 18 items"),
            no(KIND, sets(json!([])), AT_LEAST_ONE),
            no(
                KIND,
                sets(json!([pod_set(json!({})), pod_set(json!({}))])),
                UNIQUE,
            ),
            no(KIND, one(json!({"name": "no.dots"})), PATTERN),
            no(KIND, one(json!({"name": long(64)})), "63"),
            no(KIND, sets(json!([{"count": 1}])), REQUIRED),
            ok(KIND, one(json!({"count": 0}))),
            no(KIND, one(json!({"count": -1})), NOT_NEGATIVE),
            ok(KIND, one(json!({"minCount": 2}))),
            no(
                KIND,
                one(json!({"minCount": 3})),
                "minCount should be positive and less or equal to count",
            ),
            no(KIND, one(json!({"minCount": 0})), POSITIVE),
            ok(
                KIND,
                placed(
                    json!({"required": "rack", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 1, "subGroupCount": 0}),
                ),
            ),
            ok(
                KIND,
                placed(
                    json!({"preferred": long(63), "podIndexLabel": long(317), "subGroupIndexLabel": long(317), "podSetGroupName": long(256)}),
                ),
            ),
            ok(KIND, placed(json!({"unconstrained": true}))),
            no(KIND, placed(json!({"podSetSliceSize": 0})), POSITIVE),
            no(KIND, spec(json!({"queueName": "Bad_Name"})), PATTERN),
            no(KIND, spec(json!({"maximumExecutionTimeSeconds": 0})), POSITIVE),
        ]
    });
}

/// Spec: api API-9.1, without the column "v1beta1".
#[test]
fn a_workload_follows_the_rules_of_v1beta2() {
    let class = |group: &str, kind: &str, name: &str| {
        spec(json!({"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": name}}))
    };
    let gates = |gates: Value| spec(json!({"preemptionGates": gates}));
    let layers = |layers: Value| placed(json!({"podsetSliceRequiredTopologyConstraints": layers}));
    let layer = |topology: &str, size: i32| json!({"topology": topology, "size": size});
    in_versions(&[HUB], || {
        vec![
            ok(KIND, json!({})),
            ok(KIND, sets(json!([{"template": template()}]))),
            no(KIND, placed(json!({"required": long(64)})), "63"),
            no(KIND, placed(json!({"preferred": long(64)})), "63"),
            no(KIND, placed(json!({"podIndexLabel": long(318)})), "317"),
            no(KIND, placed(json!({"subGroupIndexLabel": long(318)})), "317"),
            no(KIND, placed(json!({"subGroupCount": -1})), NOT_NEGATIVE),
            no(KIND, placed(json!({"podSetGroupName": long(257)})), "256"),
            no(
                KIND,
                placed(json!({"podSetSliceRequiredTopology": long(64)})),
                "63",
            ),
            ok(KIND, layers(many(3, |n| layer(&format!("l{n}"), 1)))),
            no(
                KIND,
                layers(many(4, |n| layer(&format!("l{n}"), 1))),
                "at most 3 items",
            ),
            no(KIND, layers(json!([layer("", 1)])), NOT_EMPTY),
            no(KIND, layers(json!([layer(&long(64), 1)])), "63"),
            no(KIND, layers(json!([layer("rack", 0)])), POSITIVE),
            no(KIND, layers(json!([{"size": 1}])), REQUIRED),
            ok(KIND, class("kueue.x-k8s.io", "WorkloadPriorityClass", "c")),
            ok(KIND, class("scheduling.k8s.io", "PriorityClass", "c")),
            no(
                KIND,
                class("kueue.x-k8s.io", "PriorityClass", "c"),
                "kind must be WorkloadPriorityClass for group kueue.x-k8s.io",
            ),
            no(
                KIND,
                class("x", "PriorityClass", "c"),
                r#"supported values: "kueue.x-k8s.io", "scheduling.k8s.io""#,
            ),
            no(
                KIND,
                class("scheduling.k8s.io", "Class", "c"),
                r#"supported values: "WorkloadPriorityClass", "PriorityClass""#,
            ),
            no(KIND, class("scheduling.k8s.io", "PriorityClass", ""), NOT_EMPTY),
            no(
                KIND,
                spec(
                    json!({"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "c"}}),
                ),
                "priority should not be nil when priorityClassRef is set",
            ),
            ok(KIND, gates(many(8, |n| json!({"name": format!("g{n}")})))),
            no(
                KIND,
                gates(many(9, |n| json!({"name": format!("g{n}")}))),
                "at most 8 items",
            ),
            no(KIND, gates(json!([{"name": "g"}, {"name": "g"}])), UNIQUE),
            no(KIND, gates(json!([{"name": ""}])), NOT_EMPTY),
            no(KIND, gates(json!([{"name": long(64)}])), "63"),
            no(KIND, spec(json!({"priorityClassName": "c"})), "unknown field"),
        ]
    });
}

/// Spec: api API-9.1, column "v1beta1".
#[test]
fn a_workload_follows_the_rules_of_v1beta1() {
    let class = |source: &str, name: &str| {
        spec(json!({"priority": 1, "priorityClassSource": source, "priorityClassName": name}))
    };
    in_versions(&[OLD], || {
        vec![
            no(KIND, json!({}), REQUIRED),
            ok(
                KIND,
                placed(json!({"required": long(64), "podIndexLabel": long(318), "subGroupCount": -1})),
            ),
            ok(
                KIND,
                placed(json!({"podSetGroupName": long(257), "podSetSliceRequiredTopology": long(64)})),
            ),
            no(
                KIND,
                placed(json!({"podsetSliceRequiredTopologyConstraints": []})),
                "unknown field",
            ),
            ok(KIND, class("kueue.x-k8s.io/workloadpriorityclass", "c")),
            ok(KIND, class("scheduling.k8s.io/priorityclass", "c")),
            ok(KIND, class("", "c")),
            no(
                KIND,
                class("PriorityClass", "c"),
                r#"supported values: "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", """#,
            ),
            no(KIND, class("", "Bad_Name"), PATTERN),
            no(
                KIND,
                spec(json!({"priorityClassName": "c"})),
                "priority should not be nil when priorityClassName is set",
            ),
            no(KIND, spec(json!({"preemptionGates": []})), "unknown field"),
        ]
    });
}

/// Spec: api API-9.4; admission-engine B017.
#[test]
fn what_a_workload_was_admitted_with_is_fixed_in_both_versions() {
    let other = || spec(json!({"queueName": "other"}));
    let limit = |seconds: i32| spec(json!({"maximumExecutionTimeSeconds": seconds}));
    let admitted = merged(
        conditions(&[("QuotaReserved", "True"), ("Admitted", "True")]),
        admission(1),
    );
    let pending = conditions(&[("QuotaReserved", "False")]);
    in_versions(&[HUB, OLD], || {
        vec![
            change(&reserved(), spec(json!({})), other())
                .refused("queueName is immutable while workload quota reserved"),
            change(&pending, spec(json!({})), other()),
            change(&admitted, limit(5), limit(6))
                .refused("maximumExecutionTimeSeconds is immutable while workload quota reserved"),
            change(&reserved(), limit(5), limit(6)),
        ]
    });
}

/// Spec: api API-9.4 rule 2; admission-engine B020.
#[test]
fn the_class_of_a_reserved_workload_is_fixed() {
    let class = |kind: &str, name: &str| {
        let group = if kind == "PriorityClass" {
            "scheduling.k8s.io"
        } else {
            "kueue.x-k8s.io"
        };
        spec(json!({"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": name}}))
    };
    let own = |name| class("WorkloadPriorityClass", name);
    let plain = |name| class("PriorityClass", name);
    let none = || spec(json!({"priority": 1}));
    in_versions(&[HUB], || {
        let added = "priorityClassRef cannot be added or removed while workload quota reserved";
        vec![
            change(&reserved(), none(), plain("p")).refused(added),
            change(&reserved(), own("p"), none()).refused(added),
            change(&reserved(), plain("p"), plain("o"))
                .refused("priorityClassRef.name of a PriorityClass is immutable while workload quota reserved"),
            change(&reserved(), own("p"), plain("p"))
                .refused("priorityClassRef.group and priorityClassRef.kind are immutable while workload quota reserved"),
            change(&reserved(), own("p"), own("o")),
            change(&json!({}), plain("p"), own("o")),
        ]
    });
    let old = |source: &str, name: &str| {
        spec(json!({"priority": 1, "priorityClassSource": source, "priorityClassName": name}))
    };
    let own = |name| old("kueue.x-k8s.io/workloadpriorityclass", name);
    let plain = |name| old("scheduling.k8s.io/priorityclass", name);
    in_versions(&[OLD], || {
        let source = "priorityClassSource is immutable while workload quota reserved";
        vec![
            change(&reserved(), none(), plain("p")).refused(source),
            change(&reserved(), own("p"), none()).refused(source),
            change(&reserved(), own("p"), plain("p")).refused(source),
            change(&reserved(), plain("p"), plain("o"))
                .refused("priorityClassName is immutable while workload quota reserved"),
            change(&reserved(), own("p"), own("o")),
            change(&json!({}), plain("p"), own("o")),
        ]
    });
}
