//! Whether the user who creates an `AppWrapper` may create the resources in it. *Source*: `spec/appwrapper.md 3.4`.
//!
//! The manager checks this, because the user is known there. A manager's copy on a worker is not checked: the worker's controller
//! goes by its own list of allowed kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::core::GroupVersionKind;
use kube::core::admission::Operation;
use kube::{Api, Client};
use roadstead_jobs::json;
use roadstead_kubeio::failure::Failure;
use roadstead_serve::webhook::Preparation;
use serde_json::Value;

use super::answers::Request;

/// Limit: kinds whose plural is remembered.
const KINDS_MAX: usize = 1_000;
/// The resource that is checked when the API server does not give the plural of a kind: only a user with all rights passes.
const ANY: &str = "*";

/// `apiVersion` and kind.
type Name = (String, String);
type Plurals = Arc<Mutex<BTreeMap<Name, String>>>;

/// Refuses an `AppWrapper` whose creator may not create a wrapped resource. Names that begin with `managers` are not asked about.
pub(super) fn review(client: Client, managers: String) -> Preparation {
    let plurals = Plurals::default();
    Arc::new(move |request| {
        let asked = asked(request, &managers);
        let (client, plurals) = (client.clone(), plurals.clone());
        Box::pin(async move {
            let Some(asked) = asked else {
                return Ok(());
            };
            for kind in &asked.kinds {
                let plural = plural(&client, &plurals, kind).await;
                asked.may_create(&client, kind, plural).await?;
            }
            Ok(())
        })
    })
}

/// The rights to check for a request.
struct Asked {
    user: SubjectAccessReviewSpec,
    namespace: String,
    kinds: Vec<GroupVersionKind>,
}

/// `None` when nothing is created, or a manager creates a copy.
fn asked(request: &Request, managers: &str) -> Option<Asked> {
    let user = &request.user_info;
    let name = user.username.clone().unwrap_or_default();
    if !matches!(request.operation, Operation::Create) || name.starts_with(managers) {
        return None;
    }
    let object = request.object.as_ref()?;
    let components = json::list(&object.data, &["spec", "components"]).iter();
    let kinds: BTreeSet<Name> = components.filter_map(kind).collect();
    Some(Asked {
        user: SubjectAccessReviewSpec {
            user: Some(name),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            ..SubjectAccessReviewSpec::default()
        },
        namespace: request.namespace.clone().unwrap_or_default(),
        kinds: kinds.into_iter().map(gvk).collect(),
    })
}

/// The kind that a component wraps; `None` for components that the rules refuse anyway.
fn kind(component: &Value) -> Option<Name> {
    let api_version = json::text(component, &["template", "apiVersion"])?;
    let kind = json::text(component, &["template", "kind"])?;
    Some((api_version.to_owned(), kind.to_owned()))
}

fn gvk((api_version, kind): Name) -> GroupVersionKind {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    GroupVersionKind::gvk(group, version, &kind)
}

async fn plural(client: &Client, plurals: &Plurals, kind: &GroupVersionKind) -> String {
    let name = (kind.api_version(), kind.kind.clone());
    let known = plurals
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&name)
        .cloned();
    if let Some(known) = known {
        return known;
    }
    let Ok((resource, _)) = kube::discovery::pinned_kind(client, kind).await else {
        return ANY.to_owned();
    };
    let mut all = plurals.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() < KINDS_MAX {
        all.insert(name, resource.plural.clone());
    }
    resource.plural
}

impl Asked {
    /// *Errors*: the user may not create it, or the API server gave no answer.
    async fn may_create(
        &self,
        client: &Client,
        kind: &GroupVersionKind,
        plural: String,
    ) -> Result<(), Failure> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(self.namespace.clone()),
                    verb: Some("create".to_owned()),
                    group: Some(kind.group.clone()),
                    version: Some(kind.version.clone()),
                    resource: Some(plural.clone()),
                    ..ResourceAttributes::default()
                }),
                ..self.user.clone()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| {
            Failure::of(&error).reworded(|why| {
                format!(
                    "it cannot be checked whether the user may create {plural}: {why}; try again in a moment"
                )
            })
        })?;
        if answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        let name = self.user.user.as_deref().unwrap_or_default();
        let namespace = &self.namespace;
        Err(Failure::lasting(format!(
            "User {name} is not authorized to create {plural} in {namespace}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(operation: &str, user: &str) -> Request {
        let template = |version: &str, kind: &str| json!({"template": {"apiVersion": version, "kind": kind}});
        let components = [
            template("batch/v1", "Job"),
            template("v1", "Pod"),
            template("batch/v1", "Job"),
            json!({}),
        ];
        serde_json::from_value(json!({
            "uid": "u", "operation": operation, "name": "aw", "namespace": "team",
            "kind": {"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"},
            "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
            "userInfo": {"username": user, "groups": ["g"], "extra": {"k": ["v"]}},
            "object": {"metadata": {"name": "aw"}, "spec": {"components": components}},
        }))
        .unwrap()
    }

    /// Spec: appwrapper 3.4, B105, N-24.
    #[test]
    fn each_kind_is_asked_about_once_with_all_that_is_known_of_the_user() {
        let managers = "system:serviceaccount:roadstead-system:roadstead-";
        let asked = asked(&request("CREATE", "alice"), managers).unwrap();
        let kinds: Vec<_> = asked
            .kinds
            .iter()
            .map(|kind| (kind.group.as_str(), kind.kind.as_str()))
            .collect();
        assert_eq!(kinds, [("batch", "Job"), ("", "Pod")]);
        assert_eq!(asked.user.groups, Some(vec!["g".to_owned()]));
        assert_eq!(asked.user.extra.unwrap()["k"], ["v"]);
        assert!(super::asked(&request("UPDATE", "alice"), managers).is_none());
        let copy = request("CREATE", "system:serviceaccount:roadstead-system:roadstead-west");
        assert!(super::asked(&copy, managers).is_none());
    }
}
