use serde_json::{Value, json};

use super::*;
use crate::batch::BatchJob;
use crate::fixture::{CLASS, GATES, MAX, PREBUILT, QUEUE, both, changed, one};
use crate::problem::Sort;

fn facts(uses_multikueue: &dyn Fn(&str) -> bool) -> DefaultFacts<'_> {
    DefaultFacts {
        default_queue: Presence::Absent,
        default_priority_class: Presence::Absent,
        owner: Owner::Unmanaged,
        namespace: Namespace::Inside,
        uses_multikueue,
        mark: None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn job(labels: Value, annotations: Value, suspend: bool) -> Value {
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"suspend": suspend}})
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls read like the object")]
fn defaulted(job: Value, facts: &DefaultFacts<'_>) -> Value {
    changed(&job, |job| default_job(&BatchJob, job, facts))
}

fn on_create(job: &Value, gates: &FeatureGates) -> Vec<Problem> {
    one(job, |job| validate_create(&BatchJob, job.first(), gates))
}

fn on_update(old: &Value, new: &Value, default_queue: Presence, gates: &FeatureGates) -> Vec<Problem> {
    both(old, new, |old, new| {
        validate_update(&BatchJob, old.first(), new.first(), default_queue, gates)
    })
}

/// Spec: jobs 7.2, 15.51, 15.52.
#[test]
fn a_default_queue_takes_what_names_none() {
    let no = |_: &str| false;
    let present = DefaultFacts {
        default_queue: Presence::Present,
        default_priority_class: Presence::Present,
        ..facts(&no)
    };
    let taken = defaulted(json!({"metadata": {}}), &present);
    assert_eq!(
        taken,
        json!({"metadata": {"labels": {QUEUE: "default", CLASS: "default"}}, "spec": {"suspend": true}})
    );
    let empty = defaulted(job(json!({QUEUE: "", CLASS: ""}), json!({}), false), &present);
    assert_eq!(empty["metadata"]["labels"], taken["metadata"]["labels"]);
    assert_eq!(empty["spec"], taken["spec"]);
    for owner in [Owner::ManagedKind, Owner::ManagedAncestor] {
        let child = defaulted(json!({"metadata": {}}), &DefaultFacts { owner, ..present });
        assert_eq!(child, json!({"metadata": {}}));
    }
    let outside = DefaultFacts {
        namespace: Namespace::Outside,
        ..present
    };
    assert_eq!(
        defaulted(json!({}), &outside),
        json!({"metadata": {"labels": {CLASS: "default"}}})
    );
    let named = defaulted(job(json!({QUEUE: "q", CLASS: "c"}), json!({}), false), &present);
    assert_eq!(named["metadata"]["labels"], json!({QUEUE: "q", CLASS: "c"}));
}

/// Spec: jobs 7.2 step 3, 15.61.
#[test]
fn what_a_queue_holds_is_suspended() {
    let no = |_: &str| false;
    let suspended =
        |job: Value, facts: &DefaultFacts<'_>| defaulted(job, facts)["spec"]["suspend"] == json!(true);
    let queued = || job(json!({QUEUE: "q"}), json!({}), false);
    let free = || job(json!({}), json!({}), false);
    assert!(suspended(queued(), &facts(&no)));
    assert!(!suspended(free(), &facts(&no)));
    let outside = DefaultFacts {
        namespace: Namespace::Outside,
        ..facts(&no)
    };
    assert!(!suspended(queued(), &outside), "no controller would start it");
    let all = DefaultFacts {
        namespace: Namespace::InsideAll,
        ..facts(&no)
    };
    assert!(suspended(free(), &all));
    let child = DefaultFacts {
        owner: Owner::ManagedAncestor,
        ..all
    };
    assert!(!suspended(queued(), &child));
    let mut going = queued();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(!suspended(going, &facts(&no)));
}

/// Spec: jobs 7.2 step 4, 15.53, 15.54, multikueue 1.8, 11.100.
#[test]
fn jobs_of_a_federated_queue_are_marked_for_it() {
    let federated = |queue: &str| queue == "fed";
    let manager = |queue: &str, managed_by: Option<&str>| {
        let mut job = job(json!({QUEUE: queue}), json!({}), true);
        if let Some(name) = managed_by {
            job["spec"]["managedBy"] = json!(name);
        }
        defaulted(job, &facts(&federated))["spec"]["managedBy"].clone()
    };
    assert_eq!(manager("fed", None), "kueue.x-k8s.io/multikueue");
    assert_eq!(
        manager("fed", Some("kubernetes.io/job-controller")),
        "kueue.x-k8s.io/multikueue"
    );
    assert_eq!(manager("fed", Some("else.example/x")), "else.example/x");
    assert_eq!(manager("other", None), Value::Null);
}

