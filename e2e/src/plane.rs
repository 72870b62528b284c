//! One control plane: start it, talk to it, disturb it, stop it.
//!
//! A real one is made of processes: `start` starts them, `real` holds them. Its certificates, logs and database are in one
//! private directory, in memory (`/dev/shm`) if there is room. An `embedded` one is an API server in this process, with a
//! [`roadstead_world`] that plays the rest. Dropping a plane ends its processes and removes its files; so does the death of
//! this process.

mod access;
mod commands;
mod embedded;
mod inotify;
mod real;
mod second;
mod space;
mod start;

pub use second::SecondServer;
pub(crate) use start::locate;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::binaries::{self, Binaries};
use crate::link::Link;
use crate::options::{Kind, Options};
use crate::pki;
use access::Access;
use embedded::Embedded;
use real::Real;

/// The `User-Agent` of [`ControlPlane::client`], so that the audit log tells the harness from the subject.
pub const HARNESS_USER_AGENT: &str = "roadstead-harness";
/// Connection timeout of the harness's own client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a start checks whether the next part is ready.
const POLL: Duration = Duration::from_millis(50);
/// Timeout of one request to a starting server.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

const ETCD: &str = "etcd";
pub(crate) const APISERVER: &str = "kube-apiserver";
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KWOK: &str = "kwok";

