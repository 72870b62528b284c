use serde_json::{Value, json};

use super::*;
use crate::fixture::{IDENTITY, Tested, WHY, apply, changed, many, one, outcome};

const KIND: Tested = Tested(&TrainJob);

fn job(spec: &Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "train", "namespace": "lab", "uid": "1", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"suspend": true, "runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3}},
    });
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    changed(&job, |job| TrainJob.own_defaults(job))
}

/// The JobSet that Trainer makes of it, with this template.
fn made(template: &Value) -> Value {
    let spec = json!({"parallelism": 3, "completions": 3, "template": template});
    json!({
        "metadata": {"name": "train"},
        "spec": {"suspend": true, "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": spec}}]},
        "status": {"replicatedJobsStatus": [{"name": "node", "ready": 1, "succeeded": 0}]},
    })
}

fn plain() -> Value {
    json!({"spec": {"containers": [{"name": "node"}], "tolerations": [{"key": "own"}]}})
}

fn info() -> PodSetInfo {
    PodSetInfo {
        name: "node".to_owned(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), "node".to_owned())].into(),
        node_selector: [("tier".to_owned(), "gpu".to_owned())].into(),
        tolerations: vec![json!({"key": "own"}), json!({"key": "gpu"})],
        ..PodSetInfo::default()
    }
}

fn started(job: &Value, made: &Value) -> Vec<Value> {
    let writes = many(&[job.clone(), made.clone()], |members| {
        TrainJob.start(members, &[info()]).unwrap()
    });
    let patch = |write: Write| match write {
        Write::Patch { patch, .. } => patch,
        Write::Delete { .. } | Write::Bind { .. } => panic!("nothing is deleted or put on a node"),
    };
    writes.into_iter().map(patch).collect()
}

fn entry(job: &Value) -> &Value {
    let all = job["spec"]["runtimePatches"].as_array().unwrap();
    all.iter()
        .find(|one| one["manager"] == "kueue.x-k8s.io/manager")
        .unwrap()
}

/// Spec: jobs 9.5, 15.79
#[test]
fn its_pods_are_those_of_the_jobset_that_trainer_makes() {
    let waits = KIND.pod_sets(&job(&json!({}))).unwrap_err();
    assert!(matches!(waits, Error::Awaited { .. }), "{waits}");
    let sets = many(&[job(&json!({})), made(&plain())], |members| {
        TrainJob.pod_sets(members)
    });
    let [only] = sets.unwrap().try_into().unwrap();
    assert_eq!((only.name.as_str(), only.count), ("node", 3));
    assert_eq!(only.template, plain());
}

/// Spec: jobs 9.5, 5.8, 5.9, 15.79
#[test]
fn what_is_assigned_goes_into_an_entry_of_our_own_before_it_is_let_go() {
    let other = json!({"manager": "other.example/x", "trainingRuntimeSpec": {}});
    let held = job(&json!({"runtimePatches": [other]}));
    assert_eq!(
        entry(&held)["trainingRuntimeSpec"],
        json!({"template": {"spec": {}}})
    );
    let patches = started(&held, &made(&plain()));
    assert_eq!(patches.len(), 2);
    assert_eq!(
        patches[0]["spec"].get("suspend"),
        None,
        "Trainer allows it only while it is held"
    );
    let patched = apply(&held, &patches[0]);
    assert_eq!(patched["spec"]["runtimePatches"][0], other);
    let [changed]: [Value; 1] = serde_json::from_value(
        entry(&patched)["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].clone(),
    )
    .unwrap();
    let added = json!({
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "node"}},
        "spec": {"nodeSelector": {"tier": "gpu"}, "tolerations": [{"key": "gpu"}]},
    });
    assert_eq!(
        changed,
        json!({"name": "node", "template": {"spec": {"template": added}}})
    );
    let running = apply(&patched, &patches[1]);
    assert_eq!(running["spec"]["suspend"], false);

    let mut filled = plain();
    filled["metadata"] = added["metadata"].clone();
    filled["spec"]["nodeSelector"] = json!({"tier": "gpu"});
    filled["spec"]["tolerations"] = json!([{"key": "own"}, {"key": "gpu"}]);
    let sets = many(&[running.clone(), made(&filled)], |members| {
        TrainJob.pod_sets(members)
    });
    let template = &sets.unwrap()[0].template;
    assert_eq!(template["spec"], plain()["spec"], "what was added is not counted");

    let again = started(&patched, &made(&filled));
    assert_eq!(
        again,
        [json!({"spec": {"suspend": false}})],
        "after a crash between the two writes"
    );

    let mut stopping = apply(&running, &KIND.stop(&running, &[]).unwrap());
    assert_eq!(stopping["spec"]["suspend"], true);
    assert!(!KIND.look(&stopping).suspended);
    stopping["status"] = json!({"jobsStatus": [{"name": "node", "active": 1}]});
    assert_eq!(
        one(&stopping, |job| TrainJob.stop(job, &[], &WHY)),
        [],
        "its pods are waited for"
    );
    stopping["status"] = json!({"jobsStatus": [{"name": "node", "active": 0}]});
    let stopped = apply(&stopping, &KIND.stop(&stopping, &[]).unwrap());
    assert_eq!(
        entry(&stopped)["trainingRuntimeSpec"],
        json!({"template": {"spec": {}}})
    );
    assert!(KIND.look(&stopped).suspended);
    assert_eq!(KIND.stop(&stopped, &[]), None);
}

/// Spec: jobs 9.5, 10.1
#[test]
fn a_copy_leaves_our_entry_at_home() {
    let copy = KIND.copy(
        &job(&json!({"suspend": false, "managedBy": "x.y/z"})),
        &IDENTITY,
        &[],
    );
    assert_eq!(copy["spec"].get("runtimePatches"), None);
    assert_eq!(copy["spec"]["suspend"], true);
    assert_eq!(copy["spec"].get("managedBy"), None);
    let other = json!({"manager": "other.example/x"});
    let copy = KIND.copy(&job(&json!({"runtimePatches": [other]})), &IDENTITY, &[]);
    assert_eq!(copy["spec"]["runtimePatches"], json!([other]));
}

/// Spec: jobs 9.5
#[test]
fn its_status_says_how_it_is_doing() {
    let with = |status: Value| {
        let mut job = job(&json!({"suspend": false}));
        job["status"] = status;
        job
    };
    let look = |status: Value| KIND.look(&with(status));
    let active = look(json!({"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}));
    assert_eq!((active.pods, active.ready), (Pods::Alive, false));
    let ready = look(json!({"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}));
    assert!(ready.ready);
    assert_eq!(look(json!({"jobsStatus": []})).pods, Pods::Untold);
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "message": "why"}]});
    let end = |success: bool| Some(outcome(success, "why"));
    assert_eq!(look(condition("Complete")).ended, end(true));
    assert_eq!(look(condition("Failed")).ended, end(false));

    let local = with(json!({}));
    let shown = KIND.mirror(&local, &with(condition("Complete"))).unwrap();
    assert_eq!(shown["status"], condition("Complete"));
    assert_eq!(
        KIND.mirror(&local, &with(condition("Failed"))),
        None,
        "Trainer would take it off"
    );
    assert_eq!(
        KIND.mirror(&with(condition("Complete")), &with(condition("Complete"))),
        None
    );
    assert!(KIND.conclusion(&local, &end(true).unwrap()).is_some());
    assert_eq!(KIND.conclusion(&local, &end(false).unwrap()), None);
    assert_eq!(KIND.without_pods(&local), None);
}
