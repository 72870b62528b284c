use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use roadstead_api::config::FeatureGates;

use super::*;
use crate::fixture::apply;
use crate::kind::{DefaultFacts, Namespace, Owner, Presence};
use crate::webhook::{default_job, validate_update};

fn meta() -> ObjectMeta {
    ObjectMeta {
        name: Some("Aw".to_owned()),
        namespace: Some("team".to_owned()),
        uid: Some("u-1".to_owned()),
        ..ObjectMeta::default()
    }
}

fn job(parallelism: i64) -> Value {
    let pods = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    json!({"template": {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": parallelism, "template": pods},
    }})
}

fn wrapper() -> Value {
    let service = json!({"template": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}});
    json!({"spec": {"suspend": true, "components": [job(2), service, job(3)]}})
}

/// The answer about an `AppWrapper`, which is the same about one in the form in which it is cached.
fn with<T: PartialEq + Debug>(data: &Value, ask: impl Fn(Members<'_>) -> T) -> T {
    let meta = meta();
    let asked = |data| {
        let member = Member { meta: &meta, data };
        ask(Members::one(&member))
    };
    let (answer, mut packed) = (asked(data), data.clone());
    packed::pack(&mut packed);
    assert_eq!(asked(&packed), answer);
    assert_eq!(*unpacked(&packed), *data);
    answer
}

fn info(pool: &str) -> PodSetInfo {
    PodSetInfo {
        node_selector: BTreeMap::from([("pool".to_owned(), pool.to_owned())]),
        ..PodSetInfo::default()
    }
}

fn after(data: &Value, writes: &[Write]) -> Value {
    let mut data = data.clone();
    for write in writes {
        let Write::Patch { patch, .. } = write else {
            panic!("nothing is deleted");
        };
        data = apply(&data, patch);
    }
    data
}

fn condition(kind: &str, truth: &str, reason: &str) -> Value {
    json!({"type": kind, "status": truth, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// Spec: appwrapper B127; jobs 15.80.
#[test]
fn pod_sets_are_numbered_across_components() {
    let check = |data: &Value, expect: &[(&str, u32)]| {
        let sets = with(data, |members| AppWrapper.pod_sets(members)).unwrap();
        let found: Vec<(&str, u32)> = sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
        assert_eq!(found, expect);
    };
    check(&wrapper(), &[("aw-0", 2), ("aw-1", 3)]);
    let mut stored = wrapper();
    let path = "template.spec.template";
    stored["status"]["componentStatus"] = json!([
        {"podSets": [{"path": path, "replicas": 7}]}, {"podSets": []}, {"podSets": [{"path": path}]},
    ]);
    check(&stored, &[("aw-0", 7), ("aw-1", 1)]);
    stored["status"]["componentStatus"][0]["podSets"] = json!([{"path": "template.spec"}]);
    let error = with(&stored, |members| AppWrapper.pod_sets(members)).unwrap_err();
    assert!(error.to_string().contains("does not contain a spec"), "{error}");
}

/// Spec: appwrapper B128, B129, B146.
#[test]
fn infos_go_to_their_components_and_are_taken_out_again() {
    let data = wrapper();
    let infos = [info("a"), info("b")];
    let writes = with(&data, |members| AppWrapper.start(members, &infos)).unwrap();
    let started = after(&data, &writes);
    assert!(!is_suspended(&started));
    let of = |index: usize| started["spec"]["components"][index]["podSetInfos"].clone();
    assert_eq!(of(0), json!([{"nodeSelector": {"pool": "a"}}]));
    assert_eq!(of(1), Value::Null);
    assert_eq!(of(2), json!([{"nodeSelector": {"pool": "b"}}]));
    let stops = with(&started, |members| {
        AppWrapper.stop(members, &[], &crate::fixture::WHY)
    });
    assert_eq!(after(&started, &stops), data);
    assert!(
        with(&data, |members| AppWrapper.stop(
            members,
            &[],
            &crate::fixture::WHY
        ))
        .is_empty()
    );
    let error = with(&data, |members| AppWrapper.start(members, &infos[..1])).unwrap_err();
    assert!(error.is_permanent(), "{error}");
}

/// Spec: appwrapper 5.1, B130, B131, B132, B133, N-33; jobs 15.81.
#[test]
fn it_has_ended_when_nothing_of_it_is_deployed_any_more() {
    let look = |phase: &str, conditions: &[Value]| {
        let mut data = wrapper();
        data["status"] = json!({"phase": phase, "conditions": conditions});
        with(&data, |members| AppWrapper.look(members))
    };
    let said = |look: &Look| look.ended.as_ref().map(|end| (end.success, end.message.clone()));
    let deployed = |truth| condition("ResourcesDeployed", truth, "x");
    let quota = |truth| condition("QuotaReserved", truth, "x");
    let running = look(
        "Running",
        &[
            quota("True"),
            deployed("True"),
            condition("PodsReady", "True", "x"),
        ],
    );
    assert_eq!(
        (running.pods, running.ready, said(&running)),
        (Pods::Alive, true, None)
    );
    let done = look("Succeeded", &[quota("False"), deployed("True")]);
    assert_eq!(
        said(&done),
        Some((true, "AppWrapper finished successfully".to_owned()))
    );
    assert_eq!(done.pods, Pods::None);
    assert_eq!(said(&look("Failed", &[quota("True"), deployed("True")])), None);
    let failed = look("Failed", &[deployed("False")]);
    assert_eq!(said(&failed), Some((false, "AppWrapper failed".to_owned())));
    assert!(look("", &[]).at_rest());
    let released = |reason| condition("QuotaReserved", "False", reason);
    let deleted = look("Terminating", &[released("Succeeded"), deployed("False")]);
    assert_eq!(said(&deleted), said(&done));
    let deleted = look("Terminating", &[released("Failed"), deployed("False")]);
    assert_eq!(said(&deleted), said(&failed));
    let stopped = look("Terminating", &[released("Terminating"), deployed("False")]);
    assert_eq!(said(&stopped), None);
}

/// Spec: appwrapper N-23.
#[test]
fn quota_of_a_component_that_is_done_can_be_given_back() {
    let mut data = wrapper();
    let sets = json!([{"path": "template.spec.template", "replicas": 2}]);
    let done = |reason: &str| json!({"podSets": sets, "conditions": [condition("roadstead.dev/Finished", "True", reason)]});
    data["status"]["componentStatus"] =
        json!([done("SucceededAndPodsEnded"), {"podSets": []}, done("Succeeded")]);
    let look = with(&data, |members| AppWrapper.look(members));
    assert_eq!(look.reclaimable, BTreeMap::from([(PodSetName::from("aw-0"), 2)]));
}

/// Spec: appwrapper 5.7, B141, N-25.
#[test]
fn a_copy_starts_suspended_without_what_was_injected_here() {
    let mut data = wrapper();
    data["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue".into();
    data["spec"]["suspend"] = false.into();
    data["spec"]["components"][0]["podSetInfos"] = json!([{"nodeSelector": {"pool": "here"}}]);
    data["status"] = json!({"phase": "Running"});
    let identity = RemoteIdentity {
        origin: "o",
        workload: "w",
    };
    let copies = with(&data, |members| AppWrapper.copies(members, &identity, &[]));
    assert_eq!(copies[0]["spec"], wrapper()["spec"]);
    assert_eq!(copies[0]["status"], Value::Null);
    assert_eq!(
        copies[0]["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"],
        "o"
    );
}

/// Spec: appwrapper B142, B143.
#[test]
fn the_whole_status_is_mirrored_and_quota_is_let_go_when_nothing_runs() {
    let (mut data, mut copy) = (wrapper(), wrapper());
    copy["status"] =
        json!({"phase": "Running", "conditions": [condition("QuotaReserved", "True", "Resuming")]});
    let show = |data: &Value, remote: Remote<'_>| {
        let mirror = with(data, |members| {
            AppWrapper.mirror(members, remote, Timestamp::UNIX_EPOCH)
        });
        assert!(!mirror.is_deferred);
        after(data, &mirror.writes)
    };
    let meta = meta();
    let member = Member {
        meta: &meta,
        data: &copy,
    };
    data = show(&data, Remote::Copies(Members::one(&member)));
    assert_eq!(data["status"], copy["status"]);
    let mut gone = copy.clone();
    gone["status"] =
        json!({"phase": "Terminating", "conditions": [condition("QuotaReserved", "False", "Succeeded")]});
    let member = Member {
        meta: &meta,
        data: &gone,
    };
    let kept = show(&data, Remote::Copies(Members::one(&member)));
    assert_eq!(kept["status"]["phase"], "Succeeded");
    let rests = show(&data, Remote::AtRest);
    assert_eq!(with(&rests, |members| AppWrapper.look(members)).pods, Pods::None);
    let outcome = Outcome {
        success: false,
        message: "m".to_owned(),
    };
    let ended = show(&data, Remote::Ended(&outcome));
    assert_eq!(finished(&ended).map(|end| end.success), Some(false));
}

/// Spec: experience 5; safety 5.1
#[test]
fn what_a_wrapper_brings_is_not_missing_where_it_goes() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "subdomain": "brought", "imagePullSecrets": [{"name": "brought"}, {"name": "pull"}],
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "brought"}}, {"secretRef": {"name": "asked"}}]}],
    }});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "brought"}});
    let set = json!([{"path": "template"}]);
    let wrapper = json!({"spec": {"components": [
        {"template": pod, "podSets": set},
        {"template": secret},
    ]}});
    let told = |needs: BTreeSet<Need>| needs.iter().map(ToString::to_string).collect::<Vec<_>>();
    let needs = crate::fixture::one(&wrapper, |job| AppWrapper.needs(job));
    assert_eq!(told(needs), ["Secret \"asked\""]);
    let wants = crate::fixture::one(&wrapper, |job| AppWrapper.wants(job));
    assert_eq!(told(wants), ["Secret \"pull\"", "Service \"brought\""]);
}

