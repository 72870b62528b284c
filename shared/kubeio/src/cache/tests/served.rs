//! A kind that comes and goes.

use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use roadstead_core::kind::KindState;
use serde_json::{Value, json};

use super::*;

/// What an API server says about a kind, and in its discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Here,
    Gone,
    /// It serves only another version.
    Newer,
    /// The list is answered with "not found", and discovery with an answer that shows nothing.
    Silent,
    /// Every request is answered with an error.
    Failing,
    /// It serves the kind, and refuses to list it.
    Refused,
    /// It refuses to list the kind, which it does not serve.
    RefusedAndGone,
    /// It refuses to list the kind, and discovery is answered with an error.
    RefusedAndSilent,
}

fn status(code: u16) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "code": code, "message": if code == 403 { "refused" } else { "no" }, "reason": "Any"}),
    )
}

/// An API server that says this now; watches end when it changes.
fn server(says: &Arc<Mutex<Says>>) -> Client {
    let says = says.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let now = *says.lock().unwrap();
        let (path, query) = (
            request.uri().path().to_owned(),
            request.uri().query().unwrap_or_default(),
        );
        let group = |version: &str| json!({"name": "example.com", "versions": [{"groupVersion": format!("example.com/{version}"), "version": version}]});
        let resources = json!({"groupVersion": "", "resources": [
            {"name": "trains", "kind": "Train", "namespaced": true, "singularName": "", "verbs": []}]});
        let (code, body) = match (path.as_str(), now) {
            (_, Says::Failing) => status(500),
            ("/apis/example.com", Says::Here | Says::Refused) => (200, group("v1")),
            ("/apis/example.com", Says::Newer) => (200, group("v2")),
            ("/apis/example.com", Says::Silent | Says::RefusedAndSilent) => status(503),
            ("/apis/example.com/v1", Says::Here | Says::Refused) | ("/apis/example.com/v2", Says::Newer) => {
                (200, resources)
            }
            (
                "/apis/example.com/v1/trains",
                Says::Refused | Says::RefusedAndGone | Says::RefusedAndSilent,
            ) => status(403),
            ("/apis/example.com/v1/trains", Says::Here) if !query.contains("watch") => (
                200,
                json!({"kind": "TrainList", "metadata": {"resourceVersion": "10"}, "items": [object("a", "1", "9")]}),
            ),
            ("/apis/example.com/v1/trains", Says::Here) => {
                let (says, began) = (says.clone(), now);
                let ends = watching(says, began);
                return std::future::ready(Ok::<_, std::io::Error>(http::Response::new(ends)));
            }
            _ => status(404),
        };
        let body = Bytes::from(serde_json::to_vec(&body).unwrap());
        let body = http_body_util::Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync();
        std::future::ready(Ok(http::Response::builder().status(code).body(body).unwrap()))
    });
    Client::new(service, "ns")
}

/// A watch that tells nothing and ends when the kind is not served any more.
fn watching(says: Arc<Mutex<Says>>, began: Says) -> UnsyncBoxBody<Bytes, std::io::Error> {
    let until = futures::stream::unfold(says, move |says| async move {
        while *says.lock().unwrap() == began {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        None::<(Result<Frame<Bytes>, std::io::Error>, Arc<Mutex<Says>>)>
    });
    StreamBody::new(until).boxed_unsync()
}

/// Only the answer of discovery empties the cache; an unknown state keeps what was cached.
///
/// Spec: jobs 4.2; safety F26
#[tokio::test(start_paused = true)]
async fn a_kind_comes_and_goes_and_only_what_is_certainly_not_served_is_empty() {
    let says = Arc::new(Mutex::new(Says::Gone));
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Train");
    let trains = ApiResource::from_gvk_with_plural(&gvk, "trains");
    let cache: Arc<Cache<kube::core::DynamicObject>> = Cache::new();
    let api = Api::all_with(server(&says), &trains);
    let stop = CancellationToken::new();
    let run = cache.clone().run_where_served(api, None, trains, stop.clone());
    let run = tokio::spawn(run);
    let becomes = async |now: Says, state: KindState| {
        *says.lock().unwrap() = now;
        let mut health = cache.health();
        let wait = health.wait_for(|health| health.state() == state);
        let health = tokio::time::timeout(Duration::from_mins(5), wait).await;
        (
            health.unwrap_or_else(|_| panic!("{now:?} never becomes {state:?}")),
            cache.len(),
        )
    };
    assert!(!cache.was_settled());
    assert_eq!(
        becomes(Says::Gone, KindState::NotServed).await,
        (Health::NotServed, 0)
    );
    assert!(cache.was_settled());
    assert_eq!(becomes(Says::Here, KindState::Serving).await, (Health::Live, 1));
    assert_eq!(
        becomes(Says::Gone, KindState::NotServed).await,
        (Health::NotServed, 0)
    );
    assert_eq!(becomes(Says::Here, KindState::Serving).await, (Health::Live, 1));
    assert_eq!(
        becomes(Says::RefusedAndGone, KindState::NotServed).await,
        (Health::NotServed, 0)
    );
    assert_eq!(becomes(Says::Here, KindState::Serving).await, (Health::Live, 1));
    for (unknown, words) in [
        (Says::Silent, "no"),
        (Says::Refused, "refused"),
        (Says::RefusedAndSilent, "refused"),
        (Says::Failing, "no"),
        (Says::Newer, "version v2 only"),
    ] {
        let (health, len) = becomes(unknown, KindState::Unknown).await;
        assert!(
            matches!(&health, Health::Failing(why) if why.contains(words)),
            "{health:?}"
        );
        assert_eq!(len, 1, "{unknown:?} says nothing about what there is");
        assert_eq!(becomes(Says::Here, KindState::Serving).await.1, 1);
    }
    stop.cancel();
    run.await.unwrap();
}
