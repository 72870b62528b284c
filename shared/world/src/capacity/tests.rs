#![expect(
    clippy::needless_pass_by_value,
    reason = "a `json!` literal is handed over as it stands"
)]

use serde_json::{Value, from_value, json};

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A cluster that is built step by step.
#[derive(Default)]
struct World(Cluster);

impl World {
    fn node(mut self, name: &str, allocatable: Value) -> Self {
        self.change_node(name, json!({"status": {"allocatable": allocatable}}));
        self
    }

    fn change_node(&mut self, name: &str, extra: Value) {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"zone": name}},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_patch::merge(&mut node, &extra);
        node["status"]["allocatable"]["pods"] = json!("110");
        self.0.nodes.push(Arc::new(from_value(node).unwrap()));
    }

    fn template(mut self, name: &str, spec: Value) -> Self {
        let template: PodTemplate =
            from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "template": {"spec": spec}}))
                .unwrap();
        self.0
            .templates
            .insert(("ns".to_owned(), name.to_owned()), Arc::new(template));
        self
    }

    fn request(mut self, name: &str, template: &str, count: i32, extra: Value) -> Self {
        let mut request = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
            "spec": {
                "provisioningClassName": CLASS_CHECK_CAPACITY,
                "podSets": [{"podTemplateRef": {"name": template}, "count": count}],
            },
        });
        json_patch::merge(&mut request, &extra);
        self.0.requests.push(Arc::new(from_value(request).unwrap()));
        self
    }

    fn pod(
        mut self,
        name: &str,
        node: Option<&str>,
        consumes: Option<&str>,
        phase: &str,
        spec: Value,
    ) -> Self {
        let mut pod =
            json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"phase": phase}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        if let Some(request) = consumes {
            pod["metadata"]["annotations"][CONSUME_PROVISIONING_REQUEST] = json!(request);
        }
        self.0.pods.push(Arc::new(from_value(pod).unwrap()));
        self
    }

    /// Each answer as `request: Type=Status/Reason ...`, only the changed conditions.
    fn answers(&self) -> Vec<String> {
        self.answers_for(&Policy::default())
    }

    fn answers_for(&self, policy: &Policy) -> Vec<String> {
        let said = decide(&self.0, policy, at(NOW)).answers;
        said.iter()
            .map(|answer| {
                let words = answer
                    .conditions
                    .iter()
                    .filter(|each| each.last_transition_time.0 == at(NOW));
                let words = words.map(|each| format!(" {}={}/{}", each.type_, each.status, each.reason));
                format!("{}:{}", answer.name, words.collect::<String>())
            })
            .collect()
    }

    fn message(&self, type_: &str) -> String {
        let said = decide(&self.0, &Policy::default(), at(NOW)).answers;
        let conditions = &said.first().expect("an answer").conditions;
        conditions
            .iter()
            .find(|each| each.type_ == type_)
            .expect("the condition")
            .message
            .clone()
    }
}

fn asks(resources: Value) -> Value {
    json!({"containers": [{"name": "main", "resources": {"requests": resources}}]})
}

fn no_retry() -> Value {
    json!({"spec": {"parameters": {"noRetry": "true"}}})
}

fn provisioned(since: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "Provisioned", "status": "True", "reason": "CapacityIsFound", "message": "", "lastTransitionTime": since,
    }]}})
}

fn two_nodes_of_two() -> World {
    World::default()
        .node("n1", json!({"nvidia.com/gpu": "2"}))
        .node("n2", json!({"nvidia.com/gpu": "2"}))
        .template("one", asks(json!({"nvidia.com/gpu": "1"})))
        .template("four", asks(json!({"nvidia.com/gpu": "4"})))
}

/// Spec: provisioning 15.58.
#[test]
fn a_pod_larger_than_every_node_fails_for_good_without_retry() {
    let world = two_nodes_of_two().request("r", "four", 1, no_retry());
    assert_eq!(
        world.answers(),
        ["r: Accepted=True/Accepted Failed=True/CapacityIsNotFound"]
    );
    assert_eq!(world.message("Failed"), "CA could not find requested capacity");
}

