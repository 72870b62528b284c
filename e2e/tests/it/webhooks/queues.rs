//! ClusterQueue, Cohort, ResourceFlavor.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::ground::{KUEUE, OLDER, Part, api, create, judge, on_cluster, patch, try_create};

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}});
    object["spec"] = spec;
    object
}

fn quota(name: &str, nominal: &str, borrowing: Value, lending: Value) -> Value {
    let mut quota = json!({"name": name, "nominalQuota": nominal});
    for (field, limit) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
        if !limit.is_null() {
            quota[field] = limit;
        }
    }
    quota
}

fn cpu(nominal: &str) -> Value {
    quota("cpu", nominal, Value::Null, Value::Null)
}

fn group(covered: &[&str], flavor: &str, resources: &[Value]) -> Value {
    json!({"coveredResources": covered, "flavors": [{"name": flavor, "resources": resources}]})
}

/// Groups of 63 flavors each with one resource of their own.
fn wide_groups(count: usize) -> Vec<Value> {
    let flavors = |group: usize| -> Vec<Value> {
        let quota = quota(&format!("r{group}"), "1", Value::Null, Value::Null);
        (0..63)
            .map(|index| json!({"name": format!("f{group}-{index}"), "resources": [quota]}))
            .collect()
    };
    (0..count)
        .map(|group| json!({"coveredResources": [format!("r{group}")], "flavors": flavors(group)}))
        .collect()
}

/// Each rule with an example on either side of it.
///
/// Spec: api API-2.4; admission-engine B006, B007, B008, B011.
#[test]
fn each_rule_about_cluster_queues_holds() {
    let limits = |lending: &str| {
        json!({"cohortName": "c", "resourceGroups": [
            group(&["cpu"], "f", &[quota("cpu", "10", Value::Null, json!(lending))])]})
    };
    let ordered = |first: &str, second: &str| {
        let quota = |name: &str| quota(name, "1", Value::Null, Value::Null);
        json!({"resourceGroups": [group(&["cpu", "memory"], "f", &[quota(first), quota(second)])]})
    };
    let two = |resource: &str, flavor: &str| {
        let other = quota(resource, "1", Value::Null, Value::Null);
        json!({"resourceGroups": [group(&["cpu"], "spot", &[cpu("1")]), group(&[resource], flavor, &[other])]})
    };
    let named = |name: &str| json!({"resourceGroups": [group(&[name], "f", &[quota(name, "1", Value::Null, Value::Null)])]});
    let weight = |weight: &str| json!({"fairSharing": {"weight": weight}});
    let selector = |operator: &str| json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": operator, "values": ["a"]}]}});
    let on = |flavor: &str| {
        json!({"resourceGroups": [group(&["cpu"], "f", &[cpu("1")])],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "x", "onFlavors": [flavor]}]}})
    };
    let lone =
        json!({"resourceGroups": [group(&["cpu"], "f", &[quota("cpu", "1", Value::Null, json!("1"))])]});
    let cases = [
        ("lends what it has", limits("10"), None),
        (
            "lends more than it has",
            limits("11"),
            Some("must be less than or equal to the nominalQuota"),
        ),
        (
            "lends a negative amount",
            limits("-1"),
            Some("must be greater than or equal to 0"),
        ),
        (
            "lends without a cohort",
            lone,
            Some("lendingLimit: Invalid value: \"1\": must be nil when cohort is empty"),
        ),
        ("in order", ordered("cpu", "memory"), None),
        (
            "out of order",
            ordered("memory", "cpu"),
            Some("must match the name in coveredResources"),
        ),
        ("two groups", two("memory", "other"), None),
        (
            "a flavor twice",
            two("memory", "spot"),
            Some("flavors[0].name: Duplicate value: \"spot\""),
        ),
        (
            "a resource twice",
            two("cpu", "other"),
            Some("coveredResources[0]: Duplicate value: \"cpu\""),
        ),
        ("a resource with a domain", named("example.com/gpu"), None),
        (
            "no name of a resource",
            named("-gpu"),
            Some("coveredResources[0]: Invalid value: \"-gpu\""),
        ),
        (
            "four groups of 63",
            json!({"resourceGroups": wide_groups(4)}),
            None,
        ),
        (
            "five groups of 63",
            json!({"resourceGroups": wide_groups(5)}),
            Some("Too many: 315: must have at most 256 items"),
        ),
        ("weight 0", weight("0"), None),
        ("weight a half", weight("0.5"), None),
        (
            "a negative weight",
            weight("-1"),
            Some("fairSharing.weight: Invalid value: \"-1\""),
        ),
        (
            "a tiny weight",
            weight("1n"),
            Some("When not 0, weight must be > 10e-9"),
        ),
        ("a selector", selector("In"), None),
        (
            "no selector",
            selector("Like"),
            Some("operator: Unsupported value: \"Like\""),
        ),
        ("a check on its flavor", on("f"), None),
        (
            "a check on another",
            on("g"),
            Some("onFlavors[0]: Unsupported value: \"g\": supported values: \"f\""),
        ),
    ];
    on_cluster(|_, client| async move {
        for (about, spec, refusal) in cases {
            let answer = try_create(&client, &object("ClusterQueue", "rules", spec)).await;
            judge(about, &answer, "vclusterqueue.kb.io", refusal);
        }
    });
}

