use std::collections::BTreeMap;

use roadstead_core::amount::Amount;
use roadstead_core::name::{CheckName, FlavorName};
use roadstead_core::queue::Flavor;
use roadstead_core::status::{Admission, Assignment, CheckPhase, CheckState, PodSetUpdate};
use roadstead_core::taint::Toleration;
use serde_json::{Value, json};

use super::*;

fn exists(key: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        value: None,
        effect: None,
        seconds: None,
    }
}

fn flavor(name: &str, labels: &[(&str, &str)], tolerations: Vec<Toleration>) -> (FlavorName, Flavor) {
    let flavor = Flavor {
        name: name.into(),
        node_labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        taints: Vec::new(),
        tolerations,
        topology: None,
    };
    (name.into(), flavor)
}

fn facts_of(
    queue: &str,
    flavors: &[(FlavorName, Flavor)],
    update: Option<PodSetUpdate>,
) -> Result<Vec<PodSetInfo>, InjectError> {
    let admission = Admission {
        cluster_queue: queue.into(),
        pod_sets: vec![Assignment {
            name: "main".into(),
            flavors: [
                ("cpu".into(), "spot".into()),
                ("nvidia.com/gpu".into(), "a100".into()),
            ]
            .into(),
            usage: [("cpu".into(), Amount::new(1))].into(),
            count: 2,
        }],
    };
    let mut check = CheckState::pending(jiff::Timestamp::UNIX_EPOCH);
    check.phase = CheckPhase::Ready;
    check.updates = update.into_iter().collect();
    infos(&StartFacts {
        workload: "job-a-12345",
        local_queue: "tests.a",
        provenance: Provenance::Remote,
        admission: &admission,
        checks: &[(CheckName::from("chk"), check)].into(),
        flavors: &flavors.iter().cloned().collect(),
    })
}

fn two_flavors() -> Vec<(FlavorName, Flavor)> {
    vec![
        flavor("spot", &[("tier", "spot")], vec![exists("spot"), exists("both")]),
        flavor("a100", &[("gpu", "a100")], vec![exists("both")]),
    ]
}

/// Spec: jobs 5.8, 15.26, 15.31; multikueue 11.101.
#[test]
fn a_template_gets_what_flavors_and_queues_say() {
    let infos = facts_of("team", &two_flavors(), None).unwrap();
    let mut template =
        json!({"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}], "containers": []}});
    inject(&mut template, &infos[0]).unwrap();
    assert_eq!(
        template,
        json!({
            "metadata": {
                "labels": {
                    "kueue.x-k8s.io/podset": "main",
                    "kueue.x-k8s.io/local-queue-name": "tests.a",
                    "kueue.x-k8s.io/cluster-queue-name": "team",
                    "kueue.x-k8s.io/multikueue-worker-workload-pod": "true",
                },
                "annotations": {"kueue.x-k8s.io/workload": "job-a-12345"},
            },
            "spec": {
                "containers": [],
                "nodeSelector": {"tier": "spot", "gpu": "a100"},
                "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "both", "operator": "Exists"}],
            },
        })
    );
    let once = template.clone();
    inject(&mut template, &infos[0]).unwrap();
    assert_eq!(template, once, "injecting twice is injecting once");
}

/// Spec: jobs 15.27.
#[test]
fn a_queue_name_that_is_no_label_value_is_left_out() {
    let infos = facts_of("team.a", &two_flavors(), None).unwrap();
    assert!(!infos[0].labels.contains_key("kueue.x-k8s.io/cluster-queue-name"));
}

/// Spec: jobs 15.28, 15.29; provisioning 15.26.
#[test]
fn sources_that_disagree_are_a_permanent_error() {
    let infos = facts_of("team", &two_flavors(), None).unwrap();
    let mut template = json!({"spec": {"nodeSelector": {"tier": "fixed"}}});
    let error = inject(&mut template, &infos[0]).unwrap_err();
    assert!(error.is_permanent());
    assert_eq!(
        error.to_string(),
        "invalid admission check PodSetUpdate: conflict for nodeSelector: key \"tier\" is \"spot\", cannot become \"spot\""
            .replacen("is \"spot\"", "is \"fixed\"", 1)
    );
    let update = |key: &str, value: &str| PodSetUpdate {
        name: "main".into(),
        labels: BTreeMap::new(),
        annotations: [(key.to_owned(), value.to_owned())].into(),
        node_selector: BTreeMap::new(),
        tolerations: vec![exists("spot")],
    };
    let good = facts_of("team", &two_flavors(), Some(update("k", "v"))).unwrap();
    assert_eq!(good[0].annotations["k"], "v");
    assert_eq!(good[0].tolerations.len(), 2);
    let bad = facts_of(
        "team",
        &two_flavors(),
        Some(update("kueue.x-k8s.io/workload", "v")),
    );
    assert!(bad.unwrap_err().is_permanent());
}

/// Spec: provisioning 15.24, 15.26.
#[test]
fn what_a_check_found_out_goes_to_the_pods_unless_they_say_otherwise() {
    let consumes = "autoscaling.x-k8s.io/consume-provisioning-request";
    let update = PodSetUpdate {
        name: "main".into(),
        labels: BTreeMap::new(),
        annotations: [(consumes.to_owned(), "wl-chk-1".to_owned())].into(),
        node_selector: [("pool".to_owned(), "ng-1".to_owned())].into(),
        tolerations: Vec::new(),
    };
    let infos = facts_of("team", &two_flavors(), Some(update)).unwrap();
    let mut template = json!({"spec": {"containers": []}});
    inject(&mut template, &infos[0]).unwrap();
    assert_eq!(template["spec"]["nodeSelector"]["pool"], "ng-1");
    assert_eq!(template["metadata"]["annotations"][consumes], "wl-chk-1");
    let mut elsewhere = json!({"spec": {"nodeSelector": {"pool": "other"}}});
    assert!(inject(&mut elsewhere, &infos[0]).unwrap_err().is_permanent());
}

#[test]
fn a_missing_flavor_may_come_back() {
    let error = facts_of("team", &two_flavors()[..1], None).unwrap_err();
    assert_eq!(error, InjectError::MissingFlavor("a100".into()));
    assert!(!error.is_permanent());
}

/// Spec: jobs 5.8.
#[test]
fn a_wrong_number_of_infos_says_both_numbers() {
    let error = same_number(1, 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid podset infos: expecting 1 podset, got 2"
    );
}

/// Spec: jobs 5.9.
#[test]
fn restoring_undoes_an_injection() {
    let original = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [1], "tolerations": [{"key": "x"}]}});
    let infos = facts_of("team", &two_flavors(), None).unwrap();
    let mut template = original.clone();
    inject(&mut template, &infos[0]).unwrap();
    json::set(
        &mut template,
        &["metadata", "labels", "controller-uid"],
        json!("u"),
    );
    restore(&mut template, &original, &["controller-uid"]);
    let mut expected: Value = original;
    json::set(
        &mut expected,
        &["metadata", "labels", "controller-uid"],
        json!("u"),
    );
    assert_eq!(template, expected);
}

/// Spec: jobs 5.5.
#[test]
fn the_running_form_counts_what_was_admitted() {
    let pod_set = JobPodSet {
        name: "main".to_owned(),
        count: 5,
        min_count: Some(1),
        template: json!({"spec": {}}),
    };
    let infos = facts_of("team", &two_flavors(), None).unwrap();
    let running = running_form(&[pod_set], &infos).unwrap();
    assert_eq!(running[0].count, 2);
    assert_eq!(running[0].template["spec"]["nodeSelector"]["tier"], "spot");
}
