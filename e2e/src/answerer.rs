//! An honest answer to "is there room for these pods?" in a cluster that has no autoscaler.
//!
//! It answers ProvisioningRequests of class `check-capacity.autoscaling.x-k8s.io` from what the nodes really have left,
//! with the conditions, reasons and messages of the cluster autoscaler (`spec/provisioning.md` 13.2, 14). A "yes" books
//! the room for a while, so that two requests never get the same hole.
//!
//! Reading order: [`decide`] (what to answer, pure), [`fit`] (does it fit, pure), `demand` and `amount` (what a pod asks
//! for), then this file, which only watches and writes.
//!
//! *Limits*: the order is age, not the priority of the workload; requests are never deleted; pod affinity, spread
//! constraints, host ports, claims of volumes and of devices are refused with a message rather than guessed.

mod amount;
pub mod decide;
mod demand;
pub mod fit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodTemplate};
use kube::{Api, Client, Resource, ResourceExt};
use roadstead_api::autoscaling::v1::ProvisioningRequest;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::write::{self, Written};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use decide::Policy;
use decide::{Answer, Cluster};

/// Changes that come within this time are answered together.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// Longest pause between two looks; bookings end by time, not by a change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Answers the requests of one cluster until it is dropped.
#[derive(Debug)]
pub struct Answerer {
    _task: AbortOnDropHandle<()>,
}

impl Answerer {
    /// Starts answering in the current tokio runtime. `client` may read pods, nodes and pod templates of all namespaces,
    /// and write the status of ProvisioningRequests. The definition of ProvisioningRequest may come later.
    pub fn start(client: Client, policy: Policy) -> Self {
        Self {
            _task: AbortOnDropHandle::new(tokio::spawn(answer_all(client, policy))),
        }
    }
}

/// What the answerer watches.
#[derive(Debug, Default)]
struct Caches {
    requests: Arc<Cache<ProvisioningRequest>>,
    templates: Arc<Cache<PodTemplate>>,
    nodes: Arc<Cache<Node>>,
    pods: Arc<Cache<Pod>>,
}

impl Caches {
    fn are_live(&self) -> bool {
        self.requests.is_live() && self.templates.is_live() && self.nodes.is_live() && self.pods.is_live()
    }

    fn cluster(&self) -> Cluster {
        let key = |template: Arc<PodTemplate>| {
            let key = (template.namespace().unwrap_or_default(), template.name_any());
            (key, template)
        };
        Cluster {
            requests: self.requests.all(),
            templates: self
                .templates
                .all()
                .into_iter()
                .map(key)
                .collect::<BTreeMap<_, _>>(),
            nodes: self.nodes.all(),
            pods: self.pods.all(),
        }
    }
}

async fn answer_all(client: Client, policy: Policy) {
    let caches = Caches::default();
    let changed = Arc::new(Notify::new());
    // Why a set: dropping it ends the watches together with this task.
    let mut watches = JoinSet::new();
    keep(&mut watches, &client, &caches.requests, &changed);
    keep(&mut watches, &client, &caches.templates, &changed);
    keep(&mut watches, &client, &caches.nodes, &changed);
    keep(&mut watches, &client, &caches.pods, &changed);
    loop {
        tokio::select! {
            biased;
            () = changed.notified() => sleep(DEBOUNCE).await,
            () = sleep(LOOK_AGAIN) => {}
        }
        if caches.are_live() {
            for answer in decide::decide(&caches.cluster(), &policy, Timestamp::now()) {
                give(&client, &caches.requests, answer).await;
            }
        }
    }
}

fn keep<K>(watches: &mut JoinSet<()>, client: &Client, cache: &Arc<Cache<K>>, changed: &Arc<Notify>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let changed = Arc::clone(changed);
    cache.listen(move |_| changed.notify_one());
    watches.spawn(Arc::clone(cache).run(Api::all(client.clone()), None, CancellationToken::new()));
}

/// Writes one answer. A write that fails is decided anew at the next look.
async fn give(client: &Client, requests: &Cache<ProvisioningRequest>, answer: Answer) {
    let Answer {
        namespace,
        name,
        resource_version,
        conditions,
    } = answer;
    let api: Api<ProvisioningRequest> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({
        "metadata": {"resourceVersion": resource_version},
        "status": {"conditions": conditions},
    });
    match write::patch_status(&api, &name, &patch).await {
        Written::Done(request) => requests.observe(*request),
        Written::Gone | Written::Conflict | Written::AlreadyExists => {}
        Written::Refused(why) | Written::Unclear(why) => {
            tracing::warn!(namespace, name, why, "an answer was not taken");
        }
    }
}
