use serde_json::{Value, from_value, json};

use roadstead_kubeio::latest::Latest;

use super::super::identity::tests::{answering, east, fleet};
use super::super::sign::Sign;
use super::*;

/// The cluster `east` with this in its metadata or its status.
fn cluster(part: &str, field: &str, value: Value) -> Arc<MultiKueueCluster> {
    let mut cluster = json!({
        "metadata": {"name": "east", "uid": "1", "generation": 1},
        "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}},
        "status": {},
    });
    cluster[part][field] = value;
    Arc::new(from_value(cluster).unwrap())
}

/// Spec: multikueue 11.27
#[test]
fn a_cluster_is_not_looked_at_again_for_a_status() {
    let before = cluster("metadata", "generation", json!(1));
    let key = Key::new("", "east");
    let is_looked_at = |new: Option<&Arc<MultiKueueCluster>>| {
        let old = Some(&before);
        has_new_meaning(&Change { key: &key, old, new })
    };
    let now = "2026-01-01T00:00:00Z";
    let active = json!([{"type": "Active", "status": "False", "reason": "BadKubeConfig", "message": "", "lastTransitionTime": now}]);
    assert!(!is_looked_at(Some(&cluster("status", "conditions", active))));
    for (field, value) in [
        ("generation", json!(2)),
        ("deletionTimestamp", json!(now)),
        ("uid", json!("2")),
    ] {
        assert!(is_looked_at(Some(&cluster("metadata", field, value))), "{field}");
    }
    assert!(is_looked_at(None));
}

/// What stands in the API server when people are told can be taken away by who knows of the loss; before that nothing can.
///
/// Spec: safety 3.5
#[tokio::test(start_paused = true)]
async fn a_loss_is_known_to_people_once_its_condition_is_stored_and_only_that_loss() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let (client, _) = answering(200, east(""));
    let (fleet, remote) = fleet(client, "", None);
    let stayed = || {
        remote
            .told_lost_since()
            .map(|since| remote.witnessed(|w| w.stood(since, None)).stayed)
    };
    let lose = |second| {
        remote.with(|link| {
            link.connection.opened();
            link.shown = Some(link.connection.clone());
            link.connection.watch_ended(at(second));
        });
    };
    lose(1);
    fleet.say(&remote).await;
    assert_eq!(stayed(), None, "the condition is True");
    assert!(fleet.changed.take_now().is_empty());
    remote.with(|link| link.connection.failed("no answer", at(61)));
    fleet.settle(&remote).await;
    assert_eq!((remote.told_lost_since(), stayed()), (Some(at(1)), Some(true)));
    assert_eq!(fleet.changed.take_now(), ["east".into()].into());
    lose(99);
    assert_eq!(stayed(), None, "of this one nobody is told yet");

    let (refusing, _) = answering(
        403,
        json!({"kind": "Status", "code": 403, "message": "no right", "reason": "Forbidden"}),
    );
    let (fleet, remote) = super::super::identity::tests::fleet(refusing, "", None);
    remote.with(|link| link.connection.failed("no answer", at(1)));
    fleet.settle(&remote).await;
    assert_eq!(remote.told_lost_since(), None, "nobody was told");
}

/// What is answered then is a version in which it changed, so not one of before this loss.
///
/// Spec: safety 3.5
#[tokio::test(start_paused = true)]
async fn where_active_was_false_the_next_loss_is_written_only_over_what_was_read() {
    let active = json!([{"type": "Active", "status": "False", "reason": "BadKubeConfig", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    for (conditions, expected) in [(active, json!("8")), (json!([]), Value::Null)] {
        let mut cluster = east("");
        cluster["status"] = json!({ "conditions": conditions });
        cluster["metadata"]["resourceVersion"] = json!("8");
        let (client, sent) = answering(200, cluster.clone());
        let (fleet, remote) = fleet(client, "", None);
        fleet.clusters.observe(from_value(cluster).unwrap());
        remote.with(|link| link.connection.failed("no answer", Timestamp::UNIX_EPOCH));
        fleet.settle(&remote).await;
        let sent = sent.lock().unwrap();
        assert_eq!(sent[0]["metadata"]["resourceVersion"], expected, "{sent:?}");
    }
}

/// Until they are, it counts as lost, and nothing that its caches hold is looked at.
///
/// Spec: multikueue 2.4, 11.24 (deviation)
#[tokio::test(start_paused = true)]
async fn a_worker_is_open_only_when_workloads_are_watched() {
    let (timeout, workloads) = (Duration::from_mins(1), Latest::new(Health::Starting));
    let mut health = workloads.follow();
    let why = live(&mut health, timeout).await.unwrap_err();
    assert_eq!(
        why,
        "the API server did not open all watches within 60 s; not of Workload"
    );
    workloads.set(Health::Failing("workloads is forbidden".to_owned()));
    let why = live(&mut health, timeout).await.unwrap_err();
    assert_eq!(why, "workloads is forbidden");
    workloads.set(Health::Failing("404 page not found".to_owned()));
    let why = live(&mut health, timeout).await.unwrap_err();
    assert!(why.starts_with("Workload is not served there"), "{why}");
    workloads.set(Health::Live);
    assert_eq!(live(&mut health, timeout).await, Ok(()));
    workloads.set(Health::Failing("gone".to_owned()));
    assert_eq!(failure(&mut health).await, "gone");
}

/// Its open watches speak on, so only asking shows it.
///
/// Spec: safety F19
#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_know_our_credential_does_not_count_as_alive() {
    let refused = |code: u16| {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        Err::<(), _>(kube::Error::Api(Box::new(status)))
    };
    assert_eq!(Sign::of(Ok(&refused(401))), Sign::Unauthorized);
    assert_eq!(Sign::of(Ok(&refused(403))), Sign::Lives);
    assert_eq!(Sign::of(Ok(&refused(500))), Sign::Lives);
    assert_eq!(Sign::of(Ok(&Ok(()))), Sign::Lives);
    let elapsed = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
    assert_eq!(Sign::of::<()>(Err(&elapsed.unwrap_err())), Sign::Silent);

    let mut health = Latest::new(Health::Failing(UNAUTHORIZED.to_owned())).follow();
    let why = live(&mut health, Duration::from_secs(1)).await.unwrap_err();
    assert!(why.contains("roadstead cluster join"), "{why}");
}
