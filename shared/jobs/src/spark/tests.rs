use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::fixture::{IDENTITY, Tested, apply, one, outcome};
use crate::kind::{JobKind as _, Pods as Alive};
use crate::needs::Need;
use crate::podset::PodSetInfo;

const KIND: Tested = Tested(&SPARK_APPLICATION);

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn app(spec: Value) -> Value {
    let mut app = json!({
        "metadata": {"name": "pi", "namespace": "lab", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "suspend": true, "type": "Scala", "mode": "cluster", "image": "spark", "volumes": [{"name": "v"}],
            "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
            "executor": {"cores": 2, "instances": 3, "memory": "8g", "labels": {"own": "label"}},
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        app["spec"][key] = value.clone();
    }
    app
}

/// Spec: jobs 9.10
#[test]
fn a_driver_and_its_executors_ask_for_what_the_operator_will_ask_for() {
    let check = |spec: Value, set: usize, requests: Value| {
        let sets = KIND.pod_sets(&app(spec)).unwrap();
        let container = &sets[set].template["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], requests);
    };
    let sets = KIND.pod_sets(&app(json!({}))).unwrap();
    let sizes: Vec<_> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sizes, [("driver", 1), ("executor", 3)]);
    assert_eq!(sets[0].template["spec"]["serviceAccountName"], "spark");
    assert_eq!(sets[1].template["metadata"]["labels"], json!({"own": "label"}));
    // The heap plus a tenth of it, but no less than 384 MiB.
    check(json!({}), 0, json!({"cpu": "1", "memory": "896Mi"}));
    check(json!({}), 1, json!({"cpu": "2", "memory": "9011Mi"}));
    let python = json!({"type": "Python"});
    check(python, 1, json!({"cpu": "2", "memory": "11468Mi"}));
    check(
        json!({"memoryOverheadFactor": "0.25"}),
        1,
        json!({"cpu": "2", "memory": "10240Mi"}),
    );
    let said = json!({"driver": {"coreRequest": "250m", "memory": "1g", "memoryOverhead": "100m",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 2}}});
    check(
        said,
        0,
        json!({"cpu": "250m", "memory": "1124Mi", "nvidia.com/gpu": "2"}),
    );
    check(json!({"driver": {}}), 0, json!({"cpu": "1", "memory": "1408Mi"}));
    let none = KIND.pod_sets(&app(json!({"executor": {}}))).unwrap();
    assert_eq!(none[1].count, 0);
    let beside = json!({"driver": {"sidecars": [{"name": "proxy"}], "initContainers": [{"name": "first"}]}});
    let sets = KIND.pod_sets(&app(beside)).unwrap();
    assert_eq!(sets[0].template["spec"]["containers"][1]["name"], "proxy");
    assert_eq!(sets[0].template["spec"]["initContainers"][0]["name"], "first");
}

/// Spec: experience 5; safety 5.1; jobs 9.10
#[test]
fn the_objects_that_its_own_fields_name_are_needed_or_wanted() {
    let app = app(json!({
        "sparkConfigMap": "conf", "hadoopConfigMap": "hadoop", "imagePullSecrets": ["pull", ""],
        "volumes": [{"name": "v", "secret": {"secretName": "mounted"}}],
        "driver": {
            "secrets": [{"name": "account", "path": "/s", "secretType": "Generic"}],
            "envSecretKeyRefs": {"TOKEN": {"name": "token", "key": "k"}},
        },
        "executor": {"configMaps": [{"name": "files", "path": "/f"}, 7], "envSecretKeyRefs": []},
    }));
    let told = |needs: BTreeSet<Need>| needs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        told(one(&app, |app| SPARK_APPLICATION.needs(app))),
        [
            "ConfigMap \"conf\"",
            "ConfigMap \"files\"",
            "ConfigMap \"hadoop\"",
            "Secret \"account\"",
            "Secret \"mounted\"",
            "Secret \"token\"",
        ]
    );
    assert_eq!(
        told(one(&app, |app| SPARK_APPLICATION.wants(app))),
        ["Secret \"pull\""]
    );
}

