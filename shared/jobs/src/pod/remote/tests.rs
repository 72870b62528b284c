use super::*;
use crate::JobKind as _;
use crate::fixture::{apply, changed, many, one, outcome};
use crate::kind::Write;

const IDENTITY: RemoteIdentity<'_> = RemoteIdentity {
    origin: "hub",
    workload: "g",
};
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn held(name: &str) -> Value {
    let condition = json!({"type": SCHEDULED, "status": "False", "reason": "SchedulingGated"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("{name}-here"),
            "labels": {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/managed": "true"},
            "annotations": {"kueue.x-k8s.io/role-hash": "r", "kueue.x-k8s.io/pod-group-total-count": "2"},
            "finalizers": ["kueue.x-k8s.io/managed"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "t", "controller": true}],
        },
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "mine"}],
            "containers": [{"name": "c"}],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [condition]},
    })
}

/// The copy of a held pod that runs on a worker, in this phase.
fn copy(name: &str, phase: &str) -> Value {
    let mut copy = held(name);
    copy["metadata"]["uid"] = json!(format!("{name}-there"));
    copy["spec"] = json!({"nodeName": "n"});
    copy["status"] = json!({
        "phase": phase, "podIP": "10.0.0.1", "qosClass": "Guaranteed", "observedGeneration": 7,
        "conditions": [{"type": SCHEDULED, "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c"}],
    });
    copy
}

