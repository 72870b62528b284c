//! Who took a cluster out after they were told that it is lost: asked of the API server itself, once per loss.
//!
//! Why not of the caches: a watch may be behind by any time, and who took it out before they were told gave
//! no word about what runs there.
//!
//! *Source*: `spec/safety.md 3.5`; decided in [`roadstead_core::dispatch::Witness`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use roadstead_api::kueue::v1beta2::{MultiKueueCluster, MultiKueueConfig};
use roadstead_core::name::ClusterName;
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::write;
use tokio_util::sync::CancellationToken;

use super::Remote;
use super::registry::Registry;
use crate::checks::Federation;

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// The pause before the next one when it failed.
const RETRY: Duration = Duration::from_secs(2);

/// Looks whenever one of the marked clusters is lost and people have been told of that, until `stop`.
pub(crate) async fn run(
    client: Client,
    federation: Federation,
    registry: Arc<Registry>,
    marked: Arc<Dirty<ClusterName>>,
    stop: CancellationToken,
) {
    let mut names = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            more = marked.take(), if names.is_empty() => names.extend(more),
            // Why again: until it has looked, nobody can give their word.
            () = tokio::time::sleep(RETRY), if !names.is_empty() => {}
        }
        names.extend(marked.take_now());
        let look = look(&client, &federation, &registry, &names);
        match tokio::time::timeout(LOOK_MAX, look).await {
            Ok(Ok(())) => names.clear(),
            Ok(Err(error)) => {
                let why = write::describe(&error);
                tracing::debug!("looking which lost clusters are still listed: {why}");
            }
            Err(_elapsed) => tracing::debug!("looking which lost clusters are still listed: no answer"),
        }
    }
}

/// Notes who still belongs to the federation of those that are lost now.
async fn look(
    client: &Client,
    federation: &Federation,
    registry: &Registry,
    names: &BTreeSet<ClusterName>,
) -> Result<(), kube::Error> {
    // Invariant: which loss people were told of is read before anything is asked, so what is answered is of after that.
    let lost = names.iter().filter_map(|name| registry.get(name));
    let lost: Vec<(Arc<Remote>, Timestamp)> = lost
        .filter_map(|remote| Some((remote.clone(), remote.told_lost_since()?)))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let all = ListParams::default();
    let configs = Api::<MultiKueueConfig>::all(client.clone())
        .list(&all)
        .await?
        .items;
    let clusters = Api::<MultiKueueCluster>::all(client.clone())
        .list(&all)
        .await?
        .items;
    for (remote, since) in &lost {
        note(remote, *since, &configs, &clusters);
    }
    // Why: a cache that is older than this look would show as taken out what was only not listed yet.
    for config in configs {
        federation.configs.observe(config);
    }
    for cluster in clusters {
        federation.clusters.observe(cluster);
    }
    Ok(())
}

/// Notes what a look has shown of a cluster of whose loss people were told before it began.
fn note(remote: &Remote, since: Timestamp, configs: &[MultiKueueConfig], clusters: &[MultiKueueCluster]) {
    let name = remote.name.as_str();
    let listing = configs
        .iter()
        .filter(|config| config.spec.clusters.iter().any(|one| one == name));
    let listing: Vec<String> = listing.map(ResourceExt::name_any).collect();
    let stays = clusters
        .iter()
        .any(|cluster| cluster.name_any() == name && cluster.metadata.deletion_timestamp.is_none());
    remote.witnessed(|witness| witness.saw(since, listing, stays));
}

#[cfg(test)]
mod tests {
    use roadstead_core::lease::{Grant, Moment, Terms};
    use serde_json::{from_value, json};

    use super::*;

    /// Spec: safety 3.5
    #[test]
    fn what_a_look_after_the_loss_has_shown_can_be_taken_away_knowing_of_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let grant = Grant::new(Moment::default(), Terms::of(Duration::from_secs(30)));
        let east = Remote::new("east".into(), (&[], &Arc::default()), at(0), grant);
        let config = |clusters: &[&str]| -> MultiKueueConfig {
            from_value(json!({"metadata": {"name": "all"}, "spec": {"clusters": clusters}})).unwrap()
        };
        let cluster = |deleted: Option<&str>| -> MultiKueueCluster {
            from_value(json!({
                "metadata": {"name": "east", "deletionTimestamp": deleted},
                "spec": {"clusterSource": {"kubeConfig": {"location": "east", "locationType": "Secret"}}},
            }))
            .unwrap()
        };
        let word = |east: &Remote| {
            let since = east.lost_since().unwrap();
            let stood = east.witnessed(|w| w.stood(since, Some("all")));
            (stood.listed, stood.stayed)
        };
        assert_eq!(word(&east), (false, false), "nobody has looked");
        note(&east, at(0), &[config(&["east"])], &[cluster(None)]);
        assert_eq!(word(&east), (true, true));

        east.with(|link| link.connection.opened());
        east.with(|link| link.connection.watch_ended(at(9)));
        let deleted = cluster(Some("1970-01-01T00:00:08Z"));
        note(&east, at(9), &[config(&["west"])], &[deleted]);
        assert_eq!(word(&east), (false, false), "it was out before it was lost");
    }
}