/// Spec: multikueue 5.1
#[test]
fn what_a_manager_has_sent_does_not_remove_itself_before_that_has_seen_its_end() {
    let no = |_: &str| false;
    let ttl = |labels: Value| {
        let mut job = job(labels, json!({}), true);
        job["spec"]["ttlSecondsAfterFinished"] = json!(0);
        defaulted(job, &facts(&no))["spec"]["ttlSecondsAfterFinished"].clone()
    };
    let origin = "kueue.x-k8s.io/multikueue-origin";
    assert_eq!(ttl(json!({QUEUE: "q", origin: "multikueue"})), Value::Null);
    assert_eq!(ttl(json!({QUEUE: "q"})), json!(0));
}

/// Spec: jobs 7.3, 15.39.
#[test]
fn a_new_job_is_checked() {
    let check = |labels: Value, annotations: Value, expected: &[Sort]| {
        let found: Vec<_> = on_create(
            &job(labels.clone(), annotations.clone(), true),
            &FeatureGates::default(),
        )
        .into_iter()
        .map(|problem| problem.sort)
        .collect();
        assert_eq!(found, expected, "{labels} {annotations}");
    };
    check(
        json!({QUEUE: "q.a", MAX: "60", PREBUILT: "w"}),
        json!({PREBUILT: "w", GATES: "x.io/a"}),
        &[],
    );
    check(json!({QUEUE: "Q"}), json!({}), &[Sort::Invalid]);
    check(json!({MAX: "abc"}), json!({}), &[Sort::Invalid]);
    check(json!({MAX: "0"}), json!({}), &[Sort::Invalid]);
    check(json!({PREBUILT: "_"}), json!({}), &[Sort::Invalid]);
    check(json!({}), json!({PREBUILT: "_"}), &[Sort::Invalid]);
    check(json!({}), json!({GATES: "x.io/a,x.io/a"}), &[Sort::Duplicate]);
    let text = on_create(
        &job(json!({QUEUE: "Q"}), json!({}), true),
        &FeatureGates::default(),
    );
    assert_eq!(
        text[0].to_string().split(": at most").next().unwrap(),
        "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"Q\": must be a DNS-1123 subdomain"
    );
}

/// Spec: jobs 6, 9.1.
#[test]
fn an_elastic_job_takes_neither_partial_admission_nor_a_fixed_place() {
    const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
    let check = |annotations: Value, on_template: Value, gates: &FeatureGates, expected: &[&str]| {
        let mut job = job(json!({}), annotations, true);
        job["spec"]["parallelism"] = json!(4);
        job["spec"]["template"] = json!({"metadata": {"annotations": on_template}});
        let found = on_create(&job, gates);
        let found: Vec<_> = found.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(found, expected, "{job}");
    };
    let on = FeatureGates::default();
    let off = FeatureGates::resolve([("ElasticJobsViaWorkloadSlices", false)]).unwrap();
    check(json!({ELASTIC: "true"}), json!({}), &on, &[]);
    let partial = json!({ELASTIC: "true", "kueue.x-k8s.io/job-min-parallelism": "2"});
    check(
        partial.clone(),
        json!({}),
        &on,
        &["partial admission and elastic job cannot be used together"],
    );
    check(partial, json!({}), &off, &[]);
    check(
        json!({ELASTIC: "true"}),
        json!({"kueue.x-k8s.io/podset-required-topology": "rack"}),
        &on,
        &["required and preferred topology cannot be used together with elastic job"],
    );
}

/// Not built yet, and told instead of ignored (unlike the anchor).
///
/// Spec: multikueue 11.90 (deviation)
#[test]
fn the_user_of_an_elastic_job_is_told_that_it_is_not_built() {
    let told = |annotations: Value| {
        let job = job(json!({QUEUE: "q"}), annotations, true);
        one(&job, |job| warnings(job.first()))
    };
    let warnings = told(json!({"kueue.x-k8s.io/elastic-job": "true"}));
    assert!(
        warnings[0].starts_with(
            "annotation kueue.x-k8s.io/elastic-job has no effect: elastic jobs are not built yet."
        ),
        "{warnings:?}"
    );
    assert!(told(json!({"kueue.x-k8s.io/elastic-job": "false"})).is_empty());
    assert!(told(json!({})).is_empty());
}

