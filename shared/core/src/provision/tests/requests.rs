use super::Truth::True;
use super::*;

fn template(name: &str, set: &str, members: &[&str], count: u32) -> RequestPodSet {
    RequestPodSet {
        template: name.to_owned(),
        pod_set: set.into(),
        members: members.iter().map(|name| (*name).into()).collect(),
        count,
    }
}

/// Spec: provisioning 4.4, 5, 15.9, 15.11
#[test]
fn templates_then_request_then_handing_over() {
    let mut case = Case::new().config(|c| {
        c.parameters = BTreeMap::from([pair("a", "1")]);
    });
    case.overrides = BTreeMap::from([pair("b", "2")]);
    let main = template("ppt-wl-chk-1-main", "main", &["main"], 4);
    let expected = [
        Action::CreateTemplates {
            check: "chk".into(),
            templates: vec![main.clone()],
        },
        Action::CreateRequest(NewRequest {
            check: "chk".into(),
            name: "wl-chk-1".to_owned(),
            attempt: 1,
            class: CLASS.to_owned(),
            parameters: BTreeMap::from([pair("a", "1"), pair("b", "2")]),
            pod_sets: vec![main],
        }),
        Action::TransferOwner {
            template: "ppt-wl-chk-1-main".to_owned(),
            request: "wl-chk-1".to_owned(),
        },
    ];
    assert_eq!(case.plan().actions, expected);
    // A crash after the first: the template is there.
    case.templates
        .insert("ppt-wl-chk-1-main".to_owned(), TemplateOwner::Workload);
    assert_eq!(case.plan().actions, expected[1..]);
    // A crash after the second.
    let mut case = case.request("wl-chk-1", &[]);
    case.requests[0].parameters = BTreeMap::from([pair("a", "1"), pair("b", "2")]);
    assert_eq!(case.plan().actions, expected[2..]);
    // All done.
    case.templates
        .insert("ppt-wl-chk-1-main".to_owned(), TemplateOwner::Request);
    assert!(case.plan().actions.is_empty());
    assert_eq!(
        created_note("wl-chk-1").message,
        "Created ProvisioningRequest: \"wl-chk-1\""
    );
}

/// Spec: provisioning 15.8
#[test]
fn without_a_reservation_nothing_is_made() {
    let plan = Case::new().without("QuotaReserved").plan();
    assert!(plan.actions.is_empty());
}

/// Spec: provisioning 9, 15.29, 15.39, 15.49
#[test]
fn the_requests_of_a_finished_or_evicted_workload_go() {
    let revoked = [("CapacityRevoked", True, "R")];
    let finished = Case::new().with("Finished").request("wl-chk-1", &revoked);
    assert_eq!(finished.plan().deleted(), ["wl-chk-1"]);
    assert_eq!(finished.plan().status, finished.workload.status);
    let mut evicted = Case::new().with("Evicted").request("wl-chk-1", &[]);
    assert_eq!(evicted.plan().deleted(), ["wl-chk-1"]);
    evicted.on_eviction = OnEviction::Keep;
    assert!(evicted.plan().actions.is_empty());
    let mut released = evicted.without("QuotaReserved");
    released.on_eviction = OnEviction::Delete;
    assert_eq!(released.plan().deleted(), ["wl-chk-1"]);
    released.requests[0].deleting = true;
    assert!(released.plan().actions.is_empty());
}

/// Spec: provisioning 4.4, 15.31, 15.35, 15.41
#[test]
fn attempts_are_counted_by_the_retries() {
    let phase = CheckPhase::Pending;
    assert_eq!(
        Case::new().state(phase, "", Some(1)).plan().created_names(),
        ["wl-chk-2"]
    );
    assert_eq!(
        Case::new().state(phase, "", None).plan().created_names(),
        ["wl-chk-1"]
    );
}

/// Spec: provisioning 4.1 (highest attempt wins, the others are deleted)
#[test]
fn the_highest_attempt_decides_and_the_others_go() {
    let case = Case::new().request("wl-chk-10", &[("Provisioned", True, "M")]);
    let case = case
        .request("wl-chk-9", &[("Failed", True, "F")])
        .request("wl-other-1", &[]);
    let plan = case.plan();
    assert_eq!(plan.says(), (CheckPhase::Ready, "M"));
    assert_eq!(plan.deleted(), ["wl-chk-9", "wl-other-1"]);
}

/// Spec: provisioning 9, 15.44
#[test]
fn a_request_of_another_class_is_replaced() {
    let mut case = Case::new().request("wl-chk-1", &[]);
    case.requests[0].class = "old".to_owned();
    let plan = case.plan();
    assert_eq!(plan.deleted(), ["wl-chk-1"]);
    assert!(plan.created().is_empty(), "its name is still taken");
    let taken = Problem::NameTaken {
        kind: "ProvisioningRequest",
        name: "wl-chk-1".to_owned(),
    };
    assert_eq!(plan.problems, [taken]);
    case.requests.clear();
    assert_eq!(case.plan().created()[0].class, CLASS);
}

