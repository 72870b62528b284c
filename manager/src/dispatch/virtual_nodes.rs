//! A node for each worker cluster, on which pods show where they run.
//!
//! Invariant: nothing runs on it. It is Ready as long as this process lives, whatever happens to its cluster. Otherwise a cut cable
//! there would make the node controller here evict pods. A deleted pod on it goes when its copy has gone.
//!
//! *Source*: `spec/jobs.md 12.9`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::constants::{annotations, labels, names};
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::{JobRef, KindCache};
use roadstead_engine::clock::Clock;
use roadstead_kinds::rows;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::trouble::Troubles;
use roadstead_kubeio::write::{self, Written};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Dispatch;
use crate::remote::Remote;
use crate::sites;

/// How often the lease of a node is renewed, as kubelets do, and for how long it holds.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECS: u32 = 40;
/// When a pod is looked at again while its copy is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How many pods are handled at the same time.
const WORKERS: usize = 4;
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";
const FIELD_MANAGER: &str = "roadstead-manager";

/// The clusters that have a node. Always empty where `virtualNodes.enable` is off.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<BTreeSet<String>>);

impl Kept {
    /// The name of a cluster's node, if the node exists. Why it may not: the pod garbage collector deletes a pod that is bound to a
    /// missing node.
    pub(crate) fn node_of(&self, cluster: &ClusterName) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        { kept.contains(cluster.as_str()) }.then(|| names::virtual_node(cluster.as_str()))
    }

    /// Remembers the clusters that have a node; returns whether one is new.
    fn note(&self, now: BTreeSet<String>) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_come = !now.is_subset(&kept);
        *kept = now;
        has_come
    }
}

/// Keeps the nodes, and ends the pods on them.
#[derive(Clone)]
pub(crate) struct VirtualNodes {
    dispatch: Dispatch,
    /// The manager's own pods, and their position in its caches.
    pods: KindCache,
    kind: usize,
    /// The wall clock, because other processes compare leases with it.
    wall: Clock,
}

impl VirtualNodes {
    /// `None` where pods are not queued.
    pub(crate) fn new(dispatch: &Dispatch, wall: Clock) -> Option<Self> {
        let kind = { dispatch.caches.jobs.iter() }.position(|jobs| jobs.kind.kind() == &rows::POD)?;
        Some(Self {
            dispatch: dispatch.clone(),
            pods: dispatch.caches.jobs[kind].clone(),
            kind,
            wall,
        })
    }

    /// Keeps the nodes, and ends the pods on them, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let due: Arc<Queue<Key>> = Arc::new(Queue::new());
        let ring = due.clone();
        self.pods.objects.listen(move |change| {
            if change.new.is_some_and(|pod| ends_on_node(pod)) {
                ring.add(change.key.clone(), Lane::Placed);
            }
        });
        // Why after that: a pod that comes between the two is due twice, and none is missed.
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
        let api = Api::namespaced_with(self.dispatch.client.clone(), &key.namespace, &self.pods.resource);
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

    /// Whether the pod may run in the cluster of this node. A cluster that is no longer configured is not asked.
    fn may_have_copy(&self, node: &str, pod: &Key) -> bool {
        let clusters = self.dispatch.federation.clusters.all();
        let mut named = clusters.iter().map(|cluster| cluster.name_any());
        let Some(cluster) = named.find(|cluster| names::virtual_node(cluster) == node) else {
            return false;
        };
        let Some(remote) = self.dispatch.registry.get(&ClusterName::from(cluster.as_str())) else {
            return true;
        };
        let jobs = remote
            .jobs
            .iter()
            .find(|jobs| jobs.kind.kind() == self.pods.kind.kind());
        if remote.lost_since().is_some() {
            return !self.is_given_up(&remote, pod);
        }
        let knows = |jobs: &KindCache| jobs.state() != KindState::Unknown;
        jobs.is_none_or(|jobs| !knows(jobs) || jobs.objects.get(pod).is_some())
    }

    /// Whether the run of a pod on a lost cluster is over for this manager: an administrator has given the cluster up, or the Workload of
    /// the pod no longer names it.
    fn is_given_up(&self, remote: &Remote, pod: &Key) -> bool {
        let cluster = self.dispatch.federation.clusters.named(remote.name.as_str());
        if cluster.is_some_and(|cluster| sites::is_given_up(remote, &cluster)) {
            return true;
        }
        let uid = self.pods.objects.get(pod).and_then(|pod| pod.uid());
        let workloads = uid
            .map(|uid| self.dispatch.caches.owners.of(&uid))
            .unwrap_or_default();
        let mut stored = workloads
            .iter()
            .filter_map(|key| self.dispatch.caches.workloads.get(key))
            .peekable();
        stored.peek().is_some()
            && stored.all(|workload| workload.cluster_name() != Some(remote.name.as_str()))
    }

