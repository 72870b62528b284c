//! A node for each worker cluster, on which pods show where they run.
//!
//! Invariant: nothing runs on a virtual node. It is Ready as long as this process lives, whatever happens to its worker cluster.
//! Otherwise a broken connection would make the manager's node controller evict the pods. A deleted pod on the node is removed
//! once its copy on the worker is gone.
//!
//! *Source*: `spec/jobs.md 12.9`.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::config::WebhookServer;
use roadstead_api::constants::{annotations, labels, names};
use roadstead_core::kind::KindState;
use roadstead_core::name::{ClusterName, Key};
use roadstead_engine::caches::{JobRef, KindCache};
use roadstead_engine::clock::Clock;
use roadstead_kinds::rows;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
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
/// How long to wait before the next look at a deleted pod whose copy still exists.
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
    /// The name of the node of a cluster; `None` if the node does not exist. Why `None` then: the pod garbage collector deletes a
    /// pod that is bound to a missing node.
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

/// Where API servers reach the server of this process that answers for the nodes: its webhook server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    address: IpAddr,
    port: u16,
}

impl Endpoint {
    /// The address and the port of the webhook server. If it listens on all addresses, the address is the one from which this
    /// machine reaches `api_server`: in a cluster that of the pod. `None` if neither is known: an API server then says that the
    /// node has no address.
    pub(crate) fn of(webhook: &WebhookServer, api_server: Option<&str>) -> Option<Self> {
        let bound = webhook.host.parse().ok();
        let bound = bound.filter(|address: &IpAddr| !address.is_unspecified());
        let address = bound.or_else(|| reaching(api_server?.parse().ok()?))?;
        let port = webhook.port;
        Some(Self { address, port })
    }
}

