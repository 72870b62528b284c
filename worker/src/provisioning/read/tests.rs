use roadstead_core::provision::Action;
use serde_json::json;

use super::super::tests::{CLASS, cluster, config, object, request_object, template_object, workload};
use super::*;

fn plan(p: &Provisioning, stored: &api::Workload) -> Option<Plan> {
    let workload = roadstead_convert::workload(stored);
    let pass = Pass {
        stored,
        workload: &workload,
    };
    scene(p, &pass, &workload.status).map(|scene| scene.plan(Timestamp::UNIX_EPOCH))
}

fn actions(plan: &Plan) -> Vec<String> {
    let say = |action: &Action| match action {
        Action::DeleteRequest { name } => format!("delete {name}"),
        Action::CreateTemplates { check: _, templates } => format!("template {}", templates[0].template),
        Action::CreateRequest(request) => format!("request {} {:?}", request.name, request.parameters),
        Action::TransferOwner { template, request } => format!("{template} to {request}"),
    };
    plan.actions.iter().map(say).collect()
}

/// Spec: provisioning 4.1, 4.4, 6.1, 15.9, 15.56.
#[tokio::test]
async fn a_reserved_workload_gets_template_request_and_hand_over_with_its_own_parameters() {
    let p = cluster(&config());
    let plan = plan(&p, &workload(&json!({}))).unwrap();
    assert_eq!(
        actions(&plan),
        [
            "template ppt-wl-chk-1-main",
            "request wl-chk-1 {\"maxRunDurationSeconds\": \"60\"}",
            "ppt-wl-chk-1-main to wl-chk-1",
        ]
    );
}

