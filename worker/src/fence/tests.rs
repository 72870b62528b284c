use std::sync::atomic::AtomicU32;

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::*;

/// A lease renewed this many times, for half a minute each.
fn renewed(times: u64) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.uid = Some("lease".into());
    let number = (annotations::LEASE_RENEWAL.to_owned(), times.to_string());
    lease.metadata.annotations = Some([number].into());
    lease.spec.get_or_insert_default().lease_duration_seconds = Some(30);
    lease
}

fn at(millis: u64) -> Moment {
    Moment::after_start(Duration::from_millis(millis))
}

/// A job that asks while a look is under way may be refused, and must hear that it may start after all.
///
/// Spec: safety 3.3
#[test]
fn a_lease_that_lapsed_between_two_looks_relieves_those_who_asked_meanwhile() {
    let mut manager = Manager::default();
    for second in 1..=3 {
        let now = at(second * 1000);
        manager.looked(now, now, Some(renewed(second)));
    }
    assert_eq!(manager.settle(at(3000)).1, Standing::Held);
    assert_eq!(manager.settle(at(20_900)), (Some(Standing::Held), Standing::Held));
    let lapsed = at(22_100);
    assert_eq!(manager.watch.standing(lapsed), Standing::Doubtful);
    manager.looked(lapsed, at(22_105), Some(renewed(9)));
    assert_eq!(
        manager.settle(at(22_105)),
        (Some(Standing::Doubtful), Standing::Held)
    );
}

/// Otherwise a client that can write the Lease could delay the fence for ever, and the manager would start the same jobs
/// elsewhere.
///
/// Spec: safety 3.2, 3.5
#[test]
fn a_lease_on_which_somebody_has_written_years_ends_with_the_limit() {
    let edited = |number: u64| {
        let mut lease = renewed(number);
        lease.spec.get_or_insert_default().lease_duration_seconds = Some(i32::MAX);
        lease
    };
    let (mut manager, mut told) = (Manager::default(), Trouble::default());
    for second in 1..=3 {
        let now = at(second * 1000);
        tell_excess("north", Some(&edited(second)), &mut told);
        manager.looked(now, now, Some(edited(second)));
    }
    assert_eq!(manager.settle(at(3000)).1, Standing::Held);
    assert!(told.ends(), "it was told");
    let ends = at(3000).plus(LENGTH_MAX);
    assert_eq!(manager.watch.standing(ends), Standing::Expired);
    tell_excess("north", Some(&renewed(4)), &mut told);
    assert!(!told.ends(), "the manager has put it right");
}

/// Spec: safety 3.3
#[test]
fn no_answer_is_waited_for_beyond_the_moment_at_which_something_is_to_be_done() {
    let now = at(1000);
    assert_eq!(patience(None, now), LOOK_MAX);
    assert_eq!(patience(Some(at(60_000)), now), LOOK_MAX);
    assert_eq!(patience(Some(at(1900)), now), Duration::from_millis(900));
    assert_eq!(patience(Some(at(1000)), now), PAUSE_MIN);
}

/// An API server with the leases of two managers that never answers a change of a Workload. It counts looks, marks and the
/// requests that it does not answer.
fn hanging(counts: &Arc<[AtomicU32; 3]>) -> Client {
    let counts = counts.clone();
    let lease = |origin: &str| {
        let mut lease = renewed(1);
        lease.metadata.name = Some(origin.to_owned());
        lease.metadata.labels = Some([(labels::MULTIKUEUE_ORIGIN.to_owned(), origin.to_owned())].into());
        serde_json::to_value(lease).unwrap()
    };
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_look = request.method() == Method::GET;
        let hangs = request.uri().path().contains("/workloads/");
        let kind = if hangs { 2 } else { usize::from(!is_look) };
        counts[kind].fetch_add(1, Ordering::Relaxed);
        let body: Value = if is_look {
            json!({ "metadata": {}, "items": [lease("north"), lease("south")] })
        } else {
            lease("north")
        };
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, std::io::Error>(Response::new(body))
        }
    });
    Client::new(service, "ns")
}

/// Spec: safety 3.3, I12
#[tokio::test(start_paused = true)]
async fn a_stop_that_is_not_answered_holds_up_neither_looks_nor_marks_nor_what_another_manager_is_to_have_stopped()
 {
    let counts = Arc::new([const { AtomicU32::new(0) }; 3]);
    let fence = Fence {
        client: hanging(&counts),
        namespace: "leases".to_owned(),
        caches: Caches::new(&[]),
        jobs_due: Arc::new(Queue::default()),
        uptime: Uptime::start(),
        knowledge: Arc::default(),
        metrics: Metrics::default(),
    };
    for origin in ["north", "south"] {
        fence.caches.workloads.observe(
            serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                "metadata": {
                    "name": origin, "namespace": "ns", "uid": origin, "resourceVersion": "1",
                    "labels": { labels::MULTIKUEUE_ORIGIN: origin },
                    "annotations": { annotations::WORKER_LOST_POLICY: "Fence" },
                },
                "spec": { "queueName": "q", "podSets": [] },
            }))
            .unwrap(),
        );
    }
    let count = |kind: usize| counts[kind].load(Ordering::Relaxed);
    let watched = |time| tokio::time::timeout(time, fence.watch_over());
    assert!(watched(Duration::from_secs(55)).await.is_err());
    assert_eq!(count(2), 2, "what is under way is not begun again");
    let (looks, marks) = (count(0), count(1));
    assert!(looks > 10 && marks > 6, "{looks} looks, {marks} marks");
}
