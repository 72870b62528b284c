//! Create, change and delete.

use serde_json::{Value, json};

use crate::conformance::trace::{Dice, JSON_PATCH, MERGE, STRATEGIC, Step};
use crate::conformance::values::{self, CONFIG_MAP, JOB, POD, SAMPLES, Sample, WIDGET};

fn any(dice: &mut Dice) -> Sample {
    *dice.pick(SAMPLES)
}

/// A kind whose objects can be sent again unchanged. A Job cannot: it must then have its generated selector.
fn replaceable(dice: &mut Dice) -> Sample {
    let sample = any(dice);
    if sample == JOB { WIDGET } else { sample }
}

/// Create, again, read, replace, delete, again.
pub(super) fn life(dice: &mut Dice) -> Vec<Step> {
    let sample = replaceable(dice);
    let name = sample.name(dice);
    let object = sample.object(&name, dice);
    let (list, at) = (sample.list(), sample.at(&name));
    let mut steps = vec![
        Step::post(list.clone(), object.clone()),
        Step::post(list.clone(), object.clone()),
        Step::get(at.clone()),
        Step::put(at.clone(), with_version(&object, sample, &name)),
        Step::delete(at.clone()),
        Step::delete(at.clone()),
        Step::get(at.clone()),
    ];
    if dice.chance(40) {
        let mut generated = object;
        generated["metadata"] = json!({"generateName": "made-"});
        steps.push(Step::post(list, generated));
    }
    if dice.chance(20) {
        steps.insert(
            0,
            Step::post(
                format!("{}?dryRun=All", sample.list()),
                sample.object(&name, dice),
            ),
        );
    }
    steps
}

fn with_version(object: &Value, sample: Sample, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = format!("$rv:{}/{name}", sample.kind).into();
    object["metadata"]["labels"]["put"] = "yes".into();
    object
}

/// Replacing with the right, an old, a foreign and no version, and other preconditions.
pub(super) fn versions(dice: &mut Dice) -> Vec<Step> {
    let sample = replaceable(dice);
    let name = sample.name(dice);
    let object = sample.object(&name, dice);
    let at = sample.at(&name);
    let label = |value: &str| json!({"metadata": {"labels": {"n": value}}});
    let mut stale = object.clone();
    stale["metadata"]["resourceVersion"] = "1".into();
    let mut foreign = object.clone();
    foreign["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let mut strange = object.clone();
    strange["metadata"]["resourceVersion"] = "abc".into();
    let options =
        |conditions: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions});
    vec![
        Step::put(at.clone(), object.clone()),
        Step::post(sample.list(), object.clone()),
        Step::patch(at.clone(), MERGE, label("1")),
        Step::put(at.clone(), stale),
        Step::put(at.clone(), object.clone()),
        Step::put(at.clone(), with_version(&object, sample, &name)),
        Step::put(at.clone(), with_version(&object, sample, &name)),
        Step::put(at.clone(), foreign),
        Step::put(at.clone(), strange),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"metadata": {"resourceVersion": "1", "labels": {"n": "2"}}}),
        ),
        Step::patch(at.clone(), MERGE, json!({"metadata": {"uid": "other"}})),
        Step::delete(at.clone()).body(options(json!({"uid": "other"}))),
        Step::delete(at.clone()).body(options(json!({"resourceVersion": "1"}))),
        Step::delete(at).body(options(json!({"uid": format!("$uid:{}/{name}", sample.kind)}))),
    ]
}

