//! The server over HTTPS on loopback, for clients outside this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::failure::Failure;
use crate::request::User;
use crate::server::{Server, render};

/// Connections at a time; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 1_000;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No certificate could be made.
    #[error("making the certificates of the API server")]
    Certificate(#[source] rcgen::Error),
    /// The certificate could not be used.
    #[error("preparing TLS for the API server")]
    Tls(#[source] rustls::Error),
    /// The port is not free.
    #[error("listening on 127.0.0.1:{port}")]
    Bind {
        /// The port.
        port: u16,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

/// A server that listens. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    ca_pem: String,
    tasks: JoinSet<()>,
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of its authority, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Waits until the server stops listening. That happens only if the listener breaks.
    pub async fn wait(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Server {
    /// Listens on 127.0.0.1 with a fresh certificate; port 0 is any free one. Users come with tokens from
    /// [`Server::issue_token`] or of service accounts. Call inside a tokio runtime.
    pub async fn listen(&self, port: u16) -> Result<Listening, Error> {
        let bind = |source| Error::Bind { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let (ca_pem, acceptor) = certificates()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(self.clone(), listener, acceptor));
        Ok(Listening {
            address,
            ca_pem,
            tasks,
        })
    }
}

fn certificates() -> Result<(String, TlsAcceptor), Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(Error::Certificate)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "roadstead-apiserver");
    let key = KeyPair::generate().map_err(Error::Certificate)?;
    let authority = CertifiedIssuer::self_signed(params, key).map_err(Error::Certificate)?;
    let names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "kubernetes.default.svc".to_owned(),
    ];
    let mut params = CertificateParams::new(names).map_err(Error::Certificate)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(Error::Certificate)?;
    let certificate = params.signed_by(&key, &authority).map_err(Error::Certificate)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .map_err(Error::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((authority.pem(), TlsAcceptor::from(Arc::new(config))))
}

async fn accept(server: Server, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                let Ok((stream, _)) = accepted else { continue };
                while connections.try_join_next().is_some() {}
                let (server, acceptor) = (server.clone(), acceptor.clone());
                // Why ignored: without this option answers are only slower.
                let _ = stream.set_nodelay(true);
                connections.spawn(async move {
                    // Why silent: a client that breaks off its handshake is no error of the server.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(server.clone(), request));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
                });
            }
        }
    }
}

async fn answer(
    server: Server,
    request: Request<Incoming>,
) -> Result<http::Response<crate::server::Body>, crate::service::Error> {
    let header = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match server.authenticate(header) {
        Some(user) => server.service(user).call(request).await,
        None => Ok(render(Err(Failure::unauthorized()), &[])),
    }
}

impl Server {
    /// A kubeconfig for a listening server and a user, with a token that is made for it. Contains a secret.
    pub fn kubeconfig(&self, listening: &Listening, user: User) -> String {
        use base64::Engine as _;
        let token = self.issue_token(user);
        let ca = base64::engine::general_purpose::STANDARD.encode(listening.ca_pem());
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": {"server": listening.url(), "certificate-authority-data": ca}}],
            "users": [{"name": "embedded", "user": {"token": token}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
        });
        config.to_string()
    }
}