    async fn keep(&self, stop: CancellationToken) {
        let troubles = Troubles::default();
        let clusters = &self.dispatch.federation.clusters;
        let changed = Arc::new(Dirty::new());
        let bell = changed.clone();
        clusters.listen(move |change| {
            // Why not every change: its status is written often.
            if change.old.is_none() || change.new.is_none() {
                bell.mark(());
            }
        });
        loop {
            if clusters.is_live() {
                self.round(&troubles).await;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = changed.take() => {}
                () = tokio::time::sleep(RENEWAL) => {}
            }
        }
    }

    async fn round(&self, troubles: &Troubles<String>) {
        let all = self.dispatch.federation.clusters.all();
        let clusters: BTreeSet<String> = all.iter().map(|cluster| cluster.name_any()).collect();
        let mut kept = BTreeSet::new();
        for cluster in &clusters {
            let answer = self.present(cluster).await;
            if answer.is_ok() {
                kept.insert(cluster.clone());
            }
            tell(troubles, cluster, answer);
        }
        if self.dispatch.virtual_nodes.note(kept) {
            // Why: a pod whose copy runs already would be looked at only when that copy changes.
            for pod in self.pods.objects.all() {
                let key = self.pods.key_of(&pod);
                let kind = self.kind;
                self.dispatch.jobs_due.add(JobRef { kind, key }, Lane::Placed);
            }
        }
        tell(troubles, "", self.tidy(&clusters).await);
    }

    /// Creates the node of a cluster, if it is missing, and renews its lease.
    async fn present(&self, cluster: &str) -> Result<(), String> {
        let nodes = Api::<Node>::all(self.dispatch.client.clone());
        let name = names::virtual_node(cluster);
        let found = { nodes.get_opt(&name).await }.map_err(|error| write::describe(&error))?;
        let uid = match found {
            Some(node) if !node.labels().contains_key(labels::VIRTUAL_NODE) => {
                return Err(format!(
                    "a node named {name} is there that is not ours; pods of cluster {cluster} stay held"
                ));
            }
            Some(node) if is_ready(&node) => node.metadata.uid,
            Some(_) | None => self.make(&nodes, cluster, &name).await?,
        };
        let now = (self.wall)().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": LEASES,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid.unwrap_or_default()}],
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECS, "renewTime": now},
        }));
        let lease: Lease = lease.map_err(|error| error.to_string())?;
        let leases = Api::namespaced(self.dispatch.client.clone(), LEASES);
        done(write::apply(&leases, &lease, FIELD_MANAGER).await)
            .map_err(|why| format!("its lease: {why}"))?;
        Ok(())
    }

    /// Writes a Ready node, and returns its UID.
    async fn make(&self, nodes: &Api<Node>, cluster: &str, name: &str) -> Result<Option<String>, String> {
        let node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                labels::VIRTUAL_NODE: name, labels::CLUSTER: cluster, "type": "virtual-kubelet",
                "kubernetes.io/hostname": name, "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            }},
            "spec": {"taints": [{"key": labels::VIRTUAL_NODE, "value": "true", "effect": "NoSchedule"}]},
        }));
        let node: Node = node.map_err(|error| error.to_string())?;
        done(write::apply(nodes, &node, FIELD_MANAGER).await)?;
        let now = (self.wall)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "VirtualNode",
            "message": format!("Stands for worker cluster {cluster}; nothing runs on it"),
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let status = json!({"status": {"conditions": [ready]}});
        let made = done(write::patch_status(nodes, name, &status).await)?;
        Ok(made.and_then(|node| node.metadata.uid))
    }

    /// Removes the nodes of clusters that have left, once no pod is on them.
    async fn tidy(&self, clusters: &BTreeSet<String>) -> Result<(), String> {
        let nodes = Api::<Node>::all(self.dispatch.client.clone());
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
            let pods = self.pods.objects.all();
            if pods.iter().any(|pod| node_of(pod) == Some(&name)) {
                continue;
            }
            done(write::delete(&nodes, &name, node.metadata.uid.as_deref()).await)?;
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

/// Logs a failure once, and when it is over.
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

fn done<K>(written: Written<K>) -> Result<Option<Box<K>>, String> {
    match written {
        Written::Done(object) => Ok(Some(object)),
        Written::Gone | Written::AlreadyExists => Ok(None),
        Written::Conflict => Err("it met a newer version".to_owned()),
        Written::Refused(why) | Written::Unclear(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: jobs 12.9
    #[test]
    fn pods_are_put_only_on_nodes_that_are_there() {
        let kept = Kept::default();
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let node = |cluster: &str| kept.node_of(&ClusterName::from(cluster));
        assert_eq!(node("east"), None);
        assert!(
            kept.note(of(&["east", "west"])),
            "pods that waited are looked at again"
        );
        assert_eq!(node("east").as_deref(), Some("roadstead-east"));
        assert!(!kept.note(of(&["west"])));
        assert_eq!(node("east"), None);
    }
}
