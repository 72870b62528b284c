//! A node for each worker cluster, on which pods show where they run.
//!
//! Invariant: nothing runs on it. It is Ready as long as this process lives, whatever becomes of its cluster: else the controller that
//! looks after nodes would evict pods here because a cable is cut there. A pod on it that is deleted goes when its copy has gone.
//!
//! *Source*: `spec/jobs.md 12.9`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{annotations, labels, names};
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::KindCache;
use roadstead_engine::clock::Clock;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write::{self, Written};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::remote::registry::Registry;

/// How often the lease of a node is renewed, as kubelets do, and for how long it holds.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECS: u32 = 40;
/// When a pod is looked at again whose copy is still there.
const LOOK: Duration = Duration::from_secs(1);
/// Pods at the same time.
const WORKERS: usize = 4;
/// Where the leases of nodes lie.
const LEASES: &str = "kube-node-lease";
const FIELD_MANAGER: &str = "roadstead-manager";

/// See the module.
#[derive(Clone)]
pub(crate) struct VirtualNodes {
    /// Client of the manager's own cluster.
    pub(crate) client: Client,
    /// MultiKueueClusters.
    pub(crate) clusters: Arc<Cache<MultiKueueCluster>>,
    /// The workers.
    pub(crate) registry: Arc<Registry>,
    /// The manager's own pods.
    pub(crate) pods: KindCache,
    /// The time.
    pub(crate) clock: Clock,
}

impl VirtualNodes {
    /// Keeps the nodes, and ends the pods on them, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let due: Arc<Queue<Key>> = Arc::new(Queue::new());
        let ring = due.clone();
        self.pods.objects.listen(move |change| {
            if change.new.is_some_and(|pod| ends_on_node(pod)) {
                ring.add(change.key.clone(), Lane::Placed);
            }
        });
        // Why after that: what comes between the two is due twice, and nothing is missed.
        for pod in self.pods.objects.all().iter().filter(|pod| ends_on_node(pod)) {
            due.add(roadstead_kubeio::cache::key_of(&**pod), Lane::Placed);
        }
        let this = self.clone();
        let ending = reconcile::run("pods of virtual nodes", due, WORKERS, stop.clone(), move |key| {
            let this = this.clone();
            async move { this.end(&key).await }
        });
        tokio::join!(ending, self.keep(stop));
    }

    /// Ends a pod that was deleted here once its copy has gone.
    async fn end(&self, key: &Key) -> Outcome {
        let Some(pod) = self.pods.objects.get(key) else {
            return Outcome::Done;
        };
        let (Some(node), Some(_)) = (node_of(&pod), &pod.metadata.deletion_timestamp) else {
            return Outcome::Done;
        };
        if self.may_have_copy(node, key) {
            return Outcome::NotYet(LOOK);
        }
        let api = Api::namespaced_with(self.client.clone(), &key.namespace, &self.pods.resource);
        match write::delete_at_once(&api, &key.name, pod.metadata.uid.as_deref()).await {
            Written::Done(object) => {
                self.pods.objects.observe(*object);
                Outcome::Done
            }
            Written::Gone | Written::Conflict | Written::AlreadyExists => Outcome::Done,
            Written::Refused(why) | Written::Unclear(why) => {
                Outcome::Failed(format!("ending the pod: {why}"))
            }
        }
    }

    /// Whether the pod may run in the cluster of this node. One that is no longer configured is not asked.
    fn may_have_copy(&self, node: &str, pod: &Key) -> bool {
        let clusters = self.clusters.all();
        let mut named = clusters.iter().map(|cluster| cluster.name_any());
        let Some(cluster) = named.find(|cluster| names::virtual_node(cluster) == node) else {
            return false;
        };
        let Some(remote) = self.registry.get(&ClusterName::from(cluster.as_str())) else {
            return true;
        };
        let jobs = remote
            .jobs
            .iter()
            .find(|jobs| jobs.kind.kind() == self.pods.kind.kind());
        let knows = |jobs: &KindCache| remote.lost_since().is_none() && jobs.state() != KindState::Unknown;
        jobs.is_none_or(|jobs| !knows(jobs) || jobs.objects.get(pod).is_some())
    }

    async fn keep(&self, stop: CancellationToken) {
        let troubles = Troubles::default();
        loop {
            if self.clusters.is_live() {
                let clusters: BTreeSet<String> = { self.clusters.all().iter() }
                    .map(|cluster| cluster.name_any())
                    .collect();
                for cluster in &clusters {
                    tell(&troubles, cluster, self.present(cluster).await);
                }
                tell(&troubles, "", self.tidy(&clusters).await);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RENEWAL) => {}
            }
        }
    }

    /// Makes the node of a cluster, if it is not there, and renews its lease.
    async fn present(&self, cluster: &str) -> Result<(), String> {
        let (nodes, name) = (
            Api::<Node>::all(self.client.clone()),
            names::virtual_node(cluster),
        );
        let now = (self.clock)().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        match nodes
            .get_opt(&name)
            .await
            .map_err(|error| write::describe(&error))?
        {
            Some(node) if !node.labels().contains_key(labels::VIRTUAL_NODE) => {
                return Err(format!(
                    "a node named {name} is there that is not ours; pods of cluster {cluster} stay held"
                ));
            }
            Some(node) if is_ready(&node) => {}
            Some(_) | None => self.make(&nodes, cluster, &name).await?,
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": LEASES},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECS, "renewTime": now},
        });
        let leases = Api::<Lease>::namespaced(self.client.clone(), LEASES);
        done(write::apply(&leases, &typed(lease)?, FIELD_MANAGER).await)
            .map_err(|why| format!("its lease: {why}"))
    }

    async fn make(&self, nodes: &Api<Node>, cluster: &str, name: &str) -> Result<(), String> {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                labels::VIRTUAL_NODE: name, labels::CLUSTER: cluster, "type": "virtual-kubelet",
                "kubernetes.io/hostname": name, "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            }},
            "spec": {"taints": [{"key": labels::VIRTUAL_NODE, "value": "true", "effect": "NoSchedule"}]},
        });
        done(write::apply(nodes, &typed(node)?, FIELD_MANAGER).await)?;
        let now = (self.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "VirtualNode",
            "message": format!("Stands for worker cluster {cluster}; nothing runs on it"),
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let status = json!({"status": {"conditions": [ready]}});
        done(write::patch_status(nodes, name, &status).await)
    }

    /// Removes the nodes of clusters that have left, once no pod is on them.
    async fn tidy(&self, clusters: &BTreeSet<String>) -> Result<(), String> {
        let nodes = Api::<Node>::all(self.client.clone());
        let wanted: BTreeSet<String> = { clusters.iter() }
            .map(|cluster| names::virtual_node(cluster))
            .collect();
        let ours = ListParams::default().labels(labels::VIRTUAL_NODE);
        let all = nodes
            .list_metadata(&ours)
            .await
            .map_err(|error| write::describe(&error))?;
        let left = all.items.iter().filter(|node| !wanted.contains(&node.name_any()));
        for node in left {
            let name = node.name_any();
            if self
                .pods
                .objects
                .all()
                .iter()
                .any(|pod| node_of(pod) == Some(&name))
            {
                continue;
            }
            done(write::delete(&nodes, &name, node.metadata.uid.as_deref()).await)?;
            let leases = Api::<Lease>::namespaced(self.client.clone(), LEASES);
            done(write::delete(&leases, &name, None).await)?;
        }
        Ok(())
    }
}

