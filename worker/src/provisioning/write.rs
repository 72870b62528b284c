//! Carries out the plan: requests and templates, one write each.
//!
//! Invariant: each write may be repeated. Created objects are found again by name and owner, deletions carry a UID, a hand-over
//! carries the version it was decided from. When one check's creation fails, those of the other checks still go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt as _};
use roadstead_api::autoscaling::v1::{
    PodTemplateReference, ProvisioningPodSet, ProvisioningRequest, ProvisioningRequestSpec,
};
use roadstead_api::constants::labels;
use roadstead_api::kueue::v1beta2 as api;
use roadstead_core::name::{CheckName, FlavorName, Key, Uid};
use roadstead_core::provision::{Action, CreateFailure, NewRequest, Problem, RequestPodSet, created_note};
use roadstead_core::queue::Flavor;
use roadstead_core::workload::Workload;
use roadstead_engine::checks::Work;
use roadstead_jobs::labels::controller;
use roadstead_kubeio::cache::Cache;
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write::{self, Written};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::template;
use super::{ATTEMPT_ANNOTATION, CHECK_ANNOTATION, Provisioning};

/// The kinds, as messages name them.
const TEMPLATE: &str = "PodTemplate";
const REQUEST: &str = "ProvisioningRequest";

/// Why an action failed.
enum Trouble {
    /// The pass is retried, and the text is logged.
    Passing(String),
    /// A creation failed; it is shown on the check too.
    Create(CreateFailure),
}

/// The Workload of a plan.
pub(super) struct Site {
    p: Provisioning,
    key: Key,
    uid: Uid,
}

impl Site {
    pub(super) fn new(p: Provisioning, workload: &Workload) -> Self {
        Self {
            p,
            key: workload.key.clone(),
            uid: workload.uid.clone(),
        }
    }

    /// Carries out the actions in order. The error holds the failed actions, and those that could not even be planned.
    pub(super) fn carry_out(self, actions: Vec<Action>, problems: Vec<Problem>) -> Work {
        Box::pin(async move {
            let mut troubles: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let mut failed: BTreeSet<CheckName> = BTreeSet::new();
            for action in actions {
                let check = match &action {
                    Action::CreateTemplates { check, .. } => Some(check.clone()),
                    Action::CreateRequest(request) => Some(request.check.clone()),
                    Action::DeleteRequest { .. } | Action::TransferOwner { .. } => None,
                };
                if check.as_ref().is_some_and(|check| failed.contains(check)) {
                    continue;
                }
                let Err(trouble) = self.act(action).await else {
                    continue;
                };
                failed.extend(check.clone());
                troubles.push(match (trouble, check) {
                    (Trouble::Create(failure), check) => {
                        let text = format!("creating {} {}: {}", failure.kind, failure.name, failure.error);
                        if let Some(check) = check {
                            self.p.failures.note(&self.key, &check, failure);
                        }
                        text
                    }
                    (Trouble::Passing(text), _) => text,
                });
            }
            if troubles.is_empty() {
                Ok(())
            } else {
                // Why passing: a missing object or right may come at any moment, and no watch of this process shows it.
                Err(Failure::passing(troubles.join("; ")))
            }
        })
    }

    async fn act(&self, action: Action) -> Result<(), Trouble> {
        match action {
            Action::DeleteRequest { name } => self.delete_request(&name).await,
            Action::CreateTemplates { check: _, templates } => self.create_templates(&templates).await,
            Action::CreateRequest(request) => self.create_request(request).await,
            Action::TransferOwner { template, request } => self.transfer(&template, &request).await,
        }
    }

    fn requests(&self) -> Api<ProvisioningRequest> {
        Api::namespaced(self.p.client.clone(), &self.key.namespace)
    }

