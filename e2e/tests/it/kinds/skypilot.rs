//! The example for `SkyPilot` (`deploy/examples/skypilot`): pods as its client sends them, and an autoscaler played by the test.

#[cfg(feature = "nightly")]
mod client;

use std::path::Path;

use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use roadstead_e2e::options::RUN_SECONDS;
use roadstead_e2e::stage;
use serde_json::{Value, json};

use super::ground::{EAST, LONG_SECS, Room, condition, is_true, play_pods, resource};
use crate::shared::eventually;

const LABELS: &str = "kueue.x-k8s.io";
const CLASS: &str = "check-capacity.autoscaling.x-k8s.io";

/// A team of a scene: its namespace.
#[derive(Clone, Copy)]
struct Team<'a> {
    room: Room,
    namespace: &'a str,
}

/// Which nodes a launch has, and by which setting it names its queue.
#[derive(Clone, Copy)]
enum Launch {
    /// By `kubernetes.kueue.local_queue_name`: a gang of so many.
    Gang(usize),
    /// By a label below `kubernetes.pod_config`: one node.
    Label,
}

impl Team<'_> {
    fn api(self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.room.client(EAST), self.namespace, resource)
    }

    /// `sky launch`: each node asks for so many cores.
    async fn launch(self, cluster: &str, launch: Launch, cores: u32) {
        let nodes = match launch {
            Launch::Gang(nodes) => nodes,
            Launch::Label => 1,
        };
        let pods = (0..nodes).map(|node| pod(cluster, node, launch, cores));
        let api = self.api(&pods_resource());
        let create = async |pod: Value| {
            let object: DynamicObject = serde_json::from_value(pod).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        };
        // Why at once: the client creates all pods of a launch side by side.
        futures::future::join_all(pods.map(create)).await;
    }

    /// `sky down`.
    async fn down(self, cluster: &str) {
        let api = self.api(&pods_resource());
        let own = ListParams::default().labels(&format!("skypilot-cluster={cluster}"));
        api.delete_collection(&kube::api::DeleteParams::default(), &own)
            .await
            .unwrap();
        eventually(|| async {
            let left = api.list(&own).await.ok()?;
            left.items.is_empty().then_some(())
        })
        .await;
    }

    /// Waits until so many pods of a launch are in the phase, none of them gated.
    async fn are_running(self, cluster: &str, nodes: usize) {
        let api = self.api(&pods_resource());
        let own = ListParams::default().labels(&format!("skypilot-cluster={cluster}"));
        eventually(|| async {
            let all = api.list(&own).await.ok()?;
            let running = all
                .items
                .iter()
                .filter(|pod| pod.data["status"]["phase"] == "Running");
            (running.count() == nodes).then_some(())
        })
        .await;
    }

    /// The Workload of a launch once it is as wanted. `cluster` begins its name, or is that of its only pod.
    async fn workload(self, cluster: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let api = self.api(&resource("kueue.x-k8s.io/v1beta2", "Workload"));
        eventually(|| async {
            let all = api.list(&ListParams::default()).await.ok()?;
            let belongs = |object: &&DynamicObject| {
                let owners = object.owner_references();
                owners.iter().any(|owner| owner.name.starts_with(cluster))
            };
            let found = serde_json::to_value(all.items.iter().find(belongs)?).unwrap();
            wanted(&found).then_some(found)
        })
        .await
    }

    /// Answers the request for a launch as the autoscaler does when there is room. Gives what was asked.
    async fn provision(self, cluster: &str) -> Value {
        let workload = self
            .workload(cluster, |found| is_true(found, "QuotaReserved"))
            .await;
        let of = workload["metadata"]["name"].as_str().unwrap().to_owned();
        let api = self.api(&resource("autoscaling.x-k8s.io/v1", "ProvisioningRequest"));
        let request = eventually(|| async {
            let all = api.list(&ListParams::default()).await.ok()?;
            let mut asked = all.items.into_iter();
            asked.find(|request| request.owner_references().iter().any(|owner| owner.name == of))
        })
        .await;
        let provisioned = json!({"status": {"conditions": [{
            "type": "Provisioned", "status": "True", "reason": "CapacityIsFound", "message": "there is room",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}});
        let name = request.name_any();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(provisioned))
            .await
            .unwrap();
        request.data
    }
}

fn pods_resource() -> ApiResource {
    resource("v1", "Pod")
}