/// Why a control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The programs could not be found or built.
    #[error("control plane {plane}: no programs to run")]
    Binaries {
        /// Name of the plane.
        plane: String,
        /// The missing programs and how to get them.
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
        /// The operation that failed.
        doing: &'static str,
        /// The path of that operation.
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
        /// The operation that failed.
        doing: &'static str,
        /// The process.
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
        /// The process.
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
        /// The part that did not become ready.
        what: String,
        /// How long the start waited.
        waited: Duration,
        /// The process whose log is quoted.
        process: &'static str,
        /// The end of that log.
        tail: String,
    },
    /// All ports of the harness's range are taken.
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
    /// A client could not be made or used.
    #[error("control plane {plane}: making or using a client")]
    Client {
        /// Name of the plane.
        plane: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API server of this process could not listen.
    #[error("control plane {plane}: starting the embedded API server")]
    Listen {
        /// Name of the plane.
        plane: String,
        /// The reason.
        #[source]
        source: roadstead_apiserver::ListenError,
    },
    /// The operation needs a real control plane.
    #[error("control plane {plane} is embedded: only a real one can {what}")]
    Embedded {
        /// Name of the plane.
        plane: String,
        /// The requested operation.
        what: &'static str,
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

/// One of a plane's two authorities, which may sign the certificate of its API server. The plane's kubeconfigs trust both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// The authority at the start.
    First,
    /// The authority that replaces it.
    Next,
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane(Backend);

#[derive(Debug)]
enum Backend {
    Real(Box<Real>),
    Embedded(Box<Embedded>),
}

impl ControlPlane {
    /// Starts a control plane and waits until it serves, its namespaces are there and its nodes are Ready.
    ///
    /// *Errors*: a missing program, a process that died (with the end of its log), a part that was not ready in time.
    /// *Limits*: a first build of the programs takes minutes and does not count for `options.start_timeout`.
    pub async fn start(options: Options) -> Result<Self, Error> {
        Ok(Self(match options.kind {
            Kind::Real => Backend::Real(Box::new(start::start(options).await?)),
            Kind::Embedded => Backend::Embedded(Box::new(embedded::start(options).await?)),
        }))
    }

    /// The plane's name.
    pub fn name(&self) -> &str {
        self.access().name()
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.access().address()
    }

    /// The API server's URL, such as `https://127.0.0.1:20017`.
    pub fn server_url(&self) -> String {
        self.access().server_url()
    }

    /// The certificates of the plane's authorities, PEM.
    pub fn ca_pem(&self) -> &str {
        self.access().ca_pem()
    }

    /// The programs that the plane runs; an embedded one runs none.
    pub fn binaries(&self) -> Option<&Binaries> {
        match &self.0 {
            Backend::Real(real) => Some(real.binaries()),
            Backend::Embedded(_) => None,
        }
    }

    /// A kubeconfig of an administrator (group `system:masters`). Contains its key or token.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_via(&self.server_url())
    }

    /// As [`ControlPlane::kubeconfig`], with another URL of the same server, such as a [`crate::Link`]'s.
    pub fn kubeconfig_via(&self, server_url: &str) -> String {
        self.access().kubeconfig_via(server_url)
    }

    /// A kubeconfig that authenticates with `token`, through `server_url`, which is [`ControlPlane::server_url`] or a
    /// [`crate::Link`]'s.
    pub fn kubeconfig_for_token_via(&self, server_url: &str, token: &str) -> String {
        self.access().kubeconfig_for_token_via(server_url, token)
    }

    /// A kubeconfig that authenticates with `token`.
    pub fn kubeconfig_for_token(&self, token: &str) -> String {
        self.kubeconfig_for_token_via(&self.server_url(), token)
    }

    /// Writes [`ControlPlane::kubeconfig`] to a file that only this user may read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        commands::write_private(path, &self.kubeconfig())
    }

    /// Writes [`ControlPlane::kubeconfig_for_token_via`] to a file that only this user may read.
    pub fn write_kubeconfig_for_token_via(
        &self,
        path: &Path,
        server_url: &str,
        token: &str,
    ) -> Result<(), Error> {
        commands::write_private(path, &self.kubeconfig_for_token_via(server_url, token))
    }

    /// An administrator's client; no retries, no read timeout. Against a real server it has the user agent
    /// [`HARNESS_USER_AGENT`]; an embedded one is called without a network. Call inside a tokio runtime; the client belongs
    /// to that runtime.
    pub fn client(&self) -> Result<kube::Client, Error> {
        match &self.0 {
            Backend::Real(real) => real.access().client_via(&self.server_url()),
            Backend::Embedded(embedded) => Ok(embedded.client()),
        }
    }

    /// A link to the API server. The link of a real control plane can also answer in its place.
    pub async fn link(&self) -> std::io::Result<Link> {
        match &self.0 {
            Backend::Real(real) => real.link().await,
            Backend::Embedded(_) => Link::start(self.address()).await,
        }
    }

    /// The path of the audit log, if there is one.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match &self.0 {
            Backend::Real(real) => real.audit_log(),
            Backend::Embedded(embedded) => embedded.audit_log(),
        }
    }

    /// Name and process id of each running process, for measurements.
    pub fn process_ids(&self) -> Vec<(&'static str, u32)> {
        match &self.0 {
            Backend::Real(real) => real.process_ids(),
            Backend::Embedded(_) => Vec::new(),
        }
    }

    /// Fails if a process has ended by itself, with the end of its log.
    pub fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Backend::Real(real) => real.check(),
            Backend::Embedded(_) => Ok(()),
        }
    }

    /// Freezes the API server (SIGSTOP): connections stay open and nothing answers. Does nothing while it is killed.
    pub fn pause(&self) -> Result<(), Error> {
        self.real("freeze its API server")?.pause()
    }

    /// Thaws the API server (SIGCONT).
    pub fn resume(&self) -> Result<(), Error> {
        self.real("thaw its API server")?.resume()
    }

    /// Kills the API server (SIGKILL); etcd and the other processes stay. Does nothing if it is already killed.
    pub fn kill_apiserver(&self) -> Result<(), Error> {
        self.real("kill its API server")?.kill_apiserver();
        Ok(())
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready. Kills it first if it runs.
    pub async fn restart_apiserver(&self) -> Result<(), Error> {
        self.real("start its API server again")?.restart_apiserver().await
    }

    /// Starts the API server again with these flags in addition, also at each further start. Does nothing if it has them.
    pub async fn serve_with(&self, flags: &'static [&'static str]) -> Result<(), Error> {
        self.real("serve with other flags")?.serve_with(flags).await
    }

    /// Starts a second API server on the same etcd, and waits until it is ready.
    pub async fn second_server(&self) -> Result<SecondServer, Error> {
        self.real("have a second API server")?.second_server().await
    }

    /// Freezes etcd (SIGSTOP): the API server waits for it. Does nothing while it is killed.
    pub fn pause_storage(&self) -> Result<(), Error> {
        self.real("freeze its storage")?.pause_storage()
    }

    /// Thaws etcd (SIGCONT).
    pub fn resume_storage(&self) -> Result<(), Error> {
        self.real("thaw its storage")?.resume_storage()
    }

    /// Kills etcd (SIGKILL); its data and the other processes stay. Does nothing if it is already killed.
    pub fn kill_storage(&self) -> Result<(), Error> {
        self.real("kill its storage")?.kill_storage();
        Ok(())
    }

    /// Starts etcd and the API server again, on the same port and data, if they were killed, and waits until they are ready.
    pub async fn revive(&self) -> Result<(), Error> {
        self.real("start what was killed")?.revive().await
    }

    /// An administrator's kubeconfig that trusts one authority only.
    pub fn kubeconfig_trusting(&self, authority: Authority) -> Result<String, Error> {
        let real = self.real("have several authorities")?;
        Ok(real.kubeconfig_trusting(&self.server_url(), authority))
    }

    /// Starts the API server again with a certificate of this authority; does nothing if it has one.
    pub async fn certify(&self, authority: Authority) -> Result<(), Error> {
        self.real("show another certificate")?.certify(authority).await
    }

    /// Keeps a copy of the stored data, for [`ControlPlane::restore_storage`].
    pub fn save_storage(&self) -> Result<(), Error> {
        self.real("copy its storage")?.save_storage()
    }

    /// Restores the copy of [`ControlPlane::save_storage`]: kills the API server and etcd, replaces the data, starts both.
    /// Revisions go back too, as after a restore from a backup.
    pub async fn restore_storage(&self) -> Result<(), Error> {
        self.real("restore its storage")?.restore_storage().await
    }

    /// Makes etcd run out of space: it answers reads and refuses writes.
    pub async fn fill_storage(&self) -> Result<(), Error> {
        self.real("fill its storage")?.fill_storage().await
    }

    /// Gives etcd space again after [`ControlPlane::fill_storage`]. Does nothing if that was not called.
    pub async fn free_storage(&self) -> Result<(), Error> {
        self.real("free its storage")?.free_storage().await
    }

    /// Ends all processes and removes all files of a plane that cannot be dropped, because it is shared; nothing starts it again. An embedded
    /// one goes on.
    pub fn end(&self) {
        match &self.0 {
            Backend::Real(real) => real.end(),
            Backend::Embedded(_) => {}
        }
    }

    /// Ends all processes and removes all files, as dropping does.
    pub fn stop(self) {
        drop(self);
    }

    fn access(&self) -> &Access {
        match &self.0 {
            Backend::Real(real) => real.access(),
            Backend::Embedded(embedded) => embedded.access(),
        }
    }

    fn real(&self, what: &'static str) -> Result<&Real, Error> {
        match &self.0 {
            Backend::Real(real) => Ok(real),
            Backend::Embedded(_) => Err(Error::Embedded {
                plane: self.name().to_owned(),
                what,
            }),
        }
    }
}
