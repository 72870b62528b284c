//! Servers that stop answering, die and come back; links that are cut.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use roadstead_e2e::link::Cut;
use roadstead_e2e::{Link, Options};
use serde_json::{from_value, json};
use tokio::time::timeout;

use crate::shared::{client_of, eventually, plane, start, within};

/// Long enough for a healthy server on loopback to answer.
const SILENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_cut_link_hides_a_server_that_lives() {
    let plane = plane().await;
    within(async {
        let link = Link::start(plane.address()).await.unwrap();
        let far = client_of(&plane.kubeconfig_via(&link.server_url())).await;
        far.apiserver_version().await.unwrap();
        link.cut(Cut::Refuse);
        let _ = far.apiserver_version().await.unwrap_err();
        plane.client().unwrap().apiserver_version().await.unwrap();
        link.heal();
        far.apiserver_version().await.unwrap();
        link.cut(Cut::Swallow);
        assert!(
            timeout(SILENCE, far.apiserver_version()).await.is_err(),
            "nothing may come back"
        );
        link.heal();
        far.apiserver_version().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_paused_server_is_silent_and_a_killed_one_comes_back_with_its_data() {
    let plane = start(Options::bare("disturbed")).await;
    within(async {
        let api: Api<ConfigMap> = Api::default_namespaced(plane.client().unwrap());
        let map = from_value(json!({"metadata": {"name": "kept"}, "data": {"a": "1"}})).unwrap();
        api.create(&PostParams::default(), &map).await.unwrap();

        plane.pause().unwrap();
        // Why not at once: a busy machine may let an answer out before all threads stand still.
        eventually(|| async { timeout(SILENCE, api.get("kept")).await.is_err().then_some(()) }).await;
        plane.resume().unwrap();
        // Why not at once: connections that were under way while it stood still may end first.
        eventually(|| async { api.get("kept").await.ok() }).await;

        let url = plane.server_url();
        plane.kill_apiserver().unwrap();
        let _ = api.get("kept").await.unwrap_err();
        plane.check().unwrap();
        plane.restart_apiserver().await.unwrap();
        assert_eq!(plane.server_url(), url);
        let kept = eventually(|| async { api.get("kept").await.ok() }).await;
        assert_eq!(kept.data.unwrap()["a"], "1");
    })
    .await;
}
