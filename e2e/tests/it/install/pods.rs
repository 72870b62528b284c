//! The worker as an administrator runs it: its image in the pods of its Deployment, under a real kubelet, with real pods of jobs.

use std::os::unix::fs::symlink;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::stage::kubelet::{Kubelet, PAUSE};

use super::*;
use crate::images;
use crate::shared::output_of;

/// The name in `deploy/images` of the image that the Deployment names.
const WORKER: &str = "roadstead-worker";
/// The program of Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";
/// How long a pod may take to end: longer than the test.
const GRACE_SECS: u32 = 3_600;
/// The controllers that bring the pods of a Deployment up, their tokens, and the addresses of its Services.
const CONTROLLERS: [&str; 4] = [
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "root-ca-certificate-publisher-controller",
];

async fn shell(dir: &Path, script: &str) -> String {
    output_of(Command::new("sh").args(["-ec", script]).current_dir(dir)).await
}

/// An archive of an image that holds busybox and sleeps, as `docker save` writes it.
async fn busybox(dir: &Path) -> PathBuf {
    let root = dir.join("root/bin");
    fs::create_dir_all(&root).unwrap();
    fs::copy(BUSYBOX, root.join("busybox"))
        .unwrap_or_else(|error| panic!("{BUSYBOX}: {error}; apt-get install busybox-static"));
    for name in ["sh", "sleep", "echo"] {
        symlink("busybox", root.join(name)).unwrap();
    }
    let content = shell(
        dir,
        "tar -C root -cf layer.tar .; sha256sum layer.tar | cut -d' ' -f1",
    )
    .await;
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", content.trim())]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]);
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    fs::write(dir.join("manifest.json"), manifest.to_string()).unwrap();
    shell(dir, "tar -cf busybox.tar manifest.json config.json layer.tar").await;
    dir.join("busybox.tar")
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

/// An archive of the worker's image, under the name that the Deployment uses.
async fn worker(dir: &Path) -> PathBuf {
    images::build(&mut images::images(dir, &[WORKER])).await;
    let layout = dir.join(WORKER);
    let index = layout.join("index.json");
    let mut read: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    read["manifests"][0]["annotations"]["io.containerd.image.name"] =
        format!("docker.io/roadstead/{WORKER}:v{version}").into();
    fs::write(&index, read.to_string()).unwrap();
    shell(&layout, "tar -cf ../worker.tar .").await;
    dir.join("worker.tar")
}

/// A job of one pod that runs this script.
fn job(name: &str, script: &str) -> Job {
    from_value(json!({
        "metadata": {"name": name, "labels": {QUEUE_NAME: QUEUE}},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE_SECS, "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": PAUSE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
                "resources": {"requests": {"cpu": "100m"}},
            }],
        }}},
    }))
    .unwrap()
}

async fn pods(client: &Client, namespace: &str) -> Vec<Pod> {
    let all: Api<Pod> = Api::namespaced(client.clone(), namespace);
    all.list(&ListParams::default()).await.unwrap().items
}

async fn succeeds(jobs: &Api<Job>, name: &str) {
    eventually(|| async {
        let status = jobs.get(name).await.ok()?.status?;
        (status.succeeded == Some(1)).then_some(())
    })
    .await;
}

