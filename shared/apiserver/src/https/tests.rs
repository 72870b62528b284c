//! Calls to a webhook server on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A webhook server that counts its connections.
struct Webhook {
    address: SocketAddr,
    ca: Vec<u8>,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

async fn webhook(name: &str, code: u16) -> Webhook {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&connections);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
            open.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                seen.fetch_add(1, Ordering::SeqCst);
                let service = service_fn(async |request: Request<hyper::body::Incoming>| {
                    let path = request.uri().to_string();
                    let closing = path.starts_with("/close");
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let asked: Value = serde_json::from_slice(&body).unwrap();
                    let answer = json!({"path": path, "asked": asked}).to_string();
                    let mut response = http::Response::builder().status(code);
                    if closing {
                        response = response.header("connection", "close");
                    }
                    response.body(Full::new(Bytes::from(answer)))
                });
                let builder = hyper::server::conn::http1::Builder::new();
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    Webhook {
        address,
        ca: certificate.pem().into_bytes(),
        connections,
        _tasks: tasks,
    }
}

fn question(url: String, ca_bundle: &[u8]) -> WebhookCall {
    WebhookCall {
        url,
        ca_bundle: ca_bundle.to_vec(),
        review: json!({"n": 1}),
        timeout: Duration::from_secs(7),
    }
}

#[tokio::test]
async fn a_webhook_is_called_by_its_url_and_its_connection_is_used_again() {
    let server = webhook("127.0.0.1", 200).await;
    let caller = HttpsCaller::default();
    let url = format!("https://{}/validate-x", server.address);
    for _ in 0..3 {
        let answer = caller.call(question(url.clone(), &server.ca)).await.unwrap();
        assert_eq!(
            answer,
            json!({"path": "/validate-x?timeout=7s", "asked": {"n": 1}})
        );
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let closing = format!("https://{}/close", server.address);
    for _ in 0..3 {
        assert!(caller.call(question(closing.clone(), &server.ca)).await.is_ok());
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_called_where_the_service_was_routed() {
    let server = webhook("hook.team.svc", 200).await;
    let caller = HttpsCaller::default();
    let call = || question("https://hook.team.svc:443/convert".to_owned(), &server.ca);
    let refused = caller.call(call()).await.unwrap_err();
    assert!(
        refused.contains("no address is known for the Service team/hook"),
        "{refused}"
    );
    caller.route("team", "hook", server.address);
    let answer = caller.call(call()).await.unwrap();
    assert_eq!(answer["path"], "/convert?timeout=7s");
}

#[tokio::test]
async fn a_webhook_that_cannot_be_trusted_or_reached_says_why() {
    let server = webhook("127.0.0.1", 200).await;
    let other = webhook("127.0.0.1", 500).await;
    let named = webhook("localhost", 200).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = gone.local_addr().unwrap();
    drop(gone);
    let at = |address: SocketAddr| format!("https://{address}/x");
    let cases = [
        (at(server.address), other.ca.as_slice(), "tls: "),
        (at(named.address), named.ca.as_slice(), "tls: "),
        (at(server.address), b"", "no caBundle"),
        (at(server.address), b"text", "no caBundle"),
        (at(other.address), other.ca.as_slice(), "answered with 500"),
        (at(nobody), server.ca.as_slice(), "dial tcp 127.0.0.1"),
        (
            at(server.address).replace("https", "http"),
            server.ca.as_slice(),
            "over https only",
        ),
        ("nonsense".to_owned(), b"", "relative URL"),
    ];
    for (url, ca, says) in cases {
        let refused = HttpsCaller::default()
            .call(question(url.clone(), ca))
            .await
            .unwrap_err();
        assert!(
            refused.starts_with(&format!("failed to call webhook: Post \"{url}?timeout=7s\": ")),
            "{refused}"
        );
        assert!(refused.contains(says), "{says}: {refused}");
    }
}
