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
use super::told::Told;
use crate::checks::Federation;

/// How long the question may take who is listed now.
const NOW_MAX: Duration = Duration::from_secs(5);
/// How long the question may take what a config listed at some version: a cache that is behind waits for 3 s.
const PAST_MAX: Duration = Duration::from_secs(4);
/// The pause before the next look when something was not answered.
const RETRY: Duration = Duration::from_secs(2);
/// What is tried, for the memory of what was told of it.
const LOOKING: &str = "asking which MultiKueueConfigs list it";
const ASKING: &str = "asking which MultiKueueConfigs listed it when it was first said to be lost";

/// Looks who belongs to the federation of the clusters that are lost.
pub(crate) struct Witnesses {
    pub(crate) client: Client,
    pub(crate) federation: Federation,
    pub(crate) registry: Arc<Registry>,
    /// Rung for those of which a look has shown more: who took one out may have done so before the look was over.
    pub(crate) changed: Arc<Dirty<ClusterName>>,
    pub(crate) told: Arc<Told>,
}

impl Witnesses {
    /// Looks whenever one of the marked clusters is lost and people have been told of that, until `stop`.
    pub(crate) async fn run(self, marked: Arc<Dirty<ClusterName>>, stop: CancellationToken) {
        let mut names = BTreeSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                more = marked.take() => names.extend(more),
                // Why again: until it has looked, nobody can give their word.
                () = tokio::time::sleep(RETRY), if !names.is_empty() => {}
            }
            names = self.look(&names).await;
        }
    }

    /// Notes who still belongs to the federation of those that are lost now; gives those that are to be looked at again.
    async fn look(&self, names: &BTreeSet<ClusterName>) -> BTreeSet<ClusterName> {
        // Invariant: which loss people were told of is read before anything is asked, so what is answered is of after that.
        let lost = names.iter().filter_map(|name| self.registry.get(name));
        let lost: Vec<(Arc<Remote>, Timestamp)> = lost
            .filter_map(|remote| Some((remote.clone(), remote.told_lost_since()?)))
            .collect();
        let asked: Vec<(&Remote, Timestamp, u64)> = lost
            .iter()
            .filter_map(|(remote, since)| Some((&**remote, *since, remote.first_told(*since)?)))
            .collect();
        for name in names {
            if !lost.iter().any(|(remote, _)| remote.name == *name) {
                self.told.is_over(name.as_str(), LOOKING);
            }
            if !asked.iter().any(|(remote, ..)| remote.name == *name) {
                self.told.is_over(name.as_str(), ASKING);
            }
        }
        // Why first: what is listed now is known sooner than what was, and may be taken away meanwhile.
        if !lost.is_empty() && !self.look_now(&lost).await {
            return names.clone();
        }
        let past = asked.into_iter().map(async |(remote, since, version)| {
            let is_known = self.look_back(remote, since, version).await;
            (!is_known).then(|| remote.name.clone())
        });
        future::join_all(past).await.into_iter().flatten().collect()
    }

    /// Notes who is listed now, and there to stay; tells whether that was answered.
    async fn look_now(&self, lost: &[(Arc<Remote>, Timestamp)]) -> bool {
        let (configs, clusters) = (
            Api::<MultiKueueConfig>::all(self.client.clone()),
            Api::<MultiKueueCluster>::all(self.client.clone()),
        );
        let all = ListParams::default();
        let lists = future::try_join(configs.list(&all), clusters.list(&all));
        let why = match tokio::time::timeout(NOW_MAX, lists).await {
            Ok(Ok((configs, clusters))) => {
                self.note_now(lost, &configs.items, &clusters.items);
                return true;
            }
            Ok(Err(error)) => write::describe(&error),
            Err(_elapsed) => format!("no answer within {} s", NOW_MAX.as_secs()),
        };
        for (remote, _) in lost {
            let words = "it is lost, and which MultiKueueConfigs list it is not answered, so whoever takes it out of one does not yet give up \
                         what runs there";
            self.told
                .keeps_failing(remote.name.as_str(), LOOKING, (words, &why));
        }
        false
    }

    fn note_now(
        &self,
        lost: &[(Arc<Remote>, Timestamp)],
        configs: &[MultiKueueConfig],
        clusters: &[MultiKueueCluster],
    ) {
        // Why before anything is noted: a cache that is older than this look would show as taken out what was only not listed yet.
        for config in configs {
            self.federation.configs.observe(config.clone());
        }
        for cluster in clusters {
            self.federation.clusters.observe(cluster.clone());
        }
        for (remote, since) in lost {
            self.told.succeeded(remote.name.as_str(), LOOKING);
            let stays = stays(&remote.name, clusters);
            note(
                remote,
                *since,
                listing(&remote.name, configs),
                stays,
                &self.changed,
            );
        }
    }

    /// Notes who was listed when the loss was first said, in this version; tells whether that is settled.
    async fn look_back(&self, remote: &Remote, since: Timestamp, version: u64) -> bool {
        let name = remote.name.as_str();
        match configs_at(&self.client, version).await {
            Past::Listed(configs) => {
                self.told.succeeded(name, ASKING);
                note(remote, since, listing(&remote.name, &configs), false, &self.changed);
            }
            Past::Forgotten => self.told.given_up(
                name,
                ASKING,
                "the API server does not know any more which MultiKueueConfigs listed it when condition Active first said that it is lost; \
                 who took it out right then and means to give up what runs there: list it again, wait ten seconds, and take it out again",
            ),
            Past::Unclear(why) => {
                let words = "which MultiKueueConfigs listed it when condition Active first said that it is lost is not answered, so whoever took \
                             it out right then has not yet given up what runs there";
                self.told.keeps_failing(name, ASKING, (words, &why));
                return false;
            }
        }
        remote.first_is_seen(since, version);
        true
    }
}

