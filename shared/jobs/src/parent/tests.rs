use serde_json::{Value, json};

use super::*;
use crate::fixture::{QUEUE, Tested, changed, one};
use crate::kind::Pods;

const CLASS: &str = "kueue.x-k8s.io/priority-class";
const HELD: &str = "kueue.x-k8s.io/pod-suspending-parent";

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn object(spec: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "lab", "uid": "uid", "labels": {QUEUE: "q", CLASS: "high"}},
        "spec": spec,
    })
}

fn set(replicas: u32) -> Value {
    object(&json!({"replicas": replicas, "template": template("1")}))
}

fn leader_worker(size: u32, leader: Option<Value>) -> Value {
    let mut inner = json!({"size": size, "workerTemplate": template("2")});
    if let Some(leader) = leader {
        inner["leaderTemplate"] = leader;
    }
    object(&json!({"replicas": 2, "leaderWorkerTemplate": inner}))
}

fn held(kind: &'static Parent, object: &Value) -> Value {
    changed(object, |object| kind.suspend(object))
}

fn mark(kind: &'static Parent, parent: &Value, pod: Value) -> Option<Mark> {
    let pod: ObjectMeta = serde_json::from_value(pod).unwrap();
    one(parent, |parent| kind.mark(parent.first(), &pod))
}

fn sizes(kind: &'static Parent, object: &Value) -> Vec<(String, u32)> {
    let sets = Tested(kind).pod_sets(object).unwrap();
    sets.into_iter().map(|set| (set.name, set.count)).collect()
}

/// Spec: jobs 9.11, 15.82
#[test]
fn a_deployment_has_each_of_its_pods_held() {
    let deployment = held(&DEPLOYMENT, &set(3));
    let meta = &deployment["spec"]["template"]["metadata"];
    assert_eq!(meta["annotations"], json!({HELD: "deployment"}));
    let labels = json!({QUEUE: "q", CLASS: "high", "kueue.x-k8s.io/managed": "true"});
    assert_eq!(meta["labels"], labels);
    assert_eq!(mark(&DEPLOYMENT, &deployment, json!({})), None);
    assert_eq!(sizes(&DEPLOYMENT, &deployment), [("main".to_owned(), 3)]);
}

/// Spec: jobs 9.11 to 9.13
#[test]
fn the_time_limit_of_an_object_is_that_of_its_groups() {
    const TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
    let limited = |mut object: Value| {
        object["metadata"]["labels"][TIME] = json!("60");
        object
    };
    let on = |held: &Value, template: &str| {
        held.pointer(template)
            .and_then(|template| template["metadata"]["labels"].get(TIME))
            .cloned()
    };
    let statefulset = held(&STATEFUL_SET, &limited(set(2)));
    assert_eq!(on(&statefulset, "/spec/template"), Some(json!("60")));
    let replicas = held(&LEADER_WORKER_SET, &limited(leader_worker(2, None)));
    let template = "/spec/leaderWorkerTemplate/workerTemplate";
    assert_eq!(on(&replicas, template), Some(json!("60")));
    let deployment = held(&DEPLOYMENT, &limited(set(2)));
    assert_eq!(on(&deployment, "/spec/template"), None);
    assert_eq!(on(&held(&STATEFUL_SET, &set(2)), "/spec/template"), None);
}

/// Spec: jobs 9.11 to 9.13
#[test]
fn a_pod_names_the_deployment_or_leaderworkerset_that_it_is_of() {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    let maker = |kind: &'static Parent, labels: Value, owners: Value| {
        let pod: ObjectMeta =
            serde_json::from_value(json!({"labels": labels, "ownerReferences": owners})).unwrap();
        let maker = kind.maker_of(&pod);
        maker.map(|maker| (maker.name.to_owned(), maker.revision.to_owned()))
    };
    let said = |name: &str, revision: &str| Some((name.to_owned(), revision.to_owned()));
    let hash = json!({"pod-template-hash": "7f"});
    let set = owner("ReplicaSet", "web-api-7f");
    assert_eq!(
        maker(&DEPLOYMENT, hash.clone(), set.clone()),
        said("web-api", "7f")
    );
    assert_eq!(maker(&DEPLOYMENT, json!({}), set.clone()), None);
    assert_eq!(maker(&DEPLOYMENT, hash, owner("ReplicaSet", "other")), None);
    let labels = json!({"leaderworkerset.sigs.k8s.io/name": "llm"});
    assert_eq!(maker(&LEADER_WORKER_SET, labels, set.clone()), said("llm", ""));
    assert_eq!(
        maker(&STATEFUL_SET, json!({}), set),
        None,
        "its pods are one group"
    );
}

/// Spec: jobs 9.12, 15.83
#[test]
fn the_pods_of_a_statefulset_are_one_group_of_its_size() {
    let held = held(&STATEFUL_SET, &set(3));
    let meta = &held["spec"]["template"]["metadata"];
    assert_eq!(meta["annotations"], json!({HELD: "statefulset"}));
    assert_eq!(meta["labels"], json!({QUEUE: "q", CLASS: "high"}));
    assert_eq!(sizes(&STATEFUL_SET, &held), [("main".to_owned(), 3)]);
    let owner = |kind: &str| json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "1", "controller": true}]});
    let parent = |kind: &str| {
        let pod: ObjectMeta = serde_json::from_value(owner(kind)).unwrap();
        STATEFUL_SET.parent_of(&pod).map(str::to_owned)
    };
    assert_eq!(parent("StatefulSet").as_deref(), Some("web"));
    assert_eq!(parent("ReplicaSet"), None);
    let mark = mark(&STATEFUL_SET, &held, owner("StatefulSet")).unwrap();
    assert_eq!((mark.total, mark.role, mark.index), (3, "main", None));
    assert!(mark.group.starts_with("statefulset-web-"), "{}", mark.group);
    let notes: Vec<&str> = mark.notes.iter().map(|(key, _)| *key).collect();
    let expected = ["fast-admission", "serving", "pod-index-label"];
    assert_eq!(
        notes,
        expected.map(|end| format!("kueue.x-k8s.io/pod-group-{end}"))
    );
}

