//! Brings to a worker what the pods of a job name and the worker lacks: `ConfigMaps`, Secrets and headless Services of the manager.
//!
//! Invariant: nothing is brought without the consent of both namespaces, and an object of another owner is never changed. What is brought
//! is owned by the copy of the Workload, so the worker's garbage collector removes it after the last job that names it. Logs, conditions
//! and errors hold kinds and names, never content.
//!
//! *Source*: `spec/safety.md 5.1`.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::constants::{annotations, labels};
use roadstead_api::kueue::v1beta2::Workload;
use roadstead_jobs::json;
use roadstead_jobs::needs::{NEVER_CARRIED, Need, carried};
use roadstead_kubeio::failure::Failure;
use roadstead_kubeio::write::{self, Written};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Dispatch;
use crate::remote::needs::{ANSWER_MAX, objects};

/// Brings objects into one namespace of a worker. It exists only if that namespace and the one on the manager consent.
pub(super) struct Carrier<'a> {
    d: &'a Dispatch,
    worker: &'a Client,
    namespace: &'a str,
}

/// The content of an object to bring, or why it cannot be brought.
enum Source {
    Content(Value),
    /// Why the object cannot be brought.
    Not(&'static str),
}

impl<'a> Carrier<'a> {
    /// `None` if the namespace on the manager or the one on the worker does not consent.
    ///
    /// *Errors*: it is unknown whether the worker's namespace consents.
    pub(super) async fn with_consent(
        d: &'a Dispatch,
        worker: &'a Client,
        namespace: &'a str,
    ) -> Result<Option<Self>, Failure> {
        let here = d.caches.namespaces.named(namespace);
        if !here.is_some_and(|here| {
            here.annotations()
                .get(annotations::CARRIES_NEEDS)
                .is_some_and(|said| said == "true")
        }) {
            return Ok(None);
        }
        let there = within(
            Api::<Namespace>::all(worker.clone()).get_metadata_opt(namespace),
            ANSWER_MAX,
        )
        .await?;
        let accepts = |there: &kube::core::PartialObjectMeta<Namespace>| {
            let accepted = there.annotations().get(annotations::ACCEPTS_FROM);
            accepted.is_some_and(|origins| origins.split(',').any(|origin| origin.trim() == &*d.origin))
        };
        let consents = there.known().is_some_and(|there| accepts(&there));
        Ok(consents.then_some(Self { d, worker, namespace }))
    }

    /// Those of the needs that cannot be brought, each with the reason.
    ///
    /// *Errors*: it is unknown whether one of them can be brought.
    pub(super) async fn left(&self, needs: Vec<Need>) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for need in needs {
            if let Source::Not(why) = self.source(&need).await? {
                left.push(format!("{need} ({why})"));
            }
        }
        Ok(left)
    }

    /// Brings the `needs` that the worker lacks, and those of the `wants` that can be brought. Returns the needs that the worker
    /// lacks and that cannot be brought, each with the reason.
    ///
    /// *Errors*: an API server did not answer, or the object was changed meanwhile: the same call may succeed later. A lasting
    /// one if the content is no valid object.
    pub(super) async fn bring(
        &self,
        needs: BTreeSet<Need>,
        wants: BTreeSet<Need>,
        copy: &Workload,
    ) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for need in needs.iter().chain(&wants) {
            if let Some(why) = self.bring_one(need, copy).await?
                && needs.contains(need)
            {
                left.push(format!("{need} ({why})"));
            }
        }
        Ok(left)
    }

    /// Brings one object. Returns why it cannot be brought; `None` if it was brought, or if nothing is to be done.
    async fn bring_one(&self, need: &Need, copy: &Workload) -> Result<Option<String>, Failure> {
        if !need.thing.is_carried() {
            return Ok(None);
        }
        let there = objects(self.worker, self.namespace, need.thing);
        let present = match within(there.get_opt(&need.name), ANSWER_MAX).await? {
            Answer::Known(present) => present,
            // Why not an error: an object that the account may not read is assumed to be on the worker.
            Answer::Forbidden => return Ok(None),
        };
        if present.as_ref().is_some_and(|object| !self.is_ours(object)) {
            return Ok(None);
        }
        let content = match self.source(need).await? {
            Source::Content(content) => content,
            Source::Not(_) if present.is_some() => return Ok(None),
            Source::Not(why) => return Ok(Some(why.to_owned())),
        };
        let answer = match present {
            Some(present) if present.metadata.deletion_timestamp.is_some() => {
                return Err(Failure::passing(format!(
                    "an earlier {need} is still being deleted there"
                )));
            }
            Some(present) => match change(need, &present, &content, copy) {
                Some(patch) => write::patch(&there, &need.name, &patch).await,
                None => return Ok(None),
            },
            None => {
                let made = serde_json::from_value(self.made(need, content, copy));
                // Why without the cause: it may quote the content.
                let object: DynamicObject =
                    made.map_err(|_cause| Failure::lasting(format!("{need} is no object of its kind")))?;
                write::create(&there, &object).await
            }
        };
        match answer {
            Written::Done(_) => {
                tracing::info!(workload = %copy.name_any(), namespace = self.namespace, "brought {need} to the worker");
                Ok(None)
            }
            Written::Refused(why) => Ok(Some(format!("refused there: {why}"))),
            Written::Gone | Written::Conflict | Written::AlreadyExists => Err(Failure::passing(format!(
                "{need} was changed there while it was brought"
            ))),
            Written::Unclear(why) => Err(Failure::passing(format!("bringing {need}: {why}"))),
        }
    }

    fn is_ours(&self, object: &DynamicObject) -> bool {
        object.annotations().contains_key(annotations::CARRIED)
            && object
                .labels()
                .get(labels::MULTIKUEUE_ORIGIN)
                .is_some_and(|origin| **origin == *self.d.origin)
    }

    async fn source(&self, need: &Need) -> Result<Source, Failure> {
        let here = objects(&self.d.client, self.namespace, need.thing);
        if !need.thing.is_carried() {
            return Ok(Source::Not(NEVER_CARRIED));
        }
        let object = match within(here.get_opt(&need.name), ANSWER_MAX).await? {
            Answer::Known(Some(object)) => object,
            Answer::Known(None) => return Ok(Source::Not("it is missing on the manager too")),
            Answer::Forbidden => return Ok(Source::Not("the manager may not read its own")),
        };
        Ok(match carried(need.thing, &object.data) {
            Ok(content) => Source::Content(content),
            Err(why) => Source::Not(why),
        })
    }

    fn made(&self, need: &Need, content: Value, copy: &Workload) -> Value {
        let [_core, version, kind, _] = need.thing.api();
        let mut object = content;
        let metadata = json!({
            "name": need.name, "namespace": self.namespace,
            "labels": {labels::MULTIKUEUE_ORIGIN: &*self.d.origin},
            "annotations": {annotations::CARRIED: labels::TRUE},
            "ownerReferences": [owner(copy)],
        });
        for (field, value) in [
            ("apiVersion", json!(version)),
            ("kind", json!(kind)),
            ("metadata", metadata),
        ] {
            json::set(&mut object, &[field], value);
        }
        object
    }
}

