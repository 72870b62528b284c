//! What the failure of a cluster means for a Workload.

use super::RemoteAction::CreateJob;
use super::record::Record;
use super::*;

/// Spec: multikueue 13.B5, B6
#[test]
fn a_failed_cluster_is_no_candidate_until_its_time() {
    let mut case = Case::new();
    let failure = Failure {
        until: at(110),
        cause: Cause::CreateRefused,
        detail: "quota exceeded".to_owned(),
    };
    case.failures.insert("a".into(), failure);
    let plan = case.plan();
    assert_eq!(plan.nominated(), ["b"]);
    assert_eq!(plan.wake_at, Some(at(110)));
    case.remotes.insert("b".into(), away(1));
    let waiting = case.plan().waiting.unwrap();
    assert_eq!(waiting.reason(), "CreateRefusedByCluster");
    assert_eq!(
        waiting.to_string(),
        "cluster \"a\" refused to create it: quota exceeded"
    );
    case.now = 110;
    assert_eq!(case.plan().nominated(), ["a"]);
}

/// Spec: experience 1 P8; multikueue 4.4
#[test]
fn a_namespace_that_is_missing_is_named_with_every_cluster_that_lacks_it() {
    let mut case = Case::new();
    for cluster in ["a", "b"] {
        let failure = Failure {
            until: at(110),
            cause: Cause::NamespaceMissing,
            detail: "namespaces \"lab\" not found".to_owned(),
        };
        case.failures.insert(cluster.into(), failure);
    }
    let namespace = case.workload().key.namespace;
    let waiting = case.plan().waiting.unwrap();
    assert_eq!(waiting.reason(), "NamespaceMissingOnCluster");
    assert_eq!(
        waiting.to_string(),
        format!("namespace {namespace} is missing on a, b")
    );
    assert_eq!(
        waiting.next_step(),
        format!("create namespace {namespace} on a, b (roadstead sync plan a shows what it lacks)")
    );
}

/// Spec: experience 5
#[test]
fn what_a_job_names_and_no_cluster_has_is_the_reason() {
    let mut case = Case::new();
    for cluster in ["a", "b"] {
        let failure = Failure {
            until: at(110),
            cause: Cause::DependencyMissing,
            detail: "Secret \"token\"".to_owned(),
        };
        case.failures.insert(cluster.into(), failure);
    }
    let plan = case.plan();
    assert!(plan.status.nominated.is_empty(), "it starts nowhere");
    let waiting = plan.waiting.unwrap();
    assert_eq!(waiting.reason(), "DependencyMissing");
    let (said, next) = (waiting.to_string(), waiting.next_step());
    assert!(
        said.contains(" lacks what the pods of the job name: Secret \"token\""),
        "{said}"
    );
    assert!(next.starts_with("create it on cluster "), "{next}");
}

/// Spec: experience 5
#[test]
fn a_cluster_that_lacked_an_object_is_looked_at_again_and_asked_only_when_the_object_is_there() {
    let mut case = Case::new();
    case.clusters = names(&["a"]);
    let failure = Failure {
        until: at(110),
        cause: Cause::DependencyMissing,
        detail: "Secret \"token\"".to_owned(),
    };
    case.failures.insert("a".into(), failure);
    let first = case.plan();
    assert!(first.on("a").is_empty());
    assert_eq!(first.wake_at, Some(at(110)));
    case.status = first.status.clone();
    case.now = 110;
    let again = case.plan();
    assert_eq!(again.on("a"), [RemoteAction::LookForNeeds]);
    assert_eq!(again.status, first.status, "nothing is written");
    let record = |plan: &Plan| Record::after(None, plan.waiting.as_ref().unwrap(), &plan.seen, at(100));
    assert!(record(&again).says_the_same_as(&record(&first)));
    // It still lacks the object, and is excluded until a later time.
    case.failures.get_mut(&ClusterName::from("a")).unwrap().until = at(111);
    let lacks = case.plan();
    assert_eq!(lacks.status, first.status);
    assert!(record(&lacks).says_the_same_as(&record(&first)));
    case.failures.clear();
    assert_eq!(case.plan().nominated(), ["a"]);
}

/// Spec: experience 5
#[test]
fn a_cluster_that_is_tried_again_has_not_answered_yet() {
    let mut case = Case::new();
    case.clusters = names(&["a"]);
    let failure = Failure {
        until: at(110),
        cause: Cause::CreateRefused,
        detail: "forbidden".to_owned(),
    };
    case.failures.insert("a".into(), failure);
    let refused = case.plan();
    case.status = refused.status.clone();
    case.now = 110;
    let again = case.plan();
    assert_eq!(again.nominated(), ["a"]);
    assert_eq!(again.check(), refused.check(), "not \"waiting for quota\"");
    assert!(!again.is_settled(), "and no record says so");
    assert_eq!(again.wake_at, Some(at(110) + SignedDuration::from_secs(30)));
    case.now = 111;
    let mute = case.plan();
    assert_eq!(mute.check().1, "waiting for quota on \"a\"");
    assert!(mute.is_settled());
}

/// The reason is the text of the API server, with the name of the webhook.
///
/// Spec: safety F25
#[test]
fn a_winner_whose_webhook_stands_in_the_way_of_the_job_is_left_for_another() {
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), None));
    let detail = "failed calling webhook \"jobs.example.com\": connection refused".to_owned();
    let (until, cause) = (at(110), Cause::WebhookFailed);
    let failure = Failure {
        until,
        cause,
        detail: detail.clone(),
    };
    case.failures.insert("a".into(), failure);
    let plan = case.plan();
    assert!(!plan.on("a").contains(&CreateJob));
    let (phase, message) = plan.check();
    assert_eq!(phase, CheckPhase::Retry);
    assert!(message.contains(&detail), "{message}");
}

/// Spec: api API-1.2; safety S14
#[test]
fn what_a_worker_says_is_cut_to_what_a_check_can_hold() {
    let mut case = Case::won().remote("a", reachable(Some(admitted(1)), None));
    let failure = Failure {
        until: at(110),
        cause: Cause::CreateRefused,
        detail: "no ".repeat(20_000),
    };
    case.failures.insert("a".into(), failure);
    let plan = case.plan();
    let (phase, message) = plan.check();
    assert_eq!(phase, CheckPhase::Retry);
    assert!(
        message.len() <= 32_768 && message.ends_with('…'),
        "{}",
        message.len()
    );
}

/// Spec: safety 1 I3 (the lifecycle takes a verdict back when it deactivates)
#[test]
fn a_workload_that_is_being_deactivated_is_not_rejected_again() {
    let mut case = Case::new().condition("Evicted", "x");
    case.owner = Owner::NoAdapter { kind: None };
    assert_eq!(case.plan().status, case.status);
    case.status.conditions.remove("QuotaReserved");
    assert_eq!(case.plan().check().0, CheckPhase::Rejected, "switched on again");
}

/// Spec: safety 1 I2
#[test]
fn without_a_cluster_the_reason_says_so() {
    let mut case = Case::new().remote("a", away(1));
    case.remotes.remove(&ClusterName::from("b"));
    assert_eq!(case.plan().waits_for(), Some("NoClusterConnected"));
    case.clusters.clear();
    assert_eq!(case.plan().waits_for(), Some("NoClusterListed"));
}
