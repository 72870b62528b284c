//! AdmissionCheck, Topology, WorkloadPriorityClass, the kinds of the federation, ProvisioningRequest and its settings.

use serde_json::{Map, Value, json};

use super::super::fixture::{ALPHA, HUB, OLD};
use super::{
    AT_LEAST_ONE, Case, IMMUTABLE, NOT_EMPTY, PATTERN, POSITIVE, REQUIRED, UNIQUE, change, in_versions, long,
    many, merged, no, no_change, ok,
};

const CHECK: &str = "AdmissionCheck";
const TOPOLOGY: &str = "Topology";
const CLASS: &str = "WorkloadPriorityClass";
const CLUSTER: &str = "MultiKueueCluster";
const CONFIG: &str = "MultiKueueConfig";
const PROVISIONING: &str = "ProvisioningRequestConfig";
const REQUEST: &str = "ProvisioningRequest";

fn with_parameters(more: Value) -> Value {
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"});
    json!({"controllerName": "c", "parameters": merged(parameters, more)})
}

/// Spec: api API-6.
#[test]
fn an_admission_check_follows_its_rules() {
    in_versions(&[HUB, OLD], || {
        vec![
            ok(CHECK, with_parameters(json!({}))),
            no(CHECK, json!({}), REQUIRED),
            no(CHECK, json!({"controllerName": "c", "parameters": {}}), REQUIRED),
            no_change(
                CHECK,
                json!({"controllerName": "a"}),
                json!({"controllerName": "b"}),
                IMMUTABLE,
            ),
            change(
                CHECK,
                with_parameters(json!({})),
                with_parameters(json!({"name": "d"})),
            ),
            no(CHECK, with_parameters(json!({"apiGroup": "Bad_Name"})), PATTERN),
            no(
                CHECK,
                with_parameters(json!({"kind": "no dash at the end-"})),
                PATTERN,
            ),
            no(CHECK, with_parameters(json!({"kind": long(64)})), "63"),
            no(CHECK, with_parameters(json!({"name": "no.dots"})), PATTERN),
            no(CHECK, with_parameters(json!({"name": long(64)})), "63"),
        ]
    });
    in_versions(&[HUB], || {
        vec![
            no(CHECK, json!({"controllerName": ""}), NOT_EMPTY),
            no(CHECK, json!({"controllerName": long(254)}), "253"),
            no(CHECK, with_parameters(json!({"kind": ""})), NOT_EMPTY),
            no(
                CHECK,
                json!({"controllerName": "c", "retryDelayMinutes": 3}),
                "unknown field",
            ),
        ]
    });
    in_versions(&[OLD], || {
        vec![
            ok(CHECK, json!({"controllerName": ""})),
            ok(
                CHECK,
                json!({"controllerName": long(254), "retryDelayMinutes": 3}),
            ),
            no(CHECK, with_parameters(json!({"kind": ""})), PATTERN),
        ]
    });
}

fn levels(names: &[&str]) -> Value {
    let levels: Vec<_> = names.iter().map(|name| json!({"nodeLabel": name})).collect();
    json!({"levels": levels})
}

const HOST: &str = "kubernetes.io/hostname";

