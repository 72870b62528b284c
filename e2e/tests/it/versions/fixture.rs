//! One plane with all definitions, and our conversion behind a webhook as the product serves it.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use kube::core::response::StatusSummary;
use kube::{Api, Client, ResourceExt};
use roadstead_api::config::{BindAddress, Tls};
use roadstead_convert::versions;
use roadstead_e2e::{ControlPlane, Options};
use roadstead_serve::listen::Listener;
use roadstead_serve::tls::{CertSlot, Lifetimes, issue, server_config};
use roadstead_serve::webhook::{CONVERT_PATH, Webhooks};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::commons::Common;
use crate::shared::{eventually, start, within};

pub(super) const ALPHA: &str = "v1alpha1";
pub(super) const OLD: &str = "v1beta1";
pub(super) const HUB: &str = "v1beta2";
pub(super) const GROUP: &str = "kueue.x-k8s.io";
/// Namespace of what has one.
pub(super) const NAMESPACE: &str = "default";

/// The name in the server's certificate.
const HOST: &str = "localhost";

// Why one for all: the webhook must outlive the test that started it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static SHARED: Common<Shared> = Common::new(|shared| shared.plane.end());

/// The state that the tests share.
pub(super) struct Shared {
    plane: ControlPlane,
    pub(super) client: Client,
    pub(super) definitions: Vec<CustomResourceDefinition>,
}

