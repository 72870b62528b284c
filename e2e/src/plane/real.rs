//! A running control plane of processes. The methods are documented at [`super::ControlPlane`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::commands::{STORAGE, STORAGE_SAVED};
use super::{APISERVER, Authority, ETCD, Error, POLL, PROBE_TIMEOUT, commands};
use crate::binaries::Binaries;
use crate::link::{Certificates, Link};
use crate::options::Audit;
use crate::pki::{Files, Identity};
use crate::process::{Guarded, Signal, Spec};

/// A certificate of the API server, and its authority.
pub(super) struct Certified {
    pub(super) authority: String,
    pub(super) server: Identity,
}

/// A running control plane of processes.
pub(super) struct Real {
    pub(super) access: Access,
    pub(super) start_timeout: Duration,
    pub(super) binaries: Binaries,
    pub(super) audit: Audit,
    pub(super) files: Files,
    /// By the order of [`Authority`].
    pub(super) certified: [Certified; 2],
    /// For [`Real::restore_storage`] and [`Real::revive`].
    pub(super) etcd: Spec,
    /// Whether etcd was made to run out of space.
    pub(super) full: AtomicBool,
    pub(super) processes: Mutex<Vec<Guarded>>,
    /// The API server's command, for `restart_apiserver`.
    pub(super) apiserver: Spec,
    /// Additional flags of the API server.
    pub(super) more: Mutex<&'static [&'static str]>,
    // Invariant: declared after `processes`, so that the processes end before their files are removed.
    pub(super) dir: TempDir,
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Real")
            .field("access", &self.access)
            .field("dir", &self.dir.path())
            .finish_non_exhaustive()
    }
}

impl Real {
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub(super) fn audit_log(&self) -> Option<PathBuf> {
        match self.audit {
            Audit::Off => None,
            Audit::Metadata => Some(self.dir.path().join(commands::AUDIT_LOG)),
        }
    }

    pub(super) async fn link(&self) -> std::io::Result<Link> {
        let Files {
            ca,
            server_cert,
            server_key,
            ..
        } = &self.files;
        let files = Certificates {
            certificate: server_cert,
            key: server_key,
            authority: ca,
        };
        Link::start_knowing(self.access.address(), files).await
    }

