use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use roadstead_api::kueue::v1beta2::{LocalQueue, Workload, WorkloadSpec};
use roadstead_api::visibility::VERSIONS;
use roadstead_serve::delegated::Question;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;

const V2: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A workload `a/NAME` or `b/NAME` of LocalQueue `lq-a` or `lq-b` in that namespace.
fn entry(namespace: &str, name: &str) -> PendingEntry {
    PendingEntry {
        key: Key::new(namespace, name),
        uid: format!("uid-{name}").as_str().into(),
        priority: 7,
        local_queue: format!("lq-{namespace}"),
        created: Timestamp::from_second(1_700_000_000).unwrap(),
    }
}

/// An API whose only ClusterQueue `cq` holds these workloads.
struct Site {
    answerer: Answerer,
    brain: JoinHandle<Vec<usize>>,
}

impl Site {
    fn new(entries: Vec<PendingEntry>) -> Self {
        let caches = Caches::new(&[]);
        for namespace in ["a", "b"] {
            let queue: LocalQueue = serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": { "name": format!("lq-{namespace}"), "namespace": namespace, "uid": "q", "resourceVersion": "1" },
                "spec": { "clusterQueue": "cq" },
            }))
            .unwrap();
            caches.local_queues.observe(queue);
        }
        let (asks, mut mail) = mpsc::channel::<Ask>(ASKS_MAX);
        let brain = tokio::spawn(async move {
            let mut limits = Vec::new();
            while let Some(ask) = mail.recv().await {
                limits.push(ask.limit);
                let known = ask.queue.as_str() == "cq";
                let _ = ask
                    .answer
                    .send(known.then(|| entries.iter().take(ask.limit).cloned().collect()));
            }
            limits
        });
        Self {
            answerer: Answerer {
                caches,
                asks,
                leadership: Leadership::assumed(&Config::without_file("own")),
            },
            brain,
        }
    }

    async fn ask(&self, path: &str, accept: &str) -> Reply {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let asked = Asked {
            method: Method::GET,
            path: path.to_owned(),
            query: query.to_owned(),
            accept: accept.to_owned(),
            if_none_match: String::new(),
        };
        self.answerer.answer(asked).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let reply = self.ask(path, "application/json").await;
        (reply.code.as_u16(), serde_json::from_slice(&reply.body).unwrap())
    }

    /// Name, place in the ClusterQueue, place in the LocalQueue of each item.
    async fn items(&self, path: &str) -> Vec<(String, u64, u64)> {
        let (code, body) = self.get(path).await;
        assert_eq!(code, 200, "{body}");
        let place = |item: &Value, key: &str| item[key].as_u64().unwrap();
        let items = body["items"].as_array().unwrap().iter();
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
}

fn three() -> Vec<PendingEntry> {
    vec![entry("a", "one"), entry("b", "two"), entry("a", "three")]
}

fn item(name: &str, in_cluster_queue: u64, in_local_queue: u64) -> (String, u64, u64) {
    (name.to_owned(), in_cluster_queue, in_local_queue)
}

/// Spec: admission-engine B228, api API-15.
#[tokio::test]
async fn a_cluster_queue_shows_its_workloads_with_their_places() {
    let site = Site::new(three());
    let path = format!("{V2}/clusterqueues/cq/pendingworkloads");
    let all = [item("one", 0, 0), item("two", 1, 0), item("three", 2, 1)];
    assert_eq!(site.items(&path).await, all);
    for (query, wanted) in [
        ("limit=1&offset=1", &all[1..2]),
        ("offset=2", &all[2..]),
        ("limit=2", &all[..2]),
        ("limit=0", &all[..]),
        ("limit=&offset=", &all[..]),
        ("limit=-1&offset=-5", &all[..]),
        ("timeout=3s&limit=2", &all[..2]),
        ("offset=3", &[]),
        ("limit=9223372036854775807&offset=9223372036854775807", &[]),
    ] {
        assert_eq!(site.items(&format!("{path}?{query}")).await, wanted, "{query}");
    }
    for query in ["limit=many", "offset=1.5", "limit=99999999999999999999"] {
        let (code, body) = site.get(&format!("{path}?{query}")).await;
        assert_eq!((code, &body["reason"]), (400, &json!("BadRequest")), "{query}");
    }
}

