use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::client::Body;
use roadstead_core::note::Note;
use roadstead_core::note::Severity::{Normal, Warning};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    BURST, FLUSH_MAX, FOR_WARNINGS, LATE, LINGER, QUIET, RATION, REST_PER_WORK, Ration, Recorder, Told,
    Unwritten, event, recorder,
};

/// Reasons of the events that arrived, and when.
type Arrived = Arc<Mutex<Vec<(String, Duration)>>>;

/// A recorder whose API server takes `took` for each event.
fn slow(took: Duration) -> (Recorder, Arrived) {
    let (recorder, arrived, _) = stoppable(took, &CancellationToken::new());
    (recorder, arrived)
}

/// As [`slow`], until it is stopped, and the task that writes.
fn stoppable(took: Duration, stop: &CancellationToken) -> (Recorder, Arrived, tokio::task::JoinHandle<()>) {
    let (arrived, start) = (Arrived::default(), Instant::now());
    let list = arrived.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let list = list.clone();
        async move {
            let body = request.into_body().collect_bytes().await.unwrap_or_default();
            let event: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let reason = event["reason"].as_str().unwrap_or_default().to_owned();
            let at = start.elapsed();
            list.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((reason, at));
            sleep(took).await;
            Ok::<_, std::io::Error>(http::Response::new(Body::from(body.to_vec())))
        }
    });
    let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let client = Client::new(server, "ns");
    let (recorder, work) = recorder(client, "test", clock, stop.clone());
    (recorder, arrived, tokio::spawn(work))
}

fn job() -> ObjectReference {
    ObjectReference {
        name: Some("job".to_owned()),
        namespace: Some("ns".to_owned()),
        ..ObjectReference::default()
    }
}

fn arrived(arrived: &Arrived) -> Vec<(String, Duration)> {
    arrived.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::test(start_paused = true)]
async fn warnings_and_reasons_are_written_at_once_and_the_routine_a_little_later() {
    let (recorder, list) = slow(Duration::from_millis(10));
    recorder.record(job(), Note::routine("Admitted", "on east"));
    recorder.record(job(), Note::warning("Lost", "east"));
    recorder.record(job(), Note::warning("Lost", "east"));
    recorder.record(job(), Note::normal("Waiting", "for quota"));
    sleep(LINGER / 2).await;
    let mut first = arrived(&list);
    first.sort();
    assert_eq!(first.len(), 2, "the same is told once");
    assert_eq!((&*first[0].0, &*first[1].0), ("Lost", "Waiting"));
    assert!(first.iter().all(|(_, at)| *at < Duration::from_millis(10)));
    sleep(LINGER).await;
    let all = arrived(&list);
    assert_eq!(all.len(), 3);
    assert_eq!(all[2].0, "Admitted");
    assert!(all[2].1 >= LINGER);
}

/// Spec: admission-engine 2.13
#[tokio::test(start_paused = true)]
async fn what_waits_at_the_stop_is_still_written_but_not_for_long() {
    let stop = CancellationToken::new();
    let (recorder, list, work) = stoppable(Duration::from_millis(10), &stop);
    recorder.record(job(), Note::routine("QuotaReserved", "a"));
    recorder.record(job(), Note::routine("Admitted", "a"));
    recorder.record(job(), Note::normal("Preempted", "b"));
    stop.cancel();
    let stopped = Instant::now();
    work.await.unwrap();
    let mut told: Vec<String> = arrived(&list).into_iter().map(|(reason, _)| reason).collect();
    told.sort();
    assert_eq!(told, ["Admitted", "Preempted", "QuotaReserved"]);
    assert!(stopped.elapsed() < LINGER);

    let stop = CancellationToken::new();
    let (recorder, list, work) = stoppable(Duration::from_hours(1), &stop);
    recorder.record(job(), Note::normal("Preempted", "b"));
    stop.cancel();
    let stopped = Instant::now();
    work.await.unwrap();
    assert_eq!(arrived(&list).len(), 1);
    assert_eq!(stopped.elapsed(), FLUSH_MAX, "an API server that hangs");
}

