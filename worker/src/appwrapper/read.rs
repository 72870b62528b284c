//! The facts about one `AppWrapper`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use roadstead_api::appwrapper::v1beta2::{AppWrapper, AppWrapperSpec};
use roadstead_convert::appwrapper::{components, knobs};
use roadstead_core::appwrapper::observed::{self, Child, Component, Created, Observed, Origin, Stranger};
use roadstead_core::appwrapper::settings::Knobs;
use roadstead_core::appwrapper::status::{FINALIZER, Identity, LABEL, Phase, RESOURCES_DEPLOYED, Status};
use roadstead_core::appwrapper::{Plan, plan};
use roadstead_core::bug;
use roadstead_core::name::{Key, ResourceName, Uid};
use roadstead_jobs::appwrapper::probe::verdict;
use roadstead_jobs::appwrapper::{ROW, unpacked};
use roadstead_jobs::labels::controller;
use roadstead_kubeio::cache::key_of;
use roadstead_kubeio::failure::Failure;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Wrappers;
use super::kinds::Found;
use super::pods::{Above, Pod};

/// Limit: owners that are followed upwards. *Source*: `spec/appwrapper.md 5.5`.
const DEPTH_MAX: usize = 10;

/// Everything that the plan reads, owned.
pub(super) struct Scene {
    pub(super) status: Status,
    pub(super) components: Vec<Component>,
    suspended: bool,
    deleting: bool,
    finalizer: bool,
    pods: Result<Vec<observed::Pod>, Failure>,
    evict: BTreeMap<String, BTreeSet<ResourceName>>,
    knobs: Knobs,
    #[cfg(feature = "bugbank")]
    bug: Option<roadstead_core::dispatch::Bug>,
}

impl Scene {
    pub(super) fn plan(&self, now: Timestamp) -> Plan {
        self.plan_with(&BTreeMap::new(), now)
    }

    /// The next plan, after children were created.
    pub(super) fn plan_with(&self, created: &BTreeMap<usize, Created>, now: Timestamp) -> Plan {
        let pods = match &self.pods {
            Ok(pods) => observed::Pods::Known(pods),
            Err(failure) => observed::Pods::Unread(failure.text()),
        };
        let observed = Observed {
            status: &self.status,
            suspended: self.suspended,
            deleting: self.deleting,
            finalizer: self.finalizer,
            components: &self.components,
            pods,
            evict: &self.evict,
            knobs: &self.knobs,
            created,
            #[cfg(feature = "bugbank")]
            bug: self.bug,
        };
        plan(&observed, now)
    }
}

/// An `AppWrapper` from its cache.
///
/// Why not cached in this form: it takes more memory than all the rest that is kept of an `AppWrapper`.
pub(super) fn typed(object: &DynamicObject) -> serde_json::Result<AppWrapper> {
    let data = unpacked(&object.data);
    let field = |name: &str| data.get(name).unwrap_or(&Value::Null);
    Ok(AppWrapper {
        metadata: object.metadata.clone(),
        spec: AppWrapperSpec::deserialize(field("spec"))?,
        status: Option::deserialize(field("status"))?,
    })
}

/// The facts about an `AppWrapper`.
pub(super) async fn scene(w: &Wrappers, wrapper: &AppWrapper, status: Status) -> Scene {
    let mut components = components(wrapper);
    if matters(wrapper, &status) {
        for component in &mut components {
            component.child = child(w, wrapper, &status, component).await;
        }
        let uid = wrapper.metadata.uid.as_deref().unwrap_or_default();
        for (index, component) in components.iter().enumerate() {
            if let Child::Present { uid: child, .. } = &component.child {
                w.parents
                    .note(child.as_str(), Above::Component(uid.to_owned(), index));
            }
        }
    }
    let pods = pods(w, wrapper, &components).await;
    let nodes: BTreeSet<&str> = pods
        .iter()
        .flatten()
        .filter_map(|pod| pod.node.as_deref())
        .collect();
    let evict = nodes
        .into_iter()
        .filter_map(|node| Some((node.to_owned(), w.sick.of(node)?)));
    let annotations = wrapper.metadata.annotations.clone().unwrap_or_default();
    Scene {
        evict: evict.collect(),
        knobs: knobs(&w.settings.patience, &annotations),
        suspended: wrapper.spec.suspend,
        deleting: wrapper.metadata.deletion_timestamp.is_some(),
        finalizer: wrapper.finalizers().iter().any(|name| name == FINALIZER),
        status,
        components,
        pods,
        #[cfg(feature = "bugbank")]
        bug: w.settings.bug,
    }
}