/// Spec: provisioning 13.2 rule 6.
#[test]
fn without_no_retry_the_answer_is_not_now_and_is_not_repeated() {
    let world = two_nodes_of_two().request("r", "four", 1, json!({}));
    assert_eq!(
        world.answers(),
        ["r: Accepted=True/Accepted Provisioned=False/CapacityIsNotFound"]
    );
    assert_eq!(
        world.message("Provisioned"),
        "Capacity is not found, CA will try to find it later."
    );
    let mut said = decide(&world.0, &Policy::default(), at(NOW))
        .answers
        .remove(0)
        .conditions;
    for condition in &mut said {
        condition.last_transition_time = Time(at("2026-01-01T00:09:00Z"));
    }
    let told = two_nodes_of_two().request("r", "four", 1, json!({"status": {"conditions": said}}));
    assert_eq!(told.answers(), [""; 0]);
    let grown = told.node("n3", json!({"nvidia.com/gpu": "4"}));
    assert_eq!(grown.answers(), ["r: Provisioned=True/CapacityIsFound"]);
}

/// Spec: provisioning 15.59.
#[test]
fn the_second_of_two_equal_requests_finds_the_room_booked() {
    let world = two_nodes_of_two()
        .request("b-older", "one", 4, no_retry())
        .request(
            "a-newer",
            "one",
            4,
            json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:01:00Z"},
                "spec": {"parameters": {"noRetry": "true"}},
            }),
        );
    assert_eq!(
        world.answers(),
        [
            "b-older: Accepted=True/Accepted Provisioned=True/CapacityIsFound",
            "a-newer: Accepted=True/Accepted Failed=True/CapacityIsNotFound",
        ]
    );
    let later = two_nodes_of_two()
        .request("older", "one", 4, provisioned("2026-01-01T00:09:00Z"))
        .request("newer", "one", 1, no_retry());
    assert_eq!(
        later.answers(),
        ["newer: Accepted=True/Accepted Failed=True/CapacityIsNotFound"]
    );
    let ended = two_nodes_of_two()
        .request("older", "one", 4, provisioned("2025-12-31T23:59:00Z"))
        .request("newer", "one", 1, no_retry());
    assert_eq!(
        ended.answers(),
        [
            "older: BookingExpired=True/CapacityReservationTimeExpired",
            "newer: Accepted=True/Accepted Provisioned=True/CapacityIsFound",
        ]
    );
}

/// Spec: provisioning 15.60.
#[test]
fn a_booking_shrinks_as_its_pods_are_bound_and_ends_with_the_last() {
    let gpu = || asks(json!({"nvidia.com/gpu": "1"}));
    let half = two_nodes_of_two()
        .request("r", "one", 4, provisioned("2026-01-01T00:09:00Z"))
        .pod("p1", Some("n1"), Some("r"), "Running", gpu())
        .pod("p2", Some("n1"), Some("r"), "Running", gpu())
        .pod("p3", None, Some("r"), "Pending", gpu());
    assert_eq!(half.answers(), [""; 0]);
    let other = half.request("other", "one", 1, no_retry());
    assert_eq!(
        other.answers(),
        ["other: Accepted=True/Accepted Failed=True/CapacityIsNotFound"],
        "two are bound and two are booked"
    );
    let full = two_nodes_of_two()
        .node("n3", json!({"nvidia.com/gpu": "1"}))
        .request("r", "one", 2, provisioned("2026-01-01T00:09:00Z"))
        .request("other", "one", 3, no_retry())
        .pod("p1", Some("n1"), Some("r"), "Running", gpu())
        .pod("p2", Some("n1"), Some("r"), "Succeeded", gpu());
    assert_eq!(
        full.answers(),
        [
            "r: BookingExpired=True/CapacityBookingConsumed",
            "other: Accepted=True/Accepted Provisioned=True/CapacityIsFound",
        ],
        "one runs, one has ended: four of five are free"
    );
}

