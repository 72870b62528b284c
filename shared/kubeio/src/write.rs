//! Writes: one request each, with an answer that is a value.
//!
//! Invariant: nothing here retries. The caller decides what happens next, from a fresh look at the state.

use std::fmt::Debug;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{Request, Status};
use kube::{Api, Resource, ResourceExt as _};
use roadstead_core::retry::Verdict;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::{Failure, with_causes};
use crate::raw;

/// What an API server answered to a write.
#[derive(Debug)]
pub enum Written<K> {
    /// Done; this is the object now.
    Done(Box<K>),
    /// Deleted, or already gone.
    Gone,
    /// Another client wrote it since we read it.
    Conflict,
    /// An object of that name is already there (create).
    AlreadyExists,
    /// The API server understood and refused: a webhook, validation, rights, a missing namespace. The same request does not help
    /// until something changes.
    Refused(String),
    /// No answer, or a passing one (408, 429, 5xx, broken connection). The write may or may not have happened.
    Unclear(String),
}

impl<K> Written<K> {
    /// The object as it is now; `None` when it is gone or another client was faster, which the watch shows.
    ///
    /// *Errors*: the API server refused, or gave no clear answer.
    pub fn stored(self) -> Result<Option<Box<K>>, Failure> {
        match self {
            Self::Done(object) => Ok(Some(object)),
            Self::Gone | Self::Conflict | Self::AlreadyExists => Ok(None),
            Self::Refused(why) => Err(Failure::lasting(why)),
            Self::Unclear(why) => Err(Failure::passing(why)),
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
        Err(error) => return Written::Refused(error.to_string()),
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

/// Binds a pod to a node, but only if it still has this `uid`. A pod that is gone, or is on a node already, is left as it is.
///
/// *Errors*: the API server refused, or gave no clear answer.
pub async fn bind<K>(api: &Api<K>, name: &str, uid: &str, node: &str) -> Result<(), Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let params = PostParams::default();
    let bound: Result<Value, kube::Error> = api.create_subresource("binding", name, &params, &binding).await;
    match bound {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && !is_webhook_refusal(&status) => {
            Ok(())
        }
        Err(error) => Err(Failure::of(&error)),
    }
}

/// Deletes an object, but only if it still has this `uid`. What it owns is collected later.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    remove(api, name, uid, (PropagationPolicy::Background, None)).await
}

/// Deletes an object, but only if it still has this `uid`. It stays, marked as being deleted, until its dependents are gone.
pub async fn delete_after_dependents<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    remove(api, name, uid, (PropagationPolicy::Foreground, None)).await
}

/// Deletes an object at once, without its grace period, but only if it still has this `uid`. Its dependents are collected later.
pub async fn delete_at_once<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    remove(api, name, uid, (PropagationPolicy::Background, Some(0))).await
}

async fn remove<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
    (how, grace_secs): (PropagationPolicy, Option<u32>),
) -> Written<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        propagation_policy: Some(how),
        grace_period_seconds: grace_secs,
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
        Err(error) => not_deleted(&error, name),
    }
}

/// Why so strict: the manager forgets a deleted object, and a job that is forgotten while it runs may run twice. A proxy on the
/// way also answers 404, and a webhook may deny with any code.
fn not_deleted<K>(error: &kube::Error, name: &str) -> Written<K> {
    let kube::Error::Api(status) = error else {
        return failed(error);
    };
    let (names_it, denied) = (names(status, name), is_webhook_refusal(status));
    match (status.code, status.reason.as_str()) {
        (404, "NotFound") if names_it && !denied => Written::Gone,
        // Why: our object is gone then, and a successor has its name. Wire: API servers say so in two ways.
        (409, "Conflict") if names_it && !denied && is_of_uid(&status.message) => Written::Gone,
        (404 | 409, _) if denied => Written::Refused(describe(error)),
        (404, _) if is_about_object(status) => Written::Unclear(describe(error)),
        (409, _) => Written::Unclear(describe(error)),
        _ => failed(error),
    }
}

/// Whether an answer is about this object, and not about its namespace or kind, nor from a proxy.
fn names(status: &Status, name: &str) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.name == name && details.kind != "namespaces")
}

/// Whether the answer to a GET certainly says that the object is not stored.
pub fn says_gone(error: &kube::Error, name: &str) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 404 && status.reason == "NotFound" && names(status, name))
}

fn is_of_uid(message: &str) -> bool {
    ["UID in the precondition", "UID in precondition"]
        .iter()
        .any(|words| message.contains(words))
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
        _ => match verdict_of(error) {
            Verdict::Retry => Written::Unclear(describe(error)),
            Verdict::WaitForChange | Verdict::GiveUp => Written::Refused(describe(error)),
        },
    }
}

/// A 404 may also be about the namespace, which is a refusal.
fn is_about_object(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_none_or(|details| details.kind != "namespaces")
}

/// Whether a validating or mutating webhook refused, with any code: Kueue's and ours answer 403 for wrong fields.
pub fn is_webhook_refusal(status: &Status) -> bool {
    status.message.starts_with("admission webhook") && status.message.contains("denied the request")
}

/// Whether a write failed because a webhook could not be called. Nothing is stored then. Whether a retry
/// helps depends on that webhook.
pub fn lacked_webhook(why: &str) -> bool {
    why.contains("failed calling webhook")
}

