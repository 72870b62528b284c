//! Records objects that are created in a cluster while a test runs, also short-lived ones.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// How late a watch may report an event.
const LATE: Duration = Duration::from_millis(500);

/// A watch that is opened before the events that it records.
pub(super) struct Watched<K> {
    events: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<K>>> + Send>>,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches objects with these labels from now on.
    pub(super) async fn start(api: &Api<K>, labels: &str) -> Self {
        let all = api.list(&ListParams::default()).await.unwrap();
        let version = all.metadata.resource_version.unwrap();
        let params = WatchParams::default().labels(labels);
        let events = api.watch(&params, &version).await.unwrap();
        Self {
            events: events.boxed(),
        }
    }

    /// Names of the objects that were created since.
    pub(super) async fn created(self) -> Vec<String> {
        let until_now = self.events.take_until(tokio::time::sleep(LATE));
        let created = until_now.filter_map(async |event| match event {
            Ok(WatchEvent::Added(object)) => Some(object.name_any()),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        });
        created.collect().await
    }
}