fn deleted(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

/// The pods after the status of these copies was written to them.
fn shown_of(pods: &[Value], copies: &[Value]) -> Vec<Value> {
    let mirror = many(pods, |local| {
        many(copies, |copies| {
            PlainPod.mirror(local, Remote::Copies(copies), NOW)
        })
    });
    written(pods, mirror)
}

fn written(pods: &[Value], mirror: Mirror) -> Vec<Value> {
    let mut pods = pods.to_vec();
    for write in mirror.writes {
        let Write::Patch { of, target, patch } = write else {
            panic!("nothing is deleted")
        };
        assert_eq!(target, Target::Status);
        let pod = { pods.iter_mut() }.find(|pod| pod["metadata"]["uid"] == of.uid.as_str());
        let pod = pod.unwrap();
        *pod = apply(pod, &patch);
    }
    pods
}

fn unmatched_names(pods: &[Value], copies: &[Value]) -> (Vec<String>, Vec<String>) {
    let found = many(pods, |local| {
        many(copies, |copies| PlainPod.unmatched(local, copies))
    });
    let stray = found.stray.into_iter().map(|id| id.uid).collect();
    (found.lacking.into_iter().collect(), stray)
}

/// Spec: multikueue 5.2, 1.9; jobs 12.9
#[test]
fn a_copy_is_held_belongs_to_nobody_and_names_its_workload() {
    let mut placed = held("b");
    placed["spec"]["nodeName"] = json!("virtual");
    for (field, value) in [
        ("overhead", json!({"cpu": "250m"})),
        ("preemptionPolicy", json!("Never")),
        ("priority", json!(1000)),
    ] {
        placed["spec"][field] = value;
    }
    let mut ended = held("c");
    ended["status"]["phase"] = json!("Failed");
    let pods = [held("a"), placed, ended, deleted(held("d"))];
    let copies = many(&pods, |pods| PlainPod.copies(pods, &IDENTITY, &[]));
    let names: Vec<_> = copies
        .iter()
        .map(|copy| copy["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b"], "what has ended or goes is not sent");
    let first = &copies[0];
    assert_eq!(first["spec"], held("a")["spec"]);
    assert_eq!(copies[1]["spec"], held("b")["spec"]);
    assert_eq!(
        first["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"],
        "hub"
    );
    assert_eq!(
        first["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"],
        "g"
    );
    assert_eq!(first["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"], "r");
    for field in ["ownerReferences", "finalizers", "uid"] {
        assert_eq!(first["metadata"].get(field), None, "{field}");
    }
}

/// Spec: multikueue 5.2, 11.96; jobs 12.9, 15.120, 15.121
#[test]
fn a_held_pod_shows_its_copy_and_is_never_called_unschedulable() {
    let mut unschedulable = copy("a", "Pending");
    unschedulable["status"] = json!({
        "phase": "Pending", "nominatedNodeName": "n",
        "conditions": [{"type": SCHEDULED, "status": "False", "reason": "Unschedulable"}],
    });
    let same = shown_of(&[held("a")], &[unschedulable]);
    assert_eq!(same, [held("a")]);
    let running = shown_of(&[held("a")], &[copy("a", "Running")]);
    let status = &running[0]["status"];
    assert_eq!(
        (&status["phase"], &status["podIP"]),
        (&json!("Running"), &json!("10.0.0.1"))
    );
    assert_eq!(status["conditions"], copy("a", "Running")["status"]["conditions"]);
    assert_eq!(
        status["qosClass"], "Burstable",
        "an API server refuses another one"
    );
    assert_eq!(
        status.get("observedGeneration"),
        None,
        "it counts the copy's changes"
    );
    assert_eq!(shown_of(&running, &[copy("a", "Running")]), running, "once");
}

/// Spec: multikueue 5.2
#[test]
fn each_pod_of_a_group_shows_its_own_copy_and_one_that_is_being_deleted_shows_nothing_new() {
    let pods = [held("a"), held("b"), deleted(held("c")), held("d")];
    let copies = [copy("a", "Succeeded"), copy("b", "Running"), copy("c", "Running")];
    let shown = shown_of(&pods, &copies);
    let phases: Vec<_> = shown.iter().map(|pod| pod["status"]["phase"].clone()).collect();
    assert_eq!(phases, ["Succeeded", "Running", "Pending", "Pending"]);
}

/// Spec: safety 1 I11
#[test]
fn a_pod_does_not_fail_with_a_copy_that_was_stopped() {
    let killed = deleted(copy("a", "Failed"));
    assert_eq!(shown_of(&[held("a")], std::slice::from_ref(&killed)), [held("a")]);
    let mut evicted = killed.clone();
    evicted["status"]["conditions"] = json!([{"type": TERMINATION_TARGET, "status": "True"}]);
    let phases = |copies: &[Value]| -> Vec<Value> {
        let pods = shown_of(&[held("a"), held("b")], copies);
        pods.iter().map(|pod| pod["status"]["phase"].clone()).collect()
    };
    assert_eq!(phases(&[evicted, copy("b", "Running")]), ["Pending", "Running"]);
    // For example its node is lost: the group waits for another pod in its place.
    assert_eq!(phases(&[killed, copy("b", "Running")]), ["Failed", "Running"]);
}

/// Spec: multikueue 3.8; safety 1 I1
#[test]
fn a_pod_whose_copies_are_gone_looks_as_if_it_had_never_run_and_keeps_an_end() {
    let at_rest = |pods: &[Value]| {
        let mirror = many(pods, |local| PlainPod.mirror(local, Remote::AtRest, NOW));
        written(pods, mirror)
    };
    assert_eq!(at_rest(&[held("a")]), [held("a")]);
    let ran = shown_of(
        &[held("a"), held("b")],
        &[copy("a", "Running"), copy("b", "Succeeded")],
    );
    let after = at_rest(&ran);
    assert_eq!(after[1], ran[1]);
    let status = &after[0]["status"];
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["conditions"][0]["reason"], "SchedulingGated");
    for field in ["podIP", "containerStatuses", "startTime"] {
        assert_eq!(status.get(field), None, "{field}");
    }
}

/// Spec: safety 1 I11
#[test]
fn a_pod_of_which_no_copy_is_left_ends_as_its_workload() {
    let outcome = |success: bool| outcome(success, "said");
    let end = |success: bool| {
        let pods = [held("a")];
        let outcome = outcome(success);
        let mirror = many(&pods, |local| {
            PlainPod.mirror(local, Remote::Ended(&outcome), NOW)
        });
        let status = &written(&pods, mirror)[0]["status"];
        (status["phase"].clone(), status["message"].clone())
    };
    assert_eq!(end(true), (json!("Succeeded"), json!("said")));
    assert_eq!(end(false).0, "Failed");
}

