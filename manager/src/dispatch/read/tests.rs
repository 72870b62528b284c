use roadstead_api::config::Config;
use roadstead_engine::process::kinds;
use serde_json::{from_value, json};

use super::*;

/// Spec: safety 3.1, I9
#[test]
fn only_what_names_our_workload_can_have_a_higher_number() {
    let of = |uid: Option<&str>, epoch: Option<&str>| -> ApiWorkload {
        let notes = json!({annotations::WORKLOAD_UID: uid, annotations::DISPATCH_EPOCH: epoch});
        let notes: serde_json::Map<_, _> = notes
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect();
        from_value(json!({"metadata": {"uid": "1", "annotations": notes}, "spec": {"podSets": []}})).unwrap()
    };
    let local = of(None, Some("2"));
    let number = |uid, epoch| epoch_of(Some(&local), &of(uid, epoch).metadata);
    assert_eq!(number(Some("1"), Some("2")), 2);
    assert_eq!(number(Some("1"), Some("7")), 7, "our own storage went back");
    assert_eq!(number(Some("other"), Some("2")), 0);
    assert_eq!(number(None, Some("2")), 2);
    assert_eq!(number(None, None), 1);
    assert_eq!(number(None, Some("7")), 0);
    assert_eq!(number(Some("1"), Some("18446744073709551615")), 0);
}

/// Spec: jobs 9.15; safety 1 I1
#[test]
fn a_stopped_workflow_goes_with_the_steps_that_its_stop_leaves() {
    let there = |framework: &str, suspended| {
        let kind = roadstead_jobs::kind_named(framework).unwrap();
        let look = Look {
            suspended,
            pods: Pods::Alive,
            ..Look::default()
        };
        pods_there(kind, &look)
    };
    assert_eq!(there("argoproj.io/workflow", true), PodsThere::Untold);
    assert_eq!(there("argoproj.io/workflow", false), PodsThere::Some);
    assert_eq!(
        there("batch/job", true),
        PodsThere::Some,
        "its controller ends them"
    );
}

/// Spec: multikueue 5.4; jobs 10.1
#[test]
fn a_job_of_a_named_kind_is_refused_without_the_field_and_goes_only_with_its_object() {
    let kind = roadstead_jobs::external::kind("example.com", "v1", "Foo", "foos");
    let job = |spec: serde_json::Value| {
        let object =
            json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec});
        CachedJob::one(Arc::new(from_value(object).unwrap()))
    };
    let owned = |spec| owner(None, Some(&(kind, job(spec))), |_, _| false);
    let managed = json!({"managedBy": controllers::MULTIKUEUE});
    assert_eq!(owned(managed.clone()), Owner::Managed);
    let refused = |value: &str| Owner::NotManaged {
        field: ".spec.managedBy".to_owned(),
        value: value.to_owned(),
    };
    assert_eq!(owned(json!({})), refused(""));
    assert_eq!(owned(json!({"managedBy": "other"})), refused("other"));
    let gate = "MultiKueueAdaptersForCustomJobs";
    assert_eq!(external::switched_off(kind), Owner::SwitchedOff { gate });
    assert_eq!(
        pods_there(kind, &job(managed).look(kind)),
        PodsThere::Untold,
        "its status never says that it has no pods"
    );
}

/// Spec: multikueue 11.44, 11.45
#[test]
fn only_kinds_that_are_known_and_enabled_are_dispatched() {
    let enabled_and_owned_by = |known: bool, api_version: &str, kind: &str| {
        let reference =
            json!({"apiVersion": api_version, "kind": kind, "name": "j", "uid": "1", "controller": true});
        let metadata = json!({"name": "w", "namespace": "ns", "ownerReferences": [reference]});
        let workload: ApiWorkload =
            from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap();
        let is_known = |group: &str, kind: &str| known && (group, kind) == ("batch", "Job");
        owner(Some(&workload), None, is_known)
    };
    let owned_by = |api_version: &str, kind: &str| enabled_and_owned_by(true, api_version, kind);
    assert_eq!(owned_by("batch/v1", "Job"), Owner::Managed);
    let kind = Some("batch/v1, Kind=Job".to_owned());
    assert_eq!(
        enabled_and_owned_by(false, "batch/v1", "Job"),
        Owner::NoAdapter { kind },
        "its integration is switched off"
    );
    let kind = Some("kubeflow.org/v2beta1, Kind=MPIJob".to_owned());
    assert_eq!(
        owned_by("kubeflow.org/v2beta1", "MPIJob"),
        Owner::NoAdapter { kind }
    );
    assert_eq!(
        owner(Some(&ApiWorkload::default()), None, |_, _| true),
        Owner::NoAdapter { kind: None }
    );

    let mut config = Config::without_file("ns");
    let enabled = |config: &Config| {
        kinds(config)
            .iter()
            .map(|kind| kind.kind().framework)
            .collect::<Vec<_>>()
    };
    config.integrations.frameworks = vec!["batch/job".to_owned()];
    assert_eq!(enabled(&config), ["batch/job"]);
    config.integrations.frameworks = vec!["kubeflow.org/mpijob".to_owned()];
    assert_eq!(enabled(&config), ["kubeflow.org/mpijob"]);
    config.integrations.frameworks = vec!["example.com/unknown".to_owned()];
    assert_eq!(enabled(&config), [""; 0]);
}
