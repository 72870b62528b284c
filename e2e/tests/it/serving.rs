//! What a plane serves.

use std::process::Command;
use std::time::Instant;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use roadstead_e2e::binaries::{KUBERNETES_VERSION, Origin, Program};
use roadstead_e2e::{audit, plane};
use serde_json::{from_value, json};

use crate::shared::{client_of, eventually, plane as shared_plane, within};

fn status(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

async fn service_account_token(client: &Client, name: &str) -> String {
    let api: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = from_value(json!({"metadata": {"name": name}})).unwrap();
    api.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest =
        from_value(json!({"spec": {"audiences": [], "expirationSeconds": 600}})).unwrap();
    let answer = api
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token.unwrap()
}

#[tokio::test]
async fn the_plane_reports_the_version_of_its_program() {
    let plane = shared_plane().await;
    within(async {
        let version = plane.client().unwrap().apiserver_version().await.unwrap();
        let program = plane.binaries().unwrap().path(Program::KubeApiserver).unwrap();
        let said = Command::new(program).arg("--version").output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&said.stdout).trim(),
            format!("Kubernetes {}", version.git_version)
        );
        if plane.binaries().unwrap().origin(Program::KubeApiserver) == Some(Origin::Built) {
            assert_eq!(version.git_version, KUBERNETES_VERSION);
            assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
        }
    })
    .await;
}

#[tokio::test]
async fn an_unknown_token_is_refused() {
    let plane = shared_plane().await;
    within(async {
        let stranger = client_of(&plane.kubeconfig_for_token("no-such-token")).await;
        let error = Api::<ConfigMap>::default_namespaced(stranger)
            .list(&ListParams::default())
            .await
            .unwrap_err();
        assert_eq!(status(&error), Some(401), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_requested_token_authenticates_and_rbac_decides_what_it_may() {
    let plane = shared_plane().await;
    within(async {
        let admin = plane.client().unwrap();
        let token = service_account_token(&admin, "reader").await;
        let reader = client_of(&plane.kubeconfig_for_token(&token)).await;
        let review: Api<SelfSubjectReview> = Api::all(reader.clone());
        let answer = review
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
            .unwrap();
        let user = answer.status.unwrap().user_info.unwrap().username.unwrap();
        assert_eq!(user, "system:serviceaccount:default:reader");

        let maps: Api<ConfigMap> = Api::default_namespaced(reader);
        let error = maps.list(&ListParams::default()).await.unwrap_err();
        assert_eq!(status(&error), Some(403), "{error}");
        let binding: ClusterRoleBinding = from_value(json!({
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        }))
        .unwrap();
        Api::all(admin)
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();
        eventually(|| async { maps.list(&ListParams::default()).await.ok() }).await;
    })
    .await;
}

#[tokio::test]
async fn a_custom_resource_is_served() {
    let plane = shared_plane().await;
    within(async {
        let client = plane.client().unwrap();
        let definition: CustomResourceDefinition = from_value(json!({
            "metadata": {"name": "anchors.e2e.roadstead.dev"},
            "spec": {
                "group": "e2e.roadstead.dev",
                "scope": "Namespaced",
                "names": {"kind": "Anchor", "plural": "anchors", "singular": "anchor"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"depth": {"type": "integer"}}}},
                }}}],
            },
        }))
        .unwrap();
        Api::all(client.clone())
            .create(&PostParams::default(), &definition)
            .await
            .unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("e2e.roadstead.dev", "v1", "Anchor"));
        let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        let anchor =
            DynamicObject::new("first", &resource).data(json!({"spec": {"depth": 7, "unknown": true}}));
        let made = eventually(|| async { api.create(&PostParams::default(), &anchor).await.ok() }).await;
        assert_eq!(made.data, json!({"spec": {"depth": 7}}), "the schema prunes");
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_counts_requests_by_user_agent() {
    let plane = shared_plane().await;
    within(async {
        let subject = client_of(&plane.kubeconfig()).await;
        let name = "counted";
        let map: ConfigMap = from_value(json!({"metadata": {"name": name}})).unwrap();
        let harness: Api<ConfigMap> = Api::default_namespaced(plane.client().unwrap());
        harness.create(&PostParams::default(), &map).await.unwrap();
        // A verb that no other test uses on this resource, and one that fails.
        for _ in 0..3 {
            harness
                .replace(name, &PostParams::default(), &harness.get(name).await.unwrap())
                .await
                .unwrap();
        }
        let _ = Api::<ConfigMap>::default_namespaced(subject)
            .get("no-such-map")
            .await
            .unwrap_err();

        let log = plane.audit_log().unwrap();
        let count = |agent: &dyn Fn(&str) -> bool, verb: &str, code: u16| {
            let requests = audit::read(&log).unwrap();
            let of_maps = requests.iter().filter(|request| request.resource == "configmaps");
            of_maps
                .filter(|request| agent(&request.user_agent) && request.verb == verb && request.code == code)
                .count()
        };
        eventually(|| async {
            (count(&|agent| agent == plane::HARNESS_USER_AGENT, "update", 200) == 3).then_some(())
        })
        .await;
        eventually(|| async {
            (count(&|agent| agent != plane::HARNESS_USER_AGENT, "get", 404) == 1).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_flag_that_the_server_refuses_is_quoted_at_once() {
    let options = roadstead_e2e::Options::bare("refused").with_apiserver_flag("--no-such-flag");
    shared_plane().await;
    within(async {
        let started = Instant::now();
        let error = roadstead_e2e::ControlPlane::start(options).await.unwrap_err();
        let plane::Error::Died { process, tail, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*process, "kube-apiserver");
        assert!(tail.contains("unknown flag: --no-such-flag"), "{tail}");
        assert!(
            started.elapsed().as_secs() < 30,
            "it must not wait for the start's own deadline"
        );
    })
    .await;
}

/// The start tries another port when ours was taken; it tells by these words.
#[tokio::test]
async fn a_server_whose_port_is_taken_says_so() {
    let plane = shared_plane().await;
    let taken = plane.address().port();
    within(async {
        let options =
            roadstead_e2e::Options::bare("taken").with_apiserver_flag(format!("--secure-port={taken}"));
        let error = roadstead_e2e::ControlPlane::start(options).await.unwrap_err();
        let plane::Error::Died { tail, .. } = &error else {
            panic!("{error}")
        };
        assert!(tail.contains("address already in use"), "{tail}");
    })
    .await;
}

#[tokio::test]
async fn a_written_kubeconfig_is_private_and_works() {
    use std::os::unix::fs::PermissionsExt;
    let plane = shared_plane().await;
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shared.kubeconfig");
        std::fs::write(&path, "an older file").unwrap();
        plane.write_kubeconfig(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let client = client_of(&std::fs::read_to_string(&path).unwrap()).await;
        let account = Api::<ServiceAccount>::default_namespaced(client)
            .get("default")
            .await
            .unwrap();
        assert_eq!(account.name_any(), "default");
    })
    .await;
}
