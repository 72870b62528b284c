mod objects;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const API: &str = "kueue.x-k8s.io";
const ALPHA: &str = "kueue.x-k8s.io/v1alpha1";
const OLD: &str = "kueue.x-k8s.io/v1beta1";
const HUB: &str = "kueue.x-k8s.io/v1beta2";

fn to(version: &str, object: &Value) -> Value {
    convert(object.clone(), version).unwrap_or_else(|error| panic!("{error}: {object}"))
}

fn object(version: &str, kind: &str, spec: impl Into<Value>) -> Value {
    let spec = spec.into();
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
}

fn with_status(mut object: Value, status: impl Into<Value>) -> Value {
    object["status"] = status.into();
    object
}

fn check(before: &Value, version: &str, spec: &Value, status: &Value) {
    let after = to(version, before);
    assert_eq!((&after["spec"], &after["status"]), (spec, status), "{before}");
    assert_eq!(after["apiVersion"], version);
}

/// A workload with one pod set, which has this topology assignment.
fn placed(version: &str, assignment: &Value) -> Value {
    let sets = json!([{"name": "main", "topologyAssignment": assignment}]);
    with_status(
        object(version, "Workload", json!({})),
        json!({"admission": {"clusterQueue": "q", "podSetAssignments": sets}}),
    )
}

fn assignment(workload: &Value) -> &Value {
    &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

/// The object with every assignment in one form: how the domains are divided into slices has no meaning.
fn in_one_form(mut object: Value) -> Value {
    let sets = object.pointer_mut("/status/admission/podSetAssignments");
    for set in sets.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(assignment) = set.get_mut("topologyAssignment").and_then(Value::as_object_mut) {
            topology::to_domains(assignment).unwrap();
        }
    }
    object
}

proptest! {
    /// Spec: api API-11: no field of `v1beta2` is lost in an older version.
    #[test]
    fn an_object_survives_the_way_through_v1beta1(object in objects::any_object()) {
        let back = to(HUB, &to(OLD, &object));
        prop_assert_eq!(in_one_form(back), in_one_form(object));
    }

    /// Spec: api API-11: an older version reads what it wrote.
    #[test]
    fn an_old_object_survives_the_way_through_v1beta2(object in objects::any_object()) {
        let old = to(OLD, &object);
        let back = to(OLD, &to(HUB, &old));
        prop_assert_eq!(back, old);
    }

    /// Spec: api API-1, `v1alpha1` of Cohort.
    #[test]
    fn a_cohort_survives_the_way_through_v1alpha1(cohort in objects::cohort()) {
        let alpha = to(ALPHA, &cohort);
        prop_assert_eq!(&to(ALPHA, &to(OLD, &alpha)), &alpha);
        prop_assert_eq!(to(HUB, &alpha), cohort);
    }

    /// Spec: api API-9.3: the order of the domains carries information.
    #[test]
    fn domains_keep_their_order_in_slices(assignment in objects::domains()) {
        let old = placed(OLD, &assignment);
        prop_assert_eq!(to(OLD, &to(HUB, &old)), old);
    }

    #[test]
    fn metadata_changes_in_one_annotation_only(object in objects::any_object()) {
        let mut metadata = to(OLD, &object)["metadata"].take();
        if let Some(fields) = metadata.as_object_mut() {
            let annotations = fields.get_mut("annotations").and_then(Value::as_object_mut);
            if annotations.is_some_and(|all| all.remove(CARRIED).is_some() && all.is_empty()) {
                fields.remove("annotations");
            }
        }
        prop_assert_eq!(&metadata, &object["metadata"]);
    }

    #[test]
    fn garbage_is_an_error_or_passes_and_never_panics(
        garbage in objects::garbage(), kind in 0..KINDS.len(), versions in (0..3_usize, 0..3_usize),
    ) {
        let mut object = json!({"kind": KINDS[kind].name, "apiVersion": ([ALPHA, OLD, HUB][versions.0])});
        if let (Value::Object(object), Value::Object(garbage)) = (&mut object, garbage) {
            object.extend(garbage);
        }
        if let Err(error) = convert(object, [ALPHA, OLD, HUB][versions.1]) {
            prop_assert!(error.to_string().contains(KINDS[kind].name), "{}", error);
        }
    }
}

/// Spec: admission-engine B002.
#[test]
fn the_cohort_of_a_queue_has_two_names() {
    let (old, new) = (json!({"cohort": "x"}), json!({"cohortName": "x"}));
    check(&object(OLD, "ClusterQueue", old.clone()), HUB, &new, &Value::Null);
    check(&object(HUB, "ClusterQueue", new), OLD, &old, &Value::Null);
}

