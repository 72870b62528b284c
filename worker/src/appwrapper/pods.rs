//! Pods with the label of an `AppWrapper`, and the component from which each of them comes.
//!
//! Invariant: a pod of unknown origin is only counted; nothing else is assumed about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use roadstead_core::appwrapper::observed::{self, Origin, PodPhase};
use roadstead_core::appwrapper::status::LABEL;
use roadstead_core::name::{Key, ResourceName, Uid};
use roadstead_core::quantity;
use roadstead_jobs::labels::controller;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Owners remembered at most.
const PARENTS_MAX: usize = 100_000;

/// A pod without the fields that this controller does not read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Pod")]
pub(super) struct Pod {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Container {
    #[serde(default)]
    resources: Resources,
}

/// The resources that a container requests or is limited to, by name, without those whose amount is zero.
#[derive(Clone, Debug, Default, Deserialize)]
struct Resources {
    #[serde(default, deserialize_with = "asked")]
    requests: Box<[ResourceName]>,
    #[serde(default, deserialize_with = "asked")]
    limits: Box<[ResourceName]>,
}

fn asked<'de, D: Deserializer<'de>>(amounts: D) -> Result<Box<[ResourceName]>, D::Error> {
    let amounts = BTreeMap::<String, Value>::deserialize(amounts)?.into_iter();
    let asked = amounts.filter(|(name, amount)| {
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        quantity::parse(name, &text).is_ok_and(|amount| amount.get() != 0)
    });
    Ok(asked.map(|(name, _)| name.into()).collect())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ContainerStatus {
    #[serde(default)]
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i32,
}

impl Pod {
    /// The `AppWrapper` that its label names.
    fn wrapper(&self) -> Option<Key> {
        let name = self.labels().get(LABEL)?;
        Some(Key::new(self.namespace().unwrap_or_default(), name.as_str()))
    }

    pub(super) fn controller(&self) -> Option<&OwnerReference> {
        controller(&self.metadata)
    }

    pub(super) fn observed(&self, origin: Origin) -> observed::Pod {
        let containers = self.spec.containers.iter();
        let asked = containers.flat_map(|container| {
            let resources = &container.resources;
            resources.requests.iter().chain(&resources.limits)
        });
        let ended = self.status.container_statuses.iter();
        let ended = ended.filter_map(|status| status.state.terminated.as_ref());
        observed::Pod {
            name: self.name_any(),
            uid: Uid::from(self.metadata.uid.as_deref().unwrap_or_default()),
            phase: match self.status.phase.as_str() {
                "Running" => PodPhase::Running,
                "Succeeded" => PodPhase::Succeeded,
                "Failed" => PodPhase::Failed,
                "Unknown" => PodPhase::Unknown,
                _ => PodPhase::Pending,
            },
            leaving: self.metadata.deletion_timestamp.is_some(),
            origin,
            node: self.spec.node_name.clone(),
            resources: asked.cloned().collect(),
            exit_codes: ended
                .map(|ended| ended.exit_code)
                .filter(|code| *code != 0)
                .collect(),
        }
    }
}

/// Which pods carry the label of an `AppWrapper`, and which run on a node.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    by_wrapper: BTreeMap<Key, BTreeSet<Key>>,
    by_node: BTreeMap<String, BTreeMap<Key, usize>>,
}

impl Index {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the change of a pod; returns the `AppWrappers` that it concerns.
    pub(super) fn note(&self, key: &Key, old: Option<&Pod>, new: Option<&Pod>) -> BTreeSet<Key> {
        let mut tables = self.tables();
        let mut concerned = BTreeSet::new();
        if let Some((wrapper, pod)) = old.and_then(|pod| Some((pod.wrapper()?, pod))) {
            if let Some(pods) = tables.by_wrapper.get_mut(&wrapper) {
                pods.remove(key);
                if pods.is_empty() {
                    tables.by_wrapper.remove(&wrapper);
                }
            }
            if let Some(node) = &pod.spec.node_name {
                tables.leave(node, &wrapper);
            }
            concerned.insert(wrapper);
        }
        if let Some((wrapper, pod)) = new.and_then(|pod| Some((pod.wrapper()?, pod))) {
            tables
                .by_wrapper
                .entry(wrapper.clone())
                .or_default()
                .insert(key.clone());
            if let Some(node) = &pod.spec.node_name {
                let on_node = tables.by_node.entry(node.clone()).or_default();
                *on_node.entry(wrapper.clone()).or_default() += 1;
            }
            concerned.insert(wrapper);
        }
        concerned
    }

