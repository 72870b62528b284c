//! Custom resources.

use serde_json::{Value, json};

use crate::conformance::trace::{Dice, JSON_PATCH, MERGE, STRATEGIC, Step};
use crate::conformance::values::{JOB, POD, SAMPLES, WIDGET, WORKLOAD};

/// A field of a widget with a value that may be wrong.
fn field(dice: &mut Dice) -> (&'static str, Value) {
    let pick = dice.below(18);
    match pick {
        0 => ("size", (*dice.pick(&[-1, 0, 100, 101])).into()),
        1 => ("size", (*dice.pick(&["1", "x"])).into()),
        2 => ("low", (*dice.pick(&[1, 50])).into()),
        3 => ("ratio", json!(*dice.pick(&[0.5, 1.5]))),
        4 => ("color", (*dice.pick(&["red", "pink"])).into()),
        5 => ("label", (*dice.pick(&["a", "ab", "Abc", "abcdefghij"])).into()),
        6 => ("maybe", Value::Null),
        7 => ("color", Value::Null),
        8 => ("label", Value::Null),
        9 => (
            "amount",
            dice.pick(&[json!(1), json!("1"), json!(true), json!(1.5)])
                .clone(),
        ),
        10 => (
            "when",
            (*dice.pick(&["2026-01-01T00:00:00Z", "yesterday"])).into(),
        ),
        11 => ("free", json!({"any": [1, {"thing": 2}], "more": "x"})),
        12 => (
            "words",
            dice.pick(&[
                json!(["a", "b"]),
                json!(["a", "a"]),
                json!(["a", "b", "c", "d"]),
                json!([1]),
            ])
            .clone(),
        ),
        13 => (
            "many",
            dice.pick(&[
                json!({"a": 1}),
                json!({"a": "x"}),
                json!({"a": 1, "b": 2, "c": 3}),
            ])
            .clone(),
        ),
        14 => (
            "parts",
            dice.pick(&[
                json!([{"name": "a"}]),
                json!([{}]),
                json!([{"name": "a"}, {"name": "a"}]),
                json!([{"name": "a", "extra": 1}]),
                json!({}),
            ])
            .clone(),
        ),
        15 => ("unknown", 1.into()),
        16 => ("fixed", (*dice.pick(&["a", "b"])).into()),
        _ => ("whole", json!({"a": "x", "c": "pruned"})),
    }
}

/// New widgets, right and wrong.
pub(super) fn validation(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    for at in 0..6 {
        let name = format!("{}-{at}", WIDGET.name(dice));
        let mut object = WIDGET.object(&name, dice);
        for _ in 0..=dice.below(2) {
            let (field, value) = field(dice);
            object["spec"][field] = value;
        }
        if dice.chance(10) {
            object["spec"] = json!({});
        }
        let mode = *dice.pick(&[
            "",
            "?fieldValidation=Strict",
            "?fieldValidation=Warn",
            "?fieldValidation=Ignore",
        ]);
        steps.push(Step::post(format!("{}{mode}", WIDGET.list()), object));
    }
    steps
}

/// Changes of widgets, right and wrong.
pub(super) fn change(dice: &mut Dice) -> Vec<Step> {
    let name = WIDGET.name(dice);
    let at = WIDGET.at(&name);
    let mut object = WIDGET.object(&name, dice);
    object["spec"]["fixed"] = "a".into();
    let mut steps = vec![Step::post(WIDGET.list(), object)];
    for _ in 0..6 {
        let (field, value) = field(dice);
        steps.push(match dice.below(3) {
            0 => Step::patch(
                at.clone(),
                JSON_PATCH,
                json!([{"op": "add", "path": format!("/spec/{field}"), "value": value}]),
            ),
            1 => Step::patch(at.clone(), STRATEGIC, json!({"spec": {field: value}})),
            _ => Step::patch(at.clone(), MERGE, json!({"spec": {field: value}})),
        });
    }
    steps.push(Step::patch(at.clone(), MERGE, json!({"spec": {"parts": [{"name": "a", "count": *dice.pick(&[0, 1, 2])}, {"name": "new", "count": 0}]}})));
    steps.push(Step::get(at));
    steps
}

