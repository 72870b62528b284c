//! One control plane: start it, talk to it, disturb it, stop it.
//!
//! Everything of a plane lives in one private directory, in memory (`/dev/shm`) where there is room: certificates, logs, the
//! database. Dropping the plane ends its processes and removes the directory; so does the death of this process.

mod commands;
mod start;

pub(crate) use start::locate;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::AuthInfo;
use tempfile::TempDir;

use crate::binaries::{self, Binaries};
use crate::kubeconfig::{self, Credential};
use crate::options::{Audit, Options};
use crate::pki::{self, Identity};
use crate::process::{Guarded, Signal, Spec};

/// The `User-Agent` of [`ControlPlane::client`], so that the audit log tells the harness from the subject.
pub const HARNESS_USER_AGENT: &str = "roadstead-harness";
/// How long the harness's own client waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a start looks whether the next thing is ready.
const POLL: Duration = Duration::from_millis(50);

const ETCD: &str = "etcd";
const APISERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KWOK: &str = "kwok";

/// Why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The programs are not there.
    #[error("control plane {plane}: no programs to run")]
    Binaries {
        /// Name of the plane.
        plane: String,
        /// Which are missing and how to get them.
        #[source]
        source: binaries::Error,
    },
    /// The runtime ended while the programs were looked for.
    #[error("control plane {plane}: stopped while looking for its programs")]
    Interrupted {
        /// Name of the plane.
        plane: String,
        /// How the search ended.
        #[source]
        source: tokio::task::JoinError,
    },
    /// Certificates could not be made.
    #[error("control plane {plane}: making certificates")]
    Certificates {
        /// Name of the plane.
        plane: String,
        /// The reason.
        #[source]
        source: pki::Error,
    },
    /// A file or directory could not be used.
    #[error("{doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A process could not be started or signalled.
    #[error("control plane {plane}: {doing} {process}")]
    Process {
        /// Name of the plane.
        plane: String,
        /// What was tried.
        doing: &'static str,
        /// Which process.
        process: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A process ended by itself.
    #[error("control plane {plane}: {process} ended ({status}); its last lines:\n{tail}")]
    Died {
        /// Name of the plane.
        plane: String,
        /// Which process.
        process: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        tail: String,
    },
    /// Something did not become ready in time.
    #[error(
        "control plane {plane}: {what} not ready after {} s (Options::start_timeout); last lines of {process}:\n{tail}",
        waited.as_secs()
    )]
    NotReady {
        /// Name of the plane.
        plane: String,
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
        /// Whose log is quoted.
        process: &'static str,
        /// The end of that log.
        tail: String,
    },
    /// All ports of our range are taken.
    #[error("control plane {plane}: no free port on 127.0.0.1 between 20000 and 31999")]
    NoPort {
        /// Name of the plane.
        plane: String,
    },
    /// The name does not fit into file and cluster names.
    #[error("control plane name {name:?} must be 1 to 40 letters, digits or dashes")]
    Name {
        /// The name.
        name: String,
    },
    /// A client could not be made.
    #[error("control plane {plane}: making a client")]
    Client {
        /// Name of the plane.
        plane: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A node could not be created.
    #[error("control plane {plane}: creating node {node}")]
    Node {
        /// Name of the plane.
        plane: String,
        /// Name of the node.
        node: String,
        /// The server's answer.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A running control plane.
pub struct ControlPlane {
    name: String,
    port: u16,
    ca_pem: String,
    ca_der: Vec<u8>,
    admin: Identity,
    start_timeout: Duration,
    binaries: Binaries,
    audit: Audit,
    processes: Mutex<Vec<Guarded>>,
    /// What `kill_apiserver` leaves for `restart_apiserver`.
    apiserver: Spec,
    // Invariant: after `processes`, so that they are gone before their files.
    dir: TempDir,
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("name", &self.name)
            .field("port", &self.port)
            .field("dir", &self.dir.path())
            .finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves, its namespaces are there and its nodes are Ready.
    ///
    /// *Errors*: what is missing, what died (with the end of its log), what was not ready in time.
    /// *Limits*: a first build of the programs takes minutes and is not counted in `options.start_timeout`.
    pub async fn start(options: Options) -> Result<Self, Error> {
        start::start(options).await
    }

    /// The plane's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The API server's URL, such as `https://127.0.0.1:20017`.
    pub fn server_url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The certificate of the plane's authority, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The programs that the plane runs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// A kubeconfig of an administrator (group `system:masters`). Contains its key.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_via(&self.server_url())
    }

    /// As [`ControlPlane::kubeconfig`], for another way to the same server, such as a [`crate::Link`]'s URL.
    pub fn kubeconfig_via(&self, server_url: &str) -> String {
        kubeconfig::render(
            &self.name,
            server_url,
            &self.ca_pem,
            &Credential::Certificate(&self.admin),
        )
    }

    /// A kubeconfig that authenticates with `token`, through `server_url`, which is [`ControlPlane::server_url`] or a
    /// [`crate::Link`]'s.
    pub fn kubeconfig_for_token_via(&self, server_url: &str, token: &str) -> String {
        kubeconfig::render(&self.name, server_url, &self.ca_pem, &Credential::Token(token))
    }

    /// A kubeconfig that authenticates with `token`.
    pub fn kubeconfig_for_token(&self, token: &str) -> String {
        self.kubeconfig_for_token_via(&self.server_url(), token)
    }

    /// Writes [`ControlPlane::kubeconfig`] to a file that only this user may read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        commands::write_private(path, &self.kubeconfig())
    }

    /// An administrator's client with user agent [`HARNESS_USER_AGENT`]; no retries, no read timeout. Call inside a tokio
    /// runtime; the client belongs to that runtime.
    pub fn client(&self) -> Result<kube::Client, Error> {
        self.client_via(&self.server_url())
    }

    /// As [`ControlPlane::client`], through another URL.
    pub fn client_via(&self, server_url: &str) -> Result<kube::Client, Error> {
        let failed = |source| Error::Client {
            plane: self.name.clone(),
            source,
        };
        let url = server_url
            .parse()
            .map_err(|source: http::uri::InvalidUri| failed(source.into()))?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(vec![self.ca_der.clone()]);
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        config.default_retry = false;
        config.headers = vec![(USER_AGENT, HeaderValue::from_static(HARNESS_USER_AGENT))];
        config.auth_info = serde_json::from_value::<AuthInfo>(serde_json::json!({
            "client-certificate-data": STANDARD.encode(&self.admin.cert),
            "client-key-data": STANDARD.encode(&self.admin.key),
        }))
        .map_err(|source| failed(source.into()))?;
        kube::Client::try_from(config).map_err(|source| failed(source.into()))
    }

    /// Where the audit log is, if there is one.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match self.audit {
            Audit::Off => None,
            Audit::Metadata => Some(self.dir.path().join(commands::AUDIT_LOG)),
        }
    }

    /// Name and process id of each running process, for measurements.
    pub fn process_ids(&self) -> Vec<(&'static str, u32)> {
        self.processes()
            .iter()
            .map(|process| (process.name(), process.id()))
            .collect()
    }

    /// Fails if a process has ended by itself, with the end of its log.
    pub fn check(&self) -> Result<(), Error> {
        for process in self.processes().iter_mut() {
            let name = process.name();
            if let Some(status) = process
                .ended()
                .map_err(|source| self.process_error("looking at", name, source))?
            {
                return Err(Error::Died {
                    plane: self.name.clone(),
                    process: name,
                    status,
                    tail: process.log_tail(),
                });
            }
        }
        Ok(())
    }

    /// Freezes the API server (SIGSTOP): connections stay open and nothing answers. Does nothing while it is killed.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::Stop)
    }

    /// Thaws the API server (SIGCONT).
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::Continue)
    }

    /// Kills the API server (SIGKILL); etcd and the others stay. Does nothing if it is already killed.
    pub fn kill_apiserver(&self) {
        self.kill(APISERVER);
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready. Kills it first if it runs.
    pub async fn restart_apiserver(&self) -> Result<(), Error> {
        self.kill_apiserver();
        let deadline = Instant::now() + self.start_timeout;
        loop {
            self.spawn(self.apiserver.clone())?;
            match self.wait_served(deadline).await {
                // Why: a client's outgoing connection may sit on the port for a moment.
                Err(Error::Died { tail, .. })
                    if start::port_was_taken(&tail) && Instant::now() < deadline =>
                {
                    self.kill_apiserver();
                    tokio::time::sleep(POLL).await;
                }
                result => return result,
            }
        }
    }

    /// Ends all processes and removes all files, as dropping does.
    pub fn stop(self) {
        drop(self);
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Guarded>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self, name: &str) {
        // Why not in one statement: the lock must not be held while the process is collected.
        let killed: Vec<Guarded> = self
            .processes()
            .extract_if(.., |process| process.name() == name)
            .collect();
        drop(killed);
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        self.processes()
            .iter()
            .filter(|process| process.name() == APISERVER)
            .try_for_each(|process| process.signal(signal))
            .map_err(|source| self.process_error("signalling", APISERVER, source))
    }

    fn spawn(&self, spec: Spec) -> Result<(), Error> {
        let name = spec.name;
        let process = Guarded::spawn(spec).map_err(|source| self.process_error("starting", name, source))?;
        self.processes().push(process);
        Ok(())
    }

    fn process_error(&self, doing: &'static str, process: &'static str, source: std::io::Error) -> Error {
        Error::Process {
            plane: self.name.clone(),
            doing,
            process,
            source,
        }
    }
}
