//! The visibility API through a real API server: which users may see pending workloads.

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use roadstead_api::install::visibility::manifests;
use roadstead_api::install::{Place, Values};
use roadstead_api::rights::Process;
use roadstead_api::visibility::{GROUP, SERVICE, VERSIONS};
use roadstead_e2e::stage::{SYSTEM_NAMESPACE, Spec, Stage};
use roadstead_e2e::{ControlPlane, Options, Progress};
use serde_json::{Value, from_value, json};

use crate::shared::{chain, client_of, eventually, within};

const PLANE: &str = "seen";
const QUEUE: &str = "/clusterqueues/cq/pendingworkloads";

/// Status and body of a GET; the status of a refusal is in its body.
async fn get(client: &Client, path: &str) -> (u16, Value) {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match client.request::<Value>(request).await {
        Ok(body) => (200, body),
        Err(kube::Error::Api(status)) => (
            status.code,
            json!({ "reason": status.reason, "message": status.message }),
        ),
        Err(error) => panic!("{path}: {}", chain(&error)),
    }
}

async fn apply(client: &Client, object: Value) {
    let object: DynamicObject = from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let kind = GroupVersionKind::try_from(&types).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("test").force();
    if let Err(error) = api
        .patch(&object.name_any(), &params, &Patch::Apply(&object))
        .await
    {
        panic!("{} {}: {}", types.kind, object.name_any(), chain(&error));
    }
}

/// A token of a new service account in `default`.
async fn token(client: &Client, name: &str) -> String {
    let api: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = from_value(json!({ "metadata": { "name": name } })).unwrap();
    api.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest =
        from_value(json!({ "spec": { "audiences": [], "expirationSeconds": 600 } })).unwrap();
    let answer = api
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token.unwrap()
}

/// The port that the process says it listens on.
async fn port(stage: &Stage) -> u16 {
    let log = stage.log(PLANE).unwrap();
    eventually(|| async {
        let text = std::fs::read_to_string(&log).ok()?;
        let line = text
            .lines()
            .find(|line| line.contains("listening") && line.contains("visibility"))?;
        let (_, port) = line.rsplit_once("127.0.0.1:")?;
        port.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok()
    })
    .await
}

/// Registers the process with its cluster as an installation does; only the way there is another one.
async fn register(client: &Client, port: u16) {
    let place = Place::of(Process::Manager, SYSTEM_NAMESPACE, &Values::default()).unwrap();
    for mut object in manifests(&place) {
        match object["kind"].as_str().unwrap() {
            "Service" => object["spec"] = json!({ "type": "ExternalName", "externalName": "localhost" }),
            "APIService" => object["spec"]["service"]["port"] = port.into(),
            _ => {}
        }
        apply(client, object).await;
    }
}

async fn fill_queue(client: &Client) {
    let queue = "kueue.x-k8s.io/v1beta2";
    apply(
        client,
        json!({ "apiVersion": queue, "kind": "ResourceFlavor", "metadata": { "name": "f" } }),
    )
    .await;
    let quota = json!([{ "name": "cpu", "nominalQuota": "0" }]);
    apply(
        client,
        json!({
            "apiVersion": queue, "kind": "ClusterQueue", "metadata": { "name": "cq" },
            "spec": { "namespaceSelector": {}, "resourceGroups": [
                { "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": quota }] }] },
        }),
    )
    .await;
    for name in ["lq-a", "lq-b"] {
        apply(
            client,
            json!({
                "apiVersion": queue, "kind": "LocalQueue", "metadata": { "name": name, "namespace": "default" },
                "spec": { "clusterQueue": "cq" },
            }),
        )
        .await;
    }
    for (name, local, priority) in [("low", "lq-a", 1), ("high", "lq-a", 9), ("middle", "lq-b", 5)] {
        let pod = json!({ "restartPolicy": "Never", "containers": [
            { "name": "c", "image": "none", "resources": { "requests": { "cpu": "1" } } }] });
        apply(
            client,
            json!({
                "apiVersion": queue, "kind": "Workload", "metadata": { "name": name, "namespace": "default" },
                "spec": { "queueName": local, "priority": priority,
                    "podSets": [{ "name": "main", "count": 1, "template": { "spec": pod } }] },
            }),
        )
        .await;
    }
}

/// A client of the process itself, past the API server.
async fn direct(plane: &ControlPlane, admin: &Client, port: u16, token: Option<&str>) -> Client {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), SYSTEM_NAMESPACE);
    let secret = secrets.get("kueue-webhook-server-cert").await.unwrap();
    let ByteString(authority) = secret.data.unwrap().remove("ca.crt").unwrap();
    let url = format!("https://127.0.0.1:{port}");
    let text = plane.kubeconfig_for_token_via(&url, token.unwrap_or_default());
    let mut kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    cluster.certificate_authority_data = Some(base64(&authority));
    if token.is_none() {
        kubeconfig.auth_infos[0].auth_info = Some(AuthInfo::default());
    }
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(ByteString(bytes.to_vec()))
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

