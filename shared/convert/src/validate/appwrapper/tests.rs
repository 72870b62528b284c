use roadstead_kinds::{Absent, Holder, Kind, Kinds, PodPlace, Pods, TABLE, rows};
use serde_json::{Value, json};

use super::super::tests::compare;
use super::*;

fn job() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": []}}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}})
}

fn wrapping(templates: &[Value]) -> Value {
    let components: Vec<Value> = templates
        .iter()
        .map(|template| json!({"template": template}))
        .collect();
    json!({"metadata": {"labels": {}}, "spec": {"components": components}})
}

fn declaring(template: &Value, sets: &Value) -> Value {
    json!({"spec": {"components": [{"template": template, "podSets": sets}]}})
}

fn check(wrapper: &Value, expect: &[&str]) {
    compare(
        &appwrapper(wrapper, "team", PodSetsMax::default()),
        expect,
        wrapper,
    );
}

/// Spec: appwrapper 3.3, B99, B100, N-16.
#[test]
fn a_wrapper_has_one_to_eight_pod_sets() {
    check(&wrapping(&[service(), job()]), &[]);
    for none in [wrapping(&[]), wrapping(&[service()]), json!({})] {
        check(
            &none,
            &["spec.components: Invalid value: components contains no podspecs"],
        );
    }
    let pods = |count: usize| wrapping(&vec![pod("p"); count]);
    check(&pods(8), &[]);
    check(
        &pods(9),
        &["components contains 9 podspecs; at most 8 are allowed"],
    );
    let twelve: PodSetsMax = serde_json::from_value(json!(12)).unwrap();
    assert!(appwrapper(&pods(12), "team", twelve).is_empty());
    assert_eq!(appwrapper(&pods(13), "team", twelve).len(), 1);
}

/// Spec: appwrapper N-17.
#[test]
fn a_name_must_fit_a_label() {
    let named = |field: &str, name: String| {
        let mut wrapper = wrapping(&[job()]);
        wrapper["metadata"][field] = json!(name);
        wrapper
    };
    check(&named("name", "a.b".to_owned()), &[]);
    check(&named("name", "a".repeat(63)), &[]);
    let long = "must not be longer than 63 characters, because the name becomes a label of all pods";
    check(&named("name", "a".repeat(64)), &[long]);
    let long = "must not be longer than 58 characters, because the name becomes a label of all pods";
    check(&named("generateName", "a".repeat(59)), &[long]);
}

/// Spec: appwrapper 3.3, B101, B102, B106.
#[test]
fn a_child_is_a_named_object_of_the_same_namespace_and_no_wrapper() {
    let mut here = job();
    here["metadata"]["namespace"] = json!("team");
    check(&wrapping(&[here]), &[]);
    let mut elsewhere = job();
    elsewhere["metadata"]["namespace"] = json!("other");
    let nested = json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "x"}});
    let mut nameless = job();
    nameless["metadata"] = json!({});
    check(
        &wrapping(&[elsewhere, nested, nameless, json!("text")]),
        &[
            "spec.components[0].template.metadata.namespace: Forbidden: AppWrappers cannot create objects in other namespaces",
            "spec.components[1].template: Forbidden: Nested AppWrappers are forbidden",
            "spec.components[2].template.metadata.name: Required value",
            "spec.components[3].template: Invalid value: failed to decode as JSON",
        ],
    );
}