/// Spec: admission-engine B003.
#[test]
fn old_words_of_fungibility_become_the_new_one_and_stay_so() {
    let old = json!({"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}});
    let new =
        json!({"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}});
    let queue = object(OLD, "ClusterQueue", old);
    check(&queue, HUB, &new, &Value::Null);
    check(&to(HUB, &queue), OLD, &new, &Value::Null);
}

/// Spec: admission-engine B004.
#[test]
fn the_flat_list_of_checks_becomes_rules_and_stays_so() {
    let rules = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}});
    let queue = object(
        OLD,
        "ClusterQueue",
        json!({"admissionChecks": ["a", "b", "a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}),
    );
    check(&queue, HUB, &rules, &Value::Null);
    check(&to(HUB, &queue), OLD, &rules, &Value::Null);
    let empty = json!({"admissionChecks": [], "admissionChecksStrategy": {"admissionChecks": []}});
    check(
        &object(OLD, "ClusterQueue", empty),
        HUB,
        &json!({"admissionChecksStrategy": {"admissionChecks": []}}),
        &Value::Null,
    );
}

/// Spec: api API-11, ClusterQueue, Cohort and LocalQueue: what is dropped.
#[test]
fn parts_of_a_status_that_nobody_fills_are_dropped() {
    let past = json!({"consumedResources": {}, "lastUpdate": "2026-01-01T00:00:00Z"});
    let sharing = json!({"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": past}});
    let kept = json!({"fairSharing": {"weightedShare": 1}});
    let mut status = sharing.clone();
    status["pendingWorkloadsStatus"] = json!({"clusterQueuePendingWorkload": []});
    let queue = with_status(object(OLD, "ClusterQueue", json!({})), status);
    check(&queue, HUB, &json!({}), &kept);
    for version in [ALPHA, OLD] {
        let cohort = with_status(object(version, "Cohort", json!({})), sharing.clone());
        check(&cohort, HUB, &json!({}), &kept);
    }
    // Why: a LocalQueue uses that part.
    let local = with_status(
        object(OLD, "LocalQueue", json!({})),
        json!({"flavors": [{"name": "f"}], "flavorUsage": [], "fairSharing": sharing["fairSharing"]}),
    );
    check(
        &local,
        HUB,
        &json!({}),
        &json!({"flavorsUsage": [], "fairSharing": sharing["fairSharing"]}),
    );
}

/// Spec: admission-engine B025; api API-11, Workload.
#[test]
fn the_class_of_a_priority_has_two_forms() {
    for (source, group, kind) in [
        (
            "kueue.x-k8s.io/workloadpriorityclass",
            "kueue.x-k8s.io",
            "WorkloadPriorityClass",
        ),
        (
            "scheduling.k8s.io/priorityclass",
            "scheduling.k8s.io",
            "PriorityClass",
        ),
    ] {
        let old = json!({"priorityClassSource": source, "priorityClassName": "p"});
        let new = json!({"priorityClassRef": {"group": group, "kind": kind, "name": "p"}});
        check(&object(OLD, "Workload", old.clone()), HUB, &new, &Value::Null);
        check(&object(HUB, "Workload", new), OLD, &old, &Value::Null);
    }
    for none in [
        json!({}),
        json!({"priorityClassSource": "", "priorityClassName": "p"}),
    ] {
        check(&object(OLD, "Workload", none), HUB, &json!({}), &Value::Null);
    }
}

/// Spec: admission-engine B024; api API-9.3.
#[test]
fn one_slice_reads_as_its_domains_in_order() {
    let slices = json!({"levels": ["kubernetes.io/hostname"], "slices": [{
        "domainCount": 3,
        "valuesPerLevel": [{"individual": {"prefix": "n-", "roots": ["1", "2", "3"]}}],
        "podCounts": {"universal": 1},
    }]});
    let domains = json!({"levels": ["kubernetes.io/hostname"], "domains": [
        {"values": ["n-1"], "count": 1}, {"values": ["n-2"], "count": 1}, {"values": ["n-3"], "count": 1},
    ]});
    assert_eq!(assignment(&to(OLD, &placed(HUB, &slices))), &domains);
    assert_eq!(assignment(&to(HUB, &placed(OLD, &domains))), &slices);
}

#[test]
fn a_level_is_written_as_what_its_values_share() {
    let check = |values: &[&str], expected: Value| {
        let domains: Vec<_> = values
            .iter()
            .map(|value| json!({"values": [value], "count": 2}))
            .collect();
        let new = to(HUB, &placed(OLD, &json!({"levels": ["l"], "domains": domains})));
        let slice = &assignment(&new)["slices"][0];
        assert_eq!(slice["valuesPerLevel"][0], expected, "{values:?}");
        assert_eq!(slice["podCounts"], json!({"universal": 2}));
    };
    check(&["a", "a"], json!({"universal": "a"}));
    check(&["a"], json!({"universal": "a"}));
    check(
        &["n1.z", "n2.z"],
        json!({"individual": {"prefix": "n", "suffix": ".z", "roots": ["1", "2"]}}),
    );
    // The prefix and the suffix would overlap.
    check(
        &["aa", "aaa"],
        json!({"individual": {"prefix": "aa", "roots": ["", "a"]}}),
    );
    // Cut between characters, not within.
    check(&["é", "è"], json!({"individual": {"roots": ["é", "è"]}}));
}

/// Spec: api API-11: a `v1beta1` status writer must not erase the fields that only `v1beta2` has.
#[test]
fn a_status_written_as_v1beta1_erases_nothing() {
    let gates = json!([{"name": "multikueue"}]);
    let layers = json!([{"topology": "rack", "size": 2}]);
    let state =
        json!([{"name": "multikueue", "position": "Closed", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let spec = json!({"preemptionGates": gates, "podSets": [
        {"name": "main", "topologyRequest": {"podsetSliceRequiredTopologyConstraints": layers}},
    ]});
    let stored = with_status(
        object(HUB, "Workload", spec.clone()),
        json!({"preemptionGates": state}),
    );

    let mut old = to(OLD, &stored);
    assert_eq!(
        (&old["spec"], &old["status"]),
        (
            &json!({"podSets": [{"name": "main", "topologyRequest": {}}]}),
            &json!({})
        )
    );
    old["status"] = json!({"clusterName": "east"});
    let written = to(HUB, &old);
    assert_eq!(written["spec"], spec);
    assert_eq!(
        written["status"],
        json!({"clusterName": "east", "preemptionGates": state})
    );
    assert_eq!(written["metadata"], json!({"name": "x"}));

    // An object that a user creates from this manifest has no status.
    old.as_object_mut().unwrap().remove("status");
    assert_eq!(to(HUB, &old).get("status"), None);
    // The pod set is gone, and so are its carried fields.
    old["spec"]["podSets"][0]["name"] = "other".into();
    assert_eq!(to(HUB, &old)["spec"]["podSets"][0]["topologyRequest"], json!({}));
}

#[test]
fn what_the_annotation_carries_must_have_the_shape_of_the_fields() {
    for (kind, carried) in [
        ("Workload", json!({"preemptionGates": "all"})),
        ("Workload", json!({"preemptionGates": [{"name": 5}]})),
        ("Workload", json!({"podSets": []})),
        ("Workload", json!([])),
        ("ClusterQueue", json!({"cohortName": "x"})),
        (
            "ClusterQueue",
            json!({"concurrentAdmissionPolicy": {"migration": {}}}),
        ),
    ] {
        let mut old = object(OLD, kind, json!({}));
        old["metadata"]["annotations"] = json!({CARRIED: carried.to_string()});
        let error = convert(old, HUB).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{kind} `x`: `metadata.annotations[{CARRIED}]` must be")),
            "{error}"
        );
    }
}

/// Spec: api API-11, MultiKueueCluster.
#[test]
fn the_source_of_a_kubeconfig_stands_one_level_higher_in_v1beta1() {
    let source = json!({"kubeConfig": {"location": "s", "locationType": "Secret"}});
    let new = json!({"clusterSource": source});
    check(
        &object(OLD, "MultiKueueCluster", source.clone()),
        HUB,
        &new,
        &Value::Null,
    );
    check(&object(HUB, "MultiKueueCluster", new), OLD, &source, &Value::Null);
}

#[test]
fn an_object_that_is_not_ours_is_named() {
    let said = |object: Value, version| convert(object, version).unwrap_err().to_string();
    assert_eq!(
        said(json!([]), HUB),
        "an object to convert must have text in `kind`"
    );
    assert_eq!(
        said(json!({"kind": "Workload", "apiVersion": 2}), HUB),
        "an object to convert must have text in `apiVersion`"
    );
    assert_eq!(
        said(json!({"kind": "Job", "apiVersion": "batch/v1"}), HUB),
        "kind `Job` of `batch/v1` cannot be converted; only kinds of group kueue.x-k8s.io can"
    );
    assert_eq!(
        said(object(HUB, "Workload", json!({})), ALPHA),
        "Workload has no version `kueue.x-k8s.io/v1alpha1`; use kueue.x-k8s.io/v1beta2"
    );
    assert_eq!(
        said(object(OLD, "Workload", json!({"priorityClassSource": "x"})), HUB),
        "Workload `x`: `spec.priorityClassSource` must be kueue.x-k8s.io/workloadpriorityclass, \
         scheduling.k8s.io/priorityclass or empty"
    );
    let many = json!({"levels": [], "slices": [{
        "domainCount": 2_000_000_000, "valuesPerLevel": [], "podCounts": {"universal": 1},
    }]});
    assert!(said(placed(HUB, &many), OLD).contains("at most 100000 domains"));
}

#[test]
fn an_object_in_the_version_that_is_wanted_is_left_alone() {
    for version in [OLD, HUB] {
        let odd = object(version, "ClusterQueue", json!({"cohort": 1, "cohortName": 2}));
        assert_eq!(to(version, &odd), odd);
    }
}
