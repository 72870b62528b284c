use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kube::client::Body;
use kube::{Api, Client};
use roadstead_core::name::Key;
use tokio_util::sync::CancellationToken;

use super::{Cache, Health, Listed};
use crate::raw::Raw;

mod served;

fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn version(cache: &Cache<ConfigMap>, name: &str) -> Option<String> {
    cache
        .get(&Key::new("ns", name))
        .and_then(|o| o.metadata.resource_version.clone())
}

/// A list before which nothing newer was seen.
fn listed(version: u64) -> Listed {
    Listed {
        version: Some(version),
        newest: 0,
        distrusted: false,
    }
}

/// Spec: safety F15.
#[test]
fn a_list_of_a_restored_storage_replaces_what_never_happened() {
    let cache = Cache::new();
    cache.observe(object("changed", "1", "50"));
    cache.observe(object("created", "2", "60"));
    let restored = Listed {
        version: Some(40),
        newest: 60,
        distrusted: false,
    };
    assert!(restored.went_back());
    cache.observe_listed(object("changed", "1", "30"), restored);
    cache.keep_only(&[Key::new("ns", "changed")].into(), restored);
    assert_eq!(version(&cache, "changed").as_deref(), Some("30"));
    assert_eq!(version(&cache, "created"), None);
    // The cluster has gone on meanwhile, further than the cache had been.
    cache.observe(object("changed", "1", "70"));
    cache.observe_listed(object("changed", "1", "35"), listed(80));
    assert_eq!(version(&cache, "changed").as_deref(), Some("35"));
}

#[test]
fn a_list_takes_nothing_back_that_was_written_while_it_was_under_way() {
    let cache = Cache::new();
    cache.observe(object("changed", "1", "12"));
    cache.observe(object("created", "2", "11"));
    cache.observe_listed(object("changed", "1", "9"), listed(10));
    cache.keep_only(&[Key::new("ns", "changed")].into(), listed(10));
    assert_eq!(version(&cache, "changed").as_deref(), Some("12"));
    assert!(version(&cache, "created").is_some());
}

#[test]
fn an_older_object_never_replaces_a_newer_one() {
    let cache = Cache::new();
    cache.observe(object("a", "1", "10"));
    cache.observe(object("a", "1", "9"));
    assert_eq!(version(&cache, "a").as_deref(), Some("10"));
}

fn page(version: &str, items: &[ConfigMap]) -> http::Response<Body> {
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version}, "items": items,
    });
    http::Response::new(Body::from(list.to_string().into_bytes()))
}

/// Spec: safety F15
#[tokio::test]
async fn after_the_storage_went_back_what_is_listed_counts_however_old_it_looks() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.observe(object("gone", "1", "20"));
    cache.observe(object("old", "2", "30"));
    *cache.version.lock().unwrap() = Some("30".to_owned());
    let server = tower::service_fn(|request: http::Request<Body>| async move {
        if request.uri().query().is_some_and(|query| query.contains("watch")) {
            return std::future::pending().await;
        }
        Ok::<_, std::io::Error>(page("25", &[object("old", "2", "12")]))
    });
    let api = Api::all(Client::new(server, "ns"));
    let stop = CancellationToken::new();
    let run = tokio::spawn(cache.clone().run(api, None, stop.clone()));
    while version(&cache, "old").as_deref() != Some("12") || cache.len() > 1 {
        tokio::task::yield_now().await;
    }
    cache.observe(object("old", "2", "11"));
    assert_eq!(
        version(&cache, "old").as_deref(),
        Some("12"),
        "from then on newer counts again"
    );
    assert!(cache.silent_for().is_some());
    stop.cancel();
    run.await.unwrap();
}

/// Spec: safety F15. The versions had caught up before the connection was back.
#[tokio::test]
async fn a_restored_storage_that_has_caught_up_is_found_out_after_a_loss() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.observe(object("kept", "1", "20"));
    *cache.version.lock().unwrap() = Some("30".to_owned());
    let server = tower::service_fn(|request: http::Request<Body>| async move {
        if request.uri().query().is_some_and(|query| query.contains("watch")) {
            return std::future::pending().await;
        }
        Ok::<_, std::io::Error>(page(
            "40",
            &[object("kept", "1", "20"), object("deleted", "2", "25")],
        ))
    });
    let api = Api::all(Client::new(server, "ns"));
    let stop = CancellationToken::new();
    let run = tokio::spawn(cache.clone().run(api, None, stop.clone()));
    while version(&cache, "deleted").is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(version(&cache, "kept").as_deref(), Some("20"));
    stop.cancel();
    run.await.unwrap();
}

