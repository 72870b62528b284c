//! Whether an API server serves a kind, and in which versions.
//!
//! Invariant: only the API server's discovery can say that a kind is not served. A failed request says nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde::de::DeserializeOwned;

/// What an API server says about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// It serves the kind in the requested version.
    Yes,
    /// It serves the kind only in these versions, at least one. Objects of the kind may exist.
    Otherwise(Vec<String>),
    /// It does not serve the kind in any version, so no objects of it exist.
    No,
}

/// Asks whether a kind is served.
///
/// Limit: a proxy that answers discovery with 404 is believed.
///
/// # Errors
/// The API server did not answer, or its answer shows nothing.
pub async fn served(client: &Client, resource: &ApiResource) -> Result<Served, kube::Error> {
    let versions = versions(client, &resource.group).await?;
    let mut serving = Vec::new();
    for version in versions {
        let path = if resource.group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{}/{version}", resource.group)
        };
        // Why `None` is no error: the version may have been removed meanwhile.
        let Some(list) = get::<APIResourceList>(client, path).await? else {
            continue;
        };
        if list.resources.iter().any(|one| one.name == resource.plural) {
            serving.push(version);
        }
    }
    Ok(if serving.contains(&resource.version) {
        Served::Yes
    } else if serving.is_empty() {
        Served::No
    } else {
        Served::Otherwise(serving)
    })
}

/// The plural under which a kind is served; `None` while it is not.
///
/// # Errors
/// The API server did not answer, or its answer shows nothing.
pub async fn plural(client: &Client, kind: &GroupVersionKind) -> Result<Option<String>, kube::Error> {
    let path = format!("/apis/{}/{}", kind.group, kind.version);
    let list: Option<APIResourceList> = get(client, path).await?;
    let is_it = |name: &str, its: &str| its == kind.kind && !name.contains('/');
    let mut resources = list.into_iter().flat_map(|list| list.resources);
    let found = resources.find(|one| is_it(&one.name, &one.kind));
    Ok(found.map(|one| one.name))
}

async fn versions(client: &Client, group: &str) -> Result<Vec<String>, kube::Error> {
    if group.is_empty() {
        return Ok(vec!["v1".to_owned()]);
    }
    let found: Option<APIGroup> = get(client, format!("/apis/{group}")).await?;
    let versions = found.into_iter().flat_map(|group| group.versions);
    Ok(versions.map(|version| version.version).collect())
}

/// Reads a discovery path; `None` when the API server says that nothing is there.
async fn get<T: DeserializeOwned>(client: &Client, path: String) -> Result<Option<T>, kube::Error> {
    let request = http::Request::get(path).body(Vec::new());
    match client.request(request.map_err(kube::Error::HttpError)?).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server whose discovery gives these answers, by path, and 404 for the rest.
    fn answering(answers: &[(&'static str, u16, Value)]) -> Client {
        let answers: BTreeMap<&str, (u16, Value)> = { answers.iter() }
            .map(|(path, code, body)| (*path, (*code, body.clone())))
            .collect();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let missing = (
                404,
                json!({"kind": "Status", "code": 404, "message": "page not found", "reason": "NotFound"}),
            );
            let path = request.uri().path().trim_end_matches('/');
            let (code, body) = answers.get(path).cloned().unwrap_or(missing);
            async move {
                let body = Body::from(serde_json::to_vec(&body).unwrap());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "ns")
    }

    fn group(versions: &[&str]) -> Value {
        let versions: Vec<Value> = { versions.iter() }
            .map(|version| json!({"groupVersion": format!("example.com/{version}"), "version": version}))
            .collect();
        json!({"name": "example.com", "versions": versions})
    }

    fn resources(plurals: &[&str]) -> Value {
        let resources: Vec<Value> = { plurals.iter() }
            .map(|name| json!({"name": name, "kind": "Any", "namespaced": true, "singularName": "", "verbs": []}))
            .collect();
        json!({"groupVersion": "any", "resources": resources})
    }

    /// Spec: multikueue 5.4
    #[tokio::test]
    async fn the_plural_of_a_kind_is_that_of_the_discovery() {
        let kind = GroupVersionKind::gvk("example.com", "v1", "Ox");
        let of = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []});
        let resources = [of("oxen/status", "Ox"), of("carts", "Cart"), of("oxen", "Ox")];
        let list = json!({"groupVersion": "example.com/v1", "resources": resources});
        let serving = answering(&[("/apis/example.com/v1", 200, list)]);
        assert_eq!(plural(&serving, &kind).await.unwrap(), Some("oxen".to_owned()));
        assert_eq!(plural(&answering(&[]), &kind).await.unwrap(), None);
        let silent = answering(&[(
            "/apis/example.com/v1",
            503,
            json!({"kind": "Status", "code": 503, "message": "busy", "reason": "ServiceUnavailable"}),
        )]);
        assert!(plural(&silent, &kind).await.is_err());
    }

    /// Spec: jobs 4.2
    #[tokio::test]
    async fn only_what_the_discovery_says_is_missing_is_not_served() {
        let gvk = GroupVersionKind::gvk("example.com", "v1", "Train");
        let trains = ApiResource::from_gvk_with_plural(&gvk, "trains");
        let busy = json!({"kind": "Status", "code": 503, "message": "busy", "reason": "ServiceUnavailable"});
        let ask = async |answers: &[(&'static str, u16, Value)]| {
            served(&answering(answers), &trains)
                .await
                .map_err(|error| error.to_string())
        };
        let (at, v1, v2) = (
            "/apis/example.com",
            "/apis/example.com/v1",
            "/apis/example.com/v2",
        );
        assert_eq!(ask(&[]).await, Ok(Served::No));
        assert_eq!(
            ask(&[(at, 200, group(&["v1"]))]).await,
            Ok(Served::No),
            "it has just gone"
        );
        let others = [(at, 200, group(&["v1"])), (v1, 200, resources(&["cars"]))];
        assert_eq!(ask(&others).await, Ok(Served::No));
        let both = [
            (at, 200, group(&["v2", "v1"])),
            (v1, 200, resources(&["cars", "trains", "trains/status"])),
            (v2, 200, resources(&["trains"])),
        ];
        assert_eq!(ask(&both).await, Ok(Served::Yes));
        let newer = [
            (at, 200, group(&["v2", "v1"])),
            (v1, 200, resources(&["trains/status"])),
            (v2, 200, resources(&["trains"])),
        ];
        assert_eq!(ask(&newer).await, Ok(Served::Otherwise(vec!["v2".to_owned()])));
        for path in [at, v1] {
            let silent = [(at, 200, group(&["v1"])), (path, 503, busy.clone())];
            assert!(ask(&silent).await.is_err(), "{path}");
        }
        let core = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        let pods = answering(&[("/api/v1", 200, resources(&["pods"]))]);
        assert_eq!(served(&pods, &core).await.unwrap(), Served::Yes);
    }
}
