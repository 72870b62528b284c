use super::CheckPhase::{Pending, Ready, Rejected, Retry};
use super::Truth::{False, True};
use super::*;

fn failed(attempt: u32, retries: Option<u32>) -> Case {
    let name = format!("wl-chk-{attempt}");
    Case::new()
        .state(Pending, "", retries)
        .request(&name, &[("Failed", True, "F")])
}

/// Spec: provisioning 4.3 row 1, 15.46
#[test]
fn row_1_without_a_config_the_check_is_not_active() {
    let mut case = Case::new().request("wl-chk-1", &[]);
    case.checks.get_mut(&CheckName::from("chk")).unwrap().config = None;
    let plan = case.plan();
    assert_eq!(plan.says(), (Pending, "the check is not active"));
    assert_eq!(plan.deleted(), ["wl-chk-1"]);
}

/// Spec: provisioning 4.3 row 2, 15.13, 15.15
#[test]
fn row_2_a_request_that_is_not_needed_is_not_made() {
    let mut unmanaged = Case::new();
    unmanaged
        .checks
        .get_mut(&CheckName::from("chk"))
        .unwrap()
        .managed
        .clear();
    let mut empty = Case::new();
    empty.workload.status.admission.as_mut().unwrap().pod_sets[0].count = 0;
    for case in [unmanaged, empty] {
        let plan = case.plan();
        assert_eq!(plan.says(), (Ready, "the provisioning request is not needed"));
        assert!(plan.actions.is_empty() && plan.check().updates.is_empty());
    }
}

/// Spec: provisioning 4.3 row 3, 16 (one check does not hold up the others)
#[test]
fn row_3_a_check_without_a_request_does_not_hold_up_the_others() {
    let mut case = Case::new();
    case.add_check("another", Some(config()));
    let plan = case.request("wl-chk-1", &[("Provisioned", True, "M")]).plan();
    assert_eq!(plan.says(), (Ready, "M"));
    assert_eq!(plan.created_names(), ["wl-another-1"]);
    assert!(plan.deleted().is_empty());
}

/// Spec: provisioning 4.3 row 4, 15.27
#[test]
fn row_4_a_failure_within_the_limit_is_a_retry_after_a_delay() {
    let plan = failed(1, None).plan();
    assert_eq!(plan.says(), (Retry, "Retrying after failure: F"));
    assert_eq!(plan.check().requeue_after_secs, Some(60));
    assert_eq!(plan.check().retry_count, None, "eviction counts");
    assert!(plan.actions.is_empty());
    let text =
        "Admission check chk updated state from Pending to Retry with message: Retrying after failure: F";
    assert_eq!(
        (plan.notes[0].reason.as_ref(), plan.notes[0].message.as_str()),
        ("AdmissionCheckUpdated", text)
    );
}

/// Spec: provisioning 4.3 row 4 (attempt > retryCount), 4.4
#[test]
fn row_4_an_old_failure_causes_no_second_retry_but_the_next_attempt() {
    let plan = failed(1, Some(1)).plan();
    assert_eq!(plan.says(), (Pending, ""));
    assert_eq!(plan.created_names(), ["wl-chk-2"]);
}

/// Spec: provisioning 4.3 row 4
#[test]
fn row_4_a_retry_that_is_written_is_not_moved() {
    let first = failed(1, None).plan();
    let mut again = failed(1, None);
    again.workload.status = first.status.clone();
    let second = again.plan();
    assert_eq!(second.status, first.status);
    assert!(second.notes.is_empty() && second.actions.is_empty());
}

/// Spec: provisioning 8 (table), 15.34
#[test]
fn delays_grow_with_the_retries() {
    let secs = |max: u32| -> Vec<_> {
        let attempts = 1..=3;
        let delay = attempts.map(|n| {
            let case = failed(n, n.checked_sub(1)).config(|c| c.backoff.max_secs = max);
            case.plan().check().requeue_after_secs.unwrap()
        });
        delay.collect()
    };
    assert_eq!((secs(1800), secs(100)), (vec![60, 120, 240], vec![60, 100, 100]));
}

/// Spec: provisioning 4.3 row 5, 15.32, 15.33
#[test]
fn row_5_a_failure_beyond_the_limit_is_final() {
    assert_eq!(failed(4, Some(3)).plan().says(), (Rejected, "F"));
    assert_eq!(
        failed(1, None).config(|c| c.retry_limit = 0).plan().says(),
        (Rejected, "F")
    );
}

