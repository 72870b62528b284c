//! Condition `Active` of the AdmissionChecks of MultiKueue, and the clusters that they stand for.
//!
//! Invariant: the answer is computed from caches alone, so it can be computed again at every change.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::{Api, Client};
use roadstead_api::constants::controllers;
use roadstead_api::kueue::v1beta2::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig};
use roadstead_core::check::{self, MULTIKUEUE_PARAMETERS, Usable};
use roadstead_core::condition::Active;
use roadstead_core::name::{CheckName, ClusterName};
use roadstead_engine::active::{Reporter, parameters};
use roadstead_engine::caches::{Caches, watch_of};
use roadstead_engine::clock::Clock;
use roadstead_engine::process::tell_unread;
use roadstead_kubeio::cache::{Cache, Change};
use roadstead_kubeio::dirty::Dirty;
use roadstead_kubeio::failure::Failure;
use roadstead_serve::shutdown::Tasks;
use tokio_util::sync::CancellationToken;

/// The caches that describe the federation.
#[derive(Clone)]
pub(crate) struct Federation {
    pub(crate) checks: Arc<Cache<AdmissionCheck>>,
    pub(crate) configs: Arc<Cache<MultiKueueConfig>>,
    pub(crate) clusters: Arc<Cache<MultiKueueCluster>>,
}

impl Federation {
    /// Starts with empty caches, except for the checks, which belong to the engine.
    pub(crate) fn new(caches: &Caches) -> Self {
        Self {
            checks: caches.checks.clone(),
            configs: Cache::new(),
            clusters: Cache::new(),
        }
    }

    /// Lists and watches the configs and the clusters until `stop`; the checks belong to the engine.
    pub(crate) fn list(&self, client: &Client, tasks: &mut Tasks, stop: &CancellationToken) {
        let (configs, clusters) = (self.configs.clone(), self.clusters.clone());
        let watching = configs.run(Api::all(client.clone()), None, stop.clone());
        tasks.spawn(watch_of("multikueueconfigs"), watching);
        let watching = clusters.run(Api::all(client.clone()), None, stop.clone());
        tasks.spawn(watch_of("multikueueclusters"), watching);
        for (kind, health) in [
            ("multikueueconfigs", self.configs.health()),
            ("multikueueclusters", self.clusters.health()),
        ] {
            let telling = tell_unread(kind.to_owned(), health, stop.clone());
            tasks.spawn(format!("health of {kind}"), telling);
        }
    }

    /// Whether everything that describes the federation has been listed and is being watched. Before that nothing may be decided:
    /// an unknown cluster would count as deleted.
    pub(crate) fn is_known(&self) -> bool {
        self.checks.is_live() && self.configs.is_live() && self.clusters.is_live()
    }

    pub(crate) fn is_ours(&self, name: &CheckName) -> bool {
        self.checks
            .named(name.as_str())
            .is_some_and(|c| c.spec.controller_name == controllers::MULTIKUEUE)
    }

    /// The clusters of a check, in the order of its MultiKueueConfig.
    ///
    /// *Errors*: the text for condition `Active` (`spec/multikueue.md 1.4`).
    pub(crate) fn clusters_of(&self, check: &AdmissionCheck) -> Result<Vec<ClusterName>, Failure> {
        let name = parameters(check, MULTIKUEUE_PARAMETERS)?;
        let config = self.configs.named(&name).ok_or_else(|| {
            Failure::lasting(format!("MultiKueueConfig.kueue.x-k8s.io \"{name}\" not found"))
        })?;
        Ok(config
            .spec
            .clusters
            .iter()
            .map(|cluster| ClusterName::from(cluster.as_str()))
            .collect())
    }

    /// The clusters of the check of this name; none when it cannot be resolved.
    pub(crate) fn clusters_of_name(&self, name: &CheckName) -> Vec<ClusterName> {
        let check = self.checks.named(name.as_str());
        check
            .and_then(|check| self.clusters_of(&check).ok())
            .unwrap_or_default()
    }

