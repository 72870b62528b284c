//! Two replicas of one process: one leads, and the other takes over when it ends, or is stopped and does not know it.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::annotations::DISPATCH_EPOCH;
use roadstead_e2e::audit;
use roadstead_e2e::stage::{Part, SYSTEM_NAMESPACE};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{EAST, EVEN, MANAGER, Room, alone};
use crate::shared::eventually;

/// The second replicas; each has a name of its own, by which the API server's log knows it.
const HEIR: &str = "heir";
const NEXT: &str = "next";
const SECOND: &str = "second";
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
const LEASE_SECS: u64 = 6;
/// Less than the lease: the second has not just waited for its end.
const HANDOVER_MAX: Duration = Duration::from_secs(4);
/// Only east has room.
const EAST_ONLY: &[(&str, &str)] = &[(MANAGER, "8"), (EAST, "8")];
/// Until a request has certainly come to the log.
const LOGGED: Duration = Duration::from_secs(1);

fn short() -> Value {
    json!({"leaderElection": {
        "leaseDuration": format!("{LEASE_SECS}s"), "renewDeadline": "4s", "retryPeriod": "500ms",
    }})
}

/// Runs a test for which the process of a cluster has a second replica, `other`. Afterwards it has none, also when the test failed.
fn with_two<F: Future<Output = ()> + Send + 'static>(
    (name, other): (&'static str, &'static str),
    quota: &'static [(&str, &str)],
    (cluster, part): (&'static str, Part),
    body: impl FnOnce(Room) -> F + Send + 'static,
) {
    alone(name, quota, move |room| async move {
        let stage = &room.shared.stage;
        let ended = tokio::spawn(async move {
            stage.recast(cluster, part, &short()).await.unwrap();
            stage.add_replica(cluster, other, &short()).await.unwrap();
            body(room).await;
        })
        .await;
        if ended.is_err() {
            room.tell().await;
            let log = fs::read_to_string(stage.log(cluster).unwrap()).unwrap();
            room.shared.say(&log);
        }
        stage.kill(cluster).unwrap();
        stage.dismiss(other);
        // Why: else the next one would wait for its end.
        let gone = leases(room, cluster)
            .delete(LEASE, &DeleteParams::default())
            .await;
        stage.recast(cluster, part, &json!({})).await.unwrap();
        ended.unwrap();
        gone.unwrap();
    });
}

fn leases(room: Room, cluster: &str) -> Api<Lease> {
    Api::namespaced(room.shared.client(cluster), SYSTEM_NAMESPACE)
}

/// The place of the replica that holds the Lease in a cluster.
async fn holder(room: Room, cluster: &str) -> Option<String> {
    let lease = leases(room, cluster).get(LEASE).await.ok()?;
    let holder = lease.spec?.holder_identity?;
    Some(holder.split_once('#')?.0.to_owned())
}

/// Waits until this replica leads. Returns how long that took.
async fn leads(room: Room, cluster: &str, replica: &str) -> Duration {
    let began = Instant::now();
    eventually(|| async { (holder(room, cluster).await.as_deref() == Some(replica)).then_some(()) }).await;
    began.elapsed()
}

