use std::collections::BTreeMap;

use super::*;
use crate::fixture::{QUEUE, WHY, apply, changed, many, one, outcome};
use crate::kind::{DefaultFacts, MemberId, Namespace, Owner, Presence, Stand};
use crate::webhook::default_job;

const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const ROLE: &str = "kueue.x-k8s.io/role-hash";

/// A held member of group `g` of three.
fn pod(name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {QUEUE: "q", GROUP: "g", "kueue.x-k8s.io/managed": "true"},
            "annotations": {COUNT: "3", ROLE: role},
            "finalizers": ["kueue.x-k8s.io/managed", "example.com/other"],
        },
        "spec": {
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}, {"name": "mine"}],
            "containers": [{"name": "c"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// The same pod in this phase, started and on a node.
fn bound(name: &str, role: &str, phase: &str) -> Value {
    let mut pod = pod(name, role);
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!("n");
    pod["status"]["phase"] = json!(phase);
    pod
}

fn with(mut pod: Value, key: &str, value: &str) -> Value {
    pod["metadata"]["annotations"][key] = json!(value);
    pod
}

fn deleted(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn sets(pods: &[Value]) -> Result<Vec<(String, u32)>, String> {
    let sets = many(pods, |pods| PlainPod.pod_sets(pods)).map_err(|error| error.to_string())?;
    Ok(sets.into_iter().map(|set| (set.name, set.count)).collect())
}

fn set(name: &str, count: u32) -> JobPodSet {
    JobPodSet {
        name: name.to_owned(),
        count,
        min_count: None,
        template: json!({}),
    }
}

/// Compares a number of the fixture: the requests of pods are parsed elsewhere.
fn asks_for_more(pod: &Value, other: &Value) -> bool {
    let asked = |one: &Value| json::int(one, &["spec", "cores"]).unwrap_or_default();
    asked(pod) > asked(other)
}

fn tend(pods: &[Value], workload: Option<&[JobPodSet]>) -> Tending {
    many(pods, |pods| PlainPod.tend(pods, workload, asks_for_more)).unwrap()
}

/// The members that lose our finalizer, and those that are deleted.
fn done(writes: &[Write]) -> (Vec<&str>, Vec<&str>) {
    let (mut released, mut gone) = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::Delete { of } => gone.push(of.name.as_str()),
            Write::Bind { of, node } => panic!("{} is put on {node}", of.name),
            Write::Patch { of, target, patch } => {
                assert_eq!(*target, Target::Main);
                assert_eq!(patch["metadata"]["finalizers"], json!(["example.com/other"]));
                assert_eq!(patch["metadata"]["resourceVersion"], "7");
                released.push(of.name.as_str());
            }
        }
    }
    (released, gone)
}

fn facts() -> DefaultFacts<'static> {
    DefaultFacts {
        default_queue: Presence::Absent,
        default_priority_class: Presence::Absent,
        owner: Owner::Unmanaged,
        namespace: Namespace::Inside,
        uses_multikueue: &|_| false,
        mark: None,
    }
}

fn defaulted(pod: &Value, facts: &DefaultFacts<'_>) -> Value {
    changed(pod, |pod| default_job(&PlainPod, pod, facts))
}

/// Spec: jobs 12.1, 15.93, 15.94, 15.96
#[test]
fn a_pod_of_a_queue_is_held_and_one_of_a_held_parent_keeps_no_finalizer() {
    let plain = json!({"metadata": {"labels": {QUEUE: "q"}}, "spec": {"containers": [{"name": "c"}]}});
    let held = defaulted(&plain, &facts());
    assert_eq!(held["metadata"]["labels"]["kueue.x-k8s.io/managed"], "true");
    assert_eq!(held["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    assert_eq!(held["metadata"]["annotations"][ROLE], "7aa6c7b8");
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(held["spec"]["schedulingGates"], gates);
    assert_eq!(defaulted(&held, &facts()), held, "once");

    let mut named = plain.clone();
    named["metadata"]["annotations"] = json!({ROLE: "worker"});
    assert_eq!(
        defaulted(&named, &facts())["metadata"]["annotations"][ROLE],
        "worker"
    );

    let mut child =
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}}});
    child["spec"] = plain["spec"].clone();
    let child = defaulted(&child, &facts());
    assert_eq!(child["spec"]["schedulingGates"], gates);
    assert_eq!(child["metadata"].get("finalizers"), None);

    for other in [
        DefaultFacts {
            namespace: Namespace::Outside,
            ..facts()
        },
        DefaultFacts {
            owner: Owner::ManagedAncestor,
            ..facts()
        },
    ] {
        assert_eq!(defaulted(&plain, &other), plain);
    }
    let free = json!({"metadata": {}, "spec": {}});
    assert_eq!(defaulted(&free, &facts()), free);
    let all = DefaultFacts {
        namespace: Namespace::InsideAll,
        ..facts()
    };
    assert_eq!(defaulted(&free, &all)["spec"]["schedulingGates"], gates);
}

