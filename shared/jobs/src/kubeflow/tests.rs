use serde_json::{Value, json};

use super::*;
use crate::fixture::{IDENTITY, Tested, apply, outcome};
use crate::kind::Pods;
use crate::podset::PodSetInfo;

/// Each kind with the map of its replicas and its roles.
const KINDS: [(&ByPath, &str, &[&str]); 6] = [
    (
        &TF_JOB,
        "tfReplicaSpecs",
        &["Chief", "Master", "PS", "Worker", "Evaluator"],
    ),
    (&PYTORCH_JOB, "pytorchReplicaSpecs", &["Master", "Worker"]),
    (&PADDLE_JOB, "paddleReplicaSpecs", &["Master", "Worker"]),
    (&XGBOOST_JOB, "xgbReplicaSpecs", &["Master", "Worker"]),
    (&JAX_JOB, "jaxReplicaSpecs", &["Worker"]),
    (&MPI_JOB, "mpiReplicaSpecs", &["Launcher", "Worker"]),
];

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c"}]}})
}

/// A job with all its roles, each with one more replica than the previous one, written in reverse order.
fn job(map: &str, roles: &[&str], status: &Value) -> Value {
    let replicas = |(at, role): (usize, &&str)| {
        (
            (*role).to_owned(),
            json!({"replicas": at + 1, "template": template()}),
        )
    };
    let all: serde_json::Map<String, Value> = roles.iter().enumerate().rev().map(replicas).collect();
    json!({
        "metadata": {"name": "train", "namespace": "lab", "labels": {"kueue.x-k8s.io/queue-name": "tests"}},
        "spec": {
            map: all,
            "runPolicy": {"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 9, "backoffLimit": 3},
        },
        "status": status,
    })
}

fn infos(roles: &[&str]) -> Vec<PodSetInfo> {
    let info = |role: &&str| PodSetInfo {
        name: role.to_lowercase(),
        node_selector: [("tier".to_owned(), role.to_lowercase())].into(),
        ..PodSetInfo::default()
    };
    roles.iter().map(info).collect()
}

/// Spec: jobs 9.3, 9.4, 15.72
#[test]
fn replicas_are_pod_sets_in_the_order_of_the_kind() {
    for (by_path, map, roles) in KINDS {
        let kind = Tested(by_path);
        let sets = kind.pod_sets(&job(map, roles, &json!({}))).unwrap();
        let expected = roles
            .iter()
            .enumerate()
            .map(|(at, role)| (role.to_lowercase(), u32::try_from(at + 1).unwrap()));
        let found = sets.into_iter().map(|set| (set.name, set.count));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{map}");
        let last = roles[roles.len() - 1];
        let only = json!({"spec": {map: {last: {"template": template()}}}});
        let sets = kind.pod_sets(&only).unwrap();
        assert_eq!((sets.len(), sets[0].count), (1, 1), "one by default");
        assert_eq!(
            kind.template_paths(&only),
            [format!("spec.{map}.{last}.template")]
        );
        let none = kind
            .pod_sets(&json!({"spec": {map: {}}}))
            .unwrap_err()
            .to_string();
        assert_eq!(
            none,
            format!("field spec.{map} of the job is without pods, expected at least one pod set")
        );
    }
}

/// Spec: jobs 9.3, 5.8, 5.9
#[test]
fn each_is_started_and_stopped_by_its_run_policy() {
    for (by_path, map, roles) in KINDS {
        let kind = Tested(by_path);
        let held = job(map, roles, &json!({}));
        assert!(kind.look(&held).suspended);
        let original = kind.pod_sets(&held).unwrap();
        let running = apply(&held, &kind.start(&held, &infos(roles)).unwrap());
        assert_eq!(running["spec"]["runPolicy"]["suspend"], false);
        for role in roles {
            let tier = &running["spec"][map][role]["template"]["spec"]["nodeSelector"]["tier"];
            assert_eq!(*tier, role.to_lowercase());
        }
        let steps = kind.stop(&running, &original);
        assert_eq!(apply(&running, &steps.unwrap()), held, "{map}");
    }
}

/// Spec: jobs 9.3, 5.12
#[test]
fn pods_readiness_and_end_are_read_from_the_status() {
    for (by_path, map, roles) in KINDS {
        let kind = Tested(by_path);
        let with = |status: Value| job(map, roles, &status);
        let role = roles[0];
        assert!(
            kind.look(&with(json!({"replicaStatuses": {role: {"active": 1}}})))
                .pods
                == Pods::Alive
        );
        assert!(
            kind.look(&with(
                json!({"replicaStatuses": {role: {"active": 0, "succeeded": 1}, "other": {}}})
            ))
            .pods
                != Pods::Alive
        );
        let said = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status, "message": "m"}]});
        assert!(kind.look(&with(said("Running", "True"))).ready);
        assert!(!kind.look(&with(said("Running", "False"))).ready);
        let end = |success| Some(outcome(success, "m"));
        assert_eq!(kind.look(&with(said("Succeeded", "True"))).ended, end(true));
        assert_eq!(kind.look(&with(said("Failed", "True"))).ended, end(false));
        assert_eq!(kind.look(&with(said("Suspended", "True"))).ended, None);
        assert!(kind.look(&with(said("Running", "True"))).reclaimable.is_empty());
    }
}

