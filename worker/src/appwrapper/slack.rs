//! Slack queues: a `ClusterQueue` of no team lends its cohort spare quota, less the capacity that is out of service on nodes now.
//!
//! For each queue of `slackQueueName` and `slackQueueNames` the lending limits of the first flavor of its first resource group
//! follow the nodes that this flavor names by labels. `lowered` decides, [`Slack::reconcile`] writes.
//!
//! Invariant: a write changes only lending limits, and only of the version that was read.
//!
//! *Source*: `spec/appwrapper.md 4.5`, N-21.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Api, Client};
use roadstead_api::kueue::v1beta2::{ClusterQueue, ResourceFlavor, ResourceGroup};
use roadstead_core::amount::Amount;
use roadstead_core::appwrapper::autopilot::{Autopilot, lending_limits};
use roadstead_core::name::{Key, ResourceName};
use roadstead_core::quantity;
use roadstead_engine::caches::Caches;
use roadstead_kubeio::cache::{Cache, Health};
use roadstead_kubeio::queue::{Lane, Queue};
use roadstead_kubeio::reconcile::{self, Outcome};
use roadstead_kubeio::write;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::nodes::Node;
use crate::metrics::Withdrawn;

type Amounts = BTreeMap<ResourceName, Amount>;

#[derive(Clone)]
pub(super) struct Slack {
    pub(super) client: Client,
    pub(super) autopilot: Autopilot,
    pub(super) names: Vec<String>,
    pub(super) nodes: Arc<Cache<Node>>,
    pub(super) queues: Arc<Cache<ClusterQueue>>,
    pub(super) flavors: Arc<Cache<ResourceFlavor>>,
    pub(super) due: Arc<Queue<Key>>,
    pub(super) withdrawn: Withdrawn,
}

impl Slack {
    /// A writer for the queues of these names in the cluster of `caches`.
    pub(super) fn new(
        client: Client,
        autopilot: Autopilot,
        names: Vec<String>,
        nodes: Arc<Cache<Node>>,
        caches: &Caches,
    ) -> Self {
        Self {
            client,
            autopilot,
            names,
            nodes,
            queues: caches.cluster_queues.clone(),
            flavors: caches.flavors.clone(),
            due: Arc::new(Queue::default()),
            withdrawn: Withdrawn::default(),
        }
    }

    /// Makes queues due when they, their flavors, or the capacity out of service changes.
    pub(super) fn listen(&self) {
        let this = self.clone();
        self.nodes.listen(move |change| {
            let out = |node: Option<&Arc<Node>>| {
                node.map(|node| {
                    let facts = node.facts();
                    let out = this.autopilot.out_of_service(&facts);
                    // Why labels too: they decide to which flavor the node belongs.
                    (!out.is_empty()).then_some((out, facts.labels))
                })
                .unwrap_or_default()
            };
            if out(change.old) != out(change.new) {
                this.all_due();
            }
        });
        let this = self.clone();
        self.queues.listen(move |change| {
            if this.names.iter().any(|name| **name == *change.key.name) {
                this.due.add(change.key.clone(), Lane::New);
            }
        });
        let this = self.clone();
        self.flavors.listen(move |_change| this.all_due());
    }

    fn all_due(&self) {
        for name in &self.names {
            self.due.add(Key::new("", name.as_str()), Lane::New);
        }
    }

    /// Keeps the limits up to date until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let listed = async {
            let healths = [self.nodes.health(), self.queues.health(), self.flavors.health()];
            for mut health in healths {
                health.wait_for(|health| *health == Health::Live).await;
            }
        };
        if stop.run_until_cancelled(listed).await.is_none() {
            return;
        }
        self.all_due();
        let due = self.due.clone();
        reconcile::run("slack queue", due, 1, stop, move |key| {
            self.clone().reconcile(key)
        })
        .await;
    }

    async fn reconcile(self, key: Key) -> Outcome {
        let Some((queue, out)) = self.seen(&key) else {
            return Outcome::Done;
        };
        for quota in first(&queue.spec.resource_groups) {
            let amount = out
                .get(&ResourceName::from(&*quota.name))
                .copied()
                .unwrap_or_default();
            self.withdrawn.set(&key.name, &quota.name, amount);
        }
        let Some(groups) = lowered(&queue.spec.resource_groups, &out) else {
            return Outcome::Done;
        };
        let metadata = json!({"resourceVersion": queue.metadata.resource_version});
        let patch = json!({"metadata": metadata, "spec": {"resourceGroups": groups}});
        let api: Api<ClusterQueue> = Api::all(self.client.clone());
        let answer = write::patch(&api, &key.name, &patch).await;
        let what = format_args!("the lending limits of slack ClusterQueue {key} cannot be written");
        match answer.or_end(what) {
            Ok(Some(object)) => {
                let limits: BTreeMap<&str, &str> = first(&object.spec.resource_groups)
                    .filter_map(|quota| Some((&*quota.name, &*quota.lending_limit.as_ref()?.0)))
                    .collect();
                tracing::info!(queue = %key, ?limits, "the slack queue lends what nodes in service leave");
                self.queues.observe(*object);
                Outcome::Done
            }
            Ok(None) => Outcome::Done,
            Err(Outcome::Failed(failure)) => {
                Outcome::Failed(failure.reworded(|why| format!("{why}; a slack queue needs a cohort")))
            }
            Err(end) => end,
        }
    }

    /// The queue, and the capacity of its flavor that is out of service; `None` when the queue or the flavor is missing.
    fn seen(&self, key: &Key) -> Option<(Arc<ClusterQueue>, Amounts)> {
        let queue = self.queues.get(key)?;
        let name = &queue.spec.resource_groups.first()?.flavors.first()?.name;
        let flavor = self.flavors.named(name)?;
        let facts = self.nodes.all().into_iter().map(|node| node.facts());
        let own = facts.filter(|node| {
            let mut labels = flavor.spec.node_labels.iter();
            labels.all(|(label, value)| node.labels.get(label) == Some(value))
        });
        let mut out = Amounts::new();
        for (resource, amount) in own.flat_map(|node| self.autopilot.out_of_service(&node)) {
            let sum = out.entry(resource).or_default();
            *sum = sum.plus(amount);
        }
        Some((queue, out))
    }
}