/// Spec: provisioning 15.61.
#[test]
fn a_request_for_another_processor_is_not_touched() {
    let named = json!({"spec": {"parameters": {"processorInstance": "x"}}});
    let world = two_nodes_of_two().request("r", "one", 1, named);
    let fleet = |name: &str| Policy {
        instance: Some(name.to_owned()),
    };
    assert_eq!(world.answers(), [""; 0]);
    assert_eq!(world.answers_for(&fleet("fleet")), [""; 0]);
    assert_eq!(world.answers_for(&fleet("x")).len(), 1);
    let class =
        json!({"spec": {"provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"}});
    assert_eq!(
        two_nodes_of_two().request("r", "one", 1, class).answers(),
        [""; 0]
    );
}

/// Spec: provisioning 15.62.
#[test]
fn a_booking_nobody_uses_ends_after_ten_minutes_or_as_asked() {
    let since = "2026-01-01T00:00:00Z";
    let world = two_nodes_of_two().request("r", "one", 1, provisioned(since));
    assert_eq!(
        world.answers(),
        ["r: BookingExpired=True/CapacityReservationTimeExpired"]
    );
    assert_eq!(
        world.message("BookingExpired"),
        "Capacity reservation time is expired"
    );
    let mut longer = provisioned(since);
    json_patch::merge(
        &mut longer,
        &json!({"spec": {"parameters": {"bookingSeconds": "601"}}}),
    );
    assert_eq!(
        two_nodes_of_two().request("r", "one", 1, longer).answers(),
        [""; 0]
    );
}

/// Spec: provisioning 15.57.
#[test]
fn missing_templates_fail_the_request_once_they_had_time_to_arrive() {
    let world = World::default().request("r", "gone", 1, json!({}));
    assert_eq!(world.answers(), ["r: Failed=True/FailedToCreatePods"]);
    assert_eq!(
        world.message("Failed"),
        "missing pod templates, 1 pod templates were referenced, 1 templates were missing: gone"
    );
    let young = json!({"metadata": {"creationTimestamp": "2026-01-01T00:09:59Z"}});
    assert_eq!(World::default().request("r", "gone", 1, young).answers(), [""; 0]);
}

/// Spec: provisioning 14.2 rule 4.
#[test]
fn constraints_that_cannot_be_checked_fail_with_their_name() {
    let mut spec = asks(json!({"cpu": "1"}));
    spec["resourceClaims"] = json!([{"name": "gpu"}]);
    let world = World::default()
        .node("n1", json!({"cpu": "8"}))
        .template("t", spec)
        .request("r", "t", 1, json!({}));
    assert_eq!(
        world.answers(),
        ["r: Accepted=True/Accepted Failed=True/FailedToCheckCapacity"]
    );
    assert_eq!(
        world.message("Failed"),
        "pod template t: resourceClaims cannot be checked for capacity here"
    );
}

/// Spec: provisioning 13.2 rule 1.
#[test]
fn a_request_without_a_yes_expires_after_a_week() {
    let old = json!({"metadata": {"creationTimestamp": "2025-12-24T00:00:00Z"}});
    let world = two_nodes_of_two().request("r", "four", 1, old);
    assert_eq!(world.answers(), ["r: Failed=True/Expired"]);
}

/// Whether one pod of this specification fits on one node of 4 CPU with these extras.
fn one_fits(node: Value, spec: Value) -> bool {
    let mut world = World::default();
    let mut extra = json!({"status": {"allocatable": {"cpu": "4"}}});
    json_patch::merge(&mut extra, &node);
    world.change_node("n1", extra);
    let mut pod = asks(json!({"cpu": "1"}));
    json_patch::merge(&mut pod, &spec);
    let world = world.template("t", pod).request("r", "t", 1, no_retry());
    world.answers() == ["r: Accepted=True/Accepted Provisioned=True/CapacityIsFound"]
}