/// The three kinds of patches.
pub(super) fn patches(dice: &mut Dice) -> Vec<Step> {
    let sample = any(dice);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let mut steps = vec![
        Step::patch(at.clone(), MERGE, Sample::harmless(dice)),
        Step::post(sample.list(), sample.object(&name, dice)),
        Step::patch(at.clone(), MERGE, Sample::harmless(dice)),
        Step::patch(at.clone(), MERGE, Sample::harmless(dice)),
        Step::patch(at.clone(), STRATEGIC, Sample::harmless(dice)),
        Step::patch(at.clone(), MERGE, json!({"metadata": {"labels": null}})),
        Step::patch(
            at.clone(),
            JSON_PATCH,
            json!([{"op": "add", "path": "/metadata/annotations", "value": {"example.com/x": "y"}}]),
        ),
        Step::patch(
            at.clone(),
            JSON_PATCH,
            json!([{"op": "remove", "path": "/metadata/nothing"}]),
        ),
        Step::patch(
            at.clone(),
            JSON_PATCH,
            json!([{"op": "test", "path": "/metadata/name", "value": "other"}]),
        ),
        Step::patch(
            at.clone(),
            JSON_PATCH,
            json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]),
        ),
        Step::patch(at.clone(), JSON_PATCH, json!({"op": "add"})),
        Step::patch(at.clone(), MERGE, json!([1])),
        Step::patch(at.clone(), "application/unknown", json!({})),
        Step::patch(format!("{at}?force=true"), MERGE, json!({})),
    ];
    if sample == JOB {
        let containers = json!([{"name": "main", "env": [{"name": "B", "value": "2"}]}]);
        steps.push(Step::patch(
            at.clone(),
            STRATEGIC,
            json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        ));
        steps.push(Step::patch(at, STRATEGIC, json!({"spec": {"parallelism": 5}})));
    } else if sample == POD {
        let containers = json!([{"name": "main", "image": "busybox:2"}]);
        steps.push(Step::patch(
            at.clone(),
            STRATEGIC,
            json!({"spec": {"containers": containers}}),
        ));
        steps.push(Step::patch(
            at.clone(),
            STRATEGIC,
            json!({"spec": {"containers": [{"image": "x"}]}}),
        ));
        steps.push(Step::patch(at, STRATEGIC, json!({"metadata": {"finalizers": ["example.com/f"], "$deleteFromPrimitiveList/finalizers": ["example.com/g"]}})));
    } else if sample == CONFIG_MAP {
        steps.push(Step::patch(
            at.clone(),
            STRATEGIC,
            json!({"data": {"$patch": "replace", "c": "3"}}),
        ));
        steps.push(Step::patch(at, MERGE, json!({"data": {"a": 5}})));
    }
    steps
}

/// An object that waits for a finalizer.
pub(super) fn finalizers(dice: &mut Dice) -> Vec<Step> {
    let sample = any(dice);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let mut object = sample.object(&name, dice);
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    vec![
        Step::post(sample.list(), object),
        Step::delete(at.clone()),
        Step::delete(at.clone()),
        Step::get(at.clone()),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}}),
        ),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"metadata": {"finalizers": ["example.com/a"]}}),
        ),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"metadata": {"deletionTimestamp": null}}),
        ),
        Step::patch(at.clone(), MERGE, Sample::harmless(dice)),
        Step::patch(at.clone(), MERGE, json!({"metadata": {"finalizers": null}})),
        Step::get(at),
    ]
}

/// The policies of deletion.
pub(super) fn propagation(dice: &mut Dice) -> Vec<Step> {
    let sample = any(dice);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let policy = *dice.pick(&["Background", "Foreground", "Orphan", "Nonsense"]);
    let mut steps = vec![Step::post(sample.list(), sample.object(&name, dice))];
    steps.push(if dice.chance(50) {
        Step::delete(at.clone())
            .body(json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}))
    } else {
        Step::delete(format!("{at}?propagationPolicy={policy}"))
    });
    steps.push(Step::get(at.clone()));
    steps.push(Step::delete(format!("{at}?gracePeriodSeconds=0")));
    steps.push(Step::get(at));
    if sample.namespaced {
        steps.push(Step::post(
            sample.list(),
            sample.object(&format!("{name}-2"), dice),
        ));
        steps.push(Step::delete(format!("{}?labelSelector=tier%3Dx", sample.list())));
        steps.push(Step::get(sample.list()));
    }
    steps
}