/// Values of label `replica_role` in the metrics of a process.
async fn roles(room: Room, process: &str) -> Vec<String> {
    let lines = room.shared.metrics(process, "kueue_").await;
    let role = |line: &String| {
        let (_, rest) = line.split_once("replica_role=\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let mut roles: Vec<String> = lines.iter().filter_map(role).collect();
    roles.sort();
    roles.dedup();
    roles
}

/// The job ran once and was never taken from its worker.
async fn ran_once(room: Room, name: &str) {
    let job = room.job_is(MANAGER, name, "Complete").await;
    assert_eq!(job.status.unwrap().succeeded, Some(1), "{name}");
    let workload = room.workload(name).await.unwrap();
    assert_eq!(workload.annotations().get(DISPATCH_EPOCH), None, "{name}");
}

/// What a replica has changed in the management cluster; without what was refused, such as the renewal of a Lease that another has
/// taken, and of questions in the form of a change.
fn changes_by(room: Room, replica: &str) -> Vec<String> {
    let log = room.shared.stage.planes().manager.audit_log().unwrap();
    let agent = format!("roadstead-manager ({replica})");
    let changes = |request: &audit::Request| {
        let verb = request.verb.as_str();
        request.user_agent == agent
            && request.code < 300
            && !request.resource.ends_with("reviews")
            && ["create", "update", "patch", "delete"].contains(&verb)
    };
    let mut found = audit::read(&log).unwrap();
    found.retain(changes);
    let say =
        |request: audit::Request| format!("{} {} {}", request.verb, request.resource, request.subresource);
    found.into_iter().map(say).collect()
}

/// What it does while it is stopped is done by the other; what it would have done then, it does not do when it goes on.
///
/// Spec: safety F6, I1, I11
#[test]
fn a_leader_that_is_stopped_past_its_lease_has_lost_and_changes_nothing_when_it_goes_on() {
    with_two(
        ("zombie-leader", HEIR),
        EVEN,
        (MANAGER, Part::Manager),
        |room| async move {
            let stage = &room.shared.stage;
            assert_eq!(holder(room, MANAGER).await.as_deref(), Some(MANAGER));
            assert_eq!(roles(room, MANAGER).await, ["leader"]);
            assert_eq!(roles(room, HEIR).await, ["follower"]);
            room.submit(room.job("before", "1", 12)).await;
            room.started("before").await;
            assert_ne!(changes_by(room, MANAGER).len(), 0);
            assert_eq!(changes_by(room, HEIR), [""; 0], "it waits");

            stage.pause(MANAGER).unwrap();
            let took = leads(room, MANAGER, HEIR).await;
            room.shared.say(&format!(
                "another leads {} ms after the leader was stopped",
                took.as_millis()
            ));
            room.insist(room.job("during", "1", 1)).await;
            room.started("during").await;
            assert_eq!(roles(room, HEIR).await, ["leader"]);

            let changes = changes_by(room, MANAGER);
            stage.resume(MANAGER).unwrap();
            let thawed = Instant::now();
            let end = eventually(|| async { stage.take_end(MANAGER).unwrap() }).await;
            assert_eq!(end.code(), Some(1), "{end}");
            assert!(thawed.elapsed() < HANDOVER_MAX, "{:?}", thawed.elapsed());
            let log = fs::read_to_string(stage.log(MANAGER).unwrap()).unwrap();
            assert!(log.contains("this replica leads no more"), "{log}");
            sleep(LOGGED).await;
            assert_eq!(changes_by(room, MANAGER), changes);
            // Its supervisor starts it again, and it follows.
            stage.restart(MANAGER).await.unwrap();
            assert_eq!(holder(room, MANAGER).await.as_deref(), Some(HEIR));
            assert_eq!(roles(room, MANAGER).await, ["follower"]);
            for job in ["before", "during"] {
                ran_once(room, job).await;
            }
            room.is_swept().await;
        },
    );
}

/// Spec: safety F6, I2
#[test]
fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    with_two(
        ("hands-over", NEXT),
        EVEN,
        (MANAGER, Part::Manager),
        |room| async move {
            let stage = &room.shared.stage;
            room.submit(room.job("before", "1", 4)).await;
            room.started("before").await;
            stage.terminate(MANAGER).unwrap();
            let took = leads(room, MANAGER, NEXT).await;
            room.shared
                .say(&format!("handed over in {} ms", took.as_millis()));
            assert!(took < HANDOVER_MAX, "{took:?}");
            let end = eventually(|| async { stage.take_end(MANAGER).unwrap() }).await;
            assert_eq!(end.code(), Some(0), "{end}");
            room.insist(room.job("after", "1", 1)).await;
            for job in ["before", "after"] {
                ran_once(room, job).await;
            }
            // One that is killed takes its own lease back at once.
            let killed = Instant::now();
            stage.restart(NEXT).await.unwrap();
            assert_eq!(holder(room, MANAGER).await.as_deref(), Some(NEXT));
            assert_eq!(roles(room, NEXT).await, ["leader"]);
            assert!(
                killed.elapsed() < Duration::from_secs(LEASE_SECS),
                "{:?}",
                killed.elapsed()
            );
            room.is_swept().await;
        },
    );
}

/// Spec: safety F6
#[test]
fn a_worker_has_replicas_too() {
    with_two(
        ("worker-replicas", SECOND),
        EAST_ONLY,
        (EAST, Part::Worker),
        |room| async move {
            let stage = &room.shared.stage;
            assert_eq!(roles(room, SECOND).await, ["follower"]);
            room.submit(room.job("before", "1", 8)).await;
            room.started("before").await;
            stage.pause(EAST).unwrap();
            leads(room, EAST, SECOND).await;
            room.insist(room.job("during", "1", 1)).await;
            room.started("during").await;
            stage.resume(EAST).unwrap();
            let end = eventually(|| async { stage.take_end(EAST).unwrap() }).await;
            assert_eq!(end.code(), Some(1), "{end}");
            for job in ["before", "during"] {
                ran_once(room, job).await;
            }
            room.is_swept().await;
        },
    );
}
