//! `roadstead cluster give-up`: an administrator's statement that the runs on a lost cluster are lost.
//!
//! Invariant: the statement names the loss that was read, and is written only if the MultiKueueCluster has not changed since. So
//! a cluster that comes back meanwhile is not given up.
//!
//! *Source*: `spec/safety.md 3.5`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use roadstead_api::constants::annotations::GIVEN_UP;
use roadstead_api::kueue::v1beta2::MultiKueueCluster;
use roadstead_kubeio::write;
use serde::Serialize;
use serde_json::json;

use super::cordon::{count, name_of, placed_on};
use super::{active, registered};
use crate::access;
use crate::args::GiveUp;
use crate::failure::{Failure, done};
use crate::output::{self, say};

/// The result of `give-up`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenUp {
    /// The cluster.
    pub cluster: String,
    /// When the loss that is given up began: the time at which condition `Active` became False.
    pub lost_since: Time,
    /// Workloads that were placed on the cluster.
    pub workloads: Vec<String>,
}

/// Gives up the runs on a lost cluster.
pub async fn run(args: &GiveUp) -> Result<(), Failure> {
    let (manager, name) = (access::manager(&args.manager).await?, args.name.as_str());
    let api = Api::<MultiKueueCluster>::all(manager.clone());
    let cluster = registered(&api, name).await?;
    let lost_since = lost(&cluster, name)?;
    let workloads = placed_on(&manager, name).await?;
    say(&format!(
        "cluster {name} is lost since {}; {} placed there will be started elsewhere. What still runs there runs twice: make sure that \
         the cluster is dead or its nodes are off",
        rfc3339(&lost_since),
        count(&workloads)
    ));
    output::consent(args.yes, "are the runs there lost?")?;
    let patch = json!({ "metadata": {
        "resourceVersion": cluster.metadata.resource_version,
        "annotations": { GIVEN_UP: lost_since },
    } });
    let what = format!("giving up cluster {name} failed");
    done(&what, write::patch(&api, name, &patch).await)?;
    let given_up = GivenUp {
        cluster: name.to_owned(),
        lost_since,
        workloads,
    };
    output::result(args.output, &given_up, &name_of(name), || {
        format!(
            "cluster {name} is given up; {} placed there are started elsewhere; when it is back it is used again",
            count(&given_up.workloads)
        )
    })
}

/// Since when a cluster is lost, as condition `Active` shows it.
fn lost(cluster: &MultiKueueCluster, name: &str) -> Result<Time, Failure> {
    let not_lost = |why: String| {
        Failure::new(
            format!("cluster {name} is not lost, so nothing is given up"),
            why,
            format!(
                "wait until condition Active of MultiKueueCluster \"{name}\" is False; to take jobs from a cluster that answers: \
                 roadstead cluster drain {name} --evict"
            ),
        )
    };
    match active(cluster) {
        Some(active) if active.status == "False" => Ok(active.last_transition_time.clone()),
        Some(active) => Err(not_lost(format!(
            "condition Active is {}: {}",
            active.status, active.message
        ))),
        None => Err(not_lost("the manager has not tried to connect yet".to_owned())),
    }
}

fn rfc3339(time: &Time) -> String {
    time.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn cluster(status: &serde_json::Value) -> MultiKueueCluster {
        from_value(json!({
            "metadata": {"name": "east"},
            "spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
            "status": status,
        }))
        .unwrap()
    }

    fn says(status: &str) -> MultiKueueCluster {
        cluster(&json!({"conditions": [{
            "type": "Active", "status": status, "reason": "r", "message": "Connected",
            "lastTransitionTime": "2026-11-27T00:00:09Z",
        }]}))
    }

    /// Spec: safety 3.5
    #[test]
    fn only_a_cluster_that_is_said_to_be_lost_is_given_up_and_the_word_names_that_loss() {
        let since = lost(&says("False"), "east").unwrap();
        assert_eq!(json!(since), "2026-11-27T00:00:09Z");
        assert_eq!(rfc3339(&since), "2026-11-27T00:00:09Z");
        let failure = lost(&says("True"), "east").unwrap_err().to_string();
        assert!(
            failure.contains("is not lost") && failure.contains("Active is True: Connected"),
            "{failure}"
        );
        assert!(
            failure.contains("roadstead cluster drain east --evict"),
            "{failure}"
        );
        let failure = lost(&cluster(&json!({})), "east").unwrap_err().to_string();
        assert!(failure.contains("has not tried to connect yet"), "{failure}");
    }
}
