//! Clients: one per API server, with deadlines, without hidden retries (but for commands), without proxies from the environment.
//!
//! Invariant: nothing here runs a command, reads a file or follows a proxy for a *worker*; only the operator's own
//! kubeconfig of the local cluster is read from disk (`spec/safety.md S1, S2, S4`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedContext};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::SecretString;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use crate::bound::Bounded;
use crate::date::ServerTime;
use crate::patience::Patient;
use crate::permit::{Checked, Denied, Permit};
pub use crate::stall::ANSWER_TIMEOUT;

/// How long a TCP and TLS connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle pooled connection is kept.
const POOL_IDLE: Duration = Duration::from_mins(1);
/// How long a connection may be silent before a keep-alive probe is sent, how long each answer is waited for, and how many may be
/// missing.
///
/// Why: a watch is silent for up to a minute between two bookmarks. Firewalls and load balancers drop silent connections without
/// notice. Four probes a minute prevent that. A connection that is lost all the same is noticed within half a minute, as fast as
/// by the heartbeats and long before a silent watch is given up.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator's kubeconfig could not be used.
    #[error("the kubeconfig {path} cannot be used")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: Unusable,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("no cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster")]
    NoCluster {
        /// Why the in-cluster configuration does not work.
        #[source]
        source: kube::config::InClusterError,
    },
    /// `server` is not a URL.
    #[error("server is not a usable URL")]
    Server {
        /// What the parser says.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The certificate authority is not PEM.
    #[error("certificate-authority-data holds no PEM certificate")]
    Authority,
    /// The client could not be built from otherwise well-formed settings.
    #[error(
        "building the client failed: check certificate-authority-data, client-certificate-data and client-key-data"
    )]
    Build {
        /// What the TLS or HTTP layer says.
        #[source]
        source: kube::Error,
    },
    /// The user agent holds characters that HTTP forbids.
    #[error("the user agent is not a valid header value")]
    UserAgent,
}

/// What is wrong with a kubeconfig.
///
/// Invariant: it quotes no line of the file, which may hold a token or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It is no YAML, or a field has the wrong type.
    #[error("it is not a kubeconfig: {0}")]
    Malformed(String),
    /// The file has no such context, or names no current context.
    #[error("{wanted}; it has: {known}")]
    NoContext {
        /// What is missing, as a phrase.
        wanted: String,
        /// The names of the contexts in the file, as text.
        known: String,
    },
    /// The file lacks a part that its context names, or that part cannot be used.
    #[error("{0}")]
    Content(String),
}

impl Unusable {
    fn of(error: &KubeconfigError, contexts: &[NamedContext]) -> Self {
        if let KubeconfigError::ReadConfig(cause, _) = error {
            return Self::Unreadable(cause.to_string());
        }
        if let KubeconfigError::Parse(cause) = error {
            // Why only the first line, without the parts in double quotes: the rest shows the text around the fault, which may
            // be a secret.
            let text = cause.to_string();
            let line = text.lines().next().unwrap_or_default();
            let plain: Vec<&str> = line.split('"').step_by(2).collect();
            return Self::Malformed(plain.join("…"));
        }
        let wanted = if let KubeconfigError::LoadContext(name) = error {
            format!("it has no context {name}")
        } else if matches!(error, KubeconfigError::CurrentContextNotSet) {
            "it has no current-context".to_owned()
        } else {
            return Self::Content(error.to_string());
        };
        let names: Vec<&str> = contexts.iter().map(|context| context.name.as_str()).collect();
        let known = if names.is_empty() {
            "no context".to_owned()
        } else {
            names.join(", ")
        };
        Self::NoContext { wanted, known }
    }
}

/// How Roadstead authenticates to a worker cluster. `Debug` never shows the secret parts.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A bearer token.
    Token(SecretString),
    /// A client certificate (PEM) and its key (PEM).
    ClientCertificate {
        /// The certificate chain, PEM.
        certificate: String,
        /// The private key, PEM.
        key: SecretString,
    },
}

/// Everything needed to reach one worker cluster, already validated.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `https://host:port`.
    pub server: String,
    /// The certificate authority, PEM.
    pub authority: String,
    /// The identity that Roadstead uses there.
    pub credential: Credential,
}

/// A client for a worker cluster, under no permit. No request is sent yet.
pub fn worker(endpoint: &Endpoint, user_agent: &str) -> Result<Client, Error> {
    worker_under(endpoint, user_agent, &Permit::endless())
}