/// What the configs listed at some version of the storage.
enum Past {
    Listed(Vec<MultiKueueConfig>),
    /// The storage does not know that any more.
    Forgotten,
    /// No answer: later it may be known. A storage that was set back says so as well, until it has come as far again.
    Unclear(String),
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
        Ok(Err(error)) => Past::Unclear(write::describe(&error)),
        Err(_elapsed) => Past::Unclear(format!("no answer within {} s", PAST_MAX.as_secs())),
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

    /// Instead of a code: even the present is not known.
    const NOTHING: u16 = 599;

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
                    (true, _) if past == NOTHING => (500, json!([])),
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
        witnesses: Witnesses,
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
                witnesses: Witnesses {
                    client,
                    federation,
                    registry: fleet.registry,
                    changed: Arc::default(),
                    told: Arc::default(),
                },
                east,
                past,
                shown,
            }
        }

        /// Looks once: whether it is to be looked at again, and whether what was decided meanwhile is to be decided again.
        async fn look(&self) -> (bool, bool) {
            let names = BTreeSet::from(["east".into()]);
            let again = self.witnesses.look(&names).await;
            assert_eq!(self.witnesses.federation.configs.all().len(), 1);
            (again == names, self.witnesses.changed.take_now() == names)
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
            let told = || scene.witnesses.told.words("east", ASKING);
            let words = told().unwrap();
            assert!(
                words.contains("is not answered, so whoever took it out right then"),
                "{words}"
            );
            scene.past.store(200, Relaxed);
            assert_eq!(scene.look().await, (false, true));
            assert!(scene.is_word());
            assert_eq!(told(), None);
        }
        let forgotten = Scene::told(Some(7), 504);
        assert_eq!(forgotten.look().await, (true, true));
        forgotten.past.store(410, Relaxed);
        assert_eq!(forgotten.look().await, (false, false));
        assert_eq!(forgotten.witnesses.told.words("east", ASKING), None);
    }

    /// Spec: safety 3.5
    #[tokio::test]
    async fn as_long_as_the_present_is_not_known_nothing_is_and_the_log_is_told() {
        let scene = Scene::told(Some(7), NOTHING);
        let names = BTreeSet::from(["east".into()]);
        assert_eq!(scene.witnesses.look(&names).await, names);
        assert!(scene.witnesses.told.words("east", LOOKING).is_some() && !scene.is_word());
        scene.past.store(200, Relaxed);
        assert_eq!(scene.look().await, (false, true));
        assert!(scene.witnesses.told.words("east", LOOKING).is_none() && scene.is_word());
    }

    /// Spec: safety 3.5
    #[tokio::test]
    async fn who_is_back_is_not_asked_about_any_more() {
        let scene = Scene::told(Some(7), 500);
        assert_eq!(scene.look().await, (true, true));
        scene.east.with(|link| link.connection.opened());
        assert_eq!(scene.look().await, (false, false));
        assert_eq!(scene.witnesses.told.words("east", ASKING), None);
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
