use serde_json::{Value, json};

use super::*;
use crate::fixture::{Tested, apply, outcome};
use crate::kind::Pods as Alive;
use crate::podset::PodSetInfo;

const KIND: Tested = Tested(&RAY_JOB);

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn job(spec: Value) -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray:2"}]}});
    let mut job = json!({
        "metadata": {"name": "train", "namespace": "lab", "labels": {"kueue.x-k8s.io/queue-name": "tests"}},
        "spec": {
            "suspend": true, "shutdownAfterJobFinishes": true, "entrypoint": "python train.py",
            "rayClusterSpec": {
                "headGroupSpec": {"template": template},
                "workerGroupSpecs": [{"groupName": "GPU", "replicas": 2, "template": template}],
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

fn sizes(job: &Value) -> Vec<(String, u32)> {
    let sets = KIND.pod_sets(job).unwrap().into_iter();
    sets.map(|set| (set.name, set.count)).collect()
}

fn named(sizes: &[(&str, u32)]) -> Vec<(String, u32)> {
    sizes
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

/// Spec: jobs 9.7, 15.74
#[test]
fn the_pod_that_hands_the_job_in_is_the_last_pod_set() {
    assert_eq!(
        sizes(&job(json!({}))),
        named(&[("head", 1), ("gpu", 2), ("submitter", 1)])
    );
    let submitter = KIND.pod_sets(&job(json!({}))).unwrap().pop().unwrap().template;
    let container = &submitter["spec"]["containers"][0];
    assert_eq!(submitter["spec"]["restartPolicy"], "Never");
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("ray-job-submitter"), &json!("ray:2"))
    );
    assert_eq!(
        container["resources"]["requests"],
        json!({"cpu": "500m", "memory": "200Mi"})
    );
    assert_eq!(
        container["resources"]["limits"],
        json!({"cpu": "1", "memory": "1Gi"})
    );

    let own = json!({"spec": {"containers": [{"name": "mine"}]}});
    let with_own = job(json!({"submitterPodTemplate": own}));
    assert_eq!(KIND.pod_sets(&with_own).unwrap().pop().unwrap().template, own);

    for mode in ["HTTPMode", "InteractiveMode"] {
        let other = job(json!({"submissionMode": mode, "submitterPodTemplate": own}));
        assert_eq!(sizes(&other), named(&[("head", 1), ("gpu", 2)]), "{mode}");
    }
    let beside = job(json!({"submissionMode": "SidecarMode"}));
    assert_eq!(sizes(&beside), named(&[("head", 1), ("gpu", 2)]));
    let head = KIND.pod_sets(&beside).unwrap().remove(0).template;
    assert_eq!(head["spec"]["containers"][1]["name"], "ray-job-submitter");
}

/// Spec: jobs 9.7, 5.8, 5.9
#[test]
fn the_submitter_is_started_with_what_was_assigned_to_it() {
    let held = job(json!({}));
    let original = KIND.pod_sets(&held).unwrap();
    let infos = ["head", "gpu", "submitter"].map(|name| PodSetInfo {
        name: name.to_owned(),
        node_selector: [("tier".to_owned(), name.to_owned())].into(),
        ..PodSetInfo::default()
    });
    let running = apply(&held, &KIND.start(&held, &infos).unwrap());
    let template = &running["spec"]["submitterPodTemplate"]["spec"];
    assert_eq!(template["nodeSelector"], json!({"tier": "submitter"}));
    assert_eq!(
        template["containers"], original[2].template["spec"]["containers"],
        "as the operator makes it"
    );
    let stopped = apply(&running, &KIND.stop(&running, &original).unwrap());
    assert_eq!(stopped["spec"]["suspend"], true);
    assert_eq!(KIND.pod_sets(&stopped).unwrap(), original);
    assert!(
        KIND.start(&job(json!({"submissionMode": "HTTPMode"})), &infos)
            .is_err()
    );
}

/// Spec: jobs 9.7, 5.12, 15.76 (deviation)
#[test]
fn its_status_says_how_it_is_doing() {
    let with = |status: Value| {
        let mut job = job(json!({}));
        job["status"] = status;
        KIND.look(&job)
    };
    assert!(with(json!({})).pods == Alive::None);
    assert!(with(json!({"jobDeploymentStatus": "Suspended"})).pods == Alive::Untold);
    for state in ["Initializing", "Running", "Suspending", "Retrying"] {
        let look = with(json!({"jobDeploymentStatus": state}));
        assert!(
            look.pods == Alive::Alive && !look.ready && look.ended.is_none(),
            "{state}"
        );
    }
    assert!(with(json!({"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}})).ready);
    let ended = |state: &str, result: &str| {
        with(json!({"jobDeploymentStatus": state, "jobStatus": result, "message": "m"})).ended
    };
    let end = |success| Some(outcome(success, "m"));
    assert_eq!(ended("Complete", "SUCCEEDED"), end(true));
    assert_eq!(
        ended("Complete", "STOPPED"),
        end(false),
        "the cluster is done, the job is not"
    );
    assert_eq!(ended("Failed", "FAILED"), end(false));
    assert_eq!(ended("ValidationFailed", ""), end(false), "it never runs");
    assert_eq!(
        ended("Running", "SUCCEEDED"),
        None,
        "the operator has not taken it in yet"
    );
}

/// Spec: jobs 10.1; multikueue 5
#[test]
fn it_shows_what_its_copy_shows() {
    let local = job(json!({}));
    let mut copy = local.clone();
    copy["status"] = json!({"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}});
    let shown = apply(&local, &KIND.mirror(&local, &copy).unwrap());
    assert_eq!(shown["status"], copy["status"]);
    let rest = apply(&shown, &KIND.without_pods(&shown).unwrap());
    assert_eq!(rest["status"]["jobDeploymentStatus"], "Suspended");
    for success in [true, false] {
        let outcome = outcome(success, "m");
        let ended = apply(&shown, &KIND.conclusion(&shown, &outcome).unwrap());
        assert_eq!(KIND.look(&ended).ended, Some(outcome));
    }
}

/// Spec: jobs 9.7, 15.63, 15.75
#[test]
fn the_rules_of_ray_jobs_in_a_queue() {
    let groups = |many: usize| -> Vec<Value> {
        let group = |at: usize| json!({"groupName": format!("g{at}"), "template": {}});
        (0..many).map(group).collect()
    };
    let cluster = |groups: Vec<Value>| json!({"headGroupSpec": {"template": {}}, "workerGroupSpecs": groups});
    let selector = json!({"ray.io/cluster": "shared"});
    for (spec, expected) in [
        (json!({}), vec![]),
        (json!({"rayClusterSpec": cluster(groups(16))}), vec![]),
        (
            json!({"submissionMode": "HTTPMode", "rayClusterSpec": cluster(groups(17))}),
            vec![],
        ),
        (
            json!({"rayClusterSpec": cluster(groups(17))}),
            vec!["spec.rayClusterSpec.workerGroupSpecs: Too many: 17: must have at most 16 items"],
        ),
        (
            json!({"shutdownAfterJobFinishes": false}),
            vec![
                "spec.shutdownAfterJobFinishes: Invalid value: \"false\": a kueue managed job should delete the cluster after \
                 finishing",
            ],
        ),
        (
            json!({"clusterSelector": selector}),
            vec![
                "spec.clusterSelector: Invalid value: a kueue managed job should not use an existing cluster",
            ],
        ),
        (
            json!({"clusterSelector": selector, "rayClusterSpec": null, "shutdownAfterJobFinishes": false}),
            vec![],
        ),
        (
            json!({"rayClusterSpec": null}),
            vec![
                "spec.rayClusterSpec: Required value: a kueue managed job needs a cluster of its own: describe it here",
            ],
        ),
        (
            json!({"rayClusterSpec": {"headGroupSpec": {"template": {}}, "enableInTreeAutoscaling": true}}),
            vec![
                "spec.rayClusterSpec.enableInTreeAutoscaling: Invalid value: \"true\": a kueue-managed RayJob can use autoscaling \
                 only as an elastic job: elastic jobs are not supported here, set it to false",
            ],
        ),
    ] {
        let queued = job(spec);
        assert_eq!(KIND.problems(&queued), expected);
        let mut free = queued.clone();
        free["metadata"]["labels"] = json!({});
        assert_eq!(KIND.problems(&free), [""; 0], "without a queue");
        assert_eq!(KIND.update_problems(&queued, &free), expected);
    }
    let of_cluster = job(json!({"clusterSelector": selector, "rayClusterSpec": null}));
    assert!(!KIND.is_queued(&of_cluster) && KIND.is_queued(&job(json!({}))));
}