fn first(groups: &[ResourceGroup]) -> impl Iterator<Item = &roadstead_api::kueue::v1beta2::ResourceQuota> {
    let flavor = groups.first().and_then(|group| group.flavors.first());
    flavor.into_iter().flat_map(|flavor| &flavor.resources)
}

/// The same groups with the correct limits of the first flavor; `None` when they are correct already.
fn lowered(groups: &[ResourceGroup], out: &Amounts) -> Option<Vec<ResourceGroup>> {
    let amount = |name: &str, text: &Quantity| quantity::parse(name, &text.0).ok();
    let nominal = first(groups).filter_map(|quota| {
        Some((
            ResourceName::from(&*quota.name),
            amount(&quota.name, &quota.nominal_quota)?,
        ))
    });
    let limits = lending_limits(&nominal.collect(), out);
    let mut after = groups.to_vec();
    let mut differs = false;
    let flavor = after.first_mut().and_then(|group| group.flavors.first_mut());
    for quota in flavor.into_iter().flat_map(|flavor| &mut flavor.resources) {
        let name = ResourceName::from(&*quota.name);
        // Why left alone: a quota that cannot be parsed has no correct limit.
        let Some(limit) = limits.get(&name) else {
            continue;
        };
        let is = quota.lending_limit.as_ref().map(|text| amount(&quota.name, text));
        if is != limit.map(Some) {
            quota.lending_limit = limit.map(|limit| Quantity(quantity::print(&name, limit)));
            differs = true;
        }
    }
    differs.then_some(after)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value};

    use super::*;

    fn groups(gpu: Option<&str>, cpu: Option<&str>) -> Vec<ResourceGroup> {
        let quota = |name: &str, nominal: &str, limit: Option<&str>| {
            let mut quota = json!({"name": name, "nominalQuota": nominal});
            if let Some(limit) = limit {
                quota["lendingLimit"] = limit.into();
            }
            quota
        };
        let other = json!({"coveredResources": ["memory"], "flavors": [{"name": "m", "resources": [quota("memory", "1Gi", Some("1Gi"))]}]});
        let first = json!({"coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": [
            {"name": "a", "resources": [quota("nvidia.com/gpu", "8", gpu), quota("cpu", "100", cpu)]},
            {"name": "b", "resources": [quota("nvidia.com/gpu", "8", Some("1")), quota("cpu", "100", None)]},
        ]});
        from_value(Value::from(vec![first, other])).unwrap()
    }

    fn out(gpu: i64, cpu: i64) -> Amounts {
        let all = [("nvidia.com/gpu", gpu), ("cpu", cpu * 1000)];
        let named = all.map(|(name, amount)| (ResourceName::from(name), Amount::new(amount)));
        named
            .into_iter()
            .filter(|(_, amount)| *amount != Amount::ZERO)
            .collect()
    }

    /// The example of the paper: one node, a second one, both back.
    ///
    /// Spec: appwrapper 4.5, B121, B122, B123
    #[test]
    fn only_limits_of_the_first_flavor_follow_what_is_out_of_service() {
        let one = lowered(&groups(None, None), &out(8, 96));
        assert_eq!(one, Some(groups(Some("0"), Some("4"))));
        assert_eq!(
            lowered(&groups(Some("0"), Some("4")), &out(8, 96)),
            None,
            "it is so already"
        );
        assert_eq!(
            lowered(&groups(Some("0"), Some("4000m")), &out(8, 96)),
            None,
            "by value"
        );
        let two = lowered(&groups(Some("0"), Some("4")), &out(16, 192));
        assert_eq!(two, Some(groups(Some("0"), Some("0"))));
        let back = lowered(&groups(Some("0"), Some("0")), &out(0, 0));
        assert_eq!(back, Some(groups(None, None)));
        let marked = lowered(&groups(None, Some("7")), &out(4, 0));
        assert_eq!(
            marked,
            Some(groups(Some("4"), None)),
            "what was set by hand is taken back"
        );
        assert_eq!(lowered(&[], &out(8, 96)), None);
    }
}
