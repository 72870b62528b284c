use super::*;
use crate::JobKind as _;
use crate::fixture::{apply, many};
use crate::kind::MemberId;
use crate::pod::PlainPod;

const NODE: &str = "roadstead-east";

fn held() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns", "uid": "here", "resourceVersion": "7"},
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}],
            "nodeSelector": {"zone": "z"},
            "tolerations": [
                {"key": "gpu", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
        "status": {"phase": "Pending"},
    })
}

fn copy(scheduled: &str) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "there"},
        "status": {"phase": "Pending", "conditions": [{"type": SCHEDULED, "status": scheduled}]},
    })
}

fn next(pod: &Value, copy: &Value) -> Vec<Write> {
    many(std::slice::from_ref(pod), |local| {
        many(std::slice::from_ref(copy), |copies| {
            PlainPod.settle(local, copies, NODE)
        })
    })
}

fn is_shown(pod: &Value) -> bool {
    many(std::slice::from_ref(pod), |local| {
        PlainPod.is_shown_on_nodes(local)
    })
}

fn let_go_of(pod: &Value) -> Value {
    let writes = next(pod, &copy("True"));
    let [Write::Patch { target, patch, .. }] = writes.as_slice() else {
        panic!("it is let go first")
    };
    assert_eq!(*target, Target::Main);
    assert_eq!(patch["metadata"]["resourceVersion"], "7", "lists are replaced");
    apply(pod, patch)
}

/// Spec: jobs 12.9
#[test]
fn a_pod_is_let_go_and_bound_once_its_copy_is_scheduled() {
    assert_eq!(next(&held(), &copy("False")), []);
    assert!(!is_shown(&held()), "it is held");
    let free = let_go_of(&held());
    assert_eq!(free["spec"]["schedulingGates"], json!([]));
    assert_eq!(
        free["spec"]["nodeSelector"],
        json!({"zone": "z", "roadstead.dev/virtual-node": NODE})
    );
    assert!(is_shown(&free), "no scheduler can put it anywhere else");
    let of = MemberId {
        name: "a".to_owned(),
        uid: "here".to_owned(),
    };
    let node = NODE.to_owned();
    assert_eq!(next(&free, &copy("True")), [Write::Bind { of, node }]);
    let mut bound = free;
    bound["spec"]["nodeName"] = json!(NODE);
    assert_eq!(next(&bound, &copy("True")), []);
    assert!(is_shown(&bound));
    bound["spec"]["nodeName"] = json!("own");
    assert!(!is_shown(&bound), "it runs in this cluster");
}

/// Spec: jobs 12.9
#[test]
fn a_pod_on_a_virtual_node_is_never_evicted_for_its_health() {
    let tolerations = let_go_of(&held())["spec"]["tolerations"].clone();
    let endless = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let expected = json!([
        {"key": "gpu", "operator": "Exists"},
        endless("node.kubernetes.io/not-ready"),
        endless("node.kubernetes.io/unreachable"),
        {"key": "roadstead.dev/virtual-node", "operator": "Exists"},
    ]);
    assert_eq!(tolerations, expected);
}

/// Spec: jobs 12.9
#[test]
fn a_pod_stays_held_under_a_foreign_gate_and_when_it_goes_or_its_copy_does() {
    let mut gated = held();
    gated["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "mine"}]);
    assert_eq!(next(&gated, &copy("True")), []);
    let mut going = held();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    assert_eq!(next(&going, &copy("True")), []);
    let mut gone = copy("True");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    assert_eq!(next(&held(), &gone), []);
}
