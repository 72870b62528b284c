//! batch/v1 Jobs.

use serde_json::{Value, json};

use super::ground::{Part, create, judge, on_cluster, patch, try_create};

const HOOK: &str = "vjob.kb.io";

fn job(name: &str, labels: Value, annotations: Value, on_template: Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": {"parallelism": 4, "suspend": true, "template": {"metadata": {"annotations": on_template}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

fn key(name: &str) -> String {
    format!("kueue.x-k8s.io/{name}")
}

/// Spec: jobs 7.3, 8, 9.1, 15.60.
#[test]
fn each_rule_about_new_jobs_holds() {
    let none = || json!({});
    let labelled = |name: &str, value: &str| job("j", json!({ key(name): value }), none(), none());
    let noted = |name: &str, value: &str| job("j", none(), json!({ key(name): value }), none());
    let placed = |pairs: &[(&str, &str)]| {
        let all: serde_json::Map<String, Value> = pairs
            .iter()
            .map(|(name, value)| (key(name), json!(value)))
            .collect();
        job("j", none(), none(), Value::Object(all))
    };
    let (required, preferred) = ("podset-required-topology", "podset-preferred-topology");
    let (slice, size) = ("podset-slice-required-topology", "podset-slice-size");
    let layers = "podset-slice-required-topology-constraints";
    let elastic_part = {
        let mut job = noted("elastic-job", "true");
        job["metadata"]["annotations"][key("job-min-parallelism")] = json!("2");
        job
    };
    let cases = [
        ("a queue", labelled("queue-name", "team.a"), None),
        (
            "no queue name",
            labelled("queue-name", "Team"),
            Some("labels[kueue.x-k8s.io/queue-name]: Invalid value: \"Team\""),
        ),
        ("a time", labelled("max-exec-time-seconds", "60"), None),
        (
            "no time",
            labelled("max-exec-time-seconds", "0"),
            Some("should be greater than 0"),
        ),
        (
            "no number",
            labelled("max-exec-time-seconds", "abc"),
            Some("must be a 32-bit integer"),
        ),
        ("prebuilt", noted("prebuilt-workload-name", "w"), None),
        (
            "no prebuilt name",
            noted("prebuilt-workload-name", "W_"),
            Some("annotations[kueue.x-k8s.io/prebuilt-workload-name]"),
        ),
        ("gates", noted("admission-gated-by", "x.io/a"), None),
        (
            "a gate twice",
            noted("admission-gated-by", "x.io/a,x.io/a"),
            Some("Duplicate value: \"x.io/a\""),
        ),
        ("a minimum", noted("job-min-parallelism", "2"), None),
        (
            "too high a minimum",
            noted("job-min-parallelism", "4"),
            Some("should be between 0 and 3"),
        ),
        (
            "not indexed",
            noted("job-completions-equal-parallelism", "true"),
            Some("should not be enabled for NonIndexed jobs"),
        ),
        ("elastic", noted("elastic-job", "true"), None),
        (
            "elastic in part",
            elastic_part,
            Some("partial admission and elastic job cannot be used together"),
        ),
        ("required", placed(&[(required, "rack")]), None),
        (
            "required and preferred",
            placed(&[(required, "rack"), (preferred, "rack")]),
            Some(
                "spec.template.metadata.annotations: Invalid value: must not contain more than one topology annotation: [",
            ),
        ),
        ("a slice", placed(&[(slice, "rack"), (size, "2")]), None),
        (
            "too large a slice",
            placed(&[(slice, "rack"), (size, "5")]),
            Some("must not be greater than the pod set count 4"),
        ),
        (
            "layers",
            placed(&[(layers, r#"[{"topology":"a","size":4},{"topology":"b","size":2}]"#)]),
            None,
        ),
        (
            "odd layers",
            placed(&[(layers, r#"[{"topology":"a","size":4},{"topology":"b","size":3}]"#)]),
            Some("must divide the size 4"),
        ),
        (
            "unconstrained",
            placed(&[("podset-unconstrained-topology", "true")]),
            None,
        ),
        (
            "unconstrained somehow",
            placed(&[("podset-unconstrained-topology", "somehow")]),
            Some("must be a boolean"),
        ),
        (
            "a group of one",
            placed(&[(required, "rack"), ("podset-group-name", "g")]),
            Some("exactly 2 pod sets, has 1"),
        ),
    ];
    on_cluster(|_, client| async move {
        for (about, object, refusal) in cases {
            judge(about, &try_create(&client, &object).await, HOOK, refusal);
        }
    });
}

/// Spec: jobs 7.4, 15.55, 15.57.
#[test]
fn each_rule_about_changes_of_jobs_holds() {
    let label = |name: &str, value: Value| json!({"metadata": {"labels": {key(name): value}}});
    let note = |name: &str, value: &str| json!({"metadata": {"annotations": {key(name): value}}});
    let cases = [
        (
            "no class any more",
            label("priority-class", Value::Null),
            Some("WorkloadPriorityClass cannot be removed from a workload"),
        ),
        ("another class", label("priority-class", json!("high")), None),
        ("another queue", label("queue-name", json!("other")), None),
        (
            "no queue name",
            label("queue-name", json!("Other")),
            Some("Invalid value: \"Other\""),
        ),
        ("a time", label("max-exec-time-seconds", json!("5")), None),
        (
            "no time",
            label("max-exec-time-seconds", json!("0")),
            Some("should be greater than 0"),
        ),
        (
            "elastic",
            note("elastic-job", "true"),
            Some("annotations[kueue.x-k8s.io/elastic-job]: Invalid value: field is immutable"),
        ),
        (
            "a gate",
            note("admission-gated-by", "x.io/a"),
            Some("cannot add admission gate after creation"),
        ),
    ];
    on_cluster(|_, client| async move {
        let labels = json!({key("queue-name"): "nowhere", key("priority-class"): "low"});
        let object = job("changed", labels, json!({}), json!({}));
        create(&client, &object).await;
        for (about, change, refusal) in cases {
            judge(
                about,
                &patch(&client, &object, Part::Main, &change, true).await,
                HOOK,
                refusal,
            );
        }
        // A job without queue is not ours to hold, and runs.
        let mut running = job(
            "running",
            json!({key("priority-class"): "low"}),
            json!({}),
            json!({}),
        );
        running["spec"]["suspend"] = json!(false);
        create(&client, &running).await;
        for (about, change, refusal) in [
            (
                "a queue",
                label("queue-name", json!("late")),
                Some("labels[kueue.x-k8s.io/queue-name]: Invalid value: field is immutable"),
            ),
            (
                "a time",
                label("max-exec-time-seconds", json!("5")),
                Some("max-exec-time-seconds]: Invalid value: field is immutable"),
            ),
            ("another class", label("priority-class", json!("high")), None),
        ] {
            judge(
                about,
                &patch(&client, &running, Part::Main, &change, true).await,
                HOOK,
                refusal,
            );
        }
    });
}

/// Spec: jobs 7.2.
#[test]
fn a_job_of_a_queue_is_held() {
    on_cluster(|_, client| async move {
        let mut object = job("j", json!({key("queue-name"): "q"}), json!({}), json!({}));
        object["spec"]["suspend"] = json!(false);
        let made = try_create(&client, &object).await.unwrap();
        assert_eq!(made["spec"]["suspend"], true);
        object["metadata"]["labels"] = json!({});
        let made = try_create(&client, &object).await.unwrap();
        assert_ne!(made["spec"]["suspend"], true);
    });
}