/// Names and labels that are wrong.
pub(super) fn names(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..4 {
        let sample = any(dice);
        let name = sample.name(dice);
        let mut object = sample.object(&name, dice);
        let long = "x".repeat(64);
        let bad = *dice.pick(&["A_", "", "-a", "a/b", "a.b", &long, "a b"]);
        match dice.below(8) {
            0 => object["metadata"]["name"] = bad.into(),
            1 => object["metadata"]["labels"] = json!({"key": bad}),
            2 => object["metadata"]["labels"] = json!({bad: "value"}),
            3 => object["metadata"]["annotations"] = json!({bad: "value"}),
            4 => object["metadata"]["namespace"] = "other".into(),
            5 => object["metadata"]["finalizers"] = json!([bad]),
            6 => object["kind"] = "Other".into(),
            _ => {
                object["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "Pod", "name": bad, "uid": "u"}]);
            }
        }
        steps.push(Step::post(sample.list(), object));
    }
    steps
}

/// Places in an object where a wrong value is tried.
const PLACES: &[(&str, &[&str])] = &[
    (
        "configmaps",
        &[
            "/data",
            "/data/a",
            "/immutable",
            "/metadata/labels",
            "/metadata/generateName",
        ],
    ),
    ("secrets", &["/data", "/data/key", "/type", "/immutable"]),
    (
        "pods",
        &[
            "/spec",
            "/spec/containers",
            "/spec/containers/0/name",
            "/spec/containers/0/image",
            "/spec/restartPolicy",
            "/spec/nodeName",
            "/spec/activeDeadlineSeconds",
            "/spec/terminationGracePeriodSeconds",
        ],
    ),
    (
        "jobs",
        &[
            "/spec",
            "/spec/parallelism",
            "/spec/completions",
            "/spec/suspend",
            "/spec/backoffLimit",
            "/spec/template",
            "/spec/template/spec/restartPolicy",
            "/spec/completionMode",
            "/spec/template/spec/containers",
            "/spec/activeDeadlineSeconds",
            "/spec/ttlSecondsAfterFinished",
        ],
    ),
    (
        "widgets",
        &[
            "/spec",
            "/spec/size",
            "/spec/color",
            "/spec/label",
            "/spec/amount",
            "/spec/parts",
            "/spec/parts/0/name",
            "/spec/parts/0/count",
            "/spec/words",
            "/spec/many",
            "/spec/free",
            "/spec/maybe",
            "/spec/when",
            "/spec/ratio",
            "/spec/low",
            "/status",
            "/metadata/labels",
        ],
    ),
    (
        "workloads",
        &[
            "/spec",
            "/spec/queueName",
            "/spec/podSets",
            "/spec/podSets/0/name",
            "/spec/podSets/0/count",
            "/spec/podSets/0/minCount",
            "/spec/active",
            "/spec/priority",
            "/spec/maximumExecutionTimeSeconds",
        ],
    ),
    (
        "leases",
        &[
            "/spec",
            "/spec/holderIdentity",
            "/spec/leaseDurationSeconds",
            "/spec/leaseTransitions",
        ],
    ),
    (
        "clusterqueues",
        &[
            "/spec",
            "/spec/resourceGroups",
            "/spec/resourceGroups/0/flavors",
            "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota",
            "/spec/queueingStrategy",
            "/spec/stopPolicy",
        ],
    ),
    (
        "localqueues",
        &["/spec", "/spec/clusterQueue", "/spec/stopPolicy"],
    ),
    (
        "admissionchecks",
        &["/spec", "/spec/controllerName", "/spec/parameters"],
    ),
    (
        "resourceflavors",
        &[
            "/spec",
            "/spec/nodeLabels",
            "/spec/nodeTaints",
            "/spec/tolerations",
            "/spec/topologyName",
        ],
    ),
    ("priorityclasses", &["/value", "/preemptionPolicy"]),
    ("runtimeclasses", &["/handler"]),
    ("roles", &["/rules", "/rules/0/verbs", "/rules/0/apiGroups"]),
    (
        "rolebindings",
        &[
            "/roleRef/kind",
            "/roleRef/name",
            "/subjects/0/kind",
            "/subjects/0/name",
        ],
    ),
];

/// Wrong values in the right places.
pub(super) fn junk(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..6 {
        let (plural, places) = *dice.pick(PLACES);
        let Some(sample) = SAMPLES.iter().copied().find(|sample| sample.plural == plural) else {
            continue;
        };
        let name = sample.name(dice);
        let object = sample.object(&name, dice);
        let place = *dice.pick(places);
        let patched = put_at(object, place, values::junk(dice));
        steps.push(Step::post(sample.list(), patched));
    }
    steps
}

fn put_at(mut object: Value, place: &str, value: Value) -> Value {
    let (above, field) = place.rsplit_once('/').unwrap_or(("", place));
    if let Some(map) = object.pointer_mut(above).and_then(Value::as_object_mut) {
        map.insert(field.to_owned(), value);
    }
    object
}

/// Allowed and forbidden changes of a Job.
pub(super) fn job_change(dice: &mut Dice) -> Vec<Step> {
    let name = JOB.name(dice);
    let at = JOB.at(&name);
    let mut steps = vec![Step::post(JOB.list(), JOB.object(&name, dice))];
    for _ in 0..5 {
        let change = match dice.below(10) {
            0 => json!({"spec": {"suspend": true}}),
            1 => json!({"spec": {"suspend": false}}),
            2 => json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "z2"}}}}}),
            3 => json!({"spec": {"template": {"metadata": {"labels": {"added": "x"}}}}}),
            4 => {
                json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}})
            }
            5 => json!({"spec": {"completions": 7}}),
            6 => json!({"spec": {"parallelism": *dice.pick(&[0, 4])}}),
            7 => json!({"spec": {"managedBy": "example.com/other"}}),
            8 => json!({"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/g"}]}}}}),
            _ => json!({"spec": {"completionMode": "Indexed"}}),
        };
        steps.push(Step::patch(at.clone(), MERGE, change));
    }
    steps.push(Step::get(at.clone()));
    steps.push(Step::delete(at.clone()));
    steps.push(Step::get(at));
    steps
}