    pub(super) fn process_ids(&self) -> Vec<(&'static str, u32)> {
        self.processes()
            .iter()
            .map(|process| (process.name(), process.id()))
            .collect()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for process in self.processes().iter_mut() {
            let name = process.name();
            if let Some(status) = process
                .ended()
                .map_err(|source| self.process_error("looking at", name, source))?
            {
                return Err(Error::Died {
                    plane: self.access.name.clone(),
                    process: name,
                    status,
                    tail: process.log_tail(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), Error> {
        self.signal(APISERVER, Signal::Stop)
    }

    pub(super) fn resume(&self) -> Result<(), Error> {
        self.signal(APISERVER, Signal::Continue)
    }

    pub(super) fn pause_storage(&self) -> Result<(), Error> {
        self.signal(ETCD, Signal::Stop)
    }

    pub(super) fn resume_storage(&self) -> Result<(), Error> {
        self.signal(ETCD, Signal::Continue)
    }

    pub(super) fn kill_apiserver(&self) {
        self.kill(APISERVER);
    }

    pub(super) async fn restart_apiserver(&self) -> Result<(), Error> {
        self.kill_apiserver();
        let deadline = Instant::now() + self.start_timeout;
        loop {
            let mut apiserver = self.apiserver.clone();
            apiserver
                .args
                .extend(self.flags().iter().map(ToString::to_string));
            self.spawn(apiserver)?;
            match self.wait_served(deadline).await {
                // Why: a client's outgoing connection may use the port for a moment.
                Err(Error::Died { tail, .. }) if port_was_taken(&tail) && Instant::now() < deadline => {
                    self.kill_apiserver();
                    sleep(POLL).await;
                }
                result => return result,
            }
        }
    }

    pub(super) async fn serve_with(&self, flags: &'static [&'static str]) -> Result<(), Error> {
        if self.flags() == flags {
            return Ok(());
        }
        *self.more.lock().unwrap_or_else(PoisonError::into_inner) = flags;
        self.restart_apiserver().await
    }

    fn flags(&self) -> &'static [&'static str] {
        *self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kill_storage(&self) {
        self.kill(ETCD);
    }

    pub(super) async fn revive(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.start_timeout;
        if !self.runs(ETCD) {
            self.spawn(self.etcd.clone())?;
            self.wait_storage(deadline).await?;
        }
        if self.runs(APISERVER) {
            self.wait_served(deadline).await
        } else {
            self.restart_apiserver().await
        }
    }

    pub(super) fn kubeconfig_trusting(&self, server_url: &str, authority: Authority) -> String {
        let ca_pem = &self.certified(authority).authority;
        self.access.kubeconfig_trusting(server_url, ca_pem)
    }

    pub(super) async fn certify(&self, authority: Authority) -> Result<(), Error> {
        let Identity { cert, key } = &self.certified(authority).server;
        let Files {
            server_cert,
            server_key,
            ..
        } = &self.files;
        if fs::read_to_string(server_cert).is_ok_and(|shown| shown == *cert) {
            return Ok(());
        }
        // Why first: a running server would reload the files while only one of them is new.
        self.kill_apiserver();
        commands::write_private(server_cert, cert)?;
        commands::write_private(server_key, key)?;
        self.restart_apiserver().await
    }

    fn certified(&self, authority: Authority) -> &Certified {
        let [first, next] = &self.certified;
        match authority {
            Authority::First => first,
            Authority::Next => next,
        }
    }

    fn runs(&self, name: &str) -> bool {
        self.processes().iter().any(|process| process.name() == name)
    }

    pub(super) fn save_storage(&self) -> Result<(), Error> {
        self.signal(ETCD, Signal::Stop)?;
        let copied = self.replace_dir(STORAGE, STORAGE_SAVED);
        self.signal(ETCD, Signal::Continue)?;
        copied
    }

    pub(super) async fn restore_storage(&self) -> Result<(), Error> {
        self.kill(APISERVER);
        self.kill(ETCD);
        self.replace_dir(STORAGE_SAVED, STORAGE)?;
        self.spawn(self.etcd.clone())?;
        let deadline = Instant::now() + self.start_timeout;
        self.wait_storage(deadline).await?;
        self.restart_apiserver().await
    }

    /// Waits until etcd listens.
    pub(super) async fn wait_storage(&self, deadline: Instant) -> Result<(), Error> {
        let socket = self.dir.path().join(commands::ETCD_SOCKET);
        let listens = || async { UnixStream::connect(&socket).await.ok().map(drop) };
        self.until(deadline, "its socket", ETCD, listens).await
    }

    /// Waits until the API server is ready and has created its namespaces.
    pub(super) async fn wait_served(&self, deadline: Instant) -> Result<(), Error> {
        let client = self.own_client()?;
        let ready = || async {
            let request = http::Request::get("/readyz").body(Vec::new()).ok()?;
            client.request_text(request).await.ok().map(drop)
        };
        self.until(deadline, "/readyz", APISERVER, ready).await?;
        let api: Api<Namespace> = Api::all(client.clone());
        for name in ["default", "kube-system"] {
            let made = || async { api.get_opt(name).await.ok().flatten().map(drop) };
            self.until(deadline, &format!("namespace {name}"), APISERVER, made)
                .await?;
        }
        Ok(())
    }

    pub(super) fn own_client(&self) -> Result<Client, Error> {
        self.access.client_via(&self.access.server_url())
    }

    /// Repeats `probe` until it returns a value.
    pub(super) async fn until<T, F>(
        &self,
        deadline: Instant,
        what: &str,
        process: &'static str,
        mut probe: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Option<T>>,
    {
        loop {
            if let Ok(Some(answer)) = timeout(PROBE_TIMEOUT, probe()).await {
                return Ok(answer);
            }
            self.check()?;
            if Instant::now() >= deadline {
                return Err(self.not_ready(what, process));
            }
            sleep(POLL).await;
        }
    }

    fn not_ready(&self, what: &str, process: &'static str) -> Error {
        let tail = self
            .processes()
            .iter()
            .find(|each| each.name() == process)
            .map(Guarded::log_tail);
        Error::NotReady {
            plane: self.access.name.clone(),
            what: what.to_owned(),
            waited: self.start_timeout,
            process,
            tail: tail.unwrap_or_default(),
        }
    }

    /// Replaces one directory of the plane by a copy of another.
    fn replace_dir(&self, from: &str, to: &str) -> Result<(), Error> {
        let (from, to) = (self.dir.path().join(from), self.dir.path().join(to));
        let copied = match fs::remove_dir_all(&to) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => copy_dir(&from, &to),
        };
        copied.map_err(|source| Error::File {
            doing: "copying the storage to",
            path: to,
            source,
        })
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, Vec<Guarded>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn end(&self) {
        // Why two statements: the lock must not be held while the processes are reaped.
        let ended = std::mem::take(&mut *self.processes());
        drop(ended);
        // Why: the data of etcd and the audit log may lie in memory. What cannot be removed now is removed with the directory.
        let _ = fs::remove_dir_all(self.dir.path());
    }

    pub(super) fn kill(&self, name: &str) {
        // Why two statements: the lock must not be held while the process is reaped.
        let killed: Vec<Guarded> = self
            .processes()
            .extract_if(.., |process| process.name() == name)
            .collect();
        drop(killed);
    }

    fn signal(&self, name: &'static str, signal: Signal) -> Result<(), Error> {
        self.processes()
            .iter()
            .filter(|process| process.name() == name)
            .try_for_each(|process| process.signal(signal))
            .map_err(|source| self.process_error("signalling", name, source))
    }

    pub(super) fn spawn(&self, spec: Spec) -> Result<(), Error> {
        let name = spec.name;
        let process = Guarded::spawn(spec).map_err(|source| self.process_error("starting", name, source))?;
        self.processes().push(process);
        Ok(())
    }

    fn process_error(&self, doing: &'static str, process: &'static str, source: std::io::Error) -> Error {
        Error::Process {
            plane: self.access.name.clone(),
            doing,
            process,
            source,
        }
    }
}

/// Whether the end of a server's log says that its port was already in use.
pub(super) fn port_was_taken(tail: &str) -> bool {
    tail.contains("address already in use")
}

fn copy_dir(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}