#[tokio::test(start_paused = true)]
async fn the_routine_takes_a_twentieth_of_the_time_and_none_that_is_old_is_written() {
    let took = Duration::from_millis(100);
    let (recorder, list) = slow(took);
    let every = took * (1 + REST_PER_WORK);
    let in_time =
        usize::try_from(LATE.saturating_sub(LINGER).as_millis() / every.as_millis()).unwrap_or_default();
    for number in 0..in_time * 2 {
        recorder.record(job(), Note::routine(format!("Admitted{number}"), "on east"));
    }
    sleep(LATE * 2).await;
    let written = arrived(&list);
    assert!(
        written.len().abs_diff(in_time) <= 2,
        "{} of about {in_time}",
        written.len()
    );
    for (number, two) in written.windows(2).enumerate() {
        assert_eq!(two[0].0, format!("Admitted{number}"));
        assert!(two[1].1.saturating_sub(two[0].1) >= every);
    }
    let dropped = usize::try_from(recorder.dropped()).unwrap_or_default();
    assert_eq!(dropped, in_time * 2 - written.len());
    // The next events are handled as if nothing had failed.
    recorder.record(job(), Note::routine("Finished", "on east"));
    sleep(LINGER * 2).await;
    assert_eq!(
        arrived(&list).last().map(|(reason, _)| &**reason),
        Some("Finished")
    );
}

#[test]
fn a_burst_is_written_and_the_rest_is_rationed() {
    let start = Instant::now();
    let mut ration = Ration::new(start);
    assert!((0..BURST).all(|_| ration.take(Warning, start)));
    assert!(!ration.take(Warning, start));
    assert!(!ration.take(Warning, start + RATION / 2));
    assert!(ration.take(Warning, start + RATION));
    assert!(!ration.take(Warning, start + RATION));
    let later = start + RATION * BURST * 3;
    assert!(
        (0..BURST).all(|_| ration.take(Warning, later)),
        "no more than a burst is saved up"
    );
    assert!(!ration.take(Warning, later));
}

#[test]
fn reasons_to_wait_leave_room_for_warnings() {
    let start = Instant::now();
    let mut ration = Ration::new(start);
    assert!((FOR_WARNINGS..BURST).all(|_| ration.take(Normal, start)));
    assert!(!ration.take(Normal, start));
    assert!((0..FOR_WARNINGS).all(|_| ration.take(Warning, start)));
    assert!(!ration.take(Warning, start));
}

#[test]
fn the_name_of_an_event_fits_however_long_that_of_its_object_is() {
    let name_of = |name: &str| {
        let told = Told {
            object: ObjectReference {
                name: Some(name.to_owned()),
                ..job()
            },
            note: Note::normal("Started", "x"),
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            since: Instant::now(),
        };
        event(told, ("c", "i"), 7).metadata.name.unwrap_or_default()
    };
    assert_eq!(name_of("job"), "job.18867251edfa00007");
    let part = "a".repeat(60);
    let long = name_of(&[part.as_str(); 4].join("."));
    assert!(long.len() <= 253 && long.starts_with(&part), "{long}");
    let dotted = name_of(&format!("{}.{}", "a".repeat(234), "b".repeat(18)));
    assert_eq!(dotted, name_of(&"a".repeat(234)));
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_are_counted_and_told_once_until_they_are_written_for_a_while() {
    let server = tower::service_fn(|_: http::Request<Body>| async {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "events is forbidden",
        });
        let answer = http::Response::builder().status(403);
        Ok::<_, std::io::Error>(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
    });
    let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let client = Client::new(server, "ns");
    let (recorder, work) = recorder(client, "test", clock, CancellationToken::new());
    tokio::spawn(work);
    for reason in ["Lost", "Found"] {
        recorder.record(job(), Note::warning(reason, "east"));
    }
    sleep(LINGER).await;
    assert_eq!((recorder.failed(), recorder.dropped()), (2, 0));

    let refused = |code: u16, message: &str| {
        kube::Error::Api(Box::new(kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::default()
        }))
    };
    let (mut unwritten, start) = (Unwritten::default(), Instant::now());
    assert!(unwritten.failed(&refused(403, "in namespace a"), start));
    assert!(!unwritten.failed(&refused(403, "in namespace b"), start));
    assert!(unwritten.failed(&refused(500, "in namespace b"), start));
    assert!(!unwritten.written(start + QUIET), "others may be refused still");
    assert!(unwritten.written(start + QUIET * 2) && !unwritten.written(start + QUIET * 4));
    assert!(unwritten.failed(&refused(500, "in namespace b"), start + QUIET * 4));
}

/// Otherwise a process whose controllers are switched off would end, because the end of any part ends the process.
#[tokio::test(start_paused = true)]
async fn who_writes_events_waits_for_the_stop_also_when_nobody_records_any() {
    let address = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let (client, stop) = (Client::try_from(address).unwrap(), CancellationToken::new());
    let (recorder, work) = recorder(client, "test", Arc::new(|| Timestamp::UNIX_EPOCH), stop.clone());
    drop(recorder);
    let work = tokio::spawn(work);
    sleep(LINGER).await;
    assert!(!work.is_finished());
    stop.cancel();
    work.await.unwrap();
}
