use serde_json::json;

use super::*;
use crate::constants::conditions;

fn workload(status: &Value) -> Workload {
    serde_json::from_value(json!({"metadata": {"name": "w"}, "spec": {"active": false}, "status": status}))
        .unwrap()
}

#[test]
fn a_condition_is_true_only_with_that_status() {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z",
        })
    };
    let workload = workload(
        &json!({"conditions": [condition("QuotaReserved", "True"), condition("Admitted", "False")]}),
    );
    assert!(workload.is_true(conditions::workload::QUOTA_RESERVED));
    assert!(!workload.is_true(conditions::workload::ADMITTED));
    assert!(workload.condition(conditions::workload::ADMITTED).is_some());
    assert!(workload.condition(conditions::workload::FINISHED).is_none());
    assert!(!Workload::default().is_true(conditions::workload::ADMITTED));
}

#[test]
fn absent_parts_of_the_status_are_none() {
    let empty = workload(&json!({}));
    assert!(!empty.is_active());
    assert_eq!(
        (
            empty.cluster_name(),
            empty.admission(),
            empty.admission_check("nodes")
        ),
        (None, None, None)
    );

    let check = json!({"name": "nodes", "state": "Ready", "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z"});
    let full = workload(
        &json!({"clusterName": "berlin", "admission": {"clusterQueue": "q"}, "admissionChecks": [check]}),
    );
    assert_eq!(full.cluster_name(), Some("berlin"));
    assert_eq!(
        full.admission().map(|admission| admission.cluster_queue.as_str()),
        Some("q")
    );
    assert_eq!(
        full.admission_check("nodes").map(|check| check.state),
        Some(CheckState::Ready)
    );
}

#[test]
fn a_template_shows_no_content_when_it_is_logged() {
    let content = Map::from_iter([("spec".to_owned(), json!({"env": "hush"}))]);
    let template = RawTemplate::from(content);
    assert_eq!(format!("{template:?}"), r#"RawTemplate(["spec"])"#);
    assert_eq!(template.to_value(), json!({"spec": {"env": "hush"}}));
    assert_eq!(template.get("spec"), Some(&json!({"env": "hush"})));
    assert_eq!(template.get("metadata"), None);
}