/// Spec: provisioning 14.2 rules 2 and 4.
#[test]
fn selectors_affinity_taints_and_the_state_of_a_node_decide() {
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": effect}]}});
    let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
    let wants = |term: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}});
    let expression = |operator: &str, values: &[&str]| {
        wants(json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}))
    };
    let sized = json!({"metadata": {"labels": {"zone": "7"}}});
    for (what, fits, node, spec) in [
        ("plain", true, json!({}), json!({})),
        (
            "cordoned",
            false,
            json!({"spec": {"unschedulable": true}}),
            json!({}),
        ),
        (
            "not ready",
            false,
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            json!({}),
        ),
        (
            "selector",
            true,
            json!({}),
            json!({"nodeSelector": {"zone": "n1"}}),
        ),
        (
            "other selector",
            false,
            json!({}),
            json!({"nodeSelector": {"zone": "n2"}}),
        ),
        ("taint", false, taint("NoSchedule"), json!({})),
        ("evicting taint", false, taint("NoExecute"), json!({})),
        ("soft taint", true, taint("PreferNoSchedule"), json!({})),
        (
            "equal",
            true,
            taint("NoSchedule"),
            tolerates(json!({"key": "gpu", "value": "yes"})),
        ),
        (
            "other value",
            false,
            taint("NoSchedule"),
            tolerates(json!({"key": "gpu", "value": "no"})),
        ),
        (
            "other effect",
            false,
            taint("NoExecute"),
            tolerates(json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"})),
        ),
        (
            "all",
            true,
            taint("NoExecute"),
            tolerates(json!({"operator": "Exists"})),
        ),
        ("in", true, json!({}), expression("In", &["n0", "n1"])),
        ("not in", false, json!({}), expression("NotIn", &["n0", "n1"])),
        ("exists", true, json!({}), expression("Exists", &[])),
        ("absent", false, json!({}), expression("DoesNotExist", &[])),
        ("greater", true, sized.clone(), expression("Gt", &["6"])),
        ("less", false, sized, expression("Lt", &["7"])),
        (
            "field",
            true,
            json!({}),
            wants(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
        ),
        ("empty term", false, json!({}), wants(json!({}))),
        (
            "unknown resource",
            false,
            json!({}),
            asks(json!({"cpu": "1", "example.com/fpga": "1"})),
        ),
        (
            "gated",
            true,
            json!({}),
            json!({"schedulingGates": [{"name": "later"}]}),
        ),
    ] {
        assert_eq!(one_fits(node, spec), fits, "{what}");
    }
}

/// Spec: provisioning 14.2 rule 5.
#[test]
fn large_pods_are_placed_before_small_ones() {
    let world = World::default()
        .node("n1", json!({"cpu": "4"}))
        .node("n2", json!({"cpu": "4"}))
        .template("small", asks(json!({"cpu": "1"})))
        .template("large", asks(json!({"cpu": "4"})))
        .request(
            "r",
            "small",
            4,
            json!({"spec": {"podSets": [
                {"podTemplateRef": {"name": "small"}, "count": 4},
                {"podTemplateRef": {"name": "large"}, "count": 1},
            ]}}),
        );
    assert_eq!(
        world.answers(),
        ["r: Accepted=True/Accepted Provisioned=True/CapacityIsFound"]
    );
}

/// Spec: provisioning 14.2 rule 2.
#[test]
fn the_number_of_pods_on_a_node_is_limited() {
    let world = World::default()
        .node("n1", json!({"cpu": "1000"}))
        .template("t", asks(json!({"cpu": "1m"})))
        .request("r", "t", 111, no_retry());
    assert_eq!(
        world.answers(),
        ["r: Accepted=True/Accepted Failed=True/CapacityIsNotFound"]
    );
}
