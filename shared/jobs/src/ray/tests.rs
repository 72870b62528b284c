use serde_json::{Value, json};

use super::*;
use crate::JobKind as _;
use crate::fixture::{IDENTITY, Tested, apply, outcome};
use crate::kind::Pods;
use crate::podset::PodSetInfo;

const KIND: Tested = Tested(&RAY_CLUSTER);

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn cluster(spec: Value) -> Value {
    let template =
        json!({"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "100m"}}}]}});
    let mut cluster = json!({
        "metadata": {"name": "ray", "namespace": "lab", "labels": {"kueue.x-k8s.io/queue-name": "tests"}},
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue",
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "GPU", "replicas": 2, "numOfHosts": 4, "template": template}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        cluster["spec"][key] = value.clone();
    }
    cluster
}

fn head(cluster: &Value) -> Value {
    let sets = KIND.pod_sets(cluster).unwrap();
    sets[0].template["spec"]["containers"].clone()
}

/// Spec: jobs 9.6, 15.77
#[test]
fn a_cluster_has_a_head_and_its_groups() {
    let sets = KIND.pod_sets(&cluster(json!({}))).unwrap();
    let sizes: Vec<_> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sizes, [("head", 1), ("gpu", 8)]);
    let alone = cluster(json!({"workerGroupSpecs": null}));
    assert_eq!(KIND.pod_sets(&alone).unwrap().len(), 1);
}

/// Spec: jobs 9.6, 15.73
#[test]
fn what_the_operator_adds_to_the_head_is_counted() {
    assert_eq!(head(&cluster(json!({}))).as_array().unwrap().len(), 1);
    let usual = json!({"cpu": "500m", "memory": "512Mi"});
    let scaled = head(&cluster(json!({"enableInTreeAutoscaling": true})));
    assert_eq!(
        scaled[1],
        json!({"name": "autoscaler", "resources": {"limits": usual, "requests": usual}})
    );
    let own = json!({"requests": {"cpu": "1"}});
    let scaled = head(&cluster(
        json!({"enableInTreeAutoscaling": true, "autoscalerOptions": {"resources": own}}),
    ));
    assert_eq!(scaled[1]["resources"], own);
    let requests = |spec: Value| head(&cluster(spec))[0]["resources"]["requests"].clone();
    assert_eq!(
        requests(json!({"gcsFaultToleranceOptions": {}})),
        json!({"cpu": "200m", "memory": "256Mi"})
    );
    let large = json!({"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}]}});
    let tolerant = json!({"gcsFaultToleranceOptions": {}, "headGroupSpec": {"template": large}});
    assert_eq!(requests(tolerant), json!({"cpu": 2, "memory": "1Gi"}));
    let mut annotated = cluster(json!({}));
    annotated["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "true"});
    assert_eq!(head(&annotated)[0]["resources"]["requests"]["cpu"], "200m");
}

/// Spec: jobs 9.6, 5.8, 5.9
#[test]
fn it_is_started_and_stopped_without_what_is_only_counted() {
    let held = cluster(json!({"gcsFaultToleranceOptions": {}}));
    let original = KIND.pod_sets(&held).unwrap();
    let infos = ["head", "gpu"].map(|name| PodSetInfo {
        name: name.to_owned(),
        node_selector: [("tier".to_owned(), name.to_owned())].into(),
        ..PodSetInfo::default()
    });
    let running = apply(&held, &KIND.start(&held, &infos).unwrap());
    assert_eq!(running["spec"]["suspend"], false);
    assert_eq!(
        running["spec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"],
        json!({"tier": "gpu"})
    );
    let containers =
        |cluster: &Value| cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"].clone();
    assert_eq!(containers(&running), containers(&held));
    let steps = KIND.stop(&running, &original);
    assert_eq!(apply(&running, &steps.unwrap()), held);
    let copy = KIND.copy(&running, &IDENTITY, &original);
    assert_eq!(containers(&copy), containers(&held));
    assert_eq!(copy["spec"].get("managedBy"), None);
}

/// Spec: jobs 9.6, multikueue 5
#[test]
fn it_is_active_while_it_is_ready_and_never_done() {
    let with = |status: Value| {
        let mut cluster = cluster(json!({}));
        cluster["status"] = status;
        cluster
    };
    let up = with(json!({"state": "ready", "desiredWorkerReplicas": 2}));
    assert!(KIND.look(&up).pods == Pods::Alive && KIND.look(&up).ready);
    let failed = with(json!({"state": "failed"}));
    assert!(KIND.look(&failed).pods != Pods::Alive && !KIND.look(&failed).ready);
    assert_eq!(KIND.look(&failed).ended, None);
    let outcome = outcome(true, "");
    assert_eq!(KIND.conclusion(&up, &outcome), None);
    let patch = KIND.mirror(&with(json!({})), &up).expect("it differs");
    let shown = apply(&with(json!({})), &patch);
    assert_eq!(shown["status"], up["status"]);
    let gone = apply(&shown, &KIND.without_pods(&shown).unwrap());
    assert_eq!(gone["status"]["state"], "suspended");
}

/// Spec: jobs 9.6, 15.78
#[test]
fn the_rules_of_clusters_in_a_queue() {
    let group = |name: &str| json!({"groupName": name, "template": {}});
    let many: Vec<Value> = (0..18).map(|at| group(&format!("g{at}"))).collect();
    for (spec, expected) in [
        (json!({}), vec![]),
        (json!({"workerGroupSpecs": many[1..]}), vec![]),
        (
            json!({"workerGroupSpecs": many}),
            vec!["spec.workerGroupSpecs: Too many: 18: must have at most 17 items"],
        ),
        (
            json!({"workerGroupSpecs": [group("a"), group("head")]}),
            vec!["spec.workerGroupSpecs[1].groupName: Forbidden: \"head\" is reserved for the head group"],
        ),
        (
            json!({"enableInTreeAutoscaling": true}),
            vec![
                "spec.enableInTreeAutoscaling: Invalid value: \"true\": a kueue-managed RayCluster can use autoscaling only as an \
                 elastic job: elastic jobs are not supported here, set it to false",
            ],
        ),
    ] {
        let queued = cluster(spec);
        assert_eq!(KIND.problems(&queued), expected);
        let mut free = queued.clone();
        free["metadata"]["labels"] = json!({});
        assert_eq!(KIND.problems(&free), [""; 0], "without a queue");
        assert_eq!(KIND.update_problems(&queued, &free), expected);
        assert_eq!(KIND.update_problems(&free, &free), [""; 0]);
    }
}

/// Spec: jobs 9.8, 15.86
#[test]
fn a_service_is_a_cluster_that_is_ready_when_it_says_so_and_never_done() {
    let kind = Tested(&RAY_SERVICE);
    let service = |suspend: bool, ready: &str| {
        let mut inner = cluster(json!({"suspend": suspend}))["spec"].clone();
        inner.as_object_mut().unwrap().remove("managedBy");
        let ready = json!({"type": "Ready", "status": ready});
        json!({"metadata": {}, "spec": {"rayClusterConfig": inner}, "status": {"conditions": [ready]}})
    };
    let sets = kind.pod_sets(&service(true, "False")).unwrap();
    let sizes: Vec<_> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sizes, [("head", 1), ("gpu", 8)]);
    let look = |suspend: bool, ready: &str| kind.look(&service(suspend, ready));
    assert_eq!(
        (look(false, "True").pods, look(false, "True").ready),
        (Pods::Alive, true)
    );
    assert_eq!(look(false, "False").pods, Pods::Untold);
    assert_eq!(
        look(true, "True").pods,
        Pods::Untold,
        "its operator leaves that as it was"
    );
    assert_eq!(look(false, "True").ended, None);
    let started = apply(
        &service(true, "False"),
        &kind
            .start(
                &service(true, "False"),
                &[PodSetInfo::default(), PodSetInfo::default()],
            )
            .unwrap(),
    );
    assert_eq!(started["spec"]["rayClusterConfig"]["suspend"], false);
}

/// Spec: jobs 9.8
#[test]
fn a_cluster_that_was_made_while_its_service_was_held_is_made_anew() {
    let outlives = |service: bool, made: bool| {
        let service = json!({"spec": {"rayClusterConfig": {"suspend": service}}});
        let made = json!({"spec": {"suspend": made}});
        crate::fixture::both(&service, &made, |service, made| {
            RAY_SERVICE.outlives(service.first(), made.first())
        })
    };
    assert!(outlives(false, true));
    assert!(!outlives(true, true) && !outlives(false, false) && !outlives(true, false));
}

/// Spec: jobs 5.1 2, 9.8
#[test]
fn a_service_with_a_redis_keeps_its_quota_while_it_is_deleted() {
    let service = |tolerant: bool, deleted: bool| {
        let mut service = json!({"metadata": {}, "spec": {"rayClusterConfig": {}}});
        if tolerant {
            service["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"] = json!({});
        }
        if deleted {
            service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Tested(&RAY_SERVICE).is_queued(&service)
    };
    assert!(service(true, false) && service(false, true));
    assert!(!service(true, true));
}

/// Spec: multikueue 5, 11.92; jobs 9.8, 10.3
#[test]
fn a_running_copy_of_a_service_follows_its_serve_config_and_nothing_else() {
    let service = |config: Option<&str>, replicas: u32| {
        let mut service = json!({
            "metadata": {"name": "ray", "uid": "there", "resourceVersion": "7"},
            "spec": {"serveConfigV2": config, "rayClusterConfig": cluster(json!({}))["spec"]},
        });
        service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = json!(replicas);
        service
    };
    let outdated = |kind: Tested, local: &Value, copy: &Value| -> Vec<Value> {
        let later = crate::fixture::both(local, copy, |local, copy| kind.0.later(local, copy));
        later.into_iter().map(|later| later.patch).collect()
    };
    let kind = Tested(&RAY_SERVICE);
    let there = kind.slimmed(&service(Some("a"), 2));
    let patch =
        |config: Value| json!({"metadata": {"resourceVersion": "7"}, "spec": {"serveConfigV2": config}});
    assert_eq!(
        outdated(kind, &service(Some("b"), 2), &there),
        [patch(json!("b"))]
    );
    assert_eq!(outdated(kind, &service(None, 2), &there), [patch(Value::Null)]);
    assert_eq!(outdated(kind, &service(Some("a"), 3), &there), [Value::Null; 0]);
    let mut going = there;
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(outdated(kind, &service(Some("b"), 2), &going), [Value::Null; 0]);
    let (small, large) = (cluster(json!({})), cluster(json!({"workerGroupSpecs": []})));
    assert_eq!(
        outdated(KIND, &large, &small),
        [Value::Null; 0],
        "it has another size"
    );
}