/// Unlike the reference, where the copy of a deleted pod runs on.
///
/// Spec: jobs 12.9
#[test]
fn a_group_lacks_the_copies_of_its_new_pods_and_wants_none_of_those_that_are_gone() {
    let pods = [held("a"), held("b"), deleted(held("c"))];
    let copies = [
        copy("a", "Running"),
        copy("c", "Running"),
        copy("d", "Running"),
        copy("e", "Failed"),
    ];
    let (lacking, stray) = unmatched_names(&pods, &copies);
    assert_eq!(lacking, ["b"]);
    assert_eq!(stray, ["c-there", "d-there"], "an end counts for the group");
    let (_, stray) = unmatched_names(&pods, &[deleted(copy("d", "Failed"))]);
    assert_eq!(stray, ["d-there"], "no other pod holds it");
    let all = [copy("a", "Running"), copy("b", "Running")];
    assert_eq!(unmatched_names(&pods[..2], &all), (vec![], vec![]));
}

/// A `StatefulSet` makes its pods anew under the same names.
///
/// Spec: jobs 9.12, 12.9
#[test]
fn the_copy_of_an_earlier_pod_of_the_same_name_goes_and_is_not_shown() {
    let sent = many(&[held("a")], |pods| PlainPod.copies(pods, &IDENTITY, &[]));
    let of = "kueue.x-k8s.io/multikueue-origin-uid";
    assert_eq!(sent[0]["metadata"]["annotations"][of], "a-here");
    let of_pod = |uid: &str, phase: &str| {
        let mut copy = copy("a", phase);
        copy["metadata"]["annotations"][of] = json!(uid);
        copy
    };
    let pods = [held("a")];
    let (nothing, stray): (Vec<String>, _) = (vec![], vec!["a-there".to_owned()]);
    assert_eq!(
        unmatched_names(&pods, &[of_pod("a-here", "Running")]),
        (nothing.clone(), vec![])
    );
    for phase in ["Running", "Failed"] {
        let copies = [of_pod("earlier", phase)];
        assert_eq!(
            unmatched_names(&pods, &copies),
            (nothing.clone(), stray.clone()),
            "{phase}"
        );
        assert_eq!(shown_of(&pods, &copies), pods);
    }
}

/// Spec: safety 1 I1, I11
#[test]
fn a_copy_may_run_until_its_node_says_that_it_has_ended() {
    let look = |pod: &Value| one(pod, |pod| PlainPod.look(pod));
    let single = |pod: Value| changed(&pod, |pod| pod.meta.labels.as_mut().unwrap().clear());
    let going = single(deleted(copy("a", "Running")));
    assert!(!look(&going).at_rest());
    let mut gone = going;
    gone["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    assert!(look(&gone).at_rest(), "only finalizers keep it");
    let killed = look(&single(deleted(copy("a", "Failed"))));
    assert!(killed.ended.is_some() && killed.killed);
    assert!(!look(&single(copy("a", "Failed"))).killed);
    let group = |pods: &[Value]| many(pods, |pods| PlainPod.look(pods)).at_rest();
    assert!(group(&[held("a"), copy("b", "Succeeded")]));
    assert!(
        !group(&[copy("a", "Pending"), copy("b", "Succeeded")]),
        "it is let go, and may start"
    );
}

#[test]
fn a_cached_copy_keeps_its_status_and_what_says_whether_it_is_held() {
    let slim = changed(&held("a"), |copy| PlainPod.forget_details(copy));
    assert_eq!(
        slim["spec"],
        json!({"schedulingGates": held("a")["spec"]["schedulingGates"]})
    );
    assert_eq!(slim["status"], held("a")["status"]);
    assert_eq!(
        changed(&copy("a", "Running"), |copy| PlainPod.forget_details(copy)),
        copy("a", "Running")
    );
}