/// Spec: api API-2.4; admission-engine B001.
#[test]
fn a_new_queue_has_its_defaults_and_its_finalizer() {
    on_cluster(|_, client| async move {
        let spec = json!({"namespaceSelector": {}, "resourceGroups": [group(&["cpu"], "f", &[cpu("1")])]});
        let made = try_create(&client, &object("ClusterQueue", "fresh", spec))
            .await
            .unwrap();
        let spec = &made["spec"];
        let expect = json!({"queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never",
                "borrowWithinCohort": {"policy": "Never"}}});
        for (field, value) in expect.as_object().unwrap() {
            assert_eq!(&spec[field], value, "{field}");
        }
        assert_eq!(
            made["metadata"]["finalizers"],
            json!(["kueue.x-k8s.io/resource-in-use"])
        );
        let flavor = try_create(&client, &object("ResourceFlavor", "fresh", json!({})))
            .await
            .unwrap();
        assert_eq!(
            flavor["metadata"]["finalizers"],
            json!(["kueue.x-k8s.io/resource-in-use"])
        );
    });
}

/// All problems are told at once.
#[test]
fn two_problems_are_told_in_one_answer() {
    on_cluster(|_, client| async move {
        let spec = json!({"fairSharing": {"weight": "-1"}, "cohortName": "c",
            "resourceGroups": [group(&["cpu"], "f", &[cpu("-2")])]});
        let said = try_create(&client, &object("ClusterQueue", "wrong", spec))
            .await
            .unwrap_err();
        for part in ["spec.fairSharing.weight", "nominalQuota: Invalid value: \"-2\""] {
            assert!(said.contains(part), "{said}");
        }
    });
}

/// Spec: api API-2.4 rules 9 and 10.
#[test]
fn changes_of_a_queue_are_checked_too() {
    on_cluster(|_, client| async move {
        let spec = json!({"resourceGroups": [group(&["cpu"], "f", &[cpu("1")])]});
        let queue = object("ClusterQueue", "changed", spec);
        create(&client, &queue).await;
        let policy = json!({"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}});
        let check =
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "x", "onFlavors": ["g"]}]}});
        for (about, change, refusal) in [
            ("strategy", json!({"queueingStrategy": "StrictFIFO"}), None),
            ("cohort", json!({"cohortName": "other"}), None),
            (
                "policy",
                policy,
                Some("concurrentAdmissionPolicy: Invalid value: field is immutable"),
            ),
            ("check", check, Some("Unsupported value: \"g\"")),
        ] {
            let answer = patch(&client, &queue, Part::Main, &json!({ "spec": change }), true).await;
            judge(about, &answer, "vclusterqueue.kb.io", refusal);
        }
    });
}

/// What is written in the older version is converted, then checked as the newer one.
///
/// Spec: api API-11; admission-engine B002.
#[test]
fn older_writers_are_checked_by_the_same_rules() {
    on_cluster(|_, client| async move {
        let older = |lending: &str| {
            let mut queue = object(
                "ClusterQueue",
                "older",
                json!({"cohort": "c", "resourceGroups": [
                group(&["cpu"], "f", &[quota("cpu", "10", Value::Null, json!(lending))])]}),
            );
            queue["apiVersion"] = json!(OLDER);
            queue
        };
        let refusal = Some("must be less than or equal to the nominalQuota");
        judge(
            "lends too much",
            &try_create(&client, &older("11")).await,
            "vclusterqueue.kb.io",
            refusal,
        );
        let made = create(&client, &older("10")).await;
        assert_eq!(made["spec"]["cohort"], "c");
        let newer = object("ClusterQueue", "older", json!({}));
        let seen = api(&client, &newer).get("older").await.unwrap();
        assert_eq!(seen.data["spec"]["cohortName"], "c");
    });
}

