//! From nothing to a running federation with `roadstead install` and `roadstead cluster join` only, and back to nothing.
//!
//! The processes run as their Deployments ask: with their flags, their files, and the token of their account.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::labels::QUEUE_NAME;
use roadstead_e2e::stage::deployed::{BY_ENDPOINTS, Deployed, free_ports};
use roadstead_e2e::stage::{Programs, apply};
use roadstead_e2e::{ControlPlane, Node, Options, Progress};
use serde_json::{Value, from_value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::shared::{chain, eventually, start};

mod documents;
#[cfg(feature = "nightly")]
mod pods;
mod takeover;
mod upgrade;

const NAMESPACE: &str = "queueing";
const TEAM: &str = "team";
const QUEUE: &str = "main";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const DEADLINE: Duration = Duration::from_mins(5);

/// A cluster with an administrator's kubeconfig.
struct Cluster {
    plane: ControlPlane,
    client: Client,
    part: &'static str,
    dir: PathBuf,
}

impl Cluster {
    async fn start(options: Options, part: &'static str, dir: &Path) -> Self {
        let plane = start(options.with_apiserver_flag(BY_ENDPOINTS)).await;
        plane.write_kubeconfig(&dir.join(plane.name())).unwrap();
        Self {
            client: plane.client().unwrap(),
            plane,
            part,
            dir: dir.to_owned(),
        }
    }

    fn kubeconfig(&self) -> String {
        self.dir.join(self.plane.name()).display().to_string()
    }

    /// Values with ports of its own, because all processes run on this machine.
    fn values(&self) -> String {
        let [health, metrics, webhook, visibility] = free_ports().unwrap();
        let values = json!({
            "ports": {"health": health, "metrics": metrics, "webhook": webhook, "visibility": visibility},
            "roadsteadConfiguration": {"multiKueue": {"allowLoopbackWorkers": true}},
        });
        let path = self.dir.join(format!("{}.values", self.plane.name()));
        fs::write(&path, values.to_string()).unwrap();
        path.display().to_string()
    }

    async fn install(&self, more: &[&str]) -> Result<String, String> {
        let kubeconfig = self.kubeconfig();
        let fixed = [
            "install",
            self.part,
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            NAMESPACE,
            "--yes",
            "--output",
            "json",
        ];
        roadstead(&[&fixed, more].concat()).await
    }

    async fn uninstall(&self) -> Result<String, String> {
        let kubeconfig = self.kubeconfig();
        roadstead(&[
            "uninstall",
            self.part,
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            NAMESPACE,
            "--definitions",
            "--yes",
        ])
        .await
    }

    /// Waits until `doctor` has nothing to complain about.
    async fn is_healthy(&self, namespace: &str) {
        let kubeconfig = self.kubeconfig();
        let doctor = [
            "doctor",
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            namespace,
            "--wait",
        ];
        roadstead(&doctor).await.unwrap_or_else(|said| panic!("{said}"));
    }

    /// Starts the process as its Deployment asks.
    async fn deploy(&self) -> Deployed {
        let name = format!("roadstead-{}", self.part);
        let started = Deployed::start(&self.plane, NAMESPACE, &name).await;
        started.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Whatever an installation could leave behind, by kind and name.
    async fn inventory(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (group, version, kind) in [
            ("", "v1", "Namespace"),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
            ("rbac.authorization.k8s.io", "v1", "Role"),
            ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            (
                "admissionregistration.k8s.io",
                "v1",
                "MutatingWebhookConfiguration",
            ),
            (
                "admissionregistration.k8s.io",
                "v1",
                "ValidatingWebhookConfiguration",
            ),
            ("apiregistration.k8s.io", "v1", "APIService"),
            ("apps", "v1", "Deployment"),
            ("networking.k8s.io", "v1", "NetworkPolicy"),
            ("policy", "v1", "PodDisruptionBudget"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let listed = all.list(&ListParams::default()).await.unwrap();
            let title =
                |object: DynamicObject| format!("{kind} {:?} {}", object.namespace(), object.name_any());
            found.extend(listed.items.into_iter().map(title));
        }
        found
    }
}

/// Runs the command. Returns what it printed, or what it complained about.
async fn roadstead(args: &[&str]) -> Result<String, String> {
    let programs = Programs::find_or_build(&Progress::stderr()).await.unwrap();
    let mut command = Command::new(programs.command);
    command.args(args).kill_on_drop(true);
    let output = timeout(DEADLINE, command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// `roadstead cluster join` and `leave`.
async fn cluster_verb(verb: &str, name: &str, worker: &Cluster, manager: &Cluster, more: &[&str]) {
    let (of_worker, of_manager) = (worker.kubeconfig(), manager.kubeconfig());
    let fixed = [
        "cluster",
        verb,
        name,
        "--kubeconfig",
        &of_worker,
        "--manager-kubeconfig",
        &of_manager,
        "--namespace",
        NAMESPACE,
        // Why: the lease of the manager lies where the worker looks for it.
        "--worker-namespace",
        NAMESPACE,
        "--yes",
    ];
    roadstead(&[&fixed, more].concat())
        .await
        .unwrap_or_else(|said| panic!("{said}"));
}

fn parsed(said: &str) -> Value {
    serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// What an administrator sets up for users: a flavor and a queue with these checks.
fn of_the_queue(check: Option<&str>) -> Vec<Value> {
    let quota = json!([{"name": "cpu", "nominalQuota": "4"}]);
    let mut queue = json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": QUEUE},
        "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": quota}]},
        ]},
    });
    let mut objects =
        vec![json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}})];
    if let Some(config) = check {
        queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": config}]});
        objects.push(json!({
            "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": config},
            "spec": {
                "controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config},
            },
        }));
    }
    objects.push(queue);
    objects
}

