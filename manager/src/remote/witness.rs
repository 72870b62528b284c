//! Who took a cluster out after they were told that it is lost: asked of the API server itself, once per loss.
//!
//! Why not of the caches: a watch may be behind by any time, and who took it out before they were told gave
//! no word about what runs there. Why the configs as they were when the loss was first said: a script takes the cluster out
//! sooner than the answer to that write arrives here.
//!
//! *Source*: `spec/safety.md 3.5`; decided in [`roadstead_core::dispatch::Witness`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ListParams, VersionMatch};
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

/// Looks whenever one of the marked clusters is lost and people have been told of that, until `stop`. Rings `changed` for those
/// of which a look has shown more: who took one out may have done so before the look was over.
pub(crate) async fn run(
    client: Client,
    federation: Federation,
    registry: Arc<Registry>,
    (marked, changed): (Arc<Dirty<ClusterName>>, Arc<Dirty<ClusterName>>),
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
        let look = look(&client, &federation, &registry, &names, &changed);
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
    changed: &Dirty<ClusterName>,
) -> Result<(), kube::Error> {
    // Invariant: which loss people were told of is read before anything is asked, so what is answered is of after that.
    let lost = names.iter().filter_map(|name| registry.get(name));
    let lost: Vec<(Arc<Remote>, Timestamp)> = lost
        .filter_map(|remote| Some((remote.clone(), remote.told_lost_since()?)))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let mut first = Vec::new();
    for (remote, since) in &lost {
        if let Some(version) = remote.first_told(*since) {
            first.push((remote, *since, configs_at(client, &version).await?));
        }
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
    // Why before anything is noted: a cache that is older than this look would show as taken out what was only not listed yet.
    for config in &configs {
        federation.configs.observe(config.clone());
    }
    for cluster in &clusters {
        federation.clusters.observe(cluster.clone());
    }
    for (remote, since, configs) in first {
        note(remote, since, listing(&remote.name, &configs), false, changed);
        remote.first_is_seen(since);
    }
    for (remote, since) in &lost {
        let stays = stays(&remote.name, &clusters);
        note(remote, *since, listing(&remote.name, &configs), stays, changed);
    }
    Ok(())
}

/// The configs when the storage was at this version; none if it does not know that any more.
///
/// Why the version of another kind: all custom resources of an API server are in one storage with one count of versions.
async fn configs_at(client: &Client, version: &str) -> Result<Vec<MultiKueueConfig>, kube::Error> {
    let then = ListParams::default().at(version).matching(VersionMatch::Exact);
    match Api::<MultiKueueConfig>::all(client.clone()).list(&then).await {
        Ok(configs) => Ok(configs.items),
        // Compacted, not a version there, later than all that is there: a storage that was set back.
        Err(kube::Error::Api(status)) if [410, 400, 504].contains(&status.code) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The names of the configs that list a cluster.
fn listing(name: &ClusterName, configs: &[MultiKueueConfig]) -> Vec<String> {
    let lists = |config: &&MultiKueueConfig| config.spec.clusters.iter().any(|one| one == name.as_str());
    configs.iter().filter(lists).map(ResourceExt::name_any).collect()
}

/// Whether a cluster is there and not being deleted.
fn stays(name: &ClusterName, clusters: &[MultiKueueCluster]) -> bool {
    clusters
        .iter()
        .any(|cluster| cluster.name_any() == name.as_str() && cluster.metadata.deletion_timestamp.is_none())
}

/// Notes what a look has shown of a cluster of whose loss people were told before it began.
fn note(remote: &Remote, since: Timestamp, listing: Vec<String>, stays: bool, changed: &Dirty<ClusterName>) {
    let shows_more = remote.witnessed(|witness| {
        let before = witness.clone();
        witness.saw(since, listing, stays);
        *witness != before
    });
    if shows_more {
        changed.mark(remote.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use roadstead_core::cluster::Connection;
    use roadstead_core::lease::{Grant, Moment, Terms};
    use roadstead_kubeio::cache::Cache;
    use serde_json::{Value, from_value, json};

    use super::super::identity::tests::fleet;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// An API server whose config listed east until just after version 7, and that may have forgotten that.
    fn server(remembers: bool) -> Client {
        let configs = |clusters: &[&str]| {
            let config =
                json!({"metadata": {"name": "all", "resourceVersion": "9"}, "spec": {"clusters": clusters}});
            (200, json!({"metadata": {}, "items": [config]}))
        };
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let (code, answer) = if path.ends_with("/multikueueclusters") {
                (200, json!({"metadata": {}, "items": []}))
            } else if !query.contains("resourceVersion") {
                configs(&["west"])
            } else if !remembers {
                (
                    410,
                    json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
                )
            } else {
                assert!(
                    query.contains("resourceVersion=7&resourceVersionMatch=Exact"),
                    "{query}"
                );
                configs(&["east", "west"])
            };
            let body = Body::from(Value::to_string(&answer).into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        });
        Client::new(service, "ns")
    }

    /// A script that waits for condition `Active` and takes the cluster out at once gives its word.
    ///
    /// Spec: safety 3.5
    #[tokio::test]
    async fn who_took_it_out_right_after_the_loss_was_said_knew_of_it() {
        for (version, remembers, is_word) in [
            (Some("7"), true, true),
            (Some("7"), false, false),
            (None, true, false),
        ] {
            let client = server(remembers);
            let (fleet, remote) = fleet(client.clone(), "", None);
            let mut shown = Connection::new(at(0));
            shown.failed("no answer", at(1));
            assert!(remote.is_told(&shown, version.map(str::to_owned)));
            assert!(
                !remote.is_told(&shown, Some("9".to_owned())),
                "the first one counts"
            );
            let federation = Federation {
                checks: Cache::new(),
                configs: Cache::new(),
                clusters: Cache::new(),
            };
            let east = remote.clone();
            federation.configs.listen(move |_| {
                let stood = east.witnessed(|witness| witness.stood(at(0), Some("all")));
                assert!(
                    !stood.listed,
                    "an older cache would show as taken out what it does not list yet"
                );
            });
            let names = BTreeSet::from(["east".into()]);
            let changed = Dirty::new();
            let looks = || look(&client, &federation, &fleet.registry, &names, &changed);
            looks().await.unwrap();
            assert_eq!(
                changed.take_now(),
                names,
                "what was decided meanwhile is decided again"
            );
            looks().await.unwrap();
            assert_eq!(changed.take_now(), BTreeSet::new());
            let stood = remote.witnessed(|witness| witness.stood(at(0), Some("all")));
            assert_eq!(
                (stood.listed, stood.stayed),
                (is_word, false),
                "{version:?} {remembers}"
            );
            assert_eq!(remote.first_told(at(0)), None, "it is looked at once");
        }
    }

    /// Spec: safety 3.5
    #[test]
    fn what_a_look_after_the_loss_has_shown_can_be_taken_away_knowing_of_it() {
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
        let look = |since, config: MultiKueueConfig, cluster| {
            let stays = stays(&east.name, &[cluster]);
            note(&east, since, listing(&east.name, &[config]), stays, &Dirty::new());
        };
        assert_eq!(word(&east), (false, false), "nobody has looked");
        look(at(0), config(&["east"]), cluster(None));
        assert_eq!(word(&east), (true, true));

        east.with(|link| link.connection.opened());
        east.with(|link| link.connection.watch_ended(at(9)));
        look(at(9), config(&["west"]), cluster(Some("1970-01-01T00:00:08Z")));
        assert_eq!(word(&east), (false, false), "it was out before it was lost");
    }
}
