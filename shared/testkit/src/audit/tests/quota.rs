//! Tests of the auditor of I4.

use roadstead_apiserver::RESTORER;
use serde_json::{Value, json};

use super::scene::{COHORTS, PERSON, QUEUES, Scene, WORKER, WORKLOADS, condition};

/// A ClusterQueue or a Cohort with a quota of `cpu` in flavor `spot`.
fn with_quota(name: &str, above: (&str, &str), quota: Value) -> Value {
    let mut quota = quota;
    quota["name"] = json!("cpu");
    let flavors = json!([{"name": "spot", "resources": [quota]}]);
    let mut object = json!({"metadata": {"name": name}, "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}});
    if !above.0.is_empty() {
        object["spec"][above.0] = json!(above.1);
    }
    object
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is stored is written down where it is stored"
)]
impl Scene {
    fn queue(&mut self, name: &str, quota: Value) {
        let queue = with_quota(name, ("cohortName", "all"), quota);
        self.put("east", PERSON, QUEUES, queue);
    }

    fn cohort(&mut self, name: &str, parent: &str, cpu: &str) {
        let field = if parent.is_empty() { "" } else { "parentName" };
        let cohort = with_quota(name, (field, parent), json!({"nominalQuota": cpu}));
        self.put("east", PERSON, COHORTS, cohort);
    }

    /// The worker changes the Workload `a`.
    fn change(&mut self, patch: Value) {
        self.edit("east", WORKER, WORKLOADS, "a", patch);
    }

    /// A Workload that holds this much.
    fn hold(&mut self, name: &str, queue: &str, cpu: &str) {
        self.hold_pods(
            name,
            queue,
            json!({"name": "main", "count": 4, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": cpu}}),
        );
    }

    /// A queue without a cohort, with this much CPU.
    fn alone(&mut self, cpu: &str) {
        let quota = json!({"nominalQuota": cpu});
        self.put("east", PERSON, QUEUES, with_quota("alone", ("", ""), quota));
    }

    fn hold_pods(&mut self, name: &str, queue: &str, assignment: Value) {
        let status = json!({
            "conditions": [condition("QuotaReserved", "True", "Ok", 1)],
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
        });
        self.put("east", PERSON, WORKLOADS, json!({"metadata": {"name": name}}));
        self.edit("east", WORKER, WORKLOADS, name, json!({"status": status}));
    }
}

/// Spec: safety 1 I4.
#[test]
fn a_queue_holds_no_more_than_its_nominal_quota() {
    let mut scene = Scene::new();
    scene.alone("2500m");
    scene.hold("a", "alone", "1");
    scene.hold("b", "alone", "1500m");
    scene.is_fine();
    scene.hold("c", "alone", "1m");
    assert_eq!(scene.broken(), ["I4"]);
    let told = &scene.auditor.violations()[0];
    assert_eq!(told.subject, "east workloads.kueue.x-k8s.io ns/c");
    assert!(
        told.story
            .contains("uses 2.501000000 of cpu in flavor spot, 0.001000000 too much"),
        "{told}"
    );
}

/// Spec: safety 1 I4.
#[test]
fn who_names_a_cluster_keeps_its_quota_until_it_has_ended_or_goes() {
    let mut scene = Scene::new();
    scene.alone("1");
    scene.hold("a", "alone", "1");
    scene.change(json!({"status": {"clusterName": "w1"}}));
    scene.is_fine();
    let without = |kind: &str| {
        let conditions = [
            condition("QuotaReserved", "False", "Pending", 2),
            condition(kind, "True", "Ok", 2),
        ];
        json!({"status": {"conditions": conditions}})
    };
    scene.change(without("Finished"));
    scene.is_fine();
    scene.change(without("Evicted"));
    assert!(scene.broken().contains(&"I4"), "{:?}", scene.broken());
}

/// Spec: safety 1 I4.
#[test]
fn what_ended_or_was_evicted_or_deleted_holds_nothing() {
    let frees: [&dyn Fn(&mut Scene); 3] = [
        &|scene| scene.remove("east", PERSON, WORKLOADS, "a"),
        &|scene| {
            let quota = condition("QuotaReserved", "False", "Pending", 2);
            scene.change(json!({"status": {"conditions": [quota], "admission": null}}));
        },
        &|scene| {
            let conditions = [
                condition("QuotaReserved", "True", "Ok", 1),
                condition("Finished", "True", "Failed", 2),
            ];
            scene.change(json!({"status": {"conditions": conditions}}));
        },
    ];
    for free in frees {
        let mut scene = Scene::new();
        scene.alone("2");
        scene.hold("a", "alone", "2");
        free(&mut scene);
        scene.hold("b", "alone", "2");
        scene.is_fine();
    }
}

/// A storage is restored as a whole: the order in which its objects are reported must not matter.
///
/// Spec: safety 1 I4, F15.
#[test]
fn what_a_restored_storage_brings_back_is_counted_and_is_nobody_s_admission() {
    let after = |goes: &[&str], then: &str| {
        let mut scene = Scene::new();
        scene.alone("4");
        scene.hold("old", "alone", "3");
        let old = scene.get("east", WORKLOADS, "old").clone();
        scene.remove("east", WORKER, WORKLOADS, "old");
        scene.hold("new", "alone", "3");
        scene.put("east", RESTORER, WORKLOADS, old);
        for name in goes {
            scene.remove("east", RESTORER, WORKLOADS, name);
        }
        scene.is_fine();
        scene.hold("next", "alone", then);
        scene.broken()
    };
    assert!(after(&["new"], "1").is_empty());
    assert_eq!(after(&["new"], "2"), ["I4"], "what came back counts");
}

/// Spec: safety 1 I4.
#[test]
fn pods_that_are_not_needed_any_more_hold_nothing() {
    let second = |gone: u32| {
        let mut scene = Scene::new();
        scene.alone("4");
        scene.hold("a", "alone", "4");
        let reclaimable = json!([{"name": "main", "count": gone}]);
        scene.change(json!({"status": {"reclaimablePods": reclaimable}}));
        scene.hold("b", "alone", "2");
        scene.broken()
    };
    assert!(second(2).is_empty());
    assert_eq!(second(1), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn borrowing_is_counted_in_the_whole_cohort() {
    let held = |borrowing: Value, first: &str, second: &str| {
        let mut scene = Scene::new();
        let mut quota = json!({"nominalQuota": "4"});
        quota["borrowingLimit"] = borrowing;
        scene.queue("one", quota.clone());
        scene.queue("two", quota);
        scene.hold("a", "one", first);
        scene.hold("b", "two", second);
        scene.broken()
    };
    assert!(held(Value::Null, "6", "2").is_empty());
    assert_eq!(held(Value::Null, "6", "3"), ["I4"]);
    assert!(held(json!("2"), "6", "2").is_empty());
    assert_eq!(held(json!("1"), "6", "2"), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn what_is_not_lent_is_not_borrowed() {
    let held = |lending: Value| {
        let mut scene = Scene::new();
        scene.queue("one", json!({"nominalQuota": "4"}));
        let mut quota = json!({"nominalQuota": "4"});
        quota["lendingLimit"] = lending;
        scene.queue("two", quota);
        scene.hold("a", "one", "6");
        scene.broken()
    };
    assert!(held(json!("2")).is_empty());
    assert_eq!(held(json!("1")), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn cohorts_have_quota_of_their_own_and_others_above_them() {
    let held = |cpu: &str| {
        let mut scene = Scene::new();
        scene.queue("one", json!({"nominalQuota": "4"}));
        scene.cohort("all", "top", "1");
        scene.cohort("top", "", "3");
        scene.hold("a", "one", cpu);
        scene.broken()
    };
    assert!(held("8").is_empty());
    assert_eq!(held("9"), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn a_quota_that_was_lowered_binds_the_next_and_not_those_before() {
    let mut scene = Scene::new();
    scene.queue("one", json!({"nominalQuota": "4"}));
    scene.hold("a", "one", "4");
    let lower = with_quota("one", ("cohortName", "all"), json!({"nominalQuota": "2"}));
    scene.edit("east", PERSON, QUEUES, "one", json!({"spec": lower["spec"]}));
    scene.change(json!({"metadata": {"labels": {"x": "y"}}}));
    scene.is_fine();
    scene.hold("b", "one", "1");
    assert_eq!(scene.broken(), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn a_flavor_that_a_queue_does_not_have_is_not_given() {
    let mut scene = Scene::new();
    scene.queue("one", json!({"nominalQuota": "4"}));
    scene.hold_pods(
        "a",
        "one",
        json!({"name": "main", "count": 1, "flavors": {"cpu": "gold"}, "resourceUsage": {"cpu": "1"}}),
    );
    assert_eq!(scene.broken(), ["I4"]);
    let mut scene = Scene::new();
    scene.hold("a", "nowhere", "1");
    assert_eq!(scene.broken(), ["I4"], "nor a queue that is not there");
}

/// Spec: safety 1 I4.
#[test]
fn cohorts_in_a_circle_end_no_audit() {
    let mut scene = Scene::new();
    scene.cohort("all", "top", "1");
    scene.cohort("top", "all", "1");
    scene.queue("one", json!({"nominalQuota": "4"}));
    scene.hold("a", "one", "100");
    assert_eq!(scene.broken(), ["I4"]);
}

/// Spec: safety 1 I4.
#[test]
fn quantities_are_read_exactly() {
    let fits = |quota: &str, cpu: &str| {
        let mut scene = Scene::new();
        scene.alone(quota);
        scene.hold("a", "alone", cpu);
        scene.broken().is_empty()
    };
    for (quota, same, more) in [
        ("1Gi", "1073741824", "1073741825"),
        ("1e3", "1k", "1001"),
        ("0.5", "500m", "501m"),
        ("2M", "2e6", "2000001"),
        ("1.5Ki", "1536", "1537"),
    ] {
        assert!(fits(quota, same), "{quota} is {same}");
        assert!(!fits(quota, more), "{quota} is less than {more}");
    }
}
