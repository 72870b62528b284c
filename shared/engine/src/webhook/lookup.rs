//! Reads the objects that the answer about a new job needs and that no cache holds yet: its LocalQueue, that queue's
//! ClusterQueue, its checks, and the job's owners.
//!
//! Why: a user who applies queues and jobs together is faster than any watch. `spec.managedBy` can only be set when the job is
//! created, and a job without it can never be dispatched. If everything is cached, the usual case, no request is sent.
//!
//! *Source*: `spec/multikueue.md 1.8`.

use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::config::{Config, FeatureGate};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_core::ancestry::Stop;
use roadstead_core::name::Key;
use roadstead_jobs::JobKind;
use roadstead_jobs::problem::is_subdomain;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::trouble::Troubles;
use roadstead_serve::webhook::Preparation;

use super::Filled;
use super::answers::Request;
use crate::ancestors::{self, Missing};
use crate::caches::Caches;

/// How long reading may take; the API server waits ten seconds for the whole answer.
const TIME_MAX: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Lookup {
    pub(super) client: Client,
    pub(super) caches: Caches,
    pub(super) filled: Arc<Filled>,
    /// Why queues could not be read, by LocalQueue.
    pub(super) troubles: Arc<Troubles<Key>>,
}

impl Lookup {
    /// The preparation of an answer about a job of this kind. Queues matter only to kinds that have `spec.managedBy`.
    pub(super) fn preparation(&self, kind: &dyn JobKind, config: &Config) -> Preparation {
        let dispatched =
            kind.kind().managed_by.is_some() && config.feature_gates.enabled(FeatureGate::MultiKueue);
        let lookup = self.clone();
        Arc::new(move |request| {
            let local = dispatched.then(|| local_queue(request)).flatten();
            let owned = request
                .object
                .clone()
                .filter(|job| !job.owner_references().is_empty());
            let lookup = lookup.clone();
            Box::pin(async move {
                // Why nothing before the caches are filled: the job is refused then, whatever its queue.
                if !lookup.filled.is_true() {
                    return Ok(());
                }
                if let Some(job) = owned {
                    lookup.owners(&job).await?;
                }
                if let Some(local) = local {
                    lookup.read(&local).await?;
                }
                Ok(())
            })
        })
    }

    /// Reads the owners of a job. Faults of the owners are answered later, from the caches.
    ///
    /// *Errors*: which owner cannot be read, and why.
    async fn owners(&self, job: &DynamicObject) -> Result<(), Failure> {
        let learning = ancestors::learn(&self.client, &self.caches, job);
        let failure = match tokio::time::timeout(TIME_MAX, learning).await {
            Err(_late) => no_answer().in_doing("the owners of the job cannot be read"),
            Ok(Err(Stop::Unread(Missing::Unreadable(failure)))) => failure,
            Ok(_known) => return Ok(()),
        };
        Err(failure.reworded(|why| format!("{why}; try again in a moment")))
    }

    /// *Errors*: which object cannot be read, and why.
    async fn read(&self, local: &Key) -> Result<(), Failure> {
        let read = tokio::time::timeout(TIME_MAX, self.queue(local)).await;
        let Err(failure) = read.unwrap_or_else(|_late| Err(no_answer())) else {
            self.troubles.ends(local);
            return Ok(());
        };
        let failure = failure.reworded(|why| {
            format!(
                "LocalQueue {local} or what it leads to is not known yet and cannot be read: {why}; try again in a moment"
            )
        });
        // Why not for each job: while the failure lasts, every job of the queue is refused.
        if self.troubles.is_news(local.clone(), failure.text()) {
            tracing::warn!(
                "a job was refused, and all jobs of its queue are refused while this lasts: {failure}"
            );
        }
        Err(failure)
    }

    async fn queue(&self, local: &Key) -> Result<(), Failure> {
        let (client, caches) = (&self.client, &self.caches);
        let queues = Api::namespaced(client.clone(), &local.namespace);
        caches.local_queues.look_up(&queues, local).await?;
        let Some(local) = caches.local_queues.get(local) else {
            return Ok(());
        };
        let cluster = Key::new("", local.spec.cluster_queue.as_str());
        let queues = Api::all(client.clone());
        caches.cluster_queues.look_up(&queues, &cluster).await?;
        let Some(cluster) = caches.cluster_queues.get(&cluster) else {
            return Ok(());
        };
        for rule in roadstead_convert::cluster_queue(&cluster).checks {
            let check = Key::new("", rule.name.as_str());
            caches.checks.look_up(&Api::all(client.clone()), &check).await?;
        }
        Ok(())
    }
}

fn no_answer() -> Failure {
    Failure::passing(format!("no answer for {} seconds", TIME_MAX.as_secs()))
}

/// The queue that the job of the request names, if a queue can have that name.
///
/// Why `None` for any other name: no request can be made for it. The validation refuses the job and names the label.
fn local_queue(request: &Request) -> Option<Key> {
    let job: &DynamicObject = request.object.as_ref()?;
    let queue = job.metadata.labels.as_ref()?.get(QUEUE_NAME)?;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    is_subdomain(queue).then(|| Key::new(namespace, queue.as_str()))
}

#[cfg(test)]
mod tests {
    use kube::core::admission::AdmissionReview;
    use serde_json::json;

    use super::*;

    /// Spec: jobs 7.3
    #[test]
    fn a_name_that_no_queue_can_have_is_not_looked_up() {
        let named = |queue: &str| {
            let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "u", "operation": "CREATE", "userInfo": {}, "namespace": "team", "name": "train",
                    "kind": {"group": "batch", "version": "v1", "kind": "Job"},
                    "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
                    "object": {
                        "apiVersion": "batch/v1", "kind": "Job",
                        "metadata": {"name": "train", "labels": {QUEUE_NAME: queue}},
                    },
                },
            }))
            .unwrap();
            let request: Request = review.try_into().unwrap();
            local_queue(&request)
        };
        assert_eq!(named("main"), Some(Key::new("team", "main")));
        for name in ["", "ma in", "Main", "../main"] {
            assert_eq!(named(name), None, "{name}");
        }
    }
}