#[test]
fn what_is_known_already_is_recognised_by_its_version_alone() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.observe(object("a", "1", "10"));
    let told = |name: &str, version: &str| {
        let text = serde_json::to_string(&object(name, "1", version)).unwrap();
        cache.knows(&Raw::read(&text).unwrap())
    };
    assert!(told("a", "9") && told("a", "10"));
    assert!(!told("a", "11") && !told("a", "no number") && !told("b", "9"));
}

#[test]
fn a_late_deletion_does_not_take_the_successor() {
    let cache = Cache::new();
    cache.observe(object("a", "2", "20"));
    cache.forget(&Key::new("ns", "a"), Some("1"));
    assert!(version(&cache, "a").is_some());
}

/// A new run must not show the end of the last run as its own state.
#[tokio::test]
async fn a_new_run_does_not_show_how_the_last_one_ended() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.health.set(Health::Failing("cut".into()));
    let unreachable = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
    });
    let api = Api::all(Client::new(unreachable, "ns"));
    let run = cache.clone().run(api, None, CancellationToken::new());
    assert_eq!(cache.health().get(), Health::Starting);
    drop(run);
}

#[test]
fn a_new_list_removes_what_is_gone_and_tells_the_listener() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    let (count, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counter, list) = (count.clone(), gone.clone());
    cache.listen(move |change| {
        counter.fetch_add(1, Ordering::Relaxed);
        if change.new.is_none() {
            list.lock().unwrap().push(change.key.to_string());
        }
    });
    cache.observe(object("a", "1", "1"));
    cache.observe(object("b", "2", "2"));
    cache.observe(object("b", "2", "2"));
    cache.keep_only(&[Key::new("ns", "b")].into(), listed(9));
    assert_eq!(*gone.lock().unwrap(), ["ns/a"]);
    assert_eq!(
        count.load(Ordering::Relaxed),
        3,
        "an unchanged object is not a change"
    );
}

/// The first listener waits for the other thread's change, and must not be told of that change meanwhile.
#[test]
fn changes_are_told_in_the_order_in_which_they_happened() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let begun = Arc::new(std::sync::Barrier::new(2));
    let (list, started) = (told.clone(), begun.clone());
    cache.listen(move |change| {
        let version = change.new.and_then(|new| new.metadata.resource_version.clone());
        if version.as_deref() == Some("1") {
            begun.wait();
            std::thread::sleep(Duration::from_millis(100));
        }
        list.lock()
            .unwrap()
            .push(version.unwrap_or_else(|| "gone".into()));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cache.observe(object("a", "1", "1")));
        started.wait();
        cache.observe(object("a", "1", "2"));
        cache.forget(&Key::new("ns", "a"), None);
    });
    assert_eq!(*told.lock().unwrap(), ["1", "2", "gone"]);
}

/// A Workload was deleted at the moment its quota was written, and the watch was faster than the answer to the write.
#[test]
fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.told.store(75, Ordering::Relaxed);
    cache.observe(object("a", "1", "76"));
    cache.told.store(78, Ordering::Relaxed);
    cache.forget(&Key::new("ns", "a"), Some("1"));
    cache.observe(object("a", "1", "77"));
    assert_eq!(version(&cache, "a"), None);
    // A successor of that name.
    cache.observe(object("a", "2", "79"));
    assert_eq!(version(&cache, "a").as_deref(), Some("79"));
    // Objects from the watch itself are cached, and so are those of a restored storage.
    cache.observe_told(object("b", "3", "78"));
    assert_eq!(version(&cache, "b").as_deref(), Some("78"));
    cache.distrust();
    cache.observe(object("c", "4", "40"));
    assert_eq!(version(&cache, "c").as_deref(), Some("40"));
}