/// What administrators of both sides and a user set up: a namespace, a flavor, a queue.
async fn furnish(cluster: &Cluster, check: Option<&str>) {
    let of_team = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}),
        json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": QUEUE, "namespace": TEAM},
            "spec": {"clusterQueue": QUEUE},
        }),
    ];
    for object in of_the_queue(check).into_iter().chain(of_team) {
        apply(&cluster.client, object).await.unwrap();
    }
}

async fn is_active(cluster: &Cluster, kind: &str, namespace: Option<&str>, name: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
        None => Api::all_with(cluster.client.clone(), &resource),
    };
    eventually(|| async {
        let conditions = api.get(name).await.ok()?.data["status"]["conditions"].clone();
        let mut conditions = conditions.as_array()?.iter();
        conditions
            .any(|each| each["type"] == "Active" && each["status"] == "True")
            .then_some(())
    })
    .await;
}

/// Spec: experience 3; safety 6, S23
#[tokio::test(flavor = "multi_thread")]
async fn a_federation_is_installed_runs_a_job_and_is_taken_away_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let of_manager = Options {
        scheduler: false,
        kwok: false,
        ..Options::complete("installed-manager")
    };
    let of_worker = |name: &str| Options::complete(name).with_node(Node::new("node-1", "8", "32Gi"));
    let (manager, east, west) = tokio::join!(
        Cluster::start(of_manager, "manager", dir.path()),
        Cluster::start(of_worker("installed-east"), "worker", dir.path()),
        Cluster::start(of_worker("installed-west"), "worker", dir.path()),
    );
    let clusters = [&manager, &east, &west];
    let mut before = Vec::new();
    for cluster in clusters {
        before.push(cluster.inventory().await);
    }

    let begun = Instant::now();
    let mut processes = Vec::new();
    let mut values = Vec::new();
    for cluster in clusters {
        let file = cluster.values();
        let installed = cluster.install(&["--values", &file]).await.unwrap();
        let unserved = format!("servicemonitor/{NAMESPACE}/roadstead-{}", cluster.part);
        assert_eq!(
            parsed(&installed)["kept"],
            json!([unserved]),
            "the cluster was empty"
        );
        processes.push(cluster.deploy().await);
        values.push(file);
    }
    for (cluster, file) in clusters.iter().zip(&values) {
        let again = cluster.install(&["--values", file, "--wait"]).await.unwrap();
        assert_eq!(
            parsed(&again)["applied"],
            json!([]),
            "a second run changes nothing"
        );
    }
    furnish(&manager, Some("multikueue")).await;
    for (worker, name) in [(&east, "east"), (&west, "west")] {
        furnish(worker, None).await;
        cluster_verb("join", name, worker, &manager, &["--allow-loopback"]).await;
        is_active(&manager, "MultiKueueCluster", None, name).await;
    }
    is_active(&manager, "LocalQueue", Some(TEAM), QUEUE).await;
    let jobs: Api<Job> = Api::namespaced(manager.client.clone(), TEAM);
    let job: Job = from_value(json!({
        "metadata": {"name": "first", "labels": {QUEUE_NAME: QUEUE}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }))
    .unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
    eventually(|| async {
        let status = jobs.get("first").await.ok()?.status?;
        (status.succeeded == Some(1)).then_some(())
    })
    .await;
    for cluster in clusters {
        cluster.is_healthy(NAMESPACE).await;
    }
    let took = begun.elapsed();
    Progress::stderr().step(&format!("from nothing to the end of a job: {took:?}"));

    let refused = manager.uninstall().await.unwrap_err();
    assert!(refused.contains("roadstead cluster leave east"), "{refused}");
    for (worker, name) in [(&east, "east"), (&west, "west")] {
        cluster_verb("leave", name, worker, &manager, &[]).await;
    }
    // A kubelet ends the process when the Deployment goes; none is here.
    drop(processes);
    for cluster in clusters {
        cluster.uninstall().await.unwrap();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client.clone());
        namespaces
            .delete(TEAM, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }
    for (cluster, before) in clusters.iter().zip(&before) {
        eventually(|| async { (cluster.inventory().await == *before).then_some(()) }).await;
    }
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_of_an_installation_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(Options::bare("refuses"), "worker", dir.path()).await;
    let before = cluster.inventory().await;
    let kubeconfig = cluster.kubeconfig();
    let sick = roadstead(&["doctor", "--kubeconfig", &kubeconfig, "--output", "short"]).await;
    let sick = sick.unwrap_err();
    assert!(
        sick.contains("checks failed") && sick.contains("definitions-present"),
        "{sick}"
    );

    let printed = cluster.install(&["--dry-run"]).await.unwrap();
    assert_eq!(printed, "", "there is no result");
    assert_eq!(cluster.inventory().await, before, "--dry-run writes nothing");

    let wrong = dir.path().join("wrong.values");
    fs::write(
        &wrong,
        json!({"replicas": 3, "configuration": {"leaderElection": {"leaderElect": false}}}).to_string(),
    )
    .unwrap();
    let refused = cluster
        .install(&["--values", &wrong.display().to_string()])
        .await
        .unwrap_err();
    assert!(refused.contains("all would decide at once"), "{refused}");

    let pod = json!({
        "metadata": {"labels": {"app": "kueue"}},
        "spec": {"containers": [{"name": "manager", "image": "registry.k8s.io/kueue/kueue:v0.17.0"}]},
    });
    let kueue = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kueue"}}, "template": pod},
    });
    apply(&cluster.client, kueue).await.unwrap();
    let refused = cluster.install(&[]).await.unwrap_err();
    assert!(
        refused.contains("Kueue runs in this cluster already"),
        "{refused}"
    );
    assert!(refused.contains("--replicas=0"), "{refused}");
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(cluster.client.clone(), "default");
    deployments
        .delete("kueue-controller-manager", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(cluster.inventory().await, before, "nothing was written");
}