fn names(body: &Value) -> Vec<(String, u64, u64)> {
    let items = body["items"].as_array().unwrap().iter();
    let place = |item: &Value, key: &str| item[key].as_u64().unwrap();
    items
        .map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap().to_owned();
            (
                name,
                place(item, "positionInClusterQueue"),
                place(item, "positionInLocalQueue"),
            )
        })
        .collect()
}

/// Spec: admission-engine B228, api API-15.
#[tokio::test]
async fn what_waits_is_shown_through_the_api_server_to_those_who_may_see_it() {
    let spec = Spec::new(Options::bare(PLANE).with_audit(), Vec::new());
    let stage = Stage::start(spec, Progress::stderr())
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let plane = &stage.planes().manager;
    within(async {
        let admin = plane.client().unwrap();
        let port = port(&stage).await;
        fill_queue(&admin).await;
        register(&admin, port).await;
        let base = |version: &str| format!("/apis/{GROUP}/{version}");

        // As administrator, in order, in both versions.
        let item = |name: &str, all: u64, own: u64| (name.to_owned(), all, own);
        let all = [item("high", 0, 0), item("middle", 1, 0), item("low", 2, 1)];
        for version in VERSIONS {
            let path = format!("{}{QUEUE}", base(version));
            eventually(|| async {
                let (code, body) = get(&admin, &path).await;
                (code == 200 && names(&body) == all).then_some(())
            })
            .await;
            let (_, body) = get(&admin, &format!("{path}?limit=1&offset=1")).await;
            assert_eq!(names(&body), all[1..2]);
            let path = format!("{}/namespaces/default/localqueues/lq-a/pendingworkloads", base(version));
            let (code, body) = get(&admin, &path).await;
            assert_eq!((code, names(&body)), (200, vec![all[0].clone(), all[2].clone()]));
        }
        let v2 = base("v1beta2");
        let (code, body) = get(&admin, &format!("{v2}/clusterqueues/other/pendingworkloads")).await;
        assert_eq!((code, &body["reason"]), (404, &json!("NotFound")), "{body}");

        // A user without rights, then with them.
        let secret = token(&admin, "viewer").await;
        let viewer = client_of(&plane.kubeconfig_for_token(&secret)).await;
        let path = format!("{v2}{QUEUE}");
        let (code, body) = get(&viewer, &path).await;
        assert_eq!((code, &body["reason"]), (403, &json!("Forbidden")), "{body}");
        apply(
            &admin,
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "viewer" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "kueue-pending-workloads-cq-viewer-role" },
                "subjects": [{ "kind": "ServiceAccount", "name": "viewer", "namespace": "default" }],
            }),
        )
        .await;
        eventually(|| async { (get(&viewer, &path).await.0 == 200).then_some(()) }).await;
        let local = format!("{v2}/namespaces/default/localqueues/lq-a/pendingworkloads");
        assert_eq!(get(&viewer, &local).await.0, 403);

        // Directly to the process: anonymous requests are refused, tokens count, health is open.
        let nobody = direct(plane, &admin, port, None).await;
        assert_eq!(get(&nobody, &path).await.0, 401);
        assert_eq!(get(&nobody, "/apis").await.0, 401);
        let health = http::Request::get("/healthz").body(Vec::new()).unwrap();
        assert_eq!(nobody.request_text(health).await.unwrap(), "ok\n");
        let stranger = direct(plane, &admin, port, Some("no-such-token")).await;
        assert_eq!(get(&stranger, &path).await.0, 401);
        let known = direct(plane, &admin, port, Some(&secret)).await;
        let (code, body) = get(&known, &path).await;
        assert_eq!((code, names(&body)), (200, all.to_vec()));
        assert_eq!(get(&known, &local).await.0, 403);

        // What the process registered, and what the API server took over from it.
        let (_, service) = get(&admin, &format!("/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.{GROUP}")).await;
        assert!(service["spec"]["caBundle"].is_string(), "{service}");
        assert_eq!(service["spec"]["service"]["name"], SERVICE);
        let (_, list) = get(&admin, &v2).await;
        assert_eq!(list["resources"].as_array().unwrap().len(), 4);
        eventually(|| async {
            let (_, paths) = get(&admin, "/openapi/v3").await;
            paths["paths"].get(format!("apis/{GROUP}/v1beta2")).map(drop)
        })
        .await;
        let (_, shapes) = get(&admin, &format!("/openapi/v3/apis/{GROUP}/v1beta2")).await;
        assert!(shapes["paths"].get(format!("{v2}/clusterqueues/{{name}}/pendingworkloads")).is_some());
        eventually(|| async {
            let (_, shapes) = get(&admin, "/openapi/v2").await;
            shapes["paths"]
                .get(format!("{v2}/clusterqueues/{{name}}/pendingworkloads"))
                .map(drop)
        })
        .await;
        let log = plane.audit_log().unwrap().with_file_name("kube-apiserver.log");
        let log = std::fs::read_to_string(log).unwrap();
        let complaints: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(GROUP) && line.to_lowercase().contains("openapi") && line.starts_with('E'))
            .collect();
        // Before the process registers its authority the server cannot reach it, and says so, once per version and try.
        assert!(complaints.len() <= 4, "{complaints:#?}");
    })
    .await;
}