/// A stopped job gives its quota back, and its pod ends in its own time.
///
/// Spec: admission-engine 3.4
async fn stops_with_grace(client: &Client, jobs: &Api<Job>) {
    let of_team: Api<Pod> = Api::namespaced(client.clone(), TEAM);
    let slow = "trap 'echo ending' TERM; echo begun; while true; do sleep 1; done";
    jobs.create(&PostParams::default(), &job("slow", slow))
        .await
        .unwrap();
    let found = || async {
        let mut all = pods(client, TEAM).await.into_iter();
        all.find(|pod| pod.name_any().starts_with("slow"))
    };
    let says = async |wanted: &str| {
        let name = found().await?.name_any();
        let said = of_team.logs(&name, &LogParams::default()).await.ok()?;
        said.starts_with(wanted).then_some(name)
    };
    eventually(|| says("begun\n")).await;
    let workloads: Api<Workload> = Api::namespaced(client.clone(), TEAM);
    let listed = workloads.list(&ListParams::default()).await.unwrap();
    let of_slow =
        { listed.items.iter() }.find(|each| each.owner_references().iter().any(|owner| owner.name == "slow"));
    let name = of_slow.unwrap().name_any();
    let stop = Patch::Merge(json!({"spec": {"active": false}}));
    workloads
        .patch(&name, &PatchParams::default(), &stop)
        .await
        .unwrap();
    eventually(|| async {
        let status = workloads.get(&name).await.ok()?.status?;
        let mut conditions = status.conditions.iter();
        conditions
            .any(|each| each.type_ == "QuotaReserved" && each.status == "False")
            .then_some(())
    })
    .await;
    let pod = eventually(|| says("begun\nending\n")).await;
    // It would go on for as long as it may, and the kubelet shortens no time that has begun; an administrator gives it up.
    let at_once = DeleteParams::default().grace_period(0);
    of_team.delete(&pod, &at_once).await.unwrap();
    eventually(|| async { found().await.is_none().then_some(()) }).await;
}

/// The replica that leads goes; the other one leads.
async fn hands_over(client: &Client) {
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let leader = || async {
        let holders = leases.list(&ListParams::default()).await.ok()?.items.into_iter();
        let holders: Vec<String> = holders.filter_map(|lease| lease.spec?.holder_identity).collect();
        let replicas = pods(client, NAMESPACE)
            .await
            .into_iter()
            .map(|pod| pod.name_any());
        { replicas }.find(|pod| holders.iter().any(|holder| holder.starts_with(pod.as_str())))
    };
    let first = eventually(leader).await;
    let replicas: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    replicas.delete(&first, &DeleteParams::default()).await.unwrap();
    eventually(|| async { leader().await.filter(|now| *now != first) }).await;
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn the_installed_worker_runs_in_real_pods_and_queues_real_pods() {
    let dir = tempfile::tempdir().unwrap();
    let archives = [busybox(dir.path()).await, worker(dir.path()).await];
    let mut options = Options {
        kwok: false,
        ..Options::complete("real-pods")
    };
    options.controllers.extend(CONTROLLERS.map(str::to_owned));
    let cluster = Cluster::start(options, "worker", dir.path()).await;
    let kubelet = Kubelet::start(&cluster.plane, &archives).await;
    let _kubelet = kubelet.unwrap_or_else(|error| panic!("{}", chain(&error)));

    cluster
        .install(&["--wait"])
        .await
        .unwrap_or_else(|said| panic!("{said}"));
    let replicas = pods(&cluster.client, NAMESPACE).await;
    assert_eq!(replicas.len(), 2, "as the Deployment asks");
    furnish(&cluster, None).await;
    is_active(&cluster, "LocalQueue", Some(TEAM), QUEUE).await;

    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), TEAM);
    let created = jobs
        .create(&PostParams::default(), &job("hello", "echo hello from a pod"))
        .await;
    assert_eq!(
        created.unwrap().spec.unwrap().suspend,
        Some(true),
        "the webhook in the pod held it"
    );
    succeeds(&jobs, "hello").await;
    let of_team: Api<Pod> = Api::namespaced(cluster.client.clone(), TEAM);
    let pod = pods(&cluster.client, TEAM).await.remove(0).name_any();
    let said = of_team.logs(&pod, &LogParams::default()).await.unwrap();
    assert_eq!(said, "hello from a pod\n");

    stops_with_grace(&cluster.client, &jobs).await;
    hands_over(&cluster.client).await;
    // Why: until its replacement is ready, the webhook may still be looked for in the pod that went.
    let ready = cluster.install(&["--wait"]).await;
    assert_eq!(parsed(&ready.unwrap())["applied"], json!([]));
    jobs.create(&PostParams::default(), &job("after", "echo again"))
        .await
        .unwrap();
    succeeds(&jobs, "after").await;

    for name in ["hello", "slow", "after"] {
        jobs.delete(name, &DeleteParams::background()).await.unwrap();
    }
    cluster.uninstall().await.unwrap();
    eventually(|| async {
        let left = [
            pods(&cluster.client, NAMESPACE).await,
            pods(&cluster.client, TEAM).await,
        ]
        .concat();
        left.is_empty().then_some(())
    })
    .await;
}