/// Whether its children must be read: not before they are created, nor after they are gone.
fn matters(wrapper: &AppWrapper, status: &Status) -> bool {
    let deployed = status.conditions.get(RESOURCES_DEPLOYED);
    if wrapper.metadata.deletion_timestamp.is_some() {
        return deployed.is_some();
    }
    match status.phase {
        Phase::Empty | Phase::Terminating => false,
        Phase::Suspended => deployed.is_some() && !wrapper.spec.suspend,
        Phase::Succeeded | Phase::Failed => status.conditions.is_true(RESOURCES_DEPLOYED),
        Phase::Resuming | Phase::Running | Phase::Resetting | Phase::Suspending => true,
    }
}

async fn child(w: &Wrappers, wrapper: &AppWrapper, status: &Status, component: &Component) -> Child {
    let namespace = wrapper.metadata.namespace.as_deref().unwrap_or_default();
    let identity = &component.identity;
    // Why not read: the attempt to create the child shows whether it exists, and costs no more than the read.
    if status.phase == Phase::Resuming
        && (w.settings.allows(identity).is_err() || w.kinds.seems_missing(namespace, identity).await)
    {
        return Child::Missing;
    }
    match w.kinds.read(namespace, identity).await {
        Found::There(object) => view(wrapper, identity, &object),
        Found::NotThere => Child::Missing,
        Found::Unclear(failure) => Child::Unread(failure.into()),
    }
}

/// How an object with the name of a child relates to the `AppWrapper`.
pub(super) fn view(wrapper: &AppWrapper, identity: &Identity, object: &DynamicObject) -> Child {
    let owner = controller(&object.metadata);
    let ours = owner.is_some_and(|owner| Some(&owner.uid) == wrapper.metadata.uid.as_ref());
    if !ours {
        let name = wrapper.metadata.name.as_deref();
        let same = owner.is_some_and(|owner| owner.kind == ROW.kind && Some(&*owner.name) == name);
        return Child::Foreign(if same {
            Stranger::Predecessor
        } else {
            Stranger::Other
        });
    }
    let status = json!({"status": object.data.get("status")});
    Child::Present {
        uid: Uid::from(object.metadata.uid.as_deref().unwrap_or_default()),
        leaving: object.metadata.deletion_timestamp.is_some(),
        verdict: verdict(&identity.api_version, &identity.kind, &status),
    }
}

async fn pods(
    w: &Wrappers,
    wrapper: &AppWrapper,
    components: &[Component],
) -> Result<Vec<observed::Pod>, Failure> {
    if !w.pods.is_live() {
        return Err(Failure::passing("the pods of this cluster cannot be listed now"));
    }
    let has_children = || {
        components
            .iter()
            .any(|component| component.child != Child::Missing)
    };
    if bug!(w.settings, PodsUncounted) && !has_children() {
        return Ok(Vec::new());
    }
    let mut pods = Vec::new();
    for key in w.index.of(&key_of(wrapper)) {
        let Some(pod) = w.pods.get(&key) else {
            continue;
        };
        if let Some(origin) = origin(w, wrapper, components, &pod).await {
            pods.push(pod.observed(origin));
        }
    }
    Ok(pods)
}

