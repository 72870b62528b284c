//! Who took a cluster out after they were told that it is lost: asked of the API server itself.
//!
//! Why not of the caches: a watch may be behind by any time, and who took it out before they were told gave
//! no word about what runs there. Why the configs as they were when the loss was first said: a script takes the cluster out
//! sooner than the answer to that write arrives here.
//!
//! *Source*: `spec/safety.md 3.5`; decided in [`roadstead_core::dispatch::Witness`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future;
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
/// How long, of that, the question may take what a config listed at some version: a cache that is behind waits for 3 s.
const PAST_MAX: Duration = Duration::from_secs(4);
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
            Ok(Ok(again)) => names = again,
            Ok(Err(error)) => {
                let why = write::describe(&error);
                tracing::debug!("looking which lost clusters are still listed: {why}");
            }
            Err(_elapsed) => tracing::debug!("looking which lost clusters are still listed: no answer"),
        }
    }
}

/// Notes who still belongs to the federation of those that are lost now; gives those that are to be looked at again.
async fn look(
    client: &Client,
    federation: &Federation,
    registry: &Registry,
    names: &BTreeSet<ClusterName>,
    changed: &Dirty<ClusterName>,
) -> Result<BTreeSet<ClusterName>, kube::Error> {
    // Invariant: which loss people were told of is read before anything is asked, so what is answered is of after that.
    let lost = names.iter().filter_map(|name| registry.get(name));
    let lost: Vec<(Arc<Remote>, Timestamp)> = lost
        .filter_map(|remote| Some((remote.clone(), remote.told_lost_since()?)))
        .collect();
    if lost.is_empty() {
        return Ok(BTreeSet::new());
    }
    let first = lost.iter().filter_map(|(remote, since)| {
        let version = remote.first_told(*since)?;
        Some(async move { (remote, (*since, version), configs_at(client, version).await) })
    });
    let (configs, clusters) = (
        Api::<MultiKueueConfig>::all(client.clone()),
        Api::<MultiKueueCluster>::all(client.clone()),
    );
    let all = ListParams::default();
    let now = future::try_join(configs.list(&all), clusters.list(&all));
    let (now, first) = future::join(now, future::join_all(first)).await;
    let (configs, clusters) = now?;
    let (configs, clusters) = (configs.items, clusters.items);
    // Why before anything is noted: a cache that is older than this look would show as taken out what was only not listed yet.
    for config in &configs {
        federation.configs.observe(config.clone());
    }
    for cluster in &clusters {
        federation.clusters.observe(cluster.clone());
    }
    for (remote, since) in &lost {
        let stays = stays(&remote.name, &clusters);
        note(remote, *since, listing(&remote.name, &configs), stays, changed);
    }
    let mut again = BTreeSet::new();
    for (remote, (since, version), past) in first {
        match past {
            Past::Listed(configs) => note(remote, since, listing(&remote.name, &configs), false, changed),
            Past::Forgotten => {}
            Past::Unclear => {
                again.insert(remote.name.clone());
                continue;
            }
        }
        remote.first_is_seen(since, version);
    }
    Ok(again)
}

/// What the configs listed at some version of the storage.
enum Past {
    Listed(Vec<MultiKueueConfig>),
    /// The storage does not know that any more.
    Forgotten,
    /// No answer: later it may be known. A storage that was set back says so as well, until it has come as far again.
    Unclear,
}

