use std::collections::BTreeMap;

use super::*;
use crate::fixture::{Tested, apply, both, changed, one};

const KIND: Tested = Tested(&Workflow);

fn container(requests: &Value) -> Value {
    json!({"image": "none", "command": ["work"], "args": ["{{inputs.parameters.x}}"], "resources": {"requests": requests}})
}

fn template(name: &str, requests: &Value) -> Value {
    json!({"name": name, "container": container(requests)})
}

fn step(name: &str, template: &str, more: &Value) -> Value {
    apply(&json!({"name": name, "template": template}), more)
}

/// A Workflow of a queue with these templates besides; the first one is its entry.
fn workflow(templates: &[Value]) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": {
            "name": "etl", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"entrypoint": templates[0]["name"], "templates": templates},
    })
}

/// Three steps one after the other, of which the second has this.
fn chain(second: &Value) -> Value {
    let none = json!({});
    workflow(&[
        json!({"name": "main", "steps": [
            [step("a", "small", &none)], [step("b", "large", second), step("c", "small", &none)], [step("d", "small", &none)],
        ]}),
        template("small", &json!({"cpu": "1"})),
        template("large", &json!({"cpu": "4", "nvidia.com/gpu": "1"})),
    ])
}

fn counts(workflow: &Value) -> Result<Vec<(String, u32)>, String> {
    let sets = KIND.pod_sets(workflow).map_err(|error| error.to_string())?;
    Ok(sets.into_iter().map(|set| (set.name, set.count)).collect())
}

fn of(counts: &[(&str, u32)]) -> Vec<(String, u32)> {
    counts
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

/// Spec: jobs 9.15
#[test]
fn quota_is_asked_for_the_steps_that_run_at_the_same_time() {
    let none = json!({});
    assert_eq!(counts(&chain(&none)), Ok(of(&[("large", 1), ("small", 1)])));
    let many = |more: Value| counts(&chain(&more));
    assert_eq!(
        many(json!({"withItems": [1, 2, 3]})),
        Ok(of(&[("large", 3), ("small", 1)]))
    );
    assert_eq!(
        many(json!({"withSequence": {"count": "5"}})),
        Ok(of(&[("large", 5), ("small", 1)]))
    );
    let sequence = json!({"withSequence": {"start": "2", "end": "4"}});
    assert_eq!(many(sequence), Ok(of(&[("large", 3), ("small", 1)])));
    let mut few = chain(&json!({"withItems": [1, 2, 3]}));
    few["spec"]["parallelism"] = json!(2);
    assert_eq!(counts(&few), Ok(of(&[("large", 2), ("small", 1)])));
}

/// Spec: jobs 9.15
#[test]
fn levels_of_which_none_needs_most_count_together_and_covered_ones_do_not() {
    let none = json!({});
    let three = json!({"withItems": [1, 2, 3]});
    let steps = workflow(&[
        json!({"name": "main", "steps": [
            [step("wide", "Prepare_It", &three)], [step("deep", "train", &none)], [step("last", "report", &none)],
        ]}),
        template("Prepare_It", &json!({"cpu": "1"})),
        template("train", &json!({"cpu": "1", "nvidia.com/gpu": "1"})),
        template("report", &json!({"cpu": "500m"})),
    ]);
    assert_eq!(counts(&steps), Ok(of(&[("prepare-it", 3), ("train", 1)])));
    let mut exits = steps;
    exits["spec"]["onExit"] = json!("exit");
    let exit = template("exit", &json!({"memory": "1Gi"}));
    exits["spec"]["templates"].as_array_mut().unwrap().push(exit);
    assert_eq!(
        counts(&exits),
        Ok(of(&[("prepare-it", 3), ("exit", 1), ("train", 1)]))
    );
}

/// Spec: jobs 9.15
#[test]
fn tasks_of_a_dag_count_by_their_distance_and_templates_within_templates_are_followed() {
    let none = json!({});
    let after = |name: &str, template: &str, more: Value| step(name, template, &more);
    let dag = workflow(&[
        json!({"name": "main", "dag": {"tasks": [
            step("a", "small", &none), step("b", "small", &none),
            after("c", "both", json!({"dependencies": ["a"]})),
            after("d", "small", json!({"depends": "a && (b.Succeeded || b.Failed)"})),
            after("e", "small", json!({"depends": "c.Succeeded && d"})),
        ]}}),
        json!({"name": "both", "steps": [[step("x", "small", &none)], [step("y", "small", &none), step("z", "small", &none)]]}),
        template("small", &json!({"cpu": "1"})),
        json!({"name": "wait", "suspend": {}}),
    ]);
    assert_eq!(
        counts(&dag),
        Ok(of(&[("small", 3)])),
        "c is two wide, and d runs beside it"
    );
}

/// Spec: jobs 9.15
#[test]
fn a_pod_is_described_by_its_template_and_the_fields_of_the_workflow() {
    let mut one = workflow(&[json!({
        "name": "main", "script": {"image": "i", "source": "x", "resources": {"limits": {"cpu": "2"}}},
        "sidecars": [{"name": "proxy", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "load"}], "metadata": {"annotations": {"a": "b"}},
        "tolerations": [{"key": "own"}],
    })]);
    one["spec"]["nodeSelector"] = json!({"zone": "a"});
    one["spec"]["tolerations"] = json!([{"key": "replaced"}]);
    one["spec"]["podMetadata"] = json!({"labels": {"team": "x"}});
    one["spec"]["podPriorityClassName"] = json!("high");
    let [set] = KIND.pod_sets(&one).unwrap().try_into().unwrap();
    assert_eq!(
        set.template["metadata"],
        json!({"labels": {"team": "x"}, "annotations": {"a": "b"}})
    );
    assert_eq!(
        set.template["spec"],
        json!({
            "restartPolicy": "Never", "nodeSelector": {"zone": "a"}, "tolerations": [{"key": "own"}],
            "priorityClassName": "high", "initContainers": [{"name": "load"}],
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {"cpu": "2"}}},
                {"name": "proxy", "resources": {"requests": {"cpu": "1"}}},
            ],
        })
    );
}

