//! Admission and conversion webhooks, called through a [`Caller`](crate::Caller).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::{AdmissionRequest, GroupVersionKind, GroupVersionResource, VapEvaluator, VapExpression};
use serde_json::{Value, json};

use crate::caller::WebhookCall;
use crate::failure::Failure;
use crate::json;
use crate::kinds::{Conversion, Kind};
use crate::request::Call;
use crate::selector::Labels;
use crate::server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// How long a conversion may take.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// The object of a review, and its stored state.
#[derive(Clone, Copy)]
struct Subject<'a> {
    operation: Operation,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
}

/// A webhook whose rules match the request.
struct Asked {
    name: String,
    webhook: Value,
    /// The version in which it wants to see the object.
    kind: Arc<Kind>,
}

impl Server {
    /// Asks the mutating webhooks, in the order of their names.
    pub(crate) async fn admit_mutating(
        &self,
        call: &Call,
        operation: Operation,
        mut object: Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Failure> {
        for asked in self.webhooks(call, MUTATING, operation) {
            let subject = Subject {
                operation,
                object: Some(&object),
                old,
            };
            let Some((response, shown)) = self.ask(call, &asked, subject, warnings).await? else {
                continue;
            };
            let Some(patch) = response["patch"].as_str() else {
                continue;
            };
            let name = &asked.name;
            let broken = |why: String| Failure::internal(format!("failed calling webhook {name:?}: {why}"));
            let bytes = STANDARD
                .decode(patch)
                .map_err(|error| broken(error.to_string()))?;
            let patch: Value = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
            let patched =
                crate::patch::json(shown, &patch).map_err(|failure| broken(failure.message().to_owned()))?;
            let patched = self.in_version(patched, &asked.kind, &call.kind).await?;
            object = Self::decode(call, patched, &mut Vec::new())?;
        }
        Ok(object)
    }

    /// Asks the validating webhooks. For a deletion it also asks the mutating ones and ignores their patches.
    pub(crate) async fn admit_validating(
        &self,
        call: &Call,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let subject = Subject {
            operation,
            object,
            old,
        };
        let mut hooks = Vec::new();
        if operation == Operation::Delete {
            hooks.extend(self.webhooks(call, MUTATING, operation));
        }
        hooks.extend(self.webhooks(call, VALIDATING, operation));
        for asked in hooks {
            self.ask(call, &asked, subject, warnings).await?;
        }
        Ok(())
    }

    /// The webhooks of one sort whose rules match this request, or under `matchPolicy: Equivalent` another version of its kind.
    fn webhooks(&self, call: &Call, resource: &str, operation: Operation) -> Vec<Asked> {
        // Why: otherwise a broken webhook could keep the administrator from deleting its configuration.
        if call.kind.group == "admissionregistration.k8s.io" {
            return Vec::new();
        }
        let resource = resource.into();
        let state = self.state();
        let version_for = |webhook: &Value| {
            let rules = json::items(webhook, &["rules"]);
            let ruled = |kind: &Arc<Kind>| rules.iter().any(|rule| rule_matches(rule, call, kind, operation));
            if ruled(&call.kind) {
                return Some(Arc::clone(&call.kind));
            }
            if webhook["matchPolicy"] == "Exact" {
                return None;
            }
            let mut versions = state.registry.all();
            versions
                .find(|kind| kind.is(&call.kind.group, &call.kind.plural) && ruled(kind))
                .cloned()
        };
        let configurations = state.store.list(&resource, "");
        configurations
            .flat_map(|(_, configuration)| json::items(configuration, &["webhooks"]))
            .filter_map(|webhook| {
                Some(Asked {
                    kind: version_for(webhook)?,
                    name: json::text(webhook, &["name"]).to_owned(),
                    webhook: webhook.clone(),
                })
            })
            .collect()
    }

    async fn in_version(&self, mut object: Value, from: &Kind, to: &Kind) -> Result<Value, Failure> {
        if from.version == to.version {
            return Ok(object);
        }
        if let Conversion::Webhook(webhook) = &to.conversion {
            let converted = self.convert(webhook, vec![object], &to.api_version()).await?;
            return Ok(converted.into_iter().next().unwrap_or_default());
        }
        json::set(&mut object, &["apiVersion"], to.api_version());
        Ok(object)
    }

    /// Asks one webhook if its selectors and conditions match. Returns its response if it allowed the request, and the object sent.
    async fn ask(
        &self,
        call: &Call,
        asked: &Asked,
        subject: Subject<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<(Value, Value)>, Failure> {
        let Asked { name, webhook, kind } = asked;
        if !self.selects(call, webhook, subject) {
            return Ok(None);
        }
        let mut shown = Vec::new();
        for value in [subject.object, subject.old] {
            shown.push(match value {
                Some(value) => self.in_version(value.clone(), &call.kind, kind).await?,
                None => Value::Null,
            });
        }
        let old = shown.pop().unwrap_or_default();
        let object = shown.pop().unwrap_or_default();
        let uid = self.state().uid();
        let request = review_request(call, kind, subject.operation, &uid, (&object, &old));
        match wants(webhook, &request) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(_) if webhook["failurePolicy"] == "Ignore" => return Ok(None),
            Err(why) => {
                let name = json::text(&request, &["name"]);
                return Err(Failure::forbidden(call.about(name), &why));
            }
        }
        let seconds = webhook["timeoutSeconds"]
            .as_u64()
            .unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        let question = WebhookCall {
            url: url_of(&webhook["clientConfig"]),
            ca_bundle: ca_of(&webhook["clientConfig"]),
            review: json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}),
            timeout: Duration::from_secs(seconds),
        };
        let answer = self.call_webhook(question).await.and_then(|review| {
            let response = review["response"].clone();
            if response["uid"] == uid.as_str() && review["kind"] == "AdmissionReview" {
                Ok(response)
            } else {
                Err("expected response.uid to be that of the request".to_owned())
            }
        });
        match answer {
            Ok(response) => {
                warnings.extend(
                    json::texts(&response, &["warnings"])
                        .into_iter()
                        .map(str::to_owned),
                );
                if response["allowed"] == true {
                    Ok(Some((response, object)))
                } else {
                    Err(Failure::denied(name, json::at(&response, &["status"])))
                }
            }
            Err(_) if webhook["failurePolicy"] == "Ignore" => Ok(None),
            Err(why) => Err(Failure::internal(format!(
                "failed calling webhook {name:?}: {why}"
            ))),
        }
    }

    async fn call_webhook(&self, asked: WebhookCall) -> Result<Value, String> {
        let url = asked.url.clone();
        let limit = asked.timeout;
        tokio::time::timeout(limit, self.options().caller.call(asked))
            .await
            .map_err(|_elapsed| format!("failed to call webhook: Post {url:?}: context deadline exceeded"))?
    }

    /// Whether a webhook's selectors match the namespace and the object of the request.
    fn selects(&self, call: &Call, webhook: &Value, subject: Subject<'_>) -> bool {
        let labels = Labels::of_object(&webhook["objectSelector"]);
        let chosen = [subject.object, subject.old]
            .into_iter()
            .flatten()
            .any(|object| labels.matches(object));
        if !chosen {
            return false;
        }
        let selector = Labels::of_object(&webhook["namespaceSelector"]);
        if selector.is_empty() {
            return true;
        }
        if call.kind.plural == "namespaces" && call.kind.group.is_empty() {
            let shown = subject.object.or(subject.old).unwrap_or(&Value::Null);
            return selector.matches(shown);
        }
        if !call.kind.is_namespaced() {
            return true;
        }
        let state = self.state();
        let namespace = state.find("namespaces", "", &call.path.namespace);
        namespace.is_some_and(|namespace| selector.matches(namespace))
    }

    /// Has a conversion webhook convert objects to a version.
    pub(crate) async fn convert(
        &self,
        webhook: &Value,
        objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>, Failure> {
        let foreign: Vec<&Value> = objects
            .iter()
            .filter(|object| object["apiVersion"] != to)
            .collect();
        if foreign.is_empty() {
            return Ok(objects);
        }
        let uid = self.state().uid();
        let review = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": foreign},
        });
        let about = foreign
            .first()
            .map(|object| {
                let text = |field| json::text(object, &[field]);
                format!("{}, Kind={}", text("apiVersion"), text("kind"))
            })
            .unwrap_or_default();
        let asked = WebhookCall {
            url: url_of(&webhook["clientConfig"]),
            ca_bundle: ca_of(&webhook["clientConfig"]),
            review,
            timeout: CONVERSION_TIMEOUT,
        };
        let failed =
            |why: String| Failure::internal_plain(&format!("conversion webhook for {about} failed: {why}"));
        let answer = self.call_webhook(asked).await.map_err(failed)?;
        let response = &answer["response"];
        if response["result"]["status"] != "Success" {
            return Err(failed(json::text(response, &["result", "message"]).to_owned()));
        }
        let mut converted = json::items(response, &["convertedObjects"]).to_vec().into_iter();
        let mut out = Vec::new();
        for object in objects {
            if object["apiVersion"] == to {
                out.push(object);
                continue;
            }
            let mut next = converted
                .next()
                .ok_or_else(|| failed("it returned fewer objects than it was given".to_owned()))?;
            if next["apiVersion"] != to {
                return Err(failed(format!("it returned an object that is not of {to}")));
            }
            // Why: a conversion may change labels and annotations of the metadata and nothing else.
            let meta = next["metadata"].clone();
            json::set(&mut next, &["metadata"], object["metadata"].clone());
            for field in ["labels", "annotations"] {
                match json::at(&meta, &[field]) {
                    Some(value) => json::set(&mut next, &["metadata", field], value.clone()),
                    None => drop(json::remove(&mut next, &["metadata", field])),
                }
            }
            out.push(next);
        }
        Ok(out)
    }
}