/// The local address from which this machine reaches `other`. Nothing is sent.
fn reaching(other: IpAddr) -> Option<IpAddr> {
    let any = if other.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((other, 443)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Keeps the nodes, and ends the pods on them.
#[derive(Clone)]
pub(crate) struct VirtualNodes {
    dispatch: Dispatch,
    endpoint: Option<Endpoint>,
    /// The manager's own pods, and their position in its caches.
    pods: KindCache,
    kind: usize,
    /// The wall clock, because other processes compare leases with it.
    wall: Clock,
}

impl VirtualNodes {
    /// `None` where pods are not queued.
    pub(crate) fn new(dispatch: &Dispatch, endpoint: Option<Endpoint>, wall: Clock) -> Option<Self> {
        let kind = { dispatch.caches.jobs.iter() }.position(|jobs| jobs.kind.kind() == &rows::POD)?;
        Some(Self {
            dispatch: dispatch.clone(),
            endpoint,
            pods: dispatch.caches.jobs[kind].clone(),
            kind,
            wall,
        })
    }

    /// Keeps the nodes, and ends the pods on them, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let due: Arc<Queue<Key>> = Arc::new(Queue::default());
        let ring = due.clone();
        self.pods.objects.listen(move |change| {
            if change.new.is_some_and(|pod| ends_on_node(pod)) {
                ring.add(change.key.clone(), Lane::Placed);
            }
        });
        // Why after `listen`: a pod that appears in between is due twice, and none is missed.
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

    /// Removes a deleted pod of the manager once its copy on the worker is gone.
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
        let answer = write::delete_at_once(&api, &key.name, pod.metadata.uid.as_deref()).await;
        match answer.stored() {
            Ok(None) => Outcome::Done,
            Ok(Some(object)) => {
                self.pods.objects.observe(*object);
                Outcome::Done
            }
            Err(failure) => failure.in_doing("ending the pod").into(),
        }
    }

    /// Whether a copy of the pod may exist in the cluster of this node; false if that cluster is not configured any more.
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

    /// Whether the run of a pod on a lost cluster is over for this manager: an administrator has given the cluster up, or the
    /// Workload of the pod is not placed on it.
    fn is_given_up(&self, remote: &Remote, pod: &Key) -> bool {
        let cluster = self.dispatch.federation.clusters.named(remote.name.as_str());
        if cluster.is_some_and(|cluster| sites::is_given_up(remote, &cluster)) {
            return true;
        }
        let caches = &self.dispatch.caches;
        let of = |pod: &DynamicObject| Some(caches.workloads_of(&self.pods.key_of(pod), &pod.uid()?));
        let workloads = { self.pods.objects.get(pod) }.and_then(|pod| of(&pod));
        let workloads = workloads.unwrap_or_default();
        let mut stored = workloads
            .iter()
            .filter_map(|key| caches.workloads.get(key))
            .peekable();
        stored.peek().is_some()
            && stored.all(|workload| workload.cluster_name() != Some(remote.name.as_str()))
    }

    async fn keep(&self, stop: CancellationToken) {
        let troubles = Troubles::default();
        let clusters = &self.dispatch.federation.clusters;
        let changed = Arc::new(Dirty::default());
        let bell = changed.clone();
        clusters.listen(move |change| {
            // Why only when a cluster is added or removed: the status of a MultiKueueCluster is written often.
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
            // Why all pods: one whose copy runs already would wait for the next change of that copy.
            for pod in self.pods.objects.all() {
                let key = self.pods.key_of(&pod);
                let kind = self.kind;
                self.dispatch.jobs_due.add(JobRef { kind, key }, Lane::Placed);
            }
        }
        tell(troubles, "", self.tidy(&clusters).await);
    }

    /// Creates the node of a cluster, if it is missing, and renews its lease.
    async fn present(&self, cluster: &str) -> Result<(), Failure> {
        let nodes = Api::<Node>::all(self.dispatch.client.clone());
        let name = names::virtual_node(cluster);
        let uid = match nodes.get_opt(&name).await? {
            Some(node) if !node.labels().contains_key(labels::VIRTUAL_NODE) => {
                return Err(Failure::lasting(format!(
                    "node {name} exists and was not made by this manager, so pods of cluster {cluster} keep their scheduling gate; if it is \
                     no real node: kubectl delete node {name}"
                )));
            }
            Some(node) if is_ready(&node) && answers_at(&node, self.endpoint) => node.metadata.uid,
            Some(_) | None => self.make(&nodes, cluster, &name).await?,
        };
        let now = (self.wall)().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease: Lease = serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": LEASES,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid.unwrap_or_default()}],
            },
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECS, "renewTime": now},
        }))?;
        let leases = Api::namespaced(self.dispatch.client.clone(), LEASES);
        let renewed = done(write::apply(&leases, &lease, FIELD_MANAGER).await);
        renewed.map_err(|failure| failure.in_doing("its lease"))?;
        Ok(())
    }

    /// Writes a Ready node, and returns its UID.
    async fn make(&self, nodes: &Api<Node>, cluster: &str, name: &str) -> Result<Option<String>, Failure> {
        let node: Node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                labels::VIRTUAL_NODE: name, labels::CLUSTER: cluster, "type": "virtual-kubelet",
                "kubernetes.io/hostname": name, "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            }},
            "spec": {"taints": [{"key": labels::VIRTUAL_NODE, "value": "true", "effect": "NoSchedule"}]},
        }))?;
        done(write::apply(nodes, &node, FIELD_MANAGER).await)?;
        let now = (self.wall)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "VirtualNode",
            "message": format!("Stands for worker cluster {cluster}; nothing runs on it"),
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let mut status = json!({"status": {"conditions": [ready]}});
        if let Some(Endpoint { address, port }) = self.endpoint {
            status["status"]["addresses"] = json!([{"type": "InternalIP", "address": address.to_string()}]);
            status["status"]["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
        }
        let made = done(write::patch_status(nodes, name, &status).await)?;
        Ok(made.and_then(|node| node.metadata.uid))
    }

    /// Removes the nodes of clusters that have left, once no pod is on them.
    async fn tidy(&self, clusters: &BTreeSet<String>) -> Result<(), Failure> {
        let nodes = Api::<Node>::all(self.dispatch.client.clone());
        let wanted: BTreeSet<String> = { clusters.iter() }
            .map(|cluster| names::virtual_node(cluster))
            .collect();
        let ours = ListParams::default().labels(labels::VIRTUAL_NODE);
        let all = nodes.list_metadata(&ours).await?;
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

/// Whether a node names this endpoint; true without an endpoint. It names another address if another replica wrote it, or this
/// one before a restart.
fn answers_at(node: &Node, endpoint: Option<Endpoint>) -> bool {
    let Some(Endpoint { address, port }) = endpoint else {
        return true;
    };
    let status = node.status.as_ref();
    let addresses = status
        .and_then(|status| status.addresses.as_ref())
        .into_iter()
        .flatten();
    let kubelet = status
        .and_then(|status| status.daemon_endpoints.as_ref())
        .and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    { addresses }.any(|one| one.type_ == "InternalIP" && one.address == address.to_string())
        && kubelet.is_some_and(|kubelet| kubelet.port == i32::from(port))
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
fn tell(troubles: &Troubles<String>, cluster: &str, answer: Result<(), Failure>) {
    match answer {
        Ok(()) => {
            if troubles.ends(&cluster.to_owned()).is_some() {
                tracing::info!(cluster, "its virtual node is kept again");
            }
        }
        Err(failure) => {
            if troubles.is_news(cluster.to_owned(), failure.text()) {
                tracing::warn!(
                    cluster,
                    "the virtual node cannot be kept: {failure}; if this is a refusal, apply deploy/rights/roadstead-manager-virtual-nodes.yaml, \
                     or switch virtualNodes.enable off"
                );
            }
        }
    }
}

fn done<K>(written: Written<K>) -> Result<Option<Box<K>>, Failure> {
    if matches!(written, Written::Conflict) {
        return Err(Failure::passing("it met a newer version"));
    }
    written.stored()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: jobs 12.9
    #[test]
    fn a_node_names_where_its_manager_listens_and_is_written_again_when_that_changes() {
        let of = |host: &str, api_server| {
            let webhook = WebhookServer {
                port: 9443,
                host: host.to_owned(),
                cert_dir: std::path::PathBuf::new(),
            };
            Endpoint::of(&webhook, api_server)
        };
        let here = of("127.0.0.1", None).unwrap();
        assert_eq!(
            here,
            of("", Some("127.0.0.7")).unwrap(),
            "the way to a server on this machine"
        );
        for host in ["", "0.0.0.0", "hooks.example"] {
            assert_eq!(of(host, None), None);
            assert_eq!(of(host, Some("api.example")), None);
        }
        let node = |address: &str, port: u16| -> Node {
            serde_json::from_value(json!({"status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }}))
            .unwrap()
        };
        assert!(answers_at(&node("127.0.0.1", 9443), Some(here)));
        assert!(!answers_at(&node("127.0.0.2", 9443), Some(here)));
        assert!(!answers_at(&node("127.0.0.1", 9444), Some(here)));
        assert!(!answers_at(&Node::default(), Some(here)));
        assert!(answers_at(&Node::default(), None));
    }

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