    fn templates(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.p.client.clone(), &self.key.namespace, &template::resource())
    }

    fn at(&self, name: &str) -> Key {
        Key::new(self.key.namespace.clone(), name)
    }

    /// The stored Workload, unless it is gone or being deleted.
    fn workload(&self) -> Option<Arc<api::Workload>> {
        let stored = self.p.caches.workloads.get(&self.key)?;
        let is_it = stored.metadata.uid.as_deref() == Some(self.uid.as_str());
        (is_it && stored.metadata.deletion_timestamp.is_none()).then_some(stored)
    }

    /// The request of this name, if it belongs to the Workload.
    fn request(&self, name: &str) -> Option<Arc<ProvisioningRequest>> {
        let stored = self.p.requests.get(&self.at(name))?;
        let owner = controller(&stored.metadata);
        owner
            .is_some_and(|owner| owner.uid == self.uid.as_str())
            .then_some(stored)
    }

    async fn delete_request(&self, name: &str) -> Result<(), Trouble> {
        let Some(request) = self.request(name) else {
            return Ok(());
        };
        let uid = request.metadata.uid.as_deref();
        delete(&self.requests(), &self.p.requests, &self.at(name), uid).await?;
        // Why not left to garbage collection: it may be slow, and a preemption needs the same names again (`spec/provisioning.md`
        // 16).
        for set in &request.spec.pod_sets {
            let key = self.at(&set.pod_template_ref.name);
            let Some(template) = self.p.templates.get(&key) else {
                continue;
            };
            if controller(&template.metadata).map(|owner| owner.uid.as_str()) == uid {
                delete(
                    &self.templates(),
                    &self.p.templates,
                    &key,
                    template.metadata.uid.as_deref(),
                )
                .await?;
            }
        }
        Ok(())
    }

    async fn create_templates(&self, sets: &[RequestPodSet]) -> Result<(), Trouble> {
        let Some(stored) = self.workload() else {
            return Ok(());
        };
        let workload = roadstead_convert::workload(&stored);
        let flavors = self.flavors(&workload);
        for set in sets {
            let failure = |error| {
                Trouble::Create(CreateFailure {
                    kind: TEMPLATE,
                    name: set.template.clone(),
                    error,
                })
            };
            let pod_set = stored
                .spec
                .pod_sets
                .iter()
                .find(|other| other.name == set.pod_set.as_str());
            let content = pod_set.map(|pod_set| template::content(&workload, pod_set, &flavors));
            let content = content
                .transpose()
                .map_err(|error| failure(error.to_string()))?
                .flatten();
            let Some(content) = content else {
                // Why an error: the request must not be created without its templates.
                let why = format!("nothing is assigned to pod set {} any more", set.pod_set);
                return Err(Trouble::Passing(why));
            };
            let mut object = DynamicObject::new(&set.template, &template::resource());
            object.metadata = self.meta(&set.template, BTreeMap::new(), &*stored);
            object.data = json!({ "template": content });
            match write::create(&self.templates(), &object).await {
                Written::Done(object) => self.p.templates.observe(*object),
                Written::AlreadyExists => {
                    self.meet(&self.templates(), &self.p.templates, &set.template, &failure)
                        .await?;
                }
                answer @ (Written::Gone | Written::Conflict | Written::Refused(_) | Written::Unclear(_)) => {
                    return Err(failure(not_created(
                        answer,
                        "PodTemplates of v1",
                        "every Kubernetes does",
                    )));
                }
            }
        }
        Ok(())
    }

    async fn create_request(&self, request: NewRequest) -> Result<(), Trouble> {
        let Some(stored) = self.workload() else {
            return Ok(());
        };
        let marks = [
            (CHECK_ANNOTATION, request.check.to_string()),
            (ATTEMPT_ANNOTATION, request.attempt.to_string()),
        ];
        let marks = marks
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        let pod_sets = request.pod_sets.into_iter().map(|set| ProvisioningPodSet {
            pod_template_ref: PodTemplateReference { name: set.template },
            count: i32::try_from(set.count).unwrap_or(i32::MAX),
        });
        let object = ProvisioningRequest {
            metadata: self.meta(&request.name, marks, &*stored),
            spec: ProvisioningRequestSpec {
                pod_sets: pod_sets.collect(),
                provisioning_class_name: request.class,
                parameters: request.parameters,
            },
            status: None,
        };
        let name = request.name;
        let failure = |error| {
            Trouble::Create(CreateFailure {
                kind: REQUEST,
                name: name.clone(),
                error,
            })
        };
        match write::create(&self.requests(), &object).await {
            Written::Done(object) => {
                self.p.requests.observe(*object);
                self.p.failures.succeeded(&self.key, &request.check);
                self.p
                    .recorder
                    .record(stored.object_ref(&()), created_note(&name));
                Ok(())
            }
            Written::AlreadyExists => {
                self.meet(&self.requests(), &self.p.requests, &name, &failure)
                    .await
            }
            answer @ (Written::Gone | Written::Conflict | Written::Refused(_) | Written::Unclear(_)) => {
                let (kind, remedy) = (
                    "ProvisioningRequests of autoscaling.x-k8s.io/v1",
                    "install its CustomResourceDefinition, which comes with cluster-autoscaler",
                );
                Err(failure(not_created(answer, kind, remedy)))
            }
        }
    }

    /// Makes the request the controller of the template instead of the Workload.
    async fn transfer(&self, template: &str, request: &str) -> Result<(), Trouble> {
        let key = self.at(template);
        let (Some(stored), Some(request)) = (self.p.templates.get(&key), self.request(request)) else {
            return Ok(());
        };
        if controller(&stored.metadata).is_none_or(|owner| owner.uid != self.uid.as_str()) {
            return Ok(());
        }
        let mut owners: Vec<OwnerReference> = stored.owner_references().to_vec();
        owners.retain(|owner| owner.controller != Some(true));
        owners.extend(owner(&*request));
        let patch = json!({ "metadata": {
            "ownerReferences": owners, "uid": stored.metadata.uid, "resourceVersion": stored.metadata.resource_version,
        } });
        match write::patch(&self.templates(), template, &patch).await {
            Written::Done(object) => self.p.templates.observe(*object),
            Written::Gone => self.p.templates.forget(&key, stored.metadata.uid.as_deref()),
            answer @ (Written::Conflict
            | Written::AlreadyExists
            | Written::Refused(_)
            | Written::Unclear(_)) => {
                let why = refusal(answer);
                return Err(Trouble::Passing(format!(
                    "handing over {TEMPLATE} {template}: {why}"
                )));
            }
        }
        Ok(())
    }

    /// Handles an object that already has the wanted name. It is accepted if it is ours: then the answer to an earlier creation
    /// was lost.
    ///
    /// Wire: an object of another owner, with our label, that the cache does not show yet is a race, so it is not shown on the
    /// check (`spec/provisioning.md 4.4`).
    async fn meet<K>(
        &self,
        api: &Api<K>,
        cache: &Cache<K>,
        name: &str,
        failure: &(impl Fn(String) -> Trouble + Sync),
    ) -> Result<(), Trouble>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let is_ours =
            |object: &K| controller(object.meta()).is_some_and(|owner| owner.uid == self.uid.as_str());
        if let Some(known) = cache.get(&self.at(name)) {
            return if is_ours(&known) {
                Ok(())
            } else {
                Err(failure(NOT_OURS.to_owned()))
            };
        }
        let found = api
            .get_opt(name)
            .await
            .map_err(|error| Trouble::Passing(write::describe(&error)))?;
        let Some(object) = found else {
            return Err(Trouble::Passing(format!(
                "{name} vanished while it was looked at"
            )));
        };
        // Why the label: without it the watch never shows the object, and never tells of its deletion.
        if object
            .labels()
            .get(labels::MANAGED)
            .is_none_or(|value| value != labels::TRUE)
        {
            return Err(failure(NOT_OURS.to_owned()));
        }
        let ours = is_ours(&object);
        cache.observe(object);
        if ours {
            Ok(())
        } else {
            Err(Trouble::Passing(format!(
                "{name} belongs to something else; looking again"
            )))
        }
    }

    fn flavors(&self, workload: &Workload) -> BTreeMap<FlavorName, Flavor> {
        let admission = workload.status.admission.iter();
        let names = admission
            .flat_map(|admission| &admission.pod_sets)
            .flat_map(|set| set.flavors.values());
        let flavors = names.filter_map(|name| {
            let flavor = self.p.caches.flavors.named(name.as_str())?;
            Some((name.clone(), roadstead_convert::flavor(&flavor)))
        });
        flavors.collect()
    }

    fn meta<K: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        annotations: BTreeMap<String, String>,
        controller: &K,
    ) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.key.namespace.to_string()),
            labels: Some(BTreeMap::from([(
                labels::MANAGED.to_owned(),
                labels::TRUE.to_owned(),
            )])),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: owner(controller).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }
}

