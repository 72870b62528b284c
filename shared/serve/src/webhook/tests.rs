use std::net::SocketAddr;

use jiff::Timestamp;
use roadstead_api::config::{BindAddress, Tls};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::listen::Listener;
use crate::tls::{self, Bundle, CertSlot, Lifetimes, Rotation};

struct Server {
    address: SocketAddr,
    slot: Arc<CertSlot>,
    bundle: Bundle,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

const NAME: &str = "hooks.example";

/// The machine's own time, which the TLS client checks certificates against.
fn now() -> Timestamp {
    Timestamp::now()
}

fn names() -> Vec<String> {
    vec![NAME.into()]
}

impl Server {
    async fn start(webhooks: Webhooks) -> Self {
        let bundle = tls::issue(now(), &names(), &Lifetimes::default()).unwrap();
        let slot = CertSlot::empty();
        slot.fill(bundle.certified_key().unwrap());
        let config = tls::server_config(&Tls::default(), Arc::clone(&slot)).unwrap();
        let address = BindAddress::Listen {
            host: "127.0.0.1".into(),
            port: 0,
        };
        let listener = Listener::bind("webhook", &address).await.unwrap().unwrap();
        let address = listener.local_addr();
        let stop = CancellationToken::new();
        let running = tokio::spawn(listener.serve(webhooks.router(), Some(config), stop.clone()));
        Self {
            address,
            slot,
            bundle,
            stop,
            running,
        }
    }

    async fn connect(&self, ca_bundle: &str) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        use rustls::pki_types::pem::PemObject;
        let mut roots = RootCertStore::empty();
        for der in CertificateDer::pem_slice_iter(ca_bundle.as_bytes()) {
            roots.add(der.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
    }

    async fn post(&self, path: &str, body: &[u8]) -> (u16, Value) {
        self.send("POST", path, body).await
    }

    async fn send(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        self.send_as("application/json", method, path, body).await
    }

    async fn send_as(&self, content: &str, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = self.connect(&self.bundle.ca_bundle()).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refused body may end the connection while it is still being sent.
        let _sent = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ended = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            serde_json::from_str(body).unwrap(),
        )
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "name": "a", "namespace": "team", "dryRun": false,
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "userInfo": {"username": "me"}, "oldObject": null, "options": null,
            "object": {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "a", "namespace": "team", "creationTimestamp": null},
                "spec": {"parallelism": 1, "template": {"spec": {"containers": []}}},
            },
        },
    })
}

fn body(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

fn suspend(request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    patched(request, |object| {
        object["spec"]["suspend"] = true.into();
        object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "default"});
    })
}

fn webhooks() -> Webhooks {
    let mut webhooks = Webhooks::default();
    let path = mutate_path("batch", "v1", "Job");
    webhooks
        .admission(path, Arc::new(|request| suspend(&request)))
        .unwrap();
    let path = validate_path("batch", "v1", "Job");
    let refuse = |request: AdmissionRequest<DynamicObject>| {
        let cause = |index| Cause {
            field: format!("spec.parallelism[{index}]"),
            reason: "FieldValueInvalid",
            message: "must be greater than 1".to_owned(),
        };
        let causes: Vec<Cause> = (0..CAUSES_MAX + 3).map(cause).collect();
        invalid(&request, &causes)
    };
    webhooks.admission(path, Arc::new(refuse)).unwrap();
    let path = validate_path("", "v1", "Pod");
    webhooks
        .admission(path, Arc::new(|_| panic!("broken invariant")))
        .unwrap();
    let convert = |request: ConversionRequest| {
        let version = request.desired_api_version.clone();
        let objects = request.objects.iter().cloned().map(|mut object| {
            object["apiVersion"] = version.clone().into();
            object
        });
        let objects = objects.collect();
        ConversionResponse::for_request(request).success(objects)
    };
    webhooks.conversion(CONVERT_PATH, Arc::new(convert)).unwrap();
    webhooks
}