/// Spec: jobs 9.15
#[test]
fn what_is_known_only_at_run_time_must_be_declared() {
    let none = json!({});
    let spec = |field: &str, value: Value| apply(&chain(&none), &json!({"spec": {field: value}}));
    let circle = workflow(&[json!({"name": "main", "steps": [[step("a", "main", &none)]]})]);
    let tasks = json!({"tasks": [step("a", "x", &json!({"depends": "b"})), step("b", "x", &json!({"depends": "a"}))]});
    let dag = workflow(&[json!({"name": "main", "dag": tasks}), template("x", &none)]);
    let parameter = template("main", &json!({"cpu": "{{inputs.parameters.cpu}}"}));
    for (workflow, why) in [
        (
            chain(&json!({"withParam": "{{x}}"})),
            "withParam of step \"b\" is known only when it runs",
        ),
        (
            chain(&json!({"withSequence": {"count": "{{x}}"}})),
            "withSequence of step \"b\"",
        ),
        (
            chain(&json!({"template": null, "templateRef": {"name": "t"}})),
            "templateRef of step \"b\"",
        ),
        (
            chain(&json!({"template": "gone"})),
            "template \"gone\" is missing",
        ),
        (
            spec("workflowTemplateRef", json!({"name": "t"})),
            "spec.workflowTemplateRef is set",
        ),
        (spec("podSpecPatch", json!("{}")), "spec.podSpecPatch is set"),
        (circle, "template \"main\" calls itself"),
        (dag, "its tasks wait for each other"),
        (
            workflow(&[parameter]),
            "requests of cpu are \"{{inputs.parameters.cpu}}\"",
        ),
        (
            workflow(&[json!({"name": "main", "suspend": {}})]),
            "none of its templates makes a pod",
        ),
        (
            workflow(&[json!({"name": "main", "daemon": true, "container": {}})]),
            "daemon is set",
        ),
    ] {
        let said = counts(&workflow).unwrap_err();
        assert!(
            said.contains(why) && said.contains("roadstead.dev/pod-sets"),
            "{why}: {said}"
        );
        let declared = json!({"metadata": {"annotations": {
            "roadstead.dev/pod-sets": r#"[{"name": "small", "count": 4, "requests": {"cpu": "2"}}]"#,
        }}});
        assert_eq!(counts(&apply(&workflow, &declared)), Ok(of(&[("small", 4)])));
    }
}