/// Spec: admission-engine B228, api API-15.
#[tokio::test]
async fn limits_have_a_default_and_a_cap() {
    let path = format!("{V2}/clusterqueues/cq/pendingworkloads");
    let site = Site::new(Vec::new());
    for query in ["", "?limit=0", "?limit=5&offset=7", "?limit=100001"] {
        site.items(&format!("{path}{query}")).await;
    }
    let Site { answerer, brain } = site;
    drop(answerer);
    assert_eq!(brain.await.unwrap(), [1000, 1000, 12, 100_000]);
    let many = Site::new((0..1001).map(|n| entry("a", &format!("w{n}"))).collect());
    assert_eq!(many.items(&path).await.len(), 1000);
    assert_eq!(many.items(&format!("{path}?limit=0")).await.len(), 1000);
    assert_eq!(many.items(&format!("{path}?limit=2000")).await.len(), 1001);
}

/// Spec: api API-15.
#[tokio::test]
async fn a_local_queue_shows_its_own_with_their_places_in_both_queues() {
    let site = Site::new(three());
    let path = format!("{V2}/namespaces/a/localqueues/lq-a/pendingworkloads");
    let all = [item("one", 0, 0), item("three", 2, 1)];
    assert_eq!(site.items(&path).await, all);
    assert_eq!(site.items(&format!("{path}?limit=1&offset=1")).await, all[1..]);
    let path = format!("{V2}/namespaces/b/localqueues/lq-b/pendingworkloads");
    assert_eq!(site.items(&path).await, [item("two", 1, 0)]);
}

/// Spec: admission-engine B228, api API-15.
#[tokio::test]
async fn an_unknown_queue_is_not_found() {
    let site = Site::new(three());
    for (path, message) in [
        (
            "clusterqueues/other",
            "clusterqueue.visibility.kueue.x-k8s.io \"other\" not found",
        ),
        (
            "namespaces/a/localqueues/lq-b",
            "localqueue.visibility.kueue.x-k8s.io \"lq-b\" not found",
        ),
    ] {
        let (code, body) = site.get(&format!("{V2}/{path}/pendingworkloads")).await;
        assert_eq!(code, 404);
        assert_eq!(
            (&body["kind"], &body["status"], &body["reason"], &body["code"]),
            (
                &json!("Status"),
                &json!("Failure"),
                &json!("NotFound"),
                &json!(404)
            )
        );
        assert_eq!(body["message"], message);
    }
    for path in [
        "clusterqueues/cq",
        "clusterqueues",
        "clusterqueues/cq/status",
        "localqueues/lq-a/pendingworkloads",
    ] {
        assert_eq!(site.get(&format!("{V2}/{path}")).await.0, 404, "{path}");
    }
    let old = "/apis/visibility.kueue.x-k8s.io/v1alpha1/clusterqueues/cq/pendingworkloads";
    assert_eq!(site.get(old).await.0, 404);
}