/// Spec: api API-4; admission-engine B006.
#[test]
fn each_rule_about_cohorts_holds() {
    let limits = |borrowing: Value, lending: Value| {
        json!([group(&["cpu"], "f", &[quota("cpu", "10", borrowing, lending)])])
    };
    let both = limits(json!("1"), json!("11"));
    let cases = [
        (
            "lends its subtree",
            json!({"parentName": "root", "resourceGroups": both}),
            None,
        ),
        (
            "limits at the root",
            json!({"resourceGroups": both}),
            Some("must be nil when parent is empty"),
        ),
        (
            "no limits at the root",
            json!({"resourceGroups": limits(Value::Null, Value::Null)}),
            None,
        ),
        ("its own parent", json!({"parentName": "rules"}), None),
        (
            "a tiny weight",
            json!({"fairSharing": {"weight": "1n"}}),
            Some("When not 0, weight must be > 10e-9"),
        ),
    ];
    on_cluster(|_, client| async move {
        for (about, spec, refusal) in cases {
            let answer = try_create(&client, &object("Cohort", "rules", spec)).await;
            judge(about, &answer, "vcohort.kb.io", refusal);
        }
    });
}

/// Spec: api API-5.
#[test]
fn each_rule_about_flavors_holds() {
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "x", "effect": effect});
    let cases = [
        ("labels", json!({"nodeLabels": {"example.com/a": "b"}}), None),
        (
            "no label key",
            json!({"nodeLabels": {"a b": "c"}}),
            Some("spec.nodeLabels: Invalid value: \"a b\""),
        ),
        (
            "no label value",
            json!({"nodeLabels": {"a": "b c"}}),
            Some("spec.nodeLabels[a]: Invalid value: \"b c\""),
        ),
        (
            "taints",
            json!({"nodeTaints": [taint("a", "NoSchedule"), taint("a", "NoExecute")]}),
            None,
        ),
        (
            "a taint twice",
            json!({"nodeTaints": [taint("a", "NoSchedule"), taint("a", "NoSchedule")]}),
            Some("spec.nodeTaints[1]: Duplicate value: \"a:NoSchedule\""),
        ),
        (
            "no taint key",
            json!({"nodeTaints": [taint("-", "NoSchedule")]}),
            Some("nodeTaints[0].key"),
        ),
        (
            "a toleration",
            json!({"tolerations": [{"key": "a", "operator": "Exists"}]}),
            None,
        ),
        (
            "no toleration key",
            json!({"tolerations": [{"key": "a b", "operator": "Exists"}]}),
            Some("spec.tolerations[0].key: Invalid value: \"a b\""),
        ),
        (
            "no toleration value",
            json!({"tolerations": [{"key": "a", "operator": "Equal", "value": "b c"}]}),
            Some("spec.tolerations[0].value: Invalid value: \"b c\""),
        ),
    ];
    on_cluster(|_, client| async move {
        for (about, spec, refusal) in cases {
            let answer = try_create(&client, &object("ResourceFlavor", "rules", spec)).await;
            judge(about, &answer, "vresourceflavor.kb.io", refusal);
        }
    });
}

/// Programs tell a webhook's refusal from the schema's by its code, and find the fields in its causes.
///
/// Spec: api API-2.4
#[test]
fn a_refusal_is_forbidden_and_has_a_cause_for_each_field() {
    let quotas = [quota("cpu", "-1", Value::Null, Value::Null)];
    let two = json!({"resourceGroups": [group(&["cpu"], "f", &quotas)], "fairSharing": {"weight": "-1"}});
    let one = json!({"fairSharing": {"weight": "-1"}});
    on_cluster(|_, client| async move {
        let by = "admission webhook \"vclusterqueue.kb.io\" denied the request: ";
        let weight = "spec.fairSharing.weight: Invalid value: \"-1\"";
        for (spec, fields) in [
            (one, &["spec.fairSharing.weight"][..]),
            (
                two,
                &[
                    "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
                    "spec.fairSharing.weight",
                ],
            ),
        ] {
            let object = object("ClusterQueue", "refused", spec);
            let typed = serde_json::from_value(object.clone()).unwrap();
            let refused = api(&client, &object).create(&PostParams::default(), &typed).await;
            let Err(kube::Error::Api(status)) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
            let causes = &status.details.as_ref().unwrap().causes;
            let named: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(named, fields);
            assert!(
                causes.iter().all(|cause| cause.reason == "FieldValueInvalid"),
                "{causes:?}"
            );
            let (bracket, message) = (if fields.len() > 1 { "[" } else { "" }, &status.message);
            assert!(message.starts_with(&format!("{by}{bracket}spec.")), "{message}");
            assert!(message.contains(weight), "{message}");
        }
    });
}