/// A client for a worker cluster that sends changes only while the permit allows it. No request is sent yet.
pub fn worker_under(endpoint: &Endpoint, user_agent: &str, permit: &Permit) -> Result<Client, Error> {
    let url = endpoint
        .server
        .parse()
        .map_err(|source| Error::Server { source })?;
    let mut config = Config::new(url);
    let roots: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(endpoint.authority.as_bytes())
        .filter_map(Result::ok)
        .map(|der| der.as_ref().to_vec())
        .collect();
    if roots.is_empty() {
        return Err(Error::Authority);
    }
    config.root_cert = Some(roots);
    match &endpoint.credential {
        Credential::Token(token) => config.auth_info.token = Some(token.clone()),
        Credential::ClientCertificate { certificate, key } => {
            config.auth_info.client_certificate_data = Some(encode(certificate));
            config.auth_info.client_key_data = Some(SecretString::from(encode(
                secrecy::ExposeSecret::expose_secret(key),
            )));
        }
    }
    build(config, user_agent, permit, Extras::default())
}

/// A client for the cluster this process belongs to: `kubeconfig`, else `KUBECONFIG`, else the pod's service account. It is
/// under no permit.
pub async fn local(kubeconfig: Option<&Path>, user_agent: &str) -> Result<Client, Error> {
    let config = local_config(kubeconfig).await?;
    build(config, user_agent, &Permit::endless(), Extras::of_a_process(None))
}

/// As [`local`], for a command that a user runs: a busy answer of the API server (429, 503, 504) is retried three times within
/// seconds. *Why*: right after the definitions were applied, lists are answered with 429 for a moment.
///
/// It finds its cluster as kubectl does: the named file, else the files of `KUBECONFIG` together, else `~/.kube/config`, else the
/// pod's service account. In them it uses the named context, else the current one.
pub async fn command(chosen: Chosen<'_>, user_agent: &str) -> Result<Client, Error> {
    let config = command_config(chosen).await?;
    build(config, user_agent, &Permit::endless(), Extras::of_a_command())
}

/// The cluster that a user names for a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chosen<'a> {
    /// `--kubeconfig`.
    pub kubeconfig: Option<&'a Path>,
    /// `--context`.
    pub context: Option<&'a str>,
}

/// The settings of a command's client, see [`command`].
///
/// *Errors*: as [`command`].
pub async fn command_config(chosen: Chosen<'_>) -> Result<Config, Error> {
    let files = match chosen.kubeconfig {
        Some(file) => vec![file.to_owned()],
        None => usual_files(
            std::env::var_os("KUBECONFIG").as_deref(),
            std::env::var_os("HOME").as_deref(),
        ),
    };
    let named = files.iter().map(|file| file.display().to_string());
    let path = named.collect::<Vec<_>>().join(", ");
    let failed = |contexts: &[NamedContext], error: &KubeconfigError| Error::Kubeconfig {
        path: path.clone(),
        source: Unusable::of(error, contexts),
    };
    if files.is_empty() {
        return Config::incluster().map_err(|source| Error::NoCluster { source });
    }
    let mut merged = Kubeconfig::default();
    for file in &files {
        let next = Kubeconfig::read_from(file).map_err(|error| failed(&[], &error))?;
        merged = merged.merge(next).map_err(|error| failed(&[], &error))?;
    }
    let contexts = merged.contexts.clone();
    let options = KubeConfigOptions {
        context: chosen.context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(merged, &options)
        .await
        .map_err(|error| failed(&contexts, &error))
}

/// The files that kubectl reads: the existing ones of `KUBECONFIG`, or all of them if none exists, so that the error names the
/// first. Without the variable: `~/.kube/config` if it exists.
fn usual_files(variable: Option<&OsStr>, home: Option<&OsStr>) -> Vec<PathBuf> {
    let listed = variable.map(std::env::split_paths).into_iter().flatten();
    let listed: Vec<PathBuf> = listed.filter(|file| !file.as_os_str().is_empty()).collect();
    let there: Vec<PathBuf> = listed.iter().filter(|file| file.exists()).cloned().collect();
    match (there.is_empty(), listed.is_empty()) {
        (false, _) => there,
        (true, false) => listed,
        (true, true) => {
            let usual = home.map(|home| Path::new(home).join(".kube/config"));
            usual.into_iter().filter(|file| file.exists()).collect()
        }
    }
}

/// As [`local`], but it sends changes only while the permit allows it. Its answers tell the time of the cluster.
pub async fn local_under(
    kubeconfig: Option<&Path>,
    user_agent: &str,
    permit: &Permit,
    time: &ServerTime,
) -> Result<Client, Error> {
    let config = local_config(kubeconfig).await?;
    build(
        config,
        user_agent,
        permit,
        Extras::of_a_process(Some(time.clone())),
    )
}

async fn local_config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let named = |path: &Path, contexts: &[NamedContext], error: &KubeconfigError| Error::Kubeconfig {
        path: path.display().to_string(),
        source: Unusable::of(error, contexts),
    };
    let file = match kubeconfig {
        Some(path) => Some((
            path.to_owned(),
            Kubeconfig::read_from(path).map_err(|e| named(path, &[], &e))?,
        )),
        None => Kubeconfig::from_env()
            .map_err(|e| named(Path::new("named by KUBECONFIG"), &[], &e))?
            .map(|kubeconfig| ("named by KUBECONFIG".into(), kubeconfig)),
    };
    match file {
        Some((path, kubeconfig)) => {
            let contexts = kubeconfig.contexts.clone();
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|e| named(&path, &contexts, &e))
        }
        None => Config::incluster().map_err(|source| Error::NoCluster { source }),
    }
}

