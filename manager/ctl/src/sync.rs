//! `roadstead sync plan` and `apply`: the namespaces and LocalQueues that a worker cluster lacks.
//!
//! Invariant: existing objects on the worker are never changed, and nothing is deleted there.
//!
//! The consent of the worker's owner (`spec/safety.md 6`, S19) is the kubeconfig: only an administrator of the worker can run
//! this. The plan says which namespaces of the worker users of the manager can use afterwards.

mod plan;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, LocalQueueSpec, MultiKueueCluster};
use roadstead_kubeconfigs::account::rights::{MANAGED_BY, MANAGED_BY_LABEL};
use roadstead_kubeio::write;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::plan::{Manager, Step, Worker, plan};
use crate::access;
use crate::args::Sync;
use crate::cluster::{identity, registered};
use crate::failure::{Failure, done};
use crate::objects;
use crate::output::{self, say};

/// What a worker lacks, or what was created there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Synced {
    cluster: String,
    /// In the order of their creation.
    steps: Vec<Step>,
}

/// Shows what would be created.
pub async fn show(args: &Sync) -> Result<(), Failure> {
    let (_, synced) = look(args).await?;
    report(args, &synced)
}

/// Creates what the worker lacks. If an object cannot be created, the others still are, and the command fails.
pub async fn apply(args: &Sync) -> Result<(), Failure> {
    let (worker, synced) = look(args).await?;
    for step in &synced.steps {
        say(&format!("  {step}"));
    }
    let is_blocked = |step: &&Step| matches!(step, Step::Blocked { .. });
    let blocked: Vec<String> = { synced.steps.iter() }
        .filter(is_blocked)
        .map(ToString::to_string)
        .collect();
    if synced.steps.len() > blocked.len() {
        output::consent(args.yes, "do this?")?;
    }
    for step in &synced.steps {
        make(&worker, step).await?;
    }
    if !blocked.is_empty() {
        return Err(Failure::new(
            format!("cluster {} still lacks LocalQueues", args.cluster),
            blocked.join("; "),
            format!("roadstead sync plan {}", args.cluster),
        ));
    }
    report(args, &synced)
}

fn report(args: &Sync, synced: &Synced) -> Result<(), Failure> {
    let lines: Vec<String> = synced.steps.iter().map(ToString::to_string).collect();
    output::result(args.output, synced, &lines.join("\n"), || {
        if lines.is_empty() {
            format!("cluster {} lacks nothing", args.cluster)
        } else {
            lines.join("\n")
        }
    })
}

async fn look(args: &Sync) -> Result<(Client, Synced), Failure> {
    let client = access::manager(&args.manager).await?;
    let cluster = registered(&Api::<MultiKueueCluster>::all(client.clone()), &args.cluster).await?;
    let manager = Manager {
        local_queues: all(&client, "the management cluster").await?,
        cluster_queues: all(&client, "the management cluster").await?,
        checks: all(&client, "the management cluster").await?,
        configs: all(&client, "the management cluster").await?,
    };
    let worker = access::worker(&args.kubeconfig, args.context.as_deref())
        .await?
        .client;
    let next = format!(
        "name the kubeconfig of cluster {} with --kubeconfig",
        args.cluster
    );
    identity::is_of(&cluster, &worker, &next).await?;
    let place = format!("cluster {}", args.cluster);
    let namespaces: Vec<Namespace> = all(&worker, &place).await?;
    let cluster_queues: Vec<ClusterQueue> = all(&worker, &place).await?;
    let local_queues: Vec<LocalQueue> = all(&worker, &place).await?;
    let key = |queue: &LocalQueue| (queue.namespace().unwrap_or_default(), queue.name_any());
    let there = Worker {
        namespaces: namespaces.iter().map(ResourceExt::name_any).collect(),
        cluster_queues: cluster_queues.iter().map(ResourceExt::name_any).collect(),
        local_queues: local_queues.iter().map(key).collect(),
    };
    let steps = plan(&args.cluster, &manager, &there, args.cluster_queue.as_deref());
    let cluster = args.cluster.clone();
    Ok((worker, Synced { cluster, steps }))
}

/// All objects of a kind, page by page.
async fn all<K>(client: &Client, place: &str) -> Result<Vec<K>, Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = objects::all(&Api::all(client.clone()), None, |_| true).await;
    found.map_err(|error| Failure::request(format!("listing {} of {place} failed", K::plural(&())), &error))
}

/// Creates one object. An object that exists by now stays as it is.
async fn make(worker: &Client, step: &Step) -> Result<(), Failure> {
    let what = format!("{step}: this failed");
    match step {
        Step::Namespace { name } => {
            let namespace = Namespace {
                metadata: meta(name, None),
                ..Namespace::default()
            };
            let written = write::create(&Api::all(worker.clone()), &namespace).await;
            done_or_there(&what, written)
        }
        Step::LocalQueue {
            namespace,
            name,
            cluster_queue,
            namespace_exists: _,
        } => {
            let spec = LocalQueueSpec {
                cluster_queue: cluster_queue.clone(),
                ..LocalQueueSpec::default()
            };
            let mut queue = LocalQueue::new(name, spec);
            queue.metadata = meta(name, Some(namespace));
            let written = write::create(&Api::namespaced(worker.clone(), namespace), &queue).await;
            done_or_there(&what, written)
        }
        Step::Blocked { .. } => Ok(()),
    }
}

fn done_or_there<K>(what: &str, written: write::Written<K>) -> Result<(), Failure> {
    if let write::Written::AlreadyExists = written {
        return Ok(());
    }
    done(what, written).map(drop)
}

fn meta(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())].into()),
        ..ObjectMeta::default()
    }
}