/// Spec: provisioning 4.3 row 6, 15.38
#[test]
fn row_6_revoked_capacity_ends_even_a_running_workload() {
    let revoked = || {
        let case = Case::new().state(Ready, "M", None).with("Admitted");
        case.request(
            "wl-chk-1",
            &[("CapacityRevoked", True, "R"), ("Provisioned", True, "M")],
        )
    };
    assert_eq!(revoked().plan().says(), (Rejected, "R"));
    let mut inactive = revoked();
    inactive.workload.active = false;
    assert_eq!(inactive.plan().says(), (Ready, "M"));
}

/// Spec: provisioning 4.3 row 7, 15.36
#[test]
fn row_7_a_booking_that_ends_before_admission_is_a_retry() {
    let case = Case::new().state(Ready, "M", None);
    let plan = case
        .request(
            "wl-chk-1",
            &[("BookingExpired", True, "B"), ("Provisioned", True, "M")],
        )
        .plan();
    assert_eq!(plan.says(), (Retry, "Retrying after booking expired: B"));
    assert_eq!(plan.check().requeue_after_secs, Some(60));
}

/// Spec: provisioning 4.3 row 8
#[test]
fn row_8_a_booking_that_ends_beyond_the_limit_is_final() {
    let case = Case::new().request("wl-chk-4", &[("BookingExpired", True, "B")]);
    assert_eq!(case.plan().says(), (Rejected, "B"));
}

/// Spec: provisioning 4.3 row 9, 15.37
#[test]
fn row_9_a_booking_that_ends_while_it_runs_changes_nothing() {
    let case = Case::new().state(Ready, "M", None).with("Admitted");
    let case = case.request(
        "wl-chk-1",
        &[("BookingExpired", True, "B"), ("Provisioned", True, "M")],
    );
    let plan = case.plan();
    assert_eq!(plan.status, case.workload.status);
    assert!(plan.actions.is_empty());
}

/// Spec: provisioning 4.3 row 10, 6.3, 15.23, 15.24, 15.25
#[test]
fn row_10_provisioned_capacity_makes_it_ready_and_goes_to_the_pods() {
    let case = Case::new().config(|c| {
        c.node_selector = vec![pair("pool", "NodeGroup"), pair("zone", "Missing")];
    });
    let mut case = case.request("wl-chk-1", &[("Provisioned", True, "M")]);
    case.requests[0].details = BTreeMap::from([pair("NodeGroup", "ng-1")]);
    let plan = case.plan();
    assert_eq!(plan.says(), (Ready, "M"));
    let [update] = plan.check().updates.as_slice() else {
        panic!("one update")
    };
    assert_eq!(update.name.as_str(), "main");
    let annotations = [
        pair(CONSUME_ANNOTATION, "wl-chk-1"),
        pair(CLASS_ANNOTATION, CLASS),
    ];
    assert_eq!(update.annotations, BTreeMap::from(annotations));
    assert_eq!(update.node_selector, BTreeMap::from([pair("pool", "ng-1")]));
    let text = "Admission check chk updated state from Pending to Ready with message: M";
    assert_eq!(plan.notes[0].message, text);
}

/// Spec: provisioning 4.3 rows 11 and 12, 15.21, 15.22
#[test]
fn rows_11_and_12_an_estimate_is_shown_and_a_bare_acceptance_changes_nothing() {
    let waiting = [("Accepted", True, "A"), ("Provisioned", False, "ETA 10 min")];
    assert_eq!(
        Case::new().request("wl-chk-1", &waiting).plan().says(),
        (Pending, "ETA 10 min")
    );
    let bare = Case::new()
        .state(Pending, "before", None)
        .request("wl-chk-1", &waiting[..1]);
    assert_eq!(bare.plan().says(), (Pending, "before"));
}

/// Spec: provisioning 4.3 row 13, 15.43
#[test]
fn row_13_a_request_without_an_answer_clears_old_words() {
    let case = Case::new().state(Pending, "Error creating ProvisioningRequest \"x\": y", None);
    assert_eq!(case.request("wl-chk-1", &[]).plan().says(), (Pending, ""));
}

/// Spec: provisioning 4.3 (order of precedence), 15.40
#[test]
fn failed_is_stronger_than_provisioned() {
    let case = Case::new().request("wl-chk-1", &[("Provisioned", True, "M"), ("Failed", True, "F")]);
    assert_eq!(case.plan().says(), (Retry, "Retrying after failure: F"));
}

/// Spec: provisioning 8
#[test]
fn jitter_never_shortens_a_delay() {
    let backoff = config().backoff;
    for jitter in [0.0, 0.5, 1.0] {
        let delay = SignedDuration::from_secs(backoff.delay_secs(1, jitter).into());
        assert_eq!(delay, SignedDuration::from_secs(60));
    }
}
