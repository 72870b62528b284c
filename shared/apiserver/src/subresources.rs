//! The subresources scale, finalize and binding.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::json;
use crate::kinds::Scale;
use crate::read::key_of;
use crate::request::{Call, Path};
use crate::server::{Answer, Server};
use crate::stored::Stored;

/// `.spec.replicas` as steps.
fn steps(path: &str) -> Vec<&str> {
    path.split('.').filter(|step| !step.is_empty()).collect()
}

fn scale_of(object: &Value, scale: &Scale) -> Value {
    let meta = &object["metadata"];
    let number = |path: &str| {
        json::at(object, &steps(path))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let mut out = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
            "creationTimestamp": meta["creationTimestamp"],
        },
        "spec": {}, "status": {"replicas": number(&scale.status)},
    });
    json::copy(&mut out, object, &["metadata", "namespace"]);
    let wanted = number(&scale.spec);
    if wanted != 0 {
        out["spec"]["replicas"] = wanted.into();
    }
    if let Some(selector) = &scale.selector
        && let Some(text) = json::at(object, &steps(selector)).and_then(Value::as_str)
    {
        out["status"]["selector"] = text.into();
    }
    out
}

impl Server {
    pub(crate) async fn scale(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Answer, Failure> {
        let Some(scale) = call.kind.scale.clone() else {
            return Err(Failure::no_such_resource());
        };
        let mut plain = call.clone();
        plain.path = Path {
            // Why kept: ownership of the field is recorded under the subresource `scale`.
            subresource: "scale".to_owned(),
            ..call.path.clone()
        };
        let current = match self.get_plain(&plain).await? {
            Answer::Json(_, object) => object,
            Answer::Stored(_, object) => Value::clone(&object),
            Answer::List(_)
            | Answer::Typed(..)
            | Answer::Bytes(..)
            | Answer::Text(..)
            | Answer::Stream(_) => Value::Null,
        };
        let before = scale_of(&current, &scale);
        let wanted = match call.method {
            Method::GET => return Ok(Answer::Json(StatusCode::OK, before)),
            Method::PUT => call.parse_body()?,
            Method::PATCH => {
                let body: Value = serde_json::from_slice(&call.body)
                    .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
                match call.content_type() {
                    "application/merge-patch+json" => crate::patch::merge(before, &body),
                    "application/json-patch+json" => crate::patch::json(before, &body)?,
                    _ => return Err(Failure::not_implemented("this kind of patch of a scale")),
                }
            }
            _ => return Err(Failure::method_not_allowed()),
        };
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let says = "should be a non-negative integer";
            let cause = crate::failure::Cause::invalid("spec.replicas", &replicas.into(), says);
            return Err(Failure::invalid(call.about_kind(&call.path.name), &[cause]));
        }
        let mut object = current;
        json::set(&mut object, &steps(&scale.spec), replicas);
        let version = json::text(&wanted, &["metadata", "resourceVersion"]);
        if !version.is_empty() {
            json::set(&mut object, &["metadata", "resourceVersion"], version);
        }
        plain.method = Method::PUT;
        plain.body = object.to_string().into_bytes().into();
        plain
            .headers
            .insert("content-type", http::HeaderValue::from_static("application/json"));
        match self.update(&plain, warnings).await? {
            Answer::Json(code, object) => Ok(Answer::Json(code, scale_of(&object, &scale))),
            Answer::Stored(code, object) => Ok(Answer::Json(code, scale_of(&object, &scale))),
            other @ (Answer::List(_)
            | Answer::Typed(..)
            | Answer::Bytes(..)
            | Answer::Text(..)
            | Answer::Stream(_)) => Ok(other),
        }
    }

    async fn get_plain(&self, call: &Call) -> Result<Answer, Failure> {
        let mut call = call.clone();
        call.headers.remove("accept");
        self.get(&call).await
    }

    /// Sets a namespace's own finalizers; the last one ends it.
    pub(crate) fn finalize(&self, call: &Call) -> Result<Answer, Failure> {
        if call.method != Method::PUT {
            return Err(Failure::method_not_allowed());
        }
        let sent = call.parse_body()?;
        let mut state = self.state();
        let key = key_of(call, &call.path.name);
        let Some(found) = state.store.get(&key).cloned() else {
            return Err(Failure::not_found(call.about(&call.path.name)));
        };
        let version = json::text(&sent, &["metadata", "resourceVersion"]);
        if !version.is_empty() && version != json::text(&found, &["metadata", "resourceVersion"]) {
            return Err(Failure::modified(call.about(&call.path.name)));
        }
        let mut object = Value::clone(&found);
        match json::at(&sent, &["spec", "finalizers"]) {
            Some(finalizers) if !finalizers.as_array().is_none_or(Vec::is_empty) => {
                json::set(&mut object, &["spec", "finalizers"], finalizers.clone());
            }
            _ => drop(json::remove(&mut object, &["spec", "finalizers"])),
        }
        let result = self.put_or_finish(&mut state, key, object, &call.user.name);
        Ok(Answer::Json(StatusCode::OK, Value::clone(&result)))
    }

    /// Puts a pod on a node.
    pub(crate) fn bind(&self, call: &Call) -> Result<Answer, Failure> {
        let sent = call.parse_body()?;
        let node = json::text(&sent, &["target", "name"]).to_owned();
        let mut state = self.state();
        let key = key_of(call, &call.path.name);
        let Some(found) = state.store.get(&key).cloned() else {
            return Err(Failure::not_found(call.about(&call.path.name)));
        };
        let about = crate::failure::About {
            group: "",
            kind: "pods/binding",
            name: &call.path.name,
        };
        if found["metadata"]["deletionTimestamp"].is_string() {
            let why = format!(
                "pod {} is being deleted, cannot be assigned to a host",
                call.path.name
            );
            return Err(Failure::conflict(about, &why));
        }
        if !json::items(&found, &["spec", "schedulingGates"]).is_empty() {
            let why = format!("pod {} has non-empty .spec.schedulingGates", call.path.name);
            return Err(Failure::conflict(about, &why));
        }
        let current = json::text(&found, &["spec", "nodeName"]);
        if !current.is_empty() {
            let why = format!("pod {} is already assigned to node {current:?}", call.path.name);
            return Err(Failure::conflict(about, &why));
        }
        let mut object = Value::clone(&found);
        json::set(&mut object, &["spec", "nodeName"], node);
        let mut conditions = json::items(&object, &["status", "conditions"]).to_vec();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": crate::clock::seconds(self.now()),
        }));
        json::set(&mut object, &["status", "conditions"], conditions);
        let stored: Arc<Stored> = self.commit(&mut state, key, object, &call.user.name);
        drop(stored);
        Ok(Answer::Json(
            StatusCode::CREATED,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            }),
        ))
    }
}
