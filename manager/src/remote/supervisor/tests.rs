use serde_json::{Value, from_value, json};

use roadstead_kubeio::latest::Latest;

use super::super::fleet::UNAUTHORIZED;
use super::super::heartbeat::Sign;
use super::super::identity::tests::{answering, east, fleet};
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

/// An administrator's word names a loss by this time, so the word for one loss never counts for the next.
///
/// Spec: safety 3.5
#[tokio::test(start_paused = true)]
async fn each_loss_is_said_with_a_time_of_its_own_also_where_the_end_of_the_last_one_was_not_stored() {
    let at = |second| Timestamp::from_second(second).unwrap();
    for (lost_at, expected) in [(3, None), (9, Some("1970-01-01T00:00:09Z"))] {
        let active = json!([{
            "type": "Active", "status": "False", "reason": "ClientConnectionFailed", "lastTransitionTime": "1970-01-01T00:00:03Z",
            "message": "no answer; connection attempts: 1, next connection attempt: 1970-01-01T00:00:08Z",
        }]);
        let mut cluster = east("");
        cluster["status"] = json!({ "conditions": active });
        cluster["metadata"]["resourceVersion"] = json!("8");
        let (client, sent) = answering(200, cluster.clone());
        let (mut fleet, remote) = fleet(client, "");
        fleet.clock = Arc::new(move || at(9));
        fleet.clusters.observe(from_value(cluster).unwrap());
        remote.step(Event::Connected(at(1)));
        remote.step(Event::NotConnected {
            why: "no answer",
            now: at(lost_at),
        });
        fleet.settle(&remote).await;
        let sent = sent.lock().unwrap();
        let mut said = sent
            .iter()
            .map(|patch| &patch["status"]["conditions"][0]["lastTransitionTime"]);
        assert_eq!(said.next_back().and_then(Value::as_str), expected, "{sent:?}");
    }
}

/// Until its kinds are known it counts as lost, and its caches are not read.
///
/// Spec: multikueue 2.4, 11.24 (deviation)
#[tokio::test(start_paused = true)]
async fn a_worker_is_open_only_when_workloads_are_watched() {
    let (timeout, workloads) = (Duration::from_mins(1), Latest::new(Health::Starting));
    let mut health = workloads.follow();
    let why = live(&mut health, timeout).await.unwrap_err().to_string();
    assert_eq!(
        why,
        "the API server did not open the watch of Workload within 60 s"
    );
    workloads.set(Health::Failing("workloads is forbidden".to_owned()));
    let why = live(&mut health, timeout).await.unwrap_err().to_string();
    assert_eq!(why, "workloads is forbidden");
    workloads.set(Health::Failing("404 page not found".to_owned()));
    let why = live(&mut health, timeout).await.unwrap_err().to_string();
    assert!(why.starts_with("Workload is not served there"), "{why}");
    workloads.set(Health::Live);
    assert_eq!(live(&mut health, timeout).await, Ok(()));
    workloads.set(Health::Failing("gone".to_owned()));
    assert_eq!(failure(&mut health).await, "gone");
}

/// Its open watches go on, so only a request shows it.
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
    let why = live(&mut health, Duration::from_secs(1))
        .await
        .unwrap_err()
        .to_string();
    assert!(why.contains("roadstead cluster join"), "{why}");
}
