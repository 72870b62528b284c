#![expect(
    clippy::needless_pass_by_value,
    reason = "values are written where they are used"
)]

use super::*;
use crate::appwrapper::components;

const HEALTH: &str = "autopilot.ibm.com/gpuhealth";

fn wrapper(template: Value, infos: Value) -> AppWrapper {
    let mut wrapper = json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "aw", "namespace": "team", "uid": "u-1"}, "spec": {"components": [{}]},
    });
    wrapper["spec"]["components"][0] = json!({"template": template, "podSetInfos": infos});
    serde_json::from_value(wrapper).unwrap()
}

fn pod(metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn built(template: Value, infos: Value, building: &Building) -> Result<Value, String> {
    let wrapper = wrapper(template, infos);
    child(&wrapper, 0, &components(&wrapper)[0], building)
}

fn with_autopilot() -> Building {
    Building {
        scheduler: None,
        autopilot: Some(Autopilot::default()),
    }
}

/// Spec: appwrapper B24, B28, B30, N-3.
#[test]
fn admission_adds_and_takes_nothing_away() {
    let toleration = json!({"key": "pool", "operator": "Exists"});
    let template = pod(
        json!({"name": "p", "labels": {"own": "1"}, "annotations": {"a": "1"}}),
        json!({
            "nodeSelector": {"zone": "z"}, "tolerations": [toleration], "schedulingGates": [{"name": "g"}],
            "containers": [{"name": "c", "image": "i"}],
        }),
    );
    let infos = json!([{
        "labels": {"x": "y"}, "annotations": {"b": "2"}, "nodeSelector": {"pool": "gpu", "zone": "z"},
        "tolerations": [toleration, {"key": "other", "operator": "Exists"}],
        "schedulingGates": [{"name": "g"}, {"name": "h"}],
    }]);
    let child = built(template, infos, &Building::default()).unwrap();
    assert_eq!(
        child,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "team", "annotations": {"a": "1", "b": "2"},
                "labels": {"own": "1", "x": "y", "workload.codeflare.dev/appwrapper": "aw"},
                "ownerReferences": [{
                    "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "aw", "uid": "u-1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "nodeSelector": {"pool": "gpu", "zone": "z"},
                "tolerations": [toleration, {"key": "other", "operator": "Exists"}],
                "schedulingGates": [{"name": "g"}, {"name": "h"}],
                "containers": [{"name": "c", "image": "i"}],
            },
        })
    );
}

/// Spec: appwrapper B21, B25, B26, B27.
#[test]
fn two_values_for_a_key_are_a_conflict() {
    let job = |metadata: Value| {
        let spec = json!({"nodeSelector": {"pool": "a"}, "containers": []});
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"template": {"metadata": metadata, "spec": spec}},
        })
    };
    let labels = |built: &Value| built["spec"]["template"]["metadata"]["labels"].clone();
    let plain = built(job(Value::Null), json!([]), &Building::default()).unwrap();
    assert_eq!(labels(&plain), json!({"workload.codeflare.dev/appwrapper": "aw"}));
    assert!(
        built(
            job(Value::Null),
            json!([{"nodeSelector": {"pool": "a"}}]),
            &Building::default()
        )
        .is_ok()
    );
    for (metadata, infos, why) in [
        (
            Value::Null,
            json!([{"nodeSelector": {"pool": "b"}}]),
            "conflict updating nodeSelector: conflict for key=pool, value1=a, value2=b",
        ),
        (
            json!({"labels": {"workload.codeflare.dev/appwrapper": "other"}}),
            json!([]),
            "conflict updating labels: conflict for key=workload.codeflare.dev/appwrapper, value1=other, value2=aw",
        ),
        (
            json!({"annotations": {"n": 7}}),
            json!([{"annotations": {"n": "8"}}]),
            "conflict updating annotations: conflict for key=n, value1=7, value2=8",
        ),
    ] {
        assert_eq!(
            built(job(metadata), infos, &Building::default()).unwrap_err(),
            why
        );
    }
}

/// Spec: appwrapper B29, B101.
#[test]
fn what_cannot_be_made_says_why() {
    let fails = |metadata: Value, why: &str| {
        let found = built(
            pod(metadata, json!({"containers": []})),
            json!([]),
            &Building::default(),
        );
        assert_eq!(found.unwrap_err(), why);
    };
    fails(
        json!({"name": "p", "namespace": "other"}),
        "cannot create an object in namespace other",
    );
    let owner = json!({"apiVersion": "v1", "kind": "A", "name": "o", "uid": "1", "controller": true});
    fails(
        json!({"name": "p", "ownerReferences": [owner]}),
        "the template is already controlled by o",
    );
    let building = Building {
        scheduler: Some("gang".to_owned()),
        autopilot: None,
    };
    let scheduler = |spec: Value| {
        let built = built(pod(json!({"name": "p"}), spec), json!([]), &building).unwrap();
        built["spec"]["schedulerName"].clone()
    };
    assert_eq!(scheduler(json!({"containers": []})), "gang");
    assert_eq!(
        scheduler(json!({"containers": [], "schedulerName": "own"})),
        "own"
    );
}

/// Spec: appwrapper B111, B112, B113.
#[test]
fn pods_that_ask_for_a_marked_resource_avoid_its_sick_nodes() {
    let affinity = |spec: Value| {
        let built = built(pod(json!({"name": "p"}), spec), json!([]), &with_autopilot()).unwrap();
        built["spec"]["affinity"]["nodeAffinity"].clone()
    };
    let gpus = |n: Value| json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": n}}}]);
    let not = |values: Value| json!({"key": HEALTH, "operator": "NotIn", "values": values});
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let sick = not(json!(["TESTING", "EVICT"]));
    let one = affinity(json!({"containers": gpus(json!(1))}));
    assert_eq!(
        one[required]["nodeSelectorTerms"],
        json!([{"matchExpressions": [sick]}])
    );
    let weighted = json!([{"weight": 50, "preference": {"matchExpressions": [not(json!(["WARN"]))]}}]);
    assert_eq!(one[preferred], weighted);
    for none in [json!([]), gpus(json!(0)), gpus(json!("0")), gpus(json!("many"))] {
        assert_eq!(affinity(json!({"containers": none})), Value::Null);
    }
    let init = affinity(json!({"containers": [], "initContainers": gpus(json!("1"))}));
    assert!(init[required].is_object());
    let own = |name: &str| json!({"key": name, "operator": "Exists"});
    let terms = json!([{"matchExpressions": [own("a")]}, {"matchFields": [own("b")]}]);
    let spec = json!({
        "containers": gpus(json!(2)),
        "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}, preferred: [{"weight": 1}]}},
    });
    let both = affinity(spec);
    assert_eq!(
        both[required]["nodeSelectorTerms"],
        json!([{"matchExpressions": [own("a"), sick]}, {"matchFields": [own("b")], "matchExpressions": [sick]}])
    );
    assert_eq!(both[preferred].as_array().map(Vec::len), Some(2));
    let strange = json!({"containers": gpus(json!(1)), "affinity": "anywhere"});
    let built = built(pod(json!({"name": "p"}), strange), json!([]), &with_autopilot()).unwrap();
    assert_eq!(built["spec"]["affinity"], "anywhere");
}
