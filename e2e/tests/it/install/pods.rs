//! The worker as an administrator runs it: its image in the pods of its Deployment, under a real kubelet, with real pods of jobs.

use std::os::unix::fs::symlink;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_e2e::stage::kubelet::{BY_NAME, Kubelet, PAUSE};

use super::*;
use crate::shared::output_of;

/// The name in `deploy/images` of the image that the Deployment names.
const WORKER: &str = "roadstead-worker";
/// The program of Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

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
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/images");
    let mut build = Command::new(images);
    build.arg(dir).arg(WORKER);
    for told_by_cargo in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        build.env_remove(told_by_cargo);
    }
    output_of(&mut build).await;
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
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 60, "automountServiceAccountToken": false,
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

/// The queue takes the quota of a stopped job back only when its pod is gone, however long the pod takes to end.
async fn keeps_quota_until_the_pod_is_gone(client: &Client, jobs: &Api<Job>) {
    let of_team: Api<Pod> = Api::namespaced(client.clone(), TEAM);
    let slow = "trap 'sleep 5; exit 0' TERM; echo begun; while true; do sleep 1; done";
    jobs.create(&PostParams::default(), &job("slow", slow))
        .await
        .unwrap();
    let begun = || async {
        let running = pods(client, TEAM)
            .await
            .into_iter()
            .find(|pod| pod.name_any().starts_with("slow"))?;
        let said = of_team
            .logs(&running.name_any(), &LogParams::default())
            .await
            .ok()?;
        (said == "begun\n").then_some(())
    };
    eventually(begun).await;
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
    let released = || async {
        let status = workloads.get(&name).await.ok()?.status?;
        let holds = status
            .conditions
            .iter()
            .any(|each| each.type_ == "QuotaReserved" && each.status == "True");
        let runs = { pods(client, TEAM).await.into_iter() }.any(|pod| {
            pod.name_any().starts_with("slow")
                && pod
                    .status
                    .as_ref()
                    .is_some_and(|status| status.phase.as_deref() == Some("Running"))
        });
        assert!(holds || !runs, "the quota is free while the pod still ends");
        (!holds).then_some(())
    };
    eventually(released).await;
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
    let images = [busybox(dir.path()).await, worker(dir.path()).await];
    let options = Options {
        kwok: false,
        ..Options::complete("real-pods")
    };
    let cluster = Cluster::start(options.with_apiserver_flag(BY_NAME), "worker", dir.path()).await;
    let kubelet = Kubelet::start(&cluster.plane, &images).await;
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

    keeps_quota_until_the_pod_is_gone(&cluster.client, &jobs).await;
    hands_over(&cluster.client).await;
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