/// Allowed and forbidden statuses of a Job.
pub(super) fn job_status(dice: &mut Dice) -> Vec<Step> {
    let name = JOB.name(dice);
    let at = format!("{}/status", JOB.at(&name));
    let mut steps = vec![Step::post(JOB.list(), JOB.object(&name, dice))];
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for _ in 0..4 {
        let mut status = json!({});
        if dice.chance(60) {
            status["startTime"] = (*dice.pick(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])).into();
        }
        if dice.chance(30) {
            status["completionTime"] = "2026-01-01T01:00:00Z".into();
        }
        if dice.chance(40) {
            status["active"] = (*dice.pick(&[0, 1])).into();
        }
        if dice.chance(30) {
            status["succeeded"] = (*dice.pick(&[1, 2])).into();
        }
        if dice.chance(20) {
            status["ready"] = 1.into();
        }
        let mut conditions = Vec::new();
        for kind in [
            "SuccessCriteriaMet",
            "Complete",
            "FailureTarget",
            "Failed",
            "Suspended",
        ] {
            if dice.chance(25) {
                conditions.push(condition(kind, if dice.chance(85) { "True" } else { "False" }));
            }
        }
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        steps.push(Step::patch(
            at.clone(),
            MERGE,
            json!({"status": status, "metadata": {"labels": {"x": "y"}}, "spec": {"parallelism": 9}}),
        ));
    }
    steps.push(Step::get(JOB.at(&name)));
    steps
}

