//! `roadstead top`: quota per queue, and jobs per worker cluster, as the manager knows them.
//!
//! It reads ClusterQueues or LocalQueues, MultiKueueClusters and Workloads of the management cluster; no worker is asked.

mod clusters;
mod queues;

use kube::{Api, Client, ResourceExt as _};
use roadstead_api::kueue::v1beta2::{ClusterQueue, LocalQueue, MultiKueueCluster, Workload};

use crate::args::look::{Measured, Top};
use crate::failure::Failure;
use crate::objects::{self, Scope};
use crate::output;

/// Prints the figures.
pub async fn run(args: &Top) -> Result<(), Failure> {
    let client = objects::connect(&args.home).await?;
    let scope = match (&args.namespace, args.all_namespaces) {
        (Some(namespace), _) => Some(Scope::One(namespace.clone())),
        (None, true) => Some(Scope::All),
        (None, false) => None,
    };
    match args.what {
        Measured::Queues => of_queues(&client, scope.as_ref(), args).await,
        Measured::Clusters => of_clusters(&client, scope.as_ref(), args).await,
    }
}

async fn of_queues(client: &Client, scope: Option<&Scope>, args: &Top) -> Result<(), Failure> {
    let (rows, names) = if let Some(scope) = scope {
        let api = objects::untyped::<LocalQueue>(client, Some(scope));
        let found = objects::all(&api, None, |_| true)
            .await
            .map_err(|error| Failure::request("reading the LocalQueues failed", &error))?;
        let queues: Vec<LocalQueue> = found
            .iter()
            .filter_map(|queue| objects::typed(queue).ok())
            .collect();
        if queues.is_empty() {
            output::say(&format!("no LocalQueues {}", scope.words()));
        }
        (queues::of_local_queues(&queues), names("localqueue", &queues))
    } else {
        let queues = objects::all(&Api::<ClusterQueue>::all(client.clone()), None, |_| true)
            .await
            .map_err(|error| refused_to_users(&error))?;
        if queues.is_empty() {
            output::say("no ClusterQueues");
        }
        (queues::of_cluster_queues(&queues), names("clusterqueue", &queues))
    };
    output::result(args.output, &rows, &names, || queues::render(&rows, scope))
}

async fn of_clusters(client: &Client, scope: Option<&Scope>, args: &Top) -> Result<(), Failure> {
    let clusters = objects::all(&Api::<MultiKueueCluster>::all(client.clone()), None, |_| true)
        .await
        .map_err(|error| Failure::request("reading the MultiKueueClusters failed", &error))?;
    let workloads = match scope {
        Some(Scope::One(namespace)) => Api::namespaced(client.clone(), namespace),
        Some(Scope::All) | None => Api::all(client.clone()),
    };
    let workloads: Vec<Workload> = objects::all(&workloads, None, |_| true)
        .await
        .map_err(|error| Failure::request("reading the Workloads failed", &error))?;
    let rows = clusters::rows(&clusters, &workloads);
    if rows.is_empty() {
        output::say("no clusters; add one with: roadstead cluster join NAME --kubeconfig FILE");
    }
    let names = names("multikueuecluster", &clusters);
    output::result(args.output, &rows, &names, || clusters::render(&rows))
}

fn names<K: kube::Resource>(kind: &str, objects: &[K]) -> String {
    let names: Vec<String> = objects
        .iter()
        .map(|object| format!("{kind}.kueue.x-k8s.io/{}", object.name_any()))
        .collect();
    names.join("\n")
}

/// Only administrators may read ClusterQueues; users may read the LocalQueues of their namespaces.
fn refused_to_users(error: &kube::Error) -> Failure {
    let failure = Failure::request("reading the ClusterQueues failed", error);
    if matches!(error, kube::Error::Api(status) if status.code == 403) {
        return Failure {
            next: "see the LocalQueues of a namespace: roadstead top queues -n NAMESPACE".to_owned(),
            ..failure
        };
    }
    failure
}