/// Spec: api API-15.
#[tokio::test]
async fn an_item_has_the_fields_of_the_reference() {
    let site = Site::new(vec![entry("a", "one"), entry("a", "two")]);
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: "job".to_owned(),
        uid: "u".to_owned(),
        ..OwnerReference::default()
    };
    // The second Job was replaced by one of the same name, so its owner is not shown.
    for (name, uid) in [("one", "uid-one"), ("two", "successor")] {
        let mut workload = Workload::new(name, WorkloadSpec::default());
        workload.metadata.namespace = Some("a".to_owned());
        workload.metadata.uid = Some(uid.to_owned());
        workload.metadata.resource_version = Some("1".to_owned());
        workload.metadata.owner_references = Some(vec![owner.clone()]);
        site.answerer.caches.workloads.observe(workload);
    }
    for version in VERSIONS {
        let path = format!("/apis/{GROUP}/{version}/clusterqueues/cq/pendingworkloads");
        let (_, body) = site.get(&path).await;
        assert_eq!(body["kind"], "PendingWorkloadsSummary");
        assert_eq!(body["apiVersion"], format!("visibility.kueue.x-k8s.io/{version}"));
        assert_eq!(
            body["items"][0],
            json!({
                "metadata": {
                    "name": "one", "namespace": "a", "creationTimestamp": "2023-11-14T22:13:20Z",
                    "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u" }],
                },
                "priority": 7, "localQueueName": "lq-a", "positionInClusterQueue": 0, "positionInLocalQueue": 0,
            })
        );
        assert_eq!(body["items"][1]["metadata"].get("ownerReferences"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_brain_that_does_not_answer_is_unavailable_and_not_waited_for_long() {
    let (asks, mail) = mpsc::channel(ASKS_MAX);
    let answerer = Answerer {
        caches: Caches::new(&[]),
        asks,
        leadership: Leadership::assumed(&Config::without_file("own")),
    };
    let silent = Site {
        answerer,
        brain: tokio::spawn(async { Vec::new() }),
    };
    let path = format!("{V2}/clusterqueues/cq/pendingworkloads");
    assert_eq!(silent.get(&path).await.0, 503);
    drop(mail);
    assert_eq!(silent.get(&path).await.0, 503);
}

/// Spec: api API-15.
#[tokio::test]
async fn discovery_names_both_versions_and_both_subresources() {
    let site = Site::new(Vec::new());
    let (_, group) = site.get("/apis/visibility.kueue.x-k8s.io").await;
    assert_eq!(group["kind"], "APIGroup");
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let (_, groups) = site.get("/apis").await;
    assert_eq!(groups["groups"][0]["name"], "visibility.kueue.x-k8s.io");
    let (_, list) = site.get("/apis/visibility.kueue.x-k8s.io/v1beta1").await;
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "clusterqueues",
            "clusterqueues/pendingworkloads",
            "localqueues",
            "localqueues/pendingworkloads"
        ]
    );
    let whole = site.ask("/apis", &format!("{AGGREGATED},application/json")).await;
    assert_eq!(whole.content_type, AGGREGATED);
    let whole: Value = serde_json::from_slice(&whole.body).unwrap();
    let versions = whole["items"][0]["versions"].as_array().unwrap();
    assert_eq!(
        versions[0]["resources"][1]["subresources"][0]["subresource"],
        "pendingworkloads"
    );
}

/// Every reference in a document resolves, and no two operations have the same name.
#[tokio::test]
async fn shapes_are_complete() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let site = Site::new(Vec::new());
    let (_, index) = site.get("/openapi/v3").await;
    let mut documents = vec![site.get("/openapi/v2").await.1];
    for version in VERSIONS {
        let path = format!("apis/{GROUP}/{version}");
        let url = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        documents.push(site.get(&format!("/openapi/v3/{path}")).await.1);
    }
    for document in &documents {
        let mut found = Vec::new();
        references(document, &mut found);
        assert!(found.len() >= 3, "{document}");
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
    let ids: Vec<&str> = documents[0]["paths"]
        .as_object()
        .unwrap()
        .values()
        .map(|path| path["get"]["operationId"].as_str().unwrap())
        .collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (4, 4));
}

#[tokio::test]
async fn who_has_the_shapes_gets_them_not_again() {
    let site = Site::new(Vec::new());
    let first = site.ask("/openapi/v2", "application/json").await;
    assert!(first.etag.len() > 2);
    let asked = Asked {
        method: Method::GET,
        path: "/openapi/v2".to_owned(),
        query: String::new(),
        accept: String::new(),
        if_none_match: first.etag.clone(),
    };
    let again = site.answerer.answer(asked.clone()).await;
    assert_eq!((again.code.as_u16(), again.body.len()), (304, 0));
    let other = Asked {
        method: Method::DELETE,
        ..asked
    };
    assert_eq!(site.answerer.answer(other).await.code.as_u16(), 405);
}

#[test]
fn rights_are_asked_for_the_subresource_and_else_for_the_path() {
    let question = |method: Method, path: &str| path::question(&method, &path.parse().unwrap());
    assert_eq!(
        question(
            Method::GET,
            &format!("{V2}/namespaces/a/localqueues/q/pendingworkloads?limit=1")
        ),
        Question::Resource {
            verb: "get".to_owned(),
            group: GROUP,
            version: "v1beta2".to_owned(),
            resource: "localqueues",
            subresource: "pendingworkloads",
            namespace: Some("a".to_owned()),
            name: "q".to_owned(),
        }
    );
    let path = Question::Path {
        verb: "get".to_owned(),
        path: "/openapi/v2".to_owned(),
    };
    assert_eq!(question(Method::GET, "/openapi/v2?x=y"), path);
    let Question::Resource { verb, namespace, .. } =
        question(Method::DELETE, &format!("{V2}/clusterqueues/q/pendingworkloads"))
    else {
        panic!("not a resource");
    };
    assert_eq!((verb.as_str(), namespace), ("delete", None));
}