/// Spec: provisioning 16 (requests of admitted Workloads are never touched)
#[test]
fn the_request_of_an_admitted_workload_stays_whatever_the_config_becomes() {
    let mut case = Case::new().state(CheckPhase::Ready, "M", None).with("Admitted");
    case = case.request("wl-chk-1", &[("Provisioned", True, "M")]);
    case.requests[0].class = "old".to_owned();
    assert!(case.plan().actions.is_empty());
    case.checks.get_mut(&CheckName::from("chk")).unwrap().config = None;
    assert!(case.plan().actions.is_empty());
}

/// Spec: provisioning 6.1, 16 (an override is not out of sync)
#[test]
fn an_annotation_may_override_a_parameter_of_the_config() {
    let mut case = Case::new().config(|c| {
        c.parameters = BTreeMap::from([pair("a", "1"), pair("b", "1")]);
    });
    case.overrides = BTreeMap::from([pair("a", "2")]);
    let effective = BTreeMap::from([pair("a", "2"), pair("b", "1")]);
    assert_eq!(case.plan().created()[0].parameters, effective);
    let mut case = case.request("wl-chk-1", &[]);
    case.requests[0].parameters = effective;
    assert!(case.plan().actions.is_empty());
    case.requests[0].parameters.remove("b");
    assert_eq!(case.plan().deleted(), ["wl-chk-1"]);
}

/// Spec: provisioning 4.2, 6.2, 15.12, 15.16
#[test]
fn only_managed_pod_sets_are_asked_for_with_their_admitted_count() {
    let mut case = Case::new()
        .pod_set("worker", 5, Some(3))
        .pod_set("none", 0, Some(0));
    let managed = &mut case.checks.get_mut(&CheckName::from("chk")).unwrap().managed;
    managed.remove(&PodSetName::from("main"));
    assert_eq!(case.plan().sets(), [("worker", 3)]);
}

/// Spec: provisioning 4.2 (inconsistent assignments)
#[test]
fn a_pod_set_without_an_assignment_is_a_problem_and_changes_nothing() {
    let case = Case::new()
        .pod_set("worker", 5, None)
        .request("wl-chk-1", &[("Failed", True, "F")]);
    let plan = case.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.status, case.workload.status);
    assert_eq!(
        plan.problems[0].to_string(),
        "inconsistent podSet assignments: pod set \"worker\" has none"
    );
}

/// Spec: provisioning 6.2, 15.17, 15.18, 15.19, 15.20
#[test]
fn equal_pod_sets_are_merged_as_the_policy_says() {
    use MergePolicy::{IdenticalPodTemplates, IdenticalWorkloadSchedulingRequirements};
    let sets = |policy, classes: &[(&str, u32, u32)]| -> Vec<u32> {
        let case = Case::new()
            .pod_set("other", 3, Some(3))
            .config(|c| c.merge = policy);
        let plan = case.classes(classes).plan();
        plan.sets().iter().map(|(_, count)| *count).collect()
    };
    let (equal, similar, different) = (
        [("main", 0, 0), ("other", 0, 0)],
        [("main", 0, 0), ("other", 1, 0)],
        [("main", 0, 0), ("other", 1, 1)],
    );
    assert_eq!(sets(None, &equal), [4, 3]);
    assert_eq!(sets(Some(IdenticalPodTemplates), &equal), [7]);
    assert_eq!(sets(Some(IdenticalPodTemplates), &similar), [4, 3]);
    assert_eq!(sets(Some(IdenticalWorkloadSchedulingRequirements), &similar), [7]);
    assert_eq!(
        sets(Some(IdenticalWorkloadSchedulingRequirements), &different),
        [4, 3]
    );
    assert_eq!(sets(Some(IdenticalPodTemplates), &[]), [4, 3]);
}

/// Spec: provisioning 16 (merged pod sets get their updates; flavors are compared)
#[test]
fn merged_pod_sets_all_get_their_updates_but_never_cross_flavors() {
    let merged = || {
        let case = Case::new().pod_set("other", 3, Some(3));
        let case = case.config(|c| c.merge = Some(MergePolicy::IdenticalPodTemplates));
        case.classes(&[("main", 0, 0), ("other", 0, 0)])
    };
    let plan = merged().request("wl-chk-1", &[("Provisioned", True, "M")]).plan();
    let updated: Vec<_> = plan
        .check()
        .updates
        .iter()
        .map(|update| update.name.as_str())
        .collect();
    assert_eq!(updated, ["main", "other"]);
    let mut case = merged();
    let assignments = &mut case.workload.status.admission.as_mut().unwrap().pod_sets;
    assignments[1].flavors.insert("cpu".into(), "spot".into());
    assert_eq!(case.plan().sets(), [("main", 4), ("other", 3)]);
}

