//! The components of an `AppWrapper`. *Source*: `spec/appwrapper.md 1.2, 1.5`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use roadstead_api::appwrapper::v1beta2::{AppWrapper, AppWrapperComponent, AppWrapperPodSet};
use roadstead_core::appwrapper::observed::{Child, Component, Role};
use roadstead_core::appwrapper::status::{Identity, PodSet};
use roadstead_jobs::appwrapper::infer;
use roadstead_jobs::appwrapper::probe::nature;
use roadstead_jobs::json;
use roadstead_kinds::TABLE;
use serde_json::Value;
use sha1::{Digest as _, Sha1};

/// Annotation of a component: its role among the components. *Source*: `spec/appwrapper.md 8.2`.
pub const ROLE: &str = "roadstead.dev/role";
/// Value of [`ROLE`]: the `AppWrapper` has succeeded when the other components have; then this one is stopped.
pub const ROLE_SERVICE: &str = "service";
/// Bytes of a generated name before its hash. *Limit*: names of most kinds have at most 63.
const PREFIX_MAX: usize = 57;

/// The components of an `AppWrapper`; their children are not read yet.
pub fn components(wrapper: &AppWrapper) -> Vec<Component> {
    let uid = wrapper.metadata.uid.as_deref().unwrap_or_default();
    let stored = wrapper
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.component_status);
    let all = wrapper.spec.components.iter().enumerate();
    all.map(|(index, component)| {
        let identity = identity(component, uid, index);
        Component {
            // Why the stored pod sets come first: another version of the controller must count the same.
            pod_sets: match stored.get(index) {
                Some(stored) => stored.pod_sets.iter().map(pod_set).collect(),
                None => pod_sets(component),
            },
            nature: nature(&identity.api_version, &identity.kind),
            role: match component.annotations.get(ROLE) {
                Some(role) if role == ROLE_SERVICE => Role::Service,
                Some(_) | None => Role::Member,
            },
            child: Child::Missing,
            identity,
        }
    })
    .collect()
}

/// The identity of the child of a component.
///
/// Unlike the anchor: a `generateName` is completed here, always in the same way, so that the child is found again after a crash.
fn identity(component: &AppWrapperComponent, uid: &str, index: usize) -> Identity {
    let text = |field: &str| {
        component
            .template
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let meta = component.template.get("metadata").unwrap_or(&Value::Null);
    let name = json::text(meta, &["name"]).filter(|name| !name.is_empty());
    let generated = || {
        let prefix = json::text(meta, &["generateName"]).unwrap_or_default();
        let prefix = prefix.get(..PREFIX_MAX).unwrap_or(prefix);
        let mut name = prefix.to_owned();
        for byte in Sha1::digest(format!("{uid}\n{index}")).iter().take(3) {
            // Writing to a String cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    };
    Identity {
        api_version: text("apiVersion").to_owned(),
        kind: text("kind").to_owned(),
        name: name.map_or_else(generated, str::to_owned),
    }
}

/// The pod sets of a component: the declared ones with the hints of its kind, or otherwise those of its kind.
///
/// A declaration that the webhook should have refused is used as it is, because there is no other source.
pub fn pod_sets(component: &AppWrapperComponent) -> Vec<PodSet> {
    let template = component.template.to_value();
    let text = |field: &str| json::text(&template, &[field]).unwrap_or_default();
    let inferred = infer::pod_sets(TABLE, text("apiVersion"), text("kind"), &template).unwrap_or_default();
    if component.pod_sets.is_empty() {
        let sets = inferred.into_iter().map(|set| PodSet {
            path: set.path,
            replicas: Some(i32::try_from(set.replicas).unwrap_or(i32::MAX)),
            annotations: set.annotations,
        });
        return sets.collect();
    }
    let hints: BTreeMap<String, _> = inferred
        .into_iter()
        .map(|set| (set.path, set.annotations))
        .collect();
    let declared = component.pod_sets.iter().map(|declared| {
        let mut set = pod_set(declared);
        // Unlike the anchor: declared pod sets keep the hints of the kind (`spec/appwrapper.md` N-2).
        for (key, value) in hints.get(&set.path).into_iter().flatten() {
            set.annotations
                .entry(key.clone())
                .or_insert_with(|| value.clone());
        }
        set
    });
    declared.collect()
}

pub(super) fn pod_set(set: &AppWrapperPodSet) -> PodSet {
    PodSet {
        path: set.path.clone(),
        replicas: set.replicas,
        annotations: set.annotations.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrapper(components: Value) -> AppWrapper {
        let mut wrapper = json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"name": "aw", "namespace": "team", "uid": "u-1"}, "spec": {"components": []},
        });
        wrapper["spec"]["components"] = components;
        serde_json::from_value(wrapper).unwrap()
    }

    /// Spec: appwrapper B6, B10, B20, N-2.
    #[test]
    fn declared_pod_sets_keep_their_order_and_gain_the_hints_of_the_kind() {
        let pods = json!({"spec": {"containers": []}});
        let job = |n: i64| json!({"parallelism": n, "completions": n, "template": pods});
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"},
            "spec": {"replicatedJobs": [
                {"name": "workers", "replicas": 2, "template": {"spec": job(2)}},
                {"name": "driver", "template": {"spec": job(1)}},
            ]},
        });
        let path = |index| format!("template.spec.replicatedJobs[{index}].template.spec.template");
        let declared = json!([{"path": path(1)}, {"path": path(0), "replicas": 4}]);
        let found = components(&wrapper(json!([
            {"template": set.clone()}, {"template": set, "podSets": declared},
            {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}},
        ])));
        let counts = |index: usize| {
            found[index]
                .pod_sets
                .iter()
                .map(PodSet::count)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (counts(0), counts(1), counts(2)),
            (vec![4, 1], vec![1, 4], vec![1])
        );
        let hint = "workload.codeflare.dev.appwrapper/tas-sub-group-count";
        assert_eq!(found[1].pod_sets[1].annotations[hint], "2");
        assert_eq!(found[2].pod_sets[0].path, "template");
    }

    /// Spec: appwrapper B31, 8.1.
    #[test]
    fn a_generated_name_is_the_same_each_time_and_of_this_wrapper_alone() {
        let template = json!({"template": {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "web-"}}});
        let mut first = wrapper(json!([template.clone(), template]));
        let names = |wrapper: &AppWrapper| -> Vec<String> {
            components(wrapper)
                .into_iter()
                .map(|component| component.identity.name)
                .collect()
        };
        let before = names(&first);
        assert_eq!(before, names(&first));
        assert!(before[0].starts_with("web-") && before[0].len() == 10 && before[0] != before[1]);
        first.metadata.uid = Some("u-2".to_owned());
        assert_ne!(before, names(&first));
    }
}