/// Spec: safety F15. A copy that a restore had taken back stayed cached after its successor was deleted.
#[test]
fn of_a_name_whose_end_is_told_nothing_older_stays() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    let gone = |uid: &str, version: &str| {
        let text = serde_json::to_string(&object("a", uid, version)).unwrap();
        cache.forget_told(&Raw::read(&text).unwrap());
    };
    cache.observe(object("a", "1", "72"));
    gone("2", "78");
    assert_eq!(version(&cache, "a"), None);
    cache.observe(object("a", "3", "80"));
    gone("2", "78");
    assert_eq!(version(&cache, "a").as_deref(), Some("80"), "a successor");
}

/// Spec: safety F15
#[test]
fn after_a_restore_the_same_version_may_be_another_state() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.observe(object("a", "1", "72"));
    let mut restored = object("a", "1", "72");
    restored.data = Some([("state".to_owned(), "restored".to_owned())].into());
    let list = |distrusted| Listed {
        version: Some(80),
        newest: 72,
        distrusted,
    };
    cache.observe_listed(restored.clone(), list(false));
    let data = || cache.get(&Key::new("ns", "a")).unwrap().data.clone();
    assert_eq!(data(), None);
    cache.observe_listed(restored.clone(), list(true));
    assert_eq!(data(), restored.data);
}

/// An API server that answers every request with this object.
fn answering(found: &ConfigMap) -> Api<ConfigMap> {
    let body = serde_json::to_vec(found).unwrap();
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::new(Body::from(body.clone()));
        std::future::ready(Ok::<_, std::io::Error>(answer))
    });
    Api::namespaced(Client::new(service, "ns"), "ns")
}

#[tokio::test]
async fn what_is_looked_up_counts_unless_the_watch_has_gone_past_it() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.told.store(5, Ordering::Relaxed);
    let key = Key::new("ns", "a");
    // It was deleted while the answer was under way.
    cache
        .look_up(&answering(&object("a", "1", "4")), &key)
        .await
        .unwrap();
    assert_eq!(version(&cache, "a"), None);
    cache
        .look_up(&answering(&object("a", "2", "6")), &key)
        .await
        .unwrap();
    assert_eq!(version(&cache, "a").as_deref(), Some("6"));
    // A cached object is not asked for.
    cache
        .look_up(&answering(&object("a", "2", "9")), &key)
        .await
        .unwrap();
    assert_eq!(version(&cache, "a").as_deref(), Some("6"));
}

/// A watch that sends only bookmarks, one each hundred seconds, until it ends. Without an end it sends nothing at all.
fn watched(ends: Option<Duration>) -> UnsyncBoxBody<Bytes, std::io::Error> {
    const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\
                            \"metadata\":{\"resourceVersion\":\"30\"}}}\n";
    let pause = Duration::from_secs(100);
    let frames = futures::stream::unfold(ends, move |left| async move {
        let Some(left) = left else {
            return std::future::pending().await;
        };
        tokio::time::sleep(pause.min(left)).await;
        let left = left.checked_sub(pause).filter(|left| !left.is_zero())?;
        let frame = Frame::data(Bytes::from_static(BOOKMARK.as_bytes()));
        Some((Ok::<_, std::io::Error>(frame), Some(left)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// How long a cache takes to find a change that no watch tells of, when watches end so.
async fn knows_after(ends: Option<Duration>) -> Duration {
    let lists = AtomicUsize::new(0);
    let server = move |request: http::Request<Body>| {
        let is_first = |count: &AtomicUsize| count.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = if request.uri().query().is_some_and(|query| query.contains("watch")) {
            watched(ends)
        } else {
            let (at, version) = if is_first(&lists) {
                ("20", "20")
            } else {
                ("40", "25")
            };
            let page = page(at, &[object("a", "1", version)]).into_body();
            page.map_err(std::io::Error::other).boxed_unsync()
        };
        std::future::ready(Ok::<_, std::io::Error>(http::Response::new(answer)))
    };
    let api = Api::all(Client::new(tower::service_fn(server), "ns"));
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    let (stop, began) = (CancellationToken::new(), tokio::time::Instant::now());
    let run = tokio::spawn(cache.clone().run(api, None, stop.clone()));
    while version(&cache, "a").as_deref() != Some("25") {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_hours(2), "it is never found out");
    }
    stop.cancel();
    run.await.unwrap();
    began.elapsed()
}

/// Spec: safety F11
#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_open_and_says_nothing_is_given_up_and_what_it_hid_is_listed() {
    let took = knows_after(None).await;
    assert!(took >= super::SILENCE && took < super::SILENCE * 2, "{took:?}");
}

/// Spec: safety F12
#[tokio::test(start_paused = true)]
async fn an_event_that_a_watch_has_left_out_is_found_within_an_hour() {
    let lives = Duration::from_secs(super::WATCH_SECS.into());
    let took = knows_after(Some(lives)).await;
    assert!(took <= super::run::CHECK_PERIOD + lives, "{took:?}");
    assert!(took >= super::run::CHECK_PERIOD, "{took:?}");
}

/// An answer with which an API server says that it no longer knows a version, or the rest of a list.
fn gone(message: &str) -> http::Response<Body> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": message,
    });
    let mut answer = http::Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = http::StatusCode::GONE;
    answer
}

