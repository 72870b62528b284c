//! The sick node: the node under an `AppWrapper` is marked as Autopilot would mark it, and its worker moves it to another one.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use super::card::Moved;
use super::script::Planned;
use super::view::Voice;

/// How long the `AppWrapper` runs before its node is marked, so that a user sees it run.
const BEFORE: Duration = Duration::from_secs(1);
/// Interval of the reads of its pods.
const LOOK: Duration = Duration::from_millis(100);
/// Label of the pods of an `AppWrapper`.
const WRAPPER: &str = "workload.codeflare.dev/appwrapper";
/// Label of a node with Autopilot's finding, and its value for a node that jobs must leave.
const HEALTH: &str = "autopilot.ibm.com/gpuhealth";
const EVICT: &str = "EVICT";

/// Marks the node on which `job` runs in the cluster of `client`, and waits until `job` runs on another one. *Limits*: none of its
/// own; the caller must stop polling it.
///
/// *Errors*: the cluster does not answer.
pub(super) async fn play(client: Client, job: &Planned, voice: &Voice) -> anyhow::Result<Moved> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), job.namespace);
    let from = runs_on(&pods, &job.name, |_| true).await?;
    sleep(BEFORE).await;
    let nodes: Api<Node> = Api::all(client);
    let mark = Patch::Merge(json!({"metadata": {"labels": {HEALTH: EVICT}}}));
    let marked = nodes.patch(&from, &PatchParams::default(), &mark).await;
    marked.with_context(|| format!("marking node {from}"))?;
    voice.line(&format!(
        "{:<22} node {from} is marked {EVICT} while {} runs there",
        "SICK NODE", job.name
    ));
    let to = runs_on(&pods, &job.name, |node| node != from).await?;
    voice.line(&format!("{:<22} {} runs on node {to}", "SICK NODE", job.name));
    Ok(Moved { from, to })
}

/// Waits until a pod of an `AppWrapper` runs on a node that `counts` accepts, and returns the name of the node.
async fn runs_on(pods: &Api<Pod>, wrapper: &str, counts: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    let params = ListParams::default().labels(&format!("{WRAPPER}={wrapper}"));
    loop {
        let listed = pods.list(&params).await;
        let listed = listed.with_context(|| format!("looking for the pods of {wrapper}"))?;
        let node = listed.items.into_iter().find_map(|pod| {
            let phase = pod.status?.phase?;
            let node = pod.spec?.node_name?;
            (phase == "Running" && pod.metadata.deletion_timestamp.is_none() && counts(&node)).then_some(node)
        });
        match node {
            Some(node) => return Ok(node),
            None => sleep(LOOK).await,
        }
    }
}
