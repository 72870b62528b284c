//! An installation by Helm that is upgraded while its process runs, and uninstalled.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use roadstead_api::constants::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use roadstead_api::kueue::v1beta2::{ClusterQueue, Workload};
use roadstead_e2e::binaries::Program;
use roadstead_e2e::stage::merge;

use super::*;
use crate::shared::{output_of, tool};

const RELEASE: &str = "roadstead";
const DEFINITIONS: &str = "roadstead-crds";
/// How long the process lives on after its Deployment is deleted, as a pod does.
const GRACE: Duration = Duration::from_secs(2);

/// Helm, with a home folder and a cluster of its own.
struct Helm<'a> {
    program: PathBuf,
    cluster: &'a Cluster,
}

impl Helm<'_> {
    async fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .args(["--namespace", NAMESPACE])
            .env("HOME", &self.cluster.dir)
            .env("KUBECONFIG", self.cluster.kubeconfig());
        output_of(&mut command).await
    }

    /// Installs or upgrades the release of the process with these values.
    async fn release(&self, verb: &str, values: &Value) {
        let file = self
            .cluster
            .dir
            .join(format!("{}.yaml", self.cluster.plane.name()));
        fs::write(&file, values.to_string()).unwrap();
        let chart = chart(&format!("roadstead-{}", self.cluster.part));
        self.run(&[verb, RELEASE, &chart, "--values", &file.display().to_string()])
            .await;
    }
}

fn chart(name: &str) -> String {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts");
    charts.join(name).display().to_string()
}

/// Values with ports of its own, because all processes run on this machine.
fn values() -> Value {
    let [health, metrics, webhook, visibility] = free_ports().unwrap();
    json!({"ports": {"health": health, "metrics": metrics, "webhook": webhook, "visibility": visibility}})
}

/// Names and authorities of all entries of both webhook configurations; `None` if one of the configurations is missing.
async fn entries(client: &Client) -> Option<Vec<(String, Value)>> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating = json!(mutating.get_opt(MUTATING_WEBHOOKS).await.unwrap()?);
    let validating = json!(validating.get_opt(VALIDATING_WEBHOOKS).await.unwrap()?);
    let both = [mutating, validating];
    let entries = both
        .iter()
        .flat_map(|found| found["webhooks"].as_array().into_iter().flatten());
    let named = entries.map(|entry| {
        let name = entry["name"].as_str().unwrap().to_owned();
        (name, entry["clientConfig"]["caBundle"].clone())
    });
    Some(named.collect())
}

/// Whether all entries have one authority, and those of these names are among them.
fn is_complete(entries: &[(String, Value)], names: &[&str]) -> bool {
    let (first, rest) = entries.split_first().unwrap();
    let has = |name: &&str| entries.iter().any(|(known, _)| known == *name);
    first.1.is_string() && rest.iter().all(|entry| entry.1 == first.1) && names.iter().all(has)
}

