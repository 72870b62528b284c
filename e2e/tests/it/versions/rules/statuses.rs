//! Statuses of Workload, ClusterQueue and LocalQueue.

use serde_json::{Value, json};

use super::super::fixture::{HUB, OLD};
use super::workloads::spec;
use super::{
    AT_LEAST_ONE, Case, NOT_EMPTY, NOT_NEGATIVE, PATTERN, POSITIVE, REQUIRED, TIME, UNIQUE, in_versions,
    long, many, merged, ok, tolerations,
};

const WORKLOAD: &str = "Workload";

/// Conditions of these types.
pub(super) fn conditions(types: &[(&str, &str)]) -> Value {
    let conditions: Vec<_> = types
        .iter()
        .map(|(type_, status)| condition(type_, status))
        .collect();
    json!({"conditions": conditions})
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": TIME})
}

/// An admission of so many pod sets.
pub(super) fn admission(pod_sets: usize) -> Value {
    assigned(many(pod_sets, |n| {
        let name = if n == 0 {
            "main".to_owned()
        } else {
            format!("p{n}")
        };
        json!({"name": name, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": 2}, "count": 2})
    }))
}

fn assigned(assignments: Value) -> Value {
    json!({"admission": {"clusterQueue": "cq", "podSetAssignments": assignments}})
}

/// The status of a workload for which quota is reserved.
pub(super) fn reserved() -> Value {
    merged(conditions(&[("QuotaReserved", "True")]), admission(1))
}

/// A new status of a workload of one pod set.
fn to(status: Value) -> Case {
    Case {
        fields: json!({"status": status}),
        ..ok(WORKLOAD, json!({})).after(json!({"spec": spec(json!({}))}))
    }
}

/// A change of the status of such a workload.
fn change(old: Value, new: Value) -> Case {
    to(new).after(json!({"spec": spec(json!({})), "status": old}))
}

/// A new status of an object with this spec.
fn of(kind: &'static str, spec: Value, status: Value) -> Case {
    Case {
        fields: json!({"status": status}),
        ..ok(kind, json!({})).after(json!({"spec": spec}))
    }
}

fn check(more: Value) -> Value {
    merged(
        json!({"name": "c", "state": "Pending", "lastTransitionTime": TIME, "message": ""}),
        more,
    )
}

fn checks(more: Value) -> Case {
    to(json!({"admissionChecks": [check(more)]}))
}

/// Spec: api API-9.4; multikueue 11.56.
#[test]
fn a_workloads_status_follows_the_rules_on_the_whole_object_in_both_versions() {
    let in_cluster = |name: &str| json!({"clusterName": name});
    let nominated = || json!({"nominatedClusterNames": ["a"]});
    let numbers = "podSetAssignments must have the same number of podSets as the spec";
    in_versions(&[HUB, OLD], || {
        vec![
            to(reserved()),
            to(merged(conditions(&[("QuotaReserved", "True")]), admission(0))).refused(numbers),
            to(merged(conditions(&[("QuotaReserved", "True")]), admission(2))).refused(numbers),
            to(merged(conditions(&[("QuotaReserved", "False")]), admission(2))),
            change(in_cluster("a"), in_cluster("b")).refused("clusterName is immutable once set"),
            change(in_cluster("a"), json!({})),
            change(nominated(), merged(nominated(), in_cluster("a")))
                .refused("clusterName and nominatedClusterNames are mutually exclusive"),
            change(nominated(), in_cluster("a")),
        ]
    });
}

/// Spec: api API-9.2, API-1.2.
#[test]
fn a_workloads_status_follows_the_rules_of_both_versions() {
    let per_set = |field: &'static str, entry: Value| {
        move |count: usize| {
            to(json!({field: many(count, |n| merged(entry.clone(), json!({"name": format!("p{n}")})))}))
        }
    };
    let reclaimable = per_set("reclaimablePods", json!({"count": 0}));
    let requests = per_set("resourceRequests", json!({"resources": {"cpu": "1"}}));
    let eviction = |count: i32| json!({"reason": "Preempted", "underlyingCause": "", "count": count});
    let evictions = |list: Value| to(json!({"schedulingStats": {"evictions": list}}));
    let nodes =
        |count: usize| to(json!({"unhealthyNodes": many(count, |n| json!({"name": format!("n{n}")}))}));
    let updates = |list: Value| checks(json!({"podSetUpdates": list}));
    in_versions(&[HUB, OLD], || {
        let mut cases = tolerations(|list| updates(json!([{"name": "main", "tolerations": list}])));
        cases.extend([
            to(conditions(&[("A", "Yes")])).refused(r#"supported values: "True", "False", "Unknown""#),
            to(conditions(&[("A", "True"), ("A", "True")])).refused(UNIQUE),
            to(json!({"conditions": [merged(condition("A", "True"), json!({"reason": ""}))]}))
                .refused(NOT_EMPTY),
            to(json!({"conditions": [merged(condition("A", "True"), json!({"message": long(32_768)}))]})),
            to(json!({"conditions": [merged(condition("A", "True"), json!({"message": long(32_769)}))]}))
                .refused("32768"),
            to(admission(18)),
            to(admission(19)).refused("at most 18 items"),
            to(assigned(json!([{"name": "a"}, {"name": "a"}]))).refused(UNIQUE),
            to(assigned(json!([{"name": "no.dots"}]))).refused(PATTERN),
            to(assigned(json!([{"name": "a", "count": -1}]))).refused(NOT_NEGATIVE),
            to(assigned(
                json!([{"name": "a", "delayedTopologyRequest": "Ready"}]),
            )),
            to(json!({"admission": {"clusterQueue": "Bad_Name", "podSetAssignments": []}})).refused(PATTERN),
            to(json!({"requeueState": {"count": 0, "requeueAt": TIME}})),
            to(json!({"requeueState": {"count": -1}})).refused(NOT_NEGATIVE),
            to(json!({"requeueState": {"requeueAt": "tomorrow"}})).refused("date-time"),
            reclaimable(18),
            reclaimable(19).refused("at most 18 items"),
            to(json!({"reclaimablePods": [{"name": "a", "count": -1}]})).refused(NOT_NEGATIVE),
            to(json!({"reclaimablePods": [{"name": "a"}]})).refused(REQUIRED),
            requests(18),
            requests(19).refused("at most 18 items"),
            checks(json!({"requeueAfterSeconds": 0, "retryCount": 0, "message": long(32_768)})),
            checks(json!({"requeueAfterSeconds": -1})).refused(NOT_NEGATIVE),
            checks(json!({"retryCount": -1})).refused(NOT_NEGATIVE),
            checks(json!({"message": long(32_769)})).refused("32768"),
            checks(json!({"state": "Unknown"}))
                .refused(r#"supported values: "Pending", "Ready", "Retry", "Rejected""#),
            checks(json!({"name": long(317)})).refused("316"),
            to(json!({"admissionChecks": many(8, |n| check(json!({"name": format!("c{n}")})))})),
            to(json!({"admissionChecks": many(9, |n| check(json!({"name": format!("c{n}")})))}))
                .refused("at most 8 items"),
            to(json!({"admissionChecks": [check(json!({})), check(json!({}))]})).refused(UNIQUE),
            to(json!({"admissionChecks": [{"name": "c", "state": "Ready"}]})).refused(REQUIRED),
            updates(many(18, |n| json!({"name": format!("p{n}")}))),
            updates(many(19, |n| json!({"name": format!("p{n}")}))).refused("at most 18 items"),
            updates(json!([{"labels": {"a": "b"}}])).refused(REQUIRED),
            evictions(json!([eviction(0)])),
            evictions(json!([eviction(-1)])).refused(NOT_NEGATIVE),
            evictions(json!([eviction(1), eviction(2)])).refused(UNIQUE),
            evictions(json!([{"reason": "Preempted", "count": 1}])).refused(REQUIRED),
            evictions(json!([merged(eviction(1), json!({"reason": long(317)}))])).refused("316"),
            to(json!({"nominatedClusterNames": many(20, |n| json!(format!("c{n}")))})),
            to(json!({"nominatedClusterNames": many(21, |n| json!(format!("c{n}")))}))
                .refused("at most 20 items"),
            nodes(8),
            nodes(9).refused("at most 8 items"),
            to(json!({"unhealthyNodes": [{"name": long(64)}]})).refused("63"),
        ]);
        cases
    });
}

fn numbered(count: usize) -> Value {
    json!({"conditions": many(count, |n| condition(&format!("T{n}"), "True"))})
}

fn placed(assignment: Value) -> Case {
    to(assigned(
        json!([{"name": "main", "topologyAssignment": assignment}]),
    ))
}

fn slices(slices: Value) -> Case {
    placed(json!({"levels": ["rack"], "slices": slices}))
}

/// Spec: api API-9.2, without the column "v1beta1".
#[test]
fn a_workloads_status_follows_the_rules_of_v1beta2() {
    let evictions = |count: usize| {
        let entry = |n| json!({"reason": format!("R{n}"), "underlyingCause": "", "count": 1});
        to(json!({"schedulingStats": {"evictions": many(count, entry)}}))
    };
    let gate =
        |name: &str, position: &str| json!({"name": name, "position": position, "lastTransitionTime": TIME});
    let gates = |list: Value| to(json!({"preemptionGates": list}));
    in_versions(&[HUB], || {
        vec![
            to(numbered(16)),
            to(numbered(17)).refused("at most 16 items"),
            to(json!({"admission": {}})),
            to(assigned(json!([{}]))),
            to(assigned(json!([{"delayedTopologyRequest": "Soon"}])))
                .refused(r#"supported values: "Pending", "Ready""#),
            checks(json!({"name": ""})).refused(NOT_EMPTY),
            evictions(256),
            evictions(257).refused("at most 256 items"),
            to(json!({"nominatedClusterNames": [long(256)]})),
            to(json!({"nominatedClusterNames": [long(257)]})).refused("256"),
            to(json!({"clusterName": long(257)})).refused("256"),
            to(json!({"unhealthyNodes": [{"name": "n"}, {"name": "n"}]})).refused(UNIQUE),
            to(json!({"accumulatedPastExecutionTimeSeconds": 5})),
            gates(many(8, |n| gate(&format!("g{n}"), "Open"))),
            gates(many(9, |n| gate(&format!("g{n}"), "Open"))).refused("at most 8 items"),
            gates(json!([gate("g", "Ajar")])).refused(r#"supported values: "Closed", "Open""#),
            gates(json!([gate("", "Open")])).refused(NOT_EMPTY),
            gates(json!([gate("g", "Open"), gate("g", "Open")])).refused(UNIQUE),
            gates(json!([{"name": "g"}])).refused(REQUIRED),
        ]
    });
}

/// Spec: api API-9.3.
#[test]
fn a_topology_assignment_follows_the_rules_of_v1beta2() {
    let slice =
        |values: Value, pods: Value| json!({"domainCount": 2, "valuesPerLevel": values, "podCounts": pods});
    let values = || json!([{"universal": "r"}]);
    let pods = || json!({"universal": 1});
    let one = "exactly one of the fields in [universal individual] must be set";
    let roots = |roots: Value| slice(json!([{"individual": {"prefix": "n-", "roots": roots}}]), pods());
    in_versions(&[HUB], || {
        vec![
            slices(json!([slice(values(), pods())])),
            slices(many(1001, |_| slice(values(), pods()))).refused("at most 1000 items"),
            placed(json!({"levels": [], "slices": []})).refused(AT_LEAST_ONE),
            placed(json!({"levels": many(17, |n| json!(format!("l{n}"))), "slices": []}))
                .refused("at most 16 items"),
            placed(json!({"levels": [long(318)], "slices": []})).refused("317"),
            placed(json!({"levels": ["l"]})).refused(REQUIRED),
            slices(json!([slice(
                json!([{"universal": "a"}, {"universal": "b"}]),
                pods()
            )]))
            .refused("slices must have the same number of valuesPerLevel as levels"),
            slices(json!([slice(json!([]), pods())])).refused(AT_LEAST_ONE),
            slices(json!([slice(json!([{}]), pods())])).refused(one),
            slices(json!([slice(
                json!([{"universal": "a", "individual": {"roots": ["a", "b"]}}]),
                pods()
            )]))
            .refused(one),
            slices(json!([slice(json!([{"universal": long(64)}]), pods())])).refused("63"),
            slices(json!([roots(json!(["1", "2"]))])),
            slices(json!([roots(json!(["1"]))])).refused("roots must have as many entries as domainCount"),
            slices(json!([roots(json!([]))])).refused(AT_LEAST_ONE),
            slices(json!([roots(json!([long(64), "2"]))])).refused("63"),
            slices(json!([slice(values(), json!({"individual": [1, 2]}))])),
            slices(json!([slice(values(), json!({"individual": [1]}))]))
                .refused("podCounts.individual must have as many entries as domainCount"),
            slices(json!([slice(values(), json!({"individual": [0, 1]}))])).refused(POSITIVE),
            slices(json!([slice(values(), json!({"universal": 0}))])).refused(POSITIVE),
            slices(json!([slice(values(), json!({}))])).refused(one),
            slices(json!([merged(
                slice(values(), pods()),
                json!({"domainCount": 0})
            )]))
            .refused(POSITIVE),
        ]
    });
}

/// Spec: api API-9.2, API-9.3, column "v1beta1".
#[test]
fn a_workloads_status_follows_the_rules_of_v1beta1() {
    let domains = |domains: Value| placed(json!({"levels": ["block", "rack"], "domains": domains}));
    in_versions(&[OLD], || {
        vec![
            to(numbered(17)),
            to(json!({"admission": {}})).refused(REQUIRED),
            to(json!({"admission": {"clusterQueue": "q"}})).refused(REQUIRED),
            to(assigned(json!([{"name": "a", "delayedTopologyRequest": "Soon"}]))),
            checks(json!({"name": ""})),
            to(json!({"schedulingStats": {"evictions": many(257, |n| {
                json!({"reason": format!("R{n}"), "underlyingCause": "", "count": 1})
            })}})),
            to(json!({"nominatedClusterNames": [long(257)]})),
            to(json!({"clusterName": long(257)})),
            to(json!({"unhealthyNodes": [{"name": "n"}, {"name": "n"}]})),
            to(json!({"accumulatedPastExexcutionTimeSeconds": 5})),
            to(json!({"preemptionGates": []})).refused("unknown field"),
            domains(json!([{"values": ["a", "b"], "count": 1}])),
            domains(json!([{"values": ["a", "b"], "count": 0}])).refused(POSITIVE),
            domains(json!([{"values": [], "count": 1}])).refused(AT_LEAST_ONE),
            domains(json!([{"values": many(17, |_| json!("v")), "count": 1}])).refused("at most 16 items"),
            domains(json!([{"count": 1}])).refused(REQUIRED),
            placed(json!({"levels": [], "domains": []})).refused(AT_LEAST_ONE),
            // The schema of this version cannot compare lengths; the conversion does.
            domains(json!([{"values": ["a"], "count": 1}])).refused("one value per level"),
        ]
    });
}

/// Spec: api API-2.3, API-3.
#[test]
fn statuses_of_queues_follow_the_rules_of_their_version() {
    let (queue, local) = ("ClusterQueue", "LocalQueue");
    let usage = |field: &str, count: usize| json!({field: many(count, |n| json!({"name": format!("f{n}"), "resources": [{"name": "cpu", "total": 1}]}))});
    let past = |past: Value| json!({"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": past}});
    let of_queue = |status: Value| of(queue, json!({}), status);
    let of_local = |status: Value| of(local, json!({"clusterQueue": "q"}), status);
    let both = || {
        let mut cases = Vec::new();
        for to in [&of_queue as &dyn Fn(Value) -> Case, &of_local] {
            cases.extend([
                to(json!({"pendingWorkloads": 1, "reservingWorkloads": 2, "admittedWorkloads": 3})),
                to(json!({"pendingWorkloads": "one"})).refused("must be of type integer"),
                to(usage("flavorsReservation", 64)),
                to(usage("flavorsReservation", 65)).refused("at most 64 items"),
                to(json!({"flavorsReservation": [{"name": "f"}]})).refused(REQUIRED),
                to(json!({"flavorsReservation": [{"name": "f", "resources": [{"name": "c"}, {"name": "c"}]}]})).refused(UNIQUE),
                to(json!({"fairSharing": {}})).refused(REQUIRED),
                to(json!({"fairSharing": {"weightedShare": 5}})),
            ]);
        }
        cases.push(of_local(past(
            json!({"consumedResources": {"cpu": "1"}, "lastUpdate": TIME}),
        )));
        cases.push(of_local(past(json!({"consumedResources": {}}))).refused(REQUIRED));
        cases
    };
    in_versions(&[HUB, OLD], both);
    in_versions(&[HUB], || {
        vec![
            of_queue(numbered(17)).refused("at most 16 items"),
            of_local(numbered(17)).refused("at most 16 items"),
            of_local(usage("flavorsUsage", 65)).refused("at most 64 items"),
            of_queue(past(json!({"consumedResources": {}, "lastUpdate": TIME}))).refused("unknown field"),
        ]
    });
    let flavor = |more: Value| json!({"flavors": [merged(json!({"name": "f"}), more)]});
    in_versions(&[OLD], || {
        vec![
            of_queue(numbered(17)),
            of_local(numbered(17)),
            of_local(usage("flavorUsage", 64)),
            of_local(usage("flavorUsage", 65)).refused("at most 64 items"),
            of_queue(past(json!({"consumedResources": {}, "lastUpdate": TIME}))),
            of_queue(json!({"pendingWorkloadsStatus": {
                "lastChangeTime": TIME, "clusterQueuePendingWorkload": [{"name": "w", "namespace": "n"}],
            }})),
            of_local(flavor(
                json!({"resources": ["cpu"], "topology": {"name": "t", "levels": ["rack"]}}),
            )),
            of_local(flavor(json!({"resources": ["cpu", "cpu"]}))).refused(UNIQUE),
            of_local(flavor(json!({"topology": {"name": "t", "levels": []}}))).refused(AT_LEAST_ONE),
            of_local(json!({"flavors": many(65, |n| json!({"name": format!("f{n}")}))}))
                .refused("at most 64 items"),
        ]
    });
}