/// Spec: jobs 7.1.
#[test]
fn paths_follow_the_usual_pattern() {
    assert_eq!(mutate_path("batch", "v1", "Job"), "/mutate-batch-v1-job");
    assert_eq!(mutate_path("", "v1", "Pod"), "/mutate--v1-pod");
    let path = validate_path("kueue.x-k8s.io", "v1beta2", "ClusterQueue");
    assert_eq!(path, "/validate-kueue-x-k8s-io-v1beta2-clusterqueue");
}

#[test]
fn a_path_has_one_handler() {
    let error = webhooks()
        .admission("/convert", Arc::new(|request| allowed(&request)))
        .unwrap_err();
    assert_eq!(error.path, "/convert");
    assert_eq!(webhooks().paths().count(), 4);
}

#[tokio::test]
async fn mutation_is_a_json_patch_that_touches_only_what_changed() {
    let server = Server::start(webhooks()).await;
    let (status, answer) = server.post("/mutate-batch-v1-job", &body(&review())).await;
    assert_eq!(status, 200);
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"]),
        (&"u-1".into(), &true.into())
    );
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        response["patch"].as_str().unwrap(),
    );
    let patch: json_patch::Patch = serde_json::from_slice(&patch.unwrap()).unwrap();
    let mut object = review()["request"]["object"].clone();
    json_patch::patch(&mut object, &patch).unwrap();
    let mut expect = review()["request"]["object"].clone();
    expect["spec"]["suspend"] = true.into();
    expect["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "default"});
    assert_eq!(object, expect);
    server.end().await;
}

#[tokio::test]
async fn refusals_carry_code_reason_and_causes() {
    let server = Server::start(webhooks()).await;
    let (status, answer) = server.post("/validate-batch-v1-job", &body(&review())).await;
    assert_eq!(status, 200);
    let response = &answer["response"];
    assert_eq!(
        (&response["allowed"], &response["uid"]),
        (&false.into(), &"u-1".into())
    );
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&403.into(), &"Forbidden".into())
    );
    let causes = response["status"]["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), CAUSES_MAX);
    assert_eq!(
        causes[1],
        json!({"field": "spec.parallelism[1]", "reason": "FieldValueInvalid", "message": "must be greater than 1"})
    );
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("[spec.parallelism[0]: must be greater than 1, ")
            && message.ends_with(", and 3 more]"),
        "{message}"
    );
    server.end().await;
}

#[tokio::test]
async fn a_panicking_handler_refuses_its_own_request_only() {
    let server = Server::start(webhooks()).await;
    let (status, answer) = server.post("/validate--v1-pod", &body(&review())).await;
    assert_eq!(status, 200);
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["status"]["code"], 500);
    assert!(!answer.to_string().contains("broken invariant"));
    assert_eq!(server.post("/mutate-batch-v1-job", &body(&review())).await.0, 200);
    server.end().await;
}

/// The handler is called only after its preparation has ended, for small and for large reviews.
#[tokio::test]
async fn the_handler_is_asked_when_its_preparation_has_ended() {
    let brought = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (bring, look) = (brought.clone(), brought.clone());
    let preparation: Preparation = Arc::new(move |request| {
        let (name, bring) = (request.name.clone(), bring.clone());
        Box::pin(async move {
            tokio::task::yield_now().await;
            match name.as_str() {
                "unreadable" => Err("queue main cannot be read".into()),
                "forbidden" => Err(Refusal::Forbidden("User alice may not".to_owned())),
                "broken" => panic!("broken invariant"),
                _ => {
                    bring.lock().unwrap().push(name);
                    Ok(())
                }
            }
        })
    });
    let mut webhooks = Webhooks::default();
    webhooks
        .prepared_admission(
            "/mutate",
            preparation,
            Arc::new(move |request| {
                assert_eq!(look.lock().unwrap().last(), Some(&request.name));
                allowed(&request)
            }),
        )
        .unwrap();
    let server = Server::start(webhooks).await;
    for (name, filler, code, message) in [
        ("small", 0, None, ""),
        ("large", LARGE_BYTES, None, ""),
        ("unreadable", 0, Some(500), "queue main cannot be read"),
        ("forbidden", 0, Some(403), "User alice may not"),
        (
            "broken",
            0,
            Some(500),
            "internal error in the webhook /mutate; the request was refused",
        ),
    ] {
        let mut review = review();
        review["request"]["name"] = name.into();
        review["request"]["object"]["spec"]["filler"] = "x".repeat(filler).into();
        let (status, answer) = server.post("/mutate", &body(&review)).await;
        let response = &answer["response"];
        assert_eq!(
            (status, &response["allowed"]),
            (200, &code.is_none().into()),
            "{name}"
        );
        if code.is_some() {
            assert_eq!(response["status"]["code"], json!(code));
            assert_eq!(response["status"]["message"], message);
        }
    }
    assert_eq!(*brought.lock().unwrap(), ["small", "large"]);
    server.end().await;
}

