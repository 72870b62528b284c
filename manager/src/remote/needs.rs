//! Whether a worker has the objects that the pods of a job name. The manager asks before it offers the job, because its user
//! would hardly see a failure on the worker.
//!
//! This module only reads, and only names: of a Secret it reads only the metadata. What the account may not read is unknown, and
//! the worker is then assumed to have it.
//!
//! *Source*: `spec/experience.md 5`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use roadstead_jobs::needs::{Need, Thing};
use tokio::time::{Instant, timeout};

/// Longest wait for one answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the manager does not ask again for a kind that its account may not read.
const UNREADABLE: Duration = Duration::from_mins(5);

/// The kinds that the account may not read in a namespace of a worker, and since when that is known.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<BTreeMap<(String, Thing), Instant>>);

impl Unreadable {
    fn has(&self, namespace: &str, thing: Thing) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(&(namespace.to_owned(), thing))
            .is_some_and(|since| since.elapsed() < UNREADABLE)
    }

    fn note(&self, namespace: &str, thing: Thing) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, since| since.elapsed() < UNREADABLE);
        known.insert((namespace.to_owned(), thing), Instant::now());
    }
}

/// The needs of a job that the worker is known to lack in this namespace.
pub(crate) async fn lacking(
    client: &Client,
    namespace: &str,
    needs: BTreeSet<Need>,
    unreadable: &Unreadable,
) -> Vec<Need> {
    let asked = needs
        .into_iter()
        .filter(|need| !unreadable.has(namespace, need.thing));
    let asking = asked.map(async |need| {
        let objects = objects(client, namespace, need.thing);
        match timeout(ANSWER_MAX, objects.get_metadata_opt(&need.name)).await {
            Ok(Ok(None)) => Some(need),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                unreadable.note(namespace, need.thing);
                None
            }
            Ok(Ok(Some(_)) | Err(_)) | Err(_) => None,
        }
    });
    join_all(asking).await.into_iter().flatten().collect()
}

pub(crate) fn objects(client: &Client, namespace: &str, thing: Thing) -> Api<DynamicObject> {
    let [group, version, kind, plural] = thing.api();
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    if thing.is_namespaced() {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}