/// Runs a test beside others on the shared plane.
pub(super) fn on_plane<F: Future<Output = ()>>(body: impl FnOnce(&'static Shared) -> F) {
    RUNTIME.block_on(async {
        let (shared, _peace) = SHARED.take(Shared::start).await;
        within(body(shared)).await;
    });
}

impl Shared {
    async fn start() -> Self {
        let plane = start(Options::bare("versions")).await;
        let client = plane.client().unwrap();
        let (address, authority) = serve_conversion().await;
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        let params = PatchParams::apply("versions").force();
        let definitions = roadstead_api::crd::all();
        for definition in &definitions {
            let mut definition = definition.clone();
            // As the running process does it: the address it has, and the authority of its certificate.
            if let Some(conversion) = &mut definition.spec.conversion {
                let config = conversion
                    .webhook
                    .as_mut()
                    .unwrap()
                    .client_config
                    .as_mut()
                    .unwrap();
                config.service = None;
                config.url = Some(format!("https://{HOST}:{}{CONVERT_PATH}", address.port()));
                config.ca_bundle = Some(k8s_openapi::ByteString(authority.clone().into_bytes()));
            }
            let name = definition.name_any();
            api.patch(&name, &params, &Patch::Apply(&definition))
                .await
                .unwrap();
        }
        let shared = Self {
            plane,
            client,
            definitions,
        };
        within(shared.is_served()).await;
        shared
    }

    /// Waits until every version of every kind can be listed.
    async fn is_served(&self) {
        for definition in &self.definitions {
            for version in &definition.spec.versions {
                let path = self.path(&definition.spec.names.kind, &version.name);
                eventually(|| async {
                    self.client
                        .request::<Value>(Request::get(&path).body(Vec::new()).unwrap())
                        .await
                        .ok()
                })
                .await;
            }
        }
    }

    /// The definition of a kind.
    pub(super) fn definition(&self, kind: &str) -> &CustomResourceDefinition {
        let mut all = self.definitions.iter();
        all.find(|definition| definition.spec.names.kind == kind)
            .unwrap_or_else(|| panic!("no kind {kind}"))
    }

    /// Path of all objects of a kind in a version.
    pub(super) fn path(&self, kind: &str, version: &str) -> String {
        let spec = &self.definition(kind).spec;
        let namespace = if spec.scope == "Namespaced" {
            format!("namespaces/{NAMESPACE}/")
        } else {
            String::new()
        };
        format!("/apis/{}/{version}/{namespace}{}", spec.group, spec.names.plural)
    }

    /// An object of a kind in a version, with these fields besides its name.
    pub(super) fn object(&self, kind: &str, version: &str, name: &str, fields: &Value) -> Value {
        let group = &self.definition(kind).spec.group;
        let mut object = json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name},
        });
        for (key, value) in fields.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    }

    /// What the server answers: the object, or why not.
    pub(super) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", "application/json")
            .body(body.into_bytes())
            .unwrap();
        self.client.request(request).await.map_err(|error| {
            if let kube::Error::Api(status) = error {
                status.message
            } else {
                panic!("{method} {path}: {error}")
            }
        })
    }

    /// Creates an object.
    pub(super) async fn create(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        fields: &Value,
    ) -> Result<Value, String> {
        let path = format!("{}?fieldValidation=Strict", self.path(kind, version));
        let object = self.object(kind, version, name, fields);
        self.ask("POST", &path, Some(&object)).await
    }

    /// Reads an object.
    pub(super) async fn read(&self, version: &str, kind: &str, name: &str) -> Value {
        let path = format!("{}/{name}", self.path(kind, version));
        self.ask("GET", &path, None).await.unwrap()
    }

    /// Replaces the status of an object as it was read.
    pub(super) async fn replace_status(&self, object: &Value) -> Result<Value, String> {
        self.ask(
            "PUT",
            &format!("{}/status?fieldValidation=Strict", self.path_of(object)),
            Some(object),
        )
        .await
    }

    /// Replaces an object as it was read.
    pub(super) async fn replace(&self, object: &Value) -> Result<Value, String> {
        self.ask(
            "PUT",
            &format!("{}?fieldValidation=Strict", self.path_of(object)),
            Some(object),
        )
        .await
    }

    fn path_of(&self, object: &Value) -> String {
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        let (_, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        format!(
            "{}/{}",
            self.path(&text(&object["kind"]), version),
            text(&object["metadata"]["name"])
        )
    }

    /// Asks with a header of one's own and gives the whole answer.
    pub(super) async fn send(&self, path: &str, accept: &str) -> Response<Body> {
        let request = Request::get(path)
            .header("Accept", accept)
            .body(Body::empty())
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response
    }

    /// The JSON that the server sends for this media type.
    pub(super) async fn json(&self, path: &str, accept: &str) -> Value {
        let body = self
            .send(path, accept)
            .await
            .into_body()
            .collect_bytes()
            .await
            .unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Applies an object, whatever its kind, as `kubectl apply --server-side` does.
    pub(super) async fn apply(&self, object: Value) -> Result<Value, String> {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let gvk = kube::core::GroupVersionKind::try_from(&types).unwrap();
        let resource = match self
            .definitions
            .iter()
            .find(|each| each.spec.names.kind == gvk.kind)
        {
            Some(definition) => {
                kube::api::ApiResource::from_gvk_with_plural(&gvk, &definition.spec.names.plural)
            }
            None => kube::api::ApiResource::from_gvk(&gvk),
        };
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let params = PatchParams::apply("manifests").force().validation_strict();
        let applied = api
            .patch(&object.name_any(), &params, &Patch::Apply(&object))
            .await;
        applied
            .map(|applied| serde_json::to_value(applied).unwrap())
            .map_err(|error| error.to_string())
    }
}

/// Serves the conversion over HTTPS. Returns the address and the authority of the certificate, PEM.
async fn serve_conversion() -> (SocketAddr, String) {
    let bundle = issue(Timestamp::now(), &[HOST.to_owned()], &Lifetimes::default()).unwrap();
    let slot = CertSlot::empty();
    slot.fill(bundle.certified_key().unwrap());
    let tls = server_config(&Tls::default(), slot).unwrap();
    let mut webhooks = Webhooks::default();
    webhooks.conversion(CONVERT_PATH, Arc::new(convert)).unwrap();
    let anywhere = BindAddress::Listen {
        host: HOST.to_owned(),
        port: 0,
    };
    let listener = Listener::bind("conversion", &anywhere).await.unwrap().unwrap();
    let address = listener.local_addr();
    RUNTIME.spawn(listener.serve(webhooks.router(), Some(tls), CancellationToken::new()));
    (address, bundle.ca_bundle())
}

fn convert(mut request: ConversionRequest) -> ConversionResponse {
    let objects = std::mem::take(&mut request.objects);
    let version = request.desired_api_version.clone();
    let converted: Result<Vec<Value>, _> = objects
        .into_iter()
        .map(|object| versions::convert(object, &version))
        .collect();
    let response = ConversionResponse::for_request(request);
    match converted {
        Ok(objects) => response.success(objects),
        Err(error) => {
            let mut status = Status::failure(&error.to_string(), "Invalid");
            status.status = Some(StatusSummary::Failure);
            response.failure(status)
        }
    }
}