/// The owner reference that makes the worker's garbage collector remove an object after the copy of the Workload.
fn owner(copy: &Workload) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": copy.name_any(), "uid": copy.metadata.uid,
    })
}

/// The patch that gives an object, brought earlier for another job or another content, this content and this copy as a further
/// owner. `None` if it has both.
fn change(need: &Need, present: &DynamicObject, content: &Value, copy: &Workload) -> Option<Value> {
    let before = carried(need.thing, &present.data).unwrap_or_else(|_other| json!({}));
    let mut patch = json::difference(&before, content).unwrap_or_else(|| json!({}));
    let owners = present.owner_references();
    let is_owned = owners
        .iter()
        .any(|owner| Some(&owner.uid) == copy.metadata.uid.as_ref());
    if is_owned && patch == json!({}) {
        return None;
    }
    let mut all: Vec<Value> = owners.iter().map(|owner| json!(owner)).collect();
    all.extend((!is_owned).then(|| owner(copy)));
    let metadata = json!({"resourceVersion": present.metadata.resource_version, "ownerReferences": all});
    json::set(&mut patch, &["metadata"], metadata);
    Some(patch)
}

enum Answer<T> {
    Known(Option<T>),
    Forbidden,
}

impl<T> Answer<T> {
    fn known(self) -> Option<T> {
        match self {
            Self::Known(found) => found,
            Self::Forbidden => None,
        }
    }
}

/// Waits for a read, at most `limit`.
///
/// *Errors*: there was no answer in time, or an error other than 403.
async fn within<T>(
    read: impl Future<Output = Result<Option<T>, kube::Error>>,
    limit: Duration,
) -> Result<Answer<T>, Failure> {
    match timeout(limit, read).await {
        Ok(Ok(found)) => Ok(Answer::Known(found)),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Ok(Answer::Forbidden),
        Ok(Err(error)) => Err(Failure::of(&error)),
        Err(_elapsed) => Err(Failure::passing(format!(
            "no answer within {} s",
            limit.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_jobs::needs::Thing;
    use serde_json::from_value;

    use super::*;

    /// Spec: safety 5.1
    #[test]
    fn what_was_brought_gets_each_job_as_owner_and_the_present_content() {
        let need = Need {
            thing: Thing::ConfigMap,
            name: "settings".to_owned(),
        };
        let copy = |uid: &str| -> Workload {
            from_value(
                json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"podSets": []}}),
            )
            .unwrap()
        };
        let present: DynamicObject = from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "resourceVersion": "7", "ownerReferences": [owner(&copy("first"))]},
            "data": {"a": "1", "b": "2"},
        }))
        .unwrap();
        let same = json!({"data": {"a": "1", "b": "2"}});
        assert_eq!(change(&need, &present, &same, &copy("first")), None);
        let joined = change(&need, &present, &same, &copy("second")).unwrap();
        assert_eq!(joined["metadata"]["resourceVersion"], "7");
        let names: Vec<_> = joined["metadata"]["ownerReferences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["uid"].clone())
            .collect();
        assert_eq!(names, ["first", "second"]);
        assert_eq!(joined.get("data"), None);
        let newer = change(&need, &present, &json!({"data": {"a": "3"}}), &copy("first")).unwrap();
        assert_eq!(newer["data"], json!({"a": "3", "b": null}));
    }
}
