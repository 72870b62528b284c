//! Engines that admit Workloads in a cluster: Roadstead and Kueue, by their Deployments.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use roadstead_api::install::owned;

use crate::failure::Failure;

/// The label by which Kueue's own manifests and charts mark their objects, and its value.
pub(crate) const APP_LABEL: &str = "app.kubernetes.io/name";
pub(crate) const KUEUE_APP: &str = "kueue";

/// The needed fields of a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The installation that it belongs to.
    pub(crate) installed: Option<String>,
    /// `app.kubernetes.io/name`.
    pub(crate) app: Option<String>,
    pub(crate) images: Vec<String>,
}

impl Found {
    /// Whether it is an engine whose webhooks the API server may call.
    pub(crate) fn is_engine(&self) -> bool {
        self.installed.is_some() || self.is_kueue()
    }

    pub(crate) fn is_kueue(&self) -> bool {
        let by_image = |image: &String| {
            let name = image.split(['@', ':']).next().unwrap_or_default();
            name.ends_with("/kueue")
        };
        self.installed.is_none()
            && (self.app.as_deref() == Some(KUEUE_APP) || self.images.iter().any(by_image))
    }
}

/// All Deployments of the cluster.
pub(crate) async fn found(client: &Client) -> Result<Vec<Found>, Failure> {
    let all = Api::<Deployment>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map_err(|error| Failure::request("listing the Deployments of the cluster failed", &error))?;
    let found = |deployment: Deployment| {
        let label = |key: &str| deployment.labels().get(key).cloned();
        let pod = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        let containers = pod.into_iter().flat_map(|pod| &pod.containers);
        Found {
            namespace: deployment.namespace().unwrap_or_default(),
            name: deployment.name_any(),
            installed: label(owned::LABEL),
            app: label(APP_LABEL),
            images: containers
                .filter_map(|container| container.image.clone())
                .collect(),
        }
    };
    Ok(all.items.into_iter().map(found).collect())
}