/// The virtual node on which a pod is.
fn node_of(pod: &DynamicObject) -> Option<&str> {
    let named = pod.annotations().get(annotations::VIRTUAL_NODE)?;
    let bound = pod.data["spec"]["nodeName"].as_str()?;
    (bound == named).then_some(bound)
}

fn ends_on_node(pod: &DynamicObject) -> bool {
    pod.metadata.deletion_timestamp.is_some() && node_of(pod).is_some()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    { conditions }.any(|one| one.type_ == "Ready" && one.status == "True") && { taints }
        .any(|taint| taint.key == labels::VIRTUAL_NODE)
}

/// Tells what failed, once, and that it has succeeded again.
fn tell(troubles: &Troubles<String>, cluster: &str, answer: Result<(), String>) {
    match answer {
        Ok(()) => {
            if troubles.ends(&cluster.to_owned()).is_some() {
                tracing::info!(cluster, "its virtual node is kept again");
            }
        }
        Err(why) => {
            if troubles.is_news(cluster.to_owned(), &why) {
                tracing::warn!(
                    cluster,
                    "the virtual node cannot be kept: {why}; if this is a refusal, apply deploy/rights/roadstead-manager-virtual-nodes.yaml, \
                     or switch virtualNodes.enable off"
                );
            }
        }
    }
}

fn typed<K: DeserializeOwned>(object: Value) -> Result<K, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn done<K>(written: Written<K>) -> Result<(), String> {
    match written {
        Written::Done(_) | Written::Gone | Written::AlreadyExists => Ok(()),
        Written::Conflict => Err("it met a newer version".to_owned()),
        Written::Refused(why) | Written::Unclear(why) => Err(why),
    }
}
