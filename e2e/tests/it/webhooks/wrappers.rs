//! `AppWrappers`, where their integration is on.

use serde_json::{Value, json};

use super::ground::{Part, create, judge, on_cluster, patch, stranger, try_create};

const HOOK: &str = "vappwrapper.kb.io";

fn job(replicas: i64) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": replicas,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

fn wrapping(name: &str, components: Value) -> Value {
    json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"components": components}})
}

fn with(template: Value) -> Value {
    wrapping("w", json!([{ "template": template }]))
}

/// Spec: appwrapper 3.3, B99, B100, B101, B102.
#[test]
fn each_rule_about_new_wrappers_holds() {
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}});
    let pods = |count: usize| wrapping("w", Value::Array(vec![json!({ "template": pod }); count]));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}});
    let mut elsewhere = job(1);
    elsewhere["metadata"]["namespace"] = json!("other");
    let declared = |path: &str, replicas: i64| {
        wrapping(
            "w",
            json!([{"template": job(2), "podSets": [{"path": path, "replicas": replicas}]}]),
        )
    };
    let cases = [
        ("a job", with(job(1)), None),
        (
            "nothing",
            wrapping("w", json!([])),
            Some("components contains no podspecs"),
        ),
        ("no pods", with(service), Some("components contains no podspecs")),
        ("eight", pods(8), None),
        (
            "nine",
            pods(9),
            Some("components contains 9 podspecs; at most 8 are allowed"),
        ),
        (
            "elsewhere",
            with(elsewhere),
            Some("AppWrappers cannot create objects in other namespaces"),
        ),
        ("declared", declared("template.spec.template", 2), None),
        (
            "declared otherwise",
            declared("template.spec.template", 3),
            Some("replica count 3 differs from inferred count 2"),
        ),
        (
            "declared nowhere",
            declared("template.spec.missing", 2),
            Some("missing field 'missing'"),
        ),
    ];
    on_cluster(|_, client| async move {
        for (about, object, refusal) in cases {
            judge(about, &try_create(&client, &object).await, HOOK, refusal);
        }
    });
}

/// Spec: appwrapper 3.2, 3.5, B96, B98, B107, B108.
#[test]
fn who_submitted_a_wrapper_and_what_it_consists_of_stays() {
    on_cluster(|solo, client| async move {
        let label = |value: &str| json!({"metadata": {"labels": {"workload.codeflare.dev/user": value}}});
        let mut wrapper = wrapping("kept", json!([{"template": job(2)}]));
        wrapper["metadata"]["labels"] = label("bad")["metadata"]["labels"].clone();
        let made = create(&stranger(solo).await, &wrapper).await;
        assert_eq!(
            made["metadata"]["labels"]["workload.codeflare.dev/user"],
            "somebody"
        );
        let immutable = Some("attempt to change immutable field");
        for (about, change, refusal) in [
            ("suspend", json!({"spec": {"suspend": true}}), None),
            ("the user", label("other"), immutable),
            (
                "a template",
                json!({"spec": {"components": [{"template": job(3)}]}}),
                immutable,
            ),
        ] {
            judge(
                about,
                &patch(&client, &wrapper, Part::Main, &change, true).await,
                HOOK,
                refusal,
            );
        }
    });
}

/// Spec: appwrapper B2, B3, B4.
#[test]
fn a_template_is_kept_as_it_is_and_must_be_an_object() {
    let mut newer = job(1);
    newer["spec"]["fieldOfTomorrow"] = json!({"deep": [1, {"a": null}]});
    let bare = |field: &str| {
        let mut template = job(1);
        template.as_object_mut().unwrap().remove(field);
        with(template)
    };
    on_cluster(|_, client| async move {
        let mut wrapper = with(newer.clone());
        wrapper["metadata"]["name"] = json!("newer");
        let made = create(&client, &wrapper).await;
        assert_eq!(made["spec"]["components"][0]["template"], newer);
        assert_eq!(made["spec"].get("suspend"), None, "the schema has no default");
        for field in ["apiVersion", "kind"] {
            let refused = try_create(&client, &bare(field)).await.unwrap_err();
            assert!(
                refused.contains("template") && refused.contains(field) && !refused.contains(HOOK),
                "{refused}"
            );
        }
    });
}