/// The configs when the storage was at this version.
///
/// Why the version of another kind: all custom resources of an API server are in one storage with one count of versions.
async fn configs_at(client: &Client, version: u64) -> Past {
    let then = ListParams::default()
        .at(&version.to_string())
        .matching(VersionMatch::Exact);
    let configs = Api::<MultiKueueConfig>::all(client.clone());
    match tokio::time::timeout(PAST_MAX, configs.list(&then)).await {
        Ok(Ok(configs)) => Past::Listed(configs.items),
        Ok(Err(kube::Error::Api(status))) if [400, 410].contains(&status.code) => Past::Forgotten,
        Ok(Err(error)) => {
            let why = write::describe(&error);
            tracing::debug!("looking what was listed when a cluster was said to be lost: {why}");
            Past::Unclear
        }
        Err(_elapsed) => Past::Unclear,
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

/// Notes what a look has shown of a cluster of whose loss people were told before it began, unless it has been back meanwhile.
fn note(remote: &Remote, since: Timestamp, listing: Vec<String>, stays: bool, changed: &Dirty<ClusterName>) {
    if remote.lost_since() != Some(since) {
        return;
    }
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
    use std::sync::atomic::AtomicU16;
    use std::sync::atomic::Ordering::Relaxed;

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

    /// An API server whose config listed east until just after version 7; what it says of that: 200, or the code of a refusal.
    fn server(past: &Arc<AtomicU16>) -> Client {
        let past = past.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let past = past.load(Relaxed);
            async move {
                let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
                let is_past = query.contains("resourceVersion=7&resourceVersionMatch=Exact");
                assert_eq!(is_past, query.contains("resourceVersion"), "{query}");
                let config = |clusters: &[&str]| json!({"metadata": {"name": "all", "resourceVersion": "9"}, "spec": {"clusters": clusters}});
                let (code, items) = match (path.ends_with("/multikueueclusters"), is_past) {
                    (true, _) => (200, json!([])),
                    (false, false) => (200, json!([config(&["west"])])),
                    (false, true) => (past, json!([config(&["east", "west"])])),
                };
                let answer = match code {
                    200 => json!({"metadata": {}, "items": items}),
                    _ => json!({"kind": "Status", "code": code, "reason": "", "message": "not known"}),
                };
                let body = Body::from(Value::to_string(&answer).into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "ns")
    }

    /// A manager that has lost east at 0 and has said so.
    struct Scene {
        client: Client,
        federation: Federation,
        registry: Arc<Registry>,
        east: Arc<Remote>,
        past: Arc<AtomicU16>,
        shown: Connection,
    }

    impl Scene {
        /// The answer to the write that said so has told this version, if it has come.
        fn told(version: Option<u64>, past: u16) -> Self {
            let past = Arc::new(AtomicU16::new(past));
            let client = server(&past);
            let (fleet, east) = fleet(client.clone(), "", None);
            let mut shown = Connection::new(at(0));
            shown.failed("no answer", at(1));
            assert!(east.is_told(&shown, version));
            let federation = Federation {
                checks: Cache::new(),
                configs: Cache::new(),
                clusters: Cache::new(),
            };
            let seen = east.clone();
            federation.configs.listen(move |_| {
                let stood = seen.witnessed(|witness| witness.stood(at(0), Some("all")));
                assert!(
                    !stood.listed,
                    "an older cache would show as taken out what it does not list yet"
                );
            });
            Self {
                client,
                federation,
                registry: fleet.registry,
                east,
                past,
                shown,
            }
        }

        /// Looks once: whether it is to be looked at again, and whether what was decided meanwhile is to be decided again.
        async fn look(&self) -> (bool, bool) {
            let (names, changed) = (BTreeSet::from(["east".into()]), Dirty::new());
            let again = look(&self.client, &self.federation, &self.registry, &names, &changed);
            let again = again.await.unwrap();
            assert_eq!(self.federation.configs.all().len(), 1);
            (again == names, changed.take_now() == names)
        }

        /// Whether who took it out has given their word.
        fn is_word(&self) -> bool {
            let stood = self.east.witnessed(|witness| witness.stood(at(0), Some("all")));
            assert!(!stood.stayed);
            stood.listed
        }
    }

    /// A script that waits for condition `Active` and takes the cluster out at once gives its word.
    ///
    /// Spec: safety 3.5
    #[tokio::test]
    async fn who_took_it_out_right_after_the_loss_was_said_knew_of_it() {
        let scene = Scene::told(Some(7), 200);
        assert!(!scene.east.is_told(&scene.shown, Some(9)), "the first one counts");
        assert_eq!(scene.look().await, (false, true));
        assert!(scene.is_word());
        scene.past.store(500, Relaxed);
        assert_eq!(scene.look().await, (false, false), "it is asked once");

        let forgotten = Scene::told(Some(7), 410);
        assert_eq!(forgotten.look().await, (false, true));
        assert!(!forgotten.is_word());
        assert_eq!(forgotten.look().await, (false, false));
    }

    /// Spec: safety 3.5
    #[tokio::test]
    async fn who_belonged_to_a_lost_cluster_is_asked_until_it_is_answered() {
        for code in [500, 504] {
            let scene = Scene::told(Some(7), code);
            assert_eq!(
                scene.look().await,
                (true, true),
                "what is known now counts meanwhile"
            );
            assert_eq!(scene.look().await, (true, false));
            assert!(!scene.is_word());
            scene.past.store(200, Relaxed);
            assert_eq!(scene.look().await, (false, true));
            assert!(scene.is_word());
        }
    }

    /// Spec: safety 3.5
    #[tokio::test]
    async fn a_watch_that_is_faster_than_the_answer_takes_nothing_from_it() {
        let scene = Scene::told(None, 200);
        assert_eq!(scene.look().await, (false, true));
        assert!(!scene.is_word());
        assert!(scene.east.is_told(&scene.shown, Some(9)));
        assert!(
            scene.east.is_told(&scene.shown, Some(7)),
            "written twice, answered in another order"
        );
        assert_eq!(scene.look().await, (false, true));
        assert!(scene.is_word());
    }

    /// Spec: safety 3.5
    #[tokio::test]
    async fn a_late_answer_of_before_the_present_loss_takes_nothing_from_it() {
        let scene = Scene::told(Some(7), 200);
        let mut earlier = Connection::new(at(-9));
        earlier.failed("no answer", at(-8));
        assert!(!scene.east.is_told(&earlier, Some(5)));
        earlier.opened();
        assert!(!scene.east.is_told(&earlier, Some(6)), "it says True");
        assert_eq!(scene.look().await, (false, true));
        assert!(scene.is_word());
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
        look(at(9), config(&["east"]), cluster(None));
        look(at(0), config(&["east"]), cluster(None));
        assert_eq!(
            word(&east),
            (true, true),
            "what is late takes nothing of the present loss"
        );
    }
}