/// What only some clients do.
#[derive(Default)]
struct Extras {
    /// Takes the time of the cluster from every answer.
    time: Option<ServerTime>,
    /// Which answers are retried.
    retries: Option<RetryPolicy>,
    /// Whether errors name the address of the API server. Errors of a worker's client do not: the address is in the worker's
    /// Secret, and the caller adds the name of the cluster.
    named: bool,
}

impl Extras {
    /// The extras of a process's client for its own cluster.
    fn of_a_process(time: Option<ServerTime>) -> Self {
        Self {
            time,
            retries: None,
            named: true,
        }
    }

    fn of_a_command() -> Self {
        Self {
            time: None,
            retries: Some(RetryPolicy::default()),
            named: true,
        }
    }
}

/// A request to which there was no answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {server}")]
struct Unanswered {
    server: String,
    source: BoxError,
}

/// Why an own stack: kube's default retries 15 times with growing pauses, logs every 5xx as an error, and leaves
/// Nagle's algorithm on, which costs up to 40 ms per request.
fn build(
    mut config: Config,
    user_agent: &str,
    permit: &Permit,
    Extras { time, retries, named }: Extras,
) -> Result<Client, Error> {
    config.default_retry = false;
    config.proxy_url = None;
    let agent = HeaderValue::from_str(user_agent).map_err(|_invalid| Error::UserAgent)?;
    config.headers.push((USER_AGENT, agent));
    let failed = |source| Error::Build { source };
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE.2));
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.enforce_http(false);
    let connector = config
        .rustls_https_connector_with_connector(tcp)
        .map_err(failed)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(POOL_IDLE)
        .build::<_, Checked<Body>>(connector);
    let server = named.then(|| config.cluster_url.to_string().trim_end_matches('/').to_owned());
    let service = ServiceBuilder::new()
        .map_err(move |source: BoxError| -> BoxError {
            match &server {
                // Why the permit's refusal keeps its own error: no request was sent, so no answer is missing.
                Some(server) if !source.is::<Denied>() => Box::new(Unanswered {
                    server: server.clone(),
                    source,
                }),
                Some(_) | None => source,
            }
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .option_layer(retries.map(RetryLayer::new))
        // Why outside of the deadline: while a request waits for a pause to end, it has not been sent.
        .layer(tower::layer::layer_fn(Patient::new))
        .timeout(ANSWER_TIMEOUT)
        // Why inside: the permit is checked at the moment of sending, after all waiting.
        .layer(permit.clone())
        .map_response(move |answer: http::Response<_>| {
            if let Some(time) = &time {
                time.read(answer.headers());
            }
            answer
        })
        .layer(tower::layer::layer_fn(Bounded))
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

fn encode(pem: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(pem)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Spec: experience 3
    #[test]
    fn a_command_finds_its_files_as_kubectl_does() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (one, two, none) = (
            here.join("Cargo.toml"),
            here.join("src/lib.rs"),
            here.join("missing"),
        );
        let listed = |files: &[&PathBuf]| std::env::join_paths(files).unwrap();
        let usual = |variable: Option<&OsStr>| usual_files(variable, Some(here.as_os_str()));
        assert_eq!(usual(Some(&listed(&[&one, &none, &two]))), [one, two]);
        assert_eq!(usual(Some(&listed(&[&none]))), [none], "so that it is named");
        assert_eq!(
            usual(Some(OsStr::new(""))),
            Vec::<PathBuf>::new(),
            "no ~/.kube/config there"
        );
        assert_eq!(usual_files(None, None), Vec::<PathBuf>::new());
    }

    /// Spec: safety S8
    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_explained_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let told = async |text: &str, context: Option<&str>| {
            std::fs::write(&file, text).unwrap();
            let kubeconfig = Some(file.as_path());
            let error = command_config(Chosen { kubeconfig, context }).await.unwrap_err();
            std::error::Error::source(&error).unwrap().to_string()
        };
        let good = "apiVersion: v1\nkind: Config\ncontexts:\n- {name: east, context: {cluster: c}}\n- {name: west, context: {cluster: \
                    c}}\n";
        assert_eq!(
            told(good, None).await,
            "it has no current-context; it has: east, west"
        );
        assert_eq!(
            told(good, Some("north")).await,
            "it has no context north; it has: east, west"
        );
        assert!(told(good, Some("east")).await.contains("cluster of context: c"));
        for broken in [
            "users:\n- name: u\n  user:\n    token: s3cret\n    [",
            "users: s3cret\n",
            "users:\n- name: u\n  user: \"s3cret\"\n",
        ] {
            let said = told(broken, None).await;
            assert!(said.starts_with("it is not a kubeconfig: "), "{said}");
            assert!(!said.contains("s3cret") && !said.contains('\n'), "{said}");
        }
        let kubeconfig = Some(folder.path());
        let chosen = Chosen {
            kubeconfig,
            context: None,
        };
        let error = command_config(chosen).await.unwrap_err();
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains("directory"), "{said}");
    }

    /// Answers this many requests with 429, and all others with 200.
    async fn busy(times: u32) -> (Config, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, count) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let told = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                told.fetch_add(1, Ordering::Relaxed);
                let (status, body) = if count.fetch_add(1, Ordering::Relaxed) < times {
                    ("429 Too Many Requests", "{}".to_owned())
                } else {
                    (
                        "200 OK",
                        r#"{"kind":"NamespaceList","items":[],"metadata":{}}"#.to_owned(),
                    )
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        (Config::new(url.parse().unwrap()), asked)
    }

    async fn lists(config: Config, extras: Extras) -> bool {
        let client = build(config, "test", &Permit::endless(), extras).unwrap();
        let api: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
        api.list(&kube::api::ListParams::default()).await.is_ok()
    }

    #[tokio::test]
    async fn a_command_asks_a_busy_server_again_and_a_process_does_so_by_itself() {
        let (config, asked) = busy(2).await;
        assert!(lists(config, Extras::of_a_command()).await);
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        let away = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = build(away, "test", &Permit::endless(), Extras::of_a_command()).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        let said = crate::write::describe(&error);
        assert!(
            said.starts_with("no answer from http://127.0.0.1:1: ") && said.contains("refused"),
            "{said}"
        );
        let (config, asked) = busy(1).await;
        assert!(!lists(config, Extras::default()).await);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    /// Spec: safety S14
    #[tokio::test]
    async fn an_answer_that_stops_in_the_middle_ends_and_a_watch_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config::new(
            format!("http://{}", listener.local_addr().unwrap())
                .parse()
                .unwrap(),
        );
        let server = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let half = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"kind\":";
                let _ = connection.write_all(half).await;
                open.push(connection);
            }
        });
        let client = build(config, "test", &Permit::endless(), Extras::default()).unwrap();
        let ask = |method, path| {
            let request = http::Request::builder().method(method).uri(path);
            client.send(request.body(Body::from(Vec::new())).unwrap())
        };
        let list = ask("GET", "/api/v1/pods?limit=500").await.unwrap();
        let change = ask("PATCH", "/api/v1/namespaces/a/pods/b").await.unwrap();
        let watch = ask("GET", "/api/v1/pods?watch=true").await.unwrap();
        // Why only now: connections are made in real time.
        tokio::time::pause();
        let hour = Duration::from_hours(1);
        for answer in [list, change] {
            let rest = answer.into_body().collect();
            let error = tokio::time::timeout(hour, rest).await.unwrap().unwrap_err();
            let told = crate::write::describe(&error);
            assert!(told.contains("nothing more has come for 20 s"), "{told}");
        }
        let rest = watch.into_body().collect();
        assert!(tokio::time::timeout(hour, rest).await.is_err());
        server.abort();
    }
}
