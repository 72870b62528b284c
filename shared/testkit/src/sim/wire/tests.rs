//! Each trouble of a wire really happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, Client};
use roadstead_apiserver::{Authorization, Clock, Options, Server};

use super::super::clock::TrueTime;
use super::super::fault::{Fault, Link, Right};
use super::super::process::Process;
use super::super::trace::{Keep, Trace};
use super::Wire;

const LINK: Link = Link { from: 0, to: 1 };

fn wire() -> (Arc<Wire>, Client) {
    let mut options = Options::new(Clock::new(|| Timestamp::UNIX_EPOCH), 1);
    options.authorization = Authorization::AllowAll;
    let trace = Arc::new(Mutex::new(Trace::new(Keep::Hash)));
    let wire = Wire::new(
        "a>b".to_owned(),
        Server::new(options),
        TrueTime::begin(),
        trace,
        1,
    );
    let life = Arc::<Process>::default().live();
    let client = wire.client(&life, "me");
    (wire, client)
}

type Maps = Api<DynamicObject>;

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps")
}

fn maps(client: Client) -> Maps {
    Api::namespaced_with(client, "default", &resource())
}

async fn create(api: &Maps, name: &str) -> Result<DynamicObject, kube::Error> {
    let map = DynamicObject::new(name, &resource());
    api.create(&PostParams::default(), &map).await
}

/// The changes from the present version on.
async fn watch(maps: &Maps) -> BoxStream<'_, Result<WatchEvent<DynamicObject>, kube::Error>> {
    let now = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version;
    let watch = maps.watch(&WatchParams::default(), &now.unwrap()).await;
    watch.unwrap().boxed()
}

fn stale(lag_secs: u64) -> Fault {
    Fault::Stale { link: LINK, lag_secs }
}

fn deny(right: Right) -> Fault {
    Fault::Deny { link: LINK, right }
}

fn code<T>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// Spec: safety F13.
#[tokio::test(start_paused = true)]
async fn what_may_be_old_is_old_and_what_may_not_is_not() {
    let (wire, client) = wire();
    let maps = maps(client);
    create(&maps, "before").await.unwrap();
    wire.begin(1, stale(10));
    create(&maps, "after").await.unwrap();
    let count = async |params: ListParams| maps.list(&params).await.unwrap().items.len();
    let old = ListParams::default().match_any();
    let fresh = count(ListParams::default()).await;
    assert_eq!(count(old.clone()).await + 1, fresh);
    wire.end(1);
    assert_eq!(count(old).await, fresh);
}

/// Spec: safety F13.
#[tokio::test(start_paused = true)]
async fn a_watch_lags_behind_as_long_as_it_is_told_to() {
    let (wire, client) = wire();
    let maps = maps(client);
    let mut watch = watch(&maps).await;
    wire.begin(1, stale(40));
    create(&maps, "late").await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(30), watch.next()).await;
    assert!(early.is_err(), "{early:?}");
    let late = tokio::time::timeout(Duration::from_secs(15), watch.next()).await;
    assert!(matches!(late, Ok(Some(Ok(WatchEvent::Added(_))))), "{late:?}");
}

/// Spec: safety F19.
#[tokio::test(start_paused = true)]
async fn who_lost_a_right_is_told_so_and_gets_it_back() {
    let (wire, client) = wire();
    let maps = maps(client);
    wire.begin(1, deny(Right::Changes));
    assert_eq!(code(create(&maps, "a").await), 403);
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
    wire.begin(2, deny(Right::Leases));
    wire.end(1);
    assert_eq!(code(create(&maps, "a").await), 200);
    wire.begin(3, deny(Right::Anything));
    assert_eq!(code(maps.list(&ListParams::default()).await), 401);
    wire.end(3);
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
}

/// Spec: safety F15.
#[tokio::test(start_paused = true)]
async fn a_server_that_starts_anew_ends_every_watch() {
    let (wire, client) = wire();
    let maps = maps(client);
    let watch = watch(&maps).await;
    wire.break_off();
    let ended = tokio::time::timeout(Duration::from_secs(5), watch.count()).await;
    assert!(ended.is_ok());
}

/// Spec: safety F12
#[tokio::test(start_paused = true)]
async fn one_in_so_many_events_is_left_out_and_what_follows_and_the_bookmarks_arrive() {
    let (wire, client) = wire();
    let maps = maps(client);
    create(&maps, "before").await.unwrap();
    let mut watch = watch(&maps).await;
    let (link, every) = (LINK, 3);
    wire.begin(1, Fault::LoseEvents { link, every });
    // Why all at once: several events come in one frame.
    for name in ["a", "b", "c", "d", "e"] {
        create(&maps, name).await.unwrap();
    }
    maps.delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let last = create(&maps, "f").await.unwrap().metadata.resource_version;
    let mut came = Vec::new();
    let bookmark = loop {
        match watch.next().await.unwrap().unwrap() {
            WatchEvent::Added(map) => came.push(map.metadata.name.unwrap()),
            WatchEvent::Bookmark(bookmark) => break bookmark.metadata.resource_version,
            other @ (WatchEvent::Deleted(_) | WatchEvent::Modified(_) | WatchEvent::Error(_)) => {
                panic!("{other:?}")
            }
        }
    };
    assert_eq!(
        came,
        ["a", "b", "d", "e", "f"],
        "the third is an addition, the sixth a deletion"
    );
    assert_eq!(Some(bookmark), last, "the watch has gone past what it left out");
    wire.end(1);
    for name in ["g", "h", "i"] {
        create(&maps, name).await.unwrap();
        let event = watch.next().await.unwrap().unwrap();
        assert!(matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some(name)));
    }
}

/// Spec: safety F12
#[tokio::test(start_paused = true)]
async fn bookmarks_and_errors_are_no_events_that_get_lost() {
    let (wire, _) = wire();
    let (link, every) = (LINK, 1);
    wire.begin(1, Fault::LoseEvents { link, every });
    let told =
        |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"a\"}}}}}}\n");
    let all = ["ADDED", "BOOKMARK", "MODIFIED", "ERROR", "DELETED"]
        .map(told)
        .concat();
    let left = ["BOOKMARK", "ERROR"].map(told).concat();
    assert_eq!(wire.leave_out(all.clone().into()), left);
    wire.end(1);
    assert_eq!(wire.leave_out(all.clone().into()), all);
}