/// Shown on the check when a name is taken.
const NOT_OURS: &str = "an object of that name exists that does not belong to this workload: delete it";

/// A reference that makes `object` the controller. `None` for an object that is not stored yet.
fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    let reference = object.controller_owner_ref(&())?;
    Some(OwnerReference {
        block_owner_deletion: Some(true),
        ..reference
    })
}

async fn delete<K>(api: &Api<K>, cache: &Cache<K>, key: &Key, uid: Option<&str>) -> Result<(), Trouble>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    match write::delete(api, &key.name, uid).await {
        Written::Done(object) => cache.observe(*object),
        Written::Gone => cache.forget(key, uid),
        answer @ (Written::Conflict | Written::AlreadyExists | Written::Refused(_) | Written::Unclear(_)) => {
            let why = refusal(answer);
            return Err(Trouble::Passing(format!("deleting {}: {why}", key.name)));
        }
    }
    Ok(())
}

/// Why an object was not created. A missing namespace is a refusal in the API server's words; any other 404 of a creation is
/// about the kind.
fn not_created<K>(answer: Written<K>, kind: &str, remedy: &str) -> String {
    match answer {
        Written::Gone => format!("this API server does not serve {kind} (404 at creation): {remedy}"),
        other @ (Written::Done(_)
        | Written::Conflict
        | Written::AlreadyExists
        | Written::Refused(_)
        | Written::Unclear(_)) => refusal(other),
    }
}

/// Why a write failed.
fn refusal<K>(answer: Written<K>) -> String {
    match answer {
        Written::Done(_) | Written::Gone => String::from("it is gone"),
        Written::Conflict => String::from("it was changed meanwhile"),
        Written::AlreadyExists => String::from("it is already there"),
        Written::Refused(why) | Written::Unclear(why) => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_found_at_a_creation_is_named() {
        let said = |answer: Written<()>| not_created(answer, "Things of v1", "install them");
        let kind = said(Written::Gone);
        assert_eq!(
            kind,
            "this API server does not serve Things of v1 (404 at creation): install them"
        );
        let namespace = "namespaces \"team\" not found";
        assert_eq!(said(Written::Refused(namespace.to_owned())), namespace);
    }
}