/// Spec: appwrapper 1.4, B16, B19.
#[test]
fn paths_that_lead_nowhere_are_explained() {
    let template = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {
        "template": {"metadata": {}, "spec": {}},
        "replicatedJobs": [{"template": {"spec": {}}}, {"template": {"spec": {}}}],
        "broken": {"spec": {"containers": "none"}},
    }});
    check(
        &declaring(
            &template,
            &json!([{"path": "template.spec.replicatedJobs[1].template"}]),
        ),
        &[],
    );
    check(&declaring(&template, &json!([{"path": "template"}])), &[]);
    for (path, why) in [
        (
            "template.spec.missing",
            "at path position 'template.spec' missing field 'missing'",
        ),
        ("spec.template", "first element of the path must be 'template'"),
        ("templates", "first element of the path must be 'template'"),
        (
            "template.spec.template.metadata",
            "content at template.spec.template.metadata does not contain a spec",
        ),
        (
            "template.spec.replicatedJobs.template",
            "at path position 'template.spec.replicatedJobs' non-map value",
        ),
        ("template.spec.replicatedJobs", "does not contain a spec"),
        (
            "template.spec.template[0]",
            "at path position 'template.spec.template' found non-array value",
        ),
        ("template.spec.replicatedJobs[10]", "out of bounds index '10'"),
        ("template.spec.replicatedJobs[-1]", "out of bounds index '-1'"),
        (
            "template.spec.replicatedJobs[a10]",
            "invalid index expression 'a10'",
        ),
        ("template.spec.replicatedJobs[1", "invalid array index '[1'"),
        (
            "template.spec.replicatedJobs[1]].template",
            "invalid path element '].template'",
        ),
        (
            "template.spec.broken",
            "content at template.spec.broken.spec not parseable as a v1.PodSpec",
        ),
    ] {
        let text = format!("path does not refer to a v1.PodSpecTemplate: {why}");
        let field = format!("spec.components[0].podSets[0].path: Invalid value: \"{path}\"");
        let wrapper = declaring(&template, &json!([{ "path": path }]));
        let found = appwrapper(&wrapper, "team", PodSetsMax::default());
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(
            texts.len() == 1 && texts[0].starts_with(&field),
            "{path}: {texts:?}"
        );
        assert!(
            texts[0].contains(why) && texts[0].contains(&text[..40]),
            "{path}: {texts:?}"
        );
    }
    check(
        &declaring(
            &template,
            &json!([{"path": ""}, {"path": "template", "replicas": -1}]),
        ),
        &[
            "podSets[0].path: Required value: podspec must specify path",
            "podSets[1].replicas: Invalid value: \"-1\"",
        ],
    );
    check(
        &declaring(&template, &json!([{"path": "template"}, {"path": "template"}])),
        &["spec.components[0].podSets: Invalid value: multiple DeclaredPodSets with path 'template'"],
    );
}

/// Spec: appwrapper 1.5, B17, B18.
#[test]
fn a_declaration_agrees_with_what_the_kind_says() {
    let path = "template.spec.template";
    check(&declaring(&job(), &json!([{"path": path, "replicas": 2}])), &[]);
    check(
        &declaring(&job(), &json!([{"path": path, "replicas": 3}])),
        &[
            "replica count 3 differs from inferred count 2 for PodSet at path position 'template.spec.template'",
        ],
    );
    check(
        &declaring(&job(), &json!([{"path": path, "replicas": 2}, {"path": path}])),
        &["DeclaredPodSet count 2 differs from inferred count 1"],
    );
    check(
        &declaring(&pod("p"), &json!([{"path": "template.spec"}])),
        &[
            "does not contain a spec",
            "PodSet with path 'template' is missing",
        ],
    );
    let groups = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {
        "replicatedJobs": [
            {"replicas": 1, "template": {"spec": {"template": {"spec": {"containers": []}}}}},
            {"replicas": 1, "template": {"spec": {"template": {"spec": {"containers": []}}}}},
        ],
    }});
    check(
        &declaring(
            &groups,
            &json!([{"path": "template.spec.replicatedJobs[0].template.spec.template"}]),
        ),
        &["DeclaredPodSet count 1 differs from inferred count 2"],
    );
}

/// Spec: appwrapper N-1, N-15.
#[test]
fn a_field_that_is_not_known_is_taken_and_a_template_that_is_no_object_is_refused_plainly() {
    let mut newer = job();
    newer["spec"]["template"]["spec"]["fieldOfTomorrow"] = json!({"a": [1]});
    check(&wrapping(&[newer]), &[]);
    for template in [json!("text"), json!(7), json!([]), Value::Null, json!({})] {
        check(
            &wrapping(&[job(), template]),
            &["spec.components[1].template: Invalid value: failed to decode as JSON"],
        );
    }
    check(
        &json!({"spec": {"components": [{"template": job()}, {}]}}),
        &["spec.components[1].template: Invalid value: failed to decode as JSON"],
    );
}