#[tokio::test]
async fn conversion_reviews_are_answered() {
    let server = Server::start(webhooks()).await;
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-2", "desiredAPIVersion": "g/v2", "objects": [{"apiVersion": "g/v1", "kind": "A"}]},
    });
    let (status, answer) = server.post("/convert", &body(&review)).await;
    assert_eq!((status, &answer["response"]["uid"]), (200, &"u-2".into()));
    assert_eq!(answer["response"]["result"]["status"], "Success");
    assert_eq!(
        answer["response"]["convertedObjects"],
        json!([{"apiVersion": "g/v2", "kind": "A"}])
    );
    server.end().await;
}

#[tokio::test]
async fn garbage_is_400_with_a_clear_text_and_unknown_paths_are_404() {
    let server = Server::start(webhooks()).await;
    let (status, answer) = server.post("/mutate-batch-v1-job", b"{nonsense").await;
    assert_eq!(status, 400);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .starts_with("the body is not an AdmissionReview"),
        "{answer}"
    );
    let mut old = review();
    old["apiVersion"] = "admission.k8s.io/v1beta1".into();
    let (status, answer) = server.post("/mutate-batch-v1-job", &body(&old)).await;
    assert_eq!(status, 400);
    let text = "expected admission.k8s.io/v1 AdmissionReview, got admission.k8s.io/v1beta1 AdmissionReview";
    assert_eq!(answer["message"], text);
    let mut empty = review();
    empty.as_object_mut().unwrap().remove("request");
    let (status, answer) = server.post("/mutate-batch-v1-job", &body(&empty)).await;
    assert_eq!(
        (status, &answer["message"]),
        (400, &"the AdmissionReview has no request".into())
    );
    let (status, answer) = server.post("/mutate-nothing", &body(&review())).await;
    assert_eq!(status, 404);
    assert_eq!(
        (&answer["kind"], &answer["reason"], &answer["code"]),
        (&"Status".into(), &"NotFound".into(), &404.into())
    );
    let (status, answer) = server.send("GET", "/convert", b"").await;
    assert_eq!((status, &answer["reason"]), (405, &"MethodNotAllowed".into()));
    server.end().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let server = Server::start(webhooks()).await;
    let (status, answer) = server
        .post("/mutate-batch-v1-job", &vec![b' '; BODY_BYTES_MAX + 1])
        .await;
    assert_eq!(
        (status, &answer["reason"]),
        (413, &"RequestEntityTooLarge".into())
    );
    let mut large = review();
    large["request"]["object"]["spec"]["filler"] = "x".repeat(BODY_BYTES_MAX / 2).into();
    assert_eq!(server.post("/validate-batch-v1-job", &body(&large)).await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn only_json_is_taken() {
    let server = Server::start(webhooks()).await;
    for content in ["text/plain", "application/yaml", ""] {
        let (status, answer) = server
            .send_as(content, "POST", "/mutate-batch-v1-job", &body(&review()))
            .await;
        assert_eq!((status, &answer["reason"]), (415, &"UnsupportedMediaType".into()));
        let text = format!("/mutate-batch-v1-job takes application/json, not {content:?}");
        assert_eq!(answer["message"], text);
    }
    let with_charset = "application/json; charset=utf-8";
    let (status, _) = server
        .send_as(with_charset, "POST", "/mutate-batch-v1-job", &body(&review()))
        .await;
    assert_eq!(status, 200);
    server.end().await;
}

#[tokio::test]
async fn an_answer_that_could_not_be_matched_is_refused() {
    let server = Server::start(webhooks()).await;
    let mut nameless = review();
    nameless["request"]["uid"] = "".into();
    let (status, answer) = server.post("/mutate-batch-v1-job", &body(&nameless)).await;
    assert_eq!(status, 400);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .starts_with("request.uid of the AdmissionReview is empty")
    );
    nameless["request"]["uid"] = 7.into();
    assert_eq!(server.post("/mutate-batch-v1-job", &body(&nameless)).await.0, 400);
    let (status, answer) = server.post("/convert", &body(&review())).await;
    assert_eq!(status, 400);
    let text = "expected apiextensions.k8s.io/v1 ConversionReview, got admission.k8s.io/v1 AdmissionReview";
    assert_eq!(answer["message"], text);
    server.end().await;
}