/// Spec: jobs 12.1, 15.111, 15.112
#[test]
fn the_rules_of_pods_are_checked() {
    let check = |pod: &Value, expected: &[&str]| {
        let found = one(pod, |pod| PlainPod.own_problems(pod.first()));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{found}");
        }
    };
    let good = pod("a", "r");
    check(&good, &[]);
    let mut managed = good.clone();
    managed["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("false");
    check(&managed, &["Forbidden: managed label value can only be 'true'"]);
    let mut alone = good.clone();
    alone["metadata"]["annotations"] = json!({});
    let both = "both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set";
    check(&alone, &[both]);
    let mut nameless = good.clone();
    nameless["metadata"]["labels"] = json!({});
    check(&nameless, &[both]);
    for count in ["0", "-1", "x", "2147483648"] {
        check(&with(good.clone(), COUNT, count), &["should be a number from 1"]);
    }
    check(
        &with(good.clone(), GROUP, "No_Name"),
        &["must be a DNS-1123 subdomain"],
    );
    let prebuilt = with(good.clone(), "kueue.x-k8s.io/prebuilt-workload-name", "other");
    check(&prebuilt, &["prebuilt workload and pod group should be equal"]);

    let changes = |old: &Value, new: &Value| {
        one(old, |old| {
            one(new, |new| {
                PlainPod.own_update_problems(old.first(), new.first()).len()
            })
        })
    };
    let no = with(good.clone(), "kueue.x-k8s.io/retriable-in-group", "false");
    assert_eq!((changes(&good, &no), changes(&no, &good)), (0, 1));
    assert_eq!(changes(&good, &with(good.clone(), GROUP, "h")), 1);
}

/// Spec: jobs 12.5, 15.97 to 15.99, 15.101, 15.102
#[test]
fn a_group_has_a_pod_set_for_each_role_once_it_is_complete() {
    let (a, b, c) = (pod("a", "x"), pod("b", "w"), pod("c", "x"));
    assert_eq!(
        sets(&[a.clone(), b.clone()]),
        Err("'g' group has fewer runnable pods than expected".to_owned())
    );
    let whole = sets(&[a.clone(), b.clone(), c.clone()]);
    assert_eq!(whole, Ok(vec![("w".to_owned(), 1), ("x".to_owned(), 2)]));
    let failed = bound("b", "w", "Failed");
    assert!(
        sets(&[a.clone(), failed, c.clone()]).is_err(),
        "a failed pod does not count"
    );
    let gone = deleted(b.clone());
    assert!(sets(&[a.clone(), gone, c.clone()]).is_err());
    let fast = with(a.clone(), "kueue.x-k8s.io/pod-group-fast-admission", "true");
    assert_eq!(sets(&[fast]), Ok(vec![("x".to_owned(), 3)]));
    let mut other = b.clone();
    other["metadata"]["labels"][QUEUE] = json!("p");
    assert_eq!(
        sets(&[a.clone(), other, c.clone()]),
        Err("pods 'a' and 'b' has different queue names: q!=p".to_owned())
    );
    assert_eq!(
        sets(&[a, with(b, COUNT, "2"), c]),
        Err("pods 'a' and 'b' has different 'kueue.x-k8s.io/pod-group-total-count' values: 3!=2".to_owned())
    );
    let many: Vec<Value> = (0..19)
        .map(|n| with(pod(&format!("p{n:02}"), &format!("r{n:02}")), COUNT, "19"))
        .collect();
    assert_eq!(
        sets(&many),
        Err("pod group can't include more than 18 roles".to_owned())
    );
}

