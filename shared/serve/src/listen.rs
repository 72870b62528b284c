//! TCP listeners and the HTTP/1.1 server behind all of them, plain or TLS.
//!
//! Invariant: after the token is cancelled no new connection is accepted, and [`Listener::serve`] returns after at most
//! [`DRAIN_MAX`], with running requests finished or dropped.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use roadstead_api::config::BindAddress;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::delegated::PeerCertificates;

/// Limit: connections of one listener; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 1024;
/// Limit: duration of a TLS handshake.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Limit: time for the head of a request to arrive; idle connections end with it too.
pub const HEAD_MAX: Duration = Duration::from_secs(90);
/// Limit: duration of one request, body included. The API server waits 30 s at most.
pub const REQUEST_MAX: Duration = Duration::from_secs(30);
/// Limit: how long running requests may go on after the stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(3);
/// Pause after a failed accept, which is nearly always a lack of file descriptors.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(100);

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{name} cannot listen on {address}")]
pub struct Error {
    name: &'static str,
    address: String,
    #[source]
    source: io::Error,
}

/// An open TCP port.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    tcp: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Opens the port and logs its address; `None` when the address is disabled. An empty host listens on every address of the
    /// machine, IPv6 included where there is IPv6.
    ///
    /// # Errors
    /// When the port is taken, not allowed, or the host is not one of this machine's.
    pub async fn bind(name: &'static str, address: &BindAddress) -> Result<Option<Self>, Error> {
        let BindAddress::Listen { host, port } = address else {
            tracing::info!(listener = name, "switched off");
            return Ok(None);
        };
        let failed = |source| Error {
            name,
            address: address.to_string(),
            source,
        };
        let tcp = if host.is_empty() {
            bind_all(*port).await
        } else {
            TcpListener::bind((host.as_str(), *port)).await
        };
        let tcp = tcp.map_err(failed)?;
        let bound = tcp.local_addr().map_err(failed)?;
        tracing::info!(listener = name, address = %bound, "listening");
        Ok(Some(Self {
            name,
            tcp,
            address: bound,
        }))
    }

    /// The bound address; with port 0 it shows which port the system chose.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` is cancelled; over TLS when a configuration is given.
    pub async fn serve(self, router: Router, tls: Option<Arc<ServerConfig>>, stop: CancellationToken) {
        let router = router.layer(from_fn(limit_time));
        let acceptor = tls.map(TlsAcceptor::from);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, self.tcp.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_ended) = connections.join_next() => continue,
                next = next => next,
            };
            match accepted {
                Ok((stream, _peer)) => {
                    let connection = connection(stream, acceptor.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(listener = self.name, %error, "connection could not be taken");
                    sleep(ACCEPT_RETRY_WAIT).await;
                }
            }
        }
        drop(self.tcp);
        let drained = timeout(DRAIN_MAX, async {
            while connections.join_next().await.is_some() {}
        })
        .await;
        if drained.is_err() {
            tracing::warn!(
                listener = self.name,
                open = connections.len(),
                "requests cut off at the end"
            );
        }
    }
}

async fn bind_all(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_no_ipv6) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
        bound => bound,
    }
}

async fn limit_time(request: Request, next: Next) -> Response {
    match timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response(),
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let Some(acceptor) = acceptor else {
        return answer(stream, router, stop).await;
    };
    let handshake = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        handshake = timeout(HANDSHAKE_MAX, acceptor.accept(stream)) => handshake,
    };
    match handshake {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let router = if certificates.is_empty() {
                router
            } else {
                router.layer(Extension(PeerCertificates(certificates.into())))
            };
            answer(stream, router, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_elapsed) => tracing::debug!("TLS handshake took too long"),
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, stop: CancellationToken) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    let mut serving = pin!(server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

#[cfg(test)]
mod tests;
