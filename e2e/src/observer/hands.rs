//! I7: objects that no controller owns, created to check that the product leaves them alone.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::Cluster;

/// Name of all planted objects.
const NAME: &str = "belongs-to-nobody-here";

/// One cluster's planted objects, as they were created.
#[derive(Debug, Clone)]
pub(super) struct Planted {
    cluster: String,
    namespace: String,
    objects: Vec<(ApiResource, Value)>,
}

/// Plants a suspended Job and a `ConfigMap`.
pub(super) async fn plant(cluster: &Cluster, namespace: &str) -> Result<Planted, kube::Error> {
    let job = json!({"metadata": {"name": NAME}, "spec": {"suspend": true, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}],
    }}}});
    let map = json!({"metadata": {"name": NAME}, "data": {"touched": "no"}});
    let mut objects = Vec::new();
    for (resource, object) in [
        (ApiResource::erase::<Job>(&()), job),
        (ApiResource::erase::<ConfigMap>(&()), map),
    ] {
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
        let object = DynamicObject::new(NAME, &resource).data(object);
        let made = api.create(&PostParams::default(), &object).await?;
        objects.push((resource, essence(&made)));
    }
    Ok(Planted {
        cluster: cluster.name.clone(),
        namespace: namespace.to_owned(),
        objects,
    })
}

/// A sentence for each planted object that has changed.
pub(super) async fn touched(
    mut clusters: impl Iterator<Item = &Cluster>,
    planted: &Planted,
) -> Result<Vec<String>, kube::Error> {
    let Planted {
        cluster,
        namespace,
        objects,
    } = planted;
    let Some(at) = clusters.find(|each| each.name == *cluster) else {
        return Ok(Vec::new());
    };
    let mut sentences = Vec::new();
    for (resource, before) in objects {
        let api: Api<DynamicObject> = Api::namespaced_with(at.client.clone(), namespace, resource);
        let now = api.get_opt(NAME).await?.map(|object| essence(&object));
        let what = format!("{} {namespace}/{NAME} in {cluster}", resource.kind);
        match now {
            None => sentences.push(format!("{what}, which is nobody's, was deleted")),
            Some(now) if now != *before => {
                sentences.push(format!(
                    "{what}, which is nobody's, was changed from {before} to {now}"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(sentences)
}

/// The parts that only the owner may change: everything but the status and the server's own counters.
fn essence(object: &DynamicObject) -> Value {
    let ObjectMeta {
        labels,
        annotations,
        finalizers,
        owner_references,
        ..
    } = &object.metadata;
    let mut data = object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    json!({
        "uid": object.uid(),
        "labels": labels,
        "annotations": annotations,
        "finalizers": finalizers,
        "ownerReferences": owner_references,
        "data": data,
    })
}