fn job(name: &str) -> Job {
    from_value(json!({
        "metadata": {"name": name, "labels": {QUEUE_NAME: QUEUE}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    }))
    .unwrap()
}

/// Creates a job, and waits until it may run.
async fn runs(jobs: &Api<Job>, name: &str) {
    let created = jobs.create(&PostParams::default(), &job(name)).await.unwrap();
    assert_eq!(created.spec.unwrap().suspend, Some(true), "{name} is held");
    eventually(|| async {
        let spec = jobs.get(name).await.ok()?.spec?;
        (spec.suspend == Some(false)).then_some(())
    })
    .await;
}

/// Spec: experience 3
#[tokio::test(flavor = "multi_thread")]
async fn helm_upgrades_a_running_installation_and_takes_it_away() {
    let dir = tempfile::tempdir().unwrap();
    let (worker, manager, program) = tokio::join!(
        Cluster::start(Options::bare("helm-worker"), "worker", dir.path()),
        Cluster::start(Options::bare("helm-manager"), "manager", dir.path()),
        tool(Program::Helm),
    );
    tokio::join!(
        lives(Helm {
            program: program.clone(),
            cluster: &worker
        }),
        lives(Helm {
            program,
            cluster: &manager
        }),
    );
}

async fn lives(helm: Helm<'_>) {
    let cluster = helm.cluster;
    let client = &cluster.client;
    let name = format!("roadstead-{}", cluster.part);
    helm.run(&["install", DEFINITIONS, &chart(DEFINITIONS), "--create-namespace"])
        .await;
    let mut values = values();
    helm.release("install", &values).await;
    let process = cluster.deploy().await;
    furnish(cluster, None).await;
    is_active(cluster, "LocalQueue", Some(TEAM), QUEUE).await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), TEAM);
    runs(&jobs, "before").await;
    let workloads: Api<Workload> = Api::namespaced(client.clone(), TEAM);
    let admitted = workloads
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let first = entries(client).await.unwrap();
    assert!(is_complete(&first, &["mjob.kb.io", "vjob.kb.io"]), "{first:?}");
    assert!(!is_complete(&first, &["mpod.kb.io"]), "{first:?}");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let stands = deployments.get(&name).await.unwrap();
    let configured = maps.get(&format!("{name}-config")).await.unwrap().data;

    merge(
        &mut values,
        &json!({
            "replicas": 3,
            "ports": {"webhook": free_ports().unwrap()[0]},
            "configuration": {"integrations": {"frameworks": ["batch/job", "pod", "deployment"]}},
        }),
    );
    helm.run(&["upgrade", DEFINITIONS, &chart(DEFINITIONS)]).await;
    helm.release("upgrade", &values).await;
    let while_rolled = entries(client).await.unwrap();
    assert_eq!(while_rolled, first, "the running process goes on");
    let rolled = deployments.get(&name).await.unwrap();
    assert_eq!(rolled.spec.as_ref().unwrap().replicas, Some(3));
    let template = |deployment: &Deployment| {
        let template = &deployment.spec.as_ref().unwrap().template;
        template.metadata.as_ref().unwrap().annotations.clone()
    };
    assert_ne!(template(&rolled), template(&stands), "the pods are replaced");
    let now = maps.get(&format!("{name}-config")).await.unwrap().data;
    assert_ne!(now, configured);
    runs(&jobs, "meanwhile").await;

    drop(process);
    let process = cluster.deploy().await;
    let asked = [
        "mjob.kb.io",
        "vjob.kb.io",
        "mpod.kb.io",
        "vpod.kb.io",
        "mdeployment.kb.io",
    ];
    eventually(|| async { is_complete(&entries(client).await?, &asked).then_some(()) }).await;
    assert_eq!(
        entries(client).await.unwrap()[0].1,
        first[0].1,
        "the authority is kept"
    );
    runs(&jobs, "after").await;
    for name in ["before", "meanwhile"] {
        let job = jobs.get(name).await.unwrap();
        assert_eq!(job.spec.unwrap().suspend, Some(false), "{name} goes on");
    }
    let still = workloads.get(&admitted.name_any()).await.unwrap();
    assert_eq!(still.uid(), admitted.uid());
    cluster.is_healthy(NAMESPACE).await;
    goes(&helm, process, &jobs).await;
}

/// The release goes, with its process. Users keep what they have, and may write.
async fn goes(helm: &Helm<'_>, process: Deployed, jobs: &Api<Job>) {
    let client = &helm.cluster.client;
    helm.run(&["uninstall", RELEASE]).await;
    tokio::time::sleep(GRACE).await;
    drop(process);
    assert_eq!(entries(client).await, None, "no webhook is left");
    let left = helm.cluster.inventory().await;
    let left: Vec<&String> = { left.iter() }
        .filter(|name| name.contains("roadstead") || name.contains("APIService Some"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let listed = jobs.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 3);
    let created = jobs.create(&PostParams::default(), &job("free")).await.unwrap();
    assert_ne!(created.spec.unwrap().suspend, Some(true), "no process holds it");
    for name in ["free", "before"] {
        jobs.delete(name, &DeleteParams::background()).await.unwrap();
        eventually(|| async { jobs.get_opt(name).await.ok()?.is_none().then_some(()) }).await;
    }
    helm.run(&["uninstall", DEFINITIONS]).await;
    let queues: Api<ClusterQueue> = Api::all(client.clone());
    queues.get(QUEUE).await.unwrap();
    let workloads: Api<Workload> = Api::namespaced(client.clone(), TEAM);
    assert_eq!(
        workloads.list(&ListParams::default()).await.unwrap().items.len(),
        3
    );
}