/// Spec: provisioning 4.3, 16 (requests are found by UID).
#[tokio::test]
async fn only_requests_of_this_very_workload_decide() {
    let p = cluster(&config());
    let yes = json!([{
        "type": "Provisioned", "status": "True", "reason": "CapacityIsFound", "message": "found",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    p.requests.observe(request_object("wl-chk-1", "r0", "w0", &yes));
    let check = CheckName::from("chk");
    let before = plan(&p, &workload(&json!({}))).unwrap();
    assert_eq!(
        before.status.checks[&check].phase,
        CheckPhase::Pending,
        "it belongs to an earlier workload"
    );
    p.requests.observe(request_object("wl-chk-1", "r1", "w1", &yes));
    let after = plan(&p, &workload(&json!({}))).unwrap();
    assert_eq!(after.status.checks[&check].phase, CheckPhase::Ready);
    assert_eq!(actions(&after), Vec::<String>::new());
    assert_eq!(
        p.due.next().await,
        Key::new("ns", "wl"),
        "its controller was made due"
    );
}

/// Spec: provisioning 4.4, 16 (names come back after a preemption).
#[tokio::test]
async fn a_template_of_a_request_that_is_gone_is_waited_for_and_one_of_ours_is_handed_over() {
    let p = cluster(&config());
    p.templates
        .observe(template_object("ppt-wl-chk-1-main", "ProvisioningRequest", "r0"));
    let waiting = plan(&p, &workload(&json!({}))).unwrap();
    assert_eq!((waiting.actions.len(), waiting.problems.len()), (0, 1));
    p.templates
        .observe(template_object("ppt-wl-chk-1-main", "Workload", "w1"));
    p.requests
        .observe(request_object("wl-chk-1", "r1", "w1", &json!([])));
    let cut_short = plan(&p, &workload(&json!({}))).unwrap();
    assert_eq!(actions(&cut_short), ["ppt-wl-chk-1-main to wl-chk-1"]);
    p.templates
        .observe(template_object("ppt-wl-chk-1-main", "ProvisioningRequest", "r1"));
    assert_eq!(
        actions(&plan(&p, &workload(&json!({}))).unwrap()),
        Vec::<String>::new()
    );
}

/// Spec: provisioning 1, 4.3 row 1, 15.1.
#[tokio::test]
async fn nothing_is_decided_before_everything_is_listed_and_without_the_api_the_check_says_so() {
    let p = cluster(&config());
    p.served.set(Served::NotYet);
    assert_eq!(plan(&p, &workload(&json!({}))), None);
    p.served.set(Served::No("why".into()));
    let mut stored = workload(&json!({}));
    let waiting = plan(&p, &stored).unwrap();
    let (check, other) = (CheckName::from("chk"), CheckName::from("other"));
    assert_eq!(waiting.status.checks[&check].message, "the check is not active");
    assert_eq!(waiting.status.checks[&other].message, "");
    assert_eq!(waiting.actions, Vec::new());
    stored.status.as_mut().unwrap().admission_checks[0].state = api::CheckState::Ready;
    assert_eq!(plan(&p, &stored), None, "what was decided stands");
}

/// Spec: provisioning 4.2, 15.14.
#[test]
fn a_pod_set_uses_what_any_of_its_containers_or_the_pod_itself_names() {
    let gpu = ["gpu".to_owned()];
    let of = |spec: Value| uses(Some(&spec), &gpu);
    let with = |list: &str| json!([{ "resources": { "requests": { "cpu": "1" } } }, { "resources": { list: { "gpu": "1" } } }]);
    assert!(of(json!({ "containers": with("requests") })));
    assert!(of(json!({ "containers": with("limits") })));
    assert!(of(json!({ "initContainers": with("limits") })));
    assert!(of(json!({ "resources": { "requests": { "gpu": "1" } } })));
    assert!(!of(
        json!({ "containers": [{ "resources": { "requests": { "cpu": "1" } } }, {}] })
    ));
    assert!(!of(json!({ "containers": "text" })));
    assert!(!uses(None, &gpu));
    assert!(uses(None, &[]), "no resources means all");
}

/// Spec: provisioning 6.2, 15.19, 15.20.
#[test]
fn pod_sets_are_equal_as_a_whole_or_in_what_a_scheduler_sees() {
    let template = |label: &str, image: &str, cpu: &str, zone: &str| {
        json!({
            "metadata": { "labels": { "role": label } },
            "spec": {
                "nodeSelector": { "zone": zone },
                "containers": [{ "image": image, "resources": { "requests": { "cpu": cpu } } }],
            },
        })
    };
    let templates = [
        ("a", template("x", "one", "1", "z")),
        ("b", template("y", "two", "1", "z")),
        ("c", template("x", "one", "1", "z")),
        ("d", template("x", "one", "2", "z")),
        ("e", template("x", "one", "1", "other")),
    ];
    let mut tolerant = template("x", "one", "1", "z");
    tolerant["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let templates = templates.into_iter().chain([("f", tolerant)]);
    let sets = templates.map(|(name, template)| json!({ "name": name, "count": 1, "template": template }));
    let sets: Vec<Value> = sets.collect();
    let stored: api::Workload = object(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "w" },
        "spec": { "podSets": sets },
    }));
    let got = classes(&stored);
    let got: Vec<(u32, u32)> = got
        .values()
        .map(|class| (class.template, class.scheduling))
        .collect();
    assert_eq!(got, [(0, 0), (1, 0), (0, 0), (3, 3), (4, 4), (5, 5)]);
}

/// Spec: provisioning 5, 16 (long names).
#[test]
fn check_and_attempt_are_read_from_our_annotations_only_when_both_are_there() {
    let mut stored = request_object("wl-chk-1", "r1", "w1", &json!([]));
    assert_eq!(request(&stored).identity, None);
    let mut notes = BTreeMap::from([(CHECK_ANNOTATION.to_owned(), "chk".to_owned())]);
    stored.metadata.annotations = Some(notes.clone());
    assert_eq!(request(&stored).identity, None);
    notes.insert(ATTEMPT_ANNOTATION.to_owned(), "7".to_owned());
    stored.metadata.annotations = Some(notes);
    assert_eq!(request(&stored).identity, Some((CheckName::from("chk"), 7)));
}

/// Spec: provisioning 2.2, 15.6.
#[test]
fn the_configuration_is_read_with_its_defaults() {
    let read = read_config(&config());
    assert_eq!(
        (read.retry_limit, read.backoff.base_secs, read.backoff.max_secs),
        (3, 60, 1800)
    );
    assert_eq!(
        (read.class.as_str(), read.merge, read.node_selector.len()),
        (CLASS, None, 0)
    );
}
