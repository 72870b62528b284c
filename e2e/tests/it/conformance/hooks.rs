//! Webhooks that both servers call. They write their requests into the objects, so the requests are compared too.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use kube::core::conversion::{ConversionRequest, ConversionResponse};

use roadstead_api::config::{BindAddress, Tls};
use roadstead_serve::listen::Listener;
use roadstead_serve::tls::{CertSlot, Lifetimes, issue, server_config};
use roadstead_serve::webhook::{Webhooks, allowed, conversion_failed, denied, patched};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A webhook server. It ends when it is dropped.
pub(super) struct Hooks {
    base: String,
    authority: String,
    stop: CancellationToken,
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Hooks {
    pub(super) async fn start() -> Self {
        let names = ["127.0.0.1".to_owned()];
        let bundle = issue(jiff::Timestamp::now(), &names, &Lifetimes::default()).unwrap();
        let slot = CertSlot::empty();
        slot.fill(bundle.certified_key().unwrap());
        let tls = server_config(&Tls::default(), slot).unwrap();
        let address = BindAddress::Listen {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let listener = Listener::bind("hooks", &address).await.unwrap().unwrap();
        let base = format!("https://{}", listener.local_addr());
        let mut webhooks = Webhooks::default();
        webhooks
            .admission("/deny", Arc::new(|request| denied(&request, "not today")))
            .unwrap();
        webhooks
            .admission("/warn", Arc::new(|request| warn(&request)))
            .unwrap();
        webhooks
            .admission("/mutate", Arc::new(|request| mutate(&request)))
            .unwrap();
        webhooks.conversion("/convert", Arc::new(convert)).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener.serve(webhooks.router(), Some(tls), stop.clone()));
        Self {
            base,
            authority: STANDARD.encode(bundle.ca_bundle()),
            stop,
        }
    }

    fn client(&self, path: &str) -> Value {
        json!({"url": format!("{}{path}", self.base), "caBundle": self.authority})
    }

    /// Objects to create on both servers, with their paths.
    pub(super) fn objects(&self) -> Vec<(&'static str, Value)> {
        let hook = |word: &str, client: Value, more: Value| {
            let mut hook = json!({
                "name": format!("{word}.conformance.roadstead.dev"), "clientConfig": client, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
                "objectSelector": {"matchLabels": {"hook": word}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]},
                    {"apiGroups": ["conformance.roadstead.dev"], "apiVersions": ["v1"],
                     "resources": ["widgets", "widgets/status"], "operations": ["CREATE", "UPDATE", "DELETE"]},
                    {"apiGroups": ["conformance.roadstead.dev"], "apiVersions": ["v2"], "resources": ["gadgets"],
                     "operations": ["CREATE", "UPDATE"]},
                ],
            });
            for (key, value) in more.as_object().into_iter().flatten() {
                hook[key] = value.clone();
            }
            hook
        };
        // Why port 1: no process listens there.
        let nobody = json!({"url": "https://127.0.0.1:1/", "caBundle": self.authority});
        let condition = json!({"matchConditions": [
            {"name": "asks", "expression": "request.operation == 'DELETE' || (has(object.data) && object.data.ask == 'yes')"},
            {"name": "not-nobody", "expression": "request.userInfo.username != 'nobody'"},
        ]});
        let validating = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "conformance"},
            "webhooks": [
                hook("deny", self.client("/deny"), json!({})),
                hook("warn", self.client("/warn"), json!({})),
                hook("broken", nobody.clone(), json!({})),
                hook("ignored", nobody, json!({"failurePolicy": "Ignore"})),
                hook("conditional", self.client("/deny"), condition),
                hook("exact", self.client("/deny"), json!({"matchPolicy": "Exact"})),
            ],
        });
        let mutating = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "conformance"},
            "webhooks": [hook("mutate", self.client("/mutate"), json!({}))],
        });
        vec![
            (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                self.gadgets(),
            ),
            (
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                validating,
            ),
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                mutating,
            ),
        ]
    }

    /// A kind in two versions that a webhook converts.
    fn gadgets(&self) -> Value {
        let version = |name: &str, field: &str, storage: bool| {
            json!({
                "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": format!(".spec.{field}")}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": [field], "properties": {
                        field: {"type": "integer", "minimum": 0}, "color": {"type": "string", "default": format!("{name}-blue")},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            })
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.conformance.roadstead.dev"},
            "spec": {
                "group": "conformance.roadstead.dev", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
                "versions": [version("v1", "size", false), version("v2", "amount", true)],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": self.client("/convert"), "conversionReviewVersions": ["v1"],
                }},
            },
        })
    }
}

fn warn(request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let mut response = allowed(request);
    response.warnings = Some(vec![format!("{:?} is watched", request.operation)]);
    response
}

/// Writes the request into the object, without the values that differ between servers.
fn mutate(request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let Some(object) = &request.object else {
        return allowed(request);
    };
    let plain = |object: &DynamicObject| {
        let mut plain = serde_json::to_value(object).unwrap_or_default();
        for field in [
            "uid",
            "creationTimestamp",
            "managedFields",
            "resourceVersion",
            "annotations",
        ] {
            if let Some(meta) = plain["metadata"].as_object_mut() {
                meta.remove(field);
            }
        }
        plain
    };
    let asked = json!({
        "object": plain(object), "old": request.old_object.as_ref().map(plain),
        "kind": request.kind, "resource": request.resource, "operation": format!("{:?}", request.operation),
        "requestKind": request.request_kind, "requestResource": request.request_resource,
        "name": request.name, "namespace": request.namespace, "dryRun": request.dry_run,
        "subResource": request.sub_resource,
    });
    patched(request, |object| {
        object["metadata"]["annotations"]["asked"] = asked.to_string().into();
    })
}

/// `size` of v1 is `amount` of v2; an object may ask for a failure.
fn convert(request: ConversionRequest) -> ConversionResponse {
    let to = request.desired_api_version.clone();
    let mut converted = Vec::new();
    for mut object in request.objects.clone() {
        if object["metadata"]["labels"]["convert"] == "fail" {
            return conversion_failed("asked to fail");
        }
        let (from, into) = if to.ends_with("v2") {
            ("size", "amount")
        } else {
            ("amount", "size")
        };
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(from)
        {
            spec.insert(into.to_owned(), value);
        }
        object["apiVersion"] = to.as_str().into();
        converted.push(object);
    }
    ConversionResponse::for_request(request).success(converted)
}
