//! `roadstead cluster cordon`, `uncordon`, `drain`: an annotation on the `MultiKueueCluster`, and for `drain` a wait.

use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::CORDON;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_kubeio::write;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::registered;
use crate::access;
use crate::args::{Cordon, Drain};
use crate::failure::{Code, Failure, done};
use crate::output::{self, say};

/// How often the Workloads are read while waiting.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Workloads read per page.
const PAGE: u32 = 500;
/// Names shown in a message.
const SHOWN_MAX: usize = 10;
/// No new jobs are sent.
const CLOSED: &str = "true";
/// No new jobs are sent, and running jobs go elsewhere.
pub(super) const DRAINED: &str = "drain";

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cordoned {
    /// The cluster.
    pub cluster: String,
    /// Value of annotation `roadstead.dev/cordon` now.
    pub cordon: Option<String>,
    /// Workloads that are still placed there.
    pub workloads: Vec<String>,
}

/// Stops sending new jobs to a cluster.
pub async fn cordon(args: &Cordon) -> Result<(), Failure> {
    change(args, Some(CLOSED)).await
}

/// Lets a cluster take new jobs again.
pub async fn uncordon(args: &Cordon) -> Result<(), Failure> {
    change(args, None).await
}

async fn change(args: &Cordon, value: Option<&str>) -> Result<(), Failure> {
    let manager = access::manager(&args.manager).await?;
    annotate(&manager, &args.name, value).await?;
    let workloads = placed_on(&manager, &args.name).await?;
    let done = Cordoned {
        cluster: args.name.clone(),
        cordon: value.map(str::to_owned),
        workloads,
    };
    output::result(args.output, &done, &name_of(&args.name), || match value {
        Some(_) => format!(
            "cluster {} takes nothing new; {} placed there go on",
            args.name,
            count(&done.workloads)
        ),
        None => format!("cluster {} takes new work", args.name),
    })
}

/// Stops sending new jobs to a cluster and waits until no Workload is placed there.
pub async fn drain(args: &Drain) -> Result<(), Failure> {
    let manager = access::manager(&args.manager).await?;
    let before = placed_on(&manager, &args.name).await?;
    if args.evict {
        let how = "stopped and queued again";
        say(&format!(
            "cluster {}: {} will be {how}",
            args.name,
            count(&before)
        ));
        if !before.is_empty() {
            output::consent(args.yes, "do this?")?;
        }
    }
    let value = if args.evict { DRAINED } else { CLOSED };
    annotate(&manager, &args.name, Some(value)).await?;
    let until = Instant::now() + args.timeout;
    loop {
        let workloads = placed_on(&manager, &args.name).await?;
        if workloads.is_empty() || args.timeout.is_zero() {
            let done = Cordoned {
                cluster: args.name.clone(),
                cordon: Some(value.to_owned()),
                workloads,
            };
            return output::result(args.output, &done, &name_of(&args.name), || {
                if done.workloads.is_empty() {
                    format!("cluster {} takes nothing new and holds nothing", args.name)
                } else {
                    format!(
                        "cluster {} takes nothing new; {} go on",
                        args.name,
                        count(&done.workloads)
                    )
                }
            });
        }
        if Instant::now() >= until {
            return Err(Failure::new(
                format!("cluster {} is not empty yet; it stays cordoned", args.name),
                format!("{} placed there: {}", count(&workloads), shown(&workloads)),
                format!(
                    "wait with a longer --timeout, or: roadstead cluster drain {} --evict",
                    args.name
                ),
            )
            .code(Code::TimedOut));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn annotate(manager: &Client, name: &str, value: Option<&str>) -> Result<(), Failure> {
    let api = Api::<MultiKueueCluster>::all(manager.clone());
    registered(&api, name).await?;
    let value = value.map_or(Value::Null, Value::from);
    let patch = json!({ "metadata": { "annotations": { CORDON: value } } });
    let what = format!("changing cluster {name} failed");
    done(&what, write::patch(&api, name, &patch).await).map(drop)
}

/// Workloads that are placed on a cluster and have not finished.
pub(super) async fn placed_on(manager: &Client, cluster: &str) -> Result<Vec<String>, Failure> {
    let api = Api::<Workload>::all(manager.clone());
    let mut page = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let list = api
            .list(&page)
            .await
            .map_err(|error| Failure::request("listing the Workloads failed", &error))?;
        let placed = list
            .items
            .iter()
            .filter(|workload| workload.cluster_name() == Some(cluster) && !workload.is_true("Finished"));
        found.extend(placed.map(|w| format!("{}/{}", w.namespace().unwrap_or_default(), w.name_any())));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

pub(super) fn name_of(cluster: &str) -> String {
    format!("multikueuecluster.kueue.x-k8s.io/{cluster}")
}

pub(super) fn count(workloads: &[String]) -> String {
    match workloads.len() {
        0 => "no workload".to_owned(),
        1 => "1 workload".to_owned(),
        many => format!("{many} workloads"),
    }
}

fn shown(workloads: &[String]) -> String {
    let first: Vec<&str> = workloads.iter().take(SHOWN_MAX).map(String::as_str).collect();
    let more = workloads.len().saturating_sub(SHOWN_MAX);
    if more == 0 {
        first.join(", ")
    } else {
        format!("{} and {more} more", first.join(", "))
    }
}