/// Spec: jobs 10.1, 10.2, multikueue 5, 11.57
#[test]
fn each_is_copied_without_what_belongs_here_and_mirrored_as_it_is() {
    for (by_path, map, roles) in KINDS {
        let kind = Tested(by_path);
        let local = job(map, roles, &json!({}));
        assert_eq!(
            kind.manager_of(&local),
            Some("kueue.x-k8s.io/multikueue".to_owned())
        );
        let copy = kind.copy(&local, &IDENTITY, &kind.pod_sets(&local).unwrap());
        assert_eq!(
            copy["spec"]["runPolicy"],
            json!({"suspend": true, "backoffLimit": 3})
        );
        assert_eq!(copy["spec"][map], local["spec"][map]);
        assert_eq!(copy["apiVersion"], by_path.row.api_version());
        let remote = job(
            map,
            roles,
            &json!({"replicaStatuses": {roles[0]: {"active": 2}}, "startTime": "2026-01-01T00:00:00Z"}),
        );
        let patch = kind.mirror(&local, &remote).expect("it differs");
        let shown = apply(&local, &patch);
        assert_eq!(shown["status"], remote["status"]);
        let rest = apply(&shown, &kind.without_pods(&shown).unwrap());
        assert!(kind.look(&rest).pods != Pods::Alive);
    }
}

/// Spec: jobs 5.13
#[test]
fn the_priority_class_of_the_scheduling_policy_is_the_jobs_own() {
    for (by_path, map, roles) in KINDS {
        let kind = Tested(by_path);
        let mut with = job(map, roles, &json!({}));
        assert_eq!(kind.priority_class(&with), None);
        with["spec"]["runPolicy"]["schedulingPolicy"] = json!({"priorityClass": "high"});
        assert_eq!(kind.priority_class(&with).as_deref(), Some("high"));
    }
}

/// Spec: jobs 9.4
#[test]
fn a_launcher_that_works_moves_the_index_of_the_workers() {
    let offset = |change: fn(&mut Value)| {
        let mut job = job("mpiReplicaSpecs", &["Launcher", "Worker"], &json!({}));
        job["spec"]["runLauncherAsWorker"] = json!(true);
        change(&mut job);
        let job = Tested(&MPI_JOB).defaulted(&job);
        let annotations = &job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"];
        annotations["kueue.x-k8s.io/pod-index-offset"].clone()
    };
    assert_eq!(offset(|_| {}), "1");
    assert_eq!(
        offset(|job| job["spec"]["runLauncherAsWorker"] = json!(false)),
        Value::Null
    );
    assert_eq!(
        offset(|job| job["spec"]["mpiReplicaSpecs"]["Launcher"] = Value::Null),
        Value::Null
    );
    let grouped = |job: &mut Value| {
        let template = &mut job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"];
        template["metadata"] = json!({"annotations": {"kueue.x-k8s.io/podset-group-name": "g"}});
    };
    assert_eq!(offset(grouped), Value::Null);
}
