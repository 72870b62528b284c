//! A link that reads requests. Some are answered with 500, or late, or not at all, or their watch's events are
//! missing; the others go on to the server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::dates;
use super::events::{self, Carried};
use super::fuse::{Fuse, Side};

/// A fault, and the requests that it affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// All reads are answered with 500: lists, watches, single objects, the server's version.
    Reads,
    /// All writes and reviews are answered with 500.
    Writes,
    /// Writes are carried out at once, and their answers are delayed by this.
    LateWrites(Duration),
    /// Answers to requests for a page of a list are delayed by this.
    LateLists(Duration),
    /// Writes are carried out, and for about every second one the connection is cut instead of the answer.
    LostAnswers,
    /// Creations are answered with 429 and `Retry-After` of this many seconds.
    Busy(u32),
    /// Every answer is delayed by up to this.
    Slow(Duration),
    /// Watches are opened and stay silent: no event, no bookmark, no end.
    SilentWatches,
    /// Watches leave out events whose line contains this text.
    LostEvents(&'static str),
    /// Every time in every answer is shifted by this many seconds.
    Misdated(i64),
    /// No fault, but a fuse counts requests.
    Counted,
}

/// The multiples of this number modulo 2^32 are spread evenly.
const GOLDEN: u32 = 0x9E37_79B9;

impl Failing {
    /// The answer in place of the server's, if the fault has one.
    fn refusal(self) -> Option<Response<Carried>> {
        match self {
            Self::Reads | Self::Writes => Some(refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
            Self::Busy(seconds) => {
                let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests");
                answer.headers_mut().insert(RETRY_AFTER, seconds.into());
                Some(answer)
            }
            Self::LateWrites(_)
            | Self::LateLists(_)
            | Self::LostAnswers
            | Self::Slow(_)
            | Self::SilentWatches
            | Self::LostEvents(_)
            | Self::Misdated(_)
            | Self::Counted => None,
        }
    }

    /// Whether the answer to the `number`-th affected request is lost.
    fn loses_answer(self, number: u32) -> bool {
        // Why not every second one: a client that always sends two requests in turn would always lose the same one.
        self == Self::LostAnswers && number.wrapping_mul(GOLDEN) < u32::MAX / 2
    }

    /// Whether the fault affects this request.
    fn concerns<B>(self, request: &Request<B>) -> bool {
        let method = request.method();
        match self {
            Self::Reads => only_looks(method),
            Self::LateLists(_) => is_for_a_page(request),
            Self::Writes | Self::LateWrites(_) | Self::LostAnswers => !only_looks(method),
            Self::Busy(_) => method == Method::POST,
            Self::Slow(_) | Self::Misdated(_) => true,
            Self::SilentWatches => events::is_asked_for(request),
            // Why none: for lost events each event counts instead, and a fuse counts by itself.
            Self::LostEvents(_) | Self::Counted => false,
        }
    }

    /// The events of a watch, after the fault.
    fn events(self, events: Incoming, failed: &Arc<AtomicU32>) -> Carried {
        if self == Self::SilentWatches {
            return events::none(events);
        }
        let Self::LostEvents(text) = self else {
            return events.boxed_unsync();
        };
        let failed = failed.clone();
        let left_out = move || {
            failed.fetch_add(1, Ordering::Relaxed);
        };
        events::without(events, text, left_out)
    }

    fn delay<B>(self, request: &Request<B>, number: u32) -> Duration {
        match self {
            Self::LateWrites(delay) if !only_looks(request.method()) => delay,
            Self::LateLists(delay) if is_for_a_page(request) => delay,
            Self::Slow(most) => most.mul_f64(f64::from(number.wrapping_mul(GOLDEN)) / f64::from(u32::MAX)),
            Self::Reads
            | Self::Writes
            | Self::LateWrites(_)
            | Self::LateLists(_)
            | Self::LostAnswers
            | Self::Busy(_)
            | Self::SilentWatches
            | Self::LostEvents(_)
            | Self::Misdated(_)
            | Self::Counted => Duration::ZERO,
        }
    }
}

/// Whether a request is for a page of a list: only lists have a `limit`.
fn is_for_a_page<B>(request: &Request<B>) -> bool {
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    parameters.any(|parameter| parameter.starts_with("limit="))
}

fn only_looks(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// The TLS settings to act as the server for clients, and as a client for the server.
#[derive(Clone)]
pub(super) struct Terminal {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// How many requests or events were affected.
    failed: Arc<AtomicU32>,
    fuse: Arc<std::sync::Mutex<Arc<Fuse>>>,
}

impl Terminal {
    /// Reads PEM files: the server's certificate, its key, and its authority.
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
            failed: Arc::default(),
            fuse: Arc::new(std::sync::Mutex::new(Fuse::unlit())),
        })
    }

    /// How many requests or events were affected so far.
    pub(super) fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn put_in(&self, fuse: Arc<Fuse>) {
        *self.fuse.lock().unwrap_or_else(PoisonError::into_inner) = fuse;
    }

    fn fuse(&self) -> Arc<Fuse> {
        self.fuse.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves one connection until a side closes it.
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
        // Why no wait for this lock: without HTTP/2 a connection carries one request after the other.
        let sender = &Mutex::new(sender);
        let service = service_fn(|request: Request<Incoming>| async move {
            let concerned = failing.concerns(&request);
            let watches = events::is_asked_for(&request);
            let number = self.failed.fetch_add(u32::from(concerned), Ordering::Relaxed);
            if let Some(refusal) = failing.refusal().filter(|_| concerned) {
                return Ok(refusal);
            }
            let fuse = self.fuse();
            let chosen = (failing == Failing::Counted)
                .then(|| fuse.count(&request))
                .flatten();
            if fuse.burns(chosen.as_deref(), Side::Before) {
                return Err(lost("the request"));
            }
            let delay = failing.delay(&request, number);
            let is_lost = concerned && failing.loses_answer(number);
            let answer = sender.lock().await.send_request(request).await;
            let answer = answer.map_err(std::io::Error::other)?;
            if fuse.burns(chosen.as_deref(), Side::After) || is_lost {
                return Err(lost("the answer"));
            }
            tokio::time::sleep(delay).await;
            let tells = watches && events::follow(&answer);
            Ok::<_, std::io::Error>(answer.map(|body| {
                if let Failing::Misdated(seconds) = failing {
                    dates::moved(body, seconds)
                } else if tells {
                    failing.events(body, &self.failed)
                } else {
                    body.boxed_unsync()
                }
            }))
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

/// Why an error: for an error the proxy's server closes the connection without an answer.
fn lost(what: &str) -> std::io::Error {
    std::io::Error::other(format!("{what} is lost"))
}

/// The answer of a failing API server.
fn refusal(code: StatusCode, reason: &str) -> Response<Carried> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "planted on the way",
    });
    let body = Full::from(status.to_string()).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}
