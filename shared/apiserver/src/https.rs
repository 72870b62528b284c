//! Calls webhooks in other processes over HTTPS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::{Host, Url};

use crate::caller::{Caller, WebhookCall};

/// Bytes of one answer. A conversion may answer with a whole list.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Connections that are kept open to one webhook server.
const IDLE_MAX: usize = 8;
/// Webhook servers to which connections are kept; when there are more, all connections are dropped.
const TARGETS_MAX: usize = 64;
const PORT: u16 = 443;

/// Calls webhooks over HTTPS. Clones share their routes and connections.
///
/// A webhook is trusted by the `caBundle` of its configuration and by nothing else. A webhook behind a Service is reached
/// at the address that [`HttpsCaller::route`] gave for it, under the name `NAME.NAMESPACE.svc`.
#[derive(Clone, Default)]
pub struct HttpsCaller(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By namespace and name.
    services: Mutex<BTreeMap<(String, String), SocketAddr>>,
    targets: Mutex<BTreeMap<Target, Kept>>,
}

impl std::fmt::Debug for HttpsCaller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpsCaller").finish_non_exhaustive()
    }
}

/// A webhook server and the authorities by which one configuration trusts it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    address: SocketAddr,
    name: String,
    ca_bundle: Vec<u8>,
}

struct Kept {
    tls: Arc<ClientConfig>,
    idle: Vec<Open>,
}

/// The future that drives one connection.
type Driver = http1::Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// One open connection. It is not polled while it is idle.
struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpsCaller {
    /// Reaches a Service at this address from now on, whatever its port. Replaces an earlier address.
    pub fn route(&self, namespace: &str, name: &str, address: SocketAddr) {
        let service = (namespace.to_owned(), name.to_owned());
        lock(&self.0.services).insert(service, address);
    }
}

impl Caller for HttpsCaller {
    fn call(&self, call: WebhookCall) -> BoxFuture<'static, Result<Value, String>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let separator = if call.url.contains('?') { '&' } else { '?' };
            let shown = format!("{}{separator}timeout={}s", call.url, call.timeout.as_secs());
            let answered = inner.post(&shown, &call).await;
            answered.map_err(|why| format!("failed to call webhook: Post {shown:?}: {why}"))
        })
    }
}

impl Inner {
    async fn post(&self, url: &str, call: &WebhookCall) -> Result<Value, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        if url.scheme() != "https" {
            return Err("a webhook is called over https only".to_owned());
        }
        let target = self.target(&url, call.ca_bundle.clone()).await?;
        let body = serde_json::to_vec(&call.review).map_err(|error| error.to_string())?;
        let path = url.query().map_or_else(
            || url.path().to_owned(),
            |query| format!("{}?{query}", url.path()),
        );
        let request = Request::post(path)
            .header(header::HOST, url.host_str().unwrap_or_default())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        // Why a second try: the webhook may have closed the idle connection, and a review has no effects.
        if let Some(open) = self.take(&target)
            && let Ok(answer) = self.exchange(&target, open, request.clone()).await
        {
            return answer;
        }
        let open = self.connect(&target).await?;
        self.exchange(&target, open, request).await?
    }

    async fn target(&self, url: &Url, ca_bundle: Vec<u8>) -> Result<Target, String> {
        let port = url.port().unwrap_or(PORT);
        let name = match url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err("the URL names no host".to_owned()),
        };
        let service = name.strip_suffix(".svc").and_then(|name| name.split_once('.'));
        let address = if let Some((service, namespace)) = service {
            let key = (namespace.to_owned(), service.to_owned());
            let known = lock(&self.services).get(&key).copied();
            known.ok_or_else(|| {
                format!("no address is known for the Service {namespace}/{service}: tell the embedded server with HttpsCaller::route")
            })?
        } else {
            let found = tokio::net::lookup_host((name.as_str(), port)).await;
            let found = found.map_err(|error| error.to_string())?.next();
            found.ok_or_else(|| format!("no address for {name}"))?
        };
        Ok(Target {
            address,
            name,
            ca_bundle,
        })
    }

    fn take(&self, target: &Target) -> Option<Open> {
        lock(&self.targets).get_mut(target)?.idle.pop()
    }

    fn tls(&self, target: &Target) -> Result<Arc<ClientConfig>, String> {
        let mut targets = lock(&self.targets);
        if let Some(kept) = targets.get(target) {
            return Ok(Arc::clone(&kept.tls));
        }
        let tls = Arc::new(trusting(&target.ca_bundle)?);
        if targets.len() >= TARGETS_MAX {
            targets.clear();
        }
        let kept = Kept {
            tls: Arc::clone(&tls),
            idle: Vec::new(),
        };
        targets.insert(target.clone(), kept);
        Ok(tls)
    }

    async fn connect(&self, target: &Target) -> Result<Open, String> {
        let name = ServerName::try_from(target.name.clone()).map_err(|error| error.to_string())?;
        let tls = TlsConnector::from(self.tls(target)?);
        let stream = TcpStream::connect(target.address).await;
        let stream = stream.map_err(|error| format!("dial tcp {}: {error}", target.address))?;
        // Why: a review and its answer are one small message each way.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, stream).await;
        let stream = stream.map_err(|error| format!("tls: {error}"))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Open {
            sender,
            driver: Box::pin(driver),
        })
    }

    /// Sends one request and reads its answer. The outer error is the connection's, the inner one the answer's.
    async fn exchange(
        &self,
        target: &Target,
        open: Open,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Value, String>, String> {
        let Open {
            mut sender,
            mut driver,
        } = open;
        let broken = |error: hyper::Error| error.to_string();
        let ask = async {
            sender.ready().await.map_err(broken)?;
            let answer = sender.send_request(request).await.map_err(broken)?;
            let code = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((code, body.to_bytes()))
        };
        let (code, body) = {
            let ask = pin!(ask);
            match select(ask, driver.as_mut()).await {
                Either::Left((answer, _)) => answer?,
                // Why awaited: the answer may have arrived before the connection ended.
                Either::Right((_ended, ask)) => ask.await?,
            }
        };
        if sender.is_ready()
            && let Some(kept) = lock(&self.targets).get_mut(target)
            && kept.idle.len() < IDLE_MAX
        {
            kept.idle.push(Open { sender, driver });
        }
        if !code.is_success() {
            return Ok(Err(format!("the webhook answered with {code}")));
        }
        Ok(
            serde_json::from_slice(&body)
                .map_err(|error| format!("the webhook's answer is no JSON: {error}")),
        )
    }
}

/// A client that trusts these authorities only.
fn trusting(ca_bundle: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle) {
        let certificate = certificate.map_err(|error| format!("unreadable caBundle: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("unusable caBundle: {error}"))?;
    }
    if roots.is_empty() {
        return Err("no caBundle: the embedded server trusts no other authorities".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests;