/// Spec: jobs 9.15
#[test]
fn a_wrong_declaration_is_refused_with_what_is_allowed() {
    let said = |text: &str| {
        let noted = json!({"metadata": {"annotations": {"roadstead.dev/pod-sets": text}}});
        KIND.problems(&apply(&chain(&json!({})), &noted)).concat()
    };
    let entry = r#"{"name": "a", "count": 1, "requests": {"cpu": "1"}}"#;
    assert_eq!(said(&format!("[{entry}]")), "");
    let numbers =
        r#"[{"name": "a", "count": 1, "requests": {"cpu": 0.5, "nvidia.com/gpu": 8, "memory": 1e9}}]"#;
    assert_eq!(said(numbers), "");
    let noted = json!({"metadata": {"annotations": {"roadstead.dev/pod-sets": numbers}}});
    let sets = KIND.pod_sets(&apply(&chain(&json!({})), &noted)).unwrap();
    let requests = &sets[0].template["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(requests["cpu"], "0.5");
    assert_eq!(requests["nvidia.com/gpu"], "8");
    let truth = r#"[{"name": "a", "count": 1, "requests": {"cpu": true}}]"#;
    assert!(said(truth).contains("entry 0: requests[cpu] is true"));
    for (text, why) in [
        ("x", "it is no JSON"),
        ("{}", "an object; must be a JSON list such as"),
        ("[]", "0 entries, 1 to 18 are allowed"),
        (
            format!("[{entry}, {entry}]").as_str(),
            "entry 1: name \"a\" is used twice",
        ),
        (
            r#"[{"name": "A", "count": 1, "requests": {}}]"#,
            "entry 0: name must be of lower case letters",
        ),
        (
            r#"[{"name": "a", "count": 0, "requests": {}}]"#,
            "entry 0: count must be a number from 1",
        ),
        (
            r#"[{"name": "a", "count": 1}]"#,
            "entry 0: requests must be an object of quantities",
        ),
        (
            r#"[{"name": "a", "count": 1, "requests": {"cpu": "many"}}]"#,
            "entry 0: requests[cpu] is \"many\"",
        ),
        (
            r#"[{"name": "a", "count": 1, "requests": {}, "gpus": 1}]"#,
            "entry 0: gpus is unknown",
        ),
    ] {
        let problem = said(text);
        assert!(problem.contains(why), "{text}: {problem}");
        assert!(
            problem.starts_with("metadata.annotations[roadstead.dev/pod-sets]: Invalid value"),
            "{problem}"
        );
    }
    let noted = |count: u32| {
        let text = format!(r#"[{{"name": "a", "count": {count}, "requests": {{}}}}]"#);
        apply(
            &chain(&json!({})),
            &json!({"metadata": {"annotations": {"roadstead.dev/pod-sets": text}}}),
        )
    };
    let held = |workflow: &Value| changed(workflow, |workflow| Workflow.suspend(workflow));
    assert_eq!(KIND.update_problems(&held(&noted(1)), &held(&noted(2))), [""; 0]);
    let running = KIND.update_problems(&noted(1), &noted(2)).concat();
    assert!(running.contains("field is immutable"), "{running}");
}

fn info(name: &str, flavor: &str) -> PodSetInfo {
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    PodSetInfo {
        name: name.to_owned(),
        count: 1,
        labels: map("kueue.x-k8s.io/podset", name),
        annotations: map("kueue.x-k8s.io/workload", "w"),
        node_selector: map("flavor", flavor),
        tolerations: vec![json!({"key": flavor})],
    }
}

/// Spec: jobs 9.15, 5.8, 5.9
#[test]
fn each_template_gets_its_assignment_and_a_stop_puts_back_what_was_there() {
    let mut held = changed(&chain(&json!({})), |workflow| Workflow.suspend(workflow));
    held["spec"]["templates"][2]["nodeSelector"] = json!({"gpu": "a100"});
    held["spec"]["tolerations"] = json!([{"key": "mine"}]);
    let infos = [info("large", "gold"), info("small", "iron")];
    let patch = KIND.start(&held, &infos).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let running = apply(&held, &patch);
    let spec = &running["spec"];
    assert_eq!(spec.get("suspend"), None);
    assert_eq!(spec["nodeSelector"], json!({"flavor": "gold"}));
    assert_eq!(
        spec["podMetadata"]["labels"],
        Value::Null,
        "no label of one pod set on the pods of all"
    );
    let (small, large) = (&spec["templates"][1], &spec["templates"][2]);
    assert_eq!(small["nodeSelector"], json!({"flavor": "iron"}));
    assert_eq!(small["tolerations"], json!([{"key": "mine"}, {"key": "iron"}]));
    assert_eq!(
        small["metadata"]["labels"],
        json!({"kueue.x-k8s.io/podset": "small"})
    );
    assert_eq!(large["nodeSelector"], json!({"flavor": "gold", "gpu": "a100"}));
    assert_eq!(KIND.pod_sets(&running).unwrap(), KIND.pod_sets(&held).unwrap());
    let stopped = apply(&running, &KIND.stop(&running, &[]).unwrap());
    assert_eq!(stopped["spec"], held["spec"]);
    assert_eq!(stopped["metadata"]["annotations"], json!({}));
    assert_eq!(KIND.stop(&stopped, &[]), None);
    let mut other = held;
    other["spec"]["templates"][2]["nodeSelector"] = json!({"flavor": "silver"});
    let refused = KIND.start(&other, &infos).unwrap_err();
    assert!(refused.is_permanent(), "{refused}");
}

/// Spec: jobs 9.15
#[test]
fn its_steps_count_until_they_have_ended_and_its_phase_says_how_it_ended() {
    let with = |status: Value| apply(&chain(&json!({})), &json!({"status": status}));
    let pods = |status: Value| KIND.look(&with(status)).pods;
    let node =
        |kind: &str, phase: &str| json!({"phase": "Running", "nodes": {"a": {"type": kind, "phase": phase}}});
    assert_eq!(pods(json!({})), Pods::None);
    for phase in ["Pending", "Running"] {
        assert_eq!(pods(node("Pod", phase)), Pods::Alive);
        assert_eq!(pods(node("Steps", phase)), Pods::Untold);
    }
    assert_eq!(pods(node("Pod", "Succeeded")), Pods::Untold);
    let mut locked = node("Pod", "Pending");
    locked["nodes"]["a"]["synchronizationStatus"] = json!({"waiting": "ns/lock"});
    assert_eq!(pods(locked), Pods::Untold);
    for (progress, expected) in [("2/3", Pods::Alive), ("3/3", Pods::Untold)] {
        let large = json!({"phase": "Running", "compressedNodes": "H4sI", "progress": progress});
        assert_eq!(pods(large), expected);
    }
    let ended = |phase: &str| KIND.look(&with(json!({"phase": phase, "message": "m"}))).ended;
    for (phase, success) in [("Succeeded", true), ("Failed", false), ("Error", false)] {
        let message = "m".to_owned();
        assert_eq!(ended(phase), Some(Outcome { success, message }));
    }
    assert_eq!(ended("Running"), None);
    let failed = node("Pod", "Running");
    assert_eq!(pods(apply(&failed, &json!({"phase": "Failed"}))), Pods::Untold);
    assert!(KIND.look(&with(json!({"phase": "Running"}))).ready);
}

const IDENTITY: RemoteIdentity<'_> = RemoteIdentity {
    origin: "mgr",
    workload: "workflow-etl-1",
};
const PHASE: &str = "workflows.argoproj.io/phase";
const COMPLETED: &str = "workflows.argoproj.io/completed";

/// Spec: jobs 9.15, 10.1
#[test]
fn a_copy_waits_under_its_prebuilt_workload_and_outlives_its_end_with_its_artifacts() {
    let mut held = changed(&chain(&json!({})), |workflow| Workflow.suspend(workflow));
    let gc = |strategy: &str| json!({"strategy": strategy});
    held["spec"]["artifactGC"] = gc("OnWorkflowDeletion");
    held["spec"]["templates"][1]["outputs"] = json!({"artifacts": [
        {"name": "model", "artifactGC": gc("OnWorkflowDeletion")}, {"name": "log", "artifactGC": gc("OnWorkflowCompletion")},
    ]});
    held["spec"]["ttlStrategy"] = json!({"secondsAfterCompletion": 5});
    for (label, value) in [(PHASE, "Running"), (COMPLETED, "false"), ("team", "a")] {
        held["metadata"]["labels"][label] = json!(value);
    }
    held["status"] = json!({"phase": "Running"});
    let original = KIND.pod_sets(&held).unwrap();
    let copy = KIND.copy(&held, &IDENTITY, &original);
    let labels = json!({
        "kueue.x-k8s.io/queue-name": "q", "team": "a", "kueue.x-k8s.io/multikueue-origin": "mgr",
        "kueue.x-k8s.io/prebuilt-workload-name": "workflow-etl-1",
    });
    assert_eq!(copy["metadata"]["labels"], labels);
    assert_eq!(
        copy["metadata"]["annotations"],
        json!({"kueue.x-k8s.io/prebuilt-workload-name": "workflow-etl-1"})
    );
    assert_eq!(
        (&copy["spec"]["suspend"], copy.get("status")),
        (&json!(true), None)
    );
    assert_eq!(copy["spec"].get("ttlStrategy"), None);
    assert_eq!(copy["spec"]["artifactGC"], gc("Never"));
    let artifacts = &copy["spec"]["templates"][1]["outputs"]["artifacts"];
    assert_eq!(artifacts[0]["artifactGC"], gc("Never"));
    assert_eq!(artifacts[1]["artifactGC"], gc("OnWorkflowCompletion"));
    assert_eq!(KIND.pod_sets(&copy).unwrap(), original);
    let running = apply(
        &held,
        &KIND
            .start(&held, &[info("large", "gold"), info("small", "iron")])
            .unwrap(),
    );
    assert_eq!(
        KIND.copy(&running, &IDENTITY, &original),
        copy,
        "without what a start adds"
    );
    let other = changed(&held, |workflow| Workflow.outlast_its_end(workflow));
    assert_eq!(other["spec"].get("ttlStrategy"), None);
    assert!(Workflow.stop_leaves_pods());
}

/// The patch that shows this of a Workflow of the manager.
fn shown(local: &Value, remote: Remote<'_>) -> Option<Value> {
    let writes = one(local, |local| {
        Workflow.mirror(local, remote, Timestamp::UNIX_EPOCH)
    })
    .writes;
    let [Write::Patch { target, patch, .. }] = writes.as_slice() else {
        assert!(writes.is_empty(), "{writes:?}");
        return None;
    };
    assert_eq!(*target, Target::Main, "the kind has no status subresource");
    Some(patch.clone())
}

fn shown_of(local: &Value, copy: &Value) -> Option<Value> {
    one(copy, |copy| shown(local, Remote::Copies(copy)))
}

/// Spec: jobs 9.15, 10.3
#[test]
fn the_end_of_a_copy_is_shown_once_and_in_a_form_that_the_controller_takes_for_over() {
    let with = |status: Value| apply(&chain(&json!({})), &json!({"status": status}));
    let local = changed(
        &with(json!({"phase": "Running", "artifactGCStatus": {"strategiesProcessed": {}}})),
        |local| {
            Workflow.suspend(local);
        },
    );
    let nodes = json!({"a": {"type": "Pod", "phase": "Succeeded"}});
    assert_eq!(
        shown_of(&local, &with(json!({"phase": "Running", "nodes": nodes}))),
        None
    );
    let ended = json!({
        "phase": "Failed", "message": "child failed", "nodes": nodes, "finishedAt": "2026-01-01T00:00:09Z",
        "offloadNodeStatusVersion": "fnv:1", "artifactGCStatus": {"notSpecified": true},
    });
    let patch = shown_of(&local, &with(ended.clone())).unwrap();
    assert_eq!(
        patch["metadata"],
        json!({"labels": {PHASE: "Failed", COMPLETED: "true"}, "resourceVersion": "7"})
    );
    assert_eq!(patch.get("spec"), None);
    let after = apply(&local, &patch);
    let status = json!({
        "phase": "Failed", "message": "child failed", "nodes": nodes, "finishedAt": "2026-01-01T00:00:09Z",
        "artifactGCStatus": {"strategiesProcessed": {"OnWorkflowCompletion": true}},
    });
    assert_eq!(after["status"], status);
    assert_eq!(shown_of(&after, &with(ended.clone())), None, "once");
    let mut killed = with(ended);
    killed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:09Z");
    assert!(KIND.look(&killed).killed);
    assert_eq!(shown_of(&local, &killed), None);
    killed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:10Z");
    assert!(!KIND.look(&killed).killed, "it had failed before");
    assert_eq!(shown(&local, Remote::AtRest), None);
    for (success, phase) in [(true, "Succeeded"), (false, "Failed")] {
        let message = "m".to_owned();
        let patch = shown(&local, Remote::Ended(&Outcome { success, message })).unwrap();
        let status = json!({"phase": phase, "message": "m", "finishedAt": "1970-01-01T00:00:00Z"});
        assert_eq!(patch["status"], status);
        assert_eq!(
            patch["metadata"]["labels"],
            json!({PHASE: phase, COMPLETED: "true"})
        );
    }
}

/// Spec: jobs 9.15
#[test]
fn a_workflow_that_its_user_ends_is_ended_where_it_runs() {
    let running = chain(&json!({}));
    let slim = changed(&running, |copy| Workflow.forget_details(copy));
    assert_eq!(slim["spec"].get("templates"), None);
    let mut asked = running.clone();
    asked["spec"]["shutdown"] = json!("Terminate");
    let later = |local: &Value, copy: &Value| {
        let later = both(local, copy, |local, copy| Workflow.later(local, copy));
        later.into_iter().map(|later| later.patch).collect::<Vec<_>>()
    };
    let patch = json!({"spec": {"shutdown": "Terminate"}, "metadata": {"resourceVersion": "7"}});
    assert_eq!(later(&asked, &slim), [patch]);
    assert_eq!(later(&asked, &asked), [json!(null); 0]);
    assert_eq!(later(&running, &asked), [json!(null); 0], "it was ended there");
    let over = apply(&slim, &json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(later(&asked, &over), [json!(null); 0]);
}

fn named(needs: &BTreeSet<Need>) -> Vec<String> {
    needs.iter().map(ToString::to_string).collect()
}

/// Spec: jobs 9.15, experience 5
#[test]
fn what_its_steps_name_must_exist_where_it_runs() {
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let work = json!({
        "name": "work", "serviceAccountName": "worker", "executor": {"serviceAccountName": "reporter"},
        "container": {"image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}], "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": secret("token")}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "extra", "key": "k", "optional": true}}},
            {"name": "C", "valueFrom": {"secretKeyRef": secret("{{inputs.parameters.x}}")}},
        ]},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "outputs": {"artifacts": [{"name": "o", "s3": {"accessKeySecret": secret("store")}}]},
    });
    let reference = |name: &str, cluster: bool| json!({"templateRef": {"name": name, "template": "t", "clusterScope": cluster}});
    let none = json!({});
    let mut workflow = workflow(&[
        json!({"name": "main", "steps": [[
            apply(&step("a", "work", &none), &reference("shared", false)),
            apply(&step("b", "work", &none), &reference("global", true)),
        ]]}),
        work,
        json!({"name": "plain", "script": {"image": "i", "source": "s"}}),
    ]);
    let spec = &mut workflow["spec"];
    spec["serviceAccountName"] = json!("runner");
    spec["podPriorityClassName"] = json!("high");
    spec["volumes"] = json!([{"name": "w", "secret": {"secretName": "key"}}]);
    spec["imagePullSecrets"] = json!([{"name": "pull"}]);
    let value = |name: &str| json!({"configMapKeyRef": secret(name)});
    spec["arguments"] = json!({"parameters": [
        {"name": "p", "valueFrom": value("inputs")},
        {"name": "q", "valueFrom": apply(&value("absent"), &json!({"default": "1"}))},
    ]});
    spec["synchronization"] = json!({"semaphores": [value("limits")]});
    assert_eq!(
        named(&one(&workflow, |workflow| Workflow.needs(workflow))),
        [
            "ClusterWorkflowTemplate \"global\"",
            "ConfigMap \"inputs\"",
            "ConfigMap \"limits\"",
            "ConfigMap \"settings\"",
            "PersistentVolumeClaim \"data\"",
            "PriorityClass \"high\"",
            "Secret \"key\"",
            "Secret \"store\"",
            "Secret \"token\"",
            "ServiceAccount \"reporter\"",
            "ServiceAccount \"runner\"",
            "ServiceAccount \"worker\"",
            "WorkflowTemplate \"shared\"",
        ]
    );
    assert_eq!(
        named(&one(&workflow, |workflow| Workflow.wants(workflow))),
        ["Secret \"pull\""]
    );
    let mut whole = json!({"spec": {"workflowTemplateRef": {"name": "etl"}, "serviceAccountName": "runner"}});
    let names = named(&one(&whole, |workflow| Workflow.needs(workflow)));
    assert_eq!(names, ["ServiceAccount \"runner\"", "WorkflowTemplate \"etl\""]);
    whole["spec"] = json!("x");
    assert_eq!(named(&one(&whole, |workflow| Workflow.needs(workflow))), [""; 0]);
}