    /// The pods of an `AppWrapper`, in order.
    pub(super) fn of(&self, wrapper: &Key) -> Vec<Key> {
        let tables = self.tables();
        tables
            .by_wrapper
            .get(wrapper)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The `AppWrappers` with pods on a node.
    pub(super) fn on_node(&self, node: &str) -> Vec<Key> {
        let tables = self.tables();
        tables
            .by_node
            .get(node)
            .into_iter()
            .flatten()
            .map(|(wrapper, _)| wrapper.clone())
            .collect()
    }
}

impl Tables {
    fn leave(&mut self, node: &str, wrapper: &Key) {
        let Some(on_node) = self.by_node.get_mut(node) else {
            return;
        };
        if let Some(count) = on_node.get_mut(wrapper) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                on_node.remove(wrapper);
            }
        }
        if on_node.is_empty() {
            self.by_node.remove(node);
        }
    }
}

/// The owner of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Above {
    /// It is the child of this component of the `AppWrapper` with this UID.
    Component(String, usize),
    Owner(Box<OwnerReference>),
    Nothing,
}

/// The owners of known objects, by UID; kept after an object is gone, because its pods may live longer.
#[derive(Debug, Default)]
pub(super) struct Parents(Mutex<BTreeMap<String, Above>>);

impl Parents {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Above>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of an object, if it is known.
    pub(super) fn of(&self, uid: &str) -> Option<Above> {
        self.all().get(uid).cloned()
    }

    /// Notes the owner of an object. Beyond the limit no new owner is noted, so it is read each time.
    pub(super) fn note(&self, uid: &str, above: Above) {
        let mut all = self.all();
        if all.len() < PARENTS_MAX || all.contains_key(uid) {
            all.insert(uid.to_owned(), above);
        }
    }

    /// Forgets the children of an `AppWrapper` that is gone.
    pub(super) fn forget(&self, wrapper: &str) {
        self.all()
            .retain(|_, above| !matches!(above, Above::Component(of, _) if of == wrapper));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "team", "labels": {LABEL: "aw"}},
            "spec": {"nodeName": node, "containers": [
                {"resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "0", "memory": "1Gi"}}},
            ]},
            "status": {"phase": "Failed", "containerStatuses": [
                {"state": {"terminated": {"exitCode": 42}}}, {"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}},
            ]},
        }))
        .unwrap()
    }

    /// Spec: appwrapper 2.6.
    #[test]
    fn a_pod_is_seen_with_what_it_asks_for_and_how_it_ended() {
        let seen = pod(Some("n")).observed(Origin::Component(0));
        assert_eq!(seen.phase, PodPhase::Failed);
        assert_eq!(seen.exit_codes, BTreeSet::from([42]));
        let names: Vec<_> = seen.resources.iter().map(ResourceName::as_str).collect();
        assert_eq!(names, ["memory", "nvidia.com/gpu"]);
    }

    #[test]
    fn the_index_follows_a_pod_to_its_node_and_to_its_end() {
        let (index, key, wrapper) = (Index::default(), Key::new("team", "p"), Key::new("team", "aw"));
        let (waiting, placed) = (pod(None), pod(Some("n")));
        assert_eq!(
            index.note(&key, None, Some(&waiting)),
            BTreeSet::from([wrapper.clone()])
        );
        assert!(index.on_node("n").is_empty());
        index.note(&key, Some(&waiting), Some(&placed));
        assert_eq!(index.of(&wrapper), std::slice::from_ref(&key));
        assert_eq!(index.on_node("n"), std::slice::from_ref(&wrapper));
        index.note(&key, Some(&placed), None);
        assert!(index.of(&wrapper).is_empty() && index.on_node("n").is_empty());
    }
}
