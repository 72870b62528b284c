//! How many objects per second the conversion webhook answers over TLS on one core, its client included:
//! `cargo bench -p roadstead-engine --bench convert`.
//!
//! Client and server share one thread, so the server alone is faster than the figure shown.

#![expect(clippy::unwrap_used, reason = "a benchmark may fail loudly")]

use std::cell::RefCell;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use roadstead_api::config::{BindAddress, Tls};
use roadstead_engine::webhook::conversion;
use roadstead_serve::listen::Listener;
use roadstead_serve::tls::{CertSlot, Lifetimes, issue, server_config};
use roadstead_serve::webhook::{CONVERT_PATH, Webhooks};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const NAME: &str = "hooks.example";
const HUB: &str = "kueue.x-k8s.io/v1beta2";
const OLD: &str = "kueue.x-k8s.io/v1beta1";

fn main() {
    divan::main();
}

/// A Workload as the job reconciler creates it for a job: two pod sets with templates, admitted on eight nodes.
fn workload(index: usize) -> Value {
    let container = json!({"name": "c", "image": "i", "env": vec![json!({"name": "A", "value": "b"}); 20],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}});
    let set =
        |name: &str| json!({"name": name, "count": 8, "template": {"spec": {"containers": [container]}}});
    let roots: Vec<String> = (0..8).map(|node| node.to_string()).collect();
    let place = json!({"levels": ["kubernetes.io/hostname"], "slices": [{
        "domainCount": 8,
        "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": roots}}],
        "podCounts": {"universal": 1},
    }]});
    json!({
        "apiVersion": HUB, "kind": "Workload", "metadata": {"name": format!("w{index}"), "namespace": "n"},
        "spec": {"queueName": "q", "podSets": [set("leader"), set("workers")], "priority": 5, "priorityClassRef":
            {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [
            {"name": "leader", "count": 8}, {"name": "workers", "count": 8, "topologyAssignment": place}]}},
    })
}

/// A server, and one connection to it that stays open.
struct Wire {
    runtime: Runtime,
    stream: RefCell<TlsStream<TcpStream>>,
}

impl Wire {
    fn open() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let bundle = issue(jiff::Timestamp::now(), &[NAME.to_owned()], &Lifetimes::default()).unwrap();
            let slot = CertSlot::empty();
            slot.fill(bundle.certified_key().unwrap());
            let config = server_config(&Tls::default(), slot).unwrap();
            let address = BindAddress::Listen {
                host: "127.0.0.1".to_owned(),
                port: 0,
            };
            let listener = Listener::bind("webhook", &address).await.unwrap().unwrap();
            let address = listener.local_addr();
            let mut webhooks = Webhooks::default();
            webhooks.conversion(CONVERT_PATH, conversion()).unwrap();
            let serving = listener.serve(webhooks.router(), Some(config), CancellationToken::new());
            tokio::spawn(serving);
            let mut roots = RootCertStore::empty();
            for der in CertificateDer::pem_slice_iter(bundle.ca_bundle().as_bytes()) {
                roots.add(der.unwrap()).unwrap();
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let client = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            TlsConnector::from(Arc::new(client))
                .connect(ServerName::try_from(NAME).unwrap(), stream)
                .await
                .unwrap()
        });
        Self {
            runtime,
            stream: RefCell::new(stream),
        }
    }

    /// Sends a request, reads the whole answer, and returns its length.
    fn ask(&self, request: &[u8]) -> usize {
        let mut stream = self.stream.borrow_mut();
        self.runtime.block_on(async {
            stream.write_all(request).await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = Vec::with_capacity(64 << 10);
            loop {
                let read = stream.read_buf(&mut answer).await.unwrap();
                assert!(read > 0, "the server hung up");
                if let Some(end) = answer.windows(4).position(|part| part == b"\r\n\r\n") {
                    let head = std::str::from_utf8(&answer[..end]).unwrap().to_ascii_lowercase();
                    assert!(head.starts_with("http/1.1 200"), "{head}");
                    let length = head.split("content-length: ").nth(1).unwrap();
                    let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
                    while answer.len() < end + 4 + length {
                        stream.read_buf(&mut answer).await.unwrap();
                    }
                    return answer.len();
                }
            }
        })
    }
}

fn request(objects: usize) -> Vec<u8> {
    let objects: Vec<Value> = (0..objects).map(workload).collect();
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": OLD, "objects": objects}});
    let body = serde_json::to_vec(&review).unwrap();
    let length = body.len();
    let head = format!(
        "POST {CONVERT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

#[divan::bench(args = [1, 10, 100, 500])]
fn objects_in_one_review(bencher: Bencher<'_, '_>, objects: usize) {
    let (wire, request) = (Wire::open(), request(objects));
    bencher
        .counter(ItemsCount::new(objects))
        .bench_local(|| wire.ask(&request));
}