/// The text without the objects that an API server quotes in `Invalid value: …`: a quoted pod template may hold secrets in its
/// environment (`spec/safety.md S8`). Plain words in quotes stay.
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
        // The reason follows the value; nothing else shows where the value ends.
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
    if let kube::Error::Service(cause) = error {
        return with_causes(cause.as_ref());
    }
    with_causes(error)
}

impl Failure {
    /// The failure of a request, with the API server's words.
    pub fn of(error: &kube::Error) -> Self {
        Self::new(describe(error), verdict_of(error))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::of(&error)
    }
}

/// What must happen before a request that ended like this can succeed.
///
/// Why a webhook's denial lasts, whatever its code: the webhook has read the object and does not accept it.
fn verdict_of(error: &kube::Error) -> Verdict {
    if let kube::Error::Api(status) = error {
        let passes = matches!(status.code, 408 | 409 | 429 | 500..=599);
        return if passes && !is_webhook_refusal(status) {
            Verdict::Retry
        } else {
            Verdict::WaitForChange
        };
    }
    if matches!(error, kube::Error::BuildRequest(_)) {
        Verdict::GiveUp
    } else {
        Verdict::Retry
    }
}

#[cfg(test)]
mod tests {
    use roadstead_core::retry::Verdict;
    use serde_json::{Value, from_value, json};

    use super::{Written, not_deleted, says_gone, verdict_of, without_values};

    fn answer(status: Value) -> &'static str {
        let error = kube::Error::Api(Box::new(from_value(status).unwrap()));
        match not_deleted::<()>(&error, "a") {
            Written::Gone => "gone",
            Written::Refused(_) => "refused",
            Written::Unclear(_) => "unclear",
            Written::Done(_) | Written::Conflict | Written::AlreadyExists => "something else",
        }
    }

    /// Spec: safety I1, F25
    #[test]
    fn only_an_answer_about_the_object_itself_says_that_it_is_gone() {
        let details = json!({"name": "a", "kind": "jobs", "group": "batch"});
        let status = |code: u16, reason: &str, message: &str, details: &Value| {
            answer(json!({"code": code, "reason": reason, "message": message, "details": details}))
        };
        let none = Value::Null;
        assert_eq!(
            status(404, "NotFound", "jobs.batch \"a\" not found", &details),
            "gone"
        );
        for words in [
            "Operation cannot be fulfilled on Job.batch \"a\": the UID in the precondition (1) does not match the UID in record (2).",
            "Operation cannot be fulfilled on jobs.batch \"a\": Precondition failed: UID in precondition: 1, UID in object meta: 2",
        ] {
            assert_eq!(status(409, "Conflict", words, &details), "gone", "{words}");
        }
        let proxy = "<html>404 Not Found</html>";
        assert_eq!(status(404, "Failed to parse error data", proxy, &none), "unclear");
        let unserved = "the server could not find the requested resource";
        assert_eq!(status(404, "NotFound", unserved, &json!({})), "unclear");
        let modified = "Operation cannot be fulfilled on jobs.batch \"a\": the object has been modified";
        assert_eq!(status(409, "Conflict", modified, &details), "unclear");
        let denied = "admission webhook \"x\" denied the request: UID in precondition";
        assert_eq!(status(409, "Conflict", denied, &details), "refused");
        assert_eq!(status(404, "NotFound", denied, &details), "refused");
        let namespace = json!({"name": "a", "kind": "namespaces"});
        assert_eq!(
            status(404, "NotFound", "namespaces \"a\" not found", &namespace),
            "refused"
        );
        assert_eq!(status(403, "Forbidden", "no", &details), "refused");
        assert_eq!(status(503, "ServiceUnavailable", "no", &none), "unclear");
    }

    /// Spec: safety F9
    #[test]
    fn only_a_404_that_names_the_object_says_that_it_is_not_stored() {
        let gone = |status: Value| {
            let error = kube::Error::Api(Box::new(from_value(status).unwrap()));
            says_gone(&error, "a")
        };
        let status = |code: u16, reason: &str, details: Value| json!({"code": code, "reason": reason, "details": details});
        let workload = json!({"name": "a", "group": "kueue.x-k8s.io", "kind": "workloads"});
        assert!(gone(status(404, "NotFound", workload.clone())));
        assert!(!gone(status(403, "Forbidden", workload)));
        assert!(!gone(status(
            404,
            "NotFound",
            json!({"name": "b", "kind": "workloads"})
        )));
        assert!(!gone(status(
            404,
            "NotFound",
            json!({"name": "a", "kind": "namespaces"})
        )));
        assert!(
            !gone(status(404, "NotFound", json!({}))),
            "that kind is not served"
        );
        assert!(
            !gone(status(404, "Failed to parse error data", Value::Null)),
            "a proxy"
        );
    }

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

    #[test]
    fn only_a_passing_answer_is_worth_the_same_request_again() {
        let of = |code: u16, message: &str| {
            let status = json!({"code": code, "reason": "Any", "message": message});
            verdict_of(&kube::Error::Api(Box::new(from_value(status).unwrap())))
        };
        for code in [408, 409, 429, 500, 503, 504] {
            assert_eq!(of(code, "busy"), Verdict::Retry, "{code}");
        }
        for code in [400, 401, 403, 404, 422] {
            assert_eq!(of(code, "no"), Verdict::WaitForChange, "{code}");
        }
        let denied = "admission webhook \"x\" denied the request: no";
        assert_eq!(of(500, denied), Verdict::WaitForChange);
        let silent = kube::Error::Service("connection refused".into());
        assert_eq!(verdict_of(&silent), Verdict::Retry);
    }
}