/// Spec: api API-7; admission-engine B022.
#[test]
fn a_topology_follows_its_rules() {
    in_versions(&[HUB, OLD, ALPHA], || {
        let numbered =
            |count: usize| json!({"levels": many(count, |n| json!({"nodeLabel": format!("l{n}")}))});
        vec![
            ok(TOPOLOGY, levels(&["cloud.example.com/block", "rack", HOST])),
            no(TOPOLOGY, json!({}), REQUIRED),
            no(TOPOLOGY, numbered(0), AT_LEAST_ONE),
            ok(TOPOLOGY, numbered(16)),
            no(TOPOLOGY, numbered(17), "at most 16 items"),
            no(TOPOLOGY, levels(&[""]), NOT_EMPTY),
            no(TOPOLOGY, levels(&[&long(317)]), "316"),
            no(TOPOLOGY, levels(&["a/b/c"]), PATTERN),
            no(TOPOLOGY, levels(&["a", "a"]), "must be unique"),
            no(
                TOPOLOGY,
                levels(&[HOST, "rack"]),
                "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            ),
        ]
    });
    let (short, long) = (["block", HOST], ["zone", "block", HOST]);
    in_versions(&[HUB], || {
        let fixed = "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change";
        vec![
            change(TOPOLOGY, levels(&short), levels(&long)),
            no_change(
                TOPOLOGY,
                levels(&["block", "rack"]),
                levels(&["zone", "block", "rack"]),
                fixed,
            ),
            no_change(TOPOLOGY, levels(&short), levels(&["block"]), fixed),
            no_change(TOPOLOGY, levels(&["block"]), levels(&short), fixed),
        ]
    });
    in_versions(&[OLD, ALPHA], || {
        vec![
            change(TOPOLOGY, levels(&short), levels(&short)),
            no_change(TOPOLOGY, levels(&short), levels(&long), IMMUTABLE),
        ]
    });
}

/// Spec: api API-8.
#[test]
fn a_priority_class_follows_its_rules() {
    let class = |fields: Value| Case {
        kind: CLASS,
        before: None,
        fields,
        refusal: None,
    };
    in_versions(&[HUB, OLD], || {
        vec![
            class(json!({"value": -5, "description": long(2048)})),
            class(json!({})).refused(REQUIRED),
            class(json!({"value": "high"})).refused("must be of type integer"),
            class(json!({"value": 6})).after(json!({"value": 5})),
        ]
    });
    let wordy = || class(json!({"value": 1, "description": long(2049)}));
    in_versions(&[HUB], || vec![wordy().refused("2048")]);
    in_versions(&[OLD], || vec![wordy()]);
}

/// Spec: api API-10.
#[test]
fn a_worker_cluster_follows_its_rules() {
    let one = "exactly one of the fields in [kubeConfig clusterProfileRef] must be set";
    let source = |source: Value| json!({"clusterSource": source});
    let same = |put: &dyn Fn(Value) -> Value| {
        let file = |config: Value| put(json!({"kubeConfig": config}));
        vec![
            ok(CLUSTER, file(json!({"location": "s"}))),
            ok(
                CLUSTER,
                file(json!({"location": long(256), "locationType": "Path"})),
            ),
            no(CLUSTER, file(json!({})), REQUIRED),
            no(CLUSTER, file(json!({"location": ""})), NOT_EMPTY),
            no(CLUSTER, file(json!({"location": long(257)})), "256"),
            no(
                CLUSTER,
                file(json!({"location": "a", "locationType": "Url"})),
                r#"supported values: "Secret", "Path""#,
            ),
        ]
    };
    in_versions(&[HUB], || {
        let mut cases = same(&source);
        let profile = |name: &str| json!({"clusterProfileRef": {"name": name}});
        cases.extend([
            ok(CLUSTER, source(profile("p"))),
            no(CLUSTER, source(profile("")), NOT_EMPTY),
            no(CLUSTER, source(profile(&long(257))), "256"),
            no(CLUSTER, json!({}), REQUIRED),
            no(CLUSTER, source(json!({})), one),
            no(
                CLUSTER,
                source(merged(profile("p"), json!({"kubeConfig": {"location": "s"}}))),
                one,
            ),
        ]);
        cases
    });
    in_versions(&[OLD], || {
        let mut cases = same(&|source| source);
        cases.extend([
            no(CLUSTER, json!({}), REQUIRED),
            no(CLUSTER, json!({"clusterProfileRef": {"name": "p"}}), REQUIRED),
        ]);
        cases
    });
}

/// Spec: api API-10.
#[test]
fn a_list_of_worker_clusters_follows_its_rules() {
    let clusters = |clusters: Value| json!({"clusters": clusters});
    in_versions(&[HUB, OLD], || {
        vec![
            ok(CONFIG, clusters(many(20, |n| json!(format!("c{n}"))))),
            no(
                CONFIG,
                clusters(many(21, |n| json!(format!("c{n}")))),
                "at most 20 items",
            ),
            no(CONFIG, clusters(json!([])), AT_LEAST_ONE),
            no(CONFIG, json!({}), REQUIRED),
        ]
    });
    in_versions(&[HUB], || {
        vec![
            no(CONFIG, clusters(json!(["a", "a"])), "must be unique"),
            no(CONFIG, clusters(json!([long(257)])), "256"),
            ok(CONFIG, json!({"clusters": ["a"], "quotaManagement": "Automated"})),
            no(
                CONFIG,
                json!({"clusters": ["a"], "quotaManagement": "No"}),
                r#"supported values: "Manual", "Automated""#,
            ),
        ]
    });
    in_versions(&[OLD], || {
        vec![
            no(CONFIG, clusters(json!(["a", "a"])), UNIQUE),
            ok(CONFIG, clusters(json!([long(257)]))),
            no(
                CONFIG,
                json!({"clusters": ["a"], "quotaManagement": "Manual"}),
                "unknown field",
            ),
        ]
    });
}

fn provisioning(more: Value) -> Value {
    merged(
        json!({"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}),
        more,
    )
}

fn selectors(selectors: Value) -> Value {
    provisioning(json!({"podSetUpdates": {"nodeSelector": selectors}}))
}

/// Spec: api API-10.
#[test]
fn settings_of_provisioning_follow_their_rules() {
    let numbered = |count: usize, value: &str| -> Value {
        let all: Map<_, _> = (0..count).map(|n| (format!("p{n}"), json!(value))).collect();
        provisioning(json!({"parameters": all}))
    };
    let resources = |resources: Value| provisioning(json!({"managedResources": resources}));
    let selector = |key: &str, value: &str| json!({"key": key, "valueFromProvisioningClassDetail": value});
    in_versions(&[HUB, OLD], || {
        vec![
            ok(PROVISIONING, numbered(100, &long(255))),
            no(PROVISIONING, numbered(101, "v"), "at most 100 items"),
            no(PROVISIONING, numbered(1, &long(256)), "255"),
            no(PROVISIONING, json!({}), REQUIRED),
            no(
                PROVISIONING,
                json!({"provisioningClassName": "Bad_Name"}),
                PATTERN,
            ),
            no(
                PROVISIONING,
                json!({"provisioningClassName": ""}),
                "provisioningClassName",
            ),
            ok(PROVISIONING, resources(many(100, |n| json!(format!("r{n}"))))),
            no(
                PROVISIONING,
                resources(many(101, |n| json!(format!("r{n}")))),
                "at most 100 items",
            ),
            no(PROVISIONING, resources(json!(["cpu", "cpu"])), UNIQUE),
            ok(
                PROVISIONING,
                selectors(many(8, |n| selector(&format!("k{n}"), "d"))),
            ),
            no(
                PROVISIONING,
                selectors(many(9, |n| selector(&format!("k{n}"), "d"))),
                "at most 8 items",
            ),
            no(PROVISIONING, selectors(json!([selector("a/b/c", "d")])), PATTERN),
            no(PROVISIONING, selectors(json!([selector(&long(318), "d")])), "317"),
            no(PROVISIONING, selectors(json!([selector("k", "")])), NOT_EMPTY),
            no(PROVISIONING, selectors(json!([{"key": "k"}])), REQUIRED),
            ok(
                PROVISIONING,
                provisioning(json!({"podSetMergePolicy": "IdenticalPodTemplates"})),
            ),
            no(
                PROVISIONING,
                provisioning(json!({"podSetMergePolicy": "Same"})),
                r#"supported values: "IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements""#,
            ),
        ]
    });
    let twice = || selectors(json!([selector("k", "a"), selector("k", "b")]));
    in_versions(&[HUB], || vec![no(PROVISIONING, twice(), UNIQUE)]);
    in_versions(&[OLD], || vec![ok(PROVISIONING, twice())]);
}

/// Spec: provisioning, the object.
#[test]
fn a_request_for_nodes_follows_its_rules() {
    let request = |template: &str, count: i32| json!({"provisioningClassName": "c", "podSets": [{"podTemplateRef": {"name": template}, "count": count}]});
    in_versions(&["v1"], || {
        vec![
            ok(REQUEST, request("t", 1)),
            no(REQUEST, request("t", 0), POSITIVE),
            no_change(REQUEST, request("t", 1), request("u", 1), "Value is immutable"),
        ]
    });
}
