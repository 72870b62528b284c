//! Writes: one request each, with an answer that is a value.
//!
//! Invariant: nothing here retries. Who reads the answer decides what happens next, from a fresh look at the state.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{Request, Status};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::raw;

/// What an API server answered to a write.
#[derive(Debug)]
pub enum Written<K> {
    /// Done; this is the object now.
    Done(Box<K>),
    /// Deleted, or already gone.
    Gone,
    /// Someone else wrote it since we read it.
    Conflict,
    /// An object of that name is already there (create).
    AlreadyExists,
    /// The API server understood and said no: a webhook, validation, rights, a missing namespace. Trying the same again
    /// does not help until something changes.
    Refused(String),
    /// No answer, or a passing one (429, 5xx, broken connection). The write may or may not have happened.
    Unclear(String),
}

impl<K> Written<K> {
    /// The same answer with another object.
    pub fn map<T>(self, f: impl FnOnce(Box<K>) -> Box<T>) -> Written<T> {
        match self {
            Self::Done(object) => Written::Done(f(object)),
            Self::Gone => Written::Gone,
            Self::Conflict => Written::Conflict,
            Self::AlreadyExists => Written::AlreadyExists,
            Self::Refused(why) => Written::Refused(why),
            Self::Unclear(why) => Written::Unclear(why),
        }
    }
}

/// Creates an object.
pub async fn create<K>(api: &Api<K>, object: &K) -> Written<K>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    let body = match serde_json::to_vec(object) {
        Ok(body) => body,
        Err(error) => return failed(&kube::Error::SerdeError(error)),
    };
    let request = Request::new(api.resource_url()).create(&PostParams::default(), body);
    send(api, request).await
}

/// Merges `patch` into an object. With `metadata.resourceVersion` in it, a stale view is answered by `Conflict`.
pub async fn patch<K>(api: &Api<K>, name: &str, patch: &Value) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let request = Request::new(api.resource_url());
    let request = request.patch(name, &PatchParams::default(), &Patch::Merge(patch));
    send(api, request).await
}

/// Merges `patch` into the status of an object. With `metadata.resourceVersion` in it, a stale view is answered by
/// `Conflict`.
pub async fn patch_status<K>(api: &Api<K>, name: &str, patch: &Value) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let request = Request::new(api.resource_url());
    let request = request.patch_subresource("status", name, &PatchParams::default(), &Patch::Merge(patch));
    send(api, request).await
}

/// Creates or updates an object by server-side apply, as `manager`, taking over fields of others.
pub async fn apply<K>(api: &Api<K>, object: &K, manager: &str) -> Written<K>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    let params = PatchParams::apply(manager).force();
    let request = Request::new(api.resource_url());
    send(
        api,
        request.patch(&object.name_any(), &params, &Patch::Apply(object)),
    )
    .await
}

/// Deletes an object, but only if it still has this `uid`. What it owns is collected later.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    remove(api, name, uid, PropagationPolicy::Background).await
}

/// Deletes an object, but only if it still has this `uid`. It stays, marked as being deleted, until what it owns is gone.
pub async fn delete_after_dependents<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    remove(api, name, uid, PropagationPolicy::Foreground).await
}

async fn remove<K>(api: &Api<K>, name: &str, uid: Option<&str>, how: PropagationPolicy) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        propagation_policy: Some(how),
        preconditions: uid.map(|uid| Preconditions {
            uid: Some(uid.into()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(answer) => match answer.left() {
            Some(object) if object.meta().deletion_timestamp.is_some() => Written::Done(Box::new(object)),
            Some(_) | None => Written::Gone,
        },
        // Why: a UID precondition that fails means that ours is gone and a successor stands there.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Written::Gone,
        Err(error) => failed(&error),
    }
}

async fn send<K>(
    api: &Api<K>,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned,
{
    match raw::object(&api.clone().into_client(), request).await {
        Ok(object) => Written::Done(Box::new(object)),
        Err(error) => failed(&error),
    }
}

fn failed<K>(error: &kube::Error) -> Written<K> {
    let kube::Error::Api(status) = error else {
        return Written::Unclear(describe(error));
    };
    match status.code {
        404 if is_about_object(status) => Written::Gone,
        409 if status.reason == "AlreadyExists" => Written::AlreadyExists,
        409 => Written::Conflict,
        429 | 500..=599 if !is_webhook_refusal(status) => Written::Unclear(describe(error)),
        _ => Written::Refused(describe(error)),
    }
}

/// A 404 may also speak of the namespace, which is a refusal.
fn is_about_object(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_none_or(|details| details.kind != "namespaces")
}

fn is_webhook_refusal(status: &Status) -> bool {
    status.message.starts_with("admission webhook") && status.message.contains("denied the request")
}

/// Whether a write was left undone because a webhook there could not be asked. Nothing is stored then; whether another attempt
/// fares better is for who answers for the webhook.
pub fn lacked_webhook(why: &str) -> bool {
    why.contains("failed calling webhook")
}

/// The text without the objects that an API server quotes in `Invalid value: …`: a pod template among them may hold
/// secrets in its environment (`spec/safety.md S8`). Plain words in quotes stay.
fn without_values(message: &str) -> String {
    const QUOTED: &str = "Invalid value: ";
    let mut kept = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(QUOTED) {
        let (before, value) = rest.split_at(at + QUOTED.len());
        kept.push_str(before);
        rest = value;
        if value.starts_with('"') {
            continue;
        }
        // The reason follows the value; where the value ends cannot be told otherwise.
        let end = value.rfind("}: ").map(|at| at + 1);
        kept.push('…');
        rest = end.map_or("", |end| &value[end..]);
    }
    kept.push_str(rest);
    kept
}

/// What went wrong, in one line, without secrets: only the API server's own words or the chain of transport errors.
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() {
            format!("HTTP {} {}", status.code, status.reason)
        } else {
            without_values(&status.message)
        };
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_values;

    /// Spec: safety S8.
    #[test]
    fn quoted_objects_are_left_out_and_the_reason_stays() {
        let message = "Job.batch \"x\" is invalid: spec.template: Invalid value: {\"env\":[{\"value\":\"canary\"}]}: field is immutable";
        let text = without_values(message);
        assert!(!text.contains("canary"), "{text}");
        assert!(text.starts_with("Job.batch \"x\" is invalid: spec.template"));
        assert!(text.ends_with(": field is immutable"));
        let go = without_values("a: Invalid value: core.PodTemplateSpec{Env:\"canary\"}: field is immutable");
        assert!(!go.contains("canary") && go.ends_with("field is immutable"));
        assert_eq!(
            without_values("x: Invalid value: \"A\": must be lower case"),
            "x: Invalid value: \"A\": must be lower case"
        );
        assert!(!without_values("x: Invalid value: [canary]").contains("canary"));
    }
}