/// Spec: appwrapper 3.3, B106.
#[test]
fn each_of_fifty_children_that_is_wrong_is_named() {
    let mut elsewhere = job();
    elsewhere["metadata"]["namespace"] = json!("other");
    let problems = appwrapper(&wrapping(&vec![elsewhere; 50]), "team", PodSetsMax::default());
    assert_eq!(problems.len(), 51, "each child, and that they are too many");
    let last = problems
        .iter()
        .rfind(|problem| problem.field.starts_with("spec.components["));
    assert_eq!(
        last.map(|problem| problem.field.as_str()),
        Some("spec.components[49].template.metadata.namespace")
    );
}

/// The paths below `template.spec` and the replicas of the pod sets of an object of this kind.
fn found(version: &str, kind: &str, spec: Value) -> Result<Vec<String>, String> {
    let mut template = json!({});
    template["spec"] = spec;
    let sets = infer::pod_sets(TABLE, version, kind, &template)?;
    let said = sets.into_iter().map(|set| {
        let path = set.path.trim_start_matches("template.spec.").to_owned();
        format!("{path}={}", set.replicas)
    });
    Ok(said.collect())
}

fn texts(expect: &[&str]) -> Vec<String> {
    expect.iter().map(|text| (*text).to_owned()).collect()
}

/// Spec: appwrapper 1.5, B7, B8, B9, B11, B12, B13, B14, B15.
#[test]
fn pod_sets_follow_from_the_kind() {
    let pods = json!({"spec": {}});
    assert_eq!(found("v1", "Pod", json!({})), Ok(texts(&["template=1"])));
    assert_eq!(
        found("apps/v1", "Deployment", json!({"replicas": 3, "template": pods})),
        Ok(texts(&["template=3"]))
    );
    assert_eq!(
        found("apps/v1", "Deployment", json!({"template": pods})),
        Ok(texts(&["template=1"]))
    );
    assert_eq!(found("apps/v1", "StatefulSet", json!({})), Ok(texts(&[])));
    for (spec, replicas) in [
        (json!({"parallelism": 8, "completions": 4}), 4),
        (json!({"parallelism": 2, "completions": 4}), 2),
        (json!({}), 1),
        (json!({"completions": 4}), 1),
        (json!({"parallelism": 3}), 3),
    ] {
        let mut spec = spec;
        spec["template"] = pods.clone();
        assert_eq!(
            found("batch/v1", "Job", spec),
            Ok(vec![format!("template={replicas}")])
        );
    }
    assert_eq!(
        found(
            "batch/v1",
            "Job",
            json!({"parallelism": 4, "completions": 2, "template": pods})
        ),
        Ok(texts(&["template=2"]))
    );
}

/// Spec: appwrapper 1.5, B9, B11, B12, B13, B14, B15.
#[test]
fn pod_sets_follow_from_kinds_with_several_templates() {
    let pods = json!({"spec": {}});
    let jobs = json!({"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"parallelism": 3, "template": pods}}}, {"replicas": 1}]});
    assert_eq!(
        found("jobset.x-k8s.io/v1alpha2", "JobSet", jobs),
        Ok(texts(&["replicatedJobs[0].template.spec.template=6"]))
    );
    let groups = json!({"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2, "template": pods}}},
        {"template": {"spec": {"parallelism": 1, "completions": 1, "template": pods}}},
    ]});
    let template = json!({"spec": groups});
    let sets = infer::pod_sets(TABLE, "jobset.x-k8s.io/v1alpha2", "JobSet", &template).unwrap();
    let count = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
    let said: Vec<_> = sets
        .iter()
        .map(|set| (set.replicas, set.annotations[count].as_str()))
        .collect();
    assert_eq!(said, [(4, "2"), (1, "1")]);
    let worker = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": pods}}});
    assert_eq!(
        found("kubeflow.org/v1", "PyTorchJob", worker),
        Ok(texts(&["pytorchReplicaSpecs.Worker.template=2"]))
    );
    let torch = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": pods}, "Master": {"template": pods}}});
    assert_eq!(
        found("kubeflow.org/v1", "PyTorchJob", torch),
        Ok(texts(&[
            "pytorchReplicaSpecs.Master.template=1",
            "pytorchReplicaSpecs.Worker.template=3"
        ]))
    );
    let group = json!({"replicas": 2, "numOfHosts": 2, "template": pods});
    let cluster = json!({"headGroupSpec": {"template": pods}, "workerGroupSpecs": [group, {}]});
    assert_eq!(
        found("ray.io/v1", "RayCluster", cluster.clone()),
        Ok(texts(&[
            "headGroupSpec.template=1",
            "workerGroupSpecs[0].template=4"
        ]))
    );
    assert_eq!(
        found("ray.io/v1", "RayJob", json!({"rayClusterSpec": cluster}))
            .unwrap()
            .len(),
        2
    );
    assert_eq!(found("ray.io/v1alpha1", "RayCluster", json!({})), Ok(texts(&[])));
    for (version, kind, spec) in [
        (
            "apps/v1",
            "Deployment",
            json!({"replicas": "3", "template": pods}),
        ),
        ("batch/v1", "Job", json!({})),
        ("ray.io/v1", "RayJob", json!({"clusterSelector": {}})),
    ] {
        let wrapper = wrapping(&[
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}),
        ]);
        check(
            &wrapper,
            &[
                "spec.components[0].template: Invalid value: error inferring PodSets: ",
                "no podspecs",
            ],
        );
    }
}