/// Spec: appwrapper 5.2, B126, B134, B135.
#[test]
fn it_is_held_where_it_is_queued_and_nowhere_else() {
    let held = |namespace: Namespace, queue: Option<&str>, owner: Owner| {
        let mut data = wrapper();
        json::remove(&mut data, &["spec", "suspend"]);
        let mut meta = meta();
        meta.labels = queue.map(|queue| [("kueue.x-k8s.io/queue-name".to_owned(), queue.to_owned())].into());
        let facts = DefaultFacts {
            default_queue: Presence::Absent,
            default_priority_class: Presence::Absent,
            owner,
            namespace,
            uses_multikueue: &|_queue| false,
            mark: None,
        };
        let mut job = MemberMut {
            meta: &mut meta,
            data: &mut data,
        };
        default_job(&AppWrapper, &mut job, &facts);
        is_suspended(&data)
    };
    assert!(held(Namespace::Inside, Some("q"), Owner::Unmanaged));
    assert!(!held(Namespace::Inside, None, Owner::Unmanaged));
    assert!(held(Namespace::InsideAll, None, Owner::Unmanaged));
    assert!(!held(Namespace::InsideAll, None, Owner::ManagedAncestor));
    assert!(!held(Namespace::Outside, None, Owner::Unmanaged));
    assert!(!held(Namespace::Outside, Some("q"), Owner::Unmanaged));
}