/// The origin of a pod; `None` when it certainly belongs to another object. *Source*: `spec/appwrapper.md 8.1 W-12`.
async fn origin(w: &Wrappers, wrapper: &AppWrapper, components: &[Component], pod: &Pod) -> Option<Origin> {
    let uid = kube::Resource::meta(pod).uid.as_deref().unwrap_or_default();
    if let Some(found) = place(w, wrapper, components, uid) {
        return Some(found);
    }
    let Some(mut owner) = pod.controller().cloned() else {
        return Some(Origin::Stray);
    };
    let namespace = kube::Resource::meta(pod).namespace.as_deref().unwrap_or_default();
    for _ in 0..DEPTH_MAX {
        if let Some(found) = place(w, wrapper, components, &owner.uid) {
            return Some(found);
        }
        if Some(&owner.uid) == wrapper.metadata.uid.as_ref() {
            return Some(Origin::Unknown);
        }
        match above(w, namespace, &owner).await {
            Some(Above::Owner(next)) => owner = *next,
            Some(Above::Nothing | Above::Component(..)) => return None,
            None => return Some(Origin::Unknown),
        }
    }
    Some(Origin::Unknown)
}

/// The origin of pods of the child that has this UID, or had it before it was deleted; `None` when it is no child.
fn place(w: &Wrappers, wrapper: &AppWrapper, components: &[Component], uid: &str) -> Option<Origin> {
    let is_it = |component: &Component| match &component.child {
        Child::Present { uid: child, .. } => child.as_str() == uid,
        Child::Missing | Child::Foreign(_) | Child::Unread(_) => false,
    };
    let index = components
        .iter()
        .position(is_it)
        .or_else(|| match w.parents.of(uid) {
            Some(Above::Component(of, index)) if Some(&of) == wrapper.metadata.uid.as_ref() => Some(index),
            Some(Above::Component(..) | Above::Owner(_) | Above::Nothing) | None => None,
        })?;
    Some(components.get(index)?.origin(index))
}

/// The controller of the owner of a pod; `None` when it cannot be read.
async fn above(w: &Wrappers, namespace: &str, owner: &OwnerReference) -> Option<Above> {
    if let Some(known) = w.parents.of(&owner.uid) {
        return Some(known);
    }
    let kind = w.kinds.kind_only(&owner.api_version, &owner.kind).await?;
    let found = kind.get_metadata(namespace, &owner.name).await?;
    if found.uid.as_ref() != Some(&owner.uid) {
        return None;
    }
    let above = controller(&found).map_or(Above::Nothing, |next| Above::Owner(Box::new(next.clone())));
    w.parents.note(&owner.uid, above.clone());
    Some(above)
}

impl Wrappers {
    /// Reads the pods of an `AppWrapper` from the API server into the cache.
    pub(super) async fn list_pods(&self, key: &Key) -> Result<(), Failure> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let selector = format!("{LABEL}={}", key.name);
        let listed = api.list(&ListParams::default().labels(&selector)).await?;
        listed.items.into_iter().for_each(|pod| self.pods.observe(pod));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use roadstead_engine::caches::member_mut;
    use roadstead_jobs::JobKind as _;
    use roadstead_jobs::appwrapper::AppWrapper as WrapperKind;

    use super::*;

    #[test]
    fn a_cached_appwrapper_is_read_as_it_was_stored() {
        let stored = json!({
            "apiVersion": ROW.api_version(), "kind": ROW.kind, "metadata": {"name": "aw", "namespace": "team", "uid": "u-1"},
            "spec": {"suspend": true, "components": [
                {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}},
            ]},
            "status": {"phase": "Suspended", "componentStatus": [
                {"name": "p", "kind": "Pod", "apiVersion": "v1", "podSets": [{"path": "template"}]},
            ]},
        });
        let mut cached: DynamicObject = serde_json::from_value(stored.clone()).unwrap();
        WrapperKind.pack(&mut member_mut(&mut cached));
        assert!(
            cached.data["spec"]["components"].is_string()
                && cached.data["status"]["componentStatus"].is_string()
        );
        assert_eq!(serde_json::to_value(typed(&cached).unwrap()).unwrap(), stored);
        cached.data = json!({"spec": {"components": 5}});
        assert!(typed(&cached).is_err());
    }
}