fn review_request(
    call: &Call,
    kind: &Kind,
    operation: Operation,
    uid: &str,
    (object, old): (&Value, &Value),
) -> Value {
    let names = |kind: &Kind| {
        (
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
            json!({"group": kind.group, "version": kind.version, "resource": kind.plural}),
        )
    };
    let ((kind, resource), (request_kind, request_resource)) = (names(kind), names(&call.kind));
    let shown = if object.is_null() { old } else { object };
    let mut request = json!({
        "uid": uid, "kind": kind, "resource": resource,
        "requestKind": request_kind, "requestResource": request_resource,
        "name": shown["metadata"]["name"], "operation": operation.name(),
        "userInfo": {"username": call.user.name, "groups": call.user.groups},
        "object": object, "oldObject": old, "dryRun": call.query.is_dry_run(),
        "options": {"kind": match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        }, "apiVersion": "meta.k8s.io/v1"},
    });
    if !call.user.uid.is_empty() {
        request["userInfo"]["uid"] = call.user.uid.as_str().into();
    }
    if call.kind.is_namespaced() {
        request["namespace"] = call.path.namespace.as_str().into();
    } else if call.kind.plural == "namespaces" {
        request["namespace"] = shown["metadata"]["name"].clone();
    }
    if !call.path.subresource.is_empty() {
        request["subResource"] = call.path.subresource.as_str().into();
        request["requestSubResource"] = call.path.subresource.as_str().into();
    }
    request
}