/// Spec: jobs 12.5, 12.6, 15.100
#[test]
fn the_newest_held_pods_are_too_many() {
    let mut newest = pod("a", "x");
    newest["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
    let pods = [newest, pod("b", "x"), pod("c", "x"), pod("d", "x")];
    for workload in [None, Some([set("x", 3)].as_slice())] {
        let tending = tend(&pods, workload);
        assert_eq!(done(&tending.writes), (vec!["a"], vec!["a"]));
        let told: Vec<&str> = tending
            .told
            .iter()
            .map(|told| told.note.reason.as_ref())
            .collect();
        assert_eq!(told, ["ExcessPodDeleted"]);
        let kept: Vec<&str> = tending.kept.iter().map(|id| id.name.as_str()).collect();
        assert_eq!(kept, ["b", "c", "d"]);
    }
    let runs = [
        bound("z", "x", "Running"),
        pod("b", "x"),
        pod("c", "x"),
        pod("d", "x"),
    ];
    assert_eq!(
        done(&tend(&runs, Some(&[set("x", 3)])).writes).1,
        ["d"],
        "what runs stays"
    );
    let unlike = [
        pod("b", "x"),
        pod("c", "x"),
        pod("d", "x"),
        with(pod("e", "x"), COUNT, "4"),
    ];
    assert_eq!(
        done(&tend(&unlike, None).writes).1,
        [""; 0],
        "the number of pods of the group is unknown"
    );
}

/// Spec: jobs 12.6, 12.10, 15.104, 15.105, 15.115
#[test]
fn a_failed_pod_is_missing_until_another_one_takes_its_place() {
    let workload = [set("x", 2), set("y", 1)];
    let tend = |pods: &[Value]| tend(pods, Some(&workload));
    let (a, y) = (bound("a", "x", "Running"), bound("y", "y", "Succeeded"));
    let failed = bound("b", "x", "Failed");
    let short = tend(&[a.clone(), failed.clone(), y.clone()]);
    assert_eq!((short.missing, short.fits), (Some(1), true));
    assert_eq!(
        done(&short.writes),
        (vec![], vec![]),
        "it is kept until it is replaced"
    );
    let whole = tend(&[a.clone(), failed.clone(), pod("c", "x"), y.clone()]);
    assert_eq!(whole.missing, Some(0));
    assert_eq!(done(&whole.writes), (vec!["b"], vec![]));
    let other = tend(&[a.clone(), failed, pod("c", "z"), y.clone()]);
    assert_eq!(other.missing, Some(1), "one of another role replaces nothing");
    assert_eq!(done(&other.writes), (vec![], vec![]));
    let leaving = tend(&[a, deleted(bound("b", "x", "Running")), y]);
    assert_eq!(leaving.missing, Some(0), "it runs until it is over");
    assert!(!tend(&[pod("q", "z")]).fits, "no member is of this Workload");
}

/// The engine may see that the Workload is gone before it has released every pod of a group that has ended.
///
/// Spec: jobs 12.8
#[test]
fn a_pod_that_has_ended_and_is_deleted_needs_no_workload_to_go() {
    let ended = || bound("a", "x", "Succeeded");
    assert_eq!(done(&tend(&[deleted(ended())], None).writes), (vec!["a"], vec![]));
    assert_eq!(
        done(&tend(&[ended()], None).writes),
        (vec![], vec![]),
        "it may be counted yet"
    );
    let runs = deleted(bound("a", "x", "Running"));
    assert_eq!(
        done(&tend(&[runs], None).writes),
        (vec![], vec![]),
        "it has not ended"
    );
}

/// A virtual node shows no end of a pod whose copy was deleted.
///
/// Spec: jobs 12.9
#[test]
fn a_group_is_gone_when_the_nodes_of_all_its_deleted_pods_say_so() {
    let going = |name: &str, grace: u32| {
        let mut pod = deleted(bound(name, "x", "Running"));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        pod
    };
    let stand = |pods: &[Value]| tend(pods, Some(&[set("x", 2)])).stand;
    assert_eq!(stand(&[going("a", 0), going("b", 0)]), Stand::Gone);
    assert_ne!(stand(&[going("a", 0), going("b", 30)]), Stand::Gone);
    assert_eq!(
        stand(&[going("a", 0), bound("b", "x", "Running")]),
        Stand::Running
    );
}

/// Spec: jobs 12.3
#[test]
fn a_pod_whose_role_lies_about_what_it_asks_for_stays_held() {
    let mut liar = pod("a", "x");
    liar["spec"]["cores"] = json!(2);
    let workload = [set("x", 2)];
    let short = tend(&[liar.clone(), pod("b", "x")], Some(&workload));
    assert_eq!((short.missing, short.stand), (Some(1), Stand::Held));
    let kept: Vec<&str> = short.kept.iter().map(|id| id.name.as_str()).collect();
    assert_eq!(kept, ["b"], "only those are let go");
    assert_eq!(short.told[0].note.reason, "PodExceedsPodSet");
    let runs = [liar, bound("b", "x", "Running"), bound("c", "x", "Running")];
    let whole = tend(&runs, Some(&workload));
    assert_eq!((whole.missing, whole.stand), (Some(0), Stand::Running));
}

/// Spec: jobs 12.7, 15.106, 15.109
#[test]
fn a_group_ends_when_all_have_succeeded_or_none_can_be_replaced() {
    let look = |pods: &[Value]| many(pods, |pods| PlainPod.look(pods));
    let ok = |name: &str| bound(name, "x", "Succeeded");
    let bad = |name: &str| bound(name, "x", "Failed");
    let end = |pods: &[Value]| look(pods).ended.map(|end| (end.success, end.message));
    assert_eq!(
        end(&[ok("a"), ok("b"), ok("c")]),
        Some((true, "Pods succeeded: 3/3.".to_owned()))
    );
    assert_eq!(end(&[ok("a"), ok("b"), bad("c")]), None, "another may come");
    let no = |pod: Value| with(pod, "kueue.x-k8s.io/retriable-in-group", "false");
    assert_eq!(
        end(&[no(ok("a")), bad("b"), bad("c")]),
        Some((true, "Pods succeeded: 1/3.".to_owned()))
    );
    assert_eq!(
        end(&[no(bad("a")), bad("b"), bad("c")]),
        Some((false, "Pods succeeded: 0/3.".to_owned()))
    );
    let spare = look(&[ok("a"), bound("b", "x", "Running"), bound("c", "y", "Running")]);
    assert_eq!(spare.reclaimable, BTreeMap::from([("x".into(), 1)]));
    assert_eq!(spare.pods, Pods::Alive);
    let serving = with(ok("a"), "kueue.x-k8s.io/pod-group-serving", "true");
    let serving = look(&[serving, ok("b"), ok("c")]);
    assert!(serving.ended.is_none() && serving.reclaimable.is_empty());
}

/// Spec: jobs 12.7, 15.114
#[test]
fn a_pod_that_is_being_ended_holds_quota_until_its_grace_is_over() {
    let pods = [deleted(bound("a", "x", "Running")), pod("b", "x"), pod("c", "x")];
    let look = many(&pods, |pods| PlainPod.look(pods));
    assert_eq!(
        look.pods,
        Pods::AliveUntil("2026-01-01T00:10:30Z".parse().unwrap())
    );
    assert!(look.suspended);
}

/// A member whose node has reported it gone, or that never had a node, has no phase of an end. Why it matters: the manager takes its
/// finalizer off a copy only when the copy is at rest.
#[test]
fn a_member_that_is_gone_without_an_end_is_at_rest() {
    let mut gone = deleted(bound("a", "x", "Pending"));
    assert!(!many(&[gone.clone()], |pods| PlainPod.look(pods)).at_rest());
    gone["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    assert!(many(&[gone.clone()], |pods| PlainPod.look(pods)).at_rest());
    assert!(!many(&[gone, bound("b", "x", "Running")], |pods| PlainPod.look(pods)).at_rest());
}

/// Spec: jobs 12.8, 15.103, 15.105
#[test]
fn members_of_known_roles_are_let_go() {
    let info = |name: &str| PodSetInfo {
        name: name.to_owned(),
        count: 1,
        labels: [("kueue.x-k8s.io/podset".to_owned(), name.to_owned())].into(),
        node_selector: [("tier".to_owned(), "spot".to_owned())].into(),
        ..PodSetInfo::default()
    };
    let pods = [pod("a", "x"), pod("b", "other"), bound("c", "x", "Running")];
    let writes = many(&pods, |pods| PlainPod.start(pods, &[info("x")])).unwrap();
    let [
        Write::Patch {
            of,
            target: Target::Main,
            patch,
        },
    ] = writes.as_slice()
    else {
        panic!("{writes:?}");
    };
    assert_eq!(
        *of,
        MemberId {
            name: "a".to_owned(),
            uid: "a".to_owned()
        }
    );
    let after = apply(&pods[0], patch);
    assert_eq!(after["spec"]["schedulingGates"], json!([{"name": "mine"}]));
    assert_eq!(after["spec"]["nodeSelector"]["tier"], "spot");
    assert_eq!(after["metadata"]["labels"]["kueue.x-k8s.io/podset"], "x");
    assert_eq!(after["metadata"]["labels"][QUEUE], "q");
    let mut taken = pods[0].clone();
    taken["spec"]["nodeSelector"] = json!({"tier": "other"});
    assert!(many(&[taken], |pods| PlainPod.start(pods, &[info("x")])).is_err());
}

/// Spec: jobs 12.8, 15.107, 15.108
#[test]
fn an_eviction_deletes_what_runs_and_the_end_of_the_workload_deletes_all() {
    let pods = [
        bound("a", "x", "Running"),
        pod("b", "x"),
        bound("c", "x", "Succeeded"),
    ];
    let writes = many(&pods, |pods| PlainPod.stop(pods, &[], &WHY));
    let [
        Write::Patch {
            of,
            target: Target::Status,
            patch,
        },
        Write::Delete { of: deleted },
    ] = writes.as_slice()
    else {
        panic!("{writes:?}");
    };
    assert_eq!((of.name.as_str(), deleted.name.as_str()), ("a", "a"));
    let told = &patch["status"]["conditions"][0];
    assert_eq!(told["type"], "TerminationTarget");
    assert_eq!(told["reason"], "WorkloadEvictedDueToPreempted");
    let for_good = Why {
        for_good: true,
        ..WHY
    };
    let all = many(&pods, |pods| PlainPod.stop(pods, &[], &for_good));
    let is_main = |write: &&Write| {
        !matches!(
            write,
            Write::Patch {
                target: Target::Status,
                ..
            }
        )
    };
    let all: Vec<Write> = all.iter().filter(is_main).cloned().collect();
    let (released, gone) = done(&all);
    assert_eq!((released, gone), (vec!["a", "b", "c"], vec!["a", "b", "c"]));
}

/// Spec: jobs 12.7
#[test]
fn a_single_pod_is_a_job_of_one() {
    let mut single = pod("a", "x");
    single["metadata"]["labels"] = json!({QUEUE: "q"});
    let found = one(&single, |pod| PlainPod.pod_sets(pod)).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].count), ("main", 1));
    let mut ended = bound("a", "x", "Failed");
    ended["metadata"]["labels"] = json!({QUEUE: "q"});
    ended["status"]["message"] = json!("no more memory");
    let look = one(&ended, |pod| PlainPod.look(pod));
    assert_eq!(look.ended, Some(outcome(false, "no more memory")));
    assert!(one(&ended, |pod| PlainPod.tend(pod, None, asks_for_more)).is_none());
    assert_eq!(done(&one(&ended, |pod| PlainPod.release(pod))).0, ["a"]);
}

/// Spec: jobs 8, 12.5
#[test]
fn what_a_pod_asks_about_topology_is_in_its_template_and_no_other_annotation() {
    const TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
    let mut single = with(pod("a", "x"), TOPOLOGY, "rack");
    single["metadata"]["labels"] = json!({QUEUE: "q"});
    let template = |pod: &Value| {
        let found = one(pod, |pod| PlainPod.pod_sets(pod)).unwrap();
        found[0].template["metadata"].clone()
    };
    assert_eq!(template(&single), json!({"annotations": {TOPOLOGY: "rack"}}));
    single["metadata"]["annotations"] = json!({COUNT: "3"});
    assert_eq!(template(&single), Value::Null);
}