/// Spec: jobs 8, 15.60.
#[test]
fn the_topology_annotations_of_the_template_are_checked() {
    let mut job = job(json!({}), json!({}), true);
    job["spec"]["parallelism"] = json!(2);
    job["spec"]["template"] = json!({"metadata": {"annotations": {
        "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "3"}}});
    let expected = "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"3\": must not be \
                    greater than the pod set count 2";
    let on = FeatureGates::default();
    assert_eq!(on_create(&job, &on)[0].to_string(), expected);
    let mut before = job.clone();
    before["spec"]["parallelism"] = json!(3);
    assert_eq!(
        on_update(&before, &job, Presence::Absent, &on)[0].to_string(),
        expected
    );
    assert_eq!(on_update(&job, &job, Presence::Absent, &on), []);
    let off = FeatureGates::resolve([("TopologyAwareScheduling", false)]).unwrap();
    assert_eq!(on_create(&job, &off), []);
}

/// Spec: jobs 7.4, 15.55 to 15.57.
#[test]
fn a_change_is_checked() {
    let check = |old: (Value, bool), new: (Value, bool), default_queue, expected: &[&str]| {
        let (old, new) = (job(old.0, json!({}), old.1), job(new.0, json!({}), new.1));
        let found: Vec<_> = on_update(&old, &new, default_queue, &FeatureGates::default())
            .into_iter()
            .map(|problem| problem.message)
            .collect();
        assert_eq!(found, expected, "{old} {new}");
    };
    let no = Presence::Absent;
    let (a, b, none) = (json!({QUEUE: "a"}), json!({QUEUE: "b"}), json!({}));
    check((a.clone(), false), (b.clone(), false), no, &[IMMUTABLE]);
    check((a.clone(), false), (b.clone(), true), no, &[]);
    check((a.clone(), true), (none.clone(), true), no, &[]);
    check(
        (a.clone(), true),
        (none.clone(), true),
        Presence::Present,
        &["queue-name must not be empty in namespace with default queue"],
    );
    let class = |name: &str| json!({CLASS: name});
    check(
        (none.clone(), false),
        (class("x"), false),
        no,
        &["WorkloadPriorityClass cannot be added to a non-suspended workload"],
    );
    check((none.clone(), true), (class("x"), true), no, &[]);
    check((class("x"), false), (class("y"), false), no, &[]);
    check(
        (class("x"), true),
        (none.clone(), true),
        no,
        &["WorkloadPriorityClass cannot be removed from a workload"],
    );
    let (short, long) = (json!({MAX: "1"}), json!({MAX: "2"}));
    check((short.clone(), false), (long.clone(), true), no, &[IMMUTABLE]);
    check((short, true), (long, true), no, &[]);
    check(
        (json!({PREBUILT: "a"}), false),
        (json!({PREBUILT: "b"}), false),
        no,
        &[IMMUTABLE],
    );
    check(
        (json!({PREBUILT: "a"}), true),
        (json!({PREBUILT: "b"}), true),
        no,
        &[],
    );
}

/// Spec: jobs 7.4.
#[test]
fn gates_and_elasticity_do_not_grow_later() {
    let with = |annotations: Value| job(json!({}), annotations, true);
    let check = |old: Value, new: Value, expected: usize| {
        let found = on_update(&with(old), &with(new), Presence::Absent, &FeatureGates::default());
        assert_eq!(found.len(), expected);
    };
    check(json!({}), json!({GATES: "x.io/a"}), 1);
    check(json!({GATES: "x.io/a,x.io/b"}), json!({GATES: "x.io/b"}), 0);
    check(json!({GATES: "x.io/a"}), json!({}), 0);
    check(json!({}), json!({"kueue.x-k8s.io/elastic-job": "true"}), 1);
}

/// Spec: multikueue 3.3 R3 (deviation)
#[test]
fn tries_elsewhere_are_a_small_number() {
    const RETRY: &str = "roadstead.dev/retry-elsewhere";
    let gates = FeatureGates::default();
    let told = |tries: &str| on_create(&job(json!({QUEUE: "q"}), json!({RETRY: tries}), true), &gates);
    for fine in ["0", "2", "100"] {
        assert_eq!(told(fine), []);
    }
    for wrong in ["", "-1", "101", "two", "1.5"] {
        let problems = told(wrong);
        assert_eq!(problems.len(), 1, "{wrong}");
        let text = problems[0].to_string();
        assert!(
            text.contains(RETRY) && text.contains("must be a number from 0 to 100"),
            "{text}"
        );
    }
    let old = job(json!({QUEUE: "q"}), json!({}), false);
    let new = job(json!({QUEUE: "q"}), json!({RETRY: "many"}), false);
    assert_eq!(on_update(&old, &new, Presence::Absent, &gates).len(), 1);
}