/// The version to go on from is forgotten, and so is, once, the list whose first page was read.
///
/// Spec: safety F14
#[tokio::test(start_paused = true)]
async fn what_is_gone_is_noticed_although_version_and_continue_token_have_expired() {
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    cache.observe(object("gone", "1", "20"));
    cache.observe(object("kept", "2", "21"));
    *cache.version.lock().unwrap() = Some("30".to_owned());
    let expired = Arc::new(AtomicUsize::new(0));
    let counter = expired.clone();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let asked = request.uri().query().unwrap_or_default().to_owned();
        let answer = if asked.contains("watch") && asked.contains("resourceVersion=30") {
            gone("too old resource version: 30 (40)")
        } else if asked.contains("watch") {
            return std::future::ready(Ok::<_, std::io::Error>(http::Response::new(watched(None))));
        } else if asked.contains("continue=rest") {
            match counter.fetch_add(1, Ordering::Relaxed) {
                0 => gone("The provided continue parameter is too old"),
                _ => page("41", &[object("new", "3", "39")]),
            }
        } else {
            let list = serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMapList",
                "metadata": {"resourceVersion": "41", "continue": "rest"}, "items": [object("kept", "2", "21")],
            });
            http::Response::new(Body::from(list.to_string().into_bytes()))
        };
        let answer = answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync());
        std::future::ready(Ok(answer))
    });
    let stop = CancellationToken::new();
    let run = tokio::spawn(
        cache
            .clone()
            .run(Api::all(Client::new(server, "ns")), None, stop.clone()),
    );
    let mut health = cache.health();
    while version(&cache, "new").is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    health.wait_for(|health| *health == Health::Live).await;
    assert_eq!(version(&cache, "gone"), None);
    assert_eq!(version(&cache, "kept").as_deref(), Some("21"));
    assert!(
        expired.load(Ordering::Relaxed) >= 2,
        "it was listed from the start again"
    );
    stop.cancel();
    run.await.unwrap();
}

/// Spec: safety F6
#[tokio::test(start_paused = true)]
async fn what_the_watch_has_not_told_yet_is_listed_when_it_is_asked_for() {
    let stored: Arc<Mutex<Vec<ConfigMap>>> = Arc::default();
    let lists = Arc::new(AtomicUsize::new(0));
    let (shown, counter) = (stored.clone(), lists.clone());
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let answer = if request.uri().query().is_some_and(|query| query.contains("watch")) {
            watched(None)
        } else {
            let at = 10 * (counter.fetch_add(1, Ordering::Relaxed) + 1);
            let page = page(&at.to_string(), &shown.lock().unwrap()).into_body();
            page.map_err(std::io::Error::other).boxed_unsync()
        };
        std::future::ready(Ok::<_, std::io::Error>(http::Response::new(answer)))
    });
    let cache: Arc<Cache<ConfigMap>> = Cache::new();
    let (api, stop) = (Api::all(Client::new(server, "ns")), CancellationToken::new());
    let run = tokio::spawn(cache.clone().run(api, None, stop.clone()));
    let live = async || {
        cache.health().wait_for(|health| *health == Health::Live).await;
    };
    live().await;
    stored.lock().unwrap().push(object("a", "1", "15"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(version(&cache, "a"), None, "its watch is behind");
    for times in [2, 3] {
        cache.refresh();
        assert_eq!(cache.health().get(), Health::Starting);
        live().await;
        assert_eq!(version(&cache, "a").as_deref(), Some("15"));
        assert_eq!(lists.load(Ordering::Relaxed), times);
    }
    stop.cancel();
    run.await.unwrap();
}