/// Spec: appwrapper 1.5
#[test]
fn the_pod_sets_of_an_invented_kind_follow_from_its_row() {
    static WRAPPED: Kind = Kind {
        wrapped: &[PodPlace {
            holder: Holder::EachOf(&["spec", "cars"]),
            template: &["pod"],
            absent: Absent::NoPods,
            pods: Pods::Replicas(&["seats"]),
        }],
        ..rows::INVENTED
    };
    static ROWS: [&Kind; 2] = [&rows::JOB, &WRAPPED];
    let template = json!({"spec": {"cars": [{"pod": {"spec": {}}, "seats": 3}, {"seats": 2}]}});
    let found = |version: &str| infer::pod_sets(Kinds::new(&ROWS), version, "Train", &template).unwrap();
    let sets = found("example.com/v1");
    assert_eq!(sets.len(), 1);
    assert_eq!(
        (sets[0].path.as_str(), sets[0].replicas),
        ("template.spec.cars[0].pod", 3)
    );
    assert!(found("example.com/v2").is_empty());
}

/// Spec: appwrapper 3.5, B98, B107, B108, B109.
#[test]
fn what_a_wrapper_consists_of_stays() {
    let old = json!({
        "metadata": {"labels": {"workload.codeflare.dev/user": "me", "workload.codeflare.dev/userid": "1"}},
        "spec": {"managedBy": "m", "components": [{"template": job(), "podSets": [{"path": "template.spec.template"}]}]},
    });
    let check = |change: &dyn Fn(&mut Value), field: Option<&str>| {
        let mut new = old.clone();
        change(&mut new);
        let expect = field.map(|field| format!("{field}: Forbidden: attempt to change immutable field"));
        let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
        compare(&appwrapper_update(&old, &new), &expect, &new);
    };
    check(&|new| new["spec"]["suspend"] = json!(true), None);
    check(
        &|new| new["spec"]["components"][0]["podSetInfos"] = json!([{}]),
        None,
    );
    check(
        &|new| new["spec"]["components"][0]["annotations"] = json!({"a": "b"}),
        None,
    );
    check(
        &|new| new["spec"]["components"][0]["podSets"][0]["replicas"] = json!(1),
        None,
    );
    check(
        &|new| new["spec"]["components"] = json!([]),
        Some("spec.components"),
    );
    check(
        &|new| new["spec"]["components"][0]["template"]["spec"]["parallelism"] = json!(3),
        Some("spec.components[0].template.raw"),
    );
    check(
        &|new| new["spec"]["components"][0]["podSets"] = json!([]),
        Some("spec.components[0].podsets"),
    );
    check(
        &|new| new["spec"]["components"][0]["podSets"][0]["replicas"] = json!(2),
        Some("spec.components[0].podsets[0].replicas"),
    );
    check(
        &|new| new["spec"]["components"][0]["podSets"][0]["path"] = json!("template"),
        Some("spec.components[0].podsets[0].path"),
    );
    check(
        &|new| new["metadata"]["labels"]["workload.codeflare.dev/user"] = json!("you"),
        Some("metadata.labels[workload.codeflare.dev/user]"),
    );
    check(
        &|new| new["metadata"]["labels"]["workload.codeflare.dev/userid"] = Value::Null,
        Some("metadata.labels[workload.codeflare.dev/userid]"),
    );
    check(
        &|new| new["spec"]["managedBy"] = json!(""),
        Some("spec.managedBy"),
    );
}