/// Allowed and forbidden changes of a pod, and its end.
pub(super) fn pod_change(dice: &mut Dice) -> Vec<Step> {
    let name = POD.name(dice);
    let at = POD.at(&name);
    let mut steps = vec![Step::post(POD.list(), POD.object(&name, dice))];
    let bound = dice.chance(50);
    if bound {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        steps.push(Step::post(format!("{at}/binding"), binding.clone()));
        steps.push(Step::post(format!("{at}/binding"), binding));
    }
    for _ in 0..4 {
        let change = match dice.below(8) {
            0 => Step::patch(
                at.clone(),
                STRATEGIC,
                json!({"spec": {"containers": [{"name": "main", "image": "other:1"}]}}),
            ),
            1 => Step::patch(at.clone(), MERGE, json!({"spec": {"activeDeadlineSeconds": 5}})),
            2 => Step::patch(at.clone(), MERGE, json!({"spec": {"restartPolicy": "OnFailure"}})),
            3 => Step::patch(
                at.clone(),
                MERGE,
                json!({"spec": {"nodeSelector": {"zone": "z1", "more": "m"}}}),
            ),
            4 => Step::patch(at.clone(), MERGE, json!({"spec": {"schedulingGates": null}})),
            5 => Step::patch(
                format!("{at}/status"),
                MERGE,
                json!({"status": {"phase": *dice.pick(&["Running", "Succeeded"])}}),
            ),
            6 => Step::patch(at.clone(), MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
            _ => Step::patch(
                at.clone(),
                MERGE,
                json!({"spec": {"schedulingGates": [{"name": "example.com/new"}]}}),
            ),
        };
        steps.push(change);
    }
    let grace = *dice.pick(&["", "?gracePeriodSeconds=5", "?gracePeriodSeconds=0"]);
    steps.push(Step::delete(format!("{at}{grace}")));
    steps.push(Step::get(at));
    steps
}

/// Changes of immutable fields.
pub(super) fn immutable(dice: &mut Dice) -> Vec<Step> {
    let sample = any(dice);
    let name = sample.name(dice);
    let at = sample.at(&name);
    let change = match sample.plural {
        "secrets" => json!({"type": "other"}),
        "configmaps" => json!({"immutable": true}),
        "priorityclasses" => json!({"value": 77}),
        "rolebindings" => json!({"roleRef": {"name": "other"}}),
        "runtimeclasses" => json!({"handler": "other"}),
        "localqueues" => json!({"spec": {"clusterQueue": "other"}}),
        "admissionchecks" => json!({"spec": {"controllerName": "example.com/other"}}),
        _ => json!({"metadata": {"name": "other"}}),
    };
    vec![
        Step::post(sample.list(), sample.object(&name, dice)),
        Step::patch(at.clone(), MERGE, change),
        Step::patch(
            at.clone(),
            MERGE,
            json!({"data": {"a": "changed", "key": "Yg=="}}),
        ),
        Step::patch(at, MERGE, json!({"immutable": false})),
    ]
}

/// Invalid requests.
pub(super) fn errors(dice: &mut Dice) -> Vec<Step> {
    let mut text = Step::post(CONFIG_MAP.list(), "text".into());
    text.content_type = "text/plain";
    let mut steps = vec![
        Step::get("/api/v1/namespaces/{ns}/nothings"),
        Step::get("/apis/nothing.example.com/v1/things"),
        Step::get("/nothing"),
        Step::put(POD.list(), json!({})),
        Step::post(CONFIG_MAP.at("x"), json!({})),
        Step::post("/api/v1/configmaps", json!({})),
        Step::post(
            "/api/v1/namespaces/nowhere/configmaps",
            json!({"metadata": {"name": "x"}}),
        ),
        Step::post(
            "/apis/conformance.roadstead.dev/v1/namespaces/nowhere/widgets",
            json!({"apiVersion": "conformance.roadstead.dev/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 1}}),
        ),
        text,
        Step::post(CONFIG_MAP.list(), json!([])),
        Step::post(CONFIG_MAP.list(), json!({})),
        Step::post(
            WIDGET.list(),
            json!({"metadata": {"name": "x"}, "spec": {"size": 1}}),
        ),
        Step::put(CONFIG_MAP.at("x"), json!({"metadata": {"name": "y"}})),
        Step::get(format!("{}/status", CONFIG_MAP.at("x"))),
        Step::delete("/api/v1/namespaces/default"),
        Step::delete("/api/v1/namespaces"),
        Step::get(format!("{}?resourceVersion=abc", CONFIG_MAP.list())),
        Step::post(
            CONFIG_MAP.list(),
            json!({"metadata": {"name": "x", "resourceVersion": "5"}}),
        ),
    ];
    let kept = 6 + dice.below(6);
    while steps.len() > kept {
        let at = dice.below(steps.len());
        steps.remove(at);
    }
    steps
}
