//! Reads the Workloads that stand before another one in its ClusterQueue.

use std::collections::BTreeSet;
use std::fmt::Debug;

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, QueueingStrategy, Workload};
use roadstead_convert::explanation::line::{Line, line};
use serde::de::DeserializeOwned;

use crate::objects;

/// Reads the line before a Workload. `None` if it is the first, if its queue has another strategy, or if the user may not read
/// the Workloads before it.
pub(super) async fn read(client: &Client, workload: &Workload, now: Timestamp) -> Option<Line> {
    let namespace = workload.namespace()?;
    let named = workload.spec.queue_name.as_deref()?;
    let local = Api::<LocalQueue>::namespaced(client.clone(), &namespace);
    let queue = local.get_opt(named).await.ok()??.spec.cluster_queue;
    let found = Api::<ClusterQueue>::all(client.clone())
        .get_opt(&queue)
        .await
        .ok()??;
    if found.spec.queueing_strategy != QueueingStrategy::StrictFifo {
        return None;
    }
    let locals = all::<LocalQueue>(client).await?.into_iter();
    let locals: BTreeSet<(String, String)> = locals
        .filter(|local| local.spec.cluster_queue == queue)
        .filter_map(|local| Some((local.namespace()?, local.name_any())))
        .collect();
    line(&all(client).await?, &locals, workload, &queue, now)
}

async fn all<K>(client: &Client) -> Option<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    objects::all(&Api::all(client.clone()), None, |_| true).await.ok()
}
