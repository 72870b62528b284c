//! A link that reads what it carries: some requests are refused, or answered late or never; the others just go on to the server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What goes wrong with which requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// All that only look are answered with 500: lists, watches, single objects, the server's version.
    Reads,
    /// All that could change something are, and reviews.
    Writes,
    /// Those are done at once, and the answer comes so much later.
    LateWrites(Duration),
    /// Those are done, and for about a third the connection is closed instead of an answer.
    LostAnswers,
    /// All of those are put off for a second (429), as by a server that has no time.
    Busy,
}

impl Failing {
    /// What is answered in the server's place.
    fn refusal(self, method: &Method) -> Option<Refusal> {
        match self {
            Self::Reads if only_looks(method) => Some(refusal(StatusCode::INTERNAL_SERVER_ERROR)),
            Self::Writes if !only_looks(method) => Some(refusal(StatusCode::INTERNAL_SERVER_ERROR)),
            Self::Busy if !only_looks(method) => Some(refusal(StatusCode::TOO_MANY_REQUESTS)),
            Self::Reads | Self::Writes | Self::Busy | Self::LateWrites(_) | Self::LostAnswers => None,
        }
    }

    fn delay(self, method: &Method) -> Duration {
        match self {
            Self::LateWrites(delay) if !only_looks(method) => delay,
            Self::Reads | Self::Writes | Self::Busy | Self::LateWrites(_) | Self::LostAnswers => {
                Duration::ZERO
            }
        }
    }
}

type Refusal = Response<Either<Incoming, Full<Bytes>>>;

fn only_looks(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// What it takes to be the server for its clients, and a client for the server.
#[derive(Clone)]
pub(super) struct Terminal {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// How many answers to writes came by that might be lost.
    losable: Arc<AtomicUsize>,
}

impl Terminal {
    /// From PEM files: the certificate that the server itself shows, its key, and its authority.
    pub(super) fn read(cert: &Path, key: &Path, authority: &Path) -> std::io::Result<Self> {
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
            .map_err(std::io::Error::other)?
            .collect::<Result<_, _>>()
            .map_err(std::io::Error::other)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(std::io::Error::other)?;
        let server = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(std::io::Error::other)?;
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(authority).map_err(std::io::Error::other)?)
            .map_err(std::io::Error::other)?;
        let client = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            losable: Arc::default(),
        })
    }

    fn is_lost(&self, failing: Failing, method: &Method) -> bool {
        if failing != Failing::LostAnswers || only_looks(method) {
            return false;
        }
        // Why not each third: writes that come in turn would be lost for ever, and others never.
        let scattered = self
            .losable
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B9)
            >> 7;
        scattered.is_multiple_of(3)
    }

    /// Serves one connection until an end closes it.
    pub(super) async fn serve(
        &self,
        client: &mut TcpStream,
        server: SocketAddr,
        failing: Failing,
    ) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let client = self.acceptor.accept(client).await?;
        let upstream = TcpStream::connect(server).await?;
        upstream.set_nodelay(true)?;
        let name = ServerName::from(server.ip());
        let upstream = self.connector.connect(name, upstream).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(upstream));
        let (sender, connection) = handshake.await.map_err(std::io::Error::other)?;
        // Why a lock that is never waited for: without HTTP/2 a connection carries one request after the other.
        let sender = &Mutex::new(sender);
        let service = service_fn(|request: Request<Incoming>| async move {
            if let Some(refusal) = failing.refusal(request.method()) {
                return Ok(refusal);
            }
            let delay = failing.delay(request.method());
            let is_lost = self.is_lost(failing, request.method());
            let answer = sender.lock().await.send_request(request).await;
            let answer = answer.map_err(std::io::Error::other)?;
            tokio::time::sleep(delay).await;
            if is_lost {
                return Err(std::io::Error::other("lost on the way"));
            }
            Ok(answer.map(Either::Left))
        });
        let serving =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(client), service);
        tokio::select! {
            biased;
            ended = connection => ended,
            ended = serving => ended,
        }
        .map_err(std::io::Error::other)
    }
}

/// What an API server says that cannot do it.
fn refusal(code: StatusCode) -> Refusal {
    let reason = if code == StatusCode::TOO_MANY_REQUESTS {
        "TooManyRequests"
    } else {
        "InternalError"
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "planted on the way",
    });
    let mut answer = Response::new(Either::Right(Full::from(status.to_string())));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}