/// Spec: jobs 9.13, 15.85
#[test]
fn each_replica_of_a_leaderworkerset_is_a_group_with_a_leader() {
    let with_leader = held(&LEADER_WORKER_SET, &leader_worker(4, Some(template("1"))));
    let inner = &with_leader["spec"]["leaderWorkerTemplate"];
    let framework = "leaderworkerset.x-k8s.io/leaderworkerset";
    let serving = "kueue.x-k8s.io/pod-group-serving";
    assert_eq!(
        inner["leaderTemplate"]["metadata"]["annotations"],
        json!({HELD: framework, serving: "true"})
    );
    assert_eq!(
        inner["workerTemplate"]["metadata"]["annotations"],
        json!({HELD: framework, serving: "true", "kueue.x-k8s.io/pod-index-offset": "1"})
    );
    assert_eq!(inner["workerTemplate"]["metadata"]["labels"][QUEUE], "q");
    let two = [("leader".to_owned(), 1), ("worker".to_owned(), 3)];
    assert_eq!(sizes(&LEADER_WORKER_SET, &with_leader), two);
    let leader = json!({"name": "web-1", "labels": {"leaderworkerset.sigs.k8s.io/name": "web"}});
    let worker = json!({
        "name": "web-1-2", "labels": {"leaderworkerset.sigs.k8s.io/group-index": "1"},
        "annotations": {"leaderworkerset.sigs.k8s.io/leader-name": "web-1"},
    });
    let of = |pod: &Value| mark(&LEADER_WORKER_SET, &with_leader, pod.clone()).unwrap();
    assert_eq!((of(&leader).role, of(&worker).role), ("leader", "worker"));
    assert_eq!(of(&leader).group, of(&worker).group);
    assert_eq!((of(&worker).total, of(&worker).index), (4, Some(1)));
    let plain = leader_worker(4, None);
    assert_eq!(sizes(&LEADER_WORKER_SET, &plain), [("main".to_owned(), 4)]);
    assert_eq!(mark(&LEADER_WORKER_SET, &plain, worker).unwrap().role, "main");
    let alone = leader_worker(1, Some(template("1")));
    assert_eq!(sizes(&LEADER_WORKER_SET, &alone), [("leader".to_owned(), 1)]);
}

/// Spec: jobs 9.11 to 9.13, 15.64, 15.65
#[test]
fn what_was_given_to_all_pods_together_does_not_change() {
    let said = |kind: &'static Parent, old: &Value, new: &Value| Tested(kind).update_problems(old, new);
    let nothing = [""; 0];
    let immutable = |field: &str| [format!("{field}: Invalid value: field is immutable")];
    assert_eq!(said(&STATEFUL_SET, &set(3), &set(5)), immutable("spec.replicas"));
    assert_eq!(said(&STATEFUL_SET, &set(3), &set(0)), nothing);
    assert_eq!(said(&STATEFUL_SET, &set(0), &set(5)), nothing);
    let mut ending = set(0);
    ending["status"] = json!({"replicas": 1});
    assert_eq!(
        said(&STATEFUL_SET, &ending, &set(5)),
        ["spec.replicas: Forbidden: scaling down is still in progress"]
    );
    let mut larger = set(3);
    larger["spec"]["template"] = template("2");
    assert_eq!(
        said(&STATEFUL_SET, &set(3), &larger),
        immutable("spec.template.spec")
    );
    assert_eq!(
        said(&DEPLOYMENT, &set(3), &larger),
        nothing,
        "each pod is counted anew"
    );
    let grown = leader_worker(5, None);
    assert_eq!(
        said(&LEADER_WORKER_SET, &leader_worker(4, None), &grown),
        immutable("spec.leaderWorkerTemplate.size")
    );
    let mut many = leader_worker(4, None);
    many["spec"]["replicas"] = json!(1_000_001);
    let [only] = Tested(&LEADER_WORKER_SET).problems(&many).try_into().unwrap();
    assert!(only.contains("from 0 to 1000000"), "{only}");
    for kind in [&DEPLOYMENT, &STATEFUL_SET] {
        let mut free = set(3);
        free["metadata"]["labels"] = json!({});
        let label = format!("metadata.labels[{QUEUE}]");
        assert_eq!(
            said(kind, &set(3), &free),
            immutable(&label),
            "the queue cannot be left"
        );
        assert_eq!(said(kind, &free, &set(3)), nothing);
        assert_eq!(said(&STATEFUL_SET, &free, &free), nothing);
    }
}

/// Spec: jobs 9.11
#[test]
fn its_queue_may_change_until_a_pod_is_ready() {
    let look = |ready: Value| {
        let mut object = set(3);
        object["status"] = json!({"readyReplicas": ready});
        Tested(&DEPLOYMENT).look(&object)
    };
    assert!(look(json!(null)).suspended && look(json!(0)).suspended);
    assert!(!look(json!(1)).suspended);
    assert_eq!(look(json!(1)).pods, Pods::None);
}
