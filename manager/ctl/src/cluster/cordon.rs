//! `roadstead cluster cordon`, `uncordon`, `drain`: an annotation on the `MultiKueueCluster`, and for `drain` a wait.

use std::time::Duration;

use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::annotations::CORDON;
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, Workload};
use roadstead_core::dispatch;
use roadstead_kubeio::write;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::registered;
use crate::access;
use crate::args::{Cordon, Drain};
use crate::failure::{Code, Failure, done};
use crate::objects;
use crate::output::{self, say};

/// How often the Workloads are read while waiting.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Names shown in a message.
const SHOWN_MAX: usize = 10;

/// The result of `cordon`, `uncordon` and `drain`.
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
    change(args, Some(dispatch::Cordon::CLOSED)).await
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
            "cluster {} takes nothing new; {}",
            args.name,
            rest(&done.workloads)
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
    let value = if args.evict {
        dispatch::Cordon::DRAINED
    } else {
        dispatch::Cordon::CLOSED
    };
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
                format!(
                    "cluster {} takes nothing new; {}",
                    args.name,
                    rest(&done.workloads)
                )
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
    let is_placed =
        |workload: &Workload| workload.cluster_name() == Some(cluster) && !workload.is_true("Finished");
    let placed = { objects::all(&api, None, is_placed).await }
        .map_err(|error| Failure::request("listing the Workloads failed", &error))?;
    let name = |w: &Workload| format!("{}/{}", w.namespace().unwrap_or_default(), w.name_any());
    Ok(placed.iter().map(name).collect())
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

/// A sentence about the Workloads that stay placed on a cordoned cluster.
fn rest(workloads: &[String]) -> String {
    let go = if workloads.len() == 1 { "goes" } else { "go" };
    match workloads {
        [] => "no workload is placed there".to_owned(),
        _ => format!("{} placed there {go} on", count(workloads)),
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

#[cfg(test)]
mod tests {
    use super::rest;

    #[test]
    fn what_is_left_on_a_closed_cluster_is_a_sentence_for_every_number() {
        for (count, said) in [
            (0, "no workload is placed there"),
            (1, "1 workload placed there goes on"),
            (2, "2 workloads placed there go on"),
        ] {
            assert_eq!(rest(&vec![String::new(); count]), said);
        }
    }
}
