//! What one request costs this server: `cargo bench -p roadstead-apiserver`.

#![expect(clippy::unwrap_used, reason = "a benchmark may fail loudly")]

use std::cell::Cell;
use std::fs;

use bytes::Bytes;
use divan::{Bencher, black_box};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use roadstead_apiserver::{Body, Clock, Options, Server, User};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn main() {
    divan::main();
}

struct Bench {
    runtime: Runtime,
    server: Server,
    next: Cell<u32>,
}

impl Bench {
    /// A server with the definition of Workloads and some of them.
    fn new(filled: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let server = Server::new(Options::new(Clock::new(|| jiff::Timestamp::UNIX_EPOCH), 1));
        let bench = Self {
            runtime,
            server,
            next: Cell::new(0),
        };
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../deploy/crds/kueue.x-k8s.io_workloads.yaml"
        );
        let definition: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        bench.send(Method::POST, at, "application/json", &definition);
        for _ in 0..filled {
            bench.create();
        }
        bench
    }

    fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Response<Bytes> {
        let bytes = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("user-agent", "bench")
            .body(Bytes::from(bytes))
            .unwrap();
        let answer: Response<Body> = self.runtime.block_on(self.server.handle(request, User::admin()));
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let (parts, body) = answer.into_parts();
        let body = self.runtime.block_on(body.collect()).unwrap().to_bytes();
        Response::from_parts(parts, body)
    }

    fn create(&self) -> String {
        let number = self.next.get();
        self.next.set(number + 1);
        let name = format!("w-{number:06}");
        let containers = json!([{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]);
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers, "restartPolicy": "Never"}});
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/job-uid": "5a7e"}, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "5a7e", "controller": true}]},
            "spec": {"queueName": "q", "priority": 0, "active": true, "podSets": [{"name": "main", "count": 2, "template": template}]},
        });
        self.send(Method::POST, WORKLOADS, "application/json", &object);
        name
    }

    fn status(number: u32) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "QuotaReserved", "message": format!("in {number}"), "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "status": {
                "conditions": [condition("QuotaReserved"), condition("Admitted")],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f", "memory": "f"}, "resourceUsage": {"cpu": "2", "memory": "2Gi"}, "count": 2}]},
            },
        })
    }
}

#[divan::bench]
fn create_workload(bencher: Bencher<'_, '_>) {
    let bench = Bench::new(100);
    bencher.bench_local(|| bench.create());
}

fn patch(bencher: Bencher<'_, '_>, kind: &str, query: &str) {
    let bench = Bench::new(100);
    let path = format!("{WORKLOADS}/w-000001/status{query}");
    let number = Cell::new(0);
    bencher.bench_local(|| {
        number.set(number.get() + 1);
        let mut body = Bench::status(number.get());
        body["metadata"] = json!({"name": "w-000001"});
        bench.send(Method::PATCH, &path, kind, &body)
    });
}

#[divan::bench]
fn merge_status(bencher: Bencher<'_, '_>) {
    patch(bencher, MERGE, "");
}

#[divan::bench]
fn apply_status(bencher: Bencher<'_, '_>) {
    patch(bencher, APPLY, "?fieldManager=m&force=true");
}

#[divan::bench]
fn get_workload(bencher: Bencher<'_, '_>) {
    let bench = Bench::new(100);
    let path = format!("{WORKLOADS}/w-000001");
    bencher.bench_local(|| bench.send(Method::GET, black_box(&path), "", &Value::Null));
}

#[divan::bench]
fn list_1000_workloads(bencher: Bencher<'_, '_>) {
    let bench = Bench::new(1000);
    bencher.bench_local(|| bench.send(Method::GET, black_box(WORKLOADS), "", &Value::Null));
}

#[divan::bench]
fn create_job(bencher: Bencher<'_, '_>) {
    let bench = Bench::new(0);
    let number = Cell::new(0);
    bencher.bench_local(|| {
        number.set(number.get() + 1);
        let object = json!({
            "metadata": {"name": format!("j-{}", number.get()), "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}},
        });
        bench.send(Method::POST, "/apis/batch/v1/namespaces/default/jobs", "application/json", &object)
    });
}