/// Spec: appwrapper 5.2, B140.
#[test]
fn the_queue_may_change_while_it_is_held_and_not_while_it_runs() {
    let problems = |suspended: bool| {
        let mut data = wrapper();
        data["spec"]["suspend"] = suspended.into();
        let queued = |queue: &str| {
            let mut meta = meta();
            meta.labels = Some([("kueue.x-k8s.io/queue-name".to_owned(), queue.to_owned())].into());
            meta
        };
        let (old, new) = (queued("a"), queued("b"));
        let [old, new] = [&old, &new].map(|meta| Member { meta, data: &data });
        validate_update(&AppWrapper, old, new, Presence::Absent, &FeatureGates::default())
    };
    assert!(problems(true).is_empty());
    let found = problems(false);
    assert!(
        found.len() == 1 && found[0].to_string().contains("field is immutable"),
        "{found:?}"
    );
}

/// Spec: appwrapper 1.3, 8.1; jobs 5.1.
#[test]
fn a_status_of_garbage_says_nothing_and_stops_nothing() {
    for garbage in [
        json!("text"),
        json!(7),
        json!([1]),
        json!({"phase": 3, "conditions": "none", "componentStatus": 5}),
        json!({"phase": "Succeeded of sorts", "conditions": [null, 4, {"type": 1}], "componentStatus": [null, [], {"podSets": 2}]}),
    ] {
        let mut data = wrapper();
        data["status"] = garbage.clone();
        let look = with(&data, |members| AppWrapper.look(members));
        assert_eq!(
            (look.ended, look.pods, look.ready),
            (None, Pods::None, false),
            "{garbage}"
        );
        let started = with(&data, |members| {
            AppWrapper.stop(members, &[], &crate::fixture::WHY)
        });
        assert!(started.is_empty(), "it is held already: {garbage}");
        let sets = with(&data, |members| AppWrapper.pod_sets(members));
        assert!(sets.is_ok(), "{garbage}");
    }
}