/// Spec: jobs 9.10
#[test]
fn a_memory_limit_has_the_units_of_spark() {
    for (written, read) in [
        ("2g", "2048Mi"),
        ("512mb", "512Mi"),
        ("3Gi", "3Gi"),
        ("1.5Gi", "1.5Gi"),
        ("1024", "1024"),
    ] {
        let sets = KIND.pod_sets(&app(json!({"driver": {"memoryLimit": written}})));
        let container = &sets.unwrap()[0].template["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], read, "{written}");
    }
}

/// Spec: jobs 9.10, 5.8, 5.9
#[test]
fn what_is_assigned_goes_into_the_fields_of_the_roles_and_out_again() {
    let held = app(json!({"nodeSelector": {"disk": "fast"}}));
    let original = KIND.pod_sets(&held).unwrap();
    let infos = ["driver", "executor"].map(|name| PodSetInfo {
        name: name.to_owned(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), name.to_owned())].into(),
        node_selector: [("tier".to_owned(), name.to_owned())].into(),
        tolerations: vec![json!({"key": name})],
        ..PodSetInfo::default()
    });
    let patch = KIND.start(&held, &infos).unwrap();
    let running = apply(&held, &patch);
    let (driver, executor) = (&running["spec"]["driver"], &running["spec"]["executor"]);
    assert_eq!(running["spec"]["suspend"], false);
    assert_eq!(
        running["spec"].get("nodeSelector"),
        None,
        "only one of the two is allowed"
    );
    assert_eq!(driver["nodeSelector"], json!({"disk": "fast", "tier": "driver"}));
    assert_eq!(
        executor["labels"],
        json!({"own": "label", "kueue.x-k8s.io/podset": "executor"})
    );
    assert_eq!(executor["tolerations"], json!([{"key": "executor"}]));
    for role in [driver, executor] {
        assert_eq!((role.get("pods"), role.get("number")), (None, None));
    }
    let stopped = apply(&running, &KIND.stop(&running, &original).unwrap());
    assert_eq!(stopped["spec"]["suspend"], true);
    assert_eq!(stopped["spec"]["driver"]["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(stopped["spec"]["driver"].get("labels"), None);
    assert_eq!(stopped["spec"]["executor"]["labels"], json!({"own": "label"}));
    assert_eq!(stopped["spec"]["executor"].get("tolerations"), None);
    assert_eq!(KIND.stop(&stopped, &original), None);
    let copy = KIND.copy(&running, &IDENTITY, &original);
    assert_eq!(copy["spec"]["suspend"], true);
    assert_eq!(copy["spec"]["executor"]["labels"], json!({"own": "label"}));
    assert_eq!(
        copy["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"],
        "w"
    );
}

/// Spec: jobs 9.10
#[test]
fn its_state_says_how_it_does() {
    let with = |status: Value| {
        let mut app = app(json!({"suspend": false}));
        app["status"] = status;
        KIND.look(&app)
    };
    let state = |state: &str| json!({"applicationState": {"state": state, "errorMessage": "why"}});
    for word in ["SUBMITTED", "RUNNING", "FAILING", "SUSPENDING", "PENDING_RERUN"] {
        assert_eq!(with(state(word)).pods, Alive::Alive, "{word}");
    }
    for word in ["SUSPENDED", "COMPLETED", "FAILED"] {
        assert_eq!(with(state(word)).pods, Alive::Untold, "{word}");
    }
    let end = |success: bool| Some(outcome(success, "why"));
    assert_eq!(with(state("COMPLETED")).ended, end(true));
    assert_eq!(with(state("FAILED")).ended, end(false));
    assert_eq!(with(state("SUBMISSION_FAILED")).ended, end(false));
    assert_eq!(with(state("RUNNING")).ended, None);
    let mut running = state("RUNNING");
    running["executorState"] = json!({"a": "RUNNING", "b": "COMPLETED", "c": "PENDING"});
    assert!(!with(running.clone()).ready);
    running["executorState"]["c"] = json!("RUNNING");
    assert!(with(running).ready);
}

/// Spec: jobs 9.10, 15.87
#[test]
fn what_no_quota_can_count_is_refused_in_a_queue() {
    let said = |spec: Value| KIND.problems(&app(spec));
    assert_eq!(said(json!({})), [""; 0]);
    assert_eq!(
        said(json!({"mode": "client"})),
        ["spec.mode: Invalid value: \"client\": only Cluster mode is supported for a kueue managed job"]
    );
    let dynamic = json!({"dynamicAllocation": {"enabled": true}});
    let [only] = said(dynamic.clone()).try_into().unwrap();
    assert!(
        only.starts_with("spec.dynamicAllocation.enabled: Invalid value"),
        "{only}"
    );
    let conf = json!({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}});
    let [only] = said(conf).try_into().unwrap();
    assert!(only.contains("spec.executor.instances"), "{only}");
    let mut free = app(dynamic.clone());
    free["metadata"]["labels"] = json!({});
    assert_eq!(KIND.problems(&free), [""; 0]);
    assert_eq!(
        KIND.update_problems(&app(dynamic), &free).len(),
        1,
        "taking the label away is no way around"
    );
}