    /// Names of the checks of ours whose config lists this cluster.
    pub(crate) fn checks_with(&self, cluster: &ClusterName) -> BTreeSet<String> {
        let checks = self.checks.all();
        { checks.iter() }
            .filter(|check| check.spec.controller_name == controllers::MULTIKUEUE)
            .filter(|check| { self.clusters_of(check) }.is_ok_and(|clusters| clusters.contains(cluster)))
            .filter_map(|check| check.metadata.name.clone())
            .collect()
    }

    /// Marks each cluster that a check of ours has gained or lost: its MultiKueueConfig was changed, or the check names another one.
    /// Why: this decides where Workloads may go, including those that wait already, and no other event reports it
    /// (`spec/multikueue.md 3.16`).
    pub(crate) fn ring_on_members(&self, bell: Arc<Dirty<ClusterName>>) {
        let (this, rung) = (self.clone(), bell.clone());
        self.checks.listen(move |change| {
            let clusters = |check: Option<&Arc<AdmissionCheck>>| -> BTreeSet<ClusterName> {
                let ours = check.filter(|check| check.spec.controller_name == controllers::MULTIKUEUE);
                let named = ours.and_then(|check| this.clusters_of(check).ok());
                named.into_iter().flatten().collect()
            };
            for name in clusters(change.old).symmetric_difference(&clusters(change.new)) {
                rung.mark(name.clone());
            }
        });
        self.configs.listen(move |change| {
            for name in taken_in_or_let_go(change) {
                bell.mark(name);
            }
        });
    }

    fn usable(&self, name: &ClusterName) -> Usable {
        match self.clusters.named(name.as_str()) {
            None => Usable::Missing,
            Some(cluster) => {
                let conditions = cluster
                    .status
                    .as_ref()
                    .map(|s| s.conditions.as_slice())
                    .unwrap_or_default();
                let active = conditions
                    .iter()
                    .any(|c| c.type_ == "Active" && c.status == "True");
                if active { Usable::Yes } else { Usable::Inactive }
            }
        }
    }

    /// The correct condition `Active` of a check.
    fn active(&self, check: &AdmissionCheck) -> Active {
        let clusters = self.clusters_of(check).map(|names| {
            let usable = names.into_iter().map(|name| (name.clone(), self.usable(&name)));
            usable.collect::<Vec<_>>()
        });
        check::multikueue(clusters.as_deref().map_err(Failure::text))
    }

    /// Writes condition `Active` of our checks whenever it is to change, until `stop`.
    pub(crate) async fn run(self, client: Client, clock: Clock, stop: CancellationToken) {
        let touched = Arc::new(Dirty::default());
        // Why one bell for all: there is one such check per federation, and it reads all clusters anyway.
        let bell = touched.clone();
        self.checks.listen(move |_| bell.mark(()));
        let bell = touched.clone();
        self.configs.listen(move |_| bell.mark(()));
        let bell = touched.clone();
        self.clusters.listen(move |_| bell.mark(()));
        touched.mark(());
        let reporter = Reporter::new(client, clock, &self.checks, &touched);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = touched.take() => {}
            }
            for check in self.checks.all() {
                if check.spec.controller_name == controllers::MULTIKUEUE {
                    reporter.report(&check, &self.active(&check)).await;
                }
            }
        }
    }
}

/// The clusters that only one of the two configs lists.
fn taken_in_or_let_go(change: &Change<'_, MultiKueueConfig>) -> BTreeSet<ClusterName> {
    let named = |config: Option<&Arc<MultiKueueConfig>>| -> BTreeSet<ClusterName> {
        let names = config.into_iter().flat_map(|config| &config.spec.clusters);
        names.map(|name| ClusterName::from(name.as_str())).collect()
    };
    let (old, new) = (named(change.old), named(change.new));
    old.symmetric_difference(&new).cloned().collect()
}

#[cfg(test)]
mod tests {
    use roadstead_core::name::Key;
    use serde_json::{from_value, json};

    use super::*;

    fn config(version: u32, clusters: &[&str]) -> Arc<MultiKueueConfig> {
        let metadata = json!({"name": "all", "resourceVersion": version.to_string()});
        Arc::new(from_value(json!({"metadata": metadata, "spec": {"clusters": clusters}})).unwrap())
    }

    fn federation() -> Federation {
        Federation {
            checks: Cache::new(),
            configs: Cache::new(),
            clusters: Cache::new(),
        }
    }

