use http::{Request, Response};
use kube::client::Body;
use roadstead_kinds::{Kind, rows};
use serde_json::{Value, json};

use super::*;

/// Spec: multikueue 1.3 (1 to 20 clusters)
#[test]
fn config_without_its_last_cluster_has_to_go() {
    let clusters = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        without(&clusters(&["a", "b", "c"]), "b"),
        Some(clusters(&["a", "c"]))
    );
    assert_eq!(without(&clusters(&["b"]), "b"), None);
}

#[test]
fn long_lists_are_cut() {
    let resource = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let one = |n: usize| Ours {
        resource: resource(if n == 0 { "Job" } else { "Workload" }),
        namespace: "team-a".to_owned(),
        name: format!("x{n}"),
        uid: None,
        going: false,
        finalizers: Vec::new(),
    };
    assert_eq!(shown(&[one(0)]), "job team-a/x0");
    let many: Vec<Ours> = (0..SHOWN_MAX + 3).map(one).collect();
    assert!(shown(&many).ends_with("workload team-a/x9, and 3 more"));
}

/// Spec: safety 3.7
#[test]
fn a_copy_that_only_a_dead_manager_holds_is_released_and_finalizers_of_others_stay() {
    let held = |names: &[&str]| Ours {
        resource: ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job")),
        namespace: "team-a".to_owned(),
        name: "train".to_owned(),
        uid: None,
        going: true,
        finalizers: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(held(&["orphan"]).released(), None);
    let others = held(&["orphan", finalizers::OUTCOME]);
    assert_eq!(others.released(), Some(vec![&"orphan".to_owned()]));
}

static ROWS: [&Kind; 2] = [&rows::JOB, &rows::INVENTED];

/// A worker that serves Workloads, Jobs and, in these versions, an invented kind with one object of ours.
fn worker(versions: &'static [&'static str], lists: u16) -> Client {
    let group = |name: &str, versions: &[&str]| {
        let versions: Vec<Value> = { versions.iter() }
            .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
            .collect();
        json!({"name": name, "versions": versions})
    };
    let resources = |plural: &str| {
        let resource =
            json!({"name": plural, "kind": "", "namespaced": true, "singularName": "", "verbs": []});
        json!({"groupVersion": "", "resources": [resource]})
    };
    let none = json!({"metadata": {}, "items": []});
    let train = json!({"metadata": {"name": "thomas", "namespace": "team-a", "uid": "1"}});
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let (code, body) = match path.as_str() {
            "/apis/batch" => (200, group("batch", &["v1"])),
            "/apis/batch/v1" => (200, resources("jobs")),
            "/apis/kueue.x-k8s.io" => (200, group("kueue.x-k8s.io", &["v1beta2"])),
            "/apis/kueue.x-k8s.io/v1beta2" => (200, resources("workloads")),
            "/apis/batch/v1/jobs" | "/apis/kueue.x-k8s.io/v1beta2/workloads" => (200, none.clone()),
            "/apis/example.com" if !versions.is_empty() => (200, group("example.com", versions)),
            other => match other
                .strip_prefix("/apis/example.com/")
                .map(|rest| rest.split_once('/'))
            {
                Some(None) => (200, resources("trains")),
                Some(Some(_)) => (lists, json!({"metadata": {}, "items": [train]})),
                None => (
                    404,
                    json!({"kind": "Status", "code": 404, "message": "none", "reason": "NotFound"}),
                ),
            },
        };
        async move {
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "ns")
}

/// A worker with a job of any dispatched kind is not empty, whichever version its API server serves now.
#[tokio::test]
async fn jobs_of_every_kind_of_the_table_are_looked_for_and_only_a_kind_that_is_not_served_has_none() {
    let ours = async |worker: Client| {
        let found = ours_on(&worker, Kinds::new(&ROWS), "hub").await;
        found
            .map(|found| shown(&found))
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        ours(worker(&["v1"], 200)).await,
        Ok("train team-a/thomas".to_owned())
    );
    assert_eq!(
        ours(worker(&["v2"], 200)).await,
        Ok("train team-a/thomas".to_owned())
    );
    assert_eq!(ours(worker(&[], 200)).await, Ok(String::new()));
    let refused = ours(worker(&["v1"], 403)).await;
    assert!(
        refused.is_err(),
        "what cannot be listed may be there: {refused:?}"
    );
}