/// Whether a webhook's match conditions all hold; an error if one of them cannot be judged.
fn wants(webhook: &Value, request: &Value) -> Result<bool, String> {
    let conditions = json::items(webhook, &["matchConditions"]);
    if conditions.is_empty() {
        return Ok(true);
    }
    let text = |path: &[&str]| json::text(request, path).to_owned();
    let mut evaluator = VapEvaluator::builder()
        .object(request["object"].clone())
        .request(AdmissionRequest {
            operation: text(&["operation"]),
            username: text(&["userInfo", "username"]),
            uid: text(&["userInfo", "uid"]),
            groups: json::texts(request, &["userInfo", "groups"])
                .into_iter()
                .map(str::to_owned)
                .collect(),
            name: text(&["name"]),
            namespace: text(&["namespace"]),
            dry_run: request["dryRun"] == true,
            kind: GroupVersionKind {
                group: text(&["kind", "group"]),
                version: text(&["kind", "version"]),
                kind: text(&["kind", "kind"]),
            },
            resource: GroupVersionResource {
                group: text(&["resource", "group"]),
                version: text(&["resource", "version"]),
                resource: text(&["resource", "resource"]),
            },
        });
    if !request["oldObject"].is_null() {
        evaluator = evaluator.old_object(request["oldObject"].clone());
    }
    let expressions: Vec<VapExpression> = conditions
        .iter()
        .map(|condition| VapExpression {
            expression: json::text(condition, &["expression"]).to_owned(),
            // Why empty: an empty message marks a condition that is false; an expression that failed brings its own message.
            message: Some(String::new()),
            message_expression: None,
        })
        .collect();
    let mut broken = None;
    for (result, condition) in evaluator.build().evaluate(&expressions).iter().zip(conditions) {
        match result.message.as_deref() {
            _ if result.passed => {}
            // Why at once: one false condition skips the webhook even if another one failed.
            Some("") => return Ok(false),
            why => {
                let expression = json::text(condition, &["expression"]);
                broken = Some(format!(
                    "expression '{expression}' resulted in error: {}",
                    why.unwrap_or_default()
                ));
            }
        }
    }
    broken.map_or(Ok(true), Err)
}

fn rule_matches(rule: &Value, call: &Call, kind: &Kind, operation: Operation) -> bool {
    let has = |field: &str, wanted: &str| {
        json::texts(rule, &[field])
            .into_iter()
            .any(|word| word == "*" || word == wanted)
    };
    let resource = json::texts(rule, &["resources"]).into_iter().any(|word| {
        let (plural, below) = word.split_once('/').unwrap_or((word, ""));
        let all = word == "*/*";
        all || ((plural == "*" || plural == kind.plural) && (below == "*" || below == call.path.subresource))
    });
    let scope = match json::text(rule, &["scope"]) {
        "Namespaced" => kind.is_namespaced(),
        "Cluster" => !kind.is_namespaced(),
        _ => true,
    };
    has("operations", operation.name())
        && has("apiGroups", &kind.group)
        && has("apiVersions", &kind.version)
        && resource
        && scope
}

fn url_of(config: &Value) -> String {
    if let Some(url) = config["url"].as_str() {
        return url.to_owned();
    }
    let service = &config["service"];
    let path = json::text(service, &["path"]);
    format!(
        "https://{}.{}.svc:{}/{}",
        json::text(service, &["name"]),
        json::text(service, &["namespace"]),
        service["port"].as_u64().unwrap_or(443),
        path.trim_start_matches('/'),
    )
}

fn ca_of(config: &Value) -> Vec<u8> {
    STANDARD
        .decode(json::text(config, &["caBundle"]))
        .unwrap_or_default()
}