/// A pod of a launch. *Source*: `spec/jobs.md 13.1`.
fn pod(cluster: &str, node: usize, launch: Launch, cores: u32) -> Value {
    let (name, role) = if node == 0 {
        (format!("{cluster}-head"), "head")
    } else {
        (format!("{cluster}-worker{node}"), "worker")
    };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "parent": "skypilot", "skypilot-cluster": cluster, "skypilot-cluster-name": cluster, "ray-node-type": role,
                "component": name, format!("{LABELS}/queue-name"): "sky",
            },
            "annotations": {RUN_SECONDS: LONG_SECS.to_string()},
        },
        "spec": {
            "restartPolicy": "Never",
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"skypilot-cluster-name": cluster}},
            }}]}},
            "containers": [{
                "name": "ray-node", "image": "none", "command": ["sleep", "infinity"],
                "env": [{"name": "SKYPILOT_POD_NODE_TYPE", "valueFrom": {
                    "fieldRef": {"fieldPath": "metadata.labels['ray-node-type']"}}}],
                "resources": {"requests": {"cpu": cores.to_string(), "memory": "1Gi"}},
            }],
        },
    });
    if let Launch::Gang(nodes) = launch {
        pod["metadata"]["labels"][format!("{LABELS}/pod-group-name")] = json!(cluster);
        let annotations = &mut pod["metadata"]["annotations"];
        annotations[format!("{LABELS}/pod-group-total-count")] = json!(nodes.to_string());
        annotations[format!("{LABELS}/retriable-in-group")] = json!("false");
    }
    pod
}

/// Applies files of the example. The names of its teams and ClusterQueues begin with `own` here, so that each scene has its own quota.
async fn apply(room: Room, own: &str, files: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/skypilot");
    for team in ["team1", "team2"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("{own}-{team}")}});
        room.apply(EAST, namespace).await;
    }
    for file in files {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let text = text.replace("namespace: team", &format!("namespace: {own}-team"));
        for mut object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let field = match object["kind"].as_str() {
                Some("ClusterQueue") => "/metadata/name",
                _ => "/spec/clusterQueue",
            };
            if let Some(name) = object.pointer_mut(field) {
                *name = format!("{own}-{}", name.as_str().unwrap()).into();
            }
            stage::apply(&room.client(EAST), object).await.unwrap();
        }
    }
}

fn team(room: Room, namespace: &str) -> Team<'_> {
    Team { room, namespace }
}

/// Spec: jobs 13.1, 15.124, 15.125
#[test]
fn two_teams_of_skypilot_wait_in_one_queue_and_each_launch_starts_as_a_whole() {
    play_pods("sky-one", 1, async |room| {
        apply(room, "one", &["check.yaml", "one-queue.yaml"]).await;
        let (first, second) = (team(room, "one-team1"), team(room, "one-team2"));
        first.launch("train", Launch::Gang(2), 3).await;
        let asked = first.provision("train").await;
        assert_eq!(asked["spec"]["provisioningClassName"], CLASS);
        let sets = asked["spec"]["podSets"].as_array().unwrap();
        assert_eq!(
            (sets.len(), &sets[0]["count"]),
            (1, &json!(2)),
            "head and worker are alike"
        );
        first.are_running("train", 2).await;
        let workload = first.workload("train", |found| is_true(found, "Admitted")).await;
        assert_eq!(workload["metadata"]["name"], "train");

        second.launch("notebook", Launch::Label, 3).await;
        let waits = second
            .workload("notebook", |found| condition(found, "QuotaReserved").is_some())
            .await;
        assert_eq!(
            condition(&waits, "QuotaReserved").as_deref(),
            Some("False WaitingForQuota")
        );

        first.down("train").await;
        second.provision("notebook").await;
        second.are_running("notebook", 1).await;

        // Why two cores: the notebook of the other team has three of the eight.
        first.launch("train", Launch::Gang(2), 2).await;
        first.provision("train").await;
        first.are_running("train", 2).await;
        first.down("train").await;
        second.down("notebook").await;
    });
}

/// Spec: jobs 13.1
#[test]
fn two_teams_of_skypilot_with_a_queue_each_keep_their_own_quota_and_borrow_what_is_left() {
    play_pods("sky-two", 1, async |room| {
        apply(room, "two", &["check.yaml", "two-queues.yaml"]).await;
        let (first, second) = (team(room, "two-team1"), team(room, "two-team2"));
        first.launch("wide", Launch::Gang(3), 2).await;
        first.provision("wide").await;
        first.are_running("wide", 3).await;

        second.launch("large", Launch::Gang(2), 2).await;
        let waits = second
            .workload("large", |found| condition(found, "QuotaReserved").is_some())
            .await;
        assert_eq!(
            condition(&waits, "QuotaReserved").as_deref(),
            Some("False WaitingForQuota")
        );
        second.launch("small", Launch::Label, 2).await;
        second.provision("small").await;
        second.are_running("small", 1).await;

        second.down("small").await;
        first.down("wide").await;
        second.provision("large").await;
        second.are_running("large", 2).await;
        second.down("large").await;
    });
}