/// Why: the API server sends all objects of a list in one conversion review.
#[tokio::test]
async fn a_conversion_of_a_long_list_may_be_larger_than_an_admission() {
    let server = Server::start(webhooks()).await;
    let object = json!({"apiVersion": "g/v1", "kind": "A", "filler": "x".repeat(1 << 20)});
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-3", "desiredAPIVersion": "g/v2", "objects": vec![object; 10]},
    });
    let (status, answer) = server.post("/convert", &body(&review)).await;
    assert_eq!(status, 200);
    assert_eq!(
        answer["response"]["convertedObjects"].as_array().unwrap().len(),
        10
    );
    server.end().await;
}

#[tokio::test]
async fn a_swapped_certificate_is_seen_by_the_next_connection() {
    let server = Server::start(webhooks()).await;
    let old = server.bundle.ca_bundle();
    let first = server.connect(&old).await.unwrap();
    let rotated = tls::renew(
        Rotation::RenewAll,
        now(),
        &server.bundle,
        &names(),
        &Lifetimes::default(),
    )
    .unwrap();
    server.slot.fill(rotated.certified_key().unwrap());
    assert!(
        server.connect(&old).await.is_err(),
        "the old authority alone accepted the new certificate"
    );
    let second = server.connect(&rotated.ca_bundle()).await.unwrap();
    let leaf = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    assert_ne!(leaf(&first), leaf(&second));
    drop((first, second));
    server.end().await;
}

#[tokio::test]
async fn both_authorities_in_the_ca_bundle_let_clients_through_before_and_after_the_swap() {
    let server = Server::start(webhooks()).await;
    let rotated = tls::renew(
        Rotation::RenewAll,
        now(),
        &server.bundle,
        &names(),
        &Lifetimes::default(),
    )
    .unwrap();
    server.connect(&rotated.ca_bundle()).await.unwrap();
    server.slot.fill(rotated.certified_key().unwrap());
    server.connect(&rotated.ca_bundle()).await.unwrap();
    server.end().await;
}

/// Spec: jobs 12.9
#[test]
fn only_what_an_api_server_asks_a_kubelet_names_a_pod() {
    for (path, pod) in [
        ("/containerLogs/ns/p/main", Some(("ns", "p"))),
        ("/exec/ns/p/main", Some(("ns", "p"))),
        ("/attach/ns/p/main", Some(("ns", "p"))),
        ("/portForward/ns/p", Some(("ns", "p"))),
        ("/containerLogs/ns", None),
        ("/mutate--v1-pod", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(asked_of_kubelet(path), pod, "{path}");
    }
}