/// Status and scale.
pub(super) fn subresources(dice: &mut Dice) -> Vec<Step> {
    let name = WIDGET.name(dice);
    let at = WIDGET.at(&name);
    let mut object = WIDGET.object(&name, dice);
    object["status"] = json!({"size": 5});
    let mut whole = object.clone();
    whole["metadata"]["resourceVersion"] = format!("$rv:Widget/{name}").into();
    whole["metadata"]["labels"]["more"] = "x".into();
    whole["status"] = json!({"size": *dice.pick(&[1, 2]), "selector": "a=b", "pruned": 1});
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": "{ns}"}, "spec": {"replicas": *dice.pick(&[3, 200])}});
    vec![
        Step::post(WIDGET.list(), object),
        Step::put(format!("{at}/status"), whole),
        Step::patch(
            format!("{at}/status"),
            MERGE,
            json!({"spec": {"size": 50}, "metadata": {"labels": {"a": "b"}}, "status": {"size": 3}}),
        ),
        Step::patch(
            format!("{at}/status"),
            MERGE,
            json!({"status": {"size": "wrong"}}),
        ),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"status": {"size": 9}, "spec": {"size": 2}}),
        ),
        Step::get(format!("{at}/status")),
        Step::get(format!("{at}/scale")),
        Step::patch(
            format!("{at}/scale"),
            MERGE,
            json!({"spec": {"replicas": *dice.pick(&[4, 6])}}),
        ),
        Step::put(format!("{at}/scale"), scale),
        Step::get(at),
    ]
}

/// The product's own kinds along their life.
pub(super) fn product(dice: &mut Dice) -> Vec<Step> {
    let name = WORKLOAD.name(dice);
    let at = WORKLOAD.at(&name);
    let status = format!("{at}/status");
    let condition = |kind: &str, word: &str| json!({"type": kind, "status": word, "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let reserved = json!({"status": {
        "conditions": [condition("QuotaReserved", "True")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}]},
    }});
    let mut steps = vec![Step::post(WORKLOAD.list(), WORKLOAD.object(&name, dice))];
    for _ in 0..5 {
        steps.push(match dice.below(9) {
            0 => Step::patch(status.clone(), MERGE, reserved.clone()),
            1 => Step::patch(status.clone(), MERGE, json!({"status": {"clusterName": *dice.pick(&["w1", "w2"])}})),
            2 => Step::patch(status.clone(), MERGE, json!({"status": {"nominatedClusterNames": ["w1", "w2"]}})),
            3 => Step::patch(at.clone(), MERGE, json!({"spec": {"queueName": "other"}})),
            4 => Step::patch(at.clone(), MERGE, json!({"spec": {"active": false}})),
            5 => Step::patch(at.clone(), MERGE, json!({"spec": {"maximumExecutionTimeSeconds": *dice.pick(&[0, 5])}})),
            6 => Step::patch(status.clone(), MERGE, json!({"status": {"conditions": [condition("Admitted", dice.pick::<&str>(&["True", "Maybe"]))]}})),
            7 => Step::patch(at.clone(), MERGE, json!({"spec": {"priority": 5, "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}}})),
            _ => Step::patch(status.clone(), MERGE, json!({"status": {"admissionChecks": [{"name": "a", "state": *dice.pick(&["Pending", "Ready", "Odd"]), "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})),
        });
    }
    steps.push(Step::get(at));
    steps.push(Step::get(format!(
        "{}?fieldSelector=status.admission.clusterQueue%3Dcq",
        WORKLOAD.list()
    )));
    steps
}

/// Definitions that are refused, and one that is not.
pub(super) fn definitions(dice: &mut Dice) -> Vec<Step> {
    let group = format!("{}.example.com", dice.stem);
    let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}],
        },
    });
    match dice.below(9) {
        0 => definition["metadata"]["name"] = "other.example.com".into(),
        1 => definition["spec"]["scope"] = "Everywhere".into(),
        2 => definition["spec"]["versions"][0]["storage"] = false.into(),
        3 => definition["spec"]["versions"][0]["schema"] = json!({}),
        4 => {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
                ["a"] = json!({});
        }
        5 => {
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
                json!([{"rule": "self.a =="}]);
        }
        6 => definition["spec"]["group"] = "nodots".into(),
        _ => {}
    }
    vec![Step::post(format!("{at}?dryRun=All"), definition)]
}

/// Unknown fields in all kinds.
pub(super) fn unknown_fields(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    for at in 0..4 {
        let sample = *dice.pick(SAMPLES);
        let name = format!("{}-{at}", sample.name(dice));
        let mut object = sample.object(&name, dice);
        object["unknown"] = 1.into();
        object["metadata"]["unknown"] = json!({"deep": 1});
        if sample == JOB || sample == POD || sample == WIDGET {
            object["spec"]["unknown"] = "x".into();
        }
        let mode = *dice.pick(&["", "Strict", "Warn", "Ignore", "Nonsense"]);
        steps.push(Step::post(
            format!("{}?fieldValidation={mode}", sample.list()),
            object,
        ));
    }
    steps
}