    /// Spec: multikueue 1.4, 11.1, 11.2
    #[test]
    fn a_check_whose_config_is_missing_says_so_until_it_is_there() {
        let federation = federation();
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
        let spec = json!({"controllerName": controllers::MULTIKUEUE, "parameters": parameters});
        let check: AdmissionCheck = from_value(json!({"metadata": {"name": "mk"}, "spec": spec})).unwrap();
        let active = federation.active(&check);
        assert_eq!(active.reason, "BadConfig");
        assert_eq!(
            active.message,
            "Cannot load the AdmissionChecks parameters: MultiKueueConfig.kueue.x-k8s.io \"all\" not found"
        );
        federation
            .configs
            .observe(MultiKueueConfig::clone(&config(1, &["b", "a"])));
        let found = federation.clusters_of(&check).unwrap();
        assert_eq!(found, [ClusterName::from("b"), "a".into()]);
        assert_eq!(federation.usable(&found[0]), Usable::Missing);
    }

    /// Spec: multikueue 3.16
    #[test]
    fn the_checks_of_a_cluster_are_those_of_ours_whose_config_lists_it() {
        let federation = federation();
        let check = |name: &str, controller: &str, config: &str| -> AdmissionCheck {
            let parameters =
                json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config});
            let metadata = json!({"name": name, "resourceVersion": "1"});
            let spec = json!({"controllerName": controller, "parameters": parameters});
            from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        federation
            .checks
            .observe(check("mk", controllers::MULTIKUEUE, "all"));
        federation
            .checks
            .observe(check("lost", controllers::MULTIKUEUE, "none"));
        federation
            .checks
            .observe(check("foreign", "example.com/other", "all"));
        federation
            .configs
            .observe(MultiKueueConfig::clone(&config(1, &["a", "b"])));
        assert_eq!(
            federation.checks_with(&"b".into()),
            BTreeSet::from(["mk".to_owned()])
        );
        assert_eq!(federation.checks_with(&"c".into()), BTreeSet::new());
    }

    /// Spec: multikueue 3.16
    #[tokio::test]
    async fn what_waits_is_looked_at_when_a_check_names_another_config() {
        let federation = federation();
        let named = |name: &str, clusters: &[&str]| {
            let mut config = MultiKueueConfig::clone(&config(1, clusters));
            config.metadata.name = Some(name.to_owned());
            config
        };
        federation.configs.observe(named("old", &["a", "b"]));
        federation.configs.observe(named("new", &["b", "c"]));
        let bell = Arc::new(Dirty::default());
        federation.ring_on_members(bell.clone());
        let rung = |version: u32, config: &str| {
            let parameters =
                json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config});
            let metadata = json!({"name": "mk", "resourceVersion": version.to_string()});
            let spec = json!({"controllerName": controllers::MULTIKUEUE, "parameters": parameters});
            federation
                .checks
                .observe(from_value(json!({"metadata": metadata, "spec": spec})).unwrap());
            let names = bell.take_now();
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(rung(1, "old"), ["a", "b"]);
        assert_eq!(rung(2, "old"), [""; 0], "only its status has changed");
        assert_eq!(rung(3, "new"), ["a", "c"]);
        assert_eq!(rung(4, "none"), ["b", "c"]);
    }

    /// Spec: multikueue 3.16, 11.39, 11.40
    #[tokio::test]
    async fn what_waits_is_looked_at_when_a_config_takes_a_cluster_in_or_lets_one_go_and_for_nothing_else() {
        let federation = federation();
        let bell = Arc::new(Dirty::default());
        federation.ring_on_members(bell.clone());
        let rung = |now: Option<&MultiKueueConfig>| {
            match now {
                Some(now) => federation.configs.observe(now.clone()),
                None => federation.configs.forget(&Key::new("", "all"), None),
            }
            bell.take_now()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(rung(Some(&config(1, &["a"]))), ["a"]);
        assert_eq!(rung(Some(&config(2, &["a", "b"]))), ["b"]);
        assert_eq!(rung(Some(&config(3, &["b", "a"]))), [""; 0]);
        assert_eq!(rung(Some(&config(4, &["b", "c"]))), ["a", "c"]);
        assert_eq!(rung(None), ["b", "c"]);
    }
}