/// Spec: provisioning 15.42, 16 (attempt names come back after a preemption)
#[test]
fn a_template_of_a_deleted_request_is_waited_for() {
    let mut case = Case::new();
    case.templates
        .insert("ppt-wl-chk-1-main".to_owned(), TemplateOwner::Stale);
    let plan = case.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(
        plan.problems[0].to_string(),
        "PodTemplate \"ppt-wl-chk-1-main\" of an earlier attempt is still being deleted"
    );
    let mut case = Case::new().request("wl-chk-1", &[]);
    case.requests[0].deleting = true;
    let plan = case.plan();
    assert!(plan.actions.is_empty() && plan.problems.len() == 1);
    assert!(plan.notes.is_empty(), "it is no failure");
    assert_eq!(plan.says(), (CheckPhase::Pending, ""));
}

/// Spec: provisioning 4.4 (failure of a create), 15.43
#[test]
fn a_failed_creation_is_told_once_and_tried_again() {
    let mut case = Case::new();
    let failure = CreateFailure {
        kind: "ProvisioningRequest",
        name: "wl-chk-1".to_owned(),
        error: "exceeded quota".to_owned(),
    };
    case.create_failures.insert("chk".into(), failure);
    let plan = case.plan();
    let text = "Error creating ProvisioningRequest \"wl-chk-1\": exceeded quota";
    assert_eq!(plan.says(), (CheckPhase::Pending, text));
    assert_eq!(
        (plan.notes[0].severity, plan.notes[0].reason.as_ref()),
        (Severity::Warning, "FailedCreate")
    );
    assert_eq!(plan.created_names(), ["wl-chk-1"]);
    case.workload.status = plan.status;
    assert!(case.plan().notes.is_empty());
}

/// Spec: provisioning 4.4; api API-1.2
#[test]
fn words_that_are_too_long_are_cut_and_said_once() {
    let mut case = Case::new();
    let failure = CreateFailure {
        kind: "ProvisioningRequest",
        name: "wl-chk-1".to_owned(),
        error: "no ".repeat(20_000),
    };
    case.create_failures.insert("chk".into(), failure);
    let plan = case.plan();
    let (_, text) = plan.says();
    assert!(text.len() <= 32_768 && text.ends_with('…'), "{}", text.len());
    case.workload.status = plan.status;
    assert!(case.plan().notes.is_empty());
}

/// Spec: provisioning 15.47, 15.48
#[test]
fn each_check_has_its_own_request_and_unlisted_checks_have_none() {
    let mut case = Case::new();
    case.add_check("two", Some(config()));
    case.add_check("spot-only", Some(config()));
    case.workload.status.checks.remove(&CheckName::from("spot-only"));
    assert_eq!(case.plan().created_names(), ["wl-chk-1", "wl-two-1"]);
}

/// Spec: provisioning 5
#[test]
fn names_are_those_of_the_reference_while_they_fit() {
    assert_eq!(
        names::request("job-train-6e630", "dws", 2, suffix),
        "job-train-6e630-dws-2"
    );
    assert_eq!(
        names::template("job-train-6e630-dws-2", "main", suffix),
        "ppt-job-train-6e630-dws-2-main"
    );
    let cases = [
        ("wl-chk-12", Some(12)),
        ("wl-chk-", None),
        ("wl-chk-+1", None),
        ("wl-chk-1a", None),
        ("wl-chk-b-1", None),
        ("wl-chk-99999999999", None),
        ("wl-chk2-1", None),
    ];
    for (name, attempt) in cases {
        assert_eq!(names::attempt(name, "wl", "chk", suffix), attempt, "{name}");
    }
}

/// Spec: provisioning 5, 16 (long names are found by what we note on them)
#[test]
fn long_names_are_cut_and_found_by_their_identity() {
    let long = "w".repeat(names::NAME_MAX - "-chk-1".len());
    assert_eq!(names::request(&long, "chk", 1, suffix).len(), names::NAME_MAX);
    assert_eq!(
        names::request(&long, "chk", 10, suffix),
        format!("{long}-chk-1-000f8")
    );
    let mut case = Case::new().request("cut-short", &[("Provisioned", True, "M")]);
    assert_eq!(case.plan().deleted(), ["cut-short"]);
    case.requests[0].identity = Some(("chk".into(), 1));
    case.requests[0].templates = vec![names::template("cut-short", "main", suffix)];
    assert_eq!(
        (case.plan().says(), case.plan().deleted()),
        ((CheckPhase::Ready, "M"), vec![])
    );
}
